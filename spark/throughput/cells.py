"""Cells, the counts from which the throughput job computes all its statistics.

Owns the definition of a cell, and the way from cells to statistics; throughput/batches.py counts
them. It must never look at a record, nor bring more to the driver than the caller requests.

A record is counted in one cell of each metric:

    size      record size in bytes      body      body size
    latency   store time - born time in ms; instead `skewed` if that is negative (the clocks of
              producer and broker disagree: counted apart, never averaged in) or `unborn` if the
              producer gave no born time, or one of another century
    offset    queue offset: 64 neighbours in a queue share a cell, `bits` marks the existing ones;
              instead `unqueued` for prepared and rolled back transactions (they have none) and
              `batch` for records that hold several messages
    clock     log offset, a cell for each millisecond of store time in a store

A cell has the record's store, and for all metrics but `clock` topic and queue; cells of sizes and
latencies also have producer host and second of the store time, and their `bucket` is that of
throughput/buckets.py. The `bucket` is queue offset / 64 for `offset`, the millisecond for `clock`.
`messages`, `total`, `least` and `most` are count, sum, minimum and maximum of the values;
`first_ms` and `last_ms` the limits of the store time. So there are never more cells than five per
record, and under traffic far fewer.

Tests: tests/integration/spark/test_throughput.py
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from turbopump.spark.throughput.batches import KEYS as CELL_KEYS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

KEYS = ("store", "topic", "queue_id", "born_host")
MEASURED = ("size", "body", "latency", "skewed", "unborn")


def cells(counted: "DataFrame") -> "DataFrame":
    """Merge cells that come in parts (throughput/source.py)."""
    return counted.groupBy(*CELL_KEYS).agg(
        *_exprs(
            "sum(messages) as messages",
            "sum(total) as total",
            "min(least) as least",
            "max(most) as most",
            "min(first_ms) as first_ms",
            "max(last_ms) as last_ms",
            "bit_or(bits) as bits",
        )
    )


def added(cells: "DataFrame", keys: Sequence[str]) -> "DataFrame":
    """Add up cells of sizes and latencies to coarser keys: their histograms.

    Totals become doubles here: exact up to 9 PB, and never out of range.
    """
    return cells.groupBy(*keys, "metric", "bucket").agg(
        *_exprs(
            "sum(messages) as messages",
            "sum(cast(total as double)) as total",
            "min(least) as least",
            "max(most) as most",
            "min(first_ms) as first_ms",
            "max(last_ms) as last_ms",
        )
    )


def traffic_statistics(histograms: "DataFrame", keys: Sequence[str]) -> "DataFrame":
    """Return one row for each value of `keys`, from histograms with these keys.

    Percentiles follow numpy's default method, over the means of the buckets.
    """
    return (
        histograms.groupBy(*keys)
        .agg(
            *_exprs(
                f"{_sum('size', 'messages')} as messages",
                f"cast({_sum('size', 'total')} as bigint) as bytes",
                f"cast({_sum('body', 'total')} as bigint) as body_bytes",
                "min(first_ms) as first_ms",
                "max(last_ms) as last_ms",
                *_spread("size", "size"),
                _percentiles("size", "size"),
                *_spread("body", "body"),
                _percentiles("body", "body"),
                f"{_sum('latency', 'messages')} as timed_messages",
                *_spread("latency", "latency_ms"),
                _percentiles("latency", "latency_ms"),
                f"{_sum('skewed', 'messages')} as skewed_messages",
                f"max({_only('skewed', 'most')}) as skew_ms_max",
                f"{_sum('unborn', 'messages')} as unborn_messages",
            )
        )
        .selectExpr(
            *keys,
            "messages",
            "bytes",
            "body_bytes",
            "first_ms",
            "last_ms",
            *_named("size"),
            *_named("body"),
            "timed_messages",
            *_named("latency_ms"),
            "skewed_messages",
            "coalesce(skew_ms_max, 0L) as skew_ms_max",
            "unborn_messages",
        )
    )


def peaks(cells: "DataFrame", keys: Sequence[str]) -> "DataFrame":
    """Return the most messages and bytes in one second, for each value of `keys`."""
    seconds = cells.where("metric = 'size'").groupBy(*keys, "second")
    return (
        seconds.agg(*_exprs("sum(messages) as messages", "sum(total) as bytes"))
        .groupBy(*keys)
        .agg(
            *_exprs(
                "max(messages) as peak_messages_per_s",
                "max(bytes) as peak_bytes_per_s",
                "count(1) as seconds_with_messages",
            )
        )
    )


def _only(metric: str, column: str) -> str:
    return f"case when metric = '{metric}' then {column} end"


def _sum(metric: str, column: str) -> str:
    return f"coalesce(sum({_only(metric, column)}), 0L)"


def _spread(metric: str, name: str) -> list[str]:
    return [
        f"min({_only(metric, 'least')}) as {name}_min",
        f"sum({_only(metric, 'total')}) / sum({_only(metric, 'messages')}) as {name}_avg",
        f"max({_only(metric, 'most')}) as {name}_max",
    ]


def _percentiles(metric: str, name: str) -> str:
    weight = f"case when metric = '{metric}' then messages else 0L end"
    mean = _only(metric, "total / messages")
    return f"percentile({mean}, array(0.5D, 0.99D, 0.999D), {weight}) as {name}_at"


def _named(name: str) -> list[str]:
    return [
        f"{name}_min",
        f"{name}_avg",
        f"{name}_max",
        f"{name}_at[0] as {name}_p50",
        f"{name}_at[1] as {name}_p99",
        f"{name}_at[2] as {name}_p999",
    ]


def _exprs(*texts: str) -> "list[Column]":
    from pyspark.sql import functions

    return [functions.expr(text) for text in texts]
