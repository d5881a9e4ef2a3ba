"""What disk threads report to the loop, and the rule that the store has one user at a time.

Owns the reports that wait while another thread opens or closes the store. It must never know what
they say. Called by node.py, and by disk threads.
"""

import asyncio
from collections import deque
from collections.abc import Callable


class Reports:
    """Of one broker."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.lent = False
        """Whether another thread than the loop's uses the store."""
        self._loop = loop
        self._waiting: deque[Callable[[], None]] = deque()

    def post(self, report: Callable[[], None]) -> None:
        """Called on disk threads: what they did is reported on the loop."""
        self._waiting.append(report)
        self._loop.call_soon_threadsafe(self._take)

    def lend(self) -> None:
        """Another thread uses the store from now on."""
        self.lent = True

    def take_back(self) -> None:
        """The loop does."""
        self.lent = False
        self._take()

    def _take(self) -> None:
        while self._waiting and not self.lent:
            self._waiting.popleft()()
