"""The throughput job: reports a broker's traffic from its store, with speed, latencies and gaps.

Owns the job: its tables, their places and the part of them that is shown. It must never look at
records more than once (throughput/source.py), nor collect more than throughput/result.py bounds.

    run(spark, ThroughputOptions(RowSelection(("/data/store",)), "/data/report")) -> Throughput

The tables, each a folder of Parquet in `output` (docs/FORMATS.md has their columns): cells (the
source of all others), seconds (per topic, queue, producer host and second), queues, topics, hosts,
stores, gaps, stalls, clock_steps, and copies. report.html lies beside them.

Tests: tests/integration/spark/test_throughput_stores.py,
    tests/unit/spark/throughput/local/test_job.py
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from turbopump.engine.types import StoreError
from turbopump.spark.commands.parsers import STALL_S, throughput
from turbopump.spark.selection import RowSelection, selection_of
from turbopump.spark.session import BAD_INPUT, JobError, job_main
from turbopump.spark.throughput import cells as cell
from turbopump.spark.throughput import events as events
from turbopump.spark.throughput import replicas as replicas
from turbopump.spark.throughput.report import render, summary
from turbopump.spark.throughput.result import (
    TOPICS_DRAWN,
    CopyComparison,
    ReplicaLag,
    Row,
    Throughput,
    readable,
    step_seconds,
)
from turbopump.spark.throughput.tables import ResultTables, is_one_of, one, rows, shown, stamped

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

REPORT = "report.html"


@dataclass(frozen=True)
class ThroughputOptions:
    """The options of the command line."""

    selection: RowSelection
    output: str | None = None
    """Folder of the Parquet tables and the report; None: only the result is returned."""
    html: str | None = None
    """File of the report on the driver's machine; None: report.html in a local `output`."""
    stall_seconds: int = STALL_S
    with_ports: bool = False
    """Distinguish producers by "ip:port" instead of ip: a row for each connection."""
    replicas: tuple[str, ...] = ()
    """Other stores of the first store's group, each compared with it."""
    copy: str | None = None
    """A store of another group that has copies of the messages."""
    overwrite: bool = False


def run(spark: "SparkSession", options: ThroughputOptions) -> Throughput:
    """Read the stores once and return all results; write the tables and the report."""
    from turbopump.spark.throughput.source import counted_frame

    _check(options)
    chosen = options.selection
    counted = counted_frame(spark, chosen, with_ports=options.with_ports)
    result = analyse(spark, counted, options)
    if options.replicas:
        leader = chosen.stores[0]
        lags = tuple(lag_of(spark, leader, replica) for replica in options.replicas)
        result = replace(result, replicas=lags)
    if options.copy is not None:
        origin = chosen.frame(spark, replicas.NEEDED)
        copy = replace(chosen, stores=(options.copy,)).frame(spark, replicas.NEEDED)
        copies, written = _copies(spark, origin, copy, options)
        result = replace(result, copies=copies, written=result.written + written)
    return _with_report(result, options)


def run_local(options: ThroughputOptions) -> Throughput:
    """Run the job for small stores in this process, without a JVM; write the report only.

    Raises StoreError, and JobError, also for options that only Spark supports.
    """
    from turbopump.spark.throughput.local import job

    _check(options)
    for name, given in (
        ("output", options.output),
        ("replica", options.replicas),
        ("copy", options.copy),
    ):
        if given:
            raise JobError(f"--{name} is Spark's work: leave --local out")
    ports = options.with_ports
    result = job.analyse(options.selection, options.stall_seconds, with_ports=ports)
    return _with_report(result, options)


def _with_report(result: Throughput, options: ThroughputOptions) -> Throughput:
    place = _report_place(options)
    if place is not None:
        result = replace(result, written=(*result.written, str(place)))
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(render(result), encoding="utf-8")
    return result


def analyse(spark: "SparkSession", counted: "DataFrame", options: ThroughputOptions) -> Throughput:
    """Compute all results from counted records (throughput/batches.py) of any source."""
    tables = ResultTables(spark, options.output, overwrite=options.overwrite)
    try:
        cells = tables.keep("cells", cell.cells(counted), "metric", is_large=True)
        return _told(tables, cells, options)
    finally:
        tables.close()


def lag_of(spark: "SparkSession", leader: str, replica: str) -> ReplicaLag:
    """Compare a store of a group with its leader's store, both up to the last record."""
    theirs = RowSelection((replica,), confirmed=False).frame(spark, replicas.NEEDED)
    ours = RowSelection((leader,), confirmed=False).frame(spark, replicas.NEEDED)
    return replicas.lag(ours, theirs, (leader, replica))


