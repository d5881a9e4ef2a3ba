"""Responses that no RocketMQ server sends: each admin command fails with a one-line message.

A bad response is returned to a single request code of a command; the other codes get good ones.
"""

import re
from collections.abc import Iterator

import pytest
from tests.unit.cli.conftest import Command
from tests.unit.net.client.cluster import (
    NAME_SERVER,
    TOPIC,
    Said,
    ScriptedCluster,
    Stored,
    record_bytes,
)

from turbopump.net.wire.codes import RequestCode

A = "127.0.0.1:11000"
UNIQUE = "7F0000010000000000000000000000FF"

COMMANDS = [
    ("clusterList",),
    ("clusterList", "-m"),
    ("brokerStatus", "-b", A),
    ("brokerStatus", "-c", "C"),
    ("deleteExpiredCommitLog", "-b", A),
    ("haStatus", "-b", A),
    ("getBrokerEpoch", "-b", "a"),
    ("getSyncStateSet", "-a", A, "-b", "a"),
    ("electMaster", "-a", A, "-bn", "a", "-b", 1, "-c", "C"),
    ("getControllerMetaData", "-a", A),
    ("getControllerConfig", "-a", A),
    ("updateControllerConfig", "-a", A, "-k", "x", "-v", "y"),
    ("cleanBrokerMetadata", "-a", A, "-bn", "a", "-c", "C"),
    ("topicList",),
    ("topicList", "-c"),
    ("topicRoute", "-t", TOPIC),
    ("topicRoute", "-t", TOPIC, "-l"),
    ("topicStatus", "-t", TOPIC),
    ("updateTopic", "-t", TOPIC, "-c", "C", "-o", "true"),
    ("deleteTopic", "-t", TOPIC, "-c", "C"),
    ("consumerProgress",),
    ("consumerProgress", "-g", "G", "-s", "true"),
    ("updateSubGroup", "-g", "G", "-c", "C"),
    ("setConsumeMode", "-g", "G", "-t", TOPIC, "-c", "C", "-m", "POP"),
    ("resetOffsetByTime", "-g", "G", "-t", TOPIC, "-s", "now"),
    ("queryMsgById", "-t", TOPIC, "-i", UNIQUE),
    ("queryMsgByKey", "-t", TOPIC, "-k", "k"),
    ("queryMsgByUniqueKey", "-t", TOPIC, "-i", "U3"),
    ("queryMsgTrace", "-i", "U3"),
]
QUEUE = b'{"brokerName":"a","queueId":0,"topic":"T"}'
ROUTE = (
    b'{"brokerDatas":[{"brokerAddrs":{0:"127.0.0.1:11000"},"brokerName":"a","cluster":"C"}],'
    b'"filterServerTable":{},"queueDatas":[{"brokerName":"a","perm":6,"readQueueNums":2,'
    b'"topicSysFlag":0,"writeQueueNums":2}]}'
)
REPLICA = b'{"alive":true,"brokerAddress":"127.0.0.1:11000","brokerId":1,"brokerName":"a"}'
MESSAGE = record_bytes((TOPIC, 0), 3, Stored(b"body", b"KEYS\x01k\x02UNIQ_KEY\x01U3\x02"))
GOOD: dict[int, Said] = {
    RequestCode.GET_BROKER_CLUSTER_INFO: (
        b'{"brokerAddrTable":{"a":{"brokerAddrs":{0:"127.0.0.1:11000"},"brokerName":"a",'
        b'"cluster":"C"}},"clusterAddrTable":{"C":["a"]}}'
    ),
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: b'{"topicList":["T","%RETRY%G"]}',
    RequestCode.GET_ROUTEINFO_BY_TOPIC: ROUTE,
    RequestCode.GET_BROKER_RUNTIME_INFO: (
        b'{"table":{"brokerVersionDesc":"V5","putTps":"1.5 2 3","getTransferedTps":"1 2 3",'
        b'"earliestMessageTimeStamp":"1700000000000","commitLogDiskRatio":"0.5","timerReadBehind":'
        b'"0","timerOffsetBehind":"0","timerCongestNum":"0","timerEnqueueTps":"0.0",'
        b'"timerDequeueTps":"0.0","msgPutTotalTodayMorning":"10","msgPutTotalTodayNow":"17",'
        b'"msgGetTotalTodayMorning":"1","msgGetTotalTodayNow":"2","brokerActive":"true",'
        b'"pageCacheLockTimeMills":"1","sendThreadPoolQueueSize":"0","pullThreadPoolQueueSize":"0"'
        b"}}"
    ),
    RequestCode.GET_BROKER_HA_STATUS: (
        b'{"haConnectionInfo":[{"addr":"127.0.0.1:5","diff":7,"inSync":true,"slaveAckOffset":9,'
        b'"transferFromWhere":8,"transferredByteInSecond":4}],"haClientRuntimeInfo":{"masterAddr":'
        b'"m:1","transferredByteInSecond":3,"maxOffset":9,"lastReadTimestamp":1700000000000,'
        b'"lastWriteTimestamp":1700000000000,"masterFlushOffset":3,"isActivated":true},'
        b'"inSyncSlaveNums":1,"master":true,"masterCommitLogMaxOffset":16}'
    ),
    RequestCode.GET_BROKER_EPOCH_CACHE: (
        b'{"brokerName":"a","brokerId":0,"clusterName":"C","maxOffset":900,"epochList":'
        b'[{"epoch":3,"startOffset":0,"endOffset":800},{"epoch":4,"startOffset":800,'
        b'"endOffset":900}]}'
    ),
    RequestCode.CONTROLLER_GET_SYNC_STATE_DATA: (
        b'{"replicasInfoTable":{"a":{"inSyncReplicas":[' + REPLICA + b'],"masterAddress":"a:1",'
        b'"masterBrokerId":1,"masterEpoch":3,"notInSyncReplicas":[' + REPLICA + b"],"
        b'"syncStateSetEpoch":7}}}'
    ),
    RequestCode.CONTROLLER_GET_METADATA_INFO: {
        "group": "g",
        "controllerLeaderId": "n0",
        "controllerLeaderAddress": A,
        "isLeader": "true",
        "peers": f"n0:{A};",
    },
    RequestCode.CONTROLLER_ELECT_MASTER: {
        "masterBrokerId": "1",
        "masterAddress": "a:1",
        "masterEpoch": "3",
        "syncStateSetEpoch": "7",
    },
    RequestCode.GET_CONTROLLER_CONFIG: b"x=y\nz=1\n",
    RequestCode.GET_TOPIC_STATS_INFO: (
        b'{"offsetTable":{' + QUEUE + b':{"lastUpdateTimestamp":1700000000000,"maxOffset":7,'
        b'"minOffset":3}},"topicPutTps":1.5}'
    ),
    RequestCode.GET_CONSUME_STATS: (
        b'{"consumeTps":1.5,"offsetTable":{' + QUEUE + b':{"brokerOffset":10,"consumerOffset":4,'
        b'"delayTime":65000,"delayTimeKnown":true,"lastTimestamp":1700000000000,"pullOffset":5}}}'
    ),
    RequestCode.GET_CONSUMER_CONNECTION_LIST: (
        b'{"connectionSet":[{"clientAddr":"h:1","clientId":"10.0.0.1@x","language":"JAVA",'
        b'"version":477}],"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","consumeType":'
        b'"CONSUME_PASSIVELY","messageModel":"CLUSTERING","subscriptionTable":{"T":{"topic":"T",'
        b'"subString":"*"}}}'
    ),
    RequestCode.GET_CONSUMER_RUNNING_INFO: (
        b'{"mqTable":{' + QUEUE + b':{"cachedMsgCount":0}},"properties":{"PROP_CLIENT_VERSION":'
        b'"V5"}}'
    ),
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: b'{"groupList":["G","H"]}',
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: b'{"offsetTable":{' + QUEUE + b":5}}",
    RequestCode.GET_KV_CONFIG: {"value": "b:5;z:3"},
    RequestCode.QUERY_MESSAGE: MESSAGE,
    RequestCode.VIEW_MESSAGE_BY_ID: MESSAGE,
}
SCALAR = re.compile(rb'"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?|true|false')
WHOLE = (b"", b"no json", b"\xff\xfe{}", b"[]", b"null", b'{"a":' * 3_000, b"{}")
TOKENS = (
    *(b"null", b"-1", b"1e400", b'"x"', b'""', b"[]", b"{}", b"[null]", b"0.5", b"NaN"),
    *(b"12345678901234567890123", b'"\\u0000\\ud800\\n"'),
)
TEXTS = ("", "x", "-1", "9" * 30, "a\nb;;:", ":;=")
EVERY = 61
"""Only every 61st bad response is tried: a prime, so that each command gets different ones."""


