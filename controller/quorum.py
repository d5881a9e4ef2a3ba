"""The replicated log, as the controller's state machine uses it.

Owns the interface between the two: an entry, the end of a proposal, and a leader's certainty. It
must never know an event, nor how the log is kept. The Raft core and its driver implement it.
"""

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from turbopump.engine.deferred import Deferred


class QuorumEntry(Protocol):
    """A committed entry: `index` counts from 0 without gaps, `term` is its leader's, `body` is for
    events.decode. An empty body changes nothing."""

    @property
    def index(self) -> int:
        """Index of the entry; the first ever has 0, without gaps."""
        ...

    @property
    def term(self) -> int:
        """Term of the leader that appended the entry."""
        ...

    @property
    def body(self) -> bytes:
        """Encoded events, for events.decode."""
        ...


@runtime_checkable
class ProposalCommitted(Protocol):
    """Success of a proposal: it is the entry at `index`, durable on a majority; maybe not applied
    here yet."""

    @property
    def index(self) -> int:
        """Index of the committed entry."""
        ...


class ProposalFailed(Protocol):
    """Failure of a proposal: it was refused, or may still commit; `reason` is one line."""

    @property
    def reason(self) -> str:
        """A single line for remarks and logs."""
        ...


class Quorum(Protocol):
    """The replicated log and its leader, as this node sees them."""

    @property
    def is_leader(self) -> bool:
        """Whether this node leads, and every earlier committed entry is applied here."""

    @property
    def leader_id(self) -> str | None:
        """Id of the leader; None if this node knows none."""

    @property
    def term(self) -> int:
        """The current term, for displays only.

        It may not be durable yet, so no caller may act on it.
        """

    @property
    def peers(self) -> Mapping[str, str]:
        """`host:port` of all nodes by id, this node included."""

    def has_quorum(self, now_ms: int) -> bool:
        """Whether this node leads at `now_ms` (monotonic), and the promises of a majority exclude
        any other leader then."""

    def append(self, body: bytes) -> Deferred[Any]:
        """Propose an entry; the result is a ProposalCommitted or a ProposalFailed.

        It may be resolved before or after the entry is applied, and at once for a refusal.
        """
