"""A replica is elected after its master stood still: recalls hold, acknowledged messages of a
group with a filter do not come again (I14, I16)."""

from collections.abc import Callable
from typing import Any

from tests.unit.broker.ha.pairs import Group
from tests.unit.broker.pop.poppers import Popper
from tests.unit.broker.scheduled.test_timers import bodies
from tests.unit.broker.scheduled.test_wheel_reader import recalled_behind_a_backlog

INVISIBLE_MS = 50_000


def elect(group: Group) -> Any:
    """Copy the master's log to the replica, and make the replica the master."""
    source, replica = group.master.broker.store, group.replica
    log = replica.broker.store.replicated(replica.now_ms)
    log.to_replica(replica.now_ms)
    begin, size = int(log.end), source.max_log_offset
    log.append(begin, bytes(source._log.view(begin, size - begin)), replica.now_ms)
    log.confirm_to(size, replica.now_ms)
    replica.broker.role.end(1)
    log.to_master(2, replica.now_ms)
    log.confirm_to(log.end, replica.now_ms)
    group.follower.lead(2, replica.now_ms)
    replica.broker.role._is_slave = False
    return replica


def confirm(world: Any) -> None:
    """Confirm all that the master has stored."""
    log = world.broker.store.replicated(world.now_ms)
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
