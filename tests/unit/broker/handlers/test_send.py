"""Sends: the order of checks, the stored record, and the time of the response."""

from collections.abc import Callable
from typing import Any

import pytest

from turbopump.broker.handlers.send import SendHandler
from turbopump.broker.introspection.runtime_info import runtime_table
from turbopump.engine.deferred import Deferred
from turbopump.engine.log import group_commit
from turbopump.engine.types import LogOffset
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_request
from turbopump.net.wire.header import read_header
from turbopump.net.wire.headers.send import (
    SendMessageRequest,
    SendMessageRequestV2,
    SendMessageResponse,
)
from turbopump.net.wire.message import decode_messages, encode_batch
from turbopump.net.wire.message_id import decode_message_id
from turbopump.net.wire.properties import decode_properties, encode_properties
from turbopump.net.wire.queues import MessageQueue
from turbopump.net.wire.topics import TopicConfig
from turbopump.pyx.record import Record

V1, V2, BATCH = (
    RequestCode.SEND_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
)


def header(code: int = V2, **changed: Any) -> SendMessageRequest:
    """A send header to queue 1 of topic T, created from TBW102."""
    values: dict[str, Any] = {
        "producer_group": "PG",
        "topic": "T",
        "default_topic": "TBW102",
        "default_topic_queue_nums": 4,
        "queue_id": 1,
        "sys_flag": 0,
        "born_timestamp": 1_600_000_000_000,
        "flag": 0,
        **changed,
    }
    properties = values.get("properties")
    if isinstance(properties, dict):
        values["properties"] = encode_properties(properties).decode()
    cls = SendMessageRequest if code == V1 else SendMessageRequestV2
    return cls(**values)


def stored(world: Any, response: Command) -> Record:
    """The record a successful answer speaks of."""
    ids = read_header(SendMessageResponse, response.fields).msg_id
    record = world.broker.store.record(decode_message_id(ids.split(",")[0])[1])
    assert record is not None
    return record


def element(body: bytes, properties: bytes = b"", flag: int = 0) -> bytes:
    """A message of a batch body."""
    return encode_batch([(flag, body, properties)])


@pytest.mark.parametrize("code", [V1, V2])
def test_send_creates_the_topic_stores_and_answers(world: Any, code: int) -> None:
    sent = header(code, flag=-7, properties={"KEYS": "k1", "TAGS": "a", "UNIQ_KEY": "U" * 32})
    response = world.ask(code, sent, b"hello")
    assert response.code == ResponseCode.SUCCESS
    assert response.remark is None
    assert response.fields["MSG_REGION"] == "DefaultRegion"
    assert response.fields["TRACE_ON"] == "true"
    back = read_header(SendMessageResponse, response.fields)
    assert (back.queue_id, back.queue_offset, back.transaction_id) == (1, 0, "U" * 32)
    record = stored(world, response)
    assert back.msg_id.startswith("7F00000100002A9F")
    assert (record.topic, record.body, record.queue_id) == (b"T", b"hello", 1)
    assert (record.flag, record.sys_flag, record.reconsume_times) == (-7, 0, 0)
    assert record.born_host == world.client.host
    assert record.born_timestamp_ms == 1_600_000_000_000
    assert record.store_timestamp_ms == world.now_ms
    assert decode_properties(record.properties) == {
        "KEYS": "k1",
        "TAGS": "a",
        "UNIQ_KEY": "U" * 32,
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
        "CLUSTER": "DefaultCluster",
    }
    topic = world.broker.topics.get("T")
    assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (4, 4, 6)
    saved = world.files.load("topics.json")
    assert "T" in saved["topicConfigTable"]


def test_missing_unique_key_is_made_and_pop_check_point_dropped(world: Any) -> None:
    response = world.ask(V2, header(properties={"POP_CK": "x", "A": "b"}), b"1")
    properties = decode_properties(stored(world, response).properties)
    assert "POP_CK" not in properties
    assert len(properties["UNIQ_KEY"]) == 32
    assert response.fields["transactionId"] == properties["UNIQ_KEY"]


