"""Connection of replication to the rest of a broker: the store, the role, the name servers.

Owns the decision whether a broker replicates, and the consequences of a change of role. It must
never decide which broker is master: the configuration, the group file or the controllers do, and
`broker/ha` carries it out. node.py and the simulator, with its own network, start and tick it.

    controllers (Membership), name server, group file -> HaService -> the store changes sides ->
    tables -> Role -> sends, registration

Tests: tests/integration/broker/test_ha.py, tests/unit/broker/config/test_config.py
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Protocol

from turbopump.broker.config.config import BrokerConfig
from turbopump.broker.context import BrokerContext
from turbopump.broker.ha.acting.acting_group import ActingGroup
from turbopump.broker.ha.control import previous_shutdown
from turbopump.broker.ha.control.controller_protocol import BrokerGroupName
from turbopump.broker.ha.control.membership import Membership
from turbopump.broker.ha.control.options import MembershipOptions
from turbopump.broker.ha.control.previous_shutdown import PreviousShutdown
from turbopump.broker.ha.leader import MasterTerm
from turbopump.broker.ha.leadership_handover import LeadershipHandover
from turbopump.broker.ha.metadata.pulling import MetadataFollower
from turbopump.broker.ha.options import HaOptions
from turbopump.broker.ha.service import HaService, ListeningTransport
from turbopump.broker.ha.sockets import ConnectionEvents, Sockets
from turbopump.broker.registration.registration import Registration
from turbopump.engine.deferred import Deferred
from turbopump.engine.disk.files import Files
from turbopump.engine.disk.flush import Disk
from turbopump.engine.types import LONG_AGO_MS, FlushMode
from turbopump.net.ha.replica import State
from turbopump.net.wire.command import Command
from turbopump.net.wire.hosts import join, split_host_port
from turbopump.net.wire.route import MASTER_ID

logger = logging.getLogger(__name__)

LOOK_MS = 1_000
"""Interval in ms of registrations by a replica that does not know its master's address yet."""
LOOK_AGAIN_MS = 5_000
"""Interval in ms for a replica that lost its master, which may return at another address."""


class Requester(Protocol):
    """Sends requests to other nodes (net/transport/calls.py)."""

    def __call__(self, address: str, request: Command, timeout_ms: int) -> Deferred[Command | str]:
        """Send a request to `host:port`; resolves to the answer of any code, or to the reason why
        it is missing."""
        ...

    def next_turn(self) -> Deferred[None]:
        """Return a Deferred that resolves in the loop's next turn."""
        ...

    async def stop(self) -> None:
        """End the calls in progress: they never resolve."""
        ...


