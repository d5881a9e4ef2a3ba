"""Delay levels on a replica that acts for its master: due messages are sent to other masters.

Owns the messages on their way, level by level. It must never deliver into this broker's log (I11),
nor report a message as delivered that no other master has (I14).

    queue of a level ... progress | on their way, done after a gap, waiting for a retry ...

A message that no master takes holds up the progress of its level but not the messages after it, up
to WINDOW messages: these are sent once more after a restart of this replica or its master.
"""

from collections.abc import Iterator
from functools import partial
from typing import Final, Protocol

from turbopump.broker.escape.bridge import Arrival, Escape
from turbopump.broker.escape.retry_window import RetryWindow
from turbopump.engine.store import Store
from turbopump.engine.types import NewMessage, QueueOffset, QueueUnit
from turbopump.net.wire.names import SCHEDULE_TOPIC

WINDOW: Final = 1_024
"""Messages of a level after its progress that may have been sent."""
AGAIN_PER_STEP: Final = 32
"""Retries of a level in a step: if no master takes anything, not all are tried at once."""
READ_PER_STEP: Final = 128
"""Messages that one step examines, of all levels: some 5 ms."""


class Levels(Protocol):
    """The delay levels, as this module uses them (delay.py)."""

    def position(self, level: int) -> QueueOffset:
        """Return the first message that is not known to be delivered."""

    def is_due(self, level: int, unit: QueueUnit, now_ms: int) -> bool:
        """Whether the message's time has come."""

    def message_of(self, unit: QueueUnit) -> NewMessage | None:
        """Return the message for its consumers; None: it can never be delivered."""

    def delivered_elsewhere(self, level: int, at: QueueOffset, now_ms: int) -> None:
        """Record that other masters have all messages of the level before `at`."""


class LevelEscape:
    """See the module. Loop thread only."""

    def __init__(self, store: Store, escape: Escape, levels: Levels) -> None:
        self._store, self._escape, self._levels = store, escape, levels
        self._windows: dict[int, RetryWindow] = {}
        self._first = 0
        """The level after which a step begins, in rotation: no level waits for the backlog of
        another."""
        self._left = 0
        """Number of messages this step may still examine."""

    def stop(self) -> None:
        """Stop acting: answers to messages on their way do not count."""
        self._windows.clear()

    def step(self, count: int, now_ms: int) -> bool:
        """Send due messages of the first `count` levels; return whether there may be more to do
        now."""
        more, self._left = False, READ_PER_STEP
        for number in range(count):
            level = (self._first + number) % count + 1
            window = self._window(level)
            if window is None:
                continue
            self._again(level, window, now_ms)
            more |= self._begin(level, window, now_ms)
            self._settle(level, window, now_ms)
            if self._left <= 0:
                self._first = level % count
                return True
        return more

    def _window(self, level: int) -> RetryWindow | None:
        found = self._windows.get(level)
        if found is None:
            high = self._store.max_queue_offset(SCHEDULE_TOPIC, level - 1)
            at = self._levels.position(level)
            if at >= high:
                return None
            found = self._windows[level] = RetryWindow(at, WINDOW)
        return found

    def _again(self, level: int, window: RetryWindow, now_ms: int) -> None:
        most = min(AGAIN_PER_STEP, self._left)
        for number in window.due(self._escape.steady_ms(), most):
            if not self._escape.has_room:
                return
            self._left -= 1
            unit = next(iter(self._units(level, number, 1)), None)
            window.again(number)
            if unit is None:  # retention removed it
                window.done(number)
            else:
                self._send(level, window, number, unit, now_ms)

    def _begin(self, level: int, window: RetryWindow, now_ms: int) -> bool:
        window.skip_to(self._store.min_queue_offset(SCHEDULE_TOPIC, level - 1))
        for unit in self._units(level, window.next, self._left):
            if not (window.has_room and self._escape.has_room):
                return False
            if not self._levels.is_due(level, unit, now_ms):
                return False
            number = window.next
            self._left -= 1
            window.begin()
            self._send(level, window, number, unit, now_ms)
        high = self._store.max_queue_offset(SCHEDULE_TOPIC, level - 1)
        return window.next < high and window.has_room

    def _units(self, level: int, number: int, most: int) -> Iterator[QueueUnit]:
        yield from self._store.units(SCHEDULE_TOPIC, level - 1, QueueOffset(number), most)

    def _send(
        self, level: int, window: RetryWindow, number: int, unit: QueueUnit, now_ms: int
    ) -> None:
        message = self._levels.message_of(unit)
        if message is None:
            window.done(number)
            return
        failures = window.failures(number)
        took = partial(self._took, level, window, number, now_ms)
        self._escape.send(message, failures).then(took)

    def _took(
        self, level: int, window: RetryWindow, number: int, now_ms: int, arrival: Arrival | None
    ) -> None:
        if self._windows.get(level) is not window:
            return
        if arrival is None:
            window.failed(number, self._escape.steady_ms())
            return
        window.done(number)
        self._settle(level, window, now_ms)

    def _settle(self, level: int, window: RetryWindow, now_ms: int) -> None:
        at = QueueOffset(window.done_to)
        if at > self._levels.position(level):
            self._levels.delivered_elsewhere(level, at, now_ms)
