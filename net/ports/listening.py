"""A listening port whose connections the loop reads, or I/O threads.

Owns accepting: how many connections a turn of the loop accepts, and the pause without free
descriptors. It must never refuse a connection by a policy: the protocol does.

    bound -> serving <-> pausing (no descriptor is free) -> closed

Tests: tests/integration/transport/test_io_threads.py
"""

import asyncio
import logging
import os
import socket
from collections.abc import Callable
from typing import Final, Protocol

from turbopump.pyx.io_threads import IoThreads

logger = logging.getLogger(__name__)

ACCEPTS_PER_TURN: Final = 64
"""Maximum number of connections accepted in a turn of the loop."""

BY_CORES: Final = -1
"""A number of I/O threads that depends on the machine."""

BY_CORES_MAX: Final = 8
"""Maximum of that number."""

PAUSE_S: Final = 0.2
"""Time without accepting after the process had no free descriptor."""


def start_io_threads(count: int) -> IoThreads | None:
    """Start `count` I/O threads for the running loop, 0: none; BY_CORES: half of the processors
    that this process may use, at most 8, none on one or two. Raises OSError."""
    if count == BY_CORES:
        cores = len(os.sched_getaffinity(0))
        count = min(cores // 2, BY_CORES_MAX) if cores > 2 else 0
    if count == 0:
        return None
    loop = asyncio.get_running_loop()
    threads = IoThreads(count, loop.call_soon, _log_failure)
    loop.add_reader(threads.descriptor, threads.turn)
    return threads


def _log_failure(error: Exception) -> None:
    """Log the exception of a protocol, whose connection is aborted."""
    logger.error("a protocol failed", exc_info=error)


def stop_io_threads(threads: IoThreads) -> None:
    """Abort the connections of the threads, and end the threads."""
    asyncio.get_running_loop().remove_reader(threads.descriptor)
    threads.close()


async def begin_to_serve(bound: asyncio.Server) -> None:
    """Accept connections on the ports of a server made with `start_serving=False`. If that fails or
    is cancelled, the ports are closed: the loop's `create_server` would leave them open. Raises
    OSError."""
    try:
        await bound.start_serving()
    except BaseException:
        bound.close()
        raise


class Listener(Protocol):
    """An open port. Loop thread only."""

    @property
    def address(self) -> tuple[str, int]:
        """The host and port to which it is bound; for several addresses, the first."""

    def close(self) -> None:
        """Close the port; accepted connections stay. No-op if it is closed."""

    async def wait_closed(self) -> None:
        """Wait until the closed port accepts no further connection."""


async def listen(
    factory: Callable[[], asyncio.BufferedProtocol],
    host: str,
    port: int,
    backlog: int,
    threads: IoThreads | None,
) -> Listener:
    """Accept connections on `port` (0: a free port), each for a new protocol of `factory`. Its
    socket belongs to one of `threads`, or to the loop without any. Raises OSError if the port is in
    use; a call that fails or is cancelled leaves no port open."""
    bound = await asyncio.get_running_loop().create_server(
        factory, host, port, backlog=backlog, reuse_address=True, start_serving=False
    )
    if threads is not None:
        return _ThreadedListener(factory, bound, backlog, threads)
    await begin_to_serve(bound)
    return _LoopListener(bound)


class _LoopListener:
    """A port whose connections the loop reads."""

    def __init__(self, server: asyncio.Server) -> None:
        self._server = server

    @property
    def address(self) -> tuple[str, int]:
        name = self._server.sockets[0].getsockname()
        return name[0], name[1]

    def close(self) -> None:
        self._server.close()

    async def wait_closed(self) -> None:
        await self._server.wait_closed()


class _ThreadedListener:
    """A port whose connections I/O threads read. `bound` is closed: only its addresses are used."""

    def __init__(
        self,
        factory: Callable[[], asyncio.BufferedProtocol],
        bound: asyncio.Server,
        backlog: int,
        threads: IoThreads,
    ) -> None:
        self._factory = factory
        self._threads = threads
        self._loop = asyncio.get_running_loop()
        self._sockets: list[socket.socket] = []
        try:
            for one in bound.sockets:
                # The loop keeps its own descriptors from being watched by others.
                own = socket.socket(fileno=os.dup(one.fileno()))
                self._sockets.append(own)
                own.setblocking(False)
                own.listen(backlog)
        except BaseException:
            self.close()
            raise
        finally:
            bound.close()
        for own in self._sockets:
            self._loop.add_reader(own.fileno(), self._accept, own)

    @property
    def address(self) -> tuple[str, int]:
        name = self._sockets[0].getsockname()
        return name[0], name[1]

    def _accept(self, listening: socket.socket) -> None:
        """Accept the waiting connections, ACCEPTS_PER_TURN at most."""
        for _ in range(ACCEPTS_PER_TURN):
            try:
                accepted, name = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                logger.error("no connection is accepted for %s s: %s", PAUSE_S, error)
                self._loop.remove_reader(listening.fileno())
                self._loop.call_later(PAUSE_S, self._resume, listening)
                return
            accepted.setblocking(False)
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._threads.open(accepted, name, self._factory())

    def _resume(self, listening: socket.socket) -> None:
        """Accept connections again after a pause."""
        if listening.fileno() >= 0:
            self._loop.add_reader(listening.fileno(), self._accept, listening)

    def close(self) -> None:
        for own in self._sockets:
            if own.fileno() >= 0:
                self._loop.remove_reader(own.fileno())
                own.close()

    async def wait_closed(self) -> None:
        """Return at once: `close` closed the sockets."""
