"""A broker's membership in a group whose masters are elected (RocketMQ: ReplicasManager).

Owns the reaction to the controllers' reports: the broker has no role before they name one, takes
another only of a greater epoch, and serves as the master only while its lease holds. It touches no
socket, file of the store or clock. Times are of the monotonic clock.

    JOINING: find the leader (controllers.py) -> id, registration (controller_registration.py)
             -> a heartbeat, to count as alive -> the named role, or an election
    MEMBER:  heartbeats, looks (1004), notices (1008), proposals of sets (sync_set_proposals.py)
    MEMBER --controllers do not know the broker--> JOINING

After any failure it starts again after a while, from the last saved step: the id is in a file.
Differences to RocketMQ, which all keep the wire format:

* The role is dropped when there is no master, not kept until there is another.
* A broker whose store takes no messages reports that in its heartbeats (`unfit`), at once: another
  is elected, and no unfit one while there is another (controller/elections.py). A broker
  whose disk is too slow for senders reports that (`is_sync_slow`), so that a faster one is elected.
* A term needs an epoch greater than the log's last one. A broker that is named master of an epoch
  that it had before (it restarted before the controllers noticed, or they forgot the group), or
  whose log is damaged, declines (`_decline_leading`): its heartbeats report that it cannot lead
  until the controllers have a later epoch. RocketMQ writes two terms into one epoch.
* RocketMQ's controllers ignore that report. With them a broker that declines, or is master with a
  failed store, sends no heartbeats for a while (candidacy_veto.py), so that it counts as dead.
* Without a lease no message is acknowledged (heartbeats.py).
* An id that the controllers do not know is given up (controller_registration.py).
"""

import logging
from collections.abc import Callable
from typing import Protocol

from turbopump.broker.ha.control import controller_protocol
from turbopump.broker.ha.control.candidacy_veto import CandidacyVeto
from turbopump.broker.ha.control.controller_protocol import BadResponse, GroupState
from turbopump.broker.ha.control.controller_registration import (
    UNKNOWN_BROKER,
    ControllerRegistration,
    Steps,
)
from turbopump.broker.ha.control.controllers import Controllers
from turbopump.broker.ha.control.heartbeats import ControllerHeartbeats
from turbopump.broker.ha.control.identity import IdentityFiles
from turbopump.broker.ha.control.last_role import LastRole
from turbopump.broker.ha.control.master_locator import MasterLocator
from turbopump.broker.ha.control.options import MembershipOptions
from turbopump.broker.ha.control.retry_loop import AGAIN_MS, RetryLoop
from turbopump.broker.ha.control.sync_set_proposals import SyncSetProposals
from turbopump.broker.ha.leader import Leader
from turbopump.broker.ha.service import HaService
from turbopump.broker.replication import Stage
from turbopump.engine.disk.files import Files
from turbopump.engine.log.epochs import Epochs
from turbopump.engine.types import LONG_AGO_MS, LogOffset, StoreError, StoreHealth
from turbopump.net.ha.replica import State
from turbopump.net.transport.calls import Call
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import Command, new_request
from turbopump.net.wire.headers.controller import BrokerHeartbeatResponse
from turbopump.net.wire.headers.routes import BrokerHeartbeatRequest

logger = logging.getLogger(__name__)

NO_ROLE = -1
"""Value of `Membership.epoch` before the first role."""
CHANGE_MAX_MS = 30_000
"""Time in ms after which a term whose epoch is not on disk is given up, for a broker with a faster
disk. It allows five syncs of a slow disk, 5 s each."""


class _Log(Protocol):
    """The part of the log reported in heartbeats and registrations."""

    @property
    def end(self) -> LogOffset:
        """Log offset after the last byte of the log."""

    @property
    def confirm(self) -> LogOffset:
        """confirmOffset: the log offset before which readers may read."""

    @property
    def epochs(self) -> Epochs:
        """The epoch list."""

    @property
    def may_lead(self) -> bool:
        """Whether the log and its epochs are intact, so that this broker may be the master."""

    @property
    def health(self) -> StoreHealth:
        """Health of the store."""

    @property
    def is_sync_slow(self) -> bool | None:
        """Whether the disk is too slow for senders."""

    @property
    def why_unfit(self) -> str:
        """Reason why the store takes no messages, "" if it does."""


