"""Admin requests on consumer progress (remoting.md 11, 16.3)."""

from typing import Any

import pytest

from turbopump.engine import fastjson
from turbopump.net.wire.queues import MessageQueue


def key(queue: int, topic: str = "T") -> str:
    return MessageQueue(topic, "broker-a", queue).bean_key()


@pytest.fixture
def progress(admin: Any) -> Any:
    """Topic T of two queues: three messages a second apart, group g at the second one."""
    admin.create_topic("T", 2)
    admin.ask(200, {"groupName": "g"})
    admin.first_ms = admin.now_ms
    for number in range(3):
        admin.send("T", b"%d" % number)
        admin.world.now_ms += 1_000
    admin.broker.offsets.commit("g", "T", 0, 1, admin.now_ms)
    admin.broker.offsets.commit_pull("g", "T", 0, 2)
    return admin


def test_progress_of_a_group(progress: Any) -> None:
    body = progress.json(208, consumerGroup="g")
    assert body == {
        "consumeTps": 0.0,
        "offsetTable": {
            key(0): {
                "brokerOffset": 3,
                "consumerOffset": 1,
                "delayTime": 2_000,
                "delayTimeKnown": True,
                "lastTimestamp": progress.first_ms,
                "pullOffset": 2,
            },
            key(1): {
                "brokerOffset": 0,
                "consumerOffset": 0,
                "delayTime": 0,
                "delayTimeKnown": True,
                "lastTimestamp": 0,
                "pullOffset": 0,
            },
        },
    }


def test_the_keys_of_a_progress_are_bare_beans(progress: Any) -> None:
    text = bytes(progress.ask(208, consumerGroup="g").body).decode()
    assert '"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:{"broker' in text


def test_the_rate_of_a_group(progress: Any) -> None:
    for _ in range(3):
        progress.broker.statistics.count_delivered("g", "T", 20, 1)
        progress.broker.statistics.sample(progress.now_ms)
        progress.world.now_ms += 10_000
    assert progress.json(208, consumerGroup="g")["consumeTps"] == 2.0


def test_an_unknown_group_has_an_empty_table(admin: Any) -> None:
    assert admin.json(208, consumerGroup="x") == {"consumeTps": 0.0, "offsetTable": {}}


@pytest.mark.parametrize(
    ("fields", "topics"),
    [
        ({}, ["T", "U"]),
        ({"topic": "U"}, ["U"]),
        ({"topic": " "}, ["T", "U"]),
        ({"topic": "gone"}, []),
        ({"topicList": "T;gone;T;"}, ["T"]),
    ],
)
def test_which_topics_are_shown(progress: Any, fields: dict[str, str], topics: list[str]) -> None:
    progress.create_topic("U", 1)
    for topic in ("U", "gone"):
        progress.broker.offsets.commit("g", topic, 0, 1, progress.now_ms)
    table = progress.json(208, consumerGroup="g", **fields)["offsetTable"]
    assert sorted({MessageQueue.from_key(one).topic for one in table}) == topics


def test_online_shows_only_subscribed_topics(progress: Any) -> None:
    progress.create_topic("U", 1)
    progress.broker.offsets.commit("g", "U", 0, 1, progress.now_ms)
    peer = progress.connect()
    progress.heartbeat(peer, "c", progress.consumer("g", "U"))
    assert list(progress.json(208, consumerGroup="g")["offsetTable"]) == [key(0, "U")]
    peer.lost()
    assert len(progress.json(208, consumerGroup="g")["offsetTable"]) == 3


def test_progress_of_all_groups(progress: Any) -> None:
    body = progress.json(317, isOrder=False)
    mine = next(one["g"] for one in body["consumeStatsList"] if "g" in one)
    assert mine == [progress.json(208, consumerGroup="g")]
    assert {"TOOLS_CONSUMER": []} in body["consumeStatsList"]
    assert (body["totalDiff"], body["totalInflightDiff"]) == (2, 1)
    assert body["brokerAddr"] == progress.broker.address


