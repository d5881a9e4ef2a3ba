"""A master at work for one term: its replicas' connections, the set in sync, safe offsets.

Owns the machines of the connections and the order in which an acknowledgement takes effect: the
SyncStateSet, confirmOffset, readers, senders. It passes to the pending sends (engine: PendingSends)
how many copies one needs, and the offset up to which the log has that many.

    withheld --first lease--> confirming --lease lost--> withheld (pending sends fail)
    any state --end--> over (connections are cut, pending sends fail)

At the end of the term or its lease pending sends fail, and are not released: a copy on
the master alone is not the promised safety (RocketMQ releases them, and loses them). The next term
has a new `Leader`, so acknowledgements of old connections do not count in it. No socket and no
clock is used: `service` or the simulator drives a term. Times are of the monotonic clock; stored
times come from `wall_ms`.

Under SYNC_FLUSH a byte of the master's counts once it is durable, as a replica's does.

All methods run on the loop thread and return at once; none raises. Effects on senders and readers
happen before a call returns: their callbacks run inside it, and may even end the term.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from turbopump.broker.ha.ports import (
    Agreed,
    Alterations,
    ProposalOutcome,
    ProposalRefused,
    ReplicatedLog,
    Transport,
)
from turbopump.broker.replication import ByteRate, LeaderStatus, ReplicaStatus
from turbopump.engine.types import Buffer, LogOffset, PutStatus, StoreError
from turbopump.net.ha.acks import AckRules, Copies, copies_needed, safe_end
from turbopump.net.ha.actions import Acked, Action, Close, Send, SendLog
from turbopump.net.ha.primary import MasterSide, PrimaryConnection, PrimaryOptions
from turbopump.net.ha.replica import State
from turbopump.net.ha.sync_state import Proposal, SyncOptions, SyncState

logger = logging.getLogger(__name__)

QUOTA_MS = 1000
"""Period in ms of a replica's quota of bytes (RocketMQ: FlowMonitor)."""
CONNECTIONS_MAX = 64
"""Maximum of connections of replicas, including dead ones not yet detected. For one more, the
oldest connection without an acknowledgement is closed; if all have acknowledged, the new one is
refused."""


@dataclass(slots=True, frozen=True)
class LeaderOptions:
    """Options of a master in replication; names are RocketMQ's keys where it has one."""

    primary: PrimaryOptions = field(default_factory=PrimaryOptions)
    """Batch size and intervals of each replica's connection."""
    max_ha_transfer_byte_in_second: int | None = None
    """Bytes per second for each replica; None without haFlowControlEnable."""
    counts_durable: bool = False
    """SYNC_FLUSH: bytes count once they are durable."""
    slave_timeout_ms: int = 3000
    """Maximum time in ms that a send waits for replicas (slaveTimeout)."""


@dataclass(slots=True)
class ReplicaLink:
    """A replica's connection at its master, with the connection's state machine."""

    connection: int
    """The transport's number of the connection."""
    machine: MasterSide
    """State machine of the master's side of the connection."""
    broker_id: int | None = None
    """Id of the replica; None before the handshake, and always in default HA."""
    joined: bool = False
    """Whether the handshake was accepted; always False in default HA."""
    rate: ByteRate = field(default_factory=lambda: ByteRate(0))
    """Rate of the bytes of the log sent to the replica."""


@dataclass(slots=True, frozen=True, kw_only=True)
class MasterTermDeps:
    """The dependencies of a master's term, and the time at which it begins."""

    log: ReplicatedLog
    """The log, which already takes messages as a master's."""
    rules: AckRules
    """Rules for the number of copies that a message needs."""
    options: LeaderOptions
    """Limits and intervals."""
    transport: Transport
    """The connections of replicas."""
    wall_ms: Callable[[], int]
    """Returns the wall clock in ms since 1970."""
    now_ms: int
    """Begin of the term, in ms of the monotonic clock."""
    has_lease: Callable[[], bool] = lambda: True
    """Returns whether the lease is valid: without it no send is acknowledged, whatever its
    copies."""