class ReplicationSetup:
    """The replication of a broker: makes its parts, connects them with the store, the role and the
    name servers, and applies changes of the role. Loop thread only."""

    def __init__(
        self,
        context: BrokerContext,
        *,
        files: Files,
        disk: Disk,
        now_ms: Callable[[], int],
        calls: Requester,
        life: PreviousShutdown,
        options: HaOptions,
        shell: Callable[[ConnectionEvents], ListeningTransport] = Sockets,
    ) -> None:
        """Make the parts and set them in `context`; the log is not written until `start`, but with
        controllers the file of previous_shutdown.py is. `calls` asks other nodes, `now_ms` returns
        the wall clock in ms since 1970, `life` is the end of the broker's last run, `options` come
        from `options_of`, `shell` makes the connections of replicas. Raises StoreError."""
        config = context.config
        self._context = context
        log = context.store.as_replicated(now_ms(), plain=not config.replication.has_elections)
        self._calls = calls
        steady_ms = context.steady_ms
        self.service = HaService(options, log, files, disk, now_ms, steady_ms, shell=shell)
        """The broker's role and its connections."""
        self.membership: Membership | None = None
        """Membership in a group with controllers; None without controllers."""
        self._handover: LeadershipHandover | None = None
        if config.replication.is_elected:
            previous_shutdown.record_boot(files, config.store, life.loss_reason(log.end))
            self.membership = Membership(
                membership_options(config, life),
                self.service,
                log,
                files=files,
                call=calls,
                wall_ms=now_ms,
                steady_ms=steady_ms,
                on_doubt_reported=partial(previous_shutdown.write, files, config.store, ""),
            )
            self._connect_controllers(self.membership)
            self._handover = LeadershipHandover(self.membership, self.service, steady_ms)
        self.service.on_role.append(self._on_role_changed)
        log.on_appended.append(self.service.on_log_grown)
        self._now_ms = now_ms
        self.metadata = MetadataFollower(context, calls, log=log, pause=calls.next_turn)
        """Copying of the master's tables."""
        log.on_cut.append(lambda: self.metadata.on_truncated(now_ms()))
        self.service.on_link.append(self.metadata.link_changed)
        self._known_master: tuple[str, str] = ("", "")
        context.ha = self.service
        context.role.has_master = self._has_master
        self.acting: ActingGroup | None = None
        """Replicas that act for their master; None without enableSlaveActingMaster."""
        if config.replication.enable_slave_acting_master:
            self._set_up_acting()

    async def start(self) -> None:
        """Open the port for replicas and take the configured role; with controllers there is no
        role yet. Raises OSError, StoreError."""
        await self.service.start()
        logger.info("replicas find this broker at port %d", self.service.port)

    def tick(self) -> None:
        """Do the periodic work of all parts; called every 100 ms."""
        self.service.tick()
        if self.membership is not None:
            self.membership.tick()
        self._follow_tables()
        self.metadata.tick(self._now_ms(), self._context.steady_ms())
        if self._handover is not None:
            self._handover.resolve_if_ended()
        if self.acting is not None:
            self.acting.tick()

    def hand_over(self) -> Deferred[None]:
        """Before a stop: have controllers elect another master while this broker still serves.
        Resolves when another broker is the master or no other can be, after HAND_OVER_MS of
        leadership_handover.py at the latest; at once without controllers."""
        if self._handover is not None:
            return self._handover.hand_over()
        return Deferred.resolved(None)

    async def stop(self) -> None:
        """Stop all parts and close all connections; pending sends are answered
        SERVICE_NOT_AVAILABLE. The store stays open."""
        self.metadata.shut_down()
        if self.acting is not None:
            self.acting.stop()
        if self.membership is not None:
            self.membership.stop()
        await self._calls.stop()
        await self.service.stop()

    def register(self, registration: Registration) -> None:
        """Set the address for replicas in `registration`, and begin to join the controllers' group,
        or without controllers to learn the master's address from registrations' answers. To be
        called once, after `start`. Raises IdentityError, OSError."""
        host, _ = split_host_port(registration.ha_address)
        registration.ha_address = self._context.ha_address = join(host, self.service.port)
        if self.membership is not None:
            self.membership.start(self._context.address, registration.ha_address)
        else:
            registration.on_master = self._follow_registered_master

    def on_registration_lost(self) -> None:
        """Handle that a name server may have forgotten this broker: a master whose replicas may
        have acted for it asks them for offsets. No-op otherwise."""
        if self.acting is not None:
            self.acting.on_registration_lost()

    @property
    def master_search_ms(self) -> int | None:
        """Interval in ms of the additional registrations by which a replica of default HA finds its
        master; None if no such registration is needed."""
        replication, service = self._context.config.replication, self.service
        if (
            service.is_master
            or replication.has_elections
            or replication.ha_master_address
            or self._has_master()
        ):
            return None
        if self.acting is not None:
            return LOOK_MS if self.acting.looks_for_master else None
        return LOOK_AGAIN_MS if service.master_address else LOOK_MS

    def _has_master(self) -> bool:
        """Whether this replica receives a master's log now."""
        follower = self.service.follower
        return follower is not None and follower.machine.state is State.TRANSFER

    def _follow_registered_master(self, address: str, ha_address: str) -> None:
        """Follow the master in a registration's answer: its log at `ha_address`, and its tables at
        `address`."""
        self._known_master = (address, ha_address)
        self.service.set_master_address(ha_address)
        self._follow_tables()

    def _follow_tables(self) -> None:
        """Have the tables copied from the broker whose log is followed. Its client address comes
        from a name server together with its HA address; without it, it is the port before the HA
        port."""
        service = self.service
        if service.is_master:
            return
        address, ha_address = self._known_master
        followed = service.master_address
        if self.membership is not None:
            address = self.membership.master_finder.address
        elif followed and followed != ha_address:
            host, port = split_host_port(followed)
            address = join(host, port - 1)
        steady_ms = self._context.steady_ms()
        self.metadata.begin_following(address if followed else "", service.epoch, steady_ms)

    def _on_role_changed(self) -> None:
        """Apply the role of replication to the rest of the broker: tables, then the role for
        sends."""
        context, term, acting = self._context, self.service.term, self.acting
        if acting is not None and self._must_clients_wait(acting, term):
            return  # its replicas may copy, its clients have to wait
        if term is not None:
            self.metadata.begin_leading(self.service.epoch, self._now_ms())
            context.role.become_master(term)
        else:
            context.role.become_replica(max(self.service.options.own_id, MASTER_ID + 1))
            self._follow_tables()
            if self._handover is not None:
                self._handover.resolve_if_ended()

    def _must_clients_wait(self, acting: ActingGroup, term: MasterTerm | None) -> bool:
        """Whether clients must still wait although the term has begun, because replicas that may
        have acted are asked first."""
        if term is None:
            acting.on_deposed()
            return False
        if self.membership is not None:
            return acting.on_elected(term)
        return acting.waits_to_lead

    def _set_up_acting(self) -> None:
        """Let replicas act while the master is gone, and until the master has their progress
        (RIP-32)."""
        context, membership = self._context, self.membership
        self.acting = acting = ActingGroup(
            *(context, self.service, self._calls, self._calls.next_turn),
            *(self._now_ms, self._has_master),
            on_acts=lambda: self.metadata.create_from_store(self._now_ms()),
            on_master_reported=self._note_master,
            named_ms=(lambda: LONG_AGO_MS)
            if membership is None
            else membership.other_master_named_ms,
            ask_controllers=(lambda: None) if membership is None else membership.read_state_soon,
        )
        acting.on_online = self._on_role_changed
        context.acting = acting
        if membership is not None:
            membership.on_lease = acting.acting_state.update_acting
        # Clients that still take this broker for the master must not be redirected to it.
        context.role.has_master = lambda: (
            self._has_master() and not acting.acting_state.may_get_clients
        )

    def _note_master(self, address: str, ha_address: str) -> None:
        """Remember the addresses of the master that returns."""
        self._known_master = (address, ha_address)

    def _connect_controllers(self, membership: Membership) -> None:
        """Use the controllers' lease, and propose SyncStateSets to the controllers."""
        role, service = self._context.role, self.service
        service.sync_set_proposals = membership.sync_set_proposals
        service.lease = role.has_lease = membership.has_lease
        self._context.membership = membership


def options_of(config: BrokerConfig) -> HaOptions:
    """Return the options of replication from the configuration; haListenPort 0 becomes listenPort +
    1 (0, a free port, if listenPort is 0)."""
    replication = config.replication
    behind = config.listen_port + 1 if config.listen_port else 0
    return HaOptions(
        **{**replication.by_attribute(), "ha_listen_port": replication.ha_listen_port or behind},
        own_id=config.broker_id,
        bind_address=config.bind_address,
        sync_flush=config.store.flush_disk_type is FlushMode.SYNC_FLUSH,
    )


def membership_options(config: BrokerConfig, life: PreviousShutdown) -> MembershipOptions:
    """Return the options of a member in a group with controllers, from the configuration; `life` is
    the store's state before it was opened."""
    replication = config.replication
    return MembershipOptions(
        **replication.by_attribute(),
        name=BrokerGroupName(config.broker_cluster_name, config.broker_name),
        identity_path=replication.store_path_broker_identity
        or f"{config.store.root}/brokerIdentity",
        last_life=life,
    )
