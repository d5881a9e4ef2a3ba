"""A start that fails at any step raises its error and leaves no port, file, lock, thread or task. A
stop that fails or is cancelled closes all other parts. Failures are planted in each kind of node.
"""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest
import uvloop
from tests.integration.controller import quorum

from turbopump.broker.config.config import load_config
from turbopump.broker.container import node as container
from turbopump.broker.container.config import ContainerConfig
from turbopump.broker.node import BrokerNode
from turbopump.broker.registration.name_servers import NameServers
from turbopump.controller.node import ControllerNode
from turbopump.namesrv.config import NamesrvConfig
from turbopump.namesrv.node import NameServerNode
from turbopump.net.transport.connection_set import ConnectionSet
from turbopump.net.transport.errors import ConnectionClosed
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import Command
from turbopump.proxy.config import ProxyConfig
from turbopump.proxy.node import ProxyNode

pytestmark = pytest.mark.integration

TURNS = 50
"""Turns of the loop in which closed transports and cancelled tasks end."""


SPARE = "/dev/null"
"""The file that the loop keeps open from its first port on, to refuse a connection when the process
has no other descriptor."""


class PlantedError(Exception):
    """The failure that a test plants."""


class Node(Protocol):
    """A node of any kind."""

    async def start(self) -> None:
        """Start it."""

    async def stop(self) -> None:
        """Stop it."""


def fail(*_given: Any, **_named: Any) -> Any:
    raise PlantedError


async def fail_later(*_given: Any, **_named: Any) -> Any:
    raise PlantedError


def broker(folder: Path) -> Node:
    return BrokerNode(
        load_config(
            f"storePathRootDir={folder}\nbrokerIP1=127.0.0.1\nbindAddress=127.0.0.1\n"
            "listenPort=0\nbrokerRole=SYNC_MASTER\nhaListenPort=0\nnamesrvAddr=127.0.0.1:1\n"
            "metricsExporterType=PROM\nmetricsPromExporterPort=0\ngrpcServerPort=0\n"
            "mappedFileSizeCommitLog=8388608\nmappedFileSizeConsumeQueue=200000\n"
            "maxHashSlotNum=1000\nmaxIndexNum=10000\n"
        )[0]
    )


def name_server(folder: Path) -> Node:
    return NameServerNode(
        NamesrvConfig(
            bind_address="127.0.0.1", listen_port=0, kv_config_path=str(folder / "kv.json")
        )
    )


def controller(folder: Path) -> Node:
    return ControllerNode(quorum.config(folder, 0), seed=0)


def proxy(_folder: Path) -> Node:
    return ProxyNode(
        ProxyConfig(namesrv_addr=["127.0.0.1:1"], bind_address="127.0.0.1", grpc_server_port=0)
    )


def container_node(_folder: Path) -> Node:
    config = ContainerConfig(bind_address="127.0.0.1", listen_port=0)
    return container.ContainerNode(config)


def held() -> tuple[list[str], int, int]:
    """The names of open files and sockets, and the numbers of threads and tasks."""
    descriptors = []
    for number in os.listdir("/proc/self/fd"):
        try:
            descriptors.append(os.readlink(f"/proc/self/fd/{number}"))
        except OSError:
            continue  # the descriptor of the listing
        if descriptors[-1] == SPARE:
            descriptors.pop()
    threads = [one for one in threading.enumerate() if not one.name.startswith("asyncio")]
    return sorted(descriptors), len(threads), len(asyncio.all_tasks())


@contextmanager
def planted(patch: pytest.MonkeyPatch, place: str) -> Iterator[None]:
    """Let a function, `module:name` or `module:Class.name`, raise in the block."""
    module, _, name = place.partition(":")
    target: Any = __import__(f"turbopump.{module}", fromlist=["_"])
    *owners, last = name.split(".")
    for owner in owners:
        target = getattr(target, owner)
    is_coroutine = asyncio.iscoroutinefunction(getattr(target, last))
    with patch.context() as block:
        block.setattr(target, last, fail_later if is_coroutine else fail)
        yield


BROKER = "broker.node:"
STEPS: list[tuple[Callable[[Path], Node], str]] = [
    *(
        (broker, BROKER + step)
        for step in (
            "TableSaver",
            "TopicTable",
            "Store.open",
            "make_broker",
            "PeriodicTasks",
            "BrokerNode._wait_until_saved",
            "ReplicationSetup",
            "ReplicationSetup.start",
            "request_table",
            "BrokerNode._begin_grpc",
            "Server.start",
            "pack_ip",
            "Registration",
            "NameServers",
            "MetricsExporter",
            "ReplicationSetup.register",
            "BrokerNode._listen_for_grpc",
            "MetricsExporter.start",
            "BrokerNode._tick",
            "NameServers.await_first_registrations",
        )
    ),
    *(
        (name_server, f"namesrv.node:{step}")
        for step in (
            "NameServerNode._load_key_values",
            "NameServer",
            "handlers.register",
            "Server",
            "Server.start",
            "NameServerNode._unregister_silent",
        )
    ),
    *(
        (controller, f"controller.node:{step}")
        for step in (
            "Server.start",
            "DiskThreads",
            "RaftStorage",
            "RaftStorage.open",
            "Raft",
            "Driver",
            "ControllerCore",
            "Driver.begin_member",
            "ControllerNode._tick",
        )
    ),
    *(
        (proxy, f"proxy.node:{step}")
        for step in (
            "FollowedNames.resolve_names",
            "GrpcServer.start",
            "Messaging.start",
            "ProxyNode._tick",
        )
    ),
    *(
        (container_node, f"broker.container.node:{step}")
        for step in ("Server.start", "DiskThreads", "own_claims", "local_ip")
    ),
]


