"""Every admin command against a running broker: its changes, its columns and its JSON."""

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from turbopump import Consumer, Message, PopConsumer, Producer, SimpleConsumer
from turbopump.net.client.options import ConsumeFrom, ConsumerOptions
from turbopump.net.client.shared_client import SharedClient, instance_of
from turbopump.testing import RunningCluster

pytestmark = pytest.mark.integration

Cli = Callable[..., Any]
Admin = Callable[..., Any]


@pytest.fixture
def admin(cli: Cli, cluster: RunningCluster) -> Admin:
    """An admin command at the cluster; it must succeed."""

    def call(name: str, *arguments: str) -> Any:
        done = cli("admin", name, "-n", cluster.namesrv, *arguments)
        assert (done.code, done.err) == (0, "")
        return done

    return call


@pytest.fixture
def refused(cli: Cli, cluster: RunningCluster) -> Callable[..., str]:
    """An admin command that does not succeed: its exit code is checked, its sentence returned."""

    def call(code: int, name: str, *arguments: str) -> str:
        done = cli("admin", name, "-n", cluster.namesrv, *arguments)
        assert (done.code, done.out) == (code, "")
        assert done.err.startswith("turbopump: ")
        assert done.err.count("\n") == 1
        return str(done.err)

    return call


def send(cluster: RunningCluster, *messages: Message) -> list[Any]:
    async def run() -> list[Any]:
        async with Producer("PG", [cluster.namesrv]) as producer:
            return [await producer.send(message) for message in messages]

    return asyncio.run(run())


def consume(cluster: RunningCluster, group: str, topic: str, count: int) -> None:
    async def run() -> None:
        options = ConsumerOptions(consume_from=ConsumeFrom.FIRST)
        consumer = Consumer(group, [cluster.namesrv], options=options)
        consumer.subscribe(topic)
        async with consumer:
            for _ in range(count):
                message = await consumer.receive()
                assert message is not None
                await consumer.ack(message)

    asyncio.run(run())


def words(line: str) -> list[str]:
    return line.split()


def test_cluster_list(admin: Admin, refused: Callable[..., str], cluster: RunningCluster) -> None:
    (broker,) = cluster.brokers
    head, line = admin("clusterList").out.splitlines()
    assert words(head)[:3] == ["#Cluster", "Name", "#Broker"]
    assert words(line)[:4] == ["DefaultCluster", "broker-a", "0", broker.address]
    assert words(line)[-1] == "true"
    (found,) = admin("clusterList", "--json").json[0]["brokers"]
    assert (found["address"], found["active"], found["error"]) == (broker.address, True, "")
    head, line = admin("clusterList", "-m").out.splitlines()
    assert words(head)[-4:] == ["#InTotalYest", "#OutTotalYest", "#InTotalToday", "#OutTotalToday"]
    assert len(words(line)) == 6
    assert "NoCluster" in refused(1, "clusterList", "-c", "NoCluster")


def test_broker_status(admin: Admin, refused: Callable[..., str], cluster: RunningCluster) -> None:
    (broker,) = cluster.brokers
    table = dict(
        [part.strip() for part in line.split(":", 1)]
        for line in admin("brokerStatus", "-b", broker.address).out.splitlines()
    )
    assert table["brokerActive"] == "true"
    lines = admin("brokerStatus", "-c", "DefaultCluster").out.splitlines()
    assert all(words(line)[0] == broker.address for line in lines)
    status = admin("brokerStatus", "--brokerAddr", broker.address, "--json").json[0]
    assert status["address"] == broker.address
    assert status["table"].keys() == table.keys()
    deleted = admin("deleteExpiredCommitLog", "-b", broker.address)
    assert deleted.out == "success\n"
    printed = admin("deleteExpiredCommitLog", "-c", "DefaultCluster", "--json").json
    assert printed == [{"brokers": [broker.address]}]
    assert "either" in refused(2, "deleteExpiredCommitLog")
    assert "either" in refused(2, "brokerStatus")
    assert "either" in refused(2, "brokerStatus", "-b", broker.address, "-c", "DefaultCluster")
    assert "127.0.0.1:1" in refused(1, "brokerStatus", "-b", "127.0.0.1:1")


