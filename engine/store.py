"""The store: log, queues and index as one, for a single writer.

Owns the order append, become durable, be dispatched, be seen; and open, tick, close. It must never
block on a disk while it runs, and is used from one thread only. queues/reading.py has the reads.

    recovering --open--> open --close--> closed

Tests: tests/unit/engine/log/test_commit_log.py,
    tests/unit/engine/queues/test_lookup.py,
    tests/unit/engine/lifecycle/test_recovery.py
"""

import logging
from collections.abc import Callable, Sequence

from turbopump.engine.config import StoreConfig
from turbopump.engine.deferred import Deferred
from turbopump.engine.disk.files import Files
from turbopump.engine.disk.flush import Disk
from turbopump.engine.disk.segments import MappingPool
from turbopump.engine.disk.store_paths import is_folder_name
from turbopump.engine.lifecycle import recovery, truncation
from turbopump.engine.lifecycle.health import store_health, why_unfit
from turbopump.engine.lifecycle.parts import OpenedParts, build_parts, lock_folder
from turbopump.engine.lifecycle.queue_listeners import QueueListener, QueueListeners
from turbopump.engine.lifecycle.retention import Retention, make_room
from turbopump.engine.lifecycle.topic_deletion import TopicDeletions
from turbopump.engine.lifecycle.truncate_queues import ABORT_FILE
from turbopump.engine.log.commit_log import CLOSED, NOT_MASTER
from turbopump.engine.log.damage import Damage
from turbopump.engine.log.epochs import NO_EPOCH
from turbopump.engine.log.group_commit import GroupCommit
from turbopump.engine.queues.dispatcher import with_inner_base
from turbopump.engine.queues.native import Commit, TimerDeps, make_lane, make_pulls
from turbopump.engine.queues.reading import StoreReader
from turbopump.engine.replicated import Replicated
from turbopump.engine.statistics import StoreStatistics
from turbopump.engine.types import (
    Appended,
    FlushMode,
    LogOffset,
    NewMessage,
    Progress,
    PutStatus,
    QueueOffset,
    StoreError,
    StoreHealth,
)
from turbopump.pyx.lane import Lane
from turbopump.pyx.pulls import Pulls
from turbopump.pyx.tail import UNLIMITED

logger = logging.getLogger(__name__)

TRANSACTION_MASK = 0x0C
"""Bits of sys_flag with a message's part in a transaction; 0: no transaction, 0x08: commit."""
TRANSACTION_PREPARED = 0x04
"""Value of the bits of TRANSACTION_MASK of a half message."""
TRANSACTION_ROLLBACK = 0x0C
"""Value of these bits of a rollback."""


