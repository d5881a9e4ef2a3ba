"""Names that lead out of the store's folder, through every request code of a broker: no file is
removed or made.

The tests iterate over codes, not over handlers, so that they include new codes.
"""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from turbopump.engine import fastjson
from turbopump.engine.deferred import Deferred
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command
from turbopump.net.wire.names import validate_group_name, validate_topic_name

HOSTILE = [
    ".",
    "..",
    "../",
    "../..",
    "../../../victim",
    "/",
    "/victim",
    "\0",
    "..\0",
    "a/../../b",
    "",
    "\ud800",
    "主" * 100,
    "t" * 256,
    "%RETRY%..",
    "%RETRY%../../victim",
    "%LMQ%../..",
]

NAMES = [
    "topic", "b", "group", "n", "consumerGroup", "producerGroup", "a", "groupName", "clientId",
    "brokerName", "bname", "clusterName", "cluster", "c", "defaultTopic", "srcGroup", "destGroup",
    "compareGroup", "filterGroups", "originTopic", "statsName", "namespace", "key", "brokerAddr",
    "brokerAddress", "masterAddress", "topicList", "lo", "storePath", "fileName", "mode",
]  # fmt: skip
"""Header members that are names, in all spellings of headers."""

ZEROS = [
    "queueId", "e", "queueOffset", "commitOffset", "offset", "sysFlag", "f", "flag", "h",
    "maxMsgNums", "suspendTimeoutMillis", "subVersion", "delayLevel", "unitMode", "batch", "m",
    "timestamp", "beginTimestamp", "endTimestamp", "maxNum", "reconsumeTimes", "j", "isForce",
    "isC", "popShareQueueNum", "order", "topicSysFlag",
]  # fmt: skip
"""Members that are no names, so that headers are complete."""

ILLEGAL = {
    RequestCode.SEND_MESSAGE: ResponseCode.INVALID_PARAMETER,
    RequestCode.SEND_MESSAGE_V2: ResponseCode.INVALID_PARAMETER,
    RequestCode.UPDATE_AND_CREATE_TOPIC: ResponseCode.INVALID_PARAMETER,
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: ResponseCode.INVALID_PARAMETER,
    RequestCode.DELETE_TOPIC_IN_BROKER: ResponseCode.INVALID_PARAMETER,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: ResponseCode.INVALID_PARAMETER,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: ResponseCode.INVALID_PARAMETER,
    RequestCode.PULL_MESSAGE: ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
    RequestCode.GET_TOPIC_CONFIG: ResponseCode.TOPIC_NOT_EXIST,
    RequestCode.GET_TOPIC_STATS_INFO: ResponseCode.TOPIC_NOT_EXIST,
}
"""RocketMQ's response codes, except that it answers 215 with 0 and deletes no folder."""


def numbers(now_ms: int) -> dict[str, object]:
    """Header fields that hold no names: values that complete the headers."""
    fields: dict[str, object] = dict.fromkeys(ZEROS, 0)
    fields |= dict.fromkeys(("bornTimestamp", "g"), now_ms)
    fields |= dict.fromkeys(("defaultTopicQueueNums", "d", "readQueueNums", "writeQueueNums"), 4)
    return fields | {
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        "readable": "true",
        "k": "false",
        "properties": "",
        "i": "",
        "msgId": "7F0000010000ABCD0000000000000000",
    }


def bodies_of(name: str) -> list[bytes]:
    """Bodies that hold the name in all its places; and an empty body."""
    queue = {"topic": name, "brokerName": name, "queueId": 0}
    beans: list[dict[str, Any]] = [
        {
            "topicName": name,
            "readQueueNums": 1,
            "writeQueueNums": 1,
            "perm": 6,
            "topicConfigList": [
                {
                    "topicName": name,
                    "readQueueNums": 1,
                    "writeQueueNums": 1,
                    "perm": 6,
                    "topicFilterType": "SINGLE_TAG",
                }
            ],
            "groupName": name,
            "groupConfigList": [{"groupName": name}],
        },
        {"consumerGroup": name, "clientId": name, "mqSet": [queue]},
        {
            "clientID": name,
            "producerDataSet": [{"groupName": name}],
            "consumerDataSet": [
                {
                    "groupName": name,
                    "consumeType": "CONSUME_PASSIVELY",
                    "messageModel": "CLUSTERING",
                    "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                    "subscriptionDataSet": [{"topic": name, "subString": "*"}],
                }
            ],
        },
        {
            "topic": name,
            "consumerGroup": name,
            "clientId": name,
            "strategyName": name,
            "mode": "PULL",
            "namespace": name,
            "subscriptionData": {"topic": name},
        },
    ]
    return [b"", *(fastjson.dumps(bean).encode(errors="surrogatepass") for bean in beans)]


def tree(root: Path) -> set[str]:
    """Every file and folder below `root`, except for the tables of config, which are replaced."""
    paths = (str(path.relative_to(root)) for path in root.rglob("*"))
    return {path for path in paths if "/config/" not in path}


def answered(response: Command | Deferred[Command | None] | None) -> int | None:
    """The response code; None while the response is pending."""
    if isinstance(response, Deferred):
        response = response.value if response.done else None
    return None if response is None else response.code


@pytest.fixture
def line(make_admin: Callable[..., Any], tmp_path: Path) -> Any:
    """A broker that has messages, with a folder beside its own."""
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "file").write_bytes(b"x")
    admin = make_admin()
    admin.create_topic("T")
    admin.send("T", b"kept")
    return admin


def test_no_name_in_any_request_moves_a_file(line: Any, tmp_path: Path) -> None:
    before = tree(tmp_path)
    for code in sorted(line.world.table.codes):
        for name in HOSTILE:
            fields = numbers(line.now_ms) | dict.fromkeys(NAMES, name)
            for body in bodies_of(name):
                line.begin(code, body, **fields)
        line.world.pass_time(100)
        after = tree(tmp_path)
        assert before <= after, f"{code}: {before - after} went"
        assert before == after, f"{code}: {after - before} came"
    for name in line.broker.topics.all_topics():
        assert validate_topic_name(name) is None
    for name in line.broker.groups.all_groups():
        assert validate_group_name(name) is None
    assert line.send("T", b"goes on").code == 0
    assert line.json(RequestCode.GET_TOPIC_CONFIG, topic="T")["topicName"] == "T"


def test_the_answer_to_an_invalid_topic_name(line: Any) -> None:
    for name, (code, expected) in itertools.product(HOSTILE, ILLEGAL.items()):
        assert validate_topic_name(name) is not None
        fields = numbers(line.now_ms) | dict.fromkeys(NAMES, name)
        bodies = {
            RequestCode.SEND_MESSAGE: b"body",
            RequestCode.SEND_MESSAGE_V2: b"body",
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: bodies_of(name)[1],
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: bodies_of(name)[1],
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: bodies_of(name)[1],
        }
        assert answered(line.begin(code, bodies.get(code, b""), **fields)) == expected, (
            code,
            name,
        )


def test_a_topic_of_other_rules_can_be_deleted(line: Any, tmp_path: Path) -> None:
    """RocketMQ 3 may have written such a name to topics.json; a name that leaves the folder is
    refused."""
    from turbopump.net.wire.topics import TopicConfig

    for name in ("a.b", ".."):
        line.broker.topics.put(TopicConfig(name), line.now_ms)
    before = tree(tmp_path)
    assert line.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="a.b").code == 0
    assert line.broker.topics.get("a.b") is None
    assert line.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="..").code != 0
    assert tree(tmp_path) == before
