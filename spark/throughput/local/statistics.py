"""Figures from cells, computed in this process as throughput/cells.py does in SQL.

Owns sums, means, percentiles and peaks of groups of cells.

Tests: tests/unit/spark/throughput/test_events.py
"""

from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa

from turbopump.spark.throughput.cells import MEASURED
from turbopump.spark.throughput.local.cells import added, of_metrics

Row = dict[str, Any]
PERCENTILES = {"p50": 0.5, "p99": 0.99, "p999": 0.999}
SPREADS = {"size": "size", "body": "body", "latency": "latency_ms"}


def traffic_statistics(cells: pa.Table, keys: Sequence[str]) -> list[Row]:
    """Return one row for each value of `keys`; without keys always one row."""
    groups: dict[tuple[Any, ...], dict[str, list[Row]]] = {} if keys else {(): {}}
    for row in added(of_metrics(cells, *MEASURED), (*keys, "metric", "bucket")):
        place = tuple(row[key] for key in keys)
        groups.setdefault(place, {}).setdefault(str(row["metric"]), []).append(row)
    return [
        dict(zip(keys, place, strict=True)) | _totals_of(metrics)
        for place, metrics in groups.items()
    ]


def _totals_of(metrics: dict[str, list[Row]]) -> Row:
    def total(metric: str, name: str) -> int:
        return sum(row[name] for row in metrics.get(metric, ()))

    everything = [row for rows in metrics.values() for row in rows]
    totals: Row = {
        "messages": total("size", "messages"),
        "bytes": total("size", "total"),
        "body_bytes": total("body", "total"),
        "first_ms": min((row["first_ms"] for row in everything), default=None),
        "last_ms": max((row["last_ms"] for row in everything), default=None),
    }
    for metric, name in SPREADS.items():
        if metric == "latency":
            totals["timed_messages"] = total("latency", "messages")
        totals |= _spread(name, metrics.get(metric, []))
    skewed = metrics.get("skewed", [])
    return totals | {
        "skewed_messages": total("skewed", "messages"),
        "skew_ms_max": max((row["most"] for row in skewed), default=0),
        "unborn_messages": total("unborn", "messages"),
    }


def _spread(name: str, rows: list[Row]) -> Row:
    """Return least, mean, greatest value and percentiles of a histogram."""
    if not rows:
        return dict.fromkeys(f"{name}_{at}" for at in ("min", "avg", "max", *PERCENTILES))
    counts = np.array([row["messages"] for row in rows], np.int64)
    means = np.array([row["total"] for row in rows], np.float64) / counts
    return {
        f"{name}_min": min(row["least"] for row in rows),
        f"{name}_avg": sum(row["total"] for row in rows) / int(counts.sum()),
        f"{name}_max": max(row["most"] for row in rows),
        **{f"{name}_{at}": percentile(means, counts, part) for at, part in PERCENTILES.items()},
    }


def percentile(values: Any, counts: Any, part: float) -> float:
    """Return a percentile by numpy's default method over values that occur `counts` times each."""
    order = np.argsort(values)
    behind = np.cumsum(counts[order])
    at = part * (int(behind[-1]) - 1)
    low, high = (int(np.searchsorted(behind, int(place), "right")) for place in (at, np.ceil(at)))
    first, second = float(values[order[low]]), float(values[order[high]])
    return first + (second - first) * (at - int(at))


def peaks(cells: pa.Table, keys: Sequence[str]) -> dict[tuple[Any, ...], Row]:
    """Return, for each value of `keys`, the greatest numbers of messages and of bytes in one
    second."""
    found: dict[tuple[Any, ...], Row] = {}
    for row in added(of_metrics(cells, "size"), (*keys, "second")):
        peak = found.setdefault(
            tuple(row[key] for key in keys),
            {
                "peak_messages_per_s": 0,
                "peak_bytes_per_s": 0,
                "seconds_with_messages": 0,
            },
        )
        for name, amount in (("peak_messages_per_s", "messages"), ("peak_bytes_per_s", "total")):
            peak[name] = max(peak[name], row[amount])
        peak["seconds_with_messages"] += 1
    return found


def level(cells: pa.Table, keys: Sequence[str]) -> list[Row]:
    """Return the statistics and peaks for each value of `keys`."""
    highest = peaks(cells, keys)
    none = {"peak_messages_per_s": None, "peak_bytes_per_s": None, "seconds_with_messages": 0}
    return [
        row | highest.get(tuple(row[key] for key in keys), none)
        for row in traffic_statistics(cells, keys)
    ]


def in_order(rows: Iterable[Row], *order: str) -> list[Row]:
    """Sort rows by columns (`column` or `column desc`), with missing values last."""
    found = list(rows)
    for text in reversed(order):
        name, _, direction = text.partition(" ")
        there = [row for row in found if row[name] is not None]
        there.sort(key=itemgetter(name), reverse=bool(direction))
        found = [*there, *(row for row in found if row[name] is None)]
    return found
