"""Durability of appended bytes, and its report to the pending sends.

Owns the flushed offset of the commit log, the intervals of ASYNC_FLUSH, and the list of pending
sends, which it notifies of the flushed offset and the time. It must never sync on the loop thread,
and never treat a failed sync as done: the state of the bytes is then unknown for good (a second
fsync would report success).

A sync that does not return counts as failed syncTimeoutMs after it began, plus the time for its
bytes at SYNC_BYTES_MS: pending sends get an answer, and another broker can lead
(broker/ha/control/membership.py). A later result of that sync changes nothing. Syncs that return,
but take too long for sends, change nothing here: `is_sync_slow` reports them, so that a broker with
a faster disk can lead.

    idle --start--> syncing --ok--> idle      syncing --error, timeout--> failed, for good
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from turbopump.engine.config import StoreConfig
from turbopump.engine.deferred import Deferred
from turbopump.engine.disk import checkpoint as checkpoints
from turbopump.engine.disk.flush import Disk, DiskLane
from turbopump.engine.disk.sync_pace import SyncPace
from turbopump.engine.disk.sync_watch import SyncWatch
from turbopump.engine.log.commit_log import SLOW, SYNC_FAILED, CommitLog
from turbopump.engine.log.file_audit import WATCH_MS, Found, LogFileAudit
from turbopump.engine.types import LONG_AGO_MS, FlushMode, LogOffset, PutStatus
from turbopump.pyx.pending import PendingSends

logger = logging.getLogger(__name__)

PAGE_SIZE = 4096
"""Bytes of a page as flushCommitLogLeastPages counts them."""
UNFLUSHED_MAX = 1 << 30
"""Least unflushed bytes with which a disk does not keep up: seconds of a slow disk, and the
possible loss of a power cut under ASYNC_FLUSH. More would only make the kernel stop the loop thread
at a page fault."""


class GroupCommit:
    """The syncs of a commit log: at most one is under way, and all sends that wait when it ends
    share the next sync. Loop thread only."""

    def __init__(
        self,
        log: CommitLog,
        config: StoreConfig,
        disk: Disk,
        on_flushed: Callable[[], None],
        steady_ms: int,
    ) -> None:
        """`on_flushed` is called on the loop thread after each sync that moved the flushed offset,
        before sends are answered; `steady_ms` is the monotonic clock."""
        self.log = log
        """The log to sync."""
        self.failed: OSError | None = None
        """Error of the first failed sync, None before; it stays, and no message may be acknowledged
        afterwards."""
        self.pending = PendingSends(
            PutStatus.PUT_OK, PutStatus.FLUSH_SLAVE_TIMEOUT, PutStatus.FLUSH_DISK_TIMEOUT
        )
        """All sends that wait, for the disk and for replicas."""
        self.flushed_timestamp_ms = 0
        """Store time of the last durable record in epoch ms, 0 before the first sync."""
        self._config = config
        self._on_flushed = on_flushed
        self._lane = DiskLane(disk)
        self._steady_ms = steady_ms
        self._looking = DiskLane(disk)
        self._sync_watch = SyncWatch("the log", config)
        self._pace = SyncPace()
        self.is_suspended = False
        """Whether no sync may begin, because the log is being cut; the cut sets this."""
        self.cut_watch: Callable[[int], OSError | None] | None = None
        """Receives the ms that passed since the last tick during the steps of a cut; returns the
        failure once a step takes too long. None: no cut is under way."""
        self._cuts = 0
        """Number of cuts of the log: files listed before a cut prove nothing about the files after
        it."""
        self._last_check_ms = self._look_ms = LONG_AGO_MS
        self._last_thorough_ms = LONG_AGO_MS
        self.pending.steady_ms = steady_ms
        self.pending.disk_wait_ms = config.sync_flush_timeout_ms
        self._report_flushed()

    def wait_until_safe(self, end: LogOffset, copies: int) -> Deferred[PutStatus]:
        """Return the status of an append that ends at `end`, which resolves on the loop thread:
        PUT_OK once all bytes before `end` are as durable as flushDiskType requires and `copies`
        brokers have them (PendingSends); FLUSH_DISK_TIMEOUT after syncFlushTimeout or a failed
        sync; FLUSH_SLAVE_TIMEOUT after the replicas' limit. Starts no sync: call `start_sync`.
        Raises ValueError for `copies` over NEED_MAX (RocketMQ: GroupCommitService)."""
        if self.failed is not None:
            return Deferred.resolved(PutStatus.FLUSH_DISK_TIMEOUT)
        safe: Deferred[PutStatus] = Deferred()
        self.pending.wait(end, copies, safe.resolve)
        return safe

    def tick(self, steady_ms: int) -> None:
        """Call every 100 ms with the monotonic clock: answer sends that waited too long, note a
        sync that takes too long as failed, and start a sync at the intervals of ASYNC_FLUSH."""
        passed_ms, self._steady_ms = steady_ms - self._steady_ms, steady_ms
        self._count_elapsed(passed_ms)
        self._check_files(steady_ms)
        self.is_slow()
        self.pending.disk_wait_ms = self._config.sync_flush_timeout_ms  # may have changed
        self.pending.expire(steady_ms)
        if steady_ms - self._last_check_ms < self._config.flush_interval_commit_log_ms:
            return
        self._last_check_ms = steady_ms
        thorough_ms = self._config.flush_commit_log_thorough_interval_ms
        is_thorough = steady_ms - self._last_thorough_ms >= thorough_ms
        pages = self.log.end // PAGE_SIZE - self.log.flushed // PAGE_SIZE
        if is_thorough or pages >= self._config.flush_commit_log_least_pages:
            if is_thorough:
                self._last_thorough_ms = steady_ms
            self.start_sync()

    def start_sync(self) -> None:
        """Begin to sync all appended bytes on a disk thread, unless a sync is under way or has
        failed, a cut is under way, or all bytes are durable. Under SYNC_FLUSH the next sync begins
        by itself when this one ends; under ASYNC_FLUSH later bytes wait for the next call."""
        log = self.log
        if (
            self.is_suspended
            or self._lane.busy
            or self.failed is not None
            or log.end <= log.flushed
        ):
            return
        end, timestamp_ms = log.end, log.last_store_timestamp_ms
        self._sync_watch.begin_sync(end - log.flushed)

        def on_synced(result: OSError | None) -> None:
            if self.failed is not None:
                return  # the sync took too long: no send waits for it
            if result is not None:
                self.fail_for_good(result)
                return
            if self._is_sync:
                self._pace.judge_ended(self._sync_watch.late_ms, self._steady_ms)
            log.flushed = end
            self.flushed_timestamp_ms = timestamp_ms
            self.log.tail.refuse(SLOW, log.end - end >= UNFLUSHED_MAX)
            # Bytes appended meanwhile are synced while earlier sends are answered. Under SYNC_FLUSH
            # a message without a waiting send also becomes visible once it is durable.
            if self._is_sync:
                self.start_sync()
            # Visible first, acknowledged second: a sender that reads back its message finds it.
            self._on_flushed()
            self._report_flushed()

        self._lane.sync(log.unflushed_ranges(end), on_synced)

    def _check_files(self, steady_ms: int) -> None:
        """Check that the log's files exist: no sync of a removed file makes anything durable. A
        disk thread checks, because a hanging disk does not answer this either."""
        if self.is_suspended or self.failed is not None:
            return
        if self._looking.busy or steady_ms < self._look_ms:
            return
        self._look_ms = steady_ms + WATCH_MS
        look, cuts = LogFileAudit(self.log), self._cuts

        def on_listed(found: Found | OSError) -> None:
            if not isinstance(found, OSError) and self._cuts == cuts and self.failed is None:
                lost = look.fault_in(found)
                if lost is not None:
                    self.fail_for_good(lost)

        self._looking.submit(look.list_folder, on_listed)

    def _count_elapsed(self, passed_ms: int) -> None:
        """Count the time of the sync or cut step under way."""
        watch = self._sync_watch.add_elapsed if self._lane.busy else self.cut_watch
        if watch is not None and self.failed is None:
            late = watch(passed_ms)
            if late is not None:
                self.fail_for_good(late)
            elif self._lane.busy and self._is_sync:
                self._pace.judge_running(self._sync_watch.late_ms, self._steady_ms)

    @property
    def is_sync_slow(self) -> bool | None:
        """Whether the recent syncs took too long for the sends that wait for them; None: unknown
        (SyncPace). False under ASYNC_FLUSH, where no send waits for a sync. Not `is_slow`."""
        return self._pace.slow if self._is_sync else False

    @property
    def is_idle(self) -> bool:
        """Whether no sync is under way."""
        return not self._lane.busy

    def wait_for_sync(self) -> None:
        """Block until the sync under way, if any, has returned and was handled; other appended
        bytes stay unsynced."""
        self._lane.wait_until_idle()

    def is_slow(self) -> bool:
        """Whether UNFLUSHED_MAX bytes or more wait for a sync, so that appends must be refused;
        starts a sync then. Also sets or clears SLOW for the native path."""
        slow = self.log.end - self.log.flushed >= UNFLUSHED_MAX
        if slow:
            self.start_sync()
            slow = self.log.end - self.log.flushed >= UNFLUSHED_MAX
        self.log.tail.refuse(SLOW, slow)
        return slow

    def sync_all(self) -> None:
        """Sync all appended bytes, also under ASYNC_FLUSH, and block until they are durable or
        `failed` is set."""
        while self.failed is None and self.log.flushed < self.log.end:
            self.start_sync()
            self._lane.wait_until_idle()
        self._lane.wait_until_idle()

    def sync_after_failure(self, done: Callable[[OSError | None], None]) -> bool:
        """Sync all bytes after `log.flushed` and the checkpoint file again on a disk thread, and
        call `done` on the loop thread with None or the error. `failed` stays, because it is unknown
        which other bytes the system dropped. Returns False while a sync has not returned; then
        nothing is done."""
        if self._lane.busy:
            return False
        ranges = self.log.unflushed_ranges(self.log.end)
        files, root = self.log.files, self._config.root

        def sync_again() -> None:
            for mapped, start, stop in ranges:
                mapped.mark_dirty(start, stop)
                mapped.sync(start, stop)
            files.sync(f"{root}/{checkpoints.FILE_NAME}")
            files.sync_folder(root)

        self._lane.submit(sync_again, done)
        return True

    def prepare_cut(self, log_end: LogOffset, status: PutStatus) -> list[object]:
        """Prepare a cut at `log_end`: block until the sync under way has ended, and take out the
        sends whose records end after `log_end`, with `status` as their answer. The caller must pass
        the returned sends to PendingSends.answer."""
        found: list[object] = []
        self._cuts += 1
        while True:
            found += self.pending.withdraw(status, log_end)
            if not self._lane.busy:
                break
            # A send that is answered now may append again: check the list once more.
            self._lane.wait_until_idle()
        if self._is_sync:
            self.pending.flushed_to(min(self.pending.flushed, log_end))
        return found

    def resume_after_cut(self, flushed_timestamp_ms: int) -> None:
        """Continue after a cut, when all of the remaining log is durable; `flushed_timestamp_ms` is
        the store time of its last record in epoch ms. Answers sends that are safe now."""
        self.flushed_timestamp_ms = flushed_timestamp_ms
        self._report_flushed()

    def fail_for_good(self, error: OSError) -> None:
        """Set `failed` for good: the log's bytes on the disk are unknown. The native path appends
        nothing more, and all waiting sends are answered with FLUSH_DISK_TIMEOUT."""
        logger.error("the commit log cannot be made durable, writes are refused: %s", error)
        self.failed = error
        self.log.tail.refuse(SYNC_FAILED, True)
        self.close()

    def close(self) -> None:
        """Answer all waiting sends with FLUSH_DISK_TIMEOUT now. Starts and awaits no sync."""
        self.pending.fail(PutStatus.FLUSH_DISK_TIMEOUT)

    @property
    def _is_sync(self) -> bool:
        """Whether flushDiskType is SYNC_FLUSH."""
        return self._config.flush_disk_type is FlushMode.SYNC_FLUSH

    def _report_flushed(self) -> None:
        """Report the flushed offset under SYNC_FLUSH; under ASYNC_FLUSH no send waits for the
        disk."""
        if self._is_sync:
            self.pending.flushed_to(self.log.flushed)
