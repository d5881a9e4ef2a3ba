"""Replication delay as the files of two stores show it, and the limits of that evidence.

Owns two comparisons. It must never claim a delay of single records within a group: a replica's
record equals its master's byte for byte, store time included, so nothing in the log shows when the
replica received it.

Stores in a group (`compare_replica`): the result is the replica's lag when both were read. Both
logs are compared up to the shorter one's end by digests of blocks; where these differ, the records
of a block are compared. After the common end, the leader has bytes and records that the replica
lacks, the oldest of which had been waiting at least `waiting_ms`: the leader wrote it at its store
time, and was alive at the store time of its last record, while the replica did not have it.
`ends_apart_ms`, the difference of the last store times, corresponds to RocketMQ's brokerStatus;
after a quiet hour it is an hour for a replica that lacks one new record. The replica is read first,
so that a live pair's delay is not understated. Digests cover the records' headers and their body
CRCs; the truncation audit compares bytes.

Stores of distinct groups (`copies`: a mirror, a disaster copy): the copy has its own store time, so
the delay of each message is the difference of the two, joined by topic and unique key. A message
sent again under its key counts once, with its first store time. Negative delays (clocks that
disagree) are counted apart. A message the copy lacks is `missing_inside` if the copy has a later
one of the topic, else it may still be on its way.

Tests: tests/integration/spark/test_throughput_stores.py, tests/unit/spark/throughput/test_job.py
"""

from typing import TYPE_CHECKING, Any

from turbopump.spark.throughput.buckets import bucket_sql
from turbopump.spark.throughput.result import ReplicaLag

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

NEEDED = (
    "store",
    "topic",
    "queue_id",
    "queue_offset",
    "log_offset",
    "size",
    "store_time",
    "unique_key",
    "body_crc",
    "confirmed",
)
"""Columns of the table that a comparison reads."""
BLOCK = 16 << 20
"""Bytes of log under one digest: a log of 16 TB has a million. No record is that large."""
# Blocks of which records are compared: where the common part begins, the first that differs within,
# and where the common part ends. No other block can hold the first difference.
_BLOCKS_COMPARED = 3
_RECORD = "xxhash64(log_offset, topic, queue_id, queue_offset, size, store_ms, body_crc)"


def compare_replica(
    leader: "DataFrame", replica: "DataFrame", names: tuple[str, str]
) -> ReplicaLag:
    """Compare two stores in a group, given as frames with NEEDED that include unconfirmed records;
    `names` are (leader, replica) for the result. Runs Spark jobs now."""
    theirs, ours = _record_columns(replica), _record_columns(leader)
    their_blocks, our_blocks = _digest_blocks(theirs).persist(), _digest_blocks(ours).persist()
    try:
        return _compare_blocks((ours, our_blocks), (theirs, their_blocks), names)
    finally:
        for blocks in (our_blocks, their_blocks):
            blocks.unpersist()


def _compare_blocks(
    leader: "tuple[DataFrame, DataFrame]",
    replica: "tuple[DataFrame, DataFrame]",
    names: tuple[str, str],
) -> ReplicaLag:
    """Compare two stores, each given by its records and its blocks."""
    (ours, our_blocks), (theirs, their_blocks) = leader, replica
    replica_ends = _find_ends(their_blocks)  # the replica is read first
    leader_ends = _find_ends(our_blocks)
    start = max(replica_ends["start"], leader_ends["start"])
    end = min(replica_ends["end"], leader_ends["end"])
    difference = _first_difference(leader, replica, start, end) if start < end else None
    common_end = end if difference is None else difference
    lacking, extra = _count_behind(ours, common_end), _count_behind(theirs, common_end)
    near = ours.where(f"log_offset >= {common_end - BLOCK} and log_offset < {common_end}")
    last_common_ms = _only_row(near.selectExpr("max_by(store_ms, log_offset) as ms"))["ms"]
    last_ms = leader_ends["last_ms"]
    return ReplicaLag(
        leader=names[0],
        replica=names[1],
        leader_end=leader_ends["end"],
        replica_end=replica_ends["end"],
        common_end=common_end,
        differs=difference is not None,
        leader_confirmed_end=leader_ends["confirmed_end"],
        replica_confirmed_end=replica_ends["confirmed_end"],
        bytes_behind=leader_ends["end"] - common_end,
        records_behind=lacking["records"],
        waiting_ms=last_ms - lacking["first_ms"] if lacking["records"] else 0,
        ends_apart_ms=last_ms - last_common_ms if last_common_ms is not None else 0,
        bytes_extra=replica_ends["end"] - common_end,
        records_extra=extra["records"],
    )


