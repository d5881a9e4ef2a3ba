"""State of replication for GET_BROKER_HA_STATUS, GET_BROKER_EPOCH_CACHE and the metrics.

Owns the shapes of this state, without behaviour. It must never touch a log, a socket or a clock.
`service.HaService.status` fills it; handlers/ha.py, runtime_info.py and metrics.py read it. All
methods run on the loop thread, and none blocks.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol

from turbopump.engine.deferred import Deferred
from turbopump.engine.log.epochs import Epochs
from turbopump.engine.types import LogOffset
from turbopump.net.ha.replica import State
from turbopump.net.wire.queues import MessageQueue

if TYPE_CHECKING:
    from turbopump.broker.ha.control.controller_protocol import GroupState

RATE_PERIOD_MS: Final = 1_000
"""Period in ms that a rate is taken over (RocketMQ: FlowMonitor)."""

NOT_TOLD: Final = LogOffset(0)
"""Value of `FollowerStatus.master_flushed` before the master has sent its durable offset."""


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """A replica's connection, as its master sees it."""

    address: str
    """Address `ip:port` of the replica's socket."""
    broker_id: int | None
    """Id of the replica; None in default HA, where replicas do not send it, and before a
    handshake."""
    acked: LogOffset
    """Log offset before which the replica has acknowledged every byte; -1 before its first
    acknowledgement."""
    next_log_offset: LogOffset
    """Log offset of the first byte that was not sent to the replica yet; -1 until known."""
    in_sync: bool
    """Whether the replica is a member of the SyncStateSet; in default HA, whether its lag is below
    haMaxGapNotInSync."""
    learner: bool = False
    """Whether the replica copies the log without ever joining the SyncStateSet (asyncLearner);
    False in default HA."""
    behind_ms: int = 0
    """Time in ms for which the replica has lacked a part of the log; 0 if it has the whole log, and
    in AutoSwitch HA before the handshake."""
    bytes_per_second: int = 0
    """Bytes of the log sent to the replica, per second, in the last full period of
    RATE_PERIOD_MS."""

    @property
    def name(self) -> str:
        """The replica's broker id as text if known, else its `ip:port`: the port changes with each
        reconnect."""
        return self.address if self.broker_id is None else str(self.broker_id)


@dataclass(frozen=True, slots=True)
class LeaderStatus:
    """State of a master and its replicas."""

    replicas: tuple[ReplicaStatus, ...] = ()
    """The replicas' connections, the oldest connection first."""
    members: frozenset[int] = frozenset()
    """Broker ids of the SyncStateSet, this broker's included; empty in default HA."""
    set_epoch: int = 0
    """Epoch of the SyncStateSet; 0 in default HA."""

    @property
    def in_sync_replicas(self) -> int:
        """Number of replicas in sync, the master not counted (RocketMQ: inSyncSlaveNums)."""
        if self.members:
            return len(self.members) - 1
        return sum(replica.in_sync for replica in self.replicas)


@dataclass(frozen=True, slots=True)
class FollowerStatus:
    """State of a replica's connection to its master. Times are of the wall clock, in ms since 1970;
    0 if the event never happened."""

    master_address: str = ""
    """Address `host:port` of the master's HA port; "" if unknown."""
    state: State = State.READY
    """State of the connection; READY for a broker without a role, too."""
    reason: str = ""
    """The reason why this broker follows no master, for operators; "" while it follows, and before
    a first failure."""
    last_read_ms: int = 0
    """Time at which the connection was made, or bytes of the master were last received."""
    last_write_ms: int = 0
    """Time at which bytes were last sent to the master."""
    bytes_per_second: int = 0
    """Bytes received from the master, per second, in the last full period of RATE_PERIOD_MS."""
    master_flushed: LogOffset = NOT_TOLD
    """Log offset before which the master's log is durable (RocketMQ: masterFlushOffset)."""


