"""Rebalance report: how even, how sticky and how slow the rebalances of consumer groups were.

Owns the grouping of the measures (rebalance/measures.py) of all lines of the histories, and the
verdict. It must never judge an assignment itself. docs/FORMATS.md has the format of the histories.
"""

import argparse
import hashlib
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from turbopump.spark.commands import parsers
from turbopump.spark.output_folder import write_text, written_folder
from turbopump.spark.rebalance import report
from turbopump.spark.rebalance.measures import (
    BadHistory,
    Rebalance,
    assignment_id,
    measure_rebalance,
    parse,
)
from turbopump.spark.session import JobError, job_main

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

VIOLATED = 1
"""Exit code of a negative verdict."""
SHOWN_MAX = 100  # faults and malformed lines that are listed; all are counted
VERDICT, REPORT = "verdict.json", "report.html"
"""Names of the files in the output folder."""
DRAWN_MAX = 2_000
"""Rebalances per strategy in the plots, at most."""
DURATIONS = ("compute_ms", "time_consumed_ms", "overlap_ms", "unowned_ms")
"""Columns that are summarized as percentiles."""
SHARES = (0.5, 0.9, 0.99)
"""Percentiles of DURATIONS, as fractions; the maximum comes after them."""
KEY = ("group", "topic", "allocator")
"""Columns by which rebalances are summarized."""

ROW_DDL = (
    "file STRING, error STRING, time TIMESTAMP, `group` STRING, topic STRING, allocator STRING, "
    "trigger STRING, members BIGINT, queues BIGINT, balance_degree DOUBLE, balance_score BIGINT, "
    "evenness DOUBLE, spread BIGINT, revoked BIGINT, assigned BIGINT, stayed BIGINT, "
    "moved BIGINT, moved_min BIGINT, retention DOUBLE, owned BIGINT, stickiness DOUBLE, "
    "compute_ms DOUBLE, time_consumed_ms BIGINT, overlap_ms DOUBLE, unowned_ms DOUBLE, "
    "faults ARRAY<STRING>, before_id STRING, after_id STRING"
)
"""Columns of a measured line, as Spark's DDL; `error` is the fault of a malformed line, else
null."""


@dataclass(frozen=True)
class RebalanceOptions:
    """Histories, output and limits; a limit of None is not checked, a broken one is a violation.

    The limits hold for each group, topic and allocator: for the greatest balance degree, stickiness
    and retention over all rebalances, the 99th percentile of the time, and the least evenness.
    """

    histories: tuple[str, ...]
    """Files or folders of JSON lines, or URIs."""
    output: str | None = None
    """Folder to create for the report; None: none is written."""
    window_minutes: int = 60
    """Width of the time windows in the table `windows`."""
    max_balance_degree: float | None = None
    min_stickiness: float | None = None
    max_time_ms: float | None = None
    min_evenness: float | None = None
    min_retention: float | None = None
    overwrite: bool = False
    """Whether an existing report in `output` is replaced."""


@dataclass(frozen=True)
class StrategySummary:
    """All rebalances by one allocator, in all groups; names are as in measures.Measures, summed if
    they are counts."""

    allocator: str
    """Name of the strategy that assigned the queues."""
    rebalances: int
    """Number of rebalances."""
    balance_degree_mean: float
    balance_degree_max: float
    stickiness: float | None
    """Share of all queues that stayed with their member; None after only a first assignment."""
    evenness_mean: float
    evenness_min: float
    balance_score_max: int
    spread_max: int
    retention: float
    """Share of the queues that could have stayed which did stay."""
    moved: int
    moved_min: int
    revoked: int
    assigned: int
    faulty: int
    """Rebalances with a wrong assignment."""
    breaks: int
    """Rebalances that did not begin with the assignment before: lines are missing."""
    unsettled: int
    """Rebalances without an end, in a history in which others have one."""
    compute_ms: tuple[float, ...] | None
    """Percentiles 50, 90, 99 and 100, as of all times here; None if no line has the time."""
    time_consumed_ms: tuple[float, ...] | None
    """Time from a rebalance's start to its end."""
    overlap_ms: tuple[float, ...] | None
    """Time during which a queue had two owners."""
    unowned_ms: tuple[float, ...] | None
    """Time during which a queue had no owner."""