def _told(tables: ResultTables, cells: "DataFrame", options: ThroughputOptions) -> Throughput:
    measured = cells.where(is_one_of("metric", cell.MEASURED))
    tables.keep("seconds", _seconds(measured), "day")
    base = cell.added(measured, cell.KEYS).persist()
    gaps = tables.keep("gaps", stamped(events.gaps(cells)))
    stalls = tables.keep("stalls", stamped(events.stalls(cells, options.stall_seconds)))
    silences = stamped(events.longest_silences(cells))
    steps = tables.keep("clock_steps", stamped(events.clock_steps(cells)))
    queues = tables.keep("queues", _queues(cells, base))
    topics = tables.keep("topics", _level(cells, base, ("store", "topic")))
    hosts = tables.keep("hosts", _level(cells, base, ("store", "born_host")))
    stores = tables.keep("stores", _level(cells, base, ("store",)))
    totals = _totals(_level(cells, base, ()), queues, hosts, gaps, stalls, steps)
    step_s = step_seconds(_number(totals, "first_ms"), _number(totals, "last_ms"))
    histograms = cell.added(base, ()).select("metric", "bucket", "messages")
    result = Throughput(
        stores=options.selection.stores,
        totals=readable(totals),
        by_store=shown(stores, "bytes desc", "store"),
        topics=shown(topics, "bytes desc", "store", "topic"),
        queues=shown(queues, "latency_ms_p99 desc", "bytes desc", *events.QUEUE),
        hosts=shown(hosts, "messages desc", "store", "born_host"),
        gaps=shown(gaps, "missing desc", *events.QUEUE, "first_missing"),
        stalls=shown(stalls, "silent_ms desc", "level", *events.QUEUE),
        silences=rows(silences.orderBy("level", "silent_ms", ascending=[True, False])),
        clock_steps=shown(steps, "back_ms desc", "store"),
        stall_seconds=options.stall_seconds,
        step_seconds=step_s,
        over_time=_over_time(measured, step_s),
        topics_over_time=_topics_over_time(measured, topics, step_s),
        histograms=rows(histograms.orderBy("metric", "bucket")),
        written=tuple(tables.written),
    )
    base.unpersist()
    return result


def _seconds(measured: "DataFrame") -> "DataFrame":
    keys = (*cell.KEYS, "second")
    return (
        stamped(cell.traffic_statistics(measured, keys))
        .selectExpr("*", "date_add(date'1970-01-01', cast(second div 86400 as int)) as day")
        .withColumnRenamed("second", "unix_second")
    )


def _level(cells: "DataFrame", base: "DataFrame", keys: tuple[str, ...]) -> "DataFrame":
    figures = cell.traffic_statistics(cell.added(base, keys), keys)
    peaks = cell.peaks(cells, keys)
    joined = figures.join(peaks, list(keys), "left") if keys else figures.crossJoin(peaks)
    return stamped(joined) if keys else joined


def _queues(cells: "DataFrame", base: "DataFrame") -> "DataFrame":
    figures = _level(cells, base, events.QUEUE)
    return figures.join(events.queues(cells), list(events.QUEUE), "left")


def _totals(
    all_rows: "DataFrame",
    queues: "DataFrame",
    hosts: "DataFrame",
    gaps: "DataFrame",
    stalls: "DataFrame",
    steps: "DataFrame",
) -> dict[str, Any]:
    totals = one(all_rows)
    totals |= one(
        queues.selectExpr(
            "count(1) as queues",
            "count(distinct topic) as topics",
            "coalesce(sum(duplicate_offsets), 0L) as duplicate_offsets",
            "coalesce(sum(records_without_queue_offset), 0L) as records_without_queue_offset",
            "coalesce(sum(batch_records), 0L) as batch_records",
        )
    )
    totals |= one(hosts.selectExpr("count(distinct born_host) as hosts"))
    totals |= one(
        gaps.selectExpr("count(1) as gaps", "coalesce(sum(missing), 0L) as missing_offsets")
    )
    totals |= one(
        stalls.selectExpr(
            *(
                f"count(case level when '{level}' then 1 end) as {level}_stalls"
                for level in events.LEVELS
            )
        )
    )
    return totals | one(
        steps.selectExpr("count(1) as clock_steps", "coalesce(max(back_ms), 0L) as back_ms_max")
    )


