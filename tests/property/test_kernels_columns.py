"""The column decoder against a Python model, and against damage and garbage.

Buffers are ctypes arrays of the exact size, see test_kernels_record.py.
"""

import ctypes
import struct
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.columns_model import batches, expected, rows

from turbopump.pyx import columns, record
from turbopump.pyx.columns import COLUMNS, Decoder
from turbopump.pyx.region import Region

BASE = 7_000_000_000
PLACE_AT = 28
int32 = st.integers(-(1 << 31), (1 << 31) - 1)
int64 = st.integers(-(1 << 63), (1 << 63) - 1)
hosts = (
    st.binary(min_size=8, max_size=8)
    | st.binary(min_size=20, max_size=20)
    | st.lists(
        st.sampled_from([b"\0\0", b"\0\1", b"\x0a\xbc", b"\xff\xff"]), min_size=10, max_size=10
    ).map(b"".join)
)
names = st.sampled_from([b"KEYS", b"TAGS", b"UNIQ_KEY", b"a", b"\xc3\xa9", b"\xff", b"\xfe", b""])
words = names | st.binary(max_size=40) | st.text(max_size=12).map(str.encode)
pieces = st.tuples(words, st.sampled_from([b"\1", b"\1\1", b""]), words).map(b"".join)
texts = st.lists(pieces, max_size=30).map(b"\2".join) | st.binary(max_size=300)
topics = st.sampled_from([b"", b"one", b"two", b"T" * 127]) | words.map(lambda word: word[:127])
times = st.integers(1_700_000_000_000, 1_700_000_000_100) | int64
messages = st.fixed_dictionaries(
    {
        "topic": topics,
        "body": st.binary(max_size=600),
        "properties": texts,
        "queue_id": st.integers(0, 3) | int32,
        "flag": int32,
        "queue_offset": int64,
        "sys_flag": int32,
        "born_timestamp_ms": times,
        "born_host": hosts,
        "store_timestamp_ms": times,
        "store_host": hosts,
        "reconsume_times": int32,
        "prepared_transaction_offset": int64,
        "version": st.sampled_from([record.V1, record.V2]),
    }
)
logs = st.lists(messages, max_size=12)
some_columns = st.lists(st.sampled_from(COLUMNS), unique=True)


def exact(content: bytes) -> Region:
    array = (ctypes.c_uint8 * len(content))()
    ctypes.memmove(array, content, len(content))
    return Region(array)


def log_of(written: list[dict[str, Any]], start: int = 0) -> bytes:
    """Leading bytes, then the records one after the other."""
    sizes = [
        record.record_size(
            *(len(m[name]) for name in ("topic", "body", "properties", "born_host", "store_host")),
            m["version"],
        )
        for m in written
    ]
    region = Region(bytearray(start + sum(sizes) + record.FILLER_SIZE))
    at = start
    for message in written:
        at += record.append(region, at, region.size, log_offset=BASE + at, **message)
    return region.read(0, at)


def records_of(region: Region, position: int) -> list[record.Record]:
    """Records up to the first invalid one or the first with another physical offset."""
    found = []
    while position < region.size:
        try:
            one = record.decode(region, position, region.size, BASE)
        except (ValueError, IndexError):
            break
        if one.physical_offset != one.log_offset:
            break
        found.append(one)
        position += one.size
    return found


@given(logs, st.integers(0, 9), some_columns, st.integers(1, 5), st.sampled_from([1, 700, 1 << 20]))
def test_rows_are_those_of_the_model(
    written: list[dict[str, Any]], start: int, wanted: list[str], batch_rows: int, batch_bytes: int
) -> None:
    log = exact(log_of(written, start))
    epochs = [(3, BASE + 300), (4, BASE + 900), (9, BASE + 900)]
    confirmed_end = BASE + 1000
    decoder = Decoder(
        wanted,
        epochs=epochs,
        confirmed_end=confirmed_end,
        check_body=True,
        batch_rows=batch_rows,
        batch_bytes=batch_bytes,
    )
    found = []
    for batch in batches(decoder, log, start, log.size, BASE):
        assert batch.rows <= batch_rows and batch.nbytes >= 0
        found += rows(batch, wanted)
    assert batch.status == columns.OK and batch.position == max(log.size, start)
    models = [expected(one, epochs, confirmed_end) for one in records_of(log, start)]
    assert len(models) == len(written)
    assert found == [tuple(model[name] for name in wanted) for model in models]