@dataclass(frozen=True)
class GroupSummary(StrategySummary):
    """Rebalances of a group's topic by one allocator."""

    group: str
    topic: str

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values, group and topic first."""
        return {"group": self.group, "topic": self.topic, **asdict(self)}


@dataclass(frozen=True)
class RebalanceResult:
    """Result of the rebalance job: summaries and verdict."""

    rebalances: int
    """Number of well-formed lines."""
    unreadable: int
    """Number of malformed lines."""
    groups: tuple[GroupSummary, ...]
    """Summaries, sorted by group, topic and allocator."""
    strategies: tuple[StrategySummary, ...]
    """Summaries, sorted by allocator."""
    violations: tuple[str, ...]
    """Reasons for a negative verdict, in sentences; the first SHOWN_MAX of each kind."""
    output: str | None = None
    """Folder of the report; None: none was written."""

    @property
    def is_ok(self) -> bool:
        """Whether the verdict is positive: all lines are well-formed and faultless, and no limit is
        broken."""
        return not self.violations

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        return {
            "verdict": "ok" if self.is_ok else "violated",
            "rebalances": self.rebalances,
            "unreadable": self.unreadable,
            "violations": list(self.violations),
            "groups": [group.to_json() for group in self.groups],
            "strategies": [asdict(one) for one in self.strategies],
            "output": self.output,
        }

    def lines(self) -> list[str]:
        """Return the result as lines of text."""
        made = [f"{self.rebalances} rebalances"]
        for one in self.groups:
            made += [
                f"{one.group} {one.topic} ({one.allocator}): {one.rebalances} rebalances",
                f"  balance degree  {one.balance_degree_mean:.3f}, at worst "
                f"{one.balance_degree_max:.3f} (0 is best)",
                f"  stickiness      {_share_text(one.stickiness)} (1 is best)",
                f"  time            {_durations_text('from start to end', one.time_consumed_ms)}; "
                f"{_durations_text('computing', one.compute_ms)}",
                f"  beside the best possible: evenness {one.evenness_mean:.3f}, at worst "
                f"{one.evenness_min:.3f} (score {one.balance_score_max}, spread {one.spread_max}); "
                f"retention {one.retention:.3f}: {one.moved} queues moved, {one.moved_min} had to",
            ]
            if one.breaks:
                made.append(f"  {one.breaks} did not begin with the assignment before")
        if len(self.strategies) > 1:
            made += list(_strategy_lines(self.strategies))
        made += [f"violated: {text}" for text in self.violations]
        made.append("verdict: " + ("ok" if self.is_ok else "violated"))
        return made


def _strategy_lines(strategies: Sequence[StrategySummary]) -> Iterator[str]:
    """Yield a text table with a line for each strategy."""
    form = "{:<24} {:>10} {:>8} {:>10} {:>7} {:>7} {:>9} {:>9} {:>10}"
    yield form.format(
        "strategy",
        "rebalances",
        "balance",
        "stickiness",
        "moved",
        "beyond",
        "p50 ms",
        "p99 ms",
        "two owners",
    )
    for one in strategies:
        times = one.time_consumed_ms
        yield form.format(
            one.allocator[:24],
            one.rebalances,
            f"{one.balance_degree_mean:.3f}",
            "-" if one.stickiness is None else f"{one.stickiness:.3f}",
            one.moved,
            one.moved - one.moved_min,
            "-" if times is None else f"{times[0]:.0f}",
            "-" if times is None else f"{times[2]:.0f}",
            "-" if one.overlap_ms is None else f"{one.overlap_ms[3]:.0f}",
        )


Summary = TypeVar("Summary", bound=StrategySummary)


def _share_text(found: float | None) -> str:
    """Format a share from 0 to 1; None: all rebalances were first assignments."""
    return "unknown: there are first assignments only" if found is None else f"{found:.3f}"


def _durations_text(name: str, found: tuple[float, ...] | None) -> str:
    """Format (p50, p90, p99, maximum) of a duration in ms as one text, without p90."""
    if found is None:
        return f"{name} unknown"
    p50, _, p99, largest = found
    return f"{name} p50 {p50:.1f} ms, p99 {p99:.1f} ms, at most {largest:.1f} ms"


def run(spark: "SparkSession", options: RebalanceOptions) -> RebalanceResult:
    """Read and measure the histories, write the report into `options.output`, and return the
    result. Raises JobError if they cannot be read or the output is in the way, and Spark's
    errors."""
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as f

    try:
        texts = spark.read.text(list(options.histories))
    except AnalysisException as error:
        raise JobError(str(error.getMessage() or error).splitlines()[0]) from None
    lines = texts.select("value", f.input_file_name().alias("file")).where("trim(value) != ''")
    # Python rows, not Arrow, because mapInArrow needs pandas, and a history is short.
    measured = lines.rdd.map(lambda row: _parse_line(row["value"], row["file"]))
    rows = spark.createDataFrame(measured, ROW_DDL).persist()
    try:
        good = _mark_breaks(rows.where("error is null"))
        summary = good.groupBy(*KEY).agg(*_aggregate_columns()).orderBy(*KEY)
        groups = tuple(_summary_of(GroupSummary, row.asDict()) for row in summary.toLocalIterator())
        by_strategy = good.groupBy("allocator").agg(*_aggregate_columns()).orderBy("allocator")
        strategies = tuple(
            _summary_of(StrategySummary, row.asDict()) for row in by_strategy.toLocalIterator()
        )
        result = RebalanceResult(
            sum(one.rebalances for one in groups),
            rows.where("error is not null").count(),
            groups,
            strategies,
            tuple(_find_violations(rows, groups, options)),
            options.output,
        )
        if options.output is not None:
            _write(options, good, summary, result)
        return result
    finally:
        rows.unpersist()


def _parse_line(line: str, file: str) -> dict[str, Any]:
    """Return a line of a history as a row of Spark: its measures, or its error."""
    try:
        one = parse(line)
    except BadHistory as error:
        return {"file": file, "error": f"{error}: {line[:80]}"}
    return {
        "file": file,
        "time": datetime.fromtimestamp(one.time_ms / 1000, UTC),
        "group": one.group,
        "topic": one.topic,
        "allocator": one.allocator,
        "trigger": one.trigger,
        **asdict(measure_rebalance(one)),
        "compute_ms": one.compute_ms,
        "time_consumed_ms": one.time_consumed_ms,
        "overlap_ms": one.overlap_ms,
        "unowned_ms": one.unowned_ms,
        "faults": list(one.faults),
        **_short_ids(one),
    }


def _short_ids(one: Rebalance) -> dict[str, str]:
    """Return short ids of both assignments: the full texts would dominate the report's size."""
    pairs = (("before_id", one.before), ("after_id", one.after))
    return {
        name: hashlib.blake2b(assignment_id(assignment).encode(), digest_size=12).hexdigest()
        for name, assignment in pairs
    }


