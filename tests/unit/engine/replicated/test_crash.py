"""A replica crashes at each disk operation in turn: afterwards the epochs match its bytes, it
serves only confirmed records, and it can follow again.

S1, S4, S5, R11, I2, I7, I8, F14. Two histories diverge at the start of an epoch: the log's bytes
identify the history, and the epochs must identify the same.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from typing import Any, cast

import pytest
from tests.shortcuts.log_cuts import restart_log, truncate_log
from tests.sim.disk import PowerCut, SimDisk
from tests.sim.share import is_crash_tried
from tests.waiting import record_epochs

from turbopump.engine.config import StoreConfig
from turbopump.engine.disk.files import MappedFile
from turbopump.engine.disk.flush import InlineDisk
from turbopump.engine.log import replica_append
from turbopump.engine.log.epoch_file import WHOLE_MARK_FILE
from turbopump.engine.log.epochs import Epochs, consistent_point
from turbopump.engine.replicated import Replicated
from turbopump.engine.store import Store
from turbopump.engine.types import FlushMode, LogOffset, NewMessage, PutStatus
from turbopump.pyx import record as kernel
from turbopump.pyx.region import Region

NOW_MS = 1_700_000_000_000
ROOT = "/store"
CONFIG = StoreConfig(
    ROOT,
    mapped_file_size_commit_log=4096,
    mapped_file_size_consume_queue=100,
    max_hash_slot_num=5,
    max_index_num=12,
    max_message_size=2048,
)
QUEUES = 3
OPERATIONS_MAX = 2000


@dataclass(frozen=True)
class History:
    """A master's log, byte for byte from `start`, with its epochs."""

    start: int
    data: bytes
    epochs: Epochs

    @property
    def end(self) -> int:
        return self.start + len(self.data)

    def piece(self, start: int, end: int) -> bytes:
        return self.data[start - self.start : end - self.start]

    def boundaries(self) -> list[int]:
        """The log offsets at which records end."""
        found, at = [self.start], self.start
        while at < self.end:
            base = at - at % CONFIG.mapped_file_size_commit_log
            region = Region(self.piece(base, min(base + 4096, self.end)))
            stop = kernel.scan(region, at - base, region.size, 1)
            if stop.status == kernel.BLANK_FOUND:
                at = base + 4096
            else:
                at += int(stop.rows[0, kernel.SIZE])
            found.append(at)
        return found

    def bodies(self, until: int) -> list[list[bytes]]:
        """Bodies of each queue, in order, of the records that end at or before `until`."""
        ends = self.boundaries()
        queues: list[list[bytes]] = [[] for _ in range(QUEUES)]
        for start, end in pairwise(ends):
            base = start - start % 4096
            region = Region(self.piece(base, min(base + 4096, self.end)))
            if end <= until and kernel.scan(region, start - base, region.size, 1).count:
                record = kernel.decode(region, start - base, region.size, base)
                queues[record.queue_id].append(record.body)
        return queues


def open_store(disk: SimDisk, sync: bool = False) -> Store:
    mode = FlushMode.SYNC_FLUSH if sync else FlushMode.ASYNC_FLUSH
    config = replace(CONFIG, flush_disk_type=mode)
    return Store.open(disk, config, InlineDisk(), NOW_MS)


def put(store: Store, number: int, text: str) -> None:
    body = f"{text}{number}".encode() + bytes(number * 97 % 500)
    sent = store.append(NewMessage("T", number % QUEUES, body, b"KEYS\1k%d\2" % number), NOW_MS)
    assert sent.status is PutStatus.PUT_OK


def history_of(store: Store, log: Replicated) -> History:
    data = b"".join(log.view(log.min, log.end - log.min))
    return History(log.min, data, log.epochs)


@cache
def histories() -> tuple[History, History, History]:
    """(the old master's history, the new master's, which diverges in epoch 2, a later one of a
    different group)."""
    disk = SimDisk(random.Random(1), lambda: NOW_MS)
    store = open_store(disk)
    log = store.as_replicated(NOW_MS)
    log.to_master(1, NOW_MS)
    for number in range(24):
        put(store, number, "common")
    fork = log.end
    for number in range(24, 34):
        put(store, number, "old")
    old = history_of(store, log)
    log.to_replica(NOW_MS)
    truncate_log(log, fork, NOW_MS)
    log.to_master(2, NOW_MS)
    for number in range(24, 40):
        put(store, number, "new")
    new = history_of(store, log)
    other = SimDisk(random.Random(1), lambda: NOW_MS)
    store = open_store(other)
    log = store.as_replicated(NOW_MS)
    log.to_master(5, NOW_MS)
    for number in range(40):
        put(store, number, "other")
    whole = history_of(store, log)
    return old, new, History(4096, whole.data[4096:], whole.epochs)


def follow(log: Replicated, master: History, until: int, step: int = 700) -> None:
    """Append the master's bytes, in pieces that cut records, and confirm a little less."""
    at = log.end if log.min < log.end else LogOffset(master.start)
    while at < until:
        stop = LogOffset(min(at + step, until, at - at % 4096 + 4096))
        log.append(at, master.piece(at, stop), NOW_MS)
        log.confirm_to(LogOffset(stop - 500), NOW_MS)
        at = stop


