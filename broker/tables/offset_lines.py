"""OffsetEntries of the offset table, and their lines in consumerOffset.json.

Owns the bounds of the entries, the text of the lines, and the set of outdated lines: a line is
written once for each change of its offsets. It must never decide which of two offsets is right. The
lines are written into memory on the loop, in steps; a disk thread joins them into the file's text.

A broker with many groups has a hundred thousand lines, of which few change between two saves.
Copying and writing all of them each time took the interpreter almost a second, during which the
loop ran only for a moment every five milliseconds.
"""

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from json.encoder import encode_basestring
from typing import Final

from turbopump.engine import fastjson
from turbopump.engine.disk.json_table import TableSnapshot
from turbopump.engine.types import QueueOffset

Pair = tuple[str, str]
"""(topic, group), in this order."""

MAX_PAIRS = 200_000
"""Maximum (topic, group) pairs with an offset, twice the topics; `OffsetEntries.set_entry` refuses
a further pair."""
MAX_QUEUES = 600_000
"""Maximum queues of all pairs, for `OffsetEntries.set_entry`: a client may send any queue id. With
MAX_NAMES it keeps consumerOffset.json, which has two such tables, below the 64 MiB that are read at
the next start."""
MAX_NAMES = 8_000_000
"""Maximum characters of all pairs' topic and group names; each is written up to three times."""

COPIED: Final = 64
"""Number of a group's topics that are copied in the time that an offset line takes to write."""

_BETWEEN: Final = ",\n\t\t\t"


class _Line(bytes):
    """A row of the file as finished text."""

    __slots__ = ()

    def row(self) -> bytes:
        """The row itself."""
        return self


def _encode_line(name: str, queues: Mapping[int, int]) -> _Line:
    """Return the row of a pair: the same text as fastjson.encode_member(name, queues, 2), with the
    keys sorted as text. Integer keys are quoted, unlike a Java peer's: every reader accepts both,
    and strict JSON is read faster."""
    members = _BETWEEN.join(sorted([f'"{queue_id}":{at}' for queue_id, at in queues.items()]))
    text = f"{encode_basestring(name)}:{{\n\t\t\t{members}\n\t\t}}"
    return _Line(text.encode("utf-8", "replace"))


class OffsetLines:
    """The texts of an offset table's lines in consumerOffset.json, one per pair:
    `"topic@group":{"queue id":number,...}`."""

    def __init__(self) -> None:
        self._stale: dict[Pair, None] = {}
        self._lines: dict[str, _Line] = {}

    def mark_outdated(self, pair: Pair) -> None:
        """Mark a pair's line as outdated: its queues have changed. The next `write` updates the
        line."""
        self._stale[pair] = None

    def remove(self, pairs: Iterable[Pair]) -> None:
        """Mark the lines of removed pairs as outdated; the next `write` drops the lines."""
        self._stale.update(dict.fromkeys(pairs))

    def write(self, table: Mapping[Pair, Mapping[int, int]], step: int) -> Iterator[None]:
        """Update the outdated lines in memory from `table`; each step of the iterator updates some
        `step` pairs and queues, at least a pair. Changes between two steps may be included; several
        iterators may run at the same time."""
        stale, lines = self._stale, self._lines
        while stale:
            done = 0
            for pair in list(islice(stale, step)):
                del stale[pair]
                name, queues = f"{pair[0]}@{pair[1]}", table.get(pair)
                done += 1 + len(queues or ())
                if queues:
                    lines[name] = _encode_line(name, queues)
                else:
                    lines.pop(name, None)
                if done >= step:
                    break
            if stale:
                yield

    def snapshot(self) -> TableSnapshot | None:
        """Return a copy of the lines as of the last `write`, to be made into text by another
        thread; None if there are no lines."""
        return TableSnapshot(list(self._lines), dict(self._lines)) if self._lines else None


class _GroupLine:
    """The line of a group with its topics. The text is made on demand, because it may be long."""

    __slots__ = ("_group", "_row", "_topics")

    def __init__(self, group: str, topics: list[str]) -> None:
        self._group, self._topics, self._row = group, topics, b""

    def row(self) -> bytes:
        """The row's text, made at the first call."""
        if not self._row:
            self._row = fastjson.encode_member(self._group, self._topics, 2)
            self._topics = []
        return self._row


