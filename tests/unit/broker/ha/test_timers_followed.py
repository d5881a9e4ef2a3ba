"""A replica has its master's timers, and the progress it may know of them (I13, R40)."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.shortcuts.log_cuts import truncate_log
from tests.unit.broker.ha.pairs import DELAY, Group, copy_log, put
from tests.unit.broker.scheduled.test_timers import bodies, send, stored

from turbopump.engine.timer.timer_files import TIMER_TOPIC
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import new_response


@pytest.fixture
def group(make_world: Callable[..., Any]) -> Group:
    return Group(make_world)


def follow(group: Group) -> None:
    """Copy the log, and let the replica read the tables."""
    copy_log(group.master, group.replica)
    group.replica.broker.role.become_replica(1)
    group.replica.set_clock(group.master.now_ms - group.replica.now_ms)
    group.round()
    group.replica.run_timers()


def flushed(group: Group) -> None:
    """Make the master's progress safe and save it."""
    group.master.pass_time(12_000)


def test_it_fills_its_wheel_as_far_as_the_master_has(group: Group) -> None:
    send(group.master, b"soon", TIMER_DELAY_SEC=1)
    send(group.master, b"later", TIMER_DELAY_SEC=60)
    flushed(group)
    send(group.master, b"unknown", TIMER_DELAY_SEC=60)
    checkpoint = group.master.broker.timers.replica_checkpoint()
    assert checkpoint.master_queue_offset == 2
    follow(group)
    replica = group.replica.broker.timers
    assert replica._files.queue_offset == 2
    assert replica.durable.current[:2] == (checkpoint.read_ms, 2)
    assert bodies(group.replica) == [b"soon"], "the master's delivery, none of its own"


def test_the_new_master_delivers_the_rest_of_the_old_one(group: Group) -> None:
    send(group.master, b"soon", TIMER_DELAY_SEC=1)
    send(group.master, b"later", TIMER_DELAY_SEC=60)
    flushed(group)
    send(group.master, b"unknown", TIMER_DELAY_SEC=60)
    follow(group)
    replica = group.replica
    log = replica.broker.store.as_replicated(replica.now_ms)
    log.to_master(2, replica.now_ms)
    log.confirm_to(log.end, replica.now_ms)
    group.follower.begin_leading(2, replica.now_ms)
    replica.broker.role._is_slave = False
    for _ in range(80):
        replica.now_ms += 1_000
        replica.broker.store.tick(replica.now_ms)
        replica.run_timers()
        log.confirm_to(log.end, replica.now_ms)
    assert sorted(bodies(replica)) == [b"later", b"soon", b"unknown"]


def test_a_master_that_stops_keeps_its_delivery_progress(group: Group) -> None:
    """The role ends before the store closes: the broker must not react as to a new master, which
    may lack deliveries."""
    master = group.master
    send(master, b"soon", TIMER_DELAY_SEC=1)
    put(master, DELAY)
    send(master, b"later", TIMER_DELAY_SEC=60)
    master.pass_time(1_200)
    before = stored(master, queue_id=0)
    group.lead.shut_down()
    master.broker.role.become_replica(1)
    group.lead.begin_following("", 0, master.steady_ms)
    master.close()
    master.open()
    master.pass_time(5_000)
    assert bodies(master) == [b"soon"]
    assert len(stored(master, queue_id=0)) == len(before) == 1


def test_progress_of_a_master_that_knows_less_is_not_taken(group: Group) -> None:
    send(group.master, b"soon", TIMER_DELAY_SEC=1)
    flushed(group)
    follow(group)
    timers = group.replica.broker.timers
    mine = group.master.broker.timers.replica_checkpoint()
    assert timers.durable.data_version == group.master.broker.timers.durable.data_version
    assert mine.state_version == timers.durable.data_version.state_version == 0
    assert not timers.is_behind_master(mine._replace(read_ms=mine.read_ms - 1_000))
    assert not timers.is_behind_master(
        mine._replace(read_ms=mine.read_ms + 1_000, master_queue_offset=0)
    )
    assert timers.is_behind_master(mine._replace(read_ms=mine.read_ms + 1_000))


@pytest.mark.parametrize("body", [b"", b"x" * 31, b"\xff" * 56])
def test_an_answer_that_is_no_checkpoint_changes_nothing(group: Group, body: bytes) -> None:
    def answer(request: Any) -> Any:
        if request.code == RequestCode.GET_TIMER_CHECK_POINT:
            return new_response(request, 0, body=body)
        return group.master.dispatch(request)

    group.link.target = answer
    before = group.replica.broker.timers.replica_checkpoint()
    group.round()
    assert "timers" in group.follower.error
    assert group.replica.broker.timers.replica_checkpoint() == before
    assert group.replica.broker.store.max_queue_offset(TIMER_TOPIC, 0) == 0


def test_a_cut_removes_the_units_of_removed_bytes(group: Group) -> None:
    """R12: neither wheel nor progress points beyond the log's new end."""
    send(group.master, b"a", TIMER_DELAY_SEC=60)
    end = group.master.broker.store.max_log_offset
    send(group.master, b"b", TIMER_DELAY_SEC=60)
    flushed(group)
    follow(group)
    replica = group.replica
    timers = replica.broker.timers
    assert timers._files.queue_offset == 2
    truncate_log(replica.broker.store.as_replicated(replica.now_ms), end, replica.now_ms)
    timers.on_truncated()
    assert (timers._files.queue_offset, timers._files.log_end) == (1, 52)
    assert timers.durable.current.queue_offset == 1
