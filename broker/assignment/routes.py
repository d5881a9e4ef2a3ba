"""Routes of topics, used by the coordinator of a group for all its members.

Owns the choice of the coordinator, and the versions of routes (RocketMQ: TopicRouteInfoManager). It
must never open a connection: a function sends the requests.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from turbopump.engine.deferred import Deferred
from turbopump.net.allocation.shares import java_order, queues_of, readable_counts
from turbopump.net.routing.name_servers import ROUTE_MAX, Absent, NameServerQueries
from turbopump.net.routing.route_cache import CacheRules, RouteCache
from turbopump.net.transport.calls import Call
from turbopump.net.wire.headers.routes import GetRouteInfoRequest
from turbopump.net.wire.names import kept_size
from turbopump.net.wire.queues import MessageQueue
from turbopump.net.wire.route import TopicRouteData, bounded_queue_counts
from turbopump.net.wire.topics import PERM_READ, TopicConfig

TIMEOUT_MS: Final = 1_000
"""Time-out in ms of a name server; a Java client waits 1 s for its first answer."""
RULES: Final = CacheRules(
    fresh_ms=10_000,  # RocketMQ's brokers request routes every 30 s
    again_ms=500,
    absent_ms=500,  # the topic may exist in a moment
    unused_ms=120_000,
    size_max=64 << 20,  # bytes
    entries_max=20_000,
    blanks_max=2_048,
    queries_max=64,
)
"""Life times and sizes of cached routes."""
ENTRY_SIZE: Final = 600
"""Estimated bytes of an entry besides its texts, brokers and queues."""
BROKER_SIZE: Final = 400
"""Estimated bytes of a broker of a route besides its texts: a tuple, and a dict with an address."""
QUEUE_SIZE: Final = 100
"""Bytes of a queue of a route: a MessageQueue, its number, and its place in a tuple."""


@dataclass(frozen=True, slots=True)
class GroupCoordinator:
    """The broker that decides for a topic's groups; `address` is `host:port`."""

    broker_name: str
    broker_id: int
    address: str


@dataclass(slots=True)
class KnownRoute:
    """The route of a topic: `counts` has the number of readable queues on each broker (broker name,
    number), `brokers` the address of each broker by name and id. `version` grows with each change
    of `counts`. Immutable, except for the cached queues."""

    topic: str
    version: int
    counts: tuple[tuple[str, int], ...]
    brokers: Mapping[str, Mapping[int, str]]
    _queues: tuple[MessageQueue, ...] | None = None

    @property
    def size(self) -> int:
        """Total number of readable queues."""
        return sum(count for _, count in self.counts)

    @property
    def queues(self) -> tuple[MessageQueue, ...]:
        """The readable queues, sorted as `sorted_queues` does; made by the thread that uses them
        first, because they may be thousands."""
        if self._queues is None:
            self._queues = queues_of(self.topic, self.counts)
        return self._queues

    def coordinator(self) -> GroupCoordinator | None:
        """Return the broker with the smallest name (in Java's order) and the smallest id in it;
        None without brokers."""
        names = [name for name, addresses in self.brokers.items() if addresses]
        if not names:
            return None
        name = min(names, key=java_order)
        broker_id = min(self.brokers[name])
        return GroupCoordinator(name, broker_id, self.brokers[name][broker_id])


