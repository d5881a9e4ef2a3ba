"""Which master wrote which bytes of the log: the epoch list, and where two logs part.

Owns the list as a value, its text form (RocketMQ's epochFileCheckpoint) and the search for the
consistent point of two logs. It must never touch a file nor cut a log. Called by `epoch_file` and
by both machines of net/ha.

    <number of entries>\\n
    <CRC-32 of all lines below with their line ends, without the sign bit; 0: not checked>\\n
    <epoch>-<start>\\n                                one line an entry, ascending

An entry ends where the next one starts, the last one at the log's end. An epoch without writes has
the start of its successor and is kept: a master without an entry of its own could not say in
which reign its bytes were written (RocketMQ refuses such entries: regressions R15, R16, S2).
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter

from turbopump.engine.types import Epoch, LogOffset
from turbopump.pyx.crc32 import masked_crc32

# A list grows by an entry an election; retention takes the old ones. More than these are
# elections in a storm, and the oldest of them are of no use.
ENTRIES_MAX = 10_000
NO_EPOCH = Epoch(-1)
EPOCH_MAX = (1 << 31) - 1
LOG_OFFSET_MAX = LogOffset((1 << 63) - 1)
CRC_UNCHECKED = 0
NUMBER = re.compile(rb"[0-9]{1,10}")
ENTRY = re.compile(rb"([0-9]{1,10})-([0-9]{1,19})")
START = attrgetter("start")


class EpochsDamaged(ValueError):
    """A text that is no epoch list."""


@dataclass(slots=True, frozen=True, order=True)
class EpochEntry:
    """From `start` on the log was written by the master of `epoch`."""

    epoch: Epoch
    start: LogOffset


@dataclass(slots=True, frozen=True)
class Epochs:
    """A list of entries: epochs ascend, starts do not descend. A value: changes make a new one."""

    entries: tuple[EpochEntry, ...] = ()

    @classmethod
    def of(cls, pairs: Iterable[tuple[int, int]]) -> "Epochs":
        """The list of (epoch, start) pairs. Raises EpochsDamaged if it is none."""
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
        """Where the n-th entry's bytes end in a log that ends at `log_end`."""
        following = self.entries[number + 1 : number + 2]
        return following[0].start if following else log_end

    def at(self, log_offset: LogOffset) -> int | None:
        """Number of the entry that byte belongs to; None below the first entry.

        Entries without bytes own none: of several with one start it is the last.
        """
        number = bisect_right(self.entries, log_offset, key=START) - 1
        return number if number >= 0 else None

    def get(self, epoch: int) -> EpochEntry | None:
        """The entry of an epoch."""
        return next((entry for entry in self.entries if entry.epoch == epoch), None)

    def appended(self, epoch: int, start: int) -> "Epochs":
        """With a new epoch, written from `start` on. Entries that start behind it never had a byte
        of the log that ends there, and go. Raises ValueError unless the epoch is the newest."""
        if epoch <= self.last_epoch:
            raise ValueError(f"epoch {epoch} is not newer than {self.last_epoch}")
        kept = self.within(LogOffset(start)).entries
        return Epochs.of([*((e.epoch, e.start) for e in kept), (epoch, start)])

    def within(self, log_end: LogOffset) -> "Epochs":
        """Without entries that start behind the log's end: the log lost their bytes in a crash.
        One that starts at the end has no bytes yet, and stays."""
        return Epochs(tuple(e for e in self.entries if e.start <= log_end))

    def cut(self, log_end: LogOffset) -> "Epochs":
        """For a log that was cut at `log_end`: entries that start there or behind go."""
        return Epochs(tuple(e for e in self.entries if e.start < log_end))

    def without_expired(self, log_min: LogOffset) -> "Epochs":
        """For a log that retention took the beginning of: entries that ended before it go. One
        that ends exactly there stays, a replica may stand at that point; so does the last one."""
        count = sum(self.end_of(n) < log_min for n in range(len(self.entries)))
        return Epochs(self.entries[count:])

    def adopted(self, other: "Epochs", log_end: LogOffset) -> "Epochs":
        """What a log is labelled by that is known to be the other's prefix up to `log_end`: the
        other's entries so far, and before them the own ones that the other no longer has."""
        theirs = other.within(log_end).entries
        if not theirs:
            return self.within(log_end)
        first = theirs[0]
        older = [e for e in self.entries if e.epoch < first.epoch and e.start <= first.start]
        return Epochs((*older, *theirs)[-ENTRIES_MAX:])

    def encode(self) -> bytes:
        """The file's text; of an empty list too, which RocketMQ cannot write."""
        lines = b"".join(b"%d-%d\n" % (e.epoch, e.start) for e in self.entries)
        return b"%d\n%d\n" % (len(self.entries), masked_crc32(lines)) + lines


def decode(text: bytes) -> tuple[Epochs, list[bytes]]:
    """(the list, lines that are no entries) of a file's text.

    As RocketMQ does, lines that are not two parts around a "-" are passed over; the checksum
    covers them. Raises EpochsDamaged.
    """
    lines = text.split(b"\n")
    if lines[-1] != b"" or len(lines) < 3:
        raise EpochsDamaged("it is cut short")
    for number in lines[:2]:
        if not NUMBER.fullmatch(number):
            raise EpochsDamaged(f"{number[:20]!r} is no number")
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
    return Epochs.of(pairs), others


def consistent_point(
    own: Epochs, own_end: LogOffset, other: Epochs, other_end: LogOffset
) -> LogOffset | None:
    """Up to where two logs hold the same bytes; None if nothing in common can be shown.

    RIP-44: the largest epoch that both have from the same start on, with the smaller of its two
    ends. Who has an epoch's bytes has a prefix of its master's log, so both have the same prefix.
    Where starts differ (labels lost to retention or damage, RocketMQ's refused entries: S1-S3)
    that search finds nothing and would be repeated for ever. Then the bytes that both lists know
    are compared label by label: the same epoch at one byte proves the same, up to the first byte
    where the lists contradict each other. Without contradiction that is again the largest common
    epoch with the smaller end.
    """
    own, other = own.within(own_end), other.within(other_end)
    theirs = {entry: number for number, entry in enumerate(other.entries)}
    for number in range(len(own.entries) - 1, -1, -1):
        match = theirs.get(own.entries[number])
        if match is not None:
            return min(own.end_of(number, own_end), other.end_of(match, other_end))
    if not own.entries or not other.entries:
        return None
    return _agreed_end(own, other, min(own_end, other_end))


def _agreed_end(own: Epochs, other: Epochs, limit: LogOffset) -> LogOffset | None:
    """Up to where the labels of the bytes agree; None if the first that both know do not."""
    first = max(own.entries[0].start, other.entries[0].start)
    if first >= limit:
        return None
    starts = {e.start for e in (*own.entries, *other.entries) if first < e.start < limit}
    for log_offset in [first, *sorted(starts)]:
        if _label(own, log_offset) != _label(other, log_offset):
            return None if log_offset == first else log_offset
    return limit


def _label(epochs: Epochs, log_offset: LogOffset) -> Epoch:
    number = epochs.at(log_offset)
    assert number is not None, "a byte below the first entry has no label"
    return epochs.entries[number].epoch
