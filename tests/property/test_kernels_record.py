"""Record kernel against a small Python model, and against garbage.

Buffers are ctypes arrays of the exact size: a bytearray has spare bytes, and the sanitizers of
`make asan` would not see an access one byte too far.
"""

import struct
import zlib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.property.memory.regions import exact

from turbopump.pyx import record

int32 = st.integers(-(1 << 31), (1 << 31) - 1)
int64 = st.integers(-(1 << 63), (1 << 63) - 1)
hosts = st.binary(min_size=8, max_size=8) | st.binary(min_size=20, max_size=20)
texts = st.binary(max_size=300)

messages = st.fixed_dictionaries(
    {
        "topic": st.binary(max_size=127),
        "body": st.binary(max_size=600),
        "properties": texts,
        "queue_id": int32,
        "flag": int32,
        "queue_offset": int64,
        "sys_flag": int32,
        "born_timestamp_ms": int64,
        "born_host": hosts,
        "store_timestamp_ms": int64,
        "store_host": hosts,
        "reconsume_times": int32,
        "prepared_transaction_offset": int64,
        "version": st.sampled_from([record.V1, record.V2]),
        "property_crc": st.booleans(),
    }
)


def model(message: dict[str, Any], log_offset: int) -> bytes:
    """The record, as the table of the format gives it."""
    properties = message["properties"]
    if message["property_crc"]:
        properties += b"\x02" if properties and not properties.endswith(b"\x02") else b""
        properties += b"\x00" * 20
    topic, body = message["topic"], message["body"]
    born, store = message["born_host"], message["store_host"]
    sys_flag = message["sys_flag"] & ~0x30 | (len(born) == 20) << 4 | (len(store) == 20) << 5
    topic_size = bytes([len(topic)]) if message["version"] == record.V1 else b"\x00"
    if message["version"] == record.V2:
        topic_size = struct.pack(">h", len(topic))
    rest = struct.pack(
        ">iiiiqqiq",
        message["version"],
        zlib.crc32(body) & 0x7FFFFFFF,
        message["queue_id"],
        message["flag"],
        message["queue_offset"],
        log_offset,
        sys_flag,
        message["born_timestamp_ms"],
    )
    rest += born + struct.pack(">q", message["store_timestamp_ms"]) + store
    rest += struct.pack(">iq", message["reconsume_times"], message["prepared_transaction_offset"])
    rest += struct.pack(">i", len(body)) + body + topic_size + topic
    rest += struct.pack(">h", len(properties)) + properties
    whole = struct.pack(">i", len(rest) + 4) + rest
    if message["property_crc"]:
        crc = zlib.crc32(whole[:-20]) & 0x7FFFFFFF
        whole = whole[:-20] + b"__CRC32#\x01" + f"{crc:010d}"[::-1].encode() + b"\x02"
    return whole


@given(st.lists(messages, min_size=1, max_size=5), st.integers(0, 50))
def test_records_are_those_of_the_model_and_come_back(
    written: list[dict[str, Any]], start: int
) -> None:
    wanted = [model(message, 1000 * n) for n, message in enumerate(written)]
    region = exact(start + sum(map(len, wanted)) + 8)
    at = start
    for n, message in enumerate(written):
        size = record.append(region, at, region.size, log_offset=1000 * n, **message)
        assert region.read(at, size) == wanted[n]
        found = record.decode(region, at, at + size)
        for name in (
            "topic",
            "body",
            "queue_id",
            "flag",
            "queue_offset",
            "born_host",
            "store_host",
        ):
            assert getattr(found, name) == message[name]
        assert found.crc_ok
        at += size
    scanned = record.scan(region, start, at)
    assert (scanned.status, scanned.count, scanned.position) == (record.OK, len(written), at)
    sizes = [row[record.SIZE] for row in scanned.rows.tolist()]
    assert sizes == [len(whole) for whole in wanted]
    with_crc = [message["property_crc"] for message in written]
    checked = record.validate(region, start, at, True, True)
    assert checked.count == (with_crc.index(False) if False in with_crc else len(written))


@given(messages, st.integers(0, 20))
def test_one_byte_less_and_it_is_not_written(message: dict[str, Any], missing: int) -> None:
    size = len(model(message, 0))
    region = exact(max(0, size + 8 - missing))
    got = record.append(region, 0, region.size, log_offset=0, **message)
    assert got == (size if missing == 0 else -record.NO_ROOM)
    assert missing == 0 or region.is_zero(0, region.size)


