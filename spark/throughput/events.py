"""Finds irregular events in cells: gaps in queue offsets, stalls, clocks that went back.

Owns the definitions below. It must never look at records: cells (throughput/cells.py) suffice.

gap: queue offsets of a queue, between its least and its greatest one, that no record has. Topics
    that were deleted and created again count from 0 again: that shows as duplicates, not as a gap.
    Queues with batch records (one record, several queue offsets) are not judged.
stall: at least `stall_s` whole seconds of store time without a record in a queue, in a topic or in
    a whole store, between seconds with records. `silent_ms` is the time between the two records.
    The longest silences of each level are listed however short they are, because only the reader
    can distinguish an outage of three seconds from a quiet night.
clock step: a record was stored at an earlier time than one before it in the log. Steps that came
    down from the same greatest time are one row.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from heapq import heappop, heappush
from itertools import groupby, pairwise
from operator import itemgetter

from turbopump.spark.throughput.batches import OFFSETS_A_CELL
from turbopump.spark.throughput.cells import QUEUE, Cell, Derivation, make_schema
from turbopump.spark.throughput.result import Row

SILENCES_SHOWN = 5
"""Longest silences listed per level."""
LEVELS = {"queue": QUEUE, "topic": ("store", "topic"), "store": ("store",)}
"""Columns that name a queue, a topic and a store, by the level of a silence."""
Moment = tuple[int, int]
"""(store time in ms, log offset): a record."""


def _find_gaps(cells: Iterable[Cell]) -> Iterator[Row]:
    """Yield a row for each range of missing queue offsets of a queue; no rows for a queue with
    batch records."""
    before: int | None = None
    for cell in cells:
        if cell.metric == "batch":
            return
        base = cell.bucket * OFFSETS_A_CELL
        there = [base + bit for bit in range(OFFSETS_A_CELL) if cell.bits >> bit & 1]
        for one, other in pairwise(there if before is None else [before, *there]):
            if other > one + 1:
                yield {
                    "first_missing": one + 1,
                    "last_missing": other - 1,
                    "missing": other - one - 1,
                    "seen_ms": cell.first_ms,
                }
        before = cell.most


GAPS = Derivation(
    QUEUE,
    ("metric", "bucket"),  # a queue's batch records come first
    make_schema(*QUEUE, "first_missing", "last_missing", "missing", "seen_ms"),
    _find_gaps,
)
"""The missing queue offsets as ranges, both ends included; from metrics `offset` and `batch`."""


def silence_derivation(level: str) -> Derivation:
    """Return the derivation of a level's (LEVELS) silences between successive seconds with records,
    from one cell for each second."""
    times = ("from_ms", "until_ms", "silent_seconds", "silent_ms")
    schema = make_schema("level", *QUEUE, *times)
    return Derivation(LEVELS[level], ("second",), schema, partial(_find_silences, level))


def _find_silences(level: str, cells: Iterable[Cell]) -> Iterator[Row]:
    """Yield a row for each silence between successive seconds with records."""
    for one, other in pairwise(cells):
        yield {
            "level": level,
            "from_ms": one.last_ms,
            "until_ms": other.first_ms,
            "silent_seconds": other.second - one.second - 1,
            "silent_ms": other.first_ms - one.last_ms,
        }


def _clock_steps(cells: Iterable[Cell]) -> Iterator[Row]:
    """Yield a row for each step of store time that went back, from a store's cells of the metric
    `clock`."""
    for (later_ms, later_at), late in groupby(_find_late(cells), itemgetter(0)):
        moments = [moment for _, moment in late]
        earlier_ms, earlier_at = min(moments)
        yield {
            "later_ms": later_ms,
            "later_log_offset": later_at,
            "earlier_ms": earlier_ms,
            "earlier_log_offset": earlier_at,
            "back_ms": later_ms - earlier_ms,
            "milliseconds": len(moments),
        }


def _find_late(cells: Iterable[Cell]) -> Iterator[tuple[Moment, Moment]]:
    """Yield (the greatest millisecond before it, the late millisecond), both with log offset,
    for each millisecond out of order, by log offset. It is out of order if its last record lies
    after the first record of a later millisecond."""
    highest: Moment = (-(1 << 63), 0)
    ends: list[tuple[int, int]] = []  # the last records that lie ahead, by log offset
    for cell in cells:
        while ends and ends[0][0] < cell.least:
            at, ms = heappop(ends)
            if highest[0] > ms:
                yield highest, (ms, at)
        highest = max(highest, (cell.bucket, cell.least))
        heappush(ends, (cell.most, cell.bucket))
    for at, ms in sorted(ends):
        if highest[0] > ms:
            yield highest, (ms, at)


CLOCK_STEPS = Derivation(
    ("store",),
    ("least",),
    make_schema(
        "store",
        "later_ms",
        "later_log_offset",
        "earlier_ms",
        "earlier_log_offset",
        "back_ms",
        "milliseconds",
    ),
    _clock_steps,
)
"""The places in the log where store time went back; from metric `clock`."""
