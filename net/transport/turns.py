"""Fair turns: how much of the loop one connection, or one large request, gets before others do.

Owns the order of connections that have more to be handled, and of requests that are handled in
steps. It must never know what a request asks for. Called by connections; each Hub has one.

A request that Python handles takes the loop some 50 us. So a turn of the loop handles a few of each
connection and a bounded number of all, as for the bytes that native pulls are given; the rest of
what was read waits, and nothing more is read from there until it was handled. Who comes new is
served before those that have had a turn: a peer that asks for little does not wait behind those
that ask for much.

Reading takes turns as well: a turn reads a bounded number of bytes in large reads, what more was
sent stays in the kernel until its sender's turn comes. A step of a TLS handshake counts as several
requests.

A request that takes long is a generator (`Steps`): each step some milliseconds at most, and between
two of them the loop serves others. One is under way at a time, so that the memory of only one is
needed; they take turns by address.
"""

from collections import deque
from collections.abc import Callable, Generator
from typing import Any, Final, Protocol, TypeVar

from turbopump.engine.later import Later

REQUESTS_OF_TURN: Final = 32
"""Such requests of all connections between two looks at the sockets: some milliseconds."""

BYTES_OF_TURN: Final = 4 << 20
"""Bytes that all connections are given between two such looks, by pulls and by other long answers:
some milliseconds, also where they are encrypted."""

HANDSHAKE_REQUESTS: Final = 8
"""Requests that a step of a TLS handshake counts for: one takes up to a millisecond."""

READ_OF_TURN: Final = 2 << 20
"""Bytes that are read in large reads of all connections between two looks at the sockets. Beyond it
reads are short, and who sent more is read on in one of the next turns."""

READERS_OF_TURN: Final = 8
"""Of those, how many are read on in one turn: as many as it has large reads for."""

T = TypeVar("T")

Steps = Generator[None, None, T]
"""Work in steps: it returns what it comes to."""


class Resting(Protocol):
    """A connection that has more to be handled."""

    def continue_turn(self) -> None:
        """Handle the next of it; it may rest again."""


class Reading(Protocol):
    """A connection that may have sent more than was read."""

    def read_on(self) -> None:
        """Read again."""


class Rooms(Protocol):
    """What decides how much a read brings at most."""

    def shorten(self) -> None:
        """Let the next reads be short ones."""

    def lengthen(self) -> None:
        """Let the next reads be long ones."""


class Turns:
    """The order of those that wait. Loop thread only.

    `post(callback)` has the loop call back after it has looked at the sockets (loop.call_soon).
    """

    def __init__(self, post: Callable[[Callable[[], None]], object], rooms: Rooms) -> None:
        self._post = post
        self._rooms = rooms
        self._read_left = READ_OF_TURN
        self._alone = True
        self._readers: deque[Reading] = deque()
        self._posted = False
        self._left = REQUESTS_OF_TURN
        self._bytes_left = BYTES_OF_TURN
        self._fresh: deque[Resting] = deque()
        self._others: deque[Resting] = deque()
        self._waiting: dict[bytes, deque[tuple[Steps[Any], Later[Any]]]] = {}
        self._current: tuple[Steps[Any], Later[Any]] | None = None

    def begin(self) -> bool:
        """Whether one more request may be handled before the loop looks at the sockets."""
        if self._left <= 0 or self._bytes_left <= 0:
            return False
        self._left -= 1
        self._soon()
        return True

    def begin_handshake(self) -> bool:
        """Whether one more step of a TLS handshake may be taken before the loop looks at the
        sockets."""
        if self._left <= 0:
            return False
        self._left -= HANDSHAKE_REQUESTS
        self._soon()
        return True

    def takes(self, size: int) -> bool:
        """A read of a connection brought so many bytes; whether it may be read again before the
        loop looks at the sockets. If not, it is to be given to `read_later`."""
        self._read_left -= size
        if self._read_left < READ_OF_TURN // 2:
            self._soon()
        if self._read_left <= 0:
            self._rooms.shorten()
        return self._read_left > 0 and self._alone

    def read_later(self, connection: Reading) -> None:
        """Let `connection` be read again when it is its turn."""
        self._readers.append(connection)
        self._soon()

    def gives(self, size: int) -> bool:
        """A connection was given so many bytes; whether there may be more before the loop looks at
        the sockets."""
        self._bytes_left -= size
        if self._bytes_left < BYTES_OF_TURN // 2:
            # Not for each pull: to be called back costs the loop another look at the sockets.
            self._soon()
        return self._bytes_left > 0

    def rest(self, connection: Resting, *, fresh: bool) -> None:
        """Let `connection` continue when it is its turn; `fresh`: it had none yet."""
        (self._fresh if fresh else self._others).append(connection)
        self._soon()

    def work(self, host: bytes, steps: Steps[T]) -> Later[T]:
        """What `steps`, which must not raise, come to. Those of one host follow one another."""
        later: Later[T] = Later()
        self._waiting.setdefault(host, deque()).append((steps, later))
        self._soon()
        return later

    def _soon(self) -> None:
        if not self._posted:
            self._posted = True
            self._post(self._turn)

    def _turn(self) -> None:
        self._posted = False
        self._left = REQUESTS_OF_TURN
        self._bytes_left = BYTES_OF_TURN
        self._read_left = READ_OF_TURN
        self._rooms.lengthen()
        readers = min(len(self._readers), READERS_OF_TURN)
        # Of several each gets one read: the loop reads the first one 32 times before the second.
        self._alone = readers < 2
        for _ in range(readers):
            self._readers.popleft().read_on()
        # Every fourth of those that had a turn comes before the fresh ones: they go on, too.
        for number in range(len(self._fresh) + len(self._others)):
            if self._left <= 0 or self._bytes_left <= 0:
                break
            older = self._others and (not self._fresh or number % 4 == 3)
            (self._others if older else self._fresh).popleft().continue_turn()
        self._step()
        if self._fresh or self._others or self._current or self._waiting or self._readers:
            self._soon()

    def _step(self) -> None:
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
