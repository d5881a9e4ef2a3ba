"""The port of metrics: Prometheus's requests, and invalid ones."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
import uvloop
from tests.integration.transport.conftest import TIME_LIMIT

from turbopump.net.ports import scrape
from turbopump.net.ports.scrape import CONNECTIONS_MAX, HEAD_MAX, ScrapeServer

pytestmark = pytest.mark.integration

Talk = Callable[[bytes], Awaitable[bytes]]


async def render(accept: str) -> tuple[bytes, str]:
    if accept == "break":
        raise ValueError("no metrics today")
    return f"up 1 for {accept}\n".encode(), "text/plain; version=0.0.4"


def with_server(work: Callable[[int, Talk], Awaitable[None]]) -> None:
    """Run `work(port, talk)`; `talk` sends bytes and gives all that comes back."""

    async def main() -> None:
        server = ScrapeServer(render)
        port = await server.start("127.0.0.1", 0)

        async def talk(data: bytes) -> bytes:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(data)
            try:
                return await reader.read()
            except ConnectionResetError:
                return b""
            finally:
                writer.close()

        try:
            await work(port, talk)
        finally:
            await server.stop()
        with pytest.raises(OSError):
            await talk(b"")

    uvloop.run(asyncio.wait_for(main(), TIME_LIMIT))


def test_a_scrape() -> None:
    async def work(_port: int, talk: Talk) -> None:
        for path in (b"/metrics", b"/", b"/metrics?name[]=up"):
            response = await talk(b"GET " + path + b" HTTP/1.1\r\nHost: x\r\nAccept: text\r\n\r\n")
            head, _, body = response.partition(b"\r\n\r\n")
            assert head.splitlines() == [
                b"HTTP/1.1 200 OK",
                b"Content-Type: text/plain; version=0.0.4",
                b"Content-Length: 14",
                b"Connection: close",
            ]
            assert body == b"up 1 for text\n"
        response = await talk(b"HEAD /metrics HTTP/1.0\r\naccept: text\r\n\r\n")
        assert b"Content-Length: 14" in response and response.endswith(b"\r\n\r\n")

    with_server(work)


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /else HTTP/1.1\r\n\r\n", b"404"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"405"),
        (b"GET /metrics\r\n\r\n", b"400"),
        (b"\x00\x00\x00\x10\xff\r\n\r\n", b"400"),
        (b"GET /metrics HTTP/1.1\r\nAccept: break\r\n\r\n", b"500"),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * HEAD_MAX * 2, b"431"),
    ],
)
def test_requests_other_than_scrapes(request_: bytes, status: bytes) -> None:
    async def work(_port: int, talk: Talk) -> None:
        assert (await talk(request_)).split()[1:2] == [status]
        assert (await talk(b"GET / HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 200")

    with_server(work)


def test_silent_connections_are_bounded_in_number_and_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrape, "EXCHANGE_S", 0.3)

    async def work(port: int, talk: Talk) -> None:
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(CONNECTIONS_MAX)]
        assert await talk(b"GET / HTTP/1.1\r\n\r\n") == b""
        for reader, writer in silent:
            try:
                assert await reader.read() == b""
            except ConnectionResetError:
                pass
            writer.close()
        assert (await talk(b"GET / HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 200")

    with_server(work)
