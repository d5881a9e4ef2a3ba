"""The garbage collector of a process that serves: no collection walks all that its tables hold.

Owns the collector's settings. It must never collect by itself. Called by commands that serve, and
by the walk that measures them.

A full collection looks at every object there is: at those of 60,000 registered topics for 30 to
50 ms, and at ten times as many for ten times as long, while the loop serves no peer. But what
tables hold goes when they drop it, without a collector: their rows are in no cycle, nor is a
connection that has ended (net/transport/gone.py). So what one long collection found alive no later
one looks at, and each takes as long as what came since the one before.
"""

import gc
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

FROZEN_OVER_MS: Final = 5.0
"""A collection that took longer had much to look at: some 50,000 objects. Shorter ones go on
looking at the same, and free what is a cycle among it."""

_FULL: Final = 2


def _clock_ms() -> float:
    return time.perf_counter() * 1000


class Collecting:
    """A callback of the collector."""

    def __init__(self, clock_ms: Callable[[], float] = _clock_ms) -> None:
        self._clock_ms = clock_ms
        self._began_ms = 0.0

    def begin(self) -> None:
        """What was imported and started lives as long as the process: it is not looked at."""
        gc.freeze()
        gc.callbacks.append(self)

    def end(self) -> None:
        """As before `begin`."""
        gc.callbacks.remove(self)
        gc.unfreeze()

    def __call__(self, phase: str, info: Mapping[str, Any]) -> None:
        if info["generation"] < _FULL:
            return
        if phase == "start":
            self._began_ms = self._clock_ms()
        elif self._clock_ms() - self._began_ms > FROZEN_OVER_MS:
            gc.freeze()
