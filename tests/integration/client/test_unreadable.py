"""Messages whose body cannot be read: the messages after them are consumed all the same."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.integration.client.scripted import ScriptedBroker, record_bytes

from turbopump.engine.types import QueueOffset
from turbopump.net.client.consuming.consumer import Consumer
from turbopump.net.client.consuming.pull_consumer import PullConsumer, PullOptions
from turbopump.net.client.messages import ReceivedMessage
from turbopump.net.client.options import ConsumeFrom, ConsumerOptions, MessageModel
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_response
from turbopump.net.wire.headers.pull import PullMessageResponse
from turbopump.net.wire.queues import MessageQueue

pytestmark = pytest.mark.integration

Until = Callable[..., Awaitable[None]]
SEND_BACK = RequestCode.CONSUMER_SEND_MSG_BACK
UNKNOWN_COMPRESSION = 0x501
BODY_AT = 88


def broken(queue_offset: int) -> bytes:
    """A record with an unknown compression."""
    properties = b"UNIQ_KEY\x01U%d\x02" % queue_offset
    return record_bytes("T", queue_offset, b"x", 0, properties, UNKNOWN_COMPRESSION)


def changed(queue_offset: int) -> bytes:
    """A record whose body does not have its CRC."""
    record = bytearray(record_bytes("T", queue_offset, b"body"))
    record[BODY_AT] ^= 1
    return bytes(record)


def plain(queue_offset: int) -> bytes:
    return record_bytes("T", queue_offset, b"%d" % queue_offset)


class Queue:
    """Answers pulls of T with records of a queue; `hold` is for offsets after them."""

    def __init__(self, broker: ScriptedBroker, code: int, *records: bytes) -> None:
        self._records = records
        self._hold = broker.responses[RequestCode.PULL_MESSAGE]
        self.asked: list[int] = []
        broker.responses[code] = self._answer

    def _answer(self, request: Command) -> object:
        if request.fields["topic"] != "T":
            return self._hold(request)
        start, end = int(request.fields["queueOffset"]), len(self._records)
        self.asked.append(start)
        if start >= end:
            return self._hold(request)
        header = PullMessageResponse(0, end, 0, end)
        return new_response(request, 0, header=header, body=b"".join(self._records[start:]))


async def consume(
    broker: ScriptedBroker, until: Until, count: int, options: ConsumerOptions | None = None
) -> list[str]:
    """Messages that a consumer's handler received, once it has `count`."""
    messages: list[ReceivedMessage] = []

    async def handle(message: ReceivedMessage) -> None:
        messages.append(message)

    consumer = Consumer("g", [broker.address], options=options)
    consumer.subscribe("T")
    consumer.on_message(handle)
    await consumer.start()
    await until(lambda: len(messages) == count)
    await consumer.close()
    return [message.text for message in messages]


def commits_of(broker: ScriptedBroker) -> dict[str, str]:
    return {
        request.fields["topic"]: request.fields["commitOffset"]
        for request in broker.requests_of(RequestCode.UPDATE_CONSUMER_OFFSET)
    }


def test_an_unreadable_message_is_sent_back_unchanged(
    until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            Queue(broker, RequestCode.PULL_MESSAGE, plain(0), broken(1), plain(2))
            assert await consume(broker, until, 2) == ["0", "2"]
            [back] = broker.requests_of(SEND_BACK)
            assert (back.fields["offset"], back.fields["delayLevel"]) == ("1000", "0")
            assert back.fields["originMsgId"] == "U1"
            assert commits_of(broker)["T"] == "3"

    asyncio.run(scenario())
    assert "offset 1) cannot be read and is sent back: a body of compression type 5" in caplog.text


def test_it_is_pulled_again_while_the_broker_cannot_be_asked(until: Until) -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            queue = Queue(broker, RequestCode.PULL_MESSAGE, broken(0), broken(1), plain(2))
            backs: list[str] = []

            def back(request: Command) -> Command | None:
                backs.append(request.fields["offset"])
                if len(backs) == 2:
                    broker.peers[-1].close()
                    return None
                return new_response(request, 0)

            broker.responses[SEND_BACK] = back
            assert await consume(broker, until, 1) == ["2"]
            assert backs == ["0", "1000", "1000"], "the first one is not sent back twice"
            assert queue.asked == [0, 0, 3]

    asyncio.run(scenario())


def test_messages_the_broker_does_not_take_back_are_skipped_and_reported(
    until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            Queue(broker, RequestCode.PULL_MESSAGE, broken(0), plain(1))
            broker.fail(SEND_BACK, ResponseCode.SYSTEM_ERROR)
            assert await consume(broker, until, 1) == ["1"]
            assert not broker.requests_of(RequestCode.SEND_MESSAGE_V2), (
                "its body here is not its body"
            )

    asyncio.run(scenario())
    assert "offset 0) cannot be read and is skipped" in caplog.text


def test_a_body_that_changed_is_read_twice_and_never_stored_anew(
    until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            queue = Queue(broker, RequestCode.PULL_MESSAGE, plain(0), changed(1), plain(2))
            assert await consume(broker, until, 2) == ["0", "2"]
            assert not broker.requests_of(SEND_BACK)
            assert queue.asked == [0, 0, 3]

    asyncio.run(scenario())
    assert caplog.text.count("offset 1) cannot be read and is skipped") == 1


def test_where_nothing_is_sent_back_it_is_skipped(until: Until) -> None:
    options = ConsumerOptions(model=MessageModel.BROADCASTING, consume_from=ConsumeFrom.FIRST)

    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            broker.responses[RequestCode.GET_MIN_OFFSET] = lambda request: new_response(
                request, 0, fields={"offset": "0"}
            )
            Queue(broker, RequestCode.PULL_MESSAGE, broken(0), plain(1))
            assert await consume(broker, until, 1, options) == ["1"]
            assert not broker.requests_of(SEND_BACK)

    asyncio.run(scenario())


def test_an_answer_is_read_up_to_a_malformed_record(until: Until) -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            queue = Queue(broker, RequestCode.PULL_MESSAGE, plain(0), b"x" * 99, plain(2))
            assert await consume(broker, until, 1) == ["0"]
            assert queue.asked[:2] == [0, 1], "the queue does not continue after it in silence"

    asyncio.run(scenario())


def test_the_pull_consumer_skips_it(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            Queue(broker, RequestCode.LITE_PULL_MESSAGE, broken(0), changed(1), plain(2))
            options = PullOptions(consume_from=ConsumeFrom.FIRST)
            async with PullConsumer("g", [broker.address], options=options) as consumer:
                queue = MessageQueue("T", broker.name, 0)
                await consumer.assign([queue])
                [message] = await consumer.poll(20_000)
                assert message.text == "2"
                assert consumer.position(queue) == QueueOffset(3)

    asyncio.run(scenario())
    assert caplog.text.count("cannot be read and is skipped") == 2
