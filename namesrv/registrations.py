"""Values of a broker's registration: the request, its outcome, and an expired broker.

Owns no state. It must never decide: routes.py does. The handlers send the returned notices.

Tests: tests/unit/namesrv/test_routes.py
"""

from collections.abc import Hashable
from dataclasses import dataclass, field

from turbopump.namesrv.route_rows import Notice
from turbopump.net.wire.topics import TopicConfigs

BrokerKey = tuple[str, str]
"""Cluster and address: the identity of a live broker."""


@dataclass(slots=True)
class BrokerRegistration:
    """A broker's registration.

    `acting_master` is None for a broker older than 5.0, which does not send it.
    """

    cluster: str
    name: str
    broker_id: int
    address: str
    topics: TopicConfigs
    ha_address: str = ""
    zone: str | None = None
    timeout_ms: int | None = None
    acting_master: bool | None = None
    filter_servers: list[str] | None = None


@dataclass(slots=True)
class Registered:
    """The outcome of a registration; with `refusal` nothing has changed.

    For a replica it has the address and the replication address of its live master.
    """

    refusal: str | None = None
    master_address: str | None = None
    master_ha_address: str | None = None
    notices: list[Notice] = field(default_factory=list)
    holder: str | None = None
    """Address of another broker that keeps the claimed id, because it has a higher state
    version."""


@dataclass(slots=True)
class Expired:
    """A silent broker: the connection to close and the notices for its group."""

    key: BrokerKey
    connection: Hashable
    notices: list[Notice]
