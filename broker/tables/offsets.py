"""Consumed offsets of each group: consumerOffset.json, and pending server-side resets.

Owns the committed and the pulled queue offset of every (topic, group, queue), the number of its
set-backs, and the resets that wait for the next pull. It must never check that a topic or group
exists: the handlers do. No change writes the file: node.py saves it every few seconds and at stop.
`now_ms` is epoch ms.

A replica has to distinguish an offset that was set back on purpose from an outdated offset. So each
queue whose offset ever went back has a number that grows with each set-back (`_lowered`,
`loweredTable` in the file and in the answer to 43, which RocketMQ ignores). Of two tables, the
entry with the higher number is right, whatever the offsets; at equal numbers the higher offset is
right. Its lower bits are the time of the set-back, so that earlier deliveries no longer count.

Tests: tests/unit/broker/tables/test_tables.py, tests/unit/broker/tables/test_offset_sync.py
"""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from turbopump.broker.tables.data_versions import ACTING_STEP, VersionRules, is_older
from turbopump.broker.tables.offset_lines import (
    CommittedEntries,
    OffsetEntries,
    Pair,
    SavedEntries,
)
from turbopump.broker.tables.offset_sync import AT_ONCE, OffsetSync, OffsetSyncTables
from turbopump.engine.disk.config_files import ConfigFiles
from turbopump.engine.disk.json_table import Content, text_of
from turbopump.engine.types import QueueOffset
from turbopump.net.wire.bodies import (
    BadBody,
    Steps,
    as_int,
    as_object,
    read_table,
    sort_in_steps,
)
from turbopump.net.wire.java_properties import ConfigError
from turbopump.net.wire.topics import DataVersion

FILE_NAME = "consumerOffset.json"
"""Name of the table's file in the config folder."""
NONE = QueueOffset(-1)
"""Result of a query without an offset."""
OWN = "ownOffsetTable"
"""Member of a replica's file: offsets that differ from its master's, or that its master lacks. When
the master is asked again, it has neither set these back nor deleted them. RocketMQ ignores the
member."""

STEP = 1_000
"""Maximum pairs and queues whose lines are written in a step of 1 ms. A full table would take the
loop a second as a whole."""

PAIRS_PER_STEP = 10_000
"""Maximum pairs that are examined in a step of 1 ms."""

MAX_NAME = 1_000
"""Maximum characters of topic and group name together, for offsets from a master: a retry topic has
255, a group 120, and RocketMQ's light topics are longer."""
_INT32_MAX = 2**31 - 1
_EPOCH_SHIFT = 42
_TIME_MASK = (1 << _EPOCH_SHIFT) - 1
"""Bits of a set-back number that are the time in ms, until the year 2109."""

_Copy = dict[Pair, dict[int, QueueOffset]]


@dataclass(frozen=True, slots=True)
class Offsets:
    """A copy of all consumer offsets: the content of consumerOffset.json or of the answer to 43. It
    must not be changed. `committed` (next offset to consume), `pulled` (end of the last pull) and
    `lowered` (set-back number, see the module) are by (topic, group) and queue id."""

    version: DataVersion
    committed: _Copy
    pulled: _Copy = field(default_factory=dict)
    lowered: Mapping[Pair, Mapping[int, int]] = field(default_factory=dict)

    @classmethod
    def from_json(cls, value: Any) -> "Offsets":
        """Decode the JSON object; entries with a queue id outside 0 to 2**31 - 1, a negative
        offset, or an empty or over-long name are skipped. Raises BadBody."""
        members = as_object(value)
        return cls(
            DataVersion.from_json(members.get("dataVersion")),
            _read_table(members, "offsetTable"),
            _read_table(members, "pullOffsetTable"),
            _read_table(members, "loweredTable"),
        )

    def without(self, topics: frozenset[str], groups: frozenset[str]) -> "Offsets":
        """The same offsets without these topics and without these groups; `lowered` is left
        whole."""
        if not (topics or groups):
            return self
        committed, pulled = (
            {
                (topic, group): at
                for (topic, group), at in copy.items()
                if topic not in topics and group not in groups
            }
            for copy in (self.committed, self.pulled)
        )
        return replace(self, committed=committed, pulled=pulled)


