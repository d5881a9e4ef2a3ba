"""Bytes that no peer should send: the sender loses its connection, no other notices."""

import asyncio
import contextlib
import json
import random
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from turbopump.net.transport.options import ServerOptions
from turbopump.net.wire.command import FRAME_MAX, Command, encode, new_request

ECHO = 10
GOOD = b"".join(encode(new_request(ECHO, body=b"good")))


def framed(header: bytes, body: bytes = b"", codec: int = 0) -> bytes:
    size = 4 + len(header) + len(body)
    return struct.pack(">iI", size, codec << 24 | len(header)) + header + body


def length(value: int) -> bytes:
    return struct.pack(">i", value)


BAD = {
    "length 0": length(0),
    "length 1": length(1) + b"x",
    "length 3": length(3) + b"xxx",
    "length -1": length(-1),
    "length -2^31": length(-(2**31)),
    "length 2^31-1": length(2**31 - 1),
    "length over the limit": length(FRAME_MAX - 3),
    "header over the frame": struct.pack(">ii", 4, 1),
    "header of 16 MB in a small frame": struct.pack(">ii", 100, 0x00FFFFFF) + bytes(96),
    "unknown codec": framed(b"{}", codec=2),
    "codec 255": framed(b"{}", codec=255),
    "empty header": framed(b""),
    "text": framed(b"not json"),
    "list": framed(b"[]"),
    "number": framed(b"5"),
    "JSON string": framed(b'"text"'),
    "object without a code": framed(b"{}"),
    "deep JSON": framed(b"[" * 100_000),
    "huge number": framed(b'{"code":' + b"9" * 100_000 + b"}"),
    "short binary header": framed(b"\0" * 10, codec=1),
    "binary header with a lying length": framed(bytes(17) + b"\x7f\xff\xff\xff", codec=1),
    "HTTP": b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
    "TLS hello": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "PROXY protocol": b"PROXY TCP4 1.1.1.1 2.2.2.2 1 2\r\n",
}


@pytest.mark.parametrize("data", BAD.values(), ids=BAD.keys())
def test_closed_at_once(run, serve, talk, data) -> None:
    async def main() -> None:
        async with serve() as served, talk(served.port) as other:
            other.send(GOOD)
            await other.answer()
            async with talk(served.port) as raw:
                raw.send(data)
                assert await raw.closed() == b""
            # After good frames too, whose responses come first.
            async with talk(served.port) as raw:
                raw.send(GOOD)
                assert (await raw.answer()).body == b"good"
                raw.send(data)
                assert await raw.closed() == b""
            other.send(GOOD)
            assert (await other.answer()).body == b"good"
            assert len(served.server.peers) == 1
            assert served.hub.area.in_use == 0

    run(main())


def test_random_bytes(run, serve, talk) -> None:
    async def main() -> None:
        chance = random.Random(5)
        async with serve(ServerOptions(frame_timeout_ms=300)) as served:
            for _ in range(200):
                async with talk(served.port) as raw:
                    raw.send(chance.randbytes(chance.randrange(1, 2000)))
                    if chance.random() < 0.5:
                        raw.writer.write_eof()
                        await raw.closed()
            await served.alive()
            await served.until(lambda: not served.server.peers)
            assert served.hub.area.in_use == 0

    run(main())


def test_damaged_and_truncated_frames(run, serve, talk) -> None:
    """Any damage costs at most its own connection: a response, a close, or silence until the
    end."""

    async def main() -> None:
        chance = random.Random(6)
        async with serve() as served:
            for _ in range(200):
                frame = bytearray(GOOD * 2)
                for _ in range(chance.randrange(1, 4)):
                    frame[chance.randrange(len(frame))] = chance.randrange(256)
                async with talk(served.port) as raw:
                    raw.send(bytes(frame[: chance.randrange(1, len(frame) + 1)]))
                    raw.writer.write_eof()
                    await raw.closed()
            await served.alive()
            await served.until(lambda: not served.server.peers)
            assert served.hub.area.in_use == 0

    run(main())


def test_half_open_and_reset_connections(run, serve, talk) -> None:
    async def main() -> None:
        async with serve() as served:
            async with talk(served.port) as raw:
                raw.send(GOOD, GOOD[:20])
                assert (await raw.answer()).body == b"good"
                raw.writer.write_eof()
                assert await raw.closed() == b""
            for data in (b"", GOOD[:20], GOOD):
                raw_socket = socket.create_connection(("127.0.0.1", served.port))
                raw_socket.sendall(data)
                # Linger 0: the close is a reset.
                option = struct.pack("ii", 1, 0)
                raw_socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, option)
                raw_socket.close()
            await served.alive()
            await served.until(lambda: not served.server.peers)
            assert served.hub.area.in_use == 0

    run(main())


