"""Dispatch: units, index keys, and each reason to stop."""

import ctypes
from typing import Any

import pytest

from turbopump.pyx import dispatch, record
from turbopump.pyx.dispatch import QueueTable
from turbopump.pyx.index import HEADER_SIZE, IndexFile, java_hash, key_hash
from turbopump.pyx.queue import get_unit
from turbopump.pyx.region import Region

HOST = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"
EVER = (0, 1 << 62)


class Log:
    """A log file under test: records appended one by one."""

    def __init__(self, size: int = 65536, base: int = 0) -> None:
        self.region = Region(bytearray(size))
        self.base = base
        self.end = 0

    def add(self, **changes: Any) -> int:
        """Append a record; returns its log offset."""
        fields: dict[str, Any] = {
            "log_offset": self.base + self.end,
            "topic": b"T",
            "body": b"body",
            "properties": b"",
            "queue_id": 0,
            "flag": 0,
            "queue_offset": 0,
            "sys_flag": 0,
            "born_timestamp_ms": 1,
            "born_host": HOST,
            "store_timestamp_ms": 1000,
            "store_host": HOST,
            "reconsume_times": 0,
            "prepared_transaction_offset": 0,
            "version": record.V1,
            **changes,
        }
        start = self.end
        self.end += record.append(self.region, start, self.region.size, **fields)
        return self.base + start


def table_of(log: Log, *queues: tuple[bytes, int], units: int = 100) -> tuple[QueueTable, Region]:
    """A table whose queues write one behind the other into one region."""
    table = QueueTable()
    region = Region(bytearray(units * 20 * len(queues)))
    for topic, queue_id in queues:
        table.attach(table.add(topic, queue_id), region, 0, units * 20)
    return table, region


def run(table: QueueTable, log: Log, start: int = 0, end: int | None = None) -> dispatch.Stop:
    return table.dispatch(log.region, log.base, start, log.end if end is None else end)


def index_of(entries: int = 100, slots: int = 16) -> IndexFile:
    return IndexFile(Region(bytearray(HEADER_SIZE + slots * 4 + entries * 20)), slots, entries)


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
    table.add(b"Batch", 0)  # plain from now on
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
    # Nothing lies behind this memory: `make asan` sees a byte too far.
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


def test_the_keys_of_a_record_in_order() -> None:
    log = Log(base=77)
    log.add(properties=b"TAGS\x01tag\x02KEYS\x01 k1  k2 \x02UNIQ_KEY\x01u\x02")
    table, _ = table_of(log, (b"T", 0))
    slots = 1 << 16
    region = Region(bytearray(HEADER_SIZE + slots * 4 + 10 * 20))
    table.set_index(IndexFile(region, slots, 10))
    run(table, log)
    entries = HEADER_SIZE + slots * 4
    hashes = [region.get_i32(entries + n * 20) for n in range(1, 5)]
    assert hashes == [key_hash(b"T#" + key) for key in (b"u", b"k1", b"k2", b"T#tag")]
    assert {region.get_i64(entries + n * 20 + 4) for n in range(1, 5)} == {77}
    assert region.is_zero(entries + 100, 100)


def test_a_full_index_is_resumed_inside_the_record() -> None:
    log = Log()
    log.add(properties=b"UNIQ_KEY\x01u\x02KEYS\x01a b c d e f\x02TAGS\x01t\x02")
    log.add(queue_offset=1, properties=b"KEYS\x01z\x02")
    table, _ = table_of(log, (b"T", 0))
    files = [index_of(entries=3)]
    table.set_index(files[0])
    position = 0
    while (stop := run(table, log, position)).status == dispatch.NEEDS_INDEX:
        following = index_of(entries=3)
        following.start_after(files[-1].end_log_offset, files[-1].end_timestamp_ms)
        files.append(following)
        table.set_index(following)
        position = stop.position
    assert stop.status == dispatch.DONE
    assert [file.count - 1 for file in files] == [2, 2, 2, 2, 1]
    for key in (b"u", b"a", b"b", b"c", b"d", b"e", b"f", b"T#t", b"z"):
        assert sum(len(file.search(b"T#" + key, 9, *EVER)) for file in files) == 1, key
    assert table.max_offset(0) == 2


def test_a_record_half_indexed_before_a_crash_is_completed() -> None:
    log = Log(base=100)
    log.add(properties=b"KEYS\x01a b c\x02")
    table, _ = table_of(log, (b"T", 0))
    index = index_of()
    index.put(b"T#a", 100, 1000)
    index.put(b"T#b", 100, 1000)
    table.set_index(index)
    run(table, log)
    assert index.count - 1 == 3
    assert index.search(b"T#c", 9, *EVER) == [100]


