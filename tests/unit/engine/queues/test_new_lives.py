"""A deleted topic was made again without an entry in any table: the log alone proves it.

The queues of the former life are in the way of the new life's records, which count from 0 again.
Without the proof those acknowledged messages would never be read.
"""

import random
from dataclasses import replace

import pytest
from tests.sim.disk import PowerCut, SimDisk
from tests.sim.work import QueuedDisk
from tests.unit.engine.replicated.test_crash import CONFIG, NOW_MS

from turbopump.engine.config import StoreConfig
from turbopump.engine.disk.flush import InlineDisk
from turbopump.engine.queues import new_lives
from turbopump.engine.replicated import Replicated
from turbopump.engine.store import Store
from turbopump.engine.types import LogOffset, NewMessage, PutStatus, ReadStatus
from turbopump.pyx.tail import UNLIMITED

QUEUES = 4
OPERATIONS_MAX = 160
SIZES = replace(CONFIG, mapped_file_size_commit_log=1 << 16)
ZERO = LogOffset(0)


def store_on(disk: SimDisk, *, config: StoreConfig = SIZES, batch: bool = False) -> Store:
    return Store.open(disk, config, InlineDisk(), NOW_MS, is_batch_topic=lambda _topic: batch)


def new_disk(seed: int = 1) -> SimDisk:
    return SimDisk(random.Random(seed), lambda: NOW_MS)


class Master:
    """A master's log, its clock and the bodies of its messages."""

    def __init__(self, *, config: StoreConfig = SIZES, batch: bool = False) -> None:
        self.store = store_on(new_disk(), config=config, batch=batch)
        self.now_ms = NOW_MS
        self.bodies: list[bytes] = []

    def put(self, *queues: int, topic: str = "T") -> int:
        """Send a message to each queue; returns the log offset of the last message."""
        for queue_id in queues:
            self.now_ms += 10
            body = b"message %d" % self.now_ms
            properties = b"KEYS\x01k%d\x02" % self.now_ms
            message = NewMessage(topic, queue_id, body, properties)
            appended = self.store.append(message, self.now_ms)
            assert appended.status is PutStatus.PUT_OK
        return appended.log_offsets[-1]

    @property
    def end(self) -> LogOffset:
        return LogOffset(self.store.max_log_offset)

    def delete(self) -> None:
        self.store.delete_topic("T", now_ms=self.now_ms)

    def copy(self, store: Store, at: LogOffset = ZERO, confirmed: int | None = None) -> Replicated:
        """Copy the log to a replica, whose confirmed part is dispatched."""
        log = store.as_replicated(NOW_MS)
        log.to_replica(NOW_MS)
        log.append(at, bytes(self.store._log.view_bytes(at, self.end - at)), NOW_MS)
        log.confirm_to(LogOffset(self.end if confirmed is None else confirmed), NOW_MS)
        return log


def places(store: Store) -> list[list[int]]:
    """Log offsets of the readable messages of each queue."""
    found = []
    for queue_id in range(QUEUES):
        units = store.units("T", queue_id, store.min_queue_offset("T", queue_id), 32)
        found.append([unit.log_offset for unit in units])
    return found


def apply(store: Store) -> None:
    """Apply all deletions that the log proves, also ones revealed by earlier deletions."""
    for _ in range(5):
        for topic, life in store.deletions.unapplied_deletions().items():
            store.delete_topic(topic, life.at, NOW_MS)


def test_the_first_record_of_a_new_life_proves_the_deletion() -> None:
    master = Master()
    master.put(0, 1, 2, 0)
    end = master.end
    master.put(3, topic="other")
    master.delete()
    seen = master.put(0)
    began_ms = master.now_ms
    master.put(0, 1)
    store = store_on(new_disk())
    master.copy(store)
    assert store.deletions.unapplied_deletions() == {"T": (end, seen, began_ms)}
    assert [store.max_queue_offset("T", queue_id) for queue_id in range(3)] == [2, 1, 1]
    apply(store)
    assert places(store) == places(master.store)
    assert store.deletions.unapplied_deletions() == {}
    assert store.deletions.former_life_ends() == {"T": end}


def test_an_empty_queue_keeps_its_new_messages() -> None:
    """The queue's first message may belong to either life."""
    master = Master()
    master.put(0, 0)
    end = master.end
    master.delete()
    first = master.put(2)
    seen = master.put(0)
    store = store_on(new_disk())
    master.copy(store)
    assert store.deletions.unapplied_deletions() == {"T": (end, seen, master.now_ms)}
    apply(store)
    assert places(store) == places(master.store) == [[seen], [], [first], []]


