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
    """Begin to connect to the master; `on_connected` or `on_closed` of the machine follows."""

    address: str
    """`host:port`."""


@dataclass(slots=True, frozen=True)
class Send:
    """Send bytes to the other side, after the bytes of earlier actions."""

    data: bytes


@dataclass(slots=True, frozen=True)
class SendLog:
    """Send `header`, followed by `size` bytes of the log that begin at `log_offset` and lie in a
    single file."""

    header: bytes
    log_offset: LogOffset
    size: int


@dataclass(slots=True, frozen=True)
class Truncate:
    """Cut the log so that it ends at `log_end`, durably; `on_truncated` or `on_failed` of the
    machine follows."""

    log_end: LogOffset


@dataclass(slots=True, frozen=True)
class Restart:
    """Remove the whole log, durably: the master has other bytes, or no bytes, at its place. The log
    begins again where the next bytes of the master begin. `on_truncated` or `on_failed` of the
    machine follows."""


@dataclass(slots=True, frozen=True)
class RecordEpochs:
    """Replace the list of the log's epochs; it must be durable before the next action."""

    epochs: Epochs


@dataclass(slots=True, frozen=True)
class Append:
    """Append bytes to the log, which ends at `log_offset` or, if empty, begins there. They need not
    be durable: `on_durable` of the machine reports that. `data` is valid until the next read."""

    log_offset: LogOffset
    data: Buffer


@dataclass(slots=True, frozen=True)
class Confirm:
    """Let readers read the records that end at or before `log_offset`, which may lie inside a
    record."""

    log_offset: LogOffset


@dataclass(slots=True, frozen=True)
class Acked:
    """Pass a replica's acknowledgement to the SyncState or DefaultHaGroup of this master."""

    broker_id: int
    """The id that the controller assigned; in default HA the number of the connection."""
    log_offset: LogOffset
    """The replica has the log up to this offset."""
    async_learner: bool
    """Whether the replica never joins the set."""


@dataclass(slots=True, frozen=True)
class Close:
    """Close the connection to the other side, or stop the try to connect; `reason` is for the
    log."""

    reason: str


Action = (
    Connect | Send | SendLog | Truncate | Restart | RecordEpochs | Append | Confirm | Acked | Close
)
"""Any action."""
