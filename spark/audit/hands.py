"""Who does the work of an audit: this process, a few of them, or a Spark cluster.

Owns how tasks are given out and how claims meet facts. Whoever does it, the verdicts are the same.
It must never decide anything, nor import Spark unless it is given a session. Called by the job.
"""

import multiprocessing
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import pyarrow as pa

from turbopump.spark.audit.claims import Court, Fact, Judged, judge
from turbopump.spark.audit.facts import FactTask, claims_of, facts_of, judge_in_rounds
from turbopump.spark.audit.ledger import Claim, LedgerError, Part

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")
R = TypeVar("R")
BATCH_ROWS = 8192
"""Rows that a task hands to Spark at once: some 2 MB."""
PLACE = ["topic", "queue", "offset"]
_FACTS = pa.schema([
    pa.field("topic", pa.string()), pa.field("queue", pa.int32()), pa.field("offset", pa.int64()),
    pa.field("store", pa.int32()), pa.field("at", pa.int64()), pa.field("found_key", pa.string()),
    pa.field("found_digest", pa.string()),
])  # fmt: skip
_CLAIMS = pa.schema([
    pa.field("topic", pa.string()), pa.field("queue", pa.int32()), pa.field("offset", pa.int64()),
    pa.field("read", pa.bool_()), pa.field("digest", pa.string()), pa.field("key", pa.string()),
    pa.field("log", pa.int64()), pa.field("broker", pa.string()), pa.field("epoch", pa.int64()),
])  # fmt: skip
_FACTS_DDL = (
    "topic STRING, queue INT, offset BIGINT, store INT, at BIGINT, found_key STRING, "
    "found_digest STRING"
)
_CLAIMS_DDL = (
    "topic STRING, queue INT, offset BIGINT, read BOOLEAN, digest STRING, key STRING, log BIGINT, "
    "broker STRING, epoch BIGINT"
)
_RESULT = pa.schema([pa.field("result", pa.binary())])


class Hands(Protocol):
    """See the module."""

    def each(self, work: Callable[[T], R], tasks: Sequence[T]) -> Iterable[R]:
        """What `work` makes of each task, in their order. Both can be pickled."""

    def judge(self, parts: Sequence[Part], tasks: Sequence[FactTask], court: Court) -> Judged:
        """All claims of the ledgers."""


class LocalHands:
    """This machine, without a JVM; with more than one worker, processes of their own."""

    def __init__(self, workers: int = 1) -> None:
        self._workers = workers

    def each(self, work: Callable[[T], R], tasks: Sequence[T]) -> Iterable[R]:
        if self._workers == 1 or len(tasks) < 2:
            return map(work, tasks)
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(min(self._workers, len(tasks)), context) as pool:
            return list(pool.map(work, tasks))

    def judge(self, parts: Sequence[Part], tasks: Sequence[FactTask], court: Court) -> Judged:
        return judge_in_rounds(parts, tasks, court)


class SparkHands:
    """A Spark session: stores and ledgers lie where all its executors find them by these paths."""

    def __init__(self, spark: "SparkSession") -> None:
        self._spark = spark

    def each(self, work: Callable[[T], R], tasks: Sequence[T]) -> Iterable[R]:
        done = self._given_out(tasks).mapInArrow(partial(_done, work), "result BINARY")
        # Results come in the order of partitions, which is that of the tasks.
        results = (pickle.loads(bytes(row.result)) for row in done.toLocalIterator())
        return [_or_raise(result) for result in results]

    def judge(self, parts: Sequence[Part], tasks: Sequence[FactTask], court: Court) -> Judged:
        from pyspark.sql import functions as f

        claims = self._given_out(parts).mapInArrow(_claim_batches, _CLAIMS_DDL)
        facts = self._given_out(tasks).mapInArrow(_fact_batches, _FACTS_DDL)
        there = facts.groupBy(*PLACE).agg(
            f.collect_list(f.struct("store", "at", "found_key", "found_digest")).alias("facts")
        )
        judged = claims.join(there, PLACE, "left").mapInArrow(
            partial(_judged, court), "result BINARY"
        )
        total = Judged()
        for row in judged.toLocalIterator():
            total.add(pickle.loads(bytes(row.result)))
        return total

    def _given_out(self, tasks: Sequence[Any]) -> "DataFrame":
        """A row and a partition for each task."""
        rows = [(number, pickle.dumps(task)) for number, task in enumerate(tasks)]
        frame = self._spark.createDataFrame(rows, "number BIGINT, task BINARY")
        return frame.repartitionByRange(max(len(rows), 1), "number").select("task")


def _tasks(batches: Iterable[pa.RecordBatch]) -> Iterator[Any]:
    for batch in batches:
        for packed in batch.column(0).to_pylist():
            yield pickle.loads(packed)


def _result(value: object) -> pa.RecordBatch:
    return pa.record_batch([pa.array([pickle.dumps(value)], pa.binary())], schema=_RESULT)


def _done(
    work: Callable[[Any], Any], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for task in _tasks(batches):
        try:
            yield _result(work(task))
        except (LedgerError, OSError) as error:
            yield _result(error)  # an error of Spark's would say where, not what


def _or_raise(result: Any) -> Any:
    if isinstance(result, Exception):
        raise result
    return result


def _in_batches(rows: Iterable[tuple[Any, ...]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    held: list[tuple[Any, ...]] = []
    for row in rows:
        held.append(row)
        if len(held) == BATCH_ROWS:
            yield _batch(held, schema)
            held.clear()
    if held:
        yield _batch(held, schema)


def _batch(rows: list[tuple[Any, ...]], schema: pa.Schema) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, one.type) for column, one in zip(columns, schema, strict=True)]
    return pa.record_batch(arrays, schema=schema)


def _claim_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    rows = (
        (*one.place, one.read, one.digest, one.key, one.log_offset, one.broker, one.epoch)
        for one in claims_of(_tasks(batches))
    )
    return _in_batches(rows, _CLAIMS)


def _fact_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    rows = (
        (*one.place, *one.fact) for task in _tasks(batches) for one in facts_of(task)
    )
    return _in_batches(rows, _FACTS)


def _judged(court: Court, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    judged = Judged()
    for batch in batches:
        for row in batch.to_pylist():
            claim = Claim(
                row["read"], row["topic"], row["queue"], row["offset"], row["digest"], row["key"],
                row["log"], row["broker"], row["epoch"],
            )  # fmt: skip
            facts = [
                Fact(one["store"], one["at"], one["found_key"], one["found_digest"])
                for one in row["facts"] or ()
            ]
            judge(claim, facts, court, judged)
    yield _result(judged)
