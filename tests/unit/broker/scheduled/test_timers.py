"""Timers: to the millisecond, once or more, never before; clock jumps, rolls, recalls, restarts."""

import base64
import dataclasses
import errno
import logging
from typing import Any

import pytest
from tests.waiting import delete_expired

from turbopump.broker.introspection.metrics import CounterSnapshot, render
from turbopump.broker.scheduled.timer_deliveries import DELIVERED_PER_STEP
from turbopump.broker.scheduled.wheel_reader import NATIVE_SPEED
from turbopump.engine.disk.real_files import RealFiles
from turbopump.engine.timer.timer_files import TIMER_TOPIC
from turbopump.engine.types import PutStatus, QueueOffset
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.headers.send import RecallMessageRequest, SendMessageRequestV2
from turbopump.net.wire.message_id import decode_handle
from turbopump.net.wire.properties import decode_properties, encode_properties
from turbopump.pyx.record import Record

HOUR_MS = 3_600_000


def send(world: Any, body: bytes = b"x", topic: str = "T", **properties: object) -> Any:
    """Send a message with these properties to queue 2; returns the response."""
    texts = {name: str(value) for name, value in properties.items()}
    text = encode_properties({"TAGS": "a", **texts}).decode()
    header = SendMessageRequestV2("PG", topic, "TBW102", 4, 2, 0, 77, 5, properties=text)
    return world.ask(RequestCode.SEND_MESSAGE_V2, header, body)


def stored(world: Any, topic: str = "T", queue_id: int = 2) -> list[Record]:
    """All records of a queue."""
    units = world.broker.store.units(topic, queue_id, QueueOffset(0), 10_000)
    return [world.broker.store.record(unit.log_offset) for unit in units]


def bodies(world: Any) -> list[bytes]:
    return [record.body for record in stored(world)]


def restart(world: Any, *, clean: bool = True) -> None:
    """Stop the broker and start it again."""
    if clean:
        world.close()
    else:
        world.broker.store.close(world.now_ms)
    world.open()


def test_each_property_is_due_at_its_millisecond(world: Any) -> None:
    begin_ms = world.now_ms
    assert send(world, b"sec", TIMER_DELAY_SEC=2).code == 0
    assert send(world, b"ms", TIMER_DELAY_MS=1_507).code == 0
    assert send(world, b"at", TIMER_DELIVER_MS=begin_ms + 1_003).code == 0
    world.pass_time(3_000, step_ms=1)
    due = {record.body: record.store_timestamp_ms - begin_ms for record in stored(world)}
    assert due == {b"at": 1_003, b"ms": 1_507, b"sec": 2_000}
    for record in stored(world):
        properties = decode_properties(record.properties)
        assert (properties["REAL_TOPIC"], properties["REAL_QID"]) == ("T", "2")
        assert record.born_timestamp_ms == 77
        assert {"TIMER_OUT_MS", "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS"} <= properties.keys()


@pytest.mark.parametrize("precise", [1_700_000_005_500, 1_700_000_005_000])
def test_stored_properties_are_rounded_as_rocketmq_does(world: Any, precise: int) -> None:
    world.now_ms = 1_700_000_000_000
    send(world, TIMER_DELIVER_MS=precise)
    (record,) = stored(world, TIMER_TOPIC, 0)
    out = decode_properties(record.properties)["TIMER_OUT_MS"]
    assert out == {5_500: "1700000005000", 5_000: "1700000004000"}[precise % 10_000]


