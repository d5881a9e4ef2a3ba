"""The time up to which every acknowledgement can be read from the revive queues.

An acknowledgement is stored among the timers, becomes readable there, is delivered to the revive
queue, and becomes readable there. A record is readable once it is as safe as the store is
configured to make it. This module follows each step by samples of time and log end. The result must
never run ahead: a message could then be acknowledged and still look unacknowledged (I16).

Tests: tests/unit/broker/pop/test_revive.py
"""

from collections.abc import Callable
from typing import Final

from turbopump.engine.store import Store

SAMPLES_MAX: Final = 1_024
"""Maximum number of samples (time, log end) kept while their log end is not readable; beyond it
every second sample is dropped, which makes the result older but never wrong."""


class _ReadableTime:
    """Samples of (time, log end), until that end can be read; has the time of the newest sample
    that can."""

    def __init__(self) -> None:
        self._samples: list[tuple[int, int]] = []
        self._time_ms = 0

    def add_sample(self, time_ms: int, end: int, readable: int) -> int:
        """Add a sample: records appended by `time_ms` end at `end` in the log. Return the time of
        the newest sample whose end is at most `readable`."""
        self._samples.append((time_ms, end))
        passed = 0
        for at_ms, at in self._samples:
            if at > readable:
                break
            self._time_ms, passed = at_ms, passed + 1
        del self._samples[:passed]
        if len(self._samples) > SAMPLES_MAX:
            del self._samples[::2]
        return self._time_ms


class AckWatermark:
    """Computes the time up to which every acknowledgement can be read from the revive queues (the
    settled time), from samples of the log's end. `delivered_ms(now_ms)` returns the time in epoch
    ms up to which the readable timers were delivered. Loop thread only."""

    def __init__(self, store: Store, delivered_ms: Callable[[int], int]) -> None:
        self._store = store
        self._delivered_ms = delivered_ms
        self._stored, self._delivered = _ReadableTime(), _ReadableTime()
        self._now_ms = 0

    def drop_samples(self) -> None:
        """Drop all samples, because the role of this broker changed."""
        self._stored, self._delivered = _ReadableTime(), _ReadableTime()

    def take_sample(self, now_ms: int) -> int:
        """Take a sample at `now_ms` (epoch ms), and return the settled time: epoch ms up to which
        every acknowledgement can be read, 0 before the first such sample."""
        if now_ms < self._now_ms:
            self.drop_samples()  # the clock went back: older samples belong to times to come
        self._now_ms = now_ms
        store = self._store
        readable = min(store.dispatched_log_offset, store.confirm_log_offset)
        end = store.max_log_offset
        stored_ms = self._stored.add_sample(now_ms, end, readable)
        due_ms = min(stored_ms, self._delivered_ms(now_ms))
        return self._delivered.add_sample(due_ms, end, readable)
