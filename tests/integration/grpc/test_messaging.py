"""The clients' service with grpcio's client, beside remoting: one broker underneath."""

import asyncio
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.integration.grpc.callers import Client

from turbopump.net.client.admin.client import Admin
from turbopump.net.client.consuming.simple_consumer import SimpleConsumer
from turbopump.net.client.messages import Message, ReceivedMessage
from turbopump.net.client.producer import Producer
from turbopump.net.grpc.codes import ClientType, Code
from turbopump.net.grpc.server import why_no_grpc
from turbopump.testing import RunningCluster, running_cluster

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(why_no_grpc() is not None, reason="libnghttp2 is not installed"),
]
PROPERTIES = {
    "grpcServerPort": "0",
    "transactionTimeOut": "1000",
    "transactionCheckInterval": "1000",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with running_cluster(broker_properties=PROPERTIES) as running:
        types = {"TNormal": "NORMAL", "TFifo": "FIFO", "TTran": "TRANSACTION"}
        asyncio.run(make_topics(running, types))
        yield running


@pytest.fixture
def client(cluster: RunningCluster) -> Iterator[Client]:
    one = Client(cluster.brokers[0].grpc)
    yield one
    one.close()


async def make_topics(running: RunningCluster, types: dict[str, str]) -> None:
    async with Admin(running.namesrv) as admin:
        for name, kind in types.items():
            attributes = f"+message.type={kind}"
            address = running.brokers[0].address
            await admin.update_topic(name, broker=address, attributes=attributes)


async def receive(running: RunningCluster, topic: str, count: int) -> list[ReceivedMessage]:
    """Messages of a topic by remoting."""
    found: list[ReceivedMessage] = []
    async with SimpleConsumer(f"G{topic}", running.namesrv, from_first=True) as consumer:
        consumer.subscribe(topic)
        while len(found) < count:
            for message in await consumer.receive(wait_ms=10_000):
                await consumer.ack(message)
                found.append(message)
    return found


def test_messages_sent_by_grpc_are_received_by_remoting(
    cluster: RunningCluster, client: Client
) -> None:
    settings = client.begin(
        client_type=ClientType.PRODUCER, publishing={"topics": [{"name": "TFifo"}]}
    )
    assert settings.publishing.max_body_size == 4 << 20
    (route, *_others) = client.ask("QueryRoute", topic={"name": "TFifo"}).message_queues
    (address,) = route.broker.endpoints.addresses
    assert f"{address.host}:{address.port}" == cluster.brokers[0].grpc
    sent = [
        client.send("TFifo", b"%d" % number, tag="a", keys=["k"], message_group="g")
        for number in range(50)
    ]
    assert client.ask("Heartbeat", client_type=ClientType.PRODUCER).status.code == Code.OK
    found = asyncio.run(receive(cluster, "TFifo", 50))
    assert [one.body for one in found] == [b"%d" % number for number in range(50)]
    assert [one.message_id for one in found] == [entry.message_id for entry in sent]
    assert [one.queue_offset for one in found] == [entry.offset for entry in sent]
    assert (found[0].tags, found[0].keys, found[0].properties["u"]) == ("a", ("k",), "ü")
    assert client.ask("NotifyClientTermination").status.code == Code.OK


@pytest.mark.parametrize("size", [1, 70_000, 4 << 20])
def test_a_body_of_any_size(cluster: RunningCluster, client: Client, size: int) -> None:
    topic = f"TSize{size}"
    asyncio.run(make_topics(cluster, {topic: "NORMAL"}))
    client.send(topic, b"x" * size)
    (found,) = asyncio.run(receive(cluster, topic, 1))
    assert found.body == b"x" * size


def test_a_transaction_whose_producer_says_nothing_is_asked_for(
    cluster: RunningCluster, client: Client
) -> None:
    client.begin(client_type=ClientType.PRODUCER, publishing={"topics": [{"name": "TTran"}]})
    entry = client.send("TTran", b"orphan", message_type=4)
    asked = client.heard().recover_orphaned_transaction_command
    assert asked.message.system_properties.message_id == entry.message_id
    ended = client.ask(
        "EndTransaction",
        topic={"name": "TTran"},
        message_id=entry.message_id,
        transaction_id=asked.transaction_id,
        resolution=1,
        source=2,
    )
    assert ended.status.code == Code.OK
    (found,) = asyncio.run(receive(cluster, "TTran", 1))
    assert found.body == b"orphan"


def test_messages_sent_by_remoting_are_received_by_grpc(
    cluster: RunningCluster, client: Client
) -> None:
    asyncio.run(make_topics(cluster, {"TBack": "NORMAL"}))

    async def send() -> list[str]:
        async with Producer("PG", cluster.namesrv) as producer:
            sent = [
                await producer.send(Message("TBack", b"%d" % n, tags="a", keys=("k",)))
                for n in range(40)
            ]
        return [one.message_id for one in sent]

    sent = asyncio.run(send())
    found: list[Any] = []
    while len(found) < 40:
        messages = client.receive("TBack", "GBack")
        assert client.ack("TBack", "GBack", *messages) == Code.OK
        found += messages
    assert {one.system_properties.message_id for one in found} == set(sent)
    assert {one.body for one in found} == {b"%d" % n for n in range(40)}
    assert found[0].system_properties.tag == "a"
    assert client.receive("TBack", "GBack") == []


def test_a_receive_waits_and_returns_messages_sent_meanwhile(
    cluster: RunningCluster, client: Client
) -> None:
    asyncio.run(make_topics(cluster, {"TWait": "NORMAL"}))
    other = Client(cluster.brokers[0].grpc)
    timer = threading.Timer(0.5, lambda: client.send("TWait", b"late" * 500_000))
    timer.start()
    began = time.monotonic()
    (found,) = other.receive("TWait", "GWait")
    assert found.body == b"late" * 500_000
    assert 0.4 < time.monotonic() - began < 7
    timer.join()
    other.close()


def test_without_protobuf_a_broker_serves_remoting_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in [one for one in sys.modules if one.startswith("turbopump.broker.grpc")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "turbopump.net.grpc.messages")
    monkeypatch.setitem(sys.modules, "google.protobuf", None)
    with running_cluster() as running:
        assert running.brokers[0].grpc == ""
    assert "install protobuf" in caplog.text