def test_records_before_the_end_of_the_index_are_passed_over() -> None:
    log = Log(base=100)
    first = log.add(properties=b"KEYS\x01a\x02")
    second = log.add(queue_offset=1, properties=b"KEYS\x01b\x02")
    table, _ = table_of(log, (b"T", 0))
    index = index_of()
    index.start_after(second, 5)
    table.set_index(index)
    run(table, log)
    assert index.search(b"T#a", 9, *EVER) == []
    assert index.search(b"T#b", 9, *EVER) == [second]
    assert first < second


def test_without_an_index_no_keys() -> None:
    log = Log()
    log.add(properties=b"KEYS\x01a\x02")
    table, _ = table_of(log, (b"T", 0))
    index = index_of()
    table.set_index(index)
    table.set_index(None)
    assert run(table, log).status == dispatch.DONE
    assert index.count == 1


def test_fillers_ends_and_garbage() -> None:
    log = Log(size=1000)
    log.add()
    table, _ = table_of(log, (b"T", 0))
    end = log.end
    assert run(table, log, 0, end - 1).status == dispatch.SHORT
    assert run(table, log, 0, end + 8).status == dispatch.BAD_RECORD
    record.append_filler(log.region, end, 1000)
    stop = run(table, log, 0, 1000)
    assert (stop.status, stop.position, stop.count) == (dispatch.BLANK_FOUND, end, 1)
    assert (stop.slot, stop.size) == (-1, 0)
    with pytest.raises(IndexError):
        run(table, log, 0, 1001)


def test_arrivals_are_told_once_in_order() -> None:
    log = Log()
    for topic, queue_id, queue_offset in [(b"B", 0, 0), (b"A", 1, 0), (b"B", 0, 1), (b"A", 0, 0)]:
        log.add(topic=topic, queue_id=queue_id, queue_offset=queue_offset)
    table = QueueTable()
    slots = {}
    for name in [(b"A", 0), (b"A", 1), (b"B", 0), (b"C", 0)]:
        slots[name] = table.add(*name)
        table.attach(slots[name], Region(bytearray(60)), 0, 60)
    run(table, log)
    assert table.take_arrivals() == [slots[b"B", 0], slots[b"A", 1], slots[b"A", 0]]
    assert table.take_arrivals() == []
    log.add(topic=b"A", queue_id=0, queue_offset=1)
    run(table, log)
    assert table.take_arrivals() == [slots[b"A", 0]]


@pytest.mark.parametrize("gone", [0, 1, 2])
def test_a_removed_queue_does_not_arrive(gone: int) -> None:
    log = Log()
    table = QueueTable()
    for n in range(3):
        log.add(queue_id=n)
        table.attach(table.add(b"T", n), Region(bytearray(20)), 0, 20)
    run(table, log)
    table.remove(gone)
    assert table.take_arrivals() == [n for n in range(3) if n != gone]
    log.add(queue_id=(gone + 1) % 3, queue_offset=1)
    table.attach((gone + 1) % 3, Region(bytearray(40)), 0, 40)
    run(table, log, 0)
    assert table.find(b"T", gone) == -1


@pytest.mark.parametrize("gone", [0, 1, 2])
def test_who_arrives_after_a_removal_is_told(gone: int) -> None:
    log = Log()
    table = QueueTable()
    for n in range(4):
        log.add(queue_id=n)
        table.attach(table.add(b"T", n), Region(bytearray(20)), 0, 20)
    last = log.end // 4 * 3
    run(table, log, 0, last)
    table.remove(gone)
    run(table, log, last)
    assert table.take_arrivals() == [n for n in range(4) if n != gone]


def test_names_and_slots() -> None:
    table = QueueTable()
    assert table.find(b"T", 0) == -1
    first = table.add(b"T", 0)
    assert table.add(b"T", 0) == first
    assert table.add(b"T", 1) != first
    assert (table.count, table.name(first)) == (2, (b"T", 0))
    table.set_next_offset(first, 12)
    assert (table.next_offset(first), table.max_offset(first)) == (12, 0)
    table.remove(first)
    assert (table.count, table.find(b"T", 0)) == (1, -1)
    for call in (table.name, table.remove, table.max_offset, table.next_offset):
        with pytest.raises(IndexError):
            call(first)
    for slot in (-1, 2, 99):
        with pytest.raises(IndexError):
            table.name(slot)
    again = table.add(b"", -1)
    assert (again, table.name(again), table.next_offset(again)) == (first, (b"", -1), 0)


def test_an_append_ahead_of_dispatch_keeps_its_next_offset() -> None:
    log = Log()
    log.add()
    table, _ = table_of(log, (b"T", 0))
    table.set_next_offset(0, 5)
    run(table, log)
    assert (table.max_offset(0), table.next_offset(0)) == (1, 5)


def test_thousands_of_queues_are_found_while_some_go() -> None:
    table = QueueTable()
    slots = {
        (b"topic-%d" % (n % 700), n): table.add(b"topic-%d" % (n % 700), n) for n in range(3000)
    }
    assert len(set(slots.values())) == 3000
    for n, name in enumerate(list(slots)):
        if n % 3 == 0:
            table.remove(slots.pop(name))
            assert table.find(*name) == -1
    assert table.count == 2000
    assert all(table.find(*name) == slot for name, slot in slots.items())
    assert all(table.name(slot) == name for name, slot in slots.items())


