"""Queue and frame kernels against small Python models, on exact-size buffers."""

import ctypes
import struct

from hypothesis import given
from hypothesis import strategies as st
from tests.property.memory.regions import exact

from turbopump.pyx import queue
from turbopump.pyx.frame import find_frames
from turbopump.pyx.region import Region

BLANK = (0, 0x7FFFFFFF, 0)


tags_codes = st.integers(-3, 3) | st.integers(-(1 << 63), (1 << 63) - 1)
good_units = st.tuples(st.integers(0, 1 << 62), st.integers(1, 1 << 20), tags_codes)
any_units = st.tuples(
    st.integers(-(1 << 63), (1 << 63) - 1), st.integers(-(1 << 31), (1 << 31) - 1), tags_codes
)
queues = st.lists(good_units | st.just(BLANK) | any_units, max_size=90)


def region_of(units: list[tuple[int, int, int]], tail: int) -> Region:
    packed = b"".join(struct.pack(">qiq", *unit) for unit in units)
    return exact(len(packed) + tail, packed)


@given(
    queues,
    st.integers(0, 19),
    st.integers(0, 5),
    st.none() | st.frozensets(st.integers(-4, 4) | st.integers(-(1 << 31), (1 << 31) - 1)),
    st.integers(0, 100),
    st.integers(0, 1 << 22),
    st.integers(0, 100),
)
def test_select_is_the_loop_of_the_manual(
    units: list[tuple[int, int, int]],
    tail: int,
    first: int,
    codes: frozenset[int] | None,
    max_count: int,
    max_size: int,
    max_units: int,
) -> None:
    region = region_of(units, tail)
    start = min(first, len(units))
    chosen: list[tuple[int, int]] = []
    at, size = start, 0
    for log_offset, unit_size, tags_code in units[start:]:
        if at - start == max_units or len(chosen) == max_count or log_offset < 0 or unit_size <= 0:
            break
        low = tags_code & 0xFFFFFFFF
        matches = codes is None or any(code & 0xFFFFFFFF == low for code in codes)
        if (log_offset, unit_size, tags_code) != BLANK and matches:
            if chosen and size + unit_size > max_size:
                break
            chosen.append((log_offset, unit_size))
            size += unit_size
        at += 1
    got = queue.select(
        region,
        start * 20,
        region.size,
        codes=codes,
        max_count=max_count,
        max_size=max_size,
        max_units=max_units,
    )
    assert (got.units, got.next_position, got.size) == (chosen, at * 20, size)


@given(queues, st.integers(0, 19))
def test_the_end_is_before_the_first_invalid_unit(
    units: list[tuple[int, int, int]], tail: int
) -> None:
    valid = 0
    while valid < len(units) and units[valid][0] >= 0 and units[valid][1] > 0:
        valid += 1
    ends = [offset + size for offset, size, code in units[:valid] if (offset, size, code) != BLANK]
    position, log_end = queue.find_end(region_of(units, tail), 0, len(units) * 20 + tail)
    assert position == valid * 20
    if not ends or ends[-1] < 1 << 63:
        assert log_end == (ends[-1] if ends else -1)


@given(st.lists(st.integers(0, 1000), max_size=60).map(sorted), st.integers(-1, 1001))
def test_lower_bound_is_the_first_not_below(offsets: list[int], wanted: int) -> None:
    region = region_of([(offset, 1, 0) for offset in offsets], 0)
    below = sum(offset < wanted for offset in offsets)
    assert queue.lower_bound(region, 0, region.size, wanted) == below * 20


@given(st.lists(st.integers(8, 100), max_size=100), st.integers(0, 10_000))
def test_frames_are_found_at_any_cut(sizes: list[int], cut: int) -> None:
    data = b"".join(struct.pack(">i", size - 4) + bytes(size - 4) for size in sizes)
    length = min(cut, len(data))
    array = (ctypes.c_uint8 * length).from_buffer_copy(data[:length])
    wanted, at = [], 0
    for size in sizes:
        if at + size > length:
            break
        wanted.append((at, size))
        at += size
    incomplete = sizes[len(wanted)] if length - at >= 4 else 0
    assert find_frames(memoryview(array), length, 100) == (wanted, at, incomplete)


@given(st.binary(max_size=300), st.integers(0, 400))
def test_garbage_is_frames_or_an_error(garbage: bytes, max_frame: int) -> None:
    array = (ctypes.c_uint8 * len(garbage)).from_buffer_copy(garbage)
    try:
        found, consumed, needed = find_frames(memoryview(array), len(garbage), max_frame)
    except ValueError:
        return
    assert all(8 <= size <= max_frame for _, size in found)
    assert sum(size for _, size in found) == consumed <= len(garbage)
    assert needed == 0 or consumed + needed > len(garbage)