def test_a_queue_that_went_on_keeps_its_messages() -> None:
    """A master that knew of the deletion was followed by a master that did not: the messages of the
    latter were acknowledged after the deletion, in queues that had not restarted at 0."""
    master = Master()
    kept = [master.put(1), *(master.put(0) for _ in range(3))][1:]
    queue = master.store._queues.find("T", 1)
    assert queue is not None
    master.store._queues.table.set_next_offset(queue.slot, 0)
    seen = master.put(1)
    store = store_on(new_disk())
    master.copy(store)
    apply(store)
    assert places(store) == [kept, [seen], [], []]


def test_two_deletions_that_no_table_has() -> None:
    master = Master()
    for number in (3, 2, 1):
        master.put(*[0] * number, 1)
        if number > 1:
            master.delete()
    store = store_on(new_disk())
    master.copy(store)
    apply(store)
    assert places(store) == places(master.store)
    assert [len(queue) for queue in places(store)] == [1, 1, 0, 0]


def test_more_messages_than_the_former_life_had() -> None:
    """Messages beyond the former queue's end have units in the old queue until its removal."""
    master = Master()
    master.put(0, 0)
    master.delete()
    master.put(0, 0, 0, 0, 0)
    store = store_on(new_disk())
    master.copy(store)
    assert store.max_queue_offset("T", 0) == 5
    apply(store)
    assert places(store) == places(master.store)


def test_its_messages_are_found_by_their_keys_meanwhile() -> None:
    master = Master()
    master.put(0)
    master.delete()
    seen = master.put(0)
    store = store_on(new_disk())
    master.copy(store)
    key = f"k{master.now_ms}"
    found = store.query("T", key, 32, 0, master.now_ms + 1)
    assert (len(found.slices), found.last_log_offset) == (1, seen)


def test_the_masters_word_is_enough() -> None:
    """The master reported the deletion before the proof was applied here."""
    master = Master()
    master.put(0, 0)
    master.delete()
    master.put(0)
    store = store_on(new_disk())
    master.copy(store)
    store.delete_topic("T", master.store.deletions.former_life_ends()["T"], NOW_MS)
    assert store.deletions.unapplied_deletions() == {}
    assert places(store) == places(master.store)


def test_a_cut_takes_the_proof_along() -> None:
    master = Master()
    master.put(0, 0)
    master.delete()
    end = master.end
    master.put(0)
    store = store_on(new_disk())
    log = master.copy(store, confirmed=end)
    assert store.deletions.unapplied_deletions() == {}
    log.to_master(1, NOW_MS)
    log.confirm_to(master.end, NOW_MS)
    store._run_dispatch(NOW_MS)
    other = store_on(new_disk())
    master.copy(other)
    assert list(other.deletions.unapplied_deletions()) == ["T"]
    other._parts.dispatcher.rewind_to(end)
    assert other.deletions.unapplied_deletions() == {}


def test_an_older_deletion_changes_nothing() -> None:
    """The master may have reported the exact offset of the deletion since."""
    master = Master()
    master.put(0)
    first = master.end
    master.put(0)
    second = master.end
    master.delete()
    master.put(0)
    store = store_on(new_disk())
    master.copy(store)
    store.delete_topic("T", second, NOW_MS)
    store.delete_topic("T", first, NOW_MS)
    assert store.deletions.former_life_ends() == {"T": second}
    assert places(store) == places(master.store)
    assert not store.deletions.in_progress


def test_no_more_are_kept_than_can_be_on_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(new_lives, "LIVES_MAX", 2)
    found = new_lives.NewLives()
    for name in "abc":
        found.add(name, new_lives.NewLife(ZERO, LogOffset(9), 0))
    found.add("a", new_lives.NewLife(LogOffset(5), LogOffset(7), 0))
    assert list(found.as_dict()) == ["a", "b"]
    assert found.as_dict()["a"].at == 0
    assert found.first_seen(LogOffset(20)) == 9
    found.forget_proofs_from(LogOffset(9))
    assert not found
    assert found.first_seen(LogOffset(20)) == 20


# Queues of other kinds


