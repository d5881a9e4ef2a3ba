"""All results of the throughput job from cells, the same with Spark and without.

Owns how tables come from cells, and the part of them that is shown. It must never know how a table
is stored (throughput/spark_tables.py, local_tables.py), nor hold more than it shows.

Tests: tests/unit/spark/throughput/test_events.py, tests/integration/spark/test_throughput.py
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from turbopump.spark.throughput import events
from turbopump.spark.throughput.cells import KEYS, MEASURED, QUEUE, Derivation
from turbopump.spark.throughput.result import (
    ROWS_SHOWN,
    TOPICS_DRAWN,
    Row,
    Shown,
    Throughput,
    step_seconds,
    times_as_text,
)
from turbopump.spark.throughput.statistics import by_place, by_second, place_statistics

Table = Any
"""A DataFrame of Spark or a table of pyarrow."""
OVER_TIME = (
    "messages",
    "bytes",
    "body_bytes",
    "timed_messages",
    "latency_ms_p50",
    "latency_ms_p99",
    "latency_ms_p999",
    "latency_ms_max",
    "skewed_messages",
)
"""Columns of the series over time."""


class Tables(Protocol):
    """Steps over tables, none of which changes its arguments. An order is a list of `column` or
    `column desc`, nulls last."""

    def write_timed(self, name: str, table: Table) -> Table:
        """Store a table of the result under its name, if the job has an output, and return it for
        further steps."""

    def cache_table(self, table: Table) -> Table:
        """Return a table that is computed once and stays in memory, because several steps use
        it."""

    def filter_rows(self, table: Table, column: str, values: Sequence[str]) -> Table:
        """Return the rows whose column has one of the texts."""

    def at_least(self, table: Table, column: str, least: int) -> Table:
        """Return the rows whose column is not below `least`."""

    def sum_cells(self, cells: Table, keys: Sequence[str]) -> Table:
        """Return the sums of the cells by `keys`: a row with the columns SUMS for each value of
        the keys, with nulls for other keys."""

    def union_tables(self, *tables: Table) -> Table:
        """Return the rows of all tables, which have the same columns."""

    def by_time_step(self, cells: Table, step_s: int) -> Table:
        """Return the cells with each second rounded down to a multiple of `step_s`."""

    def derive_table(self, cells: Table, derivation: Derivation) -> Table:
        """Return the table that a derivation makes from cells with the columns SUMS."""

    def first_rows(
        self, table: Table, order: Sequence[str], limit: int | None = None
    ) -> tuple[Row, ...]:
        """Return the first rows in an order; without a limit all, which the caller has bounded."""

    def compute_totals(self, table: Table, wanted: Mapping[str, str]) -> Row:
        """Return one number for each name of `wanted`, whose value is "count" (rows), or "sum
        COLUMN", "max COLUMN" or "distinct COLUMN" (number of values); 0 for an empty table."""


def analyse_cells(
    tables: Tables, cells: Table, stores: tuple[str, ...], stall_s: int
) -> Throughput:
    """Compute all results from cells (columns CELL, each cell once) of `stores`; silences of at
    least `stall_s` whole seconds are stalls. Stores the tables with `tables.write_timed`."""
    levels = PlaceFigures(tables, cells)
    judged = tables.filter_rows(cells, "metric", ("offset", "batch"))
    gaps = tables.write_timed("gaps", tables.derive_table(judged, events.GAPS))
    silences = tables.cache_table(levels.silences_table())
    stalls = tables.write_timed("stalls", tables.at_least(silences, "silent_seconds", stall_s))
    clock = tables.filter_rows(cells, "metric", ("clock",))
    steps = tables.write_timed("clock_steps", tables.derive_table(clock, events.CLOCK_STEPS))
    queues = tables.write_timed("queues", levels.statistics_table(QUEUE))
    topics = tables.write_timed("topics", levels.statistics_table(("store", "topic")))
    hosts = tables.write_timed("hosts", levels.statistics_table(("store", "born_host")))
    by_store = tables.write_timed("stores", levels.statistics_table(("store",)))
    everything = tables.first_rows(levels.statistics_table(()), ("messages",)) or (
        place_statistics(()),
    )
    totals = {**everything[0], **_count_tables(tables, queues, hosts, gaps, stalls, steps)}
    step_s = step_seconds(totals["first_ms"] or 0, totals["last_ms"] or 0)
    stepped = tables.by_time_step(levels.measured, step_s)
    histograms = tables.sum_cells(levels.base, ("metric", "bucket"))
    return Throughput(
        stores=stores,
        totals=times_as_text(totals),
        by_store=first_rows_shown(tables, by_store, "bytes desc", "store"),
        topics=first_rows_shown(tables, topics, "bytes desc", "store", "topic"),
        queues=first_rows_shown(tables, queues, "latency_ms_p99 desc", "bytes desc", *QUEUE),
        hosts=first_rows_shown(tables, hosts, "messages desc", "store", "born_host"),
        gaps=first_rows_shown(tables, gaps, "missing desc", *QUEUE, "first_missing"),
        stalls=first_rows_shown(tables, stalls, "silent_ms desc", "level", *QUEUE),
        silences=_longest_silences(tables, silences),
        clock_steps=first_rows_shown(tables, steps, "back_ms desc", "store"),
        stall_seconds=stall_s,
        step_seconds=step_s,
        over_time=_traffic_by_step(tables, stepped),
        topics_over_time=_topics_over_time(tables, stepped),
        histograms=tuple(
            {name: row[name] for name in ("metric", "bucket", "messages")}
            for row in tables.first_rows(histograms, ("metric", "bucket"))
        ),
    )


