"""DLedger's requests and answers: dataclasses, and their JSON as DLedger 0.3.2 writes it.

Owns the fields, their Java names and the codes (DLedgerRequestCode, DLedgerResponseCode,
VoteResponse.RESULT). It must never decide anything.

Members that DLedger 0.3.2 does not know are omitted where they are not needed: `transfer` of a vote
request, `preLogIndex`, `preLogTerm` and `nextTerm` of a push, `xTerm` and `xIndex` of its answer
(named as in DLedger 0.3.3 where it has them). Java skips unknown members.
"""

import base64
import binascii
import json
import re
from collections.abc import Callable, Generator
from dataclasses import MISSING, dataclass, fields, replace
from enum import IntEnum, StrEnum
from typing import Any, Final, TypeVar, get_args

from turbopump.controller.raft.log import ENTRY_OVERHEAD, Entry
from turbopump.engine import fastjson

INT64_MAX = (1 << 63) - 1
"""Greatest accepted absolute value of a number in a message."""
LIST_MAX = 10_000
"""Entries, members or indexes in one message, at most."""

VALUES_MAX = 200_000
"""Commas and brackets of a message, at most, counted before parsing: LIST_MAX entries have half of
them, and 200,000 are parsed in some 20 ms."""
SMALL_MAX = 64 << 10
"""Bytes of a body whose values are not counted, and that is parsed as tolerantly as by fastjson. A
longer body must be JSON as both DLedgers write it, so that malformed text costs no time."""


class MessageError(ValueError):
    """A body that is not a message of the expected kind; the text is one sentence."""


class RaftRequestCode(IntEnum):
    """Remoting request codes of DLedger's messages (DLedgerRequestCode)."""

    METADATA = 50000  # of a client: the leader and all members
    APPEND = 50001  # of a client: append an entry
    GET = 50002  # of a client: read an entry
    VOTE = 51001  # a candidate's request
    HEART_BEAT = 51002  # the leader's
    PULL = 51003  # unused
    PUSH = 51004  # the leader's entries, or a comparison of logs
    LEADERSHIP_TRANSFER = 51005  # to the leader, or to its successor
    INSTALL_SNAPSHOT = 51006  # the leader's snapshot (DLedger 0.3.3)


class RaftResponseCode(IntEnum):
    """Values of an answer's member `code` (DLedgerResponseCode). A member here sends only SUCCESS
    and codes with a comment."""

    UNKNOWN = -1
    SUCCESS = 200
    TIMEOUT = 300
    METADATA_ERROR = 301
    NETWORK_ERROR = 302  # the member that was asked to lead did not answer
    UNSUPPORTED = 303
    UNKNOWN_GROUP = 400  # the request names another quorum
    UNKNOWN_MEMBER = 401  # the request is for another member, or of no member
    UNEXPECTED_MEMBER = 402  # a heartbeat with the receiver's own id
    EXPIRED_TERM = 403  # the request's term is lower than the receiver's
    NOT_LEADER = 404  # the receiver does not lead
    NOT_FOLLOWER = 405  # a push to a member that follows no leader
    INCONSISTENT_STATE = 406  # the logs differ at the pushed place
    INCONSISTENT_TERM = 407  # the request's term is not the receiver's
    INCONSISTENT_INDEX = 408
    INCONSISTENT_LEADER = 409  # the sender is not the leader of the receiver's term
    INDEX_OUT_OF_RANGE = 410  # no committed entry has the index
    UNEXPECTED_ARGUMENT = 411  # a field cannot be used
    REPEATED_REQUEST = 412
    REPEATED_PUSH = 413
    DISK_ERROR = 414
    DISK_FULL = 415
    TERM_NOT_READY = 416  # the receiver has only raised its term: repeat the heartbeat
    FALL_BEHIND_TOO_MUCH = 417  # the successor lacks too many entries
    TAKE_LEADERSHIP_FAILED = 418  # the successor did not become leader
    INDEX_LESS_THAN_LOCAL_BEGIN = 419  # a snapshot has replaced the entry
    REQUEST_WITH_EMPTY_BODYS = 420  # an append without a body
    INTERNAL_ERROR = 500
    TERM_CHANGED = 501  # the term ended: the entry may be committed or not
    WAIT_QUORUM_ACK_TIMEOUT = 502  # no majority in time: the entry may be committed or not
    LEADER_PENDING_FULL = 503  # too many appends wait
    ILLEGAL_MEMBER_STATE = 504
    LEADER_NOT_READY = 505
    LEADER_TRANSFERRING = 506  # the leader is handing over


