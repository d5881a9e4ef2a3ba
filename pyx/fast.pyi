from collections.abc import Callable
from typing import Protocol, Self

from turbopump.pyx.held import Holder
from turbopump.pyx.lane import Lane
from turbopump.pyx.pulls import Pulls

CARRY_MAX: int
OWN_SIZE_MIN: int
GROWTH: int
FLUSH_OVER: int

class _Area(Protocol):
    scratch: memoryview

    def take(self, size: int) -> None: ...
    def give(self, size: int) -> None: ...

TURN_OVER: int

class Turn:
    """The connections that one turn of the loop reads: what they appended to `lane` is dispatched
    once and their answers leave together, at its end, where there are several.

    `post(callback)` has the loop call back when it has read what there is (loop.call_soon).
    """

    def __new__(cls, lane: Lane, post: Callable[[Callable[[], None]], object]) -> Self: ...
    def end(self) -> None:
        """Dispatch what was appended, then write all that waits."""

class FastConnection(Holder):
    """The reading side of a connection, natively once `go_fast` was called.

    The subclass has, besides the methods of asyncio.BufferedProtocol:
    slow_room() and slow_read(nbytes): get_buffer and buffer_updated before that;
    frame(view) -> bool: handle one frame that is not plain; False if the connection was closed;
    bad_length(view): what follows cannot be a frame; failed(error): handling raised;
    end_read(): a read with frames that were not plain is over;
    met(version, language): who the peer of a plain request says it is, when that is new;
    is_drained() -> bool: the transport has nothing to write; write_rest(buffers): write behind it;
    hold(count): so many answers come later; settled(count) -> bool: so many of them come now,
    whether they may be written; clock() -> float: the loop's time.
    """

    active_at: float
    slow_since: float
    touched: bool
    """Something was read since somebody last set this to False."""
    in_read: bool
    """A read is being handled: answers are written at its end."""
    blocked: bool
    """The peer does not take what is written; what was read waits for `go_on`."""
    queued: bool
    """The transport may have something to write."""
    met_version: int
    """Of the newest request that was plain; -1 to be told again."""

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
    ) -> None:
        """From the next read on bytes are handled natively, plain sends by the lane and plain pulls
        by `pulls` (None: none is).

        `host` is the peer's packed address, `descriptor` the socket's. Without `turn` each read is
        answered at its end.
        """

    def end_fast(self) -> None:
        """The connection is closed, or about to be: nothing is read or written any more."""

    def go_on(self) -> None:
        """The peer takes answers again: handle what was read before it stopped to."""

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next read goes."""

    def buffer_updated(self, nbytes: int) -> None:
        """Handle what was read to the end, then write all answers at once."""
