"""The entries of the quorum's log in memory, after the last snapshot.

Owns indexes, terms and positions, and that there is no gap. It must never touch a file or know the
leader.

Tests: tests/unit/controller/raft/test_storage.py
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

ENTRY_OVERHEAD = 48
"""Bytes that DLedger's layout adds to a body (DLedgerEntry.BODY_OFFSET); positions count them."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry; the first ever has index 0 and position 0. An empty body is no event."""

    index: int
    term: int
    """Term of the leader that appended it."""
    pos: int
    """Byte position in DLedger's layout: the sum of the sizes of all earlier entries."""
    body: bytes = b""

    @property
    def size(self) -> int:
        """Bytes in DLedger's layout: ENTRY_OVERHEAD and the body."""
        return ENTRY_OVERHEAD + len(self.body)


@dataclass(frozen=True, slots=True)
class Base:
    """The last entry before a log's first: a snapshot has replaced it. The defaults are the base of
    a log from its very first entry."""

    index: int = -1
    term: int = -1
    pos: int = 0
    """Byte position after that entry."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The machine's state after all entries up to `base`."""

    base: Base
    data: bytes


class Log:
    """Entries from `base.index + 1` to `end`, terms never decreasing.

    All arguments that it cannot satisfy are programmer errors (assert), unless a method returns
    None for them.
    """

    def __init__(self, base: Base | None = None, entries: Iterable[Entry] = ()) -> None:
        self.base = base if base is not None else Base()
        self._entries: list[Entry] = []
        self.append_entries(entries)

    @property
    def begin(self) -> int:
        """Index of the first entry; -1 of a log that never had any (ledgerBeginIndex)."""
        return self.base.index + 1 if self._entries or self.base.index >= 0 else -1

    @property
    def end(self) -> int:
        """Index of the last entry, or of the base (ledgerEndIndex)."""
        return self.base.index + len(self._entries)

    @property
    def end_term(self) -> int:
        """Term of the last entry or base (ledgerEndTerm)."""
        return self._entries[-1].term if self._entries else self.base.term

    @property
    def end_pos(self) -> int:
        """Byte position that the next entry gets."""
        last = self._entries[-1] if self._entries else None
        return last.pos + last.size if last is not None else self.base.pos

    def get(self, index: int) -> Entry | None:
        """Return the entry at an index; None if the log lacks it."""
        at = index - self.base.index - 1
        return self._entries[at] if 0 <= at < len(self._entries) else None

    def term_at(self, index: int) -> int | None:
        """Return the term of the entry at an index, which may be the base's; None if the log lacks
        it."""
        if index == self.base.index:
            return self.base.term
        entry = self.get(index)
        return entry.term if entry is not None else None

    def first_of_term(self, index: int) -> int:
        """Return the first index in the log with the same term as `index`."""
        term = self.term_at(index)
        while index > self.base.index + 1 and self.term_at(index - 1) == term:
            index -= 1
        return index

    def last_of_term(self, term: int, limit: int) -> int | None:
        """Return the last index, at most `limit`, with this term; None if the log has no such
        entry. The base counts as an entry."""
        while limit >= max(self.base.index, 0) and (found := self.term_at(limit)) is not None:
            if found <= term:
                return limit if found == term else None
            limit -= 1
        return None

    def entries_from(self, first: int, count_max: int, bytes_max: int) -> list[Entry]:
        """Return consecutive entries from index `first`, at most `count_max` with `bytes_max` bytes
        (of `Entry.size`), but the first one even if it is larger; [] after the end."""
        at = first - self.base.index - 1
        assert at >= 0, "the entry was removed by a snapshot"
        found: list[Entry] = []
        size = 0
        for entry in self._entries[at : at + count_max]:
            size += entry.size
            if found and size > bytes_max:
                break
            found.append(entry)
        return found

    def entries_between(self, last: int, above: int) -> tuple[Entry, ...]:
        """Return the entries with indexes from `above` + 1 to `last`, inclusive, in order."""
        start = above - self.base.index
        return tuple(self._entries[start : last - self.base.index])

    def entries(self) -> tuple[Entry, ...]:
        """Return all entries in order; the tuple does not change later."""
        return tuple(self._entries)

    def base_at(self, index: int) -> Base:
        """Return the base that the log would have without the entries up to `index`, inclusive."""
        if index == self.base.index:
            return self.base
        entry = self.get(index)
        assert entry is not None, "no such entry"
        return Base(index, entry.term, entry.pos + entry.size)

    def next_entry(self, term: int, body: bytes) -> Entry:
        """Make the entry that `append_entries` can append next; appends nothing."""
        return Entry(self.end + 1, term, self.end_pos, body)

    def append_entries(self, entries: Iterable[Entry]) -> None:
        """Append entries that continue the log: each index by 1, and no lower term."""
        for entry in entries:
            assert entry.index == self.end + 1, f"entry {entry.index} after {self.end}"
            assert entry.term >= self.end_term, f"entry {entry.index} is of an older term"
            self._entries.append(entry)

    def truncate_from(self, index: int) -> None:
        """Remove the entry at `index` and all after it."""
        at = index - self.base.index - 1
        assert 0 <= at < len(self._entries), f"nothing to cut at {index}"
        del self._entries[at:]

    def remove_up_to(self, index: int) -> None:
        """Remove all entries up to `index`, inclusive, which a snapshot contains: that entry
        becomes the base."""
        base = self.base_at(index)
        del self._entries[: index - self.base.index]
        self.base = base

    def restart_after(self, base: Base) -> None:
        """Remove all entries: the log continues after `base`."""
        self.base = base
        self._entries.clear()


def are_consecutive(entries: Sequence[Entry], first: int, term: int) -> bool:
    """Whether another member's entries have consecutive indexes from `first`, and terms that never
    decrease and never exceed `term`."""
    last_term = -1
    for number, entry in enumerate(entries):
        if entry.index != first + number or not last_term <= entry.term <= term:
            return False
        last_term = entry.term
    return True