def test_queue_below_zero_is_chosen_by_the_broker(world: Any) -> None:
    queues = {int(world.ask(V2, header(queue_id=-1), b"x").fields["queueId"]) for _ in range(64)}
    assert queues == {0, 1, 2, 3}


def test_answer_to_a_one_way_send_is_left_to_the_transport(world: Any) -> None:
    request = new_request(V2, header(), b"x", oneway=True)
    world.dispatch(request)
    assert world.broker.store.max_queue_offset("T", 1) == 1


CHECKS: list[tuple[str, dict[str, Any], bytes, int, str]] = [
    ("", {}, b"", 1, "no body"),
    (
        "startAcceptSendRequestTimeStamp=9999999999999\n",
        {},
        b"x",
        1,
        "broker unable to service, until",
    ),
    ("", {"topic": " "}, b"x", 29, "The specified topic is blank."),
    (
        "",
        {"topic": "bad topic!"},
        b"x",
        29,
        "The specified topic: bad topic!, contains illegal characters, allowing only "
        "^[%|a-zA-Z0-9_-]+$",
    ),
    ("", {"topic": "T" * 128}, b"x", 29, "is longer than topic max length: 127"),
    ("", {"topic": "%RETRY%" + "g" * 249}, b"x", 29, "topic max length: 255"),
    (
        "",
        {"topic": "SCHEDULE_TOPIC_XXXX"},
        b"x",
        16,
        "Sending message to topic[SCHEDULE_TOPIC_XXXX] is forbidden.",
    ),
    ("", {"topic": "SELF_TEST_TOPIC"}, b"x", 16, "is forbidden."),
    ("", {"default_topic": "Missing"}, b"x", 17, "topic[T] not exist, apply first please!\nSee "),
    ("autoCreateTopicEnable=false\n", {}, b"x", 17, "topic[T] not exist"),
    (
        "",
        {"queue_id": 99},
        b"x",
        29,
        "request queueId[99] is illegal, TopicConfig [topicName=T, readQueueNums=4, "
        "writeQueueNums=4, perm=RW-, topicFilterType=SINGLE_TAG, topicSysFlag=0, order=false, "
        "attributes={}] Producer: 127.0.0.1:",
    ),
    (
        "rejectTransactionMessage=true\n",
        {"properties": {"TRAN_MSG": "true"}},
        b"x",
        16,
        "transaction message is forbidden",
    ),
    (
        "timerWheelEnable=false\n",
        {"properties": {"TIMER_DELAY_SEC": "9"}},
        b"x",
        1,
        "timerWheelEnable is false",
    ),
    ("", {"properties": {"TIMER_DELAY_SEC": "soon"}}, b"x", 13, "timer message illegal"),
    ("", {"properties": {"DELAY": "soon"}}, b"x", 13, "the message is illegal"),
    ("", {"properties": {"INNER_NUM": "2"}}, b"x", 13, "the message is illegal"),
    ("", {"sys_flag": 0x80}, b"x", 13, "the message is illegal"),
    ("", {"topic": "%DLQ%" + "g" * 130}, b"x", 13, "the message is illegal"),
    ("", {"topic": "%RETRY%" + "g" * 121}, b"x", 26, "subscription group not exist"),
    (
        "autoCreateSubscriptionGroup=false\n",
        {"topic": "%RETRY%G", "queue_id": 0},
        b"x",
        26,
        "subscription group not exist, G",
    ),
    ("", {"batch": True, "topic": "%RETRY%G", "queue_id": 0}, b"x", 13, "retry group %RETRY%G"),
    ("", {"batch": True, "properties": {"DELAY": "1"}}, element(b"x"), 13, "is illegal"),
    ("", {"batch": True, "sys_flag": 4}, element(b"x"), 13, "the message is illegal"),
    ("", {"batch": True}, b"junk", 13, "the message is illegal"),
    ("", {"batch": True}, element(b"x") + b"\xff" * 4 + element(b"x")[4:], 13, "is illegal"),
    ("", {"batch": True}, b"\x40\0\0\0" + element(b"x")[4:], 13, "the message is illegal"),
]


