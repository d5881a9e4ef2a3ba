"""The selection of rows and stores for a job, from its command line options.

Owns the options' meaning, which is the same with Spark and without. It must never read a store
itself.

Tests: tests/unit/spark/commands/test_parsers.py, tests/unit/spark/test_session.py
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from turbopump.spark.commands.stores import SeveralStores, one_store
from turbopump.spark.session import JobError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class RowSelection:
    """Rows of stores; a limit of None is no limit, empty topics or queues mean all."""

    stores: tuple[str, ...]
    """Paths or URIs."""
    topics: tuple[str, ...] = ()
    queue_ids: tuple[int, ...] = ()
    from_ms: int | None = None
    """Least store time, in epoch ms, inclusive."""
    until_ms: int | None = None
    """Upper limit of the store time, in epoch ms, exclusive."""
    min_log_offset: int | None = None
    max_log_offset: int | None = None
    """Greatest log offset of a record's first byte, inclusive as `min_log_offset`."""
    confirmed: bool = True
    """Whether a replicated store is read only to its confirmed end."""
    prune_by_time: bool = False
    """Whether whole files outside of the times are skipped; see `read_arrow`."""

    def read_arrow_batches(
        self, columns: tuple[str, ...]
    ) -> "Iterator[tuple[int, pa.RecordBatch]]":
        """Yield the rows without Spark as (index of the store in `stores`, batch), store by store,
        in the order of each log. Raises the errors of `read_arrow`."""
        from turbopump.spark.arrow import read_arrow

        for number, store in enumerate(self.stores):
            reader = read_arrow(store, columns=columns, **self.read_arguments())
            for batch in reader:
                yield number, batch

    def read_arguments(self) -> dict[str, Any]:
        """Return the selection, except stores and columns, as keyword arguments of `read_arrow`."""
        return {
            "topics": list(self.topics) or None,
            "queue_ids": list(self.queue_ids) or None,
            "min_store_ms": self.from_ms,
            "max_store_ms": None if self.until_ms is None else self.until_ms - 1,
            "min_log_offset": self.min_log_offset,
            "max_log_offset": self.max_log_offset,
            "prune_by_time": self.prune_by_time,
            "confirmed": self.confirmed,
        }

    def make_frame(self, spark: "SparkSession", columns: tuple[str, ...]) -> "DataFrame":
        """Return the rows as a lazy Spark frame with these columns, in this order.

        Registers the format with the session. Raises Spark's errors.
        """
        from turbopump.spark import register

        register(spark)
        options = {
            "paths": json.dumps(self.stores),
            "confirmed": str(self.confirmed).lower(),
            "columns": ",".join(columns),
            "topics": json.dumps(self.topics or None),
            "queues": ",".join(map(str, self.queue_ids)),
            "since": self.from_ms,
            "until": self.until_ms,
            "minLogOffset": self.min_log_offset,
            "maxLogOffset": self.max_log_offset,
            "pruneByTime": str(self.prune_by_time).lower(),
        }
        given = {name: value for name, value in options.items() if value not in (None, "", "null")}
        return spark.read.format("turbopump").options(**given).load().select(*columns)

    def describe_as_json(self) -> dict[str, Any]:
        """Return the selection as JSON values by field name, for manifests;
        `RowSelection(**values)` makes it again."""
        return {
            "stores": list(self.stores),
            "topics": list(self.topics),
            "queue_ids": list(self.queue_ids),
            "from_ms": self.from_ms,
            "until_ms": self.until_ms,
            "min_log_offset": self.min_log_offset,
            "max_log_offset": self.max_log_offset,
            "confirmed": self.confirmed,
            "prune_by_time": self.prune_by_time,
        }


def selection_of(given: argparse.Namespace) -> RowSelection:
    """Make the selection from the parsed arguments of `add_selection`.

    A folder that has one store means that store. Raises JobError if it has several.
    """
    try:
        stores = tuple(map(one_store, given.stores))
    except SeveralStores as error:
        raise JobError(str(error)) from None
    return RowSelection(
        stores,
        tuple(given.topics),
        tuple(given.queue_ids),
        given.from_ms,
        given.until_ms,
        given.min_log_offset,
        given.max_log_offset,
        not given.unconfirmed,
        given.prune_by_time,
    )
