"""The options of a member of the quorum.

Owns the options and DLedger's defaults (DLedgerConfig). It must never read a file or a text: the
node's configuration does.

Tests: tests/unit/controller/raft/test_core.py, tests/unit/controller/test_snapshot_size.py
"""

from dataclasses import dataclass, field

ENTRIES_PER_PUSH_MAX = 1000
"""Entries per push, at most, so that the catch-up of a follower does not delay heartbeats."""

BYTES_PER_PUSH_MAX = 1 << 20
"""Bytes of bodies per push, at most; a larger entry is sent alone. As text it is a third more, far
below the largest frame."""

BODY_MAX = 4 << 20
"""Bytes of an entry, at most: a frame of 16 MiB holds it as text, with room for the rest."""

SNAPSHOT_MAX = 11 << 20
"""Bytes of a snapshot, at most, because it is sent as text in one frame. A larger one is not kept:
the log then remains complete."""

LOG_BYTES_MAX = 16 << 20
"""Bytes of entries applied since the last snapshot after which the next one is due, and of entries
before a snapshot that remain, at most: an entry of a client has up to BODY_MAX bytes, and a
thousand of them would take gigabytes of memory and disk."""

LEASE_RATIO = 0.8
"""Fraction of its followers' promise that a leader relies on; the rest is for clock drift."""


@dataclass(frozen=True, slots=True)
class RaftOptions:
    """Options of a member, with DLedger's names and defaults where it has any."""

    self_id: str
    peers: dict[str, str]
    """Addresses of all members by id, this one included."""
    group: str = "default"
    """Name of the quorum; requests with another name are refused."""
    heart_beat_time_interval_ms: int = 2000
    """Interval of the leader's heartbeats to each follower."""
    max_heart_beat_leak: int = 3
    """Heartbeat intervals of silence after which a follower becomes a candidate."""
    min_vote_interval_ms: int = 300
    """Least pause between two vote rounds of a candidate."""
    max_vote_interval_ms: int = 1000
    """Greatest pause, without extra time; the pause is random."""
    vote_wait_ms: int = 2000
    """Timeout of a vote round, plus up to half of it as jitter."""
    min_take_leadership_vote_interval_ms: int = 30
    """Least pause of a member that was asked to lead, or whose leader is known to be dead."""
    max_take_leadership_vote_interval_ms: int = 100
    """Greatest pause of such a member."""
    leadership_transfer_wait_timeout_ms: int = 1000
    """Time that a member which was asked to lead waits for the leader's last entries."""
    max_leadership_transfer_wait_index: int = 1000
    """Entries that a member lacks for which a transfer of leadership to it is refused."""
    preferred_leader_ids: tuple[str, ...] = ()
    """Members to which any other leader hands the leadership over."""
    check_preferred_leader_interval_ms: int = 1000
    """Interval of checks whether a preferred member can take over."""
    max_pending_requests_num: int = 10_000
    """Appends that wait for a majority, at most; further ones fail with LEADER_PENDING_FULL."""
    max_wait_ack_time_ms: int = 2500
    """Time after which an append fails with WAIT_QUORUM_ACK_TIMEOUT, plus time for slow disks."""
    max_push_time_out_ms: int = 1000
    """Time after which an unanswered push is sent again, plus time for slow disks."""
    push_pause_ms: int = 500
    """Pause after a push that was refused or failed."""
    rpc_timeout_ms: int = 3000
    """Limit of a transfer of leadership; twice this time after it was sent a call is forgotten."""
    snapshot_threshold: int = 1000
    """Entries applied since the last snapshot after which the next one is due, unless their bytes
    exceed LOG_BYTES_MAX before."""
    snapshot_keep: int = 100
    """Entries before a snapshot that remain, fewer if they exceed LOG_BYTES_MAX: a follower that
    misses only these needs no snapshot. At least 1."""
    majority: int = field(init=False, default=0)
    """Number of members in a majority; computed."""

    def __post_init__(self) -> None:
        if self.self_id not in self.peers:
            raise ValueError(f"{self.self_id!r} is not among the members {sorted(self.peers)}")
        if self.snapshot_keep < 1 or self.heart_beat_time_interval_ms < 1:
            raise ValueError("snapshot_keep and the interval of heartbeats are at least 1")
        object.__setattr__(self, "majority", len(self.peers) // 2 + 1)

    @property
    def others(self) -> list[str]:
        """Ids of all members but this one, in the order of `peers`."""
        return [peer for peer in self.peers if peer != self.self_id]

    @property
    def promise_ms(self) -> int:
        """Time in ms after a leader's message in which a follower votes for no other member.

        Then the follower becomes a candidate (DLedgerLeaderElector.maintainAsFollower).
        """
        return self.heart_beat_time_interval_ms * self.max_heart_beat_leak

    @property
    def lease_ms(self) -> int:
        """Leader lease, in ms.

        It is how long after sending an acknowledged heartbeat the leader relies on its followers'
        promise.
        """
        return int(self.promise_ms * LEASE_RATIO)
