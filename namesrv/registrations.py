"""Values of a broker's registration: the request, its outcome, and an expired broker.

Owns no state. It must never decide: routes.py does. The handlers send the returned notices.

Tests: tests/unit/namesrv/test_routes.py
"""

from collections.abc import Hashable
from dataclasses import dataclass, field

from turbopump.namesrv.route_rows import Notice
from turbopump.net.wire.topics import TopicConfigs

BrokerKey = tuple[str, str]
"""(cluster, address): the identity of a live broker."""


@dataclass(slots=True)
class BrokerRegistration:
    """The content of a broker's registration (103).

    `name` is its group's, `broker_id` 0 a master's; `address` and `ha_address` (for replicas) are
    `host:port`; `topics` is its table with the version; `zone` is its zone's name; `timeout_ms` is
    the time without a sign of life after which it is unregistered, None: the default.
    `acting_master` is None for a broker older than 5.0, which does not send it. `filter_servers`
    None: unchanged.
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
    """The outcome of a registration; with `refusal`, a remark, nothing has changed.

    For a replica it has the address and the replication address of its live master, None without
    one. The caller sends the `notices`.
    """

    refusal: str | None = None
    master_address: str | None = None
    master_ha_address: str | None = None
    notices: list[Notice] = field(default_factory=list)
    holder: str | None = None
    """Address of another broker that keeps the claimed id, because it has a higher state version;
    the claim was ignored then, and the claimant's former registration removed."""


@dataclass(slots=True)
class Expired:
    """An unregistered silent broker, `key` its (cluster, address): its connection, which the caller
    closes, and the notices for its group, which the caller sends."""

    key: BrokerKey
    connection: Hashable
    notices: list[Notice]
