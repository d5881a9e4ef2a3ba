"""A topic is deleted while the store runs: the caller makes no disk operation, and a power cut at
any operation leaves the whole topic or none of it."""

import errno
import random
from dataclasses import replace

import pytest
from tests.sim.disk import PowerCut, SimDisk
from tests.sim.work import QueuedDisk
from tests.unit.engine.replicated.test_crash import CONFIG, NOW_MS
from tests.unit.engine.replicated.test_role_steps import Counted

from turbopump.engine.disk import checkpoint
from turbopump.engine.lifecycle import topic_deletion
from turbopump.engine.store import Store
from turbopump.engine.types import FlushMode, NewMessage, PutStatus, ReadStatus, StoreError

OPERATIONS_MAX = 120
QUEUES = 5


def opened(disk: SimDisk, mode: FlushMode = FlushMode.ASYNC_FLUSH) -> tuple[Store, QueuedDisk]:
    work = QueuedDisk(disk.rng)
    store = Store.open(disk, replace(CONFIG, flush_disk_type=mode), work, NOW_MS)
    work.close()
    return store, work


def put(store: Store, topic: str, number: int = 0, body: bytes = b"body") -> int:
    appended = store.append(NewMessage(topic, number % QUEUES, body, b""), NOW_MS)
    assert appended.status is PutStatus.PUT_OK, appended
    return appended.queue_offset


def made(seed: int) -> SimDisk:
    """A disk with a store of two topics with messages in each queue."""
    disk = SimDisk(random.Random(seed), lambda: NOW_MS)
    disk.torn_pages, disk.ordered = seed % 2 == 0, seed % 3 == 0
    store, work = opened(disk)
    for number in range(2 * QUEUES):
        for topic in ("going", "kept"):
            put(store, topic, number)
    store.close(NOW_MS)
    work.close()
    return disk


def counts(store: Store, topic: str) -> list[int]:
    """Number of readable messages of each queue."""
    found = []
    for queue_id in range(QUEUES):
        result = store.read(topic, queue_id, 0, 32)
        found.append(result.count if result.status is ReadStatus.FOUND else 0)
    return found


def test_the_caller_waits_for_no_disk() -> None:
    """Otherwise the loop would wait for the checkpoint, the list of deletions, and each file."""
    disk = made(1)
    store, work = opened(disk)
    counted = Counted(disk)
    result = store.deletions.delete("going", NOW_MS)
    assert (counted.count, result.done) == (0, False)
    work.close()
    assert counted.count > 0
    assert result.value is None
    assert store.topics() == ["kept"]
    assert not disk.paths("/store/consumequeue/going")
    assert list(store.deletions.former_life_ends()) == ["going"]
    marks = checkpoint.load(disk, "/store").marks
    assert marks is not None and marks.queue_count < 0, "a start would look for them"


def test_a_replica_that_repeats_its_masters_deletion_waits_for_no_disk() -> None:
    """The deletion is at an earlier offset than the log's end. Otherwise the loop would wait for
    each file."""
    disk = made(1)
    store, work = opened(disk)
    end = store.max_log_offset
    put(store, "kept")
    work.close()
    counted = Counted(disk)
    result = store.deletions.delete("going", NOW_MS, end)
    assert (counted.count, result.done) == (0, False)
    work.close()
    assert counted.count > 0
    assert result.value is None
    assert store.deletions.former_life_ends() == {"going": end}
    assert store.topics() == ["kept"]
    assert counts(store, "kept") == [3, 2, 2, 2, 2]


def test_a_past_deletion_that_is_heard_of_again_is_the_same_one() -> None:
    """Each response of a master lists the deletion until it is recorded; a second deletion would
    empty the queues of the topic's next life for a time."""
    store, work = opened(made(1))
    end = store.max_log_offset
    first = store.deletions.delete("going", NOW_MS, end)
    assert store.deletions.delete("going", NOW_MS, end) is first
    other = store.deletions.delete("kept", NOW_MS, end)
    assert store.deletions.delete("kept", NOW_MS, end) is other
    assert store.deletions.delete("going", NOW_MS) is not first
    work.close()
    assert (first.value, other.value, store.topics()) == (None, None, [])


def test_a_deletion_of_bytes_that_were_cut_is_none() -> None:
    """A different master decides on the bytes that replace them."""
    store, work = opened(made(1))
    end = store.max_log_offset
    put(store, "kept")
    work.close()
    first = store.deletions.delete("other", NOW_MS)
    result = store.deletions.delete("going", NOW_MS, store.max_log_offset)
    store._log.tail.end = end  # as a truncation before the deletion's turn would do
    work.close()
    assert (first.value, result.value) == (None, None)
    assert list(store.deletions.former_life_ends()) == ["other"]
    assert counts(store, "going") == [2] * QUEUES


def test_its_files_do_not_come_back() -> None:
    """After a truncation of the log, new records may have the offsets of the former life's
    records."""
    for seed in range(8):
        disk = made(seed)
        store, work = opened(disk)
        store.deletions.delete("going", NOW_MS)
        work.close()
        disk.end()
        disk.restart()
        assert not disk.paths("/store/consumequeue/going")


def test_it_takes_no_message_meanwhile_and_counts_from_0_afterwards() -> None:
    store, work = opened(made(1))
    store.deletions.delete("going", NOW_MS)
    refused = store.append(NewMessage("going", 0, b"", b""), NOW_MS)
    assert refused.status is PutStatus.SERVICE_NOT_AVAILABLE
    assert "being deleted" in refused.reason
    assert put(store, "kept") == 2
    work.close()
    assert put(store, "going", 0, b"of the next life") == 0
    assert counts(store, "going") == [1, 0, 0, 0, 0]


