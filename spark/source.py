"""The log as a data source of Spark: `spark.read.format("turbopump")`.

Owns what Spark asks of a data source written in Python: schema, filters, partitions, batches. It
must never hold what cannot be pickled: the class goes into Python workers, where turbopump must be
importable, each partition into another one. Called by Spark.

What Spark 4.3 hands to such a source, and what not: filters are pushed (with the setting that
`register` makes), but not which columns a query uses. So columns are chosen by the option
`columns`, or by a schema of the reader; without either all are decoded, bodies too.
"""

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from turbopump.spark.options import Options, parse
from turbopump.spark.partitions import LogPartition, make_wish, open_store, read_part
from turbopump.spark.pushdown import EVERYTHING, push
from turbopump.spark.schema import ARROW_SCHEMA, arrow_schema, ordered
from turbopump.spark.stream import LogStreamReader

FORMAT = "turbopump"
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def register(spark: SparkSession) -> None:
    """Make the format known to a session, and let Spark push filters to it.

    Spark refuses to read from a source that takes filters while the setting is off, as it is by
    default; it concerns Python data sources alone.
    """
    spark.conf.set(PUSHDOWN, "true")
    spark.dataSource.register(LogSource)


class LogSource(DataSource):
    """Stores as a table."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return from_arrow_schema(arrow_schema(parse(self.options).columns))

    def reader(self, schema: StructType) -> "LogReader":
        return LogReader(parse(self.options), schema)

    def streamReader(self, schema: StructType) -> LogStreamReader:
        options, columns = parse(self.options), wanted(schema)
        return LogStreamReader(options, columns, make_wish(options, columns, EVERYTHING))


class WrongSchema(ValueError):
    """A schema was given that the table does not have."""


def wanted(schema: StructType) -> pa.Schema:
    """The Arrow schema of what Spark asked for: columns in any order, types as in the table.

    Nullability is Spark's: it takes batches only if they say the same. Raises WrongSchema,
    UnknownColumn.
    """
    ordered(schema.fieldNames())
    given = to_arrow_schema(schema, timezone="UTC")
    table = from_arrow_schema(ARROW_SCHEMA)
    for field in schema.fields:
        kind = table[field.name].dataType.simpleString()
        if field.dataType.simpleString() != kind:
            told = field.dataType.simpleString()
            raise WrongSchema(f"column {field.name!r} is {kind}, not {told}")
    return given


class LogReader(DataSourceReader):
    """One scan over stores."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._schema = wanted(schema)
        self._selection = EVERYTHING

    def pushFilters(self, filters: Sequence[Filter]) -> Iterable[Filter]:
        self._selection, left = push(filters)
        return left

    def partitions(self) -> list[LogPartition]:
        options, selection = self._options, self._selection
        wish = make_wish(options, self._schema, selection)
        return [
            LogPartition(location, part)
            for location in options.paths
            if not selection.is_empty and (selection.stores is None or location in selection.stores)
            for part in open_store(options, location).split(
                options.partition_bytes, wish, confirmed=options.confirmed or selection.confirmed
            )
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, LogPartition):
            return iter(())  # Spark makes a partition of its own where there is none
        wish = make_wish(self._options, self._schema, self._selection)
        return read_part(self._options, self._schema, wish, partition)
