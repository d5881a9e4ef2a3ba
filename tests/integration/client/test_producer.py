"""The producer against a running broker: every way of sending, checked by the stored messages."""

import asyncio
import os

import pytest

from turbopump.net.client.admin.client import Admin
from turbopump.net.client.errors import BrokerError, ClientClosed, ClientError
from turbopump.net.client.messages import MAX_BODY_SIZE, Message, SendStatus
from turbopump.net.client.options import ProducerOptions
from turbopump.net.client.producer import Producer
from turbopump.net.transport.errors import ConnectError

pytestmark = pytest.mark.integration


def test_stored_message_has_everything_that_was_sent(namesrv: str, name: str) -> None:
    async def scenario() -> None:
        async with Producer("pg", [namesrv]) as producer, Admin([namesrv]) as admin:
            message = Message(
                name,
                "正文".encode(),
                tags="标签",
                keys=("k1", "k2"),
                flag=-7,
                properties={"名称": "值", "a": "b=c"},
            )
            result = await producer.send(message)
            stored = (await admin.query_message_by_id(name, result.offset_message_id)).message
            assert result.status is SendStatus.SEND_OK
            assert (stored.text, stored.tags, stored.keys) == ("正文", "标签", ("k1", "k2"))
            assert (stored.flag, stored.message_id) == (-7, result.message_id)
            assert stored.properties["名称"] == "值" and stored.properties["a"] == "b=c"
            assert (stored.queue, stored.queue_offset) == (result.queue, result.queue_offset)

    asyncio.run(scenario())


def test_queues_are_taken_in_turn_and_offsets_count(namesrv: str, topic: str) -> None:
    async def scenario() -> None:
        async with Producer("pg", [namesrv]) as producer:
            results = [await producer.send(Message(topic, b"x")) for _ in range(12)]
            queues = await producer.queues(topic)
            first = queues.index(results[0].queue)  # anywhere, then in turn
            assert [result.queue for result in results] == (queues[first:] + queues[:first]) * 3
            assert [result.queue_offset for result in results] == [0] * 4 + [1] * 4 + [2] * 4

    asyncio.run(scenario())


def test_batch_is_one_run_of_offsets(namesrv: str, name: str) -> None:
    async def scenario() -> None:
        async with Producer("pg", [namesrv]) as producer, Admin([namesrv]) as admin:
            await producer.send(Message(name, b"first"))
            batch = [Message(name, b"%d" % number, keys=(f"k{number}",)) for number in range(9)]
            result = await producer.send_batch(batch)
            ids = result.offset_message_id.split(",")
            stored = [
                (await admin.query_message_by_id(name, message_id)).message for message_id in ids
            ]
            assert [message.body for message in stored] == [b"%d" % at for at in range(9)]
            first = result.queue_offset
            assert [message.queue_offset for message in stored] == list(range(first, first + 9))
            assert [message.message_id for message in stored] == result.message_id.split(",")
            assert {message.queue for message in stored} == {result.queue}

    asyncio.run(scenario())


def test_large_bodies_are_compressed_and_come_back(namesrv: str, name: str) -> None:
    async def scenario() -> None:
        async with Producer("pg", [namesrv]) as producer, Admin([namesrv]) as admin:
            body = os.urandom(16) * (MAX_BODY_SIZE // 16)
            result = await producer.send(Message(name, body))
            stored = (await admin.query_message_by_id(name, result.offset_message_id)).message
            assert stored.body == body
            assert stored.store_size < 100_000

    asyncio.run(scenario())


def test_largest_body_passes_uncompressed(namesrv: str, name: str) -> None:
    async def scenario() -> None:
        options = ProducerOptions(compress_over=0, timeout_ms=10_000)
        producing = Producer("pg", [namesrv], options=options)
        async with producing as producer, Admin([namesrv]) as admin:
            body = os.urandom(MAX_BODY_SIZE)
            result = await producer.send(Message(name, body))
            stored = (await admin.query_message_by_id(name, result.offset_message_id)).message
            assert stored.body == body

    asyncio.run(scenario())


def test_sharding_key_fixes_the_queue(namesrv: str, name: str) -> None:
    async def scenario() -> None:
        async with Producer("pg", [namesrv]) as producer:
            results = [
                await producer.send(Message(name, b"x", sharding_key=key)) for key in "abcabcabc"
            ]
            queues = {}
            for key, result in zip("abcabcabc", results, strict=True):
                assert queues.setdefault(key, result.queue) == result.queue
            chosen = await producer.send(Message(name, b"x"), choose=lambda queues: queues[-1])
            assert chosen.queue.queue_id == 3

    asyncio.run(scenario())


def test_oneway_message_arrives(namesrv: str, topic: str) -> None:
    async def scenario() -> None:
        async with Producer("pg", [namesrv]) as producer, Admin([namesrv]) as admin:
            message_id = await producer.send_oneway(Message(topic, b"oneway", keys=("one",)))
            async with asyncio.timeout(60):
                while not (found := await admin.query_message_by_key(topic, "one")).messages:
                    await asyncio.sleep(0.05)
            assert [message.message_id for message in found.messages] == [message_id]

    asyncio.run(scenario())


def test_first_message_creates_the_topic(namesrv: str, name: str) -> None:
    async def scenario() -> None:
        async with Producer("pg", [namesrv]) as producer:
            results = [await producer.send(Message(name, b"x")) for _ in range(4)]
            assert sorted(result.queue.queue_id for result in results) == [0, 1, 2, 3]
            assert [result.queue_offset for result in results] == [0, 0, 0, 0]

    asyncio.run(scenario())


def test_many_sends_at_once_are_all_stored(namesrv: str, topic: str) -> None:
    async def scenario() -> None:
        async with Producer("pg", [namesrv]) as producer, Admin([namesrv]) as admin:
            await asyncio.gather(*(producer.send(Message(topic, b"x")) for _ in range(500)))
            status = await admin.topic_status(topic)
            assert [queue.max_queue_offset for queue in status.queues] == [125] * 4

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "message",
    [
        Message("a b", b"x"),
        Message("t" * 128, b"x"),
        Message("t", b""),
        Message("t", bytes(MAX_BODY_SIZE + 1)),
        Message("t", b"x", keys=("a b",)),
        Message("t", b"x", properties={"TAGS": "x"}),
        Message("t", b"x", properties={"a": "\x02"}),
        Message("t", b"x", properties={"a": "x" * 40_000}),
    ],
)
def test_messages_no_broker_takes_are_refused_at_once(namesrv: str, message: Message) -> None:
    async def scenario() -> None:
        async with Producer("pg", [namesrv]) as producer:
            with pytest.raises(ClientError):
                await producer.send(message)

    asyncio.run(scenario())


def test_refusal_of_the_broker_is_raised(namesrv: str) -> None:
    async def scenario() -> None:
        options = ProducerOptions(retries=0)
        async with Producer("pg", [namesrv], options=options) as producer:
            with pytest.raises(BrokerError, match="SCHEDULE_TOPIC_XXXX") as caught:
                await producer.send(Message("SCHEDULE_TOPIC_XXXX", b"x"))
            assert caught.value.code == 16

    asyncio.run(scenario())


def test_an_absent_server_is_one_clear_error() -> None:
    async def scenario() -> None:
        options = ProducerOptions(timeout_ms=500)
        async with Producer("pg", ["127.0.0.1:1"], options=options) as producer:
            with pytest.raises(ConnectError, match=r"127\.0\.0\.1:1"):
                await producer.send(Message("t", b"x"))
        with pytest.raises(ClientClosed):
            await producer.send(Message("t", b"x"))

    asyncio.run(scenario())
