"""Long responses of a name server are built in steps and have the same bytes as if built at
once."""

from collections.abc import Generator

import pytest
from tests.unit.namesrv.test_handlers import Bench

from turbopump.engine import fastjson
from turbopump.net.wire.command import Command, new_request

MANY = 12_000


@pytest.fixture(scope="module")
def bench() -> Bench:
    """A name server with many topics, many brokers and a topic that all these brokers have."""
    bench = Bench()
    bench.register(topics=[f"topic {number * 7919 % MANY}" for number in range(MANY)])
    for number in range(600):
        response = bench.register(
            brokerName=f"b{number}",
            brokerAddr=f"10.1.{number // 250}.{number % 250}:10911",
            topics=("wide", "other"),
        )
        assert response.code == 0
    return bench


def ask(bench: Bench, code: int, **fields: str) -> tuple[bytes, int]:
    """The body of the response, and the number of steps that it took."""
    response = bench.dispatcher.dispatch(new_request(code, fields=fields), bench.peer, bench.now_ms)
    steps = 0
    if isinstance(response, Generator):
        while True:
            try:
                next(response)
                steps += 1
            except StopIteration as done:
                response = done.value
                break
    assert isinstance(response, Command) and response.code == 0, response
    assert isinstance(response.body, bytes)
    return response.body, steps


def body(value: object) -> bytes:
    return fastjson.dumps(value).encode()


def test_topics(bench: Bench) -> None:
    topics = bench.server.routes.topics()
    assert len(topics) == MANY + 2
    found, steps = ask(bench, 206)
    assert found == body({"topicList": topics}) and steps > MANY // 200
    found, steps = ask(bench, 224, cluster="c")
    assert found == body({"topicList": sorted(topics)}) and steps > MANY // 200
    found, steps = ask(bench, 311)
    assert found == body({"topicList": []}) and steps >= MANY // 2_000 - 1


def test_clusters_and_routes(bench: Bench) -> None:
    routes = bench.server.routes
    found, steps = ask(bench, 106)
    assert found == routes.cluster_info().encode() and steps > 2
    route = routes.find_route("wide")
    assert route is not None and len(route.queue_datas) == 600
    found, steps = ask(bench, 105, topic="wide")
    assert found == route.encode() and steps > 4
    narrow = routes.find_route("topic 1")
    assert narrow is not None
    assert ask(bench, 105, topic="topic 1") == (narrow.encode(), 0)
