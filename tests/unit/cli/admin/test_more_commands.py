"""`turbopump admin` against scripted brokers: configurations, clients, offsets, dead letters."""

import json

import pytest
from tests.unit.cli.conftest import Command
from tests.unit.net.client.cluster import NAME_SERVER, TOPIC, ScriptedCluster, Stored

from turbopump.net.wire.bodies import encode_json
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.properties import encode_properties

A = "127.0.0.1:11000"
CLIENT = {"clientId": "1@x", "clientAddr": "10.0.0.1:5", "language": "PYTHON", "version": 501}


def test_the_properties_of_nodes(cluster: ScriptedCluster, command: Command) -> None:
    cluster.set_response("a", RequestCode.GET_BROKER_CONFIG, b"b=2\na=1\n")
    head, *rows = command("admin", "getBrokerConfig", "-b", A).lines
    assert head == f"============{A}============"
    assert [row.split() for row in rows] == [["a", "=", "1"], ["b", "=", "2"]]
    cluster.set_response(NAME_SERVER, RequestCode.GET_NAMESRV_CONFIG, b"c=3\n")
    (found,) = command("admin", "getNamesrvConfig", "--json").json
    assert found == {"address": NAME_SERVER, "table": {"c": "3"}}


def test_a_property_is_changed_at_each_node(cluster: ScriptedCluster, command: Command) -> None:
    words = "-k", "fileReservedTime", "-v", "71"
    cluster.set_response("a", RequestCode.UPDATE_BROKER_CONFIG, b"")
    assert command("admin", "updateBrokerConfig", "-c", "C", *words).lines == [
        f"update broker config success, {A}"
    ]
    cluster.set_response(NAME_SERVER, RequestCode.UPDATE_NAMESRV_CONFIG, b"")
    command("admin", "updateNamesrvConfig", *words)
    for code in (RequestCode.UPDATE_BROKER_CONFIG, RequestCode.UPDATE_NAMESRV_CONFIG):
        (made,) = cluster.made(code)
        assert made.request.body == b"fileReservedTime=71\n"


@pytest.mark.parametrize(
    ("name", "code", "count"),
    [
        ("wipeWritePerm", RequestCode.WIPE_WRITE_PERM_OF_BROKER, "wipeTopicCount"),
        ("addWritePerm", RequestCode.ADD_WRITE_PERM_OF_BROKER, "addTopicCount"),
    ],
)
def test_write_permissions(
    name: str, code: RequestCode, count: str, cluster: ScriptedCluster, command: Command
) -> None:
    cluster.set_response(NAME_SERVER, code, {count: "4"})
    (line,) = command("admin", name, "-b", "a").lines
    assert line.endswith(f"broker[a] in name server[{NAME_SERVER}] OK, 4")


def test_the_clients_of_groups(cluster: ScriptedCluster, command: Command) -> None:
    cluster.routes["%RETRY%G"] = cluster.route(1, "a")
    body = encode_json(
        {
            "connectionSet": [CLIENT],
            "consumeType": "CONSUME_POP",
            "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
            "subscriptionTable": {"T": {"topic": "T", "subString": "a || b"}},
        }
    )
    cluster.set_response("a", RequestCode.GET_CONSUMER_CONNECTION_LIST, body)
    cluster.set_response("a", RequestCode.GET_PRODUCER_CONNECTION_LIST, body)
    lines = command("admin", "consumerConnection", "-g", "G").lines
    assert lines[1].split()[:3] == ["1@x", "10.0.0.1:5", "PYTHON"]
    assert "ConsumeType: CONSUME_POP" in lines and lines[5].split() == ["T", "a", "||", "b"]
    assert "1@x" in command("admin", "producerConnection", "-g", "P", "-t", TOPIC).lines[1]
    info = b'{"mqTable":{{"topic":"T","brokerName":"a","queueId":1}:{}},"properties":{}}'
    cluster.set_response("a", RequestCode.GET_CONSUMER_RUNNING_INFO, info)
    (found,) = command("admin", "consumerStatus", "-g", "G", "--json").json
    assert (found["client_id"], found["queues"]) == ("1@x", ["T a 1"])
    assert command("admin", "consumerStatus", "-g", "H").failure == (1, "group H is not known")