def join_replicas(origin: "DataFrame", copy: "DataFrame") -> "DataFrame":
    """Return a lazy frame with a row for each topic and unique key of either frame (with NEEDED).

    Columns: topic, origin_ms (first store time in the origin, null without), copy_times (records in
    the copy), outcome (copied, early: stored in the copy before the origin, missing, only_in_copy),
    delay_ms (absolute difference of the store times; 0 without a pair).
    """
    from pyspark.sql import functions as f

    def keyed(table: "DataFrame", name: str) -> "DataFrame":
        return (
            table.where("unique_key is not null")
            .selectExpr("topic", "unique_key", "unix_millis(store_time) as store_ms")
            .groupBy("topic", "unique_key")
            .agg(f.min("store_ms").alias(f"{name}_ms"), f.count("store_ms").alias(f"{name}_times"))
        )

    both = keyed(origin, "origin").join(keyed(copy, "copy"), ["topic", "unique_key"], "full_outer")
    outcome = (
        "case when copy_ms is null then 'missing' when origin_ms is null then 'only_in_copy'"
        " when copy_ms < origin_ms then 'early' else 'copied' end"
    )
    return both.selectExpr(
        "topic",
        "origin_ms",
        "copy_times",
        f"{outcome} as outcome",
        "coalesce(abs(copy_ms - origin_ms), 0L) as delay_ms",
    )


def copy_cells(pairs: "DataFrame") -> "DataFrame":
    """Return a lazy frame that counts the rows of `join_replicas` by topic, second of the origin's
    store time, outcome and bucket of delay (buckets.py)."""
    return (
        pairs.selectExpr(
            "topic",
            "origin_ms div 1000 as second",
            "outcome",
            "delay_ms",
            "origin_ms",
            f"{bucket_sql('delay_ms')} as bucket",
            "greatest(copy_times - 1, 0L) as again",
        )
        .groupBy("topic", "second", "outcome", "bucket")
        .agg(
            *_sql_columns(
                "count(1) as messages",
                "sum(delay_ms) as total",
                "max(delay_ms) as most",
                "sum(again) as again",
                "min(origin_ms) as first_ms",
                "max(origin_ms) as last_ms",
            )
        )
    )


def copy_statistics(cells: "DataFrame", keys: tuple[str, ...]) -> "DataFrame":
    """Return a lazy frame with counts of the outcomes and delays in ms: one row for each value of
    `keys` (`topic`, `second`); without keys one row for all. `cells` are of `copy_cells`."""
    outcomes = ("copied", "early", "missing", "only_in_copy")
    merged = cells.groupBy(*keys, "outcome", "bucket").agg(
        *_sql_columns(
            "sum(messages) as messages",
            "sum(cast(total as double)) as total",
            "max(most) as most",
            "sum(again) as again",
        )
    )
    late = "case when outcome = 'copied' then"
    return (
        merged.groupBy(*keys)
        .agg(
            *_sql_columns(
                *(
                    f"coalesce(sum(case when outcome = '{name}' then messages end), 0L) as {name}"
                    for name in outcomes
                ),
                "sum(again) as copied_again",
                f"sum({late} total end) / sum({late} messages end) as delay_ms_avg",
                f"max({late} most end) as delay_ms_max",
                f"percentile({late} total / messages end, array(0.5D, 0.99D, 0.999D),"
                f" {late} messages else 0L end) as at",
                "coalesce(max(case when outcome = 'early' then most end), 0L) as early_ms_max",
            )
        )
        .selectExpr(
            *keys,
            *outcomes,
            "copied_again",
            "delay_ms_avg",
            "delay_ms_max",
            "at[0] as delay_ms_p50",
            "at[1] as delay_ms_p99",
            "at[2] as delay_ms_p999",
            "early_ms_max",
        )
    )


