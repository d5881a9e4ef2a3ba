"""Removal of old files, and the check whether there is room for new ones.

Owns the decision (by age, by the disk's usage, by hand) and the order log, queues, index. It must
never remove the last file of a row; removals and questions run on a disk thread.

A tick decides by the last answer of the disk (disk_use.py). A disk that has not answered for a
minute counts as full.
"""

import errno
import logging
from collections import deque
from collections.abc import Collection, Mapping
from datetime import datetime

from turbopump.engine.config import QUEUE_UNIT_SIZE, StoreConfig
from turbopump.engine.deferred import Deferred
from turbopump.engine.disk.disk_steps import Work
from turbopump.engine.disk.files import Files
from turbopump.engine.disk.flush import Disk
from turbopump.engine.disk.serial_tasks import SerialTasks
from turbopump.engine.lifecycle.checkpointer import Checkpointer
from turbopump.engine.lifecycle.disk_use import (
    DiskReport,
    DiskUse,
    modified_times,
    read_disk_report,
)
from turbopump.engine.log.commit_log import DISK_FULL, CommitLog
from turbopump.engine.queues.parts import QueueParts
from turbopump.engine.queues.queue_files import ConsumeQueue
from turbopump.engine.types import LogOffset, StoreError
from turbopump.pyx import queue as queue_kernel

logger = logging.getLogger(__name__)

HOUR_MS = 3_600_000
"""Milliseconds of an hour."""
ASK_AGAIN_MS = 1_000
"""Time until a disk whose last answer was an error is asked again."""
FOLLOW_MAX = 1000
"""Number of queues whose units of removed records are removed in a tick: some 20 ms even if none of
their files is mapped."""
KEPT_FILES_MAX = 1000
"""Maximum number of files kept for waiting messages: the disk is asked for the age of each."""
FULL_TEXT = "the disk is too full"
"""Reason for senders while the disk lacks room."""
SILENT_TEXT = "the disk does not say how full it is"
"""Reason for senders while the disk does not answer."""
# RocketMQ limits both ratios, so that a mistake cannot switch either off (store.md 20).
WARNING_RANGE = (35, 90)
"""Least and greatest percent of diskSpaceWarningLevelRatio in force."""
FORCE_RANGE = (30, 85)
"""Least and greatest percent of diskSpaceCleanForciblyRatio in force."""