class VoteResult(StrEnum):
    """A member's answer to a candidate; votes.py has the conditions (VoteResponse.RESULT)."""

    UNKNOWN = "UNKNOWN"  # no vote now
    ACCEPT = "ACCEPT"  # the vote is given
    REJECT_UNKNOWN_LEADER = "REJECT_UNKNOWN_LEADER"  # the candidate is no member
    REJECT_UNEXPECTED_LEADER = "REJECT_UNEXPECTED_LEADER"  # the candidate has the voter's id
    REJECT_EXPIRED_VOTE_TERM = "REJECT_EXPIRED_VOTE_TERM"  # the term is below the voter's
    REJECT_ALREADY_VOTED = "REJECT_ALREADY_VOTED"  # another member has the vote
    REJECT_ALREADY_HAS_LEADER = "REJECT_ALREADY_HAS_LEADER"  # the voter follows another leader
    REJECT_TERM_NOT_READY = "REJECT_TERM_NOT_READY"  # DLedger's: ask again
    REJECT_TERM_SMALL_THAN_LEDGER = "REJECT_TERM_SMALL_THAN_LEDGER"  # term below the voter's log
    REJECT_EXPIRED_LEDGER_TERM = "REJECT_EXPIRED_LEDGER_TERM"  # log ends in a lower term
    REJECT_SMALL_LEDGER_END_INDEX = "REJECT_SMALL_LEDGER_END_INDEX"  # log ends before the voter's
    REJECT_TAKING_LEADERSHIP = "REJECT_TAKING_LEADERSHIP"  # the voter takes over itself


class PushType(StrEnum):
    """Kind of a push: compare, truncate, append or commit (PushEntryRequest.Type)."""

    APPEND = "APPEND"  # entries to append
    COMMIT = "COMMIT"  # the committed index only
    COMPARE = "COMPARE"  # compare index and term of an entry
    TRUNCATE = "TRUNCATE"  # remove entries that the leader lacks


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftMessage:
    """Fields that all messages have (RequestOrResponse); None is omitted in the JSON."""

    code: int = RaftResponseCode.SUCCESS
    """A RaftResponseCode; only meaningful in answers."""
    group: str | None = None
    """Name of the quorum."""
    leader_id: str | None = None
    """Id of the sender's leader; in a vote request and its answer, of the candidate."""
    local_id: str | None = None
    """Id of the member that sent the request."""
    remote_id: str | None = None
    """Id of the member that receives the request."""
    term: int = -1
    """Term of the sender; -1: not sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteRequest(RaftMessage):
    """A candidate, named by `leader_id`, requests a vote."""

    ledger_end_index: int = -1
    """Index of the last entry of the candidate's log."""
    ledger_end_term: int = -1
    """Term of that entry."""
    transfer: bool | None = None
    """Whether the leader itself requested this election (ours)."""
    pre_vote: int | None = None
    """The term of a pre-vote: the candidate asks whether it would get a vote in it (ours). `term`
    is then -1, so that DLedger refuses the request and changes nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteResponse(RaftMessage):
    """The answer to a vote request; `leader_id` is the candidate again."""

    vote_result: VoteResult = VoteResult.UNKNOWN
    pre_vote: int | None = None
    """The answer to a pre-vote: the lowest term from the requested one whose vote is free."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartBeatRequest(RaftMessage):
    """The leader's heartbeat."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartBeatResponse(RaftMessage):
    """The answer to a heartbeat, bare as Java's: a code, and a term only with EXPIRED_TERM."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PushEntryRequest(RaftMessage):
    """A push of the leader to a follower, which compares, truncates, appends or commits, with one
    entry or a batch."""

    type: PushType = PushType.APPEND
    commit_index: int = -1
    """Index of the leader's last committed entry."""
    entry: Entry | None = None
    """The only entry; None with a batch, and with COMMIT."""
    batch_entry: tuple[Entry, ...] = ()
    pre_log_index: int | None = None
    pre_log_term: int | None = None
    """Index and term of the leader's entry before the first one; with COMPARE, of the compared
    entry."""
    next_term: int | None = None
    """Term of the leader's next entry, only with TRUNCATE; -1 without such an entry (ours)."""

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The entries of the batch, or the only entry, or ()."""
        if self.batch_entry:
            return self.batch_entry
        return (self.entry,) if self.entry is not None else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PushEntryResponse(RaftMessage):
    """The answer to a push, with the bounds of the follower's log."""

    index: int | None = None
    """Index of the first pushed entry; None without entries."""
    begin_index: int = -1
    end_index: int = -1
    """Indexes of the first and the last entry of the follower's log."""
    count: int = 0
    """Number of pushed entries, at least 1."""
    x_term: int | None = None
    """Term of the follower's conflicting entry, only with INCONSISTENT_STATE."""
    x_index: int | None = None
    """Index of the follower's first entry of that term."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallSnapshotRequest(RaftMessage):
    """A snapshot for a follower that lacks the entries before the leader's log (DLedger 0.3.3)."""

    last_included_index: int = -1
    last_included_term: int = -1
    last_included_pos: int | None = None
    """The byte position after the snapshot's last entry (ours)."""
    data: bytes = b""
    """The machine's state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallSnapshotResponse(RaftMessage):
    """The answer to a snapshot: SUCCESS means that it is on the follower's disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeadershipTransferRequest(RaftMessage):
    """To the leader: hand the leadership over. To `transferee_id`: take it over."""

    transfer_id: str | None = None
    """Id of the present leader."""
    transferee_id: str | None = None
    """Id of the member that is to lead."""
    take_leadership_ledger_index: int = 0
    """Index of the last entry that the new leader must have before it campaigns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeadershipTransferResponse(RaftMessage):
    """The answer to a transfer request, once the leader is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataRequest(RaftMessage):
    """A client requests the leader and the members."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataResponse(RaftMessage):
    """The leader (`leader_id`) and all members."""

    peers: dict[str, str] | None = None
    """`host:port` of each member by id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendEntryRequest(RaftMessage):
    """A client appends an entry with this body; an empty one is refused."""

    body: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendEntryResponse(RaftMessage):
    """Index and byte position of the committed entry; -1 with an error code."""

    index: int = -1
    pos: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class GetEntriesRequest(RaftMessage):
    """A client reads the entry at `begin_index`; the other fields have no effect here."""

    begin_index: int | None = None
    max_size: int = 0
    index_list: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetEntriesResponse(RaftMessage):
    """The requested entry; () with an error code."""

    entries: tuple[Entry, ...] = ()


