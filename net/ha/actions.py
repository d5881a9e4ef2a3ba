"""What the machines of replication ask of the shell around them.

Owns nothing but the data. A shell does the actions of one answer in order, and stops at the first
that fails: it then closes the connection and tells the machine. So what must be durable before a
word is said stands before the word.
"""

from dataclasses import dataclass

from turbopump.engine.log.epochs import Epochs
from turbopump.engine.types import Buffer, LogOffset


@dataclass(slots=True, frozen=True)
class Connect:
    """Connect to the master; `on_connected` or `on_closed` follows."""

    address: str


@dataclass(slots=True, frozen=True)
class Send:
    """Bytes for the other side."""

    data: bytes


@dataclass(slots=True, frozen=True)
class SendLog:
    """A header, and behind it `size` bytes of the log, which lie in one file."""

    header: bytes
    log_offset: LogOffset
    size: int


@dataclass(slots=True, frozen=True)
class Truncate:
    """Cut the log, durably; `on_truncated` or `on_failed` follows."""

    log_end: LogOffset


@dataclass(slots=True, frozen=True)
class Restart:
    """Remove the whole log: the master has other bytes, or none, where this one lies. It begins
    anew where the next bytes of the master lie. `on_truncated` or `on_failed` follows."""


@dataclass(slots=True, frozen=True)
class RecordEpochs:
    """This is now the list of the log's epochs; durable before the next action."""

    epochs: Epochs


@dataclass(slots=True, frozen=True)
class Append:
    """Bytes of the log, which ends at `log_offset` or, being empty, begins there."""

    log_offset: LogOffset
    data: Buffer


@dataclass(slots=True, frozen=True)
class Confirm:
    """Readers may read the records that end up to here. It may lie inside a record."""

    log_offset: LogOffset


@dataclass(slots=True, frozen=True)
class Acked:
    """A replica has the log up to here, and said so to the master of this epoch."""

    broker_id: int
    log_offset: LogOffset
    async_learner: bool


@dataclass(slots=True, frozen=True)
class Close:
    """Close the connection."""

    reason: str


Action = (
    Connect | Send | SendLog | Truncate | Restart | RecordEpochs | Append | Confirm | Acked | Close
)
