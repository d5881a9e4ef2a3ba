"""The throughput job: reports a broker's traffic from its store, with speed, latencies and gaps.

Owns the job: its tables, their places and the part of them that is shown. It must never look at
records more than once (throughput/source.py), nor collect more than throughput/result.py bounds.

    run(spark, ThroughputOptions(RowSelection(("/data/store",)), "/data/report")) -> Throughput

The tables, each a folder of Parquet in `output` (docs/FORMATS.md has their columns): cells (the
source of all others), seconds (per topic, queue, producer host and second), queues, topics, hosts,
stores, gaps, stalls, clock_steps, and copies. report.html lies beside them.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from turbopump.engine.types import StoreError
from turbopump.spark.commands.parsers import STALL_S, throughput_parser
from turbopump.spark.selection import RowSelection, selection_of
from turbopump.spark.session import BAD_INPUT, JobError, job_main
from turbopump.spark.throughput import analysis as analysis
from turbopump.spark.throughput import replicas as replicas
from turbopump.spark.throughput.cells import KEYS, MEASURED
from turbopump.spark.throughput.report import render, summary_lines
from turbopump.spark.throughput.result import (
    CopyComparison,
    ReplicaLag,
    Throughput,
    step_seconds,
)
from turbopump.spark.throughput.spark_tables import (
    SparkTables,
    merge_cells,
    single_row,
    with_timestamps,
)
from turbopump.spark.throughput.statistics import by_second

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

REPORT = "report.html"
"""Name of the report in the output folder."""


@dataclass(frozen=True)
class ThroughputOptions:
    """Input of the throughput job, as on its command line."""

    selection: RowSelection
    """Stores and rows to report on."""
    output: str | None = None
    """Folder of the Parquet tables and the report; None: only the result is returned."""
    html: str | None = None
    """File of the report on the driver's machine; None: report.html in a local `output`."""
    stall_seconds: int = STALL_S
    """Whole seconds of silence that make a stall; at least 1."""
    with_ports: bool = False
    """Distinguish producers by "ip:port" instead of ip: a row for each connection."""
    replicas: tuple[str, ...] = ()
    """Other stores of the first store's group, each compared with it."""
    copy: str | None = None
    """A store of another group that has copies of the messages."""
    overwrite: bool = False
    """Whether tables in `output` are replaced."""


def run(spark: "SparkSession", options: ThroughputOptions) -> Throughput:
    """Read the stores, write the tables into `output` and the report, and return all results.
    The stores are read once, and again for the comparisons with `replicas` and a `copy`. Raises
    JobError for bad options or an output that exists, OSError, and Spark's errors."""
    from turbopump.spark.throughput.source import counted_frame

    _check_options(options)
    chosen = options.selection
    counted = counted_frame(spark, chosen, with_ports=options.with_ports)
    result = analyse_frame(spark, counted, options)
    if options.replicas:
        leader = chosen.stores[0]
        lags = tuple(lag_of(spark, leader, replica) for replica in options.replicas)
        result = replace(result, replicas=lags)
    if options.copy is not None:
        origin = chosen.make_frame(spark, replicas.NEEDED)
        copy = replace(chosen, stores=(options.copy,)).make_frame(spark, replicas.NEEDED)
        copies, written = _compare_copy(spark, origin, copy, options)
        result = replace(result, copies=copies, written=result.written + written)
    return _with_report(result, options)


def run_local(options: ThroughputOptions) -> Throughput:
    """Run the job for small stores in this process, without a JVM; write only the report, to
    `html` if given.

    Raises StoreError, OSError, and JobError, also for options that only Spark supports.
    """
    from turbopump.spark.throughput.local_tables import LocalTables, cells_of

    _check_options(options)
    for name, given in (
        ("output", options.output),
        ("replica", options.replicas),
        ("copy", options.copy),
    ):
        if given:
            raise JobError(f"--{name} is Spark's work: leave --local out")
    cells = cells_of(options.selection, with_ports=options.with_ports)
    stores = options.selection.stores
    result = analysis.analyse_cells(LocalTables(), cells, stores, options.stall_seconds)
    return _with_report(result, options)


def _with_report(result: Throughput, options: ThroughputOptions) -> Throughput:
    """Write the HTML report, if it has a place, and return the result with its path among the
    written ones."""
    place = _report_place(options)
    if place is not None:
        result = replace(result, written=(*result.written, str(place)))
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(render(result), encoding="utf-8")
    return result


def analyse_frame(
    spark: "SparkSession", counted: "DataFrame", options: ThroughputOptions
) -> Throughput:
    """Compute all results from a frame of cells that may come in parts (throughput/batches.py), and
    write the tables into `output`. Raises Spark's errors."""
    tables = SparkTables(spark, options.output, overwrite=options.overwrite)
    try:
        cells = tables.write("cells", merge_cells(counted), "metric", is_large=True)
        tables.write("seconds", _seconds_table(tables, cells), "day")
        stores = options.selection.stores
        result = analysis.analyse_cells(tables, cells, stores, options.stall_seconds)
        return replace(result, written=tuple(tables.written))
    finally:
        tables.close()


