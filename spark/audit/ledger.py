"""What the clients and brokers of a run wrote down while it went on: one JSON object a line.

Owns the format (docs/FORMATS.md) and its reading in parts, so that a large ledger is read by many
at once. It must never look into a store. Called by writers of ledgers, and by the job.

A writer adds a line when something is certain: when an acknowledgement has arrived, when a reader
has got a message. A process that is killed while it writes leaves half a line, which is no line.
Keys that are not known are passed over.
"""

import gzip
import hashlib
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NoReturn

PART_BYTES = 64 << 20
"""Of a ledger that one task reads: some 400,000 lines."""
LINE_MAX = 1 << 20
"""A list of 10,000 epochs fits; more is no line."""
DIGEST_MIN, DIGEST_MAX = 16, 64
DIGEST_SIZE = 32
"""Hex digits of a SHA-256 that we write: no run has two messages with the same 16 bytes."""
ID_SIZES = (32, 56)
"""Hex digits of an offset message id: host of IPv4 or IPv6, port, log offset."""
NUMBER_MAX = (1 << 63) - 1
SUFFIXES = (".jsonl", ".jsonl.gz", ".ledger")
"""Of the files that count as ledgers in a folder."""

Pairs = tuple[tuple[int, int], ...]


class LedgerError(ValueError):
    """A line that is none; the text names the file and the byte."""


@dataclass(slots=True, frozen=True)
class Claim:
    """A client received word that a message lies at a place, or got it from there."""

    read: bool
    """By a reader; else by its sender."""
    topic: str
    queue_id: int
    queue_offset: int
    digest: str = ""
    """First hex digits of the SHA-256 of the body as it was sent; "": not written down."""
    key: str = ""
    """The property UNIQ_KEY."""
    log_offset: int | None = None
    broker: str = ""
    epoch: int | None = None

    @property
    def place(self) -> tuple[str, int, int]:
        """Where it is said to lie."""
        return self.topic, self.queue_id, self.queue_offset


@dataclass(slots=True, frozen=True)
class Confirmed:
    """A broker said that the log before an offset is safe."""

    store: str
    log_offset: int


@dataclass(slots=True, frozen=True)
class Elected:
    """A broker began to reign, at that end of its log if that was written down."""

    epoch: int
    broker: str
    log_offset: int | None = None


@dataclass(slots=True, frozen=True)
class Deleted:
    """A topic was deleted when the log ended there."""

    topic: str
    log_offset: int


@dataclass(slots=True, frozen=True)
class Cut:
    """A store cut its log at `to`. Both lists, (epoch, start), as the handshake compared them."""

    store: str
    start: int
    """The end before."""
    to: int
    epoch: int | None = None
    confirm: int | None = None
    """What it had confirmed."""
    own: Pairs | None = None
    other: Pairs | None = None
    other_end: int | None = None


Entry = Claim | Confirmed | Elected | Deleted | Cut


def digest_of(body: bytes | bytearray | memoryview) -> str:
    """What a ledger says of a body."""
    return hashlib.sha256(body).hexdigest()[:DIGEST_SIZE]


def encode(entry: Entry) -> str:
    """The line of an entry, with its end."""
    members: dict[str, Any]
    if isinstance(entry, Claim):
        members = {
            "kind": "read" if entry.read else "acked",
            "topic": entry.topic,
            "queue": entry.queue_id,
            "offset": entry.queue_offset,
            "digest": entry.digest or None,
            "key": entry.key or None,
            "log": entry.log_offset,
            "broker": entry.broker or None,
            "epoch": entry.epoch,
        }
    elif isinstance(entry, Confirmed):
        members = {"kind": "confirmed", "store": entry.store, "log": entry.log_offset}
    elif isinstance(entry, Elected):
        members = {
            "kind": "elected",
            "epoch": entry.epoch,
            "broker": entry.broker,
            "log": entry.log_offset,
        }
    elif isinstance(entry, Deleted):
        members = {"kind": "deleted", "topic": entry.topic, "log": entry.log_offset}
    else:
        members = {
            "kind": "truncated",
            "store": entry.store,
            "from": entry.start,
            "to": entry.to,
            "epoch": entry.epoch,
            "confirm": entry.confirm,
            "own": entry.own,
            "other": entry.other,
            "otherEnd": entry.other_end,
        }
    known = {name: value for name, value in members.items() if value is not None}
    return json.dumps(known, separators=(",", ":")) + "\n"


