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

from functools import reduce
from typing import TYPE_CHECKING

from turbopump.spark.throughput.batches import OFFSETS_A_CELL

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

QUEUE = ("store", "topic", "queue_id")
SILENCES_SHOWN = 5
"""Longest silences listed per level."""
LEVELS = {"queue": QUEUE, "topic": ("store", "topic"), "store": ("store",)}


def queues(cells: "DataFrame") -> "DataFrame":
    """Return each queue's least and greatest queue offset, and how many are missing or repeated.

    `missing_offsets` is null for a queue with batch records.
    """
    from pyspark.sql import functions as f

    of_queue = cells.where("metric in ('offset', 'unqueued', 'batch')").groupBy(*QUEUE)
    return of_queue.agg(
        f.expr("min(case metric when 'offset' then least end)").alias("queue_offset_min"),
        f.expr("max(case metric when 'offset' then most end)").alias("queue_offset_max"),
        f.expr("sum(bit_count(bits))").alias("offsets"),
        f.expr("sum(case metric when 'offset' then messages else 0L end)").alias("queued"),
        f.expr("sum(case metric when 'unqueued' then messages else 0L end)").alias("unqueued"),
        f.expr("sum(case metric when 'batch' then messages else 0L end)").alias("batches"),
    ).selectExpr(
        *QUEUE,
        "queue_offset_min",
        "queue_offset_max",
        "case when batches = 0 then coalesce(queue_offset_max - queue_offset_min + 1, 0L) - offsets"
        " end as missing_offsets",
        "queued - offsets as duplicate_offsets",
        "unqueued as records_without_queue_offset",
        "batches as batch_records",
    )


def gaps(cells: "DataFrame") -> "DataFrame":
    """Return the missing queue offsets as ranges, both ends included."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    of_queue = Window.partitionBy(*QUEUE)
    judged = (
        cells.where("metric in ('offset', 'batch')")
        .withColumn("batches", f.max(f.expr("metric = 'batch'")).over(of_queue))
        .where("not batches")
        .withColumn("before", f.lag("most").over(of_queue.orderBy("bucket")))
    )
    between = judged.where("least - before > 1").selectExpr(
        *QUEUE, "before + 1 as first_missing", "least - 1 as last_missing", "first_ms as seen_ms"
    )
    there = f"filter(sequence(0, {OFFSETS_A_CELL - 1}), i -> (shiftright(bits, i) & 1) = 1)"
    inside = (
        judged.where("most - least + 1 > bit_count(bits)")
        .selectExpr(*QUEUE, "first_ms", f"bucket * {OFFSETS_A_CELL} as base", f"{there} as at")
        .selectExpr(*QUEUE, "first_ms", "base", "posexplode(slice(at, 1, size(at) - 1))", "at")
        .selectExpr(
            *QUEUE,
            "base + col + 1 as first_missing",
            "base + at[pos + 1] - 1 as last_missing",
            "first_ms as seen_ms",
        )
        .where("last_missing >= first_missing")
    )
    return between.union(inside).selectExpr(
        *QUEUE,
        "first_missing",
        "last_missing",
        "last_missing - first_missing + 1 as missing",
        "seen_ms",
    )


def stalls(cells: "DataFrame", stall_s: int) -> "DataFrame":
    """Return silences of at least `stall_s` whole seconds, of queues, topics and stores."""
    found = [_silences(cells, level).where(f"silent_seconds >= {stall_s}") for level in LEVELS]
    return reduce(lambda one, other: one.union(other), found)


def longest_silences(cells: "DataFrame") -> "DataFrame":
    """Return the SILENCES_SHOWN longest silences of each level."""
    from pyspark.sql import functions as f

    order = (f.desc("silent_ms"), *QUEUE, "from_ms")
    found = [_silences(cells, level).orderBy(*order).limit(SILENCES_SHOWN) for level in LEVELS]
    return reduce(lambda one, other: one.union(other), found)


def _silences(cells: "DataFrame", level: str) -> "DataFrame":
    """Return the silence between each two successive seconds with records."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    keys = LEVELS[level]
    order = Window.partitionBy(*keys).orderBy("second")
    return (
        cells.where("metric = 'size'")
        .groupBy(*keys, "second")
        .agg(f.min("first_ms").alias("first_ms"), f.max("last_ms").alias("last_ms"))
        .withColumn("second_before", f.lag("second").over(order))
        .withColumn("ms_before", f.lag("last_ms").over(order))
        .where("second_before is not null")
        .selectExpr(
            f"'{level}' as level",
            "store",
            "topic" if "topic" in keys else "cast(null as string) as topic",
            "queue_id" if "queue_id" in keys else "cast(null as int) as queue_id",
            "ms_before as from_ms",
            "first_ms as until_ms",
            "second - second_before - 1 as silent_seconds",
            "first_ms - ms_before as silent_ms",
        )
    )


def clock_steps(cells: "DataFrame") -> "DataFrame":
    """Return the places in the log where store time went back.

    A millisecond is out of order if its last record lies after the first record of a later
    millisecond. The greatest such later time is looked up only for these.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    before = (Window.unboundedPreceding, -1)
    times = cells.where("metric = 'clock'").selectExpr(
        "store", "bucket as ms", "bucket div 1000 as second", "least as first_at", "most as last_at"
    )
    in_second = Window.partitionBy("store", "second").orderBy(f.desc("ms"))
    of_store = Window.partitionBy("store").orderBy(f.desc("second"))
    seconds = (
        times.groupBy("store", "second")
        .agg(f.min("first_at").alias("first_of_second"))
        .withColumn("later", f.min("first_of_second").over(of_store.rowsBetween(*before)))
        .drop("first_of_second")
    )
    late = (
        times.join(seconds, ["store", "second"])
        .withColumn("near", f.min("first_at").over(in_second.rowsBetween(*before)))
        .where("last_at > least(later, near)")
        .select("store", "ms", "last_at")
    )
    in_log = Window.partitionBy("store").orderBy("at", "is_late").rowsBetween(*before)
    seen = times.selectExpr("store", "first_at as at", "0 as is_late", "ms").union(
        late.selectExpr("store", "last_at as at", "1 as is_late", "ms")
    )
    return (
        seen.withColumn(
            "highest", f.max(f.expr("case is_late when 0 then struct(ms, at) end")).over(in_log)
        )
        .where("is_late = 1")
        .groupBy("store", "highest")
        .agg(f.expr("min(struct(ms, at))").alias("lowest"), f.count("ms").alias("milliseconds"))
        .selectExpr(
            "store",
            "highest.ms as later_ms",
            "highest.at as later_log_offset",
            "lowest.ms as earlier_ms",
            "lowest.at as earlier_log_offset",
            "highest.ms - lowest.ms as back_ms",
            "milliseconds",
        )
    )
