"""Messages as requests: properties, compression, headers, results, refused messages."""

import zlib
from typing import Any

import pytest

from turbopump.net.client import sending
from turbopump.net.client.errors import (
    BrokerError,
    ClientError,
    InvalidArgument,
    NoWritableQueue,
    RouteNotFound,
)
from turbopump.net.client.messages import MAX_BODY_SIZE, Message, SendStatus
from turbopump.net.transport.errors import CallTimeout, ConnectError
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import Command, new_response
from turbopump.net.wire.header import read_header
from turbopump.net.wire.headers.send import RecallMessageResponse, SendMessageRequestV2
from turbopump.net.wire.message import decode_batch
from turbopump.net.wire.message_id import RecallHandle
from turbopump.net.wire.properties import decode_properties
from turbopump.net.wire.queues import MessageQueue

QUEUE = MessageQueue("T", "broker-a", 3)


def header_of(request: Command) -> SendMessageRequestV2:
    return read_header(SendMessageRequestV2, request.fields)


def test_request_carries_the_message() -> None:
    message = Message(
        "T",
        b"body",
        tags="A",
        keys=("k1", "k2"),
        properties={"x": "y"},
        delay_level=3,
        flag=-5,
        sharding_key="s",
    )
    request = sending.send_request(message, QUEUE, "pg", "ID", 77)
    header = header_of(request)
    assert (request.code, request.body, request.is_oneway) == (310, b"body", False)
    assert (header.producer_group, header.topic, header.queue_id) == ("pg", "T", 3)
    assert (header.default_topic, header.default_topic_queue_nums) == ("TBW102", 4)
    assert (header.born_timestamp, header.flag, header.sys_flag) == (77, -5, 0)
    assert (header.broker_name, header.batch, header.reconsume_times) == ("broker-a", False, 0)
    assert header.properties is not None
    assert decode_properties(header.properties) == {
        "x": "y",
        "TAGS": "A",
        "KEYS": "k1 k2",
        "DELAY": "3",
        "__SHARDINGKEY": "s",
        "UNIQ_KEY": "ID",
    }


def test_bodies_from_4096_bytes_on_are_compressed() -> None:
    small = sending.send_request(Message("T", bytes(4095)), QUEUE, "pg", "ID", 0)
    large = sending.send_request(Message("T", bytes(4096)), QUEUE, "pg", "ID", 0)
    never = sending.send_request(Message("T", bytes(4096)), QUEUE, "pg", "I", 0, compress_over=0)
    assert header_of(small).sys_flag == header_of(never).sys_flag == 0
    assert header_of(large).sys_flag == 0x301
    assert isinstance(large.body, bytes)
    assert zlib.decompress(large.body) == bytes(4096)


def test_batch_carries_every_message() -> None:
    messages = [Message("T", b"%d" % at, tags="A", flag=at) for at in range(3)]
    sending.check_batch(messages)
    request = sending.batch_request(messages, QUEUE, "pg", ["I0", "I1", "I2"], "B", 77)
    header = header_of(request)
    assert request.code == RequestCode.SEND_BATCH_MESSAGE
    assert header.batch and header.properties == "UNIQ_KEY\x01B\x02"
    assert isinstance(request.body, bytes)
    elements = list(decode_batch(request.body))
    assert [(flag, body) for flag, body, _ in elements] == [(0, b"0"), (1, b"1"), (2, b"2")]
    ids = [decode_properties(properties)["UNIQ_KEY"] for _, _, properties in elements]
    assert ids == ["I0", "I1", "I2"]


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([], "1 to 4096"),
        ([Message("T", b"x"), Message("U", b"x")], "one topic"),
        ([Message("T", b"x", delay_level=1)], "delayed"),
        ([Message("%RETRY%g", b"x")], "retry topic"),
        ([Message("T", b"x")] * 4097, "1 to 4096"),
    ],
)
def test_an_invalid_batch_is_refused(messages: list[Message], reason: str) -> None:
    with pytest.raises(InvalidArgument, match=reason):
        sending.check_batch(messages)