REQUESTS: dict[int, type[RaftMessage]] = {
    RaftRequestCode.METADATA: MetadataRequest,
    RaftRequestCode.APPEND: AppendEntryRequest,
    RaftRequestCode.GET: GetEntriesRequest,
    RaftRequestCode.VOTE: VoteRequest,
    RaftRequestCode.HEART_BEAT: HeartBeatRequest,
    RaftRequestCode.PUSH: PushEntryRequest,
    RaftRequestCode.LEADERSHIP_TRANSFER: LeadershipTransferRequest,
    RaftRequestCode.INSTALL_SNAPSHOT: InstallSnapshotRequest,
}
"""Kinds of requests by remoting code. PULL has no use in DLedger: its handler answers nothing."""

RESPONSES: dict[type[RaftMessage], type[RaftMessage]] = {
    MetadataRequest: MetadataResponse,
    AppendEntryRequest: AppendEntryResponse,
    GetEntriesRequest: GetEntriesResponse,
    VoteRequest: VoteResponse,
    HeartBeatRequest: HeartBeatResponse,
    PushEntryRequest: PushEntryResponse,
    LeadershipTransferRequest: LeadershipTransferResponse,
    InstallSnapshotRequest: InstallSnapshotResponse,
}
"""Kind of answer by kind of request."""

SIZES_MAX: dict[type[RaftMessage], int] = {
    AppendEntryRequest: 6 << 20,  # an entry of 4 MiB, as text
    PushEntryRequest: 6 << 20,
    InstallSnapshotRequest: 1 << 62,
    GetEntriesRequest: 256 << 10,
    GetEntriesResponse: 1 << 62,
    MetadataResponse: 1 << 62,
}
"""Bytes of a body, at most; other kinds have SMALL_MAX. The frame's limit bounds the rest."""

DATA_PER_STEP: Final = 1 << 20
"""Bytes of base64 that are decoded in one step, in 2 ms; a multiple of 4."""

ENTRIES_PER_STEP: Final = 1_000
"""Entries of a push that are decoded in one step, in 3 ms."""

_DATA: Final = re.compile(rb'"data"\s*:\s*"')
_BODY: Final = re.compile(rb'"body"\s*:\s*"')
_CODES = {kind: code for code, kind in REQUESTS.items()}
M = TypeVar("M", bound=RaftMessage)


def request_code(message: RaftMessage) -> int:
    """Return the remoting code of a request. Raises KeyError for an answer."""
    return _CODES[type(message)]


