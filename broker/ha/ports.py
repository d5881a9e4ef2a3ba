"""Interfaces of the drivers of replication: log, connections, decisions on the SyncStateSet.

Also has the answers of `Alterations`, and the implementation for a fixed set. `engine.replicated`
is the log; `sockets` and the simulator are transports.

Tests: tests/unit/broker/ha/test_service.py
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from turbopump.engine.deferred import Deferred
from turbopump.engine.lifecycle.truncate_async import Ended
from turbopump.engine.log.damage import Damage
from turbopump.engine.log.epochs import Epochs
from turbopump.engine.types import Buffer, LogOffset
from turbopump.net.ha.sync_state import Proposal
from turbopump.pyx.ha_copy import PlainFrames
from turbopump.pyx.pending import PendingSends


class ReplicatedLog(Protocol):
    """The log, as replication uses it (engine.replicated.Replicated). `now_ms` is of the wall
    clock, in ms since 1970. Loop thread only; a Deferred is resolved there, at once or after a disk
    thread's work, to None or the error."""

    on_flushed: list[Callable[[LogOffset], None]]
    """Callbacks after a sync, with the log offset before which all bytes are durable."""
    pending: PendingSends
    """Sends that wait for the disk or for replicas."""

    @property
    def min(self) -> LogOffset:
        """Log offset of the first byte that retention has not removed."""

    @property
    def end(self) -> LogOffset:
        """Log offset after the last byte of the log."""

    @property
    def flushed(self) -> LogOffset:
        """Log offset before which all bytes are durable."""

    @property
    def confirm(self) -> LogOffset:
        """Log offset before which readers may read: a record boundary."""

    @property
    def believed_end(self) -> LogOffset:
        """Log offset before which `epochs` reliably names the epoch of each byte; less than `end`
        if the epoch file was damaged or lost."""

    @property
    def has_queue_counts(self) -> bool:
        """Whether the queue offsets of queues without a message in this log are known, or the
        master does not know them (a RocketMQ broker)."""

    @property
    def file_size(self) -> int:
        """Size of each log file in bytes."""

    @property
    def epochs(self) -> Epochs:
        """The epoch list: the log offset at which each master's epoch starts."""

    @property
    def damage(self) -> Damage | None:
        """The first damaged place of the log; None if no damage is known."""

    @property
    def is_slow(self) -> bool:
        """Whether the disk lags too far for the log to take further bytes now; the caller should
        pause reading, `append` still works."""

    @property
    def failed(self) -> OSError | None:
        """The error of a failed sync, None without one; after it the log takes no change until the
        store is opened again."""

    @property
    def is_blocked(self) -> bool:
        """Whether received bytes wait for a log file; see `write_waiting_bytes`."""

    def append(
        self, log_offset: LogOffset, data: Buffer, now_ms: int, more: Sequence[Buffer] = ()
    ) -> None:
        """Append bytes of the master's log, `data` and then `more`, from `log_offset` on, at which
        the earlier bytes end (`needs_begin_at` must be False). An incomplete record waits in
        memory; nothing is durable before a sync. Raises StoreError, OSError; the bytes before `end`
        were appended then. If `is_blocked` after the call, bytes wait for `write_waiting_bytes`."""

    def write_waiting_bytes(self, now_ms: int) -> None:
        """While `is_blocked`, write the waiting bytes if there is a log file for them now. Raises
        StoreError, OSError."""

    def append_frames(self, frames: PlainFrames) -> bool:
        """Append the bodies that `frames` took. False, with nothing written, where only `append`
        can append them."""

    def confirm_to(self, log_offset: LogOffset, now_ms: int) -> bool:
        """Let readers read up to the last record boundary at or before `log_offset`, never less
        than before; returns whether they may read more now. Under SYNC_FLUSH bytes count once they
        are durable. Readers' callbacks run inside the call."""

    def get_ready(self) -> Deferred[Ended]:
        """Mark durably that only whole records will be written, after all earlier steps; must
        precede the first request for a master's bytes."""

    def record_epochs(self, epochs: Epochs) -> Deferred[Ended]:
        """Replace the epoch list, durably; the bytes that it labels may be appended after the
        result None. After an error the old list stays valid."""

    def begin_truncation(self, log_end: LogOffset, now_ms: int) -> Deferred[Ended]:
        """Cut the log, its queues, index and epochs at `log_end`, the start of a record, durably.
        No bytes may be appended before the result."""

    def begin_restart(self) -> Deferred[Ended]:
        """Remove all of the log, its queues, index and epochs, durably; the next append sets where
        the log begins. No bytes may be appended before the result."""

    def needs_begin_at(self, log_offset: LogOffset) -> bool:
        """Whether `begin_log_at` must run before bytes from `log_offset` on can be appended."""

    def begin_log_at(self, log_offset: LogOffset) -> Deferred[Ended]:
        """Let the empty log begin at `log_offset`, durably. No bytes may be appended before the
        result."""

    def view(self, log_offset: LogOffset, size: int) -> list[memoryview]:
        """Return views, not copies, of the bytes [log_offset, log_offset + size), one per file;
        they stay valid when retention removes the file. Raises StoreError if the log lacks some of
        the bytes."""

    def protect_files(self, key: object, log_offset: LogOffset) -> None:
        """Protect the files from `log_offset` on from removal by age, not from a full disk, until
        `unprotect_files`; a later call replaces the offset of the reader `key`."""

    def unprotect_files(self, key: object) -> None:
        """End the protection for the reader `key`; no-op without one."""

    def sync(self, now_ms: int) -> None:
        """Begin to make the appended bytes durable on a disk thread; the callbacks `on_flushed`
        follow."""


