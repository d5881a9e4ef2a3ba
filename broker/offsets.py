"""How far each group has consumed: consumerOffset.json, and pending server-side resets.

Owns the committed and the pulled queue offset of every (topic, group, queue) and the resets that
wait for the next pull. It must never check that a topic or group exists: the handlers do. Called by
the handlers; node.py saves it every few seconds and at stop.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from turbopump.broker.config import ConfigError
from turbopump.engine.config_files import ConfigFiles
from turbopump.engine.types import QueueOffset
from turbopump.net.wire.bodies import BadBody, as_int, as_object, table
from turbopump.net.wire.topics import DataVersion

FILE_NAME = "consumerOffset.json"
NONE = QueueOffset(-1)
MAX_PAIRS = 200_000
"""(topic, group) pairs with an offset: twice the topics; a commit for one more is ignored."""
MAX_QUEUES = 600_000
"""Queues of all pairs: a client may name any queue id. With MAX_NAMES it keeps consumerOffset.json,
which has two such tables, below the 64 MiB that are read at the next start."""
MAX_NAMES = 8_000_000
"""Characters of all pairs' names; each is written up to three times."""


STEP = 4_000
"""Pairs and queues copied at once for a save: a fraction of a ms of the loop. What the table holds
at its bounds would take it a second as a whole."""

Content = Callable[[], dict[str, Any]]
_Copy = dict[tuple[str, str], dict[int, QueueOffset]]


class _Table(dict[tuple[str, str], dict[int, QueueOffset]]):
    """(topic, group) to queue id to queue offset, within the bounds above."""

    def __init__(self) -> None:
        super().__init__()
        self._queues = 0
        self._names = 0

    def put(self, pair: tuple[str, str], queue_id: int, queue_offset: QueueOffset) -> bool:
        """Set an entry unless the table is at a bound; whether it was set."""
        queues = self.get(pair)
        if queues is None or queue_id not in queues:
            names = 0 if queues is not None else len(pair[0]) + len(pair[1])
            full = queues is None and len(self) >= MAX_PAIRS
            if full or self._queues >= MAX_QUEUES or self._names + names > MAX_NAMES:
                return False
        self.restore(pair, queue_id, queue_offset)
        return True

    def restore(self, pair: tuple[str, str], queue_id: int, queue_offset: QueueOffset) -> None:
        """Set an entry that was saved, whatever the bounds: progress must not be forgotten."""
        queues = self.get(pair)
        if queues is None:
            queues = self[pair] = {}
            self._names += len(pair[0]) + len(pair[1])
        self._queues += queue_id not in queues
        queues[queue_id] = queue_offset

    def take(self, pair: tuple[str, str], queue_id: int) -> QueueOffset | None:
        """Remove an entry and return it; None if it is not there."""
        queues = self.get(pair, {})
        found = queues.pop(queue_id, None)
        if found is not None:
            self._queues -= 1
            if not queues:
                self.remove(pair)
        return found

    def remove(self, pair: tuple[str, str]) -> None:
        """Remove every entry of a pair, which must be there."""
        self._queues -= len(self.pop(pair))
        self._names -= len(pair[0]) + len(pair[1])


