"""The advice to the kernel about pages: a file with small writes and frequent syncs reads single
pages."""

from pathlib import Path

import pytest

from turbopump.engine.config import StoreConfig
from turbopump.engine.disk.flush import InlineDisk
from turbopump.engine.disk.real_files import RealFiles
from turbopump.engine.store import Store
from turbopump.engine.types import FlushMode, NewMessage, PutStatus

PAGE = 4096
LOG_SIZE = 16 * PAGE
QUEUE_SIZE = 8 * PAGE // 20 * 20
NOW_MS = 1_700_000_000_000


def random_bytes(path: Path) -> list[tuple[int, int]]:
    """Ranges of a mapped file that the kernel reads page by page (no read-ahead)."""
    ranges, found = (0, 0), []
    for line in Path("/proc/self/smaps").read_text().splitlines():
        words = line.split()
        if not words[0].endswith(":"):
            first, last = (int(word, 16) for word in words[0].split("-"))
            start = int(words[2], 16)
            mine = line.endswith(f" {path}")
            ranges = (start, start + last - first) if mine else (0, 0)
        elif words[0] == "VmFlags:" and ranges[1] and "rr" in words:
            found.append(ranges)
    return sorted(found)


def opened(folder: Path, mode: FlushMode) -> Store:
    config = StoreConfig(
        str(folder),
        mapped_file_size_commit_log=LOG_SIZE,
        flush_disk_type=mode,
        mapped_file_size_consume_queue=QUEUE_SIZE,
        max_index_num=100,
        max_hash_slot_num=100,
    )
    return Store.open(RealFiles(), config, InlineDisk(), NOW_MS)


def put(store: Store, size: int = 100) -> None:
    appended = store.append(NewMessage("T", 0, b"b" * size), NOW_MS)
    assert appended.status is PutStatus.PUT_OK


def log_file(folder: Path, start: int) -> Path:
    return folder / "commitlog" / f"{start:020d}"


@pytest.mark.parametrize("mode", FlushMode)
def test_a_queue_takes_one_page_at_a_time(tmp_path: Path, mode: FlushMode) -> None:
    path = tmp_path / "consumequeue" / "T" / "0" / f"{0:020d}"
    for _ in range(2):
        store = opened(tmp_path, mode)
        put(store)
        assert random_bytes(path) == [(0, 8 * PAGE)]
        store.close(NOW_MS)


def test_under_sync_flush_the_log_takes_one_page_at_a_time(tmp_path: Path) -> None:
    store = opened(tmp_path, FlushMode.SYNC_FLUSH)
    put(store)
    assert random_bytes(log_file(tmp_path, 0)) == [(0, LOG_SIZE)]
    put(store, 2 * PAGE)
    end = store.max_log_offset
    store.close(NOW_MS)
    # The existing part of the log keeps its read-ahead.
    store = opened(tmp_path, FlushMode.SYNC_FLUSH)
    assert random_bytes(log_file(tmp_path, 0)) == [(end // PAGE * PAGE + PAGE, LOG_SIZE)]
    while store.max_log_offset < LOG_SIZE:
        put(store, PAGE)
    assert random_bytes(log_file(tmp_path, 0)) == []
    assert random_bytes(log_file(tmp_path, LOG_SIZE)) == [(0, LOG_SIZE)]
    store.close(NOW_MS)


def test_under_async_flush_the_log_comes_in_large_pieces(tmp_path: Path) -> None:
    store = opened(tmp_path, FlushMode.ASYNC_FLUSH)
    put(store)
    assert random_bytes(log_file(tmp_path, 0)) == []
    store.close(NOW_MS)
