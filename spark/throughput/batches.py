"""Counts records into cells, chunk by chunk, in the workers that read them.

Owns the counting of records; throughput/cells.py defines a cell. Each chunk may yield a part of the
same cell, and the parts are added up later. It must never need Spark, nor hold more than CHUNK_ROWS
records and a batch. It runs in Python workers, because Spark itself would make five rows of each
record and look at each of them.

Tests: tests/unit/spark/throughput/test_events.py
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from turbopump.spark.throughput.buckets import buckets_of

Ints = npt.NDArray[np.int64]
"""An array of int64."""

CHUNK_ROWS = 1 << 17
"""Records per chunk: 20 MB. A busy queue yields each of its cells once per chunk."""
NEEDED = (
    "store",
    "topic",
    "queue_id",
    "queue_offset",
    "log_offset",
    "size",
    "born_time",
    "store_time",
    "born_host",
    "sys_flag",
    "body_size",
)
"""Columns of the table that are read."""
OFFSETS_A_CELL = 64
"""Neighbouring queue offsets that share a cell: the bits of a number."""
LATE_MS_MAX = 100 * 366 * 86_400_000
"""Greatest difference of store time and born time that counts: beyond, the client sent an arbitrary
number. It also keeps sums within 64 bits, for up to three million records in a cell."""
SIZE, BODY, LATENCY, SKEWED, UNBORN, OFFSET, UNQUEUED, BATCH, CLOCK = METRICS = (
    "size",
    "body",
    "latency",
    "skewed",
    "unborn",
    "offset",
    "unqueued",
    "batch",
    "clock",
)
"""Names of the metrics; cells.py describes each."""
KEYS = ("store", "topic", "queue_id", "born_host", "second", "metric", "bucket")
"""Columns that distinguish cells."""
CELL = pa.schema(
    [
        ("store", pa.string()),
        ("topic", pa.string()),
        ("queue_id", pa.int32()),
        ("born_host", pa.string()),
        ("second", pa.int64()),
        ("metric", pa.string()),
        ("bucket", pa.int64()),
        ("messages", pa.int64()),
        ("total", pa.int64()),
        ("least", pa.int64()),
        ("most", pa.int64()),
        ("first_ms", pa.int64()),
        ("last_ms", pa.int64()),
        ("bits", pa.int64()),
    ]
)
"""The columns of cells; cells.py describes each."""

# RocketMQ's MessageSysFlag: the transaction bits, two of whose values have no queue offset, and the
# bit of records that hold a batch and take as many queue offsets as their INNER_NUM.
TRANSACTION, PREPARED, ROLLED_BACK = 0xC, 0x4, 0xC
INNER_BATCH = 0x80


def count_cells(
    batches: Iterable[pa.RecordBatch], *, with_ports: bool = False
) -> Iterator[pa.RecordBatch]:
    """Yield batches of cells (columns CELL) that count the records of `batches`, which have the
    columns NEEDED in any order; a cell may come in several parts. `with_ports` distinguishes
    producers by port."""
    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        held.append(batch)
        rows += batch.num_rows
        if rows >= CHUNK_ROWS:
            yield from _make_cells(pa.Table.from_batches(held), with_ports)
            held, rows = [], 0
    if rows:
        yield from _make_cells(pa.Table.from_batches(held), with_ports)


def _make_cells(table: pa.Table, with_ports: bool) -> Iterator[pa.RecordBatch]:
    """Yield the cells of all metrics for a table of records."""
    stores, topics = _encode_column(table, "store"), _encode_column(table, "topic")
    hosts = _encode_column(table, "born_host")
    if not with_ports:
        hosts = _without_ports(hosts)
    names = {"store": stores[1], "topic": topics[1], "born_host": hosts[1]}
    store_ms, born_ms = _epoch_ms_column(table, "store_time"), _epoch_ms_column(table, "born_time")
    queue = {"store": stores[0], "topic": topics[0], "queue_id": _int64_column(table, "queue_id")}
    place = {**queue, "born_host": hosts[0], "second": _divide(store_ms, 1000)}
    for metric, column in ((SIZE, "size"), (BODY, "body_size")):
        sizes = _int64_column(table, column)
        found = _add_up({**place, "bucket": buckets_of(sizes)}, sizes, store_ms)
        yield _make_batch(found, names, np.full(len(found), METRICS.index(metric)))
    is_born = (born_ms > 0) & (np.abs(store_ms - born_ms) <= LATE_MS_MAX)
    late_ms = np.where(is_born, np.abs(store_ms - born_ms), 0)
    kinds = np.where(born_ms > store_ms, METRICS.index(SKEWED), METRICS.index(LATENCY))
    kinds = np.where(is_born, kinds, METRICS.index(UNBORN))
    found = _add_up({**place, "metric": kinds, "bucket": buckets_of(late_ms)}, late_ms, store_ms)
    yield _make_batch(found, names, found["metric"].to_numpy())
    found = _offset_cells(queue, table, store_ms)
    yield _make_batch(found, names, found["metric"].to_numpy())
    at = _int64_column(table, "log_offset")
    found = _add_up({"store": stores[0], "bucket": store_ms}, at, store_ms)
    zeros = pa.array(np.zeros(len(found), np.int64))
    found = found.set_column(found.column_names.index("total"), "total", zeros)
    yield _make_batch(found, names, np.full(len(found), METRICS.index(CLOCK)))


def _offset_cells(queue: Mapping[str, Ints], table: pa.Table, store_ms: Ints) -> pa.Table:
    """Return the cells of queue offsets, with a bit for each offset that any record has."""
    offsets, flags = _int64_column(table, "queue_offset"), _int64_column(table, "sys_flag")
    transaction = flags & TRANSACTION
    kinds = np.where(flags & INNER_BATCH != 0, METRICS.index(BATCH), METRICS.index(OFFSET))
    unqueued = (transaction == PREPARED) | (transaction == ROLLED_BACK)
    kinds = np.where(unqueued, METRICS.index(UNQUEUED), kinds)
    bit = np.left_shift(np.int64(1), offsets & (OFFSETS_A_CELL - 1))
    keys = {**queue, "metric": kinds, "bucket": _divide(offsets, OFFSETS_A_CELL)}
    bits = np.where(kinds == METRICS.index(OFFSET), bit, 0)
    single = _add_up({**keys, "bits": bits}, offsets, store_ms)
    merged = single.group_by(list(keys), use_threads=False).aggregate(
        [
            ("messages", "sum"),
            ("total", "sum"),
            ("least", "min"),
            ("most", "max"),
            ("first_ms", "min"),
            ("last_ms", "max"),
            ("bits", "sum"),
        ]
    )
    return merged.rename_columns([_plain_name(name) for name in merged.column_names])


def _add_up(keys: Mapping[str, Ints], values: Ints, store_ms: Ints) -> pa.Table:
    """Return a row for each combination of `keys`, with count, sum, minimum and maximum of
    `values` and the limits of the store time."""
    table = pa.table({**keys, "value": values, "ms": store_ms})
    found = table.group_by(list(keys), use_threads=False).aggregate(
        [
            ("value", "count"),
            ("value", "sum"),
            ("value", "min"),
            ("value", "max"),
            ("ms", "min"),
            ("ms", "max"),
        ]
    )
    return found.rename_columns([_ADDED.get(name, name) for name in found.column_names])


_ADDED = {
    "value_count": "messages",
    "value_sum": "total",
    "value_min": "least",
    "value_max": "most",
    "ms_min": "first_ms",
    "ms_max": "last_ms",
}


def _plain_name(name: str) -> str:
    """Return a column's name without the suffix of its aggregate function."""
    first, _, function = name.rpartition("_")
    return first if function in ("sum", "min", "max") else name