@dataclass(slots=True)
class HaCounters:
    """Counters of events since the broker started; they only grow."""

    set_changes: int = 0
    """Number of changes of the SyncStateSet in force."""
    truncated_bytes: int = 0
    """Bytes cut off this log to follow a master."""
    reconnects: int = 0
    """Connections to a master that were made after a connection was lost."""


@dataclass(frozen=True, slots=True)
class ReplicationStatus:
    """Snapshot of this broker's replication. Exactly one of `leader` and `follower` is set."""

    log_end: LogOffset
    """Log offset after the last byte of this broker's log."""
    confirm: LogOffset
    """Log offset before which consumers may read (confirmOffset)."""
    leader: LeaderStatus | None = None
    """State of a master; None if this broker is not the master."""
    follower: FollowerStatus | None = None
    """State of a replica, or of a broker without a role (`reason` has why); None for a master."""
    epochs: Epochs | None = None
    """Epochs of the log; None in default HA."""
    counters: HaCounters = field(default_factory=HaCounters)
    """A copy of the counters, which does not change afterwards."""


class Replication(Protocol):
    """Interface of a broker's replication for handlers and metrics."""

    def status(self) -> ReplicationStatus:
        """Return a new snapshot of replication."""

    def set_master_flushed(self, log_offset: LogOffset) -> None:
        """Set `FollowerStatus.master_flushed`, received by RESET_MASTER_FLUSH_OFFSET; replication
        itself does not use it."""


class Stage(Enum):
    """Stage of this broker on its way into a group with controllers."""

    JOINING = "JOINING"
    """No role since the start, or none after the controllers forgot this broker."""
    MEMBER = "MEMBER"
    """The controllers have registered this broker and named a master of its group at least once."""


class MasterFinder(Protocol):
    """Search of a replica for its master."""

    def master_reported(self, address: str, ha_address: str, fenced: bool) -> None:
        """Follow the master at `ha_address` (its HA port) now, if `address` (its port for clients)
        is of the master that controllers named; otherwise no-op. Both are `host:port`. `fenced`:
        follow it only once it has recorded its epoch."""


class GroupMembership(Protocol):
    """Interface of a group with controllers for handlers and runtime facts."""

    @property
    def stage(self) -> Stage:
        """Whether the broker still joins the group or is a member."""

    @property
    def own_id(self) -> int | None:
        """This broker's id in the group, from 1; None until controllers assigned it."""

    @property
    def reason_without_role(self) -> str:
        """The reason why the broker is not a member, or has not taken its last role; "" without a
        failure."""

    @property
    def master_finder(self) -> MasterFinder:
        """The search for the named master's HA address; it receives that master's own
        announcements."""

    def has_lease(self) -> bool:
        """Whether the controllers' lease is valid now: without it a master may acknowledge no
        message. A replica may hold a lease, too."""

    def on_notice(self, group_state: "GroupState") -> None:
        """Take the role named by a controller's notice (1008), if its epoch is newer than the
        present role's; ignored before this broker is a member."""


@dataclass(frozen=True, slots=True)
class LockRequest:
    """A client's request to lock or unlock queues for a consumer group."""

    group: str
    """Name of the consumer group."""
    client_id: str
    """Id of the client that holds the locks."""
    queues: Sequence[MessageQueue]
    """The queues to lock or unlock; may be empty."""


class LockVotes(Protocol):
    """Locks that several brokers of a group grant together (lockInStrictMode)."""

    @property
    def is_young(self) -> bool:
        """Whether a lock granted before the broker's last stop may still be valid."""

    def request_votes(self, wanted: LockRequest) -> Deferred[list[MessageQueue]]:
        """Ask the other brokers for their votes; resolves within a second to the queues, in the
        order of `wanted.queues`, that get enough votes if this broker grants them, too. The caller
        locks them here; an unreachable broker has no vote."""

    def release_locks(self, wanted: LockRequest) -> None:
        """Send the release of the locks to the other brokers, without waiting for answers. The
        caller releases them here."""