@pytest.mark.parametrize(("properties", "changed", "body", "code", "remark"), CHECKS)
def test_refused_with_the_documented_answer(
    make_world: Callable[..., Any],
    properties: str,
    changed: dict[str, Any],
    body: bytes,
    code: int,
    remark: str,
) -> None:
    world = make_world(properties)
    before = world.broker.store.max_log_offset
    response = world.ask(V2, header(**changed), body)
    assert (response.code, remark in (response.remark or "")) == (code, True), response.remark
    assert response.fields["MSG_REGION"] == "DefaultRegion"
    assert response.fields["TRACE_ON"] == "true"
    assert world.broker.store.max_log_offset == before


def test_read_only_broker_refuses_order_topics_only(make_world: Callable[..., Any]) -> None:
    world = make_world("brokerPermission=4\n")
    world.broker.topics.put(TopicConfig("Ordered", order=True), world.now_ms)
    refused = world.ask(V2, header(topic="Ordered"), b"x")
    assert refused.code == ResponseCode.NO_PERMISSION
    assert refused.remark == "the broker[127.0.0.1] sending message is forbidden"
    assert world.ask(V2, header(), b"x").code == ResponseCode.SUCCESS


def test_bad_header_is_a_system_error(world: Any) -> None:
    request = new_request(V2, header(), b"x")
    del request.fields["e"]
    response = world.dispatch(request)
    assert response.code == ResponseCode.SYSTEM_ERROR
    assert "<e>" in response.remark


def test_body_of_4_mib_is_stored_and_one_byte_more_refused(world: Any) -> None:
    limit = 4 << 20
    assert world.ask(V2, header(), bytes(limit)).code == ResponseCode.SUCCESS
    refused = world.ask(V2, header(), bytes(limit + 1))
    assert refused.code == ResponseCode.MESSAGE_ILLEGAL
    assert refused.remark == (
        "the message is illegal, maybe msg body or properties length not matched."
        " msg body length limit 4194304B, msg properties length limit 32KB."
    )


def test_properties_over_their_limit(world: Any) -> None:
    response = world.ask(V2, header(properties={"long": "x" * 32_767}), b"x")
    assert response.code == ResponseCode.MESSAGE_ILLEGAL


def test_multi_tag_topic_marks_its_messages(world: Any) -> None:
    world.broker.topics.put(TopicConfig("M", topic_filter_type="MULTI_TAG"), world.now_ms)
    assert stored(world, world.ask(V2, header(topic="M"), b"x")).sys_flag == 2


def test_compaction_topic_of_another_broker_takes_nothing(world: Any) -> None:
    attributes = {"cleanup.policy": "COMPACTION"}
    world.broker.topics.put(TopicConfig("C", attributes=attributes), world.now_ms)
    for properties in ({}, {"KEYS": "k"}):
        refused = world.ask(V2, header(topic="C", properties=properties), b"x")
        assert refused.code == ResponseCode.NO_PERMISSION
        assert "enableCompaction is false" in refused.remark
    assert world.broker.store.max_log_offset == 0