class Store(StoreReader):
    """An open store, made by `open`. All methods run on one thread. Times named `now_ms` are the
    wall clock's, in epoch milliseconds."""

    def __init__(self, opened: OpenedParts) -> None:
        """Make a store of recovered parts in a locked folder; only for `open`."""
        parts, disk = opened.parts, opened.disk
        super().__init__(parts, parts.dispatcher, StoreStatistics(started_ms=opened.now_ms))
        self.config = parts.config
        """The settings in force, with the size of existing log files; see `StoreConfig`."""
        self.extensions = parts.extensions
        """The queue extensions; None unless enableConsumeQueueExt."""
        self._parts = parts
        self._files = parts.files
        self._checkpointer = parts.checkpointer
        self._pool, self._lock, self._disk = opened.pool, opened.lock, disk
        self._is_sync = parts.config.flush_disk_type == FlushMode.SYNC_FLUSH
        self._listeners = QueueListeners(parts, self.statistics)
        self._closed, self._now_ms = False, opened.now_ms
        self._commit = GroupCommit(
            parts.log, parts.config, disk, self._on_flushed, opened.steady_ms
        )
        self.try_again, self.pending = self._commit.sync_after_failure, self._commit.pending
        """`GroupCommit.sync_after_failure`, and the sends that wait for the disk or for
        replicas."""
        self._replicated: Replicated | None = None
        self._retention = Retention(parts, parts.checkpointer, disk, opened.room)
        self.deletions = TopicDeletions(parts, self._retention)
        """Removal of topics' queues without waiting for the disk."""
        self.queue_of: Callable[[str, int], int] = lambda _topic, queue_id: queue_id
        """Takes (topic, queue id) of a message that waited (for a time or a commit), and returns
        the id of the queue to append it to: the topic may have fewer queues now. The broker
        replaces this function."""
        self.on_unapplied_deletions: list[Callable[[int], None]] = []
        """Called with epoch ms, inside `notify_new_lives`, if `deletions.unapplied` has topics."""
        self._checkpointer.start(opened.steady_ms)
        self._retention.start(opened.steady_ms)

    @classmethod
    def open(
        cls,
        files: Files,
        config: StoreConfig,
        disk: Disk,
        now_ms: int,
        *,
        steady_ms: int | None = None,
        delay_levels_ms: Sequence[int] = (),
        is_batch_topic: Callable[[str], bool] = lambda topic: False,
        watch: Callable[[Progress], None] = lambda _progress: None,
    ) -> "Store":
        """Lock a store folder, recover it and make it writable; an empty folder becomes a store.
        Waits for the disk; a recovery after a crash may take minutes.

        `steady_ms`: the monotonic clock in ms, see `tick`; None: `now_ms`. `delay_levels_ms`: the
        delay of each level of messageDelayLevel, from level 1 on. `is_batch_topic`: whether a topic
        has `queue.type=BatchCQ`. `watch` receives the progress of a long recovery several times a
        second, and may raise OpeningStopped, which passes through: the next opening continues from
        there. Raises StoreError if the folder is locked or unreadable, has files of another size,
        or lacks room. After any error the folder is unlocked.
        """
        lock = lock_folder(files, config)
        pool = MappingPool(files, files.mapping_limit())
        try:
            parts = build_parts(files, config, disk, pool, is_batch_topic, list(delay_levels_ms))
            recovery.recover_store(parts, now_ms, watch)
            parts.checkpointer.sync_and_save(parts.log.last_store_timestamp_ms)
            parts.damage.save()
            room = make_room(files, parts.config, parts.log)
        except OSError as error:
            pool.close()
            lock.release()
            raise StoreError(f"the store in {config.root} cannot be opened: {error}") from error
        except BaseException:
            pool.close()
            lock.release()
            raise
        steady_ms = now_ms if steady_ms is None else steady_ms
        return cls(
            OpenedParts(
                parts=parts,
                disk=disk,
                pool=pool,
                lock=lock,
                room=room,
                now_ms=now_ms,
                steady_ms=steady_ms,
            )
        )

    @property
    def confirm_log_offset(self) -> LogOffset:
        """Log offset before which readers may read; without replicas the end of the dispatched
        records."""
        replicated = self._replicated
        return self._dispatcher.position if replicated is None else replicated.confirm

    @property
    def damage(self) -> Damage | None:
        """The first damaged place of the log that is not given up, or None. While it is set, the
        store takes no writes and its broker is ineligible: no replica may follow it, and it may not
        be elected."""
        return self._damage.first

    @property
    def damages(self) -> list[Damage]:
        """All known damaged places of the log by log offset, including places that an operator gave
        up."""
        return self._damage.known_places

    def check_log(self) -> list[Damage]:
        """Check every dispatched record of the log; returns `damages`, and new places count at
        once. Blocks for the time of reading the log: for tools."""
        self._damage.verify_records(self._log.min, self._dispatcher.position)
        self._damage.save()
        return self._damage.known_places

    def skip_damaged_record(self, log_offset: LogOffset) -> Damage:
        """Continue without the damaged record that begins at `log_offset`: it stays in the log and
        is never served, and the store takes writes again once no other place is damaged. Returns
        the place. The decision is saved soon, on a disk thread. Raises StoreError if no damage is
        known there."""
        place = self._damage.mark_given_up(log_offset)
        self._damage.save()
        return place

    def put_refusal(self, now_ms: int) -> PutStatus | None:
        """Status with which a put of a valid message would be refused now, None if the store is
        writable: SERVICE_NOT_AVAILABLE or OS_PAGE_CACHE_BUSY. May begin a sync and dispatch
        records."""
        is_unfit = self.health is StoreHealth.FAILED or self._retention.disk_full
        if self._closed or is_unfit or self._log.tail.refusals & NOT_MASTER:
            return PutStatus.SERVICE_NOT_AVAILABLE
        if self._commit.is_slow():
            return PutStatus.OS_PAGE_CACHE_BUSY
        # Queues may lag because the disk was full: dispatch again before refusing (store.md 11).
        if self._dispatcher.stalled is not None:
            self._run_dispatch(now_ms)
            if self._dispatcher.stalled is not None:
                return PutStatus.SERVICE_NOT_AVAILABLE
        return None

    @property
    def health(self) -> StoreHealth:
        """Whether the store can take messages, whatever the broker's role; SLOW: it takes them, but
        its syncs take too long for sends."""
        return store_health(self._parts, self._commit, self._retention)

    @property
    def is_sync_slow(self) -> bool | None:
        """Whether syncs of the log take too long for sends under SYNC_FLUSH; None: unknown. Always
        False under ASYNC_FLUSH."""
        return self._commit.is_sync_slow

    @property
    def why_unfit(self) -> str:
        """Reason why the store takes no messages, a sentence for operators and senders; "" if it
        takes them, or only the broker's role forbids it."""
        return why_unfit(self._parts, self._commit, self._retention)

    def append(self, message: NewMessage, now_ms: int) -> Appended:
        """Append a message to memory; `when_safe` reports when it is durable. Nothing is written
        unless the status is PUT_OK; an invalid message is a status, never an exception.

        Under ASYNC_FLUSH the message can be read when this returns; under SYNC_FLUSH once it is
        durable, for which this begins a sync. Half messages and rollbacks (sys_flag) get no queue
        offset. A message of a batch topic takes the number of queue offsets in its property
        INNER_NUM.
        """
        refused = self._refusal_of(message, now_ms)
        if refused is not None:
            return refused
        kind = message.sys_flag & TRANSACTION_MASK
        if kind in (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK):
            # No queue unit, and the queue's counter stays (store.md 10).
            appended = self._log.append(message, message.properties, QueueOffset(0), now_ms)
        elif self._dispatcher.is_batch(message.topic):
            appended = self._append_inner(message, now_ms)
        else:
            queue = self._queues.find(message.topic, message.queue_id)
            offset = self._queues.table.next_offset(queue.slot) if queue is not None else 0
            appended = self._log.append(message, message.properties, QueueOffset(offset), now_ms)
            if appended.status is PutStatus.PUT_OK:
                self._set_next_offset(message, offset + 1)
        return self._count_append(message, appended, now_ms)

    def append_batch(self, message: NewMessage, now_ms: int) -> Appended:
        """Append the elements of a batch body (remoting.md 9.4) as single records, all or none,
        with consecutive queue offsets; else as `append`. MESSAGE_ILLEGAL for a transaction's
        message or a batch topic."""
        refused = self._refusal_of(message, now_ms)
        if refused is not None:
            return refused
        if message.sys_flag & TRANSACTION_MASK or self._dispatcher.is_batch(message.topic):
            reason = "a batch cannot be transactional or go to a batch topic"
            return Appended(PutStatus.MESSAGE_ILLEGAL, reason=reason)
        queue = self._queues.find(message.topic, message.queue_id)
        offset = self._queues.table.next_offset(queue.slot) if queue is not None else 0
        appended = self._log.append_batch(message, QueueOffset(offset), now_ms)
        if appended.status is PutStatus.PUT_OK:
            self._set_next_offset(message, offset + len(appended.log_offsets))
        return self._count_append(message, appended, now_ms)

    def when_safe(self, appended: Appended, copies: int = 1) -> Deferred[PutStatus]:
        """Resolves with the status for the sender: PUT_OK once the record is durable (under
        SYNC_FLUSH only) and `copies` brokers, this one included, have it (-1: all members); at once
        with the status of a refused append. FLUSH_DISK_TIMEOUT after syncFlushTimeout or a failed
        sync, FLUSH_SLAVE_TIMEOUT after `pending.replica_wait_ms`, SERVICE_NOT_AVAILABLE when the
        broker becomes a replica."""
        if appended.status is PutStatus.PUT_OK:
            return self._commit.wait_until_safe(appended.end, copies)
        return Deferred.resolved(appended.status)

    def commit(self) -> None:
        """Begin to make the appended bytes durable, on a disk thread; no-op while a sync is under
        way (`flush_soon` is the same)."""
        self._commit.start_sync()

    def disk_used_ratio(self) -> float:
        """Usage of the fuller of the two disks of log and queues, 0.0 to 1.0; at most some
        cleanResourceInterval old."""
        return self._retention.last_disk_report.used_percent / 100

    def disk_space(self) -> tuple[int, int]:
        """(total, free) bytes of the disk that holds the log; as old as `disk_used_ratio`."""
        return self._retention.last_disk_report.space

    def delete_topic(self, topic: str, log_end: int | None = None, now_ms: int = 0) -> None:
        """Remove a topic's queues as of the log offset `log_end` (None: now) and its counts, and
        wait for the disk: for tools; a broker uses `deletions.delete`. Raises StoreError."""
        self.deletions.delete_now(topic, log_end, now_ms)
        self.statistics.forget_topic(topic)

    def idle_counts(self) -> dict[str, dict[int, int]]:
        """Topic to queue id to the next queue offset, of queues without a message in the log, see
        `Replicated.idle_queue_counts`; empty without replication."""
        return self._replicated.idle_queue_counts() if self._replicated is not None else {}

    def truncate(self, log_offset: LogOffset, now_ms: int) -> None:
        """Remove the log's bytes from `log_offset` on, where a record begins, durably, and all that
        is derived from them; waits for the disk; see `truncation`.

        A send whose record is cut gets FLUSH_DISK_TIMEOUT. At the end of the log nothing is cut,
        but as after any cut all bytes before are durable. Raises StoreError: a refused position
        changes nothing; after trouble with the disk the store refuses writes, and the next start
        ends at the old end or at the cut.
        """
        if self._closed:
            raise StoreError("the log cannot be cut: the store is closed")
        truncation.truncate_and_wait(self._parts, self._commit, self._retention, log_offset, now_ms)

    def as_replicated(self, now_ms: int, *, plain: bool = False) -> Replicated:
        """This store as a member of a replication group (`plain`: default HA), see Replicated. The
        first call makes it a replica, which takes no messages until `Replicated.begin_term` or
        `to_master`; later calls return the same object. Waits for the disk. Raises StoreError."""
        if self._replicated is None:
            self._now_ms = now_ms
            self._replicated = Replicated(
                self._parts, self._commit, self._retention, self._disk, self._run_dispatch, plain
            )
            if self.statistics.lane is not None:
                self.statistics.lane.grown = self._replicated.on_log_grown
        return self._replicated

    def stand_alone(self, now_ms: int) -> None:
        """Leave a replication group, or confirm that the store has no group: serve all of the log
        and take messages, for which no copy is needed. A store that was replicated serves nothing
        after confirmOffset and takes no messages until this call, or until `as_replicated` and a
        role. After `as_replicated` this call is a programmer error. Waits for the disk. Raises
        StoreError."""
        assert self._replicated is None, "it is replicated"
        if self._log.tail.limit != UNLIMITED:
            group = (self._parts, self._commit, self._retention, self._disk, self._run_dispatch)
            Replicated(*group, plain=True).to_master(NO_EPOCH, now_ms)
            self.pending.ask_for(1)

    def make_pulls(self, commit: Commit) -> Pulls:
        """A new native reader with the results of `read`, used until the store closes. `commit`
        receives (group, topic, queue id, queue offset, now_ms) of each offset a pull commits."""
        pulls = make_pulls(self.config, self._log, self._queues, self._lookup, commit)
        self.statistics.pulls.append(pulls)
        return pulls

    def make_lane(
        self,
        arrived: Callable[[], None],
        clock: Callable[[], int] | None = None,
        appended: Callable[[], None] = lambda: None,
    ) -> Lane:
        """The native writer, used until the store closes and made once; its appends have the same
        results as `append`.

        `arrived` is called when queues have grown while the lane is `watched`: the caller has to
        call `notify_arrivals` soon. `appended` is called under SYNC_FLUSH when records were
        appended: the caller has to call `commit` soon. `clock`: the wall clock in epoch ms."""

        def dispatch(now_ms: int) -> None:
            if self._is_sync:
                appended()
            else:
                # Without listeners: the lane reports arrivals while watched, else the tick does.
                self._run_dispatcher(now_ms)
            self._log.make_next_file_if_near()

        def may_add(topic: str) -> bool:
            is_legal = is_folder_name(topic) and topic not in self.deletions.in_progress
            return is_legal and self._dispatcher.is_plain(topic)

        lane = make_lane(self._log, self._queues, self.pending, dispatch, arrived, may_add, clock)
        lane.is_sync = self._is_sync
        lane.grown = None if self._replicated is None else self._replicated.on_log_grown
        self.statistics.lane = lane
        return lane

    def forget_targets(self) -> None:
        """Call this when topics have changed: native deliveries of timers then ask `queue_of`
        again, whose results they cache."""
        self._queues.table.close_slots()

    def timer_deps(self) -> TimerDeps:
        """Parts of the store for the appends of engine/timer/timer_batches.py alone."""

        def written(now_ms: int) -> None:
            self._note_append(now_ms)
            self._log.make_next_file_if_near()

        return TimerDeps(
            self._log,
            self._queues,
            self._lookup,
            self.statistics,
            written,
            lambda: self._dispatcher.position,
        )

    def on_arrival(self, callback: QueueListener) -> None:
        """Register a callback, which receives (topic, queue id, new max queue offset) of each queue
        with new messages that can be read; called on the store's thread, also inside `append` and
        `tick`."""
        self._listeners.add_callback(callback)

    def tick(self, now_ms: int, steady_ms: int | None = None) -> None:
        """Call this every 100 ms: it ends timed out sends, and begins the due flushes, checkpoints
        and removals on disk threads.

        Intervals and deadlines use `steady_ms`, a monotonic clock whose zero is anywhere: setting a
        wall clock back must not pause the flushing. None: `now_ms`, for clocks that are never set.
        No-op after `close`.
        """
        if self._closed:
            return
        steady_ms = now_ms if steady_ms is None else steady_ms
        self._now_ms = now_ms
        self._commit.tick(steady_ms)
        if self._dispatcher.stalled is not None:
            self._run_dispatch(now_ms)
        self._log.warm_ahead(steady_ms)
        self.notify_new_lives(now_ms)
        self.notify_arrivals()
        for pulls in self.statistics.pulls:
            pulls.tidy()
        if self._replicated is not None:
            self._replicated.tick(now_ms)
        self._checkpointer.tick(steady_ms, self._commit.flushed_timestamp_ms)
        self._retention.tick(now_ms, steady_ms)
        self._damage.save()
        self.statistics.tick(steady_ms)

    def set_first_waiting(self, log_offset: LogOffset) -> None:
        """Set the log offset of the first message that waits: a timer, delayed message, open half
        message or pop check point. Kept in memory: the broker calls this again as it changes.
        Removal by age spares that file and all later ones (keepWaitingMessages), within limits.
        Messages that begin to wait later lie later in the log."""
        self._retention.waiting_from = log_offset

    @property
    def kept_bytes(self) -> int:
        """Bytes of log files older than fileReservedTime that are kept because messages wait in
        them, as of the last removal by age."""
        return self._retention.kept_bytes

    def flush_soon(self) -> None:
        """Begin to sync the appended bytes, on a disk thread, before ASYNC_FLUSH's interval
        ends."""
        self._commit.start_sync()

    def deleting_expired(self, now_ms: int) -> Deferred[int | OSError]:
        """Remove log files older than fileReservedTime, at most deleteFileBatchMax, on disk
        threads, at any hour. Resolves with the number of files that left the log (they are unlinked
        soon), or the error."""
        return self._retention.remove_expired_files(now_ms)

    def close(self, now_ms: int) -> None:
        """Flush log, queues, index and checkpoint, in this order, then remove the abort mark and
        unlock the folder; waits for the disk. Pending sends are answered. The second call is a
        no-op.

        An error is logged, not raised: the mark stays, and the next start recovers as after a
        crash.
        """
        if self._closed:
            return
        try:
            self._finish_close(now_ms)
        except (OSError, StoreError) as error:
            logger.error("the store was not closed cleanly: %s", error)
        finally:
            self._closed = True
            for pulls in self.statistics.pulls:
                pulls.let_go()
            self._queues.close()
            self._pool.close()
            self._lock.release()

    def _finish_close(self, now_ms: int) -> None:
        """Make all data durable and remove the abort mark; raises the reason if that fails."""
        try:
            if self._replicated is not None:
                self._replicated.finish_for_close()
            self._run_dispatch(now_ms)
        finally:
            self._closed = True
            self._log.tail.refuse(CLOSED, True)
            self._commit.sync_all()
            self._commit.close()
            self._retention.wait_for_removals()
            self._damage.close()
            self._checkpointer.wait_for_round()
            self._log.close()
        seen_end = min(self._log.end, self._log.tail.limit)
        if self._commit.failed is None and self._dispatcher.position == seen_end:
            self._checkpointer.sync_and_save(self._log.last_store_timestamp_ms, last=True)
            self._files.remove(f"{self.config.root}/{ABORT_FILE}")
            self._files.sync_folder(self.config.root)

    def _refusal_of(self, message: NewMessage, now_ms: int) -> Appended | None:
        """The refusal of this message, which is counted; None if the store is writable, the queue's
        name is legal and the topic is not being deleted."""
        status = self.put_refusal(now_ms)
        if status is not None:
            self.statistics.count_refused_put()
            return Appended(status, reason=self._why_refused())
        if message.queue_id < 0 or not is_folder_name(message.topic):
            reason = f"no queue can be named {message.topic[:80]!r}, {message.queue_id}"
            return Appended(PutStatus.MESSAGE_ILLEGAL, reason=reason)
        if message.topic in self.deletions.in_progress:
            reason = f"topic {message.topic} is being deleted"
            return Appended(PutStatus.SERVICE_NOT_AVAILABLE, reason=reason)
        return None

    def _why_refused(self) -> str:
        """Reason of a refusal, one sentence for the sender and the log."""
        if self._closed:
            return "the store is closed"
        if self._log.tail.refusals & NOT_MASTER and self._damage.first is None:
            return "this broker is not the master"
        return self.why_unfit or "the disk does not keep up"

    def _append_inner(self, message: NewMessage, now_ms: int) -> Appended:
        """Append a message of a batch topic, whose INNER_BASE is known only now (store.md 8)."""
        queue = self._batches.get(message.topic, message.queue_id)
        text, count = with_inner_base(message.properties, queue.next_offset)
        appended = self._log.append(message, text, queue.next_offset, now_ms)
        if appended.status is PutStatus.PUT_OK:
            queue.next_offset = QueueOffset(queue.next_offset + count)
        return appended

    def _set_next_offset(self, message: NewMessage, next_offset: int) -> None:
        """Set the next queue offset of the message's queue, which is added if it does not exist."""
        queue = self._queues.find(message.topic, message.queue_id)
        if queue is None:
            plain = self._dispatcher.is_plain(message.topic)
            queue = self._queues.add(message.topic, message.queue_id, plain)
        self._queues.table.set_next_offset(queue.slot, next_offset)

    def _count_append(self, message: NewMessage, appended: Appended, now_ms: int) -> Appended:
        """Count an append, and make its records visible or durable if it succeeded;
        returns `appended`."""
        if appended.status is not PutStatus.PUT_OK:
            self.statistics.count_refused_put()
            return appended
        self.statistics.put(message.topic, len(appended.log_offsets), appended.size)
        self._note_append(now_ms)
        return appended

    def _note_append(self, now_ms: int) -> None:
        """Make the appended records visible or durable, and report them."""
        self._now_ms = now_ms
        if self._is_sync:
            self._commit.start_sync()
        else:
            self._run_dispatch(now_ms)
        if self._replicated is not None:
            self._replicated.on_log_grown()

    def _on_flushed(self) -> None:
        """Dispatch after a group commit: under SYNC_FLUSH messages become visible only now."""
        if self._is_sync:
            self._run_dispatch(self._now_ms)
        if self._replicated is not None:
            self._replicated.on_log_flushed(self._now_ms)

    def _run_dispatch(self, now_ms: int) -> None:
        """Run the dispatcher, and call the listeners of the queues that have grown."""
        self._run_dispatcher(now_ms)
        self.notify_arrivals()

    def _run_dispatcher(self, now_ms: int) -> None:
        """Dispatch the records that readers may see, without calls of listeners."""
        log = self._log
        if log.is_suspended:
            return  # the log is being cut, see truncation.py
        if (
            not self._is_sync
            and self._dispatcher.stalled is None
            and not log.is_raw(log.end)
            and self._queues.table.advance_log(log.tail)
        ):
            return
        until = LogOffset(min(log.flushed if self._is_sync else log.end, log.tail.limit))
        if self._replicated is not None:
            until = self._replicated.record_boundary_before(until)
        self._dispatcher.run(until, now_ms)
        if self._dispatcher.new_lives.is_news:
            self.notify_new_lives(now_ms)

    def notify_new_lives(self, now_ms: int) -> None:
        """Call `on_unapplied_deletions` if the log proves deletions that are not applied yet."""
        new_lives = self._dispatcher.new_lives
        new_lives.is_news = False
        if new_lives:
            for callback in self.on_unapplied_deletions:
                callback(now_ms)

    def notify_arrivals(self) -> None:
        """Call the callbacks of `on_arrival` for each queue that has grown since the last call."""
        self._listeners.notify_grown_queues()
