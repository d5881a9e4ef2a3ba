"""Memory of an incomplete frame: its resident size, and its release."""

import mmap
from pathlib import Path

import pytest

from turbopump.pyx.frame_memory import GRANULE, MAPPED_OVER, SIZE_MIN, FrameMemory, wanted

LARGE = 64 << 20


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


@pytest.mark.parametrize(
    ("have", "needed", "size"),
    [
        (4, 10, SIZE_MIN),
        (10_000, 20_000, 20_000),
        (10_000, LARGE, 40_000),
        (GRANULE - 1, LARGE, 4 * (GRANULE - 1)),
        (GRANULE, LARGE, LARGE),
        (GRANULE, MAPPED_OVER, 4 * GRANULE),
        (MAPPED_OVER - 1, MAPPED_OVER, MAPPED_OVER),
    ],
)
def test_how_large_the_memory_is(have: int, needed: int, size: int) -> None:
    assert wanted(have, needed) == size


@pytest.mark.parametrize("size", [1, SIZE_MIN, MAPPED_OVER, MAPPED_OVER + 1, 3 << 20])
def test_a_view_is_writable_and_keeps_the_memory(size: int) -> None:
    memory = FrameMemory(size)
    assert len(memory) == memory.size == size and memory.mapped == (size > MAPPED_OVER)
    view = memory.view()
    del memory
    view[:] = b"\xa5" * size
    assert bytes(view) == b"\xa5" * size


def test_unwritten_memory_costs_nothing_and_all_is_returned() -> None:
    memories = [FrameMemory(LARGE) for _ in range(8)]
    zeros = bytes(GRANULE)  # allocated once, because a sanitizer keeps freed memory
    before = resident()
    for memory in memories:
        memory.view()[:GRANULE] = zeros
    grown = resident() - before
    assert grown < 8 * 2 * GRANULE, "huge pages, or zeros"
    memories[0].view()[:LARGE] = bytes(LARGE)
    full = resident()
    del memories, memory
    assert full - resident() > LARGE * 3 // 4


def test_the_cost_is_the_arrived_bytes_but_at_most_all() -> None:
    small, large = FrameMemory(SIZE_MIN), FrameMemory(LARGE + 5)
    assert small.cost(1) == small.cost(SIZE_MIN) == SIZE_MIN
    assert large.cost(1) == GRANULE
    assert GRANULE < large.cost(GRANULE) <= 2 * GRANULE
    assert large.cost(LARGE + 4) == LARGE + 5


def test_no_bytes_are_no_memory() -> None:
    with pytest.raises(ValueError, match="0 bytes"):
        FrameMemory(0)
