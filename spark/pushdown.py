"""Which of Spark's filters the decoder answers itself, and with what.

Owns the translation of filters on store, topic, queue, time of storage and log offset. It must
never take a filter that it would answer with one row less than Spark: what is not understood goes
back. Called by `source`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from turbopump.engine.log_ranges import INT64_MAX
from turbopump.spark.schema import ARROW_SCHEMA

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_REPLACED = "\ufffd"


@dataclass(frozen=True, slots=True)
class Pushed:
    """What filters leave of a table; a plain value. Times are inclusive at both ends."""

    stores: frozenset[str] | None = None
    topics: frozenset[str] | None = None
    queue_ids: frozenset[int] | None = None
    min_store_ms: int = -INT64_MAX - 1
    max_store_ms: int = INT64_MAX
    min_log_offset: int = 0
    end_log_offset: int = INT64_MAX
    confirmed: bool = False
    """Only what is confirmed."""

    @property
    def is_empty(self) -> bool:
        """Whether no record can pass."""
        return (
            frozenset() in (self.stores, self.topics, self.queue_ids)
            or self.min_store_ms > self.max_store_ms
            or self.min_log_offset >= self.end_log_offset
        )


EVERYTHING = Pushed()


def push(filters: Sequence[Filter]) -> tuple[Pushed, list[Filter]]:
    """(what the filters leave that are understood, those that Spark must still apply)."""
    selection = EVERYTHING
    left = []
    for one in filters:
        narrowed = _narrowed(selection, one)
        if narrowed is None:
            left.append(one)
        else:
            selection = narrowed
    return selection, left


def _narrowed(selection: Pushed, one: Filter) -> Pushed | None:
    """The selection with one filter more; None if it is not understood."""
    attribute: Sequence[str] = getattr(one, "attribute", ())
    if len(attribute) != 1 or attribute[0] not in ARROW_SCHEMA.names:
        return None
    column = attribute[0]
    if isinstance(one, IsNotNull):
        return None if ARROW_SCHEMA.field(column).nullable else selection
    if column in _SETS and isinstance(one, EqualTo | EqualNullSafe | In):
        return _SETS[column](selection, _values(one))
    if column in _LIMITS and isinstance(one, _COMPARISONS):
        scale = _LIMITS[column]
        number = scale(one.value)
        return None if number is None else _compared(selection, column, one, *number)
    if column == "confirmed" and isinstance(one, EqualTo | EqualNullSafe) and one.value is True:
        return replace(selection, confirmed=True)
    return None


def _values(one: EqualTo | EqualNullSafe | In) -> list[Any]:
    """What the column may be. Null is what no column with a set ever is."""
    values = one.value if isinstance(one, In) else [one.value]
    return [value for value in values if value is not None]


def _both(old: frozenset[Any] | None, new: Sequence[Any]) -> frozenset[Any]:
    return frozenset(new) if old is None else old & frozenset(new)


def _stores(selection: Pushed, values: list[Any]) -> Pushed | None:
    return replace(selection, stores=_both(selection.stores, values))


def _topics(selection: Pushed, values: list[Any]) -> Pushed | None:
    """A topic with a replaced byte is more than one topic in the log."""
    if any(not isinstance(value, str) or _REPLACED in value for value in values):
        return None
    return replace(selection, topics=_both(selection.topics, values))


def _queue_ids(selection: Pushed, values: list[Any]) -> Pushed | None:
    if any(type(value) is not int for value in values):
        return None
    return replace(selection, queue_ids=_both(selection.queue_ids, values))


_SETS: dict[str, Callable[[Pushed, list[Any]], Pushed | None]] = {
    "store": _stores,
    "topic": _topics,
    "queue_id": _queue_ids,
}


def _whole(value: object) -> tuple[int, bool] | None:
    """(a number, whether it is exact)."""
    return (value, True) if type(value) is int else None


def _millis(value: object) -> tuple[int, bool] | None:
    """(the millisecond that the time lies in, whether it is its very beginning)."""
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    micros = (value - _EPOCH) // timedelta(microseconds=1)
    return micros // 1000, micros % 1000 == 0


_LIMITS: dict[str, Callable[[object], tuple[int, bool] | None]] = {
    "log_offset": _whole,
    "store_time": _millis,
}
_COMPARISONS = (
    EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual
)  # fmt: skip


def _compared(
    selection: Pushed, column: str, one: Filter, number: int, exact: bool
) -> Pushed:
    """With a lower or upper limit, or both; what lies between two whole numbers equals none."""
    least, most = -INT64_MAX - 1, INT64_MAX
    if isinstance(one, GreaterThan):
        least = number + 1
    elif isinstance(one, GreaterThanOrEqual):
        least = number if exact else number + 1
    elif isinstance(one, LessThan):
        most = number - 1 if exact else number
    elif isinstance(one, LessThanOrEqual):
        most = number
    else:
        least, most = (number, number) if exact else (1, 0)
    if column == "log_offset":
        return replace(
            selection,
            min_log_offset=max(selection.min_log_offset, least),
            end_log_offset=min(selection.end_log_offset, most + 1),
        )
    return replace(
        selection,
        min_store_ms=max(selection.min_store_ms, least),
        max_store_ms=min(selection.max_store_ms, most),
    )
