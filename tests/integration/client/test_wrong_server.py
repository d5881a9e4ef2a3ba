"""A client at the wrong server, or with the wrong protocol, gets an error that names the cause."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from turbopump import (
    Admin,
    BrokerError,
    ClientOptions,
    ConnectError,
    ConnectionClosed,
    Message,
    Producer,
)
from turbopump.broker.config.config import BrokerConfig
from turbopump.broker.node import BrokerNode
from turbopump.cluster import SMALL_FILES, Cluster
from turbopump.net.wire.java_properties import Property
from turbopump.testing import RunningCluster, running_cluster

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with running_cluster(controllers=1) as running:
        yield running


async def send(namesrv: str, options: ClientOptions | None = None) -> None:
    async with Producer("g", [namesrv], client_options=options) as producer:
        await producer.send(Message("T", b"x"))


def test_a_broker_or_controller_is_no_name_server(cluster: RunningCluster) -> None:
    (broker,), (controller,) = cluster.brokers, cluster.controllers
    for address, kind in ((broker.address, "a broker"), (controller, "a controller")):
        with pytest.raises(BrokerError, match=f"{address} .*this is {kind}, not a name server"):
            asyncio.run(send(address))


def test_a_name_server_is_no_broker_and_a_broker_no_controller(cluster: RunningCluster) -> None:
    (broker,), namesrv = cluster.brokers, cluster.namesrv

    async def scenario() -> None:
        async with Admin([namesrv]) as admin:
            with pytest.raises(BrokerError, match="this is a name server, not a broker"):
                await admin.update_topic("T", broker=namesrv)
            with pytest.raises(BrokerError, match="this is a broker, not a controller"):
                await admin.controllers([broker.address]).metadata()
            with pytest.raises(BrokerError, match="this is a name server, not a controller"):
                await admin.controllers([namesrv]).metadata()

    asyncio.run(scenario())


def test_a_broker_that_registers_at_a_broker_says_so(
    cluster: RunningCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (other,) = cluster.brokers
    given = {
        **SMALL_FILES,
        "namesrvAddr": other.address,
        "storePathRootDir": str(tmp_path),
        "listenPort": "0",
        "brokerIP1": "127.0.0.1",
        "bindAddress": "127.0.0.1",
    }
    config = BrokerConfig()
    config.update_keys(Property(key, value) for key, value in given.items())

    async def scenario() -> None:
        node = BrokerNode(config)
        await node.start()
        await node.stop()

    asyncio.run(scenario())
    assert f"not registered at name server {other.address}: it is no name server" in caplog.text


@pytest.mark.parametrize("mode", ["enforcing", "disabled"])
def test_a_client_of_the_wrong_protocol_is_reminded_of_tls(mode: str) -> None:
    properties = {**SMALL_FILES, "tls.server.mode": mode}

    async def scenario() -> None:
        async with Cluster(broker_properties=properties) as cluster:
            if mode == "enforcing":
                await send(cluster.namesrv, ClientOptions(tls=True))
                with pytest.raises(ConnectionClosed, match="perhaps it takes TLS"):
                    await send(cluster.namesrv)
            else:
                await send(cluster.namesrv)
                with pytest.raises(ConnectError, match=r"handshake failed.*does not serve TLS"):
                    await send(cluster.namesrv, ClientOptions(tls=True))

    asyncio.run(scenario())


def test_a_server_that_answers_in_plain_is_no_tls_server() -> None:
    async def scenario() -> None:
        async def greet(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"-ERR unknown command\r\n")
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(greet, "127.0.0.1", 0)
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with server:
            with pytest.raises(ConnectError, match=r"(?i)wrong.version.*does not serve TLS"):
                await send(address, ClientOptions(tls=True))

    asyncio.run(scenario())


def test_a_certificate_that_is_not_trusted_is_the_reason(tmp_path: Path) -> None:
    from turbopump.net.transport.tls import _make_self_signed

    other, _key = _make_self_signed()
    (tmp_path / "ca.pem").write_bytes(other)
    properties = {**SMALL_FILES, "tls.server.mode": "enforcing"}

    async def scenario() -> None:
        async with Cluster(broker_properties=properties) as cluster:
            options = ClientOptions(tls=tmp_path / "ca.pem")
            with pytest.raises(ConnectError, match=r"(?i)certificate.verify.failed") as caught:
                await send(cluster.namesrv, options)
            assert "does not serve" not in str(caught.value)

    asyncio.run(scenario())


def test_a_server_that_was_heard_before_is_not_suspected() -> None:
    """A server that answered in plain text before and closes now is not taken for a TLS server."""

    async def scenario() -> None:
        cluster = Cluster(broker_properties=SMALL_FILES)
        async with cluster, Admin([cluster.namesrv], timeout_ms=5_000) as admin:
            await admin.topic_list()
            await cluster.stop()
            with pytest.raises((ConnectionClosed, ConnectError)) as caught:
                await admin.topic_list()
            assert "TLS" not in str(caught.value)

    asyncio.run(scenario())
