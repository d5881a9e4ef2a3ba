"""A store whose log is one of several copies.

Owns what replication does to a store: bytes of the master are appended as they are, the log is cut
or begun anew, epochs are written down, readers stop at confirmOffset. It must never know a
connection, nor decide who is the master or what is confirmed: whoever drives it does. One thread.

A transfer ends anywhere; what is written of it ends where a record does (incoming.py). So does all
else that is written down: confirmOffset, and all that the checkpoint says. (Bytes that are no
records, which a damaged log sends, are written as they come.) What a crash leaves:

1. Bytes that were appended and not synced: any part of them, as of a master's own. Recovery walks
   from the checkpoint's mark, a record's end, to the first that is not whole, and cuts there. A
   process that was killed leaves whole records only. The master sends again what is missing.
   A store without WHOLE_MARK_FILE has bytes of before that was so, or of RocketMQ's: a record that
   lacks its last bytes has zeros there, which no text ends in (pyx.walk: CUT_BYTES).
2. The epoch list is durable before the bytes it labels (`record_epochs`, `to_master`), and is cut
   after them (`truncate`): entries that start behind the log's end are none, and go at the open.
3. confirmOffset is in the checkpoint (RocketMQ's confirmPhyOffset), written each second and at the
   end, so it may be an older one; where the log lost bytes it is taken down to the log's end. The
   checkpoint says so before other bytes are appended there.
4. `restart` writes down that it began. A start that finds that comes to the end of it.
5. A cut: see truncation.py.

A store knows that it was replicated by its epoch file, which is there before the first byte of a
replica, or by MARK_FILE, which is there ever since: recovery then dispatches up to confirmOffset
only, because a reader must not see what the next master may lack. (A key of the configuration would
be wrong for one start, when it matters.) A store with messages and neither of them was never
replicated: its log may be led, and what is in it is of before epochs were kept. One that lost its
epoch file may not (S1).

Default HA (`plain`) has neither epochs nor confirmOffset: what a replica has may be read. It has a
mark of its own, by which recovery knows that the log may end inside a record.
"""

import logging
from collections.abc import Callable, Sequence

from turbopump.engine import restart, truncation
from turbopump.engine.boundary import whole_before
from turbopump.engine.commit_log import CLOSED, NOT_MASTER
from turbopump.engine.damage import Damage
from turbopump.engine.epoch_file import (
    EPOCH_FILE,
    MARK_FILE,
    PLAIN_MARK_FILE,
    WHOLE_MARK_FILE,
    EpochFile,
)
from turbopump.engine.epochs import Epochs
from turbopump.engine.group_commit import GroupCommit
from turbopump.engine.incoming import Incoming
from turbopump.engine.parts import StoreParts
from turbopump.engine.queue_counts import Counts, QueueCounts
from turbopump.engine.retention import Retention
from turbopump.engine.types import Buffer, FlushMode, LogOffset, PutStatus, StoreError
from turbopump.pyx import record as kernel
from turbopump.pyx.tail import UNLIMITED

logger = logging.getLogger(__name__)

NO_EPOCHS = Epochs()


