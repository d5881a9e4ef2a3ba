"""The bytes of a connection as whole frames, with only the memory that the frame in progress needs.

Owns the receive buffers: a scratch area for all connections of a server or client, and for a
connection with an incomplete frame memory of its own, allocated as bytes arrive. It must never
decode. Reads are handled to the end before the next one begins, so the scratch area is free again
whenever the loop asks for it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from turbopump.net.transport.peer import Peer
from turbopump.net.wire.command import WireError
from turbopump.pyx.frame import find_frames
from turbopump.pyx.frame_memory import FrameMemory, wanted

SCRATCH_SIZE: Final = 256 << 10
"""Bytes of a read: a whole pull answer, or a thousand small requests."""

SHORT_SIZE: Final = 32 << 10
"""Bytes of a read after the loop has read READ_PER_TURN in this turn: the rest stays in the kernel,
at the sender's cost. Small requests still fit; it exceeds CARRY_MAX."""


Handle = Callable[[memoryview], bool | None]
"""Receives a frame, its 4 length bytes included; the view is valid during the call only. Result
True: hand over the next frame; False: drop the bytes that follow; None: hand over this frame and
the following ones again in `Receiver.go_on`."""


class Owner(Protocol):
    """A connection, as the holder of an incomplete frame."""

    peer: Peer

    def abort(self) -> None:
        """Close the connection and drop its unsent bytes."""


class Area:
    """The memory shared by the connections of a server or client: scratch area and a budget of
    bytes for incomplete frames.

    When the `budget` is spent, the connection whose frame has been incomplete for the longest time
    is cut, not the connection that needs memory: a peer that wants to keep others out has to keep
    sending. Each IP address may use `quota` bytes of the budget (None: all); beyond it the oldest
    connection of the address is cut.
    """

    __slots__ = (
        "_budget",
        "_cut",
        "_hosts",
        "_quota",
        "_sizes",
        "_used",
        "in_use",
        "room",
        "scratch",
    )

    def __init__(
        self,
        budget: int,
        quota: int | None = None,
        cut: Callable[[Owner], None] = lambda owner: owner.abort(),
    ) -> None:
        """`cut` closes a connection (default: aborts it), but not before the caller of `hold` has
        returned."""
        self.scratch = self.room = memoryview(bytearray(SCRATCH_SIZE))
        """`scratch`: the memory of SCRATCH_SIZE bytes for reads; `room`: its part that the next
        read may fill."""
        self._budget = budget
        self._quota = budget if quota is None else min(quota, budget)
        self._cut = cut
        self._sizes: dict[Owner, int] = {}
        self._hosts: dict[bytes, dict[Owner, int]] = {}
        self._used: dict[bytes, int] = {}
        self.in_use = 0
        """Bytes that all owners together hold."""

    def shorten(self) -> None:
        """Limit the next reads to SHORT_SIZE, until `lengthen`."""
        self.room = self.scratch[:SHORT_SIZE]

    def lengthen(self) -> None:
        """Let the next reads fill SCRATCH_SIZE."""
        self.room = self.scratch

    def hold(self, owner: Owner, size: int, fresh: bool = False) -> None:
        """Set the number of bytes that `owner` holds to `size`, 0 for no bytes. If the budget or
        the quota of its address is exceeded, the oldest other owners are cut; raises WireError if
        there is no other owner to cut.

        `fresh`: its frame began with the newest read, so it is the youngest owner.
        """
        host = owner.peer.host[:-4]
        before = self._sizes.get(owner, 0)
        if size > before:
            self._make_room(owner, host, size - before)
        if fresh or not size:
            self._forget(owner, host)
            before = 0
        if size:
            self.in_use += size - before
            self._sizes[owner] = size
            self._used[host] = self._used.get(host, 0) + size - before
            self._hosts.setdefault(host, {})[owner] = size

    def _make_room(self, owner: Owner, host: bytes, more: int) -> None:
        """Cut the oldest other owners until `more` bytes fit into the budget and the quota of
        `host`. Raises WireError if that is impossible."""
        while host in self._hosts and self._used[host] + more > self._quota:
            self._cut_oldest(owner, self._hosts[host])
        while self.in_use + more > self._budget:
            self._cut_oldest(owner, self._sizes)

    def _cut_oldest(self, owner: Owner, held: dict[Owner, int]) -> None:
        """Cut the oldest owner in `held` other than `owner`; raises WireError without one."""
        oldest = next((one for one in held if one is not owner), None)
        if oldest is None:
            raise WireError(f"incomplete frames of all peers hold {self.in_use} bytes already")
        self._forget(oldest, oldest.peer.host[:-4])
        self._cut(oldest)

    def _forget(self, owner: Owner, host: bytes) -> None:
        """Remove an owner from the area, and its bytes from the sums of the area and of its
        address `host`."""
        size = self._sizes.pop(owner, 0)
        if size:
            self.in_use -= size
            self._used[host] -= size
            del self._hosts[host][owner]
            if not self._hosts[host]:
                del self._hosts[host], self._used[host]


