"""Settings of the garbage collector in a process that serves: full collections stay short.

Owns the collector's settings. It must never start a collection.

A full collection visits every object: with 60,000 registered topics that takes 30 to 50 ms, with
ten times the topics ten times as long, and the loop serves no peer meanwhile. The rows of tables
need no collector, because they are in no reference cycle; nor is a closed connection
(net/transport/closed_link.py). So each object that survived one long collection is frozen: later
collections do not visit it, and each takes as long as the objects created since the last one.
"""

import gc
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

FROZEN_OVER_MS: Final = 5.0
"""Duration above which a full collection freezes the objects it found alive; it visited some
50,000. After a shorter one all objects stay visible, so that cycles among them are still freed.
"""

_FULL: Final = 2


def _clock_ms() -> float:
    return time.perf_counter() * 1000


class GcTuning:
    """A callback of the collector that freezes objects after each full collection of over
    FROZEN_OVER_MS. `clock_ms` is a monotonic clock."""

    def __init__(self, clock_ms: Callable[[], float] = _clock_ms) -> None:
        self._clock_ms = clock_ms
        self._began_ms = 0.0

    def begin_freezing(self) -> None:
        """Register this callback, and freeze all objects of imports and of the start: they live as
        long as the process."""
        gc.freeze()
        gc.callbacks.append(self)

    def end_freezing(self) -> None:
        """Stop freezing, and make all frozen objects visible to the collector."""
        gc.callbacks.remove(self)
        gc.unfreeze()

    def __call__(self, phase: str, info: Mapping[str, Any]) -> None:
        """Called by the collector at the start and stop of each collection."""
        if info["generation"] < _FULL:
            return
        if phase == "start":
            self._began_ms = self._clock_ms()
        elif self._clock_ms() - self._began_ms > FROZEN_OVER_MS:
            gc.freeze()
