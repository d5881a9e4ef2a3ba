"""How much of the time this process stood still: stopped, starved, or on a machine that was.

Owns the record of its own ticks and the judgement that it should not lead. It must never know what
a lead is. Called by handlers.py, with each tick.

A leading controller that runs for a part of each second only reads late, grants leases late and
notices a silent broker late. Another one is asked to lead then, once in some minutes: where all of
them stand still, a lead that went round would make every timeout begin anew.
"""

from collections import deque
from typing import Final

STALL_MS: Final = 250
"""Between two ticks, which come each 20 ms."""
WINDOW_MS: Final = 10_000
SHARE_MAX: Final = 0.3
"""Of the window."""
AGAIN_MS: Final = 300_000
"""From one hand-over to the next."""


class Stalls:
    """See the module. Times are of the monotonic clock."""

    def __init__(self) -> None:
        self._ticked_ms: int | None = None
        self._found: deque[tuple[int, int]] = deque()
        """When a stall ended and how long it was: at most 40 in a window."""
        self._handed_ms: int | None = None

    def on_tick(self, now_ms: int) -> None:
        """Time has passed."""
        if self._ticked_ms is not None and now_ms - self._ticked_ms > STALL_MS:
            self._found.append((now_ms, now_ms - self._ticked_ms))
        self._ticked_ms = now_ms
        while self._found and self._found[0][0] <= now_ms - WINDOW_MS:
            self._found.popleft()

    @property
    def stood_ms(self) -> int:
        """So long of the last ten seconds it stood still; more if one stall began before them."""
        return sum(length_ms for _, length_ms in self._found)

    def is_unfit(self, now_ms: int) -> bool:
        """Whether another member should lead. One stall alone says little, however long: what
        stopped is over."""
        if len(self._found) < 2 or self.stood_ms < SHARE_MAX * WINDOW_MS:
            return False
        return self._handed_ms is None or now_ms - self._handed_ms >= AGAIN_MS

    def handed_over(self, now_ms: int) -> None:
        """Another one was asked to lead."""
        self._handed_ms = now_ms
