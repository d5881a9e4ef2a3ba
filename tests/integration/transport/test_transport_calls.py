"""Server and client over the loopback interface: calls both ways, and the ends of calls."""

import asyncio
import socket

import pytest

from turbopump.engine.deferred import Deferred
from turbopump.net.transport.calls import Calls
from turbopump.net.transport.client import DOUBTED_MAX, Client
from turbopump.net.transport.dispatcher import Dispatcher
from turbopump.net.transport.errors import (
    CallTimeout,
    ConnectError,
    ConnectionClosed,
    RemotingError,
    TooManyCalls,
)
from turbopump.net.transport.options import RemotingOptions, ServerOptions
from turbopump.net.wire.command import (
    FRAME_MAX,
    Codec,
    Command,
    encode,
    new_request,
    new_response,
)

ECHO, HOLD, FAIL, BACK = 10, 11, 12, 13


def test_echo(run, serve, connect) -> None:
    async def main() -> None:
        async with serve() as served, connect() as client:
            response = await client.call(
                served.address, new_request(ECHO, body=b"x", fields={"k": "中"}), 5000
            )
            assert (response.code, response.body, response.fields) == (0, b"x", {"k": "中"})
            (peer,) = served.server.peers
            assert (peer.language, peer.version) == ("PYTHON", 513)
            assert peer.address.startswith("127.0.0.1:")
            assert peer.host[:4] == bytes([127, 0, 0, 1])

    run(main())