def test_pop_retry_topics_are_no_groups(cluster: ScriptedCluster, command: Command) -> None:
    for name in ("%RETRY%AckG", "%RETRY%AckG_AckT", "%RETRY%AckG_other", "%RETRY%Pop+T"):
        cluster.routes[name] = cluster.route(1, "a")
    table = encode_json({"subscriptionGroupTable": {"AckG": {}, "AckG_other": {}}})
    cluster.set_response("a", RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, table)
    (found,) = command("admin", "consumerProgress", "--json").json
    assert [one["group"] for one in found["groups"]] == ["AckG", "AckG_other", "Pop"]


def test_messages_of_a_topic_and_of_an_offset(cluster: ScriptedCluster, command: Command) -> None:
    broker = cluster.brokers[A]
    for number, tag in enumerate("xyx"):
        broker.queues[TOPIC, 1].append(Stored(b"%d" % number, encode_properties({"TAGS": tag})))
    assert [line[-1] for line in command("admin", "printMsg", "-t", TOPIC).lines] == ["0", "1", "2"]
    only = command("admin", "printMsg", "-t", TOPIC, "-s", "x").lines
    assert [line[-1] for line in only] == ["0", "2"]
    (found,) = command(
        *("admin", "queryMsgByOffset", "-t", TOPIC, "-b", "a", "-i", 1, "-o", 1, "--json")
    ).json
    assert (found["queue_offset"], found["body"]) == (1, "1")
    code, sentence = command(
        *("admin", "queryMsgByOffset", "-t", TOPIC, "-b", "a", "-i", 1, "-o", 9)
    ).failure
    assert (code, sentence) == (1, f"no message at offset 9 of {TOPIC} a 1")


def test_dead_letters_are_sent_once(cluster: ScriptedCluster, command: Command) -> None:
    cluster.routes["%DLQ%G"] = cluster.route(1, "a")
    broker = cluster.brokers[A]
    properties = encode_properties({"RETRY_TOPIC": TOPIC, "UNIQ_KEY": "K", "DELAY": "3"})
    broker.queues["%DLQ%G", 0] += [Stored(b"one", properties), Stored(b"two", properties)]
    resend = "admin", "resendDeadLetters", "-g", "G"
    assert len(command(*resend, "--count", 1).lines) == 2
    assert [one.body for one in broker.queues["%RETRY%G", 0]] == [b"one"]
    (found,) = command(*resend, "--json").json
    assert found == {"message_id": "K", "topic": TOPIC, "retry_topic": "%RETRY%G"}
    assert command(*resend).lines == ["0 dead letters of group G were sent again."]
    sent = broker.queues["%RETRY%G", 0]
    assert [one.body for one in sent] == [b"one", b"two"]
    assert b"DELAY" not in sent[0].properties and b"RETRY_TOPIC" in sent[0].properties
    assert command("admin", "resendDeadLetters", "-g", "H").failure == (
        1,
        "group H has no dead letters",
    )


def test_a_topic_with_its_traffic(cluster: ScriptedCluster, command: Command) -> None:
    cluster.set_response("a", RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, b'{"groupList":["G"]}')
    stats = {"statsMinute": {"tps": 1.5, "sum": 9}, "statsHour": {"sum": 0}, "statsDay": {}}
    cluster.set_response("a", RequestCode.VIEW_BROKER_STATS_DATA, json.dumps(stats).encode())
    cluster.set_response("a", RequestCode.GET_CONSUME_STATS, b'{"offsetTable":{}}')
    (found,) = command("admin", "statsAll", "-t", TOPIC, "--json").json
    (line,) = found["topics"]
    assert (line["group"], line["in_tps"], line["in_24_hours"]) == ("G", 1.5, 9)
    cluster.set_response("a", RequestCode.VIEW_BROKER_STATS_DATA, ResponseCode.SYSTEM_ERROR)
    assert len(command("admin", "statsAll", "-a").lines) == 1


def test_permissions_of_a_topic(cluster: ScriptedCluster, command: Command) -> None:
    assert command("admin", "updateTopic", "-t", "N", "-b", A, "-p", 9).code == 2
    assert not cluster.made(RequestCode.UPDATE_AND_CREATE_TOPIC)