class ActingReplicas(Protocol):
    """Interface of a broker whose group has replicas that act for their master (RIP-32)."""

    @property
    def quorum(self) -> LockVotes:
        """The locks of the whole group, used only with lockInStrictMode."""

    @property
    def reason_not_serving(self) -> str:
        """The reason why this master serves no client yet; "" if it serves, or is no master."""

    @property
    def acts_for_ms(self) -> int | None:
        """Time in ms for which this replica has acted for its master; None if it does not act."""

    def on_min_broker_id_changed(self) -> None:
        """Handle 905 (the lowest broker id of the group has changed): name servers are asked for
        the members at the next tick."""

    def on_master_returning(self, address: str, ha_address: str, number: int | None) -> str | None:
        """Handle 906 of a returning master: stop acting for it, and without controllers follow it.
        `address` is for clients, `ha_address` for replicas, both `host:port`; `number` identifies
        the return (None from RocketMQ). Returns None, or the reason why the master is refused."""

    def master_serves(self, number: int) -> None:
        """Handle 906 of a returned master that now serves; `number` identifies its return, and a
        number other than that of the last `on_master_returning` is ignored."""


class ByteRate:
    """Byte rate over the last full period of RATE_PERIOD_MS. Times are in ms of the monotonic
    clock."""

    __slots__ = ("_began_ms", "_bytes", "_last")

    def __init__(self, now_ms: int) -> None:
        self._began_ms, self._bytes, self._last = now_ms, 0, 0

    def count_bytes(self, size: int, now_ms: int) -> None:
        """Count `size` transferred bytes at `now_ms`."""
        if now_ms - self._began_ms >= RATE_PERIOD_MS:
            self._end_period(now_ms)
        self._bytes += size

    def per_second(self, now_ms: int) -> int:
        """Bytes per second in the last full period; 0 if no byte was counted in it, or before the
        first period has ended."""
        if now_ms - self._began_ms >= RATE_PERIOD_MS:
            self._end_period(now_ms)
        return self._last

    def _end_period(self, now_ms: int) -> None:
        """End the present period, and begin the next one at `now_ms`."""
        passed_ms = now_ms - self._began_ms
        self._last = self._bytes * 1_000 // passed_ms if passed_ms < 2 * RATE_PERIOD_MS else 0
        self._began_ms, self._bytes = now_ms, 0


class ReplicationLag:
    """Lag of a replica in ms: the time since the last moment at which its current end was the end
    of the log (as SyncState computes it for the groups that have a SyncState). Times are in ms of
    the monotonic clock; a new replica counts as up to date when it is made."""

    __slots__ = ("_acked", "_caught_up_ms", "_seen")

    def __init__(self, now_ms: int) -> None:
        self._acked, self._caught_up_ms = LogOffset(-1), now_ms
        self._seen = (LogOffset(0), now_ms)

    def on_ack(self, log_offset: LogOffset, log_end: LogOffset, now_ms: int) -> None:
        """Record that the replica has acknowledged the log up to `log_offset`, while the master's
        log ends at `log_end`. To be called for each acknowledgement."""
        self._acked = log_offset
        end, at_ms = self._seen
        if log_offset >= end:
            self._caught_up_ms = max(self._caught_up_ms, at_ms)
        self._seen = (log_end, now_ms)
        self.on_tick(log_end, now_ms)

    def on_tick(self, log_end: LogOffset, now_ms: int) -> None:
        """Record at `now_ms` that the master's log ends at `log_end`: a replica that has all of it
        is up to date now."""
        if self._acked >= log_end:
            self._caught_up_ms = now_ms

    def lag_ms(self, log_end: LogOffset, now_ms: int) -> int:
        """Return the lag in ms of the replica, while the master's log ends at `log_end`; 0 while
        the replica has the whole log."""
        return 0 if self._acked >= log_end else now_ms - self._caught_up_ms
