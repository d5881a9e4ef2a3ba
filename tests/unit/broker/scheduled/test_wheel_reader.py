"""Timers with late recalls, a different precision, and clocks that jump (I14, F29)."""

import errno
from typing import Any

import pytest
from tests.unit.broker.scheduled.test_timers import bodies, restart, send, stored

from turbopump.broker.scheduled import timers, wheel_reader
from turbopump.engine.timer.timer_files import TIMER_TOPIC
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.headers.send import RecallMessageRequest

DAY_MS = 24 * 3_600_000
RECALLED = 40
OTHERS = 1_500
"""More timers than a step puts into the wheel."""


def recalled_behind_a_backlog(world: Any) -> None:
    """Send 40 timers and recall them in time, with the recalls last in the unread queue."""
    handles = [send(world, b"no", TIMER_DELAY_SEC=20).fields["recallHandle"] for _ in range(40)]
    world.pass_time(2_500)
    world.disk.hold()
    for number in range(OTHERS):
        send(world, b"%d" % number, TIMER_DELAY_SEC=3_000)
    for handle in handles:
        request = RecallMessageRequest("T", handle, "PG")
        assert world.ask(RequestCode.RECALL_MESSAGE, request).code == 0
    world.disk.release()


def test_recalls_hold_over_a_crash(make_world: Any) -> None:
    world = make_world("recallMessageEnable=true\n")
    recalled_behind_a_backlog(world)
    restart(world, clean=False)
    world.now_ms += 30_000
    world.pass_time(5_000)
    assert bodies(world) == []
    assert world.broker.timers.status(world.now_ms).offset_behind == 0


