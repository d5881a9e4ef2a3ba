"""Many timers at once: into the wheel, into the order of their times, and to their consumers.

Owns which files of commit log, queue and timer log a native step works on. It must never decide
whether anything may be delivered, nor do what is more than usual: that is left to the caller, which
does it message by message. Called by broker/scheduled/timers.py and due_slots.py.
"""

from typing import Final, NamedTuple

from turbopump.engine.queues.native import TimerGround
from turbopump.engine.timer.timer_files import TIMER_TOPIC, TimerFiles
from turbopump.engine.types import LogOffset, QueueOffset
from turbopump.pyx import timer as kernel
from turbopump.pyx.timer import DueHeap, LogPart, SlotWalk, TimerSteps

STEP_MAX: Final = kernel.STEP_MAX
_TOPIC: Final = TIMER_TOPIC.encode()
_UNIT_SIZE: Final = 20


class TimersDone(NamedTuple):
    """What one step did: messages, those of each topic with their bytes, those of each tick."""

    messages: int
    topics: list[tuple[bytes, int, int]]
    ticks: list[tuple[int, int]]


NOTHING: Final = TimersDone(0, [], [])


class SlotWindow(NamedTuple):
    """Which slots a message may be put into; see tmr_intake."""

    write_ms: int
    window_ms: int
    cursor: int
    ring_from: int
    scanned: int


class TimerBatches:
    """Of one store and its timers. Loop thread only."""

    def __init__(self, ground: TimerGround, files: TimerFiles, precision_ms: int) -> None:
        self._ground, self._files, self._precision_ms = ground, files, precision_ms
        log = ground.log
        self._steps = TimerSteps(log.tail, ground.queues.table, log.config.max_message_size)
        self._has_crc = log.config.enabled_append_prop_crc

    def take_in(
        self, at: QueueOffset, count: int, window: SlotWindow, heap: DueHeap, heap_room: int
    ) -> TimersDone:
        """Put messages of the timers' queue into the wheel, from queue offset `at` on."""
        found = self._ground.lookup.units_of(_TOPIC, 0, at)
        if found is None:
            return NOTHING
        region, first, _slot, _min = found
        position = (at - first) * _UNIT_SIZE
        log = self._part(region.get_i64(position))
        if log is None:
            return NOTHING
        wheel, units, unit_at, base, room = self._files.room()
        count = min(count, room, (region.size - position) // _UNIT_SIZE, STEP_MAX)
        taken = TimersDone(
            *self._steps.take_in(
                region, position, count, log, wheel, units, unit_at, base, *window, heap, heap_room
            )
        )
        self._files.took(taken.messages)
        return taken

    def order(self, walk: SlotWalk, done: int, count: int, heap: DueHeap) -> int:
        """Units of a walk from number `done` on into the heap; how many."""
        wheel = self._files.wheel
        _position, log_offset, *_ = walk.entry(done)
        log = self._part(log_offset)
        if wheel is None or log is None:
            return 0
        return self._steps.order(walk, done, min(count, STEP_MAX), wheel, log, heap)

    def opened(self, topic: str, queue_id: int) -> None:
        """A message that waited was put into this queue: the next ones may be natively."""
        table = self._ground.queues.table
        slot = table.find(topic.encode(), queue_id)
        if slot >= 0:
            table.open_slot(slot)

    def deliver(
        self, heap: DueHeap, count: int, now_ms: int, until_ms: int, rare_ticks: tuple[int, ...]
    ) -> TimersDone:
        """Append up to `count` messages that are due until `until_ms`, none of the slots
        `rare_ticks`. They can be read as messages of `Store.append`."""
        log = self._part(heap.log_offset)
        if log is None or self._has_crc:
            return NOTHING
        taken = TimersDone(
            *self._steps.deliver(heap, count, self._precision_ms, log, now_ms, until_ms, rare_ticks)
        )
        if taken.messages:
            for topic, messages, size in taken.topics:
                self._ground.statistics.put(topic.decode(), messages, size)
            self._ground.written(now_ms)
        return taken

    def _part(self, log_offset: int) -> LogPart | None:
        """The file of the commit log that a message lies in, as far as it may be read."""
        log = self._ground.log
        start = log.segments.start_of(LogOffset(max(log_offset, 0)))
        end = min(self._ground.readable(), start + log.file_size)
        region = log.region_of(start) if log.min <= log_offset < end else None
        return None if region is None else LogPart(region, start, end - start)
