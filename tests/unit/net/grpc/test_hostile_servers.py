"""Hostile servers of Turbopump's client: a call ends with a one-line error, and the next call
connects."""

import asyncio
import re

import pytest
from tests.unit.net.grpc.hostile import Scripted
from tests.wire import h2_frames as h2
from tests.wire.h2_frames import block, frame

from turbopump.net.grpc import channel
from turbopump.net.grpc.answers import FIRST_BYTES, why_not_http2
from turbopump.net.grpc.framing import frame_message
from turbopump.net.grpc.server import why_no_grpc
from turbopump.net.grpc.status import TEXT_MAX, GrpcCode, GrpcError
from turbopump.net.transport.errors import CallTimeout, ConnectionClosed

pytestmark = pytest.mark.skipif(why_no_grpc() is not None, reason=str(why_no_grpc()))
Pairs = list[tuple[bytes, bytes]]
HEAD: Pairs = [(b":status", b"200"), (b"content-type", b"application/grpc")]
HELLO = frame(h2.SETTINGS)


def headers(*pairs: tuple[bytes, bytes], ends: bool = False, stream: int = 1) -> bytes:
    flags = h2.END_HEADERS | (h2.END_STREAM if ends else 0)
    return frame(h2.HEADERS, stream, block(pairs), flags)


def status(code: bytes, *more: tuple[bytes, bytes]) -> bytes:
    return headers((b"grpc-status", code), *more, ends=True)


GOOD = HELLO + headers(*HEAD) + frame(h2.DATA, 1, frame_message(b"good")) + status(b"0")


async def outcome(one: Scripted, sent_bytes: bytes, size: int = 1 << 16) -> list[bytes] | Exception:
    """The result of a call whose server sends these bytes, then closes."""
    asked = one.ask()
    await asyncio.sleep(0)
    one.scripts[-1].say(sent_bytes, size)
    await asyncio.sleep(0)
    if not asked.done():
        one.scripts[-1].close()
    try:
        return await asked
    except Exception as error:
        return error


def play(sent_bytes: bytes, size: int = 1 << 16) -> Exception:
    """The error of a call; afterwards an honest server answers the next call."""

    async def both() -> Exception:
        one = Scripted()
        error = await outcome(one, sent_bytes, size)
        assert isinstance(error, Exception), error
        if one.scripts[-1].is_over:
            assert await outcome(one, GOOD) == [b"good"]
        else:
            again = GOOD[len(HELLO) :].replace(b"\0\0\0\1", b"\0\0\0\3")
            assert await outcome(one, again) == [b"good"]
        await one.close()
        return error

    return asyncio.run(both())


@pytest.mark.parametrize(
    ("sent_bytes", "text"),
    [
        (
            b"HTTP/1.1 400 Bad\x1b[2J Request\r\nServer: x\r\n\r\n",
            r"HTTP/1.1 400 Bad \[2J Request\)",
        ),
        (b"\x15\x03\x01\x00\x02\x02\x46", "it takes connections by TLS alone"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "it begins with 53 53 48 2d 32 2e 30 2d"),
        (b"", "without a word: it may take connections by TLS alone"),
        (HELLO, "closed the connection before it answered$"),
        (HELLO + frame(h2.PUSH, 1, bytes(4) + block(HEAD), 4), "it broke the rules of HTTP/2"),
        (HELLO + frame(h2.DATA, 1, b"x"), "it broke the rules of HTTP/2"),
        (HELLO + frame(h2.CONTINUATION, 1, b"x"), "it broke the rules of HTTP/2"),
        (HELLO + frame(h2.HEADERS, 1, b"\xff" * 40, 4), "it broke the rules of HTTP/2"),
        (HELLO + frame(h2.GOAWAY, 0, bytes(8)), r"without a status \(7\)"),
    ],
)
def test_a_server_other_than_grpc_is_named(sent_bytes: bytes, text: str) -> None:
    for size in (1 << 20, 999):
        error = play(sent_bytes, size)
        assert isinstance(error, ConnectionClosed | GrpcError)
        assert re.search(text, str(error)), f"{error} in pieces of {size}"


