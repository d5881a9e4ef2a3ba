"""Progress and cancellation of opening a store on a thread of its own.

Owns the pace of the log lines. It must never touch the store. Recovery of a big store takes
minutes, and the loop must handle signals meanwhile.
"""

import logging
from collections.abc import Callable

from turbopump.engine.types import OpeningStopped, Progress

logger = logging.getLogger(__name__)

LOG_INTERVAL_MS = 5_000
"""Interval in ms of log lines; a shorter recovery logs nothing."""


class StartupProgress:
    """The progress of opening a store on another thread, passed to the loop."""

    def __init__(
        self,
        post: Callable[[Callable[[], None]], object],
        notify: Callable[[Progress], None],
        steady_ms: Callable[[], int],
    ) -> None:
        """`post`, called on the opening's thread, runs work on the loop; `notify` is called there
        with each progress. `steady_ms` returns the monotonic clock in ms."""
        self._post = post
        self._notify = notify
        self._steady_ms = steady_ms
        self._logged_ms = steady_ms()
        self._given_up = False

    def report(self, progress: Progress) -> None:
        """Pass progress on to the loop, where it is notified, and logged each LOG_INTERVAL_MS; to
        be called on the opening's thread. Raises OpeningStopped after `cancel_opening`."""
        if self._given_up:
            raise OpeningStopped("opening the store was cancelled")
        self._post(lambda: self._notify_and_log(progress))

    def cancel_opening(self) -> None:
        """Cancel the opening: the next call of `report` raises OpeningStopped on its thread. Does
        not wait; to be called on the loop."""
        self._given_up = True

    def _notify_and_log(self, progress: Progress) -> None:
        """Pass progress to `notify`, and log it each LOG_INTERVAL_MS; runs on the loop."""
        self._notify(progress)
        now_ms = self._steady_ms()
        if now_ms - self._logged_ms >= LOG_INTERVAL_MS:
            self._logged_ms = now_ms
            percent = 100 * progress.done // max(1, progress.total)
            logger.info("opening the store: %s, %d %%", progress.phase, percent)