def decode(line: bytes | str) -> Entry:
    """Read a line. Raises LedgerError, without the place."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise LedgerError(f"no JSON: {error}") from None
    if not isinstance(value, dict):
        raise LedgerError("no object")
    kind = value.get("kind")
    if kind in ("acked", "read"):
        return _claim(value, kind == "read")
    if kind == "confirmed":
        return Confirmed(_text(value, "store"), _number(value, "log"))
    if kind == "elected":
        return Elected(_number(value, "epoch"), _text(value, "broker"), _optional(value, "log"))
    if kind == "deleted":
        return Deleted(_text(value, "topic"), _number(value, "log"))
    if kind == "truncated":
        return Cut(
            _text(value, "store"),
            _number(value, "from"),
            _number(value, "to"),
            _optional(value, "epoch"),
            _optional(value, "confirm"),
            _pairs(value, "own"),
            _pairs(value, "other"),
            _optional(value, "otherEnd"),
        )
    raise LedgerError(f"nothing is of the kind {kind!r}")


def _claim(value: dict[str, Any], read: bool) -> Claim:
    digest = value.get("digest") or ""
    if digest and not (
        isinstance(digest, str)
        and DIGEST_MIN <= len(digest) <= DIGEST_MAX
        and set(digest) <= set("0123456789abcdef")
    ):
        _refuse("digest", digest)
    key, broker = value.get("key") or "", value.get("broker") or ""
    if not isinstance(key, str) or not isinstance(broker, str):
        _refuse("key or broker", (key, broker))
    log_offset = _optional(value, "log")
    message_id = value.get("id")
    if message_id is not None:
        named = _log_offset_of(message_id)
        if log_offset not in (None, named):
            raise LedgerError(f"id names log offset {named}, log {log_offset}")
        log_offset = named
    return Claim(
        read,
        _text(value, "topic"),
        _number(value, "queue"),
        _number(value, "offset"),
        digest,
        key,
        log_offset,
        broker,
        _optional(value, "epoch"),
    )


def _log_offset_of(message_id: Any) -> int:
    """An offset message id ends in the log offset (RocketMQ: MessageDecoder.decodeMessageId)."""
    if not isinstance(message_id, str) or len(message_id) not in ID_SIZES:
        _refuse("id", message_id)
    try:
        log_offset = int(message_id[-16:], 16)
    except ValueError:
        _refuse("id", message_id)
    return log_offset


def _refuse(name: str, value: Any) -> NoReturn:
    raise LedgerError(f"{name} cannot be {str(value)[:80]!r}")


def _text(value: dict[str, Any], name: str) -> str:
    found = value.get(name)
    if not isinstance(found, str) or not found:
        _refuse(name, found)
    return found


def _number(value: dict[str, Any], name: str) -> int:
    found = value.get(name)
    if not isinstance(found, int) or isinstance(found, bool) or not 0 <= found <= NUMBER_MAX:
        _refuse(name, found)
    return found


def _optional(value: dict[str, Any], name: str) -> int | None:
    return None if value.get(name) is None else _number(value, name)


def _pairs(value: dict[str, Any], name: str) -> Pairs | None:
    found = value.get(name)
    if found is None:
        return None
    try:
        pairs = tuple((int(epoch), int(start)) for epoch, start in found)
    except (TypeError, ValueError, OverflowError):
        _refuse(name, found)
    return pairs


# Files and their parts


@dataclass(slots=True, frozen=True)
class Part:
    """The lines of a file that begin in [start, end)."""

    path: str
    start: int
    end: int


def parts_of(paths: list[str], part_bytes: int = PART_BYTES) -> list[Part]:
    """Ledgers in parts; a folder stands for the ledgers in it. Raises OSError, LedgerError."""
    parts = []
    for path in map(Path, paths):
        files = (
            sorted(one for one in path.iterdir() if one.name.endswith(SUFFIXES))
            if (path.is_dir())
            else [path]
        )
        if not files:
            raise LedgerError(f"{path}: no ledger is in it ({', '.join(SUFFIXES)})")
        for file in files:
            size = file.stat().st_size
            step = size or 1 if file.name.endswith(".gz") else part_bytes
            parts += [Part(str(file), at, min(at + step, size)) for at in range(0, size, step)]
    return parts


def read_part(part: Part) -> Iterator[Entry]:
    """The entries of a part. Raises OSError, LedgerError."""
    if part.path.endswith(".gz"):
        with gzip.open(part.path, "rb") as packed:
            try:
                yield from _lines(packed, part.path, 0, 1 << 62)
            except EOFError:
                return  # half a stream of a writer that was killed: as half a line
            except zlib.error as error:
                raise LedgerError(f"{part.path} is damaged: {error}") from None
        return
    with open(part.path, "rb") as opened:
        at = part.start
        if at:
            # The line that reaches into this part belongs to the one before.
            opened.seek(at - 1)
            at += len(opened.readline(LINE_MAX + 1)) - 1
        yield from _lines(opened, part.path, at, part.end)


def _lines(opened: IO[bytes] | gzip.GzipFile, path: str, at: int, end: int) -> Iterator[Entry]:
    while at < end:
        line = opened.readline(LINE_MAX + 1)
        if len(line) > LINE_MAX:
            raise LedgerError(f"{path}: the line at byte {at} is longer than {LINE_MAX}")
        if not line.endswith(b"\n"):
            return  # the end, or half a line of a writer that was killed
        if not line.isspace():
            try:
                yield decode(line)
            except LedgerError as error:
                raise LedgerError(f"{path}: the line at byte {at}: {error}") from None
        at += len(line)
