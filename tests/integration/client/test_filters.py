"""Consumers that choose messages by SQL92, and message traces, against a running broker."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.integration.client.test_consumer import FIRST

from turbopump.net.client.admin.client import Admin
from turbopump.net.client.consuming.consumer import Consumer
from turbopump.net.client.consuming.pull_consumer import PullConsumer, PullOptions
from turbopump.net.client.errors import BrokerError, InvalidArgument
from turbopump.net.client.messages import Message, ReceivedMessage
from turbopump.net.client.options import ConsumeFrom, Outcome
from turbopump.net.client.producer import Producer

pytestmark = pytest.mark.integration

Until = Callable[..., Awaitable[None]]


async def send(namesrv: str, topic: str, **bodies: dict[str, str]) -> None:
    async with Producer("pg", [namesrv]) as producer:
        for body, properties in bodies.items():
            await producer.send(Message(topic, body.encode(), properties=properties))


def test_a_condition_chooses_messages(namesrv: str, topic: str, name: str, until: Until) -> None:
    async def scenario() -> None:
        seen: list[str] = []
        tries = 0

        async def handle(message: ReceivedMessage) -> Outcome | None:
            nonlocal tries
            seen.append(message.text)
            tries += message.text == "dear"
            return Outcome.RETRY if tries == 1 and message.text == "dear" else None

        consumer = Consumer(name, [namesrv], options=FIRST)
        consumer.subscribe(topic, sql="price > 10 AND region IN ('north', 'south')")
        consumer.on_message(handle)
        async with consumer:
            await asyncio.sleep(0.5)  # the pulls are held
            await send(
                namesrv,
                topic,
                cheap={"price": "9", "region": "north"},
                east={"price": "11", "region": "east"},
                none={"region": "north"},
                text={"price": "much", "region": "north"},
                dear={"price": "11", "region": "south"},
            )
            # A retry comes although its topic has no condition.
            await until(lambda: seen.count("dear") == 2, 30)
        assert set(seen) == {"dear"}

    asyncio.run(scenario())


def test_a_condition_that_is_none(namesrv: str, topic: str, name: str) -> None:
    async def scenario() -> None:
        await send(namesrv, topic, one={})
        consumer = Consumer(name, [namesrv], options=FIRST)
        consumer.subscribe(topic, sql="price >")
        with pytest.raises(BrokerError, match="Invalid MessageSelector"):
            await consumer.start()
        await consumer.close()
        with pytest.raises(InvalidArgument, match="by tags or by SQL"):
            consumer.subscribe(topic, "tag", sql="price > 5")

    asyncio.run(scenario())


def test_a_pull_consumer_with_a_condition(namesrv: str, topic: str, name: str) -> None:
    async def scenario() -> None:
        bodies = {f"n{number}": {"number": str(number)} for number in range(20)}
        await send(namesrv, topic, **bodies)
        options = PullOptions(consume_from=ConsumeFrom.FIRST)
        async with PullConsumer(name, [namesrv], options=options) as consumer:
            queues = await consumer.queues(topic)
            await consumer.assign(queues, sql="number BETWEEN 5 AND 7 OR number = '19'")
            seen: set[str] = set()
            for _ in range(50):
                seen |= {message.text for message in await consumer.poll(200)}
                if len(seen) == 4:
                    break
            assert seen == {"n5", "n6", "n7", "n19"}
        async with PullConsumer(f"{name}-2", [namesrv], options=options) as consumer:
            await consumer.assign(queues, sql="number BETWEEN")
            with pytest.raises(BrokerError, match="ends too early"):
                for _ in range(50):
                    await consumer.poll(200)

    asyncio.run(scenario())


def test_the_trace_of_a_message(namesrv: str, topic: str, name: str, until: Until) -> None:
    """A trace in a Java client's form is found by both keys; interop has the client itself."""

    async def scenario() -> None:
        fields = ("Pub", "17", "R", "PG", "T", name, "", "key", "h", "5", "3", "0", "O", "true")
        body = "\x01".join(fields) + "\x02"
        async with Producer("pg", [namesrv]) as producer:
            await producer.send(Message(topic, body.encode(), keys=[name, "key"]))
        async with Admin([namesrv]) as admin:
            for key in (name, "key"):
                trace = await admin.query_message_trace(key, trace_topic=topic)
                (record,) = trace.records
                assert (record.kind, record.message_id, record.cost_ms) == ("Pub", name, 3)
                assert record.client_host.startswith("127.0.0.1:")

    asyncio.run(scenario())