def bad_bodies(good: bytes) -> Iterator[bytes]:
    """Variants of a body: whole replacements; a changed value or name; a damaged or truncated
    record."""
    yield from WHOLE
    if good.startswith(b"{"):
        for found in SCALAR.finditer(good):
            for token in TOKENS:
                yield good[: found.start()] + token + good[found.end() :]
        return
    for at in range(0, len(good), 3):
        yield good[:at]
        for byte in (b"\xff", b"\x00", b"\x7f"):
            yield good[:at] + byte + good[at + 1 :]


def bad(good: Said) -> Iterator[Said]:
    """Bad responses in place of a good one."""
    if isinstance(good, dict):
        for name in good:
            yield {key: value for key, value in good.items() if key != name}
            yield from (good | {name: text} for text in TEXTS)
        return
    assert isinstance(good, bytes)
    yield from bad_bodies(good)


def given(cluster: ScriptedCluster, code: int, response: Said) -> None:
    """Set a response; the broker acts as name server and controller, too."""
    cluster.set_response("a", code, response)
    cluster.set_response(NAME_SERVER, code, response)


@pytest.fixture
def answering(cluster: ScriptedCluster) -> ScriptedCluster:
    for code, response in GOOD.items():
        given(cluster, code, response)
    return cluster


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(map(str, words)))
def test_any_answer_is_a_sentence_or_is_shown(
    answering: ScriptedCluster, command: Command, words: tuple[object, ...]
) -> None:
    command("admin", *words)
    asked = [code for code in sorted({call.code for call in answering.calls}) if code in GOOD]
    responses = [(code, response) for code in asked for response in bad(GOOD[code])]
    start = COMMANDS.index(words) % EVERY
    for number, (code, response) in enumerate(responses[start::EVERY]):
        given(answering, code, response)
        ran = command("admin", *words, *(("--json",) if number % 4 == 3 else ()))
        given(answering, code, GOOD[code])
        if ran.code:
            assert ran.err.startswith("turbopump: ") and ran.err.count("\n") == 1, (code, response)


