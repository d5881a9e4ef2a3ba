"""Responses that peers do not read are encrypted only as they take them, and a turn gives all of
them a bounded number of bytes, for any request.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop
from tests.integration.transport.conftest import HOLD, TIME_LIMIT, Raw, serving, talking
from tests.integration.transport.test_transport_cut import broker, trusting_all
from tests.integration.transport.test_transport_last_words import Watch
from tests.unit.broker.traffic.test_fast_path import SEND, frame_of, pull_frame

from turbopump.engine.store import Store
from turbopump.engine.types import FlushMode
from turbopump.net.transport import fair_scheduler
from turbopump.net.transport.options import MIB, ServerOptions, TlsSettings
from turbopump.net.transport.tls import TlsSession
from turbopump.net.wire.command import Command, new_response

ECHO, LARGE = 10, 40
TLS = ServerOptions(tls=TlsSettings(), write_high_water=MIB // 4, write_low_water=MIB // 16)
BODY = bytes(range(256)) * (15 * MIB // 256)
TAKEN_MAX = 10 * MIB
"""Maximum size of an unread response that the kernel and the peer's own buffers take."""


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
        loop.run(asyncio.wait_for(coroutine, TIME_LIMIT))


@pytest.fixture
def sealed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes of encrypted pieces, of all sessions."""
    sizes: list[int] = []
    original = TlsSession.sealed

    def noted(self: TlsSession, data: Any) -> bytes:
        sizes.append(len(data))
        return original(self, data)

    monkeypatch.setattr(TlsSession, "sealed", noted)
    return sizes


async def settled(value: Callable[[], int], alive: Callable[[], Coroutine[Any, Any, None]]) -> int:
    """The value once it is stable."""
    before = -1
    while before != value():
        before = value()
        for _ in range(5):
            await alive()
    return before


def large(request: Command, *_: Any) -> Command:
    return new_response(request, 0, body=BODY)


def test_a_large_answer_is_encrypted_as_its_peer_reads_it(sealed: list[int]) -> None:
    async def main() -> None:
        async with serving(TLS) as served:
            served.table.add(LARGE, large)
            async with talking(served.port, ssl=trusting_all(), limit=1024) as peer:
                peer.send(*(Command(code, opaque=code) for code in (HOLD, LARGE, ECHO)))
                await served.until(lambda: any(one.blocked for one in served.hub.connections))
                assert await settled(lambda: sum(sealed), served.alive) < TAKEN_MAX
                (one,) = [one for one in served.hub.connections if one.blocked]
                assert one.unsent > len(BODY) - TAKEN_MAX
                served.release(b"held")  # after bytes that are not encrypted yet
                await served.alive()
                responses = [await peer.answer() for _ in range(3)]
                assert [one.opaque for one in responses] == [LARGE, HOLD, ECHO]
                assert responses[0].body == BODY and responses[1].body == b"held"

    run(main())


def test_a_connection_that_closes_writes_unencrypted_output_first(sealed: list[int]) -> None:
    async def main() -> None:
        async with serving(TLS) as served:
            served.table.add(LARGE, large)
            async with talking(served.port, ssl=trusting_all(), limit=1024) as peer:
                peer.send(Command(LARGE, opaque=1))
                await served.until(lambda: any(one.blocked for one in served.hub.connections))
                (one,) = served.hub.connections
                one.close()
                assert sum(sealed) < TAKEN_MAX
                peer.reader._limit = 64 * MIB  # at the end uvloop drops bytes beyond it
                assert (await peer.answer()).body == BODY
                assert await peer.closed() == b""
                await served.until(lambda: not served.server.peers)

    run(main())


def test_native_answers_follow_unencrypted_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A send that is answered once it is on disk, and meanwhile something large is asked."""
    commits: list[Callable[[], object]] = []
    commit = Store.commit
    waits = [False]

    def later(self: Store, *values: Any) -> object:
        if waits[0]:
            return commits.append(lambda: commit(self, *values))
        return commit(self, *values)

    monkeypatch.setattr(Store, "commit", later)

    async def main() -> None:
        async with broker(tmp_path, TLS, mode=FlushMode.SYNC_FLUSH) as (server, port, native):
            server._dispatcher.add(LARGE, large)
            async with talking(port, ssl=trusting_all(), limit=1024) as peer:
                before, waits[0] = native.sent, True
                peer.send(frame_of(SEND, 1), Command(LARGE, opaque=2))
                hub = server._hub
                assert hub is not None
                while not any(one.blocked for one in hub.connections):
                    await asyncio.sleep(0.005)
                assert native.sent == before + 1 and commits
                waits[0] = False
                (one,) = hub.connections
                unsent = one.unsent
                for release in commits:
                    release()
                while one.unsent == unsent:
                    await asyncio.sleep(0.005)
                responses = [await peer.answer() for _ in range(2)]
                assert [one.opaque for one in responses] == [2, 1]
                assert responses[0].body == BODY

    run(main())


@pytest.mark.parametrize("tls", [False, True])
def test_pulls_of_peers_that_are_read_last_wait_for_the_next_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tls: bool
) -> None:
    """No peer gets one more response in a turn once all together were given enough."""
    budget, peers, size = 64 << 10, 40, 17 << 10
    monkeypatch.setattr(fair_scheduler, "BYTES_PER_TURN", budget)

    async def main() -> None:
        options = ServerOptions(tls=TlsSettings() if tls else None)
        async with broker(tmp_path, options) as (_, port, native):
            settings = {"ssl": trusting_all()} if tls else {}
            async with contextlib.AsyncExitStack() as stack:
                raws: list[Raw] = []
                for _ in range(peers):
                    raws.append(await stack.enter_async_context(talking(port, **settings)))
                    await ask(raws[-1])
                watch = Watch(lambda: native.pulled)
                for raw in raws:
                    raw.send(pull_frame(7))
                for raw in raws:
                    assert len((await raw.answer()).body) > size - 2048
                watch.stop()
                assert watch.most <= budget // size + 2

    run(main())


async def ask(raw: Raw) -> None:
    raw.send(pull_frame(7))
    await raw.answer()


def test_long_answers_of_handlers_share_the_bytes_of_a_turn(run, serve, talk) -> None:
    async def main() -> None:
        async with serve() as served, contextlib.AsyncExitStack() as stack:
            handled: list[int] = []

            def long(request: Command, *_: Any) -> Command:
                handled.append(request.opaque)
                return new_response(request, 0, body=bytes(MIB))

            served.table.add(LARGE, long)
            raws = [await stack.enter_async_context(talk(served.port)) for _ in range(20)]
            await served.until(lambda: len(served.server.peers) == len(raws))
            watch = Watch(lambda: len(handled))
            for raw in raws:
                raw.send(Command(LARGE, opaque=1), Command(LARGE, opaque=2))
            for raw in raws:
                assert (await raw.answer()).opaque == 1
                assert (await raw.answer()).opaque == 2
            watch.stop()
            assert watch.most <= 2 * (fair_scheduler.BYTES_PER_TURN // MIB) + 1

    run(main())
