"""Measures how long this process was suspended: stopped, starved, or on a suspended machine.

Owns the record of its own ticks and the judgement that this member should not lead. It must never
know the meaning of a lead.

A leading controller that runs only for a part of each second reads, grants leases and notices
silent brokers late. Then another member is asked to lead, once in some minutes: if all members are
suspended often, a lead that moved around would restart every timeout.
"""

from collections import deque
from typing import Final

STALL_MS: Final = 250
"""Gap between two ticks that counts as a stall; ticks come every 20 ms."""
WINDOW_MS: Final = 10_000
"""Time before now in which stalls count."""
SHARE_MAX: Final = 0.3
"""Fraction of WINDOW_MS that stalls take when another member should lead."""
AGAIN_MS: Final = 300_000
"""Least interval between two hand-overs of the leadership by this process."""


class PauseDetector:
    """The stalls of this process; see the module. Times are of the monotonic clock."""

    def __init__(self) -> None:
        self._ticked_ms: int | None = None
        self._found: deque[tuple[int, int]] = deque()
        """(end, length) of each stall in ms: at most 40 in a window."""
        self._handed_ms: int | None = None

    def on_tick(self, now_ms: int) -> None:
        """Record a tick at `now_ms`: a longer gap than STALL_MS since the last tick counts as a
        stall."""
        if self._ticked_ms is not None and now_ms - self._ticked_ms > STALL_MS:
            self._found.append((now_ms, now_ms - self._ticked_ms))
        self._ticked_ms = now_ms
        while self._found and self._found[0][0] <= now_ms - WINDOW_MS:
            self._found.popleft()

    @property
    def stood_ms(self) -> int:
        """Sum of the stalls' lengths that ended within WINDOW_MS before the last tick."""
        return sum(length_ms for _, length_ms in self._found)

    def is_unfit(self, now_ms: int) -> bool:
        """Whether another member should lead: at least two stalls took SHARE_MAX of WINDOW_MS, and
        the last hand-over is AGAIN_MS ago.

        A single stall means little, however long, because its cause has passed.
        """
        if len(self._found) < 2 or self.stood_ms < SHARE_MAX * WINDOW_MS:
            return False
        return self._handed_ms is None or now_ms - self._handed_ms >= AGAIN_MS

    def note_transfer(self, now_ms: int) -> None:
        """Record that another member was asked to lead at `now_ms`: for AGAIN_MS `is_unfit` is
        False."""
        self._handed_ms = now_ms
