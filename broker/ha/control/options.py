"""Options of a broker's membership in an elected group, as values.

Tests: tests/unit/broker/ha/control/test_membership.py
"""

from dataclasses import dataclass, field

from turbopump.broker.config.replication_config import ReplicationConfig
from turbopump.broker.ha.control.controller_protocol import BrokerGroupName
from turbopump.broker.ha.control.previous_shutdown import PreviousShutdown


@dataclass(slots=True, frozen=True, kw_only=True)
class MembershipOptions(ReplicationConfig):
    """The options of replication, and the others that Membership needs."""

    name: BrokerGroupName
    """Names of the broker's cluster and group."""
    identity_path: str
    """Path of the file with the broker's assigned id (identity.py)."""
    last_life: PreviousShutdown = field(default_factory=PreviousShutdown)
    """State of the store before it was opened."""
