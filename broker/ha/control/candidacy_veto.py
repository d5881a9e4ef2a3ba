"""Whether a broker abstains from leading, and until when.

Owns the two ways to report it; membership.py takes and drops roles. Times are of the monotonic
clock.

    decline   report in heartbeats that this broker cannot lead, until there is a later epoch
    resign    send no heartbeats, to count as dead: RocketMQ's controllers ignore `decline_epoch`

Tests: tests/unit/broker/ha/test_unfit.py
"""

from collections.abc import Callable

from turbopump.engine.types import LONG_AGO_MS

RESIGNED_PART, RESIGNED_MORE_MS = 1.2, 1_000
"""A resigned broker sends no heartbeat for this factor times controllerHeartBeatTimeoutMills, plus
this time in ms, the interval at which a controller checks brokers: another is surely elected."""
DECLINED_MS, DECLINED_MAX_MS = 2_000, 30_000
"""Minimum and maximum time in ms for which a broker declines; the time doubles with each decline
until a term begins."""


class CandidacyVeto:
    """The abstention of a broker. It only records times: its owner reads it and calls
    `on_epoch`."""

    def __init__(self, steady_ms: Callable[[], int], heartbeat_timeout_ms: int) -> None:
        """`steady_ms` returns the monotonic clock in ms; the time-out is
        controllerHeartBeatTimeoutMills."""
        self._steady_ms = steady_ms
        self._silent_ms = int(heartbeat_timeout_ms * RESIGNED_PART) + RESIGNED_MORE_MS
        self._silent_until_ms = LONG_AGO_MS
        self._declined_epoch: int | None = None
        self._declined_until_ms = LONG_AGO_MS
        self._decline_ms = DECLINED_MS

    @property
    def is_declining(self) -> bool:
        """Whether heartbeats must report that this broker cannot lead, after `decline_epoch`."""
        return self._declined_epoch is not None

    @property
    def is_silent(self) -> bool:
        """Whether no heartbeat may be sent now, after `suppress_heartbeats`."""
        return self._steady_ms() < self._silent_until_ms

    @property
    def is_abstaining(self) -> bool:
        """Whether this broker declines or is silent, so that controllers elect another broker."""
        return self.is_silent or self.is_declining

    def decline_epoch(self, epoch: int) -> None:
        """Decline to lead until an `on_epoch` with a later epoch than `epoch`, and for at least a
        time that doubles with each decline, from DECLINED_MS to DECLINED_MAX_MS."""
        self._declined_epoch = epoch
        self._declined_until_ms = self._steady_ms() + self._decline_ms
        self._decline_ms = min(2 * self._decline_ms, DECLINED_MAX_MS)

    def suppress_heartbeats(self) -> None:
        """Be silent for 1.2 heartbeat time-outs and a second, so that the controllers count this
        broker as dead and elect another."""
        self._silent_until_ms = self._steady_ms() + self._silent_ms

    def on_epoch(self, epoch: int) -> None:
        """End the decline if `epoch`, the epoch of this broker's present role, is later than the
        declined one and the time of the decline has passed."""
        declined, until_ms = self._declined_epoch, self._declined_until_ms
        if declined is not None and epoch > declined and self._steady_ms() >= until_ms:
            self._declined_epoch = None

    def on_term_begun(self) -> None:
        """Reset the duration of the next decline to the minimum, because this broker's term has
        begun."""
        self._decline_ms = DECLINED_MS
