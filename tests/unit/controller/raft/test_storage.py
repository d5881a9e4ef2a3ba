"""The files of a member: what a life leaves to the next, wherever the power goes, and damage."""

import random
from pathlib import Path

import pytest
from tests.sim.disk import PowerCut, SimDisk

from turbopump.controller.raft.log import Base, Entry, Log, Snapshot
from turbopump.controller.raft.member import Restored
from turbopump.controller.raft.storage import RaftStorage
from turbopump.engine.files import RealFiles
from turbopump.engine.types import StoreError

FOLDER = "/controller/dledger-n0"


def entries(first: int, count: int, term: int = 1, size: int = 20) -> tuple[Entry, ...]:
    log = Log(Base(first - 1, term if first else -1, first * (48 + size)))
    for number in range(count):
        entry = log.next_entry(term, bytes([number % 256]) * size)
        log.extend([entry])
    return log.entries()


def sim_disk(seed: int = 1) -> SimDisk:
    return SimDisk(random.Random(seed), lambda: 0)


def opened(disk: SimDisk, size_min: int = 4096) -> tuple[RaftStorage, Restored]:
    storage = RaftStorage(disk, FOLDER, size_min)
    return storage, storage.open()


def again(disk: SimDisk, kill: bool = False) -> Restored:
    disk.kill = kill
    disk.end()
    disk.restart()
    storage, restored = opened(disk)
    storage.close()
    return restored


def test_real_files(tmp_path: Path) -> None:
    folder = f"{tmp_path}/n0"
    storage = RaftStorage(RealFiles(), folder)
    restored = storage.open()
    assert (restored.term, restored.vote, restored.is_new) == (0, None, True)
    assert restored.log is not None and restored.log.end == -1
    storage.save_term(3, "n1")
    storage.append(entries(0, 3))
    storage.append(entries(3, 1, 2))
    storage.truncate_from(2)
    storage.append(entries(2, 2, 3, size=30_000))
    with pytest.raises(StoreError, match="used by another"):
        RaftStorage(RealFiles(), folder).open()
    storage.close()
    restored = RaftStorage(RealFiles(), folder).open()
    assert (restored.term, restored.vote, restored.is_new) == (3, "n1", False)
    assert restored.log is not None
    assert restored.log.entries() == entries(0, 2) + entries(2, 2, 3, size=30_000)


def test_what_was_done_survives_a_power_cut() -> None:
    disk = sim_disk()
    storage, _ = opened(disk)
    storage.save_term(5, "n2")
    storage.append(entries(0, 200, 4))  # the file grows
    assert again(disk).log is not None
    restored = again(disk)
    assert (restored.term, restored.vote) == (5, "n2")
    assert restored.log is not None and restored.log.entries() == entries(0, 200, 4)


def test_a_snapshot_replaces_what_it_stands_for() -> None:
    disk = sim_disk()
    storage, _ = opened(disk)
    storage.save_term(1, None)
    all_entries = entries(0, 50)
    storage.append(all_entries)
    log = Log(Base(), all_entries)
    snapshot = Snapshot(log.base_at(40), b"state" * 100)
    log.compact(30)
    storage.save_snapshot(snapshot, log.base, log.entries())
    storage.append(entries(50, 1))
    restored = again(disk)
    assert restored.snapshot == snapshot
    assert restored.log is not None
    assert restored.log.base.index == 30 and restored.log.end == 50