def test_progress_of_order_topics_and_of_subscribed_topics_only(progress: Any) -> None:
    def shown(*, ordered: bool) -> Any:
        listed = progress.json(317, isOrder=ordered)["consumeStatsList"]
        return next(one["g"] for one in listed if "g" in one)

    assert shown(ordered=True) == []
    progress.create_topic("T", 2, order=True)
    assert len(shown(ordered=True)) == 1
    progress.heartbeat(progress.connect(), "c", progress.consumer("g", "U"))
    assert shown(ordered=False) == []


def test_time_spans(progress: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = progress.json(303, topic="T", group="g")["consumeTimeSpanSet"]
    assert first["messageQueue"] == {"brokerName": "broker-a", "queueId": 0, "topic": "T"}
    start_ms = progress.first_ms
    assert (first["minTimeStamp"], first["maxTimeStamp"]) == (start_ms, start_ms + 2_000)
    assert (first["consumeTimeStamp"], first["delayTime"]) == (start_ms, 2_000)
    assert first["minTimeStampStr"].endswith(f":{start_ms % 1000:03d}")
    assert len(first["minTimeStampStr"]) == len("2026-11-21#14:17:25:065")
    assert (second["minTimeStamp"], second["maxTimeStamp"], second["delayTime"]) == (-1, -1, 0)
    progress.broker.offsets.commit("g", "T", 0, 3, progress.now_ms)
    first = progress.json(303, topic="T", group="g")["consumeTimeSpanSet"][0]
    assert (first["consumeTimeStamp"], first["delayTime"]) == (start_ms + 2_000, 0)
    assert progress.ask(303, topic="U", group="g").code == 17


def test_time_span_of_a_group_that_never_consumed(progress: Any) -> None:
    first = progress.json(303, topic="T", group="new")["consumeTimeSpanSet"][0]
    assert (first["consumeTimeStamp"], first["delayTime"]) == (progress.first_ms, 3_000)


def test_correction_offsets(progress: Any) -> None:
    offsets, now_ms = progress.broker.offsets, progress.now_ms
    offsets.commit("h", "T", 0, 2, now_ms)
    offsets.commit("h", "T", 1, 5, now_ms)
    offsets.commit("filtered", "T", 0, 0, now_ms)

    def asked(compare: str, without: str) -> Any:
        return progress.json(308, topic="T", compareGroup=compare, filterGroups=without)

    assert asked("nobody", "filtered") == {"correctionOffsets": {"0": 1, "1": 5}}
    assert asked("nobody", "") == {"correctionOffsets": {"0": 0, "1": 5}}
    assert asked("h", "filtered,g") == {"correctionOffsets": {"0": 2, "1": 5}}
    assert asked("g", "g,filtered") == {"correctionOffsets": {"0": 2**63 - 1, "1": 5}}
    assert offsets.query("filtered", "T", 0) == 0
    response = progress.ask(308, topic="T", compareGroup="h", filterGroups="g")
    assert b'"0":' in bytes(response.body)


def test_clone(progress: Any) -> None:
    offsets = progress.broker.offsets
    assert progress.ask(314, srcGroup="g", destGroup="h", topic="T", offline=False).code == 0
    assert offsets.query("h", "T", 0) == 1
    assert progress.ask(314, srcGroup="g", destGroup="i", topic="", offline=True).code == 0
    assert offsets.query("i", "T", 0) == 1
    assert progress.ask(314, srcGroup="g", destGroup="j", topic="gone").code == 0
    assert offsets.topics_of("j") == []


def test_clone_of_the_online_groups_offsets(progress: Any) -> None:
    progress.heartbeat(progress.connect(), "c", progress.consumer("g", "U"))
    progress.ask(314, srcGroup="g", destGroup="h", topic="T", offline=False)
    assert progress.broker.offsets.topics_of("h") == []
    progress.ask(314, srcGroup="g", destGroup="h", topic="T", offline=True)
    assert progress.broker.offsets.topics_of("h") == ["T"]


@pytest.mark.parametrize(
    ("timestamp", "target"), [("start", 0), ("middle", 1), ("end", 3), (-1, 3), (0, 0)]
)
def test_reset_by_time(progress: Any, timestamp: Any, target: int) -> None:
    start_ms = progress.first_ms
    named = {"start": start_ms - 1, "middle": start_ms + 500, "end": progress.now_ms + 1}
    at_ms = named.get(timestamp, timestamp)
    body = progress.json(222, topic="T", group="g", timestamp=at_ms, isForce=True)
    assert body == {"offsetTable": {key(0): target, key(1): 0}}
    offsets = progress.broker.offsets
    assert offsets.query("g", "T", 0) == target
    assert offsets.has_reset("g", "T", 0)
    assert offsets.has_reset("g", "T", 1)


def test_reset_of_one_queue_to_an_offset(progress: Any) -> None:
    fields = {"topic": "T", "group": "g", "timestamp": -1, "isForce": True, "queueId": 0}
    assert progress.json(222, **fields, offset=2) == {"offsetTable": {key(0): 2}}
    assert not progress.broker.offsets.has_reset("g", "T", 1)
    assert progress.json(222, **fields, offset=-1) == {"offsetTable": {key(0): 3}}
    assert progress.json(222, **fields) == {"offsetTable": {key(0): 3}}
    assert progress.json(222, **fields, offset=4) == {"offsetTable": {key(0): 4}}
    for offset in (5, -2):
        response = progress.ask(222, **fields, offset=offset)
        assert response.code == 1
        assert "not in consume queue range [0-3]" in response.remark
    assert progress.ask(222, **{**fields, "queueId": 2}, offset=0).code == 1


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"topic": "U"}, 17),
        ({"group": "h"}, 26),
        ({"timestamp": "soon"}, 1),
    ],
)
def test_resets_that_cannot_be(progress: Any, fields: dict[str, object], code: int) -> None:
    good = {"topic": "T", "group": "g", "timestamp": 0, "isForce": True}
    assert progress.ask(222, **{**good, **fields}).code == code


