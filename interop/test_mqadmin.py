"""Apache RocketMQ's own mqadmin against the broker: every printed answer is parsed and judged."""

import json
import re
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from interop.support.groups import BROKER_NAME, CLUSTER, Group, ask
from interop.support.mqadmin import Admin
from interop.support.processes import Process
from interop.support.suites import java_client, parse

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]
TOPIC = "admin-letters"
GET_ALL_MESSAGE_REQUEST_MODE = 402
POP_MESSAGE, ACK_MESSAGE = 200050, 200051
LINGER_TIMEOUT_S = 150
SOON_S = 10
# Both brokers sample their counters every 10 s.
STATISTICS_TIMEOUT_S = 45
RUNTIME_NAMES = (
    "bootTimestamp",
    "brokerVersionDesc",
    "commitLogDirCapacity",
    "commitLogDiskRatio",
    "commitLogMaxOffset",
    "commitLogMinOffset",
    "consumeQueueDiskRatio",
    "dispatchBehindBytes",
    "dispatchMaxBuffer",
    "earliestMessageTimeStamp",
    "getFoundTps",
    "getMessageEntireTimeMax",
    "getMissTps",
    "getTotalTps",
    "getTransferredTps",
    "msgGetTotalTodayMorning",
    "msgGetTotalTodayNow",
    "msgGetTotalYesterdayMorning",
    "msgPutTotalTodayMorning",
    "msgPutTotalTodayNow",
    "msgPutTotalYesterdayMorning",
    "pageCacheLockTimeMills",
    "pullThreadPoolQueueCapacity",
    "pullThreadPoolQueueHeadWaitTimeMills",
    "pullThreadPoolQueueSize",
    "putMessageAverageSize",
    "putMessageDistributeTime",
    "putMessageEntireTimeMax",
    "putMessageSizeTotal",
    "putTps",
    "queryThreadPoolQueueCapacity",
    "queryThreadPoolQueueHeadWaitTimeMills",
    "queryThreadPoolQueueSize",
    "remainHowManyDataToFlush",
    "remainTransientStoreBufferNumbs",
    "runtime",
    "sendThreadPoolQueueCapacity",
    "sendThreadPoolQueueHeadWaitTimeMills",
    "sendThreadPoolQueueSize",
)


@pytest.fixture(scope="module")
def linger(group: Group, work: Path) -> Iterator[Process]:
    """Run a consumer that stays online until it has read everything twice."""
    client = java_client(
        "client-5.5",
        [group.ports.namesrv_address, "admin", "linger"],
        work / "linger",
        name="linger",
    )
    deadline = time.monotonic() + LINGER_TIMEOUT_S
    try:
        while "the offsets are committed" not in client.out.read_text():
            assert client.running and time.monotonic() < deadline, client.tail()
            time.sleep(0.1)
        yield client
    finally:
        client.stop()


@pytest.fixture(scope="module")
def admin(group: Group, work: Path) -> Iterator[Admin]:
    """Start mqadmin with a topic of ten messages, all in queue 1 of 3."""
    with closing(Admin(group, work / "mqadmin")) as made:
        made.run("updateTopic", "-b", group.ports.broker_address, "-t", TOPIC, "-r", 3, "-w", 3)
        for number in range(10):
            sent = made.rows(
                "sendMessage",
                "-t",
                TOPIC,
                "-p",
                f"body-{number}",
                "-k",
                f"key-{number}",
                "-c",
                f"tag-{number % 2}",
                "-b",
                BROKER_NAME,
                "-i",
                1,
            )
            assert sent[0][:3] == [BROKER_NAME, "1", "SEND_OK"], sent
        yield made


def queues_of(admin: Admin, topic: str) -> tuple[int, int, int]:
    """Return read queues, write queues and permission from the route."""
    queues = admin.json("topicRoute", "-t", topic)["queueDatas"]
    assert len(queues) == 1, queues
    return queues[0]["readQueueNums"], queues[0]["writeQueueNums"], queues[0]["perm"]