def _over_time(measured: "DataFrame", step_s: int) -> tuple[Row, ...]:
    steps = _in_steps(measured, step_s)
    points = cell.traffic_statistics(cell.added(steps, ("start_s",)), ("start_s",))
    return rows(
        points.select(
            "start_s",
            "messages",
            "bytes",
            "body_bytes",
            "timed_messages",
            "latency_ms_p50",
            "latency_ms_p99",
            "latency_ms_p999",
            "latency_ms_max",
            "skewed_messages",
        ).orderBy("start_s")
    )


def _topics_over_time(measured: "DataFrame", topics: "DataFrame", step_s: int) -> tuple[Row, ...]:
    from pyspark.sql import functions as f

    ranked = topics.groupBy("topic").agg(f.sum("bytes").alias("all_bytes"))
    largest = ranked.orderBy(f.desc("all_bytes"), "topic").limit(TOPICS_DRAWN).select("topic")
    drawn = _in_steps(measured, step_s).where("metric = 'size'").join(f.broadcast(largest), "topic")
    return rows(
        drawn.groupBy("topic", "start_s")
        .agg(f.sum("messages").alias("messages"), f.sum("total").alias("bytes"))
        .orderBy("topic", "start_s")
    )


def _copies(
    spark: "SparkSession", origin: "DataFrame", copy: "DataFrame", options: ThroughputOptions
) -> tuple[CopyComparison, tuple[str, ...]]:
    from pyspark.sql import functions as f

    tables = ResultTables(spark, options.output, overwrite=options.overwrite)
    pairs = replicas.paired(origin, copy).persist()
    cells = replicas.copy_cells(pairs).persist()
    inside = replicas.missing_inside(pairs)
    by_topic = replicas.copy_statistics(cells, ("topic",)).join(inside, "topic", "left").fillna(0)
    topics = tables.keep("copies", by_topic)
    totals = one(replicas.copy_statistics(cells, ()))
    totals |= one(topics.agg(f.coalesce(f.sum("missing_inside"), f.lit(0)).alias("missing_inside")))
    for name, table in (("origin", origin), ("copy", copy)):
        totals[f"{name}_without_key"] = table.where("unique_key is null").count()
    times = one(cells.selectExpr("min(first_ms) as first_ms", "max(last_ms) as last_ms"))
    step_s = step_seconds(_number(times, "first_ms"), _number(times, "last_ms"))
    points = (
        replicas.copy_statistics(_in_steps(cells.where("second is not null"), step_s), ("start_s",))
        .select("start_s", "copied", "missing", "delay_ms_p50", "delay_ms_p99")
        .orderBy("start_s")
    )
    copies = CopyComparison(
        str(options.copy),
        totals,
        shown(topics, "missing desc", "copied desc", "topic"),
        rows(points),
    )
    pairs.unpersist()
    cells.unpersist()
    tables.close()
    return copies, tuple(tables.written)


def _in_steps(cells: "DataFrame", step_s: int) -> "DataFrame":
    from pyspark.sql import functions as f

    return cells.withColumn("start_s", f.expr(f"second - pmod(second, {step_s}L)"))


def _number(values: Row, name: str) -> int:
    value = values[name]
    return value if isinstance(value, int) else 0


def _check(options: ThroughputOptions) -> None:
    if options.stall_seconds < 1:
        raise JobError("a stall is at least one second long")
    if options.output is not None and not options.overwrite and _is_local(options.output):
        there = Path(options.output)
        if there.exists() and (not there.is_dir() or any(there.iterdir())):
            raise JobError(f"{there} is there already; --overwrite replaces its tables")


def _is_local(place: str) -> bool:
    return "://" not in place


def _report_place(options: ThroughputOptions) -> Path | None:
    if options.html is not None:
        return Path(options.html)
    if options.output is None or not _is_local(options.output):
        return None
    return Path(options.output) / REPORT


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, or 2 if it could not run."""
    parser = throughput()
    given = parser.parse_args(argv)
    if not given.local:
        return job_main(parser, argv, _work)
    try:
        return _print(run_local(_options(given)), given)
    except (JobError, StoreError, OSError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return BAD_INPUT


def _work(spark: "SparkSession", given: argparse.Namespace) -> int:
    return _print(run(spark, _options(given)), given)


def _options(given: argparse.Namespace) -> ThroughputOptions:
    return ThroughputOptions(
        selection_of(given),
        output=given.output,
        html=given.html,
        stall_seconds=given.stall_seconds,
        with_ports=given.with_ports,
        replicas=tuple(given.replica),
        copy=given.copy,
        overwrite=given.overwrite,
    )


def _print(result: Throughput, given: argparse.Namespace) -> int:
    print(result.to_json() if given.json else "\n".join(summary(result)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
