"""Native entries with numbers of both signs and all sizes: each works or refuses them.

Python hands native code the numbers of peers, of files and of its configuration. A number that an
entry cannot take raises ValueError, OverflowError or, for a position in a region, IndexError.
Nothing else is raised, no memory outside a region is touched, and the objects can be used after
it. Sizes of memory that a machine may have are left out: they would be allocated.
"""

import random
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.failures.logged import FAILURES, check
from tests.lane.world import Driven
from tests.unit.broker.conftest import World
from tests.unit.broker.pop.poppers import Popper
from tests.unit.pyx.dispatching import HOST, Log, index_of, table_of

from turbopump.engine.types import NewMessage, PutStatus
from turbopump.net.wire.topics import TopicConfig
from turbopump.pyx import queue, record, timer
from turbopump.pyx.columns import COLUMNS, Decoder
from turbopump.pyx.dispatch import QueueTable
from turbopump.pyx.grpc_pops import GrpcPops
from turbopump.pyx.halves import HalfMarks
from turbopump.pyx.index import IndexFile, java_hash, key_hash
from turbopump.pyx.pending import PendingSends
from turbopump.pyx.region import Region
from turbopump.pyx.tail import Tail

EDGES = [
    *(sign * (1 << bits) + more for bits in (31, 32, 63, 64) for sign in (1, -1)
      for more in (-1, 0, 1)),
    *range(-3, 10), 20, 52, 100, 1000,
]  # fmt: skip
REFUSALS = (ValueError, OverflowError, IndexError)
Entry = tuple[Callable[..., Any], int]
"""A native entry, and how many numbers it takes."""
Moves = list[tuple[int, list[int], bytes]]


def number_of(rng: random.Random) -> int:
    """An edge, or any number but sizes of memory."""
    if rng.random() < 0.7:
        return rng.choice(EDGES)
    return rng.choice((rng.randrange(1 << 50, 1 << 64), rng.randrange(-(1 << 64), 1 << 12)))


def moves_of(seed: int) -> Moves:
    """Which entry, its numbers, and a text, for each of up to 30 calls."""
    rng = random.Random(seed)
    return [
        (rng.randrange(99), [number_of(rng) for _ in range(10)], rng.randbytes(rng.randrange(40)))
        for _ in range(rng.randrange(30))
    ]


moves = st.integers(0, 1 << 32).map(moves_of)


def play(entries: list[Entry], todo: Moves) -> None:
    """Call entries with numbers; a refusal is an answer."""
    for which, numbers, _ in todo:
        call, count = entries[which % len(entries)]
        try:
            call(*numbers[:count])
        except REFUSALS:
            pass


def texts_of(todo: Moves) -> Iterator[bytes]:
    """The texts of a plan."""
    return (text for _, _, text in todo)


@given(moves)
def test_a_wheel_of_timers(todo: Moves) -> None:
    log, slots = Region(bytearray(52 * 20)), Region(bytearray(32 * 8))
    wheel, heap = timer.Wheel(slots, 100), timer.DueHeap()

    def walk(tick: int, position: int, room: int, base: int, floor: int, number: int) -> None:
        found = timer.SlotWalk(tick, position, room)
        found.go(wheel, log, base, floor)
        assert len(found.recalls) <= timer.RECALLS
        found.entry(number)

    entries: list[Entry] = [
        (lambda precision: timer.Wheel(slots, precision), 1),
        (wheel.slot, 1),
        (wheel.next_tick, 2),
        (wheel.count, 2),
        (wheel.free_tick, 5),
        (lambda *numbers: wheel.add(log, *numbers), 8),
        (lambda at, *others: wheel.add(log, at % 20 * 52, 0, *others), 7),
        (lambda *numbers: wheel.replay(log, *numbers), 4),
        (lambda base, since: wheel.replay(log, 0, log.size, base, since), 2),
        (lambda *numbers: wheel.undo(log, *numbers), 3),
        (lambda position, base: timer.read_unit(log, position, base), 2),
        (lambda position, base: timer.find_end(log, position, base), 2),
        (lambda position: timer.put_filler(log, position), 1),
        (walk, 6),
        (heap.push, 6),
        (lambda one, two: heap.retain_ticks([one, two]), 2),
        (lambda end: timer.LogPart(log, 0, end), 1),
    ]
    play(entries, todo)
    times = [heap.pop()[0] for _ in range(len(heap))]
    assert times == sorted(times)
    slots.zero(0, slots.size)
    wheel.add(log, 52, 0, 1000, 50, 7, 9, -1, timer.DEFAULT)
    assert wheel.slot(10) == (52, 52, 1)
    assert timer.read_unit(log, 52, 0) == (-1, timer.DEFAULT, 1000, 50, 7, 9, -1)


