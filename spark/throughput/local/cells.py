"""Reads and merges the cells of stores (throughput/cells.py) in this process.

Owns their merging and the bound on their number. It must never keep records.

Tests: tests/unit/spark/throughput/local/test_job.py
"""

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from turbopump.spark.arrow import read_arrow
from turbopump.spark.schema import ordered
from turbopump.spark.selection import RowSelection
from turbopump.spark.session import JobError
from turbopump.spark.throughput.batches import CELL, KEYS, NEEDED, counted

CELLS_MAX = 4_000_000
"""Cells, at most: half a gigabyte. Traffic has far fewer cells than records, at worst five each."""
MERGED_AT = 500_000
"""Number of partial cells that are merged before more are read."""
_SUMS = [
    ("messages", "sum"),
    ("total", "sum"),
    ("least", "min"),
    ("most", "max"),
    ("first_ms", "min"),
    ("last_ms", "max"),
]


def cells_of(selection: RowSelection, *, with_ports: bool = False) -> pa.Table:
    """Return all cells of a selection. Raises StoreError, and JobError if there are too many."""
    found = CELL.empty_table()
    parts: list[pa.RecordBatch] = []
    columns = ordered(NEEDED)
    for _number, store in enumerate(selection.stores):
        reader = read_arrow(store, columns=columns, **selection.limits())
        for batch in counted(reader, with_ports=with_ports):
            parts.append(batch)
            if sum(part.num_rows for part in parts) >= MERGED_AT:
                found, parts = merged(found, parts), []
                if len(found) > CELLS_MAX:
                    raise JobError(
                        f"{store} is too large for --local: it has more than {CELLS_MAX:,} cells;"
                        " leave --local out, or choose topics or times"
                    )
    return merged(found, parts)


def merged(found: pa.Table, parts: Iterable[pa.RecordBatch]) -> pa.Table:
    """Merge cells that come in parts."""
    table = pa.concat_tables([found, pa.Table.from_batches(list(parts), schema=CELL)])
    if len(table) == 0:
        return table
    added = table.group_by(list(KEYS), use_threads=False).aggregate([*_SUMS, ("bits", "list")])
    lists = added["bits_list"].combine_chunks()
    starts = lists.offsets.to_numpy()[:-1]
    bits = np.bitwise_or.reduceat(lists.flatten().to_numpy(zero_copy_only=False), starts)
    return pa.table(
        [
            *(added[name] for name in KEYS),
            *(added[f"{name}_{function}"] for name, function in _SUMS),
            pa.array(bits, pa.int64()),
        ],
        schema=CELL,
    )


def of_metrics(cells: pa.Table, *metrics: str) -> pa.Table:
    """Return the cells of some metrics."""
    return cells.filter(pc.is_in(cells["metric"], pa.array(metrics)))


def added(cells: pa.Table, keys: Sequence[str]) -> list[dict[str, object]]:
    """Add up cells to coarser keys; return a row for each value of the keys."""
    if len(cells) == 0:
        return []
    found = cells.group_by(list(keys), use_threads=False).aggregate(_SUMS)
    names = [*keys, *(f"{name}_{function}" for name, function in _SUMS)]
    plain = found.select(names).rename_columns([*keys, *(name for name, _ in _SUMS)])
    rows: list[dict[str, object]] = plain.to_pylist()
    return rows