@pytest.mark.parametrize("kill", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_a_cut_at_every_operation(seed: int, kill: bool) -> None:
    """What returned is there; of what did not, all, nothing or a part of the entries."""
    for operations in range(60):
        disk = sim_disk(seed * 1000 + operations)
        disk.torn_pages = seed % 2 == 1
        disk.kill, disk.cut_after = kill, operations
        done: list[tuple[int, int, int]] = [(0, -1, -1)]  # term, end of the log, snapshot
        ended = False
        try:
            storage, _ = opened(disk)
            storage.save_term(1, "n0")
            done.append((1, -1, -1))
            log = Log()
            for number in range(3):
                part = entries(number * 10, 10, size=100)
                log.extend(part)
                storage.append(part)
                done.append((1, log.end, -1))
            log.truncate_from(25)
            storage.truncate_from(25)
            done.append((1, 24, -1))
            snapshot = Snapshot(log.base_at(20), b"state")
            log.compact(18)
            storage.save_snapshot(snapshot, log.base, log.entries())
            done.append((1, 24, 20))
            storage.save_term(2, None)
            done.append((2, 24, 20))
        except PowerCut:
            ended = True
        if not ended:
            disk.end()
        disk.restart()
        _, restored = opened(disk)
        assert restored.log is not None
        term, end, at = done[-1]
        assert restored.term >= term
        assert restored.snapshot is None or restored.snapshot.base.index == 20
        assert (restored.snapshot is not None) or at == -1
        if done[-1] == (1, 29, -1):
            assert restored.log.end in (24, 29)
        else:
            assert restored.log.end >= end
        for entry in restored.log.entries():
            assert entry.body == bytes([entry.index % 10]) * 100
            assert entry.pos == entry.index * 148


def damaged(path: str, at: int, disk: SimDisk) -> None:
    disk.content(f"{FOLDER}/{path}")[at] ^= 1
    disk.settle()


def life() -> SimDisk:
    disk = sim_disk()
    storage, _ = opened(disk)
    storage.save_term(4, "n1")
    log = Log()
    for _ in range(3):
        part = (log.next_entry(4, b"x" * 50),)
        log.extend(part)
        storage.append(part)
    storage.save_snapshot(Snapshot(log.base_at(0), b"state"), Base(), log.entries())
    more = log.next_entry(4, b"y" * 50)
    storage.append((more,))
    log.extend([more])
    storage.append((log.next_entry(4, b"z" * 50),))
    storage.close()
    return disk


@pytest.mark.parametrize(
    ("path", "at", "text"),
    [
        ("currterm", 9, "currterm is damaged"),
        ("snapshot", 50, "snapshot is damaged"),
        ("snapshot", 3, "snapshot is damaged"),
        ("entries", 20, "entries is damaged"),
        ("entries", 48 + 60, "entries is damaged: entry 0 at byte 48"),
        ("entries", 48 + 98 + 60, "entries is damaged: entry 1 at byte 146"),
        ("entries", 48 + 3 * 98 + 60, "entries is damaged: entry 3 at byte 342"),
    ],
)
def test_damage_is_named(path: str, at: int, text: str) -> None:
    disk = life()
    damaged(path, at, disk)
    with pytest.raises(StoreError, match=text):
        opened(disk)


@pytest.mark.parametrize("name", ["currterm", "entries"])
def test_a_missing_file_is_no_new_member(name: str) -> None:
    disk = life()
    disk.remove(f"{FOLDER}/{name}")
    with pytest.raises(StoreError, match=f"{name} is missing"):
        opened(disk)


def test_a_log_without_its_snapshot_is_refused() -> None:
    disk = sim_disk()
    storage, _ = opened(disk)
    storage.save_term(1, None)
    log = Log(Base(), entries(0, 10))
    storage.append(log.entries())
    snapshot = Snapshot(log.base_at(8), b"state")
    log.compact(5)
    storage.save_snapshot(snapshot, log.base, log.entries())
    storage.close()
    disk.remove(f"{FOLDER}/snapshot")
    with pytest.raises(StoreError, match="begins with 6, but a snapshot ends at -1"):
        opened(disk)


def test_a_torn_last_append_is_cut_and_written_over() -> None:
    disk = sim_disk()
    storage, _ = opened(disk)
    storage.save_term(1, None)
    storage.append(entries(0, 2, size=1000))
    storage.close()
    torn = disk.content(f"{FOLDER}/entries")
    torn[48 + 1048 + 100] ^= 1  # both were of one append: the second may be torn
    disk.settle()
    storage, restored = opened(disk)
    assert restored.log is not None and restored.log.end == 0
    storage.append(entries(1, 1, size=20))
    restored = again(disk)
    assert restored.log is not None and restored.log.end == 1
