"""Connections of replication on the loop: the port for replicas, and the connection to a master.

Owns sockets and their numbers. Frames are not interpreted: bytes come in, views go out.

    connecting --made--> open --aborted, or closed by the peer--> gone
        '--timed out or refused--> gone

Written buffers are views of the log's mapping: no copy in user space. A connection is not written
to while more than WRITE_HIGH_WATER bytes are unsent, so a slow replica does not delay the others.
Cutting a connection drops its unsent bytes: the log may then be changed.

Sending by `sendfile` was measured beside it (docs/PERFORMANCE.md, "How the log is sent").

Tests: tests/integration/broker/test_ha.py
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Protocol, cast

from turbopump.engine.types import Buffer
from turbopump.net.ports.listening import Listener, listen
from turbopump.net.wire.hosts import join, split_host_port

logger = logging.getLogger(__name__)

READ_SIZE: Final = 1 << 20
"""Bytes read at once: a fast network delivers this much while a batch is appended."""
ACKS_READ_SIZE: Final = 16 << 10
"""Bytes read at once from a replica: 2,000 acknowledgements, which take some 5 ms. It sends one for
each frame; a peer that sends a megabyte of them would hold the loop for 200 ms."""
ADDRESS_MAX: Final = 32
"""Replicas' connections of an address, half of a master's limit (leader.py). Beyond it the oldest
silent connection of the address is cut, or the new one if none is silent."""
FIRST_WORD: Final = 8
"""Bytes of the shortest frame of a replica: a connection that has sent fewer is silent."""
UNSENT_MAX_OF_ALL: Final = 256 << 20
"""Unsent bytes of all replicas together; beyond it the connections are cut that have taken nothing
for the longest time. They are views of log files, which stay mapped until they are sent."""
WRITE_HIGH_WATER: Final = 4 << 20
"""Unsent bytes of a connection, beyond the socket's own buffer, above which `Sockets.send` returns
False: enough to hide pauses of the disk and the loop."""
WRITE_LOW_WATER: Final = 1 << 20
"""Unsent bytes of a connection at which `on_writable` is called after such a pause."""
UNSENT_MAX: Final = 96 << 20
"""Unsent bytes at which a connection that takes nothing is cut: above IN_FLIGHT_MAX and
heartbeats."""
CONNECT_TIMEOUT_S: Final = 3.0
"""Seconds after which an attempt to connect fails."""
BACKLOG: Final = 64
"""Maximum number of connections that wait in the kernel to be accepted."""


class ConnectionEvents(Protocol):
    """The callbacks for events of connections, on the loop thread."""

    def on_accepted(self, connection: int) -> None:
        """A replica has connected."""

    def on_connected(self, connection: int) -> None:
        """The connection that this side began to make by `connect` is established."""

    def on_bytes(self, connection: int, data: Buffer) -> None:
        """Bytes were received, in order; the buffer of `data` is reused after the call."""

    def on_writable(self, connection: int) -> None:
        """The connection takes bytes again, after `send` returned False."""

    def on_closed(self, connection: int, reason: str) -> None:
        """The peer or the network closed the connection, or it could not be made; `reason` is for
        the log. Not called after `Sockets.close`."""


class Sockets:
    """The connections of replication over TCP, by number (Transport of broker/ha/ports.py). Loop
    thread only; to be made while the loop runs."""

    def __init__(self, events: ConnectionEvents) -> None:
        self._events = events
        self._loop = asyncio.get_running_loop()
        self._area = memoryview(bytearray(READ_SIZE))
        self._open: dict[int, _Connection] = {}
        self._connecting: dict[int, asyncio.Task[None]] = {}
        self._numbers = 0
        self._server: Listener | None = None

    async def listen(self, host: str, port: int) -> int:
        """Open the port for replicas on the local address `host` (port 0: a free one); return the
        port. Raises OSError."""
        self._server = await listen(
            lambda: _Connection(self, self.next_number()), host, port, BACKLOG, None
        )
        return self._server.address[1]

    async def stop(self) -> None:
        """Close the port and every connection, and wait until they are closed; unsent bytes are
        dropped, and no further event is reported."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
        tasks = list(self._connecting.values())
        for number in [*self._open, *self._connecting]:
            self.close(number)
        await asyncio.gather(*tasks, return_exceptions=True)
        if server is not None:
            await server.wait_closed()

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Run `callback` in the next turn of the loop."""
        self._loop.call_soon(callback)

    def address(self, connection: int) -> str:
        """Return `ip:port` of the peer, "" if the connection is gone or not yet made."""
        one = self._open.get(connection)
        return "" if one is None else one.address

    # Transport

    def connect(self, address: str) -> int:
        """Begin to connect to `host:port`; returns the connection's number, which `on_connected` or
        `on_closed` reports later. A malformed address is reported by `on_closed`, too."""
        number = self.next_number()
        self._connecting[number] = self._loop.create_task(self._connect(number, address))
        return number

    def send(self, connection: int, buffers: list[Buffer]) -> bool:
        """Write the buffers without copying them; False if the caller should pause until
        `on_writable` is called, or if the connection is gone."""
        one = self._open.get(connection)
        return one is not None and one.send(buffers)

    def set_paused(self, connection: int, paused: bool) -> None:
        """Stop (`paused`) or resume reading; no-op if the connection is gone."""
        one = self._open.get(connection)
        if one is not None and not one.transport.is_closing():
            (one.transport.pause_reading if paused else one.transport.resume_reading)()

    def close(self, connection: int) -> None:
        """Abort the connection or the attempt to make it: unsent bytes are dropped, no further
        event is reported; no-op if it is gone."""
        task = self._connecting.pop(connection, None)
        if task is not None:
            task.cancel()
        one = self._open.pop(connection, None)
        if one is not None:
            one.transport.abort()

    # Called by connections

    def next_number(self) -> int:
        """Return a number that no connection had before."""
        self._numbers += 1
        return self._numbers

    @property
    def read_buffer(self) -> memoryview:
        """The buffer of READ_SIZE bytes that all connections read into: its content must be used
        before the next read."""
        return self._area

    def register_connection(self, one: "_Connection", own: bool) -> None:
        """Register the established connection and report it by `on_connected` (`own`: this side
        began it) or `on_accepted`; abort it if it was closed meanwhile, or its address has
        ADDRESS_MAX others that have all sent a frame."""
        if own and one.number not in self._connecting:
            one.transport.abort()  # it was closed meanwhile
            return
        if not own and not self._has_place(one):
            logger.warning(
                "replication with %s: the address has %d connections, closed",
                one.address,
                ADDRESS_MAX,
            )
            one.transport.abort()
            return
        self._connecting.pop(one.number, None)
        self._open[one.number] = one
        (self._events.on_connected if own else self._events.on_accepted)(one.number)

    def read(self, one: "_Connection", size: int) -> None:
        """Report the `size` bytes that the connection has read into `read_buffer`; ignored after
        `close`."""
        if one.number in self._open:
            self._events.on_bytes(one.number, self._area[:size])

    def report_writable(self, one: "_Connection") -> None:
        """Report that the connection takes more bytes; ignored after `close`."""
        if one.number in self._open:
            self._events.on_writable(one.number)

    def remove_connection(self, one: "_Connection", reason: str) -> None:
        """Remove a lost connection and report it by `on_closed`; ignored after `close`."""
        if self._open.pop(one.number, None) is not None:
            self._events.on_closed(one.number, reason)

    def _has_place(self, new: "_Connection") -> bool:
        """Whether the address of the `new` connection may have one more; the oldest connection of
        it that has sent nothing is cut for it."""
        same = [one for one in self._open.values() if not one.own and one.host == new.host]
        if len(same) < ADDRESS_MAX:
            return True
        silent = next((one for one in same if one.heard < FIRST_WORD), None)
        if silent is not None:
            self._abort_connection(silent, "the peer has sent nothing yet")
        return silent is not None

    def loop_time_s(self) -> float:
        """Return the loop's monotonic time in seconds, by which a connection notes since when it is
        blocked."""
        return self._loop.time()

    def bound_unsent(self) -> None:
        """Bound the unsent bytes after a write to a blocked connection: abort blocked connections,
        those blocked for the longest time first, until all have at most UNSENT_MAX_OF_ALL unsent
        bytes."""
        waits = {one: one.unsent for one in self._open.values() if one.blocked_since}
        total = sum(waits.values())
        for one in sorted(waits, key=lambda one: one.blocked_since):
            if total <= UNSENT_MAX_OF_ALL:
                return
            total -= waits[one]
            self._abort_connection(one, "the peer does not read")

    def _abort_connection(self, one: "_Connection", reason: str) -> None:
        """Abort a connection; `reason` is logged."""
        logger.warning("replication with %s: %s, closed", one.address, reason)
        one.transport.abort()

    async def _connect(self, number: int, address: str) -> None:
        """Connect to the master at `address`; a failure is reported by `on_closed` with
        `number`."""
        reason = "the peer closed the connection"
        try:
            host, port = split_host_port(address)
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await self._loop.create_connection(
                    lambda: _Connection(self, number, own=True), host, port
                )
        except TimeoutError:
            reason = "timed out"
        except (OSError, ValueError) as error:
            reason = str(error)
        if self._connecting.pop(number, None) is not None:
            self._events.on_closed(number, f"{address} cannot be reached: {reason}")


class _Connection(asyncio.BufferedProtocol):
    """A connection of replication; `own`: this side began it."""

    def __init__(self, sockets: Sockets, number: int, *, own: bool = False) -> None:
        self.number = number
        self.address = ""
        self.transport: asyncio.Transport
        self._sockets = sockets
        self.own = own
        self.host = ""
        self.heard = 0
        """Number of bytes received."""
        self.blocked_since = 0.0
        """When it stopped taking bytes, by the loop's clock; 0: it takes bytes."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register the connection; abort a connection to itself."""
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(WRITE_HIGH_WATER, WRITE_LOW_WATER)
        ends = [transport.get_extra_info(end) for end in ("sockname", "peername")]
        if self.own and ends[0] == ends[1]:
            # Nothing listens there: the system chose that very port for our end.
            self.transport.abort()
            return
        name = ends[1] or ("0.0.0.0", 0)
        self.host, self.address = name[0], join(name[0], name[1])
        self._sockets.register_connection(self, self.own)

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the lost connection."""
        self._sockets.remove_connection(self, str(exc) if exc else "the peer closed the connection")

    @property
    def unsent(self) -> int:
        """Number of bytes that were passed to `send` and are not sent."""
        return self.transport.get_write_buffer_size()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer to read into: a smaller one for a replica, which sends acknowledgements
        only."""
        area = self._sockets.read_buffer
        return area if self.own else area[:ACKS_READ_SIZE]

    def buffer_updated(self, nbytes: int) -> None:
        """Report the bytes that were read into the buffer."""
        self.heard += nbytes
        self._sockets.read(self, nbytes)

    def eof_received(self) -> bool:
        """Return False: the connection is closed."""
        return False

    def pause_writing(self) -> None:
        """Note since when the connection is blocked: the peer reads too slowly."""
        self.blocked_since = self._sockets.loop_time_s()

    def resume_writing(self) -> None:
        """Report that the connection takes more bytes."""
        self.blocked_since = 0.0
        self._sockets.report_writable(self)

    def send(self, buffers: list[Buffer]) -> bool:
        """Write buffers; return whether more may be written. Aborts a connection with more than
        UNSENT_MAX unsent bytes instead."""
        if self.unsent > UNSENT_MAX:
            logger.warning("replication with %s: the peer does not read, closed", self.address)
            self.transport.abort()
        elif len(buffers) == 1:
            self.transport.write(buffers[0])
        else:
            self.transport.writelines(buffers)
        if self.blocked_since:
            self._sockets.bound_unsent()
        return not self.blocked_since