class Retention:
    """Removes expired files of a store. Loop thread only; disk threads unlink."""

    def __init__(
        self, parts: QueueParts, checkpointer: Checkpointer, disk: Disk, room: DiskReport
    ) -> None:
        """`last_disk_report` is the last answer of the disk. `start` must follow."""
        self.disk_full = False
        """Whether the store refuses writes, because the disk is too full or does not answer."""
        self.held: dict[object, LogOffset] = {}
        """Key of a reader to the log offset from which it continues: removal by age spares the
        files from there, a full disk does not. Callers add and remove entries."""
        self.waiting_from: LogOffset | None = None
        """Log offset of the first message that waits (a timer, delayed message, open half message
        or pop check point), set by the broker; None: no broker reports it, and no file is kept for
        such messages."""
        self.kept_bytes = 0
        """Bytes of log files that are older than fileReservedTime and kept for such messages, as of
        the last check of ages."""
        self._files, self._config = parts.files, parts.config
        self._log = parts.log
        self._queues, self._batches = parts.queues, parts.batches
        self._extensions, self._index = parts.extensions, parts.index
        self._checkpointer = checkpointer
        self._use = DiskUse(parts.files, parts.config, disk, room)
        self._asked_ms = self._ticked_ms = 0
        self._left: list[str] = []
        self._following: deque[ConsumeQueue] = deque()
        self._stuck = False
        self.turn = SerialTasks(disk)
        """The queue of removals, which run one after the other, including removals of topics."""

    @property
    def last_disk_report(self) -> DiskReport:
        """The last answer of the disk, at most some cleanResourceInterval old unless the disk is
        silent."""
        return self._use.room

    @property
    def why_full(self) -> str:
        """Reason why the store takes no messages for lack of room: FULL_TEXT, or SILENT_TEXT while
        the disk does not answer; "" unless `disk_full`."""
        if not self.disk_full:
            return ""
        return SILENT_TEXT if self._use.is_silent else FULL_TEXT

    def start(self, steady_ms: int) -> None:
        """Start the clock: the first check is due cleanResourceInterval later."""
        self._asked_ms = self._ticked_ms = steady_ms

    def tick(self, now_ms: int, steady_ms: int) -> None:
        """Called every 100 ms, with the wall clock in epoch ms and the steady clock: at each
        cleanResourceInterval ask the disk, and when it has answered, set `disk_full` and begin due
        removals: at an hour of deleteWhen (local time), or above the ratios of disk usage."""
        if self._following and not self.turn.busy:
            self._expire_derived()
            self._remove()
        was_silent = self._use.is_silent
        self._use.add_elapsed(steady_ms - self._ticked_ms)
        self._ticked_ms = steady_ms
        self._query_disk(steady_ms)
        room = self._use.take_report()
        if room is not None or was_silent is not self._use.is_silent:
            self._refuse_if_full()
        if room is None or self.turn.busy or self._log.is_suspended:
            return
        config, used = self._config, room.used_percent
        force = _clamp(config.disk_space_clean_forcibly_ratio, *FORCE_RANGE)
        at_once = used > force and config.clean_file_forcibly_enable
        is_hour = datetime.fromtimestamp(now_ms // 1000).hour in config.delete_hours()
        if at_once or used > config.disk_max_used_space_ratio or is_hour:
            self._remove_expired(now_ms, room.modified_ms, at_once=at_once)
        else:
            self._remove()

    def _query_disk(self, steady_ms: int) -> None:
        """Ask for the disk's usage and the file ages if cleanResourceInterval has passed; not while
        the log is being cut."""
        interval_ms = self._config.clean_resource_interval_ms
        if self._use.failed:
            interval_ms = min(interval_ms, ASK_AGAIN_MS)
        if steady_ms - self._asked_ms >= interval_ms and not self._log.is_suspended:
            self._asked_ms = steady_ms
            self._use.begin_query(self._removable_paths())

    def _removable_paths(self) -> list[str]:
        """Paths of the log files that may be removed next, without the last one. If files are kept
        for waiting messages, all files that count for their limit."""
        count = self._config.delete_file_batch_max
        if self.kept_bytes:
            count = max(count, min(self._kept_files_max() + 1, KEPT_FILES_MAX))
        starts = self._log.segments.file_starts()[:-1][:count]
        return [self._log.segments.path(start) for start in starts]

    def _refuse_if_full(self) -> None:
        """Refuse writes if the disk is full or silent, and allow them otherwise."""
        used = self._use.room.used_percent
        was_full, self.disk_full = (
            self.disk_full,
            self._use.is_silent or used > full_percent(self._config),
        )
        self._log.tail.refuse(DISK_FULL, self.disk_full)
        if self.disk_full != was_full:
            logger.warning(
                "%s (it was used to %d %%): writes %s",
                self.why_full or "the disk has room",
                used,
                "are refused" if self.disk_full else "go on",
            )

    def remove_expired_files(self, now_ms: int) -> Deferred[int | OSError]:
        """Remove expired log files, at most deleteFileBatchMax, at any hour, and queue and index
        files that only refer to them; `now_ms` is epoch ms. A disk thread asks for their ages and
        unlinks them. Resolves with the number of log files that left the log, which are unlinked
        soon, or the error."""
        result: Deferred[int | OSError] = Deferred()
        ages: dict[str, int | None] = {}

        def read_ages() -> Work:
            paths = self._removable_paths()
            return lambda: ages.update(modified_times(self._files, paths))

        def on_ages_read(error: OSError | None) -> None:
            try:
                result.resolve(error or self._remove_expired(now_ms, ages, at_once=False))
            except OSError as failed:  # error of a queue's file, which is read for the removal
                result.resolve(failed)

        self.turn.submit(read_ages, on_ages_read)
        return result

    def _remove_expired(self, now_ms: int, ages: Mapping[str, int | None], *, at_once: bool) -> int:
        """Begin to remove expired log files by their modification times (`ages`, epoch ms by path),
        and queue and index files that only refer to them; with `at_once` young files are removed,
        too. Returns the number of log files."""
        paths = self._expired_log_files(now_ms, ages, at_once)
        self._log_kept(now_ms, ages)
        if paths:
            self._log_removed_waiting()
            logger.info("%d log files expired, the log now begins at %d", len(paths), self._log.min)
            self._left += paths
            self._following = deque(self._queues)
            self._queues.table.changed()
            self._expire_derived()
        self._remove()
        return len(paths)

    def forget_removals(self) -> None:
        """Forget the files still to be removed and the `held` readers, because all files are
        removed otherwise. No removal may be under way."""
        self._left, self._following = [], deque()
        self.held.clear()
        self._protect_all_files()

    def void_ages(self) -> None:
        """Forget file ages, because the log is about to be cut and will make files of the same
        names again; no file is removed by age before the next answer of the disk."""
        self._use.void_ages()
        self._protect_all_files()

    def _protect_all_files(self) -> None:
        """Keep all files for waiting messages until the next report: the last report is about a
        longer log."""
        if self.waiting_from is not None:
            self.waiting_from = LogOffset(0)

    def drop_pending_removals(self, folders: Collection[str]) -> None:
        """Drop the files whose paths begin with one of `folders` from the files still to be
        removed: the caller removes the folders as a whole. A folder's path ends with "/"."""
        self._left = [path for path in self._left if not path.startswith(tuple(folders))]

    def wait_for_removals(self) -> None:
        """Block until all begun and queued removals are done, including removals of topics: the
        names of their files may be used again. Callbacks run on this thread."""
        while self.turn.busy or self._checkpointer.rounds_are_suspended:
            self._checkpointer.wait_for_round()
            self.turn.wait_until_idle()

    def _expired_log_files(
        self, now_ms: int, ages: Mapping[str, int | None], at_once: bool
    ) -> list[str]:
        """Take expired log files, oldest first, up to the first that must stay. The last file
        stays, and so do files whose queue units are not durable: a queue must not forget how far it
        had counted."""
        log = self._log
        reserved_ms = self._config.file_reserved_time_hours * HOUR_MS
        paths: list[str] = []
        while len(paths) < self._config.delete_file_batch_max and log.segments.count > 1:
            oldest = log.segments.path(log.segments.first)
            if not at_once and oldest not in ages:
                break  # the file became one of the oldest after the question
            age = ages.get(oldest)
            # A file that is already removed is expired: the log only has to forget it.
            expired = age is None or age + reserved_ms <= now_ms
            if not expired and not at_once:
                break
            file_end = log.segments.first + log.file_size
            if not at_once and any(held < file_end for held in self.held.values()):
                break
            if not at_once and self._is_kept(file_end, age, now_ms, ages):
                break
            if file_end > self._checkpointer.durable_end:
                self._checkpointer.request_round()
                break
            paths.append(log.forget_oldest())
        return paths

    def _is_kept(
        self, file_end: int, age: int | None, now_ms: int, ages: Mapping[str, int | None]
    ) -> bool:
        """Whether the oldest log file, which is expired, is kept because a message in it waits.
        `file_end` is the log offset of its end, `age` its modification time in epoch ms."""
        config = self._config
        if age is None or not config.keep_waiting_messages or not self._waits_before(file_end):
            return False
        hours = config.file_reserved_time_hours + config.keep_waiting_hours_max
        return age + hours * HOUR_MS > now_ms and (
            self._expired_files(now_ms, ages) <= self._kept_files_max()
        )

    def _waits_before(self, log_offset: int) -> bool:
        """Whether a message before `log_offset` waits: a timer, delayed or half message,
        or check point."""
        return self.waiting_from is not None and self.waiting_from < log_offset

    def _kept_files_max(self) -> int:
        """Maximum number of expired log files that are kept for waiting messages."""
        return (self._config.keep_waiting_mbytes_max << 20) // self._log.file_size

    def _expired_files(self, now_ms: int, ages: Mapping[str, int | None]) -> int:
        """Number of the oldest files that are older than fileReservedTime."""
        segments, count = self._log.segments, 0
        reserved_ms = self._config.file_reserved_time_hours * HOUR_MS
        for start in segments.file_starts()[:-1]:
            age = ages.get(segments.path(start))
            if age is None or age + reserved_ms > now_ms:
                break
            count += 1
        return count

    def _log_kept(self, now_ms: int, ages: Mapping[str, int | None]) -> None:
        """Log a warning when files begin to be kept for waiting messages, and one line when that
        ends."""
        log, before = self._log, self.kept_bytes
        keeps = self._config.keep_waiting_messages
        keeps = keeps and self._waits_before(log.segments.first + log.file_size)
        self.kept_bytes = self._expired_files(now_ms, ages) * log.file_size if keeps else 0
        if self.kept_bytes and not before:
            logger.warning(
                "log files from %d on are older than fileReservedTime (%d h) and kept, messages"
                " wait in them: the first one at %d",
                log.min,
                self._config.file_reserved_time_hours,
                self.waiting_from,
            )
        elif before and not self.kept_bytes:
            logger.info("no log file is kept for waiting messages")

    def _log_removed_waiting(self) -> None:
        """Log that files with waiting messages were removed, by a full disk, a limit or the
        configuration. The broker reports the number of lost messages when they are due."""
        if self._waits_before(self._log.min):
            logger.error(
                "log files before %d are removed, messages waited in them from %d on",
                self._log.min,
                self.waiting_from,
            )

    def _expire_derived(self) -> None:
        """Remove units and entries that pointed into removed files, some queues per call. A reader
        of a queue that has not followed yet learns that its message is being removed."""
        minimum, paths = self._log.min, self._left
        for _ in range(min(FOLLOW_MAX, len(self._following))):
            queue = self._following.popleft()
            if self._queues.find(queue.topic, queue.queue_id) is queue:
                self._expire_queue(queue)
        if self._following:
            return
        for batch in self._batches:
            paths += self._batches.delete_expired(batch, minimum)
            self._batches.correct_min(batch, minimum)

    def _expire_queue(self, queue: ConsumeQueue) -> None:
        """Take a queue's files without a unit of the remaining log out of the queue, and move its
        min offset to the first remaining record."""
        minimum, paths = self._log.min, self._left
        paths += self._queues.delete_expired(queue, minimum, self._checkpointer.durable_end)
        self._queues.correct_min(queue, minimum)
        if self._extensions is None or queue.segments.count == 0:
            return
        at = max(queue.min_offset * QUEUE_UNIT_SIZE, queue.segments.first)
        if at < self._queues.max_offset(queue) * QUEUE_UNIT_SIZE:
            start = queue.segments.start_of(at)
            region = self._queues.file_region(queue, start)
            address = queue_kernel.get_unit(region, at - start)[2]
            paths += self._extensions.delete_before(queue.topic, queue.queue_id, address)

    def _remove(self) -> None:
        """Unlink the taken files, in order: a log file that cannot be removed keeps all later ones,
        because a hole in the log would prevent the next start. Index files are removed once the
        checkpoint does not count them, or a start would miss them."""
        if self._index is not None:
            self._left += self._index.take_expired(self._checkpointer.durable_log_min)
        if not self._left or self.turn.busy:
            return
        todo, self._left = deque(self._left), []
        if self._stuck:
            todo = deque(path for path in todo if not self._is_log_file(path))

        def remove_files() -> None:
            while todo:
                path = todo[0]
                try:
                    self._files.remove(path)
                except FileNotFoundError:
                    pass  # removed by an earlier attempt or another process
                if self._is_log_file(path):
                    self._sync_removal()
                todo.popleft()

        def on_removed(result: OSError | None) -> None:
            if result is not None:
                logger.warning("an expired file could not be removed: %s", result)
                # The other files may be in use again meanwhile; the next start removes them.
                self._left = [*filter(self._is_log_file, todo), *self._left]
            elif self._left and not self._following:
                self._remove()  # more files were taken meanwhile

        self.turn.submit(lambda: remove_files, on_removed)

    def _is_log_file(self, path: str) -> bool:
        return path.startswith(f"{self._config.log_folder}/")

    def _sync_removal(self) -> None:
        """Sync the folder after each log file: a power cut must not leave a hole in the log."""
        try:
            self._files.sync_folder(self._config.log_folder)
        except OSError:
            # A second attempt would report success even if the first one failed.
            self._stuck = True
            raise


def full_percent(config: StoreConfig) -> int:
    """Disk usage in percent above which writes are refused (diskSpaceWarningLevelRatio)."""
    return _clamp(config.disk_space_warning_level_ratio, *WARNING_RANGE)


def make_room(files: Files, config: StoreConfig, log: CommitLog) -> DiskReport:
    """Make a log file for the next message, and wait for the disk; returns the disk's room. A store
    with messages is served on a full disk, too, and refuses writes; an empty store on a full disk
    is refused. Must run after recovery, which needs the room more. Raises StoreError, OSError."""
    is_empty = log.segments.count == 0
    try:
        log.make_first()
    except OSError as error:
        why = "the disk is full" if error.errno == errno.ENOSPC else str(error)
        raise StoreError(
            f"{config.log_folder} has no room for a first log file of {log.file_size} bytes: {why}"
        ) from error
    room, full = read_disk_report(files, config), full_percent(config)
    used = room.used_percent
    if used <= full:
        return room
    if is_empty:
        log.close()
        raise StoreError(
            f"with a first log file of {log.file_size} bytes the disk of {config.log_folder} would "
            f"be used to {used:.0f} %: above {full} % (diskSpaceWarningLevelRatio) messages are "
            "refused"
        )
    logger.warning("the disk is used to %d %%: until there is room writes are refused", used)
    return room


def _clamp(value: int, low: int, high: int) -> int:
    return min(max(value, low), high)
