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
"""Minimum steady time between two samples."""
SAMPLES_MAX = 601
"""Number of the newest samples that are kept: rates are computed over 10, 60 and 600 seconds."""


@dataclass(slots=True)
class Counters:
    """Totals of appended and read messages of a store since it was opened."""

    put_count: int = 0
    """Appended messages; a batch counts each of its messages."""
    put_size: int = 0
    """Bytes of the records of these messages."""
    put_failed_count: int = 0
    """Refused appends; a batch counts once."""
    found_count: int = 0
    """Reads that found messages."""
    miss_count: int = 0
    """Reads that found no message."""
    transferred_count: int = 0
    """Messages that reads returned."""

    def copy(self) -> "Counters":
        """A copy, which later puts and reads do not change."""
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
    """Counts of a store's puts and reads: totals, puts by topic, and rates over recent samples."""

    started_ms: int = 0
    """Time at which the store was opened, in epoch ms."""
    lane: Lane | None = None
    """The native writer: its counts are moved to the totals here when these are read."""
    pulls: list[Pulls] = field(default_factory=list)
    """The native readers, whose counts are moved likewise."""
    _total: Counters = field(default_factory=Counters)
    _put_count_by_topic: dict[str, int] = field(default_factory=dict)
    _put_size_by_topic: dict[str, int] = field(default_factory=dict)
    _samples: deque[tuple[int, Counters]] = field(default_factory=lambda: deque(maxlen=SAMPLES_MAX))

    @property
    def total(self) -> Counters:
        """The totals with the counts of the native paths; the object changes with later puts and
        reads."""
        if self.lane is not None:
            count, size = self.lane.take_totals()
            self._total.put_count += count
            self._total.put_size += size
        for pulls in self.pulls:
            self._total.found_count += pulls.found_count
            self._total.miss_count += pulls.missed_count
            self._total.transferred_count += pulls.transferred_count
            pulls.found_count = pulls.missed_count = pulls.transferred_count = 0
        return self._total

    @property
    def put_count_by_topic(self) -> dict[str, int]:
        """Topic to appended messages; the dict itself, which later puts change."""
        self._add_native_counts()
        return self._put_count_by_topic

    @property
    def put_size_by_topic(self) -> dict[str, int]:
        """Topic to bytes of the appended records; the dict itself, which later puts change."""
        self._add_native_counts()
        return self._put_size_by_topic

    def put(self, topic: str, count: int, size: int) -> None:
        """Count `count` appended messages whose records have `size` bytes together."""
        self._total.put_count += count
        self._total.put_size += size
        self._add(topic, count, size)

    def count_refused_put(self) -> None:
        """Count a refused append."""
        self._total.put_failed_count += 1

    def read(self, count: int) -> None:
        """Count a read that returned `count` messages; 0: a miss."""
        if count:
            self._total.found_count += 1
            self._total.transferred_count += count
        else:
            self._total.miss_count += 1

    def forget_topic(self, topic: str) -> None:
        """Drop the counts by topic of a deleted topic; `total` stays."""
        self.put_count_by_topic.pop(topic, None)
        self._put_size_by_topic.pop(topic, None)

    def _add_native_counts(self) -> None:
        """Add the counts by topic of the native path since the last call."""
        if self.lane is not None:
            for topic, (count, size) in self.lane.take_topics().items():
                self._add(topic.decode(), count, size)

    def _add(self, topic: str, count: int, size: int) -> None:
        """Count `count` messages of a topic whose records have `size` bytes together."""
        counts, sizes = self._put_count_by_topic, self._put_size_by_topic
        counts[topic] = counts.get(topic, 0) + count
        sizes[topic] = sizes.get(topic, 0) + size

    def tick(self, steady_ms: int) -> None:
        """Take a sample of the totals if the last sample is SAMPLE_MS old; call it at least each
        second, with the steady clock."""
        if self._samples and steady_ms - self._samples[-1][0] < SAMPLE_MS:
            return
        self._samples.append((steady_ms, self.total.copy()))

    def rate(self, counter: str, seconds: int) -> float:
        """Growth per second of a counter, named by its attribute of `Counters`, over the last
        `seconds` samples, or over all samples if they are fewer; 0.0 with fewer than two."""
        if len(self._samples) < 2:
            return 0.0
        newest_ms, newest = self._samples[-1]
        oldest_ms, oldest = self._samples[max(0, len(self._samples) - 1 - seconds)]
        grown: int = getattr(newest, counter) - getattr(oldest, counter)
        return grown * 1000 / max(1, newest_ms - oldest_ms)
