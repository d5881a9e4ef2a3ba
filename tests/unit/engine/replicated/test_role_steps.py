"""A role change is made durable by a disk thread: the caller makes no disk operation, and after a
power cut at any operation the list is the old or the new one, and the store can become master."""

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.sim.disk import PowerCut, SimDisk
from tests.sim.work import QueuedDisk
from tests.unit.engine.replicated.test_crash import CONFIG, NOW_MS, put

from turbopump.engine.disk.serial_tasks import SerialTasks
from turbopump.engine.log.epochs import Epochs
from turbopump.engine.replicated import Replicated
from turbopump.engine.store import Store
from turbopump.engine.types import FlushMode, LogOffset, StoreError

OPERATIONS_MAX = 60


def opened(disk: SimDisk, *, plain: bool = False) -> tuple[Store, Replicated, QueuedDisk]:
    work = QueuedDisk(disk.rng)
    config = replace(CONFIG, flush_disk_type=FlushMode.ASYNC_FLUSH)
    store = Store.open(disk, config, work, NOW_MS)
    log = store.as_replicated(NOW_MS, plain=plain)
    work.close()
    return store, log, work


def made(seed: int, *, led: bool) -> SimDisk:
    """A store with messages from before it was replicated, or from its own first epoch."""
    disk = SimDisk(random.Random(seed), lambda: NOW_MS)
    disk.torn_pages, disk.ordered = seed % 2 == 0, seed % 3 == 0
    work = QueuedDisk(disk.rng)
    store = Store.open(disk, CONFIG, work, NOW_MS)
    if led:
        store.as_replicated(NOW_MS).to_master(1, NOW_MS)
    for number in range(8):
        put(store, number, "of before")
    store.close(NOW_MS)
    work.close()
    return disk


class Counted:
    """Counts the operations of a disk."""

    def __init__(self, disk: SimDisk) -> None:
        self._disk = disk
        disk.cut_after = 1 << 30

    @property
    def count(self) -> int:
        assert self._disk.cut_after is not None
        return (1 << 30) - self._disk.cut_after


def test_the_caller_waits_for_no_disk() -> None:
    """Otherwise the loop would wait for 15 syncs of a new broker's first election."""
    disk = made(1, led=False)
    _store, log, work = opened(disk)
    counted = Counted(disk)
    result = log.record_term(1, NOW_MS)
    assert (counted.count, result.done, log.is_master) == (0, False, False)
    work.close()
    assert counted.count > 0
    start = result.value
    assert not isinstance(start, StoreError)
    assert not log.is_master
    before = counted.count
    log.begin_term(start, NOW_MS)
    assert (counted.count, log.is_master) == (before, True)
    log.to_replica(NOW_MS)
    ready = log.get_ready()
    recorded = log.record_epochs(Epochs.from_pairs([(1, start), (2, start)]))
    assert counted.count == before
    work.close()
    assert (ready.value, recorded.value, log.epochs.last_epoch) == (None, None, 2)


