"""State of replication for GET_BROKER_HA_STATUS, GET_BROKER_EPOCH_CACHE and the metrics.

Owns the shapes of this state, without behaviour. It must never touch a log, a socket or a clock.
`service.HaService.status` fills it; handlers/ha.py, runtime_info.py and metrics.py read it.
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
"""Period in ms over which a rate is measured (RocketMQ: FlowMonitor)."""

NOT_TOLD: Final = LogOffset(0)
"""Value of a master's durable offset before the master has sent it."""


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """A replica's connection, as its master sees it."""

    address: str
    """Address `ip:port` of the replica's socket."""
    broker_id: int | None
    """Id of the replica; None in default HA, where replicas do not send it, and before a
    handshake."""
    acked: LogOffset
    """Log offset at which the replica's log ends; -1 until it has reported it."""
    next_log_offset: LogOffset
    """Log offset of the first byte that was not sent to the replica yet; -1 until known."""
    in_sync: bool
    """Whether the replica is a member of the SyncStateSet; in default HA, whether its lag is below
    haMaxGapNotInSync."""
    learner: bool = False
    """Whether the replica only copies: it never becomes a member of the SyncStateSet."""
    behind_ms: int = 0
    """Time in ms for which the replica has lacked a part of the log; 0 if it lacks nothing."""
    bytes_per_second: int = 0
    """Rate of the log bytes sent to the replica, over the last RATE_PERIOD_MS."""

    @property
    def name(self) -> str:
        """The replica's id as text if known, else its address: an address has another port after
        each reconnect."""
        return self.address if self.broker_id is None else str(self.broker_id)


@dataclass(frozen=True, slots=True)
class LeaderStatus:
    """A master and its connected replicas. `members` are the ids in the SyncStateSet (this broker
    included), and `set_epoch` is its epoch; both are empty or 0 in default HA."""

    replicas: tuple[ReplicaStatus, ...] = ()
    members: frozenset[int] = frozenset()
    set_epoch: int = 0

    @property
    def in_sync_replicas(self) -> int:
        """Number of replicas in sync, the master not counted (RocketMQ: inSyncSlaveNums)."""
        if self.members:
            return len(self.members) - 1
        return sum(replica.in_sync for replica in self.replicas)


@dataclass(frozen=True, slots=True)
class FollowerStatus:
    """A replica's connection to its master. Times are epoch ms, 0 if it never happened;
    `bytes_per_second` is the rate of received log bytes."""

    master_address: str = ""
    """The address `host:port` of the master's HA port; "" if unknown."""
    state: State = State.READY
    reason: str = ""
    """Reason why the replica is not following; "" if it follows."""
    last_read_ms: int = 0
    last_write_ms: int = 0
    bytes_per_second: int = 0
    master_flushed: LogOffset = NOT_TOLD
    """The master's durable log offset: RocketMQ's masterFlushOffset."""


@dataclass(slots=True)
class HaCounters:
    """Counters of events since the broker started; they only grow."""

    set_changes: int = 0
    """Number of changes of the SyncStateSet in force."""
    truncated_bytes: int = 0
    """Number of bytes cut off this log to follow a master."""
    reconnects: int = 0
    """Number of connections to a master that were made after a connection was lost."""


@dataclass(frozen=True, slots=True)
class ReplicationStatus:
    """The whole state at a moment. `log_end` is the end of this broker's log, `confirm` the log
    offset before which readers may read. A broker without `follower` is a master; a master between
    two terms has neither."""

    log_end: LogOffset
    confirm: LogOffset
    leader: LeaderStatus | None = None
    follower: FollowerStatus | None = None
    epochs: Epochs | None = None
    """Epochs of the log; None in default HA."""
    counters: HaCounters = field(default_factory=HaCounters)


class Replication(Protocol):
    """Interface of a broker's replication for handlers and metrics (broker/ha/service.py). Loop
    thread only."""

    def status(self) -> ReplicationStatus:
        """Return a snapshot of the state of replication."""

    def set_master_flushed(self, log_offset: LogOffset) -> None:
        """Set the master's durable log offset that `status` shows, from RESET_MASTER_FLUSH_OFFSET
        (908). Nothing else uses it."""


class Stage(Enum):
    """Stage of this broker on its way into a group with controllers."""

    JOINING = "JOINING"
    """No role since the start, or none after the controllers forgot this broker."""
    MEMBER = "MEMBER"
    """The controllers know this broker: it leads or follows."""


class MasterFinder(Protocol):
    """Search of a replica for its master."""

    def master_reported(self, address: str, ha_address: str, fenced: bool) -> None:
        """Follow the log address `ha_address` that a master announced in a 906; ignored unless
        `address` is that of this broker's master. `fenced`: the announcing master is no RocketMQ
        broker and handles epochs as this one does."""


