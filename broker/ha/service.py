"""A broker's part in replication: its role, and the change to another role.

Owns the order of a role change and the objects that live as long as a role: the follower, the
term. It touches neither frames nor sockets nor files.

    no role --to_master--> epoch being recorded --durable--> term (master)
       |  '--to_replica--> follower (replica)
       ^ any failure, and the first step of each change

A change of role: connections of the old role are cut, so that old acknowledgements do not count and
no view of the log is in use when it is cut; pending sends fail; the log changes sides; only then
the new role begins. Any failure leaves the broker without a role: it takes no writes, and the next
change, or the next look at the group file, tries again.

A master's epoch is made durable by a disk thread. The loop goes on meanwhile, with heartbeats and
reads, and there is no role until that is done. A change that comes meanwhile takes its place: the
earlier term does not begin, even if its epoch is recorded by then. (An epoch without a byte is not
missed by other brokers.) The log does one such step after the other, so the later one sees it.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from turbopump.broker.config.replication_config import BrokerRole
from turbopump.broker.ha.default_ha_leader import DefaultHaLeader
from turbopump.broker.ha.follower import Follower
from turbopump.broker.ha.group import GroupFile, GroupFileError, parse_group
from turbopump.broker.ha.leader import Leader, MasterTerm, MasterTermDeps
from turbopump.broker.ha.options import HaOptions
from turbopump.broker.ha.ports import Alterations, ReplicatedLog, StaticSet, Transport
from turbopump.broker.ha.sockets import ConnectionEvents, Sockets
from turbopump.broker.replication import FollowerStatus, HaCounters, ReplicationStatus
from turbopump.engine.deferred import Deferred
from turbopump.engine.disk.files import Files
from turbopump.engine.disk.flush import Disk
from turbopump.engine.types import LONG_AGO_MS, Buffer, LogOffset, StoreError
from turbopump.net.ha.default_ha import DefaultHaReplica
from turbopump.net.ha.replica import Replica, State

logger = logging.getLogger(__name__)

LOOK_MS = 1000
"""Interval between two looks at the group file, in ms."""
NO_EPOCH = -1
"""Value of an epoch for default HA and without a role."""


class Overtaken(StoreError):
    """A term did not begin, because the role was changed again while its epoch was written."""


class SwitchingLog(ReplicatedLog, Protocol):
    """A log that becomes a master's or a replica's. `now_ms` is of the wall clock, in ms since
    1970."""

    @property
    def is_master(self) -> bool:
        """Whether the log is a master's and takes messages."""

    def to_master(self, epoch: int, now_ms: int) -> LogOffset:
        """Become the master of an epoch (ignored in default HA), durably; blocks for the disk.
        Returns the log offset at which the epoch starts, the log's end. Raises StoreError; the log
        is a replica's then."""

    def record_term(self, epoch: int, now_ms: int) -> Deferred[LogOffset | StoreError]:
        """Become a replica's log now, then write the epoch durably on a disk thread; resolves with
        the log offset at which the epoch starts, or with the error. The log takes no message before
        `begin_term`."""

    def begin_term(self, start: LogOffset, now_ms: int) -> None:
        """Become a master's log: take messages from `start` on, the result of `record_term`. Raises
        StoreError."""

    def to_replica(self, now_ms: int) -> None:
        """Become a replica's log now: take no message; pending sends fail with
        SERVICE_NOT_AVAILABLE."""


