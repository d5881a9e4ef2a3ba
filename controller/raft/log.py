"""The entries of the quorum's log in memory, above what a snapshot stands for.

Owns indexes, terms and positions, and that there is no gap. It must never touch a file or know who
leads. Called by the member's cores and by its storage.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

ENTRY_OVERHEAD = 48
"""Bytes that DLedger's layout adds to a body (DLedgerEntry.BODY_OFFSET); positions count them."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry; the first ever has index 0 and position 0. An empty body is no event."""

    index: int
    term: int
    pos: int
    body: bytes = b""

    @property
    def size(self) -> int:
        """Bytes in DLedger's layout."""
        return ENTRY_OVERHEAD + len(self.body)


@dataclass(frozen=True, slots=True)
class Base:
    """The last entry that is not there any more: index and term, and the position behind it."""

    index: int = -1
    term: int = -1
    pos: int = 0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What the state machine had made of all entries up to `base`."""

    base: Base
    data: bytes


class Log:
    """Entries from `base.index + 1` to `end`, terms never decreasing."""

    def __init__(self, base: Base | None = None, entries: Iterable[Entry] = ()) -> None:
        self.base = base if base is not None else Base()
        self._entries: list[Entry] = []
        self.extend(entries)

    @property
    def begin(self) -> int:
        """Index of the first entry; -1 of a log that never had one (ledgerBeginIndex)."""
        return self.base.index + 1 if self._entries or self.base.index >= 0 else -1

    @property
    def end(self) -> int:
        """Index of the last entry, or of the base (ledgerEndIndex)."""
        return self.base.index + len(self._entries)

    @property
    def end_term(self) -> int:
        """Term of that (ledgerEndTerm)."""
        return self._entries[-1].term if self._entries else self.base.term

    @property
    def end_pos(self) -> int:
        """Where the next entry lies."""
        last = self._entries[-1] if self._entries else None
        return last.pos + last.size if last is not None else self.base.pos

    def get(self, index: int) -> Entry | None:
        """The entry, if it is there."""
        at = index - self.base.index - 1
        return self._entries[at] if 0 <= at < len(self._entries) else None

    def term_at(self, index: int) -> int | None:
        """The term of an index, also of the base; None where nothing is known."""
        if index == self.base.index:
            return self.base.term
        entry = self.get(index)
        return entry.term if entry is not None else None

    def first_of_term(self, index: int) -> int:
        """The first index that is there and has the term of `index`."""
        term = self.term_at(index)
        while index > self.base.index + 1 and self.term_at(index - 1) == term:
            index -= 1
        return index

    def last_of_term(self, term: int, limit: int) -> int | None:
        """The last index up to `limit` that is there and has this term."""
        while limit >= max(self.base.index, 0) and (found := self.term_at(limit)) is not None:
            if found <= term:
                return limit if found == term else None
            limit -= 1
        return None

    def slice(self, first: int, count_max: int, bytes_max: int) -> list[Entry]:
        """Entries from `first` on, at least one if it is there."""
        at = first - self.base.index - 1
        assert at >= 0, "an entry is wanted that is not there any more"
        found: list[Entry] = []
        size = 0
        for entry in self._entries[at : at + count_max]:
            size += entry.size
            if found and size > bytes_max:
                break
            found.append(entry)
        return found

    def upto(self, last: int, above: int) -> tuple[Entry, ...]:
        """Entries of (above, last]."""
        start = above - self.base.index
        return tuple(self._entries[start : last - self.base.index])

    def entries(self) -> tuple[Entry, ...]:
        """All of them."""
        return tuple(self._entries)

    def base_at(self, index: int) -> Base:
        """What would be the base if all up to `index` were gone."""
        if index == self.base.index:
            return self.base
        entry = self.get(index)
        assert entry is not None, "no such entry"
        return Base(index, entry.term, entry.pos + entry.size)

    def next_entry(self, term: int, body: bytes) -> Entry:
        """What could be appended next."""
        return Entry(self.end + 1, term, self.end_pos, body)

    def extend(self, entries: Iterable[Entry]) -> None:
        """Append entries that follow each other."""
        for entry in entries:
            assert entry.index == self.end + 1, f"entry {entry.index} behind {self.end}"
            assert entry.term >= self.end_term, f"entry {entry.index} is of an older term"
            self._entries.append(entry)

    def truncate_from(self, index: int) -> None:
        """Remove the entry at `index` and all behind it."""
        at = index - self.base.index - 1
        assert 0 <= at < len(self._entries), f"nothing to cut at {index}"
        del self._entries[at:]

    def compact(self, index: int) -> None:
        """Remove all up to `index`."""
        base = self.base_at(index)
        del self._entries[: index - self.base.index]
        self.base = base

    def reset(self, base: Base) -> None:
        """Remove all: the log goes on behind `base`."""
        self.base = base
        self._entries.clear()


def fits(entries: Sequence[Entry], first: int, term: int) -> bool:
    """Whether entries of another member follow each other from `first` on, none above `term`."""
    last_term = -1
    for number, entry in enumerate(entries):
        if entry.index != first + number or not last_term <= entry.term <= term:
            return False
        last_term = entry.term
    return True
