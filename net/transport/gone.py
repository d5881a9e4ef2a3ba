"""What a peer has instead of its connection once that has ended.

Owns nothing but the loop: timers that handlers set for a peer run on. It must never keep the
connection. Made by each connection at its end.
"""

import asyncio
from collections.abc import Callable

from turbopump.net.transport.peer import Timer
from turbopump.net.wire.command import Command


class Gone:
    """A link without a peer."""

    __slots__ = ("_loop",)

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def send(self, command: Command) -> None:
        """Nothing is sent."""

    def close(self) -> None:
        """It is closed."""

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Timer:
        """Run `callback` after `delay_ms`."""
        return self._loop.call_later(delay_ms / 1000, callback)

    def after_answers(self, callback: Callable[[], None]) -> None:
        """No answer is written: run `callback` in the next turn of the loop."""
        self._loop.call_soon(callback)
