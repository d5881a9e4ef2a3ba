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
from turbopump.pyx.pending import PendingSends


class ReplicatedLog(Protocol):
    """The methods of engine.replicated.Replicated used here; `now_ms` is the wall clock's."""

    on_flushed: list[Callable[[LogOffset], None]]
    pending: PendingSends

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
        """Log offset up to which readers may read."""

    @property
    def believed_end(self) -> LogOffset:
        """Log offset up to which `epochs` names the master of each byte reliably."""

    @property
    def is_counted(self) -> bool:
        """Whether the queue offsets of idle queues are known, or the master does not know them."""

    @property
    def file_size(self) -> int:
        """Bytes of a log file."""

    @property
    def epochs(self) -> Epochs:
        """The epoch list: which master wrote which bytes."""

    @property
    def damage(self) -> Damage | None:
        """The first damaged place of the log; None if no damage is known."""

    @property
    def is_slow(self) -> bool:
        """Whether the disk lags too far for the log to take further bytes now."""

    @property
    def failed(self) -> OSError | None:
        """The error of a failed sync; the log takes no change then."""

    @property
    def is_blocked(self) -> bool:
        """Whether received bytes wait for a log file; see `go_on`."""

    def append(
        self, log_offset: LogOffset, data: Buffer, now_ms: int, more: Sequence[Buffer] = ()
    ) -> None:
        """Append bytes of the master's log, `data` and then `more`. Raises StoreError, OSError."""

    def go_on(self, now_ms: int) -> None:
        """While `is_blocked`, write the waiting bytes if there is a log file for them now."""

    def confirm_to(self, log_offset: LogOffset, now_ms: int) -> bool:
        """Let readers read up to `log_offset`, never less than before; returns whether they may
        read more."""

    def get_ready(self) -> Deferred[Ended]:
        """Mark durably that whole records will be written; must precede the first request for
        bytes."""

    def record(self, epochs: Epochs) -> Deferred[Ended]:
        """Make this the epoch list, durably; the bytes that it labels may follow the result
        None."""

    def truncating(self, log_end: LogOffset, now_ms: int) -> Deferred[Ended]:
        """Cut the log at `log_end`, durably; resolves with None or the error."""

    def restarting(self) -> Deferred[Ended]:
        """Remove all of the log, durably; resolves with None or the error."""

    def begins_at(self, log_offset: LogOffset) -> bool:
        """Whether `beginning` must run before bytes from `log_offset` on can be appended."""

    def beginning(self, log_offset: LogOffset) -> Deferred[Ended]:
        """Let the empty log begin at `log_offset`; resolves with None or the error."""

    def view(self, log_offset: LogOffset, size: int) -> list[memoryview]:
        """The bytes of [log_offset, log_offset + size), one piece per file. Raises StoreError."""

    def hold(self, key: object, log_offset: LogOffset) -> None:
        """Protect the files from `log_offset` on from removal by age, for the reader `key`."""

    def release(self, key: object) -> None:
        """End the protection for the reader `key`."""

    def sync(self, now_ms: int) -> None:
        """Begin to make the appended bytes durable; the callbacks `on_flushed` follow."""


class Transport(Protocol):
    """Connections by number. No call invokes a callback before it returns."""

    def connect(self, address: str) -> int:
        """Begin to connect; `on_connected` or `on_closed` with the returned number follows."""

    def send(self, connection: int, buffers: list[Buffer]) -> bool:
        """Write; False if writing should pause until `on_writable` is called. Views of the log
        must not be changed until they are sent, or the connection is closed."""

    def pause(self, connection: int, paused: bool) -> None:
        """Stop or resume reading. No error if the connection is gone."""

    def close(self, connection: int) -> None:
        """Cut the connection, or the attempt to make it: unsent bytes are dropped, and no further
        event is reported. No error if it is gone."""


@dataclass(slots=True, frozen=True)
class Agreed:
    """The set in force, as reported by the controller or file; may differ from the proposal."""

    members: frozenset[int]
    set_epoch: int


@dataclass(slots=True, frozen=True)
class ProposalRefused:
    """The proposal will never become the set."""

    reason: str


@dataclass(slots=True, frozen=True)
class Lost:
    """No answer was received: the proposal may have become the set."""

    reason: str


Answer = Agreed | ProposalRefused | Lost


class Alterations(Protocol):
    """Decides on the members of the SyncStateSet."""

    def propose(self, proposal: Proposal) -> Deferred[Answer]:
        """Propose a set; the result is resolved once, at once or later."""


class StaticSet:
    """A set from a file, which stays: no set should be proposed (SyncOptions.fixed)."""

    def propose(self, proposal: Proposal) -> Deferred[Answer]:
        """Refuse the proposal: the set is fixed."""
        return Deferred.resolved(
            ProposalRefused(f"the set is fixed and cannot become {sorted(proposal.members)}")
        )
