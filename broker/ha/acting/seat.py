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

Where controllers elect, theirs is the first word. A broker acts once it has had no master for a
while, and has not heard from them since that there is one; so does a master without a lease that
name servers still show. A notice of the elected master (906) ends it, and so does a lease.
"""

import logging
from collections.abc import Callable
from typing import Final

from turbopump.broker.context import BrokerContext
from turbopump.broker.ha.acting.members import MASTER_ID, GroupMembers
from turbopump.engine.types import LONG_AGO_MS

logger = logging.getLogger(__name__)

COMING_MS: Final = 10_000
"""So long after 906 this replica does not act, unless its master says before that it serves."""
NO_MASTER_MS: Final = 3_000
"""Where controllers elect, a broker acts after so long without a master: another one is elected
within a second or two, or it will take longer."""
NAMED_MS: Final = 10_000
"""So long their word that there is a master counts: they may be gone since."""
STALE_ROUTES_MS: Final = 60_000
"""Clients look for new routes every 30 s: up to then some take this replica for the master."""


class Seat:
    """One replica's; loop thread only."""

    def __init__(
        self, broker: BrokerContext, members: GroupMembers, has_master: Callable[[], bool]
    ) -> None:
        self.named_ms: Callable[[], int] = lambda: LONG_AGO_MS
        """When controllers last said that another broker is the master."""
        self.ask_controllers: Callable[[], None] = lambda: None
        """Called when there is no master any more."""
        self.is_ready: Callable[[], bool] = lambda: True
        """Whether it knows what another replica did that acted before; asked when it would act."""
        self.on_change: Callable[[], None] = lambda: None
        """Called after it has begun or ended to act."""
        self.changed_ms = LONG_AGO_MS
        """When it last began or ended to act."""
        self._broker, self._role = broker, broker.role
        self._is_elected = broker.config.replication.is_elected
        self._members = members
        self._has_master = has_master
        self._steady_ms = broker.steady_ms
        self._coming_until_ms = LONG_AGO_MS
        self._is_served = False
        self._led_ms = LONG_AGO_MS
        """When there last was a master: this broker, or one that it is connected with."""
        self._return_number: int | None = None
        """Of the last 906."""

    @property
    def leads(self) -> bool:
        """Whether clients are routed to this broker, as the lowest of its group."""
        members, role = self._members.members, self._role
        lowest = min(members, default=MASTER_ID)
        if lowest == MASTER_ID:
            return role.is_master and members.get(MASTER_ID) == self._broker.address
        return lowest == role.broker_id

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

    def master_serves(self, number: int) -> bool:
        """It has copied that. A word that was late, of a return before this one, says nothing; nor
        does one while this broker does not follow it yet, where the master changes. Whether it says
        something."""
        counts = number == self._return_number and (self._has_master() or not self._is_elected)
        if counts:
            self._coming_until_ms = LONG_AGO_MS
        return counts

    def lead(self) -> None:
        """This broker was elected, and its reign begins: it acts no more."""
        self._led_ms = self._steady_ms()
        self._set(False)

    def look(self) -> None:
        """Decide: at each tick, and when something was heard."""
        role, now_ms = self._role, self._steady_ms()
        has_master = self._has_master() or role.leads
        if has_master:
            self._led_ms = now_ms
        elif self._is_served:
            self.ask_controllers()
        self._is_served = has_master
        is_alone = not has_master and now_ms >= self._coming_until_ms
        acts = role.is_known and is_alone and self.leads and not self._is_led(now_ms)
        if acts and not role.is_acting:
            acts = self._members.are_settled and self.is_ready()
        self._set(acts)

    def _is_led(self, now_ms: int) -> bool:
        """Whether controllers have a master for this group, or may elect one at this moment."""
        if not self._is_elected:
            return False
        named_ms = self.named_ms()
        is_named = named_ms > self._led_ms and now_ms - named_ms < NAMED_MS
        return is_named or now_ms - self._led_ms < NO_MASTER_MS

    def _set(self, acts: bool) -> None:
        role = self._role
        if acts == role.is_acting:
            return
        role.is_acting = self._broker.offsets.acting = acts
        self.changed_ms = self._steady_ms()
        logger.info("this replica %s for its master", "acts" if acts else "acts no more")
        self.on_change()
