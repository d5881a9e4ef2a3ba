"""What replication tells of itself: facts for GET_BROKER_HA_STATUS, GET_BROKER_EPOCH_CACHE and the
metrics.

Owns the shapes, and nothing that happens. It must never touch a log, a socket or a clock. Filled by
`service.HaService.status`, read by handlers/ha.py, runtime_info.py and metrics.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol

from turbopump.engine.later import Later
from turbopump.engine.log.epochs import Epochs
from turbopump.engine.types import LogOffset
from turbopump.net.ha.replica import State
from turbopump.net.wire.queues import MessageQueue

if TYPE_CHECKING:
    from turbopump.broker.ha.control.words import Word

RATE_PERIOD_MS: Final = 1_000
"""What a rate is taken over (RocketMQ: FlowMonitor)."""

NOT_TOLD: Final = LogOffset(0)


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """One replica's connection, as its master sees it."""

    address: str
    """`ip:port` of its socket."""
    broker_id: int | None
    """None in default HA, where a replica does not say who it is, and before a handshake."""
    acked: LogOffset
    """What it has; -1 until it said so."""
    next: LogOffset
    """The first byte it was not sent; -1 until that is known."""
    in_sync: bool
    """A member of the SyncStateSet; in default HA: less than haMaxGapNotInSync behind."""
    learner: bool = False
    behind_ms: int = 0
    """For how long it has not had all of the log."""
    bytes_per_second: int = 0

    @property
    def name(self) -> str:
        """Its id where there is one: an address has another port after each reconnect."""
        return self.address if self.broker_id is None else str(self.broker_id)


@dataclass(frozen=True, slots=True)
class LeaderStatus:
    """A master and its replicas; `members` (this broker included) is empty in default HA."""

    replicas: tuple[ReplicaStatus, ...] = ()
    members: frozenset[int] = frozenset()
    set_epoch: int = 0

    @property
    def in_sync_replicas(self) -> int:
        """How many replicas are in sync, the master not counted (RocketMQ: inSyncSlaveNums)."""
        if self.members:
            return len(self.members) - 1
        return sum(replica.in_sync for replica in self.replicas)


@dataclass(frozen=True, slots=True)
class FollowerStatus:
    """A replica's connection to its master. Times are of the wall clock, 0 if it never happened."""

    master_address: str = ""
    """Of the master's HA port; empty while none is known."""
    state: State = State.READY
    reason: str = ""
    """Why it is not following."""
    last_read_ms: int = 0
    last_write_ms: int = 0
    bytes_per_second: int = 0
    master_flushed: LogOffset = NOT_TOLD
    """RocketMQ's masterFlushOffset."""


@dataclass(slots=True)
class HaCounters:
    """What happened since the broker started; they only grow."""

    set_changes: int = 0
    """How often the SyncStateSet in force became another one."""
    truncated_bytes: int = 0
    """What was cut off this log to follow a master."""
    reconnects: int = 0
    """Connections to a master that were made after one was lost."""


@dataclass(frozen=True, slots=True)
class ReplicationStatus:
    """All of it at one moment. A broker without `follower` is a master."""

    log_end: LogOffset
    confirm: LogOffset
    leader: LeaderStatus | None = None
    follower: FollowerStatus | None = None
    epochs: Epochs | None = None
    """None in default HA."""
    counters: HaCounters = field(default_factory=HaCounters)


class Replication(Protocol):
    """What handlers and metrics ask of a broker's replication."""

    def status(self) -> ReplicationStatus:
        """How it stands now."""

    def set_master_flushed(self, log_offset: LogOffset) -> None:
        """RESET_MASTER_FLUSH_OFFSET said how far the replica's master is durable."""


class Stage(Enum):
    """How far this broker is."""

    JOINING = "JOINING"
    """No role yet in this life, or none after the controllers forgot us."""
    MEMBER = "MEMBER"


class MasterFinder(Protocol):
    """Where a replica looks for its master."""

    def told(self, address: str, ha_address: str, fenced: bool) -> None:
        """A master said where its log is copied from."""