def test_replication_of_a_group_of_one(
    admin: Admin, refused: Callable[..., str], cluster: RunningCluster
) -> None:
    (broker,) = cluster.brokers
    lines = admin("haStatus", "-b", broker.address).out.splitlines()
    assert lines[1] == f"#MasterAddr\t{broker.address}"
    assert lines[3:5] == ["#SlaveNum\t0", "#InSyncSlaveNum\t0"]
    assert words(lines[5])[0] == "#SlaveAddr"
    (status,) = admin("haStatus", "-c", "DefaultCluster", "--json").json
    assert (status["address"], status["is_master"]) == (broker.address, True)
    assert status["replicas"] == []
    assert "controllerMode" in refused(1, "getBrokerEpoch", "-b", broker.name)
    assert "controllerMode" in refused(1, "getBrokerEpoch", "-c", "DefaultCluster", "--json")
    assert "nobody" in refused(1, "getBrokerEpoch", "-b", "nobody")
    assert "either" in refused(2, "getBrokerEpoch")
    assert "either" in refused(2, "haStatus")
    assert "host:port" in refused(2, "haStatus", "-b", broker.name)


def test_a_topic_is_created_changed_seen_and_deleted(
    admin: Admin, refused: Callable[..., str], cluster: RunningCluster
) -> None:
    (broker,) = cluster.brokers
    done = admin(
        "updateTopic",
        "-c",
        "DefaultCluster",
        "-t",
        "Made",
        "-r",
        "3",
        "-w",
        "2",
        "-p",
        "6",
        "-a",
        "+message.type=NORMAL",
    )
    assert done.out.splitlines()[0] == f"create topic to {broker.address} success."
    assert "readQueueNums=3, writeQueueNums=2, perm=RW-" in done.out
    (queue,) = admin("topicRoute", "-t", "Made", "--json").json[0]["queueDatas"]
    assert (queue["readQueueNums"], queue["writeQueueNums"], queue["perm"]) == (3, 2, 6)
    admin("updateTopic", "-b", broker.address, "-t", "Made", "-r", "3", "-w", "3", "-p", "4")
    assert '"writeQueueNums": 3' in admin("topicRoute", "-t", "Made").out
    head, line, _, total = admin("topicRoute", "-t", "Made", "-l").out.splitlines()
    assert words(head) == [
        "#ClusterName",
        "#BrokerName",
        "#BrokerAddrs",
        "#ReadQueue",
        "#WriteQueue",
        "#Perm",
    ]
    assert words(line) == ["DefaultCluster", "broker-a", f"{{0={broker.address}}}", "3", "3", "4"]
    assert words(total) == ["Total:", "1", "3", "3"]
    assert "Made" in admin("topicList").out.splitlines()
    assert "Made" in [line["topic"] for line in admin("topicList", "--json").json[0]["topics"]]
    assert ["DefaultCluster", "Made"] in [
        words(line) for line in admin("topicList", "-c").out.splitlines()
    ]
    done = admin("deleteTopic", "-t", "Made", "-c", "DefaultCluster")
    assert done.out.splitlines() == [
        "delete topic [Made] from cluster [DefaultCluster] success.",
        "delete topic [Made] from NameServer success.",
    ]
    assert "17: No topic route info" in refused(1, "topicRoute", "-t", "Made")
    assert "either" in refused(2, "updateTopic", "-t", "Made")
    assert "no topic name" in refused(2, "updateTopic", "-b", broker.address, "-t", "not a topic")
    assert "host:port" in refused(2, "updateTopic", "-b", broker.name, "-t", "Made")


