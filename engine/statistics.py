"""Counters of a store, and their recent samples.

Owns the numbers of GET_BROKER_RUNTIME_INFO (RocketMQ: store/StoreStatsService, BrokerStats). It
must never read a clock.

Tests: tests/unit/broker/handlers/admin/test_broker.py
"""

from collections import deque
from dataclasses import dataclass, field

from turbopump.pyx.lane import Lane
from turbopump.pyx.pulls import Pulls

SAMPLE_MS = 1000
# Rates are computed over 10, 60 and 600 seconds: one sample a second for the longest interval.
SAMPLES_MAX = 601


@dataclass(slots=True)
class Counters:
    """Totals since the store was opened; the put of a batch counts each of its messages."""

    put_count: int = 0
    put_size: int = 0
    put_failed_count: int = 0
    found_count: int = 0
    miss_count: int = 0
    transferred_count: int = 0

    def copy(self) -> "Counters":
        """A copy of the current totals."""
        return Counters(
            self.put_count,
            self.put_size,
            self.put_failed_count,
            self.found_count,
            self.miss_count,
            self.transferred_count,
        )


@dataclass(slots=True)
class StoreStatistics:
    """Totals, per topic totals of puts, and moving rates."""

    started_ms: int = 0
    lane: Lane | None = None
    """The native writer; its own counts are added here when the totals are read."""
    pulls: list[Pulls] = field(default_factory=list)
    """The native readers, likewise."""
    _total: Counters = field(default_factory=Counters)
    _put_count_by_topic: dict[str, int] = field(default_factory=dict)
    _put_size_by_topic: dict[str, int] = field(default_factory=dict)
    _samples: deque[tuple[int, Counters]] = field(default_factory=lambda: deque(maxlen=SAMPLES_MAX))

    @property
    def total(self) -> Counters:
        """The totals since the store was opened."""
        if self.lane is not None:
            count, size = self.lane.take_totals()
            self._total.put_count += count
            self._total.put_size += size
        for pulls in self.pulls:
            self._total.found_count += pulls.found_count
            self._total.transferred_count += pulls.transferred_count
            pulls.found_count = pulls.transferred_count = 0
        return self._total

    @property
    def put_count_by_topic(self) -> dict[str, int]:
        """Messages put, by topic."""
        self._take_topics()
        return self._put_count_by_topic

    @property
    def put_size_by_topic(self) -> dict[str, int]:
        """Bytes of the records put, by topic."""
        self._take_topics()
        return self._put_size_by_topic

    def put(self, topic: str, count: int, size: int) -> None:
        """Count `count` appended messages of `size` bytes in all."""
        self._total.put_count += count
        self._total.put_size += size
        self._add(topic, count, size)

    def put_failed(self) -> None:
        """Count a refused append."""
        self._total.put_failed_count += 1

    def read(self, count: int) -> None:
        """Count a read that found `count` messages."""
        if count:
            self._total.found_count += 1
            self._total.transferred_count += count
        else:
            self._total.miss_count += 1

    def forget_topic(self, topic: str) -> None:
        """Drop the counts of a deleted topic."""
        self.put_count_by_topic.pop(topic, None)
        self._put_size_by_topic.pop(topic, None)

    def _take_topics(self) -> None:
        if self.lane is not None:
            for topic, (count, size) in self.lane.take_topics().items():
                self._add(topic.decode(), count, size)

    def _add(self, topic: str, count: int, size: int) -> None:
        counts, sizes = self._put_count_by_topic, self._put_size_by_topic
        counts[topic] = counts.get(topic, 0) + count
        sizes[topic] = sizes.get(topic, 0) + size

    def tick(self, steady_ms: int) -> None:
        """Keep a sample each second."""
        if self._samples and steady_ms - self._samples[-1][0] < SAMPLE_MS:
            return
        self._samples.append((steady_ms, self.total.copy()))

    def rate(self, counter: str, seconds: int) -> float:
        """Growth of a counter per second over the last `seconds` (or since the start)."""
        if len(self._samples) < 2:
            return 0.0
        newest_ms, newest = self._samples[-1]
        oldest_ms, oldest = self._samples[max(0, len(self._samples) - 1 - seconds)]
        grown: int = getattr(newest, counter) - getattr(oldest, counter)
        return grown * 1000 / max(1, newest_ms - oldest_ms)