class Replicated:
    """See Store.replicated. Until it is told its role it is no master, and nothing is appended."""

    def __init__(
        self,
        parts: StoreParts,
        commit: GroupCommit,
        retention: Retention,
        dispatch: Callable[[int], None],
        plain: bool,
    ) -> None:
        self.plain = plain
        self.is_master = False
        """Whether this store's own appends are taken."""
        self.on_cut: list[Callable[[], object]] = []
        """Called when the log was cut or begins anew, queues and index with it."""
        self.on_appended: list[Callable[[], None]] = []
        """Called when messages were appended here, once for what a connection's read brought."""
        self.on_flushed: list[Callable[[LogOffset], None]] = []
        """Called with the log offset up to which all is durable."""
        self._marked = False
        self._marked_whole: bool | None = None
        """Whether WHOLE_MARK_FILE is there, durably; None: not looked at yet."""
        self._incoming = Incoming()
        self._told = LogOffset(0)
        self._parts = parts
        self._log = parts.log
        self._commit = commit
        self._retention = retention
        self._dispatch = dispatch
        self._epoch_file = self._open_epochs()
        self._counts = QueueCounts(parts.files, parts.config.root)
        self._expired_to = parts.log.min
        self._is_sync = parts.config.flush_disk_type is FlushMode.SYNC_FLUSH
        parts.log.tail.refuse(NOT_MASTER, True)
        self._begin_confirming()

    # Positions: net.ha.primary.MasterLog

    @property
    def min(self) -> LogOffset:
        """The first byte of the log that is still there."""
        return self._log.min

    @property
    def end(self) -> LogOffset:
        """Behind the last byte of the log."""
        return self._log.end

    @property
    def flushed(self) -> LogOffset:
        """All before this is durable."""
        return self._log.flushed

    @property
    def confirm(self) -> LogOffset:
        """Records before this may be read; where a record ends."""
        limit = self._log.tail.limit
        return self._parts.dispatcher.position if limit == UNLIMITED else LogOffset(limit)

    @property
    def file_size(self) -> int:
        """Bytes of a log file."""
        return self._log.file_size

    @property
    def epochs(self) -> Epochs:
        """Which master wrote which bytes."""
        return NO_EPOCHS if self.plain else self._epoch_file.epochs

    @property
    def believed_end(self) -> LogOffset:
        """Up to where `epochs` is believed: the end, unless the file was damaged or lost."""
        return self._epoch_file.believed_end(self._log.end)

    @property
    def may_lead(self) -> bool:
        """Whether a master may be made of this store: neither log nor epochs are damaged."""
        return (self.plain or self._epoch_file.may_lead) and self.damage is None

    @property
    def damage(self) -> Damage | None:
        """The first damaged place of the log."""
        return self._parts.damage.first

    @property
    def is_slow(self) -> bool:
        """Whether the disk is so far behind that no more bytes should be taken for now."""
        return self._commit.is_slow()

    # Roles

    def to_replica(self, now_ms: int) -> None:
        """Take no more messages; who waits for the disk is told SERVICE_NOT_AVAILABLE: nobody can
        say what becomes of his message."""
        self.is_master = False
        self._log.tail.refuse(NOT_MASTER, True)
        self._incoming.forget(sure=self._incoming.sure)
        self._begin_confirming()
        self._told = self.confirm  # what comes from now on is the next master's word
        self._commit.close(PutStatus.SERVICE_NOT_AVAILABLE)

    def to_master(self, epoch: int, now_ms: int) -> LogOffset:
        """Become the master of an epoch, durably, also as the master of an older one; returns where
        it starts: at the log's end, once the record that a transfer cut is gone. In default HA the
        epoch is not looked at. Raises StoreError, and is no master then."""
        self.to_replica(now_ms)
        self._check_usable()
        if self.damage is not None:
            raise StoreError(f"the log cannot be led: {self.damage}")
        if not self.plain:
            self._check_epoch(epoch)
        start = self._cut_torn()
        timestamp_ms = truncation.timestamp_before(self._log, self._parts.damage, start)
        self._log.end_raw(timestamp_ms)
        self._count_on(start)
        if self.plain:
            self._log.tail.limit, self._parts.checkpointer.confirm = UNLIMITED, None
            self._dispatch(now_ms)
        else:
            self._record_reign(epoch, start)
        self._lead_whole()
        self.is_master = True
        self._log.tail.refuse(NOT_MASTER, False)
        return start

    def _check_epoch(self, epoch: int) -> None:
        if not self._epoch_file.may_lead:
            raise StoreError(f"no epoch can follow: {self._epoch_file.reason}")
        if epoch <= self.epochs.last_epoch:
            raise StoreError(f"epoch {epoch} is not newer than {self.epochs.last_epoch}")

    def _record_reign(self, epoch: int, start: LogOffset) -> None:
        try:
            self._epoch_file.append(epoch, start)
            self._mark()
        except (OSError, ValueError) as error:
            raise StoreError(f"epoch {epoch} cannot be recorded: {error}") from error

    def _lead_whole(self) -> None:
        """A master's own records are whole, too: it is known of them as of a copy's."""
        files, root = self._parts.files, self._parts.config.root
        if self.plain and not files.exists(f"{root}/{PLAIN_MARK_FILE}"):
            return
        try:
            self._mark_whole(True)
        except OSError as error:
            raise StoreError(f"the log cannot be led: {error}") from error

    # The replica's side

    def append(
        self, log_offset: LogOffset, data: Buffer, now_ms: int, more: Sequence[Buffer] = ()
    ) -> None:
        """Bytes of the master's log, and `more` behind them, at the end of this one; an empty log
        begins there. They may end anywhere: what is no whole record yet waits in memory, and what
        comes next goes on behind it, or at `end` again. Raises StoreError, OSError; what is before
        `end` then was appended."""
        self._check_usable()
        log, coming = self._log, self._incoming
        if self.is_master:
            raise StoreError("a master takes no bytes of another log")
        if log_offset != log.end + coming.size:
            coming.forget(sure=coming.sure)
            if log_offset != log.end and log.min == log.end:
                self._begin(log_offset, now_ms)
            if log_offset != log.end:
                raise StoreError(f"bytes from {log_offset} on, the log ends at {log.end}")
        room = log.file_size - log.end % log.file_size
        pieces = coming.take([data, *more], room, log.file_size)
        self._mark_whole(coming.sure)
        log.append_raw(pieces, whole=coming.sure)
        if self._is_sync:
            self._commit.start()

    def confirm_to(self, log_offset: LogOffset, now_ms: int) -> bool:
        """Let readers come up to here, or to the end of the record before, if that is not behind
        where they are; whether they may read more now. What is beyond the log's end counts not.
        Under SYNC_FLUSH what is not durable has to wait until it is (R36)."""
        log, tail = self._log, self._log.tail
        self._told = LogOffset(min(max(log_offset, self._told), log.end))
        wanted = min(self._told, log.flushed) if self._is_sync else self._told
        if wanted <= tail.limit:
            return False
        is_end = wanted in (log.end, log.flushed) and not log.is_raw(wanted)
        at = wanted if is_end else self._whole(self.confirm, wanted)
        if at <= tail.limit:
            return False
        self._set_confirm(at)
        self._dispatch(now_ms)
        tail.last_store_timestamp_ms = max(
            tail.last_store_timestamp_ms, tail.dispatched_timestamp_ms
        )
        return True

    def record_epochs(self, epochs: Epochs) -> None:
        """This is the list now, durably. Raises OSError; the old one holds then."""
        assert not self.plain, "default HA has no epochs"
        self._epoch_file.adopt(epochs)
        self._mark()

    def truncate(self, log_end: LogOffset, now_ms: int) -> None:
        """Cut the log at the start of a record, durably, with all that is derived, then its epochs.
        Raises StoreError, OSError."""
        self._check_usable()
        if self.is_master:
            raise StoreError("a master's log is not cut")
        truncation.cut(self._parts, self._commit, self._retention, log_end, now_ms)
        self._incoming.forget(sure=True)
        self._told = min(self._told, log_end)
        if not self.plain:
            self._epoch_file.cut(log_end)
        self._tell_cut()

    def restart(self, now_ms: int) -> None:
        """Remove log, queues, index and epochs, durably; the next append says where the log begins.
        Raises StoreError: after trouble with the disk the store takes nothing any more, and the
        next start ends with an empty log, or with the old one."""
        self._check_usable()
        if self.is_master:
            raise StoreError("a master's log does not begin anew")
        try:
            restart.restart(self._parts, self._commit, self._retention)
            self._incoming.forget(sure=True)
            self._told = LogOffset(0)
            self._epoch_file = self._open_epochs()
            self._counts.forget(wanted=False)
        except OSError as error:
            self._commit.fail(error)
            raise StoreError(f"the log cannot begin anew: {error}") from error
        self._tell_cut()

    def sync(self, now_ms: int) -> None:
        """Begin to make durable what was appended; `on_flushed` follows."""
        self._commit.start()

    # The master's side

    def view(self, log_offset: LogOffset, size: int) -> list[memoryview]:
        """The bytes of [log_offset, log_offset + size), a piece for each file. They stay valid when
        retention removes the file. Raises StoreError where the log does not have them."""
        log, end = self._log, LogOffset(log_offset + size)
        if not log.min <= log_offset <= end <= log.end:
            raise StoreError(f"the log has {log.min} to {log.end}, not {log_offset} to {end}")
        pieces = []
        at = log_offset
        while at < end:
            base, region, position, stop = log.piece(at, end)
            pieces.append(region.view(position, stop - position))
            at = LogOffset(base + stop)
        return pieces

    def hold(self, key: object, log_offset: LogOffset) -> None:
        """Somebody reads on from here: age leaves these files until `release`, a full disk not."""
        self._retention.held[key] = log_offset

    def release(self, key: object) -> None:
        """He reads no more."""
        self._retention.held.pop(key, None)

    # Queues without a message in the log

    @property
    def wants_counts(self) -> bool:
        """Whether the log began behind its master's first byte, and no master said since how far
        queues had counted that nothing in it speaks of."""
        return self._counts.wanted

    def idle_counts(self) -> Counts:
        """The next queue offset of each queue all of whose messages are too old to be here."""
        queues, table, log_min = self._parts.queues, self._parts.queues.table, self._log.min
        found: Counts = {}
        for topic, queue_id, count in self._counts.each(queues.deleted.ends()):
            queue = queues.find(topic, queue_id)
            if queue is None or queues.max_offset(queue) < count:
                found.setdefault(topic, {})[queue_id] = count
        for queue in queues:
            count = queues.max_offset(queue)
            if count > 0 and table.max_log_offset(queue.slot) <= log_min:
                found.setdefault(queue.topic, {})[queue.queue_id] = count
        return found

    def take_counts(self, counts: Counts) -> None:
        """What a master of this reign says of its idle queues; durable on return. Of a queue that
        has messages in this log they say nothing new. Raises StoreError."""
        try:
            self._counts.take(counts, self._log.end)
        except OSError as error:
            raise StoreError(f"what queues have counted cannot be kept: {error}") from error

    # For the store

    def tick(self, now_ms: int) -> None:
        """Epochs whose bytes retention took go."""
        if self._log.min == self._expired_to:
            return
        self._expired_to = self._log.min
        if self.plain:
            return
        try:
            self._epoch_file.expire(self._log.min)
        except OSError as error:
            logger.warning("epochs before %d stay: %s", self._log.min, error)

    def finish(self) -> None:
        """The store is about to be closed. Raises StoreError where the log ends in no record."""
        self._told = self.confirm
        self._cut_torn()

    def grown(self) -> None:
        """Messages were appended."""
        for callback in self.on_appended:
            callback()

    def flushed_on(self, now_ms: int) -> None:
        """A sync ended."""
        if self._is_sync and self.confirm < self._told:
            self.confirm_to(self._told, now_ms)
        for callback in self.on_flushed:
            callback(self._log.flushed)

    def whole(self, until: LogOffset) -> LogOffset:
        """Up to where records are whole, of those up to `until` that were not dispatched yet."""
        if until == self.confirm or not self._log.is_raw(until):
            return until
        return whole_before(self._log, self._parts.dispatcher.position, until)[0]

    # Inside

    def _tell_cut(self) -> None:
        for callback in self.on_cut:
            callback()

    def _check_usable(self) -> None:
        if self._log.tail.refusals & CLOSED:
            raise StoreError("the store is closed")
        error = self._commit.failed or self._parts.checkpointer.failed
        if error is not None:
            raise StoreError(f"the store takes no changes: {error}")

    def _cut_torn(self) -> LogOffset:
        """Cut the record that a transfer left half, durably; returns where the log ends then.
        Nothing derived speaks of it. Raises StoreError where there is no record at all."""
        log, commit = self._log, self._commit
        self._incoming.forget(sure=self._incoming.sure)
        end, why = whole_before(log, self.confirm, log.end)
        if why == kernel.BAD_RECORD:
            raise StoreError(f"no record begins at log offset {end}")
        if end < log.end:
            for later in commit.withdraw(end):
                later.resolve(PutStatus.SERVICE_NOT_AVAILABLE)
            self._check_usable()
            try:
                log.cut_torn(end)
                self._told = min(self._told, end)
            except OSError as error:
                commit.fail(error)
                raise StoreError(f"the log cannot be cut at {end}: {error}") from error
        self._incoming.forget(sure=True)
        return end

    def _whole(self, start: LogOffset, until: LogOffset) -> LogOffset:
        """As `whole_before`; what is no record is noted as damage, and passed over as dispatch
        does."""
        at, why = whole_before(self._log, start, until)
        while why == kernel.BAD_RECORD and at < until:
            behind = self._parts.damage.skip(at, until)
            at, why = whole_before(self._log, behind, until)
        return at

    def _begin(self, log_offset: LogOffset, now_ms: int) -> None:
        """An empty log begins where the master's does, or its last file."""
        log, parts = self._log, self._parts
        if log_offset % log.file_size:
            raise StoreError(f"{log_offset} is not where a file of {log.file_size} bytes begins")
        if log.segments.count:
            epochs = self.epochs  # recorded before these bytes, which they label
            self.restart(now_ms)
            if epochs.entries:
                self.record_epochs(epochs)
        self._counts.forget(wanted=True)
        log.begin(log_offset)
        parts.dispatcher.start(log_offset, log_offset)
        self._expired_to = log_offset
        self._set_confirm(log_offset)
        # Recovery has to know where queues begin, or a lost first file of one is not missed.
        parts.checkpointer.finish()

    def _open_epochs(self) -> EpochFile:
        """Raises StoreError."""
        files, root, log = self._parts.files, self._parts.config.root, self._log
        was_replicated = files.exists(f"{root}/{MARK_FILE}")
        path = f"{root}/{EPOCH_FILE}"
        return EpochFile.open(files, path, log.min, log.end, never_kept=not was_replicated)

    def _mark(self) -> None:
        """Behind the first epoch list: from now on its loss is a loss. In default HA before the
        first bytes of another log: it is a copy. Raises OSError."""
        if not self._marked:
            self._make(PLAIN_MARK_FILE if self.plain else MARK_FILE)
            self._marked = True

    def _mark_whole(self, whole: bool) -> None:
        """Before anything is written in a role: from here on it is whole records, or is not. Raises
        OSError."""
        if self._marked_whole is whole:
            return
        files, root = self._parts.files, self._parts.config.root
        if self.plain:
            self._mark()
        self._marked_whole = None
        if whole:
            self._make(WHOLE_MARK_FILE)
        elif files.exists(f"{root}/{WHOLE_MARK_FILE}"):
            files.remove(f"{root}/{WHOLE_MARK_FILE}")
            files.sync_folder(root)
        self._marked_whole = whole

    def _make(self, name: str) -> None:
        """An empty file, durably."""
        files, root = self._parts.files, self._parts.config.root
        path = f"{root}/{name}"
        if not files.exists(path):
            files.write(path, b"")
            files.sync(path)
        files.sync_folder(root)

    def _begin_confirming(self) -> None:
        """Readers stop where they are, until they are told that they may go on."""
        if self._log.tail.limit == UNLIMITED:
            self._log.tail.limit = self._parts.dispatcher.position
        self._set_confirm(self.confirm)

    def _set_confirm(self, log_offset: LogOffset) -> None:
        self._log.tail.limit = log_offset
        self._told = max(self._told, log_offset)
        self._parts.checkpointer.confirm = None if self.plain else log_offset

    def _count_on(self, log_end: LogOffset) -> None:
        """Each queue goes on behind its last message in the log, also where that is not dispatched
        yet."""
        queues, table = self._parts.queues, self._parts.queues.table
        for queue in queues:
            table.set_next_offset(queue.slot, 0 if queue.emptied else queues.max_offset(queue))
        for batch in self._parts.batches:
            batch.next_offset = batch.max_offset
        self._parts.dispatcher.count_on(log_end)
        for queue in list(queues):
            if queue.emptied and table.next_offset(queue.slot) == 0:
                queues.settle(queue, self._log.min)
        self._count_idle()

    def _count_idle(self) -> None:
        queues, dispatcher = self._parts.queues, self._parts.dispatcher
        for topic, queue_id, count in self._counts.each(queues.deleted.ends()):
            if dispatcher.is_batch(topic):
                continue
            queue = queues.find(topic, queue_id)
            if queue is None:
                queue = queues.add(topic, queue_id, dispatcher.is_plain(topic))
            if queues.table.next_offset(queue.slot) < count:
                queues.table.set_next_offset(queue.slot, count)
