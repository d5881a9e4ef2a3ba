"""The pull consumer against a running broker: positions, seeks, commits."""

import asyncio

import pytest

from turbopump.engine.types import QueueOffset
from turbopump.net.client.consuming.pull_consumer import PullConsumer, PullOptions
from turbopump.net.client.errors import ClientClosed, ClientError, RouteNotFound
from turbopump.net.client.messages import Message
from turbopump.net.client.options import ConsumeFrom
from turbopump.net.client.producer import Producer
from turbopump.net.wire.queues import MessageQueue

pytestmark = pytest.mark.integration

FIRST = PullOptions(consume_from=ConsumeFrom.FIRST)


async def fill(namesrv: str, topic: str, count: int) -> MessageQueue:
    """`count` messages in one queue."""
    async with Producer("pg", [namesrv]) as producer:
        queue = (await producer.queues(topic))[0]
        for number in range(count):
            tags = "even" if number % 2 == 0 else "odd"
            await producer.send(Message(topic, b"%d" % number, tags=tags), queue=queue)
    return queue


async def poll(consumer: PullConsumer, count: int) -> list[int]:
    """The numbers in the next messages, `count` of them or fewer after a while."""
    numbers: list[int] = []
    for _ in range(50):
        numbers += [int(message.body) for message in await consumer.poll(200)]
        if len(numbers) >= count:
            break
    return numbers


def test_poll_commit_and_go_on(namesrv: str, topic: str, name: str) -> None:
    async def scenario() -> None:
        queue = await fill(namesrv, topic, 100)
        async with PullConsumer(name, [namesrv], options=FIRST) as consumer:
            assert await consumer.committed(queue) in (None, 0)
            await consumer.assign(await consumer.queues(topic))
            assert await poll(consumer, 64) == list(range(64))
            assert consumer.position(queue) == 64
            await consumer.commit()
            assert await consumer.committed(queue) == 64
        async with PullConsumer(name, [namesrv], options=FIRST) as consumer:
            await consumer.assign([queue])
            assert await poll(consumer, 36) == list(range(64, 100))
            assert await consumer.poll(50) == []

    asyncio.run(scenario())


def test_seek(namesrv: str, topic: str, name: str) -> None:
    async def scenario() -> None:
        queue = await fill(namesrv, topic, 10)
        async with PullConsumer(name, [namesrv], options=FIRST) as consumer:
            await consumer.assign([queue])
            assert await poll(consumer, 10) == list(range(10))
            await consumer.seek(queue, QueueOffset(7))
            assert await poll(consumer, 3) == [7, 8, 9]
            await consumer.seek_to_begin(queue)
            messages = await consumer.poll(5000, max_count=5)
            assert [int(message.body) for message in messages] == [0, 1, 2, 3, 4]
            await consumer.seek_to_time(queue, messages[-1].store_timestamp_ms)
            assert (await poll(consumer, 1))[0] in (0, 1, 2, 3, 4)
            await consumer.seek_to_end(queue)
            assert await consumer.poll(50) == []
            assert consumer.position(queue) == 10
            # Beyond the end: the broker reports the end of the queue.
            await consumer.seek(queue, QueueOffset(1000))
            await fill(namesrv, topic, 1)
            assert await poll(consumer, 1) == [0]

    asyncio.run(scenario())


def test_filtered_messages_move_the_position(namesrv: str, topic: str, name: str) -> None:
    async def scenario() -> None:
        queue = await fill(namesrv, topic, 10)
        async with PullConsumer(name, [namesrv], options=FIRST) as consumer:
            await consumer.assign([queue], "even")
            assert await poll(consumer, 5) == [0, 2, 4, 6, 8]
            assert consumer.position(queue) == 10

    asyncio.run(scenario())


def test_poll_waits_for_a_message(namesrv: str, topic: str, name: str) -> None:
    async def scenario() -> None:
        async with PullConsumer(name, [namesrv]) as consumer:
            await consumer.assign(await consumer.queues(topic))
            waiting = asyncio.create_task(consumer.poll(10_000))
            await asyncio.sleep(0.1)
            await fill(namesrv, topic, 1)
            assert [message.text for message in await waiting] == ["0"]

    asyncio.run(scenario())


def test_reading_ahead_is_bounded(namesrv: str, topic: str, name: str) -> None:
    async def scenario() -> None:
        queue = await fill(namesrv, topic, 60)
        options = PullOptions(consume_from=ConsumeFrom.FIRST, buffer_messages=8, pull_batch=4)
        async with PullConsumer(name, [namesrv], options=options) as consumer:
            await consumer.assign([queue])
            await consumer.poll(5000, max_count=1)
            await asyncio.sleep(0.2)
            assert len(consumer._assigned[queue].messages) < 12
            assert await poll(consumer, 59) == list(range(1, 60))

    asyncio.run(scenario())


def test_misuse_is_one_clear_error(namesrv: str, topic: str, name: str) -> None:
    async def scenario() -> None:
        queue = MessageQueue(topic, "broker-a", 0)
        consumer = PullConsumer(name, [namesrv])
        with pytest.raises(ClientClosed):
            await consumer.poll()
        async with consumer:
            with pytest.raises(ClientError, match="not assigned"):
                await consumer.seek(queue, QueueOffset(0))
            with pytest.raises(RouteNotFound, match="nowhere"):
                await consumer.assign([MessageQueue("nowhere", "broker-a", 0)])

    asyncio.run(scenario())