class OffsetTable:
    """Table of the consumer offsets: (topic, group) to queue id to the next queue offset to
    consume. Loop thread only. A new entry beyond the limits of offset_lines.py is ignored
    silently."""

    def __init__(self, files: ConfigFiles, version_step: int = 500) -> None:
        """`version_step`: number of commits after which the table gets a new version."""
        self.on_reset: Callable[[str, int], None] = lambda topic, queue_id: None
        """Called with topic and queue id after `set_reset`, so that a held pull is answered with
        it."""
        self.is_popped: Callable[[str, str], bool] = lambda topic, group: False
        """Whether a group pops a topic, as set by the owner; arguments: topic, group."""
        self.collect: Callable[[], None] = lambda: None
        """Called before pull offsets are read: adds the pull offsets that the native path has
        noted; calls `collect_popped`, too."""
        self.collect_popped: Callable[[], None] = lambda: None
        """Called before any offset is read or set: commits the offsets of groups that pop natively
        to this table, and the native path gives them up."""
        self._files = files
        self._version_step = version_step
        self._committed = CommittedEntries()
        self._pulled = SavedEntries()
        self._resets = OffsetEntries()
        self._lowered = SavedEntries()
        self._own = SavedEntries()
        """Offsets of a replica that differ from its master's last answer, or that the master
        lacks."""
        self._tables: dict[str, SavedEntries] = {
            "loweredTable": self._lowered,
            OWN: self._own,
            "offsetTable": self._committed,
            "pullOffsetTable": self._pulled,
        }
        """Tables by their names in the file, in the order in which they are gathered."""
        self.adopted_at_once = AT_ONCE
        """Units of work (offset_sync.AT_ONCE) in a step of `adopt_offsets`."""
        self._adoption: OffsetSync | None = None
        """The round of `adopt_offsets` that is in progress."""
        self._commits = 0
        self._changes = 0
        self._saved_changes = 0
        self.data_version = DataVersion()
        """Version of the table; only replication may assign it from outside."""
        self.versions = VersionRules()
        """Rules for new versions; replication replaces it by an object that all tables share."""
        self.acting = False
        """Whether this replica commits for its dead master, so that its counts are news to that
        master. Set by broker/ha/acting."""

    def load(self) -> None:
        """Read consumerOffset.json, Turbopump's or RocketMQ's, if it exists, into this empty table.
        Raises ConfigError for malformed content, StoreError if the file cannot be read."""
        saved = self._files.load(FILE_NAME)
        if saved is None:
            return
        try:
            members = as_object(saved)
            self.data_version = DataVersion.from_json(members.get("dataVersion"))
            for name, mine in self._tables.items():
                for pair, queues in _read_all(members, name):
                    for queue_id, queue_offset in queues.items():
                        mine.restore_entry(pair, queue_id, queue_offset)
        except BadBody as error:
            raise ConfigError(f"{FILE_NAME} is damaged: {error}") from None
        self.take_content()  # write all lines now; later only changed lines

    def commit(
        self, group: str, topic: str, queue_id: int, queue_offset: QueueOffset, now_ms: int
    ) -> None:
        """Set the next queue offset to consume; a lower offset is accepted, and counts as a
        set-back at `now_ms` (remoting.md 11). A pending reset stays."""
        self._set_offset((topic, group), queue_id, queue_offset, now_ms, set_back_ms=now_ms)

    def commit_consumed(
        self, group: str, topic: str, queue_id: int, queue_offset: QueueOffset, now_ms: int
    ) -> None:
        """Set the next queue offset to consume, for a member that pulls; a lower offset counts as a
        set-back at `now_ms`. If the group now pops the topic, the commit is late: an offset below
        `query` is ignored, because it would cause messages to be popped again."""
        known = self.query(group, topic, queue_id)
        if queue_offset >= known or not self.is_popped(topic, group):
            self.commit(group, topic, queue_id, queue_offset, now_ms)

    def correct_offset(
        self, group: str, topic: str, queue_id: int, queue_offset: QueueOffset, now_ms: int
    ) -> None:
        """Set the next queue offset to consume instead of an offset beyond the log's end: the lower
        offset is no set-back by a user, so the time of the last set-back stays, and messages
        delivered from this log still count as delivered; see offset_recovery.py."""
        self._set_offset((topic, group), queue_id, queue_offset, now_ms, set_back_ms=None)

    def commit_popped(
        self,
        group: str,
        topic: str,
        queue_id: int,
        queue_offset: QueueOffset,
        now_ms: int,
        times: int,
    ) -> None:
        """Set the next queue offset to consume of a group that pops; it has moved `times` times
        since the last call, which count for the version. A lower offset counts as a set-back at
        `now_ms`."""
        self._set_offset(
            (topic, group), queue_id, queue_offset, now_ms, set_back_ms=now_ms, times=times
        )

    def _set_offset(
        self,
        pair: Pair,
        queue_id: int,
        queue_offset: QueueOffset,
        now_ms: int,
        set_back_ms: int | None,
        times: int = 1,
    ) -> None:
        """Set a committed offset, and count it for the version; a lower one counts as a set-back at
        `set_back_ms` (None: no user set it back)."""
        self.collect_popped()
        queues = self._committed.get(pair)
        if queues is not None and queue_offset < queues.get(queue_id, NONE):
            self._count_lowered(pair, queue_id, set_back_ms)
        if self._committed.set_entry(pair, queue_id, queue_offset):
            if self._adoption is not None:
                self._adoption.note_commit(pair, queue_id)
            if self.versions.following:
                self._own.restore_entry(pair, queue_id, queue_offset)
            self._changes += 1
            before, self._commits = self._commits, self._commits + times
            if self._commits // self._version_step != before // self._version_step:
                self.data_version = self._next_version(now_ms)

    def adopt_offsets(
        self, theirs: Offsets, before: Offsets | None, all_adopted: bool = False
    ) -> Iterator[None]:
        """Adopt a master's table `theirs`: the caller advances the iterator. The rest is skipped if
        it is dropped.

        `before` is the same master's earlier table, None if it is missing; `all_adopted`, only
        without `before`: every offset here without a mark as own came from the master. An offset
        goes back only if it was set back there; offsets that the master had before and has no
        longer are forgotten. Offsets committed here between two steps stay.

        All offsets here that are not marked as own belong to the version's term, and are no newer
        than the version. So within a term the version is adopted before the offsets, and a new
        term's version after them.
        """
        self.collect()
        tables = OffsetSyncTables(
            self._committed, self._pulled, self._resets, self._lowered, self._own
        )
        adoption = self._adoption = OffsetSync(tables, theirs, before, all_adopted)
        if theirs.version.state_version == self.data_version.state_version:
            self._set_newer_version(theirs.version)
        try:
            for _ in adoption.adopt_steps(self.adopted_at_once):
                self._changes += 1  # a save between two steps is repeated later
                yield
            self._changes += 1
            self._set_newer_version(theirs.version)
        finally:
            if self._adoption is adoption:
                self._adoption = None

    def all_offsets(self) -> Offsets:
        """The offsets of the table; a view, not a copy, valid until the table changes."""
        self.collect_popped()
        return Offsets(self.data_version, self._committed, self._pulled, self._lowered)

    def clamp_to_ends(self, queue_end: Callable[[str, int], int], now_ms: int) -> int:
        """Set each committed or pulled offset and reset beyond the end of its queue to that end;
        return the number of committed offsets that changed.

        `queue_end(topic, queue_id)` counts all records of the log, including records that readers
        may not see yet. The messages that such an offset had consumed are missing in this log:
        other messages will take their places, and a consumer must not skip those (R14).
        """
        self.collect()
        ends: dict[tuple[str, int], int] = {}
        found = 0
        for entries in (self._pulled, self._resets, self._committed):
            for pair, queues in entries.items():
                topic, group = pair
                for queue_id, queue_offset in list(queues.items()):
                    end = ends.get((topic, queue_id))
                    if end is None:
                        end = ends[topic, queue_id] = queue_end(topic, queue_id)
                    if queue_offset <= end:
                        continue
                    if entries is self._committed:
                        self.correct_offset(group, topic, queue_id, QueueOffset(end), now_ms)
                        found += 1
                    else:
                        entries.restore_entry(pair, queue_id, QueueOffset(end))
        return found

    def bump_version(self, now_ms: int) -> None:
        """Give the same offsets a new version, because this broker's term begins; as master, forget
        the marks of own offsets."""
        self.collect_popped()
        if not self.versions.following:
            self._own.remove_all()  # as master, no offset is the replica's own
        self._changes += 1
        self.data_version = self.versions.next_version(self.data_version, now_ms)

    def query(self, group: str, topic: str, queue_id: int) -> QueueOffset:
        """The queue offset of the pending reset, which stays; else the committed offset; else NONE
        (-1)."""
        self.collect_popped()
        reset = self._resets.get((topic, group), {}).get(queue_id)
        if reset is not None:
            return reset
        return self._committed.get((topic, group), {}).get(queue_id, NONE)

    def commit_pull(self, group: str, topic: str, queue_id: int, queue_offset: QueueOffset) -> None:
        """Set the queue offset after the group's last pull, for admin tools and the lag."""
        if self._pulled.set_entry((topic, group), queue_id, queue_offset):
            self._changes += 1

    def query_pull(self, group: str, topic: str, queue_id: int) -> QueueOffset:
        """The queue offset after the group's last pull; for a group that has not pulled the queue,
        such as a popping group, the result of `query` (ConsumerOffsetManager.queryPullOffset),
        which may be NONE (-1)."""
        self.collect()
        pulled = self._pulled.get((topic, group), {}).get(queue_id, NONE)
        return pulled if pulled != NONE else self.query(group, topic, queue_id)

    def queues_of(self, group: str, topic: str) -> dict[int, QueueOffset]:
        """Queue id to committed offset, unordered; a copy, {} without offsets. Pending resets are
        ignored."""
        self.collect_popped()
        return dict(self._committed.get((topic, group), {}))

    def set_reset(
        self, group: str, topic: str, queue_id: int, queue_offset: QueueOffset, now_ms: int
    ) -> None:
        """Commit an offset, and set it as the reset that the next pull of the queue takes; calls
        `on_reset`."""
        self.commit(group, topic, queue_id, queue_offset, now_ms)
        self._resets.set_entry((topic, group), queue_id, queue_offset)
        self.on_reset(topic, queue_id)

    def reset_for_next_life(self, group: str, topic: str, queue_count: int) -> None:
        """Reset the queues 0 to `queue_count` - 1 of an online group's deleted topic: the group's
        first pull of each queue of the topic's next life starts at offset 0, and commits before
        that pull are ignored."""
        for queue_id in range(queue_count):
            self._resets.set_entry((topic, group), queue_id, QueueOffset(0))

    def forget_resets(self, topics: Container[str]) -> None:
        """Drop all pending resets of these topics: the offsets of their next lives are known."""
        self._resets.remove([pair for pair in self._resets if pair[0] in topics])

    def last_reset_ms(self, group: str, topic: str, queue_id: int) -> int:
        """Time of the queue's last set-back on purpose, in epoch ms; close to 0 (1970) if it was
        never set back."""
        return self._lowered.get((topic, group), {}).get(queue_id, 0) & _TIME_MASK

    def has_reset(self, group: str, topic: str, queue_id: int) -> bool:
        """Whether a reset waits for the queue's next pull (`set_reset`, `begin_again`); it
        stays."""
        return queue_id in self._resets.get((topic, group), {})

    def take_reset(self, group: str, topic: str, queue_id: int) -> QueueOffset | None:
        """Remove the queue's pending reset and return its queue offset; None without a reset."""
        return self._resets.remove_entry((topic, group), queue_id)

    def has_resets(self, group: str, topic: str) -> bool:
        """Whether a reset waits for the next pull of any queue of the topic."""
        return bool(self._resets.get((topic, group)))

    def topics_of(self, group: str) -> list[str]:
        """Topics of which the group has committed offsets, sorted; a copy."""
        return self._committed.groups.topics_of(group)

    def groups_of(self, topic: str) -> list[str]:
        """Groups that have committed offsets of the topic, sorted. It walks over all pairs: see
        `groups_in_steps`."""
        return sorted(group for other, group in self._committed if other == topic)

    def topics_in_steps(self, group: str) -> Steps[list[str]]:
        """Return the topics of which the group has committed offsets, sorted; yields after each
        PAIRS_PER_STEP pairs."""
        found: list[str] = []
        for pairs in self._pairs_in_steps():
            if pairs is None:
                yield
            else:
                found += [topic for topic, other in pairs if other == group]
        return (yield from sort_in_steps(found))

    def groups_in_steps(self, topic: str) -> Steps[list[str]]:
        """Return the groups that have committed offsets of the topic, sorted; yields after each
        PAIRS_PER_STEP pairs."""
        found: list[str] = []
        for pairs in self._pairs_in_steps():
            if pairs is None:
                yield
            else:
                found += [group for other, group in pairs if other == topic]
        return (yield from sort_in_steps(found))

    def topics_by_group(self) -> Steps[dict[str, list[str]]]:
        """Return group to its unsorted topics, for every group with committed offsets; yields after
        each PAIRS_PER_STEP pairs."""
        found: dict[str, list[str]] = {}
        for pairs in self._pairs_in_steps():
            if pairs is None:
                yield
                continue
            for topic, group in pairs:
                found.setdefault(group, []).append(topic)
        return found

    def _pairs_in_steps(self) -> Iterator[list[Pair] | None]:
        """Yield all pairs, some at a time; None where a step ends."""
        pairs = list(self._committed)
        for at in range(0, len(pairs), PAIRS_PER_STEP):
            if at:
                yield None
            yield pairs[at : at + PAIRS_PER_STEP]

    def forget_former(self, ended_ms: Callable[[str, str], int]) -> None:
        """Remove the offsets and resets of all pairs whose topic or group ended, by
        `ended_ms(topic, group)` in epoch ms (Lives.ended_ms), after the time of the table's
        version."""
        saved = self.data_version.timestamp
        self._remove(lambda pairs: [pair for pair in pairs if ended_ms(*pair) > saved])

    def remove_topic(self, topic: str, deleted_ms: int = 0) -> None:
        """Remove all offsets and resets of a topic that was deleted at `deleted_ms` (epoch ms),
        which becomes the time of a new version; 0: the version stays."""
        self.collect()
        self._remove(lambda pairs: [pair for pair in pairs if pair[0] == topic], deleted_ms)

    def remove_group(self, group: str, deleted_ms: int = 0) -> None:
        """Remove all offsets and resets of a group that was deleted at `deleted_ms` (epoch ms),
        which becomes the time of a new version; 0: the version stays."""
        self.collect()
        self._remove(lambda pairs: [pair for pair in pairs if pair[1] == group], deleted_ms)

    def clone_offsets(
        self, source_group: str, target_group: str, topic: str, now_ms: int
    ) -> Iterator[None]:
        """Commit the offsets that `source_group` has committed of the topic for `target_group`,
        too, lower or not. Nothing happens before the iterator's first step; it yields after each
        STEP queues."""
        queues = self.queues_of(source_group, topic)
        for number, (queue_id, queue_offset) in enumerate(queues.items(), 1):
            self.commit(target_group, topic, queue_id, queue_offset, now_ms)
            if number % STEP == 0:
                yield

    @property
    def queue_count(self) -> int:
        """Number of (topic, group, queue) with a committed offset plus the number with a pulled
        offset."""
        return self._committed.queues + self._pulled.queues

    def take_content(self) -> Content:
        """The current content of the file, as a function that another thread calls to make the
        text."""
        *_, content = self.gather_content()
        assert content is not None
        return content

    def take_in_steps(self) -> Steps[Content]:
        """Return the current content of the file, as a function that another thread calls to make
        the text; yields after each step of some STEP lines."""
        for content in self.gather_content():
            if content is not None:
                return content
            yield
        raise AssertionError("the last step returns the content")

    def take_changes(self) -> Iterator[Content | None] | None:
        """Begin to gather the content to save; None if nothing has changed since the last call. If
        the write fails, the caller calls `save_failed`.

        Each step of the iterator but the last yields None; the last step yields the content, a
        function that another thread calls to make the text.
        """
        self.collect()
        if self._changes == self._saved_changes:
            return None
        self._saved_changes = self._changes
        return self.gather_content()

    def gather_content(self) -> Iterator[Content | None]:
        """Gather the current content of the file: each step of the iterator yields None, and the
        last step the content, a function that another thread calls to make the text.

        An offset set back between two steps may be sent with its previous number, never with a
        later number: it is sent again with its own, and until then the higher offset counts.
        """
        self.collect()
        version = self.data_version
        members: dict[str, Any] = {"dataVersion": version.to_json()}
        for name, entries in self._tables.items():
            for _ in entries.lines.write(entries, STEP):
                yield None
            members[name] = entries.lines.snapshot()
        for _ in self._committed.groups.write(STEP):
            yield None
        if self.data_version.state_version == version.state_version:
            members["dataVersion"] = self.data_version.to_json()
        members["groupTopicMap"] = self._committed.groups.snapshot()
        for name in ("offsetTable", "pullOffsetTable"):
            members[name] = members[name] or {}
        yield partial(text_of, members)

    def save_failed(self) -> None:
        """Make the next `take_changes` return the content again, because its write failed."""
        self._saved_changes = -1

    def save(self) -> None:
        """Write consumerOffset.json now, durably, even if nothing has changed; blocks. Raises
        OSError."""
        self._saved_changes = self._changes
        self._files.replace(FILE_NAME, self.take_content())

    def forget_marks(self) -> None:
        """Remove the own-offset marks of a master: its offsets are right whether or not others have
        them. AssertionError on a replica."""
        assert not self.versions.following, (
            "a replica's marks show the offsets that its master lacks"
        )
        self._own.remove_all()

    def _set_newer_version(self, version: DataVersion) -> None:
        """Set the table's version, unless it is older than the present one."""
        if not is_older(version, self.data_version):
            self.data_version = version

    def _next_version(self, now_ms: int) -> DataVersion:
        """The version after a change; its time never goes back."""
        version = self.data_version
        now_ms = max(now_ms, version.timestamp)  # see forget_former
        if self.acting:
            return version.next_version(now_ms, version.state_version)
        return self.versions.next_version(version, now_ms)

    def _count_lowered(self, pair: Pair, queue_id: int, set_back_ms: int | None) -> None:
        """Increase the set-back number of a queue, because its offset goes back; the number
        contains the time `set_back_ms` (epoch ms; None: the time stays as it was), and a later
        term's number is higher than all of an earlier term."""
        if self.versions.following and not self.acting:
            return
        epoch = max(self.versions.epoch, self.data_version.state_version, 0)
        before = self._lowered.get(pair, {}).get(queue_id, 0)
        at_ms = before & _TIME_MASK if set_back_ms is None else set_back_ms
        number = max(before, epoch << _EPOCH_SHIFT | min(max(at_ms, 0), _TIME_MASK))
        number += ACTING_STEP if self.acting else 1
        self._lowered.restore_entry(pair, queue_id, QueueOffset(number))

    def _remove(self, chosen: Callable[[Iterable[Pair]], list[Pair]], deleted_ms: int = 0) -> None:
        """Remove the pairs that `chosen` returns. `chosen` is called for each table instead of each
        of up to MAX_PAIRS pairs, which would take three times as long."""
        for entries in (self._committed, self._pulled, self._resets, self._lowered):
            entries.remove(chosen(entries))
        self._changes += 1
        if deleted_ms and not self.versions.following:
            self.data_version = self._next_version(deleted_ms)


def _read_all(members: dict[str, Any], name: str) -> Iterator[tuple[Pair, dict[int, QueueOffset]]]:
    """Yield (pair, queue id to number) of the table `name` in a file's object. Raises BadBody."""
    for pair, queues in read_table(members, name, as_object).items():
        topic, separator, group = pair.partition("@")
        if separator:  # RocketMQ skips a key without a separator, too
            yield (
                (topic, group),
                {as_int(key, pair): QueueOffset(as_int(at, pair)) for key, at in queues.items()},
            )


def _read_table(members: dict[str, Any], name: str) -> _Copy:
    """Return the table `name` in another broker's object, without impossible entries. Raises
    BadBody."""
    return {
        (topic, group): {
            queue_id: at
            for queue_id, at in queues.items()
            if at >= 0 and 0 <= queue_id <= _INT32_MAX
        }
        for (topic, group), queues in _read_all(members, name)
        if topic and group and len(topic) + len(group) <= MAX_NAME
    }
