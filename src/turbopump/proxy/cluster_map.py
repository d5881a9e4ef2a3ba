"""A proxy's view of the cluster: brokers and their masters, topics, consumer groups.

Owns the queries for it, and the choice between different answers: the newest counts. It must never
decide about a call.

A name server has the routes of topics. A topic's attributes and a group's configuration come from
any master.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from turbopump.engine.deferred import Deferred
from turbopump.net.routing.name_servers import Absent, NameServerQueries
from turbopump.net.routing.route_cache import CacheRules, RouteCache
from turbopump.net.transport.calls import Call
from turbopump.net.wire.bodies import BadBody
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_request
from turbopump.net.wire.groups import SubscriptionGroupConfig
from turbopump.net.wire.headers.admin import (
    GetSubscriptionGroupConfigRequest,
    GetTopicConfigRequest,
)
from turbopump.net.wire.headers.routes import GetRouteInfoRequest
from turbopump.net.wire.names import kept_size
from turbopump.net.wire.route import BrokerData, ClusterInfo, TopicRouteData, bounded_queue_counts
from turbopump.net.wire.topics import TopicConfig
from turbopump.proxy.config import ProxyConfig

logger = logging.getLogger(__name__)

NAME_SERVER_MS: Final = 3_000
"""Timeout of the response of the last name server that is queried."""
NEXT_NAME_SERVER_MS: Final = 1_000
"""Timeout of a name server's response if there is another to query."""
ASK_MS: Final = 1_000
"""Timeout of a broker's response about a topic or a group."""
ASKED_MAX: Final = 3
"""Brokers queried for a topic or a group, at most, until one responds."""
DOWN_MS: Final = 3_000
"""Time for which a broker that did not respond is avoided if there are others."""
CLUSTER_MS: Final = 30_000
"""Interval of queries for all brokers of the cluster, after the first success."""
CLUSTER_AGAIN_MS: Final = 1_000
"""Interval of these queries until the first success."""
BROKERS_MAX: Final = 10_000
"""Broker groups in the map, at most; further ones are ignored."""
SIZE_MAX: Final = 32 << 20
"""Maximum bytes of the cached topics, and of the groups: 20,000 topics on a handful of brokers."""
BLANKS_MAX: Final = 16_384
"""Maximum number of cached topics without an answer, and of groups, some 10 MB."""
ENTRY_SIZE: Final = 500
"""Estimated bytes of a cached name besides the name and its answer."""
TOPIC_SIZE: Final = 600
"""Estimated bytes of a topic on one broker."""


@dataclass(slots=True, frozen=True)
class KnownTopic:
    """A topic's configuration on each broker that serves it, sorted by broker name.

    `at_ms` is the monotonic time of the query for its `attributes`.
    """

    topics: Mapping[str, TopicConfig]
    attributes: dict[str, str]
    at_ms: int


@dataclass(slots=True)
class _Broker:
    """A broker group: address of its master, its cluster, and the time of the master's
    last failure."""

    master: str = ""
    cluster: str = ""
    failed_ms: int | None = None


