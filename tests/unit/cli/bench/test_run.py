"""The preparation of a load: the existing queues, their distribution to connections, the
requests."""

from typing import Any

import pytest
from tests.unit.net.client.cluster import (
    NAME_SERVER,
    TOPIC,
    ScriptedCluster,
    options,
    play,
)

from turbopump.cli.bench import frames, run
from turbopump.cli.bench.frames import Shape, Templates
from turbopump.cli.bench.plan import TEMPLATES_MAX, Plan
from turbopump.cli.bench.setup import ROUTE_WAIT_S, Place, TopicPlaces, query_places
from turbopump.cli.errors import CommandFailed, UserError
from turbopump.net.client import client_instance
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.queues import MessageQueue

A, B = "127.0.0.1:11000", "127.0.0.1:11001"


def place(broker: str, queue_id: int, begin: int = 0, end: int = 0) -> Place:
    return Place(MessageQueue(TOPIC, broker, queue_id), {"a": A, "b": B}[broker], begin, end)


PLACES = [place(broker, queue_id) for broker in "ab" for queue_id in range(3)]


def plan(**fields: Any) -> Plan:
    return Plan([NAME_SERVER], TOPIC, **fields)


def senders(plan: Plan, places: list[Place] = PLACES) -> list[tuple[str, int, int, int]]:
    found = run._list_senders(plan, places, Templates(), 128)
    return [(one.queue.broker_name, *rest) for one, *rest in found]


def test_senders_are_dealt_to_brokers_and_begin_apart() -> None:
    assert senders(plan(send_connections=5)) == [
        *(("a", 0, 3, 0), ("b", 3, 3, 0), ("a", 0, 3, 1), ("b", 3, 3, 1), ("a", 0, 3, 2))
    ]
    assert senders(plan(send_connections=1)) == [("a", 0, 3, 0), ("b", 3, 3, 0)], "none is left out"
    assert senders(plan()) == []


def test_tags_are_more_templates_unless_messages_are_together() -> None:
    tagged = plan(send_connections=1, shape=Shape(tag_count=4))
    assert senders(tagged) == [("a", 0, 12, 0), ("b", 12, 12, 0)]
    together = plan(send_connections=1, shape=Shape(tag_count=4, batch=2))
    assert senders(together) == [("a", 0, 3, 0), ("b", 3, 3, 0)]
    with pytest.raises(UserError, match=f"queues and tags are over {TEMPLATES_MAX}"):
        senders(plan(send_connections=1, shape=Shape(tag_count=TEMPLATES_MAX)))


def pullers(plan: Plan, places: list[Place]) -> list[tuple[str, list[int]]]:
    count, found = run._list_pullers(plan, places, Templates())
    queues = [queue for _, mine in found for queue in mine]
    assert count == len(queues) == len({template for template, _, _ in queues})
    return [(one.queue.broker_name, [begin for _, begin, _ in mine]) for one, mine in found]


def test_queues_are_dealt_to_readers() -> None:
    full = [
        place(one.queue.broker_name, one.queue.queue_id, 10 + n, 99) for n, one in enumerate(PLACES)
    ]
    assert pullers(plan(pull_connections=4), full) == [
        *(("a", [10, 12]), ("a", [11]), ("b", [13, 15]), ("b", [14]))
    ]
    assert [len(mine) for _, mine in pullers(plan(pull_connections=1), full)] == [3, 3]
    assert len(pullers(plan(pull_connections=99), full)) == 6, "no connection without a queue"
    assert pullers(plan(), full) == []


def test_empty_queues_are_read_only_while_following() -> None:
    places = [place("a", 0), place("a", 1, 5, 9)]
    assert pullers(plan(pull_connections=2), places) == [("a", [5])]
    assert len(pullers(plan(pull_connections=2, follow=True), places)) == 2
    with pytest.raises(CommandFailed, match=f"there is nothing to read in topic {TOPIC}"):
        pullers(plan(pull_connections=2), [place("a", 0)])