class MasterTerm(ABC):
    """A master's term, as both protocols (AutoSwitch HA and default HA) share it: serves the
    connections of replicas, moves confirmOffset and releases sends. Loop thread only."""

    def __init__(self, deps: MasterTermDeps, copies: Copies) -> None:
        """Begin the term; sends that are already pending fail. `copies` reports the replicas'
        acknowledged offsets."""
        log, options, now_ms = deps.log, deps.options, deps.now_ms
        self.rules = deps.rules
        """Rules for new sends; changed by `reconfigure`."""
        self.options = options
        """Limits and intervals; changed by `reconfigure`."""
        self.links: dict[int, ReplicaLink] = {}
        """The replicas' open connections by number, the oldest first."""
        self.has_ended = False
        """Whether `end_term` was called."""
        self._log = log
        self._transport = deps.transport
        self._copies = copies
        self._wall_ms = deps.wall_ms
        self._holds = deps.has_lease
        self._needs: list[int] = []
        """The different numbers of copies that sends of this term needed."""
        self._now_ms = now_ms
        self._quota_at_ms = now_ms
        self._fail_pending_sends()
        log.pending.replica_wait_ms = options.slave_timeout_ms
        self._release_sends()
        if options.counts_durable:
            log.on_flushed.append(self._on_flushed)

    # Sends

    @abstractmethod
    def copies_needed(self) -> int | None:
        """Return how many copies, the master's included, a message written now needs, or
        `acks.ALL` (-1) for every member of the set; None: there are not enough replicas, and the
        message is refused (IN_SYNC_REPLICAS_NOT_ENOUGH)."""

    def on_lease_ended(self) -> None:
        """Handle the end of the lease: pending sends are answered SERVICE_NOT_AVAILABLE now,
        because their outcome is unknown, and no send is acknowledged until `on_lease_granted`;
        connections and the term go on."""
        if not self.has_ended:
            self._fail_pending_sends()

    def on_lease_granted(self) -> None:
        """Handle a new lease, or the first one: readers and sends are released as far as the
        replicas' acknowledgements allow."""
        self._confirm_then_release()

    def reconfigure(self, rules: AckRules, options: LeaderOptions) -> None:
        """Use other rules and limits; pending sends keep their number of copies, and open
        connections their byte quota until its next period."""
        self.rules, self.options = rules, options
        self._log.pending.replica_wait_ms = options.slave_timeout_ms
        for link in self.links.values():
            link.machine.options = options.primary
        self._release_sends()

    def pump(self, now_ms: int) -> None:
        """Move confirmOffset, release sends and readers, and send the log's growth to replicas. To
        be called once for all appends of a turn of the loop."""
        self._now_ms = now_ms
        if not self.has_ended:
            self._confirm_then_release()
            self._pump_all(now_ms)

    # Events of the transport; events of an earlier connection are ignored

    def on_connected(self, connection: int, now_ms: int) -> None:
        """Serve a replica's new connection. With CONNECTIONS_MAX connections, the oldest without an
        acknowledgement is closed in its place. The new one is closed if all have acknowledged, the
        term has ended, or the log is damaged."""
        if self.has_ended or self._log.damage is not None:
            # No replica may copy from a damaged log.
            self._transport.close(connection)
            return
        if len(self.links) >= CONNECTIONS_MAX:
            # To keep replicas out a peer has to keep connecting.
            oldest = next((one for one in self.links.values() if one.machine.acked < 0), None)
            if oldest is None:
                self._transport.close(connection)
                return
            self._execute_actions(
                oldest, oldest.machine.close("a new connection needs its place"), now_ms
            )
        link = ReplicaLink(connection, self._make_machine(connection, now_ms))
        link.machine.quota = self.options.max_ha_transfer_byte_in_second
        self.links[connection] = link

    def on_bytes(self, connection: int, data: Buffer, now_ms: int) -> None:
        """Handle bytes of a replica (handshake, acknowledgements), and release the sends and
        readers that waited for them. The buffer of `data` may be reused after the call."""
        link = self.links.get(connection)
        if link is not None:
            self._execute_actions(link, link.machine.on_bytes(data, now_ms), now_ms)
            if self._confirm_then_release():
                self._pump_all(now_ms)  # readers of replicas are woken, too

    def on_writable(self, connection: int, now_ms: int) -> None:
        """Resume sending to a replica whose connection takes more bytes."""
        link = self.links.get(connection)
        if link is not None:
            self._execute_actions(link, link.machine.on_writable(True, now_ms), now_ms)

    def on_closed(self, connection: int, reason: str, now_ms: int) -> None:
        """Remove a replica's connection that the peer or the network closed; `reason` is
        logged."""
        link = self.links.get(connection)
        if link is not None:
            link.machine.close(reason)
            self._remove_link(link, reason, now_ms)
            self._confirm_then_release()

    def on_tick(self, now_ms: int) -> None:
        """Send heartbeats, close silent connections, grant the next second's byte quota, and
        propose to remove slow members; to be called several times a second."""
        self._now_ms = now_ms
        if self.has_ended:
            return
        if self._log.damage is not None:
            for link in list(self.links.values()):
                self._execute_actions(link, link.machine.close("the log is damaged"), now_ms)
        if now_ms - self._quota_at_ms >= QUOTA_MS:
            self._quota_at_ms = now_ms
            for link in self.links.values():
                link.machine.quota = self.options.max_ha_transfer_byte_in_second
        for link in list(self.links.values()):
            self._execute_actions(link, link.machine.on_tick(now_ms), now_ms)
        self._on_protocol_tick(now_ms)
        self._confirm_then_release()

    def end_term(self, status: PutStatus = PutStatus.SERVICE_NOT_AVAILABLE) -> None:
        """End the term for good: all connections are cut, then pending sends are answered `status`;
        a second call has no effect."""
        if self.has_ended:
            return
        self.has_ended = True
        if self._on_flushed in self._log.on_flushed:
            self._log.on_flushed.remove(self._on_flushed)
        for link in self.links.values():
            link.machine.close("this broker's leadership ended")
            self._transport.close(link.connection)
            self._log.unprotect_files(link.connection)
        self.links.clear()
        self._fail_pending_sends(status)

    @abstractmethod
    def status(self, address_of: Callable[[int], str], now_ms: int) -> LeaderStatus:
        """Return a snapshot of all connections; `address_of` maps a connection's number to its
        `ip:port`."""

    # Methods of a protocol

    @abstractmethod
    def _make_machine(self, connection: int, now_ms: int) -> MasterSide:
        """Make the state machine of a replica's new connection."""

    @abstractmethod
    def _on_acked(self, link: ReplicaLink, acked: Acked, now_ms: int) -> None:
        """Handle the log offset up to which a replica has acknowledged."""

    @abstractmethod
    def _on_gone(self, link: ReplicaLink, now_ms: int) -> None:
        """Handle that a replica's connection is closed."""

    @abstractmethod
    def _on_protocol_tick(self, now_ms: int) -> None:
        """Do the periodic work of the protocol."""

    @abstractmethod
    def _confirmed_end(self, log_end: LogOffset) -> LogOffset:
        """Return confirmOffset for a log of which the part up to `log_end` counts as written."""

    # Internals

    def _on_flushed(self, _log_end: LogOffset) -> None:
        """Release sends and readers, because more of the log is durable."""
        self.pump(self._now_ms)

    def _pump_all(self, now_ms: int) -> None:
        """Send the log's growth to all replicas."""
        for link in list(self.links.values()):
            self._execute_actions(link, link.machine.send_available(now_ms), now_ms)

    def _confirm_then_release(self) -> bool:
        """Move confirmOffset, then acknowledge sends, so that a sender that reads back its message
        finds it. Return whether confirmOffset moved."""
        if self.has_ended:
            return False
        log = self._log
        confirmed = self._confirmed_end(log.flushed if self.options.counts_durable else log.end)
        moved = confirmed > log.confirm and log.confirm_to(confirmed, self._wall_ms())
        self._release_sends()
        return moved and not self.has_ended

    def _release_sends(self) -> None:
        """Pass to the pending sends the number of copies that new sends need, and for each number
        needed in this term the log offset up to which there are as many copies. A callback may do
        anything, even end the term."""
        pending, need, holds = self._log.pending, self.copies_needed(), self._holds()
        if need is not None and need not in (0, 1) and need not in self._needs:
            self._needs.append(need)
        if holds or not pending.withheld:
            pending.ask_for(need if holds else None)
        least = self.rules.min_in_sync_replicas
        for each in tuple(self._needs):
            if self.has_ended:
                return
            pending.replicated_to(each, safe_end(self._copies, each, least) if holds else -1)

    def _fail_pending_sends(self, status: PutStatus = PutStatus.SERVICE_NOT_AVAILABLE) -> None:
        """Fail pending sends with `status`; no send is acknowledged until copies are reported
        again."""
        self._log.pending.withhold(status)

    def _execute_actions(self, link: ReplicaLink, actions: list[Action], now_ms: int) -> None:
        """Execute the actions of a connection's machine; of several acknowledgements in a read only
        the last one counts."""
        self._now_ms = now_ms
        if refusal := self._note_handshake(link, now_ms):
            actions = link.machine.close(refusal)
        buffers: list[Buffer] = []
        acked: Acked | None = None
        for action in actions:
            match action:
                case Send(data):
                    buffers.append(data)
                case SendLog(header, log_offset, size):
                    try:
                        views = self._log.view(log_offset, size)
                    except (StoreError, OSError) as error:
                        self._close_link(link, f"the log cannot be read: {error}", now_ms)
                        return
                    buffers += [header, *views]
                    link.rate.count_bytes(size, now_ms)
                case Acked():
                    acked = action
                case Close(reason):
                    self._close_link(link, reason, now_ms)
                    return
                case _:
                    raise AssertionError(f"a master has no action {action}")
        if acked is not None:
            self._log.protect_files(link.connection, acked.log_offset)
            self._on_acked(link, acked, now_ms)
        if buffers and not self._transport.send(link.connection, buffers):
            self._execute_actions(link, link.machine.on_writable(False, now_ms), now_ms)

    def _note_handshake(self, link: ReplicaLink, now_ms: int) -> str:
        """Handle a replica's handshake, if it just came; return why it is refused, or ""."""
        return ""

    def _close_link(self, link: ReplicaLink, reason: str, now_ms: int) -> None:
        """Close a replica's connection; `reason` is logged."""
        link.machine.close(reason)
        self._transport.close(link.connection)
        self._remove_link(link, reason, now_ms)

    def _remove_link(self, link: ReplicaLink, reason: str, now_ms: int) -> None:
        """Remove a replica's connection, if it is not removed yet; the log files that it needs are
        no longer protected."""
        if self.links.pop(link.connection, None) is not None:
            logger.info("replica %s: connection closed, %s", link.broker_id, reason)
            self._log.unprotect_files(link.connection)
            self._on_gone(link, now_ms)


