"""What the controller's state machine asks of the log that a majority keeps.

Owns the words between the two: an entry, how a proposal ends, what a leader may say of itself. It
must never know an event, nor how the log is kept. Satisfied by the Raft core and its driver, used
by core.py.
"""

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from turbopump.engine.later import Later


class QuorumEntry(Protocol):
    """One committed entry. An empty body changes nothing."""

    @property
    def index(self) -> int: ...
    @property
    def term(self) -> int: ...
    @property
    def body(self) -> bytes: ...


@runtime_checkable
class ProposalCommitted(Protocol):
    """How a proposal ends well: it is the entry at `index`, on a majority for ever."""

    @property
    def index(self) -> int: ...


class ProposalFailed(Protocol):
    """How else: it was not taken, or it may still commit; `reason` is one line."""

    @property
    def reason(self) -> str: ...


class Quorum(Protocol):
    """The log, seen from this node."""

    @property
    def is_leader(self) -> bool:
        """Whether this node leads, and all that was ever committed before is applied here."""

    @property
    def leader_id(self) -> str | None:
        """Who leads, as far as this node knows."""

    @property
    def term(self) -> int:
        """The one this node is in: for people, who watch elections. It may not be durable yet, so
        no caller may act on it."""

    @property
    def peers(self) -> Mapping[str, str]:
        """Addresses of all nodes by id, this one included."""

    def has_quorum(self, now_ms: int) -> bool:
        """Whether this node leads and heard from a majority recently enough that no other can
        lead now."""

    def append(self, body: bytes) -> Later[Any]:
        """Propose an entry; a ProposalCommitted, which may come before or after the entry
        is applied, or a ProposalFailed."""