class Transport(Protocol):
    """Connections of replication, each with a number. No call invokes a callback before it
    returns."""

    def connect(self, address: str) -> int:
        """Begin to connect to the `host:port` in `address`, and return the connection's number;
        `on_connected` or `on_closed` with this number follows."""

    def send(self, connection: int, buffers: list[Buffer]) -> bool:
        """Queue all buffers for sending, without copies; False if the caller should pause until
        `on_writable` is called, or if the connection is gone. Views of the log must not be changed
        until they are sent, or the connection is closed."""

    def set_paused(self, connection: int, paused: bool) -> None:
        """Stop (`paused`) or resume reading. No error if the connection is gone."""

    def close(self, connection: int) -> None:
        """Cut the connection, or the attempt to make it: unsent bytes are dropped, and no further
        event is reported. No error if it is gone."""


@dataclass(slots=True, frozen=True)
class Agreed:
    """Decision on a proposal: the SyncStateSet in force, as reported by the controller; may differ
    from the proposal."""

    members: frozenset[int]
    """Broker ids, the master's included."""
    set_epoch: int
    """Epoch of the set: it grows with each change."""


@dataclass(slots=True, frozen=True)
class ProposalRefused:
    """Decision on a proposal: it will never become the SyncStateSet."""

    reason: str
    """The controller's remark, for the log."""


@dataclass(slots=True, frozen=True)
class DecisionUnknown:
    """Decision on a proposal is unknown, because no decisive answer was received: it may have
    become the SyncStateSet."""

    reason: str
    """The reason why the answer is missing, for the log."""


ProposalOutcome = Agreed | ProposalRefused | DecisionUnknown
"""Outcome of a proposal."""


class Alterations(Protocol):
    """Decides on proposals of the SyncStateSet: the controllers, or a fixed set."""

    def propose(self, proposal: Proposal) -> Deferred[ProposalOutcome]:
        """Propose a SyncStateSet; resolves exactly once, at once or later, to the decision, unless
        the broker stops."""


class StaticSet:
    """A SyncStateSet from a group file, which does not change: no set should be proposed
    (SyncOptions.fixed)."""

    def propose(self, proposal: Proposal) -> Deferred[ProposalOutcome]:
        """Return a resolved ProposalRefused: the SyncStateSet is fixed."""
        return Deferred.resolved(
            ProposalRefused(f"the set is fixed and cannot become {sorted(proposal.members)}")
        )
