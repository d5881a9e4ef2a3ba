"""Which topics were deleted, and up to where the log still speaks of their former life.

Owns a small file of our own beside RocketMQ's config files. It must never be asked about a topic's
present. Called by the consume queues: a topic that is created again counts from 0, so records of
its former life must not come back when queues are rebuilt from the log (store.md 25, trap 15).
"""

from functools import partial

from turbopump.engine import fastjson
from turbopump.engine.disk import config_changes
from turbopump.engine.disk.config_files import ConfigFiles
from turbopump.engine.disk.disk_steps import Work, nothing
from turbopump.engine.disk.files import Files
from turbopump.engine.types import LogOffset, StoreError

FILE_NAME = "deletedTopics.json"
MEMBER = "logEnds"
# Entries go when the log no longer reaches back to them; no broker deletes so many before that.
ENTRIES_MAX = 100_000


class DeletedTopics:
    """Topic -> the end of the log when it was last deleted."""

    def __init__(self, files: Files, root: str) -> None:
        self._files = ConfigFiles(files, f"{root}/config")
        self._ends: dict[str, int] = {}

    def __bool__(self) -> bool:
        return bool(self._ends)

    def load(self) -> None:
        """Read the file. Raises StoreError if it is damaged."""
        value = self._files.load(FILE_NAME)
        ends = value.get(MEMBER, {}) if isinstance(value, dict) else {}
        if not all(isinstance(end, int) for end in ends.values()):
            raise StoreError(f"{FILE_NAME} holds something else than log offsets")
        self._ends = dict(ends)

    def end(self, topic: str) -> int:
        """Records of the topic that end at or before this belong to a former life; 0 if none."""
        return self._ends.get(topic, 0)

    def ends(self) -> dict[str, int]:
        """Every topic with its `end`; the last deleted one comes last."""
        return dict(self._ends)

    def add(self, topic: str, log_end: LogOffset, log_min: LogOffset) -> None:
        """A topic is about to be deleted: durable on return. Raises OSError."""
        self.note(topic, log_end, self.write(topic, log_end, log_min))

    def write(self, topic: str, log_end: LogOffset, log_min: LogOffset) -> dict[str, int] | None:
        """The first half of `add`, on any thread, one at a time: durable on return, and known once
        `note` was called. Returns the entries that are left where some went. Raises OSError.

        A deletion is appended beside the file: with 100,000 entries it takes a tenth of a second
        to write whole.
        """
        row = _text(topic) + b":%d" % log_end
        gone = [topic] if topic in self._ends else []
        change = config_changes.change({}, {MEMBER: [row]}, {MEMBER: gone})
        fits = len(self._ends) < ENTRIES_MAX
        if fits and self._files.takes(FILE_NAME, len(change)):
            self._files.append(FILE_NAME, [change])
            return None
        kept = {name: end for name, end in self._ends.items() if end > log_min and name != topic}
        kept[topic] = log_end
        while len(kept) > ENTRIES_MAX:
            del kept[next(iter(kept))]
        self._files.save(FILE_NAME, {MEMBER: kept})
        return kept

    def note(self, topic: str, log_end: LogOffset, kept: dict[str, int] | None) -> None:
        """The second half, on the loop, with what `write` returned."""
        if kept is not None:
            self._ends = kept
            return
        self._ends.pop(topic, None)
        self._ends[topic] = log_end

    def clamp(self, log_end: LogOffset) -> None:
        """The log was cut: what is written from here on is of the topics' present life. Raises
        OSError."""
        self.clamping(log_end)()

    def clamping(self, log_end: LogOffset) -> Work:
        """As `clamp`: what is given makes it durable."""
        if all(end <= log_end for end in self._ends.values()):
            return nothing
        self._ends = {name: min(end, log_end) for name, end in self._ends.items()}
        return partial(self._files.save, FILE_NAME, {MEMBER: self._ends})


def _text(value: str) -> bytes:
    return fastjson.dumps(value).encode("utf-8", "replace")