def test_no_queues_to_reset(progress: Any) -> None:
    progress.create_topic("Empty", 0)
    assert progress.ask(222, topic="Empty", group="g", timestamp=0, isForce=True).code == 1


def test_a_waiting_pull_learns_of_a_reset_at_once(progress: Any) -> None:
    peer = progress.connect()
    progress.heartbeat(peer, "c", progress.consumer("g", "T"))
    held = progress.begin(
        11,
        peer=peer,
        consumerGroup="g",
        topic="T",
        queueId=0,
        queueOffset=3,
        maxMsgNums=32,
        sysFlag=2,
        commitOffset=0,
        suspendTimeoutMillis=15_000,
        subVersion=1,
    )
    assert not held.done
    progress.ask(222, topic="T", group="g", timestamp=0, isForce=True)
    progress.broker.held_pulls.attempt_grown()
    assert held.value.code == 21
    assert held.value.fields["nextBeginOffset"] == "0"


def test_tables_a_replica_copies(progress: Any) -> None:
    text = bytes(progress.ask(43).body).decode()
    assert '"offsetTable":{"T@g":{"0":1}}' in text
    body = fastjson.loads(text)
    assert body["groupTopicMap"] == {"g": ["T"]}
    assert body["pullOffsetTable"] == {"T@g": {"0": 2}}
    assert set(body) == {"dataVersion", "groupTopicMap", "offsetTable", "pullOffsetTable"}
    assert progress.json(45) == {
        "dataVersion": {"counter": 0, "stateVersion": 0, "timestamp": 0},
        "offsetTable": {},
    }


def test_the_delay_progress_a_replica_copies(progress: Any) -> None:
    progress.send("T", DELAY="1")
    progress.world.pass_time(2_000)
    assert progress.json(45)["offsetTable"] == {}, "the delivery is not on disk"
    progress.world.pass_time(11_000)
    assert progress.json(45)["offsetTable"] == {"1": 1}
