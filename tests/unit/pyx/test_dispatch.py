"""Dispatch: units, index keys, and each reason to stop."""

import ctypes

import pytest
from tests.unit.pyx.dispatching import EVER, Log, index_of, run, table_of

from turbopump.pyx import dispatch
from turbopump.pyx.dispatch import QueueTable
from turbopump.pyx.index import java_hash
from turbopump.pyx.queue import get_unit
from turbopump.pyx.region import Region


def test_a_unit_for_each_record() -> None:
    log = Log(base=5000)
    offsets = [log.add(queue_offset=n, properties=b"TAGS\x01TagA\x02") for n in range(3)]
    table, units = table_of(log, (b"T", 0))
    stop = run(table, log)
    assert (stop.status, stop.position, stop.count) == (dispatch.DONE, log.end, 3)
    assert (stop.slot, stop.size, stop.queue_offset) == (-1, 0, -1)
    size = offsets[1] - offsets[0]
    wanted = [(at, size, java_hash(b"TagA")) for at in offsets]
    assert [get_unit(units, n * 20) for n in range(3)] == wanted
    assert (table.max_offset(0), table.max_log_offset(0)) == (3, 5000 + log.end)
    assert table.next_offset(0) == 3


def test_an_empty_range_is_done() -> None:
    log = Log()
    stop = run(QueueTable(), log)
    assert (stop.status, stop.count, stop.store_timestamp_ms) == (dispatch.DONE, 0, 0)


def test_the_store_time_of_the_last_record() -> None:
    log = Log()
    log.add(queue_offset=0, store_timestamp_ms=5)
    log.add(queue_offset=1, store_timestamp_ms=7)
    table, _ = table_of(log, (b"T", 0))
    assert run(table, log).store_timestamp_ms == 7


def test_an_unknown_queue_stops_until_it_is_added() -> None:
    log = Log()
    log.add()
    second = log.add(topic=b"U", queue_id=7)
    table, region = table_of(log, (b"T", 0))
    stop = run(table, log)
    assert (stop.status, stop.position, stop.count) == (dispatch.UNKNOWN_QUEUE, second, 1)
    assert (stop.slot, stop.queue_offset, stop.size) == (-1, 0, log.end - second)
    slot = table.add(b"U", 7)
    table.attach(slot, region, 0, 20)
    assert run(table, log, stop.position).status == dispatch.DONE
    assert get_unit(region, 0)[0] == second


def test_room_is_asked_for_unit_by_unit() -> None:
    log = Log()
    for n in range(5):
        log.add(queue_offset=n)
    table = QueueTable()
    slot = table.add(b"T", 0)
    position, files = 0, []
    for _ in range(3):
        stop = run(table, log, position)
        assert (stop.status, stop.slot) == (dispatch.NEEDS_ROOM, slot)
        assert stop.queue_offset == table.max_offset(slot) == len(files) * 2
        files.append(Region(bytearray(40)))
        table.attach(slot, files[-1], table.max_offset(slot), 40)
        position = stop.position
    assert run(table, log, position).status == dispatch.DONE
    assert [get_unit(region, 20)[1] > 0 for region in files] == [True, True, False]


def test_the_limit_is_not_passed() -> None:
    log = Log()
    for n in range(3):
        log.add(queue_offset=n)
    table = QueueTable()
    slot = table.add(b"T", 0)
    region = Region(bytearray(60))
    table.attach(slot, region, 0, 39)
    assert run(table, log).count == 1
    assert region.is_zero(20, 40)
    with pytest.raises(IndexError):
        table.attach(slot, region, 0, 61)
    with pytest.raises(TypeError):
        table.attach(slot, Region(bytes(60)), 0, 60)
    with pytest.raises(ValueError):
        table.attach(slot, region, -1, 60)


def test_a_unit_before_the_attached_ones_needs_room() -> None:
    log = Log()
    log.add(queue_offset=0)
    table = QueueTable()
    slot = table.add(b"T", 0)
    table.attach(slot, Region(bytearray(60)), 5, 60)
    assert run(table, log).status == dispatch.NEEDS_ROOM
    table.attach(slot, None, 0, 0)
    assert run(table, log).status == dispatch.NEEDS_ROOM


