"""Commit log records: their bytes, refused records, untouched memory."""

import contextlib
import ctypes
import struct
import zlib
from typing import Any

import pytest

from turbopump.pyx import record
from turbopump.pyx.record import append, append_batch, append_filler, decode, scan, validate
from turbopump.pyx.region import Region

V4 = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"
V6 = bytes(15) + b"\x01\x00\x00\x2a\x9f"
MAGIC = {record.V1: 0xDAA320A7, record.V2: 0xDAA320AB}
FIELDS: dict[str, Any] = {
    "log_offset": 0x1122334455667788,
    "topic": b"TopicA",
    "body": b"some body",
    "properties": b"KEYS\x01k1 k2\x02TAGS\x01t\x02",
    "queue_id": 3,
    "flag": -7,
    "queue_offset": 42,
    "sys_flag": 0x8,
    "born_timestamp_ms": 1_700_000_000_001,
    "born_host": V4,
    "store_timestamp_ms": 1_700_000_000_002,
    "store_host": V4,
    "reconsume_times": 2,
    "prepared_transaction_offset": 99,
    "version": record.V1,
}
BATCH_FIELDS = {
    key: value
    for key, value in FIELDS.items()
    if key not in ("body", "properties", "flag", "prepared_transaction_offset")
}


def element(body: bytes, properties: bytes = b"", flag: int = 0, size: int | None = None) -> bytes:
    size = 22 + len(body) + len(properties) if size is None else size
    head = struct.pack(">iiiii", size, 0, 0, flag, len(body))
    return head + body + struct.pack(">h", len(properties)) + properties


def exact_region(content: bytes) -> Region:
    """Memory that ends with the content, so that the sanitizers report a read beyond it."""
    return Region((ctypes.c_uint8 * len(content)).from_buffer_copy(content))


def one(**changes: Any) -> tuple[Region, int]:
    region = Region(bytearray(8192))
    size = append(region, 0, region.size, **{**FIELDS, **changes})
    assert size > 0
    return region, size


def test_the_numbers_of_the_format() -> None:
    assert (record.V1, record.V2, record.BLANK) == (-626843481, -626843477, -875286124)
    assert record.record_size(0, 0, 0, 8, 8, record.V1) == 91
    assert record.record_size(6, 9, 24, 8, 20, record.V2) == 91 + 12 + 1 + 6 + 9 + 24


def test_the_bytes_of_a_record() -> None:
    region, size = one()
    body, topic, properties = FIELDS["body"], FIELDS["topic"], FIELDS["properties"]
    wanted = struct.pack(
        ">iIiiiqqiq8sq8siqi",
        91 + len(body) + len(topic) + len(properties),
        MAGIC[record.V1],
        zlib.crc32(body) & 0x7FFFFFFF,
        3,
        -7,
        42,
        0x1122334455667788,
        0x8,
        1_700_000_000_001,
        V4,
        1_700_000_000_002,
        V4,
        2,
        99,
        len(body),
    )
    wanted += body + bytes([len(topic)]) + topic + struct.pack(">h", len(properties)) + properties
    assert region.read(0, size) == wanted
    assert region.is_zero(size, region.size - size)


@pytest.mark.parametrize("born, store, bits", [(V4, V6, 0x20), (V6, V4, 0x10), (V6, V6, 0x30)])
def test_ipv6_bits_follow_the_hosts(born: bytes, store: bytes, bits: int) -> None:
    region, size = one(born_host=born, store_host=store, sys_flag=0x38 ^ bits)
    found = decode(region, 0, size)
    assert (found.born_host, found.store_host, found.sys_flag) == (born, store, 0x8 | bits)


def test_a_long_topic_needs_version_2() -> None:
    topic = b"%RETRY%" + b"g" * 150
    region, size = one(topic=topic, version=record.V2)
    found = decode(region, 0, size, 1000)
    assert (found.magic, found.topic, found.log_offset) == (record.V2, topic, 1000)
    with pytest.raises(ValueError, match="topic"):
        one(topic=topic)


def test_decode_gives_back_every_field() -> None:
    region, size = one()
    found = decode(region, 0, region.size, 5)
    for name, value in FIELDS.items():
        if name == "log_offset":
            assert (found.physical_offset, found.log_offset) == (value, 5)
        elif name == "version":
            assert found.magic == value
        else:
            assert getattr(found, name) == value, name
    assert (found.size, found.crc_ok) == (size, True)
    assert found.body_crc == zlib.crc32(FIELDS["body"]) & 0x7FFFFFFF


def test_an_empty_body_has_no_crc() -> None:
    region, size = one(body=b"")
    assert decode(region, 0, size).body_crc == 0
    region.put_i32(8, 12345)
    assert decode(region, 0, size).crc_ok
    assert scan(region, 0, size).status == record.OK


