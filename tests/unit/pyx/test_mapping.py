"""Mappings without a descriptor: they live as long as a view, and raise errors for invalid ones."""

import mmap
import os
from pathlib import Path

import pytest

from turbopump.pyx.mapping import Mapping, create_mapped
from turbopump.pyx.region import Region

SIZE = 3 * mmap.PAGESIZE


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(b"a" * SIZE)
    return path


def mapped(path: Path, *, readonly: bool = False, size: int = SIZE) -> Mapping:
    descriptor = os.open(path, os.O_RDONLY if readonly else os.O_RDWR)
    try:
        return Mapping(descriptor, size, readonly)
    finally:
        os.close(descriptor)


def is_mapped(path: Path) -> bool:
    return str(path) in Path("/proc/self/maps").read_text()


def test_stored_bytes_are_in_the_file(path: Path) -> None:
    one = mapped(path)
    view = memoryview(one)
    assert (len(view), view.readonly) == (SIZE, False)
    view[5:8] = b"xyz"
    assert path.read_bytes()[4:9] == b"axyza"
    assert memoryview(mapped(path, readonly=True)).readonly


def test_it_goes_with_the_last_view(path: Path) -> None:
    one = mapped(path)
    region = Region(one)
    kept = region.view(0, 10)
    region.release()
    one.close()
    one.close()
    assert is_mapped(path)
    assert bytes(kept) == b"a" * 10
    with pytest.raises(ValueError, match="closed"):
        memoryview(one)
    del kept
    assert not is_mapped(path)


def test_an_unclosed_mapping_is_removed_too(path: Path) -> None:
    one = mapped(path)
    view = memoryview(one)
    del one
    assert bytes(view[:1]) == b"a"
    del view
    assert not is_mapped(path)


def test_closing_unmaps_at_once_without_a_view(path: Path) -> None:
    one = mapped(path)
    assert is_mapped(path)
    one.close()
    assert not is_mapped(path)


def test_advice(path: Path) -> None:
    one = mapped(path)
    one.madvise(mmap.MADV_RANDOM)
    one.madvise(mmap.MADV_NORMAL, mmap.PAGESIZE)
    with pytest.raises(OSError, match="madvise failed"):
        one.madvise(mmap.MADV_NORMAL, 1)
    with pytest.raises(ValueError, match="not mapped"):
        one.madvise(mmap.MADV_NORMAL, SIZE)
    one.close()
    with pytest.raises(ValueError, match="not mapped"):
        one.madvise(mmap.MADV_NORMAL)


def test_a_failed_mapping_is_reported(path: Path) -> None:
    with pytest.raises(ValueError, match="0 bytes cannot be mapped"):
        mapped(path, size=0)
    with pytest.raises(OSError, match="mmap failed"):
        Mapping(-1, SIZE, True)
    with pytest.raises(OSError, match="mmap failed"):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            Mapping(descriptor, SIZE, False)
        finally:
            os.close(descriptor)


def test_a_made_file_is_mapped_and_closed(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    made = create_mapped(os.fsencode(tmp_path / "new"), SIZE, mmap.PAGESIZE)
    assert len(os.listdir("/proc/self/fd")) == before
    memoryview(made)[5:8] = b"xyz"
    assert (tmp_path / "new").read_bytes()[4:9] == b"\0xyz\0"
    for size, reserved in ((0, 0), (SIZE, SIZE + 1), (SIZE, -1)):
        with pytest.raises(ValueError, match="reserved"):
            create_mapped(os.fsencode(tmp_path / "other"), size, reserved)
    assert not (tmp_path / "other").exists()