def test_an_attached_region_may_be_released() -> None:
    log = Log()
    log.add()
    log.add(queue_offset=1)
    table, units = table_of(log, (b"T", 0))
    view = units.view(0, 40)
    units.release()
    assert run(table, log).status == dispatch.DONE
    assert view[8:12] != bytes(4)
    log.region.release()
    with pytest.raises(ValueError, match="released"):
        run(table, log)
    other = Region(bytearray(20))
    other.release()
    with pytest.raises(ValueError, match="released"):
        table.attach(0, other, 0, 20)


def test_a_large_range_goes_in_one_call() -> None:
    log = Log(size=1 << 20)
    for n in range(2000):
        log.add(queue_offset=n, body=b"x" * 100)
    table, units = table_of(log, (b"T", 0), units=2000)
    stop = run(table, log)
    assert (stop.status, stop.count) == (dispatch.DONE, 2000)
    assert get_unit(units, 1999 * 20)[0] + get_unit(units, 0)[1] == log.end


def arrive(times_ms: list[int]) -> tuple[QueueTable, int]:
    """A queue whose messages were stored at the given times."""
    log = Log(size=len(times_ms) * 200 + 100)
    for number, at_ms in enumerate(times_ms):
        log.add(queue_offset=number, store_timestamp_ms=at_ms)
    table, _ = table_of(log, (b"T", 0), units=len(times_ms))
    assert run(table, log).status == dispatch.DONE
    return table, 0


def test_store_times_are_known_without_the_log() -> None:
    """Exact for the first and the last, and at both ends of a silence; between within a second."""
    times = [*range(10_000, 20_000, 100), 80_000, 80_010, 80_020]
    table, slot = arrive(times)
    for number, at_ms in enumerate(times):
        found_ms, known = table.stored_ms(slot, number)
        assert known and abs(found_ms - at_ms) <= 1_000, number
    for number in (0, 99, 100, 102):
        assert table.stored_ms(slot, number) == (times[number], True)


def test_store_times_of_long_ago_are_known_within_a_fraction_of_their_age() -> None:
    """32 marks for a week: what is seconds old is known to the second, what is days old to a part
    of a day."""
    week_ms = 7 * 86_400_000
    times = [week_ms * number // 3_000 for number in range(2_900)]
    times += [times[-1] + 500 * number for number in range(1, 1_000)]
    table, slot = arrive(times)
    now_ms = times[-1]
    for number, at_ms in enumerate(times):
        found_ms, known = table.stored_ms(slot, number)
        assert known
        assert abs(found_ms - at_ms) <= 1_000 + (now_ms - at_ms) * 0.6, number
    assert table.stored_ms(slot, 0) == (0, True)


def test_store_times_of_before_are_bounds() -> None:
    """A queue of an earlier run: its messages were there when the first of this run came."""
    log = Log()
    log.add(queue_offset=5, store_timestamp_ms=7_000)
    table, _ = table_of(log, (b"T", 0))
    table.set_progress(0, 5, 0)
    assert table.stored_ms(0, 4) == (-1, False)
    run(table, log)
    assert table.stored_ms(0, 4) == (7_000, False)
    assert table.stored_ms(0, 5) == (7_000, True)


def test_store_times_follow_a_cut_and_a_clock_that_was_put_back() -> None:
    table, slot = arrive([1_000, 3_000, 5_000])
    table.set_progress(slot, 2, 0)
    assert table.stored_ms(slot, 1) == (3_000, True)
    table.set_progress(slot, 0, 0)
    assert table.stored_ms(slot, 0) == (-1, False)
    table, slot = arrive([90_000, 91_500, 4_000, 6_000])
    assert table.stored_ms(slot, 1) == (4_000, False)
    assert [table.stored_ms(slot, n) for n in (2, 3)] == [(4_000, True), (6_000, True)]


def test_a_new_queue_in_an_old_slot_knows_nothing_of_the_old_one() -> None:
    table, slot = arrive([1_000, 3_000])
    table.remove(slot)
    assert table.add(b"U", 1) == slot
    table.set_progress(slot, 2, 0)
    assert table.stored_ms(slot, 1) == (-1, False)


def test_the_store_time_of_a_unit_from_elsewhere() -> None:
    """The dispatcher writes the units of queues that are not plain, and notes them itself."""
    table = QueueTable()
    slot = table.add(b"T", 0, False)
    for number, at_ms in enumerate([1_000, 2_000, 9_000]):
        table.set_progress(slot, number + 1, (number + 1) * 100)
        table.note_stored(slot, at_ms)
    assert [table.stored_ms(slot, n) for n in range(3)] == [
        (1_000, True),
        (2_000, True),
        (9_000, True),
    ]