def test_an_ordered_topic_has_a_fixed_route(admin: Admin, cluster: RunningCluster) -> None:
    done = admin(
        "updateTopic",
        "-c",
        "DefaultCluster",
        "-t",
        "Ordered",
        "-o",
        "true",
        "-u",
        "true",
        "-s",
        "true",
        "--json",
    )
    assert done.json[0]["order"] is True
    (queue,) = admin("topicRoute", "-t", "Ordered", "--json").json[0]["queueDatas"]
    assert queue["topicSysFlag"] == 3


def test_topic_status(admin: Admin, cluster: RunningCluster) -> None:
    admin("updateTopic", "-c", "DefaultCluster", "-t", "Status", "-r", "2", "-w", "2")
    send(cluster, *(Message("Status", b"x") for _ in range(4)))
    head, *lines = admin("topicStatus", "-t", "Status").out.splitlines()
    assert words(head)[:3] == ["#Broker", "Name", "#QID"]
    assert [words(line)[:3] for line in lines[:2]] == [
        ["broker-a", "0", "0"],
        ["broker-a", "1", "0"],
    ]
    assert lines[-1].startswith("Topic Put TPS: ")
    queues = admin("topicStatus", "-t", "Status", "--json").json[0]["queues"]
    assert sum(queue["max_queue_offset"] for queue in queues) == 4


def test_consumer_progress_and_reset(
    admin: Admin, refused: Callable[..., str], cluster: RunningCluster
) -> None:
    admin("updateTopic", "-c", "DefaultCluster", "-t", "Progress", "-r", "2", "-w", "2")
    send(cluster, *(Message("Progress", b"x") for _ in range(6)))
    consume(cluster, "Readers", "Progress", 6)
    send(cluster, Message("Progress", b"later"))
    lines = admin("consumerProgress").out.splitlines()
    assert words(lines[0])[:3] == ["#Group", "#Count", "#Version"]
    (readers,) = [words(line) for line in lines if line.startswith("Readers ")]
    assert readers[:5] == ["Readers", "0", "OFFLINE", "0", "1"]
    assert readers[-1] in ("s", "min"), "for how long the oldest message has waited"
    done = admin("consumerProgress", "-g", "Readers")
    *_, diff, inflight, behind = done.out.splitlines()
    assert [diff, inflight] == ["Consume Diff Total: 1", "Consume Inflight Total: 0"]
    assert behind.startswith("Consume Time Behind: ") and behind != "Consume Time Behind: N/A"
    assert "#Client IP" in admin("consumerProgress", "-g", "Readers", "-s", "true").out
    found = admin("consumerProgress", "-g", "Readers", "-t", "Progress", "--json").json[0]
    assert sum(queue["consumer_offset"] for queue in found["queues"]) == 6
    assert "Nobody" in refused(1, "consumerProgress", "-g", "Nobody")

    lines = admin("resetOffsetByTime", "-g", "Readers", "-t", "Progress", "-s", "0").out
    assert words(lines.splitlines()[1]) == ["#brokerName", "#queueId", "#offset"]
    found = admin("consumerProgress", "-g", "Readers", "--json").json[0]
    assert sum(queue["consumer_offset"] for queue in found["queues"]) == 0
    done = admin("resetOffsetByTime", "-g", "Readers", "-t", "Progress", "-s", "-1", "--json")
    assert sum(queue["queue_offset"] for queue in done.json[0]["queues"]) == 7
    (broker,) = cluster.brokers
    one = "resetOffsetByTime", "-g", "Readers", "-t", "Progress", "-b", broker.address
    done = admin(*one, "-q", "1", "-o", "1", "-s", "0", "--json")
    assert [(line["queue_id"], line["queue_offset"]) for line in done.json[0]["queues"]] == [(1, 1)]
    assert "-q" in refused(2, *one, "-s", "0")
    refused(2, *one[:-1], broker.name, "-q", "1", "-s", "0")
    year_2000 = "2000-01-01#00:00:00:000"
    done = admin("resetOffsetByTime", "-g", "Readers", "-t", "Progress", "-s", year_2000, "--json")
    expected_s = time.mktime(time.strptime("2000-01-01", "%Y-%m-%d"))
    assert done.json[0]["timestamp_ms"] == round(expected_s * 1000)
    for time_text in ("yesterday", "-2", str(1 << 63)):
        error = refused(2, "resetOffsetByTime", "-g", "Readers", "-t", "Progress", "-s", time_text)
        assert time_text in error