@pytest.mark.parametrize(
    ("properties", "code"),
    [
        ({"TIMER_DELIVER_MS": 0}, 0),
        ({"TIMER_DELIVER_MS": -1}, 0),
        ({"TIMER_DELAY_SEC": -1}, 0),
        ({"TIMER_DELAY_MS": 0}, 0),
        ({"TIMER_DELIVER_MS": 2**63 - 1}, ResponseCode.MESSAGE_ILLEGAL),
        ({"TIMER_DELAY_MS": 2**63 - 1}, ResponseCode.MESSAGE_ILLEGAL),
        ({"TIMER_DELAY_SEC": 2**63 - 1}, ResponseCode.MESSAGE_ILLEGAL),
        ({"TIMER_DELAY_SEC": 3 * 24 * 3600 + 1}, ResponseCode.MESSAGE_ILLEGAL),
        ({"TIMER_DELAY_SEC": 2**63}, ResponseCode.MESSAGE_ILLEGAL),
        ({"TIMER_DELAY_SEC": "soon"}, ResponseCode.MESSAGE_ILLEGAL),
        ({"TIMER_DELAY_MS": "٣"}, ResponseCode.MESSAGE_ILLEGAL),
    ],
)
def test_past_times_are_stored_at_once_and_invalid_ones_refused(
    world: Any, properties: dict[str, object], code: int
) -> None:
    assert send(world, b"now", **properties).code == code
    assert bodies(world) == ([] if code else [b"now"])
    assert stored(world, TIMER_TOPIC, 0) == []


def test_without_timers_they_are_refused(make_world: Any) -> None:
    world = make_world("timerWheelEnable=false\n")
    assert send(world, TIMER_DELAY_SEC=1).code == ResponseCode.SYSTEM_ERROR
    assert world.ask(RequestCode.GET_TIMER_CHECK_POINT).code == ResponseCode.SYSTEM_ERROR
    assert send(world).code == 0


def test_no_client_sends_to_the_topic_of_timers(world: Any) -> None:
    response = send(world, topic=TIMER_TOPIC, TIMER_OUT_MS=1, REAL_TOPIC="T", REAL_QID=2)
    assert response.code == ResponseCode.NO_PERMISSION


def test_a_timer_waits_while_nothing_may_be_appended(world: Any, monkeypatch: Any) -> None:
    assert send(world, b"due", TIMER_DELAY_MS=1_000).code == 0
    with monkeypatch.context() as patched:
        refused = PutStatus.SERVICE_NOT_AVAILABLE
        patched.setattr(type(world.broker.role), "admit_append", lambda *_: refused)
        world.pass_time(2_000)
    assert bodies(world) == []
    world.pass_time(1_000)
    assert bodies(world) == [b"due"]


def test_timers_of_one_millisecond_come_in_order(world: Any) -> None:
    due_ms = world.now_ms + 1_234
    for number in range(700):  # more than a step of any kind handles
        send(world, b"%d" % number, TIMER_DELIVER_MS=due_ms)
    world.pass_time(1_300)
    assert bodies(world) == [b"%d" % number for number in range(700)]


@pytest.mark.parametrize(("clean", "pause_ms"), [(True, 100), (False, 3_000), (False, 100)])
def test_a_restart_loses_no_timer_and_repeats_unsynced_ones(
    world: Any, clean: bool, pause_ms: int
) -> None:
    """The log is flushed for the timers, not only every 10 s, even with few messages."""
    send(world, b"soon", TIMER_DELAY_SEC=1)
    send(world, b"later", TIMER_DELAY_SEC=9)
    world.pass_time(1_000 + pause_ms)
    restart(world, clean=clean)
    send(world, b"new", TIMER_DELAY_SEC=2)
    world.pass_time(9_000)
    again = [b"soon"] if not clean and pause_ms < 1_000 else []
    assert bodies(world) == [b"soon", *again, b"new", b"later"]


def test_timers_due_during_a_stop_of_two_days_are_delivered(world: Any) -> None:
    for minute in range(60):
        send(world, b"%d" % minute, TIMER_DELAY_SEC=60 * minute + 1)
    world.pass_time(2_500)
    restart(world)
    world.now_ms += 48 * HOUR_MS
    world.pass_time(1_000)
    assert bodies(world) == [b"%d" % minute for minute in range(60)]


