"""Requests of brokers, clients and mqadmin to a real name server, sent to ours: the same responses.

Only some frames of each kind were kept, so tables differ in size; codes, remarks, members and all
values that do not depend on other frames must not.
"""

import json
from typing import Any

import pytest
from tests.disk_parts import saved_at_once
from tests.unit.links import NoLink

from turbopump.engine import fastjson
from turbopump.engine.deferred import Deferred
from turbopump.namesrv import handlers
from turbopump.namesrv.config import NamesrvConfig
from turbopump.namesrv.handlers import NameServer
from turbopump.namesrv.key_values import KeyValues
from turbopump.namesrv.routes import RouteTable
from turbopump.net.transport.dispatcher import Dispatcher
from turbopump.net.transport.peer import Peer
from turbopump.net.wire.command import Command, decode
from turbopump.net.wire.route import TopicRouteData

CAPTURES = [
    "json", "json-2", "rocketmq", "mixed", "plain-ha", "controller-json", "controller-mixed",
]  # fmt: skip
NOW_MS = 1_795_270_000_000
COUNTS = {"wipeTopicCount", "addTopicCount"}  # the number of topics differs here


class Replay:
    """Our name server, and a peer for each captured connection."""

    def __init__(self) -> None:
        server = NameServer(
            NamesrvConfig(),
            RouteTable(),
            KeyValues(saved_at_once),
            NOW_MS,
            lambda notice: None,
            saved_at_once,
        )
        self.routes = server.routes
        self.dispatcher = Dispatcher()
        handlers.register(self.dispatcher, server)
        self.peers: dict[int, Peer] = {}

    def learn(self, golden: Any, reply: Any) -> None:
        """Add a topic whose registration was not captured, from the response that shows it."""
        if golden.truth["name"] == "GET_ROUTEINFO_BY_TOPIC" and reply.truth["code"] == 0:
            topic = golden.truth["extFields"]["topic"]
            if self.routes.find_route(topic) is None:
                self.routes.add_topic(topic, TopicRouteData.decode(reply.body).queue_datas)

    def answer(self, golden: Any) -> Command:
        number = golden.truth["connection"]
        peer = self.peers.setdefault(number, Peer(f"192.0.2.1:{number}", b"", NoLink()))
        response = self.dispatcher.dispatch(decode(golden.frame), peer, NOW_MS)
        if isinstance(response, Deferred):
            response = response.value
        assert isinstance(response, Command)
        return response


@pytest.mark.parametrize("capture", CAPTURES)
def test_our_answers_are_rocketmqs(capture: str, all_frames: Any) -> None:
    frames = [one for one in all_frames if one.capture == capture]
    theirs = {one.truth["pair"]: one for one in frames if not one.is_request}
    replay = Replay()
    compared = 0
    for golden in frames:
        if golden.is_request and golden.truth["to"] == "namesrv":
            reply = theirs.get(golden.truth["frame"])
            replay.learn(golden, reply)
            response = replay.answer(golden)
            if reply is not None:
                same_response(response, reply)
                compared += 1
    assert compared >= 8


def same_response(ours: Command, golden: Any) -> None:
    theirs = decode(golden.frame)
    assert ours.code == theirs.code, golden
    assert ours.opaque == golden.truth["opaque"]
    assert set(ours.fields) == set(theirs.fields), golden
    for key in set(ours.fields) - COUNTS:
        assert ours.fields[key] == theirs.fields[key], golden
    remark = theirs.remark or ""
    if remark.startswith("org.apache.rocketmq"):  # a class name and a line number
        assert "Failed to decode RegisterBrokerBody" in (ours.remark or "")
    else:
        assert (ours.remark or "") == remark, golden
    assert isinstance(ours.body, bytes)
    same_body(golden.truth["requestName"], ours.body, golden.body)


def same_body(name: str, ours: bytes, theirs: bytes) -> None:
    if name == "GET_ROUTEINFO_BY_TOPIC":
        assert ours == theirs
    elif name == "GET_NAMESRV_CONFIG":
        assert keys(ours) == keys(theirs)
    elif name == "GET_BROKER_CLUSTER_INFO":
        assert members(ours) == members(theirs)
    elif theirs:
        assert json.loads(ours).keys() == fastjson.loads(theirs).keys()
    else:
        assert ours == b""


def members(body: bytes) -> dict[str, Any]:
    """A cluster table with the addresses left out: not every registration was captured."""
    value = fastjson.loads(body)
    for group in value["brokerAddrTable"].values():
        assert group.pop("brokerAddrs")
    return dict(value)


def keys(properties: bytes) -> set[str]:
    return {line.partition("=")[0] for line in properties.decode().splitlines()}