def test_messages_are_found(
    admin: Admin, refused: Callable[..., str], cluster: RunningCluster, tmp_path: Any
) -> None:
    one, other = send(
        cluster,
        Message("Find", "body 中".encode(), tags="TagA", keys=["k1", "same"]),
        Message("Find", b"\xff\xfe", keys=["same"]),
    )
    for message_id in (one.offset_message_id, one.message_id):
        done = admin("queryMsgById", "-t", "Find", "-i", message_id)
        fields = dict(line.split(":", 1) for line in done.out.splitlines() if ":" in line)
        assert fields["Message Body"].strip() == "body 中"
        assert fields["Keys"].strip() == "[k1 same]"
        assert fields["OffsetID"].strip() == one.offset_message_id
    both = f"{one.message_id},{other.message_id}"
    found = admin("queryMsgById", "-t", "Find", "-i", both, "--json").json
    assert [line["message"]["message_id"] for line in found] == both.split(",")
    admin("queryMsgById", "-t", "Find", "-i", other.message_id, "--body-dir", str(tmp_path))
    assert (tmp_path / other.message_id).read_bytes() == b"\xff\xfe"
    head, *lines = admin("queryMsgByKey", "-t", "Find", "-k", "same").out.splitlines()
    assert words(head) == ["#Message", "ID", "#QID", "#Offset"]
    assert [words(line)[0] for line in lines] == both.split(",")
    assert admin("queryMsgByKey", "-t", "Find", "-k", "k1", "-e", "1").out.count("\n") == 1
    unique = admin("queryMsgByUniqueKey", "-t", "Find", "-i", one.message_id, "--json").json[0]
    assert unique["message"]["body"] == "body 中"
    refused(1, "queryMsgByUniqueKey", "-t", "Find", "-i", "0" * 32)
    refused(1, "queryMsgById", "-t", "Find", "-i", "0" * 32)
    refused(2, "queryMsgById", "-t", "Find", "-i", ",")
    (tmp_path / "a file").touch()
    one_of_two = "queryMsgById", "-t", "Find", "-i", one.message_id
    assert "a file" in refused(2, *one_of_two, "--body-dir", str(tmp_path / "a file"))


def test_a_group_is_configured(admin: Admin, refused: Callable[..., str]) -> None:
    done = admin(
        "updateSubGroup",
        "-c",
        "DefaultCluster",
        "-g",
        "Configured",
        "-s",
        "false",
        "-r",
        "3",
        "-d",
        "TRUE",
        "--json",
    )
    config = done.json[0]["config"]
    assert (config["consumeEnable"], config["retryMaxTimes"]) == (False, 3)
    policy = '{"type":"CUSTOMIZED","customizedRetryPolicy":{"next":[1000,5000]}}'
    done = admin(
        "updateSubGroup", "-c", "DefaultCluster", "-g", "Configured", "-p", policy, "--json"
    )
    assert done.json[0]["config"]["groupRetryPolicy"] == json.loads(policy)
    assert "policy" in refused(2, "updateSubGroup", "-c", "C", "-g", "G", "-p", "[]")
    assert config["consumeBroadcastEnable"] is True
    done = admin("updateSubGroup", "-c", "DefaultCluster", "-g", "Configured")
    assert "success." in done.out
    assert "consumeEnable=true" in done.out
    assert "groupRetryPolicy={type=CUSTOMIZED}" in done.out
    wrong = refused(2, "updateSubGroup", "-c", "DefaultCluster", "-g", "G", "--attributes", "a=b")
    assert "a=b" in wrong
    unknown = "+no.such=1,-other"
    refused(1, "updateSubGroup", "-c", "DefaultCluster", "-g", "G", "--attributes", unknown)
    refused(2, "updateSubGroup", "-c", "DefaultCluster", "-g", "not a group")
    refused(1, "updateSubGroup", "-c", "NoCluster", "-g", "G")