class GroupMembership(Protocol):
    """Interface of a group with controllers for handlers and runtime facts (broker/ha/control).
    Loop thread only."""

    @property
    def stage(self) -> Stage:
        """The broker's stage on its way into the group."""

    @property
    def own_id(self) -> int | None:
        """This broker's id; None until controllers assigned it."""

    @property
    def reason(self) -> str:
        """Reason why the broker is not a member, or cannot lead; "" without a reason."""

    @property
    def finder(self) -> MasterFinder:
        """The part that receives the address of this broker's master."""

    def holds(self) -> bool:
        """Whether the broker may acknowledge sends as a master: its lease is valid at this
        moment."""

    def on_notice(self, group_state: "GroupState") -> None:
        """Handle a role change pushed by a controller (1008); it may change this broker's role.
        Ignored before the broker is a MEMBER."""


@dataclass(frozen=True, slots=True)
class LockRequest:
    """A client's request for queue locks of a group, or for their release."""

    group: str
    client_id: str
    queues: Sequence[MessageQueue]


class LockVotes(Protocol):
    """Locks that several brokers of a group grant together (lockInStrictMode)."""

    @property
    def is_young(self) -> bool:
        """Whether a lock that this broker granted before its last stop may still be valid, which it
        has forgotten."""

    def ask(self, wanted: LockRequest) -> Deferred[list[MessageQueue]]:
        """Request the locks from the other brokers of the group. Resolves to those queues, in the
        request's order, that the client gets if this broker grants them, too; the caller grants
        them here."""

    def unlock(self, wanted: LockRequest) -> None:
        """Send the release to the other brokers, without a wait; an unreachable one keeps the locks
        until the lease ends."""


class ActingReplicas(Protocol):
    """Interface of a broker whose group has replicas that act for their master (RIP-32;
    broker/ha/acting). Loop thread only."""

    @property
    def quorum(self) -> LockVotes:
        """The votes for a lock with lockInStrictMode."""

    @property
    def why_not(self) -> str:
        """Reason why a master does not serve yet; "" if it does."""

    @property
    def acts_for_ms(self) -> int | None:
        """Time in ms for which this replica has acted for its master; None if it does not act."""

    def noticed(self) -> None:
        """Handle 905, the lowest broker id of the group has changed: the group's members are
        queried soon."""

    def master_comes(self, address: str, ha_address: str, number: int | None) -> str | None:
        """Handle 906 of a returning master: this replica stops acting and follows it. `number`
        identifies its return, None from RocketMQ. Returns the reason why it is refused, None if it
        is accepted."""

    def master_serves(self, number: int) -> None:
        """Handle 906 of a returned master that now serves; another `number` than that of
        `master_comes` is ignored. Pop's notes that it has read are forgotten."""


class ByteRate:
    """Byte rate over the last full period; each piece costs only an addition. All times are ms of
    the same clock, chosen by the caller."""

    __slots__ = ("_began_ms", "_bytes", "_last")

    def __init__(self, now_ms: int) -> None:
        self._began_ms, self._bytes, self._last = now_ms, 0, 0

    def add(self, size: int, now_ms: int) -> None:
        """Count `size` transferred bytes at `now_ms`."""
        if now_ms - self._began_ms >= RATE_PERIOD_MS:
            self._turn(now_ms)
        self._bytes += size

    def per_second(self, now_ms: int) -> int:
        """Return the bytes per second in the last full period of RATE_PERIOD_MS; 0 if nothing was
        counted in it. The first call after a period's end begins the next period."""
        if now_ms - self._began_ms >= RATE_PERIOD_MS:
            self._turn(now_ms)
        return self._last

    def _turn(self, now_ms: int) -> None:
        passed_ms = now_ms - self._began_ms
        self._last = self._bytes * 1_000 // passed_ms if passed_ms < 2 * RATE_PERIOD_MS else 0
        self._began_ms, self._bytes = now_ms, 0


class Behind:
    """Lag of a replica in ms: the time since the last moment at which its current end was the end
    of the log (as SyncState computes it for the groups that have a SyncState). All times are ms of
    the same clock, chosen by the caller."""

    __slots__ = ("_acked", "_caught_up_ms", "_seen")

    def __init__(self, now_ms: int) -> None:
        self._acked, self._caught_up_ms = LogOffset(-1), now_ms
        self._seen = (LogOffset(0), now_ms)

    def on_ack(self, log_offset: LogOffset, log_end: LogOffset, now_ms: int) -> None:
        """Record at `now_ms` that the replica has the log up to `log_offset`, while the master's
        log ends at `log_end`."""
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

    def ms(self, log_end: LogOffset, now_ms: int) -> int:
        """Return the lag in ms at `now_ms`; 0 while the replica has the whole log up to
        `log_end`."""
        return 0 if self._acked >= log_end else now_ms - self._caught_up_ms