@pytest.mark.parametrize("led", [False, True], ids=["a first term", "a later term"])
def test_a_change_of_role_is_one_sync(led: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """RocketMQ's file and its copy are written afterwards, and the next change does not wait for
    them."""
    disk = made(1, led=led)
    store, log, work = opened(disk)
    syncs: list[object] = []
    real = disk.check_sync
    monkeypatch.setattr(disk, "check_sync", lambda *args: (syncs.append(args), real(*args)))
    result = log.record_term(5, NOW_MS)
    work.close()
    assert isinstance(result.value, int)
    assert len(syncs) == 1
    log.get_ready()
    recorded = log.record_epochs(Epochs.from_pairs([(5, result.value), (6, result.value)]))
    work.close()
    assert (recorded.done, recorded.value, len(syncs)) == (True, None, 2)
    path = f"{CONFIG.root}/epochFileCheckpoint"
    assert not disk.exists(path) or disk.read(path) != log.epochs.encode()
    log.tick(NOW_MS)
    again = log.record_epochs(Epochs.from_pairs([(6, result.value), (7, result.value)]))
    for _ in range(100):
        work.step()
    assert (again.value, log.epochs.last_epoch) == (None, 7)
    log.tick(NOW_MS)
    work.close()
    assert disk.read(path) == log.epochs.encode()
    store.close(NOW_MS)


@pytest.mark.parametrize("led", [False, True], ids=["a first term", "a later term"])
def test_a_power_cut_at_each_operation_of_a_term(led: bool) -> None:
    epoch = 2 if led else 1
    for operations in range(OPERATIONS_MAX):
        disk = made(operations, led=led)
        _store, log, work = opened(disk)
        before, after = log.epochs, log.epochs.with_epoch(epoch, log.end)
        end = log.end
        result = log.record_term(epoch, NOW_MS)
        disk.cut_after = operations
        try:
            work.close()
        except PowerCut:
            pass
        whole = result.done and not isinstance(result.value, StoreError)
        if not disk._dead:
            disk.end()
        disk.restart()
        _store, log, _work = opened(disk)
        assert log.may_lead, f"cut at operation {operations}"
        assert log.end == end
        assert log.epochs in ((after,) if whole else (before, after)), f"operation {operations}"
        log.to_master(epoch + 5, NOW_MS)
    assert whole, "more operations than were looked at"


def test_a_power_cut_at_each_operation_of_a_replicas_list() -> None:
    whole = False
    for operations in range(OPERATIONS_MAX):
        disk = made(operations, led=True)
        _store, log, work = opened(disk)
        before, after = log.epochs, log.epochs.with_epoch(7, log.end)
        log.get_ready()
        recorded = log.record_epochs(after)
        disk.cut_after = operations
        try:
            work.close()
        except PowerCut:
            pass
        whole = recorded.done and recorded.value is None
        if not disk._dead:
            disk.end()
        disk.restart()
        _store, log, _work = opened(disk)
        assert log.may_lead
        assert log.epochs in ((after,) if whole else (before, after)), f"operation {operations}"
    assert whole, "more operations than were looked at"


COUNTS = {"T": {0: 7, 3: 9}}


def begun_anew(seed: int) -> tuple[SimDisk, Store, Replicated, QueuedDisk]:
    """A restarted copy that still wants the counts of idle queues."""
    disk = SimDisk(random.Random(seed), lambda: NOW_MS)
    disk.torn_pages, disk.ordered = seed % 2 == 0, seed % 3 == 0
    store, log, work = opened(disk)
    result = log.begin_log_at(LogOffset(log.file_size))
    work.close()
    assert (result.value, log.needs_queue_counts) == (None, True)
    return disk, store, log, work


def test_counts_of_idle_queues_are_kept_without_the_loop() -> None:
    """Otherwise the loop would make four syncs."""
    disk, _store, log, work = begun_anew(1)
    counted = Counted(disk)
    result = log.save_queue_counts(COUNTS)
    term = log.record_term(3, NOW_MS)
    assert (counted.count, result.done, log.needs_queue_counts) == (0, False, True)
    assert log.idle_queue_counts() == {}, "they count once they are durable"
    work.close()
    assert counted.count > 0
    assert (result.value, log.needs_queue_counts, log.idle_queue_counts()) == (None, False, COUNTS)
    assert term.done, "in turn"


def test_counts_that_cannot_be_kept_are_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    disk, _store, log, work = begun_anew(1)

    def fails(*_args: object) -> None:
        raise OSError(5, "input/output error")

    monkeypatch.setattr(disk, "check_sync", fails)
    result = log.save_queue_counts(COUNTS)
    work.close()
    assert isinstance(result.value, OSError)
    assert (log.needs_queue_counts, log.idle_queue_counts()) == (True, {})


def test_no_counts_are_taken_of_a_log_that_is_being_cut() -> None:
    _disk, store, log, work = begun_anew(1)
    cut = log.begin_restart()
    result = log.save_queue_counts(COUNTS)
    assert isinstance(result.value, StoreError)
    for _ in range(9):
        store.tick(NOW_MS)
        work.close()
    assert cut.done
    assert log.idle_queue_counts() == {}


def test_a_cut_begins_behind_counts_that_are_being_kept() -> None:
    """Both write the same file; the counts of the old log must not end up in the new log."""
    disk, store, log, work = begun_anew(1)
    result = log.save_queue_counts(COUNTS)
    cut = log.begin_restart()
    for _ in range(9):
        store.tick(NOW_MS)
        work.close()
    assert (result.value, cut.value, log.idle_queue_counts()) == (None, None, {})
    store.close(NOW_MS)
    _store, log, _work = opened(disk)
    assert (log.needs_queue_counts, log.idle_queue_counts()) == (False, {})


def test_a_power_cut_at_each_operation_of_counts() -> None:
    """After the cut the counts are there, or still wanted."""
    whole = False
    for operations in range(OPERATIONS_MAX):
        disk, _store, log, work = begun_anew(operations)
        result = log.save_queue_counts(COUNTS)
        disk.cut_after = operations
        try:
            work.close()
        except PowerCut:
            pass
        whole = result.done and result.value is None
        if not disk._dead:
            disk.end()
        disk.restart()
        _store, log, _work = opened(disk)
        found = (log.needs_queue_counts, log.idle_queue_counts())
        allowed: list[object] = [(False, COUNTS)] if whole else [(False, COUNTS), (True, {})]
        assert found in allowed, f"operation {operations}"
        if whole:
            break
    assert whole, "more operations than were looked at"


def test_steps_are_done_in_turn() -> None:
    work = QueuedDisk(random.Random(1))
    steps, seen = SerialTasks(work), list[str]()

    def submit(name: str) -> None:
        def begin() -> Callable[[], None]:
            seen.append(f"{name} begins")
            return lambda: seen.append(name)

        steps.submit(begin, lambda error: seen.append(f"{name} ended"))

    for name in ("a", "b"):
        submit(name)
    assert seen == ["a begins"]
    assert steps.busy
    steps.wait_until_idle()
    assert not steps.busy
    assert seen == ["a begins", "a", "a ended", "b begins", "b", "b ended"]


def test_a_step_that_fails_is_told_and_the_next_one_begins() -> None:
    work = QueuedDisk(random.Random(1))
    steps, seen = SerialTasks(work), list[bool]()

    def fails() -> None:
        raise OSError(5, "input/output error")

    steps.submit(lambda: fails, lambda error: seen.append(error is not None))
    steps.submit(lambda: lambda: None, lambda error: seen.append(error is not None))
    work.close()
    assert seen == [True, False]