class GroupMembership(Protocol):
    """What handlers and runtime facts ask of a broker whose group has controllers."""

    @property
    def stage(self) -> Stage:
        """How far it is on its way into the group."""

    @property
    def own_id(self) -> int | None:
        """None until controllers gave it one."""

    @property
    def reason(self) -> str:
        """Why it is not a member, or cannot lead."""

    @property
    def finder(self) -> MasterFinder:
        """Where its master is looked for."""

    def holds(self) -> bool:
        """Whether it may lead until its lease ends."""

    def on_notice(self, word: "Word") -> None:
        """Controllers said who leads, unasked."""


@dataclass(frozen=True, slots=True)
class LockWish:
    """What a client wants of a group's queue locks."""

    group: str
    client_id: str
    queues: Sequence[MessageQueue]


class LockVotes(Protocol):
    """The locks that several brokers of a group give (lockInStrictMode)."""

    @property
    def is_young(self) -> bool:
        """Whether this broker may have given a lock in its last life that still counts."""

    def ask(self, wish: LockWish) -> Later[list[MessageQueue]]:
        """Those of the queues that the client gets if this broker gives them, too."""

    def unlock(self, wish: LockWish) -> None:
        """The others give them back, too."""


class ActingReplicas(Protocol):
    """What is asked of a broker whose group has replicas that act for their master (RIP-32)."""

    @property
    def quorum(self) -> LockVotes:
        """What makes a lock with lockInStrictMode."""

    @property
    def why_not(self) -> str:
        """Why a master does not serve yet, "" if it does."""

    @property
    def acts_for_ms(self) -> int | None:
        """For how long this replica has acted for its master; None: it does not."""

    def noticed(self) -> None:
        """905: the lowest id of the group has changed."""

    def master_comes(self, address: str, ha_address: str, number: int | None) -> str | None:
        """906, of a master that is back. Why it is not believed, None if it is."""

    def master_serves(self, number: int) -> None:
        """906, of the master that said it is back with that number."""


class ByteRate:
    """How many bytes went by in the last full period; an addition for each piece."""

    __slots__ = ("_began_ms", "_bytes", "_last")

    def __init__(self, now_ms: int) -> None:
        self._began_ms, self._bytes, self._last = now_ms, 0, 0

    def add(self, size: int, now_ms: int) -> None:
        """That many bytes went by."""
        if now_ms - self._began_ms >= RATE_PERIOD_MS:
            self._turn(now_ms)
        self._bytes += size

    def per_second(self, now_ms: int) -> int:
        """Bytes a second of the last full period."""
        if now_ms - self._began_ms >= RATE_PERIOD_MS:
            self._turn(now_ms)
        return self._last

    def _turn(self, now_ms: int) -> None:
        passed_ms = now_ms - self._began_ms
        self._last = self._bytes * 1_000 // passed_ms if passed_ms < 2 * RATE_PERIOD_MS else 0
        self._began_ms, self._bytes = now_ms, 0


class Behind:
    """For how long a replica has not had all of the log: since the last moment at which what it has
    now was all there was (as SyncState reckons it for the groups that have one)."""

    __slots__ = ("_acked", "_caught_up_ms", "_seen")

    def __init__(self, now_ms: int) -> None:
        self._acked, self._caught_up_ms = LogOffset(-1), now_ms
        self._seen = (LogOffset(0), now_ms)

    def on_ack(self, log_offset: LogOffset, log_end: LogOffset, now_ms: int) -> None:
        """It has the log up to there, which ends at `log_end`."""
        self._acked = log_offset
        end, at_ms = self._seen
        if log_offset >= end:
            self._caught_up_ms = max(self._caught_up_ms, at_ms)
        self._seen = (log_end, now_ms)
        self.on_tick(log_end, now_ms)

    def on_tick(self, log_end: LogOffset, now_ms: int) -> None:
        """Time passes."""
        if self._acked >= log_end:
            self._caught_up_ms = now_ms

    def ms(self, log_end: LogOffset, now_ms: int) -> int:
        """For how long; 0 while it has all."""
        return 0 if self._acked >= log_end else now_ms - self._caught_up_ms
