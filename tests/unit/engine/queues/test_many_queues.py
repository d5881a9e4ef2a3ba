"""Stores with many queues: the files read at the start, and the number of mapped files."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.engine.conftest import NOW_MS, Stores

from turbopump.engine.disk.files import MappedFile
from turbopump.engine.disk.real_files import RealFiles
from turbopump.engine.queues import queue_files as module
from turbopump.engine.store import Store
from turbopump.engine.types import Appended, QueueUnit

TOPICS = [f"T{number}" for number in range(6)]
QUEUES = 5
MAPPINGS = 8
UNIT = 20
Put = Callable[..., Appended]


class CountingFiles(RealFiles):
    """A disk with few mappings, which records the opened queue files."""

    def __init__(self) -> None:
        super().__init__()
        self.mapped: list[str] = []

    def open(self, path: str, *, readonly: bool = False) -> MappedFile:
        if "/consumequeue/" in path:
            self.mapped.append(path)
        return super().open(path, readonly=readonly)

    def mapping_limit(self) -> int:
        return MAPPINGS


@pytest.fixture
def counting(stores: Stores) -> CountingFiles:
    files = CountingFiles()
    stores.files = files
    stores.configure(mapped_file_size_consume_queue=20 * 10_000)
    return files


def fill(store: Store, put: Put, rounds: int = 3) -> None:
    for number in range(rounds):
        for topic in TOPICS:
            for queue_id in range(QUEUES):
                put(store, topic, queue_id, body=b"%d" % number, KEYS=f"k{number}")


def content(store: Store) -> dict[tuple[str, int], list[QueueUnit]]:
    return {
        (topic, queue_id): store.units(topic, queue_id, 0, 20_000)
        for topic in store.topics()
        for queue_id in store.queue_ids(topic)
    }


def bounds(store: Store) -> dict[tuple[str, int], tuple[int, int, int]]:
    return {
        (queue.topic, queue.queue_id): (
            queue.min_offset,
            store.max_queue_offset(queue.topic, queue.queue_id),
            store._queues.table.next_offset(queue.slot),
        )
        for queue in store._queues
    }


@pytest.mark.parametrize("clean", [True, False])
def test_opening_maps_no_queue_and_traffic_over_all_of_them_few(
    stores: Stores, counting: CountingFiles, put: Put, settle: Callable[[Store], int], clean: bool
) -> None:
    store = stores.open()
    fill(store, put)
    settle(store)
    expected, ends = content(store), bounds(store)
    assert len(expected) == len(TOPICS) * QUEUES
    if clean:
        store.close(NOW_MS)
    stores.kill(store)
    counting.mapped.clear()

    store = stores.open()
    assert counting.mapped == []
    assert bounds(store) == ends
    assert content(store) == expected
    for _ in range(3):
        fill(store, put, rounds=1)
        assert len(store._pool) <= MAPPINGS
    assert {len(units) for units in content(store).values()} == {6}
    assert len(store._pool) <= MAPPINGS


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("look_max", [30, 4096, 1 << 20])
def test_a_look_at_the_end_of_a_queue_equals_a_walk(
    stores: Stores,
    counting: CountingFiles,
    put: Put,
    settle: Callable[[Store], int],
    monkeypatch: pytest.MonkeyPatch,
    clean: bool,
    look_max: int,
) -> None:
    """Queues with one unit, with more units than `look_max`, and with several files."""
    monkeypatch.setattr(module, "LOOK_MAX", look_max)
    stores.configure(mapped_file_size_consume_queue=UNIT * 500, mapped_file_size_commit_log=1 << 20)
    store = stores.open()
    for topic, count in (("one", 1), ("some", 250), ("full", 500), ("files", 730)):
        for _ in range(count):
            put(store, topic)
    settle(store)
    expected, ends = content(store), bounds(store)
    if clean:
        store.close(NOW_MS)
    stores.kill(store)
    counting.mapped.clear()
    store = stores.open()
    assert bounds(store) == ends
    assert content(store) == expected


def test_units_that_a_crash_left_behind_a_hole_are_cleared_durably(
    stores: Stores, put: Put, settle: Callable[[Store], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stores.open()
    put(store)
    settle(store)
    stores.kill(store)
    path = Path(stores.config.root) / "consumequeue" / "T" / "0" / ("0" * 20)
    data = bytearray(path.read_bytes())
    data[60:80] = data[0:20]
    path.write_bytes(data)
    synced: list[str] = []
    sync_all = RealFiles.sync_all

    def note(self: RealFiles, paths: list[str], folders: list[str], *more: object) -> None:
        synced.extend(paths)
        sync_all(self, paths, folders, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(RealFiles, "sync_all", note)
    store = stores.open()
    assert store.max_queue_offset("T", 0) == 1
    assert path.read_bytes()[20:].strip(b"\0") == b""
    assert os.fspath(path) in synced
