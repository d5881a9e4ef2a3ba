"""Progress of timer deliveries, as a broker keeps it and as a checkpoint contains it.

The pair is described in timers.py; durable_progress.py decides which progress is safe.

Tests: tests/unit/broker/scheduled/test_timers.py
"""

from collections.abc import Generator, Iterator
from typing import Final, NamedTuple

from turbopump.broker.scheduled.wheel_reader import ROOM, DueUnit
from turbopump.engine.store import Store
from turbopump.engine.timer.oldest_unit import oldest_waiting
from turbopump.engine.timer.timer_check import TimerCheckpoint
from turbopump.engine.timer.timer_files import TIMER_TOPIC, TimerFiles
from turbopump.engine.types import LogOffset, QueueOffset
from turbopump.net.wire.topics import DataVersion
from turbopump.pyx import timer as kernel

ROLLS_PER_STEP: Final = 2_000
"""Number of units of passed slots after which `passed_rolls` pauses, some 2 ms."""


class TimerProgress(NamedTuple):
    """Messages before `queue_offset` in slots before `read_ms` (epoch ms) were delivered;
    `position` is where the timer log ended, in bytes, -1 in the progress of a master."""

    read_ms: int = 0
    queue_offset: QueueOffset = QueueOffset(0)
    position: int = -1


def progress_before(progress: TimerProgress, end: QueueOffset) -> TimerProgress:
    """Return the progress, with `queue_offset` limited to `end`, the end of the timer queue; if it
    is limited, without a position."""
    if progress.queue_offset <= end:
        return progress
    return TimerProgress(progress.read_ms, end)


def progress_of(checkpoint: TimerCheckpoint) -> TimerProgress:
    """Return the progress of a master's checkpoint, without a position."""
    return TimerProgress(checkpoint.read_ms, checkpoint.master_queue_offset)


def version_of(checkpoint: TimerCheckpoint) -> DataVersion:
    """Return the data version stored in a checkpoint."""
    return DataVersion(
        state_version=checkpoint.state_version,
        timestamp=checkpoint.timestamp_ms,
        counter=checkpoint.counter,
    )


def oldest_timer(
    store: Store, files: TimerFiles, safe: TimerProgress, precision_ms: int
) -> Generator[None, None, LogOffset | None]:
    """Return the log offset of the first timer that may still have to be delivered, None if there
    is no such timer. Deliveries after the `safe` progress can be lost by a crash and are repeated
    from their timers. The generator yields after each step of some milliseconds; nothing is
    changed."""
    at = QueueOffset(min(safe.queue_offset, files.queue_offset))
    at = QueueOffset(max(at, store.min_queue_offset(TIMER_TOPIC, 0)))
    units = store.units(TIMER_TOPIC, 0, at, 1)
    queued = units[0].log_offset if units else None
    if not files.exists:
        return queued
    since = max(1, safe.read_ms // precision_ms)
    in_wheel = yield from oldest_waiting(files, since, since + files.slots)
    if queued is None or in_wheel is None:
        return queued if in_wheel is None else in_wheel
    return LogOffset(min(queued, in_wheel))


def passed_rolls(
    files: TimerFiles, since: int, until: int, precision_ms: int
) -> Iterator[DueUnit | None]:
    """Yield the first parts of long waits in the slots from tick `since` to before tick `until`,
    which count as delivered by another broker, in the order of slots. That broker may have their
    second parts in later slots, which it did not deliver. Yields None for a pause."""
    tick = files.next_tick(since, until)
    while tick < until:
        walk = files.walk_slot(tick, 0, ROOM)
        for number in range(len(walk)):
            position, log_offset, magic, write_ms = walk.entry(number)
            if number % ROLLS_PER_STEP == 0:
                yield None
            if magic & kernel.ROLL:
                at_ms = tick * precision_ms
                yield DueUnit(at_ms, position, LogOffset(log_offset), write_ms, tick, magic)
        tick = files.next_tick(tick + 1, until)