def test_batch_over_the_limit_is_refused() -> None:
    messages = [Message("T", bytes(MAX_BODY_SIZE // 2))] * 2
    with pytest.raises(InvalidArgument, match="exceeds 4194304"):
        sending.batch_request(messages, QUEUE, "pg", ["1", "2"], "B", 0)


def changed(**values: Any) -> Message:
    """A message that a program changed after it was made."""
    message = Message("T", b"x")
    for name, value in values.items():
        setattr(message, name, value)
    return message


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (Message("", b"x"), "topic name"),
        (Message("a.b", b"x"), "topic name"),
        (Message("T" * 128, b"x"), "1 to 127"),
        (Message("T", b""), "needs a body"),
        (Message("T", bytes(MAX_BODY_SIZE + 1)), "exceeds 4194304"),
        (changed(keys="key"), "keys are a list of texts"),
        (changed(body="text"), "bytes, not str"),
        (Message("T", b"x", keys=("",)), "keys are texts"),
        (Message("T", b"x", properties={"DELAY": "1"}), "belongs to RocketMQ"),
        (Message("T", b"x", properties={"a": ""}), "a name and a value"),
    ],
)
def test_messages_no_broker_takes_are_refused(message: Message, reason: str) -> None:
    with pytest.raises(InvalidArgument, match=reason):
        sending.check_message(message)


def test_retry_topics_may_be_longer() -> None:
    sending.check_topic("%RETRY%" + "g" * 120)
    with pytest.raises(InvalidArgument):
        sending.check_topic("%RETRY%" + "g" * 249)


def test_answer_becomes_a_result() -> None:
    fields = {"msgId": "M", "queueId": "3", "queueOffset": "12", "MSG_REGION": "R"}
    result = sending.send_result(Command(0, fields=fields), QUEUE, "ID", "a:1")
    assert (result.status, result.queue, result.queue_offset) == (SendStatus.SEND_OK, QUEUE, 12)
    assert result.to_json()["offset_message_id"] == "M"
    late = sending.send_result(Command(12, fields=fields), QUEUE, "ID", "a:1")
    assert late.status is SendStatus.FLUSH_SLAVE_TIMEOUT
    with pytest.raises(BrokerError, match="a:1 answered 13: too big"):
        sending.send_result(Command(13, remark="too big"), QUEUE, "ID", "a:1")


def test_which_failures_are_worth_another_try() -> None:
    assert sending.is_retryable(ConnectError("x"))
    assert sending.is_retryable(CallTimeout("x"))
    assert sending.is_retryable(NoWritableQueue("x"))
    assert sending.is_retryable(BrokerError(2, None, "a"))
    assert not sending.is_retryable(BrokerError(13, None, "a"))
    assert not sending.is_retryable(RouteNotFound("x"))
    assert not sending.is_retryable(ClientError("x"))


@pytest.mark.parametrize(
    ("when", "expected"),
    [({"delay_ms": 1_500}, "TIMER_DELAY_MS"), ({"deliver_at_ms": 1_500}, "TIMER_DELIVER_MS")],
)
def test_request_carries_when_it_is_due(when: dict[str, Any], expected: str) -> None:
    header = header_of(sending.send_request(Message("T", b"x", **when), QUEUE, "pg", "ID", 77))
    assert header.properties is not None
    assert decode_properties(header.properties)[expected] == "1500"


@pytest.mark.parametrize("when", [{"delay_ms": -1}, {"delay_ms": 1, "deliver_at_ms": 1}])
def test_times_that_no_message_has(when: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        sending.check_message(Message("T", b"x", **when))


def test_a_recall_goes_to_the_broker_that_its_handle_names() -> None:
    handle = RecallHandle("T", "broker-b", "1001", "ID").encode()
    request, queue = sending.recall_request(handle, "pg")
    assert (request.code, queue.topic, queue.broker_name) == (370, "T", "broker-b")
    assert (request.fields["topic"], request.fields["recallHandle"]) == ("T", handle)
    with pytest.raises(InvalidArgument, match="recall handle is invalid"):
        sending.recall_request("?", "pg")
    response = new_response(request, 0, None, RecallMessageResponse("ID"))
    assert sending.recall_result(response, "127.0.0.1:1") == "ID"
    with pytest.raises(BrokerError):
        sending.recall_result(new_response(request, 604, "no"), "127.0.0.1:1")
