"""Queue units: their bytes, the end of a queue, searching and choosing."""

import ctypes
import struct

import pytest

from turbopump.pyx.queue import (
    UNIT_SIZE,
    fill_blank,
    find_end,
    get_unit,
    lower_bound,
    put_unit,
    select,
)
from turbopump.pyx.region import Region

BLANK = (0, 0x7FFFFFFF, 0)


def queue_of(*units: tuple[int, int, int], room: int = 0) -> Region:
    packed = b"".join(struct.pack(">qiq", *unit) for unit in units)
    return Region(bytearray(packed + bytes(UNIT_SIZE * room)))


def test_a_unit_has_its_bytes_where_rocketmq_reads_them() -> None:
    region = Region(bytearray(UNIT_SIZE + 4))
    put_unit(region, 4, 0x0102030405060708, 0x11121314, -2)
    assert region.read(4, UNIT_SIZE).hex() == "010203040506070811121314fffffffffffffffe"
    assert get_unit(region, 4) == (0x0102030405060708, 0x11121314, -2)
    with pytest.raises(IndexError):
        put_unit(region, 5, 0, 0, 0)
    with pytest.raises(IndexError):
        get_unit(region, 5)


def test_blanks_fill_the_range_and_nothing_else() -> None:
    region = Region(bytearray(b"\xaa" * 100))
    fill_blank(region, 20, 60)
    assert [get_unit(region, at) for at in (20, 40)] == [BLANK, BLANK]
    assert region.read(0, 20) + region.read(60, 40) == b"\xaa" * 60
    fill_blank(region, 80, 99)  # no whole unit
    assert region.read(80, 20) == b"\xaa" * 20


def test_the_end_is_behind_the_last_valid_unit() -> None:
    region = queue_of((0, 100, 1), (100, 50, 2), room=2)
    assert find_end(region, 0, region.size) == (40, 150)
    assert find_end(region, 20, region.size) == (40, 150)
    assert find_end(region, 40, region.size) == (40, -1)
    assert find_end(region, 0, 30) == (20, 100)


def test_blank_units_have_no_end() -> None:
    region = queue_of(BLANK, BLANK, (700, 50, 2), room=1)
    assert find_end(region, 0, 40) == (40, -1)
    assert find_end(region, 0, region.size) == (60, 750)


@pytest.mark.parametrize("broken", [(-1, 10, 0), (10, 0, 0), (10, -5, 0)])
def test_an_invalid_unit_ends_the_queue(broken: tuple[int, int, int]) -> None:
    region = queue_of((0, 100, 1), broken, (200, 50, 2))
    assert find_end(region, 0, region.size) == (20, 100)
    chosen = select(region, 0, region.size, codes=None, max_count=9, max_size=999, max_units=9)
    assert (chosen.units, chosen.next_position) == ([(0, 100)], 20)


def test_a_damaged_offset_does_not_overflow() -> None:
    region = queue_of(((1 << 63) - 1, 10, 0))
    assert find_end(region, 0, 20)[0] == 20


def test_lower_bound_is_the_first_unit_not_below() -> None:
    region = queue_of(*[(n * 100, 100, 0) for n in range(7)])
    for log_offset, wanted in [(-5, 0), (0, 0), (1, 20), (100, 20), (600, 120), (601, 140)]:
        assert lower_bound(region, 0, region.size, log_offset) == wanted
    assert lower_bound(region, 40, 80, 0) == 40
    assert lower_bound(region, 40, 80, 10_000) == 80
    assert lower_bound(region, 40, 40, 0) == 40


def chosen_of(region: Region, **wish: object) -> tuple[list[tuple[int, int]], int, int]:
    given = {"codes": None, "max_count": 100, "max_size": 1 << 40, "max_units": 1000, **wish}
    chosen = select(region, 0, region.size, **given)  # type: ignore[arg-type]
    return chosen.units, chosen.next_position, chosen.size


def test_choosing_stops_at_count_units_size_and_end() -> None:
    region = queue_of(*[(n * 10, 10, n) for n in range(5)], room=1)
    assert chosen_of(region) == ([(n * 10, 10) for n in range(5)], 100, 50)
    assert chosen_of(region, max_count=2) == ([(0, 10), (10, 10)], 40, 20)
    assert chosen_of(region, max_units=3) == ([(0, 10), (10, 10), (20, 10)], 60, 30)
    assert chosen_of(region, max_size=29) == ([(0, 10), (10, 10)], 40, 20)
    assert chosen_of(region, max_size=30) == ([(0, 10), (10, 10), (20, 10)], 60, 30)
    assert chosen_of(region, max_count=0) == ([], 0, 0)
    assert chosen_of(region, max_units=-1) == ([], 0, 0)


def test_one_unit_is_chosen_however_large() -> None:
    region = queue_of((0, 1000, 0), (1000, 10, 0))
    assert chosen_of(region, max_size=5) == ([(0, 1000)], 20, 1000)
    assert chosen_of(region, max_size=0) == ([(0, 1000)], 20, 1000)


def test_codes_match_by_their_low_32_bits() -> None:
    region = queue_of((0, 1, -5), (1, 1, 7), (2, 1, 7 + (1 << 40)), (3, 1, 0), (4, 1, 1 << 31))
    assert chosen_of(region, codes=frozenset([7]))[0] == [(1, 1), (2, 1)]
    assert chosen_of(region, codes=frozenset([-5, 0]))[0] == [(0, 1), (3, 1)]
    assert chosen_of(region, codes=frozenset([-(1 << 31)]))[0] == [(4, 1)]
    assert chosen_of(region, codes=frozenset([0xFFFFFFFB]))[0] == [(0, 1)]
    assert chosen_of(region, codes=frozenset()) == ([], 100, 0)
    assert len(chosen_of(region, codes=frozenset(range(-500, 500)))[0]) == 4


def test_more_units_than_fit_the_stack() -> None:
    region = queue_of(*[(n, 1, 0) for n in range(500)])
    assert chosen_of(region, max_count=400) == ([(n, 1) for n in range(400)], 8000, 400)


@pytest.mark.parametrize("tail", range(20))
def test_a_part_of_a_unit_is_never_touched(tail: int) -> None:
    packed = struct.pack(">qiq", 7, 5, 0) + b"\x01" * tail
    # The copy has no memory after its end: `make asan` reports a read beyond it.
    region = Region((ctypes.c_uint8 * len(packed)).from_buffer_copy(packed))
    assert find_end(region, 0, region.size) == (20, 12)
    assert chosen_of(region) == ([(7, 5)], 20, 5)
    assert lower_bound(region, 0, region.size, 6) == 0
    assert lower_bound(region, 0, region.size, 8) == region.size
    fill_blank(region, 0, region.size)
    assert region.read(20, tail) == b"\x01" * tail


def test_blank_units_are_never_chosen() -> None:
    region = queue_of(BLANK, BLANK, (50, 5, 0))
    assert chosen_of(region) == ([(50, 5)], 60, 5)
    assert chosen_of(region, codes=frozenset([0])) == ([(50, 5)], 60, 5)
