"""A chain of steps: the only way in which a duty continues work between two ticks.

Owns the time of a duty's next step. At most one step of a chain is scheduled at any time, so that a
backlog takes the same share of the loop however long it lasts. It must never know the work of a
step.

Tests: tests/unit/broker/lifecycle/test_periodic.py
"""

import asyncio
from collections.abc import Callable
from typing import Final

from turbopump.broker.lifecycle.asyncio_util import run_logging_errors

PAUSE_MS: Final = 2
"""Pause in ms between two steps of a backlog, in which sends and pulls are served."""


class StepChain:
    """A duty's work as a chain of steps on the loop, at most one scheduled at any time. Loop thread
    only."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        name: str,
        step: Callable[[], int | None],
        is_over: Callable[[], bool],
    ) -> None:
        """`step` does a part of the work. It returns the ms until the next part is due, or None if
        no part is due before the next tick; its exceptions are logged with `name`. Once `is_over`
        returns True, only ticks run steps."""
        self._loop, self._name, self._step, self._is_over = loop, name, step, is_over
        self._next: asyncio.TimerHandle | None = None

    def tick(self) -> None:
        """Run a step now, in place of a later scheduled step; no-op if a step is scheduled within
        PAUSE_MS."""
        if not self._is_near():
            self._run()

    def run_soon(self) -> None:
        """Schedule a step in PAUSE_MS, in place of a later step, because new work has arrived since
        the last step."""
        if not self._is_near():
            self._schedule(PAUSE_MS)

    def stop(self) -> None:
        """Cancel the scheduled step, if any; later calls of `tick` run steps again."""
        due, self._next = self._next, None
        if due is not None:
            due.cancel()

    def _is_near(self) -> bool:
        """Whether a step is scheduled within PAUSE_MS."""
        return self._next is not None and self._next.when() <= self._loop.time() + PAUSE_MS / 1000

    def _run(self) -> None:
        """Run a step now, in place of the scheduled one; its exceptions are logged."""
        self.stop()
        run_logging_errors(self._run_step, self._name)

    def _run_step(self) -> None:
        """Run a step, and schedule the next one if it asks for that."""
        wait_ms = self._step()
        if wait_ms is not None:
            self._schedule(wait_ms)

    def _schedule(self, wait_ms: int) -> None:
        """Schedule a step in `wait_ms`, in place of the scheduled one; no-op once `is_over`."""
        self.stop()
        if not self._is_over():
            self._next = self._loop.call_later(wait_ms / 1000, self._run)
