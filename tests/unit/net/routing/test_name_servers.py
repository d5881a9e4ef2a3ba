"""Queries to name servers: their order, the time-outs, and the answers that count."""

import logging
from collections.abc import Callable
from typing import Any

import pytest

from turbopump.engine.deferred import Deferred
from turbopump.net.routing.name_servers import Absent, NameServerQueries
from turbopump.net.wire.codes import ResponseCode
from turbopump.net.wire.command import Command, new_response
from turbopump.net.wire.headers.routes import GetRouteInfoRequest
from turbopump.net.wire.route import BrokerData, ClusterInfo, QueueData, TopicRouteData

ROUTE = TopicRouteData([QueueData("b", 4, 4, 6)], [BrokerData("C", "b", {0: "b:1"})])
HEADER = GetRouteInfoRequest("T", True)


class Servers:
    """Name servers with scripted answers; without one they answer the route."""

    def __init__(self, *addresses: str, **options: Any) -> None:
        self.addresses = list(addresses)
        self.responses: dict[str, str | tuple[int, bytes]] = {}
        self.asked: list[tuple[str, int]] = []
        self.hangs = False
        self.waiting: list[tuple[Deferred[Command | str], Command | str]] = []
        self.queries = NameServerQueries(self.call, lambda: self.addresses, 3_000, **options)

    def call(self, address: str, request: Command, timeout_ms: int) -> Deferred[Command | str]:
        self.asked.append((address, timeout_ms))
        found = self.responses.get(address, (ResponseCode.SUCCESS, ROUTE.encode()))
        response: Command | str
        if isinstance(found, str):
            response = found
        else:
            response = new_response(request, found[0], f"code {found[0]}", body=found[1])
        later: Deferred[Command | str] = Deferred()
        self.waiting.append((later, response))
        if not self.hangs:
            self.answer()
        return later

    def answer(self) -> None:
        waiting, self.waiting = self.waiting, []
        for later, response in waiting:
            later.resolve(response)

    def route(self) -> TopicRouteData | Absent:
        return self.queries.query_route(HEADER).value

    def asked_now(self) -> list[tuple[str, int]]:
        asked, self.asked = self.asked, []
        return asked


def long_route(groups: int) -> TopicRouteData:
    names = [f"broker-{number}" for number in range(groups)]
    return TopicRouteData(
        [QueueData(name, 4, 4, 6) for name in names],
        [BrokerData("C", name, {0: f"{name}:1", 1: f"{name}:2"}) for name in names],
    )


def test_a_long_answer_is_read_in_steps_one_after_the_other() -> None:
    soon: list[Callable[[], None]] = []
    servers = Servers("a:1", "b:1", run_soon=soon.append)
    assert servers.route() == ROUTE and not soon, "a short answer is read at once"
    route = long_route(3_000)
    servers.responses["a:1"] = (ResponseCode.SUCCESS, route.encode())
    first, second = (servers.queries.query_route(HEADER) for _ in range(2))
    servers.responses["a:1"] = (ResponseCode.SUCCESS, route.encode()[:-1])
    third = servers.queries.query_route(HEADER)
    cluster = ClusterInfo({one.broker_name: one for one in route.broker_datas}, {"C": []})
    servers.responses["a:1"] = (ResponseCode.SUCCESS, cluster.encode())
    fourth = servers.queries.query_cluster()
    steps, ends = 0, []
    while soon:
        assert len(soon) == 1, "one answer at a time"
        soon.pop()()
        steps += 1
        ends.append([one.done for one in (first, second, third, fourth)])
    assert steps > 100 and ends == sorted(ends)
    assert first.value == second.value == route
    assert third.value == ROUTE, "b:1 answers, because the answer of a:1 is damaged"
    assert fourth.value == cluster


def test_a_result_whose_callback_raises_holds_up_no_later_answer() -> None:
    soon: list[Callable[[], None]] = []
    servers = Servers("a:1", run_soon=soon.append)
    servers.responses["a:1"] = (ResponseCode.SUCCESS, long_route(1_000).encode())

    def broken(_route: object) -> None:
        raise ValueError("not today")

    servers.queries.query_route(HEADER).then(broken)
    later = servers.queries.query_route(HEADER)
    raised = 0
    while soon:
        try:
            soon.pop()()
        except ValueError:
            raised += 1
    assert raised == 1 and later.done