def offsets_of(admin: Admin, consumer_group: str, topic: str) -> dict[int, tuple[int, int]]:
    """Return the broker and consumer offset of each queue from consumerProgress."""
    rows = admin.rows("consumerProgress", "-g", consumer_group)
    return {int(row[2]): (int(row[3]), int(row[4])) for row in rows if row[0] == topic}


def test_cluster_list(admin: Admin, group: Group) -> None:
    """The broker is shown with its address, version and that it is in service."""
    rows = admin.rows("clusterList")
    assert len(rows) == 1
    assert rows[0][:4] == [CLUSTER, BROKER_NAME, "0", group.ports.broker_address]
    assert re.fullmatch(r"V\d_\d+_\d+.*", rows[0][4]), rows
    assert rows[0][-1] == "true", rows
    totals = admin.rows("clusterList", "-m")
    assert totals[0][:2] == [CLUSTER, BROKER_NAME]
    assert int(totals[0][4]) >= 10, totals


def test_update_topic_on_a_broker(admin: Admin, group: Group) -> None:
    """A topic is created and then changed; the route follows."""
    topic = "admin-topic-b"
    printed = admin.run(
        "updateTopic", "-b", group.ports.broker_address, "-t", topic, "-r", 3, "-w", 2, "-p", 6
    )
    assert f"create topic to {group.ports.broker_address} success" in printed
    assert queues_of(admin, topic) == (3, 2, 6)
    admin.run(
        "updateTopic", "-b", group.ports.broker_address, "-t", topic, "-r", 5, "-w", 4, "-p", 4
    )
    assert queues_of(admin, topic) == (5, 4, 4)
    printed = admin.run("updateTopicPerm", "-b", group.ports.broker_address, "-t", topic, "-p", 6)
    assert "update topic perm from 4 to 6" in printed
    assert queues_of(admin, topic) == (5, 4, 6)


def test_update_and_delete_topic_in_a_cluster(admin: Admin) -> None:
    """A topic comes and goes again, from the broker and from the name server."""
    topic = "admin-topic-c"
    printed = admin.run("updateTopic", "-c", CLUSTER, "-t", topic, "-r", 2, "-w", 2)
    assert "success" in printed
    assert topic in admin.run("topicList").split()
    assert queues_of(admin, topic) == (2, 2, 6)
    printed = admin.run("deleteTopic", "-c", CLUSTER, "-t", topic)
    assert f"delete topic [{topic}] from cluster [{CLUSTER}] success." in printed
    assert f"delete topic [{topic}] from NameServer success." in printed
    assert topic not in admin.run("topicList").split()
    assert "CODE: 17" in admin.run("topicRoute", "-t", topic)


def test_topic_list(admin: Admin) -> None:
    """Topics of users and of the system, with their cluster."""
    topics = admin.run("topicList").split()
    assert {TOPIC, "TBW102", "SELF_TEST_TOPIC", CLUSTER, BROKER_NAME} <= set(topics)
    assert len(topics) == len(set(topics))
    rows = admin.rows("topicList", "-c")
    assert [CLUSTER, TOPIC] in [row[:2] for row in rows]
    assert admin.run("topicClusterList", "-t", TOPIC).split() == [CLUSTER]


def test_topic_route(admin: Admin, group: Group) -> None:
    """The whole route, as JSON and as a table."""
    route = admin.json("topicRoute", "-t", TOPIC)
    brokers = route["brokerDatas"]
    assert len(brokers) == 1
    assert brokers[0]["brokerAddrs"] == {"0": group.ports.broker_address}
    assert (brokers[0]["brokerName"], brokers[0]["cluster"]) == (BROKER_NAME, CLUSTER)
    assert queues_of(admin, TOPIC) == (3, 3, 6)
    row = admin.rows("topicRoute", "-t", TOPIC, "-l")[0]
    assert row == [CLUSTER, BROKER_NAME, f"{{0={group.ports.broker_address}}}", "3", "3", "6"]
    assert "CODE: 17" in admin.run("topicRoute", "-t", "admin-no-such-topic")


