"""The simple consumer against a running broker: receive, acknowledge, change the time."""

import asyncio
import time

import pytest

from turbopump.net.client.consuming.simple_consumer import SimpleConsumer
from turbopump.net.client.errors import BrokerError, ClientClosed, ClientError, InvalidArgument
from turbopump.net.client.messages import Message
from turbopump.net.client.producer import Producer

pytestmark = pytest.mark.integration
INVISIBLE_MS = 1_000


async def fill(namesrv: str, topic: str, count: int) -> None:
    async with Producer("pg", [namesrv]) as producer:
        for number in range(count):
            tags = "even" if number % 2 == 0 else "odd"
            await producer.send(Message(topic, b"%d" % number, tags=tags))


def test_acknowledged_messages_are_done_and_the_rest_is_redelivered(
    namesrv: str, topic: str, name: str
) -> None:
    async def scenario() -> None:
        await fill(namesrv, topic, 40)
        async with SimpleConsumer(name, [namesrv], from_first=True) as consumer:
            consumer.subscribe(topic)
            first: list[int] = []
            started = time.monotonic()
            while len(first) < 40:
                for message in await consumer.receive(16, invisible_ms=INVISIBLE_MS, wait_ms=5_000):
                    first.append(int(message.body))
                    if int(message.body) % 4:
                        await consumer.ack(message)
            assert sorted(first) == list(range(40))
            again: list[int] = []
            while len(again) < 10:
                for message in await consumer.receive(invisible_ms=60_000, wait_ms=5_000):
                    assert message.topic == topic and message.reconsume_times == 1
                    again.append(int(message.body))
                    await consumer.ack(message)
            assert sorted(again) == list(range(0, 40, 4))
            assert time.monotonic() - started > INVISIBLE_MS / 1000
            assert await consumer.receive(wait_ms=1_500) == []

    asyncio.run(scenario())


def test_a_message_is_hidden_for_as_long_as_its_consumer_says(
    namesrv: str, topic: str, name: str
) -> None:
    async def scenario() -> None:
        await fill(namesrv, topic, 1)
        async with SimpleConsumer(name, [namesrv], from_first=True) as consumer:
            consumer.subscribe(topic, "even")
            [message] = await consumer.receive(invisible_ms=60_000)
            await consumer.change_invisible(message, 0)
            [again] = await consumer.receive(invisible_ms=INVISIBLE_MS)
            await consumer.change_invisible(again, 60_000)
            assert await consumer.receive(wait_ms=1_500) == []
            await consumer.ack(again)

    asyncio.run(scenario())


def test_a_waiting_receive_returns_arriving_messages(namesrv: str, topic: str, name: str) -> None:
    async def scenario() -> None:
        async with SimpleConsumer(name, [namesrv], from_first=True) as consumer:
            consumer.subscribe(topic)
            waiting = asyncio.create_task(consumer.receive(wait_ms=20_000))
            await asyncio.sleep(0.3)
            await fill(namesrv, topic, 1)
            async with asyncio.timeout(5):
                assert [message.body for message in await waiting] == [b"0"]

    asyncio.run(scenario())


def test_impossible_arguments_are_reported(namesrv: str, topic: str, name: str) -> None:
    async def scenario() -> None:
        consumer = SimpleConsumer(name, [namesrv])
        with pytest.raises(ClientClosed):
            await consumer.receive()
        async with consumer:
            with pytest.raises(ClientError, match="nothing is subscribed to"):
                await consumer.receive()
            consumer.subscribe(topic)
            for count in (0, 33):
                with pytest.raises(InvalidArgument):
                    await consumer.receive(count)
            with pytest.raises(InvalidArgument):
                await consumer.receive(invisible_ms=13 * 3_600_000)
            await fill(namesrv, topic, 1)
            [message] = await consumer.receive()
            message.properties["POP_CK"] = message.properties["POP_CK"].replace(" 0 ", " 9 ", 1)
            with pytest.raises((InvalidArgument, BrokerError)):
                await consumer.ack(message)
            del message.properties["POP_CK"]
            with pytest.raises(InvalidArgument):
                await consumer.ack(message)

    asyncio.run(scenario())
