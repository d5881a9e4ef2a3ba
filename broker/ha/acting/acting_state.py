"""Decision whether this replica acts for its master now (RIP-32).

Owns that decision; handlers read it in `Role.is_acting`.

    acts while     name servers show this broker with the lowest id of its group
    and            it has no connection to a master, and no master has announced its return (906)
                   without reporting that it serves (906, too)

It begins once name servers have reported the same replicas for a while: a server that has just
started shows the first brokers that registered.

The master's return relies on the second condition: a replica connected to it takes no commits and
gives no locks, so the progress that the master copies from it is final (I13).

With controllers, their election comes first. A broker acts once it has had no master for a while,
and the controllers have not named one since; so does a master without a lease that name servers
still show. A notice of the elected master (906) ends it, and so does a lease.

Tests: tests/unit/broker/ha/acting/test_elected_group.py
"""

import logging
from collections.abc import Callable
from typing import Final

from turbopump.broker.context import BrokerContext
from turbopump.broker.ha.acting.group_members import (
    GroupMembers,
)
from turbopump.engine.types import LONG_AGO_MS
from turbopump.net.wire.route import MASTER_ID

logger = logging.getLogger(__name__)

MASTER_COMING_MS: Final = 10_000
"""Time in ms after a 906 in which this replica does not act, unless its master reports earlier that
it serves."""
NO_MASTER_MS: Final = 3_000
"""Time in ms without a master after which a broker acts, with controllers: another master is
usually elected within a second or two."""
REPORT_AGE_MAX_MS: Final = 10_000
"""Age in ms up to which the controllers' report of a master counts: they may be gone since."""
STALE_ROUTES_MS: Final = 60_000
"""Age in ms of stale routes: clients refresh routes every 30 s, and some take this replica for the
master until then."""


class ActingState:
    """Decides whether this replica acts for its master now, and sets `Role.is_acting`. Loop thread
    only; times are in ms of the monotonic clock."""

    def __init__(
        self,
        broker: BrokerContext,
        members: GroupMembers,
        has_master: Callable[[], bool],
        is_ready: Callable[[], bool],
        on_change: Callable[[], None],
        *,
        named_ms: Callable[[], int],
        ask_controllers: Callable[[], None],
    ) -> None:
        """`has_master` returns whether this replica receives a master's log now; `is_ready`,
        whether the progress of earlier acting replicas is known, and is called before this replica
        acts; `on_change` is called after it has begun or ended to act. `named_ms` returns when
        controllers last named another broker as the master; `ask_controllers` is called when the
        master was lost."""
        self.changed_ms = LONG_AGO_MS
        """Time at which this replica last began or ended to act; LONG_AGO_MS if it never acted."""
        self._broker, self._role = broker, broker.role
        self._is_elected = broker.config.replication.is_elected
        self._members = members
        self._has_master = has_master
        self._is_ready = is_ready
        self._on_change = on_change
        self._named_ms = named_ms
        self._ask_controllers = ask_controllers
        self._steady_ms = broker.steady_ms
        self._coming_until_ms = LONG_AGO_MS
        self._is_served = False
        self._led_ms = LONG_AGO_MS
        """When there last was a master: this broker, or a master that it was connected to."""
        self._return_number: int | None = None
        """Number of the last 906."""

    @property
    def serves_clients(self) -> bool:
        """Whether name servers route clients to this broker, because its id is the lowest of the
        group that they report."""
        members, role = self._members.members, self._role
        lowest = min(members, default=MASTER_ID)
        if lowest == MASTER_ID:
            return role.is_master and members.get(MASTER_ID) == self._broker.address
        return lowest == role.broker_id

    @property
    def may_get_clients(self) -> bool:
        """Whether clients may take this broker for the master, even if it is a replica: name
        servers route them here, or it ended to act less than STALE_ROUTES_MS ago."""
        since_ms = self._steady_ms() - self.changed_ms
        return self.serves_clients or (not self._role.is_acting and since_ms < STALE_ROUTES_MS)

    def on_master_returning(self, number: int | None) -> None:
        """Stop acting now, for MASTER_COMING_MS or until `master_serves`, because the master
        returns: its copy of this replica's progress must stay final. `number` identifies the
        return; None from RocketMQ."""
        self._coming_until_ms = self._steady_ms() + MASTER_COMING_MS
        self._return_number = number
        self.update_acting()

    def master_serves(self, number: int) -> bool:
        """Handle the master's report that it serves: this replica may act again once it loses that
        master. Returns False, without effect, for a `number` other than that of the last
        `on_master_returning`, and with controllers while this broker does not follow the master
        yet."""
        counts = number == self._return_number and (self._has_master() or not self._is_elected)
        if counts:
            self._coming_until_ms = LONG_AGO_MS
        return counts

    def on_elected(self) -> None:
        """Stop acting now, because this broker was elected and its term begins."""
        self._led_ms = self._steady_ms()
        self._set_acting(False)

    def update_acting(self) -> None:
        """Begin or end to act by the present state, and set `Role.is_acting`; called at each tick
        and after each event."""
        role, now_ms = self._role, self._steady_ms()
        has_master = self._has_master() or role.is_active_master
        if has_master:
            self._led_ms = now_ms
        elif self._is_served:
            self._ask_controllers()
        self._is_served = has_master
        is_alone = not has_master and now_ms >= self._coming_until_ms
        acts = role.is_known and is_alone and self.serves_clients and not self._is_led(now_ms)
        if acts and not role.is_acting:
            acts = self._members.is_stable and self._is_ready()
        self._set_acting(acts)

    def _is_led(self, now_ms: int) -> bool:
        """Whether, in a group with controllers, they have a master for this group, or may be
        electing one; False without controllers."""
        if not self._is_elected:
            return False
        named_ms = self._named_ms()
        is_named = named_ms > self._led_ms and now_ms - named_ms < REPORT_AGE_MAX_MS
        return is_named or now_ms - self._led_ms < NO_MASTER_MS

    def _set_acting(self, acts: bool) -> None:
        """Begin or end to act, if that is a change, and call `on_change`."""
        role = self._role
        if acts == role.is_acting:
            return
        role.is_acting = self._broker.offsets.acting = acts
        self.changed_ms = self._steady_ms()
        logger.info("this replica %s for its master", "acts" if acts else "no longer acts")
        self._on_change()
