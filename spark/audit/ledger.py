"""Ledgers: events that clients and brokers recorded during a run, one JSON object per line.

Owns the format (docs/FORMATS.md) and how a large ledger is read in parts by several tasks. It must
never look into a store.

A writer adds a line when the event is certain: the acknowledgement has arrived, the reader has
received the message. A process that is killed while it writes leaves half a line, which is ignored,
as unknown keys are.
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
"""Bytes of a ledger that one task reads: about 400,000 lines."""
LINE_MAX = 1 << 20
"""Bytes of a line, at most; a list of 10,000 epochs fits."""
DIGEST_MIN, DIGEST_MAX = 16, 64
"""Hex digits of a digest that a ledger may have, at least and at most."""
DIGEST_SIZE = 32
"""Hex digits of the SHA-256 in our ledgers: 16 bytes distinguish all messages of a run."""
ID_SIZES = (32, 56)
"""Hex digits of an offset message id: host of IPv4 or IPv6, port, log offset."""
NUMBER_MAX = (1 << 63) - 1
"""Greatest number in a ledger."""
SUFFIXES = (".jsonl", ".jsonl.gz", ".ledger")
"""Names of ledgers in a folder end in one of these."""

Pairs = tuple[tuple[int, int], ...]
"""An epoch list as pairs (epoch, start as log offset), ascending."""


class LedgerError(ValueError):
    """A malformed line; the text names the file and the byte."""


@dataclass(slots=True, frozen=True)
class Claim:
    """A client's claim that a message lies at a place: it was acknowledged or read there."""

    read: bool
    """Whether a consumer read the message; else its producer got the acknowledgement."""
    topic: str
    queue_id: int
    queue_offset: int
    digest: str = ""
    """First hex digits of the SHA-256 of the body as it was sent; "": not recorded."""
    key: str = ""
    """The property UNIQ_KEY; "": not recorded."""
    log_offset: int | None = None
    """Log offset of the message; None: not recorded."""
    broker: str = ""
    """Name of the broker that acknowledged or served the message; "": not recorded."""
    epoch: int | None = None
    """masterEpoch of that broker; None: not recorded."""

    @property
    def place(self) -> tuple[str, int, int]:
        """(topic, queue id, queue offset) of the claim."""
        return self.topic, self.queue_id, self.queue_offset


@dataclass(slots=True, frozen=True)
class Confirmed:
    """The broker with the store `store` reported that its log is confirmed up to `log_offset`."""

    store: str
    log_offset: int


@dataclass(slots=True, frozen=True)
class Elected:
    """The broker `broker` became master in `epoch` (masterEpoch), with its log ending at
    `log_offset` if that was recorded."""

    epoch: int
    broker: str
    log_offset: int | None = None


@dataclass(slots=True, frozen=True)
class Deleted:
    """A topic was deleted while the log ended at `log_offset`."""

    topic: str
    log_offset: int


@dataclass(slots=True, frozen=True)
class Cut:
    """A store truncated its log to `to`.

    `own` and `other` are the epoch lists that the handshake compared. Places are log offsets; None:
    not recorded.
    """

    store: str
    start: int
    """End of the log before."""
    to: int
    """End of the log after."""
    epoch: int | None = None
    """masterEpoch in which the store truncated."""
    confirm: int | None = None
    """Confirmed end before."""
    own: Pairs | None = None
    """Epoch list of the store."""
    other: Pairs | None = None
    """Epoch list of the master."""
    other_end: int | None = None
    """End of the master's log."""


Entry = Claim | Confirmed | Elected | Deleted | Cut
"""An event of a ledger: a line."""


def digest_of(body: bytes | bytearray | memoryview) -> str:
    """Return the digest of a body as our ledgers have it: DIGEST_SIZE hex digits of its SHA-256."""
    return hashlib.sha256(body).hexdigest()[:DIGEST_SIZE]


