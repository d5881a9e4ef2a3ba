"""Many timers at once: into the wheel, into the order of their times, and to their consumers.

Owns the choice of the files of commit log, queue and timer log for a native step. It must never
decide whether messages may be delivered, nor handle an unusual message: the caller handles those
one by one.

Tests: tests/property/test_timer_batches.py
"""

from typing import Final, NamedTuple

from turbopump.engine.queues.native import TimerDeps
from turbopump.engine.timer.timer_files import TIMER_TOPIC, TimerFiles
from turbopump.engine.types import LogOffset, QueueOffset
from turbopump.pyx import timer as kernel
from turbopump.pyx.timer import DueHeap, LogPart, SlotWalk, TimerSteps

STEP_MAX: Final = kernel.STEP_MAX
"""Maximum number of messages in a native step."""
_TOPIC: Final = TIMER_TOPIC.encode()
_UNIT_SIZE: Final = 20


class TimersDone(NamedTuple):
    """Result of a native step over timers; a tick is epoch ms divided by the precision."""

    messages: int
    """Number of messages done."""
    topics: list[tuple[bytes, int, int]]
    """(topic, messages, bytes of their new records) of each topic; `fill_slots` writes no records,
    and its bytes are 0."""
    ticks: list[tuple[int, int]]
    """(tick, messages) of each slot: of `fill_slots` only messages that went into the heap."""


NOTHING: Final = TimersDone(0, [], [])
"""The result of a step that did nothing."""


class SlotWindow(NamedTuple):
    """The slots that `fill_slots` may put messages into; a tick is epoch ms divided by the
    precision."""

    write_ms: int
    """Write time of the new units in epoch ms, a whole number of slots."""
    window_ms: int
    """Milliseconds after `write_ms` beyond which a message waits in parts."""
    cursor: int
    """First tick that was not delivered: messages of earlier slots are left to the caller."""
    ring_from: int
    """Tick from which a whole round of the wheel is counted: messages of slots a round or more
    later are left to the caller."""
    scanned: int
    """Tick before which all units are in the heap: new units of these slots go into it, too."""


class TimerBatches:
    """Native steps over the timers of a store. A step ends before the first message that is unusual
    or lies in another file; after a step of 0 messages the caller handles this message itself. Loop
    thread only."""

    def __init__(self, deps: TimerDeps, files: TimerFiles, precision_ms: int) -> None:
        self._deps, self._files, self._precision_ms = deps, files, precision_ms
        log = deps.log
        self._steps = TimerSteps(log.tail, deps.queues.table, log.config.max_message_size)
        self._has_crc = log.config.enabled_append_prop_crc

    def fill_slots(
        self, at: QueueOffset, count: int, window: SlotWindow, heap: DueHeap, heap_room: int
    ) -> TimersDone:
        """Put up to `count` messages of the timers' queue, from queue offset `at` on, into the
        wheel and the timer log, and up to `heap_room` of them into the heap, see SlotWindow.
        Requires `TimerFiles.ensure_room`."""
        found = self._deps.lookup.units_of(_TOPIC, 0, at)
        if found is None:
            return NOTHING
        region, first, _slot, _min = found
        position = (at - first) * _UNIT_SIZE
        log = self._log_part_of(region.get_i64(position))
        if log is None:
            return NOTHING
        wheel, units, unit_at, base, room = self._files.room_for_unit()
        count = min(count, room, (region.size - position) // _UNIT_SIZE, STEP_MAX)
        taken = TimersDone(
            *self._steps.take_in(
                region, position, count, log, wheel, units, unit_at, base, *window, heap, heap_room
            )
        )
        self._files.advance_end(taken.messages)
        return taken

    def push_units(self, walk: SlotWalk, done: int, count: int, heap: DueHeap) -> int:
        """Push up to `count` units of a walk, from number `done` on, into the heap with their due
        times; returns the number pushed."""
        wheel = self._files.wheel
        _position, log_offset, *_ = walk.entry(done)
        log = self._log_part_of(log_offset)
        if wheel is None or log is None:
            return 0
        return self._steps.order(walk, done, min(count, STEP_MAX), wheel, log, heap)

    def allow_delivery(self, topic: str, queue_id: int) -> None:
        """Allow native delivery to this queue, after the caller has appended a timer's message to
        it, until `Store.forget_targets`; no-op for an unknown queue."""
        table = self._deps.queues.table
        slot = table.find(topic.encode(), queue_id)
        if slot >= 0:
            table.open_slot(slot)

    def append_due(
        self, heap: DueHeap, count: int, now_ms: int, until_ms: int, rare_ticks: tuple[int, ...]
    ) -> TimersDone:
        """Append up to `count` messages of the heap that are due at `until_ms` or before to their
        own topics, with the store time `now_ms` (both epoch ms), and take them out of the heap; a
        message of the slots `rare_ticks` is left to the caller, and all messages are with
        enabledAppendPropCRC. They become readable and durable as messages of `Store.append` do."""
        log = self._log_part_of(heap.log_offset)
        if log is None or self._has_crc:
            return NOTHING
        taken = TimersDone(
            *self._steps.deliver(heap, count, self._precision_ms, log, now_ms, until_ms, rare_ticks)
        )
        if taken.messages:
            for topic, messages, size in taken.topics:
                self._deps.statistics.put(topic.decode(), messages, size)
            self._deps.written(now_ms)
        return taken

    def _log_part_of(self, log_offset: int) -> LogPart | None:
        """The file of the commit log that holds a message, up to the end of its readable part."""
        log = self._deps.log
        start = log.segments.start_of(LogOffset(max(log_offset, 0)))
        end = min(self._deps.readable(), start + log.file_size)
        region = log.region_of(start) if log.min <= log_offset < end else None
        return None if region is None else LogPart(region, start, end - start)
