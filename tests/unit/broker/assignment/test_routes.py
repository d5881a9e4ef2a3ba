"""Routes for the coordinator: a flood of topics, topics that nothing has, and their memory."""

import pytest
from tests.unit.broker.assignment.conftest import GROUP, TOPIC, Brokers

from turbopump.broker.assignment.routes import RULES, GroupCoordinator, TopicRoutes
from turbopump.engine.deferred import Deferred
from turbopump.net.wire.codes import ResponseCode
from turbopump.net.wire.command import Command, new_response
from turbopump.net.wire.route import BrokerData, QueueData, TopicRouteData
from turbopump.net.wire.topics import TopicConfig

FLOOD = 20_000
REAL = TopicRouteData([QueueData("a", 4, 4, 6)], [BrokerData("C", "a", {0: "a:10911"})])


class Routes:
    """Routes of a broker whose name server has the topics of `real`, and answers at once unless
    `is_silent`."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.real = {TOPIC: REAL}
        self.is_silent = False
        self.queries: list[str] = []
        self.unanswered: list[tuple[Command, Deferred[Command | str]]] = []
        me = GroupCoordinator("a", 0, "a:10911")
        self.routes = TopicRoutes(
            self.call, lambda: ["ns:9876"], lambda _topic: (None, me), lambda: self.now_ms
        )

    def call(self, _address: str, request: Command, _timeout_ms: int) -> Deferred[Command | str]:
        self.queries.append(request.fields["topic"])
        if not self.is_silent:
            return Deferred.resolved(self.answer_to(request))
        self.unanswered.append((request, Deferred()))
        return self.unanswered[-1][1]

    def answer_to(self, request: Command) -> Command:
        found = self.real.get(request.fields["topic"])
        if found is None:
            return new_response(request, ResponseCode.TOPIC_NOT_EXIST)
        return new_response(request, ResponseCode.SUCCESS, body=found.encode())

    def pass_time(self, duration_ms: int) -> None:
        """Let time pass, with the ticks of a broker."""
        for _ in range(duration_ms // 100):
            self.now_ms += 100
            self.routes.tick()


def test_members_of_random_topics_leave_nothing_and_query_nothing(brokers: Brokers) -> None:
    brokers.add("a")
    brokers.join("c0")
    world = brokers.worlds["a"]
    for number in range(FLOOD // 20):
        assert brokers.ask("c0", topic=f"random-{number}") is None
    routes = world.broker.assignments._routes
    assert len(routes._cache) == 0 and routes._cache.size == 0
    assert brokers.ask("c0") == [("a", number) for number in range(4)]


@pytest.mark.parametrize("is_silent", [False, True])
def test_a_flood_of_topics_does_not_displace_a_group(is_silent: bool) -> None:
    one = Routes()
    assert one.routes.get(TOPIC).value is not None
    one.is_silent = is_silent
    for number in range(FLOOD):
        one.routes.get(f"random-{number}")
        if number % 1_000 == 0:
            one.pass_time(100)
    found = one.routes.get(TOPIC)
    assert found.done and found.value is not None and found.value.size == 4
    assert len(one.routes._cache) <= RULES.blanks_max + 1 and one.routes._cache.size < 4 << 20
    assert len(one.unanswered) <= RULES.queries_max
    one.queries.clear()
    one.pass_time(10_000)
    assert set(one.queries) <= {TOPIC}, "absent topics are not queried again"
    one.is_silent = False
    one.real["Orders"] = REAL
    for request, later in one.unanswered:
        later.resolve(one.answer_to(request))
    assert one.routes.get("Orders").value is not None


def test_known_topics_do_not_delay_an_unknown_topic_while_name_servers_hang() -> None:
    one = Routes()
    one.real = {f"known-{number}": REAL for number in range(1_000)}
    for topic in one.real:
        assert one.routes.get(topic).value is not None
    one.is_silent = True
    one.queries.clear()
    one.pass_time(10_000)
    assert len(one.queries) == RULES.refreshes_max, "all known topics are due, and some are asked"
    wanted = one.routes.get("Orders")
    assert one.queries[-1] == "Orders" and not wanted.done
    one.real["Orders"] = REAL
    request, later = one.unanswered[-1]
    later.resolve(one.answer_to(request))
    assert wanted.value is not None


def test_a_route_of_fifteen_thousand_groups_is_read() -> None:
    one = Routes()
    names = [f"broker-{number}" for number in range(15_000)]
    one.real[TOPIC] = TopicRouteData(
        [QueueData(name, 4, 4, 6) for name in names],
        [BrokerData("DefaultCluster", name, {0: "10.10.10.10:10911"}) for name in names],
    )
    route = one.routes.get(TOPIC).value
    assert route is not None and len(route.counts) == 15_000


def test_a_route_is_bounded_in_bytes() -> None:
    one = Routes()
    brokers = [f"broker-{number}" for number in range(100)]
    route = TopicRouteData(
        [QueueData(name, 600, 600, 6) for name in brokers],
        [BrokerData("C", name, {0: f"{name}:10911"}) for name in brokers],
    )
    for number in range(14):
        one.real[f"T{number}"] = route
        found = one.routes.get(f"T{number}").value
        assert found is not None and len(found.queues) == found.size == 60_000
    assert one.routes._cache.size <= RULES.size_max
    assert 5 <= len(one.routes._cache) <= 11
    assert one.routes.get("T13").value is not None and one.queries.count("T13") == 1


def test_a_broker_without_name_servers_knows_its_own_topics(brokers: Brokers) -> None:
    world = brokers.add("a", properties="namesrvAddr=\n")
    brokers.join("c0", group=GROUP)
    world.broker.topics.put(TopicConfig("Own", 2, 2), world.now_ms)
    assert brokers.ask("c0", topic="Own") == [("a", 0), ("a", 1)]
