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
"""Bytes of the buffer for reads, which all connections share."""


class SweptPeer(Closable, Protocol):
    """A connection of a gRPC server, as the periodic sweep sees it."""

    address: str
    """The peer's `ip:port`."""

    @property
    def unsent(self) -> int:
        """Bytes of answers that wait for the peer, without bytes in the transport and the
        kernel."""

    def sweep(self, now: float) -> None:
        """Close the connection if the peer exceeded a timeout; `now` is in seconds of the loop's
        clock."""

    def go_away(self) -> None:
        """Announce the stop (GOAWAY): the peer begins no new calls; calls in progress continue."""


class _NoReadSizeLimit:
    """A stand-in for the limit of read sizes that FairScheduler sets while it is busy: no limit."""

    def shorten(self) -> None:
        """No-op: reads are not limited."""

    def lengthen(self) -> None:
        """No-op: reads are not limited."""


class GrpcHub(ConnectionSet[SweptPeer]):
    """The connections of a server. Loop thread only."""

    def __init__(
        self,
        methods: Mapping[str, Method],
        options: GrpcOptions,
        loop: asyncio.AbstractEventLoop,
        lane: GrpcLane | None = None,
    ) -> None:
        """`methods` by path; `lane` serves plain calls natively, None: Python serves all."""
        super().__init__(loop, options.sweep_ms, logger)
        self.methods = methods
        self.options = options
        self.lane = lane
        self.room = memoryview(bytearray(READ_MAX))
        """The buffer into which every connection reads; its bytes are handled or copied before the
        next read."""
        self.turns = FairScheduler(loop.call_soon, _NoReadSizeLimit())
        """The order in which the connections are served."""
        self.calls = 0
        """Number of calls that have not ended."""
        self.held = 0
        """Bytes of all incomplete messages."""
        self.unsent = 0
        """Bytes of answers that wait for their peers, of all connections."""
        self._partial: dict[GrpcCall, float] = {}

    @property
    def is_full(self) -> bool:
        """Whether the unsent answers of all connections exceed `unsent_total_max`."""
        return self.unsent > self.options.unsent_total_max

    def admit_connection(self, connection: SweptPeer) -> bool:
        """Add a new connection. False if the caller has to abort it: `connections_max` is reached,
        or the server stops."""
        if len(self.connections) >= self.options.connections_max or self.stopping:
            self.log_problem(f"{connection.address} refused: {len(self.connections)} connections")
            return False
        self.connections.add(connection)
        return True

    def call_refusal(self) -> GrpcError | None:
        """The error with which a new call has to fail, because the server stops or has `calls_max`
        calls; None: it may begin."""
        if self.stopping:
            return GrpcError(GrpcCode.UNAVAILABLE, "the server stops")
        if self.calls >= self.options.calls_max:
            return GrpcError(GrpcCode.RESOURCE_EXHAUSTED, f"{self.calls} calls are under way")
        return None

    def count_incomplete(self, call: GrpcCall, before: int, after: int) -> None:
        """Change the bytes of a call's incomplete message from `before` to `after`, 0: no message
        is incomplete. Raises GrpcError (RESOURCE_EXHAUSTED) if all of them together exceed
        `held_max`; the new bytes are counted then, too."""
        self.held += after - before
        if after and call not in self._partial:
            self._partial[call] = self.clock()
        elif not after:
            self._partial.pop(call, None)
        if after > before and self.held > self.options.held_max:
            raise GrpcError(GrpcCode.RESOURCE_EXHAUSTED, "too many large messages at once")

    def call_ended(self) -> None:
        """Subtract a call that has ended from `calls`, the number of calls in progress."""
        self.calls -= 1
        self.check_waits()

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
            self.log_problem(f"{worst.address} closed: {worst.unsent} of too many bytes are unsent")
            worst.abort()
