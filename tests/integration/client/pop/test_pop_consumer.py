"""The push consumer over pop against a running broker."""

import asyncio
import time

import pytest

from turbopump.net.client.consuming.pop_consumer import PopConsumer, PopOptions
from turbopump.net.client.consuming.simple_consumer import SimpleConsumer
from turbopump.net.client.errors import ClientError, InvalidArgument
from turbopump.net.client.messages import Message, ReceivedMessage
from turbopump.net.client.options import Outcome
from turbopump.net.client.producer import Producer

pytestmark = pytest.mark.integration
OPTIONS = PopOptions(concurrency=4, invisible_ms=1_000, retry_ms=(500,), suspend_ms=300)


async def fill(namesrv: str, topic: str, count: int) -> None:
    async with Producer("pg", [namesrv]) as producer:
        for number in range(count):
            queue = sorted(await producer.queues(topic))[number % 2]
            await producer.send(Message(topic, b"%d" % number), queue=queue)


async def until(seen: list[int], count: int) -> None:
    async with asyncio.timeout(20):
        while len(seen) < count:
            await asyncio.sleep(0.02)


def test_refused_messages_are_redelivered_and_slow_ones_are_not(
    namesrv: str, topic: str, name: str
) -> None:
    """A rejected message is given out again, and one whose handler runs for twice its invisible
    time is not.
    """
    seen: list[int] = []

    async def handle(message: ReceivedMessage) -> Outcome:
        number = int(message.body)
        seen.append(number)
        if number == 3:
            await asyncio.sleep(2 * OPTIONS.invisible_ms / 1000)
        return Outcome.RETRY if number == 5 and seen.count(5) == 1 else Outcome.ACK

    async def scenario() -> None:
        await fill(namesrv, topic, 40)
        first = PopConsumer(name, [namesrv], options=OPTIONS, from_first=True)
        second = PopConsumer(name, [namesrv], options=OPTIONS, from_first=True)
        for consumer in (first, second):
            consumer.subscribe(topic)
            consumer.on_message(handle)
        async with first, second:
            await until(seen, 41)
        assert sorted(seen) == sorted([*range(40), 5])
        async with SimpleConsumer(name, [namesrv]) as left:
            left.subscribe(topic)
            assert await left.receive(wait_ms=1_500) == []

    asyncio.run(scenario())


def test_a_plain_function_is_run_in_a_thread(namesrv: str, topic: str, name: str) -> None:
    seen: list[int] = []

    def handle(message: ReceivedMessage) -> None:
        time.sleep(0.01)
        seen.append(int(message.body))

    async def scenario() -> None:
        consumer = PopConsumer(name, [namesrv], from_first=True)
        consumer.subscribe(topic)
        consumer.on_message(handle)
        async with consumer:
            await fill(namesrv, topic, 10)
            await until(seen, 10)
        assert sorted(seen) == list(range(10))

    asyncio.run(scenario())


def test_a_queue_in_order_waits_for_the_one_that_fails(namesrv: str, topic: str, name: str) -> None:
    seen: list[int] = []
    tries: list[int] = []

    async def handle(message: ReceivedMessage) -> None:
        number = int(message.body)
        if number == 6:
            tries.append(message.reconsume_times)
            if len(tries) < 3:
                raise ValueError("not yet")
        seen.append(number)

    async def scenario() -> None:
        await fill(namesrv, topic, 20)
        options = PopOptions(ordered=True, suspend_ms=300, invisible_ms=20_000)
        consumer = PopConsumer(name, [namesrv], options=options, from_first=True)
        consumer.subscribe(topic)
        consumer.on_message(handle)
        async with consumer:
            await until(seen, 20)
        for queue in range(2):
            assert [one for one in seen if one % 2 == queue] == list(range(queue, 20, 2))
        assert tries == [0, 1, 2]

    asyncio.run(scenario())


def test_pops_that_are_impossible_are_reported(namesrv: str, name: str) -> None:
    for options in (PopOptions(batch=33), PopOptions(concurrency=0), PopOptions(invisible_ms=0)):
        with pytest.raises(InvalidArgument):
            PopConsumer(name, [namesrv], options=options)

    async def scenario() -> None:
        with pytest.raises(ClientError):
            await PopConsumer(name, [namesrv]).start()

    asyncio.run(scenario())
