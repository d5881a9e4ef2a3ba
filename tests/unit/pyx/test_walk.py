"""Recovery's walk: the records that it accepts beyond a scan, and the limits."""

import ctypes
import struct
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbopump.pyx import record
from turbopump.pyx.region import Region
from turbopump.pyx.walk import CUT_BYTES, part_end, walk, whole_size

HOST = b"\x7f\0\0\1\0\0\0\1"
BASE = 1 << 20


def put(
    region: Region,
    at: int,
    base: int = BASE,
    topic: bytes = b"T",
    body: bytes = b"b" * 40,
    properties: bytes = b"KEYS\x01k\x02",
    number: int = 0,
) -> int:
    return at + record.append(
        region,
        at,
        region.size,
        log_offset=base + at,
        topic=topic,
        body=body,
        properties=properties,
        queue_id=0,
        flag=0,
        queue_offset=number,
        sys_flag=0,
        born_timestamp_ms=1,
        born_host=HOST,
        store_timestamp_ms=1000 + at,
        store_host=HOST,
        reconsume_times=0,
        prepared_transaction_offset=0,
        version=record.V1,
    )


def empty(size: int) -> Region:
    return Region((ctypes.c_char * size)())


def test_takes_all_and_tells_the_last_time() -> None:
    region = empty(4096)
    second = put(region, 0)
    end = put(region, second)
    found = walk(region, 0, end, BASE)
    assert (found.status, found.position, found.count) == (record.OK, end, 2)
    assert (found.store_timestamp_ms, found.reason) == (1000 + second, "")


def test_stops_at_empty_space_filler_and_cut() -> None:
    region = empty(400)
    end = put(region, 0)
    assert walk(region, 0, 400, BASE).status == record.BAD_RECORD
    assert walk(region, 0, 400, BASE).position == end
    record.append_filler(region, end, 400)
    assert walk(region, 0, 400, BASE).status == record.BLANK_FOUND
    cut = walk(region, 0, end - 1, BASE)
    assert (cut.status, cut.position, cut.count) == (record.SHORT, 0, 0)


def test_a_record_of_another_place_is_not_taken() -> None:
    region = empty(4096)
    second = put(region, 0)
    end = put(region, second, base=BASE + 4096)
    found = walk(region, 0, end, BASE)
    assert (found.status, found.position, found.count) == (record.BAD_RECORD, second, 1)
    assert found.reason == "a record says it lies elsewhere"


def test_a_changed_body_is_not_taken() -> None:
    region = empty(4096)
    end = put(region, 0)
    region.write(100, b"x")
    assert "CRC" in walk(region, 0, end, BASE).reason


@pytest.mark.parametrize("torn", [False, True])
def test_a_missing_sector_of_the_properties(torn: bool) -> None:
    region = empty(4096)
    end = put(region, 0, properties=b"P\x01" + b"v" * 1500 + b"\x02")
    region.zero(1024, 512)
    found = walk(region, 0, end, BASE, torn)
    assert found.count == (0 if torn else 1)
    assert found.reason == ("a part of the record's topic or properties is missing" if torn else "")


def test_zeros_inside_a_sector_are_taken() -> None:
    region = empty(4096)
    end = put(region, 0, properties=b"P\x01" + b"v" * 1500 + b"\x02")
    region.zero(1024, 511)
    assert walk(region, 0, end, BASE, True).count == 1