def test_many_queues_go_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_deletion, "QUEUES_PER_STEP", 2)
    disk = made(1)
    store, work = opened(disk)
    result = store.deletions.delete("going", NOW_MS)
    seen = []
    for _ in range(100):
        if not work.jobs:
            break
        work.jobs[0].wait_and_report()
        seen.append(len(store.queue_ids("going")))
    assert result.value is None
    assert seen == [3, 1, 0, 0]
    assert not disk.paths("/store/consumequeue/going")


def test_several_deletions_follow_one_another() -> None:
    store, work = opened(made(1))
    result = [store.deletions.delete(topic, NOW_MS) for topic in ("going", "kept", "going")]
    work.close()
    assert [one.value for one in result] == [None, None, None]
    assert not store.topics()
    assert put(store, "going") == 0


def test_a_round_of_the_checkpoint_is_waited_for() -> None:
    """The checkpoint would count the queues that are being removed, and a start would look for
    them."""
    store, work = opened(made(1))
    put(store, "kept")
    store.tick(NOW_MS + 100_000)
    jobs = list(work.jobs)
    assert jobs
    result = store.deletions.delete("going", NOW_MS)
    assert work.jobs == jobs, "nothing is written beside the round"
    store.tick(NOW_MS + 200_000)
    work.close()
    assert result.value is None
    for second in range(3):
        store.tick(NOW_MS + 300_000 + second * 10_000)
        work.close()
    marks = store._checkpointer.checkpoint.marks
    assert marks is not None and marks.queue_count == QUEUES


@pytest.mark.parametrize("mode", list(FlushMode))
def test_a_power_cut_at_each_operation(mode: FlushMode) -> None:
    for operations in range(OPERATIONS_MAX):
        disk = made(operations)
        store, work = opened(disk, mode)
        result = store.deletions.delete("going", NOW_MS)
        disk.cut_after = operations
        try:
            work.close()
        except PowerCut:
            pass
        whole = result.done and result.value is None
        if not disk._dead:
            disk.end()
        disk.restart()
        store, _work = opened(disk)
        assert counts(store, "kept") == [2] * QUEUES, f"cut at operation {operations}"
        there = counts(store, "going")
        assert there == [0] * QUEUES or (not whole and there == [2] * QUEUES), there
        assert put(store, "going", 0, b"after") == there[0]
        if whole:
            break
    assert whole, "more operations than were looked at"


def test_one_that_fails_is_told_and_may_be_asked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = made(1)
    store, work = opened(disk)

    def fails(path: str) -> None:
        raise OSError(errno.EIO, "input/output error", path)

    with monkeypatch.context() as patched:
        patched.setattr(disk, "remove_folder", fails)
        result = store.deletions.delete("going", NOW_MS)
        work.close()
    assert isinstance(result.value, StoreError)
    refused = store.append(NewMessage("going", 0, b"", b""), NOW_MS)
    assert refused.status is PutStatus.SERVICE_NOT_AVAILABLE, "beside files of its former life"
    result = store.deletions.delete("going", NOW_MS)
    work.close()
    assert result.value is None
    assert put(store, "going") == 0


def test_one_that_cannot_be_written_down_changes_nothing() -> None:
    disk = made(1)
    store, work = opened(disk)
    disk.readonly = True
    result = store.deletions.delete("going", NOW_MS)
    work.close()
    assert isinstance(result.value, StoreError)
    disk.readonly = False
    assert counts(store, "going") == [2] * QUEUES
    assert put(store, "going") == 2


def test_a_store_that_closes_comes_to_the_end_of_it() -> None:
    disk = made(1)
    store, _work = opened(disk)
    result = store.deletions.delete("going", NOW_MS)
    store.close(NOW_MS)
    assert result.value is None
    assert opened(disk)[0].topics() == ["kept"]


def test_a_log_that_is_cut_waits_for_it() -> None:
    disk = made(1)
    store, work = opened(disk)
    end = store.max_log_offset
    put(store, "kept")
    work.close()
    result = store.deletions.delete("going", NOW_MS)
    store.truncate(end, NOW_MS)
    assert result.value is None
    assert counts(store, "kept") == [2] * QUEUES
    assert store.deletions.former_life_ends() == {"going": end}


def test_records_that_come_meanwhile_wait_for_the_last_file() -> None:
    """A replica may receive records after it lost the master role: their files have the same
    names."""
    store, work = opened(made(1))
    store.deletions.delete("going", NOW_MS)
    work.jobs[0].wait_and_report()
    work.jobs[0].run()
    assert store.topics() == ["kept"]
    store.deletions.in_progress.clear()
    end = store.max_log_offset
    assert put(store, "going", 0, b"next") == 0
    assert store.dispatched_log_offset == end
    work.close()
    store.tick(NOW_MS + 100)
    assert store.dispatched_log_offset == store.max_log_offset
    assert counts(store, "going") == [1, 0, 0, 0, 0]


def test_records_from_before_the_first_file_went_are_kept() -> None:
    """Also on a replica, whose log has these records after the offset of the deletion."""
    store, work = opened(made(1))
    store.deletions.delete("going", NOW_MS)
    store.deletions.in_progress.clear()
    assert put(store, "going", 0, b"next") == 2
    work.close()
    assert store.min_queue_offset("going", 0) == 2
    assert store.read("going", 0, 2, 32).count == 1
