"""Reader of the timer wheel's slots: the next slot, and the units of it that are due at each ms.

Owns the cursor over the wheel, the units that were taken out of slots and wait for their
millisecond, and the effect of clock changes on both. It neither delivers nor reads the clock.

    slots     ... delivered | cursor ... scanned | in the wheel alone ...
                              ^ units of these are in the heap (of a very full slot a part), or out

A unit is out from `pop_unit` until `done` or `push_back_unit`: its message is on the way to its
queue, or to another broker. It counts as a waiting unit of its slot, so the cursor does not pass
it.

A slot contains units due from its time to the next slot's: RocketMQ delivers them when the next
slot begins, this broker at each unit's own millisecond. A slot is taken out half a second before it
begins.

If the clock is set back, the cursor goes back with it, because new units may be due before those
already delivered. Delivered units are not read again: for slots below `high`, units count only from
the position at which the log ended then (`_floors`). A slot of which a unit was delivered, or is
out, keeps its units in the heap. Beyond a limit all units return to the wheel, and some timers are
delivered twice; a unit that was out then is unknown to `done` and `push_back_unit`.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from turbopump.engine.timer.timer_files import TimerFiles
from turbopump.engine.types import LogOffset
from turbopump.pyx import timer as kernel
from turbopump.pyx.timer import DueHeap, SlotWalk

logger = logging.getLogger(__name__)

ROOM: Final = 1 << 17
"""Number of units in the heap at which slots are not taken out further, some 7 MB. A slot with more
units is read in parts, in the order in which they were written."""
SLOTS_MAX: Final = 64
"""Maximum number of slots with units in the heap: the slots of a backlog are few, or small."""
LOADED_PER_STEP: Final = 512
"""Maximum number of units whose exact time one step reads, some 2 ms; native code reads
NATIVE_SPEED times as many."""
NATIVE_SPEED: Final = 8
"""Number of units that native code handles in the time that Python needs for a single unit."""
SCANNED_PER_STEP: Final = 1 << 16
"""Maximum number of slots searched for units in one step, less than a millisecond."""
AHEAD_MS: Final = 500
"""Minimum time in ms before its begin at which a slot is taken out."""
RECALLS_MAX: Final = kernel.RECALLS
"""Maximum number of recalls of a slot: beyond it a message is delivered although it was
recalled."""
ASIDE_MAX: Final = 1_024
"""Maximum number of slots that are kept when the clock is set back."""
BEGUN_MAX: Final = 1 << 16
"""Maximum number of remembered slots of which a unit was delivered, some 6 MB, while a unit that is
out holds up the cursor. Beyond it a clock that is set back makes some timers be delivered twice."""
PASSED_TICK: Final = 0
"""Tick of the units of `add_passed`; no slot has it."""
MAX_FLOORS: Final = 64
"""Maximum number of remembered clock steps. Beyond it timers may be delivered twice."""


class DueUnit(NamedTuple):
    """A unit taken out of a slot: `due_ms` (epoch ms) is its time, `position` its place in the
    timer log, `log_offset` its message, `write_ms` (epoch ms) when it was put into the wheel,
    `tick` its slot, `magic` its kernel flags."""

    due_ms: int
    position: int
    log_offset: LogOffset
    write_ms: int
    tick: int
    magic: int


@dataclass(slots=True)
class _Loading:
    """A part of a slot whose units are being pushed to the heap."""

    tick: int
    walk: SlotWalk
    done: int = 0

    @property
    def is_last(self) -> bool:
        """Whether this is the last part of its slot."""
        return self.walk.count == len(self.walk)

    @property
    def is_done(self) -> bool:
        """Whether all units of this part are in the heap."""
        return self.done == len(self.walk)


class WheelReader:
    """Reads the units of the timer wheel in the order of their times: takes slots out of the wheel
    into a heap, and keeps the cursor over the slots that are delivered. Ticks are epoch ms divided
    by the precision; times are epoch ms. A unit is "out" from `pop_unit` until `done` or
    `push_back_unit`. Loop thread only."""

    def __init__(
        self,
        files: TimerFiles,
        precision_ms: int,
        due_of: Callable[[LogOffset], int | None],
        recall_of: Callable[[int], str | None],
        order: Callable[[SlotWalk, int, int, DueHeap], int],
    ) -> None:
        """`due_of` reads the exact time of a message, `recall_of` the key that it recalls; None if
        the message is gone. `order` pushes many units of a walk at once, see TimerBatches."""
        self._files = files
        self._precision_ms = precision_ms
        self._due_of, self._recall_of, self._order = due_of, recall_of, order
        self.heap = DueHeap()
        """Units that were taken out of slots, earliest due first."""
        self._loading: _Loading | None = None
        self._is_scanning = False
        """Whether slots up to now still have to be searched, as after a step of the clock."""
        self._waiting: dict[int, int] = {}
        """Tick to the number of its units in the heap or out; includes some empty slots."""
        self._out: dict[int, set[DueUnit]] = {}
        """Tick to its units that are out."""
        self._parts: dict[int, int] = {}
        """Tick to the position at which the rest of the slot begins, still to be taken out."""
        self._recalls: dict[int, set[str]] = {}
        self._floors: list[tuple[int, int]] = []
        self._begun: set[int] = set()
        """Slots from the cursor of which a unit was delivered."""
        self._aside: set[int] = set()
        """Slots that were begun, or had units out, when the clock was set back: the rest of them
        stays in the heap."""
        self.cursor = 0
        """Tick of the first slot that may still have a unit to deliver."""
        self.high = 0
        """Greatest tick that `cursor` has had; it is greater than `cursor` while slots are read
        again."""
        self._scanned = 0

    def begin_at(self, read_tick: int, now_tick: int) -> None:
        """Clear all state, and start at the slot `read_tick`: the slots before it count as
        delivered. An earlier `now_tick` is handled as a clock that was set back."""
        self.forget_units()
        self.cursor = self.high = self._scanned = read_tick
        self.watch_clock(now_tick)

    def resume_at(self, cursor: int, floors: tuple[tuple[int, int], ...]) -> None:
        """Continue, after `begin_at`, to read slots again from the tick `cursor`, as before the
        broker stopped; `floors` is the value of that property then."""
        self.cursor = self._scanned = min(cursor, self.cursor)
        self._floors = list(floors)

    @property
    def floors(self) -> tuple[tuple[int, int], ...]:
        """(tick, position) of each time the clock was set back: units before the position in the
        timer log, in slots before that tick, were delivered."""
        return tuple(self._floors)

    def forget_units(self) -> None:
        """Forget all units taken out of the wheel, because another broker delivers now; `cursor`
        and `high` stay until `begin_at`."""
        self.heap.clear()
        self._loading = None
        for table in (self._waiting, self._out, self._parts, self._recalls):
            table.clear()
        self._begun.clear()
        self._aside.clear()
        self._floors.clear()

    @property
    def has_room(self) -> bool:
        """Whether the heap has fewer than ROOM units, so that further units may be added to it."""
        return len(self.heap) < ROOM

    @property
    def is_reading_again(self) -> bool:
        """Whether slots are being read again after the clock was set back."""
        return self.cursor < self.high

    def watch_clock(self, now_tick: int) -> None:
        """If `now_tick` is before the cursor, because the clock was set back: move the cursor back
        to it, and return units of slots that were not begun to the wheel."""
        if now_tick >= self.cursor:
            return
        if len(self._floors) < MAX_FLOORS:
            self._floors.append((self.cursor, self._files.log_end))
        self.high = max(self.high, self.cursor)
        self.cursor = self._scanned = now_tick
        self._unload_slots()

    def _unload_slots(self) -> None:
        """Return slots to the wheel whose time is now later, so that the heap has room for the
        slots that come first. A slot that was begun, or has a unit out, stays: otherwise its
        messages would be delivered twice."""
        kept = (self._begun | self._out.keys()) - {PASSED_TICK}
        if len(kept) > ASIDE_MAX or sum(self._waiting.get(one, 0) for one in kept) > ROOM // 4:
            logger.warning("the clock was set back: some timers are delivered twice")
            kept = set()
        if PASSED_TICK in self._waiting:
            kept.add(PASSED_TICK)  # no slot can be read for these units again
        self.heap.retain_ticks(sorted(kept))
        if self._loading is not None and self._loading.tick not in kept:
            self._loading = None
        for table in (self._waiting, self._out, self._parts, self._recalls):
            for tick in [tick for tick in table if tick not in kept]:
                del table[tick]
        for tick in kept:
            self._waiting.setdefault(tick, 0)  # so that the slot is not read again
        self._begun, self._aside = set(kept), kept

    def free_tick(self, tick: int) -> int | None:
        """Return the first tick at or after `tick` whose place in the wheel holds no waiting unit
        of another round; None: there is no such tick within a round of the cursor."""
        high, floor = self._floors[0] if self._floors else (0, 0)
        found = self._files.free_tick(tick, self.cursor, high, floor)
        return found if found - self.cursor < self._files.slots else None

    def note_added(self, due: DueUnit) -> None:
        """Note a unit that the caller has put into a slot. If the slot was taken out, the unit goes
        to the heap, or, while the heap is full, the slot is taken out again from this unit."""
        if due.tick >= self._scanned and due.tick not in self._waiting:
            return
        if due.magic & (kernel.DELETE | kernel.ROLL) == kernel.DELETE:
            self._add_recall(due.tick, due.position)
        elif due.tick not in self._parts:
            if self.has_room:
                self._push_unit(due)
            else:
                self._parts[due.tick] = due.position

    def add_passed(self, due: DueUnit) -> None:
        """Add a unit of a slot that counts as delivered. The cursor does not move until `done`."""
        self._push_unit(due._replace(tick=PASSED_TICK))

    @property
    def has_passed(self) -> bool:
        """Whether a unit of `add_passed` is not done."""
        return self._waiting.get(PASSED_TICK, 0) > 0

    @property
    def takes_many(self) -> bool:
        """Whether `added` would only push units of slots before `scanned_end` and ignore all
        others, so that native code may put units into slots and heap."""
        return (
            not self.is_reading_again
            and not self._parts
            and max(self._waiting, default=-1) < self._scanned
        )

    @property
    def scanned_end(self) -> int:
        """Tick of the first slot that was not taken out."""
        return self._scanned

    def note_pushed(self, ticks: list[tuple[int, int]]) -> None:
        """Note units that native code pushed to the heap: (tick, number of units) of each slot."""
        for tick, count in ticks:
            self._waiting[tick] = self._waiting.get(tick, 0) + count

    def note_delivered(self, ticks: list[tuple[int, int]]) -> None:
        """Note units that native code delivered from the heap: (tick, number of units) of each
        slot."""
        for tick, count in ticks:
            self._count_delivered(tick, count)

    @property
    def slots_with_recalls(self) -> tuple[int, ...]:
        """Ticks of taken slots that contain recalls, in no order; their units are not delivered
        natively."""
        return tuple(self._recalls)

    def _count_delivered(self, tick: int, count: int) -> None:
        """Count `count` units of a slot as delivered."""
        self._waiting[tick] -= count
        if len(self._begun) < BEGUN_MAX:
            self._begun.add(tick)

    def _push_unit(self, due: DueUnit) -> None:
        """Push a unit to the heap, and count it in its slot."""
        self.heap.push(*due)
        self._waiting[due.tick] = self._waiting.get(due.tick, 0) + 1

    def _add_recall(self, tick: int, position: int) -> None:
        """Remember the key of a recall in a slot."""
        key = self._recall_of(position)
        self._waiting.setdefault(tick, 0)
        recalls = self._recalls.setdefault(tick, set())
        if key is not None and len(recalls) < RECALLS_MAX:
            recalls.add(key)

    # Taking units out of slots

    def load(self, now_ms: int) -> bool:
        """Take units out of the slots that begin within AHEAD_MS of `now_ms` into the heap, as many
        as one step may; return whether to call again at once."""
        ahead_ms = max(AHEAD_MS, self._precision_ms // 2)
        until = (now_ms + ahead_ms) // self._precision_ms + 1
        budget, self._is_scanning = LOADED_PER_STEP, False
        for tick in [tick for tick in self._parts if not self._in_heap(tick)]:
            if self._loading is None and self.has_room:
                self._begin_slot(tick)
        taken = sum(self._in_heap(tick) > 0 for tick in self._waiting.keys() - self._aside)
        while budget > 0:
            if self._loading is not None:
                budget -= self._load_more(budget)
            elif taken < SLOTS_MAX and self._begin_next(until):
                taken += 1
            else:
                break
        if self._loading is None and not self.heap:
            self.heap.clear()
        return self._loading is not None or self._is_scanning

    def _in_heap(self, tick: int) -> int:
        """Number of units of a slot in the heap: a unit that is out for long holds up no others."""
        return self._waiting.get(tick, 0) - len(self._out.get(tick, ()))

    def _begin_next(self, until: int) -> bool:
        """Begin to take out the next slot that has units; False if there is no such slot before
        tick `until`."""
        if len(self.heap) >= ROOM // 2:
            return False
        wanted = until
        if self._files.slots > SCANNED_PER_STEP:  # a whole round costs more than one step may
            until = min(until, self._scanned + SCANNED_PER_STEP)
        while self._scanned < until:
            tick = self._files.next_tick(self._scanned, until)
            self._scanned = min(tick + 1, until)
            if tick < until and tick not in self._waiting:
                self._begin_slot(tick)
                return True
        self._is_scanning = self._scanned < wanted
        return False

    def _begin_slot(self, tick: int) -> None:
        """Begin to take out a slot, or the rest of it."""
        floor = self._parts.pop(tick, None)
        is_first = floor is None
        walk = self._files.walk_slot(
            tick, self._floor_of_slot(tick) if floor is None else floor, ROOM
        )
        self._waiting.setdefault(tick, 0)
        self._loading = _Loading(tick, walk)
        for position in walk.recalls if is_first else ():
            self._add_recall(tick, position)
        if is_first and walk.recall_count > RECALLS_MAX:
            logger.error(
                "%d recalls are due at once: some are ignored, and their timers delivered",
                walk.recall_count,
            )
        if not self._loading.is_last:
            last_position, *_ = walk.entry(len(walk) - 1)
            self._parts[tick] = last_position + 1

    def _floor_of_slot(self, tick: int) -> int:
        """The position in the timer log from which units of the slot are not delivered."""
        for until, position in reversed(self._floors):
            if tick < until:
                return position
        return 0

    def _load_more(self, budget: int) -> int:
        """Push units of the slot that is being taken out; return the cost, at most about
        `budget`."""
        loading = self._loading
        assert loading is not None
        walk, tick, cost = loading.walk, loading.tick, 0
        while cost < budget and not loading.is_done:
            most = min(len(walk) - loading.done, (budget - cost) * NATIVE_SPEED)
            many = self._order(walk, loading.done, most, self.heap)
            if many:
                self._waiting[tick] = self._waiting.get(tick, 0) + many
                cost, loading.done = cost + -(-many // NATIVE_SPEED), loading.done + many
                continue
            position, log_offset, magic, write_ms = walk.entry(loading.done)
            due_ms = tick * self._precision_ms
            if not magic & kernel.ROLL:
                found = self._due_of(LogOffset(log_offset))
                due_ms = due_ms if found is None else found
            self._push_unit(DueUnit(due_ms, position, LogOffset(log_offset), write_ms, tick, magic))
            cost, loading.done = cost + 1, loading.done + 1
        if loading.is_done:
            self._loading = None
        return max(1, cost)

    # Delivering

    @property
    def next_due_ms(self) -> int | None:
        """The epoch ms at which the first unit in the heap is due; None if the heap is empty."""
        return self.heap.due_ms

    def loaded_ms(self, until_ms: int) -> int:
        """Return `until_ms`, limited to the begin of the slot being taken out: its units may have
        to be delivered before later slots, as the first part of a recall."""
        loading = self._loading
        return until_ms if loading is None else min(until_ms, loading.tick * self._precision_ms)

    def delivered_ms(self, now_ms: int) -> int:
        """Return the epoch ms, at most `now_ms`, up to which each unit of the wheel was
        delivered."""
        due_ms = self.next_due_ms
        until_ms = now_ms if due_ms is None else min(now_ms, due_ms - 1)
        loading = self._loading.tick if self._loading is not None else self._scanned
        return min(until_ms, min(self._scanned, loading, *self._parts) * self._precision_ms)

    def pop_unit(self) -> DueUnit:
        """Take the first unit from the heap, due or not; the heap must not be empty. The unit is
        out until `done` or `push_back_unit`."""
        due = DueUnit(*self.heap.pop())  # type: ignore[arg-type]
        self._out.setdefault(due.tick, set()).add(due)
        return due

    def push_back_unit(self, due: DueUnit) -> None:
        """Return a unit of `pop_unit` to the heap: it could not be delivered now. No effect for a
        unit that is not out, as after `forget_units`: the wheel still has it."""
        if self._note_no_longer_out(due):
            self.heap.push(*due)

    def count_done(self, due: DueUnit) -> bool:
        """Count a unit of `pop_unit` as delivered or dropped. False, without any effect, for a unit
        that is not out, as after `forget_units`: the unit is read from the wheel again."""
        is_out = self._note_no_longer_out(due)
        if is_out:
            self._count_delivered(due.tick, 1)
        return is_out

    def _note_no_longer_out(self, due: DueUnit) -> bool:
        """Count a unit as no longer out; False if it was not out."""
        units = self._out.get(due.tick, set())
        if due not in units:
            return False
        units.remove(due)
        if not units:
            del self._out[due.tick]
        return True

    def topic_hash_of(self, due: DueUnit) -> int | None:
        """Return the topic hash stored in a unit of the timer log; None if the unit is gone."""
        found = self._files.message_at(due.position)
        return None if found is None else found[1]

    def is_recalled(self, due: DueUnit, keys: tuple[str, ...]) -> bool:
        """Whether the unit's slot has a recall with any of these keys (timer_messages.keys_of)."""
        recalls = self._recalls.get(due.tick)
        return recalls is not None and not recalls.isdisjoint(keys)

    def advance_cursor(self, now_tick: int) -> None:
        """Move the cursor forward to `now_tick`, or to the first slot before it that has waiting
        units; never back."""
        loading = self._loading.tick if self._loading is not None else self._scanned
        ended = min(now_tick, self._scanned, loading, *self._parts)
        cursor = min([ended, *(tick for tick, count in self._waiting.items() if count)])
        for tick in [one for one, count in self._waiting.items() if one < ended and not count]:
            del self._waiting[tick]
            self._recalls.pop(tick, None)
        if cursor <= self.cursor:
            return
        self.cursor = cursor
        self._begun = {tick for tick in self._begun if tick >= cursor}
        self._aside = {tick for tick in self._aside if tick >= cursor}
        while self._floors and self._floors[-1][0] <= cursor:
            self._floors.pop()
        self.high = max(self.high, cursor)
