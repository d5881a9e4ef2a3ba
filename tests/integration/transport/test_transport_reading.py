"""Peers that send much at once: each turn of the loop does a part of it."""

import asyncio
import contextlib
import ssl
from typing import Any

import pytest

from turbopump.net.transport.fair_scheduler import READ_PER_TURN, REQUESTS_PER_TURN, FairScheduler
from turbopump.net.transport.options import ServerOptions, TlsSettings
from turbopump.net.transport.receive_buffer import SCRATCH_SIZE, SHORT_SIZE
from turbopump.net.wire.command import FRAME_MAX, Command

ECHO = 10
MIB = 1 << 20
PEERS = 8


def trusting_all() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


class Counted:
    """Counts the work between two looks at the sockets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **counted: Any) -> None:
        self.now = self.most = 0
        for name, amount in counted.items():
            self._watch(monkeypatch, name, amount)
        self._watch(monkeypatch, "_run_turn", None)

    def _watch(self, monkeypatch: pytest.MonkeyPatch, name: str, amount: Any) -> None:
        original = getattr(FairScheduler, name)

        def call(turns: FairScheduler, *arguments: Any) -> Any:
            if amount is None:
                self.now = 0
            result = original(turns, *arguments)
            if amount is not None:
                self.now += amount(result, *arguments)
                self.most = max(self.most, self.now)
            return result

        monkeypatch.setattr(FairScheduler, name, call)


@pytest.mark.parametrize("tls", [False, True])
def test_large_frames_are_read_in_turns(run, serve, talk, monkeypatch, tls) -> None:
    """All large frames arrive whole, and no turn reads more than its part."""
    counted = Counted(monkeypatch, count_read=lambda result, size: size)
    body = bytes(range(256)) * (12 * MIB // 256)

    async def main() -> None:
        options = ServerOptions(tls=TlsSettings())
        context = {"ssl": trusting_all()} if tls else {}
        async with serve(options) as served, contextlib.AsyncExitStack() as stack:
            talks = [talk(served.port, **context) for _ in range(PEERS)]
            raws = [await stack.enter_async_context(one) for one in talks]
            for number, raw in enumerate(raws):
                raw.send(Command(ECHO, opaque=number, body=body))
            await served.alive()
            for number, response in enumerate(await asyncio.gather(*(r.answer() for r in raws))):
                assert response.opaque == number and response.body == body
            assert served.hub.area.in_use == 0

    run(main())
    assert READ_PER_TURN // 2 < counted.most <= READ_PER_TURN + SCRATCH_SIZE + PEERS * SHORT_SIZE


def test_many_handshakes_at_once_take_turns(run, serve, talk, monkeypatch) -> None:
    counted = Counted(monkeypatch, begin_handshake=lambda begins: 8 * begins)

    async def main() -> None:
        async with serve(ServerOptions(tls=TlsSettings())) as served:

            async def greet(number: int) -> None:
                async with talk(served.port, ssl=trusting_all()) as raw:
                    raw.send(Command(ECHO, opaque=number, body=b"x"))
                    assert (await raw.answer()).opaque == number

            await asyncio.gather(*(greet(number) for number in range(30)))

    run(main())
    assert 0 < counted.most <= REQUESTS_PER_TURN


def test_an_incomplete_frame_does_not_hold_more_than_has_arrived(run, serve, talk) -> None:
    """An incomplete frame holds only its received bytes: earlier, smaller buffers are freed."""

    async def main() -> None:
        async with serve() as served, talk(served.port) as raw:
            sent = (FRAME_MAX - 4).to_bytes(4, "big") + bytes(5 * MIB)
            raw.send(sent)
            await served.until(lambda: served.hub.area.in_use >= len(sent))
            assert served.hub.area.in_use <= len(sent) + MIB // 8

    run(main())
