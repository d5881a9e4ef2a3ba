"""Consumption rates of a consumer, for GET_CONSUMER_RUNNING_INFO.

Owns counters for each topic over a moving minute. It must never read a clock.

Tests: tests/unit/net/client/test_small_parts.py
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

WINDOW_MS: Final = 60_000
"""Milliseconds over which rates are computed."""
BUCKET_MS: Final = 10_000
"""Milliseconds that are counted together; older counters leave the window bucket by bucket."""


@dataclass(slots=True)
class _Bucket:
    """The counts of a topic from `begin_ms` (monotonic clock) on."""

    begin_ms: int
    ok: int = 0
    failed: int = 0
    pulled: int = 0
    pulls: int = 0
    handling_ms: int = 0
    pulling_ms: int = 0


@dataclass(frozen=True, slots=True)
class Rates:
    """Rates of a topic over the last minute.

    `ok_tps` and `failed_tps`: messages handled per second, by result; `pull_tps`: messages pulled
    per second; `handling_ms` and `pulling_ms`: average milliseconds of a handler's run and of a
    pull; `failed_count`: messages that failed in the minute.
    """

    ok_tps: float = 0.0
    failed_tps: float = 0.0
    pull_tps: float = 0.0
    handling_ms: float = 0.0
    pulling_ms: float = 0.0
    failed_count: int = 0


@dataclass(slots=True)
class TopicRates:
    """Counters of each subscribed topic (client/stat/ConsumerStatsManager). `now_ms` is of the
    monotonic clock."""

    _buckets: dict[str, deque[_Bucket]] = field(default_factory=dict)

    def count_handled(self, topic: str, ok: bool, took_ms: int, now_ms: int) -> None:
        """Count a message of `topic` whose handler returned at `now_ms` after `took_ms`; `ok`: it
        was acknowledged."""
        bucket = self._current_bucket(topic, now_ms)
        bucket.handling_ms += took_ms
        if ok:
            bucket.ok += 1
        else:
            bucket.failed += 1

    def count_pulled(self, topic: str, count: int, took_ms: int, now_ms: int) -> None:
        """Count a pull that returned `count` messages at `now_ms` after `took_ms`."""
        bucket = self._current_bucket(topic, now_ms)
        bucket.pulls += 1
        bucket.pulled += count
        bucket.pulling_ms += took_ms

    def read(self, topic: str, now_ms: int) -> Rates:
        """The rates of a topic; zeros for an unknown topic."""
        buckets = [
            bucket
            for bucket in self._buckets.get(topic, ())
            if now_ms - bucket.begin_ms < WINDOW_MS
        ]
        if not buckets:
            return Rates()
        seconds = max(BUCKET_MS, now_ms - buckets[0].begin_ms) / 1000
        ok = sum(bucket.ok for bucket in buckets)
        failed = sum(bucket.failed for bucket in buckets)
        pulls = sum(bucket.pulls for bucket in buckets)
        return Rates(
            ok_tps=ok / seconds,
            failed_tps=failed / seconds,
            pull_tps=sum(bucket.pulled for bucket in buckets) / seconds,
            handling_ms=sum(bucket.handling_ms for bucket in buckets) / max(1, ok + failed),
            pulling_ms=sum(bucket.pulling_ms for bucket in buckets) / max(1, pulls),
            failed_count=failed,
        )

    def forget_topic(self, topic: str) -> None:
        """Drop the counters of a topic that is no longer subscribed."""
        self._buckets.pop(topic, None)

    def _current_bucket(self, topic: str, now_ms: int) -> _Bucket:
        """Return the topic's counters of the current BUCKET_MS, begun if necessary."""
        buckets = self._buckets.setdefault(topic, deque(maxlen=WINDOW_MS // BUCKET_MS))
        if not buckets or now_ms - buckets[-1].begin_ms >= BUCKET_MS:
            buckets.append(_Bucket(now_ms))
        return buckets[-1]
