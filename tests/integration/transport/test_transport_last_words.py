"""The last requests of a peer that leaves without waiting for responses are all served."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop
from tests.integration.transport.conftest import TIME_LIMIT
from tests.integration.transport.test_transport_cut import Native, broker
from tests.unit.broker.traffic.test_fast_path import SEND, frame_of

from turbopump.net.transport.connection import Connection
from turbopump.net.transport.fair_scheduler import REQUESTS_PER_TURN
from turbopump.net.transport.options import ServerOptions
from turbopump.net.transport.scheduled_connection import DRAIN_COST
from turbopump.net.wire.command import Command, encode, new_request, new_response

ECHO, STEPS, LARGE = 10, 31, 32
COUNT = 40
MANY = 800
RESET_ON_CLOSE = struct.pack("ii", 1, 0)


def _frame(number: int, code: int = ECHO) -> bytes:
    request = new_request(code, body=number.to_bytes(4, "big"))
    request.opaque = number
    return b"".join(encode(request))


def _reset(peer: socket.socket) -> None:
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
    peer.close()


def _numbers(seen: list[Command]) -> list[int]:
    return [int.from_bytes(one.body, "big") for one in seen]


def _received(one: socket.socket) -> bytes:
    one.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        return one.recv(100)
    return b""


class Watch:
    """Looks at a number in each turn of the loop; `most` is how much it grew in one."""

    def __init__(self, value: Callable[[], int]) -> None:
        self._value, self._before, self.most = value, value(), 0
        self._look()

    def _look(self) -> None:
        now = self._value()
        self.most, self._before = max(self.most, now - self._before), now
        self._next = asyncio.get_running_loop().call_soon(self._look)

    def stop(self) -> None:
        self._next.cancel()


@pytest.mark.parametrize("count", [COUNT, MANY])
def test_unread_requests_are_handled_when_an_answer_cannot_be_written(run, serve, count) -> None:
    """However much it is, no turn of the loop handles more of it than of other peers' requests."""

    async def main() -> None:
        async with serve() as served:
            peer = socket.create_connection(("127.0.0.1", served.port))
            frames = b"".join(map(_frame, range(count)))
            # The rest of the first frame is then read alone, and its answer meets a closed socket.
            peer.sendall(frames[:20])
            await served.until(lambda: served.hub.area.in_use > 0)
            watch = Watch(lambda: len(served.seen))
            peer.sendall(frames[20:])
            _reset(peer)
            await served.until(lambda: len(served.seen) > 0 and not served.server.peers)
            watch.stop()
            assert _numbers(served.seen) == list(range(count))
            assert watch.most <= 2 * REQUESTS_PER_TURN
            assert served.hub.area.in_use == 0 and served.hub.in_flight == 0
            await served.alive()

    run(main())


def test_a_peer_is_known_until_its_last_words_are_handled(run, serve) -> None:
    async def main() -> None:
        async with serve() as served:
            closed: list[int] = []
            known: list[bool] = []

            def note(request: Command, peer, *_) -> Command:
                if not known:
                    peer.on_close(lambda: closed.append(len(known)))
                known.append(not peer.closed)
                return new_response(request, 0)

            served.table.add(STEPS, note)
            peer = socket.create_connection(("127.0.0.1", served.port))
            frames = b"".join(_frame(number, STEPS) for number in range(MANY))
            peer.sendall(frames[:20])
            await served.until(lambda: served.hub.area.in_use > 0)
            peer.sendall(frames[20:])
            _reset(peer)
            await served.until(lambda: bool(closed))
            assert closed == [MANY] and all(known)

    run(main())


def test_requests_after_a_request_in_steps_are_handled(run, serve) -> None:
    async def main() -> None:
        async with serve() as served:
            go_on: list[bool] = []

            def stepped(request: Command, *_):
                while not go_on:
                    yield
                return new_response(request, 0)

            served.table.add(STEPS, stepped)
            peer = socket.create_connection(("127.0.0.1", served.port))
            peer.sendall(_frame(0, STEPS) + b"".join(map(_frame, range(COUNT))))
            await served.until(lambda: served.hub.in_flight == 1)
            (connection,) = served.hub.connections
            _reset(peer)
            connection.write_rest([b"to a peer that is gone"])
            await served.until(lambda: connection.unsent == 0)
            assert served.server.peers, "its request is not done"
            go_on.append(True)
            await served.until(lambda: not served.server.peers)
            assert _numbers(served.seen) == list(range(COUNT))
            assert served.hub.area.in_use == 0 and served.hub.in_flight == 0

    run(main())


