"""Reports of disk threads to the loop, and the rule that the store has a single user at a time.

Owns the reports that wait while another thread opens or closes the store. It must never know their
content.

Tests: tests/integration/broker/test_broker_node.py
"""

import asyncio
from collections import deque
from collections.abc import Callable


class DiskMailbox:
    """Reports of disk threads for the loop: functions without arguments, run in the order of
    `post`; they are kept back while another thread uses the store."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.is_holding = False
        """Whether another thread than the loop's uses the store."""
        self._loop = loop
        self._waiting: deque[Callable[[], None]] = deque()

    def post(self, report: Callable[[], None]) -> None:
        """Have `report` run on the loop soon, or at `release_reports` while the store is lent; may
        be called on any thread, and does not wait."""
        self._waiting.append(report)
        self._loop.call_soon_threadsafe(self._run_waiting)

    def hold_reports(self) -> None:
        """Keep reports waiting until `release_reports`, because another thread than the loop's is
        about to use the store; loop thread only."""
        self.is_holding = True

    def release_reports(self) -> None:
        """Give the store back to the loop and run the waiting reports now; loop thread only."""
        self.is_holding = False
        self._run_waiting()

    def _run_waiting(self) -> None:
        """Run the waiting reports, unless they are kept back."""
        while self._waiting and not self.is_holding:
            self._waiting.popleft()()
