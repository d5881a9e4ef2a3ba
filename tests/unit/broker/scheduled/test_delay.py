"""Delay levels: on time, at least once, progress never ahead of the disk; and send-back to DLQ."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.shortcuts.addresses import pack_host

from turbopump.broker.scheduled.delay import MAX_PER_STEP
from turbopump.engine.types import LogOffset, NewMessage, QueueOffset
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.groups import SubscriptionGroupConfig
from turbopump.net.wire.headers.send import SendMessageRequestV2
from turbopump.net.wire.java_properties import ConfigError
from turbopump.net.wire.properties import decode_properties, encode_properties
from turbopump.pyx.record import Record


def send(world: Any, level: int, body: bytes = b"x", **more: str) -> None:
    """A message of a delay level to queue 2 of T."""
    properties = encode_properties({"DELAY": str(level), "TAGS": "a", **more}).decode()
    header = SendMessageRequestV2("PG", "T", "TBW102", 4, 2, 0, 77, 5, properties=properties)
    assert world.ask(RequestCode.SEND_MESSAGE_V2, header, body).code == 0


def delivered(world: Any, topic: str = "T", queue_id: int = 2) -> list[Record]:
    """All records of a queue."""
    units = world.broker.store.units(topic, queue_id, QueueOffset(0), 10_000)
    return [world.broker.store.record(unit.log_offset) for unit in units]


def test_message_comes_when_its_time_has_come(world: Any) -> None:
    send(world, 2, b"later")
    sent_ms = world.now_ms
    world.pass_time(4_900)
    assert delivered(world) == []
    world.pass_time(200)
    (record,) = delivered(world)
    assert record.body == b"later"
    assert (record.flag, record.sys_flag, record.born_timestamp_ms) == (5, 0, 77)
    assert record.born_host == world.client.host
    assert record.store_timestamp_ms - sent_ms >= 5_000
    properties = decode_properties(record.properties)
    assert (properties["DELAY"], properties["REAL_TOPIC"], properties["REAL_QID"]) == (
        "2",
        "T",
        "2",
    )
    unit = world.broker.store.units("T", 2, QueueOffset(0), 1)[0]
    assert unit.tags_code == ord("a")


def test_levels_do_not_wait_for_each_other(world: Any) -> None:
    send(world, 3, b"ten")
    send(world, 1, b"one")
    world.pass_time(1_100)
    assert [record.body for record in delivered(world)] == [b"one"]
    world.pass_time(9_000)
    assert [record.body for record in delivered(world)] == [b"one", b"ten"]
    assert world.broker.delay.copy_progress() == {1: 1, 3: 1}


def test_order_within_a_level(world: Any) -> None:
    for number in range(5):
        send(world, 1, b"%d" % number)
    world.pass_time(1_100)
    assert [record.body for record in delivered(world)] == [b"0", b"1", b"2", b"3", b"4"]


def test_nothing_passes_a_message_that_cannot_be_delivered(world: Any, monkeypatch: Any) -> None:
    deliver = type(world.broker.delay)._deliver_unit

    def refuse_first(delays: Any, unit: Any, now_ms: int) -> bool:
        return unit.queue_offset > 0 and bool(deliver(delays, unit, now_ms))

    for number in range(3):
        send(world, 1, body=b"%d" % number)
    with monkeypatch.context() as patched:
        patched.setattr(type(world.broker.delay), "_deliver_unit", refuse_first)
        world.pass_time(2_000)
    assert delivered(world) == []
    world.pass_time(1_000)
    assert [record.body for record in delivered(world)] == [b"0", b"1", b"2"]


def test_one_step_is_bounded(world: Any) -> None:
    for _ in range(MAX_PER_STEP + 10):
        send(world, 1)
    world.now_ms += 1_000
    assert world.broker.delay.step(world.now_ms)
    assert len(delivered(world)) == MAX_PER_STEP
    assert not world.broker.delay.step(world.now_ms)
    assert len(delivered(world)) == MAX_PER_STEP + 10


def test_clock_set_back_does_not_hold_a_message_for_ever(world: Any) -> None:
    send(world, 1)
    world.now_ms -= 3_600_000
    world.pass_time(100)
    assert len(delivered(world)) == 1


HOUR_MS = 3_600_000


def clock_was_wrong(world: Any) -> None:
    """The clock is an hour ahead for 0.4 s, during which a message is stored."""
    world.set_clock(HOUR_MS)
    plain(world)
    world.pass_time(400)
    world.set_clock(-HOUR_MS)


@pytest.mark.parametrize("restart", [False, True])
def test_clock_that_was_wrong_for_a_moment_makes_no_delay_shorter(
    make_world: Callable[..., Any], restart: bool
) -> None:
    world = make_world()
    clock_was_wrong(world)
    if restart:
        world.close()
        world.open()
    send(world, 2, b"later")
    if restart:  # the delayed message is the last record now
        world.close()
        world.open()
    unit = world.broker.store.units("SCHEDULE_TOPIC_XXXX", 1, QueueOffset(0), 1)[0]
    assert unit.tags_code == world.now_ms + 5_000
    world.pass_time(4_900)
    assert delivered(world) == []
    world.pass_time(200)
    assert [record.body for record in delivered(world)] == [b"later"]
    # Times of all other records ascend, for searches.
    before = world.broker.store.record(LogOffset(0)).store_timestamp_ms
    assert before > world.now_ms
    assert world.broker.store.record(plain(world)).store_timestamp_ms == before


def test_retries_keep_their_times_behind_a_clock_that_was_wrong(world: Any) -> None:
    clock_was_wrong(world)
    where = plain(world, b"bad")
    for attempt, delay_ms in enumerate((10_000, 30_000, 60_000)):
        assert send_back(world, where, maxReconsumeTimes="16").code == 0
        world.pass_time(delay_ms - 100)
        assert len(delivered(world, "%RETRY%G", 0)) == attempt
        world.pass_time(200)
        where = LogOffset(delivered(world, "%RETRY%G", 0)[attempt].physical_offset)


def test_store_that_refuses_is_asked_again(world: Any, monkeypatch: Any) -> None:
    send(world, 1)
    store = world.broker.store
    world.disk.hold()
    with monkeypatch.context() as patch:
        patch.setattr(store, "_closed", True)
        world.pass_time(2_000)
    assert world.broker.delay.copy_progress() == {1: 0}
    world.pass_time(100)
    assert len(delivered(world)) == 1


def test_sync_flush_shows_all_that_was_delivered_during_a_flush(
    make_world: Callable[..., Any],
) -> None:
    world = make_world("flushDiskType=SYNC_FLUSH\n")
    for _ in range(5):
        send(world, 1)
    world.disk.hold()
    world.now_ms += 1_000
    world.broker.delay.step(world.now_ms)
    assert delivered(world) == []
    world.disk.release()
    assert len(delivered(world)) == 5


def test_restart_goes_on_where_the_last_stop_was(make_world: Callable[..., Any]) -> None:
    world = make_world()
    send(world, 1, b"before")
    send(world, 2, b"after")
    world.pass_time(1_100)
    world.close()
    saved = world.files.load("delayOffset.json")
    assert saved["offsetTable"] == {"1": 1, "2": 0}
    world.open()
    world.pass_time(5_000)
    assert [record.body for record in delivered(world)] == [b"before", b"after"]


def test_progress_is_saved_once_its_deliveries_are_on_disk(world: Any) -> None:
    send(world, 1)
    world.disk.hold()
    world.now_ms += 1_000
    world.broker.delay.step(world.now_ms)
    world.broker.delay.begin_save()
    world.broker.store.tick(world.now_ms)
    assert world.broker.delay.take_unsaved_content() is None
    world.disk.release()
    world.pass_time(11_000)
    progress = world.broker.delay.take_unsaved_content()
    assert progress is not None
    assert dict(progress["offsetTable"]) == {1: 1}
    assert world.broker.delay.take_unsaved_content() is None
    world.broker.delay.begin_save()
    assert world.broker.delay.take_unsaved_content() is None


def test_failed_save_is_tried_again(world: Any) -> None:
    send(world, 1)
    world.pass_time(1_100)
    world.broker.delay.begin_save()
    world.pass_time(11_000)
    assert world.broker.delay.take_unsaved_content() is not None
    world.broker.delay.save_failed()
    world.broker.delay.begin_save()
    world.pass_time(1_000)
    assert world.broker.delay.take_unsaved_content() is not None


def test_progress_of_another_store_is_clamped(make_world: Callable[..., Any]) -> None:
    world = make_world()
    world.files.save("delayOffset.json", {"offsetTable": {"1": 500, "2": -3}})
    world.broker.delay.load()
    send(world, 2)
    world.pass_time(5_100)
    assert world.broker.delay.copy_progress()[2] == 1
    send(world, 1)
    world.pass_time(1_100)
    assert world.broker.delay.copy_progress()[1] <= 1


def test_damaged_progress_is_named(world: Any) -> None:
    world.files.save("delayOffset.json", {"offsetTable": 3})
    with pytest.raises(ConfigError, match=r"delayOffset\.json is damaged"):
        world.broker.delay.load()


def test_record_without_target_is_dropped(world: Any) -> None:
    host = pack_host("127.0.0.1:1")
    for properties in (b"DELAY\x011\x02", b"DELAY\x011\x02REAL_TOPIC\x01T\x02REAL_QID\x01x\x02"):
        message = NewMessage("SCHEDULE_TOPIC_XXXX", 0, b"x", properties, 0, 0, 1, host, host)
        world.broker.store.append(message, world.now_ms)
    send(world, 1, b"good")
    world.pass_time(1_100)
    assert [record.body for record in delivered(world)] == [b"good"]


def test_data_version_counts_deliveries(make_world: Callable[..., Any]) -> None:
    world = make_world("delayOffsetUpdateVersionStep=3\n")
    counters = []
    for _ in range(7):
        send(world, 1)
        world.pass_time(1_100)
        counters.append(world.broker.delay.durable.data_version.counter)
    assert counters == [0, 0, 1, 1, 1, 2, 2]


def send_back(world: Any, log_offset: LogOffset, **changed: Any) -> Any:
    """Send a message back with request 36."""
    fields = {"offset": str(log_offset), "group": "G", "delayLevel": "0", **changed}
    return world.ask_fields(RequestCode.CONSUMER_SEND_MSG_BACK, fields)


def plain(world: Any, body: bytes = b"x") -> LogOffset:
    """Send a message without a delay; returns its log offset."""
    header = SendMessageRequestV2(
        "PG", "T", "TBW102", 4, 0, 0, 77, 5, properties="KEYS\x01k\x02UNIQ_KEY\x01U\x02"
    )
    assert world.ask(RequestCode.SEND_MESSAGE_V2, header, body).code == 0
    offset = QueueOffset(world.broker.store.max_queue_offset("T", 0) - 1)
    return LogOffset(world.broker.store.units("T", 0, offset, 1)[0].log_offset)


def test_message_sent_back_comes_again_from_the_retry_topic(world: Any) -> None:
    where = plain(world, b"again")
    response = send_back(world, where)
    assert (response.code, response.remark) == (0, None)
    world.pass_time(9_900)
    assert delivered(world, "%RETRY%G", 0) == []
    world.pass_time(300)
    (record,) = delivered(world, "%RETRY%G", 0)
    original = world.broker.store.record(where)
    assert (record.body, record.reconsume_times) == (b"again", 1)
    assert (record.flag, record.born_timestamp_ms, record.born_host) == (
        5,
        77,
        original.born_host,
    )
    properties = decode_properties(record.properties)
    assert properties["RETRY_TOPIC"] == "T"
    assert properties["UNIQ_KEY"] == "U"
    assert properties["ORIGIN_MESSAGE_ID"] == f"7F00000100002A9F{where:016X}"
    topic = world.broker.topics.get("%RETRY%G")
    assert (topic.read_queue_nums, topic.perm) == (1, 6)


def test_retries_get_later_and_end_in_the_dead_letters(world: Any) -> None:
    where = plain(world, b"bad")
    levels = []
    for attempt in range(3):
        assert send_back(world, where, maxReconsumeTimes="3").code == 0
        world.pass_time(130_000, step_ms=1_000)
        record = delivered(world, "%RETRY%G", 0)[attempt]
        levels.append(decode_properties(record.properties)["DELAY"])
        where = LogOffset(record.physical_offset)
    assert levels == ["3", "4", "5"]
    assert send_back(world, where, maxReconsumeTimes="3").code == 0
    (dead,) = delivered(world, "%DLQ%G", 0)
    assert (dead.body, dead.reconsume_times) == (b"bad", 4)
    properties = decode_properties(dead.properties)
    assert (properties["RETRY_TOPIC"], properties["DELAY"]) == ("T", "0")


def test_negative_level_is_a_dead_letter_at_once(world: Any) -> None:
    assert send_back(world, plain(world), delayLevel="-1").code == 0
    assert len(delivered(world, "%DLQ%G", 0)) == 1


def test_retries_go_to_queues_that_are_read(world: Any) -> None:
    assert send_back(world, plain(world)).code == 0
    world.broker.groups.put(SubscriptionGroupConfig("G", retry_queue_nums=100), world.now_ms)
    for _ in range(3):
        assert send_back(world, plain(world)).code == 0
    world.pass_time(11_000, step_ms=11_000)
    assert len(delivered(world, "%RETRY%G", 0)) == 4


def test_old_clients_limit_is_the_groups(world: Any) -> None:
    where = plain(world)
    response = send_back(world, where, maxReconsumeTimes="0", version=100)
    assert response.code == ResponseCode.SUCCESS
    assert world.broker.topics.get("%DLQ%G") is None


def test_unknown_record_cannot_be_sent_back(world: Any) -> None:
    where = plain(world)
    for wrong in (where + 1, 1 << 40, -1):
        response = send_back(world, LogOffset(wrong))
        assert (response.code, response.remark) == (1, f"look message by offset failed, {wrong}")
