"""The listening side: any number of ports, one dispatcher, one set of peers.

Owns admission (how many connections, plain or TLS) and the orderly stop. It must never know a
request code.

    made -> start for each port -> stop: GO_AWAY to new requests, grace, close, abort

Tests: tests/integration/transport/test_transport_limits.py
"""

import asyncio
import logging
import resource
import sys
from collections.abc import Callable
from typing import ClassVar, Final
from weakref import WeakSet

from turbopump.net.ports.listening import Listener, listen
from turbopump.net.transport.connection import GO_AWAY_SINCE_VERSION, Connection
from turbopump.net.transport.dispatcher import Dispatcher
from turbopump.net.transport.hub import HTTP2, Gate, Hub, Swept, ToTls, Upgrade
from turbopump.net.transport.options import ServerOptions
from turbopump.net.transport.peer import Peer
from turbopump.net.transport.server_tls import ServerTls
from turbopump.net.wire.codes import ResponseCode
from turbopump.net.wire.command import Command, new_response
from turbopump.pyx.io_threads import IoThreads

logger = logging.getLogger(__name__)

OTHER_FILES: Final = 512
"""Open files left to everything but connections: log and queue
files, other ports, refused peers."""

REFUSED_MAX: Final = 128
"""Maximum number of connections over the limit that wait for their refusal; further connections are
closed without an answer."""

_REFUSAL = "[REJECTREQUEST]too many connections, the limit is {}"
_GO_AWAY = "please go away"


