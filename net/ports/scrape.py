"""The HTTP side of metrics: GET /metrics, a single answer for each connection.

Owns the few lines of HTTP that Prometheus needs, and their bounds. It must never know a metric.

Tests: tests/integration/transport/test_scrape.py
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final

from turbopump.net.ports.listening import begin_to_serve

logger = logging.getLogger(__name__)

HEAD_MAX: Final = 16 << 10
"""Maximum bytes of a request's line and headers, beyond which the answer is HTTP status 431;
Prometheus sends some hundred."""

CONNECTIONS_MAX: Final = 32
"""Maximum number of concurrent scrapes, beyond which connections are closed without an answer: a
handful of collectors, each asking every few seconds."""

EXCHANGE_S: Final = 10.0
"""Longest time in seconds from the connection to the answer's last byte (Prometheus:
scrape_timeout); then the connection is closed."""

PATHS: Final = ("/metrics", "/")
"""Paths of the metrics; RocketMQ's exporter answers at both, too."""

Render = Callable[[str], Awaitable[tuple[bytes, str]]]
"""Argument: the Accept header, empty without one. Result: body and content type. An exception is
logged and answered with HTTP status 500."""


class ScrapeServer:
    """Answers GET and HEAD of PATHS with the text that `render` makes for each request. Loop thread
    only."""

    def __init__(self, render: Render) -> None:
        self._render = render
        self._listener: asyncio.Server | None = None
        self._exchanges: set[asyncio.Task[None]] = set()

    async def start(self, host: str, port: int) -> int:
        """Listen on `port` (0: a free port) and return the port. Raises OSError if it is in use."""
        listener = await asyncio.start_server(
            self._serve_connection, host, port, limit=HEAD_MAX, start_serving=False
        )
        await begin_to_serve(listener)
        self._listener = listener
        return int(self._listener.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Close the port and abort the connections being answered; returns after their end. No-op
        before `start`."""
        if self._listener is not None:
            self._listener.close()
            for exchange in self._exchanges:
                exchange.cancel()
            await asyncio.gather(*self._exchanges, return_exceptions=True)
            await self._listener.wait_closed()

    def _serve_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection in a task of its own; abort it beyond CONNECTIONS_MAX."""
        if len(self._exchanges) >= CONNECTIONS_MAX:
            writer.transport.abort()
            return
        exchange = asyncio.get_running_loop().create_task(self._serve_request(reader, writer))
        self._exchanges.add(exchange)
        exchange.add_done_callback(self._exchanges.discard)

    async def _serve_request(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Read one request, write its answer and close, within EXCHANGE_S."""
        try:
            async with asyncio.timeout(EXCHANGE_S):
                # With this limit, drain returns after the last byte was sent, so nothing remains
                # for close.
                writer.transport.set_write_buffer_limits(high=0)
                writer.write(await self._make_response(await reader.readuntil(b"\r\n\r\n")))
                await writer.drain()
            writer.close()
        except asyncio.LimitOverrunError:
            writer.write(_encode_response(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE))
            writer.close()
        except (OSError, EOFError):  # TimeoutError is an OSError: the peer is silent or stuck
            writer.transport.abort()
        except BaseException:
            writer.transport.abort()
            raise

    async def _make_response(self, head: bytes) -> bytes:
        """Return the whole HTTP response to a request whose head is given."""
        line, *fields = head.decode("latin-1").split("\r\n")
        method, _, rest = line.partition(" ")
        path, _, version = rest.partition(" ")
        if not version.startswith("HTTP/1."):
            return _encode_response(HTTPStatus.BAD_REQUEST)
        if method not in ("GET", "HEAD"):
            return _encode_response(HTTPStatus.METHOD_NOT_ALLOWED)
        if path.partition("?")[0] not in PATHS:
            return _encode_response(HTTPStatus.NOT_FOUND)
        headers = {
            name.strip().lower(): value.strip() for name, _, value in map(_split_header, fields)
        }
        try:
            body, content_type = await self._render(headers.get("accept", ""))
        except Exception:
            logger.exception("the metrics cannot be rendered")
            return _encode_response(HTTPStatus.INTERNAL_SERVER_ERROR)
        response = _encode_response(HTTPStatus.OK, body, content_type)
        return response.removesuffix(body) if method == "HEAD" else response


def _split_header(field: str) -> tuple[str, str, str]:
    """Split a header line at its first colon into (name, ":", value)."""
    return field.partition(":")


def _encode_response(
    status: HTTPStatus, body: bytes = b"", content_type: str = "text/plain; charset=utf-8"
) -> bytes:
    body = body or (b"" if status is HTTPStatus.OK else f"{status.phrase}\n".encode())
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {content_type}\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