def test_a_damaged_body_is_seen() -> None:
    region, size = one()
    region.write(88, b"S")
    assert not decode(region, 0, size).crc_ok
    assert scan(region, 0, size).status == record.BAD_RECORD
    assert "CRC" in scan(region, 0, size).reason
    assert scan(region, 0, size, check_crc=False).count == 1


def test_the_crc_property_covers_the_record() -> None:
    for properties, separator in [(b"", b""), (b"a\x01b\x02", b""), (b"a\x01b", b"\x02")]:
        region, size = one(properties=properties, property_crc=True)
        crc = zlib.crc32(region.read(0, size - 20)) & 0x7FFFFFFF
        tail = b"__CRC32#\x01" + f"{crc:010d}"[::-1].encode() + b"\x02"
        assert decode(region, 0, size).properties == properties + separator + tail
        assert validate(region, 0, size, True, True).count == 1
        region.put_i32(12, 999)  # the queue id: no body CRC sees it
        assert validate(region, 0, size, True, False).count == 1
        damaged = validate(region, 0, size, True, True)
        assert (damaged.status, damaged.count) == (record.BAD_RECORD, 0)
    region, size = one()
    assert "property" in validate(region, 0, size, True, True).reason


@pytest.mark.parametrize(
    "changes, word",
    [
        ({"topic": b"t" * 128}, "topic"),
        ({"topic": b"t" * 32768, "version": record.V2}, "topic"),
        ({"properties": b"p" * 32768}, "properties"),
        ({"properties": b"p" * 32747, "property_crc": True}, "properties"),
        ({"born_host": b"1234567"}, "host"),
        ({"store_host": b"123456789"}, "host"),
        ({"version": 7}, "version"),
        ({"version": record.BLANK}, "version"),
    ],
)
def test_fields_that_no_record_holds(changes: dict[str, Any], word: str) -> None:
    region = Region(bytearray(1 << 17))
    with pytest.raises(ValueError, match=word):
        append(region, 0, region.size, **{**FIELDS, **changes})
    assert region.is_zero(0, region.size)


def test_properties_may_be_as_long_as_they_can_be() -> None:
    region = Region(bytearray(1 << 17))
    for properties, crc in [(b"p" * 32767, False), (b"p" * 32746, True)]:
        size = append(
            region, 0, region.size, **{**FIELDS, "properties": properties, "property_crc": crc}
        )
        assert len(decode(region, 0, size).properties) == 32767


def test_a_filler_must_fit_behind_the_record() -> None:
    _, size = one()
    for room in (0, 8, size - 1, size, size + 7):
        region = Region(bytearray(room))
        assert append(region, 0, room, **FIELDS) == -record.NO_ROOM
        assert region.is_zero(0, room)
    region = Region(bytearray(size + 8))
    assert append(region, 0, size + 8, **FIELDS) == size
    append_filler(region, size, size + 8)
    found = scan(region, 0, region.size)
    assert (found.status, found.count, found.position) == (record.BLANK_FOUND, 1, size)


def test_the_limit_is_not_the_region() -> None:
    region = Region(bytearray(1000))
    assert append(region, 0, 100, **FIELDS) == -record.NO_ROOM
    with pytest.raises(IndexError):
        append(region, 0, 1001, **FIELDS)
    with pytest.raises(IndexError):
        append(region, 900, 800, **FIELDS)
    with pytest.raises(TypeError):
        append(Region(bytes(1000)), 0, 1000, **FIELDS)


def test_a_filler_says_how_much_is_left() -> None:
    region = Region(bytearray(b"\xaa" * 100))
    append_filler(region, 40, 100)
    assert (region.get_i32(40), region.get_i32(44)) == (60, record.BLANK)
    assert region.read(48, 52) == b"\xaa" * 52
    with pytest.raises(ValueError):
        append_filler(region, 93, 100)


def test_a_batch_becomes_consecutive_records() -> None:
    elements = [(b"one", b"KEYS\x01a\x02", 5), (b"", b"", -1), (b"three" * 50, b"x\x01y", 0)]
    batch = b"".join(element(*parts) for parts in elements)
    region = Region(bytearray(4096))
    sizes = append_batch(region, 100, region.size, batch=batch, **BATCH_FIELDS)
    assert isinstance(sizes, list)
    at = 100
    for i, ((body, properties, flag), size) in enumerate(zip(elements, sizes, strict=True)):
        found = decode(region, at, at + size, FIELDS["log_offset"])
        assert (found.body, found.properties, found.flag) == (body, properties, flag)
        assert found.queue_offset == 42 + i
        assert found.physical_offset == FIELDS["log_offset"] + at - 100
        assert (found.prepared_transaction_offset, found.crc_ok) == (0, True)
        at += size
    assert scan(region, 100, at).count == 3