class Leader(MasterTerm):
    """A master's term in AutoSwitch HA, with epochs and a SyncStateSet; the epoch is durable before
    the term is made."""

    def __init__(
        self,
        deps: MasterTermDeps,
        sync: SyncOptions,
        alterations: Alterations,
        *,
        members: frozenset[int],
        set_epoch: int,
        epoch_start: LogOffset,
    ) -> None:
        """`members` (broker ids, this master's included) and `set_epoch` describe the first
        SyncStateSet; `epoch_start` is the log offset at which this master's epoch begins."""
        log = deps.log
        self.sync = SyncState(sync, members, set_epoch, epoch_start, log.confirm, deps.now_ms)
        """The SyncStateSet in force and the replicas' positions."""
        self.set_changes = 0
        """Number of changes of the set's members in this term."""
        self._begun = False
        self._alterations = alterations
        self.sync.on_log(log.flushed if deps.options.counts_durable else log.end)
        super().__init__(deps, self.sync)

    def copies_needed(self) -> int | None:
        """Return the number of copies by the present size of the SyncStateSet; see MasterTerm."""
        return copies_needed(self.rules, self.sync.in_sync_count)

    def on_set(self, members: frozenset[int], set_epoch: int, now_ms: int) -> None:
        """Use the controller's set, from a notice (1008) or an answer (1004), and release sends
        that its members allow; a set that is not newer than the present one is ignored."""
        self._now_ms = now_ms
        if not self.has_ended:
            self._adopt_sync_set(members, set_epoch, now_ms)
            self._confirm_then_release()

    def status(self, address_of: Callable[[int], str], now_ms: int) -> LeaderStatus:
        """Return the replicas and the SyncStateSet; see MasterTerm."""
        sync = self.sync
        replicas = tuple(
            ReplicaStatus(
                address_of(link.connection),
                link.broker_id,
                link.machine.acked,
                link.machine.next,
                link.broker_id in sync.members,
                sync.is_learner(link.broker_id) if link.broker_id is not None else False,
                sync.behind_ms(link.broker_id, now_ms) if link.broker_id is not None else 0,
                link.rate.per_second(now_ms),
            )
            for link in self.links.values()
        )
        return LeaderStatus(replicas, sync.members, sync.set_epoch)

    def _make_machine(self, connection: int, now_ms: int) -> MasterSide:
        """Make the state machine of a replica's new connection."""
        return PrimaryConnection(self.options.primary, self._log, now_ms)

    def _note_handshake(self, link: ReplicaLink, now_ms: int) -> str:
        """Handle a replica's handshake, once: earlier connections of the same replica are closed.
        Return why it is refused, or ""."""
        machine = link.machine
        assert isinstance(machine, PrimaryConnection)
        replica = machine.replica
        if link.joined or replica is None or machine.state is State.SHUTDOWN:
            return ""
        if replica.broker_id == self.sync.options.own_id:
            return f"its id {replica.broker_id} is this master's"
        link.broker_id, link.joined = replica.broker_id, True
        for other in list(self.links.values()):
            if other is not link and other.broker_id == replica.broker_id:
                # Its replica left it; acknowledgements there no longer count.
                self._execute_actions(
                    other, other.machine.close("its replica opened another connection"), now_ms
                )
        self.sync.on_connected(replica.broker_id, link.connection, replica.async_learner, now_ms)
        return ""

    def _on_acked(self, link: ReplicaLink, acked: Acked, now_ms: int) -> None:
        """Pass an acknowledgement to the SyncStateSet, which may propose a new member."""
        connection, log_offset = link.connection, acked.log_offset
        self._propose(self.sync.on_ack(acked.broker_id, connection, log_offset, now_ms))

    def _on_gone(self, link: ReplicaLink, now_ms: int) -> None:
        """Note in the SyncStateSet that a replica's connection is closed."""
        if link.joined and link.broker_id is not None:
            self._propose(self.sync.on_disconnected(link.broker_id, link.connection, now_ms))

    def _on_protocol_tick(self, now_ms: int) -> None:
        """Let the SyncStateSet propose to remove slow members."""
        self._propose(self.sync.on_tick(now_ms))

    def _confirmed_end(self, log_end: LogOffset) -> LogOffset:
        """Return confirmOffset by the SyncStateSet; before the first lease it stays as it was."""
        self.sync.on_log(log_end)
        # Before its first lease another master may be elected that lacks messages of this one.
        self._begun = self._begun or self._holds()
        return self.sync.confirm_offset if self._begun else self._log.confirm

    def _propose(self, proposal: Proposal | None) -> None:
        """Propose a SyncStateSet, if there is a proposal and the term has not ended."""
        if proposal is not None and not self.has_ended:
            response = self._alterations.propose(proposal)
            response.then(partial(self._on_response, proposal.number))

    def _adopt_sync_set(self, members: frozenset[int], set_epoch: int, now_ms: int) -> None:
        """Use a SyncStateSet that the controller has agreed on, if it is newer."""
        before = self.sync.members
        if self.sync.on_agreed(members, set_epoch, now_ms) and self.sync.members != before:
            self.set_changes += 1
            logger.info("SyncStateSet: %s (epoch %d)", sorted(self.sync.members), set_epoch)

    def _on_response(self, number: int, response: ProposalOutcome) -> None:
        """Handle the controller's decision on proposal `number`."""
        if self.has_ended:
            return
        now_ms = self._now_ms
        if isinstance(response, Agreed):
            self._adopt_sync_set(response.members, response.set_epoch, now_ms)
        elif isinstance(response, ProposalRefused):
            self.sync.on_refused(number, now_ms)
        else:
            self.sync.on_lost(number, now_ms)
        self._confirm_then_release()