def test_a_search_through_all_numbers_ends() -> None:
    """The distance of its bounds is no number of 64 bits; the search went on for centuries."""
    wheel = timer.Wheel(Region(bytearray(32 * 8)), 100)
    most = (1 << 63) - 1
    assert wheel.next_tick(-most, most) == most
    assert wheel.next_tick(most, -most) == -most
    assert wheel.count(-most, most) == 0
    assert wheel.free_tick(-most, most, 0, 0, 0) <= 0


def test_a_walk_reads_no_memory_outside_its_file() -> None:
    """The distance of a position from a negative base may exceed 63 bits."""
    log, wheel = Region(bytearray(52 * 20)), timer.Wheel(Region(bytearray(32 * 8)), 100)
    most = (1 << 63) - 1
    for position, base in ((most, -3), (most, -most - 1), (1, -most)):
        assert not timer.SlotWalk(10, position, 4).go(wheel, log, base, 0)


@given(moves)
def test_steps_of_timers(todo: Moves) -> None:
    log = Log()
    for text in texts_of(todo):
        log.add(properties=text)
    table, units = table_of(log, (b"T", 0))
    tail = Tail()
    tail.open(0, log.region)
    tail.end = log.end
    steps, heap = timer.TimerSteps(tail, table, 4096), timer.DueHeap()
    part, wheel = timer.LogPart(log.region, 0, log.end), timer.Wheel(Region(bytearray(256)), 100)
    out = Region(bytearray(52 * 20))

    def walked(tick: int, position: int, done: int, count: int) -> None:
        steps.order(timer.SlotWalk(tick, position, 4), done, count, wheel, part, heap)

    entries: list[Entry] = [
        (lambda size: timer.TimerSteps(tail, table, size), 1),
        (lambda *n: steps.take_in(units, *n[:2], part, wheel, out, *n[2:9], heap, n[9]), 10),
        (lambda *n: steps.take_in(units, 0, 3, part, wheel, out, 0, *n[:6], heap, n[6]), 7),
        (walked, 4),
        (heap.push, 6),
        (lambda count, precision, now, until, rare:
            steps.deliver(heap, count, precision, part, now, until, (rare,)), 5),
    ]  # fmt: skip
    play(entries, todo)
    for text in texts_of(todo):
        assert timer.read_facts(text)[4] >= -(1 << 31)
        assert isinstance(timer.read_due(text, 1, 100), int)


@given(moves)
def test_times_of_timers(todo: Moves) -> None:
    names = (b"TIMER_OUT_MS", b"TIMER_DELIVER_MS", b"TIMER_DELAY_MS", b"TIMER_DELAY_SEC")

    def due(one: int, two: int, stored: int, precision: int) -> None:
        name = names[one % len(names)]
        properties = b"%s\x01%d\x02TIMER_OUT_MS\x01%d\x02" % (name, one, two)
        assert len(timer.read_facts(properties)) == 6
        timer.read_due(properties, stored, precision)

    play([(due, 4)], todo)


@given(moves)
def test_marks_of_half_messages(todo: Moves) -> None:
    marks = HalfMarks(5, 0, 1000, lambda: None)

    def fitting(at: int) -> int:
        """Map a queue offset away from those whose marks would fill the machine's memory."""
        return at if not 1 << 20 < at < 1 << 33 else at % 1_000

    entries: list[Entry] = [
        (lambda base, log_offset, limit: HalfMarks(base, log_offset, limit, lambda: None), 3),
        (marks.mark_of, 1),
        (lambda at, mark: marks.set_mark(fitting(at), mark), 2),
        (lambda at: marks.set_mark(fitting(at), 1), 1),
        (marks.next_open, 1),
        (marks.open_count, 1),
        (lambda at, mark: marks.end(fitting(at), mark), 2),
        (lambda at: marks.end(fitting(at), 2), 1),
        (marks.op_body, 1),
        (marks.written, 1),
    ]
    play(entries, todo)
    assert marks.mark_of(4) == -1 and marks.open_count(-1) == marks.open_count(0)
    marks.drop(1 << 61)
    marks.set_mark((1 << 61) + 3, 7)
    assert marks.mark_of((1 << 61) + 3) == 7 and marks.next_open(0) == 1 << 61


def test_a_half_message_too_far_away_is_refused() -> None:
    """A mark is a byte for each half message from the first open one on."""
    marks = HalfMarks(5, 0, 9, lambda: None)
    for at in (1 << 33, 1 << 62):
        with pytest.raises(ValueError, match="far after the first"):
            marks.end(at, 1)
    assert marks.waiting == 0


