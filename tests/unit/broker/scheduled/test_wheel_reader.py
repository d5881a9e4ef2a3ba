"""Timers with late recalls, a different precision, and clocks that jump (I14, F29)."""

import errno
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.broker.scheduled.test_timers import bodies, restart, send, stored

from turbopump.broker.scheduled import timers, wheel_reader
from turbopump.broker.scheduled.wheel_reader import DueUnit, WheelReader
from turbopump.engine.timer.timer_files import TIMER_TOPIC
from turbopump.engine.types import LogOffset
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.headers.send import RecallMessageRequest
from turbopump.pyx import timer as kernel
from turbopump.pyx.timer import DueHeap

DAY_MS = 24 * 3_600_000
RECALLED = 40
OTHERS = 1_500
"""More timers than a step puts into the wheel."""
PRECISION_MS = 10
BEGIN_MS = 1_000_000
SEEDS = 100
OPERATIONS = 80
LATEST_SLOTS = 40
"""Maximum number of slots between the clock and the slot of a new unit."""


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


class Walk:
    """Keeps the oldest units of a slot, as SlotWalk does."""

    recalls: tuple[int, ...] = ()
    recall_count = 0

    def __init__(self, positions: list[int], room: int) -> None:
        self.count, self._kept = len(positions), positions[:room]

    def __len__(self) -> int:
        return len(self._kept)

    def entry(self, number: int) -> tuple[int, int, int, int]:
        """Return position, log offset, magic and write time of a unit."""
        return self._kept[number], self._kept[number], kernel.DEFAULT, 0


class Wheel:
    """Keeps the units of slots, as TimerFiles does; positions of units count from 0."""

    slots = 1 << 30

    def __init__(self) -> None:
        self.due_ms: list[int] = []
        """Due time of each unit in epoch ms."""
        self.ticks: list[int] = []
        """Slot of each unit."""

    @property
    def log_end(self) -> int:
        """Return the position after the last unit."""
        return len(self.ticks)

    def next_tick(self, since: int, until: int) -> int:
        """Return the first slot of [since, until) that has units, else `until`."""
        return min((tick for tick in self.ticks if since <= tick < until), default=until)

    def walk_slot(self, tick: int, floor: int, room: int) -> Walk:
        """Return the units of a slot from the position `floor` on."""
        return Walk([at for at in range(floor, self.log_end) if self.ticks[at] == tick], room)


