"""Executors of an audit's tasks: this process, a few processes, or a Spark cluster.

Owns how tasks are distributed and how claims are joined with facts. All executors give the same
verdicts. It must never judge, nor import Spark unless it is given a session.

Tests: tests/unit/spark/audit/test_digests.py
"""

import multiprocessing
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from turbopump.spark.audit.claims import AuditedStores, Fact, Judgement, judge_claim
from turbopump.spark.audit.facts import FactTask, judge_in_rounds
from turbopump.spark.audit.ledger import Claim, LedgerError, Part

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
R = TypeVar("R")


class TaskRunner(Protocol):
    """Executor of an audit's tasks: this process, several processes, or Spark."""

    def run(self, work: Callable[[T], R], tasks: Sequence[T]) -> Iterable[R]:
        """Run `work` on each task and return the results in the order of the tasks. Both must be
        picklable. Errors of `work` are raised, maybe while the results are read."""

    def judge_claims(
        self, parts: Sequence[Part], tasks: Sequence[FactTask], audited: AuditedStores
    ) -> Judgement:
        """Judge all claims in `parts` of ledgers by the messages in the log files of `tasks`.
        Raises OSError, LedgerError."""


class LocalTaskRunner:
    """Runs tasks on this machine without a JVM; with several workers, in processes of their own."""

    def __init__(self, workers: int = 1) -> None:
        self._workers = workers

    def run(self, work: Callable[[T], R], tasks: Sequence[T]) -> Iterable[R]:
        """Run the tasks: lazily and one by one in this process, or all at once with workers."""
        if self._workers == 1 or len(tasks) < 2:
            return map(work, tasks)
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(min(self._workers, len(tasks)), context) as pool:
            return list(pool.map(work, tasks))

    def judge_claims(
        self, parts: Sequence[Part], tasks: Sequence[FactTask], audited: AuditedStores
    ) -> Judgement:
        """Judge all claims in this process; see `facts.judge_in_rounds`."""
        return judge_in_rounds(parts, tasks, audited)


class SparkTaskRunner:
    """Runs tasks in a Spark session; all executors need stores and ledgers at the same paths."""

    def __init__(self, spark: "SparkSession") -> None:
        self._spark = spark

    def run(self, work: Callable[[T], R], tasks: Sequence[T]) -> Iterable[R]:
        """Run all tasks in Spark and return the results in order; LedgerError and OSError of an
        executor are raised here."""
        given = self._spark.sparkContext.parallelize(list(tasks), max(len(tasks), 1))
        return [
            _or_raise(result) for result in given.map(partial(_result_or_error, work)).collect()
        ]

    def judge_claims(
        self, parts: Sequence[Part], tasks: Sequence[FactTask], audited: AuditedStores
    ) -> Judgement:
        """Judge all claims in Spark, joined with the messages by place. Raises Spark's errors."""
        from pyspark.sql import functions as f

        from turbopump.spark.audit.sources import PLACE, Claims, Facts, encode_tasks

        read = self._spark.read
        for table in (Claims, Facts):
            self._spark.dataSource.register(table)
        claims = read.format(Claims.name()).option("tasks", encode_tasks(parts)).load()
        facts = read.format(Facts.name()).option("tasks", encode_tasks(tasks)).load()
        there = facts.groupBy(*PLACE).agg(
            f.collect_list(f.struct("store", "at", "found_key", "found_digest")).alias("facts")
        )
        joined = claims.join(there, PLACE, "left")
        total = Judgement()
        for judged in joined.rdd.mapPartitions(partial(_judge_rows, audited)).collect():
            total.merge(judged)
        return total


def _result_or_error(work: Callable[[Any], Any], task: Any) -> Any:
    """Return the result of `work`, or its LedgerError or OSError: Spark's own error would lack
    its text."""
    try:
        return work(task)
    except (LedgerError, OSError) as error:
        return error  # returned, because Spark's own error would lack our message


def _or_raise(result: Any) -> Any:
    """Return a result of `_result_or_error`, or raise it if it is an error."""
    if isinstance(result, Exception):
        raise result
    return result


def _judge_rows(audited: AuditedStores, rows: Iterable[Any]) -> Iterator[Judgement]:
    """Yield the Judgement of the claims in `rows` of Spark, each row with the facts at its
    place."""
    judged = Judgement()
    for row in rows:
        claim = Claim(
            row.read,
            row.topic,
            row.queue,
            row.offset,
            row.digest,
            row.key,
            row.log,
            row.broker,
            row.epoch,
        )
        facts = [Fact(*one) for one in row.facts or ()]
        judge_claim(claim, facts, audited, judged)
    yield judged
