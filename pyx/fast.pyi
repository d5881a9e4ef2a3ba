from collections.abc import Callable
from typing import Any, Protocol, Self

from turbopump.pyx.lane import Lane
from turbopump.pyx.pulls import Pulls
from turbopump.pyx.socket_writing import SocketWriter
from turbopump.pyx.tls import TlsRecords

CARRY_MAX: int
READ_COUNTED_OVER: int
FLUSH_OVER: int

class _Area(Protocol):
    scratch: memoryview
    room: memoryview
    """Of it, what the next read may fill; more than CARRY_MAX."""

    def hold(self, owner: Any, size: int, fresh: bool = False) -> None: ...

TURN_OVER: int
TURN_REQUESTS: int
TURN_BYTES: int
GIVEN_NOTED_OVER: int

class Turn:
    """The connections that one turn of the loop reads: what they appended to `lane` is dispatched
    once and their answers leave together, at its end, where there are several.

    `post(callback)` has the loop call back when it has read what there is (loop.call_soon).
    """

    def __new__(cls, lane: Lane, post: Callable[[Callable[[], None]], object]) -> Self: ...
    def end(self) -> None:
        """Dispatch what was appended, then write all that waits."""

class FastConnection(SocketWriter):
    """The reading side of a connection, natively once `go_fast` was called.

    The subclass has, besides the methods of asyncio.BufferedProtocol:
    slow_room() and slow_read(nbytes): get_buffer and buffer_updated before that;
    begins() -> bool: whether a frame that is not plain may be handled in this turn;
    frame(view) -> bool: handle it; False if the connection was closed;
    gives(size) -> bool: pulls were given so many bytes (0: none yet in this turn), whether there
    may be more;
    took(size): a read brought so many bytes, more than READ_COUNTED_OVER, and is handled;
    give_way(): pulls were given enough: what was read waits for the next turn;
    close(): the peer ended the session; hold_sealed(count): so many bytes are not decrypted yet;
    bad_length(view): what follows cannot be a frame; failed(error): handling raised;
    end_read(): a read with frames that were not plain is over;
    met(version, language): who the peer of a plain request says it is, when that is new;
    seal_later(buffers): write encrypted behind what waits to be, where `sealing`;
    is_drained() -> bool: the transport has nothing to write; write_rest(buffers): write behind it;
    hold(count): so many answers come later; settled(count) -> bool: so many of them come now,
    whether they may be written; clock() -> float: the loop's time; later(callback): call it in the
    next turn of the loop.

    Each of them may end this connection, or others: what is handled stays until the handling
    returns, and no frame behind is served.
    """

    active_at: float
    slow_since: float
    touched: bool
    """Something was read since this was last set to False."""
    in_read: bool
    """A read is being handled: answers are written at its end."""
    blocked: bool
    """The peer does not take what is written; what was read waits for `go_on`."""
    rests: bool
    """It is another's turn: what was read waits for `go_on`."""
    turn_left: int
    """Frames that are not plain which may be handled in this turn."""
    met_version: int
    """Of the newest request that was plain; -1 to have `met` called again."""

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
    ) -> None:
        """From the next read on bytes are handled natively, plain sends by the lane and plain pulls
        by `pulls` (None: none is).

        `host` is the peer's packed address, `descriptor` the socket's. Without `turn` each read is
        answered at its end. `tls`: what is read and written is encrypted.
        """

    def end_fast(self) -> None:
        """The connection is closed, or about to be: nothing is read or written any more.

        May be called at any time, also by what is called while the connection's bytes are handled.
        """

    def go_on(self) -> None:
        """The peer takes answers again, or has its turn: handle what was read before."""

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next read goes."""

    def buffer_updated(self, nbytes: int) -> None:
        """Handle what was read to the end, then write all answers at once."""
