"""Up to which time all acknowledgements can be read.

Owns the way of an acknowledgement as time sees it: stored among the timers, readable there,
delivered to the revive queue, readable there. What was appended is not readable before it is as
safe as the store is set to make it. It must never run ahead: beyond this time a message may be
acknowledged and look as if it was not (I16). Called by service.py.
"""

from collections.abc import Callable
from typing import Final

from turbopump.engine.store import Store

SAMPLES_MAX: Final = 1_024
"""Samples that wait; of more every other one goes."""


class _Passed:
    """The time of the newest sample whose end of the log can be read."""

    def __init__(self) -> None:
        self._samples: list[tuple[int, int]] = []
        self._time_ms = 0

    def add(self, time_ms: int, end: int, readable: int) -> int:
        """What was appended by `time_ms` ends at `end`; the time of the newest that is readable."""
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


class SettledTime:
    """That time, step by step. `delivered_ms` says up to when the timers that can be read were
    delivered. Loop thread only."""

    def __init__(self, store: Store, delivered_ms: Callable[[int], int]) -> None:
        self._store = store
        self._delivered_ms = delivered_ms
        self._stored, self._delivered = _Passed(), _Passed()
        self._now_ms = 0

    def forget(self) -> None:
        """Another broker is the master, or was."""
        self._stored, self._delivered = _Passed(), _Passed()

    def step(self, now_ms: int) -> int:
        """The time as it is now, in ms."""
        if now_ms < self._now_ms:
            self.forget()  # the clock went back: samples of before are of a time that comes again
        self._now_ms = now_ms
        store = self._store
        readable = min(store.dispatched_log_offset, store.confirm_log_offset)
        end = store.max_log_offset
        stored_ms = self._stored.add(now_ms, end, readable)
        due_ms = min(stored_ms, self._delivered_ms(now_ms))
        return self._delivered.add(due_ms, end, readable)
