"""TLS connections on a broker's native path: like plain ones, however their bytes are cut."""

import asyncio
import contextlib
import shutil
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop
from tests.integration.transport.conftest import TIME_LIMIT, Raw, serving, talking
from tests.integration.transport.test_transport_cut import KB, broker, trusting_all
from tests.unit.broker.traffic.test_fast_path import SEND, frame_of, pull_frame

from turbopump.engine.types import FlushMode
from turbopump.net.transport.options import MIB, ServerOptions, TlsSettings
from turbopump.net.wire.command import Command, decode, new_response

TLS = ServerOptions(tls=TlsSettings(), write_high_water=MIB // 4, write_low_water=64 * KB)
LARGE = 20


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
        loop.run(asyncio.wait_for(coroutine, TIME_LIMIT))


class Session:
    """A TLS client whose records the test sends in any pieces."""

    def __init__(self, raw: Raw) -> None:
        self.raw = raw
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = trusting_all().wrap_bio(self.incoming, self.outgoing)
        self.plain = b""

    async def until(self, step: Callable[[], Any]) -> Any:
        while True:
            try:
                return step()
            except ssl.SSLWantReadError:
                self.raw.send(self.outgoing.read())
                self.incoming.write(await self.raw.reader.read(1 << 16))
            finally:
                self.raw.send(self.outgoing.read())

    def sealed(self, data: bytes) -> bytes:
        self.tls.write(data)
        return self.outgoing.read()

    async def answer(self) -> Command:
        while len(self.plain) < 4 or len(self.plain) < 4 + int.from_bytes(self.plain[:4], "big"):
            self.plain += await self.until(lambda: self.tls.read(1 << 16))
        size = 4 + int.from_bytes(self.plain[:4], "big")
        frame, self.plain = self.plain[:size], self.plain[size:]
        return decode(frame)


@contextlib.asynccontextmanager
async def session(port: int, **settings: Any) -> AsyncIterator[Session]:
    async with talking(port, **settings) as raw:
        made = Session(raw)
        await made.until(made.tls.do_handshake)
        yield made


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("mode", FlushMode)
def test_requests_over_tls_are_served_natively(
    tmp_path: Path, mode: FlushMode, version: ssl.TLSVersion
) -> None:
    async def main() -> None:
        async with broker(tmp_path, TLS, mode=mode) as (server, port, native):
            async with talking(port) as plain, talking(port, ssl=trusting_all(version)) as sealed:
                plain.send(pull_frame(99))
                await plain.answer()
                before = native.sent, native.pulled
                sealed.send(*(frame_of(SEND, opaque) for opaque in range(40)))
                assert {(await sealed.answer()).opaque for _ in range(40)} == set(range(40))
                for one in (plain, sealed):
                    one.send(*(pull_frame(opaque) for opaque in range(40)))
                for _ in range(40):
                    response, beside = await sealed.answer(), await plain.answer()
                    assert (response.opaque, response.body) == (beside.opaque, beside.body)
                assert native.sent == before[0] + 40
                assert native.pulled == before[1] + 80
            await gone(server)

    run(main())


def test_records_cut_anywhere_and_frames_cut_anywhere_in_them(tmp_path: Path) -> None:
    async def main() -> None:
        async with broker(tmp_path, TLS) as (server, port, native), session(port) as peer:
            frames = b"".join(frame_of({**SEND, "body": b"x" * 3000}, one) for one in range(20))
            # Records of 700 bytes of frames, TCP pieces of 333 bytes of records.
            records = b"".join(
                peer.sealed(frames[at : at + 700]) for at in range(0, len(frames), 700)
            )
            for at in range(0, len(records), 333):
                peer.raw.send(records[at : at + 333])
                await asyncio.sleep(0)
            assert {(await peer.answer()).opaque for _ in range(20)} == set(range(20))
            assert native.sent >= 20
            # One at a time, one byte at a time.
            for byte in peer.sealed(pull_frame(7)):
                peer.raw.send(bytes([byte]))
                await asyncio.sleep(0)
            assert (await peer.answer()).opaque == 7
            assert server.peers

    run(main())


def test_large_messages_over_tls(tmp_path: Path) -> None:
    """Large messages, slices of a mapping, are encrypted some records at a time."""

    async def main() -> None:
        body = bytes(range(256)) * 12_000
        async with broker(tmp_path, TLS, sizes="") as (_, port, native):
            async with talking(port, ssl=trusting_all(), limit=KB) as peer:
                peer.send(frame_of({**SEND, "body": body, "queue_id": 1}, 1))
                peer.send(frame_of({**SEND, "body": body, "queue_id": 1}, 2))
                await peer.answer()
                await peer.answer()
                for opaque in range(3, 9):
                    peer.send(pull_frame(opaque, queue_id=1))
                for opaque in range(3, 9):
                    response = await peer.answer()
                    assert response.opaque == opaque
                    assert response.body.count(body) >= 1
            assert native.pulled > 0

    run(main())


def test_peers_that_do_not_read_over_tls_hold_little_and_delay_no_other(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            broker(tmp_path, TLS) as (server, port, native),
            contextlib.AsyncExitStack() as stack,
        ):
            honest = await stack.enter_async_context(talking(port, ssl=trusting_all()))
            peers = [
                await stack.enter_async_context(talking(port, ssl=trusting_all(), limit=KB))
                for _ in range(10)
            ]
            honest.send(pull_frame(0))
            await honest.answer()
            asked = b"".join(map(pull_frame, range(1000)))
            for peer in peers:
                peer.send(asked)
            hub, response, before = server._hub, 8 * 2100, -1
            while before != native.pulled:
                before = native.pulled
                for opaque in range(20):
                    honest.send(pull_frame(opaque))
                    assert (await honest.answer()).opaque == opaque
                assert hub is not None
                for one in hub.connections:
                    assert one.unsent <= TLS.write_high_water + 2 * response
                before += 20
            assert hub.area.in_use <= len(peers) * 2 * len(asked)
            for peer in peers[:2]:
                for opaque in range(1000):
                    assert (await peer.answer()).opaque == opaque
            for peer in peers:
                peer.writer.transport.abort()

    run(main())


def test_large_answers_of_python_to_tls_peers_that_do_not_read() -> None:
    """Without a native path, as in name servers and controllers, large responses to peers that do
    not read stay bounded.
    """

    async def main() -> None:
        async with serving(TLS) as served:
            handled = []

            def large(request: Command, *_: Any) -> Command:
                handled.append(request.opaque)
                return new_response(request, 0, body=bytes(64 * KB))

            served.table.add(LARGE, large)
            async with talking(served.port, ssl=trusting_all(), limit=KB) as peer:
                total = 2000
                peer.send(*(Command(LARGE, opaque=opaque) for opaque in range(total)))
                await served.until(lambda: len(handled) > 4)
                before = -1
                while before != len(handled):
                    before = len(handled)
                    await served.alive()
                assert len(handled) < total // 2
                assert all(one.unsent < MIB for one in served.hub.connections)
                for opaque in range(total):
                    assert (await peer.answer()).opaque == opaque

    run(main())


def test_a_peer_that_says_goodbye_is_answered_before(tmp_path: Path) -> None:
    async def main() -> None:
        async with broker(tmp_path, TLS) as (server, port, native), session(port) as peer:
            records = peer.sealed(b"".join(pull_frame(opaque) for opaque in range(30)))
            with contextlib.suppress(ssl.SSLWantReadError):
                peer.tls.unwrap()
            peer.raw.send(records + peer.outgoing.read())
            # The peer's closing alert came with the requests: OpenSSL stops reading, so the test
            # itself opens the records, up to the other side's closing alert.
            rest = await peer.raw.closed()
            assert len(rest) > 30 * 8 * 2000
            assert native.sent > 0
            await gone(server)

    run(main())


@pytest.mark.parametrize("reset", [False, True])
def test_a_peer_that_goes_without_goodbye(tmp_path: Path, reset: bool) -> None:
    """The last sends of a peer without a closing alert are stored, even if the responses can no
    longer be written.
    """

    async def main() -> None:
        async with broker(tmp_path, TLS) as (server, port, native), session(port) as peer:
            before = native.sent
            peer.raw.send(peer.sealed(b"".join(frame_of(SEND, one) for one in range(50))))
            if reset:
                linger = (1).to_bytes(4, "little") + bytes(4)
                sock = peer.raw.writer.get_extra_info("socket")
                await until(lambda: native.sent > before)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                peer.raw.writer.transport.abort()
            else:
                peer.raw.writer.write_eof()
            await gone(server)
            assert native.sent == before + 50

    run(main())


@pytest.mark.parametrize("kind", ["record", "frame", "plain"])
def test_garbage_ends_the_connection_but_earlier_requests_count(tmp_path: Path, kind: str) -> None:
    async def main() -> None:
        async with broker(tmp_path, TLS) as (server, port, native), session(port) as peer:
            before = native.sent
            garbage = {
                "record": b"\x17\x03\x03\x00\x20" + b"g" * 32,
                "frame": peer.sealed(b"\xff\xff\xff\xff") if kind == "frame" else b"",
                "plain": frame_of(SEND, 2),
            }[kind]
            good = peer.sealed(frame_of(SEND, 1)) if kind != "frame" else b""
            peer.raw.send(good + garbage)
            await gone(server)
            assert native.sent == before + (kind != "frame")

    run(main())


def test_a_server_that_stops_says_goodbye(tmp_path: Path) -> None:
    async def main() -> None:
        async with broker(tmp_path, TLS) as (server, port, _), session(port) as peer:
            peer.raw.send(peer.sealed(pull_frame(1)))
            assert (await peer.answer()).opaque == 1
            stopping = asyncio.ensure_future(server.stop())
            assert await peer.until(lambda: peer.tls.read(1 << 16)) == b""
            await stopping

    run(main())


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl command")
@pytest.mark.parametrize(
    ("version", "letter", "sent_bytes", "goes_on"),
    [
        ("-tls1_3", b"K", b"KEYUPDATE", True),
        ("-tls1_3", b"k", b"KEYUPDATE", True),
        ("-tls1_2", b"R", b"RENEGOTIATING", False),
    ],
)
def test_keys_are_updated_and_handshakes_not_repeated(
    tmp_path: Path, version: str, letter: bytes, sent_bytes: bytes, goes_on: bool
) -> None:
    async def main() -> None:
        async with broker(tmp_path, TLS) as (server, port, native):
            pipe = asyncio.subprocess.PIPE
            client = await asyncio.create_subprocess_exec(
                "openssl",
                "s_client",
                "-connect",
                f"127.0.0.1:{port}",
                version,
                "-brief",
                stdin=pipe,
                stdout=pipe,
                stderr=pipe,
            )
            assert client.stdin is not None
            assert client.stdout is not None
            assert client.stderr is not None
            before = native.sent
            for opaque in range(3):
                client.stdin.write(frame_of(SEND, opaque))
                head = await client.stdout.readexactly(4)
                response = await client.stdout.readexactly(int.from_bytes(head, "big"))
                assert decode(head + response).opaque == opaque
                client.stdin.write(letter + b"\n")
                while sent_bytes not in await client.stderr.readline():
                    pass
                if not goes_on:
                    break
            if goes_on:
                assert native.sent == before + 3
            else:
                await gone(server)  # OpenSSL's client gives up where it is refused
            client.stdin.close()
            with contextlib.suppress(ProcessLookupError):
                client.kill()
            await client.communicate()
            await gone(server)

    run(main())


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


async def gone(server: Any) -> None:
    """Wait until all connections ended, and check that nothing is kept of them."""
    hub = server._hub
    await until(lambda: not server.peers)
    assert hub.area.in_use == 0
