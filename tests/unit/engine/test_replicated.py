"""A store as one of several copies: the master's bytes, confirmOffset, roles, truncations."""

from dataclasses import replace
from typing import Any

import pytest
from tests.shortcuts.log_cuts import restart_log, truncate_log
from tests.waiting import delete_expired, record_epochs

from turbopump.engine.log import replica_append
from turbopump.engine.log.epochs import Epochs
from turbopump.engine.replicated import Replicated
from turbopump.engine.store import Store
from turbopump.engine.types import LogOffset, NewMessage, PutStatus, StoreError

NOW_MS = 1_700_000_000_000


@pytest.fixture
def master(stores: Any, put: Any, tmp_path: Any) -> Any:
    """A master's store with messages in several files."""
    store = stores.open()
    replicated = store.as_replicated(NOW_MS)
    replicated.to_master(3, NOW_MS)
    for number in range(60):
        put(store, queue_id=number % 3, body=b"%04d" % number + bytes(number * 37 % 900))
    return store, replicated


@pytest.fixture
def replica(stores: Any, tmp_path: Any) -> Any:
    """An empty store beside it."""
    other = type(stores)(tmp_path / "replica")
    other.config = replace(stores.config, root=str(tmp_path / "replica"))
    yield other
    other.close()


RECORD_MAX = 1200


def copy(source: Replicated, target: Replicated, until: int, step: int = 1000) -> None:
    """Copy bytes to the end of the target log, in pieces that cut records."""
    at = target.end
    if target.min == target.end and source.min > at:
        at = source.min
    while at < until:
        size = min(step, until - at)
        data = b"".join(source.view(at, size))
        target.append(at, data, NOW_MS)
        at = LogOffset(at + size)
        assert at - RECORD_MAX < target.end <= at, "whole records"


def test_replica_follows_and_serves_confirmed_bytes(
    master: Any, replica: Any, read_bodies: Any
) -> None:
    store, leader = master
    assert store.dispatched_log_offset == 0, "nothing is confirmed"
    assert leader.confirm_to(leader.end, NOW_MS)
    follower_store = replica.open()
    follower = follower_store.as_replicated(NOW_MS)
    record_epochs(follower, leader.epochs)
    copy(leader, follower, leader.end - 5)
    assert follower_store.dispatched_log_offset == 0
    assert follower.confirm_to(leader.end, NOW_MS)
    assert follower.confirm == follower.end < leader.end - 5, "the last record is not whole"
    assert len(read_bodies(follower_store, queue_id=2)) == 19
    copy(leader, follower, leader.end)
    assert follower.confirm_to(leader.end, NOW_MS)
    assert not follower.confirm_to(leader.end, NOW_MS)
    for queue_id in range(3):
        expected = read_bodies(store, queue_id=queue_id)
        assert read_bodies(follower_store, queue_id=queue_id) == expected


def test_unconfirmed_is_not_served_after_a_restart(master: Any, stores: Any, put: Any) -> None:
    store, leader = master
    middle = leader.end
    leader.confirm_to(middle, NOW_MS)
    for _ in range(10):
        put(store, queue_id=0)
    end = leader.end
    store.close(NOW_MS)
    again: Store = stores.open()
    assert (again.max_log_offset, again.dispatched_log_offset) == (end, middle)
    leader = again.as_replicated(NOW_MS)
    assert (leader.confirm, leader.end, leader.believed_end) == (middle, end, end)
    refused = again.append(NewMessage("T", 0, b"x"), NOW_MS)
    assert refused.status is PutStatus.SERVICE_NOT_AVAILABLE
    assert refused.reason == "this broker is not the master"
    assert leader.to_master(4, NOW_MS) == end
    assert put(again, queue_id=0).queue_offset == 30, "after records that are not visible yet"
    leader.confirm_to(leader.end, NOW_MS)
    assert again.max_queue_offset("T", 0) == 31


