"""What a member of the quorum is given at its start.

Owns the options and DLedger's defaults (DLedgerConfig). It must never read a file or a text: the
node's configuration does. Called by everyone of the quorum.
"""

from dataclasses import dataclass, field

ENTRIES_PER_PUSH_MAX = 1000
"""A follower that was away is caught up in pieces that do not hold up heartbeats."""

BYTES_PER_PUSH_MAX = 1 << 20
"""The same in bytes of bodies; one larger entry goes alone. As text a third more, far from the
largest frame."""

BODY_MAX = 4 << 20
"""Bytes of an entry: a frame of 16 MiB holds it as text, with room for all else."""

SNAPSHOT_MAX = 11 << 20
"""Bytes of a snapshot, which travels as the text of one frame. A larger one is not taken: the log
then stays whole."""

LEASE_RATIO = 0.8
"""A leader relies on so much of what its followers promise: the rest is for clocks that differ."""


@dataclass(frozen=True, slots=True)
class RaftOptions:
    """DLedger's names and defaults where it has any."""

    self_id: str
    peers: dict[str, str]
    """Addresses of all members by id, this one included."""
    group: str = "default"
    heart_beat_time_interval_ms: int = 2000
    max_heart_beat_leak: int = 3
    min_vote_interval_ms: int = 300
    max_vote_interval_ms: int = 1000
    vote_wait_ms: int = 2000
    """So long, and up to half of it more, a round of votes waits for members that do not answer."""
    min_take_leadership_vote_interval_ms: int = 30
    max_take_leadership_vote_interval_ms: int = 100
    leadership_transfer_wait_timeout_ms: int = 1000
    max_leadership_transfer_wait_index: int = 1000
    preferred_leader_ids: tuple[str, ...] = ()
    check_preferred_leader_interval_ms: int = 1000
    max_pending_requests_num: int = 10_000
    max_wait_ack_time_ms: int = 2500
    max_push_time_out_ms: int = 1000
    push_pause_ms: int = 500
    """After a push that was refused or failed."""
    rpc_timeout_ms: int = 3000
    snapshot_threshold: int = 1000
    """Entries applied since the last snapshot that make one worthwhile."""
    snapshot_keep: int = 100
    """Entries before a snapshot that stay: who missed only these needs no snapshot. At least 1."""
    majority: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        if self.self_id not in self.peers:
            raise ValueError(f"{self.self_id!r} is none of the members {sorted(self.peers)}")
        if self.snapshot_keep < 1 or self.heart_beat_time_interval_ms < 1:
            raise ValueError("snapshot_keep and the interval of heartbeats are at least 1")
        object.__setattr__(self, "majority", len(self.peers) // 2 + 1)

    @property
    def others(self) -> list[str]:
        """All members but this one."""
        return [peer for peer in self.peers if peer != self.self_id]

    @property
    def promise_ms(self) -> int:
        """So long after a leader's word a follower elects no other; then it becomes a candidate
        (DLedgerLeaderElector.maintainAsFollower)."""
        return self.heart_beat_time_interval_ms * self.max_heart_beat_leak

    @property
    def lease_ms(self) -> int:
        """So long after it sent a heartbeat that was answered a leader relies on the promise."""
        return int(self.promise_ms * LEASE_RATIO)