def test_batch_queues() -> None:
    master = Master(batch=True)
    master.put(0, 1, 0)
    end = master.end
    master.delete()
    seen = master.put(0)
    store = store_on(new_disk(), batch=True)
    master.copy(store)
    assert store.deletions.unapplied_deletions() == {"T": (end, seen, master.now_ms)}
    apply(store)
    assert places(store) == places(master.store)
    assert places(store)[0] == [seen]


def test_queues_with_extensions() -> None:
    config = replace(SIZES, enable_consume_queue_ext=True)
    master = Master(config=config)
    master.put(0, 1, 0)
    end = master.end
    master.delete()
    seen = master.put(0)
    store = store_on(new_disk(), config=config)
    master.copy(store)
    assert store.deletions.unapplied_deletions() == {"T": (end, seen, master.now_ms)}
    apply(store)
    assert places(store) == places(master.store)


# A new master


@pytest.mark.parametrize("batch", [False, True])
def test_a_new_master_counts_on_in_the_new_life(batch: bool) -> None:
    """The master's log has the new life's first records before they are confirmed, so before
    dispatch."""
    master = Master(batch=batch)
    master.put(0, 0, 0)
    end = master.end
    master.delete()
    master.put(0, 0)
    store = store_on(new_disk(), batch=batch)
    log = master.copy(store, confirmed=end)
    log.to_master(1, NOW_MS)
    assert store.deletions.unapplied_deletions() == {}
    appended = store.append(NewMessage("T", 0, b"x"), NOW_MS)
    assert appended.queue_offset == 2


def test_a_new_master_counts_on_after_an_undispatched_deletion() -> None:
    master = Master()
    master.put(0, 0, 0)
    master.delete()
    master.put(0)
    confirmed = master.end
    master.put(0)
    store = store_on(new_disk())
    log = master.copy(store, confirmed=confirmed)
    log.to_master(1, NOW_MS)
    apply(store)
    assert store.append(NewMessage("T", 0, b"x"), NOW_MS).queue_offset == 2


# After a crash


def test_a_stop_before_it_is_applied_forgets_nothing() -> None:
    disk, master = new_disk(), Master()
    master.put(0, 0, 1)
    master.delete()
    master.put(0, 1)
    store = store_on(disk)
    master.copy(store)
    found = store.deletions.unapplied_deletions()
    store.close(NOW_MS)
    store = store_on(disk)
    assert store.deletions.unapplied_deletions() == found
    store.stand_alone(NOW_MS)
    assert store._log.tail.limit == UNLIMITED
    apply(store)
    assert places(store) == places(master.store)


def test_a_checkpoint_does_not_pass_it() -> None:
    disk, master = new_disk(), Master()
    master.put(0, 0, 1)
    master.delete()
    master.put(0, 1)
    store = store_on(disk)
    master.copy(store)
    found = store.deletions.unapplied_deletions()
    store._commit.sync_all()
    store._checkpointer.sync_and_save()
    disk.end()
    disk.restart()
    store = store_on(disk)
    assert store.deletions.unapplied_deletions() == found


@pytest.mark.parametrize("notified", [False, True])
def test_a_power_cut_at_each_operation(notified: bool) -> None:
    """The new life's records may be older than the checkpoint: they are dispatched again."""
    master = Master()
    master.put(0, 0, 1)
    master.delete()
    master.put(2)
    former = master.store.deletions.former_life_ends()["T"]
    master.put(0, topic="other")
    if not notified:
        master.put(0, 1)
    for operations in range(OPERATIONS_MAX):
        disk = new_disk(operations)
        disk.torn_pages, disk.ordered = operations % 2 == 0, operations % 3 == 0
        store = store_on(disk)
        master.copy(store)
        store.close(NOW_MS)
        work = QueuedDisk(disk.rng)
        store = Store.open(disk, SIZES, work, NOW_MS)
        work.close()
        at = former if notified else store.deletions.unapplied_deletions()["T"].at
        deleted = store.deletions.delete("T", NOW_MS, at)
        disk.cut_after = operations
        try:
            work.close()
        except PowerCut:
            pass
        whole = deleted.done and deleted.value is None
        if not disk._dead:
            disk.end()
        disk.restart()
        store = store_on(disk)
        store.stand_alone(NOW_MS)
        if store.deletions.former_life_ends():
            apply(store)
            assert places(store) == places(master.store), f"cut at operation {operations}"
        else:
            assert not whole
            assert store.read("T", 0, 0, 32).status is ReadStatus.FOUND
        if whole:
            break
    assert whole, "more operations than were looked at"
