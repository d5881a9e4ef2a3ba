"""Figures of cells: sums, means, percentiles, peaks, and the counts of queue offsets.

Owns the columns of the tables that have one row for each queue, topic, host, store or second. It
must never need Spark, nor hold more cells of a group than its histograms have.

Tests: tests/unit/spark/throughput/test_events.py, tests/integration/spark/test_throughput.py
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate
from math import ceil

from turbopump.spark.throughput.batches import OFFSETS_A_CELL
from turbopump.spark.throughput.cells import QUEUE, Cell, Derivation, make_schema
from turbopump.spark.throughput.result import Row

PERCENTILES: Mapping[str, float] = {"p50": 0.5, "p99": 0.99, "p999": 0.999}
"""Fractions of the percentiles, by the ending of their columns' names."""
SPREADS: Mapping[str, str] = {"size": "size", "body": "body", "latency": "latency_ms"}
"""Beginning of the names of the columns for each metric, as in `latency_ms_p99`."""
ALL_BITS = (1 << OFFSETS_A_CELL) - 1
"""Mask of a cell's 64 bits, which come as a signed number."""


def by_second(keys: tuple[str, ...]) -> Derivation:
    """Return the derivation of a row of `traffic_statistics` per group; `second` is among the
    keys."""
    return _make_derivation(keys, traffic_statistics)


def by_place(keys: tuple[str, ...]) -> Derivation:
    """Return the derivation of a row per group: `queue_statistics` if the keys are QUEUE, else
    `place_statistics`."""
    return _make_derivation(keys, queue_statistics if keys == QUEUE else place_statistics)


def _make_derivation(keys: tuple[str, ...], row_of: Callable[[Iterable[Cell]], Row]) -> Derivation:
    """Return the derivation that makes one row of each group by `row_of`."""
    schema = make_schema(*keys, *row_of(()))
    return Derivation(keys, ("metric", "bucket"), schema, partial(_one_row, row_of))


def _one_row(row_of: Callable[[Iterable[Cell]], Row], cells: Iterable[Cell]) -> Iterator[Row]:
    """Yield the row that `row_of` makes of a group's cells."""
    yield row_of(cells)


def place_statistics(cells: Iterable[Cell]) -> Row:
    """Return the columns of `traffic_statistics` and the peaks of a group.

    A cell whose bucket is None has the sizes of a second, and counts for the peaks only.
    """
    peaks = _Peaks()
    found = traffic_statistics(peaks.take_own(cells))
    return {**found, **peaks.row()}


def queue_statistics(cells: Iterable[Cell]) -> Row:
    """Return the columns of `place_statistics`, and least, greatest, missing and repeated queue
    offsets, of a queue's cells."""
    offsets = _QueueOffsets()
    found = place_statistics(offsets.take_own(cells))
    return {**found, **offsets.row()}


def traffic_statistics(cells: Iterable[Cell]) -> Row:
    """Return counts, bytes, times and the spread of sizes and latencies of a group as one row.

    The cells come sorted by metric and bucket. Percentiles follow numpy's default method, over the
    means of the buckets; figures without a value are None.
    """
    histograms: dict[str, list[Cell]] = {}
    first_ms: int | None = None
    last_ms: int | None = None
    for cell in cells:
        first_ms = cell.first_ms if first_ms is None else min(first_ms, cell.first_ms)
        last_ms = cell.last_ms if last_ms is None else max(last_ms, cell.last_ms)
        histograms.setdefault(cell.metric, []).append(cell)
    return {
        "messages": _message_count(histograms, "size"),
        "bytes": int(sum(cell.total for cell in histograms.get("size", ()))),
        "body_bytes": int(sum(cell.total for cell in histograms.get("body", ()))),
        "first_ms": first_ms,
        "last_ms": last_ms,
        **_summarize_histogram("size", histograms),
        **_summarize_histogram("body", histograms),
        "timed_messages": _message_count(histograms, "latency"),
        **_summarize_histogram("latency", histograms),
        "skewed_messages": _message_count(histograms, "skewed"),
        "skew_ms_max": max((cell.most for cell in histograms.get("skewed", ())), default=0),
        "unborn_messages": _message_count(histograms, "unborn"),
    }