def test_bodies() -> None:
    body, unique_at, stride = run._request_body(plan(shape=Shape(size=10)))
    assert (len(body), unique_at, stride) == (10, 0, 0)
    assert run._request_body(plan(body=b"own")) == (b"own", 0, 0)
    shape = Shape(size=3, batch=2, unique_prefix="0" * 20)
    body, unique_at, stride = run._request_body(plan(shape=shape, body=b"own"))
    assert body.count(b"own") == 2 and len(body) == 2 * stride
    assert (
        body[unique_at : unique_at + len(frames.SERIAL)]
        == body[unique_at + stride :][: len(frames.SERIAL)]
    )


def test_a_load_by_tls_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    path = tmp_path / "tls.properties"
    path.write_text("tls.client.authServer=false\n")
    monkeypatch.setenv("TURBOPUMP_TLS", str(path))
    with pytest.raises(UserError, match="unset TURBOPUMP_TLS"):
        run.run_load(plan(send_connections=1))


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> ScriptedCluster:
    made = ScriptedCluster()
    made.add("a", "b", queues=2)
    monkeypatch.setattr(client_instance, "Client", made)
    return made


def surveyed(plan: Plan) -> TopicPlaces:
    return play(query_places(plan, options()))


def status(cluster: ScriptedCluster, name: str, *ends: int) -> None:
    beans = ",".join(
        f'{{"brokerName":"{name}","queueId":{number},"topic":"{TOPIC}"}}:'
        f'{{"lastUpdateTimestamp":1,"maxOffset":{end},"minOffset":3}}'
        for number, end in enumerate(ends)
    )
    cluster.set_response(
        name, RequestCode.GET_TOPIC_STATS_INFO, f'{{"offsetTable":{{{beans}}}}}'.encode()
    )


def test_where_a_topic_is(cluster: ScriptedCluster) -> None:
    status(cluster, "a", 7, 9)
    status(cluster, "b", 4, 3)
    found = surveyed(plan(send_connections=1, pull_connections=1))
    assert [(one.queue.broker_name, one.queue.queue_id, one.address) for one in found.sends] == [
        *(("a", 0, A), ("a", 1, A), ("b", 0, B), ("b", 1, B))
    ]
    assert [(one.begin, one.end) for one in found.pulls] == [(3, 7), (3, 9), (3, 4), (3, 3)]
    late = surveyed(plan(pull_connections=1, from_end=True))
    assert [(one.begin, one.end) for one in late.pulls] == [(7, 7), (9, 9), (4, 4), (3, 3)]
    assert not surveyed(plan(send_connections=1)).pulls and cluster.open == 0


def test_a_topic_without_a_queue_to_write(cluster: ScriptedCluster) -> None:
    cluster.routes[TOPIC] = cluster.route(2, "a", perm=4)
    with pytest.raises(CommandFailed, match=f"no broker takes messages for topic {TOPIC}"):
        surveyed(plan(send_connections=1))
    status(cluster, "a", 7, 9)
    assert len(surveyed(plan(pull_connections=1)).pulls) == 2, "it may be read all the same"


def test_a_missing_topic_is_created_for_senders_only(cluster: ScriptedCluster) -> None:
    del cluster.routes[TOPIC]
    with pytest.raises(CommandFailed, match=f"there is no topic {TOPIC} to read"):
        surveyed(plan(pull_connections=1))
    assert not cluster.made(RequestCode.UPDATE_AND_CREATE_TOPIC)
    with pytest.raises(CommandFailed, match="was created, but no name server knows it"):
        surveyed(plan(send_connections=1, queues=5))
    created = cluster.made(RequestCode.UPDATE_AND_CREATE_TOPIC)
    assert [call.address for call in created] == [A, B]
    assert created[0].request.fields["writeQueueNums"] == "5"
    asked = cluster.times(RequestCode.GET_ROUTEINFO_BY_TOPIC)
    assert max(asked) >= 1_000 * (ROUTE_WAIT_S - 1), "a name server needs its time"
    cluster.fail("b", RequestCode.UPDATE_AND_CREATE_TOPIC, ResponseCode.SYSTEM_ERROR)
    with pytest.raises(Exception, match="scripted"):
        surveyed(plan(send_connections=1))
    assert cluster.open == 0


def test_many_topics(cluster: ScriptedCluster) -> None:
    for number in range(40):
        cluster.routes[f"{TOPIC}-{number}"] = cluster.route(1, "a")
    found = surveyed(plan(topics=40, send_connections=1))
    assert [one.queue.topic for one in found.sends] == [f"{TOPIC}-{number}" for number in range(40)]
