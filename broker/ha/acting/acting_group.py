"""A broker of a group whose replicas act for their master (RIP-32): its events and checks.

Owns the parts of this folder and when a master asks its replicas. The roles themselves are changed
by `replication_setup.py`.

    a starting master       pre_online.py; only then clients are served
    a master unreachable    for as long as name servers wait: a replica may have acted, and is
                            asked once more for its offsets, while this broker serves
    a replica               acting_state.py
    an elected broker       asks its replicas, too, but waits for no unreachable one: the
                            controllers have decided
    a new replica           appears at a broker that keeps progress: it was away, or unknown to
                            name servers, and may have acted; it is asked for its offsets
"""

import logging
from collections.abc import Callable
from typing import Final, Protocol

from turbopump.broker.context import BrokerContext
from turbopump.broker.ha.acting.acting_state import ActingState
from turbopump.broker.ha.acting.group_members import GroupMembers
from turbopump.broker.ha.acting.lock_quorum import LockQuorum
from turbopump.broker.ha.acting.pre_online import (
    AGAIN_MS,
    ElectedPreOnline,
    OthersOffsets,
    PreOnline,
)
from turbopump.engine.deferred import Deferred
from turbopump.engine.types import LONG_AGO_MS
from turbopump.net.transport.calls import Call
from turbopump.net.wire.hosts import split_host_port
from turbopump.net.wire.names import check_lengths
from turbopump.net.wire.route import MASTER_ID

logger = logging.getLogger(__name__)

UNREACHABLE_TIMEOUT_DIVISOR: Final = 2
"""Divisor of broker_not_active_timeout: a master unreachable for this part of it asks its replicas,
because a name server counts from the last message that it received."""

HELD_MS: Final = 30_000
"""Maximum time in ms for which a serving master revives no popped messages while it asks its
replicas."""


class ReplicaLinks(Protocol):
    """The methods of replication that ActingGroup uses (broker/ha/service.py)."""

    def copying_hosts(self) -> list[str]:
        """IP addresses of replicas that have acknowledged bytes; one for each connection."""

    def follow_anew(self, address: str) -> None:
        """On a replica of default HA that receives no log now, connect to the master at the HA
        address `host:port` at once; "" follows no master."""