def test_topic_status(admin: Admin) -> None:
    """Offsets of each queue, and a time where something was stored."""
    rows = admin.rows("topicStatus", "-t", TOPIC)
    assert [row[:4] for row in rows] == [
        [BROKER_NAME, "0", "0", "0"],
        [BROKER_NAME, "1", "0", "10"],
        [BROKER_NAME, "2", "0", "0"],
    ]
    assert len(rows[1]) > len(rows[0]), "no time where messages lie"
    assert "CODE: 17" in admin.run("topicStatus", "-t", "admin-no-such-topic")


def test_message_by_key_and_ids(admin: Admin) -> None:
    """The same message by key, by its client's id, by its place and by its stored id."""
    rows = admin.rows("queryMsgByKey", "-t", TOPIC, "-k", "key-6")
    assert len(rows) == 1 and rows[0][1:3] == ["1", "6"], rows
    unique_id = rows[0][0]
    by_place = admin.pairs("queryMsgByOffset", "-t", TOPIC, "-b", BROKER_NAME, "-i", 1, "-o", 6)
    assert_message(by_place)
    assert_message(admin.pairs("queryMsgByUniqueKey", "-t", TOPIC, "-i", unique_id))
    assert_message(admin.pairs("queryMsgById", "-t", TOPIC, "-i", by_place["OffsetID"]))
    assert_message(admin.pairs("queryMsgById", "-t", TOPIC, "-i", unique_id))
    for command, option in (("queryMsgByKey", "-k"), ("queryMsgByUniqueKey", "-i")):
        assert "CODE: 208" in admin.run(command, "-t", TOPIC, option, "absent")


def assert_message(shown: dict[str, str]) -> None:
    """The message is number 6, and its body is in the file that mqadmin names."""
    assert shown["Topic"].strip("[]") == TOPIC, shown
    assert shown["Tags"] == "[tag-0]" and shown["Keys"] == "[key-6]", shown
    assert (shown["Queue ID"], shown["Queue Offset"]) == ("1", "6"), shown
    assert (shown["Reconsume Times"], shown["System Flag"]) == ("0", "0"), shown
    body = Path(shown["Message Body Path"])
    assert body.read_bytes() == b"body-6"
    body.unlink()


def test_print_messages(admin: Admin) -> None:
    """Messages are pulled and printed, with and without a tag."""
    printed = admin.run(
        "printMsgByQueue", "-t", TOPIC, "-a", BROKER_NAME, "-i", 1, "-p", "true", "-d", "true"
    )
    assert re.findall(r"BODY: (body-\d)", printed) == [f"body-{n}" for n in range(10)], printed
    printed = admin.run("printMsg", "-t", TOPIC, "-s", "tag-1", "-d", "true")
    assert re.findall(r"BODY: (body-\d)", printed) == [f"body-{n}" for n in range(1, 10, 2)]
    printed = admin.run(
        "consumeMessage", "-t", TOPIC, "-b", BROKER_NAME, "-i", 1, "-o", 7, "-g", "admin-printer"
    )
    assert re.findall(r"BODY: (body-\d)", printed) == ["body-7", "body-8", "body-9"], printed


def test_consume_queue(admin: Admin, group: Group) -> None:
    """The raw units of a queue."""
    printed = admin.run(
        "queryCq", "-t", TOPIC, "-q", 1, "-i", 4, "-c", 2, "-b", group.ports.broker_address
    )
    assert "max: 10, min: 0" in printed, printed
    assert re.findall(r"idx: (\d+)", printed) == ["4", "5"], printed
    # Java's hash of "tag-0" and "tag-1".
    assert re.findall(r"tagsCode=(-?\d+)", printed) == ["110118589", "110118590"], printed