class OffsetTable:
    """(topic, group) to queue id to the next queue offset to consume. Loop thread only.

    `on_reset` is told of the topic and queue of a new reset, so that a waiting pull learns it.
    """

    def __init__(self, files: ConfigFiles, version_step: int = 500) -> None:
        self.on_reset: Callable[[str, int], None] = lambda topic, queue_id: None
        self.collect: Callable[[], None] = lambda: None
        """Asks for the pull offsets that were noted elsewhere meanwhile."""
        self._files = files
        self._version_step = version_step
        self._committed = _Table()
        self._pulled = _Table()
        self._resets = _Table()
        self._commits = 0
        self._changes = 0
        self._saved_changes = 0
        self.data_version = DataVersion()

    def load(self) -> None:
        """Read consumerOffset.json, ours or RocketMQ's; raises ConfigError."""
        saved = self._files.load(FILE_NAME)
        if saved is None:
            return
        try:
            members = as_object(saved)
            self.data_version = DataVersion.from_json(members.get("dataVersion"))
            self._committed = _read_table(members, "offsetTable")
            self._pulled = _read_table(members, "pullOffsetTable")
        except BadBody as error:
            raise ConfigError(f"{FILE_NAME} is damaged: {error}") from None

    def commit(
        self, group: str, topic: str, queue_id: int, queue_offset: QueueOffset, now_ms: int
    ) -> None:
        """Set the next queue offset to consume; a lower one is taken too (remoting.md 11)."""
        if self._committed.put((topic, group), queue_id, queue_offset):
            self._changes += 1
            self._commits += 1
            if self._commits % self._version_step == 0:
                self.data_version = self.data_version.next(now_ms)

    def query(self, group: str, topic: str, queue_id: int) -> QueueOffset:
        """The pending reset if there is one, else the committed offset, else -1."""
        reset = self._resets.get((topic, group), {}).get(queue_id)
        if reset is not None:
            return reset
        return self._committed.get((topic, group), {}).get(queue_id, NONE)

    def commit_pull(self, group: str, topic: str, queue_id: int, queue_offset: QueueOffset) -> None:
        """Remember where the last pull ended (for admin tools)."""
        if self._pulled.put((topic, group), queue_id, queue_offset):
            self._changes += 1

    def query_pull(self, group: str, topic: str, queue_id: int) -> QueueOffset:
        """Where the last pull ended, -1 if there was none."""
        self.collect()
        return self._pulled.get((topic, group), {}).get(queue_id, NONE)

    def queues_of(self, group: str, topic: str) -> dict[int, QueueOffset]:
        """Queue id to committed offset."""
        return dict(self._committed.get((topic, group), {}))

    def set_reset(
        self, group: str, topic: str, queue_id: int, queue_offset: QueueOffset, now_ms: int
    ) -> None:
        """Record a reset that the next pull of the queue is told, and commit it."""
        self.commit(group, topic, queue_id, queue_offset, now_ms)
        self._resets.put((topic, group), queue_id, queue_offset)
        self.on_reset(topic, queue_id)

    def has_reset(self, group: str, topic: str, queue_id: int) -> bool:
        """Whether a reset still waits for the queue's next pull."""
        return queue_id in self._resets.get((topic, group), {})

    def take_reset(self, group: str, topic: str, queue_id: int) -> QueueOffset | None:
        """The pending reset, which is then no longer pending; None if there is none."""
        return self._resets.take((topic, group), queue_id)

    def has_resets(self, group: str, topic: str) -> bool:
        """Whether a reset still waits for the next pull of some queue."""
        return bool(self._resets.get((topic, group)))

    def topics_of(self, group: str) -> list[str]:
        """Topics the group has committed offsets of, sorted."""
        return sorted(topic for topic, other in self._committed if other == group)

    def groups_of(self, topic: str) -> list[str]:
        """Groups that have committed offsets of the topic, sorted."""
        return sorted(group for other, group in self._committed if other == topic)

    def remove_topic(self, topic: str) -> None:
        """Forget everything about a deleted topic."""
        self.collect()
        self._remove(lambda pair: pair[0] == topic)

    def remove_group(self, group: str) -> None:
        """Forget everything about a deleted group."""
        self.collect()
        self._remove(lambda pair: pair[1] == group)

    def clone(self, source_group: str, target_group: str, topic: str, now_ms: int) -> None:
        """Give a group the committed offsets another group has for a topic."""
        for queue_id, queue_offset in self.queues_of(source_group, topic).items():
            self.commit(target_group, topic, queue_id, queue_offset, now_ms)

    def to_json(self) -> dict[str, Any]:
        """The content of consumerOffset.json."""
        self.collect()
        return _to_json(self.data_version, self._committed, self._pulled)

    def take_changes(self) -> Iterator[Content | None] | None:
        """What is to be saved, gathered in steps; None if nothing changed since the last call.

        Each step but the last gives None; the last one gives the content, for another thread.
        """
        self.collect()
        if self._changes == self._saved_changes:
            return None
        self._saved_changes = self._changes
        return self._gather()

    def _gather(self) -> Iterator[Content | None]:
        version = self.data_version
        copies: list[_Copy] = []
        step = 0
        for entries in (self._committed, self._pulled):
            copy: _Copy = {}
            for pair in list(entries):
                queues = entries.get(pair)
                if queues is None:
                    continue  # removed since the step before
                copy[pair] = dict(queues)
                step += 1 + len(queues)
                if step >= STEP:
                    step = 0
                    yield None
            copies.append(copy)
        yield partial(_to_json, version, *copies)

    def save_failed(self) -> None:
        """What `take_changes` gave is not on disk: give it again."""
        self._saved_changes = -1

    def save(self) -> None:
        """Write consumerOffset.json now."""
        self._saved_changes = self._changes
        self._files.save(FILE_NAME, self.to_json())

    def _remove(self, chosen: Callable[[tuple[str, str]], bool]) -> None:
        for entries in (self._committed, self._pulled, self._resets):
            for pair in [pair for pair in entries if chosen(pair)]:
                entries.remove(pair)
        self._changes += 1


def _read_table(members: dict[str, Any], name: str) -> _Table:
    read = _Table()
    for pair, queues in table(members, name, as_object).items():
        topic, separator, group = pair.partition("@")
        if separator:  # RocketMQ passes over a key without one too
            for queue_id, queue_offset in queues.items():
                read.restore(
                    (topic, group),
                    as_int(queue_id, pair),
                    QueueOffset(as_int(queue_offset, pair)),
                )
    return read


def _to_json(version: DataVersion, committed: _Copy, pulled: _Copy) -> dict[str, Any]:
    """The content of consumerOffset.json.

    Integer keys are quoted, unlike a Java peer's: all read both, and strict JSON is read faster.
    """
    groups: dict[str, list[str]] = {}
    for topic, group in sorted(committed):
        groups.setdefault(group, []).append(topic)
    return {
        "dataVersion": version.to_json(),
        "groupTopicMap": groups,
        "offsetTable": _write_table(committed),
        "pullOffsetTable": _write_table(pulled),
    }


def _write_table(table: _Copy) -> dict[str, Any]:
    return {
        f"{topic}@{group}": {str(queue_id): at for queue_id, at in sorted(queues.items())}
        for (topic, group), queues in table.items()
    }
