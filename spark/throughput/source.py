"""The data source of the throughput job: stores as cells, built on the source of records.

Owns the way from a selection to a frame of cells. Python workers count the records that they
decode, so no record reaches the JVM. It must never count other records than it reads. It is
internal; the table for users is `turbopump`.

Tests: tests/integration/spark/test_throughput_stores.py
"""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSource, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from turbopump.spark.schema import arrow_schema, order_columns
from turbopump.spark.selection import RowSelection
from turbopump.spark.source.format import LogReader, register
from turbopump.spark.source.options import SourceOptions
from turbopump.spark.throughput.batches import CELL, NEEDED, count_cells

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMAT = "turbopump_cells"
"""Name of the format for Spark's readers."""
BATCH_ROWS = 1 << 15
"""Rows per batch; larger than for Spark, which reads these batches in no loop over rows."""


def counted_frame(
    spark: "SparkSession", selection: RowSelection, *, with_ports: bool = False
) -> "DataFrame":
    """Return a lazy frame (columns CELL) with the cells of a selection; a cell may come in several
    parts, which spark_tables.merge_cells adds up. Raises Spark's errors."""
    register(spark)
    spark.dataSource.register(CellSource)
    options = {
        "selection": json.dumps(selection.describe_as_json()),
        "withPorts": json.dumps(with_ports),
    }
    return spark.read.format(FORMAT).options(**options).load()


class CellSource(DataSource):
    """Cells of stores as a table; Spark makes it and calls its methods."""

    @classmethod
    def name(cls) -> str:
        """Return FORMAT."""
        return FORMAT

    def schema(self) -> StructType:
        """Return CELL as a Spark schema."""
        return from_arrow_schema(CELL)

    def reader(self, schema: StructType) -> "CellReader":
        """Make the reader from the options `selection` and `withPorts`, both JSON."""
        asked = json.loads(self.options["selection"])
        return CellReader(asked, json.loads(self.options["withPorts"]))


class CellReader(LogReader):
    """A scan over stores, whose workers count the records they read."""

    def __init__(self, asked: dict[str, object], with_ports: bool) -> None:
        columns = order_columns(NEEDED)
        chosen = RowSelection(**asked)  # type: ignore[arg-type]
        options = SourceOptions(
            tuple(chosen.stores),
            columns,
            confirmed=chosen.confirmed,
            batch_rows=BATCH_ROWS,
            topics=frozenset(chosen.topics) or None,
            queue_ids=frozenset(chosen.queue_ids) or None,
            min_store_ms=chosen.from_ms,
            max_store_ms=None if chosen.until_ms is None else chosen.until_ms - 1,
            min_log_offset=chosen.min_log_offset,
            max_log_offset=chosen.max_log_offset,
            prune_by_time=chosen.prune_by_time,
        )
        super().__init__(options, from_arrow_schema(arrow_schema(columns)))
        self._with_ports = with_ports

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the cells of a partition's records."""
        return count_cells(super().read(partition), with_ports=self._with_ports)