def test_a_backlog_of_two_days_lets_fresh_sends_in_between(world: Any) -> None:
    """A step delivers a bounded number of due timers; a client's send in between is stored at once,
    and a fresh timer comes after all timers that were due earlier."""
    count = 3_000
    due_ms = world.now_ms + HOUR_MS
    for number in range(count):
        send(world, b"%d" % number, TIMER_DELIVER_MS=due_ms + number)
    world.pass_time(2_500)
    restart(world)
    world.now_ms += 48 * HOUR_MS
    timers, steps, seen = world.broker.timers, 0, 0
    send(world, b"fresh", TIMER_DELAY_MS=1)
    while timers.step(world.now_ms, world.steady_ms) is not None and len(bodies(world)) < count:
        delivered = len(bodies(world)) - seen
        assert delivered <= DELIVERED_PER_STEP * NATIVE_SPEED
        assert send(world, b"sent", topic="Other").code == 0
        assert len(stored(world, "Other")) == steps + 1
        steps, seen = steps + 1, len(bodies(world))
    assert steps >= count // (DELIVERED_PER_STEP * NATIVE_SPEED)
    world.pass_time(3_000)
    assert bodies(world) == [*(b"%d" % number for number in range(count)), b"fresh"]


def test_beyond_the_window_a_timer_waits_in_parts(world: Any) -> None:
    """The wheel of this test has 20,000 seconds; the first part ends in the middle of it."""
    send(world, b"far", TIMER_DELAY_SEC=50_000)
    begin_ms = world.now_ms
    while world.now_ms < begin_ms + 49_900_000:
        world.pass_time(90_000, step_ms=90_000)
    assert bodies(world) == []
    rolls = stored(world, TIMER_TOPIC, 0)
    assert len(rolls) >= 3
    assert decode_properties(rolls[-1].properties)["TIMER_ROLL_TIMES"] == str(len(rolls) - 1)
    restart(world, clean=False)
    world.pass_time(102_000, step_ms=1_000)
    assert bodies(world) == [b"far"]
    assert world.broker.timers.metrics.get("T") == 0


@pytest.mark.parametrize("jump_ms", [HOUR_MS, -HOUR_MS])
def test_a_clock_that_jumps_an_hour(world: Any, jump_ms: int) -> None:
    """F29: by the clock that is read no timer is early, and none is lost (I14)."""
    send(world, b"1 s", TIMER_DELAY_SEC=1)
    send(world, b"10 s", TIMER_DELAY_SEC=10)
    world.pass_time(2_000)
    assert bodies(world) == [b"1 s"]
    world.set_clock(jump_ms)
    send(world, b"5 s", TIMER_DELAY_SEC=5)
    world.pass_time(4_900)
    assert bodies(world) == ([b"1 s", b"10 s"] if jump_ms > 0 else [b"1 s"])
    world.pass_time(200)
    assert bodies(world)[-1] == b"5 s"
    world.set_clock(-jump_ms)
    world.pass_time(HOUR_MS + 20_000, step_ms=20_000)
    assert sorted(bodies(world)) == [b"1 s", b"10 s", b"5 s"]


def test_a_crash_while_the_clock_is_behind_loses_none(world: Any) -> None:
    send(world, b"before", TIMER_DELAY_SEC=1)
    world.pass_time(3_000)
    world.set_clock(-HOUR_MS)
    send(world, b"behind", TIMER_DELAY_SEC=60)
    world.pass_time(5_000)
    restart(world, clean=False)
    world.pass_time(56_000, step_ms=1_000)
    assert bodies(world) == [b"before", b"behind"]


def test_progress_is_not_ahead_of_the_disk(make_world: Any) -> None:
    world = make_world("flushDiskType=SYNC_FLUSH\n")
    send(world, b"x", TIMER_DELAY_SEC=1)
    world.pass_time(500)
    world.disk.hold()
    world.pass_time(5_000)
    assert world.broker.store.flushed_log_offset < world.broker.store.max_log_offset
    held = world.broker.timers.replica_checkpoint()
    assert held.read_ms <= world.now_ms - 4_000
    world.disk.release()
    world.pass_time(3_000)
    assert world.broker.timers.replica_checkpoint().read_ms > held.read_ms


