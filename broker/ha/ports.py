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
    def min(self) -> LogOffset: ...
    @property
    def end(self) -> LogOffset: ...
    @property
    def flushed(self) -> LogOffset: ...
    @property
    def confirm(self) -> LogOffset: ...
    @property
    def believed_end(self) -> LogOffset: ...
    @property
    def is_counted(self) -> bool: ...
    @property
    def file_size(self) -> int: ...
    @property
    def epochs(self) -> Epochs: ...
    @property
    def damage(self) -> Damage | None: ...
    @property
    def is_slow(self) -> bool: ...
    @property
    def failed(self) -> OSError | None: ...
    @property
    def is_blocked(self) -> bool: ...

    def append(
        self, log_offset: LogOffset, data: Buffer, now_ms: int, more: Sequence[Buffer] = ()
    ) -> None: ...
    def go_on(self, now_ms: int) -> None: ...
    def confirm_to(self, log_offset: LogOffset, now_ms: int) -> bool: ...
    def get_ready(self) -> Deferred[Ended]: ...
    def record(self, epochs: Epochs) -> Deferred[Ended]: ...
    def truncating(self, log_end: LogOffset, now_ms: int) -> Deferred[Ended]: ...
    def restarting(self) -> Deferred[Ended]: ...
    def begins_at(self, log_offset: LogOffset) -> bool: ...
    def beginning(self, log_offset: LogOffset) -> Deferred[Ended]: ...
    def view(self, log_offset: LogOffset, size: int) -> list[memoryview]: ...
    def hold(self, key: object, log_offset: LogOffset) -> None: ...
    def release(self, key: object) -> None: ...
    def sync(self, now_ms: int) -> None: ...


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
