"""The one pass of the throughput job: records become cells, which everything else adds up.

Owns what a cell is and how figures are told from cells. It must never look at a record again once
there are cells, nor bring more than asked for to the driver. Called by throughput.py.

A record is counted in one cell of each metric:

    size      record size in bytes      body      body size
    latency   store time - born time in ms; instead `skewed` if that is negative (the clocks of
              producer and broker disagree: told apart, never averaged in) or `unborn` if the
              producer gave no born time, or one of another century
    offset    queue offset: 64 neighbours of one queue share a cell, `bits` tells which are there;
              instead `unqueued` for prepared and rolled back transactions (they have none) and
              `batch` for records that hold several messages
    clock     log offset, a cell for each millisecond of store time in a store

A cell has the record's store, and for all metrics but `clock` topic and queue; those of sizes and
latencies have producer host and second of the store time, too. `bucket` is throughput_buckets.py's
for these, queue offset / 64 for `offset`, the millisecond for `clock`. `messages`, `total`, `least`
and `most` are count, sum, minimum and maximum of the values; `first_ms` and `last_ms` of the store
time. So there are never more cells than five a record, and with traffic far fewer.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from turbopump.spark.throughput_buckets import bucket_sql

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

NEEDED = (
    "store", "topic", "queue_id", "queue_offset", "log_offset", "size", "born_time", "store_time",
    "born_host", "sys_flag", "body_size",
)  # fmt: skip
"""The columns of the table that the pass reads."""
KEYS = ("store", "topic", "queue_id", "born_host")
MEASURED = ("size", "body", "latency", "skewed", "unborn")
QUEUED = ("offset", "unqueued", "batch")
CLOCK = "clock"
OFFSETS_A_CELL = 64
LATE_MS_MAX = 100 * 366 * 86_400_000
"""A born time further away is no time: a number that somebody sent. It also keeps sums in 64 bits:
three million of them in one cell."""

# RocketMQ's MessageSysFlag: the transaction bits, two of whose values have no queue offset, and the
# bit of records that hold a batch and take as many queue offsets as their INNER_NUM says.
_UNQUEUED = "(sys_flag & 12) in (4, 12)"
_BATCH = "(sys_flag & 128) != 0"
# "ip:port" or "[ip]:port" without the port.
_HOST = (
    "case when born_host like '[%' then concat(substring_index(born_host, ']', 1), ']')"
    " else substring_index(born_host, ':', 1) end"
)
_CELL = (*KEYS, "second", "metric", "bucket")


def cells(table: "DataFrame", *, with_ports: bool = False) -> "DataFrame":
    """The cells of a table: the one pass."""
    host = "born_host" if with_ports else _HOST
    read = table.selectExpr(
        "store", "topic", "queue_id", f"{host} as born_host", "queue_offset", "log_offset",
        "cast(size as bigint) as size", "cast(body_size as bigint) as body", "sys_flag",
        "unix_millis(born_time) as born_ms", "unix_millis(store_time) as store_ms",
    ).selectExpr(
        "*", f"born_ms > 0 and abs(store_ms - born_ms) <= {LATE_MS_MAX}L as is_born",
    ).selectExpr(
        "*", "case when is_born then abs(store_ms - born_ms) else 0L end as late_ms"
    )  # fmt: skip
    late = (
        "case when not is_born then 'unborn' when born_ms > store_ms then 'skewed'"
        " else 'latency' end"
    )
    place = f"case when {_UNQUEUED} then 'unqueued' when {_BATCH} then 'batch' else 'offset' end"
    of_host = "topic, queue_id, born_host, store_ms div 1000 as second"
    nowhere = "cast(null as string) as born_host, cast(null as bigint) as second"
    counted = [
        f"struct({of_host}, 'size' as metric, {bucket_sql('size')} as bucket, size as value)",
        f"struct({of_host}, 'body' as metric, {bucket_sql('body')} as bucket, body as value)",
        f"struct({of_host}, {late} as metric, {bucket_sql('late_ms')} as bucket, late_ms as value)",
        f"struct(topic, queue_id, {nowhere}, {place} as metric,"
        f" queue_offset div {OFFSETS_A_CELL} as bucket, queue_offset as value)",
        f"struct(cast(null as string) as topic, cast(null as int) as queue_id, {nowhere},"
        f" '{CLOCK}' as metric, store_ms as bucket, log_offset as value)",
    ]
    summed = f"sum(case metric when '{CLOCK}' then 0L else value end)"
    bit = f"case metric when 'offset' then shiftleft(1L, cast(value & {OFFSETS_A_CELL - 1} as int))"
    return (
        read.selectExpr("store", "store_ms", f"inline(array({', '.join(counted)}))")
        .selectExpr("*", f"{bit} else 0L end as bit")
        .groupBy(*_CELL)
        .agg(*_exprs(
            "count(1) as messages", f"{summed} as total", "min(value) as least",
            "max(value) as most", "min(store_ms) as first_ms", "max(store_ms) as last_ms",
            "bit_or(bit) as bits",
        ))
    )  # fmt: skip


def added(cells: "DataFrame", keys: Sequence[str]) -> "DataFrame":
    """Cells of sizes and latencies added up to coarser keys: their histograms.

    Totals are doubles from here on: exact up to 9 PB, and never out of range.
    """
    return cells.groupBy(*keys, "metric", "bucket").agg(*_exprs(
        "sum(messages) as messages", "sum(cast(total as double)) as total", "min(least) as least",
        "max(most) as most", "min(first_ms) as first_ms", "max(last_ms) as last_ms",
    ))  # fmt: skip


def figures(histograms: "DataFrame", keys: Sequence[str]) -> "DataFrame":
    """One row for each value of `keys`, from histograms that are added up to these keys.

    Percentiles are those of numpy's default method over the means of the buckets.
    """
    return histograms.groupBy(*keys).agg(*_exprs(
        f"{_sum('size', 'messages')} as messages",
        f"cast({_sum('size', 'total')} as bigint) as bytes",
        f"cast({_sum('body', 'total')} as bigint) as body_bytes",
        "min(first_ms) as first_ms",
        "max(last_ms) as last_ms",
        *_spread("size", "size"), _percentiles("size", "size"),
        *_spread("body", "body"), _percentiles("body", "body"),
        f"{_sum('latency', 'messages')} as timed_messages",
        *_spread("latency", "latency_ms"), _percentiles("latency", "latency_ms"),
        f"{_sum('skewed', 'messages')} as skewed_messages",
        f"max({_only('skewed', 'most')}) as skew_ms_max",
        f"{_sum('unborn', 'messages')} as unborn_messages",
    )).selectExpr(
        *keys, "messages", "bytes", "body_bytes", "first_ms", "last_ms",
        *_named("size"), *_named("body"),
        "timed_messages", *_named("latency_ms"),
        "skewed_messages", "coalesce(skew_ms_max, 0L) as skew_ms_max", "unborn_messages",
    )  # fmt: skip


def peaks(cells: "DataFrame", keys: Sequence[str]) -> "DataFrame":
    """The most messages and bytes in one second, for each value of `keys`."""
    seconds = cells.where("metric = 'size'").groupBy(*keys, "second")
    return (
        seconds.agg(*_exprs("sum(messages) as messages", "sum(total) as bytes"))
        .groupBy(*keys)
        .agg(*_exprs(
            "max(messages) as peak_messages_per_s", "max(bytes) as peak_bytes_per_s",
            "count(1) as seconds_with_messages",
        ))
    )  # fmt: skip


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
        f"{name}_min", f"{name}_avg", f"{name}_max",
        f"{name}_at[0] as {name}_p50", f"{name}_at[1] as {name}_p99",
        f"{name}_at[2] as {name}_p999",
    ]  # fmt: skip


def _exprs(*texts: str) -> "list[Column]":
    from pyspark.sql import functions

    return [functions.expr(text) for text in texts]