@pytest.mark.parametrize("name", ["brokerDatas", "readQueueNums", "cluster", "brokerAddrs", "perm"])
@pytest.mark.parametrize("words", [("-l",), ()])
def test_a_route_without_a_member(
    answering: ScriptedCluster, command: Command, words: tuple[str, ...], name: str
) -> None:
    """The output as columns and as a list must not end in a traceback."""
    assert isinstance(ROUTE, bytes)
    given(answering, RequestCode.GET_ROUTEINFO_BY_TOPIC, ROUTE.replace(name.encode(), b"other"))
    ran = command("admin", "topicRoute", "-t", TOPIC, *words)
    assert ran.code in (0, 1) and ran.err.count("\n") == ran.code


@pytest.mark.parametrize("value", [b"[null]", b"{}", b'"x"', b"1e400"])
def test_a_route_with_a_number_that_is_none(
    answering: ScriptedCluster, command: Command, value: bytes
) -> None:
    bad_route = ROUTE.replace(b'"readQueueNums":2', b'"readQueueNums":' + value)
    given(answering, RequestCode.GET_ROUTEINFO_BY_TOPIC, bad_route)
    code, sentence = command("admin", "topicRoute", "-t", TOPIC, "-l").failure
    assert code == 1 and sentence.startswith("an answer cannot be understood: ")
