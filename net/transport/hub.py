"""The shared state of a server's or client's connections.

Owns their common memory, and their timeouts. It must never read or write a socket. Each Server and
each Client has a hub.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from turbopump.engine.deferred import Deferred
from turbopump.net.transport.connection_set import Closable, ConnectionSet
from turbopump.net.transport.dispatcher import Dispatcher, Response
from turbopump.net.transport.fair_scheduler import FairScheduler, Steps
from turbopump.net.transport.options import ConnectionOptions
from turbopump.net.transport.peer import Peer
from turbopump.net.transport.receive_buffer import Area, Owner
from turbopump.net.transport.tls import TlsError, TlsSession
from turbopump.net.wire.command import Command
from turbopump.pyx.fast import Turn
from turbopump.pyx.lane import Lane
from turbopump.pyx.pulls import Pulls

logger = logging.getLogger(__name__)

SWEEP_MS_MAX: Final = 1_000
"""Longest interval between two sweeps; ten thousand connections take some ms each time."""

SWEEPS_PER_TIMEOUT: Final = 4
"""Number of sweeps in the shortest timeout, so that a timeout is exact to a quarter of itself."""


@dataclass(frozen=True, slots=True)
class Gate:
    """The native servers of a port's plain requests. Without a Gate all its requests go to
    Python."""

    lane: Lane
    """Serves sends."""
    pulls: Pulls | None = None
    """Serves pulls; None: Python does."""
    turn: Turn | None = None
    """Shared by all connections of the lane; None: each read is answered on its own."""


UNSENT_NOTED_OVER: Final = 16 * 1024
"""Bytes: a connection's unsent bytes are counted above this. A peer that reads seldom has more, and
the uncounted bytes of the maximum number of connections are 256 MiB."""

UNSENT_KEPT: Final = 0.75
"""Fraction of unsent_max that remains after slow peers were cut, so that not every further byte
looks for the next slow peer."""


ToTls = ssl.SSLContext | Deferred[ssl.SSLContext | TlsError] | None
"""The TLS context for a connection, or a Deferred that resolves to it or to an error; None: the
connection is plain."""


HTTP2: Final = "h2"
"""The protocol name (ALPN) by which a TLS peer chooses HTTP/2."""


class Upgrade(Protocol):
    """A server for the peers of a port that speak HTTP/2. Loop thread only."""

    @property
    def open(self) -> int:
        """Number of its open connections, which count for the limit of the port's server."""

    def take(self, transport: asyncio.Transport, tls: TlsSession | None, data: memoryview) -> None:
        """Take over a connection: read from `transport` and close it. `data` is the first bytes of
        a plain connection, valid during the call only; with TLS it is empty, and the session has
        the bytes."""


class Swept(Closable, Protocol):
    """A connection, as the sweep sees it; times are seconds of the loop's clock, 0.0 for never."""

    peer: Peer
    touched: bool
    """Whether bytes were read since the last sweep, which sets it to False."""
    active_at: float
    """The last time at which bytes were read or written, exact to a sweep."""
    slow_since: float
    """The begin of the incomplete frame or handshake."""
    blocked_since: float
    """The time since which unsent bytes have been above the high-water mark."""
    closing_at: float
    """The time at which `close` was called."""

    @property
    def unsent(self) -> int:
        """Bytes in the transport's buffer or waiting for encryption."""


