"""Actions that the replication state machines return; the I/O layer executes them in order.

Owns only the data. If an action fails, the I/O layer skips the rest, closes the connection and
notifies the machine. So an action that must be durable precedes the bytes that promise it.

Tests: tests/unit/net/ha/test_replica.py, tests/unit/net/ha/test_primary.py
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
    """Send bytes to the other side."""

    data: bytes


@dataclass(slots=True, frozen=True)
class SendLog:
    """Send a header, followed by `size` bytes of the log, which are in a single file."""

    header: bytes
    log_offset: LogOffset
    size: int


@dataclass(slots=True, frozen=True)
class Truncate:
    """Cut the log, durably; `on_truncated` or `on_failed` follows."""

    log_end: LogOffset


@dataclass(slots=True, frozen=True)
class Restart:
    """Remove the whole log: the master has other bytes, or no bytes, at its place. The log begins
    again where the next bytes of the master begin. `on_truncated` or `on_failed` follows."""


@dataclass(slots=True, frozen=True)
class RecordEpochs:
    """Replace the list of the log's epochs; durable before the next action."""

    epochs: Epochs


@dataclass(slots=True, frozen=True)
class Append:
    """Append bytes to the log, which ends at `log_offset` or, if empty, begins there."""

    log_offset: LogOffset
    data: Buffer


@dataclass(slots=True, frozen=True)
class Confirm:
    """Let readers read the records that end up to `log_offset`, which may lie inside a record."""

    log_offset: LogOffset


@dataclass(slots=True, frozen=True)
class Acked:
    """Report that a replica has acknowledged the log up to
    `log_offset` to the master of this epoch."""

    broker_id: int
    log_offset: LogOffset
    async_learner: bool


@dataclass(slots=True, frozen=True)
class Close:
    """Close the connection to the other side."""

    reason: str


Action = (
    Connect | Send | SendLog | Truncate | Restart | RecordEpochs | Append | Confirm | Acked | Close
)
