"""Counts of messages in flight (popped, not acknowledged) of each group, for operators.

Messages are counted by the second in which their invisible time ends, and forgotten after it. So
the figure becomes right again after uncounted events: a restart, or an acknowledgement received
twice. No decision depends on these counts.

Tests: tests/unit/broker/pop/test_lag.py
"""

from collections import Counter
from collections.abc import Callable
from typing import Final, NamedTuple

from turbopump.broker.pop.outstanding import PoppedQueue
from turbopump.engine.types import QueueOffset

SECOND: Final = 1_000
"""A second in ms, the resolution of the counts."""
FORGET_MS: Final = 60_000
"""Interval in ms between sweeps of expired counts while no figure is requested. A sweep does not
run between two events that native code reported together: the first could be dropped before the
second is counted."""

Pair = tuple[str, str]
"""(group, topic or retry topic)."""


class InFlightCount(NamedTuple):
    """Messages in flight of a group in one topic. `oldest` contains one place (queue id, queue
    offset) of each queue, in no order; the message stored first is at one of these places or later
    in that queue."""

    messages: int
    oldest: list[tuple[int, QueueOffset]]


class InFlight:
    """Counts of messages in flight (popped, not acknowledged) by group and topic. Loop thread only.
    Times are epoch ms; each pair has at most as many counts as the longest invisible time has
    seconds."""

    def __init__(self, collect: Callable[[], None]) -> None:
        """`collect` reports the events that native code has handled, to be counted."""
        self._collect = collect
        self._counts: dict[Pair, Counter[int]] = {}
        self._first: dict[Pair, dict[int, tuple[int, QueueOffset]]] = {}
        """Place of the first message popped for each count."""
        self._looked: dict[Pair, int] = {}

    def count_popped(
        self, queue: PoppedQueue, first: QueueOffset, until_ms: int, count: int, now_ms: int
    ) -> None:
        """Count `count` messages of a queue, the first at offset `first`, as hidden until
        `until_ms`. Native events are counted first: an acknowledgement received twice must not
        reduce this count."""
        self._collect()
        pair, second = (queue.group, queue.topic), until_ms // SECOND
        self._counts.setdefault(pair, Counter())[second] += count
        self._first.setdefault(pair, {}).setdefault(second, (queue.queue_id, first))
        if now_ms - self._looked.setdefault(pair, now_ms) >= FORGET_MS:
            self._drop_expired(pair, now_ms)

    def count_acked(self, group: str, topic: str, until_ms: int, count: int) -> None:
        """Subtract `count` acknowledged messages that were hidden until `until_ms`, which must be
        the value given to `count_popped`; a count never drops under 0."""
        self._collect()
        counts, second = self._counts.get((group, topic)), until_ms // SECOND
        if counts is not None and counts[second]:
            counts[second] = max(0, counts[second] - count)

    def apply_native(
        self,
        pair: Pair,
        until_ms: int,
        floor: int,
        change: int,
        first: tuple[int, QueueOffset] | None,
        now_ms: int,
    ) -> None:
        """Apply native pops and acknowledgements, in their order, to the messages of `pair` hidden
        until `until_ms`: the new count is the greater of `floor` and the old count plus `change`.
        `first` is (queue id, queue offset) of the first message popped, None if none was popped."""
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
            self._drop_expired(pair, now_ms)

    def counts_by_group(self, now_ms: int) -> Counter[str]:
        """Return, by group, the number of its messages in flight in all topics, without groups that
        have none. Expired counts are removed."""
        self._collect()
        found: Counter[str] = Counter()
        for pair in list(self._counts):
            self._drop_expired(pair, now_ms)
            if pair in self._counts:
                found[pair[0]] += self._counts[pair].total()
        return found

    def count_of(self, group: str, topic: str, now_ms: int) -> InFlightCount:
        """Return the count and the oldest places of a group's messages in flight in one topic; (0,
        []) without any. A retry topic is counted under its own name."""
        self._collect()
        pair = group, topic
        if pair in self._counts:
            self._drop_expired(pair, now_ms)
        if pair not in self._counts:
            return InFlightCount(0, [])
        places: dict[int, QueueOffset] = {}
        for queue_id, first in self._first[pair].values():
            places[queue_id] = min(first, places.get(queue_id, first))
        return InFlightCount(self._counts[pair].total(), list(places.items()))

    def _drop_expired(self, pair: Pair, now_ms: int) -> None:
        """Remove the counts of a pair (group, topic) that are expired or 0."""
        self._looked[pair] = now_ms
        counts, first = self._counts[pair], self._first[pair]
        for second in [at for at, left in counts.items() if not left or at < now_ms // SECOND]:
            del counts[second]
            first.pop(second, None)
        if not counts:
            del self._counts[pair], self._first[pair], self._looked[pair]
