"""The cache of other groups' masters is bounded, whatever name servers return."""

import pytest

from turbopump.broker.escape import topic_masters as module
from turbopump.broker.escape.topic_masters import TopicMasters
from turbopump.engine.deferred import Deferred
from turbopump.net.wire.command import Command, response
from turbopump.net.wire.route import BrokerData, QueueData, TopicRouteData


def route(count: int) -> bytes:
    """An encoded route of a topic on `count` brokers."""
    names = [f"b{number}" for number in range(count)]
    queues = [QueueData(name, 4, 4, 6) for name in names]
    brokers = [BrokerData("c", name, {0: "10.0.0.1:10911"}) for name in names]
    return TopicRouteData(queues, brokers).encode()


def test_masters_of_all_topics_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT_MAX", 25)
    now_ms = 0

    def call(_address: str, request: Command, _timeout_ms: int) -> Deferred[Command | str]:
        answered: Deferred[Command | str] = Deferred()
        answered.resolve(response(request, 0, body=route(10)))
        return answered

    masters = TopicMasters(call, lambda: ["n:9876"], "own", lambda: now_ms)
    for number in range(6):
        now_ms += 1_000
        assert masters.for_topic(f"T{number}") is not None
        assert sum(len(one.masters or ()) for one in masters._topics.values()) <= 25
    assert list(masters._topics) == ["T4", "T5"], "the topics that were queried last"