def test_broker_status(admin: Admin, group: Group) -> None:
    """The run-time table by broker and by cluster."""
    table = admin.pairs("brokerStatus", "-b", group.ports.broker_address)
    assert [name for name in RUNTIME_NAMES if name not in table] == []
    assert int(table["commitLogMaxOffset"]) > 0 and table["commitLogMinOffset"] == "0"
    assert int(table["msgPutTotalTodayNow"]) >= 10
    assert 0 <= float(table["commitLogDiskRatio"]) <= 1
    assert len(table["getTotalTps"].split()) == 3, "moving rates of 10 s, 60 s and 600 s"
    by_cluster = admin.run("brokerStatus", "-c", CLUSTER)
    assert f"{group.ports.broker_address}" in by_cluster
    assert all(name in by_cluster for name in RUNTIME_NAMES)


def test_replication_of_a_group_of_one(admin: Admin, group: Group) -> None:
    """A master without replicas, and no epochs outside of controller mode."""
    for where in (("-b", group.ports.broker_address), ("-c", CLUSTER)):
        printed = admin.run("haStatus", *where)
        assert f"#MasterAddr\t{group.ports.broker_address}\n" in printed, printed
        assert re.search(
            r"#MasterCommitLogMaxOffset\t[1-9]\d*\n#SlaveNum\t0\n#InSyncSlaveNum\t0\n", printed
        ), printed
    for where in (("-b", BROKER_NAME), ("-c", CLUSTER)):
        printed = admin.run("getBrokerEpoch", *where)
        assert "CODE: 1 " in printed and "only for controllerMode" in printed, printed


def test_subscription_groups(admin: Admin, group: Group) -> None:
    """A group is made, read back, changed and removed."""
    printed = admin.run(
        "updateSubGroup", "-b", group.ports.broker_address, "-g", "admin-group", "-r", 5, "-q", 2
    )
    assert f"create subscription group to {group.ports.broker_address} success" in printed
    config = admin.pairs("getConsumerConfig", "-g", "admin-group")
    assert config["groupName"] == "admin-group" and config["consumeEnable"] == "true"
    assert (config["retryMaxTimes"], config["retryQueueNums"]) == ("5", "2")
    printed = admin.run(
        "updateSubGroup", "-c", CLUSTER, "-g", "admin-group", "-r", 7, "-s", "false"
    )
    assert "success" in printed
    config = admin.pairs("getConsumerConfig", "-g", "admin-group")
    assert (config["retryMaxTimes"], config["consumeEnable"]) == ("7", "false")
    printed = admin.run("deleteSubGroup", "-c", CLUSTER, "-g", "admin-group")
    assert "delete subscription group [admin-group] from broker" in printed


def test_progress_of_a_group_that_pops(admin: Admin, group: Group) -> None:
    """Messages in flight lie before the group's offset, and count as handled before their
    acknowledgement."""
    name, port = "admin-poppers", group.ports.broker
    address = group.ports.broker_address
    admin.run("updateSubGroup", "-b", address, "-g", name)
    admin.run("updateTopic", "-b", address, "-t", f"%RETRY%{name}", "-r", 1, "-w", 1)
    fields = {
        "consumerGroup": name, "topic": TOPIC, "queueId": "1", "maxMsgNums": "4",
        "invisibleTime": "60000", "pollTime": "0", "bornTime": str(round(1_000 * time.time())),
        "initMode": "0", "expType": "TAG", "exp": "*", "order": "false",
    }  # fmt: skip
    popped = ask(port, POP_MESSAGE, fields)
    assert popped.code == 0 and popped.fields["msgOffsetInfo"] == "0 1 0,1,2,3", popped
    times = (popped.fields[key] for key in ("popTime", "invisibleTime", "reviveQid"))
    handle = " ".join(["0", *times, "0", BROKER_NAME, "1", "0"])
    fields = {"consumerGroup": name, "topic": TOPIC, "queueId": "1", "offset": "0"}
    acked = ask(port, ACK_MESSAGE, {**fields, "extraInfo": handle})
    assert acked.code == 0, acked
    deadline = time.monotonic() + SOON_S
    while True:
        rows = admin.rows("consumerProgress", "-g", name)
        found = [row[:7] for row in rows if row[0] == TOPIC and row[2] == "1"]
        # RocketMQ commits the offset once the check point is stored.
        if found == [[TOPIC, BROKER_NAME, "1", "10", "4", "6", "0"]]:
            break
        assert time.monotonic() < deadline, rows