@pytest.mark.parametrize("held_max", [replica_append.HELD_MAX, 0])
def test_torn_tail_is_cut_by_the_next_master(
    master: Any, replica: Any, put: Any, held_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The torn record is held in memory, or in the log if it is too large."""
    monkeypatch.setattr(replica_append, "HELD_MAX", held_max)
    _store, leader = master
    follower_store = replica.open()
    follower = follower_store.as_replicated(NOW_MS)
    record_epochs(follower, leader.epochs)
    copy(leader, follower, leader.end - 5)
    assert (follower.end == leader.end - 5) is (held_max == 0)
    follower.confirm_to(5000, NOW_MS)
    start = follower.to_master(7, NOW_MS)
    assert follower.confirm < start < leader.end - 5
    assert start == follower.end >= follower.flushed
    assert follower.epochs == Epochs.from_pairs([(3, 0), (7, start)])
    offsets = {put(follower_store, queue_id=number).queue_offset for number in range(3)}
    assert offsets == {20, 19}


def test_restart_begins_where_the_next_bytes_lie(
    master: Any, replica: Any, read_bodies: Any
) -> None:
    store, leader = master
    leader.confirm_to(leader.end, NOW_MS)
    follower_store = replica.open()
    follower = follower_store.as_replicated(NOW_MS)
    record_epochs(follower, leader.epochs)
    copy(leader, follower, leader.end)
    follower.confirm_to(leader.end, NOW_MS)
    restart_log(follower, NOW_MS)
    assert (follower.min, follower.end, follower.confirm, len(follower.epochs)) == (0, 0, 0, 0)
    assert follower_store.topics() == []
    begin = LogOffset(leader.file_size)
    record_epochs(follower, leader.epochs)
    follower.append(begin, b"".join(leader.view(begin, 3000)), NOW_MS)
    assert follower.min == begin
    copy(leader, follower, leader.end)
    follower.confirm_to(leader.end, NOW_MS)
    bodies = read_bodies(store, queue_id=1)
    found = read_bodies(follower_store, queue_id=1)
    assert 0 < len(found) < len(bodies)
    assert bodies[-len(found) :] == found
    follower_store.close(NOW_MS)
    again = replica.open()
    assert again.min_log_offset == begin
    assert read_bodies(again, queue_id=1) == found


def test_truncate_takes_log_and_epochs(master: Any, replica: Any) -> None:
    _store, leader = master
    follower_store = replica.open()
    follower = follower_store.as_replicated(NOW_MS)
    record_epochs(follower, leader.epochs)
    copy(leader, follower, leader.end - 5)
    follower.confirm_to(9000, NOW_MS)
    at = follower.confirm
    truncate_log(follower, at, NOW_MS)
    assert (follower.end, follower.flushed, follower.confirm) == (at, at, at)
    with pytest.raises(StoreError, match="no record begins"):
        truncate_log(follower, LogOffset(at - 3), NOW_MS)
    copy(leader, follower, leader.end)
    follower.confirm_to(leader.end, NOW_MS)
    assert follower.confirm == leader.end


def test_a_master_of_before_a_restart_leads_on(stores: Any, put: Any) -> None:
    """The time of the last record is unknown, because no record was dispatched since the
    restart."""
    for epoch in range(1, 4):
        store = stores.open()
        leader = store.as_replicated(NOW_MS)
        assert leader.to_master(epoch, NOW_MS) == leader.end
        if epoch == 1:
            put(store)
        leader.confirm_to(leader.end, NOW_MS)
        store.close(NOW_MS)


def test_a_cut_before_the_index_of_a_start(
    master: Any, replica: Any, put: Any, read_bodies: Any
) -> None:
    _store, leader = master
    replica.config = replace(replica.config, message_index_enable=False)
    follower = replica.open().as_replicated(NOW_MS)
    record_epochs(follower, leader.epochs)
    size = int.from_bytes(leader.view(LogOffset(0), 4)[0])
    copy(leader, follower, LogOffset(2 * size + 100))
    replica.close()
    store = replica.open()
    follower = store.as_replicated(NOW_MS)
    assert follower.end > size and store.dispatched_log_offset == 0
    truncate_log(follower, LogOffset(size), NOW_MS)
    follower.to_master(9, NOW_MS)
    put(store, queue_id=1, body=b"x" * 900)
    follower.confirm_to(follower.end, NOW_MS)
    assert follower.damage is None
    assert read_bodies(store, queue_id=1) == [b"x" * 900]


def test_epochs_of_a_replica_that_begins_with_the_last_file(master: Any, replica: Any) -> None:
    """An empty store that was used before has a file, which does not define the log's begin."""
    _store, leader = master
    follower_store = replica.open()
    follower = follower_store.as_replicated(NOW_MS)
    follower.append(LogOffset(0), b"".join(leader.view(LogOffset(0), 50)), NOW_MS)
    truncate_log(follower, LogOffset(0), NOW_MS)
    record_epochs(follower, leader.epochs)
    begin = LogOffset(leader.file_size)
    follower.append(begin, b"".join(leader.view(begin, 3000)), NOW_MS)
    assert follower.min == begin
    assert follower.epochs == leader.epochs


def test_a_queue_without_a_message_in_the_copy_counts_on(
    stores: Any, put: Any, replica: Any, settle: Any
) -> None:
    """Seed 206001 of the simulation: a log copied again lacked a queue whose messages had expired,
    and its master counted the queue from 0 again."""
    store = stores.open()
    leader = store.as_replicated(NOW_MS)
    leader.to_master(3, NOW_MS)
    for number in range(62):
        put(store, topic="T" if number > 1 else "idle", body=bytes(900))
    leader.confirm_to(leader.end, NOW_MS)
    assert delete_expired(store, settle(store) * 2) > 0
    assert leader.idle_queue_counts() == {"idle": {0: 2}}
    follower = replica.open().as_replicated(NOW_MS)
    assert not follower.needs_queue_counts, "it has all from the first byte on"
    record_epochs(follower, leader.epochs)
    copy(leader, follower, leader.end)
    replica.close()
    follower = replica.open().as_replicated(NOW_MS)
    assert follower.needs_queue_counts
    assert follower.save_queue_counts(leader.idle_queue_counts()).value is None
    assert not follower.needs_queue_counts
    replica.close()
    follower_store = replica.open()
    follower = follower_store.as_replicated(NOW_MS)
    assert not follower.needs_queue_counts
    follower.to_master(4, NOW_MS)
    assert follower_store.next_queue_offset("idle", 0) == 2
    assert follower.idle_queue_counts() == {"idle": {0: 2}}, "the next copy asks this one"
    follower_store.delete_topic("idle")
    assert follower.idle_queue_counts() == {}
    assert put(follower_store, topic="idle").queue_offset == 0, "a new life"
    assert put(follower_store, topic="T").queue_offset == 60


def test_a_replica_of_a_log_with_future_times_leads_by_the_clock(
    stores: Any, put: Any, replica: Any
) -> None:
    """The master's clock was an hour ahead for a moment; delays count from the clock's time."""
    ahead_ms = NOW_MS + 3_600_000
    leader = stores.open().as_replicated(NOW_MS)
    leader.to_master(3, NOW_MS)
    put(stores._open[0], now_ms=ahead_ms)
    store = replica.open()
    follower = store.as_replicated(NOW_MS)
    record_epochs(follower, leader.epochs)
    copy(leader, follower, leader.end)
    follower.to_master(4, NOW_MS)
    put(store, "SCHEDULE_TOPIC_XXXX", 1, DELAY="2")
    for _restart in range(2):
        put(store, queue_id=1)
        follower.confirm_to(follower.end, NOW_MS)
        assert store.units("SCHEDULE_TOPIC_XXXX", 1, 0, 1)[0].tags_code == NOW_MS + 5000
        assert store.store_timestamp_ms("T", 1, 0) == ahead_ms, "for searches times ascend"
        put(store, "SCHEDULE_TOPIC_XXXX", 1, DELAY="2")  # the last record
        follower.confirm_to(follower.end, NOW_MS)
        store.close(NOW_MS)
        store = replica.open()
        follower = store.as_replicated(NOW_MS)
        follower.to_master(follower.epochs.last_epoch + 1, NOW_MS)
