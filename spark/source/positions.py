"""Stream positions, and their comparison with a log that may have been truncated since.

Owns the position as a value, its form in Spark's checkpoint, and the comparison with the store's
current state. It must never read records nor need pyspark.

A position is (epoch, log offset): all bytes before the log offset were read, and the last of them
was written in that epoch. It includes the newest entries of the epoch list at that time, so that
the point where two logs diverge is found as replicas find it (engine.epochs.consistent_point).

    {"/path/of/store": [3, 40960, [[1, 0], [3, 20480]]]}        in JSON; -1: no epoch is known

Without an epoch list, a truncation shows only if the log became too short, or if no record begins
at the position. If a stand-alone broker loses its last bytes in a power cut and writes the same
number again before the next look, the truncation remains unnoticed.
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
from turbopump.engine.snapshot.log_table import LogTable
from turbopump.engine.types import LogOffset, StoreError

ENTRIES_MAX = 64
"""Entries of the epoch list in a position, at most. A stream that missed more elections than that
reports that the log was truncated, and stops until the user chooses where to continue."""


class BadPosition(ValueError):
    """A malformed stream position."""


@dataclass(frozen=True, slots=True)
class StreamPosition:
    """Place in a stream of a store's log, up to which all bytes were read, with the epochs
    before it."""

    log_offset: LogOffset
    """All bytes before it were read."""
    epoch: int = NO_EPOCH
    """Epoch of the byte before `log_offset`; NO_EPOCH if unknown."""
    entries: tuple[tuple[int, int], ...] = ()
    """(epoch, start as log offset) of the newest entries of the epoch list, ascending."""

    def encode(self) -> list[object]:
        """Return the position as JSON values for `decode_position`."""
        plain: list[object] = [self.epoch, self.log_offset]
        return [*plain, [list(entry) for entry in self.entries]] if self.entries else plain


def decode_position(value: object) -> StreamPosition:
    """Decode [epoch, log offset] or [epoch, log offset, entries] from JSON. Raises BadPosition."""
    match value:
        case [int(epoch), int(log_offset), *rest] if (
            NO_EPOCH <= epoch <= EPOCH_MAX and 0 <= log_offset <= LOG_OFFSET_MAX and len(rest) < 2
        ):
            return StreamPosition(
                LogOffset(log_offset), epoch, _read_entries(value, rest[0] if rest else [])
            )
    raise BadPosition(f"{value!r} is not [epoch, log offset]")


def _read_entries(value: object, pairs: object) -> tuple[tuple[int, int], ...]:
    """Read the epoch list `pairs` of the position `value`; raises BadPosition."""
    try:
        found = Epochs.from_pairs((epoch, start) for epoch, start in pairs)  # type: ignore[attr-defined]
    except (ValueError, TypeError) as error:
        raise BadPosition(f"{value!r} has no epoch list: {error}") from error
    return tuple((entry.epoch, entry.start) for entry in found)


def position_at(table: LogTable, log_offset: int) -> StreamPosition:
    """Return the position of a reader that has read a table up to `log_offset`."""
    entries = [(e.epoch, e.start) for e in table.epochs if e.start < log_offset]
    epoch = entries[-1][0] if entries else NO_EPOCH
    return StreamPosition(LogOffset(log_offset), epoch, tuple(entries[-ENTRIES_MAX:]))


class Fate(Enum):
    """State of the bytes before a stream's position."""

    SAME = "SAME"
    """The log still has the bytes that were read."""
    CUT = "CUT"
    """Bytes that were read are no longer in the log, or others have replaced them."""
    EXPIRED = "EXPIRED"
    """Retention removed bytes that had not been read yet."""


@dataclass(frozen=True, slots=True)
class StreamVerdict:
    """Fate of a position in the log, and the log offset to continue from."""

    fate: Fate
    resume: LogOffset
    reason: str = ""
    """Sentence for the user; "" for SAME."""


class StreamCut(StoreError):
    """The log was truncated below a position that a stream has read."""


class StreamExpired(StoreError):
    """Retention removed records before a stream read them."""


def compare_with_log(table: LogTable, position: StreamPosition) -> StreamVerdict:
    """Compare a position with the log that `table` was opened on; raises nothing."""
    at = position.log_offset
    common = _common_end(table, position)
    if common is None and at >= table.min:
        why = "its epoch list has nothing in common with the earlier list"
        return StreamVerdict(Fate.CUT, table.min, _truncation_text(table, position, why))
    if common is not None and common < at:
        why = f"the two part at {common}"
        return StreamVerdict(
            Fate.CUT, LogOffset(max(common, table.min)), _truncation_text(table, position, why)
        )
    if at < table.min:
        reason = (
            f"{table.path} was read up to {at} of epoch {position.epoch}, but begins at {table.min}"
            " now: retention removed the records in between"
        )
        return StreamVerdict(Fate.EXPIRED, table.min, reason)
    return StreamVerdict(Fate.SAME, at)


def _common_end(table: LogTable, position: StreamPosition) -> LogOffset | None:
    """Return the log offset up to which the log that was read equals the present one. None if
    the two epoch lists have nothing in common."""
    at = position.log_offset
    if position.entries and len(table.epochs):
        return consistent_point(Epochs.from_pairs(position.entries), at, table.epochs, table.end)
    if position.epoch != NO_EPOCH and at > table.min:
        return _common_end_by_epoch(table, position)
    if at <= table.min:
        return at
    if at > table.end:
        return table.end
    return at if _is_boundary(table, at) else table.min


def _common_end_by_epoch(table: LogTable, position: StreamPosition) -> LogOffset | None:
    """Return the common end for a position with an epoch but no list: the best that it allows."""
    at, epochs = position.log_offset, table.epochs
    if at <= table.end and table.epoch_at(at - 1) == position.epoch:
        return at
    if not len(epochs):
        return None
    mine = epochs.get(position.epoch)
    strange = [e.start for e in epochs if e.epoch > position.epoch]
    number = epochs.index_at(LogOffset(at - 1))
    if mine is None and number is not None:
        strange.append(epochs.entries[number].start)
    return min(at, table.end, *strange)


def _is_boundary(table: LogTable, at: LogOffset) -> bool:
    """Whether a record begins at `index_at`, or the rest of its file is empty from `index_at`."""
    behind = table.find_boundary(at)
    bases = {segment.base for segment in table.segments}
    return behind == at or (behind in bases and max(b for b in bases if b <= at) < behind)


def _truncation_text(table: LogTable, position: StreamPosition, why: str) -> str:
    """Return a sentence about a log that was truncated below a position; `why` is its end."""
    at = position.log_offset
    now = table.epoch_at(at - 1)
    if at > table.end:
        there = f"ends at {table.end}"
    elif now is not None and now != position.epoch:
        there = f"has bytes of epoch {now} there"
    else:
        there = "has other bytes there"
    return f"{table.path} was read up to {at} of epoch {position.epoch}, but {there} now; {why}"
