"""Duration of a sync under way: when it is logged, and when it counts as failed.

Owns the elapsed time and the two limits. It must never read a clock or ask the disk: elapsed time
is counted from tick to tick.

    idle --begin--> under way --1 s--> slow, logged --limit--> failed

A sync that does not return counts as failed syncTimeoutMs after it began, plus the time for its
bytes at SYNC_BYTES_MS. Each of several successive syncs has that time.
"""

import errno
import logging

from turbopump.engine.config import StoreConfig

logger = logging.getLogger(__name__)

SYNC_BYTES_MS = 16 << 10
"""Bytes that a slow but working disk writes per millisecond: 16 MiB/s."""
SLOW_SYNC_MS = 1_000
"""Time after which a sync that has not returned is logged."""
TICK_MAX_MS = 500
"""Maximum time counted from one tick to the next: the process may have stood still while the disk
answered."""


class SyncWatch:
    """Time limit of syncs that follow one another; it asks no clock."""

    def __init__(self, what: str, config: StoreConfig) -> None:
        """`what` names the synced data in log lines and errors: "the log"."""
        self._what = what
        self._config = config
        self._took_ms = self._bytes = 0
        self._returned = self._seen = 0

    def begin_sync(self, size: int) -> None:
        """Begin to time, at 0 ms, a sync or several successive syncs of `size` bytes together."""
        self._took_ms, self._bytes = 0, size

    def note_sync_ended(self) -> None:
        """Note, on any thread, that a sync of several has ended and the next sync begins, which has
        the whole time limit again."""
        self._returned += 1

    @property
    def late_ms(self) -> int:
        """Milliseconds that the sync has taken by the last `add_elapsed`, less the time that its
        bytes need; at least 0."""
        return max(self._took_ms - self._bytes // SYNC_BYTES_MS, 0)

    def add_elapsed(self, passed_ms: int) -> OSError | None:
        """Add `passed_ms` (at most TICK_MAX_MS of it) to the time of the sync under way. Returns,
        and does not raise, a TimeoutError once the limit is reached, else None."""
        if self._returned != self._seen:
            self._seen, self._took_ms = self._returned, 0
            return None
        before_ms, self._took_ms = self._took_ms, self._took_ms + min(passed_ms, TICK_MAX_MS)
        limit_ms = self._config.sync_timeout_ms + self._bytes // SYNC_BYTES_MS
        if before_ms < SLOW_SYNC_MS <= self._took_ms:
            logger.warning(
                "a sync of %s has not returned for %d ms, %d bytes; after %d ms it counts as"
                " failed",
                self._what,
                self._took_ms,
                self._bytes,
                limit_ms,
            )
        if self._took_ms < limit_ms:
            return None
        text = f"a sync of {self._what} has not returned for {self._took_ms} ms (syncTimeoutMs)"
        return TimeoutError(errno.ETIMEDOUT, text)
