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
"""Period in ms that a rate is taken over (RocketMQ: FlowMonitor)."""

NOT_TOLD: Final = LogOffset(0)


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """A replica's connection, as its master sees it."""

    address: str
    """Address `ip:port` of the replica's socket."""
    broker_id: int | None
    """Id of the replica; None in default HA, where replicas do not send it, and before a
    handshake."""
    acked: LogOffset
    """End of the replica's log; -1 until it has reported it."""
    next_log_offset: LogOffset
    """First byte that was not sent to the replica yet; -1 until known."""
    in_sync: bool
    """Whether the replica is a member of the SyncStateSet; in default HA, whether its lag is below
    haMaxGapNotInSync."""
    learner: bool = False
    behind_ms: int = 0
    """Time in ms for which the replica has lacked a part of the log."""
    bytes_per_second: int = 0

    @property
    def name(self) -> str:
        """The replica's id if known: an address has another port after each reconnect."""
        return self.address if self.broker_id is None else str(self.broker_id)


@dataclass(frozen=True, slots=True)
class LeaderStatus:
    """A master and its replicas; `members` (this broker included) is empty in default HA."""

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
    """A replica's connection to its master. Times are of the wall clock, 0 if it never happened."""

    master_address: str = ""
    """Address of the master's HA port; empty if unknown."""
    state: State = State.READY
    reason: str = ""
    """The reason why it is not following."""
    last_read_ms: int = 0
    last_write_ms: int = 0
    bytes_per_second: int = 0
    master_flushed: LogOffset = NOT_TOLD
    """The master's durable offset: RocketMQ's masterFlushOffset."""


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
    """The whole state at a moment. A broker without `follower` is a master."""

    log_end: LogOffset
    confirm: LogOffset
    leader: LeaderStatus | None = None
    follower: FollowerStatus | None = None
    epochs: Epochs | None = None
    """Epochs of the log; None in default HA."""
    counters: HaCounters = field(default_factory=HaCounters)


class Replication(Protocol):
    """Interface of a broker's replication for handlers and metrics."""

    def status(self) -> ReplicationStatus:
        """The state of replication now."""

    def set_master_flushed(self, log_offset: LogOffset) -> None:
        """Set the master's durable offset, from RESET_MASTER_FLUSH_OFFSET."""


class Stage(Enum):
    """Stage of this broker on its way into a group with controllers."""

    JOINING = "JOINING"
    """No role since the start, or none after the controllers forgot this broker."""
    MEMBER = "MEMBER"


class MasterFinder(Protocol):
    """Search of a replica for its master."""

    def master_reported(self, address: str, ha_address: str, fenced: bool) -> None:
        """Note a master's announcement of the address that its log is copied from."""


class GroupMembership(Protocol):
    """Interface of a group with controllers for handlers and runtime facts."""

    @property
    def stage(self) -> Stage:
        """The broker's stage on its way into the group."""

    @property
    def own_id(self) -> int | None:
        """This broker's id; None until controllers assigned it."""

    @property
    def reason(self) -> str:
        """The reason why the broker is not a member, or cannot lead."""

    @property
    def finder(self) -> MasterFinder:
        """Finder of the broker's master."""

    def holds(self) -> bool:
        """Whether the broker may lead until its lease ends."""

    def on_notice(self, group_state: "GroupState") -> None:
        """Handle a role change pushed by a controller (1008)."""


@dataclass(frozen=True, slots=True)
class LockRequest:
    """A client's request for queue locks of a group."""

    group: str
    client_id: str
    queues: Sequence[MessageQueue]


class LockVotes(Protocol):
    """Locks that several brokers of a group grant together (lockInStrictMode)."""

    @property
    def is_young(self) -> bool:
        """Whether a lock granted before the broker's last stop may still be valid."""

    def ask(self, wanted: LockRequest) -> Deferred[list[MessageQueue]]:
        """The queues that the client gets if this broker grants them, too."""

    def unlock(self, wanted: LockRequest) -> None:
        """Release the locks at the other brokers, too."""


class ActingReplicas(Protocol):
    """Interface of a broker whose group has replicas that act for their master (RIP-32)."""

    @property
    def quorum(self) -> LockVotes:
        """The votes for a lock with lockInStrictMode."""

    @property
    def why_not(self) -> str:
        """The reason why a master does not serve yet, "" if it does."""

    @property
    def acts_for_ms(self) -> int | None:
        """Time in ms for which this replica has acted for its master; None if it does not act."""

    def noticed(self) -> None:
        """Handle 905: the lowest broker id of the group has changed."""

    def master_comes(self, address: str, ha_address: str, number: int | None) -> str | None:
        """Handle 906 of a returning master; the reason why it is refused, None if it is
        accepted."""

    def master_serves(self, number: int) -> None:
        """Handle 906 of a returned master that now serves, with the number of its return."""


class ByteRate:
    """Byte rate over the last full period; each piece costs only an addition."""

    __slots__ = ("_began_ms", "_bytes", "_last")

    def __init__(self, now_ms: int) -> None:
        self._began_ms, self._bytes, self._last = now_ms, 0, 0

    def add(self, size: int, now_ms: int) -> None:
        """Count bytes that were transferred."""
        if now_ms - self._began_ms >= RATE_PERIOD_MS:
            self._turn(now_ms)
        self._bytes += size

    def per_second(self, now_ms: int) -> int:
        """Bytes per second of the last full period."""
        if now_ms - self._began_ms >= RATE_PERIOD_MS:
            self._turn(now_ms)
        return self._last

    def _turn(self, now_ms: int) -> None:
        passed_ms = now_ms - self._began_ms
        self._last = self._bytes * 1_000 // passed_ms if passed_ms < 2 * RATE_PERIOD_MS else 0
        self._began_ms, self._bytes = now_ms, 0


class Behind:
    """Lag of a replica in ms: the time since the last moment at which its current end was the end
    of the log (as SyncState computes it for the groups that have a SyncState)."""

    __slots__ = ("_acked", "_caught_up_ms", "_seen")

    def __init__(self, now_ms: int) -> None:
        self._acked, self._caught_up_ms = LogOffset(-1), now_ms
        self._seen = (LogOffset(0), now_ms)

    def on_ack(self, log_offset: LogOffset, log_end: LogOffset, now_ms: int) -> None:
        """Note the replica's end; the log itself ends at `log_end`."""
        self._acked = log_offset
        end, at_ms = self._seen
        if log_offset >= end:
            self._caught_up_ms = max(self._caught_up_ms, at_ms)
        self._seen = (log_end, now_ms)
        self.on_tick(log_end, now_ms)

    def on_tick(self, log_end: LogOffset, now_ms: int) -> None:
        """Note the log's end as time passes."""
        if self._acked >= log_end:
            self._caught_up_ms = now_ms

    def ms(self, log_end: LogOffset, now_ms: int) -> int:
        """The lag in ms; 0 while the replica has the whole log."""
        return 0 if self._acked >= log_end else now_ms - self._caught_up_ms