@given(moves)
def test_sends_that_wait(todo: Moves) -> None:
    responses: list[PutStatus] = []
    late = PutStatus.FLUSH_SLAVE_TIMEOUT
    pending = PendingSends(PutStatus.PUT_OK, late, PutStatus.FLUSH_DISK_TIMEOUT)
    waits = 0

    def wait(end: int, need: int) -> None:
        nonlocal waits
        pending.wait(end, need, responses.append)
        waits += 1

    entries: list[Entry] = [
        (wait, 2),
        (lambda end: wait(end, 3), 1),
        (pending.flushed_to, 1),
        (pending.ask_for, 1),
        (pending.replicated_to, 2),
        (pending.safe_end, 1),
        (pending.expire, 1),
        (lambda after: pending.fail(late, after), 1),
        *((lambda number, name=name: setattr(pending, name, number), 1)
          for name in ("steady_ms", "disk_wait_ms", "replica_wait_ms", "limit")),
    ]  # fmt: skip
    play(entries, todo)
    pending.fail(late, -(1 << 63))
    assert pending.count == 0 and len(responses) == waits, "each send gets one answer"


@given(moves)
def test_columns(todo: Moves) -> None:
    log = Log(4096)
    log.add()
    decoder = Decoder(COLUMNS)

    def bounded(*numbers: int) -> None:
        names = ("min_store_ms", "max_store_ms", "min_log_offset", "end_log_offset",
                 "confirmed_end", "batch_rows", "batch_bytes")  # fmt: skip
        limits: Any = dict(zip(names, numbers, strict=False))
        Decoder(COLUMNS, **limits).decode(log.region, 0, log.end, 0)

    entries: list[Entry] = [
        (lambda *numbers: decoder.decode(log.region, *numbers), 4),
        (lambda base, room: decoder.decode(log.region, 0, log.end, base, room), 2),
        (bounded, 7),
        (lambda one, two: Decoder(["epoch"], epochs=[(one, two)]), 2),
        (lambda one, two: Decoder(COLUMNS, queue_ids=[one, two]), 2),
    ]
    play(entries, todo)
    assert Decoder(COLUMNS, topics=list(texts_of(todo))).decode(log.region, 0, log.end, 0).seen == 1
    assert decoder.decode(log.region, 0, log.end, 0).rows == 1


@given(moves)
def test_a_table_of_queues(todo: Moves) -> None:
    log = Log()
    log.add(queue_offset=(1 << 63) - 1)
    table, region = table_of(log, (b"T", 0), (b"T", 1))
    entries: list[Entry] = [
        (lambda queue_id: table.find(b"T", queue_id), 1),
        (lambda queue_id: table.add(b"T", queue_id), 1),
        (table.name, 1),
        (table.max_offset, 1),
        (table.max_log_offset, 1),
        (table.open_slot, 1),
        (table.set_progress, 3),
        (lambda *numbers: table.set_progress(0, *numbers), 2),
        (table.note_stored, 2),
        (lambda stored: table.note_stored(0, stored), 1),
        (table.stored_ms, 2),
        (lambda queue_offset: table.stored_ms(0, queue_offset), 1),
        (lambda queue_offset: table.set_next_offset(0, queue_offset), 1),
        (lambda *numbers: table.attach(numbers[0], region, *numbers[1:]), 3),
        (lambda *numbers: table.attach(0, region, *numbers), 2),
        (lambda one, two: table.set_delay_levels([one, two]), 2),
        (lambda *numbers: table.dispatch(log.region, *numbers), 3),
        (lambda base: table.dispatch(log.region, base, 0, log.end), 1),
        (lambda *numbers: table.count_on(log.region, *numbers), 3),
        (lambda: table.remove(1), 0),
    ]
    play(entries, todo)
    fresh = QueueTable()
    for text in texts_of(todo):
        assert fresh.name(fresh.add(text, 1)) == (text, 1)


@given(moves)
def test_an_index(todo: Moves) -> None:
    index = index_of()
    region = Region(bytearray(4096))
    entries: list[Entry] = [
        (lambda slots, count: IndexFile(region, slots, count), 2),
        (lambda log_offset, stored: index.put(b"a", log_offset, stored), 2),
        (index.start_after, 2),
        (lambda *numbers: index.search(b"a", *numbers), 3),
    ]
    play(entries, todo)
    for text in texts_of(todo):
        assert -(1 << 31) <= java_hash(text) < 1 << 31 and 0 <= key_hash(text) < 1 << 31
        assert index.put(text, 7, 1)


