"""The files of a member: the state at the next start, power cuts at every operation, and damage."""

import random
import zlib
from pathlib import Path

import pytest
from tests.sim.disk import PowerCut, SimDisk

from turbopump.controller.raft.actions import AppendEntries, SaveSnapshot, SaveTerm, TruncateFrom
from turbopump.controller.raft.log import Base, Entry, Log, Snapshot
from turbopump.controller.raft.member_state import Restored
from turbopump.controller.raft.storage import COPY_SIZE, SLOT_SIZE, RaftStorage
from turbopump.engine.disk.real_files import RealFiles
from turbopump.engine.types import StoreError

FOLDER = "/controller/dledger-n0"


def entries(first: int, count: int, term: int = 1, size: int = 20) -> tuple[Entry, ...]:
    log = Log(Base(first - 1, term if first else -1, first * (48 + size)))
    for number in range(count):
        entry = log.next_entry(term, bytes([number % 256]) * size)
        log.append_entries([entry])
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


def test_a_slice_ends_at_a_number_of_entries_and_of_bytes() -> None:
    log = Log()
    for body in b"one", b"two", b"three":
        log.append_entries([log.next_entry(1, body)])
    first, second, _ = log.entries()
    both = first.size + second.size
    assert log.entries_from(0, 9, both) == [first, second]
    assert (
        log.entries_from(0, 9, both - 1)
        == log.entries_from(0, 1, both)
        == log.entries_from(0, 9, 0)
        == [first]
    )


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
    mapped = storage._mapped
    assert mapped is not None
    storage.close()
    with pytest.raises(ValueError):
        mapped.region.get_i32(0)
    restored = RaftStorage(RealFiles(), folder).open()
    assert (restored.term, restored.vote, restored.is_new) == (3, "n1", False)
    assert restored.log is not None
    assert restored.log.entries() == entries(0, 2) + entries(2, 2, 3, size=30_000)


def test_finished_work_survives_a_power_cut() -> None:
    disk = sim_disk()
    storage, _ = opened(disk)
    storage.save_term(5, "n2")
    storage.append(entries(0, 200, 4))  # the file grows
    assert again(disk).log is not None
    restored = again(disk)
    assert (restored.term, restored.vote) == (5, "n2")
    assert restored.log is not None and restored.log.entries() == entries(0, 200, 4)


def test_a_snapshot_replaces_the_entries_it_contains() -> None:
    disk = sim_disk()
    storage, _ = opened(disk)
    storage.save_term(1, None)
    all_entries = entries(0, 50)
    storage.append(all_entries)
    log = Log(Base(), all_entries)
    snapshot = Snapshot(log.base_at(40), b"state" * 100)
    log.remove_up_to(30)
    storage.save_snapshot(snapshot, log.base, log.entries())
    storage.append(entries(50, 1))
    restored = again(disk)
    assert restored.snapshot == snapshot
    assert restored.log is not None
    assert restored.log.base.index == -1 and restored.log.end == 50, "the file was left as it was"
    storage, _ = opened(disk)
    storage.save_snapshot(snapshot, log.base, (*log.entries(), *entries(50, 1)))
    storage.append(entries(51, 60))  # more than the file has room for
    storage.close()
    restored = again(disk)
    assert restored.log is not None
    assert restored.log.base.index == 30 and restored.log.end == 110


def test_a_snapshot_costs_two_syncs_and_the_entries_stay_where_they_are() -> None:
    disk = sim_disk()
    storage, _ = opened(disk)
    storage.save_term(1, None)
    log = Log(Base(), entries(0, 50))
    storage.append(log.entries())
    before, content = storage.syncs, bytes(disk.content(f"{FOLDER}/entries"))
    snapshot = Snapshot(log.base_at(40), b"state" * 100)
    log.remove_up_to(30)
    storage.save_snapshot(snapshot, log.base, log.entries())
    assert storage.syncs - before == 2
    assert bytes(disk.content(f"{FOLDER}/entries")) == content