class Membership:
    """A broker's membership in a group whose master is elected by controllers (RocketMQ:
    ReplicasManager): joins the group, takes the roles that controllers name, and sends heartbeats.
    Loop thread only, and no method waits: a change of role is begun within the call, and a term
    begins once its epoch is on disk."""

    def __init__(
        self,
        options: MembershipOptions,
        service: HaService,
        log: _Log,
        *,
        files: Files,
        call: Call,
        wall_ms: Callable[[], int],
        steady_ms: Callable[[], int],
        on_doubt_reported: Callable[[], None],
    ) -> None:
        """`service` must use the membership's `sync_set_proposals` and `has_lease`, `files` has the
        broker's identity, `wall_ms` is ms since 1970; see ControllerRegistration for the rest."""
        self.options = options
        self.stage = Stage.JOINING
        self.own_id: int | None = None
        """The broker's id at the controllers, from 1; None until it is assigned."""
        self.on_lease: Callable[[], None] = lambda: None
        """Called after a lease began or lapsed, and the service was notified."""
        self.epoch = NO_ROLE
        """Newest epoch named by controllers, with or without a role; NO_ROLE before the first."""
        self._service, self._log = service, log
        self._wall_ms, self._steady_ms = wall_ms, steady_ms
        self._address = self._ha_address = ""
        self._stopped = self._lapsed = True
        self._retires = False
        self._retry_loop = RetryLoop(
            lambda: self.stage.value.lower(), steady_ms, options.sync_broker_metadata_period_ms
        )
        self._candidacy_veto = CandidacyVeto(steady_ms, options.controller_heart_beat_timeout_ms)
        self._standing = LastRole()
        self._reported_fitness = StoreHealth.FIT
        self._beat_again_ms = self._coming_since_ms = LONG_AGO_MS
        self._role_reason = ""
        self._unknown = False
        """Whether a controller reported that it does not know this broker."""
        self._named_ms = LONG_AGO_MS  # controllers last named another broker as the master
        self._coming: GroupState | None = None
        """The newest report on the term that is being recorded."""
        self.controllers = Controllers(
            options.controller_addr,
            call,
            steady_ms,
            options.sync_controller_metadata_period_ms,
            self._on_other_leader,
        )
        self.heartbeats = ControllerHeartbeats(
            self.controllers,
            call,
            self._make_heartbeat,
            self._on_beat_answer,
            steady_ms,
            interval_ms=options.broker_heartbeat_interval_ms,
            timeout_ms=options.controller_heart_beat_timeout_ms,
        )
        self.sync_set_proposals = SyncSetProposals(
            self.controllers,
            options.name,
            lambda: (self.own_id or 0, self.epoch),
            wall_ms,
            self.read_state_soon,
        )
        """Asks the leading controller for changes of the SyncStateSet, for the service."""
        self.master_finder = MasterLocator(call, self._follow_located, steady_ms)
        name, path = options.name, options.identity_path
        self._identity = identity = IdentityFiles(files, path, name.cluster, name.broker)
        self.registration = ControllerRegistration(
            self.controllers, identity, name, wall_ms, service, on_doubt_reported
        )

    # Life

    def start(self, address: str, ha_address: str) -> None:
        """Begin to join, with this broker's addresses `host:port` for clients and for replicas; the
        role comes later. Raises IdentityError, OSError: the identity files belong to another
        broker, or cannot be read."""
        self._identity.load()
        self._identity.load_applied()
        self._address, self._ha_address = address, ha_address
        self.registration.set_unclean_reason(self.options.last_life.loss_reason(self._log.end))
        self._stopped = False
        self.tick()

    def stop(self) -> None:
        """Stop for good: no request is sent after this, and pending answers are ignored. The role
        stays as it is."""
        self._stopped, self._coming = True, None
        self._retry_loop.close()

    def tick(self) -> None:
        """Send the requests and heartbeats that are due, and react to a lapsed lease and to the
        store's health; called every 100 ms."""
        if self._stopped:
            return
        self.controllers.tick()
        now_ms = self._steady_ms()
        self._watch_fitness()
        if self._service.is_master and not self.has_lease() and now_ms >= self._beat_again_ms:
            self._send_heartbeats_now()
        elif self._may_be_elected:
            self.heartbeats.tick()
        self._watch_lease()
        if self._coming is not None and now_ms - self._coming_since_ms > CHANGE_MAX_MS:
            self._decline_leading("the epoch was not written to the disk in time")
        self.master_finder.tick(self._is_following)
        if self._retry_loop.is_due(now_ms) and self.controllers.leader:
            if self.stage is Stage.JOINING:
                self._retry_loop.run(self._join_steps())
            else:
                self._retry_loop.run(self._read_group_state())

    # State

    @property
    def reason_without_role(self) -> str:
        """Reason why there is no role, the last role was not taken, or the last request to the
        controllers failed; "" if all is well."""
        return self._role_reason or self._retry_loop.reason

    def has_lease(self) -> bool:
        """Whether the controllers' lease is valid now: without it a master may acknowledge no
        message. A replica may hold a lease, too."""
        return self.heartbeats.has_lease

    def other_master_named_ms(self) -> int:
        """Return the time, in ms of the monotonic clock, at which controllers last named another
        broker as the master; LONG_AGO_MS if never, or if they have reported no master since."""
        return self._named_ms

    @property
    def ha_address(self) -> str:
        """This broker's own address `host:port` for replicas, set by `start`."""
        return self._ha_address

    @property
    def health(self) -> StoreHealth:
        """The health that heartbeats report: FAILED while this broker declines to lead, STOPPING
        after `report_stopping` if the store takes messages, else the store's."""
        if self._candidacy_veto.is_declining:
            return StoreHealth.FAILED
        health = self._log.health
        serves = health in (StoreHealth.FIT, StoreHealth.SLOW)
        return StoreHealth.STOPPING if self._retires and serves else health

    @property
    def has_successor(self) -> bool:
        """Whether this broker is the master with a valid lease, and controllers of this project
        could elect another member of the SyncStateSet in its place."""
        term = self._service.term
        serves = (
            isinstance(term, Leader) and self.has_lease() and self.health is not StoreHealth.FAILED
        )
        others = isinstance(term, Leader) and len(term.sync.members) > 1
        return serves and others and not self.heartbeats.leader_is_java

    def report_stopping(self) -> None:
        """Report STOPPING to the controllers, now and permanently, so that they elect another
        member. Until then this broker serves as the master; afterwards it follows no master."""
        self._retires = True
        self.tick()

    def on_notice(self, group_state: GroupState) -> None:
        """Take the role in a controller's notice (1008), if its epoch is greater than the present
        one, or its set newer. Ignored before this broker is a member (the notice may be meant for
        an earlier process), after `stop`, and without a master."""
        if not self._stopped and self.stage is Stage.MEMBER and group_state.master is not None:
            self._take_role(group_state)

    def read_state_soon(self) -> None:
        """Make the next reading of the group's state from the controllers (1004) due at the next
        tick, because it may have changed."""
        self._retry_loop.retry_soon()

    def _on_other_leader(self) -> None:
        """Read the group's state again and send heartbeats at once, because another controller
        leads."""
        self.read_state_soon()
        self.heartbeats.send_soon()
        self.tick()

    def _on_beat_answer(self, seen: BrokerHeartbeatResponse) -> None:
        """Handle a controller's answer to a heartbeat: a changed lease, an unknown broker, or news
        of the group."""
        self._watch_lease()
        if self._service.is_master and not self.has_lease() and self._may_be_elected:
            self.heartbeats.tick()  # the previous heartbeat was sent before its term
        if seen.unknown and self.stage is Stage.MEMBER and not self._unknown:
            self._unknown = True
            self.read_state_soon()
        self._read_state_if_newer(seen)

    def _read_state_if_newer(self, seen: BrokerHeartbeatResponse) -> None:
        """Make the next reading of the group's state due if a heartbeat's answer has a newer epoch
        or set: a notice may have been lost."""
        if self.stage is not Stage.MEMBER or seen.master_epoch is None:
            return
        is_other_set = (seen.sync_state_set_epoch or 0) > self._known_set_epoch
        if seen.master_epoch > self.epoch or (seen.master_epoch == self.epoch and is_other_set):
            self.read_state_soon()

    @property
    def _known_set_epoch(self) -> int:
        """Epoch of the newest SyncStateSet that this broker knows."""
        term = self._service.term
        return term.sync.set_epoch if isinstance(term, Leader) else self._standing.set_epoch

    # The lease

    def _watch_lease(self) -> None:
        """Pass the end or the return of the lease to replication, once for each change."""
        lapsed = not self.has_lease()
        if lapsed == self._lapsed:
            return
        self._lapsed = lapsed
        if lapsed:
            if self._service.is_master:
                logger.error("no controller renews the lease: sends are not acknowledged")
            self._service.on_lease_ended()
        else:
            if self._service.is_master:
                logger.info("epoch %d: the lease is valid", self.epoch)
            self._service.on_lease_granted()
        self.on_lease()

    def _send_heartbeats_now(self) -> None:
        """Send heartbeats now, and again after AGAIN_MS: a master needs a lease."""
        self._beat_again_ms = self._steady_ms() + AGAIN_MS
        self.heartbeats.send_soon()
        if self._may_be_elected:
            self.heartbeats.tick()

    def _make_heartbeat(self) -> Command:
        """Build a heartbeat with the present state of this broker and its log."""
        options, log, health = self.options, self._log, self.health
        header = BrokerHeartbeatRequest(
            options.name.cluster,
            self._address,
            options.name.broker,
            self.own_id,
            log.epochs.last_epoch,
            log.end,
            log.confirm,
            options.controller_heart_beat_timeout_ms,
            options.broker_election_priority,
            leased=True,
            unfit=None if health is StoreHealth.SLOW else health.value or None,
            standing=self._standing.value,
            sync_state_set_epoch=self._known_set_epoch,
            slow=log.is_sync_slow,
        )
        return new_request(RequestCode.BROKER_HEARTBEAT, header)

    # Requests

    def _join_steps(self) -> Steps[None]:
        """Join the group in steps: get an id, register, count as alive, and take the named role, or
        start an election."""
        broker_id = yield from self.registration.obtain_broker_id(self._address)
        if broker_id != self.own_id:
            self._service.set_broker_id(broker_id)
            self.own_id = broker_id
        group_state = yield from self._register(broker_id)
        alive = yield self.heartbeats.send_now()
        if not alive:
            raise BadResponse("the leading controller does not accept this broker's heartbeat")
        if group_state is None:
            group_state = yield from self._request_election(broker_id)
        self.stage = Stage.MEMBER
        self._take_role(group_state)

    def _register(self, broker_id: int) -> Steps[GroupState | None]:
        """Register this process at the controllers; return the group's state, None while it has no
        master. An id that they do not know is forgotten. Raises BadAnswer."""
        damaged = not self._log.may_lead
        try:
            return (
                yield from self.registration.register(broker_id, self._address, damaged=damaged)
            )
        except BadResponse as error:
            if error.code in UNKNOWN_BROKER:
                self._rejoin_with_new_id()
                yield from self.registration.forget_broker_id(broker_id)
            raise

    def _request_election(self, broker_id: int) -> Steps[GroupState]:
        """Ask the controllers to elect a master; return the group's state with it. Raises
        BadAnswer."""
        request = controller_protocol.elect_request(self.options.name, broker_id, self._wall_ms())
        response: Command | str = yield self.controllers.ask(request)
        try:
            return controller_protocol.read_elected(response)
        except BadResponse as error:
            self._unknown = error.code in UNKNOWN_BROKER
            raise

    def _read_group_state(self) -> Steps[None]:
        """Read the group's state from the controllers (1004), and take the role in it; a broker
        that they do not know joins again."""
        assert self.own_id is not None, "a member has an id"
        if self._unknown:
            self._unknown = False
            yield from self._register(self.own_id)
        if not self._log.may_lead and not self.registration.reported_damage:
            yield from self._register(self.own_id)
            if self._service.is_master:
                self._decline_leading("its log is damaged")
        response = yield self.controllers.ask(
            controller_protocol.replica_info_request(self.options.name)
        )
        try:
            group_state = controller_protocol.read_replica_info(response)
        except BadResponse as error:
            if error.code not in UNKNOWN_BROKER:
                raise
            found = yield from self._register(self.own_id)
            group_state = found or GroupState(self.epoch)
        if group_state.master is None:
            self._on_no_master(group_state)
            if self._candidacy_veto.is_silent or self.health is StoreHealth.FAILED:
                return
            alive: bool = yield self.heartbeats.send_now()
            if not alive:
                raise BadResponse("the leading controller does not accept this broker's heartbeat")
            group_state = yield from self._request_election(self.own_id)
        self._take_role(group_state)

    # Roles

    @property
    def _is_following(self) -> bool:
        """Whether this broker receives a master's log now."""
        follower = self._service.follower
        return follower is not None and follower.machine.state is State.TRANSFER

    @property
    def _may_be_elected(self) -> bool:
        """Whether heartbeats may be sent: with them the log counts as whole. Before that the
        controllers must have agreed on the log's state (unclean, damaged), because any of them may
        begin to lead between a heartbeat and the registration."""
        registration = self.registration
        is_reported = registration.registered and (
            registration.reported_damage or self._log.may_lead
        )
        return is_reported and not self._candidacy_veto.is_silent

    def _rejoin_with_new_id(self) -> None:
        """Leave the role and join again under another id, because the controllers do not know this
        broker."""
        self.stage, self.epoch, self.own_id = Stage.JOINING, NO_ROLE, None
        self.registration.registered, self._coming, self._unknown = False, None, False
        self.master_finder.locate_master("")
        self._service.leave_role()

    def _on_no_master(self, group_state: GroupState) -> None:
        """Handle a report that the group has no master: in a greater epoch this broker has no
        role."""
        self._named_ms = LONG_AGO_MS  # controllers last named another broker as the master
        if group_state.epoch > self.epoch:
            self.epoch = group_state.epoch
            self._become_replica("")

    def _take_role(self, group_state: GroupState) -> None:
        """Take the role in a controller's report if its epoch is greater than the present one, or
        its SyncStateSet if that is newer; late and repeated reports have no effect (K7). If the
        report names this broker in an epoch in which its term has ended, it declines to lead."""
        term = self._service.term
        if group_state.master is not None and group_state.master != self.own_id:
            self._named_ms = self._steady_ms()
        if group_state.epoch >= self.epoch:
            self._standing.note_group_state(group_state, self.epoch, self.own_id)
        if group_state.epoch > self.epoch:
            self.epoch = group_state.epoch
            if group_state.master == self.own_id:
                self._begin_leading(group_state)
            else:
                self._become_replica(group_state.address)
        elif group_state.epoch < self.epoch:
            return
        elif self._coming is not None:
            if group_state.master == self.own_id and group_state.set_epoch > self._coming.set_epoch:
                self._coming = group_state
        elif isinstance(term, Leader) and group_state.master == self.own_id:
            term.on_set(group_state.members, group_state.set_epoch, self._steady_ms())
        elif (
            term is None
            and group_state.master != self.own_id
            and group_state.address != self.master_finder.address
        ):
            self._become_replica(group_state.address)  # the same master, at another address (R30)
        elif (
            term is None
            and group_state.master == self.own_id
            and not self._candidacy_veto.is_abstaining
        ):
            # No controller led while it was silent, or none missed it: no other was elected.
            self._decline_leading(self._role_reason or "this broker's leadership ended")

    def _begin_leading(self, group_state: GroupState) -> None:
        """Begin to become the master of the reported epoch; `_on_epoch_recorded` is called once the
        epoch is on disk."""
        self.master_finder.locate_master("")
        self.heartbeats.begin_term()
        self._lapsed = True
        self._service.on_lease_ended()
        self._coming, self._coming_since_ms = group_state, self._steady_ms()
        try:
            later = self._service.to_master(
                group_state.epoch, group_state.members, group_state.set_epoch
            )
        except (StoreError, OSError) as error:
            self._decline_leading(str(error))
            return
        later.then(lambda error: self._on_epoch_recorded(group_state.epoch, error))

    def _on_epoch_recorded(self, epoch: int, error: StoreError | OSError | None) -> None:
        """Handle the result of recording the epoch: the term begins, or this broker declines."""
        coming = self._coming
        if coming is None or coming.epoch != epoch:
            return
        self._coming = None
        if error is not None:
            self._decline_leading(str(error))
            return
        self._role_reason = ""
        self._standing.note_master()
        self._candidacy_veto.on_term_begun()
        term = self._service.term
        if isinstance(term, Leader) and coming.set_epoch > term.sync.set_epoch:
            self._take_role(coming)
        self._send_heartbeats_now()

    def _watch_fitness(self) -> None:
        """Report a changed health of the store to the controllers at once; a master with a failed
        store declines if the controllers are RocketMQ's."""
        self._candidacy_veto.on_epoch(self.epoch)
        health, reported = self.health, self._reported_fitness
        self._reported_fitness = health
        if health is not reported:
            logger.warning("reported to the controllers: %s", self._reason_of_health(health))
            self.heartbeats.send_soon()
            if self.stage is Stage.MEMBER:
                self.read_state_soon()  # damage is reported by a registration, before any heartbeat
        failed = health is StoreHealth.FAILED and self._service.is_master
        if failed and self.heartbeats.leader_is_java and not self._candidacy_veto.is_silent:
            self._decline_leading(self._log.why_unfit)

    def _reason_of_health(self, health: StoreHealth) -> str:
        """Reason of the health, as a text for the log."""
        if health is StoreHealth.FIT:
            return "fit again"
        if health is StoreHealth.SLOW:
            return "the disk of the log is slow"
        return self._log.why_unfit or self._role_reason or "this broker is about to stop"

    def _decline_leading(self, reason: str) -> None:
        """Do not lead in this epoch, and report that: controllers elect another broker, or this
        broker for a later epoch."""
        logger.error("this broker does not lead epoch %d: %s", self.epoch, reason)
        if self.heartbeats.leader_is_java:
            self._candidacy_veto.suppress_heartbeats()
            self.heartbeats.lease_until_ms = LONG_AGO_MS
        else:
            self._candidacy_veto.decline_epoch(self.epoch)
        self._become_replica("")
        self._role_reason = reason
        self.heartbeats.send_soon()
        if self._may_be_elected:
            self.heartbeats.tick()

    def _become_replica(self, address: str) -> None:
        """Become a replica, and look for the HA address of the master whose address for clients is
        `address`; "" for no master."""
        self._role_reason, self._coming = "", None
        address = "" if self._retires else address
        try:
            self._service.to_replica("", self.epoch)
        except (StoreError, OSError) as error:
            logger.error("this broker cannot follow a master: %s", error)
            self._role_reason = str(error)
            return
        self.master_finder.locate_master(address)

    def _follow_located(self, ha_address: str, fenced: bool) -> None:
        """Follow the master whose HA address was found; `fenced` as in MasterLocator."""
        if self._service.term is None and not self._stopped:
            try:
                self._service.to_replica(ha_address, self.epoch, fenced=fenced)
            except (StoreError, OSError) as error:
                logger.error("the master at %s cannot be followed: %s", ha_address, error)
