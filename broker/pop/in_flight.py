"""How many messages of each group are popped and not handled yet: a figure for operators.

Owns counts by the second in which their invisible time is over; what is over is in flight no more,
so that the figure is right again after whatever was not counted: a restart, an acknowledgement that
came twice. It must never decide anything. Fed by the handlers of pop, asked by the runtime table
and by the lags of groups.
"""

from collections import Counter
from collections.abc import Callable
from typing import Final, NamedTuple

from turbopump.broker.pop.hand_outs import PoppedQueue
from turbopump.engine.types import QueueOffset

SECOND: Final = 1_000
FORGET_MS: Final = 60_000
"""So seldom what is over is looked for where no figure is asked: not between two things that native
code counted at once, of which the first may look over before the second is known."""

Pair = tuple[str, str]
"""Group, and topic or retry topic."""


class InFlightCount(NamedTuple):
    """Of one group in one topic; `oldest` are places, the message that was stored first is at one
    of them or behind it."""

    messages: int
    oldest: list[tuple[int, QueueOffset]]


class InFlight:
    """Counts by group and topic. Loop thread only. Times are epoch ms; each has at most as many
    counts as the longest invisible time has seconds."""

    def __init__(self) -> None:
        self.collect: Callable[[], None] = lambda: None
        """Has all counted that was handled natively."""
        self._counts: dict[Pair, Counter[int]] = {}
        self._first: dict[Pair, dict[int, tuple[int, QueueOffset]]] = {}
        """Where the first message of each count was popped."""
        self._looked: dict[Pair, int] = {}

    def popped(
        self, queue: PoppedQueue, first: QueueOffset, until_ms: int, count: int, now_ms: int
    ) -> None:
        """Messages of a queue, from `first` on, are hidden until a time. What was handled natively
        before is counted first: one that was acknowledged twice is none of these."""
        self.collect()
        pair, second = (queue.group, queue.topic), until_ms // SECOND
        self._counts.setdefault(pair, Counter())[second] += count
        self._first.setdefault(pair, {}).setdefault(second, (queue.queue_id, first))
        if now_ms - self._looked.setdefault(pair, now_ms) >= FORGET_MS:
            self._forget(pair, now_ms)

    def handled(self, group: str, topic: str, until_ms: int, count: int) -> None:
        """Of those, so many are hidden until then no more."""
        self.collect()
        counts, second = self._counts.get((group, topic)), until_ms // SECOND
        if counts is not None and counts[second]:
            counts[second] = max(0, counts[second] - count)

    def counted(
        self,
        pair: Pair,
        until_ms: int,
        floor: int,
        change: int,
        first: tuple[int, QueueOffset] | None,
        now_ms: int,
    ) -> None:
        """What came of native pops and acknowledgements, in their order: the count is the greater
        one of `floor` and of what it was and `change`. `first` is what was popped first."""
        counts, second = self._counts.get(pair), until_ms // SECOND
        if first is not None:
            counts = self._counts.setdefault(pair, Counter())
            self._first.setdefault(pair, {}).setdefault(second, first)
        if counts is None:
            return
        left = max(floor, counts[second] + change)
        if left or first is not None or second in counts:
            counts[second] = left
        if first is not None and now_ms - self._looked.setdefault(pair, now_ms) >= FORGET_MS:
            self._forget(pair, now_ms)

    def counts(self, now_ms: int) -> Counter[str]:
        """Of each group; what is left of a handled or expired one is forgotten."""
        self.collect()
        found: Counter[str] = Counter()
        for pair in list(self._counts):
            self._forget(pair, now_ms)
            if pair in self._counts:
                found[pair[0]] += self._counts[pair].total()
        return found

    def of(self, group: str, topic: str, now_ms: int) -> InFlightCount:
        """Of one group in one topic."""
        self.collect()
        pair = group, topic
        if pair in self._counts:
            self._forget(pair, now_ms)
        if pair not in self._counts:
            return InFlightCount(0, [])
        places: dict[int, QueueOffset] = {}
        for queue_id, first in self._first[pair].values():
            places[queue_id] = min(first, places.get(queue_id, first))
        return InFlightCount(self._counts[pair].total(), list(places.items()))

    def _forget(self, pair: Pair, now_ms: int) -> None:
        self._looked[pair] = now_ms
        counts, first = self._counts[pair], self._first[pair]
        for second in [at for at, left in counts.items() if not left or at < now_ms // SECOND]:
            del counts[second]
            first.pop(second, None)
        if not counts:
            del self._counts[pair], self._first[pair], self._looked[pair]