def encode(message: RaftMessage) -> bytes:
    """Encode a message as a frame's body, with sorted keys and without nulls, like fastjson."""
    found: dict[str, Any] = {}
    for name, key, _kind, _default in _MEMBERS[type(message)]:
        value = getattr(message, name)
        if value is not None:
            found[key] = _json_value(value)
    if isinstance(message, PushEntryRequest):
        entries = message.entries
        found["batch"] = bool(message.batch_entry)
        found["count"] = len(entries)
        found["firstEntryIndex"] = entries[0].index if entries else -1
        found["lastEntryIndex"] = entries[-1].index if entries else -1
        found["totalSize"] = sum(entry.size for entry in message.batch_entry)
    return fastjson.dumps(found).encode()


def decode(kind: type[M], body: bytes) -> M:
    """Decode a message from a frame's body; unknown JSON members are skipped, missing ones get
    their defaults. Raises MessageError if the body is malformed or over its limit (SIZES_MAX)."""
    return _message_from(kind, _checked_object(kind, body))


def _checked_object(kind: type[RaftMessage], body: bytes) -> dict[str, Any]:
    """Parse a body of this kind into a JSON object. Raises MessageError, also over the limits."""
    limit = SIZES_MAX.get(kind, SMALL_MAX)
    if len(body) > limit:
        raise MessageError(f"{kind.__name__}: {len(body)} bytes, over {limit}")
    if len(body) > SMALL_MAX and sum(map(body.count, (b",", b"[", b"{"))) > VALUES_MAX:
        raise MessageError(f"{kind.__name__}: over {VALUES_MAX} values")
    try:
        found = fastjson.loads(body) if len(body) <= SMALL_MAX else json.loads(body)
    except (ValueError, RecursionError) as error:
        raise MessageError(f"{kind.__name__}: {error}") from None
    if not isinstance(found, dict):
        raise MessageError(f"{kind.__name__}: no object")
    if kind is PushEntryRequest and "entries" in found and "batchEntry" not in found:
        found["batchEntry"] = found["entries"]  # DLedger 0.3.3
    return found


def _message_from(kind: type[M], found: dict[str, Any]) -> M:
    """Make a message of this kind from JSON members. Raises MessageError."""
    values: dict[str, Any] = {}
    for name, key, wanted, default in _MEMBERS[kind]:
        value = found.get(key)
        if value is None:
            if default is MISSING:
                raise MessageError(f"{kind.__name__}: no {key}")
            continue
        try:
            values[name] = _READERS[wanted](value)
        except (ValueError, TypeError, KeyError) as error:
            raise MessageError(f"{kind.__name__}: {key}: {error}") from None
    return kind(**values)


def push_in_steps(body: bytes) -> Generator[None, None, PushEntryRequest]:
    """Decode a push with many entries in steps; the generator returns it. Raises MessageError."""
    kind = PushEntryRequest
    found = _checked_object(kind, body)
    listed = found.pop("batchEntry", None)
    entries: list[Entry] = []
    try:
        parts = [] if listed is None else _read_list(listed)
        for at in range(0, len(parts), ENTRIES_PER_STEP):
            yield
            entries.extend(map(_read_entry, parts[at : at + ENTRIES_PER_STEP]))
    except (ValueError, TypeError, KeyError) as error:
        raise MessageError(f"{kind.__name__}: batchEntry: {error}") from None
    yield
    return replace(_message_from(kind, found), batch_entry=tuple(entries))


def snapshot_in_steps(body: bytes) -> Generator[None, None, InstallSnapshotRequest]:
    """Decode a snapshot whose `data` has megabytes in steps; the generator returns it. Raises
    MessageError."""
    message, data = yield from _base64_in_steps(InstallSnapshotRequest, body, _DATA)
    return replace(message, data=data)


def append_in_steps(body: bytes) -> Generator[None, None, AppendEntryRequest]:
    """Decode an append whose entry has megabytes in steps; the generator returns it. Raises
    MessageError."""
    limit = SIZES_MAX[AppendEntryRequest]
    if len(body) > limit:
        raise MessageError(f"{AppendEntryRequest.__name__}: {len(body)} bytes, over {limit}")
    message, entry = yield from _base64_in_steps(AppendEntryRequest, body, _BODY)
    return replace(message, body=entry)


