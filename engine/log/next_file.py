"""The next log file, made ahead so that a roll does not wait for a disk.

Owns when a disk thread makes the next file, and the state of an attempt that failed or takes too
long. It must never write a record, nor decide where the log ends. Loop thread only.
"""

import logging
from functools import partial

from turbopump.engine.config import StoreConfig
from turbopump.engine.disk.files import Files, MappedFile
from turbopump.engine.disk.flush import Disk, DiskLane
from turbopump.engine.disk.segments import Segments
from turbopump.engine.types import FlushMode

logger = logging.getLogger(__name__)

# The next file is made when a quarter of the last one is left, or as much as the log grows in five
# seconds (making a file takes two syncs, and a sync that takes longer counts as failed). So a log
# that hardly grows takes no blocks ahead. A log of small files has its next file at once.
AHEAD_MIN = 32 << 20
"""Bytes left in the last file at which the next file is made in any case."""
AHEAD_TICKS = 50
"""Ticks of 100 ms: the next file is made when the log may fill the last one in that time."""
TICK_MAX_MS = 500
"""Maximum wait in ms that is counted from one tick to the next."""


class NextFile:
    """The next file of a log, which a disk thread makes ahead."""

    def __init__(self, files: Files, config: StoreConfig, disk: Disk, segments: Segments) -> None:
        self.is_missing = False
        """Whether the last attempt to continue in a next file failed, or takes longer than
        syncTimeoutMs, so that writes must be refused."""
        self.ready: MappedFile | None = None
        """The file that was made ahead and is not part of the log yet; None: no such file."""
        self._files = files
        self._config = config
        self._segments = segments
        self._lane = DiskLane(disk)
        self._failed = False
        self._waits, self._waits_ms, self._ticked_ms = False, 0, 0

    @property
    def is_idle(self) -> bool:
        """Whether no disk thread makes a file."""
        return not self._lane.busy

    def start_at(self, end: int) -> int:
        """Log offset at which the next file begins, in a log that ends at `end`."""
        segments = self._segments
        return segments.end if segments.count else segments.start_of(end)

    def take_file(self, start: int) -> MappedFile | None:
        """Take the file made ahead, which begins at log offset `start`. None: there is no such
        file, and a disk thread makes it now; the caller does not wait, refuses writes meanwhile and
        calls again."""
        if self.ready is None and not self._lane.busy:
            self._begin_making(start)
        mapped, self.ready = self.ready, None
        self._waits = mapped is None
        if self._waits and self._failed and not self.is_missing:
            self.is_missing = True
            logger.error("there is no next log file at %d: writes are refused", start)
        return mapped

    def note_adopted(self) -> None:
        """Clear `is_missing`: the caller has made the file that `take_file` returned the log's last
        one."""
        self.is_missing = self._failed = False

    def make_first(self, end: int) -> None:
        """Create the first file of an empty log that continues at `end`, unless `ready`; blocks for
        the disk. `take_file` returns it. Raises OSError."""
        if self.ready is None:
            self.ready = self._create(self.start_at(end))

    def make_if_near(self, end: int, grown: int) -> None:
        """Begin to make the next file on a disk thread once `end`, the log's end, is near the end
        of the last file; a no-op after a failure, until `take_file` or `watch_for_missing` tries
        again. The log grew by `grown` bytes in the last tick."""
        segments = self._segments
        near = max(segments.file_size >> 2, AHEAD_MIN, AHEAD_TICKS * grown)
        if self.ready is not None or not segments.count or segments.end - end > near:
            return
        if not (self._lane.busy or self._failed):
            self._begin_making(segments.end)

    def watch_for_missing(self, end: int, steady_ms: int) -> None:
        """Call every 100 ms with the monotonic clock `steady_ms`: count the time for which a roll
        waits for the file, set `is_missing` after syncTimeoutMs, and try again to make the file."""
        passed_ms, self._ticked_ms = min(steady_ms - self._ticked_ms, TICK_MAX_MS), steady_ms
        limit_ms = self._config.sync_timeout_ms
        self._waits_ms = self._waits_ms + passed_ms if self._waits else 0
        if self._waits_ms < limit_ms:
            return
        if not self.is_missing:
            logger.error("the next log file was not made in %d ms: writes are refused", limit_ms)
        self.is_missing = True
        if not self._lane.busy:
            self._waits_ms = 0
            self._begin_making(self.start_at(end))

    def discard_file(self) -> str:
        """Block until no disk thread makes a file, and forget the file made ahead. Returns its
        path, which the caller removes, or "" if there is no such file."""
        self._lane.wait_until_idle()
        mapped, self.ready = self.ready, None
        if mapped is None:
            return ""
        mapped.close()
        return mapped.path

    def _begin_making(self, start: int) -> None:
        """Begin to create the file that begins at log offset `start` on a disk thread, which sets
        `ready`; a failure is logged."""

        def on_made(result: MappedFile | OSError) -> None:
            if isinstance(result, OSError):
                if not self._failed:
                    logger.warning("could not make the next log file at %d: %s", start, result)
                self._failed = True  # the next roll tries again
            else:
                self.ready = result
                self.is_missing = self._failed = self._waits = False

        self._lane.submit(partial(self._create, start), on_made)

    def _create(self, start: int) -> MappedFile:
        """Create a file with all its blocks and a durable name, so that a later sync of its bytes
        is enough."""
        files, segments = self._files, self._segments
        files.make_folders(segments.folder)
        mapped = files.create(segments.path(start), segments.file_size)
        try:
            mapped.reserve(0, segments.file_size)
            expect_syncs(self._config, mapped, 0)
            files.sync(mapped.path)
            files.sync_folder(segments.folder)
        except BaseException:
            mapped.close()
            files.remove(mapped.path)
            raise
        return mapped


def expect_syncs(config: StoreConfig, mapped: MappedFile, position: int) -> None:
    """Advise the kernel of random access after `position` of a log file under SYNC_FLUSH, so that a
    sync writes only the changed pages; a no-op under ASYNC_FLUSH."""
    if config.flush_disk_type is FlushMode.SYNC_FLUSH:
        mapped.expect_random(position)
