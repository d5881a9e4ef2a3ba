"""The tables of the throughput job without Spark: for small stores, in one process, without Java.

Owns pyarrow's way of each step of throughput/analysis.py, and the bound on the number of cells. It
must never need pyspark, nor keep records.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from turbopump.spark.arrow import read_arrow
from turbopump.spark.schema import order_columns
from turbopump.spark.selection import RowSelection
from turbopump.spark.session import JobError
from turbopump.spark.throughput.batches import CELL, KEYS, NEEDED, count_cells
from turbopump.spark.throughput.cells import SUMS, Derivation
from turbopump.spark.throughput.result import Row

CELLS_MAX = 4_000_000
"""Cells, at most: half a gigabyte. Traffic has far fewer cells than records, at worst five each."""
MERGED_AT = 500_000
"""Number of partial cells that are merged before more are read."""
_ADDED = [
    ("messages", "sum"),
    ("total", "sum"),
    ("least", "min"),
    ("most", "max"),
    ("first_ms", "min"),
    ("last_ms", "max"),
]
_TOTALS: Mapping[str, Callable[[Any], Any]] = {
    "count": len,
    "distinct": lambda column: pc.count_distinct(column).as_py(),
    "max": lambda column: pc.max(column).as_py() or 0,
    "sum": lambda column: pc.sum(column).as_py() or 0,
}


def cells_of(selection: RowSelection, *, with_ports: bool = False) -> pa.Table:
    """Return all cells of a selection, each once, as a table of CELL. `with_ports` distinguishes
    producers by port. Raises StoreError, and JobError for over CELLS_MAX cells."""
    found = CELL.empty_table()
    parts: list[pa.RecordBatch] = []
    columns = order_columns(NEEDED)
    for _number, store in enumerate(selection.stores):
        reader = read_arrow(store, columns=columns, **selection.read_arguments())
        for batch in count_cells(reader, with_ports=with_ports):
            parts.append(batch)
            if sum(part.num_rows for part in parts) >= MERGED_AT:
                found, parts = merge_cells(found, parts), []
                if len(found) > CELLS_MAX:
                    raise JobError(
                        f"{store} is too large for --local: it has more than {CELLS_MAX:,} cells;"
                        " leave --local out, or choose topics or times"
                    )
    return merge_cells(found, parts)


def merge_cells(found: pa.Table, parts: Iterable[pa.RecordBatch]) -> pa.Table:
    """Return the cells of `found` and `parts` (all with the columns CELL), each once."""
    table = pa.concat_tables([found, pa.Table.from_batches(list(parts), schema=CELL)])
    if len(table) == 0:
        return table
    added = table.group_by(list(KEYS), use_threads=False).aggregate([*_ADDED, ("bits", "list")])
    lists = added["bits_list"].combine_chunks()
    starts = lists.offsets.to_numpy()[:-1]
    bits = np.bitwise_or.reduceat(lists.flatten().to_numpy(zero_copy_only=False), starts)
    return pa.table(
        [
            *(added[name] for name in KEYS),
            *(added[f"{name}_{function}"] for name, function in _ADDED),
            pa.array(bits, pa.int64()),
        ],
        schema=CELL,
    )


class LocalTables:
    """The steps of analysis.Tables on pyarrow's tables, each held in memory."""

    def write_timed(self, _name: str, table: pa.Table) -> pa.Table:
        """Return the table itself: none is written."""
        return table

    def cache_table(self, table: pa.Table) -> pa.Table:
        """Return the table itself."""
        return table

    def filter_rows(self, table: pa.Table, column: str, values: Sequence[str]) -> pa.Table:
        """Return the rows whose column has one of the texts."""
        return table.filter(pc.is_in(table[column], pa.array(values, pa.string())))

    def at_least(self, table: pa.Table, column: str, least: int) -> pa.Table:
        """Return the rows whose column is not below `least`."""
        return table.filter(pc.greater_equal(table[column], least))

    def sum_cells(self, cells: pa.Table, keys: Sequence[str]) -> pa.Table:
        """Return the sums of the cells by `keys`: a row with the columns SUMS for each value of
        the keys, null for other keys, `bits` 0."""
        doubles = cells.cast(cells.schema.set(_TOTAL, SUMS.field(_TOTAL)))
        found = doubles.group_by(list(keys), use_threads=False).aggregate(_ADDED)
        made = {name: found[f"{name}_{function}"] for name, function in _ADDED}
        made |= {name: found[name] for name in keys}
        zeros = pa.array(np.zeros(len(found), np.int64))
        made["bits"] = zeros
        return pa.table(
            [made.get(name, pa.nulls(len(found), SUMS.field(name).type)) for name in SUMS.names],
            schema=SUMS,
        )

    def union_tables(self, *tables: pa.Table) -> pa.Table:
        """Return the rows of all tables."""
        return pa.concat_tables(tables, promote_options="permissive")

    def by_time_step(self, cells: pa.Table, step_s: int) -> pa.Table:
        """Return the cells with each second rounded down to a multiple of `step_s`."""
        seconds = cells["second"].to_numpy().astype(np.int64)
        at = cells.schema.get_field_index("second")
        return cells.set_column(at, "second", pa.array(seconds - seconds % step_s))

    def derive_table(self, cells: pa.Table, derivation: Derivation) -> pa.Table:
        """Return the table that the derivation makes from cells with the columns SUMS."""
        order = [(name, "ascending") for name in (*derivation.keys, *derivation.order)]
        batches = (batch.columns for batch in cells.sort_by(order).to_batches())
        return pa.Table.from_pylist(list(derivation.derive_rows(batches)), derivation.schema)

    def first_rows(
        self, table: pa.Table, order: Sequence[str], limit: int | None = None
    ) -> tuple[Row, ...]:
        """Return the first `limit` rows, None: all, by `column` or `column desc`, nulls last."""
        names = (text.partition(" ") for text in order)
        by = [(name, "descending" if direction else "ascending") for name, _, direction in names]
        return tuple(table.sort_by(by).slice(0, limit).to_pylist())

    def compute_totals(self, table: pa.Table, wanted: Mapping[str, str]) -> Row:
        """Return one number for each name; see analysis.Tables.compute_totals."""
        parts = {name: text.partition(" ") for name, text in wanted.items()}
        return {
            name: _TOTALS[function](table[column] if column else table)
            for name, (function, _, column) in parts.items()
        }


_TOTAL = SUMS.get_field_index("total")
