"""Timers on a replica that acts for its master: due timers are sent to other masters.

Owns the timers on their way or waiting for another try. It must never deliver into this broker's
log (I11), nor count a timer as delivered that no other master has (I14).

    due --> on its way --> delivered
               ^   '--no master took it--> waiting --pause--'

A timer stays counted in its slot until it is delivered, so that no progress passes it. Check points
and acknowledgements of popped messages are handed to broker/pop/revive_escape.py and stay counted,
too.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from turbopump.broker.escape.bridge import Arrival, Escape
from turbopump.broker.escape.retry_window import pause_ms
from turbopump.broker.scheduled.timer_messages import TimerFacts
from turbopump.broker.scheduled.wheel_reader import DueUnit, WheelReader
from turbopump.engine.types import NewMessage

OUT_MAX: Final = 4_096
"""Maximum of timers on their way or waiting for another try. Up to this many may be sent after
timers that no master takes; they are sent once more after a restart of this replica or its master.
"""
SENT_PER_STEP: Final = 128


class Leaving(NamedTuple):
    """A timer to be sent. Timers with the same `key` go to the same master; `due_ms`: when it is
    due there, None: at once."""

    facts: TimerFacts
    message: NewMessage
    key: str = ""
    due_ms: int | None = None


class _Failed(NamedTuple):
    due: DueUnit
    failures: int
    again_ms: int


class TimerEscape:
    """See the module. Loop thread only."""

    def __init__(
        self,
        escape: Escape,
        slots: WheelReader,
        read: Callable[[DueUnit, int], Leaving | None],
        left: Callable[[DueUnit, TimerFacts | None], None],
    ) -> None:
        """`read` makes the message of a unit, None: it is not to be delivered; `left` is called
        when another master has it, or, without facts, when it is dropped."""
        self._escape, self._slots = escape, slots
        self._read, self._left = read, left
        self._out: set[int] = set()
        """Positions of units that are on their way."""
        self._failed: list[_Failed] = []
        self._is_over = False

    def stop(self) -> None:
        """Stop acting: answers to timers on their way do not count."""
        self._is_over = True

    def step(self, now_ms: int, until_ms: int) -> bool:
        """Send timers that are due until `until_ms`; return whether more may be sent at once."""
        self._again(now_ms)
        for _ in range(SENT_PER_STEP):
            due_ms = self._slots.next_due_ms
            if due_ms is None or due_ms > until_ms or not self._has_room:
                return False
            self._send(self._slots.pop(), 0, now_ms)
        return True

    @property
    def _has_room(self) -> bool:
        apart = self._escape.apart
        has_room = self._escape.has_room and (apart is None or apart.has_room)
        return has_room and len(self._out) + len(self._failed) < OUT_MAX

    def _again(self, now_ms: int) -> None:
        steady_ms = self._escape.steady_ms()
        due: list[_Failed] = []
        rest: list[_Failed] = []
        for one in self._failed:
            is_due = one.again_ms <= steady_ms and len(due) < SENT_PER_STEP
            (due if is_due else rest).append(one)
        self._failed = rest
        for one in due:
            if self._escape.has_room:
                self._send(one.due, one.failures, now_ms)
            else:
                self._failed.append(one)

    def _send(self, due: DueUnit, failures: int, now_ms: int) -> None:
        leaving = self._read(due, now_ms)
        if leaving is None:
            self._left(due, None)
            return
        apart = self._escape.apart
        if apart is not None and apart.takes(leaving.message.topic):
            apart.take(leaving.message, partial(self._left_apart, due, leaving.facts))
            return
        self._out.add(due.position)
        sent = self._escape.send(leaving.message, failures, key=leaving.key, due_ms=leaving.due_ms)
        sent.then(partial(self._took, due, failures, leaving.facts))

    def _left_apart(self, due: DueUnit, facts: TimerFacts) -> None:
        if not self._is_over:
            self._left(due, facts)

    def _took(
        self, due: DueUnit, failures: int, facts: TimerFacts, arrival: Arrival | None
    ) -> None:
        if self._is_over:
            return
        self._out.discard(due.position)
        if arrival is not None:
            self._left(due, facts)
        else:
            again_ms = self._escape.steady_ms() + pause_ms(failures)
            self._failed.append(_Failed(due, failures + 1, again_ms))
