"""A name server that is restarted, or that lost its connection to a broker, has routes at once."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop
from interop.support.ports import free_port

from turbopump.namesrv.config import NamesrvConfig
from turbopump.namesrv.node import NameServerNode
from turbopump.net.transport.errors import RemotingError

pytestmark = pytest.mark.integration

TIMEOUT_S = 60
AT_ONCE_S = 30
"""Half of the time to the next periodic registration, on a machine with other work."""
SELDOM = "registerNameServerPeriod=60000\n"


async def has_route(caller: Any) -> bool:
    try:
        return bool((await caller.ask(105, topic="TBW102")).code == 0)
    except RemotingError:
        return False


async def until_route(caller: Any, limit_s: float) -> None:
    async with asyncio.timeout(limit_s):
        while not await has_route(caller):
            await asyncio.sleep(0.02)


class NameServerProcess:
    """`turbopump namesrv` at one port, to be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.config = folder / "namesrv.conf"
        self.config.write_text(f"bindAddress=127.0.0.1\nkvConfigPath={folder}/kv.json\n")

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "turbopump",
            "namesrv",
            "-c",
            str(self.config),
            "-p",
            str(self.port),
            "--json",
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        try:
            assert process.stdout is not None
            assert (await process.stdout.readline()).startswith(b"{")
            yield
        finally:
            process.send_signal(signal.SIGKILL)
            await process.wait()


def test_a_name_server_that_was_killed_has_routes_when_it_returns(
    serve: Callable[..., Any], tmp_path: Path, connect: Any
) -> None:
    async def run() -> None:
        names = NameServerProcess(tmp_path)
        asker = connect(f"127.0.0.1:{names.port}")
        async with asyncio.timeout(TIMEOUT_S * 3), AsyncExitStack() as stack:
            stack.push_async_callback(asker.close)
            async with names.running():
                broker = serve(f"namesrvAddr={asker.address}\n{SELDOM}")
                await stack.enter_async_context(broker)
                assert await has_route(asker)
            for _ in range(2):  # the second time between two periodic ones, too
                async with names.running():
                    await until_route(asker, AT_ONCE_S)

    uvloop.run(run())


def test_a_lost_connection_to_a_living_name_server_costs_no_routes(
    serve: Callable[..., Any], tmp_path: Path, connect: Any
) -> None:
    """Routes survive a lost connection, though a name server drops a broker whose connection is
    closed by either side.
    """

    async def run() -> None:
        config = NamesrvConfig(
            bind_address="127.0.0.1", listen_port=0, kv_config_path=str(tmp_path / "kv.json")
        )
        names = NameServerNode(config)
        await names.start()
        try:
            async with serve(f"namesrvAddr={names.address}\n{SELDOM}") as (node, _):
                assert names.is_registered("broker-a", node.address)
                assert names._server is not None
                (broker,) = names._server.peers
                broker.close()
                async with asyncio.timeout(TIMEOUT_S):
                    while names.is_registered("broker-a", node.address):
                        await asyncio.sleep(0)
                asker = connect(names.address)
                await until_route(asker, AT_ONCE_S)
                await asker.close()
        finally:
            await names.stop()

    uvloop.run(run())