def test_a_recalled_message_is_not_delivered(make_world: Any) -> None:
    world = make_world("recallMessageEnable=true\n")
    response = send(world, b"no", TIMER_DELAY_SEC=3)
    send(world, b"yes", TIMER_DELAY_SEC=3)
    handle = response.fields["recallHandle"]
    decoded = decode_handle(handle)
    assert (decoded.topic, decoded.broker_name) == ("T", "broker-a")
    request = RecallMessageRequest("T", handle, "PG")
    recalled = world.ask(RequestCode.RECALL_MESSAGE, request)
    assert (recalled.code, recalled.fields["msgId"]) == (0, decoded.message_id)
    assert world.broker.timers.count_at(int(decoded.timestamp) - 1) == 0
    world.pass_time(5_000)
    assert bodies(world) == [b"yes"]
    assert world.broker.timers.metrics.get("T") == 0


def test_recalls_that_are_refused(make_world: Any) -> None:
    world = make_world()
    handle = send(world, TIMER_DELAY_SEC=3).fields["recallHandle"]
    decoded = decode_handle(handle)

    def code(topic: str = "T", text: str = handle) -> int:
        request = RecallMessageRequest(topic, text, "PG")
        return int(world.ask(RequestCode.RECALL_MESSAGE, request).code)

    assert code() == ResponseCode.NO_PERMISSION
    world.config.recall_message_enable = True
    illegal = ResponseCode.ILLEGAL_OPERATION
    assert code("Unknown") == ResponseCode.TOPIC_NOT_EXIST
    send(world, topic="U")
    assert code("U") == illegal
    for text in ("", "?", "djEgVA==", handle[:30], "A" * 5_000, "\u00e9"):
        assert code(text=text) == illegal, text
    for changed in (
        {"broker_name": "other"},
        {"timestamp": "0"},
        {"timestamp": "-1"},
        {"timestamp": str(2**63 - 1)},
        {"timestamp": "9" * 30},
        {"timestamp": "soon"},
    ):
        assert code(text=dataclasses.replace(decoded, **changed).encode()) == illegal, changed
    plain = base64.urlsafe_b64encode(b"v2 T broker-a 5 K").decode()
    assert code(text=plain) == illegal
    assert code() == 0


def test_a_full_slot_refuses(make_world: Any) -> None:
    world = make_world("timerCongestNumEachSlot=3\n")
    due_ms = world.now_ms + 60_000
    codes = []
    for _ in range(20):
        codes.append(send(world, TIMER_DELIVER_MS=due_ms).code)
        world.run_timers()
    assert codes.count(0) <= 6
    assert codes[:3] == [0, 0, 0]
    assert codes[-1] == ResponseCode.SYSTEM_ERROR


def test_status_and_metrics(world: Any) -> None:
    for seconds in (2, 30, 30, 1_000):
        send(world, TIMER_DELAY_SEC=seconds)
    world.run_timers()
    status = world.broker.timers.status(world.now_ms)
    assert status.waiting == 4
    assert status.backlog[:5] == [1, 2, 0, 0, 1]
    assert status.next_due_ms is not None
    assert 0 < status.next_due_ms - world.now_ms <= 3_000
    body = world.ask(RequestCode.GET_TIMER_METRICS).body
    assert b'"T":{"count":4' in bytes(body)


def test_messages_removed_by_age_are_not_waited_for(make_world: Any) -> None:
    """Seed 36 of the simulation `ha` with elections, kills and timers: a master whose log began
    after all timers reported forever that they still had to enter its wheel."""
    world = make_world("timerStopEnqueue=true\nmappedFileSizeCommitLog=4096\n")
    for _ in range(3):
        send(world, TIMER_DELAY_SEC=2)
    while world.broker.store.max_log_offset < 8_192:
        assert send(world, bytes(1_000)).code == 0
    assert world.broker.timers.status(world.now_ms).offset_behind == 3
    went = 0
    for _ in range(20):
        world.pass_time(1_000, step_ms=1_000)
        went += delete_expired(world.broker.store, 1 << 43)  # files have the system's time
    assert went
    assert world.broker.timers.status(world.now_ms).offset_behind == 0


