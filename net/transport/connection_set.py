"""The open connections of a server or client, of any protocol.

Owns the set of connections, the timer that sweeps them, the log lines about bad peers, and the
orderly end. It must never read or write a socket.

Tests: tests/unit/net/transport/test_hub.py, tests/unit/net/grpc/test_connection.py
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

COMPLAINTS_MAX: Final = 10
"""Maximum number of log lines about bad peers between two sweeps; further ones are counted, so that
a flood of garbage cannot fill a disk."""


class Closable(Protocol):
    """A connection, as its ConnectionSet ends it; it must call `remove` when it has ended."""

    def close(self) -> None:
        """Begin to end: no further request is handled, the unsent bytes are written, then the
        connection closes. Returns at once."""

    def abort(self) -> None:
        """Close the connection at once and drop all unsent bytes. Returns at once."""


C = TypeVar("C", bound=Closable)


class ConnectionSet(Generic[C]):
    """The open connections, in no order. Loop thread only."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, sweep_ms: int, logger: logging.Logger
    ) -> None:
        """`sweep_ms` is the interval of sweeps, `logger` receives the lines about peers."""
        self.loop = loop
        self.clock = loop.time
        """Returns the loop's monotonic clock in seconds."""
        self.connections: set[C] = set()
        """The connections that have not ended; subclasses add to it."""
        self.stopping = False
        """Whether the server refuses new requests because it stops; the owner of the set changes
        it."""
        self._sweep_ms, self._logger = sweep_ms, logger
        self._complaints = 0
        self._sweeper: asyncio.TimerHandle | None = None
        self._watchers: dict[asyncio.Future[None], Callable[[], bool]] = {}

    def remove(self, connection: C) -> None:
        """Remove a connection that has ended, and check the conditions of `wait`; no-op if it was
        removed already."""
        self.connections.discard(connection)
        self.check_waits()

    def log_problem(self, text: str) -> None:
        """Log a problem with a peer as a warning. After COMPLAINTS_MAX lines between two sweeps,
        problems are only counted; the next sweep logs their number."""
        self._complaints += 1
        if self._complaints <= COMPLAINTS_MAX:
            self._logger.warning("%s", text)

    def sweep(self, now: float) -> None:
        """Close connections that exceed a limit; `now` is in seconds of the loop's clock."""
        raise NotImplementedError

    def start_sweeping(self) -> None:
        """Call `sweep` every `sweep_ms` until `stop_sweeping`, the first time after `sweep_ms`;
        no-op if it is called already."""
        if self._sweeper is None:
            self._sweep_later()

    def stop_sweeping(self) -> None:
        """Stop the periodic calls of `sweep`; no-op without them."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None

    def _sweep_later(self) -> None:
        self._sweeper = self.loop.call_later(self._sweep_ms / 1000, self._sweep_periodically)

    def _sweep_periodically(self) -> None:
        """Sweep now and again after the interval; log the number of problems that were only
        counted."""
        self.sweep(self.clock())
        if self._complaints > COMPLAINTS_MAX:
            self._logger.warning(
                "%d more problems with peers were not logged", self._complaints - COMPLAINTS_MAX
            )
        self._complaints = 0
        self._sweep_later()

    async def close(self, timeout_ms: int) -> None:
        """Close all connections and wait up to `timeout_ms` for their end; then abort the others
        and wait up to `timeout_ms` again. Stops the sweeps. If this is cancelled, all are aborted
        at once."""
        for connection in list(self.connections):
            connection.close()
        try:
            if not await self.wait(lambda: not self.connections, timeout_ms):
                self._abort_all()
                await self.wait(lambda: not self.connections, timeout_ms)
        except asyncio.CancelledError:
            self._abort_all()
            raise
        finally:
            self.stop_sweeping()

    def _abort_all(self) -> None:
        for connection in list(self.connections):
            connection.abort()

    async def wait(self, until: Callable[[], bool], timeout_ms: int) -> bool:
        """Wait until `until()` is True, for at most `timeout_ms`, and return its last value. It is
        checked now, at the end, and whenever `check_waits` is called."""
        if until():
            return True
        held = self.loop.create_future()
        self._watchers[held] = until
        timer = self.loop.call_later(timeout_ms / 1000, _settle, held)
        try:
            await held
        finally:
            timer.cancel()
            del self._watchers[held]
        return until()

    def check_waits(self) -> None:
        """Check the conditions of all calls of `wait`; to be called when a connection or a request
        ended."""
        for held, until in self._watchers.items():
            if until():
                _settle(held)


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