@given(moves)
def test_units_of_a_queue(todo: Moves) -> None:
    region = Region(bytearray(200))
    entries: list[Entry] = [
        (lambda *numbers: queue.put_unit(region, *numbers), 4),
        (lambda *numbers: queue.put_unit(region, numbers[0] % 10 * 20, *numbers[1:]), 4),
        (lambda position: queue.get_unit(region, position), 1),
        (lambda *numbers: queue.find_end(region, *numbers), 2),
        (lambda *numbers: queue.lower_bound(region, *numbers), 3),
        (lambda position, end, code, count, size, units: queue.select(
            region, position, end, codes=frozenset([code]), max_count=count, max_size=size,
            max_units=units), 6),
        (lambda code, count, size, units: queue.select(
            region, 0, 200, codes=frozenset([code]), max_count=count, max_size=size,
            max_units=units), 4),
    ]  # fmt: skip
    play(entries, todo)
    queue.put_unit(region, 0, 7, 9, -1)
    assert queue.get_unit(region, 0) == (7, 9, -1)


def entries_of(world: World) -> list[Entry]:
    """The entries of the broker's fast lane for topics and groups, and of its gRPC."""
    fast = world.broker.fast
    lane, pulls, pops, acks = fast.lane, fast.pulls, fast.pops, fast.acks
    plain: Any = {"expression_type": b"TAG", "filter": None}
    calls = GrpcPops(lambda body: bytes(16))

    def pull(*n: int) -> None:
        pulls.serve(
            b"G", b"T", n[0], readers=(n[1], n[2]), topic_sys_flag=n[3], group_sys_flag=n[4],
            sub_version=n[5], subscription=b"a", codes=frozenset([n[6]]), until_ms=n[7], **plain
        )  # fmt: skip

    def pop(*n: int) -> None:
        pops.serve(
            b"G", b"T", n[0], ((b"%RETRY%G_T", n[1]), (b"%RETRY%G", n[2])), expression=b"a",
            codes=frozenset([n[3]]), until_ms=n[4], ended_ms=n[5], **plain
        )  # fmt: skip

    def take(*n: int) -> None:
        calls.take(
            lane, b"G", b"T", n[0], n[1], expression=b"a", expression_type=b"TAG", tags=(b"a",),
            attempts_max=n[2], with_rows=True,
        )  # fmt: skip

    def point(*n: int) -> None:
        lane.add_check_point(
            b"T", b"G", n[0], n[1], n[2], b"broker", n[3], (n[4], 0), False, n[5], world.now_ms
        )

    return [
        (pull, 8), (pop, 6), (take, 3), (point, 6),
        (lambda limit, ended: acks.serve(b"G", b"T", limit, ended), 2),
        (acks.mark_changed, 5),
        (lambda queues: acks.configure(b"rmq_sys_REVIVE_LOG_DefaultCluster", queues), 1),
        (lambda limit: lane.serve(b"T", limit), 1),
        (lambda queue_id, born: lane.put_send(b"T", queue_id, b"TAGS\x01a\x02", b"b", born, HOST),
         2),
        (lambda queue_id: pulls.drop_pulled(b"G", b"T", queue_id), 1),
        (lambda delay, precision: lane.configure_kept(True, True, delay, precision, b"broker"), 2),
    ]  # fmt: skip


@settings(max_examples=10, suppress_health_check=list(HealthCheck))
@given(moves)
def test_the_fast_lane_of_a_broker(todo: Moves) -> None:
    """Pulls, pops, acknowledgements, sends and receives of gRPC; a pop gets its message after."""
    FAILURES.take()
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder), "")
        try:
            driven, popper = Driven(world), Popper(world)
            world.broker.topics.put(TopicConfig("T", 4, 4), world.now_ms)
            play(entries_of(world), todo)
            world.broker.fast.reconfigure()
            world.pass_time(200)
            message = NewMessage("T", 0, b"later")
            assert world.broker.store.append(message, world.now_ms).log_offsets
            world.pass_time(100)
            assert "later" in [body for body, _ in popper.pop()]
            check()
            driven.near.close()
            driven.far.close()
        finally:
            world.close()


@given(moves)
def test_records(todo: Moves) -> None:
    region = Region(bytearray(4096))

    def append(*n: int) -> None:
        record.append(
            region, 0, n[0], log_offset=n[1], topic=b"T", body=b"b", properties=b"", queue_id=n[2],
            flag=n[3], queue_offset=n[4], sys_flag=n[5], born_timestamp_ms=n[6], born_host=HOST,
            store_timestamp_ms=n[7], store_host=HOST, reconsume_times=n[8],
            prepared_transaction_offset=n[9], version=record.V1,
        )  # fmt: skip

    play([(append, 10), (lambda *n: append(4096, *n), 9)], todo)
