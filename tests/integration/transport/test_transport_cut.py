"""Peers that do not read are cut in the midst of their own requests, and only they suffer.

`make asan` plays it on instrumented kernels: received data of such a peer is freed while it is
being handled.
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import uvloop
from tests.integration.transport.conftest import TIME_LIMIT, Raw
from tests.lane.world import make
from tests.unit.broker.traffic.test_fast_path import SEND, frame_of, pull_frame

from turbopump.engine.types import FlushMode
from turbopump.net.transport.hub import UNSENT_NOTED_OVER, Gate
from turbopump.net.transport.options import MIB, ServerOptions, TlsSettings
from turbopump.net.transport.server import Server
from turbopump.pyx.fast import Turn
from turbopump.pyx.lane import Lane
from turbopump.pyx.pulls import Pulls

KB = 1024
SIZES = "mappedFileSizeCommitLog=1048576\nmappedFileSizeConsumeQueue=20000\n"


@dataclass
class Native:
    """The native parts of a broker, and counts of their work."""

    lane: Lane
    pulls: Pulls | None

    @property
    def sent(self) -> int:
        return self.lane.send_count

    @property
    def pulled(self) -> int:
        assert self.pulls is not None
        return self.pulls.found_count


@contextlib.asynccontextmanager
async def broker(
    folder: Path,
    options: ServerOptions,
    turns: bool = True,
    mode: FlushMode = FlushMode.ASYNC_FLUSH,
    sizes: str = SIZES,
) -> AsyncIterator[tuple[Server, int, Native]]:
    """A broker's native path on a port, with 8 messages of 2,000 bytes."""
    world = make(str(folder), mode, sizes)
    world.soon = asyncio.get_running_loop().call_soon
    store = world.broker.store
    fast = world.broker.fast
    lane = fast.lane
    fast.start(world.broker.store_host)
    server = Server(world.table, options, lambda: world.now_ms)
    loop = asyncio.get_running_loop()
    gate = Gate(lane, store.statistics.pulls[0], Turn(lane, loop.call_soon) if turns else None)
    port = await server.start("127.0.0.1", 0, gate=gate)
    raw = Raw(*await asyncio.open_connection("127.0.0.1", port))
    for opaque in range(8):
        raw.send(frame_of({**SEND, "body": b"b" * 2000}, opaque))
        await raw.answer()
    await raw.close()
    try:
        yield server, port, Native(lane, gate.pulls)
    finally:
        await server.stop()
        world.close()


def requests(with_sends: bool) -> bytes:
    """Requests that one peer sends without reading a response."""
    pulls = map(pull_frame, range(400))
    if with_sends:
        return b"".join(pull + frame_of(SEND, 1000 + i) for i, pull in enumerate(pulls))
    return b"".join(pulls)


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("kind", ["native", "with sends", "python"])
def test_peers_that_do_not_read_are_cut_in_the_midst(tmp_path: Path, kind: str, tls: bool) -> None:
    """First all peers are blocked, with their requests received and unanswered; then one reads a
    little, gets more responses, and too much is unsent: it is cut while its own requests are
    handled.
    """
    options = ServerOptions(
        write_high_water=MIB // 4, write_low_water=64 * KB, tls=TlsSettings() if tls else None
    )

    async def main() -> None:
        async with broker(tmp_path, options) as (server, port, native):
            hub = server._hub
            assert hub is not None
            data, peers = requests(kind == "with sends"), []
            native.lane.open = kind != "python"
            settings = {"ssl": trusting_all()} if tls else {}
            for _ in range(8):
                sock = socket.socket()
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * KB)
                sock.connect(("127.0.0.1", port))
                if tls:
                    settings["server_hostname"] = "any"
                opened = await asyncio.open_connection(sock=sock, limit=KB, **settings)
                peers.append(Raw(*opened))
                peers[-1].send(data)
            honest = Raw(*await asyncio.open_connection("127.0.0.1", port))
            while sum(one.blocked for one in hub.connections) < len(peers):
                await ask(honest)
            hub.options = replace(options, unsent_max=UNSENT_NOTED_OVER)
            reading = asyncio.ensure_future(read_all(peers[0]))
            while len(server.peers) > 1:
                await ask(honest)
            await reading
            for peer in peers:
                peer.writer.transport.abort()
            await ask(honest)
            await honest.close()
            while server.peers:
                await asyncio.sleep(0.001)
            assert hub.area.in_use == 0

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
        loop.run(asyncio.wait_for(main(), TIME_LIMIT))


async def ask(honest: Raw) -> None:
    honest.send(pull_frame(7))
    assert len((await honest.answer()).body) > 8 * 2000


async def read_all(peer: Raw) -> None:
    """Read until the other side closes."""
    with contextlib.suppress(OSError):
        while await peer.reader.read(1 << 20):
            pass


def trusting_all(version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.minimum_version = context.maximum_version = version
    return context
