"""Cells, the counts from which the throughput job computes all its figures.

Owns the definition of a cell, and of tables that are made from cells group by group;
throughput/batches.py counts them. It must never look at a record, nor need Spark.

A record is counted in one cell of each metric:

    size      record size in bytes      body      body size
    latency   store time - born time in ms; instead `skewed` if that is negative (the clocks of
              producer and broker disagree: counted apart, never averaged in) or `unborn` if the
              producer gave no born time, or one of another century
    offset    queue offset: 64 neighbours in a queue share a cell, `bits` marks the existing ones;
              instead `unqueued` for prepared and rolled back transactions (they have none) and
              `batch` for records that hold several messages
    clock     log offset, a cell for each millisecond of store time in a store

A cell has the record's store, and for all metrics but `clock` topic and queue; cells of sizes and
latencies also have producer host and second of the store time, and their `bucket` is that of
throughput/buckets.py. The `bucket` is queue offset / 64 for `offset`, the millisecond for `clock`.
`messages`, `total`, `least` and `most` are count, sum, minimum and maximum of the values;
`first_ms` and `last_ms` the limits of the store time. So there are never more cells than five per
record, and under traffic far fewer.

Tests: tests/unit/spark/throughput/test_events.py, tests/integration/spark/test_throughput.py
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

import pyarrow as pa

from turbopump.spark.throughput.batches import CELL
from turbopump.spark.throughput.result import Row

KEYS = ("store", "topic", "queue_id", "born_host")
"""Columns that name the origin of a cell's records."""
QUEUE = ("store", "topic", "queue_id")
"""Columns that name a queue."""
MEASURED = ("size", "body", "latency", "skewed", "unborn")
"""Metrics with producer host and second of the store time."""
SUMS = CELL.set(CELL.get_field_index("total"), pa.field("total", pa.float64()))
"""Columns of cells that were added up. Totals are doubles: exact up to 9 PB, never out of range."""
_NOT_NUMBERS = {"level": pa.string(), **{name: CELL.field(name).type for name in KEYS}}


class Cell(NamedTuple):
    """A cell: the count, sum and limits of a metric's values with equal keys. The sum of cells
    has None for the keys that were added up; see the module."""

    store: str | None
    topic: str | None
    queue_id: int | None
    born_host: str | None
    second: Any
    metric: str
    bucket: Any
    messages: int
    total: float
    least: int
    most: int
    first_ms: int
    last_ms: int
    bits: int


@dataclass(frozen=True)
class Derivation:
    """A table that is made from cells, group by group, in Spark's workers or in this process."""

    keys: tuple[str, ...]
    """Columns of cells that distinguish the groups."""
    order: tuple[str, ...]
    """Columns by which the cells of a group are sorted, ascending."""
    schema: pa.Schema
    rows: Callable[[Iterable[Cell]], Iterable[Row]]
    """Makes the rows of a group, without the keys. Spark sends it to its workers by its name."""

    def derive_rows(self, batches: Iterable[Sequence[pa.Array]]) -> Iterator[Row]:
        """Yield the derived rows, each with its keys, from batches of the columns SUMS that are
        sorted by `keys` and `order`."""
        at = [Cell._fields.index(key) for key in self.keys]
        for place, group in groupby(_read_cells(batches), lambda cell: tuple(cell[i] for i in at)):
            keys = dict(zip(self.keys, place, strict=True))
            for row in self.rows(group):
                yield {**keys, **row}


def _read_cells(batches: Iterable[Sequence[pa.Array]]) -> Iterator[Cell]:
    """Yield the rows of batches as cells."""
    for batch in batches:
        yield from map(Cell._make, zip(*(column.to_pylist() for column in batch), strict=True))


def make_schema(*names: str) -> pa.Schema:
    """Return the schema of a table with these columns; a column's name gives its type: a cell's
    key, float64 for means and percentiles, else int64."""
    return pa.schema([(name, _column_type(name)) for name in names])


def _column_type(name: str) -> pa.DataType:
    """Return the Arrow type of a column of the job's tables by the column's name."""
    if name.endswith(("_avg", "_p50", "_p99", "_p999")):
        return pa.float64()
    return _NOT_NUMBERS.get(name, pa.int64())
