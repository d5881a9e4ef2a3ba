"""Bytes of one connection into whole frames, with no more memory than the frame in progress needs.

Owns the receive buffers: one scratch area of all connections of a server or client, and for a
connection with an incomplete frame an area of its own that grows with what has arrived. It must
never decode. Called by the connection; reads are handled to the end before the next one begins, so
the scratch area is free again whenever the loop asks for it.
"""

from collections.abc import Callable
from typing import Final

from turbopump.net.wire.command import WireError
from turbopump.pyx.frame import find_frames

SCRATCH_SIZE: Final = 256 << 10
"""Bytes of one read: a whole pull answer, or a thousand small requests."""

OWN_SIZE_MIN: Final = 4096
"""The least area of an incomplete frame."""

GROWTH: Final = 4
"""An area grows to this many times what has arrived: a peer that only announces a large frame does
not get the memory for it, and a large frame is copied at most 4 times."""


class Area:
    """What the connections of one server or client share: the scratch area and the byte budget."""

    __slots__ = ("_budget", "in_use", "scratch")

    def __init__(self, budget: int) -> None:
        self.scratch = memoryview(bytearray(SCRATCH_SIZE))
        self._budget = budget
        self.in_use = 0

    def take(self, size: int) -> None:
        """Reserve bytes; raises WireError when the budget of all connections is spent."""
        if self.in_use + size > self._budget:
            raise WireError(f"incomplete frames of all peers hold {self.in_use} bytes already")
        self.in_use += size

    def give(self, size: int) -> None:
        """Give bytes back."""
        self.in_use -= size


class Receiver:
    """The incoming side of one connection.

    `partial` tells whether a frame has begun and not ended.
    """

    __slots__ = ("_area", "_have", "_max_frame", "_own")

    def __init__(self, area: Area, max_frame: int) -> None:
        self._area = area
        self._max_frame = max_frame
        self._own: memoryview | None = None
        self._have = 0

    @property
    def partial(self) -> bool:
        """Whether a frame has begun and not ended."""
        return self._own is not None

    def room(self) -> memoryview:
        """Where the next bytes go; never empty."""
        return self._area.scratch if self._own is None else self._own[self._have :]

    def received(self, size: int, handle: Callable[[memoryview], bool]) -> None:
        """`size` bytes are in `room()`: hand each whole frame to `handle`, keep the rest.

        The frame is valid during the call only. `handle` returns False to stop, which drops what
        follows. Raises WireError for a length that no frame has.
        """
        data = self._area.scratch if self._own is None else self._own
        end = self._have + size
        try:
            frames, consumed, needed = find_frames(data, end, self._max_frame)
        except ValueError as error:
            # The frames before the bad length count, however the bytes were split into reads.
            frames = _frames_before(data, self._max_frame)
            self._hand_over(data, frames, handle)
            raise WireError(str(error)) from None
        if self._hand_over(data, frames, handle):
            self._keep(data, consumed, end, needed)

    def _hand_over(
        self,
        data: memoryview,
        frames: list[tuple[int, int]],
        handle: Callable[[memoryview], bool],
    ) -> bool:
        for position, length in frames:
            if not handle(data[position : position + length]):
                self.release()
                return False
        return True

    def release(self) -> None:
        """Give the own area back; what was in it is lost."""
        if self._own is not None:
            self._area.give(len(self._own))
            self._own = None
        self._have = 0

    def _keep(self, data: memoryview, begin: int, end: int, needed: int) -> None:
        left = end - begin
        if left == 0:
            self.release()
            return
        capacity = max(OWN_SIZE_MIN, GROWTH * left)
        if needed:
            capacity = min(capacity, max(needed, left + 1))
        own = self._own
        if own is None or begin or end == len(own):
            self._area.take(capacity)
            fresh = memoryview(bytearray(capacity))
            fresh[:left] = data[begin:end]
            if own is not None:
                self._area.give(len(own))
            self._own = fresh
        self._have = left


def _frames_before(data: memoryview, max_frame: int) -> list[tuple[int, int]]:
    """The frames in front of the first length that no frame has; there is one."""
    frames: list[tuple[int, int]] = []
    at = 0
    while True:
        size = 4 + int.from_bytes(data[at : at + 4], "big", signed=True)
        if not 8 <= size <= max_frame:
            return frames
        frames.append((at, size))
        at += size
