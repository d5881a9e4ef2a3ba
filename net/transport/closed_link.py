"""A stand-in for the connection of a peer whose connection has ended.

Owns the loop alone: timers that handlers set for a peer still run. It must never keep the
connection.
"""

import asyncio
from collections.abc import Callable

from turbopump.net.transport.peer import Timer
from turbopump.net.wire.command import Command


class ClosedLink:
    """The link of a peer whose connection has ended. Loop thread only."""

    __slots__ = ("_loop",)

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def send(self, command: Command) -> None:
        """Drop the command, without an error: the connection has ended."""

    def close(self) -> None:
        """No-op: the connection is closed already."""

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Timer:
        """Run `callback` on the loop after `delay_ms`, unless the returned timer is cancelled
        first."""
        return self._loop.call_later(delay_ms / 1000, callback)

    def after_answers(self, callback: Callable[[], None]) -> None:
        """Run `callback` in the next turn of the loop: no answer is written."""
        self._loop.call_soon(callback)
