"""The table that represents a store: its columns, their order and their types.

Owns the single definition that readers, jobs, exports and tests share. It must never read a store,
nor need Spark: the same types go to pyarrow here and, as DDL, to Spark.

One row is one record of the commit log. Bytes of names and properties that are not UTF-8 become
U+FFFD: a sender's bad byte must not make all other records unreadable.

Tests: tests/unit/spark/source/test_options.py, tests/unit/spark/source/test_format.py
"""

from collections.abc import Iterable

import pyarrow as pa

TIMESTAMP = pa.timestamp("us", tz="UTC")
"""Type of times: Spark has microseconds only; the log's milliseconds fit."""
PROPERTIES = pa.map_(pa.string(), pa.field("value", pa.string(), nullable=False))
"""Type of the column `properties`: texts by name."""

ARROW_SCHEMA = pa.schema(
    [
        pa.field("store", pa.string(), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("queue_id", pa.int32(), nullable=False),
        pa.field("queue_offset", pa.int64(), nullable=False),
        pa.field("log_offset", pa.int64(), nullable=False),
        pa.field("epoch", pa.int32(), nullable=True),
        pa.field("size", pa.int32(), nullable=False),
        pa.field("born_time", TIMESTAMP, nullable=False),
        pa.field("store_time", TIMESTAMP, nullable=False),
        pa.field("born_host", pa.string(), nullable=False),
        pa.field("store_host", pa.string(), nullable=False),
        pa.field("keys", pa.string(), nullable=True),
        pa.field("tags", pa.string(), nullable=True),
        pa.field("unique_key", pa.string(), nullable=True),
        pa.field("properties", PROPERTIES, nullable=False),
        pa.field("flag", pa.int32(), nullable=False),
        pa.field("sys_flag", pa.int32(), nullable=False),
        pa.field("reconsume_times", pa.int32(), nullable=False),
        pa.field("prepared_transaction_offset", pa.int64(), nullable=False),
        pa.field("body_crc", pa.int32(), nullable=False),
        pa.field("body_size", pa.int32(), nullable=False),
        pa.field("confirmed", pa.bool_(), nullable=False),
        pa.field("body", pa.binary(), nullable=False),
    ]
)
"""The columns, in the order of the table, that their names do not explain:

store: the path as it was given; epoch: of the entry of the epoch file that covers the record, null
without such a file; size: bytes of the whole record; born_host, store_host: "ip:port", IPv6 in
brackets; keys, tags, unique_key: the properties KEYS, TAGS and UNIQ_KEY; body_crc: as stored;
confirmed: the record ends at or before the confirmed end of the store.
"""

COLUMNS: tuple[str, ...] = tuple(ARROW_SCHEMA.names)
"""Names of all columns, in the order of the table."""
BODY_COLUMN = "body"
"""Name of the column with the message's body."""
COLUMNS_WITHOUT_BODY: tuple[str, ...] = tuple(name for name in COLUMNS if name != BODY_COLUMN)
"""Names of all columns but the body, in the order of the table."""


class UnknownColumn(ValueError):
    """A requested column that the table does not have; the text names it and all columns."""


def order_columns(columns: Iterable[str] | None) -> tuple[str, ...]:
    """Return the requested columns in the table's order, each once; None: all. Raises
    UnknownColumn."""
    if columns is None:
        return COLUMNS
    wanted = set(columns)
    for name in sorted(wanted - set(COLUMNS)):
        raise UnknownColumn(f"there is no column {name!r}; there are {', '.join(COLUMNS)}")
    return tuple(name for name in COLUMNS if name in wanted)


def parse_columns(text: str | None) -> tuple[str, ...]:
    """Parse a comma list of columns into the table's order; "" and None: all. Raises
    UnknownColumn."""
    names = [name.strip() for name in (text or "").split(",")]
    return order_columns([name for name in names if name] or None)


def arrow_schema(columns: Iterable[str] | None = None) -> pa.Schema:
    """Return the Arrow schema of some columns, in the table's order; None: all. Raises
    UnknownColumn."""
    return pa.schema([ARROW_SCHEMA.field(name) for name in order_columns(columns)])