def missing_inside(pairs: "DataFrame") -> "DataFrame":
    """Return a lazy frame (topic, missing_inside) with the number of missing messages that the
    origin stored before a message which the copy has; topics without any are left out."""
    last = (
        pairs.where("outcome in ('copied', 'early')")
        .groupBy("topic")
        .agg(*_sql_columns("max(origin_ms) as last_ms"))
    )
    return (
        pairs.where("outcome = 'missing'")
        .join(last, "topic")
        .where("origin_ms < last_ms")
        .groupBy("topic")
        .agg(*_sql_columns("count(1) as missing_inside"))
    )


def _record_columns(table: "DataFrame") -> "DataFrame":
    """Return the columns of a table of records that the comparison of replicas needs."""
    return table.selectExpr(
        "topic",
        "queue_id",
        "queue_offset",
        "log_offset",
        "size",
        "body_crc",
        "confirmed",
        "unix_millis(store_time) as store_ms",
    )


def _digest_blocks(records: "DataFrame") -> "DataFrame":
    """Return a row for each block of a log, with a digest of its records."""
    return records.groupBy(*_sql_columns(f"log_offset div {BLOCK} as block")).agg(
        *_sql_columns(
            f"bit_xor({_RECORD}) as digest",
            "count(1) as records",
            "min(log_offset) as start",
            "max(log_offset + size) as end",
            "max_by(store_ms, log_offset) as last_ms",
            "max(case when confirmed then log_offset + size end) as confirmed_end",
        )
    )


def _find_ends(blocks: "DataFrame") -> dict[str, int]:
    """Return start, end, last store time (ms) and confirmed end of a log as `start`, `end`,
    `last_ms`, `confirmed_end`; 0 without records."""
    row = _only_row(
        blocks.selectExpr(
            "min(start) as start",
            "max(end) as end",
            "max_by(last_ms, block) as last_ms",
            "max(confirmed_end) as confirmed_end",
        )
    )
    return {name: value or 0 for name, value in row.items()}


def _first_difference(
    ours: "tuple[DataFrame, DataFrame]", theirs: "tuple[DataFrame, DataFrame]", start: int, end: int
) -> int | None:
    """Return the first log offset in [start, end) at which the records differ; None if they do
    not."""
    one = ours[1].selectExpr("block", "digest as our_digest", "records as our_records")
    other = theirs[1].selectExpr("block", "digest as their_digest", "records as their_records")
    differing = (
        one.join(other, "block", "full_outer")
        .where("not (our_digest <=> their_digest and our_records <=> their_records)")
        .where(f"block between {start // BLOCK} and {(end - 1) // BLOCK}")
        .orderBy("block")
        .limit(_BLOCKS_COMPARED)
        .collect()
    )
    for row in differing:
        low, high = max(start, row.block * BLOCK), min(end, (row.block + 1) * BLOCK)
        inside = f"log_offset >= {low} and log_offset < {high}"
        found = _only_row(
            ours[0]
            .where(inside)
            .selectExpr("log_offset", f"{_RECORD} as our")
            .join(
                theirs[0].where(inside).selectExpr("log_offset", f"{_RECORD} as their"),
                "log_offset",
                "full_outer",
            )
            .where("not (our <=> their)")
            .selectExpr("min(log_offset) as at")
        )["at"]
        if found is not None:
            return int(found)
    return None


def _count_behind(records: "DataFrame", log_offset: int) -> dict[str, int]:
    """Return the number of records from `log_offset` on, and the store time (ms) of the first,
    as `records` and `first_ms`; 0 without records."""
    row = _only_row(
        records.where(f"log_offset >= {log_offset}").selectExpr(
            "count(1) as records", "min_by(store_ms, log_offset) as first_ms"
        )
    )
    return {name: value or 0 for name, value in row.items()}


def _only_row(frame: "DataFrame") -> dict[str, Any]:
    """Return the only row of an aggregate, by column."""
    row = frame.first()
    assert row is not None, "an aggregate without keys has one row"
    return row.asDict()


def _sql_columns(*texts: str) -> "list[Column]":
    from pyspark.sql import functions

    return [functions.expr(text) for text in texts]