def test_announced_frames_cost_their_arrived_bytes(run, serve, talk) -> None:
    """A hundred peers announce 16 MB each and send 2 KB."""

    async def main() -> None:
        async with serve() as served, contextlib.AsyncExitStack() as stack:
            for _ in range(100):
                raw = await stack.enter_async_context(talk(served.port))
                raw.send(length(FRAME_MAX - 4) + bytes(2000))
            await served.until(lambda: served.hub.area.in_use >= 100 * 2004)
            await served.alive()
            assert served.hub.area.in_use < 100 * 10_000

    run(main())


def test_incomplete_frames_of_all_peers_share_a_budget(run, serve, talk) -> None:
    async def main() -> None:
        options = ServerOptions(receive_max=1 << 20)
        async with serve(options) as served, contextlib.AsyncExitStack() as stack:
            raws = []
            for _ in range(10):
                raw = await stack.enter_async_context(talk(served.port))
                raw.send(length(FRAME_MAX - 4) + bytes(100_000))
                raws.append(raw)
            await served.until(lambda: len(served.server.peers) < 10)
            assert served.hub.area.in_use <= 1 << 20
            await served.alive()
            # The last connection is served, also with a frame that takes more than one read.
            async with talk(served.port) as honest:
                honest.send(Command(ECHO, opaque=7, body=bytes(500_000)))
                assert len((await honest.answer()).body) == 500_000

    run(main())


def test_complaints_about_peers_are_bounded(run, serve, talk, caplog) -> None:
    async def main() -> None:
        async with serve() as served:
            for _ in range(50):
                async with talk(served.port) as raw:
                    raw.send(length(-1))
                    await raw.closed()

    run(main())
    complaints = [record for record in caplog.records if "closed:" in record.message]
    assert 0 < len(complaints) <= 20


SERVER = """
import asyncio, sys, uvloop
from turbopump.net.transport.dispatcher import Dispatcher
from turbopump.net.transport.options import ServerOptions
from turbopump.net.transport.server import Server
from turbopump.net.wire.command import new_response

async def main():
    table = Dispatcher()
    table.add(10, lambda request, *_: new_response(request, 0, body=request.body))
    server = Server(table, ServerOptions(max_connections=10_000), lambda: 0)
    print(await server.start("127.0.0.1", 0), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await server.stop()

uvloop.run(main())
"""


class Process:
    """A server in a process of its own, so that its memory can be read."""

    def __enter__(self) -> "Process":
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self.process.stdout is not None
        try:
            self.port = int(self.process.stdout.readline())
        except BaseException:
            self.process.kill()
            self.process.communicate()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.process.communicate()

    def resident_kb(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if "VmRSS" in line)

    def ask(self, peer: socket.socket) -> float:
        """Seconds until an echo is back."""
        begin = time.monotonic()
        peer.sendall(GOOD)
        assert peer.recv(4096)
        return time.monotonic() - begin


def test_ten_thousand_connections() -> None:
    """Idle, then trickling, then gone: cheap for the server, unnoticed by another client; those
    over the limit are refused."""
    with Process() as server, contextlib.ExitStack() as stack:

        def peer() -> socket.socket:
            return stack.enter_context(socket.create_connection(("127.0.0.1", server.port), 20))

        other = peer()
        server.ask(other)
        before_kb = server.resident_kb()
        flood = [peer() for _ in range(9_999)]
        for one in flood[:10]:
            server.ask(one)
        assert server.resident_kb() - before_kb < 10_000 * 8
        assert server.ask(other) < 1
        refused = peer()
        refused.sendall(GOOD)
        response = refused.recv(4096)
        assert json.loads(response[8:])["code"] == 2
        assert refused.recv(4096) == b""
        for one in flood:
            one.sendall(GOOD[:30])
        assert server.ask(other) < 5
        assert server.resident_kb() - before_kb < 10_000 * 16
        for one in flood:
            one.close()
        assert server.ask(other) < 5
        assert server.ask(peer()) < 5


def test_a_server_survives_a_peer_that_connects_and_leaves(run, serve) -> None:
    async def main() -> None:
        async with serve() as served:
            for _ in range(300):
                _, writer = await asyncio.open_connection("127.0.0.1", served.port)
                writer.write(b"".join(encode(Command(ECHO))))
                writer.close()
                with contextlib.suppress(ConnectionError):
                    await writer.wait_closed()
            await served.alive()
            await served.until(lambda: not served.server.peers)

    run(main())
