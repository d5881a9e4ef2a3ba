"""Requests to other nodes, for parts that know no loop.

Owns the calls that are under way. It must never know what is asked. A shell beside a node.py, which
makes it and stops it.
"""

import asyncio

from turbopump.engine.later import Later
from turbopump.net.transport.client import Client
from turbopump.net.transport.errors import CallTimeout, RemotingError
from turbopump.net.wire.command import Command


class Calls:
    """`calls(address, request, timeout_ms)`: the answer later, or a text that says why there is
    none. Loop thread only."""

    def __init__(self, client: Client, *, renews: bool = False) -> None:
        """`renews`: after a call without an answer the next one goes over another connection."""
        self._client = client
        self._renews = renews
        self._tasks: set[asyncio.Task[None]] = set()

    def __call__(self, address: str, request: Command, timeout_ms: int) -> Later[Command | str]:
        """Ask."""
        later: Later[Command | str] = Later()
        task = asyncio.get_running_loop().create_task(
            self._ask(address, request, timeout_ms, later)
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return later

    def pause(self) -> Later[None]:
        """Resolves in the loop's next turn: for what goes on after an answer, in steps."""
        later: Later[None] = Later()
        asyncio.get_running_loop().call_soon(later.resolve, None)
        return later

    async def stop(self) -> None:
        """What is under way ends without an answer: the callers have stopped before."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _ask(
        self, address: str, request: Command, timeout_ms: int, later: Later[Command | str]
    ) -> None:
        try:
            answer: Command | str = await self._client.call(address, request, timeout_ms)
        except RemotingError as error:
            answer = str(error)
            if self._renews and isinstance(error, CallTimeout):
                self._client.renew(address)
        later.resolve(answer)
