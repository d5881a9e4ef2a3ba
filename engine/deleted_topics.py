"""Which topics were deleted, and up to where the log still speaks of their former life.

Owns a small file of our own beside RocketMQ's config files. It must never be asked about a topic's
present. Called by the consume queues: a topic that is created again counts from 0, so records of
its former life must not come back when queues are rebuilt from the log (store.md 25, trap 15).
"""

from turbopump.engine.config_files import ConfigFiles
from turbopump.engine.files import Files
from turbopump.engine.types import LogOffset, StoreError

FILE_NAME = "deletedTopics.json"
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
        ends = value.get("logEnds", {}) if isinstance(value, dict) else {}
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
        kept = {name: end for name, end in self._ends.items() if end > log_min and name != topic}
        kept[topic] = log_end
        while len(kept) > ENTRIES_MAX:
            del kept[next(iter(kept))]
        self._save(kept)

    def clamp(self, log_end: LogOffset) -> None:
        """The log was cut: what is written from here on is of the topics' present life."""
        if any(end > log_end for end in self._ends.values()):
            self._save({name: min(end, log_end) for name, end in self._ends.items()})

    def _save(self, ends: dict[str, int]) -> None:
        self._files.save(FILE_NAME, {"logEnds": ends})
        self._ends = ends