class PlaceFigures:
    """Figures of all records by queue, topic, host or store, or of all stores, from cells."""

    def __init__(self, tables: Tables, cells: Table) -> None:
        self._tables = tables
        self.measured = tables.filter_rows(cells, "metric", MEASURED)
        self._offsets = tables.filter_rows(cells, "metric", ("offset", "unqueued", "batch"))
        self._sizes = tables.filter_rows(cells, "metric", ("size",))
        self.base = tables.cache_table(tables.sum_cells(self.measured, (*KEYS, "metric", "bucket")))

    def statistics_table(self, keys: tuple[str, ...]) -> Table:
        """Return the columns of statistics.place_statistics for each value of `keys`, without keys
        one row; for QUEUE the columns of statistics.queue_statistics."""
        parts = [
            self._tables.sum_cells(self.base, (*keys, "metric", "bucket")),
            self._cells_by_second(keys),
        ]
        if keys == QUEUE:
            parts.append(self._offsets)
        return self._tables.derive_table(self._tables.union_tables(*parts), by_place(keys))

    def silences_table(self) -> Table:
        """Return all silences of queues, topics and stores, distinguished by the column `level`."""
        return self._tables.union_tables(
            *(
                self._tables.derive_table(
                    self._cells_by_second(keys), events.silence_derivation(level)
                )
                for level, keys in events.LEVELS.items()
            )
        )

    def _cells_by_second(self, keys: Sequence[str]) -> Table:
        """Return the cells of sizes, added up by `keys` and second."""
        return self._tables.sum_cells(self._sizes, (*keys, "metric", "second"))


def _count_tables(
    tables: Tables, queues: Table, hosts: Table, gaps: Table, stalls: Table, steps: Table
) -> Row:
    """Return the counts of all tables as one row."""
    summed = ("duplicate_offsets", "records_without_queue_offset", "batch_records")
    by_level = {level: tables.filter_rows(stalls, "level", (level,)) for level in events.LEVELS}
    return {
        **tables.compute_totals(
            queues,
            {"queues": "count", "topics": "distinct topic"}
            | {name: f"sum {name}" for name in summed},
        ),
        **tables.compute_totals(hosts, {"hosts": "distinct born_host"}),
        **tables.compute_totals(gaps, {"gaps": "count", "missing_offsets": "sum missing"}),
        **{
            name: count
            for level, there in by_level.items()
            for name, count in tables.compute_totals(there, {f"{level}_stalls": "count"}).items()
        },
        **tables.compute_totals(steps, {"clock_steps": "count", "back_ms_max": "max back_ms"}),
    }


def first_rows_shown(tables: Tables, table: Table, *order: str) -> Shown:
    """Return the first ROWS_SHOWN rows of a table in an order (`column`, `column desc`), with times
    as text, and the number of all rows."""
    first = tuple(map(times_as_text, tables.first_rows(table, order, ROWS_SHOWN)))
    if len(first) < ROWS_SHOWN:
        return Shown(first, len(first))
    return Shown(first, tables.compute_totals(table, {"rows": "count"})["rows"])


def _longest_silences(tables: Tables, silences: Table) -> tuple[Row, ...]:
    """Return the longest silences of each level, SILENCES_SHOWN at most."""
    order = ("silent_ms desc", *QUEUE, "from_ms")
    return tuple(
        times_as_text(row)
        for level in sorted(events.LEVELS)
        for row in tables.first_rows(
            tables.filter_rows(silences, "level", (level,)), order, events.SILENCES_SHOWN
        )
    )


def _traffic_by_step(tables: Tables, stepped: Table) -> tuple[Row, ...]:
    """Return the traffic of all stores in each time step."""
    added = tables.sum_cells(stepped, ("second", "metric", "bucket"))
    rows = tables.first_rows(tables.derive_table(added, by_second(("second",))), ("second",))
    return tuple(
        {"start_s": row["second"], **{name: row[name] for name in OVER_TIME}} for row in rows
    )


def _topics_over_time(tables: Tables, stepped: Table) -> tuple[Row, ...]:
    """Return messages and bytes of the TOPICS_DRAWN largest topics in each time step."""
    sizes = tables.filter_rows(stepped, "metric", ("size",))
    largest = tables.first_rows(
        tables.sum_cells(sizes, ("topic",)), ("total desc", "topic"), TOPICS_DRAWN
    )
    drawn = tables.filter_rows(sizes, "topic", [str(row["topic"]) for row in largest])
    rows = tables.first_rows(tables.sum_cells(drawn, ("topic", "second")), ("topic", "second"))
    return tuple(
        {
            "topic": row["topic"],
            "start_s": row["second"],
            "messages": row["messages"],
            "bytes": int(row["total"]),
        }
        for row in rows
    )
