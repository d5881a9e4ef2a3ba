"""A replica that acted keeps the progress of its delay levels until its master has read it
(I13)."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.broker.ha.pairs import DELAY, Group, copy_log, put

from turbopump.broker.scheduled.delay import DelayedMessages
from turbopump.broker.tables.data_versions import ACTING_STEP
from turbopump.engine.types import QueueOffset
from turbopump.net.wire.topics import DataVersion

LEVEL = 1


@pytest.fixture
def group(make_world: Callable[..., Any]) -> Group:
    """A master that died before it saved, and a replica that sent three messages to other
    masters."""
    made = Group(make_world)
    for _ in range(3):
        put(made.master, DELAY)
    made.replica.broker.role.become_replica(1)
    return made


def delay(group: Group) -> DelayedMessages:
    return group.replica.broker.delay


def acted(group: Group, to: int = 3) -> None:
    levels = delay(group)
    counter = levels.durable.data_version.counter + ACTING_STEP
    levels.durable.data_version = DataVersion(counter, 0, group.replica.now_ms)
    levels.delivered_elsewhere(LEVEL, QueueOffset(to), group.replica.now_ms)


def test_a_master_that_is_back_and_has_not_asked_yet_takes_nothing_away(group: Group) -> None:
    """On request 906 a replica first copies the tables: it must keep its own progress, or all three
    messages would be delivered again."""
    copy_log(group.master, group.replica)
    acted(group)
    group.round()
    assert delay(group).safe_progress() == {LEVEL: 3}


def test_the_master_s_further_deliveries_are_taken(group: Group) -> None:
    acted(group, to=1)
    group.master.pass_time(12_000)
    copy_log(group.master, group.replica)
    group.round()
    delay(group).step(group.replica.now_ms)
    assert delay(group).safe_progress() == {LEVEL: 3}


def test_behind_a_cut_log_the_master_is_right(group: Group) -> None:
    """The master's queue may count other messages now, and deliveries may be lost."""
    copy_log(group.master, group.replica)
    acted(group)
    group.follower.on_truncated(group.replica.now_ms)
    group.round()
    assert delay(group).safe_progress() == {}


def test_a_master_of_a_later_term_is_right(group: Group) -> None:
    copy_log(group.master, group.replica)
    acted(group)
    group.master.broker.delay.durable.data_version = DataVersion(1, 1, 0)
    group.round()
    assert delay(group).safe_progress() == {}
