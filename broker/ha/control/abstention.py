"""Whether a broker is to lead nothing for now, and until when.

Owns the two ways to say so. It must never take or drop a role: membership.py does, and calls this
only. Times are of the monotonic clock.

    decline   say in heartbeats that this broker cannot lead, until there is a later epoch
    resign    send no heartbeats, so that it counts as dead: RocketMQ's controllers know no better
"""

from collections.abc import Callable

from turbopump.engine.types import LONG_AGO_MS

RESIGNED_PART, RESIGNED_MORE_MS = 1.2, 1_000
"""Of controllerHeartBeatTimeoutMills, and the interval at which a controller looks for the silent:
so long without heartbeats another is surely elected."""
DECLINED_MS, DECLINED_MAX_MS = 2_000, 30_000
"""Who declined tries no reign for so long, twice as long each time that it did not help."""


class Abstention:
    """One broker's."""

    def __init__(self, steady_ms: Callable[[], int], heartbeat_timeout_ms: int) -> None:
        self._steady_ms = steady_ms
        self._silent_ms = int(heartbeat_timeout_ms * RESIGNED_PART) + RESIGNED_MORE_MS
        self._silent_until_ms = LONG_AGO_MS
        self._declined_epoch: int | None = None
        self._declined_until_ms = LONG_AGO_MS
        self._decline_ms = DECLINED_MS

    @property
    def declines(self) -> bool:
        """Whether its heartbeats are to say that it cannot lead."""
        return self._declined_epoch is not None

    @property
    def is_silent(self) -> bool:
        """Whether it sends no heartbeats, to count as dead."""
        return self._steady_ms() < self._silent_until_ms

    @property
    def is_away(self) -> bool:
        """Whether the controllers are to find another master than this broker."""
        return self.is_silent or self.declines

    def decline(self, epoch: int) -> None:
        """Until there is a later epoch than this one, and for a while."""
        self._declined_epoch = epoch
        self._declined_until_ms = self._steady_ms() + self._decline_ms
        self._decline_ms = min(2 * self._decline_ms, DECLINED_MAX_MS)

    def resign(self) -> None:
        """Count as dead."""
        self._silent_until_ms = self._steady_ms() + self._silent_ms

    def look(self, epoch: int) -> None:
        """The broker's epoch is this one: what was declined may be over."""
        declined, until_ms = self._declined_epoch, self._declined_until_ms
        if declined is not None and epoch > declined and self._steady_ms() >= until_ms:
            self._declined_epoch = None

    def has_led(self) -> None:
        """A reign has begun: the next decline is a short one again."""
        self._decline_ms = DECLINED_MS