def test_a_batch_goes_whole_or_not() -> None:
    batch = element(b"x" * 10) * 3
    total = 3 * (91 + 6 + 10)
    for room in (0, 100, total, total + 7):
        region = Region(bytearray(room))
        assert append_batch(region, 0, room, batch=batch, **BATCH_FIELDS) == -record.NO_ROOM
        assert region.is_zero(0, room)
    region = Region(bytearray(total + 8))
    assert append_batch(region, 0, total + 8, batch=batch, **BATCH_FIELDS) == [107] * 3


@pytest.mark.parametrize(
    "batch",
    [
        b"",
        b"\x00" * 21,
        element(b"x")[:-1],
        element(b"x") + b"\x00",
        element(b"x" * 5, b"p" * 5)[:-1],
        struct.pack(">iiiii", 30, 0, 0, 0, -1) + bytes(10),
        struct.pack(">iiiii", 30, 0, 0, 0, 1 << 30) + bytes(10),
        struct.pack(">iiiiih", 22, 0, 0, 0, 0, -1),
        struct.pack(">iiiiih", 22, 0, 0, 0, 0, 1),
        element(b"x", size=-8),
        element(b"x", size=0),
        element(b"x", size=22),
        element(b"x", size=24),
        element(b"x", size=1 << 30),
    ],
)
def test_a_malformed_batch_writes_nothing(batch: bytes) -> None:
    region = Region(bytearray(4096))
    for body in [batch, element(b"good") + batch] if batch else [batch]:
        with pytest.raises(ValueError, match="batch"):
            append_batch(region, 0, 4096, batch=body, **BATCH_FIELDS)
    assert region.is_zero(0, 4096)


def test_no_length_reads_behind_an_exact_batch() -> None:
    region = Region(bytearray(4096))
    whole = element(b"b" * 20, b"p" * 20)
    for at, form in [(16, ">i"), (40, ">h")]:
        for length in range(len(whole)):
            changed = bytearray(whole)
            struct.pack_into(form, changed, at, length)
            for tail in (b"", bytes(6)):
                body = exact_region(bytes(changed[: len(whole) - len(tail)]) + tail)
                with contextlib.suppress(ValueError):
                    append_batch(region, 0, 4096, batch=body.view(0, body.size), **BATCH_FIELDS)
    for end in range(1, len(whole)):
        body = exact_region(whole[:end])
        with pytest.raises(ValueError, match="batch"):
            append_batch(region, 0, 4096, batch=body.view(0, end), **BATCH_FIELDS)


def test_scan_rows_hold_positions_in_the_region() -> None:
    region = Region(bytearray(4096))
    size = append(region, 200, 4096, **FIELDS)
    assert append(region, 200 + size, 4096, **{**FIELDS, "born_host": V6}) == size + 12
    found = scan(region, 200, 200 + 2 * size + 12)
    assert (found.status, found.count, found.reason) == (record.OK, 2, "")
    assert found.rows.shape == (2, record.ROW_WIDTH)
    first, second = found.rows.tolist()
    assert first[record.POSITION] == 200
    assert second[record.POSITION] == 200 + size
    for row in (first, second):
        for at, length, name in [
            (record.TOPIC_AT, record.TOPIC_SIZE, "topic"),
            (record.BODY_AT, record.BODY_SIZE, "body"),
            (record.PROPERTIES_AT, record.PROPERTIES_SIZE, "properties"),
        ]:
            assert region.read(row[at], row[length]) == FIELDS[name]
        assert region.read(row[record.STORE_HOST_AT], row[record.STORE_HOST_SIZE]) == V4
        assert row[record.CRC_OK] == 1
    assert region.read(second[record.BORN_HOST_AT], second[record.BORN_HOST_SIZE]) == V6
    assert (second[record.SIZE], second[record.SYS_FLAG]) == (size + 12, 0x18)


def test_scan_goes_on_after_its_rows_are_full() -> None:
    region = Region(bytearray(4096))
    at = 0
    for _ in range(5):
        at += append(region, at, 4096, **FIELDS)
    seen, position = 0, 0
    while position < at:
        found = scan(region, position, at, max_rows=2)
        assert (found.status, found.count <= 2) == (record.OK, True)
        seen, position = seen + found.count, found.position
    assert seen == 5
    assert scan(region, 0, at, max_rows=0).count == 0
    assert validate(region, 0, at).count == 5


def test_no_records_no_rows() -> None:
    region = Region(bytearray(100))
    for found in (scan(region, 50, 50), scan(region, 0, 100), validate(region, 0, 100)):
        assert (found.count, len(found.rows)) == (0, 0)
    assert scan(region, 0, 100).status == record.BAD_RECORD
    assert "empty" in scan(region, 0, 100).reason


