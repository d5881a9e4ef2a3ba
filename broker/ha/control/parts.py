"""What a broker's part in an elected group is made of.

Owns the options and the parts as values. It must never use them: membership.py does. Made by
replicating.py, and by tests.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from turbopump.broker.config.replication_config import ReplicationConfig
from turbopump.broker.ha.control.controllers import ControllerCall
from turbopump.broker.ha.control.last_life import LastLife
from turbopump.broker.ha.control.words import Name
from turbopump.broker.ha.service import HaService
from turbopump.engine.disk.files import Files
from turbopump.engine.log.epochs import Epochs
from turbopump.engine.types import Fitness, LogOffset


class _Log(Protocol):
    """What heartbeats and registrations tell of the log."""

    @property
    def end(self) -> LogOffset: ...
    @property
    def confirm(self) -> LogOffset: ...
    @property
    def epochs(self) -> Epochs: ...
    @property
    def may_lead(self) -> bool: ...
    @property
    def fitness(self) -> Fitness: ...
    @property
    def slow(self) -> bool | None: ...
    @property
    def why_unfit(self) -> str: ...


@dataclass(slots=True, frozen=True, kw_only=True)
class MembershipOptions(ReplicationConfig):
    """The keys of replication, and what else of the configuration a member goes by."""

    name: Name
    identity_path: str
    last_life: LastLife = field(default_factory=LastLife)


@dataclass(slots=True, frozen=True, kw_only=True)
class MembershipParts:
    """What a membership works with."""

    service: HaService
    """Gets its roles from the membership; its alterations are to be the membership's."""
    log: _Log
    files: Files
    """Those of the broker's identity."""
    call: ControllerCall
    wall_ms: Callable[[], int]
    steady_ms: Callable[[], int]
