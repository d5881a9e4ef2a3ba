"""Claims and facts as Spark tables: a partition for each task, rows in Arrow batches.

Owns the two tables and how a task reaches its executor. It must never judge. `runner` imports it
only with a session.

Tests: tests/unit/spark/audit/test_job.py
"""

import base64
import pickle
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from turbopump.spark.audit.facts import claims_of, facts_of

BATCH_ROWS = 8192
"""Rows per Arrow batch: about 2 MB."""
PLACE = ["topic", "queue", "offset"]
"""Columns by which claims and facts are joined."""
CLAIMS_DDL = (
    "topic STRING, queue INT, offset BIGINT, read BOOLEAN, digest STRING, key STRING, log BIGINT, "
    "broker STRING, epoch BIGINT"
)
"""Columns of claims, as Spark's DDL; see ledger.Claim."""
FACTS_DDL = (
    "topic STRING, queue INT, offset BIGINT, store INT, at BIGINT, found_key STRING, "
    "found_digest STRING"
)
"""Columns of messages in logs, as Spark's DDL: place, then the fields of claims.Fact."""
_TYPES = {
    "STRING": pa.string(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "BOOLEAN": pa.bool_(),
}


def encode_tasks(tasks: Sequence[Any]) -> str:
    """Encode picklable tasks as text for the option `tasks` of the readers of Claims and Facts."""
    return base64.b64encode(pickle.dumps(list(tasks))).decode()


class _Task(InputPartition):
    """A partition with one task."""

    def __init__(self, task: Any) -> None:
        super().__init__(task)
        self.task = task


class _Reader(DataSourceReader):
    """Reads the rows of tasks, for a table with the schema `ddl`."""

    def __init__(self, tasks: Sequence[Any], ddl: str) -> None:
        self._tasks = tasks
        self._ddl = ddl

    def partitions(self) -> Sequence[InputPartition]:
        """Return a partition for each task."""
        return [_Task(task) for task in self._tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition's task, in batches."""
        assert isinstance(partition, _Task), "they are made here"
        rows = _claim_rows if self._ddl == CLAIMS_DDL else _fact_rows
        return _in_batches(rows(partition.task), _arrow_schema(self._ddl))


class _Table(DataSource):
    """A table whose rows come from the tasks in its options."""

    DDL = ""

    def schema(self) -> str:
        """Return the table's columns as DDL."""
        return self.DDL

    def reader(self, schema: Any) -> DataSourceReader:
        """Make the reader of the tasks in the option `tasks`."""
        return _Reader(pickle.loads(base64.b64decode(self.options["tasks"])), self.DDL)


class Claims(_Table):
    """Claims of clients as a Spark table; a task is a part of a ledger (ledger.Part)."""

    DDL = CLAIMS_DDL

    @classmethod
    def name(cls) -> str:
        """Return the name of the format for Spark's readers."""
        return "turbopump-audit-claims"


class Facts(_Table):
    """Messages of logs as a Spark table; a task is a file (facts.FactTask)."""

    DDL = FACTS_DDL

    @classmethod
    def name(cls) -> str:
        """Return the name of the format for Spark's readers."""
        return "turbopump-audit-facts"


def _arrow_schema(ddl: str) -> pa.Schema:
    """Return the Arrow schema of columns in DDL."""
    columns = (column.split() for column in ddl.split(", "))
    return pa.schema([pa.field(name, _TYPES[kind]) for name, kind in columns])


def _claim_rows(part: Any) -> Iterator[tuple[Any, ...]]:
    """Yield a row of the table Claims for each claim of a ledger's part."""
    for one in claims_of([part]):
        yield (*one.place, one.read, one.digest, one.key, one.log_offset, one.broker, one.epoch)


def _fact_rows(task: Any) -> Iterator[tuple[Any, ...]]:
    """Yield a row of the table Facts for each message of a log file."""
    for one in facts_of(task):
        yield (*one.place, *one.fact)


def _in_batches(rows: Iterable[tuple[Any, ...]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows in batches of BATCH_ROWS."""
    held: list[tuple[Any, ...]] = []
    for row in rows:
        held.append(row)
        if len(held) == BATCH_ROWS:
            yield _make_batch(held, schema)
            held.clear()
    if held:
        yield _make_batch(held, schema)


def _make_batch(rows: list[tuple[Any, ...]], schema: pa.Schema) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, one.type) for column, one in zip(columns, schema, strict=True)]
    return pa.record_batch(arrays, schema=schema)