def test_recalls_hold_while_no_wheel_can_be_made(
    make_world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    world = make_world("recallMessageEnable=true\n")
    with monkeypatch.context() as patch:
        patch.setattr(world.broker.timers._files, "_make_wheel", full)
        recalled_behind_a_backlog(world)
        world.now_ms += 30_000
        world.pass_time(5_000)
        assert world.broker.timers.status(world.now_ms).offset_behind > 0
    world.pass_time(5_000)
    assert bodies(world) == []
    assert world.broker.timers.status(world.now_ms).offset_behind == 0


def test_recalls_hold_while_the_queue_is_not_read(make_world: Any) -> None:
    """timerStopEnqueue: timers that are due after the first unread message wait."""
    world = make_world("recallMessageEnable=true\n")
    handle = send(world, b"no", TIMER_DELAY_SEC=5).fields["recallHandle"]
    send(world, b"before", TIMER_DELAY_SEC=2)
    world.pass_time(2_500)
    assert bodies(world) == [b"before"]
    world.config.timer_stop_enqueue = True
    request = RecallMessageRequest("T", handle, "PG")
    assert world.ask(RequestCode.RECALL_MESSAGE, request).code == 0
    world.pass_time(10_000)
    assert bodies(world) == [b"before"]
    world.config.timer_stop_enqueue = False
    world.pass_time(2_000)
    assert bodies(world) == [b"before"]


def test_more_overdue_timers_than_the_heap_holds_are_delivered(
    make_world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Timers are delivered only after the queue has been read, so a full heap must not end the
    reading."""
    monkeypatch.setattr(wheel_reader, "ROOM", 100)
    monkeypatch.setattr(timers, "ROOM", 100)
    world = make_world("timerStopEnqueue=true\n")
    for number in range(OTHERS):
        send(world, b"%d" % number, TIMER_DELAY_MS=1_000 + number)
    restart(world, clean=False)
    world.config.timer_stop_enqueue = False
    world.now_ms += 30_000
    world.pass_time(20_000)
    assert sorted(bodies(world)) == sorted(b"%d" % number for number in range(OTHERS))


def test_a_stop_of_enqueuing_does_not_hold_up_read_timers(world: Any) -> None:
    send(world, b"x", TIMER_DELAY_SEC=5)
    world.pass_time(1_000)
    world.config.timer_stop_enqueue = True
    world.pass_time(5_000)
    assert bodies(world) == [b"x"]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize(
    ("before", "after"), [(100, 1_000), (250, 20), (1_000, 100), (10_000, 1_000)]
)
def test_another_precision_after_a_restart(
    world: Any, before: int, after: int, clean: bool
) -> None:
    object.__setattr__(world.config.store, "timer_precision_ms", before)
    world.close()
    world.open()
    begin_ms, due = world.now_ms, {}
    for number in range(RECALLED):
        delay_ms = 15_000 + 397 * number
        due[b"%d" % number] = begin_ms + delay_ms
        kind = ("TIMER_DELIVER_MS", "TIMER_DELAY_MS")[number % 2]
        value = begin_ms + delay_ms if number % 2 == 0 else delay_ms
        send(world, b"%d" % number, **{kind: value})
    world.pass_time(3_500)
    if clean:
        world.close()
    else:
        world.broker.store.close(world.now_ms)
    object.__setattr__(world.config.store, "timer_precision_ms", after)
    world.open()
    world.pass_time(45_000, step_ms=10)
    late = {one.body: one.store_timestamp_ms - due.pop(one.body) for one in stored(world)}
    assert not due
    assert all(0 <= ms <= after for ms in late.values()), late


@pytest.mark.parametrize(
    ("precision_ms", "steps", "step_ms", "delay_ms", "wait_ms"),
    [(5, 1, 3_000, 2_000, 1_900), (100, 18, 2_030, 10, 1_000)],
)
def test_steps_of_the_clock_backwards(
    make_world: Any, precision_ms: int, steps: int, step_ms: int, delay_ms: int, wait_ms: int
) -> None:
    """More than 64 slots are ahead of the cursor then, already read from the wheel."""
    world = make_world(f"timerPrecisionMs={precision_ms}\n")
    count = 0

    def some() -> None:
        nonlocal count
        for number in range(500):
            send(world, b"%d" % count, TIMER_DELAY_MS=delay_ms + number * 5)
            count += 1

    for _ in range(steps):
        some()
        world.pass_time(wait_ms, step_ms=20)
        world.set_clock(-step_ms)
    some()
    world.pass_time(35_000, step_ms=20)
    assert sorted(bodies(world)) == sorted(b"%d" % number for number in range(count))


@pytest.mark.parametrize("clean", [True, False, None])
def test_a_clock_that_was_ahead_by_a_month(world: Any, clean: bool | None) -> None:
    send(world, b"then", TIMER_DELAY_SEC=5)
    world.pass_time(1_000)
    world.set_clock(30 * DAY_MS)
    world.pass_time(3_000)
    send(world, b"far", TIMER_DELAY_SEC=15)
    world.pass_time(1_000)
    assert bodies(world) == [b"then"]
    world.set_clock(-30 * DAY_MS)
    send(world, b"1", TIMER_DELAY_SEC=2)
    world.pass_time(5_000)
    if clean is not None:
        restart(world, clean=clean)
    send(world, b"2", TIMER_DELAY_SEC=4)
    for number in range(200):
        send(world, b"n%d" % number, TIMER_DELAY_SEC=2 + number)
    world.pass_time(210_000, step_ms=100)
    found = bodies(world)
    assert set(found) == {b"then", b"1", b"2", *(b"n%d" % number for number in range(200))}
    assert clean is False or len(found) == len(set(found))


@pytest.mark.parametrize("after", [1_000, 20])
@pytest.mark.parametrize("name", ["TIMER_DELAY_MS", "TIMER_DELAY_SEC"])
def test_a_delay_is_exact_after_the_clock_was_ahead(world: Any, name: str, after: int) -> None:
    """The record has the store time of the newest record, an hour ahead of the clock."""
    world.set_clock(3_600_000)
    send(world, b"ahead", TIMER_DELIVER_MS=world.now_ms)
    world.set_clock(-3_600_000)
    world.pass_time(137)
    due_ms = world.now_ms + 7_000
    send(world, b"x", **{name: 7_000 if name == "TIMER_DELAY_MS" else 7})
    object.__setattr__(world.config.store, "timer_precision_ms", after)
    restart(world)
    while len(bodies(world)) < 2:
        assert world.now_ms <= due_ms
        world.pass_time(1, step_ms=1)
    assert world.now_ms >= due_ms


def test_a_delivered_timer_comes_once_after_a_jump_and_a_clean_stop(world: Any) -> None:
    send(world, b"before", TIMER_DELAY_SEC=1)
    world.pass_time(3_000)
    world.set_clock(3_600_000)
    world.pass_time(3_000)
    world.set_clock(-3_600_000)
    send(world, b"once", TIMER_DELAY_SEC=2)
    world.pass_time(5_000)
    send(world, b"waits", TIMER_DELAY_SEC=10)
    world.pass_time(1_000)
    for _ in range(2):
        restart(world)
        world.pass_time(2_000)
    world.pass_time(20_000)
    assert bodies(world) == [b"before", b"once", b"waits"]
    assert len(stored(world, TIMER_TOPIC, 0)) == 3