@pytest.mark.parametrize(
    ("make", "place"), STEPS, ids=[place.replace(":", "-") for _, place in STEPS]
)
def test_a_failed_start_leaves_nothing(
    make: Callable[[Path], Node], place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        await asyncio.to_thread(lambda: None)  # the thread of `to_thread` stays
        before = held()
        with planted(monkeypatch, place), pytest.raises(PlantedError):
            await make(tmp_path).start()
        for _ in range(TURNS):
            await asyncio.sleep(0)
        assert held() == before
        again = make(tmp_path)
        await again.start()
        assert held() != before
        await again.stop()

    uvloop.run(run())


@asynccontextmanager
async def pending_call(node: Any) -> AsyncIterator[asyncio.Task[Command]]:
    """A call of the node's client to a peer that does not answer."""
    called = asyncio.Event()
    writers = []

    async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        await reader.readexactly(1)
        called.set()
        await reader.read()
        writer.close()

    async with await asyncio.start_server(accepted, "127.0.0.1", 0) as peer:
        port = peer.sockets[0].getsockname()[1]
        request = Command(RequestCode.GET_BROKER_RUNTIME_INFO)
        call = asyncio.create_task(node._client.call(f"127.0.0.1:{port}", request, 60_000))
        await called.wait()
        try:
            yield call
        finally:
            for writer in writers:
                writer.close()


async def assert_released(before: tuple[list[str], int, int]) -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)
    assert held() == before


async def cancel_at_first_wait(node: Node, patch: pytest.MonkeyPatch) -> None:
    """Stop the node, and cancel the stop while it waits for pending requests."""
    waits, wait = asyncio.Event(), ConnectionSet.wait

    async def wait_first(*given: Any) -> bool:
        if not waits.is_set():
            waits.set()
            await asyncio.Event().wait()
        return await wait(*given)

    with patch.context() as block:
        block.setattr(ConnectionSet, "wait", wait_first)
        stopping = asyncio.create_task(node.stop())
        await waits.wait()
        stopping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stopping


@pytest.mark.parametrize("make", [broker, name_server, controller, proxy])
def test_a_cancelled_stop_closes_every_part(
    make: Callable[[Path], Node], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        await asyncio.to_thread(lambda: None)  # the thread of `to_thread` stays
        before = held()
        node = make(tmp_path)
        await node.start()
        async with pending_call(node) as call:
            await cancel_at_first_wait(node, monkeypatch)
            with pytest.raises(ConnectionClosed):
                await asyncio.wait_for(call, 10)
        await assert_released(before)
        await node.stop()

    uvloop.run(run())


@pytest.mark.parametrize(
    ("make", "place"),
    [
        (broker, "broker.scheduled.transactions:Transactions.write_ops"),
        (broker, "broker.node:NameServers.unregister_everywhere"),
        (name_server, "namesrv.node:Server.stop"),
        (controller, "controller.node:Server.stop"),
        (proxy, "proxy.node:GrpcServer.stop"),
    ],
)
def test_a_stop_that_fails_closes_the_other_parts(
    make: Callable[[Path], Node], place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second stop closes the part that failed."""

    async def run() -> None:
        await asyncio.to_thread(lambda: None)  # the thread of `to_thread` stays
        before = held()
        node = make(tmp_path)
        await node.start()
        async with pending_call(node) as call:
            with planted(monkeypatch, place), pytest.raises(PlantedError):
                await node.stop()
            with pytest.raises(ConnectionClosed):
                await asyncio.wait_for(call, 10)
        await node.stop()
        await assert_released(before)

    uvloop.run(run())


def test_a_container_whose_port_does_not_close_ends_its_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        await asyncio.to_thread(lambda: None)  # the thread of `to_thread` stays
        before = held()
        node = container_node(tmp_path)
        await node.start()
        place = "broker.container.node:Server.stop"
        with planted(monkeypatch, place), pytest.raises(PlantedError):
            await node.stop()
        assert held()[1] == before[1]
        await node.stop()
        await assert_released(before)

    uvloop.run(run())


@pytest.mark.parametrize(
    "place",
    ["broker.node:MetricsExporter.stop", "broker.node:NameServers.unregister_everywhere"],
)
def test_a_stop_that_fails_at_its_begin_skips_no_later_part(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Name servers are notified, held requests answered, and waiting op messages written."""
    done: list[str] = []

    def noted(name: str) -> Callable[..., Any]:
        return lambda *_given: done.append(name)

    async def unregister(_name_servers: NameServers) -> None:
        done.append("unregister")

    async def run() -> None:
        node: Any = broker(tmp_path)
        await node.start()
        with monkeypatch.context() as block:
            block.setattr(NameServers, "unregister_everywhere", unregister)
            block.setattr(node.context.held_pulls, "release_all", noted("pulls"))
            block.setattr(node.context.held_pulls, "release_some", lambda: False)
            block.setattr(node.context.pop.waiters, "release_all", noted("pops"))
            block.setattr(node.context.pop.waiters, "release_some", lambda: False)
            block.setattr(node.context.transactions, "write_ops", noted("ops"))
            with planted(monkeypatch, place), pytest.raises(PlantedError):
                await node.stop()
        await node._metrics.stop()
        assert ("unregister" in done) == ("Metrics" in place)
        assert "pulls" in done and "ops" in done[done.index("pops") :]

    uvloop.run(run())