def _mark_breaks(rows: "DataFrame") -> "DataFrame":
    """Add the column `is_break`: whether a rebalance does not begin with the assignment with
    which the group's last one ended."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    before = Window.partitionBy("group", "topic").orderBy("time")
    left = f.lag("after_id").over(before)
    return rows.withColumn("is_break", left.isNotNull() & (left != f.col("before_id")))


def _aggregate_columns() -> "list[Column]":
    """Return the Spark columns of a StrategySummary over rebalances."""
    from pyspark.sql import functions as f

    could = f.sum("stayed") + f.sum("moved") - f.sum("moved_min")
    made = [
        f.count("*").alias("rebalances"),
        f.avg("balance_degree").alias("balance_degree_mean"),
        f.max("balance_degree").alias("balance_degree_max"),
        f.try_divide(
            f.sum(f.when(f.col("owned") > 0, f.col("stayed")).otherwise(0)), f.sum("owned")
        ).alias("stickiness"),
        f.avg("evenness").alias("evenness_mean"),
        f.min("evenness").alias("evenness_min"),
        f.max("balance_score").alias("balance_score_max"),
        f.max("spread").alias("spread_max"),
        f.when(could == 0, 1.0)
        .otherwise(f.least(f.lit(1.0), f.sum("stayed") / could))
        .alias("retention"),
        *(f.sum(name).alias(name) for name in ("moved", "moved_min", "revoked", "assigned")),
        f.sum((f.size("faults") > 0).cast("bigint")).alias("faulty"),
        f.sum(f.col("is_break").cast("bigint")).alias("breaks"),
        f.when(f.count("time_consumed_ms") > 0, f.count("*") - f.count("time_consumed_ms"))
        .otherwise(0)
        .alias("unsettled"),
    ]
    for name in DURATIONS:
        shares = [f.lit(share) for share in (*SHARES, 1.0)]
        made.append(f.percentile(name, f.array(*shares)).alias(name))
    return made


def _summary_of(kind: type[Summary], row: dict[str, Any]) -> Summary:
    """Return an aggregate's row as a summary of this class."""
    known = {one.name: row[one.name] for one in fields(kind)}
    for name in DURATIONS:
        known[name] = tuple(known[name]) if known[name] else None
    return kind(**known)