def test_online_group(admin: Admin, linger: Process) -> None:
    """The details of a connected consumer, including its own running state."""
    group_name, topic = "admin-linger-group", "admin-linger"
    listed = {row[0]: row for row in admin.rows("consumerProgress")}
    assert listed[group_name][1] == "1", listed
    assert "PUSH" in listed[group_name] and "CLUSTERING" in listed[group_name]
    assert listed[group_name][-1] == "0", "nothing is left to consume"
    assert offsets_of(admin, group_name, topic) == dict.fromkeys(range(4), (10, 10))
    with_client = admin.rows("consumerProgress", "-g", group_name, "-s", "true")
    assert all(
        "@admin-linger" in " ".join(row) or re.search(r"\d+\.\d+\.\d+\.\d+", row[5])
        for row in with_client
        if row[0] == topic
    ), with_client

    printed = admin.run("consumerConnection", "-g", group_name)
    assert re.search(r"@admin-linger\s+127\.0\.0\.1:\d+\s+JAVA\s+V5_5_0", printed), printed
    for text in (
        topic,
        f"%RETRY%{group_name}",
        "CONSUME_PASSIVELY",
        "CLUSTERING",
        "CONSUME_FROM_FIRST_OFFSET",
    ):
        assert text in printed, printed
    printed = admin.run("consumerStatus", "-g", group_name)
    assert "Same subscription in the same group of consumer" in printed, printed
    assert "Rebalance OK" in printed, printed
    assert "V5_5_0" in printed, printed
    printed = admin.run("producerConnection", "-g", "admin-shared-producer", "-t", topic)
    assert re.search(r"@admin-shared\s+127\.0\.0\.1:\d+\s+JAVA\s+V5_5_0", printed), printed


def test_statistics(admin: Admin, linger: Process) -> None:
    """Accumulation and totals by topic and group, once the broker took its samples."""
    deadline = time.monotonic() + STATISTICS_TIMEOUT_S
    rows = admin.rows("statsAll", "-a", "-t", "admin-linger")
    # The last two columns are the messages in and out of the day.
    while [row[-2:] for row in rows] != [["40", "40"]] and time.monotonic() < deadline:
        time.sleep(1)
        rows = admin.rows("statsAll", "-a", "-t", "admin-linger")
    assert len(rows) == 1, rows
    assert rows[0][:3] == ["admin-linger", "admin-linger-group", "0"], rows
    assert rows[0][-2:] == ["40", "40"], rows


def test_offsets_of_a_group_offline(admin: Admin, group: Group) -> None:
    """Offsets are cloned and set by time while no client is connected."""
    group_name = "admin-offline"
    admin.run("updateSubGroup", "-b", group.ports.broker_address, "-g", group_name)
    admin.run(
        "updateTopic",
        "-b",
        group.ports.broker_address,
        "-t",
        f"%RETRY%{group_name}",
        "-r",
        1,
        "-w",
        1,
    )
    assert "CODE: 206" in admin.run("consumerConnection", "-g", group_name)
    reset = admin.rows("resetOffsetByTime", "-g", group_name, "-t", TOPIC, "-s", "now")
    assert sorted(row[1:3] for row in reset) == [["0", "0"], ["1", "10"], ["2", "0"]], reset
    assert offsets_of(admin, group_name, TOPIC)[1] == (10, 10)
    reset = admin.rows("resetOffsetByTime", "-g", group_name, "-t", TOPIC, "-s", "0")
    assert sorted(row[1:3] for row in reset) == [["0", "0"], ["1", "0"], ["2", "0"]], reset
    assert offsets_of(admin, group_name, TOPIC)[1] == (10, 0)
    printed = admin.run("cloneGroupOffset", "-s", group_name, "-d", "admin-printer", "-t", TOPIC)
    assert "clone group offset success" in printed, printed


