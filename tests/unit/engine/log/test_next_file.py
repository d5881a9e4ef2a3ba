"""The size of log files, the time at which the next file is made, and the effect of a full disk."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.sim.disk import SimDisk

from turbopump.engine.config import StoreConfig
from turbopump.engine.disk.flush import InlineDisk
from turbopump.engine.disk.real_files import RealFiles
from turbopump.engine.disk.segments import file_name, file_size_in
from turbopump.engine.log import next_file
from turbopump.engine.store import Store
from turbopump.engine.types import LogOffset, NewMessage, PutStatus, StoreError, StoreHealth

NOW_MS = 1_700_000_000_000
FILE_SIZE = 1 << 16
KIB = 1 << 10


@pytest.fixture
def begin(tmp_path: Path) -> Callable[..., Store]:
    """Open the test's store; its files have FILE_SIZE unless given otherwise."""

    def start(files: Any = None, **settings: Any) -> Store:
        settings = {"mapped_file_size_commit_log": FILE_SIZE, **settings}
        config = StoreConfig(
            str(tmp_path / "store"), max_index_num=100, max_hash_slot_num=100, **settings
        )
        return Store.open(files or RealFiles(), config, InlineDisk(), NOW_MS)

    return start


def log_files(folder: Path) -> list[int]:
    return [int(path.name) // FILE_SIZE for path in sorted((folder / "store/commitlog").iterdir())]


def fill(store: Store, upto: int) -> None:
    """Grow the log to about this log offset, and not beyond."""
    while upto - store.max_log_offset > KIB:
        body = b"b" * min(4 * KIB, upto - store.max_log_offset - 200)
        assert store.append(NewMessage("T", 0, body), NOW_MS).status is PutStatus.PUT_OK


def test_the_next_file_is_made_when_the_end_of_one_is_near(
    begin: Callable[..., Store], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(next_file, "AHEAD_MIN", 1)
    monkeypatch.setattr(next_file, "AHEAD_TICKS", 0)
    store = begin()
    assert log_files(tmp_path) == [0], "the first one is there before the first message"
    fill(store, FILE_SIZE // 2)
    store.tick(NOW_MS)
    assert log_files(tmp_path) == [0]
    fill(store, FILE_SIZE - FILE_SIZE // 4 + KIB)
    store.tick(NOW_MS + 100)
    assert log_files(tmp_path) == [0, 1]
    fill(store, FILE_SIZE + 8 * KIB)
    assert log_files(tmp_path) == [0, 1], "a roll uses it, and makes none for later"
    store.close(NOW_MS)
    assert log_files(tmp_path) == [0, 1]


def test_a_log_that_grows_fast_has_its_next_file_at_once(
    begin: Callable[..., Store], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(next_file, "AHEAD_MIN", 1)
    store = begin()
    fill(store, FILE_SIZE // 4)  # in one tick: a file lasts for less than AHEAD_TICKS
    store.tick(NOW_MS)
    assert log_files(tmp_path) == [0, 1]
    fill(store, FILE_SIZE + 8 * KIB)
    assert log_files(tmp_path) == [0, 1, 2], "before the next tick, too"
    store.close(NOW_MS)


def test_an_opened_log_did_not_grow(
    begin: Callable[..., Store], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(next_file, "AHEAD_MIN", 1)
    store = begin()
    fill(store, FILE_SIZE // 2)
    store.close(NOW_MS)
    store = begin()
    store.tick(NOW_MS)
    assert log_files(tmp_path) == [0]
    store.close(NOW_MS)


def test_small_files_have_their_next_one_at_once(
    begin: Callable[..., Store], tmp_path: Path
) -> None:
    store = begin()
    fill(store, KIB + 300)
    store.tick(NOW_MS)
    assert log_files(tmp_path) == [0, 1]
    store.close(NOW_MS)


def test_an_opened_log_has_its_next_file(begin: Callable[..., Store], tmp_path: Path) -> None:
    store = begin()
    fill(store, FILE_SIZE // 2)
    store.close(NOW_MS)
    assert log_files(tmp_path) == [0]
    begin()
    assert log_files(tmp_path) == [0, 1]


def test_a_file_made_ahead_has_a_durable_name_and_is_unmapped_if_it_is_not_used(
    begin: Callable[..., Store],
) -> None:
    disk = SimDisk(random.Random(1), lambda: NOW_MS)
    store = begin(disk)
    store.tick(NOW_MS)
    made = store._log._next.ready
    assert made is not None
    assert made.path in disk.durable_paths(store.config.log_folder)
    store._log.discard_next_file_work()()
    with pytest.raises(ValueError):
        made.region.get_i32(0)


@pytest.mark.parametrize("size", [FILE_SIZE, 3 * 4096])
def test_the_files_that_are_there_tell_their_size(
    begin: Callable[..., Store], tmp_path: Path, size: int
) -> None:
    """The broker has the default size: a broker, or `repair`, may not have the configured size."""
    store = begin(mapped_file_size_commit_log=size)
    fill(store, 2 * size)
    store.close(NOW_MS)
    store = begin(mapped_file_size_commit_log=1 << 30)
    assert store.config.mapped_file_size_commit_log == size
    assert store.append(NewMessage("T", 0, b"more"), NOW_MS).status is PutStatus.PUT_OK
    store.close(NOW_MS)
    with pytest.raises(StoreError, match="the store is configured for files of 131072"):
        begin(mapped_file_size_commit_log=1 << 17)


@pytest.mark.parametrize(
    ("found", "size"),
    [
        ({}, None),
        ({0: 0}, None),
        ({0: 4096}, 4096),
        ({8192: 4096, 12288: 4096}, 4096),
        ({0: 5000}, None),  # perhaps it was cut short
        ({0: 5000, 5000: 5000}, 5000),
        ({0: 4096, 4096: 100}, 4096),
        ({0: 100, 4096: 4096}, 4096),
        ({100: 4096}, None),
        ({0: 4096, 16384: 4096}, None),  # files of 16 KiB, all cut short, or a hole
    ],
)
def test_sizes(tmp_path: Path, found: dict[int, int], size: int | None) -> None:
    for start, length in found.items():
        (tmp_path / file_name(start)).write_bytes(bytes(length))
    (tmp_path / "notes").write_text("mine")
    assert file_size_in(RealFiles(), str(tmp_path)) == size


def test_an_empty_store_on_a_full_disk_is_not_opened(
    begin: Callable[..., Store], troubled: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(troubled, "lock", RealFiles().lock)
    monkeypatch.setattr(troubled, "write", RealFiles().write)
    troubled.full = True
    words = f"no room for a first log file of {FILE_SIZE} bytes: the disk is full"
    with pytest.raises(StoreError, match=words):
        begin(troubled)
    troubled.full, troubled.used = False, 0.91
    words = "would be used to 91 %: above 90 % .*are refused"
    with pytest.raises(StoreError, match=words):
        begin(troubled)
    assert log_files(tmp_path) == []
    troubled.used = 0.9
    begin(troubled).close(NOW_MS)


def test_a_store_with_messages_is_served_on_a_full_disk(
    begin: Callable[..., Store], troubled: Any, caplog: pytest.LogCaptureFixture
) -> None:
    store = begin()
    store.append(NewMessage("T", 0, b"to be read"), NOW_MS)
    store.close(NOW_MS)
    troubled.used = 0.91
    store = begin(troubled)
    assert store.read("T", 0, 0, 1).count == 1
    assert "the disk is used to 91 %: until there is room writes are refused" in caplog.text
    store.close(NOW_MS)


def test_a_roll_does_not_wait_for_the_next_file(
    stores: Any, held_disk: Any, read_bodies: Callable[..., list[bytes]]
) -> None:
    """The disk does not answer: sends are refused as busy, later for lack of a file; reads go
    on."""
    held_disk.holds_files = True
    stores.configure(sync_timeout_ms=1_000)
    store = stores.open(held_disk)
    store.tick(NOW_MS)
    bodies: list[bytes] = []
    while True:
        body = b"%04d" % len(bodies) + bytes(1000)
        appended = store.append(NewMessage("T", 0, body), NOW_MS)
        if appended.status is not PutStatus.PUT_OK:
            break
        bodies.append(body)
    assert store.max_log_offset < 16 << 10, "one file"
    assert not store._log.is_idle, "a cut waits until the file was made"
    assert appended.status is PutStatus.OS_PAGE_CACHE_BUSY
    assert store.make_lane(lambda: None) is not None
    for passed_ms in range(0, 1_000, 100):
        assert store.health is StoreHealth.FIT
        store.tick(NOW_MS + passed_ms)
        held_disk.drain()
    assert read_bodies(store) == bodies
    store.tick(NOW_MS + 1_100)
    assert store.health is StoreHealth.FULL, "another broker may take messages"
    full = store.append(NewMessage("T", 0, body), NOW_MS)
    assert full.status is PutStatus.CREATE_MAPPED_FILE_FAILED
    held_disk.make_files()
    assert store.health is StoreHealth.FIT and store._log.is_idle
    assert store.append(NewMessage("T", 0, body), NOW_MS).status is PutStatus.PUT_OK
    assert read_bodies(store) == [*bodies, body]


def test_a_file_that_could_not_be_made_is_tried_again(
    stores: Any, troubled: Any, held_disk: Any
) -> None:
    held_disk.holds_files = True
    stores.configure(sync_timeout_ms=1_000)
    store = stores.open(held_disk)
    while store.append(NewMessage("T", 0, bytes(1000)), NOW_MS).status is PutStatus.PUT_OK:
        pass
    troubled.full = True
    held_disk.make_files()
    refused = store.append(NewMessage("T", 0, bytes(1000)), NOW_MS)
    assert refused.status is PutStatus.CREATE_MAPPED_FILE_FAILED
    held_disk.make_files()
    troubled.full = False
    for passed_ms in range(0, 2_000, 100):
        store.tick(NOW_MS + passed_ms)
        held_disk.drain()
    held_disk.make_files()
    assert store.health is StoreHealth.FIT, "without a message that asks for it"
    assert store.append(NewMessage("T", 0, bytes(1000)), NOW_MS).status is PutStatus.PUT_OK


@pytest.mark.parametrize("number", [0, -1])
@pytest.mark.parametrize("removed", [True, False])
def test_a_log_file_that_is_lost_while_the_store_runs_stops_writes(
    stores: Any, put: Any, number: int, removed: bool
) -> None:
    store = stores.open()
    for _ in range(40):
        put(store, body=bytes(1000))
    store.tick(NOW_MS)
    paths = [store._log.segments.path(start) for start in store._log.segments.file_starts()]
    assert len(paths) > 2 and store.health is StoreHealth.FIT
    lost = Path(paths[number])
    if removed:
        lost.unlink()
    else:
        with lost.open("r+b") as file:
            file.truncate(4096)
    store.tick(NOW_MS + 1_000)
    refused = store.append(NewMessage("T", 0, b"x"), NOW_MS)
    assert refused.status is PutStatus.SERVICE_NOT_AVAILABLE
    assert lost.name in refused.reason
    assert ("was removed" if removed else "was cut to 4096") in refused.reason


def test_the_look_at_the_files_is_a_disk_threads(
    stores: Any, put: Any, held_disk: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hanging disk does not list files either: a listing on the loop would block it, every
    second."""
    store = stores.open(held_disk)
    put(store)
    store.tick(NOW_MS)
    held_disk.drain()
    looks: list[str] = []
    list_files = RealFiles.list_files

    def note(files: RealFiles, path: str) -> list[tuple[str, int]]:
        looks.append(path)
        return list_files(files, path)

    monkeypatch.setattr(RealFiles, "list_files", note)
    for passed_ms in range(100, 1_000, 100):
        store.tick(NOW_MS + passed_ms)
        held_disk.drain()
    assert looks == [], "one look a second"
    for passed_ms in range(1_000, 5_000, 100):
        store.tick(NOW_MS + passed_ms)
    assert looks == [], "the loop does not look, nor does a second look wait"
    Path(store._log.segments.path(0)).rename(tmp_path / "gone")
    held_disk.drain()
    assert looks == [store.config.log_folder]
    assert store.health is StoreHealth.FAILED


def test_a_look_from_before_a_cut_says_nothing(stores: Any, held_disk: Any, put: Any) -> None:
    store = stores.open(held_disk)
    put(store)
    store.tick(NOW_MS)
    held_disk.drain()
    store.tick(NOW_MS + 2_000)
    [job] = [one for one in held_disk.jobs if getattr(one._work, "__name__", "") == "list_folder"]
    held_disk.jobs.remove(job)
    store.truncate(LogOffset(0), NOW_MS)
    job._work = dict  # the query found no file, because they were being made again
    job.wait_and_report()
    assert store.health is StoreHealth.FIT
