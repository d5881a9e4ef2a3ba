"""The tables of the throughput job in Spark: made from cells, written, and shown on the driver.

Owns Spark's way of each step of throughput/analysis.py, and the bound on rows that leave Spark. It
must never know the meaning of a table.

Tests: tests/integration/spark/test_throughput.py
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from turbopump.spark.throughput.batches import KEYS
from turbopump.spark.throughput.cells import SUMS, Derivation
from turbopump.spark.throughput.result import TIMES, Row, format_iso

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

ADDED = {
    "messages": "sum(messages)",
    "total": "sum(cast(total as double))",
    "least": "min(least)",
    "most": "max(most)",
    "first_ms": "min(first_ms)",
    "last_ms": "max(last_ms)",
    "bits": "0L",
}
"""Spark SQL of each column of cells that are added up."""


class SparkTables:
    """The steps of analysis.Tables on Spark frames, which stay lazy unless a method computes them.

    Each written table is computed once: into Parquet below `output`, or without `output` into
    memory, until `close`.
    """

    def __init__(self, spark: "SparkSession", output: str | None, *, overwrite: bool) -> None:
        self._spark = spark
        self._output = output.rstrip("/") if output else None
        self._mode = "overwrite" if overwrite else "errorifexists"
        self.written: list[str] = []
        self._kept: list[DataFrame] = []

    def write_timed(self, name: str, frame: "DataFrame") -> "DataFrame":
        """Write a table now and return the written one.

        Columns of epoch ms become timestamps and are renamed (`first_ms`: `first_time`, see
        TIMES). Without an output folder the table is computed at its first use.
        """
        return self.write(name, with_timestamps(frame))

    def write(
        self, name: str, frame: "DataFrame", *partitioned_by: str, is_large: bool = False
    ) -> "DataFrame":
        """Write a table now as Parquet, partitioned by columns, and return a frame that reads it.

        Without an output folder the table is computed at its first use and stays in memory. Its
        files get a reasonable size; a large table has it already and is not shuffled for it.
        """
        if self._output is None:
            return self.cache_table(frame)
        path = f"{self._output}/{name}"
        parts = frame if is_large else frame.hint("rebalance", *partitioned_by)
        parts.write.mode(self._mode).partitionBy(*partitioned_by).parquet(path)
        self.written.append(path)
        return self._spark.read.schema(parts.schema).parquet(path)

    def cache_table(self, frame: "DataFrame") -> "DataFrame":
        """Return the table, which stays in memory from its first use until `close`."""
        self._kept.append(frame.persist())
        return self._kept[-1]

    def close(self) -> None:
        """Release the tables in memory."""
        for frame in self._kept:
            frame.unpersist()

    def filter_rows(self, frame: "DataFrame", column: str, values: Sequence[str]) -> "DataFrame":
        """Return the rows whose column has one of the texts."""
        return frame.where(sql_columns(column)[0].isin(*values))

    def at_least(self, frame: "DataFrame", column: str, least: int) -> "DataFrame":
        """Return the rows whose column is not below `least`."""
        return frame.where(sql_columns(column)[0] >= least)

    def sum_cells(self, cells: "DataFrame", keys: Sequence[str]) -> "DataFrame":
        """Return the sums of the cells by `keys`: a row with the columns SUMS for each value of
        the keys, null for other keys, `bits` 0."""
        sums = cells.groupBy(*keys).agg(
            *sql_columns(*(f"{made} as {n}" for n, made in ADDED.items()))
        )
        types = {field.name: field.dataType.simpleString() for field in cells.schema.fields}
        return sums.selectExpr(
            *(
                name if name in keys or name in ADDED else f"cast(null as {types[name]}) as {name}"
                for name in SUMS.names
            )
        )

    def union_tables(self, *frames: "DataFrame") -> "DataFrame":
        """Return the rows of all frames, which have the same columns."""
        whole, *others = frames
        for frame in others:
            whole = whole.unionByName(frame)
        return whole

    def by_time_step(self, cells: "DataFrame", step_s: int) -> "DataFrame":
        """Return the cells with each second rounded down to a multiple of `step_s`."""
        return cells.withColumn("second", time_step_column("second", step_s))

    def derive_table(self, cells: "DataFrame", derivation: Derivation) -> "DataFrame":
        """Return the lazy table that the derivation makes from cells with the columns SUMS; it runs
        in workers, on partitions of whole groups in its order.

        An Arrow function over columns returns a list for each row of its input, because mapInArrow
        needs pandas: the lists of a batch are empty but the first.
        """
        from pyspark.sql.pandas.functions import arrow_udf
        from pyspark.sql.pandas.types import from_arrow_schema
        from pyspark.sql.types import ArrayType

        def listed(batches: Iterator[tuple[pa.Array, ...]]) -> Iterator[pa.Array]:
            return in_lists(derivation, batches)

        keys = derivation.keys
        grouped = cells.repartition(*keys) if keys else cells.repartition(1)
        if keys or derivation.order:
            grouped = grouped.sortWithinPartitions(*keys, *derivation.order)
        lists = ArrayType(from_arrow_schema(derivation.schema))
        by_hints: Any = arrow_udf  # its types demand the argument that its code warns of
        # Of a deterministic function Spark would filter empty lists first, before it sorts.
        made = by_hints(listed, lists).asNondeterministic()
        return grouped.select(made(*SUMS.names).alias("rows")).selectExpr("inline(rows)")

    def first_rows(
        self, frame: "DataFrame", order: Sequence[str], limit: int | None = None
    ) -> tuple[Row, ...]:
        """Compute and return the first `limit` rows, None: all, by `column` or `column desc`, nulls
        last; see `rows`."""
        ordered = frame.orderBy(*map(_sort_column, order))
        return all_rows(ordered if limit is None else ordered.limit(limit))

    def compute_totals(self, frame: "DataFrame", wanted: Mapping[str, str]) -> Row:
        """Compute and return one number for each name; see analysis.Tables.compute_totals."""
        made = []
        for name, text in wanted.items():
            function, _, column = text.partition(" ")
            made.append(f"{_TOTALS[function].format(column)} as {name}")
        return single_row(frame.selectExpr(*made))


_TOTALS = {
    "count": "count(1)",
    "distinct": "count(distinct {})",
    "max": "coalesce(max({}), 0L)",
    "sum": "coalesce(sum({}), 0L)",
}


def in_lists(derivation: Derivation, batches: Iterator[Sequence[pa.Array]]) -> Iterator[pa.Array]:
    """Yield for each batch of cells an array of lists as long as the batch; the first list has the
    derivation's rows that are complete by then, the others are empty."""
    sizes: list[int] = []

    def counted() -> Iterator[Sequence[pa.Array]]:
        for batch in batches:
            sizes.append(len(batch[0]))
            yield batch

    ready: list[Row] = []
    for row in derivation.derive_rows(counted()):
        if len(sizes) > 1:
            yield _make_lists(ready, sizes.pop(0), derivation.schema)
            ready = []
        ready.append(row)
    for size in sizes:
        yield _make_lists(ready, size, derivation.schema)
        ready = []


