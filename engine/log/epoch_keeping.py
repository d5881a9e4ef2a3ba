"""The epoch list of an open store: opening it, changing it in steps, and updating its file later.

Owns the EpochFile, the time at which its two copies are updated from the lines, and the mark files
that requires. It must never decide which epochs the list should have, nor let a change of role wait
for the copies.

Tests: tests/unit/engine/log/test_epoch_file.py, tests/unit/engine/replicated/test_trouble.py
"""

import errno
import logging
from collections.abc import Callable

from turbopump.engine.disk.disk_steps import Steps, Work, no_work
from turbopump.engine.disk.files import Files
from turbopump.engine.disk.flush import Disk, DiskLane
from turbopump.engine.disk.serial_tasks import SerialTasks
from turbopump.engine.log.commit_log import CommitLog
from turbopump.engine.log.epoch_file import MARK_FILE, EpochFile, Trust
from turbopump.engine.log.epochs import Epochs
from turbopump.engine.log.marker_files import MarkerFiles
from turbopump.engine.types import LogOffset, StoreError

logger = logging.getLogger(__name__)

NO_EPOCHS = Epochs()
"""The empty list."""
AGAIN_TICKS = 50
"""Calls of `tick` (100 ms each) between attempts to write the copies."""


class EpochKeeping:
    """The epoch list of a store; `plain`: default HA, which has no epochs. Loop thread only."""

    def __init__(
        self,
        files: Files,
        log: CommitLog,
        disk: Disk,
        steps: SerialTasks,
        marks: MarkerFiles,
        *,
        plain: bool,
    ) -> None:
        """Read or make the list's files and, unless `plain`, make the mark files; blocks for the
        disk. `steps` runs the changes one after the other. Raises StoreError if the disk fails."""
        self._files, self._log, self._marks, self._plain = files, log, marks, plain
        self._steps = steps
        self._lane = DiskLane(disk)
        self._pause = 0
        self._expired_to = log.min
        self.file = self._open()
        """The epoch list and its files."""
        if plain:
            return
        try:
            marks.make_first_marks(listed=bool(self.epochs.entries))
        except OSError as error:
            raise StoreError(f"the store cannot join a replication group: {error}") from error

    @property
    def epochs(self) -> Epochs:
        """The current list; empty in default HA."""
        return NO_EPOCHS if self._plain else self.file.epochs

    @property
    def busy(self) -> bool:
        """Whether steps run or wait in the store's serial tasks, or a disk thread updates the
        copies."""
        return self._steps.busy or self._lane.busy

    def clear_epochs(self) -> None:
        """Clear the list in memory alone, because the log begins again and the labels of its old
        bytes are void; `reopen_steps` follows."""
        self.file.epochs = NO_EPOCHS

    def reopen_steps(self) -> Steps:
        """Steps that open a new list after all files of the store were removed and the log began
        again. The steps raise OSError."""
        found: list[EpochFile] = []

        def open_list() -> None:
            try:
                found.append(self._open())
            except StoreError as error:
                raise OSError(errno.EIO, str(error)) from error

        yield open_list
        self.file = found[0]

    def cut_steps(self, log_end: LogOffset) -> Steps:
        """Steps that remove the entries that start at `log_end` or later, where the log was cut;
        durable at their end. The steps raise OSError."""
        file = self.file
        if self._plain:
            return
        if file.trust is Trust.UNPROVEN:
            file.cut_entries(log_end)
            return
        epochs = file.epochs.cut_at(log_end)
        yield file.write_work(epochs) or no_work
        file.set_written(epochs)

    def adopt_steps(self, epochs: Epochs) -> Steps:
        """Steps that make `epochs`, a list that a handshake proved to label this log, the current
        list, durably, and then write both copies and MARK_FILE. The steps raise OSError."""
        file = self.file
        yield file.write_work(epochs) or no_work
        file.set_written(epochs)
        if file.is_behind:
            write, took = file.write_copies_work()
            yield write
            took()
        if epochs.entries:
            yield self._marks.mark_as_copy

    def begin_epoch_work(self, epoch: int, start: LogOffset) -> Work:
        """Return work for a disk thread that makes the list with `epoch` from log offset `start` on
        durable, and marks the master's records as whole; call `adopt_begun_epoch` after its
        success, on the loop thread. The work raises OSError."""
        write = None if self._plain else self.file.write_work(self._with_epoch(epoch, start))

        def write_epoch() -> None:
            if write is not None:
                write()
            self._marks.mark_as_master()

        return write_epoch

    def adopt_begun_epoch(self, epoch: int, start: LogOffset) -> None:
        """Make the list that the work of `begin_epoch_work` wrote, with the same arguments, the
        current list in memory."""
        if not self._plain:
            self.file.set_written(self._with_epoch(epoch, start))

    def wait_until_idle(self) -> None:
        """Block until all queued steps of the store and the update of the copies have ended."""
        self._steps.wait_until_idle()
        self._lane.wait_until_idle()

    def write_now(self) -> None:
        """Write the current list into both copies now, if they lack it; blocks for the disk. No
        work on the list may be under way. Raises OSError."""
        if not self._plain:
            self.file.write_copies()
            if self.epochs.entries:
                self._marks.mark_as_copy()

    def tick(self, failed: OSError | None) -> None:
        """Call every 100 ms: a disk thread brings the copies up to date, and steps drop epochs
        whose bytes retention removed. `failed` is the store's failure; with a failure, or while
        `steps` are busy, nothing is done. Errors are logged, and a later tick tries again."""
        if not self._plain and not self._steps.busy and failed is None:
            self._update_copies()
            self._expire_epochs()

    def _with_epoch(self, epoch: int, start: LogOffset) -> Epochs:
        """The list with one more epoch; unchanged if a later epoch was recorded meanwhile."""
        known = self.epochs
        return known.with_epoch(epoch, start) if epoch > known.last_epoch else known

    def _update_copies(self) -> None:
        """Bring the copies up to date after a change of role, on another disk thread than the
        change's steps."""
        self._pause = max(0, self._pause - 1)
        if self._lane.busy or self._pause > 0 or not self.file.is_behind:
            return
        write, took = self.file.write_copies_work()
        has_list = bool(self.epochs.entries)

        def write_copies() -> None:
            write()
            if has_list:
                self._marks.mark_as_copy()

        def on_written(error: OSError | None) -> None:
            if error is None:
                took()
            else:
                self._pause = AGAIN_TICKS
                logger.warning(
                    "the epoch file could not be updated, the next attempt follows: %s", error
                )

        self._lane.submit(write_copies, on_written)

    def _expire_epochs(self) -> None:
        """Begin to drop the epochs whose bytes retention removed, if there are any, in
        the serial tasks."""
        log_min = self._log.min
        if log_min == self._expired_to:
            return
        self._expired_to = log_min
        epochs = self.epochs.without_expired(log_min)
        if self.file.trust is Trust.UNPROVEN or epochs == self.epochs:
            return

        def begin() -> Callable[[], None]:
            return self.file.write_work(epochs) or no_work

        def done(error: OSError | None) -> None:
            if error is not None:
                logger.warning(
                    "epochs before log offset %d could not be removed: %s", log_min, error
                )
            else:
                self.file.set_written(epochs)

        self._steps.submit(begin, done)

    def _open(self) -> EpochFile:
        """Open the epoch list and, unless in default HA, create its lines file. Raises
        StoreError."""
        files, config, log = self._files, self._log.config, self._log
        never_kept = not files.exists(f"{config.root}/{MARK_FILE}")
        file = EpochFile.open(files, config.epoch_path, log.min, log.end, never_kept=never_kept)
        if not self._plain:
            try:
                file.begin_lines()
            except OSError as error:
                raise StoreError(f"{config.epoch_path} cannot be used: {error}") from error
        return file
