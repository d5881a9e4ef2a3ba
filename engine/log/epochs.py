"""The epoch list: which master wrote which bytes of the log, and where two logs part.

Owns the list as a value, its text form (RocketMQ's epochFileCheckpoint) and the search for the
consistent point of two logs. It must never touch a file nor cut a log.

    <number of entries>\\n
    <CRC-32 of all lines below with their line ends, without the sign bit; 0: not checked>\\n
    <epoch>-<start>\\n                                one line per entry, ascending

An entry ends where the next one starts, the last one at the log's end. An epoch without writes has
the start of its successor and is kept: a master without an entry of its own could not label the
bytes of its term (RocketMQ refuses such entries: regressions R15, R16, S2).
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter

from turbopump.engine.types import Epoch, LogOffset
from turbopump.pyx.crc32 import masked_crc32

ENTRIES_MAX = 10_000
"""Maximum number of entries: the oldest ones beyond it are dropped. A list grows by one entry per
election, and retention removes old entries. A longer list comes from a storm of elections, and its
oldest entries are of no use."""
NO_EPOCH = Epoch(-1)
"""Last epoch of an empty list, less than every epoch."""
EPOCH_MAX = (1 << 31) - 1
"""Greatest epoch, a Java int."""
LOG_OFFSET_MAX = LogOffset((1 << 63) - 1)
"""Greatest log offset, a Java long; as a log's end it means that the end is unknown."""
CRC_UNCHECKED = 0
"""Checksum line of a list whose lines are not checked."""
NUMBER = re.compile(rb"[0-9]{1,10}")
"""A line of the head: number of entries, or checksum."""
ENTRY = re.compile(rb"([0-9]{1,10})-([0-9]{1,19})")
"""An entry without its line end; groups: epoch, start."""
START = attrgetter("start")
"""Sort key of an entry: its start."""


class EpochsDamaged(ValueError):
    """A text that is not a valid epoch list."""


@dataclass(slots=True, frozen=True, order=True)
class EpochEntry:
    """The master of `epoch` wrote the log from `start` to the start of the next entry."""

    epoch: Epoch
    start: LogOffset


@dataclass(slots=True, frozen=True)
class Epochs:
    """A list of entries: epochs ascend, starts do not descend. Immutable: a change returns a new
    list."""

    entries: tuple[EpochEntry, ...] = ()
    """The entries, oldest epoch first."""

    @classmethod
    def from_pairs(cls, pairs: Iterable[tuple[int, int]]) -> "Epochs":
        """The list of (epoch, start) pairs, the newest ENTRIES_MAX of them. Raises EpochsDamaged
        unless epochs ascend, starts do not descend, and all numbers are in range."""
        entries = tuple(EpochEntry(Epoch(e), LogOffset(s)) for e, s in pairs)
        for entry in entries:
            if not (0 <= entry.epoch <= EPOCH_MAX and 0 <= entry.start <= LOG_OFFSET_MAX):
                raise EpochsDamaged(f"no epoch is {entry.epoch} from {entry.start} on")
        for before, after in pairwise(entries):
            if after.epoch <= before.epoch or after.start < before.start:
                raise EpochsDamaged(
                    f"epoch {after.epoch} from {after.start} on follows"
                    f" epoch {before.epoch} from {before.start} on"
                )
        return cls(entries[-ENTRIES_MAX:])

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[EpochEntry]:
        return iter(self.entries)

    @property
    def last_epoch(self) -> Epoch:
        """The newest epoch, NO_EPOCH of an empty list."""
        return self.entries[-1].epoch if self.entries else NO_EPOCH

    def end_of(self, number: int, log_end: LogOffset = LOG_OFFSET_MAX) -> LogOffset:
        """Log offset at which the bytes of entry `number` (index from 0) end: the start of the next
        entry, for the last entry `log_end`."""
        following = self.entries[number + 1 : number + 2]
        return following[0].start if following else log_end

    def index_at(self, log_offset: LogOffset) -> int | None:
        """Index in `entries` of the entry that the byte at `log_offset` belongs to; None before the
        start of the first entry, or without entries.

        Entries without bytes own no byte: of several entries with the same start, the last one owns
        it.
        """
        number = bisect_right(self.entries, log_offset, key=START) - 1
        return number if number >= 0 else None

    def get(self, epoch: int) -> EpochEntry | None:
        """The entry of exactly this epoch; None if the list lacks it."""
        return next((entry for entry in self.entries if entry.epoch == epoch), None)

    def with_epoch(self, epoch: int, start: int) -> "Epochs":
        """A new list with an entry for `epoch` at `start`, the log's end. Entries that start after
        `start` are dropped: the log has no byte of them. Raises ValueError unless `epoch` is above
        `last_epoch`."""
        if epoch <= self.last_epoch:
            raise ValueError(f"epoch {epoch} is not newer than {self.last_epoch}")
        kept = self.limited_to(LogOffset(start)).entries
        return Epochs.from_pairs([*((e.epoch, e.start) for e in kept), (epoch, start)])

    def limited_to(self, log_end: LogOffset) -> "Epochs":
        """The list without entries that start after the log's end, whose bytes the log lost in a
        crash. An entry that starts at the end has no bytes yet, and stays."""
        return Epochs(tuple(e for e in self.entries if e.start <= log_end))

    def cut_at(self, log_end: LogOffset) -> "Epochs":
        """The list for a log that was cut at `log_end`, without entries that start there or
        later."""
        return Epochs(tuple(e for e in self.entries if e.start < log_end))

    def without_expired(self, log_min: LogOffset) -> "Epochs":
        """The list for a log whose beginning retention removed, without entries that ended before
        `log_min`. An entry that ends exactly there stays, because a replica may be at that point;
        so does the last one."""
        count = sum(self.end_of(n) < log_min for n in range(len(self.entries)))
        return Epochs(self.entries[count:])

    def adopted_from(self, other: "Epochs", log_end: LogOffset) -> "Epochs":
        """A new list for a log that ends at `log_end` and has the same bytes as the log of
        `other` up to there: the entries of `other` that start at `log_end` or before, after the own
        older entries that `other` no longer has."""
        theirs = other.limited_to(log_end).entries
        if not theirs:
            return self.limited_to(log_end)
        first = theirs[0]
        older = [e for e in self.entries if e.epoch < first.epoch and e.start <= first.start]
        return Epochs((*older, *theirs)[-ENTRIES_MAX:])

    def encode(self) -> bytes:
        """The text of the epoch file, in the form of the module docstring. RocketMQ cannot write an
        empty list; this can."""
        lines = b"".join(b"%d-%d\n" % (e.epoch, e.start) for e in self.entries)
        return b"%d\n%d\n" % (len(self.entries), masked_crc32(lines)) + lines


