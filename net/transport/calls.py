"""Requests to other nodes, for cores without a loop.

Owns the calls in progress. It must never know the meaning of a request. The node that makes it also
stops it.

Tests: tests/integration/transport/test_transport_calls.py
"""

import asyncio
from collections.abc import Callable

from turbopump.engine.deferred import Deferred
from turbopump.net.transport.client import Client
from turbopump.net.transport.errors import CallTimeout, RemotingError
from turbopump.net.wire.command import Command

Call = Callable[[str, Command, int], Deferred[Command | str]]
"""Arguments: `host:port`, request, time-out in ms. Resolves on the loop to the answer of any code,
or to a sentence with the reason why there is no answer."""


class Calls:
    """A callable that sends requests by a Client to other nodes, for cores that cannot await.
    Loop thread only."""

    def __init__(self, client: Client, *, renews: bool = False) -> None:
        """`renews`: a call that timed out makes the next call open another connection (see
        Client.reconnect_next)."""
        self._client = client
        self._renews = renews
        self._tasks: set[asyncio.Task[None]] = set()

    def __call__(self, address: str, request: Command, timeout_ms: int) -> Deferred[Command | str]:
        """Begin to send a request to `host:port` and return at once. The Deferred resolves to the
        answer of any code, or to a sentence with the reason why there is no answer; after `stop` it
        never resolves."""
        later: Deferred[Command | str] = Deferred()
        task = asyncio.get_running_loop().create_task(
            self._send_request(address, request, timeout_ms, later)
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return later

    def next_turn(self) -> Deferred[None]:
        """Return a Deferred that resolves in the loop's next turn, for work in steps."""
        later: Deferred[None] = Deferred()
        asyncio.get_running_loop().call_soon(later.resolve, None)
        return later

    async def stop(self) -> None:
        """Cancel the calls in progress and wait for their end; their Deferreds never resolve. The
        callers have to be stopped before."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _send_request(
        self, address: str, request: Command, timeout_ms: int, later: Deferred[Command | str]
    ) -> None:
        """Send the request and resolve `later` to the answer or the reason of a failure."""
        try:
            response: Command | str = await self._client.call(address, request, timeout_ms)
        except RemotingError as error:
            response = str(error)
            if self._renews and isinstance(error, CallTimeout):
                self._client.reconnect_next(address)
        later.resolve(response)
