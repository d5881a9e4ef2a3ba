"""Folders of a store that are named after a topic and a queue id.

Owns the rule which names a folder may have, and every path made of such a name: consume queues,
batch queues and extensions have no other way to a path (tests/test_source.py). It must never touch
a file, but lists folders. The rule also checks names from a peer, because a topic in a record of
the log is any text that a master sent.
"""

from collections.abc import Iterator

from turbopump.engine.disk.files import Files
from turbopump.engine.types import StoreError

NAME_BYTES_MAX = 255
"""Maximum bytes of a name in a folder (Linux: NAME_MAX); RocketMQ's longest topics have as many
characters."""
QUEUE_ID_MAX = (1 << 31) - 1
"""Greatest queue id that a folder is named after: the greatest int of Java."""


def is_folder_name(topic: str) -> bool:
    """Whether a topic can be the name of its queues' folder: a single name that the disk accepts
    (LmqDispatch skips other names, too)."""
    if topic in ("", ".", "..") or "/" in topic or "\0" in topic or len(topic) > NAME_BYTES_MAX:
        return False
    try:
        return len(topic.encode(errors="surrogateescape")) <= NAME_BYTES_MAX
    except UnicodeEncodeError:  # half of a surrogate pair, which JSON can contain
        return False


def topic_folder(folder: str, topic: str) -> str:
    """Path of the folder of a topic's queues, inside `folder`, which need not exist. Raises
    StoreError for a name that no folder can have."""
    if not is_folder_name(topic):
        raise StoreError(f"no folder can be named after the topic {topic[:80]!r}")
    return f"{folder}/{topic}"


def queue_folder(folder: str, topic: str, queue_id: int) -> str:
    """Path of the folder of a queue's files, inside `folder`, which need not exist. Raises
    StoreError as `topic_folder`, and for a queue id that is negative or over QUEUE_ID_MAX."""
    if not 0 <= queue_id <= QUEUE_ID_MAX:
        raise StoreError(f"no folder can be named after queue {queue_id} of {topic[:80]!r}")
    return f"{topic_folder(folder, topic)}/{queue_id}"


def queue_folders(files: Files, folder: str) -> Iterator[tuple[str, int]]:
    """(topic, queue id) of each queue that has a folder in `folder`, sorted by topic and then by
    the text of the queue id. Folders with other names are ignored. Waits for the disk. Raises
    OSError."""
    for topic in files.list_folder(folder):
        if not is_folder_name(topic):
            continue
        for name in files.list_folder(topic_folder(folder, topic)):
            # Neither "00" nor "١": a queue's folder has exactly one name.
            if name.isascii() and name.isdigit() and len(name) <= 10 and str(int(name)) == name:
                queue_id = int(name)
                if queue_id <= QUEUE_ID_MAX:
                    yield topic, queue_id
