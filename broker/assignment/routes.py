"""Routes of topics, used by the coordinator of a group for all its members.

Owns the routes reported by name servers for requested topics, their maximum age, and the choice of
the coordinator (RocketMQ: TopicRouteInfoManager). It opens no connection: a function sends the
requests.

    unknown --get--> requested --answered--> known --older than REFRESH_MS--> requested
                                               '--unused for UNUSED_MS--> forgotten

Tests: tests/unit/broker/assignment/test_assignments.py,
    tests/unit/broker/assignment/test_coordinator.py
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from turbopump.engine.deferred import Deferred
from turbopump.engine.types import LONG_AGO_MS
from turbopump.net.allocation.shares import java_order, queues_of, readable_counts
from turbopump.net.wire.bodies import BadBody, load_object
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_request
from turbopump.net.wire.headers.routes import GetRouteInfoRequest
from turbopump.net.wire.queues import MessageQueue
from turbopump.net.wire.route import TopicRouteData
from turbopump.net.wire.topics import PERM_READ, TopicConfig

Call = Callable[[str, Command, int], Deferred[Command | str]]
"""(address, request, time-out in ms): resolves to the answer, or the reason why it is missing."""

REFRESH_MS: Final = 10_000
"""Age in ms from which a route is requested again; RocketMQ's brokers do so every 30 s."""
AGAIN_MS: Final = 500
"""Minimum interval in ms between two requests for a route."""
UNUSED_MS: Final = 120_000
"""Time in ms without use after which a route is forgotten."""
TIMEOUT_MS: Final = 1_000
"""Time-out in ms of a name server; a Java client waits 1 s for its first answer."""
QUEUES_MAX: Final = 500_000
"""Maximum of queues of all kept routes, some 60 MB; the least recently used are dropped first."""


@dataclass(frozen=True, slots=True)
class GroupCoordinator:
    """The broker that decides for a topic's groups."""

    broker_name: str
    broker_id: int
    address: str


@dataclass(slots=True)
class KnownRoute:
    """Number of readable queues of a topic on each broker, and the brokers that serve it. `version`
    changes with the queues. Immutable, except for the cached queues."""

    topic: str
    version: int
    counts: tuple[tuple[str, int], ...]
    brokers: Mapping[str, Mapping[int, str]]
    _queues: tuple[MessageQueue, ...] | None = None

    @property
    def size(self) -> int:
        """Total number of queues."""
        return sum(count for _, count in self.counts)

    @property
    def queues(self) -> tuple[MessageQueue, ...]:
        """The queues, sorted; made by the thread that uses them first, because they may be
        thousands."""
        if self._queues is None:
            self._queues = queues_of(self.topic, self.counts)
        return self._queues

    def coordinator(self) -> GroupCoordinator | None:
        """Return the broker with the smallest name and, in it, the smallest id; None without
        brokers."""
        names = [name for name, addresses in self.brokers.items() if addresses]
        if not names:
            return None
        name = min(names, key=java_order)
        broker_id = min(self.brokers[name])
        return GroupCoordinator(name, broker_id, self.brokers[name][broker_id])


@dataclass(slots=True)
class _Asked:
    """A requested topic. `waiting` are the results to resolve with the first answer."""

    route: KnownRoute | None = None
    own: tuple[TopicConfig | None, GroupCoordinator] | None = None
    """Source of the route where there are no name servers."""
    asked_ms: int = LONG_AGO_MS
    used_ms: int = LONG_AGO_MS
    is_asking: bool = False
    waiting: list[Deferred[KnownRoute | None]] = field(default_factory=list)


