"""When appended bytes become durable, and the sends that wait for it.

Owns the flushed offset of the commit log, the waiters of SYNC_FLUSH and the rhythm of ASYNC_FLUSH.
It must never sync on the loop thread, and never take a failed sync as done: the bytes' state is
unknown then, for good (a second fsync would report success). Called by the store.

A sync that does not return counts as failed syncTimeoutMs after it began, and as much later as its
bytes need at SYNC_BYTES_MS: pending sends get an answer, and another broker can lead
(broker/ha/control/membership.py). What it comes to later changes nothing.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from turbopump.engine.config import StoreConfig
from turbopump.engine.disk import checkpoint as checkpoints
from turbopump.engine.disk.flush import Disk, DiskLane
from turbopump.engine.disk.sync_watch import SyncWatch
from turbopump.engine.later import Later
from turbopump.engine.log.commit_log import SLOW, SYNC_FAILED, CommitLog
from turbopump.engine.log.watch import WATCH_MS, Found, LogWatch
from turbopump.engine.types import LONG_AGO_MS, FlushMode, LogOffset, PutStatus
from turbopump.pyx.held import Held

logger = logging.getLogger(__name__)

PAGE_SIZE = 4096
# A disk that is this far behind does not keep up: seconds of a slow one, and what a power cut may
# take under ASYNC_FLUSH. More would only make the kernel stop the loop thread at a page fault.
UNFLUSHED_MAX = 1 << 30


@dataclass(slots=True)
class _Waiter:
    end: LogOffset
    deadline_ms: int
    later: Later[PutStatus]


class GroupCommit:
    """At most one sync is under way; all that wait when it ends share the next one."""

    def __init__(
        self,
        log: CommitLog,
        config: StoreConfig,
        disk: Disk,
        on_flushed: Callable[[], None],
        steady_ms: int,
    ) -> None:
        self.log = log
        self.failed: OSError | None = None
        """Set when a sync failed: nothing may be acknowledged any more."""
        self.held: Held | None = None
        """Answers of the lane, which wait for the same."""
        self.flushed_timestamp_ms = 0
        """Store time of the last durable record."""
        self._config = config
        self._on_flushed = on_flushed
        self._waiters: deque[_Waiter] = deque()
        self._lane = DiskLane(disk)
        self._steady_ms = steady_ms
        self._looking = DiskLane(disk)
        self._sync_watch = SyncWatch("the log", config)
        self.rests = False
        """Whether no sync is to begin: the log is being cut."""
        self.cut_watch: Callable[[int], OSError | None] | None = None
        """Told what passed while steps of a cut are under way; the failure that they count as."""
        self._cuts = 0
        """Counts the cuts of the log: what was seen before one says nothing of the files behind."""
        self._last_check_ms = self._look_ms = LONG_AGO_MS
        self._last_thorough_ms = LONG_AGO_MS

    def wait(self, end: LogOffset) -> Later[PutStatus]:
        """PUT_OK once all before `end` is durable; FLUSH_DISK_TIMEOUT syncFlushTimeout after the
        last tick, or after a failed sync (RocketMQ: GroupCommitService)."""
        later: Later[PutStatus] = Later()
        if self.failed is not None:
            later.resolve(PutStatus.FLUSH_DISK_TIMEOUT)
        elif end <= self.log.flushed:
            later.resolve(PutStatus.PUT_OK)
        else:
            deadline_ms = self._steady_ms + self._config.sync_flush_timeout_ms
            self._waiters.append(_Waiter(end, deadline_ms, later))
            self.start()
        return later

    def tick(self, steady_ms: int) -> None:
        """Give up on waiters whose time is over, and flush in ASYNC_FLUSH's rhythm."""
        passed_ms, self._steady_ms = steady_ms - self._steady_ms, steady_ms
        self._watch(passed_ms)
        self._look_at_files(steady_ms)
        self.is_slow()
        waiters = self._waiters
        while waiters and waiters[0].deadline_ms <= steady_ms:
            waiters.popleft().later.resolve(PutStatus.FLUSH_DISK_TIMEOUT)
        if self.held is not None:
            slow_disk, slow_replicas = PutStatus.FLUSH_DISK_TIMEOUT, PutStatus.FLUSH_SLAVE_TIMEOUT
            self.held.disk_wait_ms = self._config.sync_flush_timeout_ms  # it may have changed
            self.held.expire(steady_ms, slow_replicas, slow_disk)
        if steady_ms - self._last_check_ms < self._config.flush_interval_commit_log_ms:
            return
        self._last_check_ms = steady_ms
        thorough_ms = self._config.flush_commit_log_thorough_interval_ms
        is_thorough = steady_ms - self._last_thorough_ms >= thorough_ms
        pages = self.log.end // PAGE_SIZE - self.log.flushed // PAGE_SIZE
        if is_thorough or pages >= self._config.flush_commit_log_least_pages:
            if is_thorough:
                self._last_thorough_ms = steady_ms
            self.start()

    def start(self) -> None:
        """Sync all that was appended so far, unless a sync is under way or has failed."""
        log = self.log
        if self.rests or self._lane.busy or self.failed is not None or log.end <= log.flushed:
            return
        end, timestamp_ms = log.end, log.last_store_timestamp_ms
        self._sync_watch.begin(end - log.flushed)

        def done(result: OSError | None) -> None:
            if self.failed is not None:
                return  # it took too long: nothing waits for it any more
            if result is not None:
                self.fail(result)
                return
            log.flushed = end
            self.flushed_timestamp_ms = timestamp_ms
            self.log.tail.refuse(SLOW, log.end - end >= UNFLUSHED_MAX)
            # What came meanwhile is synced while those before it are answered. Under SYNC_FLUSH a
            # message without a waiting send is seen once it is durable, too.
            if self._waiters or self._config.flush_disk_type is FlushMode.SYNC_FLUSH:
                self.start()
            # Visible first, acknowledged second: a sender that reads back its message finds it.
            self._on_flushed()
            self._release()

        self._lane.sync(log.unflushed(end), done)

    def _look_at_files(self, steady_ms: int) -> None:
        """A file that is not there any more keeps nothing: no sync of it makes anything durable. A
        disk's thread looks, for a disk that hangs answers no such question either."""
        if self.rests or self.failed is not None:
            return
        if self._looking.busy or steady_ms < self._look_ms:
            return
        self._look_ms = steady_ms + WATCH_MS
        look, cuts = LogWatch(self.log), self._cuts

        def done(found: Found | OSError) -> None:
            if not isinstance(found, OSError) and self._cuts == cuts and self.failed is None:
                lost = look.lost(found)
                if lost is not None:
                    self.fail(lost)

        self._looking.submit(look.find, done)

    def _watch(self, passed_ms: int) -> None:
        """The sync that is under way, if any, has taken as much longer."""
        watch = self._sync_watch.passed if self._lane.busy else self.cut_watch
        if watch is not None and self.failed is None:
            late = watch(passed_ms)
            if late is not None:
                self.fail(late)

    @property
    def is_idle(self) -> bool:
        """Whether no sync is under way."""
        return not self._lane.busy

    def let_go(self) -> None:
        """Block until that is so."""
        self._lane.finish()

    def is_slow(self) -> bool:
        """Whether the disk does not keep up with what is appended; a sync is under way then."""
        slow = self.log.end - self.log.flushed >= UNFLUSHED_MAX
        if slow:
            self.start()
            slow = self.log.end - self.log.flushed >= UNFLUSHED_MAX
        self.log.tail.refuse(SLOW, slow)
        return slow

    def finish(self) -> None:
        """Block until all that was appended is durable or has failed."""
        while self.failed is None and self.log.flushed < self.log.end:
            self.start()
            self._lane.finish()
        self._lane.finish()

    def try_again(self, done: Callable[[OSError | None], None]) -> bool:
        """Whether what a sync failed for can be written now: it is, once more, and `done` told how
        that ended. The store stays failed: what else the system dropped is unknown. False while
        the sync that failed has not returned."""
        if self._lane.busy:
            return False
        ranges = self.log.unflushed(self.log.end)
        files, root = self.log.files, self._config.root

        def work() -> None:
            for mapped, start, stop in ranges:
                mapped.touch(start, stop)
                mapped.sync(start, stop)
            files.sync(f"{root}/{checkpoints.FILE_NAME}")
            files.sync_folder(root)

        self._lane.submit(work, done)
        return True

    def withdraw(self, log_end: LogOffset) -> list[Later[PutStatus]]:
        """The log will be cut there: end the sync that is under way, and hand out those who wait
        for what is cut, for the caller to tell."""
        found: list[Later[PutStatus]] = []
        self._cuts += 1
        if self.held is not None:
            self.held.fail(PutStatus.FLUSH_DISK_TIMEOUT, log_end)
        while True:
            found += [waiter.later for waiter in self._waiters if waiter.end > log_end]
            self._waiters = deque(one for one in self._waiters if one.end <= log_end)
            if not self._lane.busy:
                return found
            # A send that is answered now may append again: look at the waiters once more.
            self._lane.finish()

    def resume(self, flushed_timestamp_ms: int) -> None:
        """The log was cut, and what is left of it is durable."""
        self.flushed_timestamp_ms = flushed_timestamp_ms
        self._release()

    def fail(self, error: OSError) -> None:
        """The log is not what memory says: nothing is acknowledged any more."""
        logger.error("the commit log cannot be made durable, writes are refused: %s", error)
        self.failed = error
        self.log.tail.refuse(SYNC_FAILED, True)
        self.close()

    def close(self, status: PutStatus = PutStatus.FLUSH_DISK_TIMEOUT) -> None:
        """Tell those who still wait that it is over."""
        while self._waiters:
            self._waiters.popleft().later.resolve(status)
        if self.held is not None:
            self.held.fail(status)

    def _release(self) -> None:
        waiters = self._waiters
        while waiters and waiters[0].end <= self.log.flushed:
            waiters.popleft().later.resolve(PutStatus.PUT_OK)
        if self.held is not None and self._config.flush_disk_type is FlushMode.SYNC_FLUSH:
            self.held.flushed_to(self.log.flushed)

    def hold(self, held: Held) -> None:
        """Answers that are held wait for the same as those who `wait`."""
        self.held = held
        held.steady_ms = self._steady_ms
        held.disk_wait_ms = self._config.sync_flush_timeout_ms
        if self._config.flush_disk_type is FlushMode.SYNC_FLUSH:
            held.flushed_to(self.log.flushed)