@given(
    logs,
    st.none() | st.sets(topics),
    st.none() | st.sets(st.integers(0, 3) | int64),
    st.none() | st.tuples(times, times),
    st.none() | st.tuples(st.integers(0, 4000), st.integers(0, 4000)),
)
def test_filters_equal_the_model(
    written: list[dict[str, Any]],
    wanted_topics: set[bytes] | None,
    queue_ids: set[int] | None,
    store_ms: tuple[int, int] | None,
    offsets: tuple[int, int] | None,
) -> None:
    log = exact(log_of(written))
    low_ms, high_ms = store_ms or (-(1 << 63), (1 << 63) - 1)
    low, high = (BASE + offsets[0], BASE + offsets[1]) if offsets else (0, (1 << 63) - 1)
    decoder = Decoder(
        COLUMNS,
        topics=wanted_topics,
        queue_ids=queue_ids,
        min_store_ms=low_ms,
        max_store_ms=high_ms,
        min_log_offset=low,
        end_log_offset=high,
    )
    found = []
    for batch in batches(decoder, log, 0, log.size, BASE):
        found += rows(batch, COLUMNS)
    assert found == [
        tuple(expected(one)[name] for name in COLUMNS)
        for one in records_of(log, 0)
        if (wanted_topics is None or one.topic in wanted_topics)
        and (queue_ids is None or one.queue_id in queue_ids)
        and low_ms <= one.store_timestamp_ms <= high_ms
        and low <= one.log_offset < high
    ]


@given(
    logs,
    st.lists(st.tuples(st.integers(0, 8000), st.binary(min_size=1, max_size=9)), min_size=1),
    st.booleans(),
)
def test_damage_ends_the_rows_before_it(
    written: list[dict[str, Any]], damage: list[tuple[int, bytes]], check_body: bool
) -> None:
    whole = bytearray(log_of(written) or b"\0")
    for position, value in damage:
        at = position % len(whole)
        whole[at : at + len(value)] = value[: len(whole) - at]
    log = exact(bytes(whole))
    found = []
    decoder = Decoder(COLUMNS, check_body=check_body)
    for batch in batches(decoder, log, 0, log.size, BASE):
        found += rows(batch, COLUMNS)
    records = records_of(log, 0)
    if check_body:
        wrong = [number for number, one in enumerate(records) if not one.crc_ok]
        assert bool(wrong) == (batch.skip > 0)
        records = records[: wrong[0]] if wrong else records
    assert found == [tuple(expected(one)[name] for name in COLUMNS) for one in records]
    assert batch.position == sum(one.size for one in records)
    assert (batch.status == columns.OK) == (batch.position == log.size)
    assert bool(batch.reason) == (batch.status == columns.BAD_RECORD)


@given(st.binary(max_size=600), st.booleans())
def test_garbage_makes_no_rows(garbage: bytes, with_magic: bool) -> None:
    if with_magic:
        garbage = garbage[:4] + struct.pack(">i", record.V2) + garbage[8:]
        garbage = garbage[:PLACE_AT] + struct.pack(">q", BASE) + garbage[PLACE_AT + 8 :]
    log = exact(garbage)
    batch = Decoder(COLUMNS).decode(log, 0, log.size, BASE)
    assert rows(batch, COLUMNS) == [
        tuple(expected(one)[name] for name in COLUMNS) for one in records_of(log, 0)
    ]


@given(
    st.lists(st.sampled_from([b"a", b"bb", b"c\1", b"KEYS"]) | st.binary(max_size=3), max_size=400)
)
def test_many_properties_keep_the_last_value_of_a_name(parts: list[bytes]) -> None:
    text = b"\2".join(part + b"\1" + str(n).encode() for n, part in enumerate(parts))
    host = bytes(8)
    message = {
        "topic": b"T",
        "body": b"",
        "properties": text,
        "queue_id": 0,
        "flag": 0,
        "queue_offset": 0,
        "sys_flag": 0,
        "born_timestamp_ms": 0,
        "born_host": host,
        "store_timestamp_ms": 0,
        "store_host": host,
        "reconsume_times": 0,
        "prepared_transaction_offset": 0,
        "version": record.V1,
    }
    log = exact(log_of([message, message]))
    wanted = ("properties", "keys")
    batch = Decoder(wanted).decode(log, 0, log.size, BASE)
    model = expected(records_of(log, 0)[0])
    assert rows(batch, wanted) == [(model["properties"], model["keys"])] * 2
