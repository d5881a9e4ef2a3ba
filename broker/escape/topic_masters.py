"""Masters of other groups that can take messages of a topic, as reported by the name servers.

Owns the last report for each topic and its maximum age. It neither sends messages nor waits: a
caller whose topic is unknown asks again later.

    unknown --asked--> known --older than REFRESH_MS, or a master failed--> asked again
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from turbopump.engine.deferred import Deferred
from turbopump.engine.types import LONG_AGO_MS
from turbopump.net.wire.bodies import BadBody, load_object
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_request
from turbopump.net.wire.headers.routes import GetRouteInfoRequest
from turbopump.net.wire.hosts import split
from turbopump.net.wire.names import check_lengths
from turbopump.net.wire.route import (
    MASTER_ID,
    TopicRouteData,
)
from turbopump.net.wire.topics import PERM_WRITE

Call = Callable[[str, Command, int], Deferred[Command | str]]
"""(address, request, time-out in ms): resolves to the answer, or the reason why it is missing."""

REFRESH_MS: Final = 5_000
"""Age in ms from which a route is requested again; RocketMQ's bridge does so every 30 s."""
AGAIN_MS: Final = 500
"""Minimum interval in ms between two requests for a route."""
TIMEOUT_MS: Final = 3_000
TOPICS_MAX: Final = 4_096
"""Maximum number of remembered topics; the topics requested longest ago are dropped first."""
KEPT_MAX: Final = 200_000
"""Maximum number of masters of all topics, some 60 MB with usual addresses; dropped as above."""
ROUTE_MAX: Final = 1 << 20
"""Bytes of an answer at most: the loop reads that much in some 20 ms. Ten thousand groups have
less."""
MASTERS_MAX: Final = 1_024
"""Masters of a topic at most; the first by name."""


@dataclass(frozen=True, slots=True)
class Master:
    """A master that takes messages of a topic, and its number of queues for them."""

    name: str
    address: str
    queue_count: int


class Neighbour(Protocol):
    """A master in the same process (broker/container)."""

    @property
    def name(self) -> str:
        """Name of its group."""

    @property
    def address(self) -> str:
        """Address for clients, `host:port`."""

    def queues(self, topic: str) -> int:
        """Return the number of the topic's queues that take messages now; 0 if it is no longer a
        master."""

    def ask(self, request: Command, timeout_ms: int) -> Deferred[Command | str]:
        """Answer a request without a connection; resolves to the answer, or the reason why it is
        missing."""


def near(neighbours: Sequence[Neighbour], topic: str, own_name: str) -> Master | None:
    """Return the first master of another group in this process that takes messages of the topic
    (RocketMQ: BrokerContainer.peekMasterBroker, which ignores the topic)."""
    for one in neighbours:
        if one.name != own_name and (count := one.queues(topic)) > 0:
            return Master(one.name, one.address, count)
    return None


@dataclass(slots=True)
class _Known:
    masters: tuple[Master, ...] | None = None
    asked_ms: int = LONG_AGO_MS
    is_asking: bool = False


class TopicMasters:
    """See the module. Loop thread only; times are of the monotonic clock."""

    def __init__(
        self,
        call: Call,
        servers: Callable[[], Sequence[str]],
        own_name: str,
        steady_ms: Callable[[], int],
    ) -> None:
        self._call, self._servers = call, servers
        self._own_name, self._steady_ms = own_name, steady_ms
        self._topics: dict[str, _Known] = {}
        self._kept = 0
        """Number of masters of all topics."""
        self._first = 0

    def for_topic(self, topic: str) -> tuple[Master, ...] | None:
        """Return the known masters, sorted by name; None before any name server has answered."""
        known = self._topics.get(topic)
        if known is None:
            self._bound(KEPT_MAX, TOPICS_MAX - 1)
            known = self._topics[topic] = _Known()
        age_ms = self._steady_ms() - known.asked_ms
        if age_ms >= (REFRESH_MS if known.masters else AGAIN_MS):
            self._ask(topic, known)
        return known.masters

    def refresh_soon(self, topic: str) -> None:
        """Request the route again, because a master did not take a message: there may be others by
        now."""
        known = self._topics.get(topic)
        if known is not None and self._steady_ms() - known.asked_ms >= AGAIN_MS:
            self._ask(topic, known)

    def _ask(self, topic: str, known: _Known) -> None:
        if known.is_asking:
            return
        known.is_asking, known.asked_ms = True, self._steady_ms()
        servers = list(self._servers())
        first = self._first % len(servers) if servers else 0
        self._try(topic, known, servers[first:] + servers[:first])

    def _try(self, topic: str, known: _Known, servers: Sequence[str]) -> None:
        if not servers:
            known.is_asking = False
            return
        header = GetRouteInfoRequest(topic, accept_standard_json_only=True)
        request = new_request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        took = partial(self._took, topic, known, servers[1:])
        self._call(servers[0], request, TIMEOUT_MS).then(took)

    def _took(
        self, topic: str, known: _Known, others: Sequence[str], answer: Command | str
    ) -> None:
        found = None if isinstance(answer, str) else self._read(answer)
        if found is None:
            self._first += 1
            self._try(topic, known, others)
        else:
            if self._topics.get(topic) is known:
                self._kept += len(found) - len(known.masters or ())
            known.is_asking, known.masters = False, found
            self._bound(KEPT_MAX, TOPICS_MAX)

    def _read(self, answer: Command) -> tuple[Master, ...] | None:
        """Read a route; None if the answer contains none of the topic."""
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return ()
        if answer.code != ResponseCode.SUCCESS or len(answer.body) > ROUTE_MAX:
            return None
        try:
            route = TopicRouteData.from_json(load_object(answer.body))
        except BadBody:
            return None
        return masters_of(route, self._own_name)

    def _bound(self, masters: int, topics: int) -> None:
        """Drop the oldest topics above the limits."""
        while len(self._topics) > topics or (self._kept > masters and len(self._topics) > 1):
            oldest = min(self._topics, key=lambda name: self._topics[name].asked_ms)
            self._kept -= len(self._topics.pop(oldest).masters or ())


def masters_of(route: TopicRouteData, own_name: str) -> tuple[Master, ...]:
    """Return the masters of other groups that take messages. A route shows an acting replica as a
    master, but without the permission to write."""
    addresses = {one.broker_name: one.broker_addrs.get(MASTER_ID) for one in route.broker_datas}
    found = []
    for queues in route.queue_datas:
        name, count = queues.broker_name, queues.write_queue_nums
        address = addresses.get(name)
        if name == own_name or not address or not queues.perm & PERM_WRITE or count < 1:
            continue
        if _is_address(address):
            found.append(Master(name, address, count))
    return tuple(sorted(found, key=lambda one: one.name)[:MASTERS_MAX])


def _is_address(text: str) -> bool:
    try:
        split(text)
    except ValueError:
        return False
    return check_lengths(brokerAddr=text) is None