def test_a_snapshot_in_one_batch_with_entries_costs_their_sync_too() -> None:
    disk = sim_disk()
    storage, _ = opened(disk)
    storage.save_term(1, None)
    log = Log(Base(), entries(0, 20))
    storage.append(log.entries())
    before, more = storage.syncs, entries(20, 3)
    log.append_entries(more)
    snapshot = Snapshot(log.base_at(15), b"state")
    log.remove_up_to(10)
    storage.perform_actions([AppendEntries(more), SaveSnapshot(snapshot, log.base, log.entries())])
    assert storage.syncs - before == 3
    restored = again(disk)
    assert restored.log is not None and restored.snapshot == snapshot
    assert restored.log.entries()[11:] == log.entries()


@pytest.mark.parametrize(
    ("base", "left"),
    [
        (Base(30, 2, 2108), ()),  # the leader's, far ahead
        (Base(9, 2, 680), entries(10, 2, 2)),  # of another term
        (Base(9, 1, 680), entries(10, 2, 2)),  # with other entries
        (Base(9, 1, 680), entries(10, 2, 1)),  # with fewer
    ],
)
def test_a_log_that_a_snapshot_contradicts_is_replaced(base: Base, left: tuple[Entry, ...]) -> None:
    disk = sim_disk()
    storage, _ = opened(disk)
    storage.save_term(2, None)
    storage.append(entries(0, 20))
    storage.save_snapshot(Snapshot(base, b"state"), base, left)
    restored = again(disk)
    assert restored.log is not None
    assert (restored.log.base, restored.log.entries()) == (base, left)


