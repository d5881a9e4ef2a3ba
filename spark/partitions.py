"""What goes into a Python worker of Spark: a range of a store's log, and the reading of it.

Owns the work that batches and streams share. It must never know a session: it runs where there is
none. Called by `source` and `stream`.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from turbopump.engine.inspect import Damage
from turbopump.engine.log_table import LogRange, LogTable, Wish
from turbopump.spark.arrow import OnDamage, decoded, open_table, read_range
from turbopump.spark.options import Options
from turbopump.spark.pushdown import Pushed

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class LogPartition(InputPartition):
    """A range of one store's log."""

    location: str
    part: LogRange


def make_wish(options: Options, schema: pa.Schema, selection: Pushed) -> Wish:
    """What the decoder is asked for."""
    topics = selection.topics
    return Wish(
        columns=decoded(schema.names),
        topics=None if topics is None else frozenset(topic.encode() for topic in topics),
        queue_ids=selection.queue_ids,
        min_store_ms=selection.min_store_ms,
        max_store_ms=selection.max_store_ms,
        min_log_offset=selection.min_log_offset,
        end_log_offset=selection.end_log_offset,
        check_body=options.verify_crc,
        batch_rows=options.batch_rows,
    )


def read_part(
    options: Options, schema: pa.Schema, wish: Wish, partition: LogPartition
) -> Iterator[pa.RecordBatch]:
    """The batches of one partition."""
    location = partition.location
    damaged = on_damage(options, location)
    return read_range(location, partition.part, schema, wish, damaged=damaged)


def open_store(options: Options, location: str) -> LogTable:
    """The table of one of the stores."""
    return open_table(location, damaged=on_damage(options, location))


def on_damage(options: Options, location: str) -> OnDamage | None:
    """What is done about damage; None: it ends the query."""
    return partial(_pass_over, location) if options.skip_damaged else None


def _pass_over(location: str, damage: Damage) -> None:
    logger.warning(
        "%s: %s is damaged at byte %d, which is passed over: %s",
        location, damage.file, damage.position, damage.reason,
    )  # fmt: skip
