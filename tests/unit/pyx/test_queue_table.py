"""The table of queues: arrivals, names and slots, and the store times of units."""

import pytest
from tests.unit.pyx.dispatching import Log, run, table_of

from turbopump.pyx import dispatch
from turbopump.pyx.dispatch import QueueTable
from turbopump.pyx.queue import get_unit
from turbopump.pyx.region import Region


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
def test_a_late_reader_learns_of_a_removal(gone: int) -> None:
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
    """Exact for the first and the last message, and at both ends of a silence; else within a
    second."""
    times = [*range(10_000, 20_000, 100), 80_000, 80_010, 80_020]
    table, slot = arrive(times)
    for number, at_ms in enumerate(times):
        found_ms, known = table.stored_ms(slot, number)
        assert known and abs(found_ms - at_ms) <= 1_000, number
    for number in (0, 99, 100, 102):
        assert table.stored_ms(slot, number) == (times[number], True)


def test_store_times_of_long_ago_are_known_within_a_fraction_of_their_age() -> None:
    """32 marks cover a week: recent times are exact to the second, times days ago to a part of a
    day."""
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
    """The queue is from an earlier run: its messages are older than the first of this run."""
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
    """The dispatcher itself writes the units of extended and batch queues, and records them."""
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
