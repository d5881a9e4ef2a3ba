"""The master that a replica copies tables from, and the rules for versions of copied tables.

Owns the last answers of that master and the choice of the version under which a copied table is
kept. No request is sent and no table is changed here.

Tests: tests/unit/broker/ha/metadata/test_pulling.py
"""

from dataclasses import dataclass, field
from typing import Protocol

from turbopump.broker.ha.metadata import answers as answers
from turbopump.broker.tables.data_versions import VersionRules, is_older
from turbopump.broker.tables.offsets import Offsets
from turbopump.engine.deferred import Deferred
from turbopump.engine.queues.queue_counts import Counts
from turbopump.engine.types import LONG_AGO_MS, LogOffset, StoreError
from turbopump.net.wire.topics import DataVersion


class Versioned(Protocol):
    """A table or progress of this broker with a DataVersion."""

    versions: VersionRules
    """The broker's rules for new versions, common to all its tables."""

    @property
    def data_version(self) -> DataVersion:
        """The version of the table's content."""

    def bump_version(self, now_ms: int) -> None:
        """Give the unchanged content a newer version, of the term in `versions`."""


class CountedLog(Protocol):
    """A replica's log that may lack the queue offsets of queues without a message in it
    (engine.replicated.Replicated)."""

    @property
    def min(self) -> LogOffset:
        """Log offset of the log's first byte."""

    @property
    def needs_queue_counts(self) -> bool:
        """Whether the master must be asked for the queue offsets of queues without a message in
        this log."""

    def note_counts_unknown(self) -> None:
        """Record that the current master does not know these queue offsets."""

    def save_queue_counts(self, counts: Counts) -> Deferred[OSError | StoreError | None]:
        """Save the master's queue offsets on a disk thread; resolves with None or the error."""


@dataclass(slots=True)
class Following:
    """The master whose tables a replica copies in a term, and that master's last answers, with
    which late answers are recognized."""

    address: str
    """Address `host:port` of the master for clients."""
    epoch: int
    """Term of the master; 0 or less: there are no epochs."""
    topics: answers.Table | None = None
    groups: answers.Table | None = None
    offsets: Offsets | None = None
    """Absent before an answer; entries that a later answer lacks were deleted by the master."""
    shares: str = ""
    """Version of the last assignments received."""
    counts_from: int = -1
    """Begin of the log for which the counts of idle queues were requested."""
    failures: int = 0
    """Rounds in a row that did not reach the master."""
    due_ms: int = LONG_AGO_MS
    """Time of the next round, of the monotonic clock."""
    busy: bool = False
    """Whether a round is running."""
    cuts: int = 0
    """Number of cuts of the log: entries taken over before a cut may have been set back since."""
    bytes: int = 0
    errors: list[str] = field(default_factory=list)
    """Bytes and errors of the present or last round."""


def version_to_keep(now: Following, mine: DataVersion, theirs: DataVersion) -> DataVersion:
    """Return the version for a table that was taken over. A version of a later term is not taken:
    the answering broker may be a replica of the next master by then, with entries that the next
    master never had; under that version they would count as the next master's, and be deleted."""
    if 0 < now.epoch < theirs.state_version or is_older(theirs, mine):
        return mine
    return theirs


def is_continued(now: Following, before: DataVersion, version: DataVersion) -> bool:
    """Whether `version` of a table continues the same master's earlier `before`. False for a broker
    that lost its files, or for a version of a later term, which the peer may have as a replica of
    the next master."""
    if 0 < now.epoch < version.state_version:
        return False
    return before == version or is_older(before, version)
