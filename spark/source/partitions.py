"""Partitions of a store's log for Spark's Python workers, and their reading.

Owns the work that batches and streams share, and how a scan that was planned once is read again. It
must never know a session, because workers have none.

Spark (4.1 to 4.3) plans the scan of a DataFrame once and keeps the partitions as long as the
DataFrame: a second query only reads them again later, without notice. So a partition is an interval
of log offsets, whose records are located when it is read. The last interval has no end, so a log
that grew is read to its new end. The other bounds are starts of records, so each record lies in one
interval, however the store has changed. While the store's small files are as they were at planning,
a closed interval is read as planned, without locating its records again.

Tests: tests/unit/spark/source/test_format.py
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from turbopump.engine.snapshot.inspect import Deviation
from turbopump.engine.snapshot.log_table import LogRange, LogTable, ScanQuery
from turbopump.engine.snapshot.opening import Glance
from turbopump.engine.snapshot.ranges import INT64_MAX, DiskOpener
from turbopump.spark import arrow
from turbopump.spark.arrow import OnDamage, open_table, read_range
from turbopump.spark.source.options import SourceOptions
from turbopump.spark.store_location import split_location

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class LogPartition(InputPartition):
    """The records of a store that begin in [start, end), two log offsets."""

    location: str
    """Path or URI of the store."""
    start: int
    end: int | None
    """End of the range; None: the end of the log at the time of reading."""
    planned: LogRange | None
    """Place of these records when the scan was planned."""
    glance: Glance
    """State of the store's small files when the scan was planned."""


def make_query(options: SourceOptions, schema: pa.Schema) -> ScanQuery:
    """Make the decoder's selection from the options, for the columns of `schema`."""
    return arrow.make_query(
        schema.names,
        topics=options.topics,
        queue_ids=options.queue_ids,
        min_store_ms=options.min_store_ms,
        max_store_ms=options.max_store_ms,
        min_log_offset=options.min_log_offset,
        max_log_offset=options.max_log_offset,
        prune_by_time=options.prune_by_time,
        verify_crc=options.verify_crc,
        batch_rows=options.batch_rows,
    )


def plan_scan(options: SourceOptions, query: ScanQuery, location: str) -> list[LogPartition]:
    """Plan the partitions of a store, at least one, in the order of its log; `query` may rule out
    ranges. Raises StoreError."""
    table = open_store(options, location)
    found = [
        LogPartition(location, part.log_offset, part.base + part.end, part, table.glance)
        for part in table.split_ranges(options.partition_bytes, query, confirmed=options.confirmed)
    ]
    end = table.confirmed_end if options.confirmed else table.end
    if not found or found[-1].end != end:
        found.append(LogPartition(location, end, None, None, table.glance))
    found[-1] = replace(found[-1], end=None)
    found[0] = replace(found[0], start=0)  # a log may begin earlier when it is read: it was copied
    return found


def read_scan(
    options: SourceOptions, schema: pa.Schema, query: ScanQuery, partition: LogPartition
) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a partition, in the order of the log, from the store as it is now.
    Raises StoreError."""
    location, planned = partition.location, partition.planned
    is_closed = partition.end is not None and planned is not None
    opener = split_location(location)[1] or DiskOpener()
    if is_closed and partition.glance.is_current(opener):
        assert planned is not None
        yield from read_part(options, schema, query, location, planned)
        return
    table = open_store(options, location)
    end = None if partition.end is None else table.find_boundary(partition.end)
    for part in table.split_ranges(
        INT64_MAX,
        query,
        confirmed=options.confirmed,
        start=table.find_boundary(partition.start),
        end=end,
    ):
        yield from read_part(options, schema, query, location, part)


def read_part(
    options: SourceOptions, schema: pa.Schema, query: ScanQuery, location: str, part: LogRange
) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a range of a store, in the order of its log. Raises StoreError."""
    return read_range(location, part, schema, query, damaged=on_damage(options, location))


def open_store(options: SourceOptions, location: str) -> LogTable:
    """Open the table of a store as it is now. Raises StoreError."""
    damaged = on_damage(options, location)
    return open_table(location, damaged=damaged, verify_crc=options.verify_crc)


def on_damage(options: SourceOptions, location: str) -> OnDamage | None:
    """Return the handler of damage, which logs a warning (`skip_damaged`); None: damage ends the
    query."""
    return partial(_warn_of_damage, location) if options.skip_damaged else None


def _warn_of_damage(location: str, damage: Deviation) -> None:
    logger.warning(
        "%s: %s is damaged at byte %d, which is passed over: %s",
        location,
        damage.file,
        damage.position,
        damage.reason,
    )
