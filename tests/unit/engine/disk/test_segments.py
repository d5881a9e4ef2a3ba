"""Sequences of files and the bounded number of mappings."""

from pathlib import Path
from typing import Any

import pytest

from turbopump.engine.disk.real_files import RealFiles
from turbopump.engine.disk.segments import MappingPool, Segments, file_name, is_file_name
from turbopump.engine.types import StoreError


@pytest.fixture
def pool() -> MappingPool:
    return MappingPool(RealFiles(), 3)


def row(pool: MappingPool, folder: Path, count: int = 0, first: int = 0) -> Segments:
    segments = Segments(pool, str(folder), 100)
    for number in range(count):
        segments.create(first + number * 100)
    return segments


def test_names_are_twenty_digits() -> None:
    assert file_name(1_073_741_824) == "00000000001073741824"
    assert is_file_name("0" * 20)
    assert not any(map(is_file_name, ["0" * 19, "0" * 21, "x" * 20, "٣" * 20, ""]))


def test_a_row_knows_its_bytes(pool: MappingPool, tmp_path: Path) -> None:
    segments = row(pool, tmp_path, 4, first=300)
    assert (segments.first, segments.last_file_start, segments.end, segments.count) == (
        300,
        600,
        700,
        4,
    )
    assert list(segments.file_starts()) == [300, 400, 500, 600]
    assert [segments.contains(at) for at in (299, 300, 699, 700)] == [False, True, True, False]
    assert segments.start_of(555) == 500
    assert segments.forget_first().endswith(file_name(300))
    assert segments.forget_last().endswith(file_name(600))
    assert list(segments.file_starts()) == [400, 500]


def test_loading_finds_the_row_and_the_rows_after_a_hole(pool: MappingPool, tmp_path: Path) -> None:
    row(pool, tmp_path, 6, first=200)
    (tmp_path / file_name(400)).unlink()
    (tmp_path / file_name(700)).write_bytes(b"")
    (tmp_path / "notes").write_text("mine")
    (tmp_path / file_name(900)).mkdir()
    segments = row(pool, tmp_path)
    assert segments.load() == [500, 600]
    assert list(segments.file_starts()) == [200, 300]
    assert not (tmp_path / file_name(700)).exists()


@pytest.mark.parametrize(
    ("name", "size"), [(file_name(0), 99), (file_name(0), 101), (file_name(50), 100)]
)
def test_files_that_do_not_fit_the_row_are_refused(
    pool: MappingPool, tmp_path: Path, name: str, size: int
) -> None:
    (tmp_path / name).write_bytes(bytes(size))
    with pytest.raises(StoreError, match=f"{name} has {size} bytes, .* files of 100"):
        row(pool, tmp_path).load()


def test_the_least_recently_used_mapping_is_closed(pool: MappingPool, tmp_path: Path) -> None:
    segments = row(pool, tmp_path, 3)
    regions = [segments.file_region(start) for start in segments.file_starts()]
    segments.file_region(0)
    segments.create(300)
    assert len(pool) == 3
    assert regions[0].read(0, 1) == b"\0"
    with pytest.raises(ValueError):
        regions[1].read(0, 1)
    assert segments.file_region(100).read(0, 1) == b"\0"


def test_mappings_that_may_not_be_closed_stay(pool: MappingPool, tmp_path: Path) -> None:
    segments = row(pool, tmp_path)
    asked: list[int] = []

    def refuse(start: int) -> Any:
        return lambda: asked.append(start)

    for number in range(5):
        segments.create(number * 100, refuse(number * 100))
    assert len(pool) == 5, "durability goes before the limit"
    assert {0, 100, 200} <= set(asked)
    pool.close()
    assert len(pool) == 0


def test_blocks_are_reserved_in_steps(pool: MappingPool, tmp_path: Path) -> None:
    segments = Segments(pool, str(tmp_path), 1 << 20)
    segments.create(0)
    segments.reserve_blocks(0, 20)
    blocks = (tmp_path / file_name(0)).stat().st_blocks * 512
    assert 64 << 10 <= blocks < 1 << 20
    segments.reserve_blocks(20, 20)
    assert (tmp_path / file_name(0)).stat().st_blocks * 512 == blocks
    segments.reserve_blocks(blocks, 20)
    assert (tmp_path / file_name(0)).stat().st_blocks * 512 > blocks
