"""The connections of replication on the loop: the port replicas connect to, and ours to a master.

Owns sockets and their numbers. It must never know a frame: bytes come in,
views go out. Called by `service` and by the loop.

What is written are views of the log's mapping: no copy in user space. A connection takes no more
while more than WRITE_HIGH_WATER bytes wait for it, so a slow replica costs its own socket and
no other's time. Cutting a connection forgets what waits: the log may then be changed.

Sending by `sendfile` was measured beside it (docs/PERFORMANCE.md, "How the log is sent").
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Protocol, cast

from turbopump.engine.types import Buffer
from turbopump.net.wire.hosts import join, split

logger = logging.getLogger(__name__)

READ_SIZE: Final = 1 << 20
"""Read at once: what a fast network delivers while a batch is appended."""
ACKS_READ_SIZE: Final = 16 << 10
"""Read at once of a replica: 2,000 acknowledgements, which take some 5 ms. It sends one for each
frame; a peer that sends a megabyte of them would hold the loop for 200 ms."""
ADDRESS_MAX: Final = 32
"""Replicas' connections of one address, half of what a master takes (leader.py): beyond it the
oldest of the address that has not said a word is cut, or the new one where all have."""
FIRST_WORD: Final = 8
"""Bytes of the shortest frame of a replica: one that has sent fewer has not said a word."""
UNSENT_MAX_OF_ALL: Final = 256 << 20
"""Bytes that wait for all replicas together; beyond it those are cut that have taken nothing for
the longest. They are views of log files, which stay mapped until they are sent."""
WRITE_HIGH_WATER: Final = 4 << 20
WRITE_LOW_WATER: Final = 1 << 20
"""Beyond the socket's own buffer: enough that the disk's and the loop's pauses do not show."""
UNSENT_MAX: Final = 96 << 20
"""A connection that takes nothing is cut here: above IN_FLIGHT_MAX and heartbeats, so it is one
that is written to in vain."""
CONNECT_TIMEOUT_S: Final = 3.0
BACKLOG: Final = 64


class Events(Protocol):
    """The callbacks for what happens to connections."""

    def on_accepted(self, connection: int) -> None: ...
    def on_connected(self, connection: int) -> None: ...
    def on_bytes(self, connection: int, data: Buffer) -> None: ...
    def on_writable(self, connection: int) -> None: ...
    def on_closed(self, connection: int, reason: str) -> None: ...


