"""Limits of a connection and of a server: too slow, too large or too many."""

import asyncio
import contextlib
import os
from pathlib import Path
from typing import Any

import pytest

from turbopump.broker.ha.sockets import Sockets
from turbopump.net.grpc.server import GrpcServer
from turbopump.net.ports.scrape import ScrapeServer
from turbopump.net.transport import server
from turbopump.net.transport.dispatcher import Dispatcher
from turbopump.net.transport.errors import CallTimeout
from turbopump.net.transport.options import RemotingOptions, ServerOptions
from turbopump.net.wire.command import Command, encode, new_request, new_response

ECHO, HOLD, LARGE = 10, 11, 20
KB = 1024


def test_reading_pauses_while_a_peer_does_not_take_its_answers(run, serve, talk) -> None:
    options = ServerOptions(write_high_water=256 * KB, write_low_water=64 * KB)

    async def main() -> None:
        async with serve(options) as served:
            handled = []

            def large(request: Command, *_) -> Command:
                handled.append(request.opaque)
                return new_response(request, 0, body=bytes(64 * KB))

            served.table.add(LARGE, large)
            async with talk(served.port, limit=KB) as raw:
                total = 3000
                padding = {"pad": "x" * 2000}
                for opaque in range(total):
                    raw.send(Command(LARGE, opaque=opaque, fields=padding))
                await served.until(lambda: len(handled) > 10)
                before = -1
                while before != len(handled):
                    before = len(handled)
                    await served.alive()
                # 64 KB each: the number of handled requests is bounded by buffers, not by the
                # number of requests.
                assert len(handled) < total // 2
                for opaque in range(total):
                    assert (await raw.answer()).opaque == opaque
                assert handled == list(range(total))

    run(main())


def test_a_peer_that_lets_answers_to_held_requests_pile_up_is_cut(run, serve, talk) -> None:
    options = ServerOptions(write_high_water=64 * KB, write_low_water=16 * KB, write_max=4096 * KB)

    async def main() -> None:
        async with serve(options) as served, talk(served.port, limit=KB) as raw:
            for opaque in range(64):
                raw.send(Command(HOLD, opaque=opaque))
            await served.until(lambda: len(served.held) == 64)
            while served.held:
                request, later = served.held.pop()
                later.resolve(new_response(request, 0, body=bytes(512 * KB)))
                await asyncio.sleep(0)
            await served.until(lambda: not served.server.peers)
            await served.alive()

    run(main())


def test_unsent_bytes_of_all_peers_are_bounded(run, serve, talk, caplog) -> None:
    """The sum of unsent bytes is bounded though no peer exceeds its own limit; a peer that reads
    keeps its connection.
    """
    options = ServerOptions(unsent_max=8192 * KB)

    async def main() -> None:
        async with serve(options) as served, contextlib.AsyncExitStack() as stack:
            slow = [await stack.enter_async_context(talk(served.port, limit=KB)) for _ in range(24)]
            async with talk(served.port) as reader:
                for raw in slow:
                    raw.send(Command(HOLD, opaque=1))
                await served.until(lambda: len(served.held) == len(slow))
                while served.held:
                    request, later = served.held.pop()
                    later.resolve(new_response(request, 0, body=bytes(6144 * KB)))
                    await served.alive()
                    reader.send(Command(ECHO, opaque=2))
                    assert (await reader.answer()).opaque == 2
                hub = served.server._hub
                unsent = sum(one.unsent for one in hub.connections)
                assert unsent <= options.unsent_max
                assert hub._unsent_total <= options.unsent_max
                assert 1 < len(hub.connections) < len(slow)
        assert hub._unsent == {} and hub._unsent_total == 0
        assert "of too many bytes are unsent" in caplog.text

    run(main())