class ActingGroup:
    """A broker whose group's replicas act for their missing master (RIP-32): decides when this
    broker asks other replicas for their progress, and when a returning master serves. Loop thread
    only; times are in ms of the monotonic clock, but `wall_ms` returns ms since 1970. `number`
    identifies one return of a master, which chose it at random."""

    def __init__(
        self,
        broker: BrokerContext,
        service: ReplicaLinks,
        call: Call,
        pause: Callable[[], Deferred[None]],
        wall_ms: Callable[[], int],
        has_master: Callable[[], bool],
        *,
        on_acts: Callable[[], None],
        on_master_reported: Callable[[str, str], None],
        named_ms: Callable[[], int],
        ask_controllers: Callable[[], None],
    ) -> None:
        """`pause` resolves in the loop's next turn. `on_acts` is called when this replica begins to
        act for its master, `on_master_reported` with the addresses for clients and for replicas of
        a master that returns; for `has_master` and the last two see ActingState."""
        config, replication = broker.config, broker.config.replication
        self.on_online: Callable[[], None] = lambda: None
        """Called when a starting or elected master has taken over its replicas' progress and may
        serve clients."""
        self._on_acts = on_acts
        self._on_master_reported = on_master_reported
        self._broker = broker
        self._service = service
        self._call = call
        self._pause = pause
        self._wall_ms = wall_ms
        self._has_master = has_master
        self.members = GroupMembers(
            config.broker_cluster_name,
            config.broker_name,
            call,
            broker.steady_ms,
            self._on_members_answer,
        )
        """The group's members as name servers report them."""
        self.quorum = LockQuorum(
            self.members.addresses_of_others(lambda: broker.address),
            replication.total_replicas,
            call,
            broker.steady_ms,
        )
        """Locks by a majority of the group, used with lockInStrictMode."""
        self.acting_state = ActingState(
            broker,
            self.members,
            has_master,
            self._knows_others,
            self._on_acting_changed,
            named_ms=named_ms,
            ask_controllers=ask_controllers,
        )
        """Decision whether this replica acts now."""
        self._others: OthersOffsets | None = None
        self._knows = False
        self._asked_of: set[tuple[int, str]] = set()
        """The replicas whose offsets are known since this broker keeps progress: ids, addresses."""
        self.waits_to_lead = replication.waits_to_lead
        """Whether clients must not be served yet: this master waits for its replicas' progress."""
        self._asking: PreOnline | None = None
        self._term: object = None
        """The term of this elected broker for which its replicas were asked, or are being
        asked."""
        self._ticked_ms = self._heard_ms = self._asked_ms = LONG_AGO_MS
        broker.pop.others_first = self._holds_revival
        if self.waits_to_lead:
            self._begin_pre_online(serves=False)

    @property
    def reason_not_serving(self) -> str:
        """Reason why this master serves no client yet; "" if it serves, or is no master."""
        return self._asking.reason if self.waits_to_lead and self._asking is not None else ""

    @property
    def acts_for_ms(self) -> int | None:
        """Time in ms for which this replica has acted for its master; None if it does not act."""
        acts = self._broker.role.is_acting
        return self._broker.steady_ms() - self.acting_state.changed_ms if acts else None

    @property
    def looks_for_master(self) -> bool:
        """Whether name servers report a master that this replica does not follow, so that this
        broker should register at once: the answer contains that master's HA address."""
        return MASTER_ID in self.members.members and not self._has_master()

    def tick(self) -> None:
        """Ask name servers for the members if that is due, decide whether to act, and go on asking
        replicas; called every 100 ms."""
        broker = self._broker
        now_ms, replication = broker.steady_ms(), broker.config.replication
        if self._was_suspended:
            self._ask_all_again("this broker was suspended for a while")
        self._ticked_ms = now_ms
        period_ms = replication.sync_broker_member_group_period_ms
        if self._asking is not None:
            # a master that waits needs answers at the interval of its attempts
            period_ms = min(period_ms, AGAIN_MS)
        self.members.tick(broker.config.namesrv_addr, period_ms)
        self.acting_state.update_acting()
        if self._asking is not None:
            self._asking.tick()
        if self._others is not None:
            self._others.tick()

    def on_elected(self, term: object) -> bool:
        """Handle the election of this broker in `term`, an identity only; repeated calls for a term
        begin nothing. Acting brokers are notified before clients, and their commits are taken over.
        Returns True while that goes on (`on_online` is called at the end, maybe within this call),
        False after it."""
        if term is self._term:
            return self.waits_to_lead
        self._term, self.waits_to_lead = term, True
        self._asking = asking = ElectedPreOnline(
            self._broker,
            self.members,
            self._service,
            self._call,
            self._pause,
            self._on_pre_online,
            wall_ms=self._wall_ms,
        )
        asking.tick()
        return True

    def on_deposed(self) -> None:
        """End the requests to replicas, because this broker is no longer the elected master; their
        pending answers are ignored. No-op without a call of `elected`."""
        if self._term is not None:
            self._term, self.waits_to_lead = None, False
            if self._asking is not None:
                self._asking.stop()
                self._asking = None

    def stop(self) -> None:
        """End the requests to replicas for good: their pending answers are ignored."""
        for one in (self._asking, self._others):
            if one is not None:
                one.stop()

    def on_registration_lost(self) -> None:
        """After a lost connection to a name server, which may have removed this broker: a master
        asks its replicas again for offsets and progress, while it serves. No-op for a replica."""
        self._ask_all_again("a name server may have missed this broker's heartbeats")

    def on_min_broker_id_changed(self) -> None:
        """Handle 905 (the lowest id of the group has changed): all name servers are asked for the
        members at the next tick."""
        self.members.refresh_soon()

    def on_master_returning(self, address: str, ha_address: str, number: int | None) -> str | None:
        """Handle 906 of a returning master: stop acting, and without controllers follow it now at
        `ha_address` (or haMasterAddress). `address` is for clients, both are `host:port`; `number`
        identifies the return (None from RocketMQ). Returns None, or the reason of a refusal, which
        changes nothing."""
        is_elected = self._broker.config.replication.is_elected
        if self._broker.role.is_active_master or (self.waits_to_lead and not is_elected):
            return "this broker is a master"
        wrong = check_lengths(masterAddress=address, masterHaAddress=ha_address)
        if wrong is not None:
            return wrong
        try:
            for one in (address, ha_address):
                split_host_port(one)
        except ValueError as error:
            return str(error)
        self.acting_state.on_master_returning(number)
        if not is_elected and not self._has_master():
            self._on_master_reported(address, ha_address)
            static = self._broker.config.replication.ha_master_address
            self._service.follow_anew(static or ha_address)
        return None

    def master_serves(self, number: int) -> None:
        """Handle 906 of a returned master that now serves: it has taken over this replica's notes
        of pops. Ignored if `number` is not of the last `on_master_returning`."""
        if self.acting_state.master_serves(number) and number is not None:
            self._broker.pop.notes.forget_taken_over_notes(number)

    @property
    def _was_suspended(self) -> bool:
        """Whether `tick` was not called for so long that name servers may have removed this
        broker."""
        limit_ms = self._broker.config.replication.broker_not_active_timeout_ms
        return (
            0 < self._ticked_ms < self._broker.steady_ms() - limit_ms // UNREACHABLE_TIMEOUT_DIVISOR
        )

    def _holds_revival(self) -> bool:
        """Whether revival waits for replicas that may have acted and are being asked, or will be:
        messages acknowledged there must not be revived. The wait is limited, because an unreachable
        replica may be gone."""
        for_ms = self._broker.steady_ms() - self._asked_ms
        return self._was_suspended or (self._asking is not None and for_ms < HELD_MS)

    def _on_members_answer(self) -> None:
        """Handle an accepted answer of a name server: after a long silence a master asks its
        replicas again, and new replicas are asked."""
        now_ms = self._broker.steady_ms()
        silent_ms = now_ms - self._heard_ms if self._heard_ms > 0 else 0
        self._heard_ms = now_ms
        limit_ms = self._broker.config.replication.broker_not_active_timeout_ms
        if silent_ms > limit_ms // UNREACHABLE_TIMEOUT_DIVISOR:
            self._ask_all_again("this broker had no answer of a name server for a while")
        self.acting_state.update_acting()
        self._ask_new_replicas()

    def _ask_all_again(self, why: str) -> None:
        """If this broker is the master, ask all replicas for offsets and progress again; `why` is
        logged."""
        if self._broker.role.is_active_master:
            logger.warning("%s: it fetches offsets and progress from its replicas again", why)
            if self._asking is None:
                self._begin_pre_online(serves=True)
            else:
                self._asking.heard.clear()

    def _ask_new_replicas(self) -> None:
        """Ask replicas that name servers show and that were not asked yet; only on a broker that
        may change offsets."""
        broker = self._broker
        if not broker.role.may_change_offsets:
            self._asked_of.clear()
            return
        shown = {one for one in self.members.members.items() if one[0] != MASTER_ID}
        shown -= {one for one in shown if one[1] == broker.address}
        self._asked_of &= shown  # a replica that leaves and returns is asked once more
        if shown == self._asked_of or broker.config.replication.skip_pre_online:
            return
        if broker.role.is_acting:
            self._begin_asking_others()
        elif self._asking is None:
            self._begin_pre_online(serves=True)

    def _begin_pre_online(self, *, serves: bool) -> None:
        """Begin to ask the replicas for offsets and progress, as their master; `serves`: this
        master already serves clients."""
        self._asked_ms = self._broker.steady_ms()
        self._asking = PreOnline(
            self._broker,
            self.members,
            self._service,
            self._call,
            self._pause,
            self._on_pre_online,
            wall_ms=self._wall_ms,
            serves=serves,
        )

    def _on_pre_online(self) -> None:
        """Handle that all replicas were asked: a master that waited for this serves now."""
        assert self._asking is not None, "only the running request calls this"
        self._asked_of, self._asking = self._asking.heard, None
        if self.waits_to_lead:
            self.waits_to_lead = False
            self.acting_state.on_elected()
            self.on_online()

    def _knows_others(self) -> bool:
        """Whether every other replica was asked for its offsets since this replica wanted to act;
        if not, asking begins."""
        if self._knows:
            self._knows = False
            return True
        if self._others is None and len(self.members.members) == 1:
            return True
        self._begin_asking_others()
        return False

    def _begin_asking_others(self) -> None:
        """Begin to ask the other replicas for offsets, before this replica acts or because another
        has come."""
        if self._others is None:
            self._others = OthersOffsets(
                self._broker,
                self.members,
                self._service,
                self._call,
                self._pause,
                self._on_others_asked,
                wall_ms=self._wall_ms,
            )

    def _on_others_asked(self) -> None:
        """Handle that the other replicas were asked: this replica may act now."""
        assert self._others is not None, "only the running request calls this"
        self._asked_of = self._others.heard
        self._others, self._knows = None, True
        self.acting_state.update_acting()
        self._knows = False

    def _on_acting_changed(self) -> None:
        """Handle that this replica begins or ends to act: an acting replica no longer connects to
        the lost master's old address, because the master announces its return, or the controllers
        do."""
        is_acting = self._broker.role.is_acting
        if is_acting:
            self._on_acts()
        if self._broker.config.replication.is_elected:
            return
        if is_acting:
            self._service.follow_anew("")
        else:
            static = self._broker.config.replication.ha_master_address
            if static and not self._has_master():
                self._service.follow_anew(static)