def test_a_disk_without_room_is_one_line_and_its_end_another(
    world: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """On a full disk the line was logged every second."""

    def full() -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    caplog.set_level(logging.INFO)
    with monkeypatch.context() as patch:
        patch.setattr(world.broker.timers._files, "_make_wheel", full)
        assert send(world, b"x", TIMER_DELAY_SEC=1).code == 0
        world.pass_time(10_000)
        assert bodies(world) == []
    world.pass_time(3_000)
    assert bodies(world) == [b"x"]
    lines = [line for line in caplog.messages if "timers" in line]
    assert [line.partition(",")[0].partition(":")[0] for line in lines] == [
        "timers wait in their queue",
        "timers go on",
    ]


def test_a_message_delivered_to_an_unknown_topic_creates_it(world: Any) -> None:
    """The topic of a new master that had not copied it (reminders 4079)."""
    topics = world.broker.topics
    send(world, b"timer", topic="T", TIMER_DELAY_SEC=2)
    send(world, b"level", topic="U", DELAY=1)
    for name in ("T", "U"):
        topics.delete(name, world.now_ms)
    world.pass_time(4_000)
    found = {name: topics.get(name).read_queue_nums for name in ("T", "U")}
    assert found == {"T": 3, "U": 3}


def test_metrics_have_rocketmqs_names(world: Any) -> None:
    for seconds in (3, 4, 30):
        send(world, TIMER_DELAY_SEC=seconds)
    send(world, topic="Other", TIMER_DELAY_SEC=30)
    world.pass_time(3_100)
    world.config.timer_stop_enqueue = True
    send(world, TIMER_DELAY_SEC=60)
    world.pass_time(300)
    text = render(CounterSnapshot.read_counters(world.broker, world.now_ms), "")[0].decode()
    values = {
        (line.split("{")[0], label): line.rsplit(" ", 1)[1]
        for line in text.splitlines()
        for label in (
            "",
            'topic="T"',
            'topic="Other"',
            *(f'timer_bound_s="{bound}"' for bound in (5, 60)),
        )
        if "{" in line and label in line
    }
    assert values["rocketmq_timing_messages", 'topic="T"'] == "2.0"
    assert values["rocketmq_timer_message_snapshot", 'timer_bound_s="5"'] == "1.0"
    assert values["rocketmq_timer_message_snapshot", 'timer_bound_s="60"'] == "2.0"
    assert values["rocketmq_timer_enqueue_total", 'topic="T"'] == "3.0"
    assert values["rocketmq_timer_enqueue_total", 'topic="Other"'] == "1.0"
    assert values["rocketmq_timer_dequeue_total", 'topic="T"'] == "1.0"
    assert ("rocketmq_timer_dequeue_total", 'topic="Other"') not in values
    assert values["rocketmq_timer_enqueue_lag", ""] == "1.0"
    assert float(values["rocketmq_timer_enqueue_latency_milliseconds", ""]) == 300
    assert values["rocketmq_timer_dequeue_lag", ""] == "3.0"
    assert float(values["rocketmq_timer_dequeue_latency_milliseconds", ""]) < 2_000
    next_ms = 1_000 * float(values["turbopump_timer_next_due_seconds", ""])
    assert 0 < next_ms - world.now_ms <= 2_000


def test_a_wheel_that_is_gone_is_made_anew(world: Any) -> None:
    send(world, b"x", TIMER_DELAY_SEC=5)
    world.pass_time(2_000)
    world.close()
    root = world.config.store.root
    RealFiles().remove(f"{root}/timerwheel")
    world.open()
    world.pass_time(4_000)
    assert bodies(world) == [b"x"]
