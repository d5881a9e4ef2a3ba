"""Transactions against a running broker, by our producer: each way to end one."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest

from turbopump.net.client.consuming.pull_consumer import PullConsumer
from turbopump.net.client.errors import InvalidArgument
from turbopump.net.client.messages import Message, ReceivedMessage
from turbopump.net.client.transactions import TransactionEnd, TransactionProducer
from turbopump.testing import running_cluster

pytestmark = pytest.mark.integration

COMMIT, ROLL_BACK, UNKNOWN = TransactionEnd.COMMIT, TransactionEnd.ROLL_BACK, TransactionEnd.UNKNOWN
SOON = {"transactionTimeOut": "500", "transactionCheckInterval": "500"}


@pytest.fixture(scope="module")
def namesrv() -> Iterator[str]:
    """Name server of a cluster whose broker checks half messages soon."""
    with running_cluster(broker_properties=SOON) as cluster:
        yield cluster.namesrv


async def read(namesrv: str, topic: str, wanted: int) -> list[str]:
    """The messages that consumers can read, once there are as many; a moment more for others."""
    found: list[str] = []
    async with PullConsumer("reader", [namesrv]) as consumer:
        await consumer.assign(await consumer.queues(topic))
        for queue in await consumer.queues(topic):
            await consumer.seek(queue, 0)
        async with asyncio.timeout(30):
            while len(found) < wanted:
                found += [message.text for message in await consumer.poll(timeout_ms=300)]
        found += [message.text for message in await consumer.poll(timeout_ms=300)]
    return sorted(found)


async def never(_message: ReceivedMessage) -> TransactionEnd:
    raise AssertionError("asked about what has ended")


def saying(end: TransactionEnd) -> Callable[[Message, str], Awaitable[TransactionEnd]]:
    """A local transaction that ends so."""

    async def execute(_message: Message, _message_id: str) -> TransactionEnd:
        return end

    return execute


def test_the_result_of_the_local_transaction_counts(namesrv: str, topic: str) -> None:
    async def scenario() -> None:
        async with TransactionProducer("tg", [namesrv], check=never) as producer:
            shown = await producer.send_in_transaction(Message(topic, b"shown"), saying(COMMIT))
            hidden = await producer.send_in_transaction(
                Message(topic, b"hidden"), saying(ROLL_BACK)
            )
            assert shown.is_told and hidden.is_told
            async with producer.transaction(Message(topic, b"block")):
                pass
            with pytest.raises(KeyError):
                async with producer.transaction(Message(topic, b"failed")):
                    raise KeyError
            with pytest.raises(InvalidArgument):
                await producer.send_in_transaction(
                    Message(topic, b"x", delay_level=1), saying(COMMIT)
                )
            await asyncio.sleep(1.5)  # a check would come
        assert await read(namesrv, topic, 2) == ["block", "shown"]

    asyncio.run(scenario())


def test_broker_asks_for_unknown_results(namesrv: str, topic: str) -> None:
    asked: list[str] = []

    async def check(message: ReceivedMessage) -> TransactionEnd:
        asked.append(message.text)
        assert message.topic == topic and message.keys == ("k",)
        if asked.count(message.text) == 1:
            return UNKNOWN
        return COMMIT if message.text == "later" else ROLL_BACK

    async def scenario() -> None:
        async with TransactionProducer("tg2", [namesrv], check=check) as producer:
            for body in (b"later", b"never"):
                message = Message(topic, body, keys=["k"])
                result = await producer.send_in_transaction(message, saying(UNKNOWN))
                assert not result.is_told
            assert await read(namesrv, topic, 1) == ["later"]
            async with asyncio.timeout(30):
                while asked.count("never") < 2:
                    await asyncio.sleep(0.1)
            count = len(asked)
            await asyncio.sleep(1.5)
            assert len(asked) == count, "asked about what has ended"

    asyncio.run(scenario())


def test_another_producer_of_the_group_answers(namesrv: str, topic: str) -> None:
    async def commits(_message: ReceivedMessage) -> TransactionEnd:
        return COMMIT

    async def scenario() -> None:
        async with TransactionProducer("tg3", [namesrv], check=never) as producer:
            with pytest.raises(ZeroDivisionError):  # the process dies within its transaction
                await producer.send_in_transaction(Message(topic, b"left"), dies)
        async with TransactionProducer("tg3", [namesrv], check=commits) as producer:
            await producer.send_in_transaction(Message(topic, b"own"), saying(COMMIT))
            assert await read(namesrv, topic, 2) == ["left", "own"]

    async def dies(_message: Message, _message_id: str) -> TransactionEnd:
        raise ZeroDivisionError

    asyncio.run(scenario())