@given(messages, st.lists(st.tuples(st.integers(0, 2000), st.binary(min_size=1, max_size=9))))
def test_damage_is_found_or_harmless(
    message: dict[str, Any], damage: list[tuple[int, bytes]]
) -> None:
    whole = bytearray(model(message, 0))
    for position, value in damage:
        at = position % len(whole)
        whole[at : at + len(value)] = value[: len(whole) - at]
    region = exact(len(whole), bytes(whole))
    scanned = record.scan(region, 0, region.size)
    for row in scanned.rows.tolist():
        for at, size in [
            (record.BODY_AT, record.BODY_SIZE),
            (record.TOPIC_AT, record.TOPIC_SIZE),
            (record.PROPERTIES_AT, record.PROPERTIES_SIZE),
        ]:
            region.read(row[at], row[size])
        assert model_accepts(bytes(whole))
    assert scanned.count > 0 or not model_accepts(bytes(whole))


def model_accepts(whole: bytes) -> bool:
    """RocketMQ's rules for one record in a range (checkMessageAndReturnSize)."""
    size, magic, crc = struct.unpack_from(">iii", whole)
    if magic not in (record.V1, record.V2) or not 91 <= size <= len(whole):
        return False
    sys_flag = struct.unpack_from(">i", whole, 36)[0]
    at = 48 + (20 if sys_flag & 0x10 else 8) + 8 + (20 if sys_flag & 0x20 else 8) + 12
    if at + 4 > size:
        return False
    for form in (">i", ">b" if magic == record.V1 else ">h", ">h"):
        if at + struct.calcsize(form) > size:
            return False
        length = struct.unpack_from(form, whole, at)[0]
        at += struct.calcsize(form)
        if length < 0 or at + length > size:
            return False
        if form == ">i" and length and zlib.crc32(whole[at : at + length]) & 0x7FFFFFFF != crc:
            return False
        at += length
    return at == size


@given(st.binary(max_size=400), st.booleans())
def test_garbage_never_crashes(garbage: bytes, with_magic: bool) -> None:
    if with_magic:
        garbage = garbage[:4] + struct.pack(">i", record.V2) + garbage[8:]
    region = exact(len(garbage), garbage)
    scanned = record.scan(region, 0, region.size)
    assert 0 <= scanned.position <= region.size
    record.validate(region, 0, region.size, False, True)


elements = st.lists(st.tuples(st.binary(max_size=200), st.binary(max_size=100), int32), max_size=6)


def batch_of(parts: list[tuple[bytes, bytes, int]]) -> bytes:
    return b"".join(
        struct.pack(">iiiii", 22 + len(body) + len(properties), 7, 7, flag, len(body))
        + body
        + struct.pack(">h", len(properties))
        + properties
        for body, properties, flag in parts
    )


@given(elements, messages, st.integers(0, 30))
def test_a_batch_is_its_elements_one_by_one(
    parts: list[tuple[bytes, bytes, int]], common: dict[str, Any], missing: int
) -> None:
    for name in ("body", "properties", "flag", "prepared_transaction_offset"):
        del common[name]
    common["queue_offset"] = abs(common["queue_offset"]) >> 1
    wanted, sizes = b"", []
    for n, (body, properties, flag) in enumerate(parts):
        own = {"body": body, "properties": properties, "flag": flag}
        rest = {"prepared_transaction_offset": 0, "queue_offset": common["queue_offset"] + n}
        wanted += model({**common, **own, **rest}, 500 + len(wanted))
        sizes.append(len(wanted) - sum(sizes))
    batch = exact(len(batch_of(parts)), batch_of(parts))
    region = exact(max(0, len(wanted) + 8 - missing))
    try:
        got = record.append_batch(
            region, 0, region.size, log_offset=500, batch=batch.view(0, batch.size), **common
        )
    except ValueError:
        assert not parts
        return
    assert got == (sizes if missing == 0 else -record.NO_ROOM)
    assert region.read(0, region.size)[:-8] == (wanted if missing == 0 else bytes(region.size)[:-8])


@given(st.binary(max_size=200))
def test_a_garbage_batch_never_crashes(garbage: bytes) -> None:
    batch = exact(len(garbage), garbage)
    region = exact(4096)
    host = bytes(8)
    try:
        record.append_batch(
            region,
            0,
            region.size,
            log_offset=0,
            topic=b"T",
            batch=batch.view(0, batch.size),
            queue_id=0,
            queue_offset=0,
            sys_flag=0,
            born_timestamp_ms=0,
            born_host=host,
            store_timestamp_ms=0,
            store_host=host,
            reconsume_times=0,
            version=record.V1,
        )
    except ValueError:
        assert region.is_zero(0, region.size)
