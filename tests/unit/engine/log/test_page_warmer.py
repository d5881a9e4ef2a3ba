"""Pages of the log that are faulted in before records arrive."""

from itertools import pairwise
from pathlib import Path

import pytest

from turbopump.engine.config import StoreConfig
from turbopump.engine.disk.flush import InlineDisk
from turbopump.engine.disk.real_files import RealFiles, RealMappedFile
from turbopump.engine.log.page_warmer import WARM_GROWTH_MIN, WARM_TICKS
from turbopump.engine.store import Store
from turbopump.engine.types import NewMessage, PutStatus

FILE_SIZE = 8 << 20
NOW_MS = 1_700_000_000_000


@pytest.fixture
def touched(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Ranges of the log that were touched; the pages are really touched."""
    ranges: list[tuple[int, int]] = []
    touch = RealMappedFile.mark_dirty

    def note(self: RealMappedFile, start: int, end: int) -> None:
        base = int(Path(self.path).name)
        ranges.append((base + start, base + end))
        touch(self, start, end)

    monkeypatch.setattr(RealMappedFile, "mark_dirty", note)
    return ranges


@pytest.fixture
def store(tmp_path: Path) -> Store:
    config = StoreConfig(
        str(tmp_path / "store"),
        mapped_file_size_commit_log=FILE_SIZE,
        max_index_num=100,
        max_hash_slot_num=100,
    )
    return Store.open(RealFiles(), config, InlineDisk(), NOW_MS)


def grow(store: Store, size: int) -> None:
    end = store.max_log_offset + size
    while store.max_log_offset < end:
        body = b"b" * min(1 << 16, end - store.max_log_offset)
        assert store.append(NewMessage("T", 0, body), NOW_MS).status is PutStatus.PUT_OK


def test_a_log_that_grows_fast_is_warmed_ahead(
    store: Store, touched: list[tuple[int, int]]
) -> None:
    store.tick(NOW_MS)
    grow(store, WARM_GROWTH_MIN)
    end = store.max_log_offset
    store.tick(NOW_MS + 100)
    assert touched[0][0] == end
    assert touched[-1][1] == end + WARM_TICKS * end
    last = touched[-1][1]
    grow(store, WARM_GROWTH_MIN)
    store.tick(NOW_MS + 200)
    assert touched[-1][1] > last
    assert all(stop == start for (_, stop), (start, _) in pairwise(touched))
    store.close(NOW_MS + 300)


def test_warming_goes_on_in_the_file_made_ahead(
    store: Store, touched: list[tuple[int, int]]
) -> None:
    grow(store, FILE_SIZE - (2 << 20))
    store.tick(NOW_MS)
    assert (FILE_SIZE, FILE_SIZE + (4 << 20)) in touched
    grow(store, 3 << 20)
    assert store.read("T", 0, 0, 1).count == 1
    store.close(NOW_MS + 100)


def test_a_log_that_grows_slowly_is_left_alone(
    store: Store, touched: list[tuple[int, int]]
) -> None:
    store.tick(NOW_MS)
    grow(store, WARM_GROWTH_MIN // 4)
    store.tick(NOW_MS + 100)
    assert touched == []
    store.close(NOW_MS + 200)