@pytest.mark.parametrize("properties", [b"", b"P\x01" + b"v" * 900 + b"\x02"])
def test_a_record_cut_at_any_byte_is_not_taken(properties: bytes) -> None:
    """A transfer ended there, and zeros follow up to the record's end, or to a sector's."""
    for length in range(1, 1200):
        region = empty(4096)
        end = put(region, 0, properties=properties)
        whole = region.read(0, end)
        if length >= end:
            break
        sector = (length // 512 + 1) * 512
        for stop in (end, min(end, sector)):
            region.write(0, whole)
            region.zero(length, stop - length)
            found = walk(region, 0, end, BASE, CUT_BYTES)
            same = region.read(0, end) == whole
            in_header = length < 100 and stop == sector
            assert found.count == same or in_header, length


def test_bounds_are_checked() -> None:
    region = empty(64)
    with pytest.raises(IndexError):
        walk(region, 0, 65, BASE)
    with pytest.raises(IndexError):
        walk(region, -1, 64, BASE)
    region.release()
    with pytest.raises(ValueError):
        walk(region, 0, 64, BASE)


def test_a_part_of_a_queue_is_whole_records_in_order() -> None:
    region, ends = empty(4096), [0]
    for number in (5, 6, 8):
        ends.append(put(region, ends[-1], number=number))

    def behind(*numbers: int, topic: bytes = b"T", queue_id: int = 0) -> int:
        return part_end(region, ends[0], ends[3], BASE, topic, queue_id, *numbers)

    assert behind(5, 9) == behind(0, 100) == 9
    assert part_end(region, ends[1], ends[2], BASE, b"T", 0, 6, 7) == 7
    assert part_end(region, ends[1], ends[1], BASE, b"T", 0, 6, 7) == 6
    assert behind(6, 9) == behind(5, 8) == -1
    assert behind(5, 9, topic=b"U") == behind(5, 9, topic=b"TT") == behind(5, 9, topic=b"") == -1
    assert behind(5, 9, queue_id=1) == -1
    assert part_end(region, ends[0], ends[3] - 1, BASE, b"T", 0, 5, 9) == -1
    assert part_end(region, ends[0], ends[3], BASE + 1, b"T", 0, 5, 9) == -1
    put(region, ends[2], number=6)
    assert behind(5, 9) == -1, "twice the same"
    put(region, ends[2], number=8)
    region.write(ends[2] - 20, b"\xff")
    assert behind(5, 9) == -1
    with pytest.raises(IndexError):
        part_end(region, 0, 4097, BASE, b"T", 0, 5, 9)


def model(data: bytes, room: int, file_size: int) -> tuple[int, int]:
    """A slow model of `whole_size`."""
    at = 0
    while at < len(data):
        if room < 8:
            return record.BAD_RECORD, at
        if len(data) - at < 8:
            return record.SHORT, at
        size, magic = struct.unpack_from(">ii", data, at)
        if magic == BLANK:
            size = room
        elif magic not in RECORDS or size < 91 or size > room:
            return record.BAD_RECORD, at
        if size > len(data) - at:
            return record.SHORT, at
        at += size
        room = room - size or file_size
    return record.OK, at


BLANK, RECORDS = -875286124, (-626843481, -626843477)
head = st.one_of(
    st.tuples(st.integers(91, 400), st.sampled_from(RECORDS)),
    st.tuples(st.just(8), st.just(BLANK)),
    st.tuples(st.integers(-5, 90), st.sampled_from((*RECORDS, 0))),
)


@given(st.lists(head, max_size=8), st.data(), st.integers(500, 900), st.integers(1, 900))
def test_whole_records_of_pieces(
    heads: list[tuple[int, int]], chosen: st.DataObject, file_size: int, room: int
) -> None:
    room = min(room, file_size)
    data, left = b"", room
    for size, magic in heads:
        size = left if magic == BLANK else size
        data += struct.pack(">ii", size, magic) + bytes(max(0, size - 8))
        left = (left - size) % file_size or file_size
    data = data[: chosen.draw(st.integers(0, len(data)))]
    cuts = sorted(chosen.draw(st.lists(st.integers(0, len(data)), max_size=6)))
    edges = [0, *cuts, len(data)]
    pieces = [memoryview(data[start:stop]) for start, stop in pairwise(edges)]
    assert whole_size(pieces, room, file_size) == model(data, room, file_size)


def test_a_file_has_room() -> None:
    with pytest.raises(ValueError, match="0 bytes are left of a file of 100"):
        whole_size([memoryview(b"x")], 0, 100)
    with pytest.raises(ValueError, match="101 bytes"):
        whole_size([memoryview(b"x")], 101, 100)
