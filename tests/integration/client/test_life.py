"""Start and end of clients: nothing is left running, one client may serve many."""

import asyncio
import socket
from typing import Any

import pytest

from turbopump.net.client.admin.client import Admin
from turbopump.net.client.consuming.consumer import Consumer
from turbopump.net.client.consuming.pop_consumer import PopConsumer
from turbopump.net.client.consuming.pull_consumer import PullConsumer
from turbopump.net.client.consuming.simple_consumer import SimpleConsumer
from turbopump.net.client.errors import ClientClosed, ClientError
from turbopump.net.client.messages import Message, ReceivedMessage
from turbopump.net.client.options import ConsumeFrom, ConsumerOptions
from turbopump.net.client.producer import Producer
from turbopump.net.client.shared_client import SharedClient, instance_of
from turbopump.net.grpc.server import why_no_grpc
from turbopump.net.transport.errors import ConnectError

pytestmark = pytest.mark.integration

BY_GRPC = pytest.mark.skipif(why_no_grpc() is not None, reason="libnghttp2 is not installed")
FIRST = ConsumerOptions(consume_from=ConsumeFrom.FIRST)


def alone() -> bool:
    return asyncio.all_tasks() == {asyncio.current_task()}


def test_no_task_outlives_its_client(namesrv: str, topic: str, name: str) -> None:
    async def scenario() -> None:
        consumer = Consumer(name, [namesrv], options=FIRST)
        consumer.subscribe(topic)
        pulling = PullConsumer(f"{name}-pull", [namesrv])
        async with Producer("pg", [namesrv]) as producer, Admin([namesrv]) as admin:
            async with consumer, pulling:
                await pulling.assign(await pulling.queues(topic))
                await producer.send(Message(topic, b"x"))
                assert await consumer.receive() is not None
                await admin.consumer_progress_all()
            assert await consumer.receive() is None
        assert alone()

    asyncio.run(scenario())


def test_iteration_ends_when_the_consumer_closes(namesrv: str, topic: str, name: str) -> None:
    async def scenario() -> None:
        consumer = Consumer(name, [namesrv], options=FIRST)
        consumer.subscribe(topic)
        await consumer.start()

        async def count() -> int:
            return len([message async for message in consumer])

        counting = [asyncio.create_task(count()) for _ in range(3)]
        await asyncio.sleep(0.05)
        await consumer.close()
        await consumer.close()
        assert await asyncio.gather(*counting) == [0, 0, 0]
        assert alone()

    asyncio.run(scenario())


def test_one_client_serves_producers_and_consumers(namesrv: str, topic: str, name: str) -> None:
    async def scenario() -> None:
        shared = SharedClient([namesrv])
        first = Consumer(name, client=shared, options=FIRST)
        second = Consumer(f"{name}-2", client=shared, options=FIRST)
        first.subscribe(topic)
        second.subscribe(topic)
        async with Producer("pg", client=shared) as producer, first, second:
            assert first.client_id == second.client_id
            await producer.send(Message(topic, b"x"))
            for consumer in (first, second):
                message = await consumer.receive()
                assert message is not None and message.text == "x"
        with pytest.raises(ClientClosed):
            await instance_of(shared).call(namesrv, None)  # type: ignore[arg-type]
        assert alone()

    asyncio.run(scenario())


def test_an_absent_server_is_reported_by_start() -> None:
    async def scenario() -> None:
        consumer = Consumer("g", ["127.0.0.1:1"])
        consumer.subscribe("T")
        with pytest.raises(ConnectError, match=r"127\.0\.0\.1:1"):
            await consumer.start()
        assert alone()
        with pytest.raises(ClientError, match="at least one name server"):
            Producer("pg")
        with pytest.raises(ClientError, match="'nowhere' is no host:port"):
            Admin("127.0.0.1:9876;nowhere")

    asyncio.run(scenario())


def subscribed(made: Any) -> Any:
    made.subscribe("T")
    return made


async def handle(_message: ReceivedMessage) -> None:
    raise AssertionError("no message comes")


def popping(address: str) -> PopConsumer:
    made: PopConsumer = subscribed(PopConsumer("g", address))
    made.on_message(handle)
    return made


@pytest.mark.parametrize(
    "make",
    [
        lambda address: subscribed(Consumer("g", address)),
        lambda address: subscribed(SimpleConsumer("g", address)),
        popping,
        pytest.param(
            lambda address: subscribed(SimpleConsumer("g", endpoints=address)), marks=BY_GRPC
        ),
        pytest.param(lambda address: Producer(endpoints=address), marks=BY_GRPC),
    ],
)
def test_a_start_that_is_given_up_closes_its_connection(make: Any) -> None:
    """The server accepts the connection and never answers."""

    async def scenario(address: str) -> None:
        made = make(address)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await made.start()
        assert alone()
        await made.close()

    with socket.create_server(("127.0.0.1", 0)) as server:
        asyncio.run(scenario(f"127.0.0.1:{server.getsockname()[1]}"))
        server.settimeout(0)
        connection, _ = server.accept()
        with connection:
            connection.settimeout(5)
            while connection.recv(65_536):
                pass  # the client's requests, until it closes
        with pytest.raises(BlockingIOError):
            server.accept()


def test_cancelled_send_leaves_the_producer_usable(namesrv: str, topic: str) -> None:
    async def scenario() -> None:
        async with Producer("pg", [namesrv]) as producer:
            sending = asyncio.create_task(producer.send(Message(topic, b"x")))
            await asyncio.sleep(0)
            sending.cancel()
            await asyncio.wait([sending])
            await producer.send(Message(topic, b"x"))
        assert alone()

    asyncio.run(scenario())