def test_reading_pauses_at_the_in_flight_limit(run, serve, talk) -> None:
    async def main() -> None:
        async with serve(ServerOptions(max_in_flight=8)) as served, talk(served.port) as raw:
            for opaque in range(8):
                raw.send(Command(HOLD, opaque=opaque))
            await served.until(lambda: len(served.held) == 8)
            raw.send(Command(ECHO, opaque=100))
            await served.alive()
            assert len(served.seen) == 1
            served.release()
            opaques = [(await raw.answer()).opaque for _ in range(9)]
            assert opaques == [*range(8), 100]

    run(main())


def test_idle_connections_are_closed_and_busy_ones_not(run, serve, talk) -> None:
    async def main() -> None:
        async with serve(ServerOptions(idle_timeout_ms=200)) as served:
            clock = served.clock_by_hand()
            async with talk(served.port) as idle, talk(served.port) as busy:
                idle.send(Command(ECHO, opaque=1))
                await idle.answer()
                for waited_ms in (0, 90, 180):
                    busy.send(Command(ECHO, opaque=2))
                    assert (await busy.answer()).code == 0
                    await served.swept()
                    assert len(served.server.peers) == 2, waited_ms
                    clock[0] += 0.09
                assert await idle.closed() == b""
                busy.send(Command(ECHO, opaque=3))
                assert (await busy.answer()).code == 0

    run(main())


@pytest.mark.parametrize("start", [b"\0", b"\0\0\1\0", b"\0\0\1\0\0\0\0\x50{"])
def test_a_frame_that_does_not_end_in_time_closes(run, serve, talk, start) -> None:
    """Slow-loris: a byte now and then keeps a connection from being idle, not from being cut."""

    async def main() -> None:
        options = ServerOptions(frame_timeout_ms=200, idle_timeout_ms=100)
        async with serve(options) as served:
            clock = served.clock_by_hand()
            async with talk(served.port) as slow:
                slow.send(Command(ECHO, opaque=1), start)
                assert (await slow.answer()).opaque == 1
                (slow_peer,) = served.server.peers
                for waited_ms in range(0, 199, 33):
                    slow.send(b"x")
                    await served.alive()
                    await served.swept()
                    assert slow_peer in served.server.peers, waited_ms
                    clock[0] += 0.033
                slow.send(b"x")
                assert await slow.closed() == b""
                assert served.hub.area.in_use == 0

    run(main())


def test_a_peer_that_is_not_read_is_not_slow(run, serve, talk) -> None:
    async def main() -> None:
        options = ServerOptions(max_in_flight=1, frame_timeout_ms=50)
        frame = b"".join(encode(Command(ECHO, opaque=2)))
        async with serve(options) as served:
            clock = served.clock_by_hand()
            async with talk(served.port) as raw:
                raw.send(Command(HOLD, opaque=1), frame[:20])
                await served.until(lambda: bool(served.held))
                clock[0] += 0.3
                await served.swept()
                raw.send(frame[20:])
                served.release()
                assert [(await raw.answer()).opaque for _ in range(2)] == [1, 2]

    run(main())


def test_connections_over_the_limit_hear_why(run, serve, talk) -> None:
    async def main() -> None:
        async with (
            serve(ServerOptions(max_connections=2)) as served,
            talk(served.port) as one,
            talk(served.port) as two,
        ):
            await served.until(lambda: len(served.server.peers) == 2)
            async with talk(served.port) as three:
                three.send(Command(ECHO, opaque=9, body=b"x"), Command(ECHO, opaque=10))
                response = await three.answer()
                assert (response.code, response.opaque) == (2, 9)
                assert response.remark == "[REJECTREQUEST]too many connections, the limit is 2"
                await three.closed()
            assert served.seen == []
            for raw in (one, two):
                raw.send(Command(ECHO, opaque=1))
                assert (await raw.answer()).code == 0
            await one.close()
            await served.until(lambda: len(served.server.peers) == 1)
            await served.alive()

    run(main())