@dataclass(slots=True)
class _Found:
    """The frames of a read as (position, length); `at` is the index of the next frame to hand
    over. Positions count from `dropped` bytes before the area's first byte."""

    frames: list[tuple[int, int]]
    consumed: int
    needed: int
    end: int
    bad: str
    at: int = 0
    dropped: int = 0


class Receiver:
    """The incoming side of a connection: cuts reads into frames. `owner` holds the memory of an
    incomplete frame in `area`."""

    __slots__ = ("_area", "_cost", "_found", "_have", "_max_frame", "_memory", "_own", "_owner")

    def __init__(self, area: Area, max_frame: int, owner: Owner) -> None:
        self._area = area
        self._owner: Owner | None = owner
        self._max_frame = max_frame
        self._memory: FrameMemory | None = None
        self._own: memoryview | None = None
        self._have = self._cost = 0
        self._found: _Found | None = None

    @property
    def partial(self) -> bool:
        """Whether memory holds a frame that has begun and not ended, or frames that wait for
        `go_on`."""
        return self._own is not None

    def room(self) -> memoryview:
        """The memory into which the next bytes must be read, never empty; valid until
        `received`."""
        room = self._area.room
        return room if self._own is None else self._own[self._have : self._have + len(room)]

    def received(self, size: int, handle: Handle) -> None:
        """Hand each whole frame of the `size` bytes in `room()`, in order, to `handle`, and copy
        the rest.

        Raises WireError for a length that no frame has, after the frames before it were handed
        over, or for memory beyond the area's limits.
        """
        if self._found is not None:
            assert self._own is not None
            at = self._found.frames[self._found.at][0] - self._found.dropped
            self._keep(self._own, at, self._have + size, 0)
            size = 0
        data = self._area.scratch if self._own is None else self._own
        end = self._have + size
        bad = ""
        try:
            frames, consumed, needed = find_frames(data, end, self._max_frame)
        except ValueError as error:
            # The frames before the bad length count, however the bytes were split into reads.
            frames, consumed, needed = _frames_before(data, self._max_frame), end, 0
            bad = str(error)
        self._hand_over(data, _Found(frames, consumed, needed, end, bad), handle)

    def go_on(self, handle: Handle) -> None:
        """Hand over the frames that `handle` postponed; no-op without any. Raises as `received`."""
        if self._own is not None and self._found is not None:
            self._hand_over(self._own, self._found, handle)

    def _hand_over(self, data: memoryview, found: _Found, handle: Handle) -> None:
        """Pass the found frames to `handle` in order, until it postpones a frame or closes; keep
        the rest."""
        self._found = None
        while found.at < len(found.frames):
            position, length = found.frames[found.at]
            position -= found.dropped
            wanted = handle(data[position : position + length])
            if wanted is None:
                if data is not self._own:
                    self._keep(data, position, found.end, found.end - position + 1)
                    found.dropped += position
                self._have = found.end - found.dropped
                self._found = found
                return
            if not wanted:
                self.release()
                break
            found.at += 1
        else:
            if not found.bad:
                dropped = found.dropped
                self._keep(data, found.consumed - dropped, found.end - dropped, found.needed)
        if found.bad:
            raise WireError(found.bad)

    @property
    def rests(self) -> bool:
        """Whether whole frames wait for `go_on`."""
        return self._found is not None

    def end(self) -> None:
        """Release the memory and the owner; `received` must not be called again."""
        self.release()
        self._owner = None

    def release(self) -> None:
        """Free the memory of this connection; its bytes are lost."""
        if self._own is not None:
            assert self._owner is not None, "it has ended"
            self._area.hold(self._owner, 0)
            self._own = self._memory = None
        self._have = self._cost = 0
        self._found = None

    def _keep(self, data: memoryview, begin: int, end: int, needed: int) -> None:
        """Copy data[begin:end], an incomplete frame of `needed` bytes, into this connection's
        own memory."""
        left = end - begin
        if left == 0:
            self.release()
            return
        memory = self._memory
        if memory is None or begin or end == memory.size:
            memory = FrameMemory(wanted(left, max(needed, left + 1)))
        cost = memory.cost(left)
        if cost != self._cost or begin:
            assert self._owner is not None, "it has ended"
            self._area.hold(self._owner, cost, fresh=begin > 0)
            self._cost = cost
        if memory is not self._memory:
            own = memory.view()
            own[:left] = data[begin:end]
            self._memory, self._own = memory, own
        self._have = left


def _frames_before(data: memoryview, max_frame: int) -> list[tuple[int, int]]:
    """Return (position, length) of the frames in front of the first length that no frame has;
    the data must contain such a length."""
    frames: list[tuple[int, int]] = []
    at = 0
    while True:
        size = 4 + int.from_bytes(data[at : at + 4], "big", signed=True)
        if not 8 <= size <= max_frame:
            return frames
        frames.append((at, size))
        at += size
