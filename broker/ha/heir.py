"""The lead given to another broker before a stop.

Owns how long a stop waits for another master. It must never stop anything nor elect: the
controllers hear that this broker is about to stop (membership.py), and name another one. Made and
ticked by replicating.py, and by the simulator, so that both wait alike.

This broker serves meanwhile, so that senders miss a master for as long as an election takes, not a
stop.
"""

import logging
from collections.abc import Callable
from typing import Final

from turbopump.broker.ha.control.membership import Membership
from turbopump.broker.ha.service import HaService
from turbopump.engine.later import Later
from turbopump.engine.types import LONG_AGO_MS

logger = logging.getLogger(__name__)

HAND_OVER_MS: Final = 3_000
"""So long a stop waits for another master: for an entry of the controllers, also of slow ones. This
broker takes messages meanwhile."""


class Heir:
    """One broker's; loop thread only. Times are of the monotonic clock."""

    def __init__(
        self, membership: Membership, service: HaService, steady_ms: Callable[[], int]
    ) -> None:
        self._membership, self._service = membership, service
        self._steady_ms = steady_ms
        self._waiting: Later[None] | None = None
        self._until_ms = LONG_AGO_MS

    def hand_over(self) -> Later[None]:
        """Have another broker lead. Resolves when there is another one, none could be it, or after
        HAND_OVER_MS."""
        done: Later[None] = Later()
        if not self._membership.has_heir:
            done.resolve(None)
            return done
        self._waiting, self._until_ms = done, self._steady_ms() + HAND_OVER_MS
        self._membership.retire()
        return done

    def look(self) -> None:
        """Every 100 ms, and when the role has changed."""
        done, is_late = self._waiting, self._steady_ms() >= self._until_ms
        if done is not None and (is_late or not self._membership.has_heir):
            self._waiting = None
            logger.info("the lead is %s", "kept" if self._service.is_master else "handed over")
            done.resolve(None)
