"""What the quorum's core asks of the driver around it.

Owns nothing but the data. The driver does the actions of `Raft.take` in order and waits for each
durable one (SaveTerm, AppendEntries, TruncateFrom, SaveSnapshot) before it goes on, so that a vote,
a term or an entry is on the disk before a peer hears of it. If one of these fails the member is
over: nothing behind it may be done.
"""

from dataclasses import dataclass

from turbopump.controller.raft.log import Base, Entry, Snapshot
from turbopump.controller.raft.messages import RaftMessage, RaftResponseCode
from turbopump.engine.later import Later


@dataclass(frozen=True, slots=True)
class Committed:
    """An append is on a majority, and was applied here."""

    index: int
    term: int
    pos: int


@dataclass(frozen=True, slots=True)
class Failed:
    """An append was refused, or (TERM_CHANGED, WAIT_QUORUM_ACK_TIMEOUT) unknown: the entry may
    still be committed."""

    code: RaftResponseCode
    reason: str


Outcome = Committed | Failed


@dataclass(frozen=True, slots=True)
class SaveTerm:
    """Term and vote, durable before the next action."""

    term: int
    vote: str | None


@dataclass(frozen=True, slots=True)
class AppendEntries:
    """Entries behind the end of the log, durable before the next action."""

    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class TruncateFrom:
    """Remove entries from this index on, durably before the next action."""

    index: int


@dataclass(frozen=True, slots=True)
class SaveSnapshot:
    """Keep a snapshot, then make the log begin behind `base` with `entries`; durable before the
    next action."""

    snapshot: Snapshot
    base: Base
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class TakeSnapshot:
    """Ask the state machine for its state, all up to `index` applied, for `Raft.on_snapshot`."""

    index: int


@dataclass(frozen=True, slots=True)
class LoadSnapshot:
    """The state machine begins anew with this state of all up to `index`."""

    index: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Apply:
    """Committed entries in order, each once in a life of the process."""

    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """A request to a peer; `Raft.on_response` follows once, with None for failure or timeout."""

    peer_id: str
    call: int
    message: RaftMessage


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a request that was handed in with this token."""

    token: object
    message: RaftMessage


@dataclass(frozen=True, slots=True)
class Settle:
    """Resolve what `Raft.append` returned."""

    later: Later[Outcome]
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class BecameLeader:
    """This member leads, and has applied an entry of its own term: all that any leader before it
    committed is applied."""

    term: int


@dataclass(frozen=True, slots=True)
class LostLead:
    """After BecameLeader: it leads no more."""

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
    | Answer
    | Settle
    | BecameLeader
    | LostLead
)
