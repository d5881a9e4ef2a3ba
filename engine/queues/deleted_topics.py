"""The deleted topics, and the log offsets up to which records belong to their earlier life.

Owns a small file of our own beside RocketMQ's config files. It must never be asked about a topic's
present life. A topic that is created again counts from 0, so records of its earlier life must not
come back when queues are rebuilt from the log (store.md 25, trap 15).
"""

from functools import partial

from turbopump.engine import fastjson
from turbopump.engine.disk import config_changes
from turbopump.engine.disk.config_files import ConfigFiles
from turbopump.engine.disk.disk_steps import Work, no_work
from turbopump.engine.disk.files import Files
from turbopump.engine.types import LogOffset, StoreError

FILE_NAME = "deletedTopics.json"
"""Name of the file in the store's folder `config`."""
MEMBER = "logEnds"
"""Member of the file: topic to the log's end at its deletion."""
TIMES = "deletedMs"
"""Member of the file: topic to the epoch ms of its deletion, negative if only the log proves it."""
ENTRIES_MAX = 100_000
"""Maximum number of entries; the oldest deletion beyond it is forgotten. An entry is removed when
the log begins after it; no broker deletes this number of topics before."""


class DeletedTopics:
    """Topic -> the end of the log when it was last deleted, and the time of that deletion."""

    def __init__(self, files: Files, root: str) -> None:
        self._files = ConfigFiles(files, f"{root}/config")
        self._ends: dict[str, int] = {}
        self._times: dict[str, int] = {}
        self.latest_ms = 0
        """The latest time of all deletions, in epoch ms; 0: no time is known."""

    def __bool__(self) -> bool:
        """Whether any deletion is on record."""
        return bool(self._ends)

    def load(self) -> None:
        """Read the file; no deletions without a file. Raises StoreError if it is damaged."""
        value = self._files.load(FILE_NAME)
        ends = value.get(MEMBER, {}) if isinstance(value, dict) else {}
        times = value.get(TIMES, {}) if isinstance(value, dict) else {}
        if not all(isinstance(number, int) for number in (*ends.values(), *times.values())):
            raise StoreError(f"{FILE_NAME} has values that are not log offsets or times")
        self._ends, self._times = dict(ends), dict(times)
        self.latest_ms = max(map(abs, self._times.values()), default=0)

    def former_life_end(self, topic: str) -> int:
        """Log offset up to which records of the topic belong to an earlier life; 0 if there was
        none."""
        return self._ends.get(topic, 0)

    def former_life_ends(self) -> dict[str, int]:
        """A copy of every topic with its `former_life_end`, in the order of the deletions."""
        return dict(self._ends)

    def deletion_times(self) -> dict[str, int]:
        """Topic to the time of its last deletion, in epoch ms; topics whose deletion an older
        broker recorded without a time are missing."""
        return {topic: abs(at_ms) for topic, at_ms in self._times.items()}

    def deleted_ms(self, topic: str) -> int:
        """Time of the topic's last deletion, in epoch ms; 0: never deleted, or unknown."""
        return abs(self._times.get(topic, 0))

    def is_proven(self, topic: str) -> bool:
        """Whether only the log proves the topic's last deletion (new_lives.py). Its time is then an
        upper bound, which the master's time replaces."""
        return self._times.get(topic, 0) < 0

    def add(self, topic: str, log_end: LogOffset, log_min: LogOffset, deleted_ms: int = 0) -> None:
        """Record that `topic` is deleted while the log ends at `log_end` and begins at `log_min`,
        before the deletion begins: durable on return, blocks for the disk. `deleted_ms` is in epoch
        ms: 0 if unknown, negative if only the log proves the deletion. Raises OSError."""
        kept = self.write(topic, log_end, log_min, deleted_ms)
        self.enter_deletion(topic, log_end, kept, deleted_ms)

    def write(
        self, topic: str, log_end: LogOffset, log_min: LogOffset, deleted_ms: int = 0
    ) -> dict[str, int] | None:
        """Write the deletion to the file, the first half of `add`, on any thread, one call at a
        time: durable on return; this object changes with `enter_deletion`. Returns the remaining
        ends if the whole file was written, without entries that end at or before `log_min`; else
        None. Raises OSError.

        A deletion is appended beside the file: with 100,000 entries, writing the whole file takes a
        tenth of a second.
        """
        row = _json_text(topic) + b":%d" % log_end
        time_row = _json_text(topic) + b":%d" % deleted_ms
        replaced = [topic] if topic in self._ends else []
        old_time = [topic] if topic in self._times else []
        change = config_changes.encode_change(
            {}, {MEMBER: [row], TIMES: [time_row]}, {MEMBER: replaced, TIMES: old_time}
        )
        fits = len(self._ends) < ENTRIES_MAX
        if fits and self._files.may_append(FILE_NAME, len(change)):
            self._files.append(FILE_NAME, [change])
            return None
        kept = {name: end for name, end in self._ends.items() if end > log_min and name != topic}
        kept[topic] = log_end
        while len(kept) > ENTRIES_MAX:
            del kept[next(iter(kept))]
        times = {name: self._times[name] for name in kept if name in self._times}
        self._files.save(FILE_NAME, {MEMBER: kept, TIMES: {**times, topic: deleted_ms}})
        return kept

    def enter_deletion(
        self, topic: str, log_end: LogOffset, kept: dict[str, int] | None, deleted_ms: int = 0
    ) -> None:
        """Enter the deletion here, the second half of `add`, on the loop thread after `write` with
        the same arguments has succeeded; `kept` is its result."""
        if kept is not None:
            self._times = {name: at for name, at in self._times.items() if name in kept}
        self._times[topic] = deleted_ms
        self.latest_ms = max(self.latest_ms, abs(deleted_ms))
        if kept is not None:
            self._ends = kept
            return
        self._ends.pop(topic, None)
        self._ends[topic] = log_end

    def lower_ends(self, log_end: LogOffset) -> None:
        """Lower all ends above `log_end`, where the log was cut, to it: records written after it
        belong to the topics' present life. Durable on return. Raises OSError."""
        self.lower_ends_work(log_end)()

    def lower_ends_work(self, log_end: LogOffset) -> Work:
        """Lower all ends as `lower_ends` does, in memory at once; the returned work, for a disk
        thread, makes that durable and raises OSError."""
        if all(end <= log_end for end in self._ends.values()):
            return no_work
        self._ends = {name: min(end, log_end) for name, end in self._ends.items()}
        return partial(self._files.save, FILE_NAME, {MEMBER: self._ends, TIMES: dict(self._times)})


def _json_text(value: str) -> bytes:
    return fastjson.dumps(value).encode("utf-8", "replace")
