"""Tables of the throughput job: their storage, and the transfer of rows to the driver.

Owns writing, reading back and the bound on rows. It must never know the meaning of a table.

Tests: tests/unit/spark/throughput/test_result.py
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from turbopump.spark.throughput.result import ROWS_SHOWN, TIMES, Row, Shown, iso

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class ResultTables:
    """Computes each table once: into Parquet below `output`, or without `output` into memory."""

    def __init__(self, spark: "SparkSession", output: str | None, *, overwrite: bool) -> None:
        self._spark = spark
        self._output = output.rstrip("/") if output else None
        self._mode = "overwrite" if overwrite else "errorifexists"
        self.written: list[str] = []
        self._kept: list[DataFrame] = []

    def keep(
        self, name: str, frame: "DataFrame", *partitioned_by: str, is_large: bool = False
    ) -> "DataFrame":
        """Compute a table now and return it, so that readers do not compute it again.

        Its files get a reasonable size; a large table has it already and is not shuffled for it.
        """
        if self._output is None:
            kept = frame.persist()
            self._kept.append(kept)
            return kept
        path = f"{self._output}/{name}"
        parts = frame if is_large else frame.hint("rebalance", *partitioned_by)
        parts.write.mode(self._mode).partitionBy(*partitioned_by).parquet(path)
        self.written.append(path)
        return self._spark.read.schema(parts.schema).parquet(path)

    def close(self) -> None:
        """Release the tables in memory."""
        for frame in self._kept:
            frame.unpersist()


def stamped(frame: "DataFrame") -> "DataFrame":
    """Convert points in time from the cells' numbers to timestamps."""
    return frame.selectExpr(
        *(
            f"timestamp_millis({name}) as {TIMES[name]}" if name in TIMES else f"`{name}`"
            for name in frame.columns
        )
    )


def shown(frame: "DataFrame", *order: str) -> Shown:
    """Return the first rows and the count, in an order (`column` or `column desc`, nulls last)."""
    from pyspark.sql import functions as f

    columns = []
    for text in order:
        name, _, direction = text.partition(" ")
        column = f.col(name)
        columns.append(column.desc_nulls_last() if direction else column.asc_nulls_last())
    first = rows(frame.orderBy(*columns).limit(ROWS_SHOWN))
    return Shown(first, frame.count() if len(first) == ROWS_SHOWN else len(first))


def rows(frame: "DataFrame") -> tuple[Row, ...]:
    """Return all rows, which the caller has bounded, with points in time as ISO 8601 text."""
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
            name: iso(value) if name in times and value is not None else value
            for name, value in row.asDict().items()
        }
        for row in plain.collect()
    )


def one(frame: "DataFrame") -> dict[str, Any]:
    """Return the row of an aggregate without keys."""
    row = frame.first()
    assert row is not None, "an aggregate without keys has one row"
    return row.asDict()


def is_one_of(column: str, values: Iterable[str]) -> str:
    """Return SQL that tests a column against our own constants."""
    return f"{column} in ({', '.join(repr(value) for value in values)})"
