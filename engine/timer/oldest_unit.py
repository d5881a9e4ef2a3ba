"""The oldest waiting message of the timer wheel.

Owns a walk over the slots, in steps. It must never change the wheel or the log.

Tests: tests/unit/broker/scheduled/test_waiting.py
"""

from collections.abc import Generator
from typing import Final

from turbopump.engine.timer.timer_files import TimerFiles
from turbopump.engine.types import LogOffset

SLOTS_PER_STEP: Final = 65_536
"""Maximum number of slots examined in a step."""
LOADED_PER_STEP: Final = 500
"""Slots with units per step: each costs some microseconds."""


def oldest_waiting(
    files: TimerFiles, since: int, until: int
) -> Generator[None, None, LogOffset | None]:
    """Return the least log offset of the messages that wait in the slots of the ticks [since,
    until), None if there is no such message; a tick is epoch ms divided by the precision. Yields
    after each step, so that the loop serves other work. Messages that the commit log no longer has
    are skipped."""
    low = files.first_readable()
    best: int | None = None
    tick, loaded = since, 0
    while tick < until:
        stop = min(until, tick + SLOTS_PER_STEP)
        found = files.next_tick(tick, stop)
        tick = min(found + 1, stop)
        if found == stop:
            yield
            continue
        position = files.oldest_in(found, low)
        if position is not None:
            best = position if best is None else min(best, position)
        loaded += 1
        if loaded % LOADED_PER_STEP == 0:
            yield
    return None if best is None else files.log_offset_at(best)