class TopicRoutes:
    """See the module. Loop thread only; times are of the monotonic clock."""

    def __init__(
        self,
        call: Call,
        servers: Callable[[], Sequence[str]],
        own: Callable[[str], tuple[TopicConfig | None, GroupCoordinator]],
        steady_ms: Callable[[], int],
    ) -> None:
        """`servers` returns the name servers; without any, a topic's route is made from this
        broker's own configuration, returned by `own`."""
        self.on_change: Callable[[str], None] = lambda topic: None
        """Called with topics whose queues have changed."""
        self._call = call
        self._servers = servers
        self._own = own
        self._steady_ms = steady_ms
        self._topics: dict[str, _Asked] = {}
        self._versions = 0
        self._first = 0

    def get(self, topic: str) -> Deferred[KnownRoute | None]:
        """Return the route; None for a topic that does not exist, or if no name server answers."""
        found: Deferred[KnownRoute | None] = Deferred()
        now_ms = self._steady_ms()
        known = self._topics.setdefault(topic, _Asked())
        known.used_ms = now_ms
        if not self._servers():
            self._take_own(topic, known)
            found.resolve(known.route)
            return found
        if now_ms - known.asked_ms >= REFRESH_MS:
            self._ask(topic, known)
        if known.route is not None or not known.is_asking:
            found.resolve(known.route)
        else:
            known.waiting.append(found)
        return found

    def refresh_soon(self, topic: str) -> None:
        """Request the route soon: a broker did not answer, or the topic was changed."""
        known = self._topics.get(topic)
        if known is not None and self._steady_ms() - known.asked_ms >= AGAIN_MS:
            self._ask(topic, known)

    def changed(self, topics: Sequence[str]) -> None:
        """Request the routes of this broker's changed topics soon; name servers are notified now,
        too."""
        for topic in topics:
            known = self._topics.get(topic)
            if known is not None:
                known.asked_ms = min(known.asked_ms, self._steady_ms() - REFRESH_MS + AGAIN_MS)

    def tick(self) -> None:
        """Request the routes that are due, forget unused ones."""
        now_ms = self._steady_ms()
        for topic, known in list(self._topics.items()):
            if known.is_asking:
                continue
            if now_ms - known.used_ms >= UNUSED_MS:
                del self._topics[topic]
            elif now_ms - known.asked_ms >= REFRESH_MS and self._servers():
                self._ask(topic, known)

    def _take_own(self, topic: str, known: _Asked) -> None:
        own = config, me = self._own(topic)
        if known.own is not None and known.own[0] is config and known.own[1] == me:
            return
        known.own = own
        if config is None or not config.perm & PERM_READ:
            known.route = None
            return
        counts = ((me.broker_name, config.read_queue_nums),)
        self._put(topic, known, counts, {me.broker_name: {me.broker_id: me.address}})

    def _ask(self, topic: str, known: _Asked) -> None:
        if known.is_asking:
            return
        known.is_asking, known.asked_ms = True, self._steady_ms()
        servers = list(self._servers())
        first = self._first % len(servers) if servers else 0
        self._try(topic, known, servers[first:] + servers[:first])

    def _try(self, topic: str, known: _Asked, servers: Sequence[str]) -> None:
        if not servers:
            self._answered(topic, known)
            return
        request = new_request(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequest(topic))

        def take(answer: Command | str) -> None:
            if isinstance(answer, str) or not self._read(topic, known, answer):
                self._first += 1
                self._try(topic, known, servers[1:])
            else:
                self._answered(topic, known)

        self._call(servers[0], request, TIMEOUT_MS).then(take)

    def _read(self, topic: str, known: _Asked, answer: Command) -> bool:
        """Read a name server's answer; return whether it has a result for the topic."""
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            known.route = None
            return True
        if answer.code != ResponseCode.SUCCESS:
            return False
        try:
            data = TopicRouteData.from_json(load_object(answer.body))
        except BadBody:
            return False
        brokers = {one.broker_name: dict(one.broker_addrs) for one in data.broker_datas}
        self._put(topic, known, readable_counts(data), brokers)
        return True

    def _put(
        self,
        topic: str,
        known: _Asked,
        counts: tuple[tuple[str, int], ...],
        brokers: Mapping[str, Mapping[int, str]],
    ) -> None:
        former = known.route
        if former is not None and former.counts == counts:
            known.route = replace(former, brokers=brokers)
            return
        self._versions += 1
        known.route = KnownRoute(topic, self._versions, counts, brokers)
        self._bound()
        if former is not None:
            self.on_change(topic)

    def _answered(self, topic: str, known: _Asked) -> None:
        known.is_asking = False
        if known.route is None:
            known.asked_ms += AGAIN_MS - REFRESH_MS  # the topic may exist in a moment
        waiting, known.waiting = known.waiting, []
        for later in waiting:
            later.resolve(known.route)

    def _bound(self) -> None:
        sizes = {name: one.route.size for name, one in self._topics.items() if one.route}
        over = sum(sizes.values()) - QUEUES_MAX
        for name in sorted(sizes, key=lambda name: self._topics[name].used_ms):
            if over <= 0 or len(sizes) == 1:
                return
            if not self._topics[name].is_asking:
                over -= sizes[name]
                del self._topics[name]
