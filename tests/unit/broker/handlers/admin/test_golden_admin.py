"""Replays requests that real clients and mqadmin sent to RocketMQ 5.5.0 and compares the responses.

Each connection of a capture is replayed in order as a peer, so that the broker has the same topics,
groups and messages. Responses of these handlers must have the same code, the same header fields and
a body of the same structure.
"""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import zstandard

from turbopump.engine import fastjson
from turbopump.engine.deferred import Deferred
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import Command, decode
from turbopump.net.wire.heartbeat import ConsumerData, HeartbeatData
from turbopump.net.wire.java_properties import parse_properties

FRAMES = next(
    path / "golden" / "frames"
    for path in Path(__file__).resolve().parents
    if (path / "golden" / "frames").is_dir()
)
CAPTURES = ["json", "json-2", "rocketmq", "mixed", "plain-ha"]

MAPS = frozenset(
    {
        "offsetTable", "pullOffsetTable", "groupTopicMap", "topicConfigTable", "data",
        "subscriptionGroupTable", "subscriptionTable", "forbiddenTable", "attributes",
        "consumerTable", "element of consumeStatsList", "mqTable", "properties", "statusTable",
    }
)  # fmt: skip
"""JSON members whose keys are data, not structure."""

NOT_SHOWN_THERE = {
    "inBrokerContainer",
    "scanAvailableNameSrv",
    "storePathEpochFile",
    "vipPortEnable",
}
"""Keys that RocketMQ derives from setters, reports as null or names differently."""
OURS = {
    "enableRemotingLocalProxyGrpc", "grpcServerPort", "haMaxTimeSendsWait", "machineRooms",
    "rebalanceHandoverTime", "rebalanceHistorySize", "rebalanceMode", "rebalanceStrategy",
    "syncTimeoutMs", "keepWaitingMessages", "keepWaitingHoursMax", "keepWaitingMbytesMax",
    "ioThreads",
}  # fmt: skip
"""Keys that only Turbopump has."""
OUR_FACTS = ("transactions", "popRevive", "ioThreads")
"""Prefixes of the runtime table's keys that only Turbopump has."""
EXPORTED_HERE = {"brokerVersion", "getTransferedTps"}
"""Facts that rocketmq-exporter reads although a broker of 5.5.0 does not show them."""
NOT_SHOWN_HERE = {
    "authConfigPath",
    "authenticationMetadataProvider",
    "authenticationProvider",
    "authorizationMetadataProvider",
    "authorizationProvider",
    "metricsGrpcExporterHeader",
    "rocketmqHome",
    "socksProxyConfig",
}
"""Keys that have no value here, and credentials."""

ADDED_HERE = {"delayTime", "delayTimeKnown"}
"""Turbopump's members with the wait of the next message; RocketMQ's tools ignore them."""

RAW_BEAN_KEY = b':{{"brokerName":'

COMPARED = frozenset(
    {
        12, 17, 18, 21, 25, 26, 28, 33, 34, 35, 38, 41, 42, 43, 45, 46, 200, 201, 202, 203, 204,
        207, 208, 215, 222, 225, 300, 303, 305, 306, 307, 315, 316, 317, 321, 325, 328, 329, 343,
        345, 351, 400, 401, 402, 907,
    }
)  # fmt: skip

DIFFERENT = {
    # the recorded group requested the mode POP
    (401, 0, 3),
}
"""(request code, RocketMQ's code, Turbopump's code) where the codes differ on purpose."""


@cache
def capture(name: str) -> list[tuple[dict[str, Any], Command]]:
    def unpacked(suffix: str) -> bytes:
        packed = (FRAMES / f"{name}.{suffix}.zst").read_bytes()
        return zstandard.decompress(packed, max_output_size=1 << 24)

    data = unpacked("bin")
    found = []
    for line in unpacked("jsonl").decode().splitlines():
        truth = json.loads(line)
        found.append((truth, decode(data[truth["at"] : truth["at"] + truth["length"]])))
    return found


def keys_of_rocketmq(name: str) -> set[str]:
    lines = (FRAMES.parent / "config_keys_5_5_0.tsv").read_text().splitlines()
    return {line.split("\t")[1] for line in lines if line.startswith(f"{name}\t")}


class Replay:
    """Replays a capture against a broker of Turbopump."""

    def __init__(self, admin: Any, name: str) -> None:
        self.admin = admin
        self.frames = capture(name)
        self.responses = {
            truth["pair"]: (truth, command)
            for truth, command in self.frames
            if truth["kind"] == "response"
        }
        self.peers: dict[Any, Any] = {}
        self.answered: dict[tuple[str, str], Command] = {}
        for truth, command in self.frames:
            if truth["from"] == "broker" and truth["to"] == "client":
                response = self.responses.get(truth["frame"])
                if command.code == RequestCode.GET_CONSUMER_RUNNING_INFO and response:
                    fields = command.fields
                    self.answered[fields["consumerGroup"], fields["clientId"]] = response[1]

    def peer(self, connection: Any, request: Command) -> Any:
        if connection not in self.peers:
            self.peers[connection] = self.admin.connect()
        peer = self.peers[connection]
        peer.version, peer.language = request.version, request.language
        return peer

    def run(self) -> list[tuple[dict[str, Any], Command, Command, Command]]:
        """Yields (truth of the request, request, recorded response, Turbopump's response) of each
        compared pair."""
        compared = []
        for truth, request in self.frames:
            if truth["kind"] == "response" or truth["to"] != "broker":
                continue
            if truth["from"] == "broker" and request.code not in (21, 43, 45, 201, 402):
                continue
            peer = self.peer(truth["connection"], request)
            if request.code == RequestCode.QUERY_ASSIGNMENT:
                # The capture did not keep the heartbeat before this request, so send it here.
                asked = json.loads(bytes(request.body))
                self.admin.heartbeat(peer, asked["clientId"], ConsumerData(asked["consumerGroup"]))
            ours = self.admin.world.table.dispatch(request, peer, self.admin.now_ms)
            peer.context["wire"].flush()
            self.answer_calls()
            theirs = self.responses.get(truth["frame"])
            if request.code in COMPARED and theirs is not None:
                response = ours.value if isinstance(ours, Deferred) else ours
                compared.append((truth, request, theirs[1], response))
        return compared

    def answer_calls(self) -> None:
        """Answer the broker's requests to clients with the recorded responses."""
        for peer in self.peers.values():
            wire = peer.context["wire"]
            for asked in wire.take(RequestCode.GET_CONSUMER_RUNNING_INFO):
                fields = asked.fields
                recorded = self.answered[fields["consumerGroup"], fields["clientId"]]
                wire.answer(asked, recorded.code, recorded.body, remark=recorded.remark)
            for asked in wire.take(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT):
                wire.answer(asked, 0)


