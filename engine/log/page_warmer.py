"""Pages of the log that a disk thread makes present before the writer stores into them.

Owns how far pages are present. It must never change a byte.

The first store into a page of a file costs the writer more than the record it writes; a disk thread
takes that cost over. A log that grows slowly is not warmed: pages made present too early are
written to the disk twice.
"""

import logging
from collections.abc import Callable
from functools import partial

from turbopump.engine.disk.files import MappedFile
from turbopump.engine.disk.flush import Disk, DiskLane

logger = logging.getLogger(__name__)

# Warm a log that grows by at least 10 MB a second (a tick is 100 ms), some ticks ahead: a disk
# thread is quicker than the writer, but may have a sync to do first. The maximum is a quarter of
# the dirty pages that many systems allow before writers have to wait.
WARM_GROWTH_MIN = 1 << 20
WARM_TICKS = 3
WARM_AHEAD_MAX = 256 << 20
WARM_STEP = 4 << 20


class PageWarmer:
    """The warm pages of a log."""

    def __init__(
        self, disk: Disk, file_size: int, file_at: Callable[[int], tuple[MappedFile | None, int]]
    ) -> None:
        """`file_at` returns the current file, or the next file for offsets after it, and the log
        offset at which that file begins."""
        self._file_size = file_size
        self._file_at = file_at
        self._lane = DiskLane(disk)
        self._warm = 0

    @property
    def is_idle(self) -> bool:
        """Whether no disk thread warms pages."""
        return not self._lane.busy

    def grow(self, end: int, grown: int) -> None:
        """Warm pages ahead of `end` if the log grew by enough bytes in the last tick."""
        if grown < WARM_GROWTH_MIN or self._lane.busy:
            return
        self._warm = max(self._warm, end)
        self._warm_on(end + min(WARM_TICKS * grown, WARM_AHEAD_MAX))

    def reset(self) -> None:
        """Forget the warm pages, because the log has no current file."""
        self._warm = 0

    def finish(self) -> None:
        """Wait for the warming step under way."""
        self._lane.finish()

    def _warm_on(self, until: int) -> None:
        """Warm one step of pages; when it is done, warm the next step."""
        # The next file may have become the current one meanwhile.
        mapped, start = self._file_at(self._warm)
        at = max(self._warm, start)
        stop = min(until, at + WARM_STEP, start + self._file_size)
        if mapped is None or stop <= at:
            return

        def done(result: OSError | None) -> None:
            if isinstance(result, OSError):
                logger.warning("pages of the log could not be made present: %s", result)
                return
            self._warm = max(self._warm, stop)
            if self._warm < until:
                self._warm_on(until)

        self._lane.submit(partial(mapped.touch, at - start, stop - start), done)
