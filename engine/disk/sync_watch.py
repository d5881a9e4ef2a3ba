"""How long a sync has been under way: when it is logged, when it counts as failed.

Owns the time that it took so far, and the two limits. It must never look at a clock or at the disk:
time is what passed from tick to tick. Called by the group commit and the checkpointer.

A sync that does not return counts as failed syncTimeoutMs after it began, and as much later as its
bytes need at SYNC_BYTES_MS. Of several syncs in a row each has that time.
"""

import errno
import logging

from turbopump.engine.config import StoreConfig

logger = logging.getLogger(__name__)

# A slow disk that works writes so many bytes a millisecond: 16 MiB/s.
SYNC_BYTES_MS = 16 << 10
# A sync that has not returned by then is logged.
SLOW_SYNC_MS = 1_000
# What a sync is known to have taken longer from one tick to the next: of a process that stood still
# the disk may have answered long ago.
TICK_MAX_MS = 500


class SyncWatch:
    """Of the syncs of one lane."""

    def __init__(self, what: str, config: StoreConfig) -> None:
        """`what` the syncs are of, for the operator."""
        self._what = what
        self._config = config
        self._took_ms = self._bytes = 0
        self._returned = self._seen = 0

    def begin(self, size: int) -> None:
        """A sync begins, of so many bytes, or several of so many together."""
        self._took_ms, self._bytes = 0, size

    def returned(self) -> None:
        """One of several syncs is over, the next one begins. Called by a disk's thread."""
        self._returned += 1

    @property
    def late_ms(self) -> int:
        """The time of the sync so far, less the time that its bytes need."""
        return max(self._took_ms - self._bytes // SYNC_BYTES_MS, 0)

    def passed(self, passed_ms: int) -> OSError | None:
        """So much time passed while a sync was under way; the failure that it counts as by now."""
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
