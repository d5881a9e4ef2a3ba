"""A replica keeps the log files with waiting messages, as its master does."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.broker.ha.pairs import Group
from tests.unit.broker.scheduled.test_timers import send
from tests.unit.broker.scheduled.test_waiting import HOUR_MS, SMALL, WAITS, fill
from tests.waiting import delete_expired, look_at_waiting

FILE_SIZE = 4_096


@pytest.fixture
def group(make_world: Callable[..., Any]) -> Group:
    return Group(lambda text, folder: make_world(SMALL + text, folder=folder))


def follow(group: Group) -> None:
    """Copy the master's log files and tables to the replica."""
    master, replica = group.master, group.replica
    source, log = master.broker.store, replica.broker.store.as_replicated(replica.now_ms)
    log.to_replica(replica.now_ms)
    for at in range(0, source.max_log_offset, FILE_SIZE):
        size = min(FILE_SIZE, source.max_log_offset - at)
        log.append(at, bytes(source._log.view_bytes(at, size)), replica.now_ms)
    log.confirm_to(source.max_log_offset, replica.now_ms)
    replica.broker.role.become_replica(1)
    replica.set_clock(master.now_ms - replica.now_ms)
    group.round()
    assert group.follower.error == ""
    for _ in range(3):
        replica.run_timers()


def clean(world: Any) -> int:
    """Run retention long after the files were written, with all progress saved; returns the number
    of removed files."""
    for _ in range(10):
        world.pass_time(1_000, step_ms=500)
        world.broker.delay.begin_save()
        world.broker.delay.take_unsaved_content()
    look_at_waiting(world.broker.waiting)
    return delete_expired(world.broker.store, int(time.time() * 1_000) + 80 * HOUR_MS)


@pytest.mark.parametrize("kind", WAITS)
def test_files_in_which_messages_wait_are_kept(group: Group, kind: str) -> None:
    assert send(group.master, b"first", topic="Other").code == 0
    assert send(group.master, b"waits", **WAITS[kind]).code == 0
    fill(group.master)
    group.master.pass_time(12_000)
    follow(group)
    assert clean(group.master) == clean(group.replica) == 0
    store, of_master = group.replica.broker.store, group.master.broker.store
    assert store.kept_bytes > 0
    assert store.record(store.min_log_offset).body == b"first"
    assert store.min_log_offset == of_master.min_log_offset == 0


@pytest.mark.parametrize("kind", ["timers", "delays"])
def test_files_go_once_the_master_has_delivered(group: Group, kind: str) -> None:
    assert send(group.master, b"waits", **WAITS[kind]).code == 0
    fill(group.master)
    group.master.pass_time(80_000, step_ms=500)
    group.master.pass_time(12_000)
    follow(group)
    assert clean(group.replica) > 0
    assert group.replica.broker.store.kept_bytes == 0