@pytest.mark.parametrize("value", ["%LMQ%a", "%LMQ%a,%LMQ%b", "Other"])
def test_light_queues_are_refused(world: Any, value: str) -> None:
    asked = {"INNER_MULTI_DISPATCH": value}
    remark = "light message queues are not enabled, enableLmq is false"
    refused = world.ask(V2, header(properties=asked), b"x")
    assert (refused.code, refused.remark) == (1, remark)
    batch = encode_batch([(0, b"a", b""), (0, b"b", encode_properties(asked))])
    refused = world.ask(V2, header(batch=True), batch)
    assert (refused.code, refused.remark) == (1, remark)
    refused = world.ask(V2, header(batch=True, properties=asked), encode_batch([(0, b"a", b"")]))
    assert (refused.code, refused.remark) == (1, remark)
    assert world.broker.store.max_log_offset == 0


def test_a_message_that_only_names_light_queues_is_stored(world: Any) -> None:
    batch = encode_batch([(0, b"INNER_MULTI_DISPATCH\x01a\x02", b"")])
    assert world.ask(V2, header(batch=True), batch).code == 0
    blank = {"INNER_MULTI_DISPATCH": " "}
    assert world.ask(V2, header(properties=blank), b"x").code == 0


def test_delayed_message_waits_in_its_level(world: Any) -> None:
    properties = {"DELAY": "3", "TIMER_DELAY_SEC": "5"}
    response = world.ask(V2, header(properties=properties), b"later")
    assert response.code == ResponseCode.SUCCESS
    assert response.fields["queueId"] == "1"
    record = stored(world, response)
    assert (record.topic, record.queue_id) == (b"SCHEDULE_TOPIC_XXXX", 2)
    kept = decode_properties(record.properties)
    assert (kept["REAL_TOPIC"], kept["REAL_QID"], kept["DELAY"]) == ("T", "1", "3")
    assert "TIMER_DELAY_SEC" not in kept
    assert world.broker.store.max_queue_offset("T", 1) == 0


def test_level_above_the_highest_is_the_highest(world: Any) -> None:
    response = world.ask(V2, header(properties={"DELAY": "99"}), b"later")
    assert stored(world, response).queue_id == 17


def test_retry_beyond_the_limit_is_a_dead_letter(world: Any) -> None:
    retry = {"topic": "%RETRY%G", "queue_id": 0, "properties": {"DELAY": "3"}}
    allowed = world.ask(V2, header(**retry, reconsume_times=16), b"x")
    assert stored(world, allowed).topic == b"SCHEDULE_TOPIC_XXXX"
    dead = stored(world, world.ask(V2, header(**retry, reconsume_times=17), b"x"))
    assert (dead.topic, dead.queue_id, dead.reconsume_times) == (b"%DLQ%G", 0, 17)
    assert decode_properties(dead.properties)["DELAY"] == "-1"
    own_limit = header(**retry, reconsume_times=3, max_reconsume_times=2)
    assert stored(world, world.ask(V2, own_limit, b"x")).topic == b"%DLQ%G"
    assert world.broker.topics.get("%DLQ%G").perm == 6


def test_retry_of_a_group_that_consumes_in_order_is_a_dead_letter(world: Any) -> None:
    queue = MessageQueue("T", "broker-a", 0)
    world.broker.locks.lock("G", "client", [queue], world.now_ms)
    response = world.ask(V2, header(topic="%RETRY%G", queue_id=0), b"x")
    assert stored(world, response).topic == b"%DLQ%G"


def test_retry_of_a_transaction_message_is_no_half_message(world: Any) -> None:
    properties = {"TRAN_MSG": "true", "DELAY": "1"}
    sent = header(
        topic="%RETRY%G", queue_id=0, sys_flag=4, reconsume_times=1, properties=properties
    )
    record = stored(world, world.ask(V2, sent, b"x"))
    assert record.sys_flag == 0
    assert record.topic == b"SCHEDULE_TOPIC_XXXX"