class GroupLines:
    """The sorted topics of each group that has committed offsets, with the text of each group's
    line in `groupTopicMap` of consumerOffset.json."""

    def __init__(self) -> None:
        self._topics: dict[str, list[str]] = {}
        self._stale: dict[str, None] = {}
        self._lines: dict[str, _GroupLine] = {}

    def add(self, pair: Pair) -> None:
        """Add a topic that the group does not have yet."""
        topic, group = pair
        insort(self._topics.setdefault(group, []), topic)
        self._stale[group] = None

    def remove(self, pairs: Iterable[Pair]) -> None:
        """Remove pairs, which must be there. The topics of a group are removed together: one by
        one, each would move the others."""
        removed: dict[str, list[str]] = {}
        for topic, group in pairs:
            topics = self._topics[group]
            if len(topics) == 1:
                del self._topics[group]
                self._stale[group] = None
            else:
                removed.setdefault(group, []).append(topic)
        for group, doomed in removed.items():
            topics = self._topics[group]
            if len(doomed) == 1:
                del topics[bisect_left(topics, doomed[0])]
            elif kept := set(topics).difference(doomed):
                self._topics[group] = sorted(kept)
            else:
                del self._topics[group]
            self._stale[group] = None

    def topics_of(self, group: str) -> list[str]:
        """The topics of a group, sorted; a copy, [] for an unknown group."""
        return list(self._topics.get(group, ()))

    def write(self, step: int) -> Iterator[None]:
        """Update the outdated lines in memory; each step of the iterator updates some `step` lines,
        fewer if they have many topics (COPIED topics count as a line)."""
        stale, lines = self._stale, self._lines
        while stale:
            done = 0
            for group in list(islice(stale, step)):
                del stale[group]
                topics = self._topics.get(group)
                done += 1 + len(topics or ()) // COPIED
                if topics:
                    lines[group] = _GroupLine(group, list(topics))
                else:
                    lines.pop(group, None)
                if done >= step:
                    break
            if stale:
                yield

    def snapshot(self) -> TableSnapshot:
        """Return a copy of the lines as of the last `write`, to be made into text by another
        thread, each as a piece of its own."""
        return TableSnapshot(list(self._lines), dict(self._lines), together=1)


class OffsetEntries(dict[Pair, dict[int, QueueOffset]]):
    """Table of offsets: (topic, group) to queue id to queue offset. A pair has at least one queue.
    Only these methods may change it, not the methods of dict."""

    def __init__(self) -> None:
        super().__init__()
        self.queues = 0
        """Number of queues of all pairs."""
        self._names = 0

    def set_entry(self, pair: Pair, queue_id: int, queue_offset: QueueOffset) -> bool:
        """Set or replace an entry and return True; return False, and change nothing, for a new
        entry beyond MAX_PAIRS, MAX_QUEUES or MAX_NAMES."""
        queues = self.get(pair)
        if queues is None or queue_id not in queues:
            names = 0 if queues is not None else len(pair[0]) + len(pair[1])
            full = queues is None and len(self) >= MAX_PAIRS
            if full or self.queues >= MAX_QUEUES or self._names + names > MAX_NAMES:
                return False
        self.restore_entry(pair, queue_id, queue_offset)
        return True

    def restore_entry(self, pair: Pair, queue_id: int, queue_offset: QueueOffset) -> None:
        """Set or replace an entry, whatever the limits: saved progress must not be forgotten."""
        queues = self.get(pair)
        if queues is None:
            queues = self[pair] = {}
            self._names += len(pair[0]) + len(pair[1])
            self.on_added(pair)
        self.queues += queue_id not in queues
        queues[queue_id] = queue_offset
        self.on_touched(pair)

    def remove_entry(self, pair: Pair, queue_id: int) -> QueueOffset | None:
        """Remove an entry and return its queue offset; None if it is missing."""
        queues = self.get(pair, {})
        found = queues.pop(queue_id, None)
        if found is not None:
            self.queues -= 1
            self.on_touched(pair)
            if not queues:
                self.remove([pair])
        return found

    def remove(self, pairs: Collection[Pair]) -> None:
        """Remove all entries of the pairs; KeyError if a pair is missing."""
        queues = names = 0
        for pair in pairs:
            queues += len(self.pop(pair))
            names += len(pair[0]) + len(pair[1])
        self.queues -= queues
        self._names -= names
        self.on_removed(pairs)

    def remove_all(self) -> None:
        """Remove all entries of all pairs."""
        self.remove(list(self))

    def on_added(self, pair: Pair) -> None:
        """Hook for subclasses, called just after a new pair was inserted, before it has its first
        queue."""

    def on_removed(self, pairs: Collection[Pair]) -> None:
        """Hook for subclasses, called after these pairs were removed."""

    def on_touched(self, pair: Pair) -> None:
        """Hook for subclasses, called after a queue of a pair was set or removed."""


class SavedEntries(OffsetEntries):
    """A table of offsets that is saved: each change marks the pair's line in `lines` as
    outdated."""

    def __init__(self) -> None:
        super().__init__()
        self.lines = OffsetLines()

    def on_touched(self, pair: Pair) -> None:
        """Mark the pair's line as outdated, because a queue of it was set or removed."""
        self.lines.mark_outdated(pair)

    def on_removed(self, pairs: Collection[Pair]) -> None:
        """Mark the lines of the removed pairs as outdated."""
        self.lines.remove(pairs)


class CommittedEntries(SavedEntries):
    """The table of committed offsets: saved entries that also have the topics of each group, in
    `groups`."""

    def __init__(self) -> None:
        super().__init__()
        self.groups = GroupLines()

    def on_added(self, pair: Pair) -> None:
        """Add the new pair's topic to the topics of its group."""
        self.groups.add(pair)

    def on_removed(self, pairs: Collection[Pair]) -> None:
        """Mark the lines of the removed pairs as outdated, and remove their topics from their
        groups."""
        super().on_removed(pairs)
        self.groups.remove(pairs)