def test_requests_of_a_peer_that_did_not_read_its_answers_are_handled(run, serve) -> None:
    async def main() -> None:
        options = ServerOptions(write_high_water=1 << 20, write_low_water=1 << 18)
        async with serve(options) as served:

            def large(request: Command, *_) -> Command:
                return new_response(request, 0, body=bytes(8 << 20))

            served.table.add(LARGE, large)
            peer = socket.create_connection(("127.0.0.1", served.port))
            peer.sendall(_frame(0, LARGE) * 2 + b"".join(map(_frame, range(COUNT))))
            await served.until(lambda: any(one.blocked for one in served.hub.connections))
            assert not served.seen
            _reset(peer)
            await served.until(lambda: not served.server.peers)
            assert _numbers(served.seen) == list(range(COUNT))

    run(main())


def test_a_peer_that_is_cut_while_its_last_words_wait_is_gone(run, serve) -> None:
    async def main() -> None:
        async with serve() as served:
            peer = socket.create_connection(("127.0.0.1", served.port))
            frames = b"".join(map(_frame, range(MANY)))
            peer.sendall(frames[:20])
            await served.until(lambda: served.hub.area.in_use > 0)
            (connection,) = served.hub.connections
            peer.sendall(frames[20:])
            _reset(peer)
            await served.until(lambda: connection.unsent == 0 and len(served.seen) > 0)
            connection.close()
            connection.abort()
            await served.until(lambda: not served.server.peers)
            assert served.hub.area.in_use == 0 and served.hub.in_flight == 0
            await served.alive()

    run(main())


async def _come_and_go(served, sent_bytes: bytes) -> None:
    """A peer that leaves while its request is handled in steps."""
    before = set(served.hub.connections)
    peer = socket.create_connection(("127.0.0.1", served.port))
    peer.sendall(sent_bytes)
    await served.until(lambda: served.hub.connections - before)
    (connection,) = served.hub.connections - before
    await served.until(lambda: connection._work is not None)
    _reset(peer)
    connection.write_rest([b"to a peer that is gone"])
    await served.until(lambda: connection._transport is None)


def test_peers_that_are_gone_count_with_all_they_keep(run, serve) -> None:
    """A peer that leaves and comes again has no limit of connections: the oldest are let go of."""
    left = 5

    async def main() -> None:
        options = ServerOptions(receive_max_of_address=left * DRAIN_COST + DRAIN_COST // 2)
        async with serve(options) as served:
            go_on: list[bool] = []

            def stepped(request: Command, *_):
                while not go_on:
                    yield
                return new_response(request, 0)

            served.table.add(STEPS, stepped)
            for number in range(2 * left):
                await _come_and_go(served, _frame(number, STEPS) + _frame(number))
                assert len(served.hub.connections) <= left + 1
                assert served.hub.area.in_use <= options.receive_max_of_address
            assert served.hub.area.in_use >= left * DRAIN_COST
            go_on.append(True)
            await served.until(lambda: not served.server.peers)
            assert _numbers(served.seen) == list(range(left, 2 * left))
            assert served.hub.area.in_use == 0 and served.hub.in_flight == 0

    run(main())


def test_the_next_owner_of_a_lost_sockets_number_gets_none_of_its_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop closes the socket at once, and the remaining requests are stored afterwards: a new
    socket with its number gets none of the responses.
    """
    taken: list[tuple[socket.socket, socket.socket]] = []
    lane: list[Native] = []
    handled: list[int] = []
    heard = Connection.drain_socket

    def take(descriptor: int) -> None:
        while not taken or descriptor not in {one.fileno() for one in taken[-1]}:
            taken.append(socket.socketpair())

    def hear(self: Connection, descriptor: int) -> bool:
        self.queued = False  # as where reading failed: nothing had to be written
        asyncio.get_running_loop().call_soon(take, descriptor)
        handled.append(lane[0].sent)
        return heard(self, descriptor)

    monkeypatch.setattr(Connection, "drain_socket", hear)

    async def main() -> None:
        async with broker(tmp_path, ServerOptions(), turns=False) as (server, port, native):
            lane.append(native)
            before = native.sent
            first = frame_of({**SEND, "body": bytes(60_000)}, 1)
            peer = socket.create_connection(("127.0.0.1", port))
            peer.sendall(first[:40_000])
            hub = server._hub
            assert hub is not None
            while not hub.area.in_use:
                await asyncio.sleep(0.005)
            peer.sendall(first[40_000:] + b"".join(frame_of(SEND, i) for i in range(COUNT)))
            _reset(peer)
            while server.peers:
                await asyncio.sleep(0.005)
            assert native.sent == before + 1 + COUNT
            assert handled == [before + 1], "the socket was lost with requests unread"
            ends = [one for pair in taken for one in pair]
            got = list(map(_received, ends))
            for one in ends:
                one.close()
            assert not any(got)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
        loop.run(asyncio.wait_for(main(), TIME_LIMIT))
