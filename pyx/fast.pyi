"""The reading side of a connection of remoting, native while its requests are plain."""

from collections.abc import Callable
from typing import Any, Protocol, Self

from turbopump.pyx.io_threads import ThreadedTransport
from turbopump.pyx.lane import Lane
from turbopump.pyx.pulls import Pulls
from turbopump.pyx.socket_writing import SocketWriter
from turbopump.pyx.tls import TlsRecords

CARRY_MAX: int
"""Maximum bytes of an incomplete frame that are copied before the next read, which can then fill
the whole area; a larger one stays in place, and the read continues after it."""
READ_COUNTED_OVER: int
"""Bytes above which a read counts against the limit of a turn of the loop (`took`)."""
FLUSH_OVER: int
"""Bytes of answers above which they are written before the end of the read."""

class _Area(Protocol):
    """The memory into which all connections of a loop read."""

    scratch: memoryview
    """Writable memory of the area."""
    room: memoryview
    """Part of `scratch` that the next read may fill; more than CARRY_MAX bytes."""

    def hold(self, owner: Any, size: int, fresh: bool = False) -> None:
        """Note that `owner` now holds `size` bytes of memory for an incomplete frame; 0: none."""

TURN_OVER: int
"""Bytes of a read's answers above which they are written before the end of the turn: the peer has
enough to begin with."""
TURN_REQUESTS: int
"""Number of requests of a connection that Python handles before other connections have their
turn."""
TURN_BYTES: int
"""Bytes of messages that pulls of a connection receive before other connections have their turn."""
GIVEN_NOTED_OVER: int
"""Bytes that pulls of a connection receive before they count against the turn's limit for all."""

class Turn:
    """The connections that one turn of the loop reads.

    If several connections are read in a turn, the records that they appended to `lane` are
    dispatched once and the answers are written together, at the end of the turn.
    `post(callback)` makes the loop call back after it has read all ready sockets
    (loop.call_soon).
    """

    def __new__(cls, lane: Lane, post: Callable[[Callable[[], None]], object]) -> Self: ...
    def end(self) -> None:
        """Dispatch the appended records, then write all waiting answers."""

class FastConnection(SocketWriter):
    """The reading side of a connection, native after `go_fast`.

    The subclass has, besides the methods of asyncio.BufferedProtocol:
    slow_room() and slow_read(nbytes): get_buffer and buffer_updated before `go_fast`;
    begins() -> bool: whether a frame that is not plain may be handled in this turn;
    frame(view) -> bool: handle a frame; False if the connection was closed;
    gives(size) -> bool: count `size` bytes that pulls received (0: the first ones of this turn
    follow); whether pulls may receive more in this turn;
    took(size): count a handled read of `size` bytes, more than READ_COUNTED_OVER;
    give_way(): pulls received enough: the rest of the read waits for the next turn;
    close(): the peer ended the session; hold_sealed(count): `count` bytes are not decrypted yet;
    bad_length(view): the bytes in `view` cannot begin a frame; failed(error): handling raised;
    end_read(): the end of a read with frames that were not plain;
    met(version, language): the peer's version and language in a plain request, if they are new;
    seal_later(buffers): encrypt and write after the buffers that already wait, while `sealing`;
    is_drained() -> bool: whether the transport has nothing to write;
    write_rest(buffers): write after the transport's own bytes;
    hold(count): register `count` answers that will be written later;
    settled(count) -> bool: `count` of these answers are ready; whether they may be written;
    clock() -> float: the loop's time; later(callback): call it in the next turn of the loop.

    Each of these methods may end this connection, or others: the bytes being handled stay until
    the handling returns, and no later frame is served.
    """

    active_at: float
    """Time of the last activity by the loop's clock, in seconds; the subclass writes and reads
    it."""
    slow_since: float
    """Time by the loop's clock, in seconds, at which the incomplete frame or handshake began; 0:
    neither is in progress."""
    in_read: bool
    """Whether a read is being handled: answers are written at its end."""
    blocked: bool
    """Whether the peer does not read its answers; bytes read from it wait for `go_on`."""
    rests: bool
    """Whether other connections have their turn: bytes read here wait for `go_on`."""
    turn_left: int
    """Number of frames that are not plain which may be handled in this turn."""
    met_version: int
    """Version in the newest plain request; set -1 to have `met` called again."""

    @property
    def is_fast(self) -> bool:
        """Whether bytes are handled natively."""

    def go_fast(
        self,
        lane: Lane,
        pulls: Pulls | None,
        descriptor: int,
        host: bytes,
        area: _Area,
        max_frame: int,
        turn: Turn | None = None,
        tls: TlsRecords | None = None,
        threaded: ThreadedTransport | None = None,
    ) -> None:
        """Handle bytes natively, beginning with the next read: plain sends by the lane, plain pulls
        by `pulls` (None: all pulls go to Python).

        `host` is the peer's packed address, `descriptor` the socket's. Without `turn` each read is
        answered at its end. `tls`: the connection is encrypted. `threaded`: the transport whose I/O
        thread writes all answers; None: the answers go to `descriptor`.
        """

    def end_fast(self) -> None:
        """Stop reading and writing: the connection is closed, or about to be.

        May be called at any time, also by a callback while the connection's bytes are handled.
        """

    def go_on(self) -> None:
        """Handle the bytes that waited: the peer reads its answers again, or its turn has come."""

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the memory that the next read fills."""

    def buffer_updated(self, nbytes: int) -> None:
        """Handle all bytes read, then write all answers at once."""
