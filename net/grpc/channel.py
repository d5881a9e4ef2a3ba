"""The client's side of gRPC: calls to an address over a connection.

Owns the connection, opened when a call needs it, and its calls. It must never know a method.

The data that a peer can send is bounded: messages by `message_max`, other bytes by windows.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable, Sequence
from typing import Final, cast

from turbopump.net.grpc.answers import FIRST_BYTES, check_head, error_of_call, why_not_http2
from turbopump.net.grpc.framing import MessageReader, frame_message
from turbopump.net.grpc.status import GrpcCode, GrpcError
from turbopump.net.transport.errors import CallTimeout, ConnectError, ConnectionClosed
from turbopump.net.wire.hosts import split_host_port
from turbopump.pyx.h2 import AWAY, CLOSED, DATA, END, H2Session, pairs
from turbopump.pyx.h2 import HEADERS as BLOCK

logger = logging.getLogger(__name__)

MESSAGE_MAX: Final = 16 << 20
"""Maximum bytes of an answer's message: a body of 4 MiB, and everything besides it."""
STREAM_WINDOW: Final = 1 << 20
"""Bytes that the server may send ahead in a call."""
WINDOW: Final = 32 << 20
"""Bytes that the server may send ahead in all calls of a connection."""
HEADERS_MAX: Final = 16 << 10
"""Maximum bytes of the headers of an answer."""
PING_S: Final = 30.0
"""Interval of PINGs in seconds; a connection from which nothing arrives in an interval is
closed."""
CLOSE_S: Final = 1.0
"""Longest wait in seconds for the server to close after GOAWAY; then the connection is aborted."""
RESPONSE_MAX: Final = 192 << 20
"""Maximum bytes of all messages of an answer: a receive returns 32 messages of the largest size."""
CANCEL: Final = 8
"""Error code of HTTP/2: the client cancels the stream."""
NO_ERROR: Final = 0
"""Error code of HTTP/2: a clean end."""
_BROKE: Final = "it broke the rules of HTTP/2"

Metadata = Sequence[tuple[bytes, bytes]]
"""Names, in small letters, and values of a call's further headers, in order."""
_Pairs = list[tuple[bytes, bytes]]


class OutgoingCall:
    """A call of this client. Loop thread only.

    `on_message` receives each message of the answer; a GrpcError that it raises ends the call.
    `on_closed` receives the error at the end, a GrpcError or ConnectionClosed, or None for OK; it
    runs once, but never after `cancel`.
    """

    __slots__ = (
        "_connection",
        "has_ended",
        "metadata",
        "on_closed",
        "on_message",
        "reader",
        "stream_id",
    )

    def __init__(
        self,
        connection: "_Connection",
        on_message: Callable[[bytes], None],
        on_closed: Callable[[Exception | None], None],
    ) -> None:
        self._connection = connection
        self.on_message = on_message
        self.on_closed = on_closed
        self.reader: MessageReader | None = None
        self.metadata: dict[bytes, bytes] = {}
        """Headers and trailers of the answer that have arrived."""
        self.stream_id = 0
        """The id of the HTTP/2 stream."""
        self.has_ended = False
        """Whether the call has ended or was cancelled."""

    def send(self, message: bytes) -> None:
        """Send a further message of a stream, without a wait; no-op if the call has ended."""
        if not self.has_ended:
            self._connection.send_more(self.stream_id, frame_message(message), ends=False)

    def end(self) -> None:
        """End this client's half of the stream: no message may follow. No-op if the call has
        ended."""
        if not self.has_ended:
            self._connection.send_more(self.stream_id, b"", ends=True)

    def cancel(self) -> None:
        """Cancel the call (RST_STREAM): no callback runs after it. No-op if the call has ended."""
        if not self.has_ended:
            self.has_ended = True
            self._connection.reset_stream(self.stream_id)

    def end_silently(self, error: Exception | None) -> None:
        """End the call without sending anything, and run `on_closed` with `error`; no-op if it has
        ended. For the connection alone."""
        if not self.has_ended:
            self.has_ended = True
            self.on_closed(error)