@pytest.mark.logs_tracebacks
def test_an_answer_whose_reading_fails_counts_as_a_failure(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise the topic would be queried for ever, and its route never known again."""

    def broken(_value: object) -> TopicRouteData:
        raise RecursionError("too deep")

    servers = Servers("a:1", "b:1")
    with monkeypatch.context() as patch:
        patch.setattr(TopicRouteData, "from_json_in_steps", broken)
        found = servers.route()
    assert isinstance(found, Absent) and not found.is_certain
    assert "b:1: RecursionError: too deep" in found.text
    assert [one.args for one in caplog.records] == [("a:1",), ("b:1",)]
    assert servers.route() == ROUTE


@pytest.mark.parametrize(
    "failure", ["timed out", (1, b""), (0, b"[]"), (0, b"{"), (0, b" " * 5_000 + ROUTE.encode())]
)
def test_a_server_that_fails_is_asked_last_from_then_on(failure: str | tuple[int, bytes]) -> None:
    servers = Servers("a:1", "b:1", "c:1", next_ms=1_000, body_max=5_000)
    servers.responses["a:1"] = failure
    assert servers.route() == ROUTE
    assert servers.asked_now() == [("a:1", 1_000), ("b:1", 1_000)]
    servers.responses["b:1"] = servers.responses["c:1"] = failure
    servers.responses["a:1"] = (0, ROUTE.encode())
    assert servers.route() == ROUTE
    assert servers.asked_now() == [("b:1", 1_000), ("c:1", 1_000), ("a:1", 3_000)]
    assert servers.route() == ROUTE
    assert servers.asked_now() == [("a:1", 1_000)]


def test_a_missing_topic_is_an_answer_and_silence_is_a_failure() -> None:
    servers = Servers("a:1", "b:1")
    servers.responses["a:1"] = (ResponseCode.TOPIC_NOT_EXIST, b"")
    missing = "No topic route info in name server for the topic: T"
    assert servers.route() == Absent(missing, is_certain=True)
    servers.responses = {"a:1": "timed out", "b:1": (2, b"")}
    text = "no name server answers: b:1 answered 2: code 2"
    assert servers.route() == Absent(text, is_certain=False)
    servers.addresses = []
    assert servers.route() == Absent("no name server answers: no address", is_certain=False)


def test_queries_that_failed_together_pass_over_one_server() -> None:
    servers = Servers("a:1", "b:1", "c:1")
    servers.hangs = True
    servers.responses["a:1"] = "timed out"
    found = [servers.queries.query_route(HEADER) for _ in range(2)]
    servers.answer()
    servers.answer()
    assert [one.value for one in found] == [ROUTE, ROUTE]
    assert [address for address, _ in servers.asked_now()] == ["a:1", "a:1", "b:1", "b:1"]


def test_servers_may_change_during_a_query() -> None:
    servers = Servers("a:1", "b:1")
    servers.hangs = True
    servers.responses["a:1"] = servers.responses["b:1"] = "timed out"
    found = servers.queries.query_route(HEADER)
    servers.addresses = []
    servers.answer()
    servers.addresses = ["d:1"]
    servers.answer()
    assert found.value == Absent("no name server answers: timed out", is_certain=False)
    servers.hangs = False
    assert servers.route() == ROUTE


def test_brokers_of_all_clusters() -> None:
    servers = Servers("a:1")
    cluster = ClusterInfo({"b": ROUTE.broker_datas[0]}, {"C": ["b"]})
    servers.responses["a:1"] = (0, cluster.encode())
    assert servers.queries.query_cluster().value == cluster
    servers.responses["a:1"] = (0, b"")
    found = servers.queries.query_cluster().value
    assert isinstance(found, Absent) and not found.is_certain


@pytest.mark.parametrize("warns", [True, False])
def test_the_first_of_consecutive_failures_is_logged(
    caplog: pytest.LogCaptureFixture, warns: bool
) -> None:
    servers = Servers("a:1", warns=warns)
    with caplog.at_level(logging.WARNING):
        for failure in ("silent", "silent", (0, ROUTE.encode()), "timed out"):
            servers.responses["a:1"] = failure  # type: ignore[assignment]
            servers.route()
    expected = ["no name server answers: silent", "no name server answers: timed out"]
    assert caplog.messages == (expected if warns else [])
