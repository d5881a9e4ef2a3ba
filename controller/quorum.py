"""What the controller's state machine asks of the log that a majority keeps.

Owns the words between the two: an entry, how a proposal ends, what a leader may say of itself. It
must never know an event, nor how the log is kept. Satisfied by the Raft core and its driver, used
by core.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from turbopump.engine.later import Later


class Entry(Protocol):
    """One committed entry. An empty body changes nothing."""

    @property
    def index(self) -> int: ...
    @property
    def term(self) -> int: ...
    @property
    def body(self) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Committed:
    """The proposal is the entry at `index`, on a majority for ever. It may be told before or after
    that entry is applied."""

    index: int


@dataclass(frozen=True, slots=True)
class Failed:
    """The proposal was not taken; `reason` is one line.

    While the node goes on leading this is said only of what was never appended: whoever proposes
    decides on what was before, and must not do so while an entry of its own may still commit. Of
    what was appended it is said when the lead is lost, and the entry may commit all the same.
    """

    reason: str


class Quorum(Protocol):
    """The log, seen from this node."""

    @property
    def is_leader(self) -> bool:
        """Whether this node leads, as far as it knows."""

    @property
    def leader_id(self) -> str | None:
        """Who leads, as far as this node knows."""

    @property
    def peers(self) -> Mapping[str, str]:
        """Addresses of all nodes by id, this one included."""

    def has_quorum(self, now_ms: int) -> bool:
        """Whether this node leads and heard from a majority recently enough that nobody else can
        lead now."""

    def append(self, body: bytes) -> Later[Committed | Failed]:
        """Propose an entry."""
