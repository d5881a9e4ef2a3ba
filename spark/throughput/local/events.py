"""Gaps, stalls and clock steps, computed in this process as throughput/events.py does in SQL.

The definitions are on that page.

Tests: tests/unit/spark/throughput/test_events.py
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pyarrow as pa

from turbopump.spark.throughput.batches import OFFSETS_A_CELL
from turbopump.spark.throughput.events import LEVELS, QUEUE
from turbopump.spark.throughput.local.cells import added, of_metrics
from turbopump.spark.throughput.local.statistics import Row

Queue = tuple[Any, ...]

ALL_BITS = (1 << OFFSETS_A_CELL) - 1
"""Mask of a cell's 64 bits, which come as a signed number."""


def queues(cells: pa.Table) -> dict[Queue, Row]:
    """Return for each queue its queue offsets; see throughput/events.py."""
    found: dict[Queue, Row] = {}
    for place, rows in _by_queue(of_metrics(cells, "offset", "unqueued", "batch")).items():
        offsets = [row for row in rows if row["metric"] == "offset"]
        there = sum((row["bits"] & ALL_BITS).bit_count() for row in offsets)
        least = min((row["least"] for row in offsets), default=None)
        most = max((row["most"] for row in offsets), default=None)
        batches = sum(row["messages"] for row in rows if row["metric"] == "batch")
        span = 0 if least is None or most is None else most - least + 1
        found[place] = {
            "queue_offset_min": least,
            "queue_offset_max": most,
            "missing_offsets": span - there if batches == 0 else None,
            "duplicate_offsets": sum(row["messages"] for row in offsets) - there,
            "records_without_queue_offset": sum(
                row["messages"] for row in rows if row["metric"] == "unqueued"
            ),
            "batch_records": batches,
        }
    return found


def gaps(cells: pa.Table) -> Iterator[Row]:
    """Yield the missing queue offsets as ranges, both ends included."""
    for place, rows in _by_queue(of_metrics(cells, "offset", "batch")).items():
        if any(row["metric"] == "batch" for row in rows):
            continue
        rows.sort(key=lambda row: row["bucket"])
        before: int | None = None
        for row in rows:
            base = row["bucket"] * OFFSETS_A_CELL
            there = [base + bit for bit in range(OFFSETS_A_CELL) if row["bits"] >> bit & 1]
            for one, other in pairwise(there if before is None else [before, *there]):
                if other > one + 1:
                    yield dict(zip(QUEUE, place, strict=True)) | {
                        "first_missing": one + 1,
                        "last_missing": other - 1,
                        "missing": other - one - 1,
                        "seen_ms": row["first_ms"],
                    }
            before = row["most"]


def silences(cells: pa.Table, level: str) -> Iterator[Row]:
    """Yield the silence between each two successive seconds with records."""
    keys = LEVELS[level]
    groups: dict[Queue, list[Row]] = {}
    for row in added(of_metrics(cells, "size"), (*keys, "second")):
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    for place, rows in groups.items():
        rows.sort(key=lambda row: row["second"])
        names = dict.fromkeys(QUEUE) | dict(zip(keys, place, strict=True))
        for one, other in pairwise(rows):
            yield (
                {"level": level}
                | names
                | {
                    "from_ms": one["last_ms"],
                    "until_ms": other["first_ms"],
                    "silent_seconds": other["second"] - one["second"] - 1,
                    "silent_ms": other["first_ms"] - one["last_ms"],
                }
            )


def clock_steps(cells: pa.Table) -> Iterator[Row]:
    """Yield the places in the log where store time went back."""
    stores: dict[Any, list[Row]] = {}
    for row in of_metrics(cells, "clock").to_pylist():
        stores.setdefault(row["store"], []).append(row)
    for store, rows in stores.items():
        rows.sort(key=lambda row: row["bucket"], reverse=True)
        seen = [(row["least"], 0, row["bucket"]) for row in rows]
        first_later: int | None = None
        for row in rows:
            if first_later is not None and row["most"] > first_later:
                seen.append((row["most"], 1, row["bucket"]))
            first_later = row["least"] if first_later is None else min(first_later, row["least"])
        highest: tuple[int, int] | None = None
        steps: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for at, is_late, ms in sorted(seen):
            if is_late:
                assert highest is not None, "something later lies before it"
                steps.setdefault(highest, []).append((ms, at))
            else:
                highest = max((ms, at), highest or (ms, at))
        for (ms, at), late in steps.items():
            earlier_ms, earlier_at = min(late)
            yield {
                "store": store,
                "later_ms": ms,
                "later_log_offset": at,
                "earlier_ms": earlier_ms,
                "earlier_log_offset": earlier_at,
                "back_ms": ms - earlier_ms,
                "milliseconds": len(late),
            }


def _by_queue(cells: pa.Table) -> dict[Queue, list[Row]]:
    found: dict[Queue, list[Row]] = {}
    for row in cells.to_pylist():
        found.setdefault(tuple(row[key] for key in QUEUE), []).append(row)
    return found