def test_batch_is_stored_as_records_with_their_own_properties(world: Any) -> None:
    body = element(b"one", b"KEYS\x01k\x02") + element(b"two", flag=5) + element(b"")
    response = world.ask(BATCH, header(batch=True, properties={"UNIQ_KEY": "B"}), body)
    assert response.code == ResponseCode.SUCCESS
    back = read_header(SendMessageResponse, response.fields)
    assert (back.queue_id, back.queue_offset, back.transaction_id) == (1, 0, "B")
    offsets = [decode_message_id(one)[1] for one in back.msg_id.split(",")]
    records = [world.broker.store.record(LogOffset(one)) for one in offsets]
    assert [record.body for record in records] == [b"one", b"two", b""]
    assert [record.queue_offset for record in records] == [0, 1, 2]
    assert [record.flag for record in records] == [0, 5, 0]
    assert decode_properties(records[0].properties) == {"KEYS": "k"}
    assert records[1].properties == b""


def test_single_send_code_with_the_batch_mark_is_a_batch(world: Any) -> None:
    response = world.ask(V1, header(V1, batch=True), element(b"a") + element(b"b"))
    assert response.fields["msgId"].count(",") == 1


def test_batch_topic_keeps_a_batch_in_one_record(world: Any) -> None:
    attributes = {"queue.type": "BatchCQ"}
    world.broker.topics.put(TopicConfig("B", attributes=attributes), world.now_ms)
    body = element(b"one") + element(b"two")
    batch = header(topic="B", batch=True, properties={"UNIQ_KEY": "K"})
    responses = [world.ask(BATCH, batch, body) for _ in range(2)]
    assert [one.fields["batchUniqId"] for one in responses] == ["K", "K"]
    assert [one.fields["queueOffset"] for one in responses] == ["0", "2"]
    record = stored(world, responses[1])
    assert record.body == body
    assert record.sys_flag & 0xC0 == 0xC0
    properties = decode_properties(record.properties)
    assert (properties["INNER_NUM"], properties["INNER_BASE"]) == ("2", "2")
    ids = read_header(SendMessageResponse, responses[1].fields).msg_id
    view = world.broker.store.record_view(decode_message_id(ids)[1])
    assert [bytes(one.body) for one in decode_messages(view)] == [b"one", b"two"]
    for junk in (b"junk", body[:-4], b"\xff" * 4 + body[4:]):
        refused = world.ask(BATCH, batch, junk)
        assert refused.code == ResponseCode.MESSAGE_ILLEGAL


def test_sync_flush_answers_after_the_group_commit(make_world: Callable[..., Any]) -> None:
    world = make_world("flushDiskType=SYNC_FLUSH\n")
    world.disk.hold()
    first = world.dispatch(new_request(V2, header(), b"a"))
    second = world.dispatch(new_request(V2, header(), b"b"))
    assert isinstance(first, Deferred)
    assert not first.done
    assert world.broker.store.max_queue_offset("T", 1) == 0
    world.disk.release()
    assert [one.value.code for one in (first, second)] == [0, 0]
    assert [one.value.fields["queueOffset"] for one in (first, second)] == ["0", "1"]
    assert world.broker.store.max_queue_offset("T", 1) == 2


def test_sync_flush_does_not_delay_senders_that_do_not_wait(
    make_world: Callable[..., Any],
) -> None:
    world = make_world("flushDiskType=SYNC_FLUSH\n")
    world.disk.hold()
    response = world.dispatch(new_request(V2, header(properties={"WAIT": "false"}), b"a"))
    assert isinstance(response, Command)
    assert response.code == ResponseCode.SUCCESS


def test_flush_that_takes_too_long_is_told(make_world: Callable[..., Any]) -> None:
    world = make_world("flushDiskType=SYNC_FLUSH\nsyncFlushTimeout=1000\n")
    world.disk.hold()
    response = world.dispatch(new_request(V2, header(), b"a"))
    world.pass_time(1_100)
    assert response.done
    assert response.value.code == ResponseCode.FLUSH_DISK_TIMEOUT
    assert response.value.fields["queueOffset"] == "0"