@pytest.mark.parametrize(
    ("sent_bytes", "code", "text"),
    [
        (headers((b":status", b"404")), GrpcCode.UNIMPLEMENTED, "HTTP status 404"),
        (headers((b":status", b"503"), ends=True), GrpcCode.UNAVAILABLE, "HTTP status 503"),
        (headers((b":status", b"302")), GrpcCode.UNKNOWN, "HTTP status 302"),
        (
            headers((b":status", b"200"), (b"content-type", b"text/html")),
            GrpcCode.UNKNOWN,
            "content of type text/html, not of gRPC",
        ),
        (headers((b":status", b"200")), GrpcCode.UNKNOWN, "content of type none"),
        (
            headers(*HEAD) + status(b"7"),
            GrpcCode.PERMISSION_DENIED,
            "status 7, PERMISSION_DENIED, without a message",
        ),
        (headers(*HEAD) + status(b"99"), GrpcCode.UNKNOWN, "status 99, UNKNOWN"),
        (headers(*HEAD, ends=True), GrpcCode.UNAVAILABLE, "without a status"),
        (headers(*HEAD) + frame(h2.RESET, 1, bytes(4)), GrpcCode.UNAVAILABLE, "without a status"),
        (
            headers(*HEAD) + frame(h2.DATA, 1, frame_message(b"whole") + b"\0\0\0") + status(b"0"),
            GrpcCode.INTERNAL,
            "ends within a message",
        ),
        (
            headers(*HEAD) + frame(h2.DATA, 1, b"\1\0\0\0\1x"),
            GrpcCode.INTERNAL,
            "compressed message without",
        ),
        (
            headers(*HEAD) + frame(h2.DATA, 1, b"\0\xff\xff\xff\xff"),
            GrpcCode.RESOURCE_EXHAUSTED,
            "larger than",
        ),
    ],
)
def test_an_answer_that_is_wrong_ends_its_call_alone(
    sent_bytes: bytes, code: GrpcCode, text: str
) -> None:
    error = play(HELLO + sent_bytes)
    assert isinstance(error, GrpcError) and (error.code, text in error.text) == (code, True), error


def test_a_text_of_a_server_is_short_and_can_be_read() -> None:
    sent_bytes = (b"grpc-message", b"%1b[31m%0a%00" + b"x" * 9_000)
    error = play(HELLO + headers(*HEAD) + status(b"13", sent_bytes))
    assert isinstance(error, GrpcError)
    assert error.text.startswith("[31m  xxx") and len(error.text) <= TEXT_MAX


def test_headers_ahead_of_the_answer_are_not_the_answer() -> None:
    async def call() -> None:
        early = headers((b":status", b"103"), (b"link", b"x"))
        sent_bytes = HELLO + early * 3 + GOOD[len(HELLO) :]
        assert await outcome(Scripted(), sent_bytes) == [b"good"]

    asyncio.run(call())


@pytest.mark.parametrize("one", [frame(h2.PING, 0, bytes(8)), HELLO])
def test_a_flood_ends_the_connection(one: bytes) -> None:
    """The whole flood arrives before the client can answer; otherwise each frame is answered as
    long as the server reads."""

    async def call() -> None:
        far = Scripted()
        error = await outcome(far, HELLO + one * 20_000)
        assert "it broke the rules of HTTP/2" in str(error)
        assert len(far.scripts[0].out) < 100_000

    asyncio.run(call())


def test_a_server_that_never_answers_costs_a_call_its_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(channel, "PING_S", 0.02)

    async def call() -> None:
        one = Scripted()
        with pytest.raises(CallTimeout, match="did not answer /S/M in time"):
            await one.ask(5)
        with pytest.raises(ConnectionClosed, match="it does not answer a PING"):
            await one.ask()
        assert await outcome(one, GOOD) == [b"good"]

    asyncio.run(call())


def test_a_connection_that_is_given_up_takes_no_call() -> None:
    async def call() -> None:
        one = Scripted()
        asked = one.ask()
        await asyncio.sleep(0)
        script = one.scripts[0]
        script.close = script.abort = lambda: None  # type: ignore[method-assign]
        script.say(b"HTTP/1.1 400 Bad Request\r\n")
        assert await outcome(one, GOOD) == [b"good"], "another connection"
        script.client.connection_lost(None)
        with pytest.raises(ConnectionClosed, match="HTTP/1"):
            await asked

    asyncio.run(call())


def test_the_first_bytes_say_nothing_until_there_are_enough() -> None:
    assert all(why_not_http2(HELLO[:size]) is None for size in range(FIRST_BYTES))
    assert why_not_http2(b"HTT") is None
