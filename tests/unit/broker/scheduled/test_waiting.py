"""Retention keeps the log files with waiting messages, and reports the messages it lost."""

import logging
import time
from typing import Any

import pytest
from tests.unit.broker.scheduled.test_timers import bodies, restart, send
from tests.waiting import delete_expired

from turbopump.broker.introspection.metrics import CounterSnapshot, render
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.headers.send import RecallMessageRequest

SMALL = "mappedFileSizeCommitLog=4096\nmappedFileSizeTimerLog=4096\n"
HOUR_MS = 3_600_000
WAITS: dict[str, dict[str, object]] = {
    "timers": {"TIMER_DELAY_SEC": 60},
    "delays": {"DELAY": 5},
    "halves": {"TRAN_MSG": "true", "PGROUP": "PG", "UNIQ_KEY": "K1"},
}


def fill(world: Any) -> None:
    """Store some files of other messages after the waiting messages, all durable."""
    end = world.broker.store.max_log_offset + 6 * 4_096
    while world.broker.store.max_log_offset < end:
        assert send(world, bytes(1_000), topic="Other").code == 0
    world.pass_time(3_000)


def clean(world: Any, hours: int = 80) -> int:
    """Run retention as if `hours` had passed since the files were written; returns the number of
    removed files."""
    removed = 0
    for _ in range(20):
        world.pass_time(1_000, step_ms=500)
        world.broker.delay.begin_save()
        world.broker.delay.take_unsaved_content()
        now_ms = int(time.time() * 1_000) + hours * HOUR_MS
        removed += delete_expired(world.broker.store, now_ms)
    return removed


@pytest.mark.parametrize("kind", WAITS)
def test_files_in_which_messages_wait_are_kept(world_of: Any, kind: str) -> None:
    world = world_of(SMALL)
    assert send(world, b"first", topic="Other").code == 0
    assert send(world, b"waits", **WAITS[kind]).code == 0
    fill(world)
    assert clean(world) == 0
    assert world.broker.store.kept_bytes > 0
    if kind == "halves":
        return
    world.pass_time(70_000, step_ms=500)
    assert bodies(world) == [b"waits"]
    world.pass_time(20_000, step_ms=500)
    assert clean(world) > 0
    assert world.broker.store.kept_bytes == 0


@pytest.mark.parametrize("is_clean", [True, False])
def test_they_are_kept_by_the_next_process(world_of: Any, is_clean: bool) -> None:
    world = world_of(SMALL)
    assert send(world, b"waits", TIMER_DELAY_SEC=90).code == 0
    fill(world)
    restart(world, clean=is_clean)
    assert clean(world) == 0
    world.pass_time(80_000, step_ms=500)
    assert bodies(world) == [b"waits"]


@pytest.mark.parametrize(
    ("keys", "hours"),
    [
        ("keepWaitingMessages=false\n", 80),
        ("keepWaitingHoursMax=4\n", 80),
        ("keepWaitingMbytesMax=0\n", 80),
        ("", 72 + 336 + 1),
    ],
)
def test_beyond_the_bounds_they_go_and_are_counted_once(
    world_of: Any, caplog: pytest.LogCaptureFixture, keys: str, hours: int
) -> None:
    world = world_of(SMALL + keys)
    for number in range(3):
        assert send(world, b"%d" % number, TIMER_DELAY_SEC=60).code == 0
        assert send(world, b"%d" % number, DELAY=5).code == 0
        assert send(world, TRAN_MSG="true", PGROUP="PG", UNIQ_KEY=f"K{number}").code == 0
    fill(world)
    assert world.broker.timers.metrics.get("T") == 3
    with caplog.at_level(logging.ERROR):
        assert clean(world, hours) > 0
        world.pass_time(120_000, step_ms=500)
    assert world.broker.waiting.lost_counts() == {"timers": 3, "delays": 3, "half_messages": 3}
    assert world.broker.timers.metrics.get("T") == 0
    assert not [line for line in caplog.messages if "cannot be read" in line]
    assert len([line for line in caplog.messages if "before their time" in line]) <= 3
    shown = render(CounterSnapshot.read_counters(world.broker, world.now_ms), "")[0].decode()
    assert 'kind="timers"' in shown and "turbopump_waiting_lost_total" in shown


@pytest.mark.parametrize("window_slots", [40_000, 30])
@pytest.mark.parametrize("is_late", [False, True])
def test_recalls_that_are_lost_with_their_timers_leave_true_counts(
    world_of: Any, window_slots: int, is_late: bool
) -> None:
    """`window_slots` 30: both wait in parts. `is_late`: the broker was down at their time."""
    keys = f"timerRollWindowSlot={window_slots}\ntimerPrecisionMs=1000\n"
    keys += "recallMessageEnable=true\nkeepWaitingMessages=false\n"
    world = world_of(SMALL + keys)
    for number in range(3):
        sent = send(world, b"%d" % number, TIMER_DELAY_SEC=60)
        if number < 2:
            handle = sent.fields["recallHandle"]
            request = RecallMessageRequest("T", handle, "PG")
            assert world.ask(RequestCode.RECALL_MESSAGE, request).code == 0
    fill(world)
    counts = world.broker.timers.metrics.to_json()["timingCount"]
    assert counts["T"]["count"] == 3 - 2, "three timers less two recalls"
    assert clean(world) > 0
    if is_late:
        restart(world)
        world.now_ms += 40_000
    world.pass_time(120_000, step_ms=500)
    counts = world.broker.timers.metrics.to_json()["timingCount"]
    assert counts["T"]["count"] == 0
    assert world.broker.waiting.lost_counts()["timers"] == 3, "recalls are no messages"


def test_the_age_of_waiting_messages_is_a_metric(world_of: Any) -> None:
    world = world_of(SMALL)
    began_ms = world.now_ms
    assert send(world, TIMER_DELAY_SEC=60).code == 0
    world.pass_time(10_000)
    assert world.broker.waiting.oldest_ms() == {"timers": began_ms}


@pytest.fixture
def world_of(make_world: Any) -> Any:
    return make_world
