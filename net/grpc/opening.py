"""A connection of a gRPC port until its first bytes show whether it is plain or TLS.

Owns the first byte and the handshake. It must never begin a session of HTTP/2: GrpcConnection,
which takes over the socket, does. Peers of remoting's port that speak HTTP/2 do not use this class:
the connection of that port has done both already.

    first byte -> plain ----------------------------------------> GrpcConnection
               -> TLS -> (certificate is read) -> handshake ----> GrpcConnection
      a failed handshake or a timeout closes the connection
"""

import asyncio
import ssl
from typing import cast

from turbopump.engine.deferred import Deferred
from turbopump.net.grpc.connection import GrpcConnection
from turbopump.net.grpc.hub import GrpcHub
from turbopump.net.transport.dispatcher import one_line
from turbopump.net.transport.server_tls import ServerTls
from turbopump.net.transport.tls import HANDSHAKE_BYTE, TlsError, TlsSession
from turbopump.net.wire.command import WireError
from turbopump.net.wire.hosts import join


class GrpcOpening(asyncio.BufferedProtocol):
    """A connection of a GrpcHub that is not a GrpcConnection yet. Loop thread only."""

    __slots__ = (
        "_context",
        "_hello",
        "_hub",
        "_paused",
        "_rests",
        "_session",
        "_since",
        "_tls",
        "_transport",
        "address",
    )

    def __init__(self, hub: GrpcHub, tls: ServerTls) -> None:
        self._hub = hub
        self._tls = tls
        self._transport: asyncio.Transport | None = None
        self._session: TlsSession | None = None
        self._context: ssl.SSLContext | TlsError | None = None
        self._hello = b""
        self._since = hub.clock()
        self._rests = self._paused = False
        self.address = ""
        """The peer's `ip:port`; empty before the connection is made."""

    # Callbacks of the loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the peer's address and join the hub; abort if the hub does not admit the
        connection."""
        self._transport = cast(asyncio.Transport, transport)
        name = self._transport.get_extra_info("peername") or ("0.0.0.0", 0)
        self.address = join(name[0], name[1])
        if not self._hub.admit_connection(self):
            self.abort()

    def get_buffer(self, _hint: int) -> memoryview:
        """The buffer for the next read: its bytes are handled or copied at once."""
        return self._hub.room

    def buffer_updated(self, nbytes: int) -> None:
        """Handle the first bytes, or further bytes of the handshake."""
        self._handle_guarded(self._hub.room[:nbytes])

    def eof_received(self) -> bool:
        """Always False: the loop closes a connection that the peer closed halfway."""
        return False

    def connection_lost(self, _exc: Exception | None) -> None:
        """The connection was lost before it became a GrpcConnection: leave the hub."""
        self._transport = self._session = self._context = None
        self._hub.remove(self)

    # Methods for FairScheduler.

    def continue_turn(self) -> None:
        """Take the step of the handshake that waited for a turn."""
        self._rests = False
        if self._transport is not None:
            self._handle_guarded(None)

    # Methods for GrpcHub and GrpcServer.

    @property
    def unsent(self) -> int:
        """Always 0: no answer exists yet."""
        return 0

    def sweep(self, now: float) -> None:
        """Abort if the connection is older than `message_timeout_ms`; `now` is in seconds, of the
        loop's clock. Until then the first byte and a TLS handshake have to arrive."""
        if now - self._since > self._hub.options.message_timeout_ms / 1_000:
            self._hub.log_problem(f"{self.address} closed: it did not begin in time")
            self.abort()

    def go_away(self) -> None:
        """Abort: no call is in progress yet."""
        self.abort()

    def close(self) -> None:
        """Abort: no call is in progress yet."""
        self.abort()

    def abort(self) -> None:
        """Close and drop all unsent bytes; no-op if the connection has ended."""
        if self._transport is not None:
            self._transport.abort()

    # The way to a GrpcConnection.

    def _handle_guarded(self, data: memoryview | None) -> None:
        """Handle bytes, or None for a turn of the handshake; a failure closes the connection."""
        try:
            self._handle_bytes(data)
        except (WireError, ssl.SSLError) as error:
            self._hub.log_problem(f"{self.address} closed: {one_line(error)}")
            if self._transport is not None:
                self._transport.close()

    def _handle_bytes(self, data: memoryview | None) -> None:
        """Continue the handshake with bytes, or None for its turn, or choose plain or TLS by the
        first byte."""
        if self._session is not None:
            if data is not None:
                self._session.feed(data)
            self._shake_hands(self._session)
        elif self._context is not None:
            self._begin_tls(self._context, self._hello)
        elif data is not None:
            self._choose_protocol(data)

    def _choose_protocol(self, data: memoryview) -> None:
        """Choose plain or TLS by the first byte. Reading pauses until the certificate is loaded and
        the handshake has its turn."""
        context = self._tls.context(data[0] == HANDSHAKE_BYTE)
        if context is None:
            self._hand_over(None, data)
        elif isinstance(context, Deferred):
            self._hello = bytes(data)
            self._pause_reading()
            context.then(self._has_context)
        else:
            self._begin_tls(context, data)

    def _has_context(self, context: ssl.SSLContext | TlsError) -> None:
        """Wait for a turn to begin TLS: the context was made, or failed."""
        self._context = context
        self._continue_later()

    def _begin_tls(self, context: ssl.SSLContext | TlsError, hello: bytes | memoryview) -> None:
        """Begin the handshake with the peer's first bytes. Raises WireError if no context could
        be made."""
        if isinstance(context, TlsError):
            raise WireError(str(context))
        self._session = TlsSession(context, server_side=True)
        self._session.feed(hello)
        self._hello, self._context = b"", None
        self._shake_hands(self._session)

    def _shake_hands(self, session: TlsSession) -> None:
        """Take a step of the handshake if the turn has room, else wait for a later turn."""
        if not self._hub.turns.begin_handshake():
            self._pause_reading()
            self._continue_later()
            return
        try:
            done = session.handshake()
        finally:
            # An alert of a failed handshake is sent, too.
            if self._transport is not None:
                self._transport.write(session.outgoing())
        if done:
            self._hand_over(session, memoryview(b""))
        else:
            self._resume_reading()

    def _hand_over(self, session: TlsSession | None, data: memoryview) -> None:
        """Hand the socket over to a new GrpcConnection."""
        self._resume_reading()
        transport, self._transport = self._transport, None
        self._hub.remove(self)
        if transport is not None:
            GrpcConnection(self._hub, session).begin(transport, data)

    def _continue_later(self) -> None:
        """Have `continue_turn` called in a later turn, once."""
        if not self._rests and self._transport is not None:
            self._rests = True
            self._hub.turns.continue_later(self, fresh=True)

    def _pause_reading(self) -> None:
        """Stop reading from the socket, until `_resume_reading`."""
        if self._transport is not None and not self._paused:
            self._paused = True
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        if self._transport is not None and self._paused:
            self._paused = False
            self._transport.resume_reading()