def catch_up(log: Replicated, master: History) -> None:
    """Catch up like the state machine of a replica, in short."""
    if log.min < log.end:
        end = LogOffset(master.end)
        point = consistent_point(log.epochs, log.believed_end, master.epochs, end)
        if point is None or point <= log.min:
            restart_log(log, NOW_MS)
        elif point < log.end:
            truncate_log(log, point, NOW_MS)
    if log.min == log.end:
        record_epochs(log, master.epochs.limited_to(LogOffset(master.start)))
    else:
        record_epochs(log, log.epochs.cut_at(log.end).adopted_from(master.epochs, log.end))
    for entry in master.epochs:
        if entry.epoch > log.epochs.last_epoch:
            follow(log, master, entry.start)
            record_epochs(log, master.epochs.limited_to(entry.start))
    follow(log, master, master.end)
    log.confirm_to(LogOffset(master.end), NOW_MS)


def check(store: Store, log: Replicated, known: list[History]) -> History:
    """Check that the log is a prefix of a known history, its epochs match that history, and readers
    see its confirmed part."""
    data = b"".join(log.view(log.min, log.end - log.min))
    mine = [one for one in known if data == one.piece(log.min, log.end) and one.start <= log.min]
    if not data:
        mine = known
    assert mine, f"bytes of no record, {log.min} to {log.end}"
    assert log.believed_end == log.end, "an epoch list that was whole is not believed"
    assert all(entry.start <= log.end for entry in log.epochs)
    labels = [entry for entry in log.epochs if entry.start < log.end]
    true = [[e for e in one.epochs if e.start < log.end] for one in mine]
    assert not data or labels in true, f"labels {labels} of a log that is {true}"
    assert log.min <= log.confirm <= log.end
    assert store.dispatched_log_offset == log.confirm
    if data:
        assert log.confirm in mine[0].boundaries(), "confirmOffset inside a record"
    seen = mine[0].bodies(log.confirm) if data else [[] for _ in range(QUEUES)]
    for queue_id, bodies in enumerate(seen):
        first, last = store.min_queue_offset("T", queue_id), store.max_queue_offset("T", queue_id)
        found = [
            record.body
            for unit in store.units("T", queue_id, first, last - first)
            if (record := store.record(unit.log_offset)) is not None
        ]
        assert found == bodies
    return mine[0]


Scenario = Callable[[Replicated], None]
OLD, NEW, OTHER = histories()
FORK = next(entry.start for entry in NEW.epochs if entry.epoch == 2)


def cut_and_follow(log: Replicated) -> None:
    catch_up(log, NEW)


def begin_anew(log: Replicated) -> None:
    catch_up(log, OTHER)


def lead(log: Replicated) -> None:
    log.to_master(9, NOW_MS)


def only_append(log: Replicated) -> None:
    follow(log, OLD, OLD.end)


def play(scenario: Scenario, trouble: str, operation: int, sync: bool) -> tuple[SimDisk, bool]:
    """Run a replica of the old master that crashes in its next steps; returns the disk, and whether
    it crashed."""
    rng = random.Random(operation)
    disk = SimDisk(rng, lambda: NOW_MS)
    store = open_store(disk, sync)
    log = store.as_replicated(NOW_MS)
    record_epochs(log, OLD.epochs)
    follow(log, OLD, FORK - 300 if scenario is only_append else OLD.end - 7)
    log.confirm_to(LogOffset(FORK - 700), NOW_MS)
    for second in range(3):
        store.tick(NOW_MS + 60_000 * second)
        if trouble == "writeback":
            disk.writeback()
    disk.torn_pages = trouble == "torn pages"
    disk.ordered = trouble == "ordered"
    disk.kill = trouble == "kill"
    disk.cut_after = operation
    try:
        scenario(log)
        store.tick(NOW_MS + 300_000)
        if operation % 2:
            store.close(NOW_MS)
    except PowerCut:
        disk.restart()
        return disk, True
    disk.cut_after = None
    disk.end()
    disk.restart()
    return disk, False


@pytest.mark.parametrize("trouble", ["", "torn pages", "ordered", "kill", "again", "writeback"])
@pytest.mark.parametrize("scenario", [cut_and_follow, begin_anew, lead, only_append])
def test_a_crash_at_each_operation(
    scenario: Scenario, trouble: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_append, "WRITE_MIN", 0)
    for operation in range(OPERATIONS_MAX):
        if not is_crash_tried(operation, len(trouble)):
            continue
        sync = operation % 3 == 0
        disk, ended = play(scenario, trouble, operation, sync)
        if trouble == "again":
            disk.cut_after = operation % 17
            try:
                open_store(disk, sync)
            except PowerCut:
                disk.restart()
            else:
                disk.end()
                disk.restart()
        store = open_store(disk, sync)
        log = store.as_replicated(NOW_MS)
        led = Epochs.from_pairs([*((e.epoch, e.start) for e in OLD.epochs), (9, log.end)])
        known = [OLD, NEW, OTHER] if scenario is not lead else [OLD, replace(OLD, epochs=led)]
        check(store, log, known)
        master = OLD if scenario is only_append else OTHER if scenario is begin_anew else NEW
        catch_up(log, master)
        assert check(store, log, [master]) is master
        store.close(NOW_MS)
        store = open_store(disk, sync)
        assert check(store, store.as_replicated(NOW_MS), [master]) is master
        assert store.as_replicated(NOW_MS).confirm == master.end
        if not ended:
            return
    raise AssertionError("the scenario has no end")


