"""The listening side of gRPC: its own port, connections handed over by another port, a clean stop.

Owns whether gRPC can be served here at all, and the order of the stop. It must never know a method.

    made -> begin (connections can be handed over) -> start (own port) -> stop: GOAWAY, grace, close

Tests: tests/integration/grpc/test_grpc_server.py
"""

import asyncio
import logging
from collections.abc import Mapping

from turbopump.net.grpc.call import Method
from turbopump.net.grpc.connection import GrpcConnection
from turbopump.net.grpc.hub import GrpcHub
from turbopump.net.grpc.opening import GrpcOpening
from turbopump.net.grpc.options import GrpcOptions
from turbopump.net.ports.listening import Listener, listen
from turbopump.net.transport.hub import HTTP2
from turbopump.net.transport.options import TlsSettings
from turbopump.net.transport.server_tls import ServerTls
from turbopump.net.transport.tls import TlsSession
from turbopump.pyx.grpc_lane import GrpcLane
from turbopump.pyx.h2 import library
from turbopump.pyx.io_threads import IoThreads

logger = logging.getLogger(__name__)


def why_no_grpc() -> str | None:
    """Load the library of HTTP/2 and return None, or a sentence for an operator if it cannot be
    loaded: gRPC cannot be served here."""
    try:
        library()
    except OSError as error:
        return f"gRPC is off: {error}; install nghttp2 (Debian: libnghttp2-14, Fedora: libnghttp2)"
    return None


class GrpcServer:
    """Serves `methods`, by path, on the port that `start` opens, and on connections that another
    server hands over (it is that server's Upgrade). Loop thread only; `why_no_grpc` must have
    returned None."""

    def __init__(
        self,
        methods: Mapping[str, Method],
        options: GrpcOptions | None = None,
        tls: TlsSettings | None = None,
        lane: GrpcLane | None = None,
        threads: IoThreads | None = None,
    ) -> None:
        """`options` None: the defaults. `tls` is for the port that `start` opens; None: that port
        is plain. `lane` serves plain calls natively; None: Python serves all. `threads` read and
        write the connections of that port; None: the loop does."""
        self._threads = threads
        self._lane = lane
        self._methods = methods
        self._options = options or GrpcOptions()
        self._tls = ServerTls(tls, [HTTP2])
        self._hub: GrpcHub | None = None
        self._listener: Listener | None = None

    def begin(self) -> None:
        """Begin to accept connections that are handed over; to be called once before `take`, unless
        `start` is."""
        self._hub = GrpcHub(self._methods, self._options, asyncio.get_running_loop(), self._lane)
        self._hub.start_sweeping()

    async def start(self, host: str, port: int) -> int:
        """Listen on `port` (0: a free port) and return the port; calls `begin` if it was not
        called. Raises OSError if the port is in use, TlsError if the certificate files cannot be
        used."""
        self._tls.load()
        if self._hub is None:
            self.begin()
        hub = self._hub
        assert hub is not None, "it has begun"
        listener = await listen(
            lambda: GrpcOpening(hub, self._tls),
            host,
            port,
            self._options.backlog,
            self._threads,
        )
        self._listener = listener
        self._tls.start_looking()
        return listener.address[1]

    @property
    def open(self) -> int:
        """Number of open connections, handed over or not; 0 before `begin` and after `stop`."""
        return len(self._hub.connections) if self._hub is not None else 0

    def take(self, transport: asyncio.Transport, tls: TlsSession | None, data: memoryview) -> None:
        """Serve a connection whose first bytes, `data` or the bytes in `tls`, another server has
        read; abort it before `begin` and after `stop`."""
        if self._hub is None:
            transport.abort()
        else:
            GrpcConnection(self._hub, tls).begin(transport, data)

    async def stop(self) -> None:
        """Close the port, announce the stop (GOAWAY) and refuse new calls, wait up to stop_grace_ms
        for calls in progress, then fail them with UNAVAILABLE, close all connections and wait up to
        twice stop_grace_ms for their end."""
        if self._listener is not None:
            self._listener.close()
        self._tls.stop_looking()
        hub, self._hub = self._hub, None
        if hub is None:
            return
        hub.stopping = True
        for connection in list(hub.connections):
            connection.go_away()
        try:
            await hub.wait(lambda: not hub.calls, self._options.stop_grace_ms)
        finally:  # a cancelled stop, too, leaves no connection
            await hub.close(self._options.stop_grace_ms)