class TopicRoutes:
    """Cache of the routes of topics, requested from the name servers and kept up to date, for the
    coordinator of a group. Loop thread only; times are of the monotonic clock."""

    def __init__(
        self,
        call: Call,
        servers: Callable[[], Sequence[str]],
        own: Callable[[str], tuple[TopicConfig | None, GroupCoordinator]],
        steady_ms: Callable[[], int],
        run_soon: Callable[[Callable[[], None]], object] | None = None,
    ) -> None:
        """`servers` returns the name servers; without any, a topic's route is made from this
        broker's own configuration, returned by `own`; for `run_soon` see NameServerQueries."""
        self.on_change: Callable[[str], None] = lambda topic: None
        """Called with a topic whose readable queues have changed since its former route, before the
        new route is returned."""
        self._servers, self._own = servers, own
        self._queries = NameServerQueries(
            call, servers, TIMEOUT_MS, body_max=ROUTE_MAX, run_soon=run_soon
        )
        self._cache = RouteCache[KnownRoute](self._query, _size, steady_ms, RULES)
        self._versions = 0

    def get(self, topic: str) -> Deferred[KnownRoute | None]:
        """Resolve to the route: at once if a former answer is known, which is then queried again if
        it is old. None for a topic that does not exist, or if no name server answers."""
        if not self._servers():
            return Deferred.resolved(self._route_of_own_topic(topic))
        return self._cache.get_or_query(topic).map(_present)

    def refresh_soon(self, topic: str) -> None:
        """Request a known topic's route now, unless the last request is younger than 500 ms: a
        broker of it did not answer."""
        self._cache.refresh_soon(topic)

    def refresh_changed(self, topics: Sequence[str]) -> None:
        """Request the routes of these topics of this broker again in 500 ms, because they have
        changed: name servers are notified of the change now, too."""
        for topic in topics:
            self._cache.refresh_later(topic)

    def tick(self) -> None:
        """Request the known routes that are due, and forget unused ones."""
        self._cache.forget_unused()
        if self._servers():
            self._cache.refresh_due()

    def _route_of_own_topic(self, topic: str) -> KnownRoute | None:
        """Make the route from this broker's own configuration and put it into the cache; None if
        the topic does not exist here or is not readable."""
        config, me = self._own(topic)
        former, route = self._cache.get(topic), None
        if config is not None and config.perm & PERM_READ:
            counts = tuple(bounded_queue_counts([(me.broker_name, config.read_queue_nums)]))
            brokers = {me.broker_name: {me.broker_id: me.address}}
            route = self._make_route(topic, _present(former), counts, brokers)
        self._cache.set_answer(topic, route or Absent(f"no topic {topic}", is_certain=True))
        return route

    def _query(self, topic: str, former: KnownRoute | None) -> Deferred[KnownRoute | Absent]:
        """Query the name servers; resolves to the route, a newer version if its queues differ from
        `former`, or to Absent."""
        response = self._queries.query_route(GetRouteInfoRequest(topic))
        return response.map(partial(self._route_of_answer, topic, former))

    def _route_of_answer(
        self, topic: str, former: KnownRoute | None, response: TopicRouteData | Absent
    ) -> KnownRoute | Absent:
        """Make the route from a name server's answer."""
        if isinstance(response, Absent):
            return response
        brokers = {one.broker_name: dict(one.broker_addrs) for one in response.broker_datas}
        return self._make_route(topic, former, readable_counts(response), brokers)

    def _make_route(
        self,
        topic: str,
        former: KnownRoute | None,
        counts: tuple[tuple[str, int], ...],
        brokers: Mapping[str, Mapping[int, str]],
    ) -> KnownRoute:
        """Return `former` with these addresses if its numbers of queues are the same; else a route
        with a new version, and call `on_change` if there was a former one."""
        if former is not None and former.counts == counts:
            return replace(former, brokers=brokers)
        self._versions += 1
        if former is not None:
            self.on_change(topic)
        return KnownRoute(topic, self._versions, counts, brokers)


def _present(route: KnownRoute | Absent | None) -> KnownRoute | None:
    """The route, or None if it is absent."""
    return None if isinstance(route, Absent) else route


def _size(topic: str, route: KnownRoute | None) -> int:
    """Estimate the memory of an entry in bytes, with the queues of its route."""
    if route is None:
        return ENTRY_SIZE + kept_size(topic)
    texts = [topic, *(name for name, _ in route.counts)]
    for name, addresses in route.brokers.items():
        texts += [name, *addresses.values()]
    brokers = len(route.counts) + sum(map(len, route.brokers.values()))
    return ENTRY_SIZE + kept_size(*texts) + BROKER_SIZE * brokers + QUEUE_SIZE * route.size
