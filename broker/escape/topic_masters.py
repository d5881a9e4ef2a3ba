"""Masters of other groups that can take messages of a topic, as reported by the name servers.

Owns the choice of the masters from a route. It neither sends messages nor waits: a caller whose
topic is unknown asks again later.

Tests: tests/unit/broker/scheduled/test_level_escape.py
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from turbopump.engine.deferred import Deferred
from turbopump.net.routing.name_servers import ROUTE_MAX, Absent, NameServerQueries
from turbopump.net.routing.route_cache import CacheRules, RouteCache
from turbopump.net.transport.calls import Call
from turbopump.net.wire.command import Command
from turbopump.net.wire.headers.routes import GetRouteInfoRequest
from turbopump.net.wire.hosts import split_host_port
from turbopump.net.wire.names import check_lengths
from turbopump.net.wire.route import MASTER_ID, TopicRouteData, bounded_queue_counts
from turbopump.net.wire.topics import PERM_WRITE

TIMEOUT_MS: Final = 3_000
"""Time-out in ms of a name server's answer."""
MASTERS_MAX: Final = 1_024
"""Maximum number of masters of a topic; the first by name."""
RULES: Final = CacheRules(
    fresh_ms=5_000,  # RocketMQ's bridge requests routes every 30 s
    again_ms=500,
    absent_ms=500,
    size_max=200_000,  # masters of all topics, some 60 MB with usual addresses
    entries_max=4_096,
    blanks_max=2_048,
    queries_max=64,
)
"""Life times and sizes of cached routes."""


@dataclass(frozen=True, slots=True)
class Master:
    """A master that takes messages of a topic: the name of its group, its address `host:port`, and
    its number of queues of the topic."""

    name: str
    address: str
    queue_count: int


class Neighbour(Protocol):
    """A master of another group in the same process (broker/container). Loop thread only."""

    @property
    def name(self) -> str:
        """The broker name of its group."""

    @property
    def address(self) -> str:
        """The address for clients, `host:port`."""

    def writable_queue_count(self, topic: str) -> int:
        """Return the number of the topic's queues at this master that take messages now; 0 for an
        unknown topic, or if the broker is no longer a master."""

    def ask(self, request: Command, timeout_ms: int) -> Deferred[Command | str]:
        """Pass a request to this master's handlers without a connection. Resolves to the answer, or
        within `timeout_ms` to the reason why it is missing."""


def local_master_of(neighbours: Sequence[Neighbour], topic: str, own_name: str) -> Master | None:
    """Return the first master of another group in this process that takes messages of the topic
    (RocketMQ: BrokerContainer.peekMasterBroker, which ignores the topic)."""
    for one in neighbours:
        if one.name != own_name and (count := one.writable_queue_count(topic)) > 0:
            return Master(one.name, one.address, count)
    return None


class TopicMasters:
    """The masters of other groups that take messages of a topic, cached from the name servers'
    routes. Loop thread only; times are of the monotonic clock."""

    def __init__(
        self,
        call: Call,
        servers: Callable[[], Sequence[str]],
        own_name: str,
        steady_ms: Callable[[], int],
        run_soon: Callable[[Callable[[], None]], object] | None = None,
    ) -> None:
        """For `run_soon` see NameServerQueries."""
        queries = NameServerQueries(
            call, servers, TIMEOUT_MS, body_max=ROUTE_MAX, run_soon=run_soon
        )

        def query(
            topic: str, _former: tuple[Master, ...] | None
        ) -> Deferred[tuple[Master, ...] | Absent]:
            route = queries.query_route(GetRouteInfoRequest(topic, accept_standard_json_only=True))
            return route.map(read)

        def read(route: TopicRouteData | Absent) -> tuple[Master, ...] | Absent:
            if isinstance(route, Absent):
                return route
            return masters_of(route, own_name) or Absent("no master", is_certain=True)

        self._cache = RouteCache[tuple[Master, ...]](
            query, lambda _topic, masters: len(masters or ()), steady_ms, RULES
        )

    def for_topic(self, topic: str) -> tuple[Master, ...] | None:
        """Return the known masters of other groups, sorted by name, and request an unknown or old
        route; () if there is no such master, None before any name server has answered. Never waits.
        """
        found = self._cache.current_answer(topic)
        if isinstance(found, Absent):
            return () if found.is_certain else None
        return found

    def refresh_soon(self, topic: str) -> None:
        """Request the route again soon, because a master did not take a message: there may be
        others by now."""
        self._cache.refresh_soon(topic)


def masters_of(route: TopicRouteData, own_name: str) -> tuple[Master, ...]:
    """Return the masters of other groups in a route that take messages, sorted by name, at most
    MASTERS_MAX. A route shows an acting replica as a master, but without the permission to write.
    """
    addresses = {one.broker_name: one.broker_addrs.get(MASTER_ID) for one in route.broker_datas}
    usable = {
        queues.broker_name: queues.write_queue_nums
        for queues in route.queue_datas
        if queues.perm & PERM_WRITE and queues.broker_name != own_name
    }
    found = []
    for name, count in bounded_queue_counts(sorted(usable.items())):
        address = addresses.get(name)
        if count and address and _is_address(address):
            found.append(Master(name, address, count))
            if len(found) == MASTERS_MAX:
                break
    return tuple(found)


def _is_address(text: str) -> bool:
    """Whether the text is a `host:port` of a legal length."""
    try:
        split_host_port(text)
    except ValueError:
        return False
    return check_lengths(brokerAddr=text) is None
