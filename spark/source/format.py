"""The log as a data source of Spark: `spark.read.format("turbopump")`.

Owns the interface of a data source written in Python: schema, partitions, batches; `sink` has the
writers. Its objects must always be picklable: the class goes into Python workers, where turbopump
must be importable, and each partition into another worker.

Spark (4.1 to 4.3) gives such a source too little information. It does not pass the columns that a
query uses: they are chosen by the option `columns`, or by a schema of the reader. It pushes
filters, but keeps them with the DataFrame and applies them to every later query on it, even to one
with other filters: rows are missing, silently. So this source accepts none (it has no
`pushFilters`); filters for the decoder are options, which belong to the DataFrame. `partitions`
describes how several queries on one DataFrame stay independent otherwise.
"""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from turbopump.spark.schema import ARROW_SCHEMA, arrow_schema, order_columns
from turbopump.spark.source.options import SourceOptions, parse
from turbopump.spark.source.partitions import LogPartition, make_query, plan_scan, read_scan
from turbopump.spark.source.stream import LogStreamReader

FORMAT = "turbopump"
"""Name of the format for Spark's readers and writers."""


def register(spark: SparkSession) -> None:
    """Register the format FORMAT with a session; repeating it does no harm."""
    spark.dataSource.register(LogSource)


class LogSource(DataSource):
    """Stores as a table. Spark makes it and calls its methods; bad options raise BadOption or
    UnknownColumn."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format for Spark's readers and writers."""
        return FORMAT

    def schema(self) -> StructType:
        """Return the schema of the columns that the option `columns` names."""
        return from_arrow_schema(arrow_schema(parse(self.options).columns))

    def reader(self, schema: StructType) -> "LogReader":
        """Make the reader of a batch query for the columns of `schema`."""
        return LogReader(parse(self._given_options(schema)), schema)

    def streamReader(self, schema: StructType) -> LogStreamReader:
        """Make the reader of a stream for the columns of `schema`."""
        options, columns = parse(self._given_options(schema)), requested_schema(schema)
        return LogStreamReader(options, columns, make_query(options, columns))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Make the writer that sends a frame's rows as messages. `overwrite` is refused with
        BadOption."""
        from turbopump.spark.sink.writer import TopicWriter, target_of  # readers need no client

        return TopicWriter(target_of(self.options, schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Make the writer that sends a stream's rows as messages."""
        from turbopump.spark.sink.writer import TopicStreamWriter, target_of

        return TopicStreamWriter(target_of(self.options, schema, overwrite))

    def _given_options(self, schema: StructType) -> dict[str, str]:
        """Return the options, with the columns to read, which an option or a schema names."""
        return {**self.options, "columns": ",".join(schema.fieldNames())}


class WrongSchema(ValueError):
    """A schema that does not fit the table."""


def requested_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema that Spark requested: columns in any order, types as in the table.

    Nullability is Spark's: it accepts only batches with the same. Raises WrongSchema,
    UnknownColumn.
    """
    order_columns(schema.fieldNames())
    given = to_arrow_schema(schema, timezone="UTC")
    table = from_arrow_schema(ARROW_SCHEMA)
    for field in schema.fields:
        kind = table[field.name].dataType.simpleString()
        if field.dataType.simpleString() != kind:
            type_name = field.dataType.simpleString()
            raise WrongSchema(f"column {field.name!r} is {kind}, not {type_name}")
    return given


class LogReader(DataSourceReader):
    """Plans one scan over stores, on the driver, and reads its partitions, in workers."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = requested_schema(schema)
        self._query = make_query(options, self._schema)

    def partitions(self) -> list[LogPartition]:
        """Return the partitions of all stores, in the order of the stores and their logs. Raises
        StoreError."""
        options = self._options
        return [
            part for location in options.paths for part in plan_scan(options, self._query, location)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the batches of a partition from the store as it is now. Raises StoreError."""
        assert isinstance(partition, LogPartition)
        return read_scan(self._options, self._schema, self._query, partition)