def test_a_groups_mode_is_set(admin: Admin, refused: Callable[..., str]) -> None:
    where = ("-c", "DefaultCluster", "-g", "Configured")
    ours = ("--rebalance", "CLIENT", "--strategy", "STICKY")
    done = admin("setConsumeMode", *where, "-t", "*", *ours, "--json")
    assert done.json[0]["config"]["strategyName"] == "STICKY"
    done = admin("setConsumeMode", *where, "-t", "TBW102", "-m", "PULL")
    assert "success. topic : TBW102, groupName : Configured" in done.out
    assert "BOTH" in refused(1, "setConsumeMode", *where, "-t", "*", "--rebalance", "BOTH")
    refused(1, "setConsumeMode", *where, "-t", "no-such-topic", "-m", "PULL")


def test_no_server_answers(cli: Cli) -> None:
    done = cli("admin", "topicList", "-n", "127.0.0.1:1")
    assert (done.code, done.out) == (1, "")
    assert "127.0.0.1:1" in done.err
    for address in ("nonsense", "host:", ":9876", "host:0", "host:99999", ";"):
        done = cli("admin", "topicList", "-n", address)
        assert done.code == 2
        assert done.err.count("\n") == 1


def test_a_condition_and_a_trace(
    admin: Admin, cli: Cli, cluster: RunningCluster, refused: Callable[..., str]
) -> None:
    fields = (
        "Pub", "1700000000000", "R", "PG", "T", "ID9", "", "k9", "h", "5", "3", "0", "O", "true",
    )  # fmt: skip
    trace = Message("Traces", ("\x01".join(fields) + "\x02").encode(), keys=["ID9", "k9"])
    send(
        cluster, trace, *(Message("Priced", b"%d" % n, properties={"n": str(n)}) for n in range(9))
    )
    for name in ("queryMsgTrace", "queryMsgTraceById"):
        head, line = admin(name, "-i", "ID9", "-t", "Traces").out.splitlines()
        assert words(head)[:2] == ["#Type", "#Group"]
        assert words(line)[:2] == ["Pub", "PG"]
        assert words(line)[-2:] == ["3ms", "SUCCESS"]
    (record,) = admin("queryMsgTrace", "-i", "k9", "-t", "Traces", "--json").json[0]["records"]
    assert (record["message_id"], record["is_success"]) == ("ID9", True)
    assert "RMQ_SYS_TRACE_TOPIC" in refused(1, "queryMsgTrace", "-i", "ID9")
    options = ("-n", cluster.namesrv, "-t", "Priced", "--count", "2", "--timeout", "20", "--json")
    done = cli("consume", *options, "-g", "cheap", "--sql", "n BETWEEN 3 AND 4")
    assert (done.code, sorted(one["body"] for one in done.json)) == (0, ["3", "4"])
    done = cli("consume", *options, "-g", "cheap", "--sql", "n >")
    assert (done.code, "It ends too early" in done.err) == (1, True)