def test_dispatching_again_does_no_harm() -> None:
    log = Log()
    for n in range(4):
        log.add(queue_offset=n, properties=b"UNIQ_KEY\x01u\x02KEYS\x01a b\x02TAGS\x01t\x02")
    table, units = table_of(log, (b"T", 0))
    index = index_of()
    table.set_index(index)
    run(table, log)
    before, count = units.read(0, units.size), index.count
    table.take_arrivals()
    stop = run(table, log)
    assert (stop.status, stop.count) == (dispatch.DONE, 4)
    assert (units.read(0, units.size), index.count) == (before, count)
    assert table.take_arrivals() == []


def test_a_lower_queue_offset_is_passed_over() -> None:
    log = Log()
    log.add(queue_offset=3)
    table, units = table_of(log, (b"T", 0))
    table.set_progress(0, 4, 0)
    assert run(table, log).status == dispatch.DONE
    assert units.is_zero(0, units.size)


def test_queue_offset_0_behind_a_queue_is_left_to_the_caller() -> None:
    """The record's topic was deleted before it. Any other offset proves nothing."""
    log = Log()
    for queue_offset in (0, 1, 1):
        log.add(queue_offset=queue_offset)
    anew = log.add(queue_offset=0, properties=b"KEYS\x01k\x02")
    table, units = table_of(log, (b"T", 0))
    index = index_of()
    table.set_index(index)
    stop = run(table, log)
    assert (stop.status, stop.slot, stop.position) == (dispatch.BEGINS_ANEW, 0, anew)
    assert (stop.queue_offset, stop.size, stop.count) == (0, log.end - anew, 3)
    assert (table.max_offset(0), units.is_zero(40, units.size - 40)) == (2, True)
    alone = table.dispatch(log.region, 0, anew, log.end, queues=False)
    assert (alone.status, index.count) == (dispatch.DONE, 2)
    table.set_progress(0, 2, anew + 1)
    assert run(table, log).status == dispatch.DONE


def test_appends_count_on_in_a_queue_that_begins_anew() -> None:
    log = Log()
    for queue_offset in (0, 1, 2, 0, 1):
        log.add(queue_offset=queue_offset)
    table, _ = table_of(log, (b"T", 0))
    table.count_on(log.region, 0, 0, log.end)
    assert table.next_offset(0) == 2


def test_a_record_that_ends_where_the_queue_does_is_passed_over() -> None:
    log = Log()
    log.add()
    table, units = table_of(log, (b"T", 0))
    table.set_progress(0, 0, log.end)
    assert run(table, log).status == dispatch.DONE
    assert units.is_zero(0, units.size)
    table.set_progress(0, 0, log.end - 1)
    assert run(table, log).status == dispatch.DONE
    assert get_unit(units, 0)[1] == log.end


def test_a_gap_stops_until_the_caller_decides() -> None:
    log = Log()
    log.add(queue_offset=3)
    table, units = table_of(log, (b"T", 0))
    stop = run(table, log)
    assert (stop.status, stop.queue_offset, stop.slot) == (dispatch.QUEUE_GAP, 3, 0)
    table.set_progress(0, 3, table.max_log_offset(0))
    assert run(table, log).status == dispatch.DONE
    assert get_unit(units, 60)[1] > 0


def test_a_special_queue_is_left_to_the_caller() -> None:
    log = Log()
    log.add(topic=b"Batch", queue_offset=9, properties=b"KEYS\x01k\x02")
    second = log.add()
    table, _ = table_of(log, (b"T", 0))
    slot = table.add(b"Batch", 0, plain=False)
    index = index_of()
    table.set_index(index)
    stop = run(table, log)
    assert (stop.status, stop.slot, stop.size) == (dispatch.SPECIAL, slot, second)
    assert index.count == 1
    alone = table.dispatch(log.region, 0, 0, stop.size, queues=False)
    assert (alone.status, alone.count, index.count) == (dispatch.DONE, 1, 2)
    assert run(table, log, second).status == dispatch.DONE
    table.add(b"Batch", 0)  # the topic is an ordinary one now
    assert run(table, log).status == dispatch.QUEUE_GAP