class ClusterMap:
    """Brokers, topics and groups, queried when needed. Loop thread only.

    `call` sends a request to an address; `steady_ms` is the monotonic clock in ms; for `run_soon`
    see NameServerQueries. `topics` and `groups` are caches by name. Methods about a broker take the
    name of its group.
    """

    def __init__(
        self,
        config: ProxyConfig,
        call: Call,
        steady_ms: Callable[[], int],
        run_soon: Callable[[Callable[[], None]], object] | None = None,
    ) -> None:
        self._config = config
        self._call = call
        self._steady_ms = steady_ms
        self._name_servers = NameServerQueries(
            call,
            lambda: config.namesrv_addr,
            NAME_SERVER_MS,
            next_ms=NEXT_NAME_SERVER_MS,
            warns=True,
            run_soon=run_soon,
        )
        self._brokers: dict[str, _Broker] = {}
        self._next = 0
        self._cluster_ms: int | None = None
        self._has_cluster = self._asks_cluster = False
        self._waiting: list[Callable[[], None]] = []
        self.topics = RouteCache[KnownTopic](
            self._query_topic, _size_of_topic, steady_ms, _cache_rules(config.route_refresh_seconds)
        )
        self.groups = RouteCache[SubscriptionGroupConfig](
            self._query_group, _size_of_group, steady_ms, _cache_rules(config.group_refresh_seconds)
        )

    # Brokers

    def master_address(self, broker_name: str) -> str:
        """Return the `host:port` of a group's master; "" without a master, or for an unknown
        group."""
        broker = self._brokers.get(broker_name)
        return "" if broker is None else broker.master

    def has_broker_group(self, broker_name: str) -> bool:
        """Whether a broker group is known here, with or without a master."""
        return broker_name in self._brokers

    def master_addresses(self) -> dict[str, str]:
        """Return the `host:port` of all known masters, by the names of their groups."""
        return {name: one.master for name, one in self._brokers.items() if one.master}

    def name_at(self, address: str) -> str:
        """Return the name of the group whose master has this address; "" if no master has it."""
        return next((name for name, at in self.master_addresses().items() if at == address), "")

    def is_up(self, broker_name: str) -> bool:
        """Whether a group has a master without a failure in the last DOWN_MS."""
        broker = self._brokers.get(broker_name)
        if broker is None or not broker.master:
            return False
        return broker.failed_ms is None or self._steady_ms() - broker.failed_ms > DOWN_MS

    def note_failure(self, broker_name: str, address: str, topics: Iterable[str]) -> None:
        """Record that the master at `address` did not respond, or is no longer master.

        It is avoided for DOWN_MS (`is_up`), the routes of `topics` are queried before their next
        use, and the next tick queries for all brokers.
        """
        broker = self._brokers.get(broker_name)
        if broker is not None and broker.master == address:
            broker.failed_ms = self._steady_ms()
        for topic in topics:
            self.topics.mark_doubtful(topic)
        if self._has_cluster and self._cluster_ms is not None:
            # The next tick queries for all masters.
            self._cluster_ms = min(self._cluster_ms, self._steady_ms() - CLUSTER_MS)

    def note_response(self, broker_name: str, address: str) -> None:
        """Record that the master at `address` has responded: it is up again."""
        broker = self._brokers.get(broker_name)
        if broker is not None and broker.master == address:
            broker.failed_ms = None

    def name_servers_changed(self) -> None:
        """Have the next tick query the new name servers of the configuration for all brokers."""
        self._cluster_ms = None

    def tick(self) -> None:
        """Send a query for all brokers of the cluster if the interval has passed; the response
        updates the masters later."""
        every_ms = CLUSTER_MS if self._has_cluster else CLUSTER_AGAIN_MS
        if self._cluster_ms is None or self._steady_ms() - self._cluster_ms >= every_ms:
            self._query_cluster()

    def _query_cluster(self) -> None:
        """Query a name server for all brokers, unless such a query is under way."""
        if self._asks_cluster:
            return
        self._asks_cluster, self._cluster_ms = True, self._steady_ms()
        self._name_servers.query_cluster().then(self._on_cluster)

    def _on_cluster(self, cluster: ClusterInfo | Absent) -> None:
        """Update the masters of all groups from the response, then continue what waited for it."""
        self._asks_cluster = False
        if not isinstance(cluster, Absent):
            self._has_cluster = True
            found = cluster.broker_addr_table.values()
            for data in found:
                # A replica that acts for its master is only in routes.
                if 0 in data.broker_addrs or data.broker_name not in self._brokers:
                    self._update_group(data)
            for name in self._brokers.keys() - {one.broker_name for one in found}:
                self._brokers[name].master = ""
        waiting, self._waiting = self._waiting, []
        for then in waiting:
            then()

    def _update_group(self, data: BrokerData) -> None:
        """Set the master of a broker group of the proxy's cluster."""
        wanted = self._config.cluster_name
        if wanted and data.cluster != wanted:
            return
        if data.broker_name not in self._brokers and len(self._brokers) >= BROKERS_MAX:
            return
        broker = self._brokers.setdefault(data.broker_name, _Broker())
        master = data.broker_addrs.get(0, "")
        if master != broker.master:
            logger.info("the master of %s: %s", data.broker_name, master or "none")
            broker.master, broker.failed_ms = master, None
        broker.cluster = data.cluster

    # Topics

    def _query_topic(self, name: str, before: KnownTopic | None) -> Deferred[KnownTopic | Absent]:
        """Query a topic's route, and then its attributes; `before` is the cached topic."""
        found: Deferred[KnownTopic | Absent] = Deferred()

        def routed(route: TopicRouteData | Absent) -> None:
            if isinstance(route, Absent):
                found.resolve(route)
            else:
                self._on_route(name, before, route, found.resolve)

        self._name_servers.query_route(GetRouteInfoRequest(name, True)).then(routed)
        return found

    def _on_route(
        self,
        name: str,
        before: KnownTopic | None,
        route: TopicRouteData,
        done: Callable[[KnownTopic | Absent], None],
    ) -> None:
        """Build a topic from its route; its attributes come from `before` if they are recent, else
        from a query. Calls `done` with the topic."""
        for data in route.broker_datas:
            self._update_group(data)
        served = {data.broker_name for data in route.broker_datas} & self._brokers.keys()
        queues = sorted(route.queue_datas, key=lambda one: one.broker_name)
        queues = [one for one in queues if one.broker_name in served]
        reads = bounded_queue_counts((one.broker_name, one.read_queue_nums) for one in queues)
        writes = bounded_queue_counts((one.broker_name, one.write_queue_nums) for one in queues)
        topics = {
            one.broker_name: TopicConfig(name, read_count, write_count, one.perm)
            for one, (_, read_count), (_, write_count) in zip(queues, reads, writes, strict=True)
        }
        if not topics:
            text = f"no broker of cluster {self._config.cluster_name} has topic {name}"
            done(Absent(text, is_certain=True))
            return
        now_ms, fresh_ms = self._steady_ms(), self._config.topic_refresh_seconds * 1_000
        if before is not None and now_ms - before.at_ms < fresh_ms:
            done(_known_topic(topics, before.attributes, before.at_ms))
            return
        request = new_request(RequestCode.GET_TOPIC_CONFIG, GetTopicConfigRequest(name))

        def described(found: Command | str) -> None:
            try:
                if isinstance(found, Command) and found.code == ResponseCode.SUCCESS:
                    done(_known_topic(topics, TopicConfig.decode(_body(found)).attributes, now_ms))
                    return
                text = found if isinstance(found, str) else found.remark or ""
            except BadBody as error:
                text = str(error)
            if before is not None:
                done(_known_topic(topics, before.attributes, before.at_ms))
            else:
                done(Absent(f"no broker describes topic {name}: {text}", is_certain=False))

        self._query_masters(self._query_order(topics), request).then(described)

    # Groups

    def _query_group(
        self, name: str, _before: SubscriptionGroupConfig | None
    ) -> Deferred[SubscriptionGroupConfig | Absent]:
        """Query the configuration of a consumer group at any master."""
        found: Deferred[SubscriptionGroupConfig | Absent] = Deferred()
        header = GetSubscriptionGroupConfigRequest(name)
        request = new_request(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, header)

        def described(response: Command | str) -> SubscriptionGroupConfig | Absent:
            if isinstance(response, Command):
                if response.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
                    return Absent(f"group not found: {name}", is_certain=True)
                if response.code == ResponseCode.SUCCESS:
                    try:
                        return SubscriptionGroupConfig.decode(_body(response))
                    except BadBody as error:
                        return Absent(f"group {name} cannot be read: {error}", is_certain=False)
            text = response if isinstance(response, str) else response.remark
            return Absent(f"no broker describes group {name}: {text}", is_certain=False)

        def ask() -> None:
            asked = self._query_masters(self._query_order(self._brokers), request)
            asked.map(described).then(found.resolve)

        if self._has_cluster:
            ask()
        else:
            self._waiting.append(ask)
            self._query_cluster()
        return found

    # Queries to brokers

    def _query_order(self, names: Iterable[str]) -> list[str]:
        """Choose the brokers to query, beginning with a different one each time; failed brokers are
        last."""
        found = [name for name in names if self.master_address(name)]
        if found:
            self._next += 1
            at = self._next % len(found)
            found = found[at:] + found[:at]
        return sorted(found, key=lambda name: not self.is_up(name))[:ASKED_MAX]

    def _query_masters(self, names: list[str], request: Command) -> Deferred[Command | str]:
        """Query the masters of these brokers in turn, until one responds."""
        found: Deferred[Command | str] = Deferred()
        left = list(names)

        def ask_next(failure: str) -> None:
            if not left:
                found.resolve(failure)
                return
            name = left.pop(0)
            address = self.master_address(name)
            if not address:
                ask_next(f"{name} has no master")
                return

            def responded(response: Command | str) -> None:
                if isinstance(response, str):
                    self.note_failure(name, address, ())
                    ask_next(response)
                    return
                self.note_response(name, address)
                if response.code == ResponseCode.TOPIC_NOT_EXIST and left:
                    # this broker has the topic's route, but not yet its configuration
                    ask_next(f"{name} has no configuration of the topic")
                else:
                    found.resolve(response)

            self._call(address, request, ASK_MS).then(responded)

        ask_next("no broker with a master is known")
        return found


