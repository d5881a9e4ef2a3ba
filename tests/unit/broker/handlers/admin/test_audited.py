"""Each administrator's change is a line of the log, with old and new value."""

import json
import logging
from collections.abc import Generator
from typing import Any

import pytest

from turbopump.engine.deferred import Deferred
from turbopump.net.config.audit import STATE_MAX, audit_handlers
from turbopump.net.transport.dispatcher import Dispatcher
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import Command, new_request, new_response
from turbopump.net.wire.topics import TopicConfig

AUDIT = "turbopump.net.config.audit"


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == AUDIT]


def ask(world: Any, code: int, body: bytes = b"", **fields: str) -> Any:
    response = world.dispatch(new_request(code, fields=fields, body=body))
    if isinstance(response, Generator):
        for _ in response:
            pass
    world.turn()
    return response


@pytest.fixture(autouse=True)
def info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


def test_a_configuration_has_its_old_and_new_values(
    world: Any, caplog: pytest.LogCaptureFixture
) -> None:
    ask(world, RequestCode.UPDATE_BROKER_CONFIG, b"fileReservedTime=5\n", AccessKey="admin")
    (line,) = lines(caplog)
    assert line.startswith("UPDATE_BROKER_CONFIG by ")
    assert "(admin) answered 0" in line
    assert "before: fileReservedTime=72; after: fileReservedTime=5" in line


def test_a_refused_change_names_its_keys_and_no_credential(
    world: Any, caplog: pytest.LogCaptureFixture
) -> None:
    body = b"listenPort=48\nnoSuchKey=7\ntls.server.keyPassword=hidden\n"
    ask(world, RequestCode.UPDATE_BROKER_CONFIG, body)
    (line,) = lines(caplog)
    assert "answered 1: listenPort=48 noSuchKey=7 tls.server.keyPassword; before: " in line
    assert "hidden" not in line


def test_topics_and_groups(world: Any, caplog: pytest.LogCaptureFixture) -> None:
    known = Deferred[None]()
    known.resolve(None)
    world.broker.register_topics = lambda _names: known
    ask(
        world,
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        topic="New",
        defaultTopic="TBW102",
        readQueueNums="3",
        writeQueueNums="3",
        perm="6",
        topicFilterType="SINGLE_TAG",
        topicSysFlag="0",
        order="false",
    )
    ask(
        world,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        json.dumps({"groupName": "G", "retryQueueNums": 2}).encode(),
    )
    ask(world, RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName="G", cleanOffset="true")
    topic, group, deleted = lines(caplog)
    assert "before: no topic; after: {" in topic and '"readQueueNums":3' in topic
    assert "before: no group; after: {" in group and '"retryQueueNums":2' in group
    assert deleted.endswith("after: no group") and '"retryQueueNums":2' in deleted


def test_a_refused_change_says_so(world: Any, caplog: pytest.LogCaptureFixture) -> None:
    ask(world, RequestCode.UPDATE_BROKER_CONFIG, b"brokerName=x\n")
    (line,) = lines(caplog)
    assert "answered 1" in line


def test_no_line_shows_a_credential_or_more_than_it_may(
    caplog: pytest.LogCaptureFixture, peer: Any
) -> None:
    table = Dispatcher()
    table.add(RequestCode.AUTH_CREATE_USER, lambda request, _peer, _now: new_response(request, 0))
    audit_handlers(table, {RequestCode.AUTH_CREATE_USER: lambda _request: "x\n" * 10_000})
    fields = {"password": "hidden1", "Signature": "hidden2", "user\n": "y" * 10_000}
    table.dispatch(Command(RequestCode.AUTH_CREATE_USER, fields=fields, body=b"hidden3"), peer, 0)
    (line,) = lines(caplog)
    assert "hidden" not in line and line.isprintable()
    assert len(line) < 5 * STATE_MAX


@pytest.fixture
def peer(world: Any) -> Any:
    return world.peer()


@pytest.mark.parametrize(
    ("topic", "state"), [("T", "; before: T: 0:-1 1:3; after: T: 0:-1 1:7"), ("", "offline=true")]
)
def test_cloned_offsets(
    world: Any, caplog: pytest.LogCaptureFixture, topic: str, state: str
) -> None:
    world.broker.topics.put(TopicConfig("T", 2, 2), world.now_ms)
    offsets = world.broker.offsets
    offsets.commit("from", "T", 1, 7, world.now_ms)
    offsets.commit("to", "T", 1, 3, world.now_ms)
    fields = {"srcGroup": "from", "destGroup": "to", "topic": topic, "offline": "true"}
    ask(world, RequestCode.CLONE_GROUP_OFFSET, **fields)
    (line,) = lines(caplog)
    assert "answered 0: srcGroup=from destGroup=to" in line
    assert line.endswith(state)