def _make_lists(rows: list[Row], size: int, schema: pa.Schema) -> pa.Array:
    """Return an array of `size` lists, the first of which has all rows."""
    structs = pa.RecordBatch.from_pylist(rows, schema).to_struct_array()
    offsets = pa.array([0] + [len(rows)] * size, pa.int32())
    return pa.ListArray.from_arrays(offsets, structs)


def merge_cells(counted: "DataFrame") -> "DataFrame":
    """Return a lazy frame with each cell once, from cells that come in parts
    (throughput/source.py)."""
    return counted.groupBy(*KEYS).agg(
        *sql_columns(
            "sum(messages) as messages",
            "sum(total) as total",
            "min(least) as least",
            "max(most) as most",
            "min(first_ms) as first_ms",
            "max(last_ms) as last_ms",
            "bit_or(bits) as bits",
        )
    )


def time_step_column(second: str, step_s: int) -> "Column":
    """Return a Spark column: the column `second` rounded down to a multiple of `step_s`."""
    return sql_columns(f"{second} - pmod({second}, {step_s}L)")[0]


def with_timestamps(frame: "DataFrame") -> "DataFrame":
    """Return the frame with the columns of result.TIMES as timestamps under their new names."""
    return frame.selectExpr(
        *(
            f"timestamp_millis({name}) as {TIMES[name]}" if name in TIMES else f"`{name}`"
            for name in frame.columns
        )
    )


def all_rows(frame: "DataFrame") -> tuple[Row, ...]:
    """Compute and return all rows, which the caller has bounded, with timestamps as ISO 8601
    text."""
    from pyspark.sql.types import TimestampType

    times = {part.name for part in frame.schema.fields if isinstance(part.dataType, TimestampType)}
    plain = frame.selectExpr(
        *(
            f"unix_millis(`{name}`) as `{name}`" if name in times else f"`{name}`"
            for name in frame.columns
        )
    )
    return tuple(
        {
            name: format_iso(value) if name in times and value is not None else value
            for name, value in row.asDict().items()
        }
        for row in plain.collect()
    )


def single_row(frame: "DataFrame") -> dict[str, Any]:
    """Compute and return the only row of an aggregate without keys, by column."""
    row = frame.first()
    assert row is not None, "an aggregate without keys has one row"
    return row.asDict()


def sql_columns(*texts: str) -> "list[Column]":
    """Return a Spark column for each expression of Spark SQL."""
    from pyspark.sql import functions

    return [functions.expr(text) for text in texts]


def _sort_column(text: str) -> "Column":
    """Return the Spark column that sorts by `column` or `column desc`, nulls last."""
    name, _, direction = text.partition(" ")
    (column,) = sql_columns(f"`{name}`")
    return column.desc_nulls_last() if direction else column.asc_nulls_last()