def encode(entry: Entry) -> str:
    """Encode an entry as a line of JSON, with its newline."""
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
    """Decode a line. Raises LedgerError, whose text does not name the place."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise LedgerError(f"no JSON: {error}") from None
    if not isinstance(value, dict):
        raise LedgerError("no object")
    kind = value.get("kind")
    if kind in ("acked", "read"):
        return _read_claim(value, kind == "read")
    if kind == "confirmed":
        return Confirmed(_text(value, "store"), _read_number(value, "log"))
    if kind == "elected":
        return Elected(
            _read_number(value, "epoch"),
            _text(value, "broker"),
            _read_optional_number(value, "log"),
        )
    if kind == "deleted":
        return Deleted(_text(value, "topic"), _read_number(value, "log"))
    if kind == "truncated":
        return Cut(
            _text(value, "store"),
            _read_number(value, "from"),
            _read_number(value, "to"),
            _read_optional_number(value, "epoch"),
            _read_optional_number(value, "confirm"),
            _read_epoch_pairs(value, "own"),
            _read_epoch_pairs(value, "other"),
            _read_optional_number(value, "otherEnd"),
        )
    raise LedgerError(f"nothing is of the kind {kind!r}")


def _read_claim(value: dict[str, Any], read: bool) -> Claim:
    """Read an acknowledgement, or with `read` a read, of a JSON object; raises LedgerError."""
    digest = value.get("digest") or ""
    if digest and not (
        isinstance(digest, str)
        and DIGEST_MIN <= len(digest) <= DIGEST_MAX
        and set(digest) <= set("0123456789abcdef")
    ):
        _raise_error("digest", digest)
    key, broker = value.get("key") or "", value.get("broker") or ""
    if not isinstance(key, str) or not isinstance(broker, str):
        _raise_error("key or broker", (key, broker))
    log_offset = _read_optional_number(value, "log")
    message_id = value.get("id")
    if message_id is not None:
        named = _log_offset_of(message_id)
        if log_offset not in (None, named):
            raise LedgerError(f"id names log offset {named}, log {log_offset}")
        log_offset = named
    return Claim(
        read,
        _text(value, "topic"),
        _read_number(value, "queue"),
        _read_number(value, "offset"),
        digest,
        key,
        log_offset,
        broker,
        _read_optional_number(value, "epoch"),
    )


def _log_offset_of(message_id: Any) -> int:
    """Return the log offset in an offset message id (RocketMQ: MessageDecoder.decodeMessageId)."""
    if not isinstance(message_id, str) or len(message_id) not in ID_SIZES:
        _raise_error("id", message_id)
    try:
        log_offset = int(message_id[-16:], 16)
    except ValueError:
        _raise_error("id", message_id)
    return log_offset


def _raise_error(name: str, value: Any) -> NoReturn:
    """Raise a LedgerError about the member `name`."""
    raise LedgerError(f"{name} cannot be {str(value)[:80]!r}")


def _text(value: dict[str, Any], name: str) -> str:
    """Read a text member that is not empty; raises LedgerError."""
    found = value.get(name)
    if not isinstance(found, str) or not found:
        _raise_error(name, found)
    return found


def _read_number(value: dict[str, Any], name: str) -> int:
    """Read a number member from 0 to NUMBER_MAX; raises LedgerError."""
    found = value.get(name)
    if not isinstance(found, int) or isinstance(found, bool) or not 0 <= found <= NUMBER_MAX:
        _raise_error(name, found)
    return found


def _read_optional_number(value: dict[str, Any], name: str) -> int | None:
    """Read a number that may be null or missing: None then."""
    return None if value.get(name) is None else _read_number(value, name)


def _read_epoch_pairs(value: dict[str, Any], name: str) -> Pairs | None:
    """Read an epoch list as (epoch, log offset of its start) pairs; None if it is null or
    missing."""
    found = value.get(name)
    if found is None:
        return None
    try:
        pairs = tuple((int(epoch), int(start)) for epoch, start in found)
    except (TypeError, ValueError, OverflowError):
        _raise_error(name, found)
    return pairs


# Files and their parts


@dataclass(slots=True, frozen=True)
class Part:
    """The lines of a file that begin in [start, end), two positions in bytes."""

    path: str
    start: int
    end: int


def parts_of(paths: list[str], part_bytes: int = PART_BYTES) -> list[Part]:
    """Divide ledgers into parts, in the order of `paths`; a folder means all ledgers directly in
    it, a compressed file is one part. Raises OSError, and LedgerError for a folder without a
    ledger."""
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
    """Yield the entries of a part in the order of its lines. Raises OSError, and LedgerError for a
    malformed line or file."""
    if part.path.endswith(".gz"):
        with gzip.open(part.path, "rb") as packed:
            try:
                yield from _read_lines(packed, part.path, 0, 1 << 62)
            except EOFError:
                return  # a writer was killed within a gzip stream: as half a line
            except zlib.error as error:
                raise LedgerError(f"{part.path} is damaged: {error}") from None
        return
    with open(part.path, "rb") as opened:
        at = part.start
        if at:
            # The line that reaches into this part belongs to the part before.
            opened.seek(at - 1)
            at += len(opened.readline(LINE_MAX + 1)) - 1
        yield from _read_lines(opened, part.path, at, part.end)


def _read_lines(opened: IO[bytes] | gzip.GzipFile, path: str, at: int, end: int) -> Iterator[Entry]:
    """Yield the entries of the lines that begin in [at, end), two positions in bytes; `opened`
    is at `at`."""
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