def test_a_broker_is_administered_without_java(
    cluster: RunningCluster, cli: Cli, admin: Admin, refused: Callable[..., str]
) -> None:
    """Configurations, clients, permissions, offsets and single messages of a running cluster."""
    broker = cluster.brokers[0]
    send(cluster, *(Message("Plain", b"%d" % number) for number in range(8)))
    consume(cluster, "PlainG", "Plain", 8)

    key = "-k", "fileReservedTime"
    admin("updateBrokerConfig", "-b", broker.address, *key, "-v", "71")
    (config,) = admin("getBrokerConfig", "-b", broker.address, "--json").json
    assert config["table"]["fileReservedTime"] == "71"
    assert "fileReservedTime" in refused(
        1, "updateBrokerConfig", "-b", broker.address, *key, "-v", "x"
    )
    admin("updateNamesrvConfig", "-k", "orderMessageEnable", "-v", "true")
    (found,) = admin("getNamesrvConfig", "--json").json
    assert found["table"]["orderMessageEnable"] == "true"

    assert admin("topicClusterList", "-t", "Plain").out == "DefaultCluster\n"
    (stats,) = admin("statsAll", "-t", "Plain", "--json").json
    assert [(line["group"], line["behind"]) for line in stats["topics"]] == [("PlainG", 0)]
    (wiped,) = admin("wipeWritePerm", "-b", broker.name, "--json").json
    (added,) = admin("addWritePerm", "-b", broker.name, "--json").json
    assert wiped["topics"] == added["topics"] != {}
    for name in ("cleanUnusedTopic", "cleanExpiredCQ"):
        assert admin(name, "-c", "DefaultCluster").out == "success\n"

    shown = admin("printMsg", "-t", "Plain", "--json").json
    assert sorted(one["body"] for one in shown) == [str(number) for number in range(8)]
    place = "-b", broker.name, "-i", str(shown[0]["queue_id"]), "-o", str(shown[0]["queue_offset"])
    (one,) = admin("queryMsgByOffset", "-t", "Plain", *place, "--json").json
    assert one["message_id"] == shown[0]["message_id"]

    admin("cloneGroupOffset", "-s", "PlainG", "-d", "PlainH", "-t", "Plain")
    admin("skipAccumulatedMessage", "-g", "PlainG", "-t", "Plain")
    assert "not online" in refused(1, "consumerConnection", "-g", "PlainG")
    admin("deleteSubGroup", "-g", "PlainG", "-b", broker.address, "-r", "true")


def test_members_that_are_online(cluster: RunningCluster, admin: Admin) -> None:
    """Push, simple and pop consumers and producers are listed while they run."""
    send(cluster, Message("Online", b"x"))

    async def run() -> None:
        push = Consumer("OnPush", [cluster.namesrv])
        simple = SimpleConsumer("OnSimple", [cluster.namesrv], from_first=True)
        pop = PopConsumer("OnPop", [cluster.namesrv], from_first=True)
        pop.on_message(lambda message: None)
        for consumer in (push, simple, pop):
            consumer.subscribe("Online")
        shared = SharedClient([cluster.namesrv])
        async with push, simple, pop, Producer("OnP", client=shared) as producer:
            await producer.send(Message("Online", b"y"))
            await instance_of(shared).heartbeat()
            (received,) = await simple.receive(1)
            await simple.ack(received)
            for group in ("OnPush", "OnSimple", "OnPop"):
                found = await asyncio.to_thread(admin, "consumerConnection", "-g", group, "--json")
                assert list(found.json[0]["subscriptions"])[-1] == "Online"
            (status,) = (
                await asyncio.to_thread(admin, "consumerStatus", "-g", "OnPush", "--json")
            ).json
            assert any(queue.startswith("Online ") for queue in status["queues"])
            made = "producerConnection", "-g", "OnP", "-t", "Online", "--json"
            (clients,) = (await asyncio.to_thread(admin, *made)).json
            assert len(clients["clients"]) == 1
            (progress,) = (
                await asyncio.to_thread(admin, "consumerProgress", "-g", "OnSimple", "--json")
            ).json
            assert progress["queues"]

    asyncio.run(run())
    (listed,) = admin("consumerProgress", "--json").json
    groups = {one["group"] for one in listed["groups"]}
    assert {"OnPush", "OnSimple", "OnPop"} <= groups
    assert not any(name.endswith("_Online") for name in groups)