def _base64_in_steps(
    kind: type[M], body: bytes, wanted: re.Pattern[bytes]
) -> Generator[None, None, tuple[M, bytes]]:
    """Decode, in steps, a message and the bytes of its long base64 member, which `wanted` finds in
    the body: returns (the message without that member, the bytes)."""
    found = wanted.search(body)
    if found is None:
        raise MessageError(f"{kind.__name__}: {len(body)} bytes without data, over {SMALL_MAX}")
    begin = found.end()
    end = body.find(b'"', begin)
    if end < 0:
        raise MessageError(f"{kind.__name__}: its data has no end")
    rest = body[:begin] + body[end:]
    if len(rest) > SMALL_MAX:
        raise MessageError(f"{kind.__name__}: {len(rest)} bytes beside its data, over {SMALL_MAX}")
    message = decode(kind, rest)
    pieces: list[bytes] = []
    try:
        for at in range(begin, end, DATA_PER_STEP):
            yield
            piece = body[at : min(at + DATA_PER_STEP, end)]
            pieces.append(base64.b64decode(piece, validate=True))
    except binascii.Error as error:
        raise MessageError(f"{kind.__name__}: data: no base64: {error}") from None
    yield
    return message, b"".join(pieces)


IN_STEPS: Final[dict[type[RaftMessage], Callable[[bytes], Generator[None, None, RaftMessage]]]] = {
    AppendEntryRequest: append_in_steps,
    InstallSnapshotRequest: snapshot_in_steps,
    PushEntryRequest: push_in_steps,
}
"""Decoders in steps for bodies over SMALL_MAX, by kind of request."""


def _members_of(kind: type[RaftMessage]) -> list[tuple[str, str, Any, Any]]:
    """Return (name, key, type without None, default) of a message's fields."""
    members: list[tuple[str, str, Any, Any]] = []
    for one in fields(kind):
        first, *more = one.name.split("_")
        key = first + "".join(part.capitalize() for part in more)
        wanted: Any = one.type
        if type(None) in get_args(wanted):
            wanted = next(part for part in get_args(wanted) if part is not type(None))
        members.append((one.name, key, wanted, one.default))
    return members


def _json_value(value: Any) -> Any:
    """A field's value as JSON has it: bytes as base64, entries as objects, enumerations
    as their values."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Entry):
        return {
            "body": _json_value(value.body),
            "bodyCrc": 0,
            "chainCrc": 0,
            "channel": 0,
            "index": value.index,
            "magic": 1,
            "pos": value.pos,
            "size": value.size,
            "term": value.term,
        }
    if isinstance(value, tuple):
        return [_json_value(part) for part in value]
    if isinstance(value, IntEnum):
        return int(value)
    if isinstance(value, StrEnum):
        return str(value)
    return value


def _read_int(value: Any) -> int:
    if type(value) is not int or not -INT64_MAX <= value <= INT64_MAX:
        raise ValueError("no number of 64 bits")
    return value


def _read_text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("no text")
    return value


def _read_flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("neither true nor false")
    return value


def _read_base64(value: Any) -> bytes:
    try:
        return base64.b64decode(_read_text(value), validate=True)
    except binascii.Error as error:
        raise ValueError(f"no base64: {error}") from None


def _read_list(value: Any) -> list[Any]:
    if not isinstance(value, list) or len(value) > LIST_MAX:
        raise ValueError(f"no list of at most {LIST_MAX}")
    return value


def _read_texts(value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or len(value) > LIST_MAX:
        raise ValueError("no map of texts")
    return {_read_text(key): _read_text(text) for key, text in value.items()}


def _read_entry(value: Any) -> Entry:
    if not isinstance(value, dict):
        raise ValueError("no entry")
    text = value.get("body")
    body = _read_base64(text) if text is not None else b""
    index, term, pos = (_read_int(value.get(key)) for key in ("index", "term", "pos"))
    if index < 0 or term < 0 or pos < 0:
        raise ValueError("an entry with a negative number")
    if _read_int(value.get("size")) != ENTRY_OVERHEAD + len(body):
        raise ValueError("an entry's size differs from its field")
    return Entry(index, term, pos, body)


_READERS: dict[Any, Any] = {
    int: _read_int,
    str: _read_text,
    bool: _read_flag,
    bytes: _read_base64,
    VoteResult: VoteResult,
    PushType: PushType,
    Entry: _read_entry,
    tuple[Entry, ...]: lambda value: tuple(_read_entry(part) for part in _read_list(value)),
    tuple[int, ...]: lambda value: tuple(_read_int(part) for part in _read_list(value)),
    dict[str, str]: _read_texts,
}

_MEMBERS = {kind: _members_of(kind) for kind in (*RESPONSES, *RESPONSES.values())}
