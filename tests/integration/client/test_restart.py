"""Clients that outlive their broker: it stops, comes back, and nothing acknowledged is missed."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from interop.support.ports import BROKER, free_port

from turbopump.cluster import SMALL_FILES, Cluster
from turbopump.net.client.consuming.consumer import Consumer
from turbopump.net.client.consuming.pull_consumer import PullConsumer, PullOptions
from turbopump.net.client.errors import ClientError
from turbopump.net.client.messages import Message, ReceivedMessage
from turbopump.net.client.options import ConsumeFrom, ConsumerOptions, ProducerOptions
from turbopump.net.client.producer import Producer
from turbopump.net.transport.errors import RemotingError

pytestmark = pytest.mark.integration

Until = Callable[..., Awaitable[None]]


async def started(data: Path, ports: tuple[int, int]) -> Cluster:
    cluster = Cluster(
        data, namesrv_port=ports[0], broker_port=ports[1], broker_properties=SMALL_FILES
    )
    await cluster.start()
    return cluster


async def restart(cluster: Cluster, data: Path, ports: tuple[int, int], pause_s: float) -> Cluster:
    """Stop the cluster and start a new cluster on its folder and ports."""
    await cluster.stop()
    await asyncio.sleep(pause_s)
    return await started(data, ports)


class Sender:
    """Sends numbers for ever and remembers which were acknowledged."""

    def __init__(self, namesrv: str, topic: str) -> None:
        self.acknowledged: set[str] = set()
        self._topic = topic
        self._producer = Producer("pg", [namesrv], options=ProducerOptions(timeout_ms=500))
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "Sender":
        await self._producer.start()
        self._task = asyncio.create_task(self._run())
        return self

    async def stop(self) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait([self._task])

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
        await self._producer.close()

    async def _run(self) -> None:
        number = 0
        while True:
            number += 1
            try:
                await self._producer.send(Message(self._topic, str(number).encode()))
            except (ClientError, RemotingError):
                continue
            self.acknowledged.add(str(number))
            await asyncio.sleep(0.002)


@pytest.mark.parametrize("ordered", [False, True])
def test_consumer_and_producer_survive_a_restart(
    tmp_path: Path, until: Until, ordered: bool
) -> None:
    async def scenario() -> None:
        ports = free_port(), free_port(BROKER)
        cluster = await started(tmp_path, ports)
        try:
            handled: set[str] = set()
            options = ConsumerOptions(consume_from=ConsumeFrom.FIRST, ordered=ordered)
            consumer = Consumer("group", [cluster.namesrv], options=options)
            consumer.subscribe("topic")

            @consumer.on_message
            async def handle(message: ReceivedMessage) -> None:
                handled.add(message.text)

            async with Sender(cluster.namesrv, "topic") as sender, consumer:
                await until(lambda: len(handled) > 50)
                cluster = await restart(cluster, tmp_path, ports, 0.3)
                before = len(sender.acknowledged)
                await until(lambda: len(sender.acknowledged) > before + 50)
                await sender.stop()
                await until(lambda: sender.acknowledged <= handled)
        finally:
            await cluster.stop()

    asyncio.run(scenario())


def test_pull_consumer_survives_a_restart(tmp_path: Path) -> None:
    async def scenario() -> None:
        ports = free_port(), free_port(BROKER)
        cluster = await started(tmp_path, ports)
        try:
            options = PullOptions(consume_from=ConsumeFrom.FIRST)
            async with (
                Producer("pg", [cluster.namesrv]) as producer,
                PullConsumer("group", [cluster.namesrv], options=options) as consumer,
            ):
                queue = (await producer.send(Message("topic", b"1"))).queue
                await consumer.assign([queue])
                assert [message.text for message in await consumer.poll(5000)] == ["1"]
                await consumer.commit()
                cluster = await restart(cluster, tmp_path, ports, 0.1)
                await producer.send(Message("topic", b"2"), queue=queue)
                assert [message.text for message in await consumer.poll(10_000)] == ["2"]
                assert await consumer.committed(queue) == 1
        finally:
            await cluster.stop()

    asyncio.run(scenario())
