"""Whether this replica acts for its master now (RIP-32).

Owns that decision. It must never serve anything: handlers read it in `Role.is_acting`. Made by
broker/replicating.py, which ticks it and says what it hears.

    acts while     name servers show this broker as the one with the lowest id of its group
    and            it has no connection to a master, and none has just said that it comes back (906)
                   and not yet that it serves (906, too)

It begins once they have said the same of the replicas for a while: one that has just started shows
whichever registered there first.

The second line is what the master's return relies on: a replica that it is connected with takes no
commits and gives no locks, so what the master copies from it is the last word (I13).
"""

import logging
from collections.abc import Callable
from typing import Final

from turbopump.broker.ha.acting.members import MASTER_ID, GroupMembers
from turbopump.broker.tables.offsets import OffsetTable
from turbopump.broker.traffic.role import Role
from turbopump.engine.types import LONG_AGO_MS

logger = logging.getLogger(__name__)

COMING_MS: Final = 10_000
"""So long after 906 this replica does not act, unless its master says before that it serves."""
STALE_ROUTES_MS: Final = 60_000
"""Clients look for new routes every 30 s: up to then some take this replica for the master."""


class Seat:
    """One replica's; loop thread only."""

    def __init__(
        self,
        members: GroupMembers,
        role: Role,
        offsets: OffsetTable,
        has_master: Callable[[], bool],
        steady_ms: Callable[[], int],
    ) -> None:
        self.is_ready: Callable[[], bool] = lambda: True
        """Whether it knows what another replica did that acted before; asked when it would act."""
        self.on_change: Callable[[], None] = lambda: None
        """Called after it has begun or ended to act."""
        self.changed_ms = LONG_AGO_MS
        """When it last began or ended to act."""
        self._members = members
        self._role = role
        self._offsets = offsets
        self._has_master = has_master
        self._steady_ms = steady_ms
        self._coming_until_ms = LONG_AGO_MS
        self._return_number: int | None = None
        """Of the last 906."""

    @property
    def leads(self) -> bool:
        """Whether clients are routed to this broker, as the lowest of its group."""
        return min(self._members.members, default=MASTER_ID) == self._role.broker_id

    @property
    def is_left(self) -> bool:
        """Whether clients may take this broker for the master that is another one again."""
        since_ms = self._steady_ms() - self.changed_ms
        return self.leads or (not self._role.is_acting and since_ms < STALE_ROUTES_MS)

    def master_comes(self, number: int | None) -> None:
        """The master said that it is back: what it is about to copy must not change any more."""
        self._coming_until_ms = self._steady_ms() + COMING_MS
        self._return_number = number
        self.look()

    def master_serves(self, number: int) -> None:
        """It has copied that. A word that was late, of a return before this one, says nothing."""
        if number == self._return_number:
            self._coming_until_ms = LONG_AGO_MS

    def look(self) -> None:
        """Decide: at each tick, and when something was heard."""
        role, now_ms = self._role, self._steady_ms()
        is_replica = not role.is_master and role.is_known
        is_alone = not self._has_master() and now_ms >= self._coming_until_ms
        acts = is_replica and is_alone and self.leads
        if acts and not role.is_acting:
            acts = self._members.are_settled and self.is_ready()
        if acts == role.is_acting:
            return
        role.is_acting = self._offsets.acting = acts
        self.changed_ms = now_ms
        logger.info("this replica %s for its master", "acts" if acts else "acts no more")
        self.on_change()
