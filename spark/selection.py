"""Which rows of which stores a job is to have, from its options.

Owns their spelling and their meaning, the same with Spark and without. It must never read a store
itself. Called by export.py and throughput.py.
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from turbopump.spark.arrow import read_arrow
from turbopump.spark.session import JobError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Selection:
    """Rows of stores. Empty topics or queues: all. Times are inclusive from, exclusive to."""

    stores: tuple[str, ...]
    topics: tuple[str, ...] = ()
    queue_ids: tuple[int, ...] = ()
    from_ms: int | None = None
    until_ms: int | None = None
    min_log_offset: int | None = None
    max_log_offset: int | None = None
    """Inclusive."""
    confirmed: bool = True

    def arrow(self, columns: tuple[str, ...]) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The rows without Spark: (number of the store, batch), each store from its beginning."""
        for number, store in enumerate(self.stores):
            reader = read_arrow(
                store, columns=columns, topics=list(self.topics) or None,
                queue_ids=list(self.queue_ids) or None, min_store_ms=self.from_ms,
                max_store_ms=None if self.until_ms is None else self.until_ms - 1,
                min_log_offset=self.min_log_offset, max_log_offset=self.max_log_offset,
                confirmed=self.confirmed,
            )  # fmt: skip
            for batch in reader:
                yield number, batch

    def frame(self, spark: "SparkSession", columns: tuple[str, ...]) -> "DataFrame":
        """The rows as Spark's, with these columns. Raises what Spark raises."""
        from pyspark.sql import functions as f

        from turbopump.spark import register

        register(spark)
        decoded = {*columns, "topic", "queue_id", "store_time", "log_offset"}  # what limits need
        options = {
            "paths": json.dumps(self.stores), "confirmed": str(self.confirmed).lower(),
            "columns": ",".join(decoded),
        }  # fmt: skip
        frame = spark.read.format("turbopump").options(**options).load()
        if self.topics:
            frame = frame.where(f.col("topic").isin(*self.topics))
        if self.queue_ids:
            frame = frame.where(f.col("queue_id").isin(*self.queue_ids))
        if self.from_ms is not None:
            frame = frame.where(f.col("store_time") >= f.lit(_time(self.from_ms)))
        if self.until_ms is not None:
            frame = frame.where(f.col("store_time") < f.lit(_time(self.until_ms)))
        if self.min_log_offset is not None:
            frame = frame.where(f.col("log_offset") >= self.min_log_offset)
        if self.max_log_offset is not None:
            frame = frame.where(f.col("log_offset") <= self.max_log_offset)
        return frame.select(*columns)

    def describe(self) -> dict[str, Any]:
        """For manifests: what was asked for."""
        return {
            "stores": list(self.stores), "topics": list(self.topics),
            "queue_ids": list(self.queue_ids), "from_ms": self.from_ms, "until_ms": self.until_ms,
            "min_log_offset": self.min_log_offset, "max_log_offset": self.max_log_offset,
            "confirmed": self.confirmed,
        }  # fmt: skip


def add_selection(parser: argparse.ArgumentParser) -> None:
    """The arguments of a selection."""
    add = parser.add_argument
    add("stores", nargs="+", metavar="STORE", help="Folders of stores, or URIs of them.")
    add("-t", "--topic", action="append", default=[], dest="topics", metavar="TOPIC",
        help="Only this topic; may be repeated.")  # fmt: skip
    add("--queue", action="append", default=[], type=int, dest="queue_ids", metavar="ID",
        help="Only this queue; may be repeated.")  # fmt: skip
    add("--since", dest="from_ms", type=time_ms, metavar="TIME",
        help="Stored at or after: ISO 8601 (else UTC), or epoch ms.")  # fmt: skip
    add("--until", dest="until_ms", type=time_ms, metavar="TIME", help="Stored before.")
    add("--min-log-offset", type=int, metavar="OFFSET", help="At or behind this log offset.")
    add("--max-log-offset", type=int, metavar="OFFSET", help="At or before this log offset.")
    add("--unconfirmed", action="store_true", help="Beyond the confirmed end of a store, too.")


def selection_of(given: argparse.Namespace) -> Selection:
    """The selection that was given."""
    return Selection(
        tuple(given.stores), tuple(given.topics), tuple(given.queue_ids), given.from_ms,
        given.until_ms, given.min_log_offset, given.max_log_offset, not given.unconfirmed,
    )  # fmt: skip


def time_ms(text: str) -> int:
    """Epoch milliseconds of what the user wrote; an argparse type."""
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is neither ISO 8601 nor epoch ms") from None
    return round((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)


def _time(epoch_ms: int) -> datetime:
    try:
        return datetime.fromtimestamp(epoch_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        raise JobError(f"{epoch_ms} ms is no time") from None
