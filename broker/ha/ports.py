"""What the drivers of replication need: a log, connections, and who agrees to a new SyncStateSet.

Owns the protocols, and the answer of a set that is written down. `engine.replicated` is the log;
`sockets` and the simulator are transports. It must never know a connection's bytes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from turbopump.engine.later import Later
from turbopump.engine.log.damage import Damage
from turbopump.engine.log.epochs import Epochs
from turbopump.engine.types import Buffer, LogOffset
from turbopump.engine.upkeep.cutting import Ended
from turbopump.net.ha.sync_state import Proposal
from turbopump.pyx.pending import PendingSends


class ReplicatedLog(Protocol):
    """engine.replicated.Replicated as it is used here; `now_ms` is the wall clock's."""

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
    def get_ready(self) -> Later[Ended]: ...
    def record(self, epochs: Epochs) -> Later[Ended]: ...
    def truncating(self, log_end: LogOffset, now_ms: int) -> Later[Ended]: ...
    def restarting(self) -> Later[Ended]: ...
    def begins_at(self, log_offset: LogOffset) -> bool: ...
    def beginning(self, log_offset: LogOffset) -> Later[Ended]: ...
    def view(self, log_offset: LogOffset, size: int) -> list[memoryview]: ...
    def hold(self, key: object, log_offset: LogOffset) -> None: ...
    def release(self, key: object) -> None: ...
    def sync(self, now_ms: int) -> None: ...


class Transport(Protocol):
    """Connections by number. None of these calls back before it returns."""

    def connect(self, address: str) -> int:
        """Begin to connect; `on_connected` or `on_closed` with the returned number follows."""

    def send(self, connection: int, buffers: list[Buffer]) -> bool:
        """Write; False if no more should be written until `on_writable` is called. Views of the
        log must not be changed until they are sent, or the connection is closed."""

    def pause(self, connection: int, paused: bool) -> None:
        """Read no more from it, or go on. No error if it is gone."""

    def close(self, connection: int) -> None:
        """Cut it, or the try to make it: nothing that is not yet sent goes out, nothing more is
        reported of it. No error if it is gone."""


@dataclass(slots=True, frozen=True)
class Agreed:
    """The set in force, as the controller or the file says it; not necessarily the proposed one."""

    members: frozenset[int]
    set_epoch: int


@dataclass(slots=True, frozen=True)
class ProposalRefused:
    """The proposal will never be the set."""

    reason: str


@dataclass(slots=True, frozen=True)
class Lost:
    """Nothing was heard: the proposal may be the set."""

    reason: str


Answer = Agreed | ProposalRefused | Lost


class Alterations(Protocol):
    """Who decides what the SyncStateSet is."""

    def propose(self, proposal: Proposal) -> Later[Answer]:
        """Ask for a set; answered once, at once or later."""


class StaticSet:
    """The set is written down and stays: nothing should be proposed (SyncOptions.fixed)."""

    def propose(self, proposal: Proposal) -> Later[Answer]:
        """No."""
        later: Later[Answer] = Later()
        later.resolve(ProposalRefused(f"the set is fixed, {sorted(proposal.members)} cannot be it"))
        return later