def lag_of(spark: "SparkSession", leader: str, replica: str) -> ReplicaLag:
    """Compare a replica's store with its leader's store, given by path or URI, both up to their
    last records, unconfirmed ones included. Raises Spark's errors."""
    theirs = RowSelection((replica,), confirmed=False).make_frame(spark, replicas.NEEDED)
    ours = RowSelection((leader,), confirmed=False).make_frame(spark, replicas.NEEDED)
    return replicas.compare_replica(ours, theirs, (leader, replica))


def _seconds_table(tables: SparkTables, cells: "DataFrame") -> "DataFrame":
    """Return the table `seconds`: the traffic of each topic, queue, producer host and second."""
    measured = tables.filter_rows(cells, "metric", MEASURED)
    return (
        with_timestamps(tables.derive_table(measured, by_second((*KEYS, "second"))))
        .selectExpr("*", "date_add(date'1970-01-01', cast(second div 86400 as int)) as day")
        .withColumnRenamed("second", "unix_second")
    )


def _compare_copy(
    spark: "SparkSession", origin: "DataFrame", copy: "DataFrame", options: ThroughputOptions
) -> tuple[CopyComparison, tuple[str, ...]]:
    """Compare the stores with a copy; returns (comparison, paths of the tables written)."""
    tables = SparkTables(spark, options.output, overwrite=options.overwrite)
    try:
        return _compare_copies(tables, origin, copy, str(options.copy)), tuple(tables.written)
    finally:
        tables.close()


def _compare_copies(
    tables: SparkTables, origin: "DataFrame", copy: "DataFrame", copy_store: str
) -> CopyComparison:
    """Compare two frames of records by unique key, and write the table `copies`."""
    from pyspark.sql import functions as f

    pairs = tables.cache_table(replicas.join_replicas(origin, copy))
    cells = tables.cache_table(replicas.copy_cells(pairs))
    inside = replicas.missing_inside(pairs)
    by_topic = replicas.copy_statistics(cells, ("topic",)).join(inside, "topic", "left").fillna(0)
    topics = tables.write("copies", by_topic)
    totals = single_row(replicas.copy_statistics(cells, ()))
    totals |= single_row(
        topics.agg(f.coalesce(f.sum("missing_inside"), f.lit(0)).alias("missing_inside"))
    )
    for name, table in (("origin", origin), ("copy", copy)):
        totals[f"{name}_without_key"] = table.where("unique_key is null").count()
    times = single_row(cells.selectExpr("min(first_ms) as first_ms", "max(last_ms) as last_ms"))
    step_s = step_seconds(times["first_ms"] or 0, times["last_ms"] or 0)
    stepped = tables.by_time_step(cells.where("second is not null"), step_s)
    points = replicas.copy_statistics(stepped, ("second",)).selectExpr(
        "second as start_s", "copied", "missing", "delay_ms_p50", "delay_ms_p99"
    )
    return CopyComparison(
        copy_store,
        totals,
        analysis.first_rows_shown(tables, topics, "missing desc", "copied desc", "topic"),
        tables.first_rows(points, ("start_s",)),
    )


def _check_options(options: ThroughputOptions) -> None:
    """Raises JobError for impossible options or an output that exists."""
    if options.stall_seconds < 1:
        raise JobError("a stall is at least one second long")
    if options.output is not None and not options.overwrite and _is_local(options.output):
        there = Path(options.output)
        if there.exists() and (not there.is_dir() or any(there.iterdir())):
            raise JobError(f"{there} is there already; --overwrite replaces its tables")


def _is_local(place: str) -> bool:
    return "://" not in place


def _report_place(options: ThroughputOptions) -> Path | None:
    """Return the path of the HTML report; None: no report."""
    if options.html is not None:
        return Path(options.html)
    if options.output is None or not _is_local(options.output):
        return None
    return Path(options.output) / REPORT


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command: print the result; return 0, or BAD_INPUT if it could not run. `argv` None:
    the process's arguments."""
    parser = throughput_parser()
    given = parser.parse_args(argv)
    if not given.local:
        return job_main(parser, argv, _run_and_print)
    try:
        return _print_result(run_local(_make_options(given)), given)
    except (JobError, StoreError, OSError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return BAD_INPUT


def _run_and_print(spark: "SparkSession", given: argparse.Namespace) -> int:
    """Run the job by Spark and print its result; returns the exit code."""
    return _print_result(run(spark, _make_options(given)), given)


def _make_options(given: argparse.Namespace) -> ThroughputOptions:
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


def _print_result(result: Throughput, given: argparse.Namespace) -> int:
    """Print the result as text or JSON; returns the exit code."""
    print(result.to_json() if given.json else "\n".join(summary_lines(result)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
