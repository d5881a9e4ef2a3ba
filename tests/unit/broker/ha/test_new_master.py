"""A replica is elected after its master stood still: recalls hold, acknowledged messages of a
group with a filter do not come again (I14, I16)."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.broker.ha.pairs import Group
from tests.unit.broker.pop.poppers import Popper
from tests.unit.broker.scheduled.test_timers import bodies, send, stored
from tests.unit.broker.scheduled.test_wheel_reader import recalled_behind_a_backlog

INVISIBLE_MS = 50_000


def elect(group: Group) -> Any:
    """Copy the master's log to the replica, and make the replica the master."""
    source, replica = group.master.broker.store, group.replica
    log = replica.broker.store.as_replicated(replica.now_ms)
    log.to_replica(replica.now_ms)
    begin, size = int(log.end), source.max_log_offset
    log.append(begin, bytes(source._log.view_bytes(begin, size - begin)), replica.now_ms)
    log.confirm_to(size, replica.now_ms)
    replica.broker.role.become_replica(1)
    log.to_master(2, replica.now_ms)
    log.confirm_to(log.end, replica.now_ms)
    group.follower.begin_leading(2, replica.now_ms)
    replica.broker.role._is_slave = False
    return replica


def confirm(world: Any) -> None:
    """Confirm all that the master has stored."""
    log = world.broker.store.as_replicated(world.now_ms)
    log.confirm_to(log.end, world.now_ms)


def test_recalls_hold(make_world: Callable[..., Any]) -> None:
    """The new master delivers no timer before it has read all recalls in the queue."""
    group = Group(make_world)
    for world in (group.master, group.replica):
        world.config.recall_message_enable = True
    recalled_behind_a_backlog(group.master)
    group.replica.set_clock(group.master.now_ms - group.replica.now_ms)
    group.round(1_000)
    group.replica.now_ms += 30_000
    replica = elect(group)
    for _ in range(50):
        replica.now_ms += 100
        replica.broker.store.tick(replica.now_ms)
        replica.run_timers()
        confirm(replica)
    assert replica.broker.timers.status(replica.now_ms).offset_behind == 0
    assert bodies(replica) == []


def test_recalls_hold_over_a_rewind_before_a_term(make_world: Callable[..., Any]) -> None:
    """The clock of a master was set back, so its progress in the queue is held. It loses its term,
    which takes all later units out of the wheel, and leads again after the time of the timers."""
    group = Group(make_world, "recallMessageEnable=true\n")
    master, timers = group.master, group.master.broker.timers
    send(master, b"first", TIMER_DELAY_SEC=1)
    master.pass_time(60_000)
    master.set_clock(-50_000)
    recalled_behind_a_backlog(master)
    master.pass_time(2_000)
    assert timers.status(master.now_ms).offset_behind == 0
    group.lead.shut_down()
    master.broker.role.become_replica(1)
    timers.begin_following()
    assert timers.status(master.now_ms).offset_behind > 1_500
    master.now_ms += 30_000
    log = master.broker.store.as_replicated(master.now_ms)
    log.to_replica(master.now_ms)
    log.to_master(2, master.now_ms)
    group.lead.begin_leading(2, master.now_ms)
    master.broker.role._is_slave = False
    for _ in range(50):
        master.now_ms += 100
        master.broker.store.tick(master.now_ms)
        master.run_timers()
        confirm(master)
    assert timers.status(master.now_ms).offset_behind == 0
    assert bodies(master) == [b"first"]


@pytest.mark.parametrize("precisions", [(100, 1_000), (1_000, 100), (250, 20), (20, 10_000)])
def test_timers_of_a_group_with_two_precisions(
    make_world: Callable[..., Any], precisions: tuple[int, int]
) -> None:
    """Master and replica have different `timerPrecisionMs`: the new master delivers each timer
    that the former one has not delivered, at its exact time."""
    group = Group(make_world, *(f"timerPrecisionMs={one}\n" for one in precisions))
    master, replica, due = group.master, group.replica, {}
    for number in range(60):
        delay_ms = 1_500 + 397 * number
        due[b"%d" % number] = master.now_ms + delay_ms
        send(master, b"%d" % number, TIMER_DELAY_MS=delay_ms)
    for _ in range(3):
        master.pass_time(3_000)
        replica.set_clock(master.now_ms - replica.now_ms)
        group.round(100)
    delivered = bodies(master)
    assert 0 < len(delivered) < 30
    elect(group)
    assert replica.now_ms < due[b"30"]
    for _ in range(600):
        replica.now_ms += 50
        replica.broker.store.tick(replica.now_ms)
        replica.run_timers()
        confirm(replica)
    late = [(one.body, one.store_timestamp_ms - due[one.body]) for one in stored(replica)]
    assert {body for body, _ in late} == due.keys()
    assert all(late_ms >= 0 for _, late_ms in late)
    assert all(ms <= 50 for body, ms in late if due[body] > master.now_ms + 500)


def test_acknowledgements_behind_a_filter_hold(make_world: Callable[..., Any]) -> None:
    """Recovery passes over messages that the filter of a group passed over."""
    group = Group(make_world)
    popper = Popper(group.master)
    asked = {"exp": "A", "exp_type": "TAG", "invisible_time": INVISIBLE_MS}

    def received() -> list[str]:
        found = popper.pop(**asked)
        for _, handle in found:
            popper.ack(handle)
        return [body for body, _ in found]

    popper.send("first")
    group.round(1_000)
    assert received() == ["first"]
    popper.send("0", "1", "2", tag="B")
    for _ in range(3):
        assert received() == []
    popper.send("second", "third")
    assert [body for _ in range(5) for body in received()] == ["second", "third"]

    replica = elect(group)
    popper = Popper(replica)
    for _ in range(6):
        replica.now_ms += 100
        replica.broker.store.tick(replica.now_ms)
        confirm(replica)
        assert received() == []
