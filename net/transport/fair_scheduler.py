"""Fair turns: the part of the loop that a connection, or a large request, gets before the others.

Owns the order of connections whose frames wait, and of requests that are handled in steps. It must
never know the meaning of a request. Each Hub has a FairScheduler.

A request that Python handles takes the loop about 50 us. So a turn of the loop handles a few
requests of each connection and a bounded number of all, and the same holds for bytes of native
pulls. The other requests that were read wait, and their connections are not read until they are
handled. A connection that had no turn yet comes before connections that had one: a peer with few
requests does not wait for peers with many.

Reading takes turns as well: a turn reads a bounded number of bytes in large reads, and further
bytes stay in the kernel until their connection's turn. A step of a TLS handshake counts as several
requests.

A request that takes long is a generator (`Steps`): each step takes a few milliseconds at most, and
the loop serves others between two steps. Only one such request runs at a time, so that only one
needs memory; they take turns by address.
"""

from collections import deque
from collections.abc import Callable, Generator
from typing import Any, Final, Protocol, TypeVar

from turbopump.engine.deferred import Deferred

REQUESTS_PER_TURN: Final = 32
"""Maximum number of requests that Python handles, over all connections, between two polls of the
sockets: a few milliseconds."""

BYTES_PER_TURN: Final = 4 << 20
"""Bytes written to all connections between two polls of the sockets, by pulls and by other long
answers: a few milliseconds, also if they are encrypted."""

HANDSHAKE_REQUESTS: Final = 8
"""Number of requests that a step of a TLS handshake counts for: a step takes up to a
millisecond."""

READ_PER_TURN: Final = 2 << 20
"""Bytes of large reads, over all connections, between two polls of the sockets. Beyond it reads are
short, and the rest is read in later turns."""

READERS_PER_TURN: Final = 8
"""Number of paused connections that are read in a turn: as many as it has large reads for."""

T = TypeVar("T")

Steps = Generator[None, None, T]
"""Work in steps of a few milliseconds each: the generator yields after each step and returns the
result."""


class Resting(Protocol):
    """A connection whose frames wait for its turn."""

    def continue_turn(self) -> None:
        """Handle the next frames; the connection may call `FairScheduler.continue_later` again."""


class Reading(Protocol):
    """A connection that may have sent more bytes than were read."""

    def read_on(self) -> None:
        """Read again in this turn; called once for each call of `read_later`."""


class ReadSizeLimit(Protocol):
    """A setting of how many bytes a read of a socket may return."""

    def shorten(self) -> None:
        """Limit the next reads to a short size, until `lengthen`."""

    def lengthen(self) -> None:
        """Let the next reads have their full size."""


class FairScheduler:
    """The order of waiting connections and requests. Loop thread only.

    A turn is the time between two polls of the sockets; each turn has a number of requests and
    bytes. `post(callback)` has the loop call back after it has polled the sockets (loop.call_soon).
    `limit` shortens reads after READ_PER_TURN.
    """

    def __init__(self, post: Callable[[Callable[[], None]], object], limit: ReadSizeLimit) -> None:
        self._post = post
        self._read_limit = limit
        self._read_left = READ_PER_TURN
        self._alone = True
        self._readers: deque[Reading] = deque()
        self._posted = False
        self._left = REQUESTS_PER_TURN
        self._bytes_left = BYTES_PER_TURN
        self._fresh: deque[Resting] = deque()
        self._others: deque[Resting] = deque()
        self._waiting: dict[bytes, deque[tuple[Steps[Any], Deferred[Any]]]] = {}
        self._current: tuple[Steps[Any], Deferred[Any]] | None = None

    def begin_request(self) -> bool:
        """Count a request that is to be handled in this turn and return True. False, and nothing
        is counted: the turn has no room, and the caller has to `continue_later`."""
        if self._left <= 0 or self._bytes_left <= 0:
            return False
        self._left -= 1
        self._schedule_turn()
        return True

    def begin_handshake(self) -> bool:
        """Count a step of a TLS handshake as HANDSHAKE_REQUESTS requests of this turn and return
        True. False, and nothing is counted: the turn has no room, and the caller has to
        `continue_later`."""
        if self._left <= 0:
            return False
        self._left -= HANDSHAKE_REQUESTS
        self._schedule_turn()
        return True

    def count_read(self, size: int) -> bool:
        """Count a connection's read of `size` bytes; returns whether the connection may be read
        again in this turn. If not, the caller stops reading and calls `read_later`."""
        self._read_left -= size
        if self._read_left < READ_PER_TURN // 2:
            self._schedule_turn()
        if self._read_left <= 0:
            self._read_limit.shorten()
        return self._read_left > 0 and self._alone

    def read_later(self, connection: Reading) -> None:
        """Have `connection.read_on` called in a later turn, in the order of these calls."""
        self._readers.append(connection)
        self._schedule_turn()

    def count_written(self, size: int) -> bool:
        """Count `size` bytes written to a connection; returns whether more may be written in this
        turn."""
        self._bytes_left -= size
        if self._bytes_left < BYTES_PER_TURN // 2:
            # Not for each pull: a callback costs the loop another poll of the sockets.
            self._schedule_turn()
        return self._bytes_left > 0

    def continue_later(self, connection: Resting, *, fresh: bool) -> None:
        """Have `connection.continue_turn` called in a later turn, once for each call. Connections
        with `fresh`, which had no turn yet, mostly come before the others; within each group the
        order is that of the calls."""
        (self._fresh if fresh else self._others).append(connection)
        self._schedule_turn()

    def run_steps(self, host: bytes, steps: Steps[T]) -> Deferred[T]:
        """Run `steps`, which must not raise, in later turns, a step in each turn, and resolve the
        Deferred to their result. Only one work runs at a time; the works of a host, a packed IP
        address, run in the order of these calls, and hosts take turns."""
        later: Deferred[T] = Deferred()
        self._waiting.setdefault(host, deque()).append((steps, later))
        self._schedule_turn()
        return later

    def _schedule_turn(self) -> None:
        """Have `_run_turn` called after the next poll of the sockets, once."""
        if not self._posted:
            self._posted = True
            self._post(self._run_turn)

    def _run_turn(self) -> None:
        """Run a turn: reads, waiting connections, one step of a work, all within the turn's
        limits."""
        self._posted = False
        self._left = REQUESTS_PER_TURN
        self._bytes_left = BYTES_PER_TURN
        self._read_left = READ_PER_TURN
        self._read_limit.lengthen()
        readers = min(len(self._readers), READERS_PER_TURN)
        # With several readers each gets one read: the loop would read the first 32 times before the
        # second.
        self._alone = readers < 2
        for _ in range(readers):
            self._readers.popleft().read_on()
        # Every fourth place is for a connection that had a turn, so that it makes progress despite
        # fresh ones.
        for number in range(len(self._fresh) + len(self._others)):
            if self._left <= 0 or self._bytes_left <= 0:
                break
            older = self._others and (not self._fresh or number % 4 == 3)
            (self._others if older else self._fresh).popleft().continue_turn()
        self._run_step()
        if self._fresh or self._others or self._current or self._waiting or self._readers:
            self._schedule_turn()

    def _run_step(self) -> None:
        """Run one step of the current work, or of the next host's first work."""
        if self._current is None and self._waiting:
            host, queue = next(iter(self._waiting.items()))
            del self._waiting[host]
            self._current = queue.popleft()
            if queue:
                self._waiting[host] = queue
        if self._current is not None:
            steps, later = self._current
            try:
                next(steps)
            except StopIteration as done:
                self._current = None
                later.resolve(done.value)
