"""Region: bounds, lifetimes and the calls of the operating system."""

import mmap
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from turbopump.pyx.region import Region

PAGE = mmap.PAGESIZE


def test_numbers_are_big_endian_and_signed() -> None:
    memory = bytearray(16)
    region = Region(memory)
    region.put_i32(0, -2)
    region.put_i64(4, -3)
    assert memory == b"\xff\xff\xff\xfe" + b"\xff" * 7 + b"\xfd" + bytes(4)
    assert (region.get_i16(2), region.get_i32(0), region.get_i64(4)) == (-2, -2, -3)


@pytest.mark.parametrize(
    "position, length", [(-1, 1), (0, -1), (9, 0), (8, 1), (5, 4), (1 << 62, 8)]
)
@pytest.mark.parametrize("name", ["read", "view", "zero", "is_zero", "sync", "warm"])
def test_no_range_leaves_the_buffer(name: str, position: int, length: int) -> None:
    with pytest.raises(IndexError):
        getattr(Region(bytearray(8)), name)(position, length)


@pytest.mark.parametrize(
    "call",
    [
        lambda region: region.get_i16(7),
        lambda region: region.get_i32(5),
        lambda region: region.get_i64(1),
        lambda region: region.put_i32(5, 0),
        lambda region: region.put_i64(-1, 0),
        lambda region: region.write(4, b"12345"),
        lambda region: region.advise(0, 9, mmap.MADV_NORMAL),
    ],
)
def test_no_number_leaves_the_buffer(call: Callable[[Region], object]) -> None:
    with pytest.raises(IndexError):
        call(Region(bytearray(8)))


def test_the_whole_buffer_is_in_reach() -> None:
    region = Region(bytearray(b"abcdefgh"))
    assert (region.size, region.readonly) == (8, False)
    assert region.read(0, 8) == b"abcdefgh"
    assert region.read(8, 0) == b""
    assert region.view(2, 3) == b"cde"
    region.write(6, b"xy")
    assert region.read(4, 4) == b"efxy"


def test_an_empty_buffer_is_a_region() -> None:
    region = Region(b"")
    assert (region.size, region.read(0, 0), region.is_zero(0, 0)) == (0, b"", True)


def test_a_region_of_wider_items_counts_bytes() -> None:
    region = Region(memoryview(bytes(16)).cast("q"))
    assert (region.size, len(region.view(0, 16))) == (16, 16)


def test_zeroing_and_asking_for_zeros() -> None:
    for size in (1, 7, 4096, 70_000):
        region = Region(bytearray(b"\x01" * size))
        region.zero(0, size - 1)
        assert region.is_zero(0, size - 1)
        assert not region.is_zero(0, size)
        assert not region.is_zero(size - 1, 1)


def test_a_write_may_overlap_its_own_source() -> None:
    region = Region(bytearray(b"abcdef"))
    region.write(1, region.view(0, 5))
    assert region.read(0, 6) == b"aabcde"


@pytest.mark.parametrize(
    "call",
    [
        lambda region: region.put_i32(0, 1),
        lambda region: region.put_i64(0, 1),
        lambda region: region.write(0, b"1"),
        lambda region: region.zero(0, 1),
        lambda region: region.warm(0, 1),
    ],
)
def test_a_read_only_region_refuses_writes(call: Callable[[Region], object]) -> None:
    region = Region(bytes(8))
    assert region.readonly
    with pytest.raises(TypeError):
        call(region)
    assert region.is_zero(0, 8)


def test_numbers_beyond_their_width_are_refused() -> None:
    region = Region(bytearray(8))
    with pytest.raises(OverflowError):
        region.put_i32(0, 1 << 31)
    with pytest.raises(OverflowError):
        region.put_i64(0, 1 << 63)


def test_views_are_read_only_and_outlive_the_release() -> None:
    region = Region(bytearray(b"abcdefgh"))
    view = region.view(1, 3)
    region.release()
    assert view.readonly
    assert view == b"bcd"
    for call in (region.get_i16, region.get_i32, region.get_i64):
        with pytest.raises(ValueError, match="released"):
            call(0)
    with pytest.raises(ValueError, match="released"):
        region.view(0, 1)


def test_release_lets_a_mapping_close() -> None:
    mapping = mmap.mmap(-1, PAGE)
    region = Region(mapping)
    with pytest.raises(BufferError):
        mapping.close()
    region.release()
    region.release()
    mapping.close()


def test_sync_reaches_the_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(4 * PAGE))
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapping:
        region = Region(mapping)
        region.write(PAGE + 5, b"here")
        region.sync(PAGE + 5, 4)
        region.sync(0, region.size)
        region.sync(3, 0)
        region.release()
    assert path.read_bytes()[PAGE + 5 : PAGE + 9] == b"here"


def test_sync_of_an_object_without_memory_raises() -> None:
    mapping = mmap.mmap(-1, 2 * PAGE)
    region = Region(mapping)
    with pytest.raises(OSError):
        region.advise(0, region.size, 9999)
    region.advise(1, PAGE, mmap.MADV_RANDOM)  # no whole page inside: nothing to do
    region.advise(0, region.size, mmap.MADV_RANDOM)
    region.release()
    mapping.close()


def test_warming_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "file"
    content = bytes(range(256)) * (PAGE // 64)
    path.write_bytes(content)
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapping:
        region = Region(mapping)
        region.warm(7, region.size - 7)
        region.warm(0, 0)
        assert region.read(0, region.size) == content
        region.release()


def test_warming_loses_no_write_of_another_thread() -> None:
    mapping = mmap.mmap(-1, 64 * PAGE)
    region = Region(mapping)
    warming = threading.Thread(
        target=lambda: [region.warm(0, region.size) for _ in range(200)] and None
    )
    warming.start()
    for position in range(0, region.size, 8):
        region.put_i64(position, position)
    warming.join()
    assert all(region.get_i64(at) == at for at in range(0, region.size, 8))
    region.release()
    mapping.close()


def test_an_object_without_a_buffer_is_no_region() -> None:
    with pytest.raises(TypeError):
        Region("text")
