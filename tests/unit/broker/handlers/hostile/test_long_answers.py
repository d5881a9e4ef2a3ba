"""Long responses are built in bounded steps and have the same bytes as if built at once."""

from collections.abc import Callable, Generator
from typing import Any

import pytest

from turbopump.broker.handlers import clients, json_responses
from turbopump.broker.handlers.admin import offsets as admin_offsets
from turbopump.broker.handlers.admin import topics as admin_topics
from turbopump.broker.tables import offsets
from turbopump.engine import fastjson
from turbopump.engine.disk.json_table import PIECE_ROWS
from turbopump.engine.fastjson import RawKeys
from turbopump.engine.json_steps import WRITTEN_TEXTS
from turbopump.net.wire.command import Command, new_request
from turbopump.net.wire.groups import SubscriptionGroupConfig
from turbopump.net.wire.queues import MessageQueue
from turbopump.net.wire.topics import DataVersion, TopicConfig

MANY = 3_000
MEMBERS = 300
ROWS_PER_STEP = 5 * PIECE_ROWS


class Work:
    """Counts calls, and the maximum in a single step."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
        self.count = self.most = 0
        original = getattr(owner, name)

        def counted(*values: Any, **named: Any) -> Any:
            self.count += 1
            return original(*values, **named)

        monkeypatch.setattr(owner, name, counted)


def ask(admin: Any, work: Work, code: int, **fields: object) -> tuple[Command, int]:
    """The response, and the number of steps that it took."""
    texts = {key: str(value) for key, value in fields.items()}
    request = new_request(code, fields=texts)
    before = work.count
    response = admin.world.table.dispatch(request, admin.tool, admin.now_ms)
    steps = 0
    if isinstance(response, Generator):
        while True:
            work.most, before = max(work.most, work.count - before), work.count
            try:
                next(response)
                steps += 1
            except StopIteration as done:
                response = done.value
                break
    work.most = max(work.most, work.count - before)
    assert isinstance(response, Command) and response.code == 0, response
    return response, steps


def put_topics(admin: Any, count: int = MANY, queues: int = 1) -> None:
    names = [f'topic {number * 7919 % count} "ü' for number in range(count)]
    admin.broker.topics.put_all(
        [TopicConfig(name, queues, queues, attributes={"a": "x\n\t"}) for name in names],
        admin.now_ms,
    )


def test_all_topics_are_built_once_for_all_callers(
    admin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_topics(admin)
    work = Work(monkeypatch, TopicConfig, "to_json")
    response, steps = ask(admin, work, 21)
    assert steps > MANY // ROWS_PER_STEP and work.most <= ROWS_PER_STEP
    topics = admin.broker.topics
    expected = fastjson.dumps(
        {
            "dataVersion": topics.data_version.to_json(),
            "mappingDataVersion": DataVersion(timestamp=admin.broker.started_ms).to_json(),
            "topicConfigTable": {name: one.to_json() for name, one in topics.all_topics().items()},
            "topicQueueMappingDetailMap": {},
            "topicQueueMappingInfoMap": {},
        }
    )
    assert response.body == expected.encode()
    again, steps = ask(admin, work, 21)
    assert again.body is response.body and steps == 0, "one copy for all"
    topics.put(TopicConfig("new"), admin.now_ms)
    changed, _ = ask(admin, work, 21)
    assert b'"topicName":"new"' in changed.body
    page, _ = ask(admin, work, 21, topicSeq=1, maxTopicNum=2, dataVersion="")
    assert len(fastjson.loads(page.body)["topicConfigTable"]) == 2
    assert ask(admin, work, 21)[0].body is changed.body


def test_all_groups_are_built_once_for_all_callers(
    admin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = admin.broker.groups
    groups.put_all(
        [SubscriptionGroupConfig(f"g{number * 7919 % MANY}") for number in range(MANY)],
        admin.now_ms,
    )
    groups.set_forbidden("g1", "T", 4, admin.now_ms)
    work = Work(monkeypatch, SubscriptionGroupConfig, "to_json")
    response, steps = ask(admin, work, 201)
    assert steps > MANY // ROWS_PER_STEP and work.most <= ROWS_PER_STEP
    assert response.body == fastjson.dumps(groups.to_json()).encode()
    assert ask(admin, work, 201)[0].body is response.body
    groups.set_forbidden("g1", "T", 0, admin.now_ms)
    assert ask(admin, work, 201)[0].body == fastjson.dumps(groups.to_json()).encode()


def test_an_answer_is_the_table_of_its_first_step(admin: Any) -> None:
    put_topics(admin)
    topics = admin.broker.topics
    before = {name: one.to_json() for name, one in topics.all_topics().items()}
    version = topics.data_version
    steps = admin.world.table.dispatch(new_request(21), admin.tool, admin.now_ms)
    next(steps)
    topics.delete(min(before), admin.now_ms)
    topics.put(TopicConfig("new"), admin.now_ms)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            body = fastjson.loads(done.value.body)
            break
    assert body["topicConfigTable"] == before
    assert body["dataVersion"] == version.to_json()


@pytest.mark.parametrize(("code", "field"), [(203, "consumerGroup"), (204, "producerGroup")])
def test_connections(admin: Any, monkeypatch: pytest.MonkeyPatch, code: int, field: str) -> None:
    for number in range(MEMBERS):
        admin.heartbeat(admin.connect(), f"c{number}", admin.consumer("g", "T"), producers=("g",))
    work = Work(monkeypatch, clients, "_encode_connection")
    response, steps = ask(admin, work, code, **{field: "g"})
    assert work.count == MEMBERS and work.most <= WRITTEN_TEXTS and steps > 1
    listed = fastjson.loads(response.body)["connectionSet"]
    assert [one["clientId"] for one in listed] == [f"c{number}" for number in range(MEMBERS)]
    assert response.body == fastjson.dumps(fastjson.loads(response.body)).encode()


def by_hand(admin: Any, topic: str, bean: Callable[[int], Any], queues: int) -> RawKeys:
    name = admin.broker.config.broker_name
    return RawKeys(
        (MessageQueue(topic, name, number).bean_key(), bean(number)) for number in range(queues)
    )


def test_progress_of_many_queues(admin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    admin.broker.topics.put(TopicConfig("T", MANY, MANY), admin.now_ms)
    admin.broker.groups.put(SubscriptionGroupConfig("g"), admin.now_ms)
    for queue_id in range(0, MANY, 3):
        admin.broker.offsets.commit("g", "T", queue_id, queue_id, admin.now_ms)
    work = Work(monkeypatch, admin_offsets, "waiting_since")
    bean = {
        "brokerOffset": 0,
        "delayTime": 0,
        "delayTimeKnown": True,
        "lastTimestamp": 0,
    }

    def at(number: int) -> dict[str, int]:
        offset = 0 if number % 3 else number
        return {**bean, "consumerOffset": offset, "pullOffset": offset}

    for code, fields in ((208, {"consumerGroup": "g"}), (317, {"isOrder": "false"})):
        work.count = work.most = 0
        response, steps = ask(admin, work, code, **fields)
        assert work.count == MANY and work.most <= json_responses.QUEUES_PER_STEP
        assert steps > MANY // json_responses.QUEUES_PER_STEP
        body = fastjson.loads(response.body)
        table = (
            body["offsetTable"]
            if code == 208
            else next(
                one["g"][0]["offsetTable"] for one in body["consumeStatsList"] if one.get("g")
            )
        )
        wanted = by_hand(admin, "T", at, MANY)
        assert table == dict(wanted)
        assert fastjson.dumps(wanted).encode() in response.body, "in the order of the keys' texts"


def test_statistics_of_a_topic_with_many_queues(
    admin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin.broker.topics.put(TopicConfig("T", MANY, MANY), admin.now_ms)
    work = Work(monkeypatch, admin_topics, "_queue_stats")
    response, steps = ask(admin, work, 202, topic="T")
    assert work.count == MANY and work.most <= json_responses.QUEUES_PER_STEP and steps > 10
    none = {"lastUpdateTimestamp": 0, "maxOffset": 0, "minOffset": 0}
    wanted = {"offsetTable": by_hand(admin, "T", lambda _: none, MANY), "topicPutTps": 0.0}
    assert response.body == fastjson.dumps(wanted).encode()


def test_a_table_that_cannot_fit_is_not_gathered(
    admin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group with 60,000 topics of 16 queues each took a gigabyte before it was refused."""
    put_topics(admin, queues=2)
    for name in admin.broker.topics.names():
        admin.broker.offsets.commit("g", name, 0, 1, admin.now_ms)
    admin.broker.groups.put(SubscriptionGroupConfig("g"), admin.now_ms)
    work = Work(monkeypatch, admin_offsets, "waiting_since")
    monkeypatch.setattr(json_responses, "MAX_BODY", 20_000)
    for code in (208, 317):
        work.count = 0
        response = admin.ask(code, consumerGroup="g", isOrder=False)
        assert (response.code, "does not fit" in response.remark) == (1, True)
        assert 0 < work.count < 20_000 // 100