def same_structure(ours: Any, theirs: Any, where: str) -> None:
    """Check for the same members, kinds of values and lists, except for keys of MAPS and empty
    lists."""
    if isinstance(theirs, dict):
        assert isinstance(ours, dict), where
        if where.rpartition(".")[2] in MAPS:
            for value in ours.values():
                for sample in list(theirs.values())[:1]:
                    same_structure(value, sample, f"{where}.*")
            return
        assert ours.keys() - (ADDED_HERE - theirs.keys()) == theirs.keys(), where
        for name, value in theirs.items():
            same_structure(ours[name], value, f"{where}.{name}")
    elif isinstance(theirs, list):
        assert isinstance(ours, list), where
        name = where.rpartition(".")[2]
        for value in ours:
            for sample in theirs[:1]:
                same_structure(value, sample, f"{where}.element of {name}")
    elif isinstance(theirs, bool) or isinstance(ours, bool):
        assert type(ours) is type(theirs), where
    elif isinstance(theirs, int | float):
        assert isinstance(ours, int | float), where
    else:
        assert type(ours) is type(theirs), where


@pytest.mark.parametrize("name", CAPTURES)
def test_answers_look_like_rocketmq_s(make_admin: Any, name: str) -> None:
    admin = make_admin("defaultTopicQueueNums=4\n")
    seen: set[int] = set()
    skipped = 0
    for truth, request, theirs, ours in Replay(admin, name).run():
        where = f"{name} frame {truth['frame']} code {request.code}"
        codes = (request.code, int(theirs.code), int(ours.code))
        if codes in DIFFERENT or missing_history(request, theirs, ours):
            skipped += 1
            continue
        assert ours.code == theirs.code, (where, theirs.remark, ours.remark)
        assert ours.fields.keys() == theirs.fields.keys(), where
        if theirs.code != 0:
            assert ours.remark == theirs.remark, where
        compare_bodies(request.code, ours, theirs, where)
        seen.add(request.code)
    assert len(seen) >= (4 if name == "plain-ha" else 35), sorted(COMPARED - seen)
    assert skipped <= 15


def missing_history(request: Command, theirs: Command, ours: Command) -> bool:
    """Whether the answer depends on frames that the capture left out (it kept three of a kind)."""
    needs_messages_or_clients = (12, 33, 38, 203, 204, 307, 315, 321, 325)
    if request.code in (321, 345) and b"subscriptionData" not in bytes(ours.body):
        return True
    return request.code in needs_messages_or_clients and ours.code != theirs.code


def compare_bodies(code: int, ours: Command, theirs: Command, where: str) -> None:
    if code in (12, 33) or not theirs.body:
        assert bool(ours.body) == bool(theirs.body), where
        return
    body = bytes(ours.body)
    if code == RequestCode.GET_BROKER_CONFIG:
        mine = {item.key for item in parse_properties(body.decode())}
        known = {item.key for item in parse_properties(bytes(theirs.body).decode())}
        assert mine - known - keys_of_rocketmq("AuthConfig") <= NOT_SHOWN_THERE | OURS, where
        assert known - mine <= NOT_SHOWN_HERE, where
        return
    if code == RequestCode.GET_BROKER_RUNTIME_INFO:
        assert stable_keys(body) == stable_keys(theirs.body) | EXPORTED_HERE, where
        return
    if RAW_BEAN_KEY in bytes(theirs.body) and b"brokerName" in body and code != 307:
        assert RAW_BEAN_KEY in body, where
    same_structure(fastjson.loads(body), fastjson.loads(theirs.body), where)


def stable_keys(body: Any) -> set[str]:
    """Keys of the runtime table, without those made of a path, a level or a group's name."""
    table = fastjson.loads(body)["table"]
    made = ("consumerLag_", "consumerPop_", *OUR_FACTS)
    names = {key for key in table if "Offset_" not in key and not key.startswith(made)}
    return {re.sub(r"(?<=Ratio_).*", "PATH", key) for key in names}


def test_heartbeats_of_the_captures_register_their_clients(make_admin: Any) -> None:
    admin = make_admin()
    replay = Replay(admin, "json")
    replay.run()
    beats = [
        HeartbeatData.decode(bytes(command.body))
        for truth, command in replay.frames
        if command.code == RequestCode.HEART_BEAT and truth["kind"] != "response"
    ]
    groups = {data.group_name for beat in beats for data in beat.consumer_data_set}
    assert groups
    for group in groups:
        assert admin.broker.topics.get(f"%RETRY%{group}") is not None
