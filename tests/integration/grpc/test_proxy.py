"""A proxy, as the command runs it, with grpcio's client before it and a broker after it."""

import asyncio
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.integration.grpc.callers import Client
from tests.integration.grpc.test_messaging import PROPERTIES, make_topics

from turbopump.net.grpc.codes import ClientType, Code
from turbopump.net.grpc.server import why_no_grpc
from turbopump.proxy.config import ProxyConfig, read_file
from turbopump.proxy.node import ProxyNode
from turbopump.testing import RunningCluster, running_cluster

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(why_no_grpc() is not None, reason="libnghttp2 is not installed"),
]
STOP_S = 10


class Proxy:
    """The process, and where it listens."""

    def __init__(self, name_server: str, folder: Path) -> None:
        file = folder / "rmq-proxy.json"
        file.write_text(json.dumps({"namesrvAddr": name_server, "grpcServerPort": 0}))
        command = [sys.executable, "-m", "turbopump", "proxy", "-c", str(file), "--json"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        ready = json.loads(self.process.stdout.readline())
        assert (ready["event"], ready["node"]) == ("ready", "proxy")
        self.address: str = ready["address"]

    def stop(self) -> int:
        """Stop it with SIGTERM and return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.communicate(timeout=STOP_S)
        finally:
            self.process.kill()
            self.process.wait()
        return self.process.returncode


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with running_cluster(broker_properties=PROPERTIES) as running:
        asyncio.run(
            make_topics(
                running, {"TNormal": "NORMAL", "TTran": "TRANSACTION", "TThreads": "NORMAL"}
            )
        )
        yield running


@pytest.fixture
def proxy(cluster: RunningCluster, tmp_path: Path) -> Iterator[Proxy]:
    one = Proxy(cluster.namesrv, tmp_path)
    yield one
    if one.process.poll() is None:
        one.stop()


def test_messages_go_through_a_proxy_and_it_stops_cleanly(
    cluster: RunningCluster, proxy: Proxy
) -> None:
    client = Client(proxy.address)
    (queue, *_others) = client.ask("QueryRoute", topic={"name": "TNormal"}).message_queues
    (address,) = queue.broker.endpoints.addresses
    assert f"{address.host}:{address.port}" == proxy.address
    sent = [client.send("TNormal", b"%d" % number).message_id for number in range(20)]
    found: list[Any] = []
    while len(found) < 20:
        messages = client.receive("TNormal", "GNormal")
        assert client.ack("TNormal", "GNormal", *messages) == Code.OK
        found += messages
    assert {one.system_properties.message_id for one in found} == set(sent)

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
    assert [one.body for one in client.receive("TTran", "GTran")] == [b"orphan"]

    failures: list[grpc.StatusCode] = []

    def wait_for_messages() -> None:
        try:
            client.receive("TNormal", "GNormal", long_polling_timeout={"seconds": 15})
        except grpc.RpcError as error:
            failures.append(error.code())

    waiting = threading.Thread(target=wait_for_messages)
    waiting.start()
    client.ask("Heartbeat", client_type=ClientType.PRODUCER)
    assert proxy.stop() == 0
    waiting.join(STOP_S)
    assert failures == [grpc.StatusCode.UNAVAILABLE]
    client.close()


def test_io_threads_serve_the_clients_of_a_proxy(cluster: RunningCluster) -> None:
    async def story() -> None:
        config = ProxyConfig()
        settings = {"namesrvAddr": cluster.namesrv, "grpcServerPort": 0, "ioThreads": 2}
        config.update_keys(read_file(json.dumps(settings)))
        node = ProxyNode(config)
        await node.start()
        try:
            threads = node._threads
            assert threads is not None
            client, idle_ns = Client(node.address), sum(threads.cpu_ns)
            sent = [
                (await asyncio.to_thread(client.send, "TThreads", b"x" * size)).message_id
                for size in (1, 100_000, 1_000_000)
            ]
            found: list[str] = []
            while len(found) < len(sent):
                messages = await asyncio.to_thread(client.receive, "TThreads", "GThreads")
                found += [one.system_properties.message_id for one in messages]
            assert set(found) == set(sent)
            assert (len(threads.cpu_ns), sum(threads.cpu_ns) > idle_ns) == (2, True)
            client.close()
        finally:
            await node.stop()
        assert node._threads is None

    asyncio.run(story())
