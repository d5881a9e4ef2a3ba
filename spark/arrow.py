"""Reads a store's log as Arrow batches, with neither Spark nor a JVM.

Owns the way from a store's location and a selection to batches of the table. It must never need
pyspark, nor copy the decoder's output.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace

import pyarrow as pa
from pyarrow import fs

from turbopump.engine.snapshot.inspect import Deviation
from turbopump.engine.snapshot.log_table import (
    BATCH_ROWS,
    RANGE_BYTES,
    LogOpener,
    LogRange,
    LogTable,
    ScanQuery,
    decode,
)
from turbopump.engine.snapshot.ranges import INT64_MAX
from turbopump.engine.types import StoreError
from turbopump.pyx.columns import KINDS, Batch
from turbopump.spark.schema import arrow_schema
from turbopump.spark.store_location import StoreFolder, split_location

STORE_COLUMN = "store"
"""The column with the store's location, which is not in the log."""
OnDamage = Callable[[Deviation], None]
"""Receives each damaged place that a reader skips."""


def open_table(
    location: str,
    opener: LogOpener | None = None,
    *,
    damaged: OnDamage | None = None,
    verify_crc: bool = False,
) -> LogTable:
    """Open the table of the store at a path or URI, as the store is now.

    With `opener`, `location` is a path that it opens. `damaged` and `verify_crc`: see `read_arrow`.
    Raises StoreError, whose text is a sentence.
    """
    try:
        path, found = split_location(location) if opener is None else (location, opener)
        return LogTable.open(path, found, damaged=damaged, check_body=verify_crc)
    except (OSError, ValueError) as error:
        raise StoreError(f"{location} cannot be read: {error}") from error


def read_arrow(
    path: str,
    *,
    columns: Collection[str] | None = None,
    topics: Iterable[str | bytes] | None = None,
    queue_ids: Iterable[int] | None = None,
    min_store_ms: int | None = None,
    max_store_ms: int | None = None,
    min_log_offset: int | None = None,
    max_log_offset: int | None = None,
    prune_by_time: bool = False,
    confirmed: bool = True,
    batch_rows: int = BATCH_ROWS,
    verify_crc: bool = False,
    damaged: OnDamage | None = None,
    filesystem: fs.FileSystem | None = None,
) -> pa.RecordBatchReader:
    """Read the records of a store, in the order of its log, as a stream of Arrow batches.

    `path` is a folder of this machine or a URI of pyarrow's file systems, or with `filesystem` a
    path in that. Limits are inclusive; log offsets mean records' first bytes. Limits by
    time compare each record, because clocks may be set back; with `prune_by_time` files and ranges
    are skipped whose first and last records lie more than ten minutes outside. With `confirmed`, a
    store that is one of several copies is read up to its confirmed end, any other store to its last
    whole record. With `verify_crc`, a body that does not match its CRC is damage. Damage ends the
    stream with an exception that names file and position, unless `damaged` is given: it receives
    the damage, and the stream continues after it. Raises StoreError, UnknownColumn.
    """
    schema = arrow_schema(columns)
    query = make_query(
        schema.names,
        topics=topics,
        queue_ids=queue_ids,
        min_store_ms=min_store_ms,
        max_store_ms=max_store_ms,
        min_log_offset=min_log_offset,
        max_log_offset=max_log_offset,
        prune_by_time=prune_by_time,
        verify_crc=verify_crc,
        batch_rows=batch_rows,
    )
    opener = None if filesystem is None else StoreFolder(filesystem)
    table = open_table(path, opener, damaged=damaged, verify_crc=verify_crc)
    parts = table.split_ranges(RANGE_BYTES, query, confirmed=confirmed)
    batches = (
        batch
        for part in parts
        for batch in read_range(path, part, schema, query, opener=opener, damaged=damaged)
    )
    return pa.RecordBatchReader.from_batches(schema, batches)


def make_query(
    columns: Collection[str],
    *,
    topics: Iterable[str | bytes] | None = None,
    queue_ids: Iterable[int] | None = None,
    min_store_ms: int | None = None,
    max_store_ms: int | None = None,
    min_log_offset: int | None = None,
    max_log_offset: int | None = None,
    prune_by_time: bool = False,
    verify_crc: bool = False,
    batch_rows: int = BATCH_ROWS,
) -> ScanQuery:
    """Make the decoder's selection; `columns` are names of the table's columns, and all limits are
    inclusive, as in `read_arrow`."""
    query = ScanQuery(
        columns=log_columns(columns),
        topics=None if topics is None else frozenset(map(_topic_bytes, topics)),
        queue_ids=None if queue_ids is None else frozenset(queue_ids),
        prune_by_time=prune_by_time,
        check_body=verify_crc,
        batch_rows=batch_rows,
    )
    if min_store_ms is not None:
        query = replace(query, min_store_ms=min_store_ms)
    if max_store_ms is not None:
        query = replace(query, max_store_ms=max_store_ms)
    if min_log_offset is not None:
        query = replace(query, min_log_offset=min_log_offset)
    if max_log_offset is not None:
        query = replace(query, end_log_offset=min(max_log_offset + 1, INT64_MAX))
    return query


def log_columns(columns: Collection[str]) -> tuple[str, ...]:
    """Return `columns` without STORE_COLUMN, in the same order: the columns that a log's decoder
    makes."""
    return tuple(name for name in columns if name != STORE_COLUMN)


def read_range(
    location: str,
    part: LogRange,
    schema: pa.Schema,
    query: ScanQuery,
    *,
    opener: LogOpener | None = None,
    damaged: OnDamage | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the selected records of a range as batches, in the order of the log; columns are in the
    order of `schema`.

    `opener` must be the opener of the table that `part` comes from; None: `location` is located
    again. Raises StoreError for damage, unless `damaged` is given.
    """
    if opener is None:
        opener = split_location(location)[1]
    constant = _ConstantColumn(location)
    for batch in decode(part, query, opener, damaged=damaged):
        arrays = [
            constant.make_array(batch.rows)
            if field.name == STORE_COLUMN
            else _wrap_array(batch, field)
            for field in schema
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


class _ConstantColumn:
    """A column with the same text in all rows, made once for many batches."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._array = pa.array([], pa.string())

    def make_array(self, rows: int) -> pa.Array:
        """Return the column for a batch of `rows` rows."""
        if len(self._array) < rows:
            self._array = pa.repeat(pa.scalar(self._text), rows)
        return self._array[:rows]


def _wrap_array(batch: Batch, field: pa.Field) -> pa.Array:
    """Wrap the decoder's buffers as an Arrow column."""
    buffers = [
        None if buffer is None else pa.py_buffer(buffer) for buffer in batch.column(field.name)
    ]
    if KINDS[field.name] != "map":
        nulls = batch.null_count(field.name)
        return pa.Array.from_buffers(field.type, batch.rows, buffers, nulls)
    validity, offsets, *texts = buffers
    entries = pa.Array.from_buffers(
        pa.struct([field.type.key_field, field.type.item_field]),
        batch.entries,
        [None],
        0,
        children=[
            pa.Array.from_buffers(pa.string(), batch.entries, [None, *texts[:2]], 0),
            pa.Array.from_buffers(pa.string(), batch.entries, [None, *texts[2:]], 0),
        ],
    )
    return pa.Array.from_buffers(field.type, batch.rows, [validity, offsets], 0, children=[entries])


def _topic_bytes(topic: str | bytes) -> bytes:
    return topic.encode() if isinstance(topic, str) else topic
