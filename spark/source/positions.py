"""How far a stream has read a log, and whether that is still the same log.

Owns the position as a value, its form in Spark's checkpoint, and the comparison with what a store
is now. It must never read records nor need pyspark. Called by `stream`.

A position is (epoch, log offset): everything before the log offset was read, and the last byte of
it was written in that epoch. With it go the newest entries of the epoch list as it was then, so
that where two logs part is searched as replicas search it (engine.epochs.consistent_point).

    {"/path/of/store": [3, 40960, [[1, 0], [3, 20480]]]}        in JSON; -1: no epoch is known

A store without an epoch list can only be seen to be too short, or to have no record where one
began: a stand-alone broker that loses its last bytes in a power cut, and writes as many again
before the next look, looks like one that did not.
"""

from dataclasses import dataclass
from enum import Enum

from turbopump.engine.log.epochs import (
    EPOCH_MAX,
    LOG_OFFSET_MAX,
    NO_EPOCH,
    Epochs,
    consistent_point,
)
from turbopump.engine.table.log_table import LogTable
from turbopump.engine.types import LogOffset, StoreError

ENTRIES_MAX = 64
"""Of an epoch list, in a position: a stream that missed more elections than that learns that the
log was cut, and asked where to go on."""


class BadPosition(ValueError):
    """What should be a position is none."""


@dataclass(frozen=True, slots=True)
class Position:
    """See the module."""

    log_offset: LogOffset
    epoch: int = NO_EPOCH
    """That the byte before was written in; NO_EPOCH if nothing says."""
    entries: tuple[tuple[int, int], ...] = ()

    def encode(self) -> list[object]:
        """For JSON."""
        plain: list[object] = [self.epoch, self.log_offset]
        return [*plain, [list(entry) for entry in self.entries]] if self.entries else plain


def decode_position(value: object) -> Position:
    """What JSON has: [epoch, log offset], or with the list. Raises BadPosition."""
    match value:
        case [int(epoch), int(log_offset), *rest] if (
            NO_EPOCH <= epoch <= EPOCH_MAX and 0 <= log_offset <= LOG_OFFSET_MAX and len(rest) < 2
        ):
            return Position(LogOffset(log_offset), epoch, _entries(value, rest[0] if rest else []))
    raise BadPosition(f"{value!r} is not [epoch, log offset]")


def _entries(value: object, pairs: object) -> tuple[tuple[int, int], ...]:
    try:
        found = Epochs.of((epoch, start) for epoch, start in pairs)  # type: ignore[attr-defined]
    except (ValueError, TypeError) as error:
        raise BadPosition(f"{value!r} has no epoch list: {error}") from error
    return tuple((entry.epoch, entry.start) for entry in found)


def position_at(table: LogTable, log_offset: int) -> Position:
    """The position of a reader that has read a table up to there."""
    entries = [(e.epoch, e.start) for e in table.epochs if e.start < log_offset]
    epoch = entries[-1][0] if entries else NO_EPOCH
    return Position(LogOffset(log_offset), epoch, tuple(entries[-ENTRIES_MAX:]))


class Fate(Enum):
    """What became of the bytes behind which a stream goes on."""

    SAME = "SAME"
    CUT = "CUT"
    """Bytes that were read are no longer in the log, or others are in their place."""
    EXPIRED = "EXPIRED"
    """Retention removed bytes that were not read yet."""


@dataclass(frozen=True, slots=True)
class StreamVerdict:
    """Whether a stream may go on, and from where."""

    fate: Fate
    resume: LogOffset
    reason: str = ""


class StreamCut(StoreError):
    """The log was cut before a place that a stream has read."""


class StreamExpired(StoreError):
    """Retention was faster than a stream."""


def judge(table: LogTable, position: Position) -> StreamVerdict:
    """Compare a position with the store as it is now."""
    at = position.log_offset
    common = _common(table, position)
    if common is None and at >= table.min:
        why = "its epoch list has nothing in common with the one of then"
        return StreamVerdict(Fate.CUT, table.min, _cut(table, position, why))
    if common is not None and common < at:
        why = f"the two part at {common}"
        return StreamVerdict(
            Fate.CUT, LogOffset(max(common, table.min)), _cut(table, position, why)
        )
    if at < table.min:
        reason = (
            f"{table.path} was read up to {at} of epoch {position.epoch}, but begins at {table.min}"
            " now: retention removed what lies between"
        )
        return StreamVerdict(Fate.EXPIRED, table.min, reason)
    return StreamVerdict(Fate.SAME, at)


def _common(table: LogTable, position: Position) -> LogOffset | None:
    """Up to where the log that was read and the one that is there now are the same."""
    at = position.log_offset
    if position.entries and len(table.epochs):
        return consistent_point(Epochs.of(position.entries), at, table.epochs, table.end)
    if position.epoch != NO_EPOCH and at > table.min:
        return _labelled_alike(table, position)
    if at <= table.min:
        return at
    if at > table.end:
        return table.end
    return at if _is_boundary(table, at) else table.min


def _labelled_alike(table: LogTable, position: Position) -> LogOffset | None:
    """Of a position that knows only its epoch: the best that can be said without the others."""
    at, epochs = position.log_offset, table.epochs
    if at <= table.end and table.epoch_at(at - 1) == position.epoch:
        return at
    if not len(epochs):
        return None
    mine = epochs.get(position.epoch)
    strange = [e.start for e in epochs if e.epoch > position.epoch]
    number = epochs.at(LogOffset(at - 1))
    if mine is None and number is not None:
        strange.append(epochs.entries[number].start)
    return min(at, table.end, *strange)


def _is_boundary(table: LogTable, at: LogOffset) -> bool:
    """Whether a record begins there, or the rest of a file is empty from there on."""
    behind = table.boundary(at)
    bases = {segment.base for segment in table.segments}
    return behind == at or (behind in bases and max(b for b in bases if b <= at) < behind)


def _cut(table: LogTable, position: Position, why: str) -> str:
    at = position.log_offset
    now = table.epoch_at(at - 1)
    if at > table.end:
        there = f"ends at {table.end}"
    elif now is not None and now != position.epoch:
        there = f"has bytes of epoch {now} there"
    else:
        there = "has other bytes there"
    return f"{table.path} was read up to {at} of epoch {position.epoch}, but {there} now; {why}"
