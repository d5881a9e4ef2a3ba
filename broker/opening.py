"""Watching a store being opened on a thread of its own: how far it is, and how to give it up.

Owns the pace of the log lines. It must never touch the store. Called by node.py, and from the
thread: recovery of a big store takes minutes, and the loop must hear signals meanwhile.
"""

import logging
from collections.abc import Callable

from turbopump.engine.types import OpeningStopped, Progress

logger = logging.getLogger(__name__)

LOG_INTERVAL_MS = 5_000
"""Between two lines of log; shorter recoveries say nothing."""


class Opening:
    """One opening. `post` has work done on the loop; `tell` is called there with how far it is."""

    def __init__(
        self,
        post: Callable[[Callable[[], None]], object],
        tell: Callable[[Progress], None],
        steady_ms: Callable[[], int],
    ) -> None:
        self._post = post
        self._tell = tell
        self._steady_ms = steady_ms
        self._said_ms = steady_ms()
        self._given_up = False

    def reached(self, progress: Progress) -> None:
        """On the thread. Raises OpeningStopped once it was given up."""
        if self._given_up:
            raise OpeningStopped("the opening of the store was given up")
        self._post(lambda: self._show(progress))

    def give_up(self) -> None:
        """Have the thread end at its next step."""
        self._given_up = True

    def _show(self, progress: Progress) -> None:
        self._tell(progress)
        now_ms = self._steady_ms()
        if now_ms - self._said_ms >= LOG_INTERVAL_MS:
            self._said_ms = now_ms
            percent = 100 * progress.done // max(1, progress.total)
            logger.info("opening the store: %s, %d %%", progress.phase, percent)
