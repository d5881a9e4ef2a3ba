"""`turbopump admin` against scripted brokers: the requests and the output of each command."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.conftest import Command
from tests.unit.net.client.cluster import (
    NAME_SERVER,
    START_MS,
    TOPIC,
    ScriptedCluster,
    Stored,
    record_bytes,
)

from turbopump.net.transport.errors import ConnectError
from turbopump.net.wire.codes import RequestCode, ResponseCode

A, B = "127.0.0.1:11000", "127.0.0.1:11001"
RETRY = "%RETRY%G"


@pytest.fixture
def two(cluster: ScriptedCluster) -> ScriptedCluster:
    """Brokers "a" and "b" with topic T, and the retry topic of group G on a."""
    cluster.add("b", queues=2)
    cluster.routes[RETRY] = cluster.route(1, "a")
    return cluster


def requests(cluster: ScriptedCluster, code: int) -> list[tuple[str, dict[str, str]]]:
    return [(call.address, call.request.fields) for call in cluster.made(code)]


def by_queue(broker: str, rows: dict[int, str], topic: str = TOPIC, **more: Any) -> bytes:
    """A body with a table by queue, as fastjson writes it: beans are keys."""
    beans = (
        f'{{"brokerName":"{broker}","queueId":{number},"topic":"{topic}"}}:{value}'
        for number, value in rows.items()
    )
    rest = "".join(f',"{name}":{json.dumps(value)}' for name, value in more.items())
    return f'{{"offsetTable":{{{",".join(beans)}}}{rest}}}'.encode()


def test_topics_of_the_name_server(two: ScriptedCluster, command: Command) -> None:
    assert command("admin", "topicList").lines == [RETRY, TOPIC]
    two.set_response("a", RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, b'{"groupList":["G","H"]}')
    two.set_response("b", RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, b'{"groupList":["G"]}')
    head, *rows = command("admin", "topicList", "-c").lines
    assert head.split() == ["#Cluster", "Name", "#Topic", "#Consumer", "Group"]
    assert [row.split() for row in rows] == [["C", TOPIC, "G"], ["C", TOPIC, "H"]]
    two.set_response("b", RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, ResponseCode.SYSTEM_ERROR)
    (row,) = command("admin", "topicList", "-c").lines[1:]
    assert row.split() == [TOPIC], "a topic whose brokers do not answer is still in the list"


def test_a_route(two: ScriptedCluster, command: Command) -> None:
    lines = command("admin", "topicRoute", "-t", TOPIC, "-l").lines
    assert lines[1].split() == ["C", "a", f"{{0={A}}}", "2", "2", "6"]
    assert lines[-1].split() == ["Total:", "2", "4", "4"]
    route = json.loads(command("admin", "topicRoute", "-t", TOPIC).out)
    assert {one["brokerName"] for one in route["queueDatas"]} == {"a", "b"}
    code, sentence = command("admin", "topicRoute", "-t", "gone").failure
    assert code == 1 and "17" in sentence


def test_offsets_of_a_topic_over_all_brokers(two: ScriptedCluster, command: Command) -> None:
    code = RequestCode.GET_TOPIC_STATS_INFO
    row = '{"maxOffset":7,"minOffset":3,"lastUpdateTimestamp":0}'
    two.set_response("a", code, by_queue("a", {1: row, 0: row}, topicPutTps=1.5))
    two.set_response("b", code, by_queue("b", {0: row}, topicPutTps=2))
    _head, *rows, _, rate = command("admin", "topicStatus", "-t", TOPIC).lines
    assert [one.split() for one in rows] == [[b, q, "3", "7"] for b, q in ("a0", "a1", "b0")]
    assert rate == "Topic Put TPS: 3.5"
    (found,) = command("admin", "topicStatus", "-t", TOPIC, "--json").json
    assert [(one["broker_name"], one["queue_id"]) for one in found["queues"]] == [
        *(("a", 0), ("a", 1), ("b", 0))
    ]


def test_a_topic_is_created_at_every_master_of_a_cluster(
    two: ScriptedCluster, command: Command
) -> None:
    words = "-r", 4, "-w", 3, "-p", 2, "-s", "true", "-a", "+message.type=NORMAL"
    first, second, shown = command("admin", "updateTopic", "-t", "N", "-c", "C", *words).lines
    assert (first, second) == (f"create topic to {A} success.", f"create topic to {B} success.")
    assert "perm=-W-" in shown and "attributes={message.type=NORMAL}" in shown
    made = requests(two, RequestCode.UPDATE_AND_CREATE_TOPIC)
    assert [address for address, _ in made] == [A, B]
    fields = made[0][1]
    assert (fields["readQueueNums"], fields["writeQueueNums"], fields["perm"]) == ("4", "3", "2")
    assert (fields["topicSysFlag"], fields["attributes"]) == ("2", "+message.type=NORMAL")
    assert not requests(two, RequestCode.PUT_KV_CONFIG)


def test_an_ordered_topic_is_written_into_the_key_values(
    two: ScriptedCluster, command: Command
) -> None:
    order = "admin", "updateTopic", "-t", "N", "-o", "true"
    two.set_response(NAME_SERVER, RequestCode.GET_KV_CONFIG, ResponseCode.QUERY_NOT_FOUND)
    command(*order, "-b", B, "-w", 5)
    two.set_response(NAME_SERVER, RequestCode.GET_KV_CONFIG, {"value": "b:5;z:3"})
    command(*order, "-b", A, "-w", 4)
    command(*order, "-c", "C", "-w", 2)
    put = [fields for _, fields in requests(two, RequestCode.PUT_KV_CONFIG)]
    assert {(one["namespace"], one["key"]) for one in put} == {("ORDER_TOPIC_CONFIG", "N")}
    values = [one["value"] for one in put]
    assert values == ["b:5", "a:4;b:5;z:3", "a:2;b:2"], "one broker is added, a cluster replaces"


def test_a_topic_is_deleted_at_brokers_first(two: ScriptedCluster, command: Command) -> None:
    assert len(command("admin", "deleteTopic", "-t", TOPIC, "-c", "C").lines) == 2
    deleted = [
        call.address
        for call in two.calls
        if call.code in (RequestCode.DELETE_TOPIC_IN_BROKER, RequestCode.DELETE_TOPIC_IN_NAMESRV)
    ]
    assert deleted == [A, B, NAME_SERVER]
    two.fail("a", RequestCode.DELETE_TOPIC_IN_BROKER, ResponseCode.SYSTEM_ERROR)
    before = len(two.made(RequestCode.DELETE_TOPIC_IN_NAMESRV))
    assert command("admin", "deleteTopic", "-t", TOPIC, "-c", "C").failure[0] == 1
    assert len(two.made(RequestCode.DELETE_TOPIC_IN_NAMESRV)) == before, "its route stays then"


def progress(offset: int, **more: object) -> str:
    row = {"brokerOffset": 10, "consumerOffset": offset, "pullOffset": 10, "lastTimestamp": 0}
    return json.dumps(row | more)


def test_how_far_a_group_is(two: ScriptedCluster, command: Command) -> None:
    stats, members = RequestCode.GET_CONSUME_STATS, RequestCode.GET_CONSUMER_CONNECTION_LIST
    rows = {0: progress(4, delayTime=65_000, delayTimeKnown=True), 1: progress(10)}
    two.set_response("a", stats, by_queue("a", rows, consumeTps=2.5))
    lines = command("admin", "consumerProgress", "-g", "G").lines
    assert lines[1].split() == [
        TOPIC,
        "a",
        "0",
        "10",
        "4",
        "6",
        "6",
        "N/A",
        *["1", "min", "5", "s"],
    ]
    assert lines[-4:-1] == [
        *("Consume TPS: 2.50", "Consume Diff Total: 6", "Consume Inflight Total: 6"),
    ]
    online = b'{"connectionSet":[{"clientId":"10.0.0.1@x","version":477},{"clientId":"gone@y"}]}'
    two.set_response("a", members, online)
    two.set_response(
        "a",
        RequestCode.GET_CONSUMER_RUNNING_INFO,
        b'{"mqTable":{{"brokerName":"a","queueId":0,"topic":"T"}:{}}}',
    )
    lines = command("admin", "consumerProgress", "-g", "G", "-s", "true").lines
    assert lines[1].split()[5] in ("10.0.0.1", "gone") and lines[2].split()[5] == "N/A"
    assert command("admin", "consumerProgress", "-g", "H").failure == (1, "group H is not known")
    two.set_response("a", stats, by_queue("a", {}))
    assert command("admin", "consumerProgress", "-g", "G").failure == (
        *(1, "group G has not consumed anything yet"),
    )


def test_all_groups_the_furthest_behind_first(two: ScriptedCluster, command: Command) -> None:
    two.routes["%RETRY%H"] = two.route(1, "b")
    two.routes["%RETRY%I"] = two.route(1, "b")
    two.set_response("a", RequestCode.GET_CONSUME_STATS, by_queue("a", {0: progress(9)}))
    two.set_response("b", RequestCode.GET_CONSUME_STATS, by_queue("b", {0: progress(2)}))
    two.set_response(
        "a", RequestCode.GET_CONSUMER_CONNECTION_LIST, ResponseCode.CONSUMER_NOT_ONLINE
    )
    online = b'{"connectionSet":[{"clientId":"x"}],"consumeType":"CONSUME_ACTIVELY"}'
    two.set_response("b", RequestCode.GET_CONSUMER_CONNECTION_LIST, online)
    _, *rows = command("admin", "consumerProgress").lines
    assert [row.split()[:2] for row in rows] == [["H", "1"], ["I", "1"], ["G", "0"]]
    assert "OFFLINE" in rows[2] and rows[2].split()[-2:] == ["1", "N/A"]


def test_a_groups_configuration(two: ScriptedCluster, command: Command) -> None:
    words = "-s", "false", "-r", 3, "-q", 2, "--attributes", "+x=y,-z"
    policy = '{"type":"CUSTOMIZED","customizedRetryPolicy":{"next":[1000]}}'
    line, shown = command("admin", "updateSubGroup", "-g", "G", "-b", A, *words, "-p", policy).lines
    assert line == f"create subscription group to {A} success." and "consumeEnable=false" in shown
    (call,) = two.made(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP)
    assert isinstance(call.request.body, bytes)
    config = json.loads(call.request.body)
    assert (config["consumeEnable"], config["retryMaxTimes"], config["retryQueueNums"]) == (
        *(False, 3, 2),
    )
    assert config["attributes"] == {"+x": "y", "-z": ""}
    assert config["groupRetryPolicy"]["customizedRetryPolicy"] == {"next": [1000]}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("updateSubGroup", "-g", "G"), "give either a broker's address with -b"),
        (("updateTopic", "-t", "N", "-b", A, "-c", "C"), "give either a broker's address"),
        (("updateTopic", "-t", "N", "-b", "x"), "x is no address: host:port is expected"),
        (("updateSubGroup", "-g", "G", "-b", A, "-p", "[]"), "[] is no retry policy: JSON like"),
        (("updateSubGroup", "-g", "G", "-b", A, "--attributes", "x=y"), "x=y is no attribute"),
        (("updateSubGroup", "-g", "G", "-b", A, "--attributes", "-x=y"), "-x=y is no attribute"),
        (("updateSubGroup", "-g", "no group", "-b", A), "'no group' is no group name"),
        (("resetOffsetByTime", "-g", "G", "-t", TOPIC, "-s", "soon"), "soon is no time"),
        (
            ("resetOffsetByTime", "-g", "G", "-t", TOPIC, "-s", "-1", "-b", A),
            "one queue is named by its broker with -b and its number with -q",
        ),
        (
            ("resetOffsetByTime", "-g", "G", "-t", TOPIC, "-s", "-1", "-o", "4"),
            "one queue is named by its broker with -b and its number with -q",
        ),
        (("queryMsgById", "-t", TOPIC, "-i", " , "), "no message id is given: -i ID"),
    ],
)
def test_an_invalid_request_is_one_sentence(
    two: ScriptedCluster, command: Command, words: tuple[str, ...], sentence: str
) -> None:
    code, error = command("admin", *words).failure
    assert code == 2 and error.startswith(sentence)
    assert not [call for call in two.calls if call.address in (A, B)]


def test_a_group_goes_back_in_time(two: ScriptedCluster, command: Command) -> None:
    code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
    for name in "ab":
        two.set_response(name, code, by_queue(name, {0: "5"}))
    reset = "admin", "resetOffsetByTime", "-g", "G", "-t", TOPIC
    error, _, *rows = command(*reset, "-s", "1700000000123").lines
    assert "timestamp(long)[1700000000123]" in error and "force[true]" in error
    assert [row.split() for row in rows] == [["a", "0", "5"], ["b", "0", "5"]]
    assert [address for address, _ in requests(two, code)] == [A, B]
    one_queue = "-s", "-1", "-b", B, "-q", 1, "-o", 42, "-f", "false"
    (found,) = command(*reset, *one_queue, "--json").json
    assert found["timestamp_ms"] == -1
    address, fields = requests(two, code)[-1]
    assert (address, fields["queueId"], fields["offset"], fields["isForce"]) == (
        *(B, "1", "42", "false"),
    )


def message(number: int, key: str, unique: str) -> bytes:
    properties = f"KEYS\x01{key}\x02UNIQ_KEY\x01{unique}\x02".encode()
    return record_bytes((TOPIC, 0), number, Stored(b"body-%d" % number, properties))


def test_messages_by_key_without_those_of_the_same_hash(
    two: ScriptedCluster, command: Command
) -> None:
    query = RequestCode.QUERY_MESSAGE
    two.set_response("a", query, message(1, "k", "U1") + message(2, "other", "U2"))
    two.set_response("b", query, ResponseCode.QUERY_NOT_FOUND)
    _, *rows = command("admin", "queryMsgByKey", "-t", TOPIC, "-k", "k", "-m", 7).lines
    assert [row.split() for row in rows] == [["U1", "0", "1"]]
    assert {fields["maxNum"] for _, fields in requests(two, query)} == {"7"}
    two.set_response("b", query, ResponseCode.SYSTEM_ERROR)
    assert command("admin", "queryMsgByKey", "-t", TOPIC, "-k", "k").failure[0] == 1


def test_a_message_and_its_tracks(two: ScriptedCluster, command: Command, tmp_path: Path) -> None:
    del two.routes[TOPIC].broker_datas[1]
    two.set_response("a", RequestCode.QUERY_MESSAGE, message(3, "k", "U3"))
    two.set_response("a", RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, b'{"groupList":["G","H"]}')
    two.set_response(
        "a", RequestCode.GET_CONSUMER_CONNECTION_LIST, ResponseCode.CONSUMER_NOT_ONLINE
    )
    by_id = "admin", "queryMsgByUniqueKey", "-t", TOPIC, "-i", "U3"
    lines = command(*by_id).lines
    assert "Message Body:        body-3" in lines and "Keys:                [k]" in lines
    assert lines[-2:] == [
        f"MessageTrack [consumerGroup={group}, trackType=NOT_ONLINE]" for group in "GH"
    ]
    two.set_response("a", RequestCode.GET_CONSUMER_CONNECTION_LIST, b'{"connectionSet":[]}')
    for offset, track in ((3, "NOT_CONSUME_YET"), (4, "CONSUMED")):
        two.set_response("a", RequestCode.GET_CONSUME_STATS, by_queue("a", {0: progress(offset)}))
        (found,) = command(*by_id, "--json").json
        assert [one["track"] for one in found["tracks"]] == [track, track]
    assert command(*by_id, "--body-dir", tmp_path / "bodies").code == 0
    assert (tmp_path / "bodies" / "U3").read_bytes() == b"body-3"
    two.set_response("a", RequestCode.QUERY_MESSAGE, message(3, "k", "U4"))
    assert command(*by_id).failure == (1, f"no message U3 in topic {TOPIC}")


def test_a_broker_that_does_not_answer_is_a_line_of_the_cluster(
    two: ScriptedCluster, command: Command
) -> None:
    figures = {
        "brokerVersionDesc": "V5",
        "putTps": "1.5 2 3",
        "earliestMessageTimeStamp": str(START_MS - 7_200_000),
        "msgPutTotalTodayMorning": "10",
        "msgPutTotalTodayNow": "17",
        "brokerActive": "true",
        "pageCacheLockTimeMills": "no number",
    }
    two.set_response(
        "a", RequestCode.GET_BROKER_RUNTIME_INFO, json.dumps({"table": figures}).encode()
    )
    two.down.add(B)
    _, first, second, error = command("admin", "clusterList").lines
    assert first.split()[:5] == ["C", "a", "0", A, "V5"] and "1.50(0,0ms)" in first
    assert first.split()[-3:] == ["2.00", "0.0000", "true"]
    assert second.split()[:4] == ["C", "b", "0", B]
    assert error == f"  {B}: {B} cannot be reached"
    _, first, _ = command("admin", "clusterList", "-m").lines
    assert first.split()[-2:] == ["7", "0"], "today's messages since the morning"
    assert command("admin", "clusterList", "-c", "D").failure == (1, "cluster D is not known")


def test_a_brokers_figures(two: ScriptedCluster, command: Command) -> None:
    for name in "ab":
        table = json.dumps({"table": {"y": "2", "x": name}}).encode()
        two.set_response(name, RequestCode.GET_BROKER_RUNTIME_INFO, table)
    lines = command("admin", "brokerStatus", "-b", B).lines
    assert [line.split() for line in lines] == [["x", ":", "b"], ["y", ":", "2"]]
    lines = command("admin", "brokerStatus", "-c", "C").lines
    assert [line.split()[0] for line in lines] == [A, A, B, B]
    two.fail("a", RequestCode.GET_BROKER_RUNTIME_INFO, ConnectError("gone"))
    assert command("admin", "brokerStatus", "-c", "C").failure == (1, "gone")


def test_an_answer_that_cannot_be_read(two: ScriptedCluster, command: Command) -> None:
    two.set_response("a", RequestCode.GET_BROKER_RUNTIME_INFO, b"no json")
    code, sentence = command("admin", "brokerStatus", "-b", A).failure
    assert code == 1 and sentence.startswith("an answer cannot be understood: ")


def test_how_a_group_gets_its_messages(two: ScriptedCluster, command: Command) -> None:
    words = "setConsumeMode", "-g", "G", "-t", TOPIC, "-c", "C", "-m", "POP", "-q", 3
    lines = command("admin", *words).lines
    end = "success. topic : T, groupName : G"
    assert lines == [f"set consume mode to {address} {end}" for address in (A, B)]
    asked = two.made(RequestCode.SET_MESSAGE_REQUEST_MODE)
    assert [call.address for call in asked] == [A, B]
    body = json.loads(asked[0].request.body)  # type: ignore[arg-type]
    assert (body["mode"], body["popShareQueueNum"], body["topic"]) == ("POP", 3, TOPIC)
    (shown,) = command("admin", *words, "--json").json
    assert shown["addresses"] == [A, B]
    two.fail("b", RequestCode.SET_MESSAGE_REQUEST_MODE, ResponseCode.SYSTEM_ERROR)
    assert command("admin", *words).failure == (1, f"{B} answered 1: scripted")


@pytest.mark.parametrize(
    ("when", "timestamp_ms"),
    [("0", 0), ("9223372036854775807", (1 << 63) - 1), ("-1", -1), ("now", None)],
)
def test_times_as_mqadmin_takes_them(
    two: ScriptedCluster, command: Command, when: str, timestamp_ms: int | None
) -> None:
    for name in "ab":
        two.set_response(name, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, by_queue(name, {0: "5"}))
    (found,) = command(
        *("admin", "resetOffsetByTime", "-g", "G", "-t", TOPIC, "-s", when, "--json")
    ).json
    if timestamp_ms is None:
        assert found["timestamp_ms"] > START_MS
    else:
        assert found["timestamp_ms"] == timestamp_ms
    fields = requests(two, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET)[0][1]
    assert fields["timestamp"] == str(found["timestamp_ms"])


@pytest.mark.parametrize(
    "when", ["-2", "9223372036854775808", "2026-13-01#00:00:00:000", "0001-01-01#00:00:00:000", ""]
)
def test_times_that_are_none(two: ScriptedCluster, command: Command, when: str) -> None:
    code, error = command("admin", "resetOffsetByTime", "-g", "G", "-t", TOPIC, "-s", when).failure
    assert code == 2 and error.startswith(f"{when} is no time")


def test_a_policy_that_has_no_end_of_its_depth(two: ScriptedCluster, command: Command) -> None:
    """A deeply nested policy must not end in a traceback."""
    words = "updateSubGroup", "-g", "G", "-b", A, "-p", '{"a":' * 9_000
    code, error = command("admin", *words).failure
    assert code == 2 and "is no retry policy" in error


def test_unprintable_characters_are_shown_escaped(two: ScriptedCluster, command: Command) -> None:
    """Otherwise the topic is made before the command ends in a traceback."""
    words = "updateTopic", "-t", "N", "-b", A, "-a", os.fsdecode(b"+a=\xff")
    assert "attributes={a=\\udcff}" in command("admin", *words).lines[-1]


def test_old_files_go_at_one_broker_or_all(two: ScriptedCluster, command: Command) -> None:
    code = RequestCode.DELETE_EXPIRED_COMMITLOG
    assert command("admin", "deleteExpiredCommitLog", "-b", B).lines == ["success"]
    assert [address for address, _ in requests(two, code)] == [B]
    (printed,) = command("admin", "deleteExpiredCommitLog", "-c", "C", "--json").json
    assert printed == {"brokers": [A, B]}
    assert command("admin", "deleteExpiredCommitLog").failure[0] == 2
    assert command("admin", "deleteExpiredCommitLog", "-c", "none").failure[0] == 1


def test_brokers_of_a_container(two: ScriptedCluster, command: Command) -> None:
    words = ("-c", A, "-b", "/etc/b.conf")
    lines = command("admin", "addBroker", *words).lines
    assert lines == [f"add broker to {A} success"]
    assert requests(two, RequestCode.ADD_BROKER) == [(A, {"configPath": "/etc/b.conf"})]
    (printed,) = command("admin", "addBroker", *words, "--json").json
    assert printed == {"container": A, "config_path": "/etc/b.conf"}
    words = ("-c", A, "-b", "C:b:3")
    assert command("admin", "removeBroker", *words).lines == [f"remove broker from {A} success"]
    fields = {"brokerClusterName": "C", "brokerName": "b", "brokerId": "3"}
    assert requests(two, RequestCode.REMOVE_BROKER) == [(A, fields)]
    (printed,) = command("admin", "removeBroker", *words, "--json").json
    assert printed == {"container": A, "cluster": "C", "broker_name": "b", "id": 3}
    two.set_response("a", RequestCode.REMOVE_BROKER, ResponseCode.BROKER_NOT_EXIST)
    assert command("admin", "removeBroker", *words).failure[0] == 1
    for identity in ("C:b", "C:b:x", "C:b:-1", "C:b:1:2", "C::1", "C:b:9999999999999999999"):
        code, error = command("admin", "removeBroker", "-c", A, "-b", identity).failure
        assert code == 2 and error.startswith(identity)
    assert command("admin", "addBroker", "-c", "none", "-b", "x").failure[0] == 2


def test_facts_of_brokers(two: ScriptedCluster, command: Command) -> None:
    for name in "ab":
        body = json.dumps({"table": {"z": "1", "putTps": f"{name} 2 3"}}).encode()
        two.set_response(name, RequestCode.GET_BROKER_RUNTIME_INFO, body)
    assert command("admin", "brokerStatus", "-b", A).lines == [
        f"{'putTps':<32}: a 2 3",
        f"{'z':<32}: 1",
    ]
    lines = command("admin", "brokerStatus", "-c", "C").lines
    assert [line.split()[0] for line in lines] == [A, A, B, B], "whose each of them is"
    rows = command("admin", "brokerStatus", "-c", "C", "--json").json
    assert [row["address"] for row in rows] == [A, B]


def test_a_broker_that_does_not_answer_is_in_the_list(
    two: ScriptedCluster, command: Command
) -> None:
    two.set_response(
        "a", RequestCode.GET_BROKER_RUNTIME_INFO, b'{"table":{"brokerVersionDesc":"V5"}}'
    )
    two.down.add(B)
    head, first, second, error = command("admin", "clusterList").lines
    assert head.split()[0] == "#Cluster" and first.split()[:4] == ["C", "a", "0", A]
    assert second.split()[:4] == ["C", "b", "0", B]
    assert error == f"  {B}: {B} cannot be reached"
    head, *rows = command("admin", "clusterList", "-m").lines
    assert head.split()[-1] == "#OutTotalToday" and len(rows) == 2
    assert command("admin", "clusterList", "-c", "none").failure[0] == 1
