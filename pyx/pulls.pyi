"""Native pulls that find messages."""

from collections.abc import Callable
from typing import Self

from turbopump.pyx.dispatch import QueueTable
from turbopump.pyx.filter import Filter
from turbopump.pyx.region import Region
from turbopump.pyx.tail import Tail

MAX_READERS: int
"""Maximum number of pairs of group and topic served natively; the Python handler serves others."""
MAX_QUEUES: int
"""Maximum number of queues of a topic read natively: a reader needs 56 bytes for each."""
MAX_HELD: int
"""Maximum number of mappings of queue files that readers hold; before one more, all are
released."""

class Pulls:
    """Pulls that a broker serves natively: plain ones that find messages, and with a HeldRows also
    pulls that wait for the next message. The Python handler serves all others. Loop thread only.

    `file_size` is the bytes of a commit log file. `limits` is (bytes from the end of the log that
    count as near, most messages and bytes of an answer near the end, the same further back).
    `units_of(topic, queue id, queue offset)` returns the mapping of a queue file, its first queue
    offset, the queue's slot and its min offset, None if there are no units; `log_of(log offset)`
    returns the mapping of the log file that begins there, None if it was removed; `commit(group,
    topic, queue id, queue offset, now_ms)` receives an offset that a pull committed, with the time
    in epoch ms.
    """

    found_count: int
    """Number of pulls served since this was last set to 0."""
    missed_count: int
    """Number of reads for held pulls that found nothing since this was last set to 0."""
    transferred_count: int
    """Number of messages delivered since this was last set to 0."""

    def __new__(
        cls,
        tail: Tail,
        queues: QueueTable,
        file_size: int,
        limits: tuple[int, int, int, int, int],
        *,
        units_of: Callable[[bytes, int, int], tuple[Region, int, int, int] | None],
        log_of: Callable[[int], Region | None],
        commit: Callable[[bytes, bytes, int, int, int], None],
    ) -> Self: ...
    def serve(
        self,
        group: bytes,
        topic: bytes,
        queue_limit: int,
        *,
        readers: tuple[int, int],
        topic_sys_flag: int,
        group_sys_flag: int,
        sub_version: int,
        subscription: bytes | None,
        expression_type: bytes | None,
        codes: frozenset[int] | None,
        filter: Filter | None,
        until_ms: int,
    ) -> None:
        """Serve pulls of this group from queue ids below `queue_limit` of this topic natively,
        until `forget` or `until_ms` (epoch ms); a no-op for more than MAX_QUEUES queues or
        MAX_READERS pairs. `readers` are the broker ids that answers suggest for the next pull: near
        the end of the log, and further back.

        With a `subscription`, only pulls with exactly this subscription, version and type are
        served; without it, only pulls without a subscription and with a version up to
        `sub_version`. `codes` are the hashes of the tags to read, None for all; `filter` chooses
        among these messages.
        """

    def forget(self, group: bytes) -> None:
        """Leave pulls of this group to the Python handler, until the next `serve`."""

    def forget_all(self) -> None:
        """Leave pulls of every group to the Python handler; see `forget`."""

    def take_got(self) -> list[tuple[bytes, bytes, int, int, int]]:
        """Return (group, topic, pulls, messages delivered, bytes of their records) since the last
        call, for each pair of group and topic that got messages."""

    def take_pulled(self) -> list[tuple[bytes, bytes, int, int]]:
        """Take the ends of pulls since the last call: (group, topic, queue id, queue offset after
        the last native pull) of each queue pulled."""

    def drop_pulled(self, group: bytes, topic: bytes, queue_id: int) -> None:
        """Leave a queue's last native pull out of the next `take_pulled`."""

    def tidy(self) -> None:
        """Release all mappings if queues or their first offsets changed since they were taken
        (QueueTable.changed); else do nothing."""

    def let_go(self) -> None:
        """Release all mappings of queue and log files; the next pull takes them again."""
