"""Admin requests on topics (remoting.md 16.2)."""

from typing import Any

import pytest

from turbopump.broker.traffic.put_message import Draft
from turbopump.broker.traffic.role import Put
from turbopump.engine.deferred import Deferred
from turbopump.engine.disk.real_files import RealFiles
from turbopump.engine.types import PutStatus
from turbopump.net.wire.queues import MessageQueue

PLAIN = {
    "attributes": {},
    "order": False,
    "perm": 6,
    "readQueueNums": 2,
    "topicFilterType": "SINGLE_TAG",
    "topicName": "T",
    "topicSysFlag": 0,
    "writeQueueNums": 2,
}


def test_create_and_describe(admin: Any) -> None:
    assert admin.create_topic("T").code == 0
    assert admin.json(351, topic="T", lo=True) == PLAIN
    assert admin.registered == [["T"]]
    saved = admin.world.files.load("topics.json")
    assert saved["topicConfigTable"]["T"] == PLAIN


def test_the_answer_waits_for_the_name_servers(admin: Any) -> None:
    result: Deferred[None] = Deferred()
    admin.broker.register_topics = lambda names: result
    fields = {
        "topic": "T",
        "readQueueNums": 2,
        "writeQueueNums": 2,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
    }
    response = admin.begin(17, **fields)
    assert isinstance(response, Deferred)
    assert not response.done
    result.resolve(None)
    assert response.value.code == 0


def test_an_identical_topic_changes_nothing(admin: Any) -> None:
    admin.create_topic("T")
    version = admin.broker.topics.data_version
    assert admin.create_topic("T").code == 0
    assert admin.broker.topics.data_version == version
    assert admin.create_topic("T", 3).code == 0
    assert admin.broker.topics.data_version != version
    assert admin.registered == [["T"], ["T"]]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"topic": ""}, 29),
        ({"topic": "no blanks"}, 29),
        ({"topic": "x" * 128}, 29),
        ({"topic": "SELF_TEST_TOPIC"}, 29),
        ({"topic": "rmq_sys_mine"}, 29),
        ({"topic": "broker-a"}, 29),
        ({"topic": "DefaultCluster"}, 29),
        ({"readQueueNums": -1}, 29),
        ({"writeQueueNums": 65_537}, 29),
        ({"perm": 16}, 29),
        ({"perm": -1}, 29),
        ({"topicFilterType": "NO_TAG"}, 29),
        ({"attributes": "+message.type=MIXED"}, 29),
        ({"attributes": "+cleanup.policy=COMPACTION"}, 29),
        ({"attributes": "+message.type=PRIORITY"}, 29),
        ({"attributes": "+message.type=NONE"}, 1),
        ({"attributes": "message.type"}, 1),
        ({"perm": "all"}, 1),
        ({"readQueueNums": ""}, 1),
    ],
)
def test_topics_that_cannot_be(admin: Any, fields: dict[str, object], code: int) -> None:
    name = str(fields.get("topic", "T"))
    before = admin.broker.topics.get(name)
    response = admin.create_topic(name, **{k: v for k, v in fields.items() if k != "topic"})
    assert response.code == code
    assert response.remark
    assert admin.broker.topics.get(name) is before
    assert admin.registered == []


@pytest.mark.parametrize("kind", ["LITE", "FIFO"])
def test_types_of_messages_are_kept(admin: Any, kind: str) -> None:
    text = f"+message.type={kind},+lite.topic.expiration=60"
    assert admin.create_topic("T", attributes=text).code == 0
    kept = {"message.type": kind, "lite.topic.expiration": "60"}
    assert admin.broker.topics.get("T").attributes == kept


def test_system_topics_may_change_where_the_check_is_off(make_admin: Any) -> None:
    admin = make_admin("validateSystemTopicWhenUpdateTopic=false\n")
    assert admin.create_topic("SELF_TEST_TOPIC", 4).code == 0


def test_attributes_of_a_topic(admin: Any) -> None:
    admin.create_topic("T", attributes="+message.type=FIFO,+queue.type=SimpleCQ")
    assert admin.json(351, topic="T")["attributes"] == {
        "message.type": "FIFO",
        "queue.type": "SimpleCQ",
    }
    response = admin.create_topic("T", attributes="+queue.type=BatchCQ")
    assert response.code == 1
    assert "unchangeable" in response.remark
    admin.create_topic("T", attributes="-message.type")
    assert admin.json(351, topic="T")["attributes"] == {"queue.type": "SimpleCQ"}