def test_sizes_and_many_at_once(run, serve, connect) -> None:
    async def main() -> None:
        async with serve() as served, connect() as client:

            async def one(size: int) -> None:
                body = size.to_bytes(4, "big") * (size // 4 + 1)
                request = new_request(ECHO, body=body)
                assert (await client.call(served.address, request, 10_000)).body == body

            sizes = [0, 1, 2047, 2048, 2049, 100_000, 262_144, 4 << 20, 16_000_000]
            for size in sizes:
                await one(size)
            await asyncio.gather(*(one(size) for size in sizes[:-1] * 5), *map(one, range(1000)))
            assert len(served.server.peers) == 1
            assert served.hub.area.in_use == 0

    run(main())


def test_dispatch_level_answers(run, serve, connect) -> None:
    async def main() -> None:
        async with serve() as served, connect() as client:
            response = await client.call(served.address, new_request(9999), 5000)
            assert (response.code, response.remark) == (3, " request type 9999 not supported")
            response = await client.call(served.address, new_request(FAIL), 5000)
            assert (response.code, response.remark) == (1, "RuntimeError: broken")

    run(main())


def test_oneway_requests_are_never_answered(run, serve, talk) -> None:
    async def main() -> None:
        async with serve() as served, talk(served.port) as raw:
            for code in (9999, FAIL, HOLD, ECHO):
                raw.send(new_request(code, oneway=True))
            raw.send(Command(ECHO, opaque=77))
            assert (await raw.answer()).opaque == 77
            served.release()
            raw.send(Command(ECHO, opaque=78))
            assert (await raw.answer()).opaque == 78

    run(main())


def test_binary_requests_are_answered_in_json(run, serve, talk) -> None:
    async def main() -> None:
        async with serve() as served, talk(served.port) as raw:
            raw.send(Command(ECHO, opaque=1, body=b"b", codec=Codec.ROCKETMQ))
            response = await raw.answer()
            assert (response.codec, response.body) == (Codec.JSON, b"b")

    run(main())


def test_late_answers_in_any_order(run, serve, talk) -> None:
    async def main() -> None:
        async with serve() as served, talk(served.port) as raw:
            raw.send(Command(HOLD, opaque=1), Command(HOLD, opaque=2), Command(ECHO, opaque=3))
            assert (await raw.answer()).opaque == 3
            assert served.hub.in_flight == 2
            for request, later in reversed(served.held):
                later.resolve(new_response(request, 0))
            assert [(await raw.answer()).opaque for _ in range(2)] == [2, 1]
            assert served.hub.in_flight == 0
            raw.send(Command(HOLD, opaque=4), Command(ECHO, opaque=5))
            await raw.answer()
            served.held[-1][1].resolve(None)
            raw.send(Command(ECHO, opaque=6))
            assert (await raw.answer()).opaque == 6
            assert served.hub.in_flight == 0

    run(main())


def test_a_request_that_waits_keeps_nothing_large(run, serve, talk) -> None:
    async def main() -> None:
        async with serve() as served, talk(served.port) as peer:
            peer.send(new_request(HOLD, body=b"x" * 1_000_000, fields={"k": "v" * 100_000}))
            await served.until(lambda: served.held)
            await served.alive()
            request, _ = served.held[0]
            assert (request.body, request.fields) == (b"", {})
            served.release(b"late")
            assert (await peer.answer()).body == b"late"

    run(main())


def test_answers_to_a_lost_peer_are_dropped(run, serve, talk) -> None:
    async def main() -> None:
        async with serve() as served:
            async with talk(served.port) as raw:
                raw.send(Command(HOLD, opaque=1))
                await served.until(lambda: len(served.held) == 1)
            await served.until(lambda: not served.server.peers)
            assert served.hub.in_flight == 0
            served.release(b"too late")
            await served.alive()

    run(main())


def test_servers_call_clients_on_the_same_connection(run, serve, connect) -> None:
    async def main() -> None:
        seen = []
        handlers = Dispatcher()

        def running_info(request: Command, peer, now_ms: int) -> Command:
            seen.append((peer.address, now_ms))
            return new_response(request, 0, body=b"info")

        handlers.add(307, running_info)
        handlers.add(40, lambda request, *_: seen.append(request.fields["g"]))
        async with serve() as served, connect(handlers) as client:

            def back(request: Command, peer, _now_ms: int) -> Deferred[Command | None]:
                peer.notify(new_request(40, fields={"g": "group"}))
                asked = peer.call(new_request(307), 5000)
                return asked.map(
                    lambda got: new_response(request, 0, body=got.body if got else b"")
                )

            served.table.add(BACK, back)
            response = await client.call(served.address, new_request(BACK), 5000)
            assert response.body == b"info"
            assert seen == ["group", (served.address, 7)]
            (peer,) = served.server.peers
            asked = peer.call(new_request(309), 5000)
            await served.until(lambda: asked.done)
            assert asked.value.code == 3

    run(main())


def test_calls_of_a_server_time_out_or_end_with_the_connection(run, serve, talk) -> None:
    async def main() -> None:
        async with serve() as served:
            async with talk(served.port) as raw:
                raw.send(Command(ECHO))
                await raw.answer()
                (peer,) = served.server.peers
                slow, lost = peer.call(new_request(307), 30), peer.call(new_request(307), 60_000)
                await served.until(lambda: slow.done)
                assert slow.value is None and not lost.done
            await served.until(lambda: lost.done)
            assert lost.value is None and peer.closed

    run(main())


def test_a_notice_does_not_overtake_the_answer(run, serve, talk) -> None:
    async def main() -> None:
        async with serve() as served, talk(served.port) as raw:

            def heartbeat(request: Command, peer, _now_ms: int) -> Command:
                peer.after_answers(lambda: peer.notify(new_request(40)))
                return new_response(request, 0)

            served.table.add(34, heartbeat)
            both = [*encode(Command(34, opaque=5)), *encode(Command(34, opaque=6))]
            raw.send(b"".join(both))
            codes = [(await raw.answer()).code for _ in range(4)]
            assert codes == [0, 0, 40, 40]

    run(main())


def test_calls_of_a_client_time_out_and_fail(run, serve, connect) -> None:
    async def main() -> None:
        async with serve() as served, connect() as client:
            with pytest.raises(CallTimeout):
                await client.call(served.address, new_request(HOLD), 50)
            served.release()
            waiting = asyncio.ensure_future(client.call(served.address, new_request(HOLD), 9000))
            await served.until(lambda: bool(served.held))
            (peer,) = served.server.peers
            peer.close()
            with pytest.raises(ConnectionClosed):
                await waiting
            # The next call opens a connection of its own.
            response = await client.call(served.address, new_request(ECHO, body=b"again"), 5000)
            assert response.body == b"again"
            with pytest.raises(RemotingError, match="limit"):
                await client.call(served.address, new_request(ECHO, body=bytes(FRAME_MAX)), 5000)

    run(main())


def test_a_connection_that_leads_nowhere_is_left_once_another_one_does(run, serve, connect) -> None:
    """F1: TCP would try the old one only after as long as the network was cut."""

    async def main() -> None:
        async with serve() as served, connect() as client:
            calls = Calls(client, renews=True)
            await client.call(served.address, new_request(ECHO), 5000)
            (before,) = served.server.peers
            late = calls(served.address, new_request(HOLD), 20)
            await served.until(lambda: late.done)
            assert isinstance(late.value, str)
            await served.until(lambda: before in served.server.peers)
            response = calls(served.address, new_request(ECHO), 5000)
            await served.until(lambda: response.done)
            assert isinstance(response.value, Command)
            await served.until(lambda: before not in served.server.peers)
            assert len(served.server.peers) == 1
            await calls.stop()

    run(main())


def test_doubted_connections_are_bounded(run, serve, connect) -> None:
    async def main() -> None:
        async with serve() as served, connect() as client:
            calls = Calls(client, renews=True)
            for _ in range(DOUBTED_MAX + 3):
                late = calls(served.address, new_request(HOLD), 20)
                await served.until(lambda late=late: late.done)
            await served.until(lambda: len(served.server.peers) <= DOUBTED_MAX)
            await calls.stop()

    run(main())


def test_a_lost_connection_is_told_and_one_that_is_left_for_another(run, serve, connect) -> None:
    async def main() -> None:
        async with serve() as served, serve() as other, connect() as client:
            lost: list[str] = []
            for address in (served.address, served.address + "0"):
                client.on_lost(address, lambda address=address: lost.append(address))
            for times in (1, 2):
                await client.connect(served.address, 5000)
                (peer,) = served.server.peers
                await client.connect(served.address, 5000)
                assert {peer} == served.server.peers
                peer.close()
                await client.call(other.address, new_request(ECHO), 5000)
                await served.until(lambda times=times: len(lost) == times)
                assert served.server.peers == set()
            await client.call(served.address, new_request(ECHO), 5000)
            client.reconnect_next(served.address)
            assert len(lost) == 2, "it may still be the remaining connection"
            await client.call(served.address, new_request(ECHO), 5000)
            await served.until(lambda: len(served.server.peers) == 1)
            assert lost == [served.address] * 3, (
                "the server forgets the requests of the first connection"
            )
            await client.close()
            assert lost == [served.address] * 3

    run(main())


def test_servers_that_cannot_be_reached(run, serve, connect) -> None:
    async def main() -> None:
        async with serve() as served:
            address = served.address
        async with connect() as client:
            for bad in (address, "127.0.0.1", "no.such.host.invalid:1"):
                with pytest.raises(ConnectError, match="cannot be reached"):
                    await client.call(bad, new_request(ECHO), 5000)
        with pytest.raises(ConnectionClosed):
            await client.call(address, new_request(ECHO), 5000)

    run(main())


@pytest.mark.parametrize("always", [False, True])
def test_a_client_does_not_talk_to_itself(run, connect, monkeypatch, always) -> None:
    """The system may choose the port that is called for the caller's own end."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        calls = 0

        class Unlucky:
            """The loop, but connections leave from the port they go to."""

            def __getattr__(self, name):
                return getattr(loop, name)

            async def create_connection(self, make, host, port):
                nonlocal calls
                calls += 1
                if calls > 1 and not always:
                    return await loop.create_connection(make, host, port)
                await asyncio.sleep(0.01)  # the last one is closed by the loop's next turns
                with_itself = socket.socket()
                with_itself.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                with_itself.bind((host, port))
                with_itself.setblocking(False)
                await loop.sock_connect(with_itself, (host, port))
                return await loop.create_connection(make, sock=with_itself)

        monkeypatch.setattr(asyncio, "get_running_loop", Unlucky)
        async with connect() as client:
            reason = "the port is our own" if always else "cannot be reached: "
            with pytest.raises(ConnectError, match=reason):
                await client.call(f"127.0.0.1:{port}", new_request(ECHO), 5000)
            assert calls == (3 if always else 2)

    run(main())


def test_waiting_calls_are_bounded_and_fail_at_close(run, serve, connect) -> None:
    async def main() -> None:
        async with serve() as served:
            async with connect(None, RemotingOptions(max_in_flight=2)) as client:
                waiting = [
                    asyncio.ensure_future(client.call(served.address, new_request(HOLD), 9000))
                    for _ in range(2)
                ]
                await served.until(lambda: len(served.held) == 2)
                with pytest.raises(TooManyCalls):
                    await client.call(served.address, new_request(HOLD), 9000)
            for one in waiting:
                with pytest.raises(ConnectionClosed):
                    await one

    run(main())


def test_a_close_ends_a_connection_that_is_being_opened(run, serve) -> None:
    """Closed at any wait of the connecting, it leaves no connection."""

    async def main() -> None:
        async with serve(ServerOptions(stop_grace_ms=0)) as served:
            for turns in range(12):
                client = Client(lambda: 0, options=RemotingOptions(close_timeout_ms=2_000))
                calling = asyncio.create_task(
                    client.call(served.address, new_request(HOLD), 60_000)
                )
                for _ in range(turns):
                    await asyncio.sleep(0)
                async with asyncio.timeout(1.5):
                    await client.close()
                assert not client._connecting, "a connection is being opened"
                with pytest.raises(ConnectionClosed):
                    await calling
            await served.until(lambda: not served.server.peers)

    run(main())


def test_notices_of_a_client(run, serve, connect) -> None:
    async def main() -> None:
        async with serve() as served, connect() as client:
            await client.notify(served.address, new_request(ECHO, body=b"one-way"))
            await served.until(lambda: bool(served.seen))
            assert served.seen[0].is_oneway
            with pytest.raises(RemotingError, match="limit"):
                await client.notify(served.address, new_request(ECHO, body=bytes(FRAME_MAX)))

    run(main())


def test_a_stopping_server_says_go_away_and_finishes_held_requests(run, serve, talk) -> None:
    async def main() -> None:
        async with serve(ServerOptions(stop_grace_ms=10_000)) as served, talk(served.port) as raw:
            raw.send(Command(HOLD, opaque=1))
            await served.until(lambda: bool(served.held))
            stopping = asyncio.ensure_future(served.server.stop())
            await asyncio.sleep(0)
            raw.send(Command(ECHO, opaque=2, version=476), Command(ECHO, opaque=3, version=475))
            response = await raw.answer()
            assert (response.code, response.opaque, response.remark) == (1500, 2, "please go away")
            assert (await raw.answer()).code == 0
            served.release(b"held")
            assert (await raw.answer()).body == b"held"
            assert await raw.closed() == b""
            await stopping

    run(main())


def test_a_client_told_to_go_away_sends_once_more_on_a_new_connection(run, serve, connect) -> None:
    async def main() -> None:
        async with serve() as served, connect() as client:
            served_peers = []

            def once(request: Command, peer, _now_ms: int) -> Command:
                served_peers.append(peer)
                return new_response(request, 1500 if len(served_peers) == 1 else 0)

            served.table.add(BACK, once)
            lost: list[str] = []
            client.on_lost(served.address, lambda: lost.append(served.address))
            assert (await client.call(served.address, new_request(BACK), 5000)).code == 0
            assert served_peers[0] is not served_peers[1]
            await served.until(lambda: len(served.server.peers) == 1)
            assert len(lost) == 1, "the requests of the first connection are forgotten"

    run(main())


def test_several_ports_share_their_peers(run, serve, talk) -> None:
    async def main() -> None:
        async with serve() as served:
            vip = await served.server.start("127.0.0.1", 0)
            async with talk(served.port) as one, talk(vip) as other:
                for raw in (one, other):
                    raw.send(Command(ECHO, opaque=1))
                    assert (await raw.answer()).code == 0
                assert len(served.server.peers) == 2
            with pytest.raises(OSError):
                await served.server.start("127.0.0.1", vip)

    run(main())


def test_an_answer_that_cannot_be_encoded_is_answered_1(run, serve, connect) -> None:
    async def main() -> None:
        async with serve() as served, connect() as client:
            served.table.add(
                BACK, lambda request, *_: new_response(request, 0, body=bytes(FRAME_MAX))
            )
            response = await client.call(served.address, new_request(BACK), 5000)
            assert response.code == 1
            assert "limit" in response.remark

    run(main())
