"""What brokers say of themselves to a name server, and what comes of it, as values.

Owns nothing. It must never decide: routes.py does. Made by the handlers, which send what is
returned.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field

from turbopump.namesrv.route_rows import Notice
from turbopump.net.wire.topics import TopicConfigs

BrokerKey = tuple[str, str]
"""Cluster and address: what a live broker is known by."""


@dataclass(slots=True)
class BrokerRegistration:
    """What a broker says of itself. `acting_master` None: a broker older than 5.0 did not say."""

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
    """The outcome of a registration; with `refusal` nothing was changed.

    A replica gets the address and the replication address of its live master.
    """

    refusal: str | None = None
    master_address: str | None = None
    master_ha_address: str | None = None
    notices: list[Notice] = field(default_factory=list)
    holder: str | None = None
    """The address that keeps the claimed id by a higher state version, if it is another one."""


@dataclass(slots=True)
class Expired:
    """A broker that fell silent: the connection to close and what to tell its group."""

    key: BrokerKey
    connection: Hashable
    notices: list[Notice]
