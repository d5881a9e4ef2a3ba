"""A replica's log is truncated or restarted by disk threads: the caller makes no sync, no other
disk work runs meanwhile, and the store fails if a step does not return."""

import random
from collections.abc import Callable
from typing import Any

import pytest
from tests.shortcuts.log_cuts import restart_log
from tests.sim.disk import PowerCut, SimDisk
from tests.sim.work import QueuedDisk, QueuedJob
from tests.unit.engine.replicated.test_crash import CONFIG, NOW_MS, QUEUES, History, histories
from tests.unit.engine.replicated.test_role_steps import opened
from tests.waiting import record_epochs

from turbopump.engine.queues import index
from turbopump.engine.replicated import Replicated
from turbopump.engine.store import Store
from turbopump.engine.types import LogOffset, StoreError, StoreHealth

OPERATIONS_MAX = 120
TICK_MS = 100


class Watched:
    """Counts syncs, and records those made on the loop instead of a disk thread."""

    def __init__(self, disk: SimDisk, patch: pytest.MonkeyPatch) -> None:
        self.on_loop: list[object] = []
        self.syncs = 0
        self._inside = 0
        real, run, remove = disk.check_sync, QueuedJob.run, disk.remove

        def check_sync(*args: Any) -> None:
            self.syncs += 1
            if not self._inside:
                self.on_loop.append(args)
            real(*args)

        def inside(job: QueuedJob, *, on_loop: bool = False) -> None:
            self._inside += 1
            try:
                run(job, on_loop=on_loop)
            finally:
                self._inside -= 1

        def removing(path: str) -> None:
            if not self._inside:
                self.on_loop.append(path)
            remove(path)

        patch.setattr(disk, "check_sync", check_sync)
        patch.setattr(disk, "remove", removing)
        patch.setattr(QueuedJob, "run", inside)


def copied(
    seed: int = 1, *, dispatched: bool = False
) -> tuple[SimDisk, Store, Replicated, QueuedDisk]:
    """A replica with the whole log of the old master, from which the new master's log diverges.
    With `dispatched` the old master confirmed all of it, so queues and index contain the part to be
    cut."""
    old, _new, _other = histories()
    disk = SimDisk(random.Random(seed), lambda: NOW_MS)
    disk.torn_pages, disk.ordered = seed % 2 == 0, seed % 3 == 0
    store, log, work = opened(disk)
    log.to_replica(NOW_MS)
    record_epochs(log, old.epochs)
    feed(log, work, old, old.end if dispatched else fork())
    return disk, store, log, work


def feed(log: Replicated, work: QueuedDisk, master: History, confirm: LogOffset) -> None:
    while log.end < master.end:
        at = log.end
        stop = LogOffset(min(at + 700, master.end, at - at % 4096 + 4096))
        log.append(at, master.piece(at, stop), NOW_MS)
        log.confirm_to(min(log.end, confirm), NOW_MS)
        work.close()


def fork() -> LogOffset:
    return histories()[1].epochs.entries[-1].start


def settle(store: Store, work: QueuedDisk, now_ms: int = NOW_MS) -> None:
    for _ in range(50):
        store.tick(now_ms)
        work.close()


CALLS: dict[str, Callable[[Replicated], Any]] = {
    "cut": lambda log: log.begin_truncation(fork(), NOW_MS),
    "cut with units": lambda log: log.begin_truncation(fork(), NOW_MS),
    "begun anew": lambda log: log.begin_restart(),
}


