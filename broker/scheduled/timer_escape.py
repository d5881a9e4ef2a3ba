"""Timers on a replica that acts for its master: due timers are sent to other masters.

Owns the timers on their way or waiting for another try. It must never deliver into this broker's
log (I11), nor count a timer as delivered that no other master has (I14).

A timer stays counted in its slot until it is delivered, so that no progress passes it. Check points
and acknowledgements of popped messages are handed to broker/pop/revive_escape.py and stay counted,
too.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from turbopump.broker.escape.bridge import Escape
from turbopump.broker.escape.retry_window import RetryWindow
from turbopump.broker.scheduled.timer_messages import TimerFacts
from turbopump.broker.scheduled.wheel_reader import DueUnit, WheelReader
from turbopump.engine.deferred import Deferred
from turbopump.engine.types import NewMessage

OUT_MAX: Final = 4_096
"""Maximum number of timers on their way or waiting for another try. Up to this many may be sent
after timers that no master takes; they are sent once more after a restart of this replica or its
master."""
SENT_PER_STEP: Final = 128
"""Maximum number of timers that a step sends, and of failed ones that it sends again."""


class EscapingTimer(NamedTuple):
    """A timer to be sent to another master. Timers with the same `key` go to the same master;
    `due_ms` (epoch ms): when it is due there, None: at once."""

    facts: TimerFacts
    message: NewMessage
    key: str = ""
    due_ms: int | None = None


class TimerEscape:
    """Sends due timers to other masters, on a replica that acts for its master. Loop thread only;
    times are epoch ms."""

    def __init__(
        self,
        escape: Escape,
        slots: WheelReader,
        read: Callable[[DueUnit, int], EscapingTimer | None],
        left: Callable[[DueUnit, TimerFacts | None], None],
    ) -> None:
        """`read` makes the message of a unit, None: it is not to be delivered; `left` is called
        when another master has it, or, without facts, when it is dropped."""
        self._escape, self._slots = escape, slots
        self._read, self._left = read, left
        self._window: RetryWindow[DueUnit, TimerFacts] = RetryWindow(escape, self._send, left)
        self._now_ms = 0
        self._is_over = False

    def stop(self) -> None:
        """End the work for good: answers to timers on their way are ignored."""
        self._is_over = True
        self._window.clear()

    def step(self, now_ms: int, until_ms: int) -> bool:
        """Send timers that are due until `until_ms`; return whether to call again at once."""
        self._now_ms = now_ms
        self._window.resend_failed(SENT_PER_STEP)
        for _ in range(SENT_PER_STEP):
            due_ms = self._slots.next_due_ms
            if due_ms is None or due_ms > until_ms or not self._has_room:
                return False
            due = self._slots.pop_unit()
            if due not in self._window:  # else its slot was returned to the wheel, and read again
                self._window.start(due)
        return True

    @property
    def _has_room(self) -> bool:
        """Whether another timer may be sent now."""
        apart = self._escape.special_timers
        has_room = self._escape.has_room and (apart is None or apart.has_room)
        return has_room and len(self._window) < OUT_MAX

    def _send(self, due: DueUnit, failures: int) -> Deferred[TimerFacts | None] | None:
        """Send the timer of a unit; None if there is nothing to send, or it was passed to
        `special_timers`. Resolves to its facts, None after a failure."""
        leaving = self._read(due, self._now_ms)
        if leaving is None:
            self._left(due, None)
            return None
        facts, message, key, due_ms = leaving
        apart = self._escape.special_timers
        if apart is not None and apart.handles_topic(message.topic):
            apart.take_timer_message(message, partial(self._on_special_done, due, facts))
            return None
        sent = self._escape.send(message, failures, key=key, due_ms=due_ms)
        return sent.map(lambda arrival: facts if arrival is not None else None)

    def _on_special_done(self, due: DueUnit, facts: TimerFacts) -> None:
        """Finish a timer that was passed to `special_timers`, unless the work has ended."""
        if not self._is_over:
            self._left(due, facts)