def damaged(position: int, value: bytes) -> record.ScanResult:
    region, size = one()
    region.write(position, value)
    return scan(region, 0, size, check_crc=False)


@pytest.mark.parametrize(
    "position, value, word",
    [
        (0, struct.pack(">i", 90), "size"),
        (0, struct.pack(">i", -1), "size"),
        (4, b"\x00\x00\x00\x01", "magic"),
        (36, struct.pack(">i", 0x10), ""),
        (84, struct.pack(">i", -1), "body"),
        (84, struct.pack(">i", 1 << 30), "body"),
        (84, struct.pack(">i", 8), ""),
        (97, b"\xff", "topic"),
        (97, b"\x7f", "topic"),
        (97, b"\x05", ""),
        (104, struct.pack(">h", -1), "properties"),
        (104, struct.pack(">h", 300), "properties"),
        (104, struct.pack(">h", 10), "add up"),
    ],
)
def test_lengths_that_do_not_agree_are_refused(position: int, value: bytes, word: str) -> None:
    found = damaged(position, value)
    assert (found.status, found.count, found.position) == (record.BAD_RECORD, 0, 0)
    assert word in found.reason


@pytest.mark.parametrize("version, length_form", [(record.V1, ">b"), (record.V2, ">h")])
@pytest.mark.parametrize("properties", [b"", b"p" * 20])
def test_no_length_reads_behind_an_exact_record(
    version: int, length_form: str, properties: bytes
) -> None:
    region, size = one(version=version, properties=properties)
    whole = region.read(0, size)
    body, topic = len(FIELDS["body"]), len(FIELDS["topic"])
    width = struct.calcsize(length_form)
    topic_at = 88 + body
    properties_at = topic_at + width + topic
    for at, form, kept in [
        (84, ">i", body),
        (topic_at, length_form, topic),
        (properties_at, ">h", len(properties)),
    ]:
        left = size - at - struct.calcsize(form)
        for length in range(left + 4):
            changed = bytearray(whole)
            struct.pack_into(form, changed, at, length)
            # The bytes that the parser takes for the next field if a length is too large.
            for filler in (b"", b"\x00" * 6):
                exact = exact_region(bytes(changed[: size - len(filler)]) + filler)
                found = scan(exact, 0, size, check_crc=False)
                assert filler or found.count == (length == kept), (at, length)
    for start in range(17, 33):
        # Above 16 bytes a ctypes array is memory of its own.
        assert scan(exact_region(bytes(33)), start, 33).count == 0
    for end in range(size):
        assert scan(exact_region(whole[:end]), 0, end).count == 0
        patched = struct.pack(">i", end) + whole[4:end]
        if end > 8:
            assert scan(exact_region(patched), 0, end).count == 0, end


@pytest.mark.parametrize("sys_flag", [0, 0x10, 0x20, 0x30])
def test_the_fixed_part_must_fit_the_size(sys_flag: int) -> None:
    region, _ = one(body=b"", topic=b"", properties=b"")
    region.put_i32(36, sys_flag)
    for size in range(80, 130):
        region.put_i32(0, size)
        exact = exact_region(region.read(0, size))
        assert scan(exact, 0, size).count == (size == 91 + 12 * sys_flag.bit_count())


def test_a_size_that_no_record_has_is_refused() -> None:
    region = Region(bytearray(200))
    with pytest.raises(ValueError, match="body"):
        record.record_size(1, (1 << 31) - 92, 0, 8, 8, record.V1)
    assert record.record_size(1, (1 << 31) - 93, 0, 8, 8, record.V1) == (1 << 31) - 1
    for sizes in [(-1, 0, 0), (0, -1, 0), (0, 0, -1)]:
        with pytest.raises(ValueError):
            record.record_size(*sizes, 8, 8, record.V1)
    with pytest.raises(IndexError):
        append_filler(region, 201, 200)


def test_a_record_beyond_the_range_is_short() -> None:
    region, size = one()
    for end in range(8, size):
        assert scan(region, 0, end).status == record.SHORT
        with pytest.raises(ValueError, match="ends inside"):
            decode(region, 0, end)
    assert damaged(0, struct.pack(">i", 1 << 30)).status == record.SHORT
    for end in range(1, 8):
        assert scan(region, 0, end).status == record.SHORT


def test_decode_names_the_bytes_it_found_instead() -> None:
    region = Region(bytearray(200))
    append_filler(region, 0, 200)
    with pytest.raises(ValueError, match="filler"):
        decode(region, 0, 200)
    with pytest.raises(ValueError, match="empty"):
        decode(region, 50, 200)
    with pytest.raises(IndexError):
        decode(region, 50, 201)