class ListeningTransport(Transport, Protocol):
    """A Transport that also listens and stops: broker/ha/sockets.py, or the network of a test."""

    async def listen(self, host: str, port: int) -> int:
        """Open the port for replicas on the local address `host` (port 0: a free one); returns the
        port. Raises OSError."""

    async def stop(self) -> None:
        """Close the port and every connection; no further event is reported."""

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Run `callback` in the next turn of the loop."""

    def address(self, connection: int) -> str:
        """Return `ip:port` of the peer of a connection, "" if the connection is gone."""


class HaService:
    """A broker's part in replication: its role (master's term, replica, or none), and the change to
    another role. Loop thread only; no method blocks, but `start` may wait for the disk."""

    def __init__(
        self,
        options: HaOptions,
        log: SwitchingLog,
        files: Files,
        disk: Disk,
        wall_ms: Callable[[], int],
        steady_ms: Callable[[], int],
        *,
        alterations: Alterations | None = None,
        shell: Callable[[ConnectionEvents], ListeningTransport] = Sockets,
    ) -> None:
        """`log` is Store.as_replicated's; `alterations` the controller's, if there is one.
        `wall_ms` returns ms since 1970, `steady_ms` ms of the monotonic clock."""
        self.options = options
        """The options in force; replaced by `reconfigure` and `set_broker_id`."""
        self.port = 0
        """Port for replicas; 0 before `start`."""
        self.term: MasterTerm | None = None
        """The present term of this master; None for a replica or without a role."""
        self.follower: Follower | None = None
        """The replica at work, even if no master is known; None for a master or without a role."""
        self.epoch = NO_EPOCH
        """Epoch of the master that this broker is or follows; NO_EPOCH otherwise."""
        self.on_role: list[Callable[[], None]] = []
        """Called after this broker became a master or replica, and after its term ended."""
        self.on_link: list[Callable[[], None]] = []
        """Called when a connection to the master is made, and when it is lost."""
        self.lease: Callable[[], bool] = lambda: True
        """Returns whether a term of AutoSwitch HA may acknowledge now; the controllers' lease."""
        self.counters = HaCounters()
        """ConnectionEvents of former roles; `status` adds the events of the present role."""
        self._log = log
        self._files = files
        self._disk = disk
        self._wall_ms = wall_ms
        self._steady_ms = steady_ms
        self.sync_set_proposals = alterations or StaticSet()
        """Decides about a new SyncStateSet."""
        self._make_shell = shell
        self._shell: ListeningTransport
        self._has_shell = False
        """Whether `start` was called."""
        self.coming_epoch = NO_EPOCH
        """Epoch of the term being recorded; NO_EPOCH otherwise."""
        self._link: int | None = None
        """The present connection to the master."""
        self._change = 0
        """Number of role changes: results of disk work for an earlier role are ignored."""
        self._pumping = False
        self._looking = False
        self._look_ms = LONG_AGO_MS
        self._group_reason = ""
        self._master_flushed = LogOffset(0)
        self._stopped = False

    # Life

    async def start(self) -> None:
        """Open the port and take the role of the configuration or the group file; with a controller
        there is no role yet. A bad group file is logged and read again later. Raises OSError,
        StoreError; the port is closed then."""
        options = self.options
        self._shell = self._make_shell(self)
        self._has_shell = True
        self.port = await self._shell.listen(options.bind_address, options.ha_listen_port)
        try:
            if not options.has_elections:
                if options.broker_role is BrokerRole.SLAVE:
                    self.to_replica(options.ha_master_address, NO_EPOCH)
                else:
                    self._lead_plainly()
            else:
                self._log.to_replica(self._wall_ms())
                if options.ha_group_file:
                    self._apply_group_file(self._read_group())
        except BaseException:
            await self._shell.stop()
            raise

    async def stop(self) -> None:
        """Leave the role (pending sends fail with SERVICE_NOT_AVAILABLE), then close the port and
        all connections, and wait until they are closed. No-op before `start`."""
        self._stopped = True
        if not self._has_shell:
            return
        self._end_role()
        await self._shell.stop()

    def tick(self) -> None:
        """Do the periodic work of the role, and read the group file each LOOK_MS; called every
        100 ms."""
        now_ms = self._steady_ms()
        if self._stopped:
            return
        if self.term is not None:
            self.term.on_tick(now_ms)
        if self.follower is not None:
            self.follower.on_tick(now_ms)
        path = self.options.ha_group_file
        if path and not self._looking and now_ms - self._look_ms >= LOOK_MS:
            self._looking, self._look_ms = True, now_ms
            self._disk.submit(lambda: self._files.read(path), self._on_group_file)

    # Roles

    @property
    def is_master(self) -> bool:
        """Whether this broker is the master and its term has begun; in AutoSwitch HA it also needs
        a lease to acknowledge."""
        return self.term is not None

    @property
    def master_address(self) -> str:
        """HA address `host:port` of the master that is followed, "" for a master or if none is
        known."""
        return self.follower.machine.address if self.follower is not None else ""

    def to_master(
        self, epoch: int, members: frozenset[int], set_epoch: int
    ) -> Deferred[OSError | StoreError | None]:
        """Leave the present role now, record `epoch` on a disk thread, and become the master, with
        the first SyncStateSet `members` (broker ids) of epoch `set_epoch`. A master may get this
        call, too, with a newer epoch. Resolves to None when the term has begun, else to the error:
        there is no role then, or after Overtaken the result of the later change. Raises OSError,
        StoreError before that; there is no role then."""
        self._end_role()
        result: Deferred[OSError | StoreError | None] = Deferred()
        change, self.coming_epoch = self._change, epoch

        def recorded(start: LogOffset | StoreError) -> None:
            if change != self._change:
                result.resolve(Overtaken(f"another role was set before epoch {epoch} began"))
                return
            self.coming_epoch = NO_EPOCH
            if not isinstance(start, StoreError):
                try:
                    self._log.begin_term(start, self._wall_ms())
                    self._begin_term(start, epoch, members, set_epoch)
                except (OSError, StoreError) as error:
                    result.resolve(error)
                    return
            result.resolve(start if isinstance(start, StoreError) else None)

        try:
            self._log.record_term(epoch, self._wall_ms()).then(recorded)
        except (OSError, StoreError):
            self.coming_epoch = NO_EPOCH
            raise
        return result

    def _begin_term(
        self, start: LogOffset, epoch: int, members: frozenset[int], set_epoch: int
    ) -> None:
        """Make the term, with the log taking messages from `start` on, and call the callbacks of
        the role."""
        options = self.options
        deps = MasterTermDeps(
            log=self._log,
            rules=options.ack_rules,
            options=options.leader_options,
            transport=self._shell,
            wall_ms=self._wall_ms,
            now_ms=self._steady_ms(),
            has_lease=self.lease if options.has_elections else lambda: True,
        )
        if options.has_elections:
            self.term = Leader(
                deps,
                options.sync,
                self.sync_set_proposals,
                members=members,
                set_epoch=set_epoch,
                epoch_start=start,
            )
        else:
            self.term = DefaultHaLeader(deps, gap_max=options.ha_max_gap_not_in_sync)
        self.epoch = epoch
        logger.info("this broker is the master of epoch %d from %d on", epoch, start)
        self._notify_role()
        self.on_log_grown()

    def _lead_plainly(self) -> None:
        """Become a master of default HA at the start; nothing else runs yet."""
        self._end_role()
        try:
            start = self._log.to_master(NO_EPOCH, self._wall_ms())
            self._begin_term(start, NO_EPOCH, frozenset(), 0)
        except StoreError as error:
            if self._log.damage is None:
                raise
            # the undamaged part can be read
            logger.error("replicas cannot copy from here: %s", error)

    def to_replica(self, master_address: str, epoch: int, *, fenced: bool = True) -> None:
        """Become a replica now, unless this broker is a replica already, and follow the master of
        `epoch` at the HA address `host:port`; "" for no master yet. `fenced`: follow it only once
        it has recorded its epoch. Raises OSError, StoreError; there is no role then."""
        now_ms, was = self._steady_ms(), self.follower
        if was is None:
            self._end_role()
            options = self.options
            switching = options.has_elections
            machine = (
                Replica(options.replica_options)
                if switching
                else DefaultHaReplica(options.default_ha_replica)
            )
            self.follower = Follower(self._log, machine, self._shell, self._wall_ms)
        assert self.follower is not None
        self.epoch = epoch
        if isinstance(self.follower.machine, Replica):
            self.follower.machine.set_fenced(fenced)
        self.follower.follow(master_address, epoch, now_ms)
        if was is None:
            logger.info("this broker is a replica of %s", master_address or "no master yet")
            self._notify_role()

    def set_master_address(self, address: str) -> None:
        """Follow the master at the HA address `host:port` that a name server reports; only a
        replica of default HA without haMasterAddress does so. "" is ignored, because it is sent
        while the master is away."""
        is_known = self.options.has_elections or self.options.ha_master_address
        if not is_known and address and self.follower is not None:
            self.follower.follow(address, NO_EPOCH, self._steady_ms())

    def follow_anew(self, address: str) -> None:
        """Drop the connection and connect to the HA address `host:port` at once, in default HA
        only; "" follows no master. No-op on a master, and on a replica that receives its master's
        log now."""
        if self.follower is not None and self.follower.machine.state is not State.TRANSFER:
            for one in ("", address):
                self.follower.follow(one, NO_EPOCH, self._steady_ms())

    def copying_hosts(self) -> list[str]:
        """Return the IP address of each connected replica that has acknowledged, one for each
        connection, the oldest connection first; IPv6 without brackets. Empty without a term."""
        links = () if self.term is None else self.term.links.values()
        return [
            self._shell.address(link.connection).rsplit(":", 1)[0].strip("[]")
            for link in links
            if link.machine.acked >= 0
        ]

    def reconfigure(self, options: HaOptions) -> None:
        """Use changed times, limits and required copies, for new sends and the present
        connections; the own id, addresses and the role stay as they are."""
        self.options = options = replace(options, own_id=self.options.own_id)
        if self.term is not None:
            self.term.reconfigure(options.ack_rules, options.leader_options)
        if isinstance(self.term, Leader):
            self.term.sync.options = options.sync
        elif isinstance(self.term, DefaultHaLeader):
            self.term.group.gap_max = options.ha_max_gap_not_in_sync
        machine = None if self.follower is None else self.follower.machine
        if isinstance(machine, Replica):
            machine.options = replace(options.replica_options, fenced=machine.options.fenced)
        elif machine is not None:
            machine.options = options.default_ha_replica

    def set_broker_id(self, own_id: int) -> None:
        """Set this broker's id in the group, assigned by a controller. Calling it while there is a
        role is a programmer error."""
        assert self.term is None and self.follower is None, "the current role has another id"
        self.options = replace(self.options, own_id=own_id)

    def leave_role(self) -> None:
        """Leave the role now: connections are cut, pending sends fail with SERVICE_NOT_AVAILABLE,
        and the log takes no message until another role is set. Raises OSError, StoreError."""
        self._end_role()

    def on_lease_ended(self) -> None:
        """Handle the end of the lease: pending sends fail with SERVICE_NOT_AVAILABLE, because their
        outcome is unknown, and no send is acknowledged until `on_lease_granted`; the role stays.
        No-op without a term."""
        if self.term is not None:
            self.term.on_lease_ended()

    def on_lease_granted(self) -> None:
        """Handle a new lease, or the first one of a term: sends are acknowledged again. No-op
        without a term."""
        if self.term is not None:
            self.term.on_lease_granted()
        self.on_log_grown()

    def run_on_disk_thread(self, work: Callable[[], None]) -> Deferred[OSError | None]:
        """Run `work` in a disk thread; resolves on the loop thread to None, or to the OSError that
        `work` raised. Several calls may run at the same time."""
        result: Deferred[OSError | None] = Deferred()
        self._disk.submit(work, result.resolve)
        return result

    def _end_role(self) -> None:
        """End the present role: the term or the follower, and pending sends; the log becomes a
        replica's. Raises OSError, StoreError."""
        now_ms = self._steady_ms()
        self._change += 1
        self.coming_epoch = NO_EPOCH
        follower, self.follower = self.follower, None
        if follower is not None:
            follower.shutdown(now_ms)
            if isinstance(follower.machine, Replica):
                self.counters.truncated_bytes += follower.machine.truncated_bytes
            self.counters.reconnects += follower.reconnects
        term, self.term = self.term, None
        if term is not None:
            if isinstance(term, Leader):
                self.counters.set_changes += term.set_changes
            term.end_term()
        # A master with a new term, too, takes no writes until its epoch is recorded.
        self._log.to_replica(self._wall_ms())
        self.epoch = NO_EPOCH
        if term is not None:
            self._notify_role()  # the following steps may fail

    def _notify_role(self) -> None:
        """Call the callbacks for a change of role."""
        for callback in self.on_role:
            callback()

    # The group file

    def _on_group_file(self, result: bytes | OSError) -> None:
        """Handle the content of the group file that a disk thread has read."""
        self._looking = False
        if not self._stopped:
            self._apply_group_file(result)

    def _read_group(self) -> bytes | OSError:
        """Read the group file at the start; blocks. Returns its content, or the error."""
        try:
            return self._files.read(self.options.ha_group_file)
        except OSError as error:
            return error

    def _apply_group_file(self, content: bytes | OSError) -> None:
        """Take the role that the group file gives this broker; a file with an older epoch than the
        present one is ignored, because it was not updated yet. Errors are logged."""
        reason = ""
        try:
            if isinstance(content, OSError):
                raise content
            group = parse_group(content)
            is_without = self.term is None and self.follower is None
            known = max(self.epoch, self.coming_epoch)
            if group.epoch > known or (is_without and self.coming_epoch == NO_EPOCH):
                self._apply_role(group)
        except (GroupFileError, OSError, StoreError, ValueError) as error:
            reason = f"{self.options.ha_group_file}: {error}"
        self._log_group(reason)

    def _on_role_taken(self, error: OSError | StoreError | None) -> None:
        """Log the error with which the change to the group file's role failed."""
        if error is not None and self.term is None and self.follower is None:
            self._log_group(f"{self.options.ha_group_file}: {error}")

    def _log_group(self, reason: str) -> None:
        """Log why the group file gives this broker no role, when the reason changes; "" if it gives
        one."""
        if reason and reason != self._group_reason:
            logger.error("the group file gives this broker no role: %s", reason)
        self._group_reason = reason

    def _apply_role(self, group: GroupFile) -> None:
        """Become the master or a replica by the group file. Raises GroupFileError, OSError,
        StoreError."""
        if self._log.epochs.last_epoch > group.epoch:
            raise GroupFileError(f"the log already has epoch {self._log.epochs.last_epoch}")
        if self.options.own_id not in group.brokers:
            raise GroupFileError(f"it does not name broker {self.options.own_id}")
        if group.master != self.options.own_id:
            self.to_replica(group.master_address, group.epoch)
        elif self._log.epochs.last_epoch < group.epoch:
            self.to_master(group.epoch, group.members, group.epoch).then(self._on_role_taken)
        else:
            raise GroupFileError(
                f"epoch {group.epoch} has already begun here; to lead again it needs a higher epoch"
            )

    # Sends

    def on_log_grown(self) -> None:
        """Schedule one sending to the replicas, in the next turn of the loop, for all appends of
        this turn; to be called after each append. No-op without a term."""
        if not self._pumping and self.term is not None:
            self._pumping = True
            self._shell.call_soon(self._pump_term)

    def _pump_term(self) -> None:
        """Send the log's growth to the replicas, and release sends and readers."""
        self._pumping = False
        if self.term is not None:
            self.term.pump(self._steady_ms())

    # ConnectionEvents of connections

    def on_accepted(self, connection: int) -> None:
        """Accept a replica's connection; a broker without a term closes it."""
        if self.term is None or self._stopped:
            self._shell.close(connection)
        else:
            self.term.on_connected(connection, self._steady_ms())

    def on_connected(self, connection: int) -> None:
        """Start the handshake on the connection to the master; a broker that is no replica closes
        it."""
        if self.follower is None:
            self._shell.close(connection)
        else:
            self._link = connection
            self._notify_link()
            self.follower.on_connected(connection, self._steady_ms())

    def on_bytes(self, connection: int, data: Buffer) -> None:
        """Pass bytes of a replica to the term, or of the master to the follower; the buffer of
        `data` may be reused after the call."""
        if self.term is not None:
            self.term.on_bytes(connection, data, self._steady_ms())
        elif self.follower is not None:
            self.follower.on_bytes(connection, data, self._steady_ms())

    def on_writable(self, connection: int) -> None:
        """Resume sending to a replica whose connection takes more bytes."""
        if self.term is not None:
            self.term.on_writable(connection, self._steady_ms())

    def on_closed(self, connection: int, reason: str) -> None:
        """Handle a connection closed by the peer or the network, or an attempt to connect that
        failed; `reason` is for the log."""
        if connection == self._link:
            self._link = None
            self._notify_link()
        if self.term is not None:
            self.term.on_closed(connection, reason, self._steady_ms())
        elif self.follower is not None:
            self.follower.on_closed(connection, reason, self._steady_ms())

    def _notify_link(self) -> None:
        """Call the callbacks for a connection to the master that was made or lost."""
        for callback in self.on_link:
            callback()

    # Status

    def set_master_flushed(self, log_offset: LogOffset) -> None:
        """Set the `master_flushed` of later statuses, received by RESET_MASTER_FLUSH_OFFSET."""
        self._master_flushed = log_offset

    def status(self) -> ReplicationStatus:
        """Return a new snapshot of replication, also for a broker without a role."""
        log, leader, follower = self._log, None, None
        counters = HaCounters(
            self.counters.set_changes, self.counters.truncated_bytes, self.counters.reconnects
        )
        if self.term is not None:
            leader = self.term.status(self._shell.address, self._steady_ms())
            if isinstance(self.term, Leader):
                counters.set_changes += self.term.set_changes
        elif self.follower is not None:
            follower = self._follower_status(self.follower)
            counters.reconnects += self.follower.reconnects
            if isinstance(self.follower.machine, Replica):
                counters.truncated_bytes += self.follower.machine.truncated_bytes
        else:
            reason = "this broker has no role yet"
            if self.coming_epoch != NO_EPOCH:
                reason = f"epoch {self.coming_epoch} is being written to the disk"
            follower = FollowerStatus(reason=reason)
        epochs = log.epochs if self.options.has_elections else None
        return ReplicationStatus(log.end, log.confirm, leader, follower, epochs, counters)

    def _follower_status(self, follower: Follower) -> FollowerStatus:
        """Return a snapshot of a replica's connection, with times of the wall clock."""
        machine, now_ms = follower.machine, self._steady_ms()
        ahead_ms = self._wall_ms() - now_ms

        def wall_time_ms(at_ms: int) -> int:
            return 0 if at_ms == LONG_AGO_MS else at_ms + ahead_ms

        return FollowerStatus(
            machine.address,
            machine.state,
            machine.reason,
            wall_time_ms(machine.last_read_ms),
            wall_time_ms(machine.last_write_ms),
            follower.rate.per_second(now_ms),
            self._master_flushed,
        )