class Play:
    """Plays a seed: steps of the reader, steps of the clock both ways, and answers to units that
    are out. Counts the deliveries of each unit."""

    def __init__(self, seed: int, *, restarts: bool) -> None:
        self._rng, self._restarts = random.Random(seed), restarts
        self._wheel, self._now_ms = Wheel(), BEGIN_MS
        self._out: list[DueUnit] = []
        self.counted = 0
        """Number of deliveries that the reader counted."""
        self.delivered: Counter[int] = Counter()
        """Number of deliveries of each unit, by position."""
        wheel: Any = self._wheel
        self._reader = WheelReader(wheel, PRECISION_MS, self._due_of, lambda _: None, self._order)
        self._reader.begin_at(self._tick, self._tick)

    def run(self) -> None:
        """Do random operations, then answer all units that are out, and let time go on."""
        plays: list[Callable[[], None]] = [self._add] * 4 + [self._step] * 4 + [self._answer] * 2
        plays += [self._forward] * 3 + [self._back, self._restart]
        for _ in range(OPERATIONS):
            self._rng.choice(plays)()
            self._check()
        while self._out:
            self._answer()
            self._check()
        self._now_ms += 2 * LATEST_SLOTS * PRECISION_MS + OPERATIONS * 400
        for _ in range(200):
            self._step(delivers_all=True)
            self._check()
        assert self._reader.cursor == self._tick
        assert len(self._reader.heap) == 0

    @property
    def units(self) -> range:
        """Return the positions of all units."""
        return range(self._wheel.log_end)

    @property
    def _tick(self) -> int:
        return self._now_ms // PRECISION_MS

    def _due_of(self, log_offset: LogOffset) -> int:
        return self._wheel.due_ms[log_offset]

    def _order(self, walk: Any, done: int, most: int, heap: DueHeap) -> int:
        """Push some units at once, as native code does."""
        many = self._rng.randrange(most + 1)
        for number in range(done, done + many):
            position, log_offset, magic, write_ms = walk.entry(number)
            tick = self._wheel.ticks[position]
            heap.push(self._due_of(log_offset), position, log_offset, write_ms, tick, magic)
        return many

    def _add(self) -> None:
        slot = self._tick + self._rng.randrange(-3, self._rng.choice((4, LATEST_SLOTS)))
        due_ms = slot * PRECISION_MS + self._rng.randint(1, PRECISION_MS)
        tick, position = max(slot, self._reader.cursor), self._wheel.log_end
        self._wheel.due_ms.append(due_ms)
        self._wheel.ticks.append(tick)
        unit = DueUnit(due_ms, position, LogOffset(position), 0, tick, kernel.DEFAULT)
        self._reader.note_added(unit)

    def _forward(self) -> None:
        self._now_ms += self._rng.randint(1, 10 * PRECISION_MS)

    def _back(self) -> None:
        self._now_ms -= self._rng.randint(1, LATEST_SLOTS * PRECISION_MS)

    def _restart(self) -> None:
        """Let another broker lead for a moment: deliveries after the cursor are repeated."""
        if self._restarts and not self._reader.is_reading_again:
            self._reader.forget_units()
            self._reader.begin_at(self._reader.cursor, self._tick)

    def _step(self, *, delivers_all: bool = False) -> None:
        reader = self._reader
        reader.watch_clock(self._tick)
        reader.load(self._now_ms)
        until_ms = reader.loaded_ms(self._now_ms)
        while reader.next_due_ms is not None and reader.next_due_ms <= until_ms:
            due = reader.pop_unit()
            how = "now" if delivers_all else self._rng.choice(("now", "later", "refused"))
            if how == "refused":
                reader.push_back_unit(due)
                break
            self._out.append(due)
            if how == "now":
                self._done(due)
        reader.advance_cursor(self._tick)

    def _answer(self) -> None:
        if self._out:
            due = self._rng.choice(self._out)
            if self._rng.random() < 0.2:
                self._out.remove(due)
                self._reader.push_back_unit(due)
            else:
                self._done(due)

    def _done(self, due: DueUnit) -> None:
        self._out.remove(due)
        self.delivered[due.position] += 1
        self.counted += self._reader.count_done(due)

    def _check(self) -> None:
        """Check that no progress has passed a unit that is not delivered."""
        out = {due.position for due in self._out}
        delivered_ms = self._reader.delivered_ms(self._now_ms)
        for position in self.units:
            if not self.delivered[position]:
                tick = self._wheel.ticks[position]
                assert self._reader.cursor <= tick
                latest_ms = max(self._wheel.due_ms[position], tick * PRECISION_MS)
                assert position in out or delivered_ms <= latest_ms


@pytest.mark.parametrize("room", [wheel_reader.ROOM, 3])
def test_each_unit_is_delivered_and_counted_once(
    monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    monkeypatch.setattr(wheel_reader, "ROOM", room)
    monkeypatch.setattr(wheel_reader, "SLOTS_MAX", 4)
    for seed in range(SEEDS):
        play = Play(seed, restarts=False)
        play.run()
        if room > OPERATIONS:
            assert play.counted == len(play.units), seed
            assert all(play.delivered[position] == 1 for position in play.units), seed
        else:
            assert all(play.delivered[position] for position in play.units), seed


def test_a_unit_that_is_out_holds_up_no_other_part_of_its_slot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(wheel_reader, "ROOM", 4)
    wheel: Any = Wheel()
    wheel.due_ms, tick = [BEGIN_MS + PRECISION_MS] * 11, BEGIN_MS // PRECISION_MS
    wheel.ticks = [tick] * 11
    reader = WheelReader(wheel, PRECISION_MS, lambda at: wheel.due_ms[at], lambda _: None, no_order)
    reader.begin_at(tick, tick)
    reader.load(BEGIN_MS)
    out = reader.pop_unit()
    for _ in range(10):
        reader.load(BEGIN_MS)
        assert reader.next_due_ms is not None
        assert reader.count_done(reader.pop_unit())
        reader.advance_cursor(tick + 1)
    reader.load(BEGIN_MS)
    assert reader.next_due_ms is None
    reader.advance_cursor(tick + 1)
    assert reader.cursor == tick
    assert reader.count_done(out)
    reader.load(BEGIN_MS + 10 * PRECISION_MS)
    reader.advance_cursor(tick + 1)
    assert reader.cursor == tick + 1


def no_order(_walk: Any, _done: int, _most: int, _heap: DueHeap) -> int:
    """Leave all units to the reader, as native code does for units in another file."""
    return 0


def test_no_unit_is_lost_if_units_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """More slots are begun than are kept, and other brokers lead for a moment."""
    monkeypatch.setattr(wheel_reader, "ASIDE_MAX", 2)
    for seed in range(SEEDS):
        play = Play(seed, restarts=True)
        play.run()
        assert all(play.delivered[position] for position in play.units), seed
