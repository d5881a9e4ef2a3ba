"""What all connections of one gRPC server share, and the timer that sweeps them.

Owns the set of connections, what they hold together, and whose time is over. It must never read or
write a socket. Called by connections; GrpcServer makes one.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Final, Protocol

from turbopump.net.grpc.call import GrpcCall, Method
from turbopump.net.grpc.options import GrpcOptions
from turbopump.net.grpc.status import GrpcCode, GrpcError
from turbopump.net.transport.turns import Turns
from turbopump.pyx.grpc_lane import GrpcLane

logger = logging.getLogger(__name__)

READ_MAX: Final = 64 << 10
COMPLAINTS_MAX: Final = 10
"""Lines of the log about bad peers between two sweeps."""


class SweptPeer(Protocol):
    """A connection, as the sweep sees it."""

    address: str

    @property
    def unsent(self) -> int:
        """Bytes of answers that the peer does not take."""

    def sweep(self, now: float) -> None:
        """Look whether the peer's time is over."""

    def go_away(self) -> None:
        """Take no new calls."""

    def finish(self) -> None:
        """End what is under way, and close."""

    def abort(self) -> None:
        """Close at once."""


class _NoRooms:
    """Reads are as long as they are."""

    def shorten(self) -> None:
        """Nothing to shorten."""

    def lengthen(self) -> None:
        """Nothing to lengthen."""


class GrpcHub:
    """Connections of one server. Loop thread only."""

    def __init__(
        self,
        methods: Mapping[str, Method],
        options: GrpcOptions,
        loop: asyncio.AbstractEventLoop,
        lane: GrpcLane | None = None,
    ) -> None:
        """`lane` serves plain calls natively."""
        self.methods = methods
        self.options = options
        self.loop = loop
        self.lane = lane
        self.clock = loop.time
        self.room = memoryview(bytearray(READ_MAX))
        self.turns = Turns(loop.call_soon, _NoRooms())
        self.connections: set[SweptPeer] = set()
        self.calls = 0
        self.held = 0
        self.unsent = 0
        self.stopping = False
        self._partial: dict[GrpcCall, float] = {}
        self._complaints = 0
        self._sweeper: asyncio.TimerHandle | None = None

    @property
    def is_full(self) -> bool:
        """Whether peers together do not take too much."""
        return self.unsent > self.options.unsent_total_max

    def admit(self, connection: SweptPeer) -> bool:
        """A connection begins; False to close it at once."""
        if len(self.connections) >= self.options.connections_max or self.stopping:
            self.complain(f"{connection.address} refused: {len(self.connections)} connections")
            return False
        self.connections.add(connection)
        return True

    def refuses(self) -> GrpcError | None:
        """Why no new call is taken."""
        if self.stopping:
            return GrpcError(GrpcCode.UNAVAILABLE, "the server stops")
        if self.calls >= self.options.calls_max:
            return GrpcError(GrpcCode.RESOURCE_EXHAUSTED, f"{self.calls} calls are under way")
        return None

    def hold(self, call: GrpcCall, before: int, after: int) -> None:
        """A message of a call that is not complete has grown; raises GrpcError if all of them are
        too much."""
        self.held += after - before
        if after and call not in self._partial:
            self._partial[call] = self.clock()
        elif not after:
            self._partial.pop(call, None)
        if after > before and self.held > self.options.held_max:
            raise GrpcError(GrpcCode.RESOURCE_EXHAUSTED, "too many large messages at once")

    def complain(self, text: str) -> None:
        """Log what is wrong with a peer, within COMPLAINTS_MAX."""
        self._complaints += 1
        if self._complaints <= COMPLAINTS_MAX:
            logger.warning("%s", text)

    def start_sweeping(self) -> None:
        """Begin; `stop_sweeping` ends it."""
        self._sweeper = self.loop.call_later(self.options.sweep_ms / 1_000, self._sweep)

    def stop_sweeping(self) -> None:
        """End the sweeps."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None

    def _sweep(self) -> None:
        now = self.clock()
        slow_before = now - self.options.message_timeout_ms / 1_000
        for call, since in list(self._partial.items()):
            if since > slow_before:
                break
            self._partial.pop(call, None)
            call.fail(GrpcError(GrpcCode.DEADLINE_EXCEEDED, "a message did not end in time"))
        for connection in list(self.connections):
            connection.sweep(now)
        if self.is_full:
            worst = max(self.connections, key=lambda one: one.unsent)
            self.complain(f"{worst.address} closed: {worst.unsent} of too many bytes are unsent")
            worst.abort()
        if self._complaints > COMPLAINTS_MAX:
            logger.warning("%d more complaints about peers", self._complaints - COMPLAINTS_MAX)
        self._complaints = 0
        self.start_sweeping()
