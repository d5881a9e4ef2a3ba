"""The shared state of a gRPC server's connections.

Owns their common totals, and the messages that do not end in time. It must never read or write a
socket. Each GrpcServer has a hub.

Tests: tests/unit/net/grpc/test_connection.py, tests/unit/net/grpc/test_opening.py
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Final, Protocol

from turbopump.net.grpc.call import GrpcCall, Method
from turbopump.net.grpc.options import GrpcOptions
from turbopump.net.grpc.status import GrpcCode, GrpcError
from turbopump.net.transport.connection_set import Closable, ConnectionSet
from turbopump.net.transport.fair_scheduler import FairScheduler
from turbopump.pyx.grpc_lane import GrpcLane

logger = logging.getLogger(__name__)

READ_MAX: Final = 64 << 10


class SweptPeer(Closable, Protocol):
    """A connection, as the sweep sees it."""

    address: str

    @property
    def unsent(self) -> int:
        """Bytes of answers that the peer has not read."""

    def sweep(self, now: float) -> None:
        """Close the connection if the peer exceeded a timeout."""

    def go_away(self) -> None:
        """Refuse new calls; calls in progress continue."""


class _NoReadBuffers:
    """A stand-in for the buffers that FairScheduler shortens while it is busy: without buffers."""

    def shorten(self) -> None:
        """No-op: there is no buffer to shorten."""

    def lengthen(self) -> None:
        """No-op: there is no buffer to lengthen."""


class GrpcHub(ConnectionSet[SweptPeer]):
    """The connections of a server. Loop thread only."""

    def __init__(
        self,
        methods: Mapping[str, Method],
        options: GrpcOptions,
        loop: asyncio.AbstractEventLoop,
        lane: GrpcLane | None = None,
    ) -> None:
        """`lane` serves plain calls natively."""
        super().__init__(loop, options.sweep_ms, logger)
        self.methods = methods
        self.options = options
        self.lane = lane
        self.room = memoryview(bytearray(READ_MAX))
        self.turns = FairScheduler(loop.call_soon, _NoReadBuffers())
        self.calls = 0
        self.held = 0
        self.unsent = 0
        self._partial: dict[GrpcCall, float] = {}

    @property
    def is_full(self) -> bool:
        """Whether the unsent answers of all connections exceed `unsent_total_max`."""
        return self.unsent > self.options.unsent_total_max

    def admit(self, connection: SweptPeer) -> bool:
        """Add a new connection; False if it has to be closed at once."""
        if len(self.connections) >= self.options.connections_max or self.stopping:
            self.complain(f"{connection.address} refused: {len(self.connections)} connections")
            return False
        self.connections.add(connection)
        return True

    def refuses(self) -> GrpcError | None:
        """The error for a new call if the server takes no calls now, else None."""
        if self.stopping:
            return GrpcError(GrpcCode.UNAVAILABLE, "the server stops")
        if self.calls >= self.options.calls_max:
            return GrpcError(GrpcCode.RESOURCE_EXHAUSTED, f"{self.calls} calls are under way")
        return None

    def hold(self, call: GrpcCall, before: int, after: int) -> None:
        """Count the bytes of a call's incomplete message; raises GrpcError if all of them together
        exceed `held_max`."""
        self.held += after - before
        if after and call not in self._partial:
            self._partial[call] = self.clock()
        elif not after:
            self._partial.pop(call, None)
        if after > before and self.held > self.options.held_max:
            raise GrpcError(GrpcCode.RESOURCE_EXHAUSTED, "too many large messages at once")

    def ended(self) -> None:
        """Count a call that has ended."""
        self.calls -= 1
        self.changed()

    def sweep(self, now: float) -> None:
        """Fail calls whose request message takes longer than `message_timeout_ms`; close
        connections that are idle, dead or do not read. If the unsent answers of all connections
        exceed `unsent_total_max`, abort the connection with most of them.

        `now` is in seconds, of the loop's clock.
        """
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