@pytest.mark.parametrize("kind, units, keys", [(0, 1, 1), (4, 0, 1), (8, 1, 1), (12, 0, 0)])
def test_transactions(kind: int, units: int, keys: int) -> None:
    log = Log()
    log.add(sys_flag=kind, properties=b"KEYS\x01k\x02")
    table, _ = table_of(log, (b"T", 0))
    index = index_of()
    table.set_index(index)
    assert run(table, log).status == dispatch.DONE
    assert (table.max_offset(0), index.count - 1) == (units, keys)


def test_half_messages_need_no_queue() -> None:
    log = Log()
    log.add(topic=b"unknown", sys_flag=4)
    assert run(QueueTable(), log).status == dispatch.DONE


@pytest.mark.parametrize(
    "properties, wanted",
    [
        (b"", 0),
        (b"TAGS\x01\x02", 0),
        (b"TAGS\x01TagA", java_hash(b"TagA")),
        (b"TAGS\x01TagA\x02", java_hash(b"TagA")),
        (b"a\x01b\x02TAGS\x01x y\x02", java_hash(b"x y")),
        (b"TAGS\x01one\x02TAGS\x01two\x02", java_hash(b"two")),
        (b"TAGS\x01one\x02TAGS\x01\x02", java_hash(b"one")),
        (b"XTAGS\x01one\x02TAGSX\x01two\x02\x01TAGS\x01\x02", 0),
        (b"TAGS\x01a\x01b\x02", java_hash(b"a\x01b")),
        (b"TAGS\x01polygenelubricants\x02", -(1 << 31)),
        ("TAGS\x01é😀\x02".encode(), java_hash("é😀".encode())),
    ],
)
def test_the_tags_code(properties: bytes, wanted: int) -> None:
    log = Log()
    log.add(properties=properties)
    table, units = table_of(log, (b"T", 0))
    assert run(table, log).status == dispatch.DONE
    assert get_unit(units, 0)[2] == wanted


@pytest.mark.parametrize("tail", [b"", b"\xc3", b"\xe4\xbd", b"\xf0\x9f\x98", b"a\xf0", b"ab\xe4"])
def test_a_text_cut_at_the_end_of_the_log(tail: bytes) -> None:
    log = Log()
    log.add(properties=b"TAGS\x01tag" + tail)
    # The copy has no memory after its end: `make asan` reports a read beyond it.
    exact = Region((ctypes.c_uint8 * log.end).from_buffer_copy(log.region.read(0, log.end)))
    table, units = table_of(log, (b"T", 0))
    index = index_of()
    table.set_index(index)
    assert table.dispatch(exact, 0, 0, log.end).status == dispatch.DONE
    assert get_unit(units, 0)[2] == java_hash(b"tag" + tail)
    assert index.search(b"T#T#tag" + tail, 9, *EVER) == [0]


@pytest.mark.parametrize(
    "level, wanted",
    [(b"1", 1500), (b"2", 6000), (b"3", 6000), (b"99999999999999999999", 6000), (b"+1", 1500)]
    + [(text, java_hash(b"t")) for text in (b"0", b"-1", b"x", b"1x", b"+", b" 1")],
)
def test_the_delay_topic_has_the_delivery_time(level: bytes, wanted: int) -> None:
    log = Log()
    log.add(topic=b"SCHEDULE_TOPIC_XXXX", properties=b"DELAY\x01" + level + b"\x02TAGS\x01t\x02")
    log.add(topic=b"T", properties=b"DELAY\x01" + level + b"\x02TAGS\x01t\x02")
    table, units = table_of(log, (b"SCHEDULE_TOPIC_XXXX", 0))
    second = Region(bytearray(20))
    table.attach(table.add(b"T", 0), second, 0, 20)
    table.set_delay_levels([500, 5000])
    assert run(table, log).status == dispatch.DONE
    assert get_unit(units, 0)[2] == wanted
    assert get_unit(second, 0)[2] == java_hash(b"t")


def test_a_topic_as_long_as_the_delay_topic_is_another() -> None:
    log = Log()
    log.add(topic=b"SCHEDULE_TOPIC_XXXY", properties=b"DELAY\x011\x02")
    table, units = table_of(log, (b"SCHEDULE_TOPIC_XXXY", 0))
    table.set_delay_levels([500])
    run(table, log)
    assert get_unit(units, 0)[2] == 0


def test_too_many_delay_levels() -> None:
    with pytest.raises(ValueError):
        QueueTable().set_delay_levels([1] * 1025)
