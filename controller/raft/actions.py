"""Actions that the quorum's core returns; the driver executes them in order.

Owns only the data. The driver performs the actions of `Raft.take_actions` in order and completes
each durable one (SaveTerm, AppendEntries, TruncateFrom, SaveSnapshot) before the next, so that a
vote, a term or an entry is on the disk before a peer learns of it. If a durable action fails, the
member stops: no later action may be performed.

Tests: tests/unit/controller/raft/test_storage.py
"""

from dataclasses import dataclass

from turbopump.controller.raft.log import Base, Entry, Snapshot
from turbopump.controller.raft.messages import RaftMessage, RaftResponseCode
from turbopump.engine.deferred import Deferred


@dataclass(frozen=True, slots=True)
class Committed:
    """Success of an append: the entry is on a majority, and was applied here."""

    index: int
    term: int
    pos: int
    """Byte position of the entry; see Entry.pos."""


@dataclass(frozen=True, slots=True)
class Failed:
    """Failure of an append: it was refused, or its fate is unknown.

    With TERM_CHANGED and WAIT_QUORUM_ACK_TIMEOUT the entry may still be committed.
    """

    code: RaftResponseCode
    reason: str
    """A single line for logs."""


Outcome = Committed | Failed
"""Result of an append."""


@dataclass(frozen=True, slots=True)
class SaveTerm:
    """Write term and vote; durable before the next action."""

    term: int
    vote: str | None
    """Id of the member that has this member's vote in `term`; None: not given."""


@dataclass(frozen=True, slots=True)
class AppendEntries:
    """Write entries after the end of the log; durable before the next action."""

    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class TruncateFrom:
    """Remove the entries at `index` and after it; durable before the next action."""

    index: int


@dataclass(frozen=True, slots=True)
class SaveSnapshot:
    """Write a snapshot, then let the log consist of `entries` after `base`.

    `base` is the snapshot's base or earlier. Both are durable before the next action.
    """

    snapshot: Snapshot
    base: Base
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class TakeSnapshot:
    """Encode the machine's state after all entries up to `index`, inclusive, and give it to
    `Raft.on_snapshot`."""

    index: int


@dataclass(frozen=True, slots=True)
class LoadSnapshot:
    """Replace the machine's state by a snapshot of all entries up to `index`, inclusive."""

    index: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Apply:
    """Apply committed entries in order, each once during the life of the process."""

    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """Send a request to a peer, then call `Raft.on_response` once, with None for a failure."""

    peer_id: str
    call: int
    """Number of the call, for `on_response`."""
    message: RaftMessage


@dataclass(frozen=True, slots=True)
class Response:
    """Answer the request for which `Raft.on_request` got this token."""

    token: object
    message: RaftMessage


@dataclass(frozen=True, slots=True)
class Settle:
    """Resolve `later`, which `Raft.append` returned, with `outcome`."""

    later: Deferred[Outcome]
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class BecameLeader:
    """This member leads, and has applied an entry of its own term.

    So all entries that any earlier leader committed are applied here.
    """

    term: int


@dataclass(frozen=True, slots=True)
class LostLead:
    """This member, after BecameLeader, stopped leading in `term`."""

    term: int


Action = (
    SaveTerm
    | AppendEntries
    | TruncateFrom
    | SaveSnapshot
    | TakeSnapshot
    | LoadSnapshot
    | Apply
    | Call
    | Response
    | Settle
    | BecameLeader
    | LostLead
)
"""A step that the driver performs."""
