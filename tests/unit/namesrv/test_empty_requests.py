"""Requests without header and body: RocketMQ 5.5.0 accepts many of them (observed).

Their names are null then: lookups find no entry, and no entry is made.
"""

import pytest
from tests.unit.namesrv.test_handlers import NOW, Bench, code_and_remark, text

from turbopump.namesrv.handlers import FAQ
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.route import QueueData, TopicRouteData

NOWHERE = f"No topic route info in name server for the topic: null{FAQ}"
EMPTY: dict[int, tuple[int, str | None]] = {
    101: (22, "No config item, Namespace: null Key: null"),
    102: (0, None),
    104: (0, None),
    105: (17, NOWHERE),
    205: (0, None),
    216: (0, None),
    217: (0, None),
    219: (22, "No config item, Namespace: null"),
    224: (0, None),
    327: (0, None),
    901: (0, None),
}
"""Request code -> the answer's code and remark."""

BODIES = {224: '{"topicList":[]}', 901: '{"brokerMemberGroup":{"brokerAddrs":{}}}'}
FIELDS = {205: {"wipeTopicCount": "0"}, 327: {"addTopicCount": "0"}}

LACKING = {
    101: {"namespace": "n"},
    102: {"namespace": "n"},
    104: {"brokerName": "a"},
    105: {"acceptStandardJsonOnly": "true"},
    205: {"x": ""},
    216: {"clusterName": "c"},
    217: {"x": ""},
    219: {"key": "k"},
    224: {"x": ""},
    327: {"x": ""},
    901: {"brokerName": "a"},
}
"""Headers with a field, but without another field that RocketMQ's class marks as not null."""

REMARKS = {101: "No config item, Namespace: n Key: null"}


@pytest.fixture
def bench() -> Bench:
    """A name server with a broker, a topic and a value named as the text of a null."""
    found = Bench()
    names = {"brokerName": "null", "clusterName": "null", "topics": ("null", "other")}
    assert found.register(**names).code == 0
    found.server.key_values.set_value("null", "null", "v")
    found.saved.clear()
    return found


def state(bench: Bench) -> object:
    routes, key_values = bench.server.routes, bench.server.key_values
    queues = {topic: routes.find_route(topic) for topic in routes.topics()}
    return (
        queues,
        routes.cluster_info(),
        routes.size,
        key_values.values_of_namespace("null"),
        bench.saved,
    )


@pytest.mark.parametrize("code", sorted(EMPTY))
def test_an_empty_request_is_answered_as_by_rocketmq(bench: Bench, code: int) -> None:
    before = state(bench)
    response = bench.ask(code)
    assert code_and_remark(response) == EMPTY[code]
    assert text(response) == BODIES.get(code, "")
    assert response.fields == FIELDS.get(code, {})
    assert state(bench) == before
    assert bench.server.key_values.count == 1


@pytest.mark.parametrize("code", sorted(LACKING))
def test_a_header_that_lacks_a_member_is_answered_as_by_rocketmq(bench: Bench, code: int) -> None:
    before = state(bench)
    response = bench.ask(code, **LACKING[code])
    known, remark = EMPTY[code]
    assert code_and_remark(response) == (known, REMARKS.get(code, remark))
    assert state(bench) == before


def test_a_topic_that_is_registered_with_a_null_route_is_answered_with_0(bench: Bench) -> None:
    before = state(bench)
    response = bench.ask(RequestCode.REGISTER_TOPIC_IN_NAMESRV, b"null", topic="T")
    assert code_and_remark(response) == (0, None)
    assert state(bench) == before


def test_no_topic_is_kept_for_a_null_name(bench: Bench) -> None:
    queues = TopicRouteData([QueueData("null", 8, 8, 6)])
    assert bench.ask(RequestCode.REGISTER_TOPIC_IN_NAMESRV, queues.encode()).code == 0
    assert bench.server.routes.topics() == ["null", "other"]


def test_the_switches_of_an_operator_come_before_an_empty_header(bench: Bench) -> None:
    bench.server.config.enable_topic_list = False
    assert code_and_remark(bench.ask(RequestCode.GET_TOPICS_BY_CLUSTER)) == (1, "disable")
    bench.server.config.need_wait_for_service = True
    bench.server.started_ms = NOW
    assert code_and_remark(bench.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC)) == (
        1,
        "name server not ready",
    )