def _known_topic(
    topics: dict[str, TopicConfig], attributes: dict[str, str], at_ms: int
) -> KnownTopic:
    """A topic whose configuration on each broker has these attributes."""
    for topic in topics.values():
        topic.attributes = attributes
    return KnownTopic(topics, attributes, at_ms)


def _body(response: Command) -> bytes:
    body: Any = response.body
    return b"".join(body) if isinstance(body, list) else bytes(body)


def _cache_rules(fresh_seconds: int) -> CacheRules:
    """Rules of a cache whose entries are fresh for `fresh_seconds`."""
    return CacheRules(
        fresh_ms=fresh_seconds * 1_000,
        again_ms=200,
        absent_ms=1_000,
        gone_ms=30_000,
        doubts_failed=True,
        size_max=SIZE_MAX,
        blanks_max=BLANKS_MAX,
        queries_max=64,
    )


def _size_of_topic(name: str, one: KnownTopic | None) -> int:
    """Estimated bytes of a topic in the cache; None: an absent topic."""
    if one is None:
        return ENTRY_SIZE + kept_size(name)
    texts = (name, *one.topics, *one.attributes, *one.attributes.values())
    return ENTRY_SIZE + kept_size(*texts) + TOPIC_SIZE * len(one.topics)


def _size_of_group(name: str, one: SubscriptionGroupConfig | None) -> int:
    """Estimated bytes of a consumer group in the cache; None: an absent group."""
    return ENTRY_SIZE + kept_size(name) + (4 * len(one.encode()) if one else 0)
