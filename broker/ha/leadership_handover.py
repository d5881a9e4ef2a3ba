"""Handover of leadership to another broker before a stop.

Owns how long a stop waits for another master. The controllers receive this broker's intention to
stop (membership.py), and name another master. The process and the simulator use it alike.

    idle --hand_over--> waiting --another master, no candidate, or HAND_OVER_MS--> resolved

This broker serves meanwhile, so that senders are without a master only for an election, not for a
whole stop.

Tests: tests/unit/broker/ha/test_unfit.py, tests/sim/group/test_hand_over.py
"""

import logging
from collections.abc import Callable
from typing import Final

from turbopump.broker.ha.control.membership import Membership
from turbopump.broker.ha.service import HaService
from turbopump.engine.deferred import Deferred
from turbopump.engine.types import LONG_AGO_MS

logger = logging.getLogger(__name__)

HAND_OVER_MS: Final = 3_000
"""Time in ms that a shutdown waits for another broker to become master: long enough for an entry of
slow controllers. This broker takes messages meanwhile."""


class LeadershipHandover:
    """The handover of a broker; loop thread only. Times are of the monotonic clock."""

    def __init__(
        self, membership: Membership, service: HaService, steady_ms: Callable[[], int]
    ) -> None:
        """`steady_ms` returns the monotonic clock in ms."""
        self._membership, self._service = membership, service
        self._steady_ms = steady_ms
        self._waiting: Deferred[None] | None = None
        self._until_ms = LONG_AGO_MS

    def hand_over(self) -> Deferred[None]:
        """Ask the controllers to elect another broker, and follow no master afterwards. Resolves
        from `resolve_if_ended`, when another broker is the master, no other can be, or HAND_OVER_MS
        has passed; already resolved if there is no successor, and then the controllers are not
        asked."""
        if not self._membership.has_successor:
            return Deferred.resolved(None)
        done: Deferred[None] = Deferred()
        self._waiting, self._until_ms = done, self._steady_ms() + HAND_OVER_MS
        self._membership.report_stopping()
        return done

    def resolve_if_ended(self) -> None:
        """Resolve the result of `hand_over` if the handover has ended; no-op without a handover.
        Called every 100 ms, and after a change of role."""
        done, is_late = self._waiting, self._steady_ms() >= self._until_ms
        if done is not None and (is_late or not self._membership.has_successor):
            self._waiting = None
            logger.info("the lead is %s", "kept" if self._service.is_master else "handed over")
            done.resolve(None)