def test_a_list_of_topics_is_made_whole_or_not(admin: Any) -> None:
    other = {**PLAIN, "topicName": "U", "readQueueNums": 1}
    assert admin.ask(18, {"topicConfigList": [PLAIN, other]}).code == 0
    assert admin.registered == [["T", "U"]]
    assert admin.json(351, topic="U") == other
    third, bad = {**PLAIN, "topicName": "V"}, {**PLAIN, "topicName": "no blanks"}
    assert admin.ask(18, {"topicConfigList": [third, bad]}).code == 29
    marked = {**PLAIN, "topicName": "W", "attributes": {"message.type": "FIFO"}}
    assert admin.ask(18, {"topicConfigList": [third, marked]}).code == 1
    assert admin.ask(18, {"topicConfigList": 1}).code == 1
    assert admin.broker.topics.get("V") is None
    assert admin.ask(18, {"topicConfigList": []}).code == 0


def test_a_full_table_takes_no_more(admin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    admin.create_topic("T")
    known = len(admin.broker.topics.all_topics())
    monkeypatch.setattr("turbopump.broker.handlers.admin.topics.MAX_TOPICS", known)
    assert admin.create_topic("U").code == 1
    assert admin.create_topic("T", 4).code == 0


def test_delete(admin: Any) -> None:
    admin.create_topic("T")
    admin.send("T")
    admin.broker.offsets.commit("g", "T", 0, 1, admin.now_ms)
    for name in ("%RETRY%g_T", "%RETRY%g+T", "%RETRY%g"):
        admin.broker.topics.create_internal(name, 1, 6, admin.now_ms)
    assert admin.ask(215, topic="T").code == 0
    assert admin.ask(351, topic="T").code == 17
    assert admin.broker.store.topics() == []
    assert admin.broker.offsets.groups_of("T") == []
    assert admin.broker.topics.get("%RETRY%g_T") is None
    assert admin.broker.topics.get("%RETRY%g+T") is None
    assert admin.broker.topics.get("%RETRY%g") is not None
    assert admin.ask(215, topic="T").code == 0


def test_a_deletion_is_answered_when_it_is_durable(admin: Any) -> None:
    """Until the deletion is durable, neither a handler nor the fast path accepts messages for the
    topic."""
    admin.create_topic("T")
    admin.send("T")
    world = admin.world
    plain_no_more: list[str] = []
    admin.broker.topics.on_replace = plain_no_more.extend
    world.disk.hold()
    world.config_disk.hold()
    response = admin.begin(215, topic="T")
    assert isinstance(response, Deferred)
    assert plain_no_more == ["T"]
    draft = Draft("T", 0, b"late", {}, 0, 0, admin.now_ms, bytes(8))
    refused = admin.broker.writer.put(draft, admin.now_ms)
    assert isinstance(refused, Put)
    assert refused.appended.status is PutStatus.SERVICE_NOT_AVAILABLE
    assert admin.broker.topics.get("T") is not None, "its queues are there"
    world.disk.release()
    assert admin.broker.store.topics() == []
    assert admin.broker.topics.get("T") is None
    assert not response.done, "the table without it is not durable"
    world.config_disk.release()
    assert response.value.code == 0
    assert "T" not in world.files.load("topics.json")["topicConfigTable"]


def test_a_deletion_that_fails_keeps_the_topic(admin: Any) -> None:
    admin.create_topic("T")
    admin.send("T")
    before = RealFiles.remove_folder

    def fails(_files: RealFiles, path: str) -> None:
        raise OSError(5, "Input/output error", path)

    RealFiles.remove_folder = fails  # type: ignore[method-assign]
    try:
        response = admin.ask(215, topic="T")
    finally:
        RealFiles.remove_folder = before  # type: ignore[method-assign]
    assert response.code == 1
    assert "Input/output error" in response.remark
    assert admin.broker.topics.get("T") is not None
    assert admin.ask(215, topic="T").code == 0
    assert admin.broker.topics.get("T") is None


@pytest.mark.parametrize("topic", ["", " ", "SELF_TEST_TOPIC", "rmq_sys_x", "DefaultCluster"])
def test_topics_that_cannot_go(admin: Any, topic: str) -> None:
    response = admin.ask(215, topic=topic)
    assert (response.code, admin.ask(215).code) == (29, 29)


def test_status(admin: Any) -> None:
    admin.create_topic("T", 2, writeQueueNums=1)
    admin.send("T")
    admin.world.now_ms += 5
    admin.send("T")
    body = admin.json(202, topic="T")
    keys = [MessageQueue("T", "broker-a", number).bean_key() for number in range(2)]
    assert body["offsetTable"] == {
        keys[0]: {"lastUpdateTimestamp": admin.now_ms, "maxOffset": 2, "minOffset": 0},
        keys[1]: {"lastUpdateTimestamp": 0, "maxOffset": 0, "minOffset": 0},
    }
    assert body["topicPutTps"] == 0.0
    response = admin.ask(202, topic="U")
    assert (response.code, response.remark) == (17, "topic[U] not exist")


def test_status_shows_the_rate_of_the_last_minute(admin: Any) -> None:
    for _ in range(3):
        stored = admin.broker.store.statistics
        admin.broker.statistics.set_put_totals(stored.put_count_by_topic, stored.put_size_by_topic)
        admin.broker.statistics.sample(admin.now_ms)
        for _ in range(5):
            admin.send("T")
        admin.world.now_ms += 10_000
    assert admin.json(202, topic="T")["topicPutTps"] == 0.5


def test_an_unknown_topic_has_no_configuration(admin: Any) -> None:
    response = admin.ask(351, topic="U", lo=True)
    assert (response.code, response.remark) == (17, "No topic in this broker. topic: U")


def test_the_whole_table(admin: Any) -> None:
    admin.create_topic("T")
    response = admin.ask(21)
    names = admin.broker.topics.all_topics()
    assert response.fields == {"totalTopicNum": str(len(names))}
    body = admin.json(21)
    assert body["topicConfigTable"]["T"] == PLAIN
    assert body["topicConfigTable"].keys() == names.keys()
    assert body["dataVersion"] == admin.broker.topics.data_version.to_json()
    assert body["topicQueueMappingDetailMap"] == body["topicQueueMappingInfoMap"] == {}


def test_the_table_in_pages(admin: Any) -> None:
    everything = sorted(admin.broker.topics.all_topics())
    found: list[str] = []
    version = ""
    while len(found) < len(everything):
        body = admin.json(21, topicSeq=len(found), dataVersion=version, maxTopicNum=5)
        version = str(body["dataVersion"]).replace("'", '"')
        assert 0 < len(body["topicConfigTable"]) <= 5
        found += body["topicConfigTable"]
    assert found == everything


@pytest.mark.parametrize("version", ['{"counter":99}', "nonsense"])
def test_a_page_of_an_older_table_begins_again(admin: Any, version: str) -> None:
    body = admin.json(21, topicSeq=5, dataVersion=version, maxTopicNum=3)
    assert list(body["topicConfigTable"]) == sorted(admin.broker.topics.all_topics())[:3]


@pytest.mark.parametrize(("first", "limit", "count"), [(0, 0, None), (-1, 1, 1), (9999, 5, 0)])
def test_odd_pages(admin: Any, first: int, limit: int, count: int | None) -> None:
    body = admin.json(21, topicSeq=first, dataVersion="", maxTopicNum=limit)
    expected = len(admin.broker.topics.all_topics()) if count is None else count
    assert len(body["topicConfigTable"]) == expected


def test_an_answer_that_fits_into_no_frame_says_so(
    admin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turbopump.broker.handlers.json_responses.MAX_BODY", 100)
    response = admin.ask(21)
    assert response.code == 1
    assert "does not fit" in response.remark


def test_system_topics(admin: Any) -> None:
    listed = admin.json(305)["topicList"]
    assert {"TBW102", "SCHEDULE_TOPIC_XXXX", "broker-a", "DefaultCluster"} <= set(listed)
    assert listed == sorted(listed)


def test_the_consumers_of_a_topic(admin: Any) -> None:
    admin.heartbeat(admin.connect(), "c", admin.consumer("online", "T"))
    admin.broker.offsets.commit("stored", "T", 0, 1, admin.now_ms)
    admin.broker.offsets.commit("online", "T", 0, 1, admin.now_ms)
    assert admin.json(300, topic="T") == {"groupList": ["online", "stored"]}
    assert admin.json(300, topic="U") == {"groupList": []}


def test_queues_of_forgotten_topics_are_cleaned(admin: Any) -> None:
    for topic in ("T", "U", "SELF_TEST_TOPIC"):
        admin.create_topic(topic)
    admin.send("T")
    admin.send("U")
    admin.broker.topics.delete("U", admin.now_ms)
    admin.world.disk.hold()
    response = admin.begin(316)
    assert isinstance(response, Deferred)
    assert not response.done
    admin.world.disk.release()
    assert response.value.code == 0
    assert admin.broker.store.topics() == ["T"]


@pytest.mark.parametrize("code", [306, 329])
def test_cleaning_by_hand_leaves_young_files(admin: Any, code: int) -> None:
    admin.send("T")
    assert admin.ask(code).code == 0
    assert admin.broker.store.max_queue_offset("T", 0) == 1
    assert admin.broker.store.record_view(0) is not None