@pytest.mark.parametrize(
    ("code", "fields"),
    [
        (208, {"consumerGroup": "g"}),
        (300, {"topic": "T"}),
        (308, {"topic": "T", "filterGroups": "", "compareGroup": "g"}),
        (314, {"srcGroup": "g", "destGroup": "h", "topic": "", "offline": "true"}),
        (317, {"isOrder": "false"}),
        (343, {"group": "g"}),
    ],
)
def test_all_offsets_are_looked_through_once_and_in_steps(
    admin: Any, monkeypatch: pytest.MonkeyPatch, code: int, fields: dict[str, str]
) -> None:
    """Request 317 searched all groups for each group, so that it did not end with many groups."""
    for number in range(MANY):
        admin.broker.offsets.commit(f"g{number}", "U", 0, 1, admin.now_ms)
        if number % 100 == 0:
            admin.broker.groups.put(SubscriptionGroupConfig(f"g{number}"), admin.now_ms)
    monkeypatch.setattr(offsets, "PAIRS_PER_STEP", 100)
    monkeypatch.setattr(offsets.OffsetTable, "topics_of", None)
    monkeypatch.setattr(offsets.OffsetTable, "groups_of", None)
    work = Work(monkeypatch, offsets.OffsetTable, "_pairs_in_steps")
    _answer, steps = ask(admin, work, code, **fields)
    assert work.count == 1
    assert steps >= MANY // 100 - 1
