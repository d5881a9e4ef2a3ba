"""A store whose log is one of several copies.

Owns the changes that replication makes to a store: bytes of the master are appended unchanged, the
log is cut or restarted, epochs are recorded, readers stop at confirmOffset.
lifecycle/replica_log.py reports the state. It must never know a connection, nor decide which broker
is the master or which bytes are confirmed: its driver does. One thread.

A transfer ends anywhere, but only its whole records are written (replica_append.py). confirmOffset
and all offsets in the checkpoint are record boundaries, too. (Bytes that are not records, which a
damaged log sends, are written as they come.) A crash leaves:

1. Bytes that were appended and not synced: any part of them, as of a master's own. Recovery walks
from the checkpoint's mark, a record boundary, to the first record that is not whole, and cuts
there. A killed process leaves whole records only. The master sends the missing bytes again. A store
without WHOLE_MARK_FILE may have bytes of older versions or of RocketMQ: a record without its last
bytes has zeros there, and no text ends in zeros (pyx.walk: CUT_BYTES).

2. The epoch list is durable before the bytes it labels (`record_epochs`, `record_term`), by one
line (epoch_file.py), and is cut after them (`begin_truncation`): entries that start after the log's
end are void, and the next open drops them.

3. confirmOffset is in the checkpoint (RocketMQ's confirmPhyOffset), written each second and at the
end, so it may be old; if the log lost bytes it is lowered to the log's end. The checkpoint records
that before other bytes are appended there.

4. `begin_restart` marks that it began. A start that finds the mark finishes the removal.

5. A cut: see truncation.py.

A store knows that it was replicated by its epoch file, which exists before the first byte of a
replica, or by MARK_FILE, which exists ever after: recovery then dispatches up to confirmOffset
only, because a reader must not see bytes that the next master may lack. (A configuration key would
be wrong exactly at the start when it matters.) A store with messages and neither file was never
replicated: it may lead, and its records are older than any epoch. A store that lost its epoch file
may not lead (S1).

Default HA (`plain`) has neither epochs nor confirmOffset: readers may read all of a replica's log.
It has a mark of its own, from which recovery knows that the log may end inside a record.

    replica --record_term, begin_term--> master --to_replica--> replica

A store begins as a replica; only a replica is cut, restarted or given bytes.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial

from turbopump.engine.deferred import Deferred
from turbopump.engine.disk.disk_steps import no_work
from turbopump.engine.disk.flush import Disk
from turbopump.engine.disk.serial_tasks import SerialTasks
from turbopump.engine.lifecycle import truncation
from turbopump.engine.lifecycle.parts import StoreParts
from turbopump.engine.lifecycle.replica_log import ReplicaLog
from turbopump.engine.lifecycle.retention import Retention
from turbopump.engine.lifecycle.truncate_async import AsyncTruncation, Ended
from turbopump.engine.log.commit_log import NOT_MASTER
from turbopump.engine.log.epoch_keeping import EpochKeeping
from turbopump.engine.log.epochs import Epochs
from turbopump.engine.log.group_commit import GroupCommit
from turbopump.engine.log.marker_files import MarkerFiles
from turbopump.engine.log.record_boundary import whole_before
from turbopump.engine.queues.queue_counts import Counts, QueueCounts
from turbopump.engine.types import Buffer, FlushMode, LogOffset, PutStatus, StoreError
from turbopump.pyx.ha_copy import PlainFrames
from turbopump.pyx.tail import UNLIMITED

logger = logging.getLogger(__name__)


class Replicated(ReplicaLog):
    """A store in a replication group, see Store.as_replicated. It begins as a replica, and appends
    no message until it is a master. `now_ms` is the wall clock in epoch ms. The methods that return
    a Deferred do not wait for the disk, and resolve it on the loop thread, if no other result is
    named, with None or the error."""

    def __init__(
        self,
        parts: StoreParts,
        commit: GroupCommit,
        retention: Retention,
        disk: Disk,
        dispatch: Callable[[int], None],
        plain: bool,
    ) -> None:
        super().__init__(parts, commit, retention, plain)
        self.is_master = False
        """Whether this store's own appends are taken."""
        self.on_cut: list[Callable[[], object]] = []
        """Called on the loop thread after the log was cut or restarted, and queues and index with
        it."""
        self.on_appended: list[Callable[[], None]] = []
        """Called on the loop thread after messages were appended, once per batch of requests that a
        connection read."""
        self.on_flushed: list[Callable[[LogOffset], None]] = []
        """Called on the loop thread after each sync, with the log offset before which all bytes are
        durable."""
        self.pending = commit.pending
        """Sends that wait for the disk, and for the number of copies that the term requires."""
        self._marks = MarkerFiles(parts.files, parts.config.root, plain)
        self._steps = SerialTasks(disk)
        self._confirm_wanted = LogOffset(0)
        self._dispatch = dispatch
        self._kept = EpochKeeping(
            parts.files, parts.log, disk, self._steps, self._marks, plain=plain
        )
        self._counts = QueueCounts(parts.files, parts.config.root)
        self._truncation = AsyncTruncation(parts, commit, retention, self._kept, self._counts)
        self._is_sync = parts.config.flush_disk_type is FlushMode.SYNC_FLUSH
        parts.log.tail.refuse(NOT_MASTER, True)
        self._begin_confirming()

    # Roles

    def to_replica(self, now_ms: int) -> None:
        """Stop taking messages, or stay a replica for another master, at once and without waiting
        for the disk. Pending sends fail with SERVICE_NOT_AVAILABLE, because their outcome is
        unknown. Received bytes that are not written yet are dropped."""
        self.is_master = False
        self._log.tail.refuse(NOT_MASTER, True)
        self._received.drop_waiting(is_aligned=self._received.is_aligned)
        self._begin_confirming()
        self._confirm_wanted = self.confirm  # later confirmOffsets come from the next master
        self.pending.withhold(PutStatus.SERVICE_NOT_AVAILABLE)

    def to_master(self, epoch: int, now_ms: int) -> LogOffset:
        """Become the master of an epoch, durably, even if already a master: `record_term`, then
        `begin_term`. Returns the log offset at which the epoch starts: the log's end, after cutting
        an incomplete record. Default HA ignores the epoch. Raises StoreError, and then this is not
        a master. Waits for the disk: for tools, and before a loop runs."""
        self._truncation.wait_until_idle()
        self._check_may_lead(epoch, now_ms)
        start = self._cut_torn()
        truncation.timestamp_before(self._log, self._parts.damage, start)
        self._steps.wait_until_idle()
        try:
            self._kept.begin_epoch_work(epoch, start)()
        except OSError as error:
            raise _epoch_error(epoch, error) from error
        self._kept.adopt_begun_epoch(epoch, start)
        self.begin_term(start, now_ms)
        return start

    def record_term(self, epoch: int, now_ms: int) -> Deferred[LogOffset | StoreError]:
        """Record on a disk thread that `epoch`, newer than all in the epoch list, starts at the
        log's end; an incomplete record there is cut first. Resolves with that log offset, or the
        error. The store becomes a replica at once, and a master only by `begin_term`, which need
        not follow: other members may lack an epoch without bytes."""
        if self._truncation.busy:
            return self._truncation.run_after_cut(lambda: self.record_term(epoch, now_ms))
        result: Deferred[LogOffset | StoreError] = Deferred()
        try:
            self._check_may_lead(epoch, now_ms)
            start = self._whole_end()
            if start < self._log.end:
                return self._cut_then_record(start, epoch, now_ms)
            truncation.timestamp_before(self._log, self._parts.damage, start)
        except StoreError as error:
            result.resolve(error)
            return result

        def done(error: OSError | None) -> None:
            if error is not None:
                result.resolve(_epoch_error(epoch, error))
                return
            self._kept.adopt_begun_epoch(epoch, start)
            result.resolve(start)

        self._steps.submit(lambda: self._kept.begin_epoch_work(epoch, start), done)
        return result

    def begin_term(self, start: LogOffset, now_ms: int) -> None:
        """Become the master: take messages in the epoch that `record_term` recorded as starting at
        `start`, at which the log must still end. Raises StoreError."""
        self._check_usable()
        if self.damage is not None:
            raise StoreError(f"the log cannot be led: {self.damage}")
        log = self._log
        assert log.end == start, "the log changed before its master's epoch began"
        timestamp_ms = truncation.timestamp_before(log, self._parts.damage, start)
        log.end_raw(timestamp_ms)
        self._set_next_offsets(start)
        if self.is_default_ha:
            log.tail.limit, self._parts.checkpointer.confirm = UNLIMITED, None
            self._dispatch(now_ms)
        self.is_master = True
        log.tail.refuse(NOT_MASTER, False)

    def _cut_then_record(
        self, start: LogOffset, epoch: int, now_ms: int
    ) -> Deferred[LogOffset | StoreError]:
        """Cut the record that a transfer left incomplete, on disk threads, then record the
        term."""
        result: Deferred[LogOffset | StoreError] = Deferred()

        def cut(ended: Ended) -> None:
            if ended is None:
                self.record_term(epoch, now_ms).then(result.resolve)
            else:
                result.resolve(_epoch_error(epoch, ended))

        self._truncation.begin_cut(start, now_ms, partial(self._on_cut, start)).then(cut)
        return result

    def _check_may_lead(self, epoch: int, now_ms: int) -> None:
        """Become a replica, and raise StoreError if this store may not become the master
        of `epoch`."""
        self.to_replica(now_ms)
        self._check_usable()
        if self.damage is not None:
            raise StoreError(f"the log cannot be led: {self.damage}")
        if not self.is_default_ha:
            self._check_epoch(epoch)

    # The replica's side

    def append(
        self, log_offset: LogOffset, data: Buffer, now_ms: int, more: Sequence[Buffer] = ()
    ) -> None:
        """Append bytes of the master's log from `log_offset` on, `data` and then `more`; an empty
        log begins at `log_offset`. The bytes may end anywhere: an incomplete record waits in
        memory, and the next bytes continue after it, or at `end` again. They are not durable on
        return: see `sync`. Raises StoreError, OSError; all bytes before `end` were appended then.
        Waits for the disk if `needs_begin_at(log_offset)`. A programmer error while
        `is_truncating`."""
        self._check_usable()
        log, coming = self._log, self._received
        if self.is_master:
            raise StoreError("a master takes no bytes of another log")
        assert not self.is_truncating, "bytes of a log that is being cut"
        if self.needs_begin_at(log_offset):
            self._wait_for(self.begin_log_at(log_offset))
        if log_offset != log.end + coming.size:
            coming.drop_waiting(is_aligned=coming.is_aligned)
            if log_offset != log.end:
                raise StoreError(f"bytes from {log_offset} on, the log ends at {log.end}")
        size = log.file_size
        pieces = coming.take_writable([data, *more], size - log.end % size, size)
        self._marks.mark_writes(whole=coming.is_aligned)
        coming.put_back_unwritten(log.append_fitting_pieces(pieces, whole=coming.is_aligned))
        if self._is_sync:
            self._commit.start_sync()

    def append_frames(self, frames: PlainFrames) -> bool:
        """Append the bodies that `frames` took, with the result of `append`, but natively. False,
        with nothing written, unless they are whole records that continue a copied log which takes
        them now: `append` handles all else, and raises the errors."""
        log, coming = self._log, self._received
        if (
            log.tail.refusals != NOT_MASTER
            or self.is_truncating
            or coming.size
            or not coming.is_aligned
            or self._marks.whole is not True
            or not log.append_frames(frames)
        ):
            return False
        if self._is_sync:
            self._commit.start_sync()
        return True

    def write_waiting_bytes(self, now_ms: int) -> None:
        """While `is_blocked`: write the waiting bytes if there is a log file for them now. Raises
        as `append`."""
        self.append(LogOffset(self._log.end + self._received.size), b"", now_ms)

    def confirm_to(self, log_offset: LogOffset, now_ms: int) -> bool:
        """Let readers read up to `log_offset`, or to the last record boundary before, and never
        less than before. Returns whether they may read more now. An offset after the log's end
        counts as that end. Under SYNC_FLUSH bytes count once they are durable (R36). While the log
        is being cut the call is ignored: masters repeat it several times a second."""
        if self.is_truncating:
            return False
        log, tail = self._log, self._log.tail
        self._confirm_wanted = LogOffset(min(max(log_offset, self._confirm_wanted), log.end))
        wanted = min(self._confirm_wanted, log.flushed) if self._is_sync else self._confirm_wanted
        if wanted <= tail.limit:
            return False
        is_end = wanted in (log.end, log.flushed) and not log.is_raw(wanted)
        at = wanted if is_end else self._record_boundary_before(self.confirm, wanted)
        if at <= tail.limit:
            return False
        self._set_confirm(at)
        self._dispatch(now_ms)
        tail.last_store_timestamp_ms = max(
            tail.last_store_timestamp_ms, tail.dispatched_timestamp_ms
        )
        return True

    def record_epochs(self, epochs: Epochs) -> Deferred[Ended]:
        """Replace the epoch list by this list, durably, on a disk thread. The bytes that it labels
        may be written after the result None. The old list stays valid after an OSError."""
        assert not self.is_default_ha, "default HA has no epochs"
        if self._truncation.busy:
            return self._truncation.run_after_cut(lambda: self.record_epochs(epochs))

        def begin() -> Callable[[], None]:
            return self._kept.file.write_work(epochs) or no_work

        return self._run_after_earlier(begin, lambda: self._kept.file.set_written(epochs))

    def get_ready(self) -> Deferred[Ended]:
        """Resolves when earlier steps have ended and the disk has the mark whether whole records
        will be written; recovery must know that before the first of them. A caller that requests a
        master's log must wait for the result None first."""
        if self._truncation.busy:
            return self._truncation.run_after_cut(self.get_ready)
        whole = self._received.is_aligned
        if self._marks.whole is whole and not self._steps.busy:
            return Deferred.resolved(None)
        return self._run_after_earlier(
            lambda: partial(self._marks.mark_writes, whole=whole), lambda: None
        )

    def _run_after_earlier(
        self, begin: Callable[[], Callable[[], None]], took: Callable[[], None]
    ) -> Deferred[Ended]:
        """Run the work that `begin` returns after earlier steps, on a disk thread, and then `took`
        on the loop thread, unless it failed. Resolves with the error or None."""
        result: Deferred[Ended] = Deferred()

        def done(error: OSError | None) -> None:
            if error is None:
                took()
            result.resolve(error)

        self._steps.submit(begin, done)
        return result

    def begin_truncation(self, log_end: LogOffset, now_ms: int) -> Deferred[Ended]:
        """Remove the replica's log from `log_end` on, where a record begins, durably, with queues
        and index, then the epochs that begin there or later, on disk threads. The caller must
        append no bytes before the end; heartbeats and reads go on. Raises StoreError, OSError."""
        was_cut = partial(self._on_cut, log_end)
        return self._begin_log_change(lambda: self._truncation.begin_cut(log_end, now_ms, was_cut))

    def begin_restart(self) -> Deferred[Ended]:
        """Remove log, queues, index and epochs, durably, on disk threads, under the rules of
        `begin_truncation`; the next append sets where the log begins. After trouble with the disk
        the next start ends with an empty log, or with the old one."""
        emptied = partial(self._on_cut, LogOffset(0))
        return self._begin_log_change(lambda: self._truncation.begin_restart(emptied))

    def needs_begin_at(self, log_offset: LogOffset) -> bool:
        """Whether `begin_log_at` must run before bytes from `log_offset` on can be appended."""
        log = self._log
        return log.min == log.end and log_offset not in (log.end, log.end + self._received.size)

    def begin_log_at(self, log_offset: LogOffset) -> Deferred[Ended]:
        """Let an empty log begin at `log_offset`, where a file of the master's log begins, on disk
        threads, under the rules of `begin_truncation`."""
        emptied = partial(self._on_cut, LogOffset(0))
        began = partial(self._set_confirm, log_offset)
        return self._begin_log_change(
            lambda: self._truncation.begin_log_at(log_offset, emptied, began)
        )

    def sync(self, now_ms: int) -> None:
        """Begin to make the appended bytes durable, on a disk thread, unless a sync is under way;
        `on_flushed` is called when it has succeeded."""
        self._commit.start_sync()

    def protect_files(self, key: object, log_offset: LogOffset) -> None:
        """Protect the log files from `log_offset` on for the reader `key` until `unprotect_files`:
        from removal by age, not from a full disk. A later call with the same key replaces the
        offset."""
        self._retention.held[key] = log_offset

    def unprotect_files(self, key: object) -> None:
        """End the protection that `protect_files` set for `key`; no-op for an unknown key."""
        self._retention.held.pop(key, None)

    # Queues without a message in the log

    @property
    def needs_queue_counts(self) -> bool:
        """Whether the log began after its master's first byte, and no master has reported since the
        queue offsets of queues without a message in the log."""
        return self._counts.wanted

    @property
    def has_queue_counts(self) -> bool:
        """Whether the offsets of `needs_queue_counts` are known, or the current master does not
        know them (a RocketMQ broker)."""
        return not self._counts.wanted or self._counts.unknown

    def note_counts_unknown(self) -> None:
        """Note in memory that the current master does not know the offsets: `has_queue_counts` is
        True. The next master must be asked again."""
        self._counts.unknown = True

    def idle_queue_counts(self) -> Counts:
        """Topic to queue id to the next queue offset, for each queue whose messages are all too old
        to be in this log."""
        return self._counts.idle_offsets(self._parts.queues, self._log.min)

    def save_queue_counts(self, counts: Counts) -> Deferred[Ended]:
        """Save a master's `idle_queue_counts` on a disk thread, in place of the saved ones; they
        count once they are durable, and then `needs_queue_counts` is False. Offsets of queues with
        messages in this log have no effect. Fails at once while the log is being cut."""
        if self._truncation.busy:
            error = StoreError("queue counts cannot be taken while the log is being cut")
            return Deferred.resolved(error)
        result: Deferred[Ended] = Deferred()
        self._steps.run_steps(self._counts.replace_steps(counts, self._log.end), result.resolve)
        return result

    # For the store

    def tick(self, now_ms: int) -> None:
        """Called by `Store.tick` every 100 ms: begin a waiting cut, and update the epoch file, both
        on disk threads."""
        self._truncation.tick()
        if not self._truncation.busy:
            self._kept.tick(self.failed)

    def finish_for_close(self) -> None:
        """Called when the store closes: end a cut under way, cut an incomplete record at the log's
        end, and write the epoch file; waits for the disk. Raises StoreError, OSError."""
        self._truncation.wait_until_idle()
        self._kept.wait_until_idle()
        self._confirm_wanted = self.confirm
        self._cut_torn()
        if self.failed is None:
            self._kept.write_now()

    def on_log_grown(self) -> None:
        """Called by the store when this master has appended messages: run `on_appended`, whose
        callbacks push the messages to replicas."""
        for callback in self.on_appended:
            callback()

    def on_log_flushed(self, now_ms: int) -> None:
        """Called by the store when a sync succeeded: confirm bytes that waited for it, then run
        `on_flushed`."""
        if self._is_sync and self.confirm < self._confirm_wanted:
            self.confirm_to(self._confirm_wanted, now_ms)
        for callback in self.on_flushed:
            callback(self._log.flushed)

    def record_boundary_before(self, until: LogOffset) -> LogOffset:
        """Log offset of the last record boundary at `until` or before; `until` must not be less
        than the end of the dispatched records."""
        if until == self.confirm or not self._log.is_raw(until):
            return until
        return whole_before(self._log, self._parts.dispatcher.position, until)[0]

    def _cut_torn(self) -> LogOffset:
        """Cut the record that a transfer left incomplete, durably; returns the end of the log. No
        queue or index refers to the record. Raises StoreError. Waits for the disk: for tools, and
        when a store is closed."""
        log, commit = self._log, self._commit
        end = self._whole_end()
        if end < log.end:
            self.pending.answer(commit.prepare_cut(end, PutStatus.SERVICE_NOT_AVAILABLE))
            self._check_usable()
            try:
                log.cut_torn(end)
                self._confirm_wanted = min(self._confirm_wanted, end)
            except OSError as error:
                commit.fail_for_good(error)
                raise StoreError(f"the log cannot be cut at {end}: {error}") from error
        self._received.drop_waiting(is_aligned=True)
        return end

    # Cuts

    def _begin_log_change(self, begin: Callable[[], Deferred[Ended]]) -> Deferred[Ended]:
        """Call `begin`, which begins a cut or restart of the log; resolves with a StoreError
        instead if the store is a master, closed or failed."""
        result: Deferred[Ended] = Deferred()
        try:
            self._check_usable()
            if self.is_master:
                raise StoreError("a master's log can be neither cut nor restarted")
        except StoreError as error:
            result.resolve(error)
            return result
        return begin()

    def _wait_for(self, result: Deferred[Ended]) -> None:
        """Wait for the cut or restart of this result, and raise its error."""
        if not result.done:
            self._truncation.wait_until_idle()
        if result.value is not None:
            raise result.value

    def _on_cut(self, log_end: LogOffset) -> None:
        """The log was cut at `log_end`: drop received bytes, lower confirmOffset, call
        the callbacks `on_cut`."""
        self._received.drop_waiting(is_aligned=True)
        self._confirm_wanted = min(self._confirm_wanted, log_end)
        for callback in self.on_cut:
            callback()

    def _begin_confirming(self) -> None:
        """Stop readers at their current position until `confirm_to`."""
        if self._log.tail.limit == UNLIMITED:
            self._log.tail.limit = self._parts.dispatcher.position
        self._set_confirm(self.confirm)

    def _set_confirm(self, log_offset: LogOffset) -> None:
        """Let readers read up to `log_offset`, and let the next checkpoint record it as
        confirmOffset."""
        self._log.tail.limit = log_offset
        self._confirm_wanted = max(self._confirm_wanted, log_offset)
        self._parts.checkpointer.confirm = None if self.is_default_ha else log_offset

    def _set_next_offsets(self, log_end: LogOffset) -> None:
        """Let each queue continue after its last message in the log, even if that message is not
        dispatched yet."""
        parts = self._parts
        for batch in parts.batches:
            batch.next_offset = batch.max_offset
        self._counts.set_next_offsets(parts.queues, parts.dispatcher, log_end, self._log.min)


def _epoch_error(epoch: int, error: OSError | StoreError) -> StoreError:
    return StoreError(f"epoch {epoch} cannot be recorded: {error}")