class Hub(ConnectionSet[Swept]):
    """The connections of a server or client, without the limits that only a server has. Loop thread
    only. `handler_clock_ms`: see Server."""

    is_server = False
    """Whether the connections belong to a server."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        options: ConnectionOptions,
        handler_clock_ms: Callable[[], int],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        shortest_ms = min(
            options.idle_timeout_ms, options.frame_timeout_ms, options.close_timeout_ms
        )
        sweep_ms = min(SWEEP_MS_MAX, max(1, shortest_ms // SWEEPS_PER_TIMEOUT))
        super().__init__(loop, sweep_ms, logger)
        self.options = options
        self.area = Area(options.receive_max, options.receive_max_of_address, self._cut_incomplete)
        """The memory for incomplete frames of all connections."""
        self.turns = FairScheduler(loop.call_soon, self.area)
        """The order in which the connections are served."""
        self.in_flight = 0
        """Number of requests whose answers are pending."""
        self._dispatcher = dispatcher
        self._handler_clock_ms = handler_clock_ms
        self._unsent: dict[Swept, int] = {}
        self._unsent_total = 0

    def dispatch(
        self, request: Command, peer: Peer, dispatcher: Dispatcher | None
    ) -> Response | Steps[Response]:
        """Have a request handled, with the time of the handlers' clock, by `dispatcher`, the
        connection's own, or by the hub's for None. Never raises, see Dispatcher.dispatch."""
        return (dispatcher or self._dispatcher).dispatch(request, peer, self._handler_clock_ms())

    def admit(self, connection: Swept) -> bool:
        """Add a new connection; False if the caller has to abort it. A client's hub admits all."""
        self.connections.add(connection)
        return True

    def ready(self, connection: Swept) -> None:
        """Note that the TLS handshake of a connection has finished; no-op in a server's hub."""

    def remove(self, connection: Swept) -> None:
        """Remove a connection that has ended, and its unsent bytes."""
        self._unsent_total -= self._unsent.pop(connection, 0)
        super().remove(connection)

    def settled(self, count: int) -> None:
        """Subtract `count` from `in_flight`: the requests were answered, or lost their
        connection."""
        self.in_flight -= count
        self.check_waits()

    def refusal(self, connection: Swept, request: Command) -> Command | None:
        """The response that refuses a request instead of its handler; None to have it handled. A
        client's hub refuses no request."""
        return None

    def is_free(self, connection: Swept) -> bool:
        """Whether the connection is within the limit of connections, so that its requests are
        handled. Always True in a client's hub."""
        return True

    @property
    def upgrade(self) -> Upgrade | None:
        """The server for peers that speak HTTP/2; None: their connections are closed as
        malformed."""
        return None

    def tls_context(self, hello: bool) -> ToTls:
        """The context for a new connection, maybe later; None for a plain connection, as always in
        a client's hub.

        `hello`: whether the connection's first byte begins a TLS handshake. Raises WireError to
        close it.
        """
        return None

    def note_unsent(self, connection: Swept, size: int) -> None:
        """Set the noted unsent bytes of a connection, above UNSENT_NOTED_OVER, to `size`. If all
        noted bytes exceed `unsent_max`, the slowest connections are aborted, perhaps this
        connection.

        A body that several connections share counts for each. That is too much while they share it,
        but a peer that reads too slowly keeps it alone as soon as the others have the next one.
        """
        self._unsent_total += size - self._unsent.get(connection, 0)
        self._unsent[connection] = size
        if self._unsent_total > self.options.unsent_max:
            self._cut_the_slowest()

    def _cut_incomplete(self, owner: Owner) -> None:
        """Close the owner of the oldest incomplete frame, in a later turn."""
        self.log_problem(f"{owner.peer.address} closed: its frame is the oldest of too many")
        # Later, because the read in progress may be this owner's.
        self.loop.call_soon(owner.abort)

    def _cut_the_slowest(self) -> None:
        """Recount the unsent bytes; beyond `unsent_max` abort the peers with the largest product
        of unsent bytes and waiting time."""
        # Noted sizes are old: most peers have read since.
        sizes = {one: one.unsent for one in self._unsent}
        left = {one: size for one, size in sizes.items() if size > UNSENT_NOTED_OVER}
        total = sum(left.values())
        if total > self.options.unsent_max:
            # The order is by size times waiting time. Size alone would cut a large answer that was
            # written just now, though its peer may read it; time alone would cut a slow peer with
            # few bytes.
            now = self.clock()
            worth = {one: (self._waited(one, now) * size, size) for one, size in left.items()}
            for one in sorted(left, key=worth.__getitem__, reverse=True):
                if total <= self.options.unsent_max * UNSENT_KEPT:
                    break
                size = left.pop(one)
                total -= size
                self.log_problem(f"{one.peer.address} closed: {size} of too many bytes are unsent")
                one.abort()
        self._unsent, self._unsent_total = left, total

    @staticmethod
    def _waited(connection: Swept, now: float) -> float:
        """Time for which a connection has not read the bytes written to it, in seconds."""
        return now - connection.blocked_since if connection.blocked_since else 0.0

    def sweep(self, now: float) -> None:
        """Abort connections whose frame, handshake or end takes too long, and close idle
        connections; `now` is in seconds of the loop's clock."""
        options = self.options
        idle_before = now - options.idle_timeout_ms / 1000
        slow_before = now - options.frame_timeout_ms / 1000
        closing_before = now - options.close_timeout_ms / 1000
        for connection in list(self.connections):
            if connection.touched:
                connection.touched = False
                connection.active_at = now
            if connection.closing_at:
                if connection.closing_at <= closing_before:
                    connection.abort()
            elif connection.slow_since and connection.slow_since <= slow_before:
                self.log_problem(f"{connection.peer.address} closed: a frame did not end in time")
                connection.abort()
            elif connection.active_at <= idle_before:
                connection.close()