def test_offsets_of_a_group_online(admin: Admin, linger: Process) -> None:
    """A connected consumer reads everything again after its offsets were set back."""
    reset = admin.rows(
        "resetOffsetByTime", "-g", "admin-linger-group", "-t", "admin-linger", "-s", "0"
    )
    assert sorted(row[1:3] for row in reset) == [[str(queue), "0"] for queue in range(4)], reset
    linger.wait(LINGER_TIMEOUT_S)
    checks = parse(linger.out.read_text(), ["linger"])["linger"]
    assert checks.ended and not checks.failed, "\n".join([*checks.failed, linger.tail()])
    assert offsets_of(admin, "admin-linger-group", "admin-linger") == (
        dict.fromkeys(range(4), (10, 10))
    )


@pytest.mark.parametrize(("mode", "shared"), [("POP", 2), ("PULL", 0)])
def test_consume_mode(admin: Admin, group: Group, mode: str, shared: int) -> None:
    broker = group.ports.broker_address
    admin.run("updateSubGroup", "-b", broker, "-g", "popping")
    words = ("-b", broker, "-t", TOPIC, "-g", "popping", "-m", mode, "-q", shared)
    printed = admin.run("setConsumeMode", *words)
    assert f"set consume mode to {broker} success" in printed, printed
    response = ask(group.ports.broker, GET_ALL_MESSAGE_REQUEST_MODE, {})
    kept = json.loads(response.body)["messageRequestModeMap"][TOPIC]["popping"]
    assert (kept["mode"], kept["popShareQueueNum"]) == (mode, shared), kept
    refused = admin.run(
        "setConsumeMode", "-b", broker, "-t", "none-such", "-g", "popping", "-m", mode
    )
    assert "success" not in refused and "none-such" in refused, refused


def test_configurations(admin: Admin, group: Group) -> None:
    """Properties of broker and name server are read, and one is changed while it runs."""
    broker = ("-b", group.ports.broker_address)
    config = admin.pairs("getBrokerConfig", *broker)
    assert config["brokerName"] == BROKER_NAME and config["brokerClusterName"] == CLUSTER
    assert config["listenPort"] == str(group.ports.broker)
    key, default = "shortPollingTimeMills", "1000"
    assert config[key] == default
    for value in ("500", default):
        printed = admin.run("updateBrokerConfig", *broker, "-k", key, "-v", value)
        assert "update broker config success" in printed, printed
        assert admin.pairs("getBrokerConfig", *broker)[key] == value
    config = admin.pairs("getNamesrvConfig")
    assert config["listenPort"] == str(group.ports.namesrv), config


def test_name_server_tables(admin: Admin) -> None:
    """Key values, ordered topics, and taking a broker out of the routes for writing."""
    assert "success" in admin.run("updateKvConfig", "-s", "admin-space", "-k", "key", "-v", "one")
    assert "success" in admin.run("deleteKvConfig", "-s", "admin-space", "-k", "key")
    assert "success" in admin.run(
        "updateOrderConf", "-t", TOPIC, "-v", f"{BROKER_NAME}:3", "-m", "put"
    )
    assert f"orderConf=[{BROKER_NAME}:3]" in admin.run("updateOrderConf", "-t", TOPIC, "-m", "get")
    assert "success" in admin.run("updateOrderConf", "-t", TOPIC, "-m", "delete")
    assert re.search(r"OK, [1-9]", admin.run("wipeWritePerm", "-b", BROKER_NAME))
    assert queues_of(admin, TOPIC) == (3, 3, 4)
    assert re.search(r"OK, [1-9]", admin.run("addWritePerm", "-b", BROKER_NAME))
    assert queues_of(admin, TOPIC) == (3, 3, 6)


def test_housekeeping(admin: Admin, group: Group) -> None:
    """The commands that clean up succeed, and keep topics and files in use."""
    for command in ("cleanExpiredCQ", "cleanUnusedTopic", "deleteExpiredCommitLog"):
        assert "success" in admin.run(command, "-b", group.ports.broker_address), command
    assert admin.rows("topicStatus", "-t", TOPIC)[1][:4] == [BROKER_NAME, "1", "0", "10"]