class Sockets:
    """Connections by number; see broker.ha.ports.Transport. Loop thread only."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._loop = asyncio.get_running_loop()
        self._area = memoryview(bytearray(READ_SIZE))
        self._open: dict[int, _Connection] = {}
        self._connecting: dict[int, asyncio.Task[None]] = {}
        self._numbers = 0
        self._server: asyncio.Server | None = None

    async def listen(self, host: str, port: int) -> int:
        """Open the port (0: a free one), returns it. Raises OSError."""
        self._server = await self._loop.create_server(
            lambda: _Connection(self, self.next_number()),
            host,
            port,
            backlog=BACKLOG,
            reuse_address=True,
        )
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Close the port and every connection."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
        tasks = list(self._connecting.values())
        for number in [*self._open, *self._connecting]:
            self.close(number)
        await asyncio.gather(*tasks, return_exceptions=True)
        if server is not None:
            await server.wait_closed()

    def soon(self, callback: Callable[[], None]) -> None:
        """Run it once this turn of the loop is over."""
        self._loop.call_soon(callback)

    def address(self, connection: int) -> str:
        """`ip:port` of the other end, "" if the connection is gone."""
        one = self._open.get(connection)
        return "" if one is None else one.address

    # Transport

    def connect(self, address: str) -> int:
        number = self.next_number()
        self._connecting[number] = self._loop.create_task(self._connect(number, address))
        return number

    def send(self, connection: int, buffers: list[Buffer]) -> bool:
        one = self._open.get(connection)
        return one is not None and one.send(buffers)

    def pause(self, connection: int, paused: bool) -> None:
        one = self._open.get(connection)
        if one is not None and not one.transport.is_closing():
            (one.transport.pause_reading if paused else one.transport.resume_reading)()

    def close(self, connection: int) -> None:
        task = self._connecting.pop(connection, None)
        if task is not None:
            task.cancel()
        one = self._open.pop(connection, None)
        if one is not None:
            one.transport.abort()

    # Called by connections

    def next_number(self) -> int:
        """A number no connection had before."""
        self._numbers += 1
        return self._numbers

    @property
    def area(self) -> memoryview:
        """Where every read goes: it is used up before the next one."""
        return self._area

    def made(self, one: "_Connection", own: bool) -> None:
        """A connection stands."""
        if own and one.number not in self._connecting:
            one.transport.abort()  # it is wanted no more
            return
        if not own and not self._has_place(one):
            logger.warning(
                "replication with %s: %d connections of one address, closed",
                one.address,
                ADDRESS_MAX,
            )
            one.transport.abort()
            return
        self._connecting.pop(one.number, None)
        self._open[one.number] = one
        (self._events.on_connected if own else self._events.on_accepted)(one.number)

    def read(self, one: "_Connection", size: int) -> None:
        """Bytes came."""
        if one.number in self._open:
            self._events.on_bytes(one.number, self._area[:size])

    def writable(self, one: "_Connection") -> None:
        """It takes more again."""
        if one.number in self._open:
            self._events.on_writable(one.number)

    def lost(self, one: "_Connection", reason: str) -> None:
        """It is gone."""
        if self._open.pop(one.number, None) is not None:
            self._events.on_closed(one.number, reason)

    def _has_place(self, new: "_Connection") -> bool:
        """Whether the address may have one more connection; the oldest silent one makes room."""
        same = [one for one in self._open.values() if not one.own and one.host == new.host]
        if len(same) < ADDRESS_MAX:
            return True
        silent = next((one for one in same if one.heard < FIRST_WORD), None)
        if silent is not None:
            self._cut(silent, "it has not said a word")
        return silent is not None

    def now(self) -> float:
        """The loop's time."""
        return self._loop.time()

    def wrote(self) -> None:
        """A connection that takes no more was given something."""
        waits = {one: one.unsent for one in self._open.values() if one.blocked_since}
        total = sum(waits.values())
        for one in sorted(waits, key=lambda one: one.blocked_since):
            if total <= UNSENT_MAX_OF_ALL:
                return
            total -= waits[one]
            self._cut(one, "it takes nothing")

    def _cut(self, one: "_Connection", reason: str) -> None:
        logger.warning("replication with %s: %s, closed", one.address, reason)
        one.transport.abort()

    async def _connect(self, number: int, address: str) -> None:
        reason = "it hung up"
        try:
            host, port = split(address)
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
    """One connection; `own` ones were made by us."""

    def __init__(self, sockets: Sockets, number: int, *, own: bool = False) -> None:
        self.number = number
        self.address = ""
        self.transport: asyncio.Transport
        self._sockets = sockets
        self.own = own
        self.host = ""
        self.heard = 0
        """Bytes that came."""
        self.blocked_since = 0.0
        """When it took no more, by the loop's clock; 0: it does."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(WRITE_HIGH_WATER, WRITE_LOW_WATER)
        ends = [transport.get_extra_info(end) for end in ("sockname", "peername")]
        if self.own and ends[0] == ends[1]:
            # Nothing listens there: the system chose that very port for our end.
            self.transport.abort()
            return
        name = ends[1] or ("0.0.0.0", 0)
        self.host, self.address = name[0], join(name[0], name[1])
        self._sockets.made(self, self.own)

    def connection_lost(self, exc: Exception | None) -> None:
        self._sockets.lost(self, str(exc) if exc else "the other side closed it")

    @property
    def unsent(self) -> int:
        """Bytes that wait for the other side."""
        return self.transport.get_write_buffer_size()

    def get_buffer(self, sizehint: int) -> memoryview:
        area = self._sockets.area
        return area if self.own else area[:ACKS_READ_SIZE]

    def buffer_updated(self, nbytes: int) -> None:
        self.heard += nbytes
        self._sockets.read(self, nbytes)

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self.blocked_since = self._sockets.now()

    def resume_writing(self) -> None:
        self.blocked_since = 0.0
        self._sockets.writable(self)

    def send(self, buffers: list[Buffer]) -> bool:
        """Whether more may be written."""
        if self.unsent > UNSENT_MAX:
            logger.warning("replication with %s: it takes nothing, closed", self.address)
            self.transport.abort()
        elif len(buffers) == 1:
            self.transport.write(buffers[0])
        else:
            self.transport.writelines(buffers)
        if self.blocked_since:
            self._sockets.wrote()
        return not self.blocked_since
