"""Delay levels on a replica that acts for its master: due messages are sent to other masters.

Owns the messages on their way, level by level. It must never deliver into this broker's log (I11),
nor report a message as delivered that no other master has (I14).

A message that no master takes holds up the progress of its level but not the messages after it, up
to WINDOW messages: these are sent once more after a restart of this replica or its master.
"""

from functools import partial
from typing import Final, Protocol

from turbopump.broker.escape.bridge import Arrival, Escape
from turbopump.broker.escape.retry_window import QueueWindow
from turbopump.engine.deferred import Deferred
from turbopump.engine.store import Store
from turbopump.engine.types import NewMessage, QueueOffset, QueueUnit
from turbopump.net.wire.names import SCHEDULE_TOPIC

WINDOW: Final = 1_024
"""Maximum number of messages of a level after its progress that may have been sent."""
AGAIN_PER_STEP: Final = 32
"""Maximum number of retries of a level in a step: if no master takes anything, not all are tried at
once."""
READ_PER_STEP: Final = 128
"""Maximum number of messages that one step examines, of all levels: some 5 ms."""


class Levels(Protocol):
    """The delay levels (delay.py), as LevelEscape uses them; levels count from 1, times are epoch
    ms."""

    def first_undelivered(self, level: int) -> QueueOffset:
        """Return the first queue offset of the level that is not known to be delivered."""

    def is_due(self, level: int, unit: QueueUnit, now_ms: int) -> bool:
        """Whether the time of the level's message has come at `now_ms`."""

    def message_of(self, unit: QueueUnit) -> NewMessage | None:
        """Return the waiting message of a unit in the form for its consumers; None: it can never be
        delivered."""

    def delivered_elsewhere(self, level: int, at: QueueOffset, now_ms: int) -> None:
        """Set the level's progress to `at`: other masters have all its messages before it."""


class LevelEscape:
    """Sends the due messages of delay levels to other masters, on a replica that acts for its
    master. Loop thread only; made when this replica begins to act."""

    def __init__(self, store: Store, escape: Escape, levels: Levels) -> None:
        self._store, self._escape, self._levels = store, escape, levels
        self._windows: dict[int, QueueWindow[Arrival]] = {}
        self._first = 0
        """The level after which a step begins, in rotation: no level waits for the backlog of
        another."""
        self._left = self._now_ms = 0
        """Number of messages this step may still examine, and its time."""

    def stop(self) -> None:
        """End the work for good: answers to messages on their way are ignored."""
        for window in self._windows.values():
            window.clear()

    def step(self, count: int, now_ms: int) -> bool:
        """Send due messages of levels 1 to `count` at `now_ms` (epoch ms); return whether to call
        again at once."""
        more, self._left, self._now_ms = False, READ_PER_STEP, now_ms
        for number in range(count):
            level = (self._first + number) % count + 1
            window = self._window_of(level)
            if window is None:
                continue
            window.resend_failed(min(AGAIN_PER_STEP, self._left))
            more |= self._send_due(level, window)
            self._advance_progress(level)
            if self._left <= 0:
                self._first = level % count
                return True
        return more

    def _window_of(self, level: int) -> QueueWindow[Arrival] | None:
        """Return the messages of a level on their way, made if missing; None without messages to
        deliver."""
        found = self._windows.get(level)
        if found is None:
            at = self._levels.first_undelivered(level)
            if at >= self._store.max_queue_offset(SCHEDULE_TOPIC, level - 1):
                return None
            send, arrived = partial(self._send, level), partial(self._advance_progress, level)
            found = QueueWindow(self._escape, send, arrived, at, WINDOW)
            self._windows[level] = found
        return found

    def _send_due(self, level: int, window: QueueWindow[Arrival]) -> bool:
        """Send the level's next due messages; return whether there may be more."""
        window.skip_to(self._store.min_queue_offset(SCHEDULE_TOPIC, level - 1))
        for unit in self._read_units(level, window.next, self._left):
            if not (window.has_room and self._levels.is_due(level, unit, self._now_ms)):
                return False
            window.start_next()
        high = self._store.max_queue_offset(SCHEDULE_TOPIC, level - 1)
        return window.next < high and window.has_room

    def _read_units(self, level: int, number: QueueOffset, most: int) -> list[QueueUnit]:
        """Return at most `most` units of the level's queue from offset `number` on."""
        return self._store.units(SCHEDULE_TOPIC, level - 1, number, most)

    def _send(
        self, level: int, number: QueueOffset, failures: int
    ) -> Deferred[Arrival | None] | None:
        """Send the level's message at queue offset `number`; None if it can never be delivered."""
        self._left -= 1
        units = self._read_units(level, number, 1)  # none if retention removed it
        message = self._levels.message_of(units[0]) if units else None
        return None if message is None else self._escape.send(message, failures)

    def _advance_progress(self, level: int, *_arrival: object) -> None:
        """Move the level's progress over the messages that have arrived at other masters."""
        at = self._windows[level].completed_to
        if at > self._levels.first_undelivered(level):
            self._levels.delivered_elsewhere(level, at, self._now_ms)
