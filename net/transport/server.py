"""The listening side: any number of ports, one dispatcher, one set of peers.

Owns admission (how many connections, plain or TLS) and the orderly stop. It must never know a
request code. Called by nodes.
"""

import asyncio
import logging
import resource
from collections.abc import Callable
from functools import partial
from typing import Final

from turbopump.net.transport.connection import GO_AWAY_SINCE_VERSION, Connection
from turbopump.net.transport.dispatcher import Dispatcher
from turbopump.net.transport.hub import Gate, Hub, Swept, ToTls
from turbopump.net.transport.options import ServerOptions, TlsMode, TlsSettings
from turbopump.net.transport.peer import Peer
from turbopump.net.transport.tls import server_context
from turbopump.net.transport.tls_context import LOOK_S, TlsContext
from turbopump.net.wire.codes import ResponseCode
from turbopump.net.wire.command import Command, WireError, response

logger = logging.getLogger(__name__)

OTHER_FILES: Final = 512
"""Open files left to everything but connections: log and queue files, other ports, the refused."""

REFUSED_MAX: Final = 128
"""Connections over the limit that wait for their refusal; those beyond are closed unanswered."""

_REFUSAL = "[REJECTREQUEST]too many connections, the limit is {}"
_GO_AWAY = "please go away"


class Server:
    """Serves a dispatcher on the ports that `start` opens. Loop thread only."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        options: ServerOptions | None,
        now_ms: Callable[[], int],
    ) -> None:
        self._dispatcher = dispatcher
        self._options = options or ServerOptions()
        self._now_ms = now_ms
        self._hub: _ServerHub | None = None
        self._listeners: list[asyncio.Server] = []

    @property
    def peers(self) -> set[Peer]:
        """Every connected client."""
        return {one.peer for one in self._hub.connections} if self._hub else set()

    async def start(
        self,
        host: str,
        port: int,
        dispatcher: Dispatcher | None = None,
        gate: Gate | None = None,
    ) -> int:
        """Listen on a port more (0: a free one); returns the port.

        `dispatcher` is for a port that does not serve what the others do, `gate` says what is
        served natively. Raises OSError if it is in use, TlsError if the certificate files cannot
        be used.
        """
        loop = asyncio.get_running_loop()
        hub = self._hub
        if hub is None:
            hub = _ServerHub(self._dispatcher, self._options, self._now_ms, loop)
        listener = await loop.create_server(
            lambda: Connection(hub, dispatcher=dispatcher, gate=gate),
            host,
            port,
            backlog=self._options.backlog,
            reuse_address=True,
        )
        if self._hub is None:
            self._hub = hub
            hub.start_sweeping()
        self._listeners.append(listener)
        return int(listener.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Take no new connections, tell requests to go away, finish those in flight, close.

        Clients after V5_3_1 resend elsewhere what was answered GO_AWAY. Bounded by stop_grace_ms
        and close_timeout_ms.
        """
        for listener in self._listeners:
            listener.close()
        hub, self._hub = self._hub, None
        if hub is not None:
            hub.stopping = True
            await hub.wait(lambda: hub.in_flight == 0, self._options.stop_grace_ms)
            for connection in list(hub.connections):
                connection.close()
            if not await hub.wait(lambda: not hub.connections, self._options.close_timeout_ms):
                for connection in list(hub.connections):
                    connection.abort()
                await hub.wait(lambda: not hub.connections, self._options.close_timeout_ms)
            hub.stop_sweeping()
        for listener in self._listeners:
            await listener.wait_closed()
        self._listeners.clear()


class _ServerHub(Hub):
    """A hub that admits and refuses."""

    is_server = True

    def __init__(
        self,
        dispatcher: Dispatcher,
        options: ServerOptions,
        now_ms: Callable[[], int],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(dispatcher, options, now_ms, loop)
        self.stopping = False
        self._limit = _connection_limit(options.max_connections)
        self._refused: set[Swept] = set()
        self._tls = options.tls or TlsSettings(mode=TlsMode.DISABLED)
        self._context = TlsContext(self._tls, partial(server_context, self._tls))
        self._looking: asyncio.Task[None] | None = None
        mode, files = self._tls.mode, self._tls.cert_path or self._tls.key_path
        # Without files a certificate is made when the first peer wants one, by a thread: it takes
        # 30 to 80 ms with the import of its package. Where every peer must want one it is better
        # known now that there will be none.
        if mode is TlsMode.ENFORCING or (mode is TlsMode.PERMISSIVE and files):
            self._context.load()

    def start_sweeping(self) -> None:
        """Begin the sweeps, and the looks at certificates that may be renewed."""
        super().start_sweeping()
        used = self._tls.mode is not TlsMode.DISABLED
        if self._looking is None and used and self._context.has_files:
            self._looking = self.loop.create_task(self._look_at_files())

    def stop_sweeping(self) -> None:
        """End them."""
        super().stop_sweeping()
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None

    def admit(self, connection: Swept) -> bool:
        """Up to the limit; the next few get to hear why not."""
        if len(self.connections) - len(self._refused) >= self._limit:
            self.complain(f"{connection.peer.address} refused: {self._limit} connections are open")
            self._refused.add(connection)
            self.connections.add(connection)
            # Its first request has as long as a slow frame.
            connection.slow_since = connection.active_at
            return len(self._refused) <= REFUSED_MAX
        return super().admit(connection)

    def leave(self, connection: Swept) -> None:
        """A connection ended."""
        self._refused.discard(connection)
        super().leave(connection)

    def refusal(self, connection: Swept, request: Command) -> Command | None:
        """SYSTEM_BUSY over the limit, GO_AWAY while stopping."""
        if connection in self._refused:
            connection.peer.after_answers(connection.close)
            return response(request, ResponseCode.SYSTEM_BUSY, _REFUSAL.format(self._limit))
        if self.stopping and request.version >= GO_AWAY_SINCE_VERSION:
            return response(request, ResponseCode.GO_AWAY, _GO_AWAY)
        return None

    def is_free(self, connection: Swept) -> bool:
        """Those over the limit are not."""
        return connection not in self._refused

    def tls_context(self, hello: bool) -> ToTls:
        """By mode: disabled closes TLS peers, enforcing plain ones."""
        mode = self._tls.mode
        if not hello:
            if mode is TlsMode.ENFORCING:
                raise WireError("a plain peer where tls.server.mode is enforcing")
            return None
        if mode is TlsMode.DISABLED:
            raise WireError("a TLS peer where tls.server.mode is disabled")
        return self._context.made()

    async def _look_at_files(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                await self._context.look()
            except Exception:
                logger.exception("the TLS files cannot be looked at for now")


def _connection_limit(configured: int) -> int:
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if files == resource.RLIM_INFINITY or files - OTHER_FILES >= configured:
        return configured
    limit = max(1, files - OTHER_FILES)
    logger.info("at most %d connections: the limit of open files is %d", limit, files)
    return limit