class GrpcChannel:
    """Calls to `host:port` over one connection, opened by the first call within
    `connect_timeout_ms`. `tls` None: without TLS. Loop thread only; `pyx.h2.library` must have been
    called.

    A lost connection ends its calls; the next call opens a new connection.
    """

    def __init__(
        self, address: str, tls: ssl.SSLContext | None = None, connect_timeout_ms: int = 3_000
    ) -> None:
        self.address = address
        self._tls = tls
        self._connect_s = connect_timeout_ms / 1_000
        self._connection: _Connection | None = None
        self._opening = asyncio.Lock()
        self._closed = False

    async def call_unary(
        self, path: str, request: bytes, metadata: Metadata, timeout_ms: int
    ) -> list[bytes]:
        """Send `request`, a message, to `path` (`/package.Service/Method`), end this side, and
        return the messages of the answer in order, after its end.

        `timeout_ms` includes connecting; the rest is sent as grpc-timeout. Raises GrpcError for an
        end other than OK or an answer over RESPONSE_MAX, CallTimeout, ConnectError and
        ConnectionClosed. Cancels the call if it raises.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1_000
        try:
            async with asyncio.timeout_at(deadline):
                connection = await self._connect()
        except TimeoutError:
            raise ConnectError(f"{self.address} cannot be reached: timed out") from None
        found: list[bytes] = []
        size = 0
        done: asyncio.Future[None] = loop.create_future()

        def on_ended(error: Exception | None) -> None:
            if done.done():
                return
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)

        def take(message: bytes) -> None:
            nonlocal size
            size += len(message)
            if size > RESPONSE_MAX:
                text = f"an answer of over {RESPONSE_MAX} bytes"
                raise GrpcError(GrpcCode.RESOURCE_EXHAUSTED, text)
            found.append(message)

        left_ms = max(1, round((deadline - loop.time()) * 1_000))
        timed = [*metadata, (b"grpc-timeout", b"%dm" % min(left_ms, 99_999_999))]
        call = connection.begin_call(path, timed, frame_message(request), True, take, on_ended)
        try:
            async with asyncio.timeout_at(deadline):
                await done
        except TimeoutError:
            raise CallTimeout(f"{self.address} did not answer {path} in time") from None
        finally:
            call.cancel()
        return found

    async def open_stream(
        self,
        path: str,
        metadata: Metadata,
        on_message: Callable[[bytes], None],
        on_closed: Callable[[Exception | None], None],
    ) -> OutgoingCall:
        """Begin a call without a message and without a time-out, and return it when the connection
        is open: messages can be sent in both directions until `end` or `cancel`. Raises
        ConnectError, ConnectionClosed."""
        connection = await self._connect()
        return connection.begin_call(path, metadata, b"", False, on_message, on_closed)

    async def close(self) -> None:
        """End all calls with ConnectionClosed and close the connection, within CLOSE_S; later calls
        raise ConnectionClosed."""
        self._closed = True
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def _connect(self) -> "_Connection":
        """Return the open connection, or open one. Raises ConnectionClosed after `close`, else
        ConnectError."""
        async with self._opening:
            if self._closed:
                raise ConnectionClosed("the client is closed")
            connection = self._connection
            if connection is None or not connection.takes_calls:
                connection = self._connection = await self._open()
            return connection

    async def _open(self) -> "_Connection":
        """Open a new connection within the timeout; raises ConnectError."""
        try:
            host, port = split_host_port(self.address)
            async with asyncio.timeout(self._connect_s):
                _, made = await asyncio.get_running_loop().create_connection(
                    lambda: _Connection(self.address), host, port, ssl=self._tls
                )
        except TimeoutError:
            raise ConnectError(f"{self.address} cannot be reached: timed out") from None
        except ssl.SSLError as error:
            text = f"there is no TLS with it ({error.reason or error})"
            raise ConnectError(f"{self.address} cannot be reached: {text}") from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise ConnectError(f"{self.address} cannot be reached: {reason}") from None
        return made


class _Connection(asyncio.Protocol):
    """An HTTP/2 connection of a GrpcChannel to a server, and its calls. Loop thread only."""

    def __init__(self, address: str) -> None:
        self._address = address
        # A client lets the server begin no stream.
        self._session = H2Session(0, HEADERS_MAX, STREAM_WINDOW, WINDOW, client=True)
        self._transport: asyncio.Transport | None = None
        self._calls: dict[int, OutgoingCall] = {}
        self._over = asyncio.get_running_loop().create_future()
        self._timer: asyncio.TimerHandle | None = None
        self._heard = True
        self._blocked = False
        self._leaves = False
        self._first = b""
        self._why = ""
        self._was_tls = False

    @property
    def takes_calls(self) -> bool:
        """Whether new calls can begin on this connection: it is open, and the server announced
        no end."""
        return self._transport is not None and not self._leaves

    def begin_call(
        self,
        path: str,
        metadata: Metadata,
        body: bytes,
        ends: bool,
        on_message: Callable[[bytes], None],
        on_closed: Callable[[Exception | None], None],
    ) -> OutgoingCall:
        """Begin a call by a stream with headers and `body`; `ends`: no further bytes follow.
        Raises ConnectionClosed."""
        if not self.takes_calls:
            raise ConnectionClosed(f"{self._address} closed the connection")
        head = [
            (b":method", b"POST"),
            (b":scheme", b"https" if self._is_tls else b"http"),
            (b":path", path.encode()),
            (b":authority", self._address.encode()),
            (b"content-type", b"application/grpc"),
            (b"te", b"trailers"),
            *metadata,
        ]
        call = OutgoingCall(self, on_message, on_closed)
        try:
            call.stream_id = self._session.request(pairs(head), body, ends)
        except ValueError as error:
            raise ConnectionClosed(f"{self._address} accepts no further calls: {error}") from None
        self._calls[call.stream_id] = call
        self._write()
        return call

    def send_more(self, stream_id: int, body: bytes, *, ends: bool) -> None:
        """Send further bytes of a request's stream; `ends`: they are the last ones."""
        self._session.more(stream_id, body, b"", ends)
        self._write()

    def reset_stream(self, stream_id: int) -> None:
        """Reset a stream, which cancels its call."""
        if self._calls.pop(stream_id, None) is not None and self._transport is not None:
            self._session.reset(stream_id, CANCEL)
            self._write()

    async def close(self) -> None:
        """Send GOAWAY and close the connection, once its bytes are written; ends all calls."""
        for call in list(self._calls.values()):
            call.end_silently(ConnectionClosed("the client is closed"))
        self._calls.clear()
        if self._transport is not None:
            self._session.terminate(NO_ERROR)
            self._write()
            if self._transport is not None:
                self._transport.close()
            try:
                async with asyncio.timeout(CLOSE_S):
                    await asyncio.shield(self._over)
            except TimeoutError:
                if self._transport is not None:
                    self._transport.abort()

    @property
    def _is_tls(self) -> bool:
        transport = self._transport
        return transport is not None and transport.get_extra_info("ssl_object") is not None

    # Callbacks of the loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is open: start the PINGs."""
        self._transport = cast(asyncio.Transport, transport)
        self._was_tls = self._is_tls
        self._timer = asyncio.get_running_loop().call_later(PING_S, self._ping_peer)
        self._write()

    def data_received(self, data: bytes) -> None:
        """Handle bytes from the server."""
        self._heard = True
        if len(self._first) < FIRST_BYTES:
            self._first += data[: FIRST_BYTES - len(self._first)]
            other = why_not_http2(self._first)
            if other is not None:
                self._abort_with(other)
                return
        left = memoryview(data)
        try:
            while len(left):
                taken, events = self._session.receive(left)
                left = left[taken:]
                for kind, stream_id, what in events:
                    self._on_event(kind, stream_id, what)
                if not taken and not events:
                    break
        except ValueError as error:
            self._abort_with(f"{_BROKE} ({error})")
            return
        self._write()

    def pause_writing(self) -> None:
        """Stop writing: the socket's buffer is full."""
        self._blocked = True

    def resume_writing(self) -> None:
        """Write again: the socket's buffer has room."""
        self._blocked = False
        self._write()

    def connection_lost(self, error: Exception | None) -> None:
        """End all calls: the connection was closed."""
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
        text = f"{self._address} closed the connection before it answered"
        if self._why:
            text = f"the connection to {self._address} ended: {self._why}"
        elif error is not None:
            text = f"{text}: {error}"
        elif not self._first and not self._was_tls:
            text = f"{text}, without a word: it may take connections by TLS alone"
        calls, self._calls = self._calls, {}
        for call in calls.values():
            call.end_silently(ConnectionClosed(text))
        if not self._over.done():
            self._over.set_result(None)

    def _on_event(self, kind: int, stream_id: int, what: object) -> None:
        """Handle an event of the HTTP/2 session: `what` is headers, data or an error code, as
        `kind` demands. A GrpcError resets the stream and ends its call."""
        if kind == AWAY:
            self._leaves = True
            return
        call = self._calls.get(stream_id)
        if call is None:
            return
        try:
            if kind == BLOCK:
                self._on_headers(call, cast("_Pairs | None", what))
            elif kind == DATA:
                self._on_data(call, cast(bytes, what))
            elif kind in (END, CLOSED):
                self._on_end(call, cast("int | None", what))
        except GrpcError as error:
            self.reset_stream(stream_id)
            call.end_silently(error)

    def _on_headers(self, call: OutgoingCall, headers: _Pairs | None) -> None:
        """Store the headers or trailers of an answer; None: they were too large. Raises
        GrpcError."""
        if headers is None:
            raise GrpcError(GrpcCode.INTERNAL, "the headers of the answer are too large")
        fields = dict(headers)
        if fields.get(b":status", b"").startswith(b"1"):
            return  # an informational response (1xx): the final headers follow
        call.metadata.update(fields)
        check_head(call.metadata)
        if call.reader is None:
            is_gzip = call.metadata.get(b"grpc-encoding") == b"gzip"
            call.reader = MessageReader(MESSAGE_MAX, is_gzip)

    def _on_data(self, call: OutgoingCall, data: bytes) -> None:
        """Pass the messages that are complete now to the call. Raises GrpcError."""
        if call.reader is None:
            raise GrpcError(GrpcCode.INTERNAL, "an answer without headers")
        for message in call.reader.feed_bytes(data):
            call.on_message(message)

    def _on_end(self, call: OutgoingCall, error: int | None) -> None:
        """End the call; its trailers came before, or do not come."""
        self._calls.pop(call.stream_id, None)
        held = 0 if call.reader is None else call.reader.held_bytes
        call.end_silently(error_of_call(call.metadata, held, error or 0))

    def _ping_peer(self) -> None:
        """Send a PING every PING_S, or close the connection if no byte arrived since the last
        PING."""
        if not self._heard:
            self._abort_with("it does not answer a PING")
            return
        self._heard = False
        self._timer = asyncio.get_running_loop().call_later(PING_S, self._ping_peer)
        self._session.ping()
        self._write()

    def _write(self) -> None:
        """Write the session's bytes until the socket's buffer is full, and handle the events
        that come with them; close the transport after the session's end."""
        transport = self._transport
        try:
            while transport is not None and not self._blocked:
                out, events = self._session.take()
                for kind, stream_id, what in events:
                    self._on_event(kind, stream_id, what)
                if not out:
                    break
                transport.write(out)
        except ValueError as error:
            self._abort_with(f"{_BROKE} ({error})")
            return
        if transport is not None and self._session.is_finished:
            if not self._leaves:
                self._why = _BROKE
            transport.close()

    def _abort_with(self, text: str) -> None:
        """Log the reason and abort the connection; its calls end when it is lost."""
        logger.info("closed the connection to %s: %s", self._address, text)
        self._why = text
        self._leaves = True
        if self._transport is not None:
            self._transport.abort()