class Server:
    """Serves a dispatcher on the ports that `start` opens. Loop thread only.

    `options` None: the defaults, without TLS. `handler_clock_ms` is the clock in ms whose value
    handlers receive as `now_ms`: epoch time in a broker, whose messages have it, monotonic time in
    a name server and a controller, which measure signs of life. The server itself measures all
    times of connections by the loop's monotonic clock. `upgrade` serves peers that speak HTTP/2;
    None: they are closed. `threads` read and write the connections; None: the loop does.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        options: ServerOptions | None,
        handler_clock_ms: Callable[[], int],
        upgrade: Upgrade | None = None,
        threads: IoThreads | None = None,
    ) -> None:
        self._dispatcher = dispatcher
        self._threads = threads
        self._options = options or ServerOptions()
        self._upgrade = upgrade
        self._tls = ServerTls(self._options.tls, () if upgrade is None else [HTTP2])
        self._handler_clock_ms = handler_clock_ms
        self._hub: _ServerHub | None = None
        self._listeners: list[Listener] = []

    @property
    def peers(self) -> set[Peer]:
        """A new set of the peers of all open connections, empty before `start` and after `stop`;
        connections that were handed over to `upgrade` are not in it."""
        return {one.peer for one in self._hub.connections} if self._hub else set()

    async def start(
        self,
        host: str,
        port: int,
        dispatcher: Dispatcher | None = None,
        gate: Gate | None = None,
    ) -> int:
        """Listen on a further `port` (0: a free port) and return the port.

        `dispatcher` replaces the server's for this port, `gate` serves some requests natively.
        Raises OSError if the port is in use, TlsError if the certificate files cannot be used.
        """
        loop = asyncio.get_running_loop()
        hub = self._hub
        if hub is None:
            hub = _ServerHub(
                self._dispatcher,
                self._options,
                self._handler_clock_ms,
                loop,
                self._tls,
                self._upgrade,
            )
        listener = await listen(
            lambda: Connection(hub, dispatcher=dispatcher, gate=gate),
            host,
            port,
            self._options.backlog,
            self._threads,
        )
        if self._hub is None:
            self._hub = hub
            hub.start_sweeping()
        self._listeners.append(listener)
        return listener.address[1]

    async def stop(self) -> None:
        """Close the ports, answer new requests with GO_AWAY, wait up to stop_grace_ms for pending
        answers, then close all connections and wait up to twice close_timeout_ms for their end.

        Clients after V5_3_1 resend a request that was answered GO_AWAY to another server; requests
        of older clients are still handled. The server can be started again.
        """
        for listener in self._listeners:
            listener.close()
        hub, self._hub = self._hub, None
        if hub is not None:
            hub.stopping = True
            try:
                await hub.wait(lambda: hub.in_flight == 0, self._options.stop_grace_ms)
            finally:  # a cancelled stop, too, leaves no connection
                await hub.close(self._options.close_timeout_ms)
        for listener in self._listeners:
            await listener.wait_closed()
        self._listeners.clear()


class _ServerHub(Hub):
    """A hub that admits connections up to a limit, and refuses the others."""

    is_server = True
    _all: ClassVar[WeakSet["_ServerHub"]] = WeakSet()
    """The serving hubs of this process."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        options: ServerOptions,
        handler_clock_ms: Callable[[], int],
        loop: asyncio.AbstractEventLoop,
        tls: ServerTls,
        upgrade: Upgrade | None,
    ) -> None:
        super().__init__(dispatcher, options, handler_clock_ms, loop)
        self._most, self._of_process = options.max_connections, _connections_of_process()
        if self._of_process < self._most:
            logger.info("the limit of open files allows %d connections", self._of_process)
        self._refused: set[Swept] = set()
        self._tls = tls
        self._upgrade = upgrade
        tls.load()

    def start_sweeping(self) -> None:
        """Begin the sweeps, and the checks for renewed certificates."""
        super().start_sweeping()
        self._all.add(self)
        self._tls.start_looking()

    def stop_sweeping(self) -> None:
        """Stop the sweeps and the checks for renewed certificates."""
        super().stop_sweeping()
        self._all.discard(self)
        self._tls.stop_looking()

    @property
    def _limit(self) -> int:
        """The limit of connections. Open files are the process's, and its servers divide them, so
        that a flood at one server leaves room for the others."""
        servers = sum(not hub.loop.is_closed() for hub in self._all)
        return min(self._most, max(1, self._of_process // max(1, servers)))

    def admit(self, connection: Swept) -> bool:
        """Add a connection up to the limit; the first few over it are answered with a refusal."""
        others = 0 if self._upgrade is None else self._upgrade.open
        if len(self.connections) - len(self._refused) + others >= self._limit:
            self.log_problem(
                f"{connection.peer.address} refused: {self._limit} connections are open"
            )
            self._refused.add(connection)
            self.connections.add(connection)
            # Its first request may take as long as a slow frame.
            connection.slow_since = connection.active_at
            return len(self._refused) <= REFUSED_MAX
        return super().admit(connection)

    def remove(self, connection: Swept) -> None:
        """Remove a connection that has ended."""
        self._refused.discard(connection)
        super().remove(connection)

    def refusal(self, connection: Swept, request: Command) -> Command | None:
        """SYSTEM_BUSY over the limit, GO_AWAY while stopping, else None."""
        if connection in self._refused:
            connection.peer.after_answers(connection.close)
            return new_response(request, ResponseCode.SYSTEM_BUSY, _REFUSAL.format(self._limit))
        if self.stopping and request.version >= GO_AWAY_SINCE_VERSION:
            return new_response(request, ResponseCode.GO_AWAY, _GO_AWAY)
        return None

    def is_free(self, connection: Swept) -> bool:
        """Whether the connection is within the limit of connections, so that its requests are
        handled."""
        return connection not in self._refused

    @property
    def upgrade(self) -> Upgrade | None:
        """The server for peers that speak HTTP/2, if any."""
        return self._upgrade

    def tls_context(self, hello: bool) -> ToTls:
        """The context of a connection, by the node's TLS mode."""
        return self._tls.context(hello)


def _connections_of_process() -> int:
    """Return the number of connections that the process's limit of open files allows."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return sys.maxsize if files == resource.RLIM_INFINITY else max(1, files - OTHER_FILES)