def start_copy(disk: SimDisk, plain: bool) -> Replicated:
    log = open_store(disk).as_replicated(NOW_MS, plain=plain)
    if not plain:
        record_epochs(log, OLD.epochs.limited_to(LogOffset(0)))
    return log


def killed(disk: SimDisk, plain: bool) -> Replicated:
    disk.settle()
    disk.end()
    disk.restart()
    return open_store(disk).as_replicated(NOW_MS, plain=plain)


@pytest.mark.parametrize("held_max", [replica_append.HELD_MAX, 0])
@pytest.mark.parametrize("plain", [True, False])
def test_a_killed_replica_does_not_take_half_a_record_for_whole(
    plain: bool, held_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record without the last bytes of its properties has valid lengths, a whole body, and zeros
    at its end."""
    monkeypatch.setattr(replica_append, "HELD_MAX", held_max)
    disk = SimDisk(random.Random(1), lambda: NOW_MS)
    log = start_copy(disk, plain)
    *_, before, end = [at for at in OLD.boundaries() if at < 4096]
    log.append(LogOffset(0), OLD.piece(0, end - 2), NOW_MS)
    assert log.end == (end - 2 if held_max == 0 else before)
    assert killed(disk, plain).end == before


def text_of_zeros() -> bytes:
    """A log of records whose properties end in zeros."""
    disk = SimDisk(random.Random(1), lambda: NOW_MS)
    store = open_store(disk)
    log = store.as_replicated(NOW_MS)
    log.to_master(1, NOW_MS)
    for _ in range(5):
        sent = store.append(NewMessage("T", 0, b"body", b"KEYS\1k\2NOTE\1\0\0"), NOW_MS)
        assert sent.status is PutStatus.PUT_OK
    return b"".join(log.view(log.min, log.end))


@pytest.mark.parametrize("step", [1, 7, 100, 4000])
@pytest.mark.parametrize("plain", [True, False])
def test_a_killed_replica_keeps_records_that_end_in_zeros(plain: bool, step: int) -> None:
    """The record was acknowledged, and it is complete."""
    data = text_of_zeros()
    disk = SimDisk(random.Random(1), lambda: NOW_MS)
    log = start_copy(disk, plain)
    for at in range(0, len(data), step):
        log.append(LogOffset(at), data[at : at + step], NOW_MS)
    assert log.end == len(data)
    assert killed(disk, plain).end == len(data)


@pytest.mark.parametrize("held_max", [replica_append.HELD_MAX, 0])
def test_a_store_of_an_older_life_is_looked_at_for_zeros(
    held_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a store was written in pieces, as RocketMQ does and as records too large to hold are:
    zeros may be missing bytes or belong to the properties."""
    data = text_of_zeros()
    disk = SimDisk(random.Random(1), lambda: NOW_MS)
    log = start_copy(disk, plain=True)
    log.append(LogOffset(0), data[:50], NOW_MS)
    if held_max:
        disk.remove(f"{ROOT}/{WHOLE_MARK_FILE}")
    else:
        monkeypatch.setattr(replica_append, "HELD_MAX", 0)
    log.append(LogOffset(50), data[50:-1], NOW_MS)
    log.append(LogOffset(len(data) - 1), data[-1:], NOW_MS)
    assert log.end == len(data)
    log = killed(disk, plain=True)
    assert log.end < len(data)
    monkeypatch.undo()
    log.append(log.end, data[log.end :], NOW_MS)
    assert killed(disk, plain=True).end == len(data), "it is known from here"


@pytest.mark.parametrize("size", [100, 100_000])
def test_a_kill_amid_a_write_leaves_no_record(size: int) -> None:
    """The record's first bytes are written last."""
    seen: list[bytes] = []

    class Mapped:
        def __init__(self) -> None:
            self.memory = bytearray(200_000)
            self.region = self

        def write(self, position: int, data: Any) -> None:
            seen.append(bytes(self.memory[:8]))
            pieces = data if isinstance(data, list) else [data]
            for piece in pieces:
                self.memory[position : position + len(piece)] = piece
                position += len(piece)

    mapped = Mapped()
    data = bytes(range(1, 251)) * (size // 250 + 1)
    pieces = [memoryview(data[:3]), memoryview(data[3:60]), memoryview(data[60:size])]
    replica_append.write(cast(MappedFile, mapped), 0, pieces, size)
    assert mapped.memory[:size] == data[:size]
    assert len(seen) > 1
    assert set(seen) == {bytes(8)}