@pytest.mark.parametrize("what", sorted(CALLS))
def test_the_loop_waits_for_no_disk(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a returning replica would send no heartbeats for a dozen syncs."""
    disk, store, log, work = copied(dispatched=what == "cut with units")
    watched = Watched(disk, monkeypatch)
    result = CALLS[what](log)
    assert (result.done, watched.syncs) == (False, 0)
    settle(store, work)
    assert result.done
    assert result.value is None
    assert log.end == (fork() if what.startswith("cut") else 0)
    assert watched.syncs > 5
    assert watched.on_loop == []


@pytest.mark.parametrize("caller", ["lane", "dispatch", "tick"])
def test_no_listener_is_called_while_the_log_is_cut(caller: str) -> None:
    """A call that the lane posted, the dispatch after a sync and the tick may come during a cut,
    when the ends of queues move back."""
    _disk, store, log, work = copied(dispatched=True)
    ends: list[bool] = []
    store.on_arrival(lambda topic, queue_id, end: ends.append(result.done))
    result = log.begin_truncation(fork(), NOW_MS)

    def note_arrivals() -> None:
        for queue in store._queues:
            store._queues.table.note_stored(queue.slot, NOW_MS)

    note_arrivals()
    calls: dict[str, Callable[[], None]] = {
        "lane": store.notify_arrivals,
        "dispatch": lambda: store._run_dispatch(NOW_MS),
        "tick": lambda: store.tick(NOW_MS),
    }
    calls[caller]()
    assert (result.done, ends) == (False, [])
    settle(store, work)
    assert (result.done, ends) == (True, [])
    note_arrivals()
    calls[caller]()
    assert ends and all(ends)


def test_an_empty_log_begins_elsewhere_without_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """The replica is new, and its master's first files have expired."""
    _old, _new, other = histories()
    disk, store, log, work = copied()
    restart_log(log, NOW_MS)
    start = LogOffset(other.start)
    assert log.needs_begin_at(start)
    record_epochs(log, other.epochs)
    watched = Watched(disk, monkeypatch)
    result = log.begin_log_at(start)
    assert (result.done, watched.syncs) == (False, 0)
    settle(store, work)
    assert result.value is None
    assert not log.needs_begin_at(start)
    assert watched.on_loop == []
    assert log.epochs == other.epochs
    feed(log, work, other, log.end)
    assert log.end == other.end


def test_a_record_that_a_transfer_left_half_is_cut_without_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise the term would wait for the sync of the log's end."""
    disk, store, log, work = copied()
    end, data = log.end, histories()[0].data
    log._received.drop_waiting(is_aligned=False)  # as in a store written by an older broker
    log.append(end, data[:50], NOW_MS)
    settle(store, work)
    assert log.end == end + 50
    watched = Watched(disk, monkeypatch)
    result = log.record_term(9, NOW_MS)
    assert (result.done, watched.syncs) == (False, 0)
    settle(store, work)
    assert result.value == log.end == end
    assert watched.on_loop == []
    log.begin_term(end, NOW_MS)
    assert log.is_master


def test_durable_requests_wait_for_a_cut() -> None:
    _disk, store, log, work = copied()
    result = log.begin_truncation(fork(), NOW_MS)
    ready = log.get_ready()
    recorded = log.record_epochs(histories()[1].epochs)
    term = log.record_term(9, NOW_MS)
    assert not (ready.done or recorded.done or term.done)
    settle(store, work)
    assert (result.value, ready.value, recorded.value) == (None, None, None)
    assert term.value == log.end == fork()
    log.begin_term(LogOffset(log.end), NOW_MS)
    assert log.is_master


@pytest.mark.parametrize("what", sorted(CALLS))
def test_a_power_cut_at_each_operation(what: str) -> None:
    """The log is the old one or its valid part, and the store can become master."""
    old = histories()[0]
    whole = False
    for operations in range(OPERATIONS_MAX):
        disk, store, log, work = copied(operations, dispatched=what == "cut with units")
        result = CALLS[what](log)
        disk.cut_after = operations
        try:
            settle(store, work)
        except PowerCut:
            pass
        whole = result.done and result.value is None
        if not disk._dead:
            disk.end()
        disk.restart()
        store, log, work = opened(disk)
        left = fork() if what.startswith("cut") else 0
        assert log.end == left or (not whole and log.end <= old.end), f"operation {operations}"
        data = b"".join(log.view(log.min, log.end - log.min))
        assert old.data.startswith(data)
        assert log.may_lead
        assert readable(store) == old.bodies(log.confirm)
        if whole:
            break
    assert whole, "more operations than were looked at"


def readable(store: Store) -> list[list[bytes]]:
    """Bodies of each queue; checks that each unit has its record."""
    bodies: list[list[bytes]] = [[] for _ in range(QUEUES)]
    for queue_id, found in enumerate(bodies):
        at, end = store.min_queue_offset("T", queue_id), store.max_queue_offset("T", queue_id)
        for unit in store.units("T", queue_id, at, end - at):
            record = store.record_of(unit)
            assert record is not None, f"queue {queue_id}: a unit without its record"
            found.append(bytes(record.body))
    return bodies


def test_readers_meanwhile_find_the_records_of_queue_units(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers of the cut part and of the rest: queues are truncated before the log. The rest is
    found by its keys, too."""
    monkeypatch.setattr(index, "ENTRIES_PER_STEP", 1)
    _disk, store, log, work = copied(dispatched=True)
    keys = [f"k{number}" for number in range(sum(map(len, histories()[0].bodies(fork()))))]
    before, after = (histories()[0].bodies(at) for at in (log.end, fork()))
    assert readable(store) == before != after
    result = log.begin_truncation(fork(), NOW_MS)
    seen = []
    while not result.done:
        store.tick(NOW_MS)
        work.jobs[0].run()
        work.jobs[0].report()
        seen.append(readable(store))
        for key in keys:
            assert store.query("T", key, 9, 0, NOW_MS + 1).slices, f"{key} is not found"
    assert seen[-1] == after
    for one in seen:
        for queue, most, least in zip(one, before, after, strict=True):
            assert len(least) <= len(queue) <= len(most)
            assert queue == most[: len(queue)]


def test_entries_of_the_index_go_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy broker truncates millions of units, and the loop has its turn in between."""

    def pieces(entries_of_step: int) -> int:
        monkeypatch.setattr(index, "ENTRIES_PER_STEP", entries_of_step)
        _disk, store, log, work = copied(dispatched=True)
        result, count = log.begin_truncation(fork(), NOW_MS), 0
        while not result.done:
            store.tick(NOW_MS)
            work.jobs[0].run()
            work.jobs[0].report()
            count += 1
        return count

    assert pieces(1) > pieces(1_000)


def test_nothing_else_is_at_work_during_a_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint or a log sync would record offsets that have been cut."""
    _disk, store, log, work = copied()
    result = log.begin_truncation(fork(), NOW_MS)
    now_ms = NOW_MS
    while not result.done:
        now_ms += 60_000
        store.tick(now_ms)
        assert len(work.jobs) <= 1, "two pieces of disk work at once"
        work.jobs[0].run()
        work.jobs[0].report()
    assert result.value is None
    settle(store, work, now_ms + 60_000)
    assert log.flushed == log.end == fork()


def test_a_piece_that_does_not_return_is_the_failure_of_the_store() -> None:
    disk, store, log, work = copied()
    settle(store, work)
    result = log.begin_truncation(fork(), NOW_MS)
    assert not store.why_unfit
    now_ms = NOW_MS
    disk.hangs = True
    for _ in range(CONFIG.sync_timeout_ms // TICK_MS * 2 + 20):
        now_ms += TICK_MS
        store.tick(now_ms)
    assert store.health is StoreHealth.FAILED
    assert "a cut of the log" in store.why_unfit
    assert not result.done
    disk.hangs = False
    settle(store, work, now_ms)
    assert isinstance(result.value, StoreError)


def test_a_slow_disk_is_no_failure() -> None:
    """Syncs that return, each after seconds, over several steps."""
    _disk, store, log, work = copied()
    result = log.begin_truncation(fork(), NOW_MS)
    now_ms = NOW_MS
    while not result.done:
        for _ in range(CONFIG.sync_timeout_ms // TICK_MS * 3):
            now_ms += TICK_MS
            store.tick(now_ms)
        work.jobs[0].run()
        work.jobs[0].report()
    assert result.value is None
    assert store.health is StoreHealth.FIT


def test_a_store_that_is_closed_ends_the_cut_first() -> None:
    disk, store, log, work = copied()
    result = log.begin_truncation(fork(), NOW_MS)
    store.close(NOW_MS)
    assert result.value is None
    work.close()
    _store, log, _work = opened(disk)
    assert log.end == fork()
