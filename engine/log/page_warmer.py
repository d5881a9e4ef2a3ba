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

WARM_GROWTH_MIN = 1 << 20
"""Least growth of the log in a tick (100 ms) for which pages are warmed, in bytes."""
WARM_TICKS = 3
"""Number of ticks of growth to warm ahead: a disk thread is quicker than the writer, but may have a
sync to do first."""
WARM_AHEAD_MAX = 256 << 20
"""Maximum bytes to warm ahead: a quarter of the dirty pages that many systems allow before writers
have to wait."""
WARM_STEP = 4 << 20
"""Bytes that one piece of disk work makes present."""


class PageWarmer:
    """The pages of a log that were made present, and the work of a disk thread on the next ones.
    Loop thread only."""

    def __init__(
        self, disk: Disk, file_size: int, file_at: Callable[[int], tuple[MappedFile | None, int]]
    ) -> None:
        """`file_size` is the size of a log file in bytes. `file_at(log offset)` returns the current
        file, or the next file for offsets after it (None: no such file), and the log offset at
        which that file begins."""
        self._file_size = file_size
        self._file_at = file_at
        self._lane = DiskLane(disk)
        self._warm = 0

    @property
    def is_idle(self) -> bool:
        """Whether no disk thread warms pages."""
        return not self._lane.busy

    def warm_ahead(self, end: int, grown: int) -> None:
        """Begin to warm pages ahead of the log offset `end` on a disk thread, if the log grew by
        `grown` >= WARM_GROWTH_MIN bytes in the last tick and no warming is under way."""
        if grown < WARM_GROWTH_MIN or self._lane.busy:
            return
        self._warm = max(self._warm, end)
        self._warm_next_step(end + min(WARM_TICKS * grown, WARM_AHEAD_MAX))

    def forget_warm_pages(self) -> None:
        """Forget which pages are warm, because the log has no current file."""
        self._warm = 0

    def wait_until_idle(self) -> None:
        """Block until no warming is under way."""
        self._lane.wait_until_idle()

    def _warm_next_step(self, until: int) -> None:
        """Warm one step of pages; when it is done, warm the next step."""
        # The next file may have become the current one meanwhile.
        mapped, start = self._file_at(self._warm)
        at = max(self._warm, start)
        stop = min(until, at + WARM_STEP, start + self._file_size)
        if mapped is None or stop <= at:
            return

        def on_warmed(result: OSError | None) -> None:
            if isinstance(result, OSError):
                logger.warning("pages of the log could not be made present: %s", result)
                return
            self._warm = max(self._warm, stop)
            if self._warm < until:
                self._warm_next_step(until)

        self._lane.submit(partial(mapped.mark_dirty, at - start, stop - start), on_warmed)