def _message_count(histograms: Mapping[str, list[Cell]], metric: str) -> int:
    """Return the number of messages in a metric's histogram."""
    return sum(cell.messages for cell in histograms.get(metric, ()))


def _summarize_histogram(metric: str, histograms: Mapping[str, list[Cell]]) -> Row:
    """Return least, mean, greatest value and percentiles of a histogram."""
    name, cells = SPREADS[metric], histograms.get(metric)
    if not cells:
        return dict.fromkeys(f"{name}_{at}" for at in ("min", "avg", "max", *PERCENTILES))
    means = [cell.total / cell.messages for cell in cells]
    ends = list(accumulate(cell.messages for cell in cells))
    return {
        f"{name}_min": min(cell.least for cell in cells),
        f"{name}_avg": sum(cell.total for cell in cells) / ends[-1],
        f"{name}_max": max(cell.most for cell in cells),
        **{
            f"{name}_{at}": compute_percentile(means, ends, part)
            for at, part in PERCENTILES.items()
        },
    }


def compute_percentile(values: Sequence[float], ends: Sequence[int], part: float) -> float:
    """Return the percentile `part` (0 to 1) by numpy's default method over ascending values that
    may occur many times.

    `ends` has, for each index, the number of occurrences up to it, inclusive.
    """
    at = part * (ends[-1] - 1)
    first = values[bisect_right(ends, int(at))]
    second = values[bisect_right(ends, ceil(at))]
    return first + (second - first) * (at - int(at))


class _Peaks:
    """The most messages and bytes in one second; both None without a second."""

    def __init__(self) -> None:
        self._message_count: int | None = None
        self._bytes: int | None = None
        self._seconds = 0

    def take_own(self, cells: Iterable[Cell]) -> Iterator[Cell]:
        """Count the cells of seconds and yield the others."""
        for cell in cells:
            if cell.bucket is not None:
                yield cell
                continue
            self._message_count = max(self._message_count or 0, cell.messages)
            self._bytes = max(self._bytes or 0, int(cell.total))
            self._seconds += 1

    def row(self) -> Row:
        """Return the peaks as columns of a row."""
        return {
            "peak_messages_per_s": self._message_count,
            "peak_bytes_per_s": self._bytes,
            "seconds_with_messages": self._seconds,
        }


class _QueueOffsets:
    """A queue's least and greatest queue offset, and how many are missing or repeated."""

    def __init__(self) -> None:
        self._message_count: Counter[str] = Counter()
        self._there = 0
        self._least: int | None = None
        self._most: int | None = None

    def take_own(self, cells: Iterable[Cell]) -> Iterator[Cell]:
        """Count the cells of queue offsets and yield the others."""
        for cell in cells:
            if cell.metric not in ("offset", "unqueued", "batch"):
                yield cell
                continue
            self._message_count[cell.metric] += cell.messages
            if cell.metric == "offset":
                self._there += (cell.bits & ALL_BITS).bit_count()
                self._least = cell.least if self._least is None else min(self._least, cell.least)
                self._most = cell.most if self._most is None else max(self._most, cell.most)

    def row(self) -> Row:
        """Return the counts; `missing_offsets` is None for a queue with batch records."""
        span = 0 if self._least is None or self._most is None else self._most - self._least + 1
        return {
            "queue_offset_min": self._least,
            "queue_offset_max": self._most,
            "missing_offsets": None if self._message_count["batch"] else span - self._there,
            "duplicate_offsets": self._message_count["offset"] - self._there,
            "records_without_queue_offset": self._message_count["unqueued"],
            "batch_records": self._message_count["batch"],
        }