def _make_batch(
    found: pa.Table, names: Mapping[str, pa.Array], metrics: npt.NDArray[Any]
) -> pa.RecordBatch:
    """Return cells as a batch of CELL, with names for codes and nulls for missing columns."""
    columns: dict[str, pa.Array] = {}
    for name in found.column_names:
        array = found[name].combine_chunks()
        columns[name] = names[name].take(array) if name in names else array
    columns["metric"] = pa.array(METRICS).take(pa.array(metrics))
    rows = len(found)
    columns.setdefault("bits", pa.array(np.zeros(rows, np.int64)))
    return pa.RecordBatch.from_arrays(
        [
            columns[field.name].cast(field.type)
            if field.name in columns
            else pa.nulls(rows, field.type)
            for field in CELL
        ],
        schema=CELL,
    )


def _encode_column(table: pa.Table, name: str) -> tuple[Ints, pa.Array]:
    """Return (for each row the index of its text, the texts) of a text column."""
    coded = table[name].combine_chunks().dictionary_encode()
    return coded.indices.to_numpy().astype(np.int64), coded.dictionary


def _without_ports(hosts: tuple[Ints, pa.Array]) -> tuple[Ints, pa.Array]:
    """Reduce "ip:port" to `ip` and "[ip]:port" to `[ip]` in the texts of (indices, texts)."""
    codes, texts = hosts
    bare = pa.array(
        [_without_port(text) for text in texts.to_pylist()], pa.string()
    ).dictionary_encode()
    return bare.indices.to_numpy().astype(np.int64)[codes], bare.dictionary


def _without_port(text: str) -> str:
    """Return "ip:port" without the port."""
    if text.startswith("["):
        return text.partition("]")[0] + "]"
    return text.partition(":")[0]


def _int64_column(table: pa.Table, name: str) -> Ints:
    """Return a column as an array of int64."""
    numbers: Ints = table[name].to_numpy().astype(np.int64)
    return numbers


def _epoch_ms_column(table: pa.Table, name: str) -> Ints:
    """Return a timestamp column as epoch ms."""
    micros: Ints = table[name].cast(pa.int64()).to_numpy()
    return micros // 1000


def _divide(values: Ints, by: int) -> Ints:
    """Divide, rounding towards zero as SQL's `div` does."""
    divided: Ints = values // by + ((values % by != 0) & (values < 0))
    return divided
