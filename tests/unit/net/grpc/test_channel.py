"""The client's side of a call, against Turbopump's server, without a socket."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest
from tests.unit.net.grpc.conftest import Bench, Wire, hear

from turbopump.net.grpc import channel
from turbopump.net.grpc.answers import decode_grpc_message
from turbopump.net.grpc.call import unary_method
from turbopump.net.grpc.channel import GrpcChannel
from turbopump.net.grpc.connection import GrpcConnection
from turbopump.net.grpc.status import HEAD, GrpcCode, GrpcError, quote_text
from turbopump.net.transport.errors import CallTimeout, ConnectionClosed
from turbopump.pyx.h2 import pairs


class Pipe:
    """A transport whose other end is a connection of Turbopump's server."""

    def __init__(self, bench: Bench, client: Any) -> None:
        self.bench = bench
        self.client = client
        self.server = GrpcConnection(bench.hub)
        self.wire = Wire(self.server)
        self.server.connection_made(cast(asyncio.Transport, self.wire))
        self.closed = False

    def get_extra_info(self, _name: str) -> None:
        return None

    def write(self, data: bytes) -> None:
        asyncio.get_running_loop().call_soon(self._deliver, data)

    def _deliver(self, data: bytes) -> None:
        hear(self.server, data)
        self.back()

    def back(self) -> None:
        """Deliver the server's responses."""
        while (self.bench.loop.due or self.wire.out) and not self.closed:
            self.bench.loop.run()
            out, self.wire.out = self.wire.out, b""
            if out:
                self.client.data_received(out)
        if self.wire.closed:
            self.close()

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            asyncio.get_running_loop().call_soon(self.client.connection_lost, None)

    abort = close


class Piped(GrpcChannel):
    """A channel whose connections are pipes."""

    def __init__(self, bench: Bench) -> None:
        super().__init__("127.0.0.1:8081")
        self.bench = bench
        self.pipes: list[Pipe] = []

    async def _open(self) -> Any:
        one = channel._Connection(self.address)
        self.pipes.append(Pipe(self.bench, one))
        one.connection_made(cast(asyncio.Transport, self.pipes[-1]))
        return one

    async def ask(self, name: str, message: bytes, timeout_ms: int = 5_000) -> list[bytes]:
        return await self.call_unary(f"/S/{name}", message, [(b"x-a", b"b")], timeout_ms)


def run(bench: Bench, work: Callable[[Piped], Any]) -> Any:
    async def main() -> Any:
        one = Piped(bench)
        try:
            return await work(one)
        finally:
            await one.close()

    return asyncio.run(main())


@pytest.mark.parametrize("size", [0, 1, 70_000, 3 << 20])
def test_a_message_goes_there_and_back(bench: Callable[..., Bench], size: int) -> None:
    body = bytes(size)
    assert run(bench(), lambda one: one.ask("Echo", body)) == [body]


def test_many_calls_share_one_connection(bench: Callable[..., Bench]) -> None:
    async def work(one: Piped) -> None:
        found = await asyncio.gather(*(one.ask("Echo", b"%d" % number) for number in range(250)))
        assert found == [[b"%d" % number] for number in range(250)]
        assert len(one.pipes) == 1

    run(bench(), work)


def test_an_answer_is_bounded_in_bytes(
    bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel, "RESPONSE_MAX", 999)
    made = bench()
    assert run(made, lambda one: one.ask("Echo", bytes(999))) == [bytes(999)]
    with pytest.raises(GrpcError) as raised:
        run(made, lambda one: one.ask("Echo", bytes(1_000)))
    assert raised.value.code is GrpcCode.RESOURCE_EXHAUSTED


def test_how_a_call_ends_is_said(bench: Callable[..., Bench]) -> None:
    with pytest.raises(GrpcError, match="no method") as raised:
        run(bench(), lambda one: one.ask("None", b""))
    assert raised.value.code is GrpcCode.UNIMPLEMENTED


def test_a_status_of_thousands_of_digits_ends_the_call(bench: Callable[..., Bench]) -> None:
    raw_headers = pairs([*HEAD, (b"grpc-status", b"1" * 5_000)])

    def answer(call: Any, _message: bytes) -> None:
        call._carrier._session.answer(call.stream_id, raw_headers, None, b"")
        call._carrier._flush_soon()

    made = bench()
    made.hub.methods = {**made.hub.methods, "/S/Digits": unary_method(answer)}
    with pytest.raises(GrpcError, match="without a status") as raised:
        run(made, lambda one: one.ask("Digits", b""))
    assert raised.value.code is GrpcCode.UNAVAILABLE


def test_a_call_without_an_answer_ends_in_time_and_at_the_server(
    bench: Callable[..., Bench],
) -> None:
    made = bench()

    async def work(one: Piped) -> None:
        with pytest.raises(CallTimeout):
            await one.ask("Keep", b"x", 30)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert made.over == [1]
        assert await one.ask("Echo", b"y") == [b"y"]

    run(made, work)


def test_a_server_that_leaves_ends_waiting_calls_and_the_next_call_connects(
    bench: Callable[..., Bench],
) -> None:
    async def work(one: Piped) -> None:
        waiting = asyncio.ensure_future(one.ask("Keep", b"x"))
        assert await one.ask("Echo", b"y") == [b"y"]
        one.pipes[0].close()
        with pytest.raises(ConnectionClosed):
            await waiting
        assert await one.ask("Echo", b"z") == [b"z"]
        assert len(one.pipes) == 2

    run(bench(), work)


def test_after_a_goaway_new_calls_go_elsewhere(bench: Callable[..., Bench]) -> None:
    made = bench()

    async def work(one: Piped) -> None:
        waiting = asyncio.ensure_future(one.ask("Keep", b"x"))
        await one.ask("Echo", b"y")
        one.pipes[0].server.go_away()
        one.pipes[0].back()
        assert await one.ask("Echo", b"z") == [b"z"]
        assert len(one.pipes) == 2
        made.kept[0].answer_with(b"late")
        one.pipes[0].back()
        assert await waiting == [b"late"]

    run(made, work)


@pytest.mark.parametrize("text", ["", "100% of ä", "a b", "%", "%4"])
def test_a_text_of_an_end_is_unchanged(text: str) -> None:
    assert decode_grpc_message(quote_text(text)) == text
