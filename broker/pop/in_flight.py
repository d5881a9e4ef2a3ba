"""How many messages of each group are popped and not handled yet: a figure for operators.

Owns counts by the second in which their invisible time is over; what is over is in flight no more,
so that the figure is right again after whatever was not counted: a restart, an acknowledgement that
came twice. It must never decide anything. Fed by the handlers of pop, asked by the runtime table.
"""

from collections import Counter
from typing import Final

SECOND: Final = 1_000


class InFlight:
    """Counts by group. Loop thread only. Times are epoch ms; a group has at most as many counts as
    the longest invisible time has seconds."""

    def __init__(self) -> None:
        self._groups: dict[str, Counter[int]] = {}
        self._looked: dict[str, int] = {}

    def popped(self, group: str, until_ms: int, count: int, now_ms: int) -> None:
        """Messages are hidden until a time."""
        counts = self._groups.setdefault(group, Counter())
        counts[until_ms // SECOND] += count
        if now_ms - self._looked.get(group, 0) >= SECOND:
            self._forget(group, now_ms)

    def handled(self, group: str, until_ms: int, count: int) -> None:
        """Of those, so many are hidden until then no more."""
        counts, second = self._groups.get(group), until_ms // SECOND
        if counts is not None and counts[second] >= count:
            counts[second] -= count

    def counts(self, now_ms: int) -> Counter[str]:
        """Of each group; what is left of a handled or expired one is forgotten."""
        for group in list(self._groups):
            self._forget(group, now_ms)
        return Counter({group: counts.total() for group, counts in self._groups.items()})

    def _forget(self, group: str, now_ms: int) -> None:
        self._looked[group] = now_ms
        counts = self._groups[group]
        for second in [at for at, left in counts.items() if not left or at < now_ms // SECOND]:
            del counts[second]
        if not counts:
            del self._groups[group]
            del self._looked[group]
