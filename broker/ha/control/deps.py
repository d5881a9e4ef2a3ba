"""Options and dependencies of a broker's membership in an elected group, as values.

Tests: tests/unit/broker/ha/control/test_membership.py
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from turbopump.broker.config.replication_config import ReplicationConfig
from turbopump.broker.ha.control.controller_protocol import Name
from turbopump.broker.ha.control.previous_shutdown import PreviousShutdown
from turbopump.broker.ha.service import HaService
from turbopump.engine.disk.files import Files
from turbopump.engine.log.epochs import Epochs
from turbopump.engine.types import LogOffset, StoreHealth
from turbopump.net.transport.calls import Call


class _Log(Protocol):
    """The part of the log reported in heartbeats and registrations."""

    @property
    def end(self) -> LogOffset: ...
    @property
    def confirm(self) -> LogOffset: ...
    @property
    def epochs(self) -> Epochs: ...
    @property
    def may_lead(self) -> bool: ...
    @property
    def health(self) -> StoreHealth: ...
    @property
    def slow(self) -> bool | None: ...
    @property
    def why_unfit(self) -> str: ...


@dataclass(slots=True, frozen=True, kw_only=True)
class MembershipOptions(ReplicationConfig):
    """The options of replication, and other options that a member needs."""

    name: Name
    identity_path: str
    last_life: PreviousShutdown = field(default_factory=PreviousShutdown)


@dataclass(slots=True, frozen=True, kw_only=True)
class MembershipDeps:
    """The dependencies of a membership."""

    service: HaService
    """The service whose roles the membership sets; it must use the membership's alterations."""
    log: _Log
    files: Files
    """The files of the broker's identity."""
    call: Call
    wall_ms: Callable[[], int]
    steady_ms: Callable[[], int]
