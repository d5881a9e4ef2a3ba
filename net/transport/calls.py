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
"""(address, request, time-out in ms): resolves to the answer, or the reason why it is missing."""


class Calls:
    """Makes calls: `calls(address, request, timeout_ms)` returns the later answer, or a text with
    the reason if there is no answer. Loop thread only."""

    def __init__(self, client: Client, *, renews: bool = False) -> None:
        """`renews`: after a call without an answer the next call opens another connection."""
        self._client = client
        self._renews = renews
        self._tasks: set[asyncio.Task[None]] = set()

    def __call__(self, address: str, request: Command, timeout_ms: int) -> Deferred[Command | str]:
        """Send a request; the result is the answer, or a text with the reason of the failure."""
        later: Deferred[Command | str] = Deferred()
        task = asyncio.get_running_loop().create_task(
            self._ask(address, request, timeout_ms, later)
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return later

    def pause(self) -> Deferred[None]:
        """Return a Deferred that resolves in the loop's next turn, for work in steps."""
        later: Deferred[None] = Deferred()
        asyncio.get_running_loop().call_soon(later.resolve, None)
        return later

    async def stop(self) -> None:
        """End the calls in progress without an answer: the callers have stopped before."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _ask(
        self, address: str, request: Command, timeout_ms: int, later: Deferred[Command | str]
    ) -> None:
        try:
            response: Command | str = await self._client.call(address, request, timeout_ms)
        except RemotingError as error:
            response = str(error)
            if self._renews and isinstance(error, CallTimeout):
                self._client.renew(address)
        later.resolve(response)
