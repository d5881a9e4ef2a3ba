"""Our own Python client by gRPC: `endpoints` of a broker and of a proxy, plain and by TLS."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.grpc.test_messaging import make_topics
from tests.integration.grpc.test_proxy import Proxy

from turbopump import (
    BrokerError,
    ClientClosed,
    ClientOptions,
    ConnectError,
    InvalidArgument,
    Message,
    Producer,
    SendStatus,
    SimpleConsumer,
)
from turbopump.net.grpc.codes import Code
from turbopump.net.grpc.server import why_no_grpc
from turbopump.testing import RunningCluster, running_cluster

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(why_no_grpc() is not None, reason="libnghttp2 is not installed"),
]
TYPES = {"TNormal": "NORMAL", "TFifo": "FIFO", "TDelay": "DELAY", "TTls": "NORMAL"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with running_cluster(broker_properties={"recallMessageEnable": "true"}) as running:
        asyncio.run(make_topics(running, TYPES))
        yield running


async def receive(consumer: SimpleConsumer, count: int) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < count:
        for one in await consumer.receive(wait_ms=5_000):
            found.append(one.body)
            await consumer.ack(one)
    return found


def made(topic: str, body: bytes) -> Message:
    return Message(topic, body, tags="a", keys=["k"], properties={"u": "ü"})


async def go_round(endpoints: str, topic: str, options: ClientOptions | None = None) -> None:
    """Send messages and receive each once, by tags."""
    group = f"G{topic}"
    async with (
        Producer(endpoints=endpoints, client_options=options) as producer,
        SimpleConsumer(group, endpoints=endpoints, client_options=options) as consumer,
    ):
        consumer.subscribe(topic, "a")
        bodies = [b"%d" % number for number in range(20)] + [bytes(3 << 20)]
        sent = [await producer.send(made(topic, body)) for body in bodies]
        await producer.send(Message(topic, b"other", tags="b"))
        batch = await producer.send_batch([made(topic, b"x")] * 3)
        assert {one.status for one in [*sent, batch]} == {SendStatus.SEND_OK}
        first, *others = await consumer.receive(1)
        assert not others
        assert (first.tags, first.keys, first.properties["u"]) == ("a", ("k",), "ü")
        ids = {one.message_id for one in sent} | set(batch.message_id.split(","))
        assert first.message_id in ids
        await consumer.change_invisible(first, 60_000)
        await consumer.ack(first)
        found = [first.body, *await receive(consumer, len(bodies) + 2)]
        assert sorted(found) == sorted([*bodies, b"x", b"x", b"x"])


def test_a_broker_by_its_endpoints(cluster: RunningCluster) -> None:
    asyncio.run(go_round(cluster.brokers[0].grpc, "TNormal"))


def test_a_proxy_by_tls(cluster: RunningCluster, tmp_path: Path) -> None:
    proxy = Proxy(cluster.namesrv, tmp_path)
    try:
        asyncio.run(go_round(proxy.address, "TTls", ClientOptions(tls=True)))
    finally:
        assert proxy.stop() == 0


def test_order_time_and_recall(cluster: RunningCluster) -> None:
    async def main() -> None:
        endpoints = cluster.brokers[0].grpc
        async with (
            Producer(endpoints=endpoints) as producer,
            SimpleConsumer("GKinds", endpoints=endpoints) as consumer,
        ):
            consumer.subscribe("TFifo")
            for number in range(10):
                body = b"%d" % number
                await producer.send(Message("TFifo", body, sharding_key="s"))
            assert await receive(consumer, 10) == [b"%d" % number for number in range(10)]
            consumer.subscribe("TDelay")
            began = time.monotonic()
            gone = await producer.send(Message("TDelay", b"recalled", delay_ms=30_000))
            assert await producer.recall(gone.recall_handle) == gone.message_id
            await producer.send(Message("TDelay", b"later", delay_ms=1_500))
            assert await receive(consumer, 1) == [b"later"]
            assert time.monotonic() - began > 1

    asyncio.run(main())


def test_first_sends_to_many_topics_do_not_wait_for_each_other(cluster: RunningCluster) -> None:
    topics = {f"TFirst{number}": "NORMAL" for number in range(8)}
    asyncio.run(make_topics(cluster, topics))

    async def main() -> float:
        async with Producer(endpoints=cluster.brokers[0].grpc) as producer:
            began = time.monotonic()
            await asyncio.gather(*(producer.send(Message(topic, b"x")) for topic in topics))
            return time.monotonic() - began

    assert asyncio.run(main()) < 2


def test_failures_are_exceptions_of_the_client(cluster: RunningCluster) -> None:
    async def main() -> None:
        endpoints = cluster.brokers[0].grpc
        async with Producer(endpoints=endpoints) as producer:
            with pytest.raises(BrokerError) as raised:
                await producer.send(Message("TNone", b"x"))
            assert raised.value.code == Code.TOPIC_NOT_FOUND
            with pytest.raises(BrokerError, match="TopicMessageType"):
                await producer.send(Message("TFifo", b"x"))
            for refused in (Message("TNormal", b"x", delay_level=1), Message("TNormal", b"")):
                with pytest.raises(InvalidArgument):
                    await producer.send(refused)
            with pytest.raises(InvalidArgument, match="gRPC"):
                await producer.send_oneway(Message("TNormal", b"x"))
        with pytest.raises(ClientClosed):
            await producer.send(Message("TNormal", b"x"))
        with pytest.raises(ConnectError):
            await Producer(endpoints="127.0.0.1:1").start()
        with pytest.raises(InvalidArgument):
            Producer(endpoints="nowhere")

    asyncio.run(main())
