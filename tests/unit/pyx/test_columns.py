"""Guarantees of the column decoder besides its rows: memory, limits, refusals."""

import ctypes
from typing import Any

import pytest
from tests.columns_model import batches, numbers, rows, values

from turbopump.pyx import columns, record
from turbopump.pyx.columns import COLUMNS, KINDS, NULLABLE, Batch, Decoder
from turbopump.pyx.region import Region

COUNT = 50
NOW_MS = 1_700_000_000_000


def log_of(count: int, body_size: int = 10, **changed: Any) -> Region:
    fields: dict[str, Any] = {
        "topic": b"T",
        "properties": b"KEYS\1k\2TAGS\1t\2",
        "queue_id": 0,
        "flag": 0,
        "sys_flag": 0,
        "born_timestamp_ms": NOW_MS,
        "born_host": bytes(8),
        "store_timestamp_ms": NOW_MS,
        "store_host": bytes(20),
        "reconsume_times": 0,
        "prepared_transaction_offset": 0,
        "version": record.V2,
        **changed,
    }
    size = body_size + 200 + len(changed.get("properties", b"")) + len(changed.get("topic", b""))
    region = Region(bytearray(count * size))
    at = 0
    for number in range(count):
        body = number.to_bytes(4, "big") + bytes(body_size)
        at += record.append(
            region, at, region.size, log_offset=at, body=body, queue_offset=number, **fields
        )
    return Region(region.read(0, at))


def address(batch: Batch, name: str) -> int:
    view = batch.column(name)[-1]
    assert view is not None
    return ctypes.addressof(ctypes.c_char.from_buffer(view))


def test_the_table_has_these_columns() -> None:
    assert tuple(KINDS) == COLUMNS and len(COLUMNS) == 22
    assert set(KINDS.values()) == {"int32", "int64", "time", "bool", "text", "binary", "map"}
    assert set(COLUMNS) > NULLABLE


def test_batches_and_views_keep_their_bytes() -> None:
    log = log_of(COUNT)
    decoder = Decoder(COLUMNS, batch_rows=7)
    whole = rows(Decoder(COLUMNS).decode(log, 0, log.size, 0), COLUMNS)
    kept = list(batches(decoder, log, 0, log.size, 0))
    found = [row for batch in kept for row in rows(batch, COLUMNS)]
    assert found == whole and len(kept) == 8
    views = [batch.column("queue_offset")[1] for batch in kept]
    del kept
    assert sum(1 for _ in batches(decoder, log, 0, log.size, 0)) == 8
    assert [n for view in views for n in numbers(view, "q")] == list(range(COUNT))


def test_unreferenced_memory_is_filled_again() -> None:
    log = log_of(COUNT)
    decoder = Decoder(["body", "keys"])
    batch = decoder.decode(log, 0, log.size, 0)
    first = address(batch, "body")
    other = decoder.decode(log, 0, log.size, 0)
    assert address(other, "body") != first
    del batch
    again = decoder.decode(log, 0, log.size, 0)
    assert address(again, "body") == first
    assert values(again, "keys") == ["k"] * COUNT and values(other, "keys") == ["k"] * COUNT


def test_a_column_that_is_not_asked_for_is_not_there() -> None:
    log = log_of(3)
    batch = Decoder(["size", "size"]).decode(log, 0, log.size, 0)
    assert batch.rows == 3 and batch.nbytes == 12
    for call in (batch.column, batch.null_count):
        with pytest.raises(KeyError, match="body"):
            call("body")
    assert Decoder([]).decode(log, 0, log.size, 0).rows == 3


def test_refusals() -> None:
    with pytest.raises(ValueError, match="no column 'store'; there are topic, queue_id"):
        Decoder(["store"])
    for limits in ({"batch_rows": 0}, {"batch_bytes": 0}):
        with pytest.raises(ValueError, match="at least one row and one byte"):
            Decoder(["size"], **limits)
    log = log_of(1)
    decoder = Decoder(["size"])
    with pytest.raises(IndexError):
        decoder.decode(log, 0, log.size + 1, 0)
    log.release()
    with pytest.raises(ValueError, match="released"):
        decoder.decode(log, 0, 10, 0)


def test_a_body_larger_than_a_batch_needs_its_room() -> None:
    log = log_of(2, body_size=5000)
    decoder = Decoder(["body"], batch_bytes=1000)
    batch = decoder.decode(log, 0, log.size, 0)
    assert (batch.status, batch.rows, batch.position) == (columns.NO_ROOM, 0, 0)
    batch = decoder.decode(log, 0, log.size, 0, 6000)
    assert (batch.status, batch.rows) == (columns.OK, 1)
    assert batch.position == log.get_i32(0)


def test_texts_that_do_not_fit_end_a_batch() -> None:
    """Each column has room for at least the longest text of a record, and is never overfilled."""
    value = "é".encode() * 8000
    log = log_of(60, properties=b"KEYS\1" + value + b"\2" + b"n\1v\2" * 1000, topic=value[:2000])
    for wanted in (("keys",), ("properties",), ("topic",), ("born_host", "properties", "topic")):
        found = list(batches(Decoder(wanted, batch_bytes=1), log, 0, log.size, 0))
        assert sum(batch.rows for batch in found) == 60
        assert len(found) > 1
    entries = log_of(60, properties=b"".join(b"%x\1v\2" % n for n in range(4000)))
    found = list(batches(Decoder(["properties"]), entries, 0, entries.size, 0))
    assert sum(batch.rows for batch in found) == 60 and len(found) > 5
    assert sum(batch.entries for batch in found) == 60 * 4000


def test_why_a_decode_stops() -> None:
    log = log_of(4)
    size = log.get_i32(0)
    decoder = Decoder(["queue_offset"])
    batch = decoder.decode(log, 0, log.size - 1, 0)
    assert (batch.status, batch.rows, batch.position) == (columns.SHORT, 3, 3 * size)
    batch = decoder.decode(log, 0, log.size, 7)
    assert (batch.status, batch.rows) == (columns.BAD_RECORD, 0)
    assert batch.reason == "a record says it lies elsewhere"
    batch = Decoder(["size"], end_log_offset=2 * size).decode(log, 0, log.size, 0)
    assert (batch.status, batch.rows, batch.position) == (columns.OK, 2, 2 * size)
    filled = bytearray(log.read(0, log.size) + bytes(8))
    record.append_filler(Region(filled), log.size, log.size + 8)
    batch = decoder.decode(Region(bytes(filled)), 0, log.size + 8, 0)
    assert (batch.status, batch.rows, batch.position) == (columns.BLANK_FOUND, 4, log.size)
    filled[size + 101] ^= 1  # the second record's body
    checked = Decoder(["size"], check_body=True).decode(Region(bytes(filled)), 0, log.size, 0)
    assert (checked.status, checked.rows, checked.seen) == (columns.BAD_RECORD, 1, 1)
    assert (checked.position, checked.skip) == (size, size)


def test_times_that_no_calendar_has_are_the_nearest_that_one_has() -> None:
    far = (1 << 63) - 1
    log = log_of(1, born_timestamp_ms=far, store_timestamp_ms=-far)
    batch = Decoder(["born_time", "store_time"]).decode(log, 0, log.size, 0)
    assert values(batch, "born_time") == [253402300799999 * 1000]
    assert values(batch, "store_time") == [-62135596800000 * 1000]