def test_refused_connections_that_stay_silent_are_closed(run, serve, talk) -> None:
    async def main() -> None:
        options = ServerOptions(max_connections=1, frame_timeout_ms=100)
        async with serve(options) as served, talk(served.port) as one:
            await served.until(lambda: len(served.server.peers) == 1)
            async with talk(served.port) as two:
                assert await two.closed() == b""
            one.send(Command(ECHO, opaque=1))
            assert (await one.answer()).code == 0

    run(main())


def test_servers_of_a_process_have_a_part_of_its_open_files_each(
    run, serve, talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flood of connections to one server leaves room for the other."""
    limit = server.OTHER_FILES + 4
    monkeypatch.setattr(server.resource, "getrlimit", lambda _what: (limit, limit))

    async def asked(served: Any, count: int) -> list[int]:
        codes = []
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(count):
                raw = await stack.enter_async_context(talk(served.port))
                raw.send(Command(ECHO, opaque=1))
                codes.append((await raw.answer()).code)
        await served.until(lambda: not served.server.peers)
        return codes

    async def main() -> None:
        async with serve() as one:
            assert await asked(one, 5) == [0, 0, 0, 0, 2]
            async with serve() as two:
                assert await asked(one, 3) == await asked(two, 3) == [0, 0, 2]
            assert await asked(one, 4) == [0, 0, 0, 0]

    run(main())


def test_a_closing_connection_that_is_not_read_is_cut(run, serve, talk) -> None:
    async def main() -> None:
        options = ServerOptions(close_timeout_ms=100, write_max=1 << 30)
        async with serve(options) as served, talk(served.port, limit=KB) as raw:
            raw.send(Command(HOLD, opaque=1))
            await served.until(lambda: bool(served.held))
            served.release(bytes(15_000_000))
            (peer,) = served.server.peers
            peer.close()
            await served.until(lambda: peer.closed)

    run(main())


def test_calls_wait_for_room_to_write(run, listen, connect) -> None:
    """A server that does not read: the client stops at its high-water mark, not at its memory."""

    async def main() -> None:
        options = RemotingOptions(write_high_water=256 * KB, write_low_water=64 * KB)
        async with listen(limit=KB) as address, connect(None, options) as client:
            with pytest.raises(CallTimeout, match="does not read"):
                for _ in range(1000):
                    await client.notify(address, new_request(ECHO, body=bytes(256 * KB)), 300)
            (connection,) = client._hub.connections
            assert connection._transport.get_write_buffer_size() < 1024 * KB
            connection.abort()

    run(main())


def listening_ports() -> set[str]:
    """The inodes of this process's sockets that listen on an IPv4 port."""
    own = set()
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            own.add(os.readlink(f"/proc/self/fd/{number}"))
    rows = [row.split() for row in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
    return {row[9] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in own}


def servers() -> list[tuple[Any, Any]]:
    """A server of each kind, and its function that opens a port."""

    async def scraped(_accept: str) -> tuple[bytes, str]:
        return b"", ""

    made = (
        server.Server(Dispatcher(), None, lambda: 0),
        GrpcServer({}),
        ScrapeServer(scraped),
        Sockets(Any),  # type: ignore[arg-type]
    )
    return [(one, one.listen if isinstance(one, Sockets) else one.start) for one in made]


@pytest.mark.parametrize("kind", range(4))
def test_a_start_that_is_cancelled_at_any_wait_leaves_no_port(run, kind: int) -> None:
    async def main() -> None:
        before = listening_ports()
        for turns in range(50):
            one, start = servers()[kind]
            starting = asyncio.create_task(start("127.0.0.1", 0))
            for _ in range(turns):
                await asyncio.sleep(0)
            is_done = starting.done()
            starting.cancel()
            await asyncio.wait({starting})
            if is_done:
                break
            for _ in range(5):
                await asyncio.sleep(0)
            assert listening_ports() == before
            await one.stop()
        await one.stop()
        assert turns > 1 and starting.result() > 0

    run(main())