def _points_to_draw(good: "DataFrame") -> dict[str, list[dict[str, Any]]]:
    """Return the first DRAWN_MAX rebalances of each strategy, in order, for report.py to draw."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    numbered = good.withColumn("beyond", f.col("moved") - f.col("moved_min")).withColumn(
        "number", f.row_number().over(Window.partitionBy("allocator").orderBy("time"))
    )
    columns = [name for name, _ in report.MEASURES]
    rows = numbered.where(f.col("number") <= DRAWN_MAX).select("allocator", "number", *columns)
    points: dict[str, list[dict[str, Any]]] = {}
    for row in rows.orderBy("allocator", "number").toLocalIterator():
        points.setdefault(row["allocator"], []).append(row.asDict())
    return points


def _find_violations(
    rows: "DataFrame", groups: Sequence[GroupSummary], options: RebalanceOptions
) -> Iterator[str]:
    """Yield a sentence for each malformed line, faulty assignment (up to SHOWN_MAX of each) and
    broken limit."""
    for row in rows.where("error is not null").limit(SHOWN_MAX).toLocalIterator():
        yield f"{row['file']}: a line is no rebalance: {row['error']}"
    for row in rows.where("size(faults) > 0").limit(SHOWN_MAX).toLocalIterator():
        faults = "; ".join(row["faults"][:3])
        more = len(row["faults"]) - 3
        time = f"{row['time']:%Y-%m-%d %H:%M:%S.%f}"[:-3]
        yield f"{row['group']} {row['topic']} at {time}: {faults}" + (
            f"; and {more} more" if more > 0 else ""
        )
    for one in groups:
        name = f"{one.group} {one.topic} ({one.allocator})"
        for what, found, limit, is_broken in _check_limits(one, options):
            if is_broken:
                yield f"{name}: {what} {found:.3f} breaks the limit, {limit}"


def _check_limits(
    one: GroupSummary, options: RebalanceOptions
) -> Iterator[tuple[str, float, float, bool]]:
    """Yield (name, value, limit, whether it is broken) of each limit that was given."""
    p99_ms = one.time_consumed_ms[2] if one.time_consumed_ms else None
    for what, found, most in (
        ("the balance degree", one.balance_degree_max, options.max_balance_degree),
        ("p99 of the time in ms", p99_ms, options.max_time_ms),
    ):
        if most is not None and found is not None:
            yield what, found, most, found > most
    for what, found, least in (
        ("the stickiness", one.stickiness, options.min_stickiness),
        ("the evenness", one.evenness_min, options.min_evenness),
        ("the retention", one.retention, options.min_retention),
    ):
        if least is not None and found is not None:
            yield what, found, least, found < least


def _write(
    options: RebalanceOptions, good: "DataFrame", summary: "DataFrame", result: RebalanceResult
) -> None:
    """Write the report, the verdict and the Parquet tables into the output folder."""
    from pyspark.sql import functions as f

    assert options.output is not None
    span = f.window("time", f"{options.window_minutes} minutes")
    windows = good.groupBy(span.start.alias("from"), span.end.alias("until"), *KEY)
    with written_folder(options.output, options.overwrite, VERDICT) as folder:
        mode = "overwrite" if options.overwrite else "errorifexists"
        for name, frame in (
            ("rebalances", good.drop("error", "before_id", "after_id")),
            ("summary", summary),
            ("windows", windows.agg(*_aggregate_columns()).orderBy("from", *KEY)),
        ):
            frame.write.mode(mode).parquet(f"{folder}/{name}")
        write_text(folder, REPORT, report.render(result, _points_to_draw(good)))
        write_text(folder, VERDICT, json.dumps(result.to_json(), indent=1) + "\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command: print the result; return 0, VIOLATED for a negative verdict, or BAD_INPUT if
    it could not run. `argv` None: the process's arguments."""

    def run_and_print(spark: "SparkSession", given: argparse.Namespace) -> int:
        if given.window < 1:
            raise JobError(f"--window {given.window}: a minute is the least")
        result = run(
            spark,
            RebalanceOptions(
                tuple(given.histories),
                given.output,
                given.window,
                given.max_balance_degree,
                given.min_stickiness,
                given.max_time_ms,
                given.min_evenness,
                given.min_retention,
                given.overwrite,
            ),
        )
        print(json.dumps(result.to_json()) if given.json else "\n".join(result.lines()))
        return 0 if result.is_ok else VIOLATED

    return job_main(parsers.rebalance_parser(), argv, run_and_print)


if __name__ == "__main__":
    sys.exit(main())