def test_too_many_waiting_sends_are_told_to_come_back(make_world: Callable[..., Any]) -> None:
    world = make_world("flushDiskType=SYNC_FLUSH\n")
    world.disk.hold()
    send = SendHandler(world.broker, max_waiting=2)

    def ask() -> Command | Deferred[Command | None]:
        return send(new_request(V2, header(), b"a"), world.client, world.now_ms)

    waiting = [ask(), ask()]
    refused = ask()
    assert isinstance(refused, Command)
    assert refused.code == ResponseCode.SYSTEM_BUSY
    assert refused.remark == "[OVERLOAD]system busy, start flow control for a while"
    world.disk.release()
    assert all(isinstance(one, Deferred) and one.done for one in waiting)
    free = ask()
    assert isinstance(free, Command)
    assert free.code == ResponseCode.SUCCESS


def test_a_disk_that_does_not_keep_up_is_busy(world: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(group_commit, "UNFLUSHED_MAX", 1000)
    world.disk.hold()
    codes = [world.ask(V2, header(), b"x" * 300).code for _ in range(6)]
    assert codes == [ResponseCode.SUCCESS] * 3 + [ResponseCode.SYSTEM_BUSY] * 3
    response = world.ask(V2, header(), b"x")
    assert response.remark == "[PC_SYNCHRONIZED]broker busy, start flow control for a while"
    world.disk.release()
    assert world.ask(V2, header(), b"x").code == ResponseCode.SUCCESS


def test_closed_store_is_not_available(world: Any) -> None:
    world.ask(V2, header(), b"x")
    world.broker.store.close(world.now_ms)
    response = world.ask(V2, header(), b"x")
    assert response.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert (response.remark or "").startswith("service not available now.")


def test_a_damaged_log_takes_no_sends_and_says_where(world: Any) -> None:
    first = world.ask(V2, header(), b"x" * 100)
    log_offset = int(first.fields["msgId"][16:], 16)
    store = world.broker.store
    region = store._log.file_region(0)
    region.write(log_offset + 90, b"y")
    assert store.read("T", int(first.fields["queueId"]), 0, 1).count == 0
    response = world.ask(V2, header(), b"x")
    assert response.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert f"is damaged at byte {log_offset}: the body does not" in response.remark
    assert runtime_table(world.broker, world.now_ms)["commitLogDamage"] == str(store.damage)


def test_a_topic_that_cannot_be_saved_is_said_and_saved_later(world: Any, monkeypatch: Any) -> None:
    def full(name: str, pieces: object) -> None:
        raise OSError(28, "No space left on device", "/srv/store/config/topics.json.tmp")

    monkeypatch.setattr(world.files, "append", full)
    monkeypatch.setattr(world.files, "replace", full)
    response = world.ask(V2, header(), b"x")
    assert response.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert response.remark == "the change is not saved: No space left on device"
    assert "T" not in world.files.load("topics.json")["topicConfigTable"]
    monkeypatch.undo()
    world.broker.saver.tick()
    assert "T" in world.files.load("topics.json")["topicConfigTable"]
    assert world.ask(V2, header(), b"x").code == ResponseCode.SUCCESS


def test_an_answer_waits_for_the_topic_it_made(world: Any) -> None:
    world.config_disk.hold()
    first = world.dispatch(new_request(V2, header(), b"x"))
    second = world.dispatch(new_request(V2, header(topic="U"), b"x"))
    other = world.dispatch(new_request(V2, header(), b"x"))
    assert not first.done
    assert not second.done
    assert not other.done, "safe in a topic that a crash would take away"
    assert world.ask(V2, header(topic="TBW102"), b"x").code == ResponseCode.SUCCESS
    world.config_disk.release()
    assert [later.value.code for later in (first, second, other)] == [0, 0, 0]
    assert world.ask(V2, header(), b"x").code == ResponseCode.SUCCESS
    assert {"T", "U"} <= world.files.load("topics.json")["topicConfigTable"].keys()
