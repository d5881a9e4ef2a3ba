"""Whether the disk of a log is too slow for sends that wait for a sync.

Owns that verdict. It must never look at a clock or at the disk: times are arguments.

A send may wait for two syncs: the one under way when its message arrives, and its own. A producer
waits 3 s by default, so syncs of SLOW_MS leave a send no time. A few slow syncs happen on any disk
and on a busy machine, so the verdict needs several of them, and a longer time of fast syncs ends
it:

    from fast to slow   SLOW_SYNCS slow syncs in a row; fast ones end the row after RESPITE_MS
    from slow to fast   RECOVERY_MS in which each sync took less than FAST_MS

A sync counts as slow from SLOW_MS on, also while it is under way. Without syncs the verdict stays.
"""

import logging

from turbopump.engine.types import LONG_AGO_MS

logger = logging.getLogger(__name__)

SLOW_MS = 1_500
"""Duration from which a sync is slow: half of sendMsgTimeout of RocketMQ's producers, because a
send may wait for two syncs."""
FAST_MS = 750
"""Duration below which a sync is fast. Half of SLOW_MS: the verdict on a disk whose syncs take
about SLOW_MS does not alternate."""
SLOW_SYNCS = 3
"""Number of slow syncs in a row that make the verdict slow."""
RESPITE_MS = 3_000
"""Time after the last slow sync from which a sync that is not slow ends a row of slow ones. It does
not earlier, because a disk that stalls again and again has fast syncs between the stalls."""
RECOVERY_MS = 30_000
"""Time in which all syncs were fast that makes a slow verdict fast."""


class SyncPace:
    """The verdict on a log, whose syncs follow one another. `now_ms` is the steady clock; `took_ms`
    is the time of a sync less the time that its bytes need (SyncWatch.late_ms)."""

    def __init__(self) -> None:
        self.slow: bool | None = None
        """Whether syncs take too long for sends. None: unknown, because no sync returned yet, or
        the last ones were not fast, but too few of them slow."""
        self._row = 0
        self._counted = False
        """Whether the row includes the sync that is under way."""
        self._slow_ms = LONG_AGO_MS
        """When a slow sync was last under way."""
        self._fast_since_ms: int | None = None

    def judge_running(self, took_ms: int, now_ms: int) -> None:
        """Judge the sync under way, which has not returned after `took_ms`: from SLOW_MS on it
        counts as slow, once. Call it at each tick."""
        if took_ms < SLOW_MS:
            return
        self._slow_ms, self._fast_since_ms = now_ms, None
        if self._counted:
            return
        self._counted = True
        self._row += 1
        if self.slow:
            return
        self.slow = None
        if self._row >= SLOW_SYNCS:
            self.slow = True
            logger.warning(
                "the disk of the log is slow: %d syncs took over %d ms each, so that sends with a"
                " timeout of %d ms fail",
                SLOW_SYNCS,
                SLOW_MS,
                2 * SLOW_MS,
            )

    def judge_ended(self, took_ms: int, now_ms: int) -> None:
        """Judge a sync that returned after `took_ms`: the verdict `slow` may change to either
        side."""
        self.judge_running(took_ms, now_ms)
        counted, self._counted = self._counted, False
        if counted:
            return
        if took_ms >= FAST_MS:
            self._fast_since_ms = None
        elif self._fast_since_ms is None:
            self._fast_since_ms = now_ms
        if not self.slow:
            if now_ms - self._slow_ms >= RESPITE_MS:
                self._row = 0
            self.slow = None if self._row or took_ms >= FAST_MS else False
        elif self._fast_since_ms is not None and now_ms - self._fast_since_ms >= RECOVERY_MS:
            self._row, self.slow = 0, False
            logger.warning("the disk of the log is fast again: no slow sync for %d ms", RECOVERY_MS)