def decode(text: bytes) -> tuple[Epochs, list[bytes]]:
    """Parse a file's text into (the list, the lines that are not entries, without line ends).

    As in RocketMQ, lines that are not two parts around a "-" are ignored; the checksum covers them.
    Raises EpochsDamaged for any other deviation from the form, and for a wrong checksum or number.
    """
    lines = text.split(b"\n")
    if lines[-1] != b"" or len(lines) < 3:
        raise EpochsDamaged("it is cut short")
    for number in lines[:2]:
        if not NUMBER.fullmatch(number):
            raise EpochsDamaged(f"{number[:20]!r} is not a number")
    count, checksum = int(lines[0]), int(lines[1])
    found = [(line, ENTRY.fullmatch(line)) for line in lines[2:-1]]
    pairs = [(int(match[1]), int(match[2])) for _line, match in found if match]
    others = [line for line, match in found if not match]
    if any(line.count(b"-") == 1 for line in others):
        raise EpochsDamaged("a line holds no epoch and start")
    if len(pairs) != count:
        raise EpochsDamaged(f"it has {len(pairs)} entries, not {count}")
    actual = masked_crc32(b"".join(line + b"\n" for line in lines[2:-1]))
    if checksum not in (CRC_UNCHECKED, actual):
        raise EpochsDamaged(f"its checksum is {actual}, not {checksum}")
    return Epochs.from_pairs(pairs), others


def consistent_point(
    own: Epochs, own_end: LogOffset, other: Epochs, other_end: LogOffset
) -> LogOffset | None:
    """Log offset up to which two logs, which end at `own_end` and `other_end`, hold the same bytes
    by their epoch lists; None if no common part can be proved. A replica cuts its log there.

    RIP-44: take the largest epoch that both have with the same start, and the smaller of its two
    ends. A log with bytes of an epoch is a prefix of that epoch's master's log there, so both logs
    have the same prefix. If starts differ (labels lost to retention or damage, entries that
    RocketMQ refuses: S1-S3), that search finds no epoch and would be repeated for ever. Then the
    bytes that both lists label are compared label by label: the same epoch at a byte proves the
    same bytes, up to the first byte where the lists contradict each other. Without contradiction
    the result is again the largest common epoch with the smaller end.
    """
    own, other = own.limited_to(own_end), other.limited_to(other_end)
    theirs = {entry: number for number, entry in enumerate(other.entries)}
    for number in range(len(own.entries) - 1, -1, -1):
        match = theirs.get(own.entries[number])
        if match is not None:
            return min(own.end_of(number, own_end), other.end_of(match, other_end))
    if not own.entries or not other.entries:
        return None
    return _agreed_end(own, other, min(own_end, other_end))


def _agreed_end(own: Epochs, other: Epochs, limit: LogOffset) -> LogOffset | None:
    """Log offset up to which both lists have the same epoch for each byte, at most `limit`; None if
    they differ at the first byte that both label."""
    first = max(own.entries[0].start, other.entries[0].start)
    if first >= limit:
        return None
    starts = {e.start for e in (*own.entries, *other.entries) if first < e.start < limit}
    for log_offset in [first, *sorted(starts)]:
        if _epoch_of_byte(own, log_offset) != _epoch_of_byte(other, log_offset):
            return None if log_offset == first else log_offset
    return limit


def _epoch_of_byte(epochs: Epochs, log_offset: LogOffset) -> Epoch:
    """The epoch of the byte at `log_offset`, which must not lie before the first entry."""
    number = epochs.index_at(log_offset)
    assert number is not None, "a byte below the first entry has no label"
    return epochs.entries[number].epoch
