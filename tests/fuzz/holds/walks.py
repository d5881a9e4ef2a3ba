"""The walks over all request codes, by kind of node."""

from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from tests.fuzz.holds.broker import BrokerWalk
from tests.fuzz.holds.container import ContainerWalk
from tests.fuzz.holds.controller import ControllerWalk
from tests.fuzz.holds.meter import Case, Hold
from tests.fuzz.holds.namesrv import NamesrvWalk
from turbopump.controller.raft.messages import RaftRequestCode as LedgerCode
from turbopump.net.wire.codes import RequestCode

LIMIT_MS: Final = 50
"""Maximum time in ms for which one request of any peer may hold the loop."""


class Walk(Protocol):
    """A node with full tables."""

    @property
    def codes(self) -> frozenset[int]:
        """All codes of its dispatch table."""

    def cases(self, code: int, attempt: int = 0) -> list[Case]:
        """Requests of a code. Raises KeyError for a code without a case of its own."""

    def ask(self, code: int, case: Case) -> Hold:
        """Send a request and return its longest hold."""

    def close(self) -> None:
        """Stop the node."""


WALKS: Final[dict[str, Callable[[Path], Walk]]] = {
    "broker": BrokerWalk,
    "namesrv": NamesrvWalk,
    "controller": ControllerWalk,
    "container": ContainerWalk,
}


def named(code: int) -> str:
    """The name of a code."""
    return (LedgerCode if 50_000 <= code < 60_000 else RequestCode)(code).name
