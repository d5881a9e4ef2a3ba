"""Status of timers for operators: waiting timers, the next due time, and the backlog.

Computes the figures and changes nothing.

Tests: tests/unit/broker/scheduled/test_timers.py
"""

from typing import Final, NamedTuple

from turbopump.engine.store import Store
from turbopump.engine.timer.timer_files import TIMER_TOPIC, TimerFiles

BACKLOG_BOUNDS_S: Final = (5, 60, 300, 900, 3_600, 14_400, 28_800, 86_400)
"""Upper bounds, in s from now, of the classes of RocketMQ's metric timer_message_snapshot."""


class TimerStatus(NamedTuple):
    """The figures shown to operators. `waiting` timers exist, a recall minus one; `next_due_ms` is
    the epoch ms at which the next is due, None if none is known. `enqueued` and `dequeued` timers
    entered and left the wheel since the start."""

    waiting: int
    next_due_ms: int | None
    backlog: list[int]
    """Number of timers due within each of BACKLOG_BOUNDS_S, after the previous bound."""
    read_behind_ms: int
    """Time in ms by which the first slot that is not past is late; 0 if this broker does not
    deliver."""
    offset_behind: int
    """Number of messages of the timer queue that are not in the wheel yet."""
    offset_behind_ms: int
    """Time in ms that the first message that is not in the wheel yet has waited; 0 without such a
    message."""
    in_wheel: int
    """Number of units in the wheel; each recall subtracts one."""
    enqueued: int
    dequeued: int


class TimerCounts(NamedTuple):
    """Counters kept by the caller, see TimerStatus."""

    waiting: int
    enqueued: int
    dequeued: int


def read_status(
    store: Store,
    files: TimerFiles,
    counts: TimerCounts,
    now_ms: int,
    *,
    precision_ms: int,
    ring: int,
    cursor: int,
    next_due_ms: int | None,
    delivers: bool,
) -> TimerStatus:
    """Compute the status of timers for operators. `now_ms` is epoch ms, `precision_ms` the length
    of a slot, `ring` the number of slots, `cursor` the tick of the first slot that is not past,
    `next_due_ms` the next time in the heap (None: look into the wheel), `delivers` whether this
    broker delivers."""
    now_tick = now_ms // precision_ms
    since = max(cursor, now_tick - ring // 2)
    bounds = [now_tick + seconds * 1_000 // precision_ms for seconds in BACKLOG_BOUNDS_S]
    next_tick = files.next_tick(since, now_tick + ring // 2)
    due_ms = next_due_ms
    if due_ms is None and next_tick < now_tick + ring // 2:
        due_ms = (next_tick + 1) * precision_ms
    slots = files.count_waiting(since, [*bounds, now_tick + files.roll_slots + 2])
    # Messages removed by retention are not waited for.
    at = max(files.queue_offset, store.min_queue_offset(TIMER_TOPIC, 0))
    behind = max(0, store.max_queue_offset(TIMER_TOPIC, 0) - at)
    stored_ms = store.stored_ms(TIMER_TOPIC, 0, at)[0] if behind else 0
    return TimerStatus(
        counts.waiting,
        due_ms,
        slots[:-1],
        max(0, now_ms - cursor * precision_ms) if delivers else 0,
        behind,
        max(0, now_ms - stored_ms) if stored_ms > 0 else 0,
        sum(slots),
        counts.enqueued,
        counts.dequeued,
    )
