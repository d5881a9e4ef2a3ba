"""A name server on real sockets: brokers that come, go, disconnect and fall silent."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from turbopump.namesrv.config import NamesrvConfig
from turbopump.namesrv.node import NameServerNode
from turbopump.net.transport.client import Client
from turbopump.net.transport.dispatcher import Dispatcher
from turbopump.net.transport.peer import Peer
from turbopump.net.transport.server import Server
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import Command, new_request
from turbopump.net.wire.header import read_header
from turbopump.net.wire.headers.routes import NotifyMinBrokerIdChangeRequest
from turbopump.net.wire.java_properties import ConfigError
from turbopump.net.wire.registration.register import RegisterBrokerBody
from turbopump.net.wire.route import TopicRouteData
from turbopump.net.wire.topics import DataVersion, TopicConfig, TopicConfigs

pytestmark = pytest.mark.integration

TIMEOUT_MS = 30_000


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


@asynccontextmanager
async def name_server(folder: Path, **settings: Any) -> AsyncIterator[NameServerNode]:
    config = NamesrvConfig(
        bind_address="127.0.0.1",
        listen_port=0,
        kv_config_path=str(folder / "kvConfig.json"),
        **settings,
    )
    node = NameServerNode(config)
    await node.start()
    try:
        yield node
    finally:
        await node.stop()


class Asker:
    """A broker or client with one connection of its own."""

    def __init__(self, node: NameServerNode) -> None:
        self.address = node.address
        self.client = Client(now_ms)

    async def ask(self, code: int, body: bytes = b"", **fields: str) -> Command:
        request = new_request(code, body=body, fields=fields)
        return await self.client.call(self.address, request, TIMEOUT_MS)

    async def register(
        self, broker: str = "10.0.0.1:10911", version: DataVersion | None = None, **more: str
    ) -> Command:
        table = {name: TopicConfig(name, 4, 4) for name in ("T", "U")}
        body = RegisterBrokerBody(TopicConfigs(version or DataVersion(), table)).encode()
        fields = {
            "brokerName": "a",
            "brokerAddr": broker,
            "clusterName": "c",
            "brokerId": "0",
            "haServerAddr": "",
            "enableActingMaster": "true",
            **more,
        }
        return await self.ask(RequestCode.REGISTER_BROKER, body, **fields)

    async def brokers(self) -> dict[int, str]:
        response = await self.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T")
        if response.code != 0:
            return {}
        assert isinstance(response.body, bytes)
        return TopicRouteData.decode(response.body).broker_datas[0].broker_addrs


async def until(condition: Callable[[], Coroutine[Any, Any, bool]]) -> None:
    async with asyncio.timeout(TIMEOUT_MS / 1_000):
        while not await condition():
            await asyncio.sleep(0.01)


def test_a_broker_that_hangs_up_is_gone(tmp_path: Path) -> None:
    async def work() -> None:
        async with name_server(tmp_path) as node:
            broker, client = Asker(node), Asker(node)
            assert (await broker.register()).code == 0
            assert await client.brokers() == {0: "10.0.0.1:10911"}
            assert node.is_registered("a", "10.0.0.1:10911")
            await broker.client.close()

            async def gone() -> bool:
                return await client.brokers() == {}

            await until(gone)
            assert not node.is_registered("a", "10.0.0.1:10911")
            await client.client.close()

    run(work())


def test_a_silent_broker_is_gone_and_its_connection_closed(tmp_path: Path) -> None:
    async def work() -> None:
        async with name_server(tmp_path, scan_not_active_broker_interval_ms=20) as node:
            broker, client = Asker(node), Asker(node)
            await broker.register(heartbeatTimeoutMillis="300")
            names = {"brokerName": "a", "brokerAddr": "10.0.0.1:10911", "clusterName": "c"}
            for _ in range(4):
                await asyncio.sleep(0.1)
                await broker.ask(RequestCode.BROKER_HEARTBEAT, **names)
            assert await client.brokers() == {0: "10.0.0.1:10911"}

            async def gone() -> bool:
                return await client.brokers() == {}

            await until(gone)
            await broker.client.close()
            await client.client.close()

    run(work())


def test_an_address_that_refuses_connections_does_not_hold_a_name(tmp_path: Path) -> None:
    async def work() -> None:
        async with name_server(tmp_path) as node:
            broker, other = Asker(node), Asker(node)
            free = await asyncio.start_server(lambda _r, _w: None, "127.0.0.1", 0)
            closed = f"127.0.0.1:{free.sockets[0].getsockname()[1]}"
            free.close()
            await free.wait_closed()
            version = DataVersion(0, 2**31 - 1, 0)
            assert (await other.register(closed, version=version)).code == 0
            assert await other.brokers() == {0: closed}

            async def back() -> bool:
                assert (await broker.register(node.address)).code == 0
                return await other.brokers() == {0: node.address}

            await until(back)
            # A broker that listens at its address stays, though another claims its place.
            await other.register(node.address, version=version)
            await broker.register("127.0.0.1:1")
            await asyncio.sleep(0.1)
            assert await other.brokers() == {0: node.address}
            await broker.client.close()
            await other.client.close()

    run(work())


def test_the_rest_of_a_group_is_told_of_its_lead(tmp_path: Path) -> None:
    async def work() -> None:
        notified: list[NotifyMinBrokerIdChangeRequest] = []

        def hear(request: Command, peer: Peer, now: int) -> None:
            notified.append(read_header(NotifyMinBrokerIdChangeRequest, request.fields))

        dispatcher = Dispatcher()
        dispatcher.add(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, hear)
        replica = Server(dispatcher, None, now_ms)
        port = await replica.start("127.0.0.1", 0)
        async with name_server(tmp_path, notify_min_broker_id_changed=True) as node:
            master, other = Asker(node), Asker(node)
            await other.register(f"127.0.0.1:{port}", brokerId="1")
            await master.register("127.0.0.1:1")
            await master.client.close()

            async def heard() -> bool:
                return len(notified) == 2

            await until(heard)
            assert [one.min_broker_id for one in notified] == [0, 1]
            assert notified[1].offline_broker_addr == "127.0.0.1:1"
            await other.client.close()
        await replica.stop()

    run(work())


def test_key_values_and_configuration_survive_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "namesrv.properties"
    item = {"namespace": "NS", "key": "k"}

    async def first() -> None:
        async with name_server(tmp_path, config_store_path=str(path)) as node:
            client = Asker(node)
            await client.ask(RequestCode.PUT_KV_CONFIG, **item, value="中")
            body = b"orderMessageEnable=true"
            assert (await client.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body)).code == 0
            await client.client.close()

    async def second() -> None:
        async with name_server(tmp_path) as node:
            client = Asker(node)
            response = await client.ask(RequestCode.GET_KV_CONFIG, **item)
            assert response.fields == {"value": "中"}
            await client.client.close()

    run(first())
    assert "orderMessageEnable=true\n" in path.read_text()
    assert json.loads((tmp_path / "kvConfig.json").read_text()) == {
        "configTable": {"NS": {"k": "中"}}
    }
    run(second())


@pytest.mark.parametrize("text", ["[]", '{"configTable": 3}'])
def test_a_wrong_key_value_file_is_named_and_kept(tmp_path: Path, text: str) -> None:
    path = tmp_path / "kvConfig.json"
    path.write_text(text)

    async def work() -> None:
        with pytest.raises(ConfigError, match="kvConfig"):
            async with name_server(tmp_path):
                raise AssertionError("started")

    run(work())
    assert path.read_text() == text


def test_a_port_in_use_is_a_sentence(tmp_path: Path) -> None:
    async def work() -> None:
        async with name_server(tmp_path / "1") as node:
            port = int(node.address.rpartition(":")[2])
            config = NamesrvConfig(
                bind_address="127.0.0.1", listen_port=port, kv_config_path=str(tmp_path / "2/kv")
            )
            second = NameServerNode(config)
            with pytest.raises(ConfigError, match="Address already in use"):
                await second.start()

    run(work())