@pytest.mark.parametrize("kill", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_a_cut_at_every_operation(seed: int, kill: bool) -> None:
    """Operations that returned are durable; an unfinished append leaves all, none or some of its
    entries."""
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
                log.append_entries(part)
                storage.append(part)
                done.append((1, log.end, -1))
            log.truncate_from(25)
            storage.truncate_from(25)
            done.append((1, 24, -1))
            snapshot = Snapshot(log.base_at(20), b"state")
            log.remove_up_to(18)
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
        log.append_entries(part)
        storage.append(part)
    storage.save_snapshot(Snapshot(log.base_at(0), b"state"), Base(), log.entries())
    more = log.next_entry(4, b"y" * 50)
    storage.append((more,))
    log.append_entries([more])
    storage.append((log.next_entry(4, b"z" * 50),))
    storage.close()
    return disk


@pytest.mark.parametrize(
    ("path", "at", "text"),
    [
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


def test_a_file_of_votes_without_a_whole_record_is_damaged() -> None:
    disk = life()
    for at in range(0, 2 * SLOT_SIZE, COPY_SIZE):
        disk.content(f"{FOLDER}/currterm")[at + 9] ^= 1
    disk.settle()
    with pytest.raises(StoreError, match="currterm is damaged: it has no whole record"):
        opened(disk)


def test_a_bad_sector_of_the_last_vote_does_not_forget_it() -> None:
    """The damage must not count as a torn write, whose vote was never answered."""
    whole = bytes(life().content(f"{FOLDER}/currterm"))
    for at in range(0, 2 * SLOT_SIZE, COPY_SIZE):
        for byte in (0, 9, 13, 20, 30, 32):
            disk = life()
            assert disk.content(f"{FOLDER}/currterm") == whole
            damaged("currterm", at + byte, disk)
            _, restored = opened(disk)
            assert (restored.term, restored.vote) == (4, "n1"), at + byte


def test_votes_torn_at_each_byte() -> None:
    """A power cut during the write of a vote leaves the new or the previous vote, in both slots,
    and the next vote overwrites the torn one."""
    for votes in (2, 3):
        disk = sim_disk()
        storage, _ = opened(disk)
        for term in range(1, votes):
            storage.save_term(term, f"n{term}")
        storage.close()
        before = bytes(disk.content(f"{FOLDER}/currterm"))
        storage, _ = opened(disk)
        storage.save_term(votes, f"n{votes}")
        storage.close()
        after = bytes(disk.content(f"{FOLDER}/currterm"))
        changed = [at for at in range(len(after)) if before[at] != after[at]]
        size = len(changed)
        for how in ("from the front", "from the end", "both copies alike"):
            for count in range(size + 1):
                torn = bytearray(before)
                for place, at in enumerate(changed):
                    turn = {
                        "from the front": place,
                        "from the end": size - 1 - place,
                        "both copies alike": place % (size // 2) * 2,
                    }[how]
                    if turn < count:
                        torn[at] = after[at]
                disk = sim_disk()
                storage, _ = opened(disk)
                storage.close()
                disk.content(f"{FOLDER}/currterm")[:] = torn
                disk.settle()
                storage, restored = opened(disk)
                found = (restored.term, restored.vote)
                assert found in ((votes - 1, f"n{votes - 1}"), (votes, f"n{votes}"))
                assert found[0] == votes or count < size
                storage.save_term(9, "n9")
                assert again(disk).vote == "n9"


def test_a_vote_costs_one_sync_and_no_new_file() -> None:
    disk = sim_disk()
    storage, _ = opened(disk)
    before, names = storage.syncs, disk.list_folder(FOLDER)
    operations: list[str] = []
    real = disk.check_sync
    disk.check_sync = lambda *args: (operations.append("sync"), real(*args))  # type: ignore[assignment]
    storage.perform_actions(
        [SaveTerm(3, None), SaveTerm(3, "n1"), SaveTerm(5, None), SaveTerm(5, "n2")]
    )
    assert (storage.syncs - before, operations) == (1, ["sync"])
    assert disk.list_folder(FOLDER) == names
    restored = again(disk)
    assert (restored.term, restored.vote) == (5, "n2")


def test_the_text_of_an_earlier_version_is_read_and_replaced() -> None:
    text = b"currTerm=7\nvoteLeader=n2\n"
    text += b"checksum=%08x\n" % zlib.crc32(text)
    for operations in range(40):
        disk = sim_disk(operations)
        opened(disk)[0].close()
        disk.write(f"{FOLDER}/currterm", text)
        disk.settle()
        disk.cut_after = operations
        try:
            opened(disk)
        except PowerCut:
            disk.restart()
        disk.cut_after = None
        restored = again(disk)
        assert (restored.term, restored.vote, restored.is_new) == (7, "n2", False)
        assert len(disk.content(f"{FOLDER}/currterm")) == 2 * SLOT_SIZE
    disk.write(f"{FOLDER}/currterm", text.replace(b"7", b"6"))
    disk.settle()
    with pytest.raises(StoreError, match="currterm is damaged: its checksum does not fit"):
        opened(disk)


def test_a_batch_saves_its_last_term_before_the_entries_of_that_term() -> None:
    for operations in range(30):
        disk = sim_disk(operations)
        storage, _ = opened(disk)
        disk.cut_after = operations
        actions = [
            AppendEntries(entries(0, 2, 0)),
            SaveTerm(1, "n1"),
            AppendEntries(entries(2, 1)),
            SaveTerm(2, None),
            TruncateFrom(2),
            AppendEntries(entries(2, 2, 2)),
        ]
        try:
            storage.perform_actions(actions)
        except PowerCut:
            pass
        disk.cut_after = None
        restored = again(disk)
        assert restored.log is not None
        assert (restored.term, restored.vote) in ((0, None), (2, None))
        assert restored.log.end_term <= restored.term
    assert restored.log.entries() == entries(0, 2, 0) + entries(2, 2, 2)


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
    log.remove_up_to(5)
    storage.save_snapshot(snapshot, log.base, log.entries())
    storage.append(entries(10, 60))  # more than the file has room for
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
    torn[48 + 1048 + 100] ^= 1  # both entries came from a single append: the second may be torn
    disk.settle()
    storage, restored = opened(disk)
    assert restored.log is not None and restored.log.end == 0
    storage.append(entries(1, 1, size=20))
    restored = again(disk)
    assert restored.log is not None and restored.log.end == 1
