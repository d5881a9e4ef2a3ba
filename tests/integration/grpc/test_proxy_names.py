"""A proxy that runs connects to the name servers that its file has now, and looks names up."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from turbopump.proxy.config import ProxyConfig, read_file
from turbopump.proxy.node import ProxyNode

pytestmark = pytest.mark.integration
TIMEOUT_S = 30


@asynccontextmanager
async def listener() -> AsyncIterator[tuple[int, asyncio.Event]]:
    """A port, and an event that is set once a peer has connected to it."""
    connected = asyncio.Event()

    def accepted(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.set()
        writer.close()

    async with await asyncio.start_server(accepted, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1], connected


def test_name_servers_change_while_a_proxy_runs(tmp_path: Path) -> None:
    async def story() -> None:
        async with listener() as (first, at_first), listener() as (second, at_second):
            file = tmp_path / "proxy.conf"
            text = "grpcServerPort=0\nfetchNameSrvAddrByDnsLookup=true\nfetchNamesrvAddrInterval=50"
            file.write_text(f"{text}\nnamesrvAddr=127.0.0.1:{first}\n")
            config = ProxyConfig(path=str(file))
            config.update_keys(read_file(file.read_text()))
            node = ProxyNode(config)
            await node.start()
            try:
                assert config.namesrv_names == (f"127.0.0.1:{first}",), "looked up at the start"
                await asyncio.wait_for(at_first.wait(), TIMEOUT_S)
                file.write_text(f"{text}\nnamesrvAddr=127.0.0.1:{second}\n")
                await asyncio.wait_for(at_second.wait(), TIMEOUT_S)
            finally:
                await node.stop()

    asyncio.run(story())
