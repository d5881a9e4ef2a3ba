"""The commit log: records one after the other in preallocated files, with one writer.

Owns the end of the log, rolling with the filler, the file made ahead, and the bytes of a record.
It must never know a queue, decide what is durable or visible, or block on a sync. Called by the
store, the dispatcher, the group commit and recovery.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from functools import partial

from turbopump.engine.config import StoreConfig
from turbopump.engine.disk.disk_steps import Work
from turbopump.engine.disk.files import Files, MappedFile
from turbopump.engine.disk.flush import Disk, DiskLane
from turbopump.engine.disk.segments import MappingPool, Segments, clear_tail
from turbopump.engine.log import incoming
from turbopump.engine.log.record_parts import (
    BATCH_ELEMENT_FIXED,
    CRC_RESERVED,
    V1_TOPIC_MAX,
    batch_records_size,
    refusal,
    without_crc,
)
from turbopump.engine.types import (
    SCHEDULE_TOPIC,
    Appended,
    FlushMode,
    LogOffset,
    NewMessage,
    PutStatus,
    QueueOffset,
)
from turbopump.pyx import record as kernel
from turbopump.pyx.record import Record
from turbopump.pyx.region import Region
from turbopump.pyx.tail import Tail

logger = logging.getLogger(__name__)

# What the native path must not append for (Tail.refusals); the store asks its parts itself.
CLOSED, SYNC_FAILED, CHECKPOINT_FAILED, DISK_FULL, STALLED, DAMAGED, SLOW = 1, 2, 4, 8, 16, 32, 64
NOT_MASTER = 128
# From 10 MB a second on (a tick is 100 ms) the log is warmed, some ticks ahead: a disk thread is
# quicker than the writer, but may have a sync to do first. The most is a quarter of the dirty pages
# that many systems allow before writers have to wait.
WARM_GROWTH_MIN = 1 << 20
WARM_TICKS = 3
WARM_AHEAD_MAX = 256 << 20
WARM_STEP = 4 << 20
# The next file is made when a quarter of the last one is left, or what the log grows by in five
# seconds (making it takes two syncs, and one that takes longer counts as failed): a log that hardly
# grows takes no blocks ahead. Small files have their next one at once.
AHEAD_MIN = 32 << 20
AHEAD_TICKS = 50
TICK_MAX_MS = 500  # a wait is known to have lasted from one tick to the next
UNKNOWN_END = LogOffset(1 << 63)


class CommitLog:
    """Positions: `min` <= flushed <= `end`; all are on record boundaries, except that bytes of
    another log (`append_raw`) may be no records: then flushed and end lie anywhere, too."""

    def __init__(self, files: Files, config: StoreConfig, disk: Disk, pool: MappingPool) -> None:
        self.config = config
        self.files = files
        self.tail = Tail()
        """The numbers that the native path moves, too."""
        self.flushed = LogOffset(0)
        self.segments = Segments(pool, config.log_folder, config.mapped_file_size_commit_log)
        self.file_size = config.mapped_file_size_commit_log
        """Bytes of one file."""
        self._is_copy = False
        self._is_raw = False
        self._raw_end = LogOffset(0)
        self._mark = self._next_mark = LogOffset(0)
        self._lane = DiskLane(disk)
        self._warming = DiskLane(disk)
        self._warm = 0
        self._seen_end = 0
        self._grown = 0
        self._next: MappedFile | None = None
        self._ahead_failed = False
        self.lacks_file = self.rests = False
        """Whether the last try to go on in a next file failed, or takes too long; whether none is
        to be made: the log is being cut."""
        self._waits, self._waits_ms, self._ticked_ms = False, 0, 0
        self._file: MappedFile | None = None
        self._base = 0

    @property
    def end(self) -> LogOffset:
        """Where the next record goes."""
        return LogOffset(self.tail.end)

    @property
    def last_store_timestamp_ms(self) -> int:
        """The latest there is: only records of delayed messages get an earlier time."""
        return self.tail.last_store_timestamp_ms

    @property
    def min(self) -> LogOffset:
        """The first byte that is still there."""
        return LogOffset(self.segments.first)

    def start_writing(self, end: LogOffset, last_store_timestamp_ms: int) -> None:
        """Go on at `end` after recovery: files behind it are gone, all before it is durable."""
        self.tail.end = self._seen_end = end
        self.flushed = end
        self._is_copy = self._is_raw = False
        self._raw_end = LogOffset(0)
        self.tail.last_store_timestamp_ms = last_store_timestamp_ms
        if self.segments.holds(end):
            start = self.segments.start_of(end)
            self._expect_syncs(self.mapped(start), end - start)
            self._open_file(start)

    def append(
        self, message: NewMessage, properties: bytes, queue_offset: QueueOffset, now_ms: int
    ) -> Appended:
        """Write one record. Statuses: PUT_OK, MESSAGE_ILLEGAL, PROPERTIES_SIZE_EXCEEDED,
        CREATE_MAPPED_FILE_FAILED (nothing written then); sizes as store.md 4."""
        topic = message.topic.encode()
        property_crc = self.config.enabled_append_prop_crc
        if property_crc:
            properties = without_crc(properties)
        refused = refusal(self.config, message, topic, properties)
        if refused is not None:
            return refused
        version = kernel.V2 if len(message.topic) > V1_TOPIC_MAX else kernel.V1
        store_ms = self._store_ms(message.topic, now_ms)

        def write(region: Region, position: int, log_offset: int) -> list[int] | int:
            size = kernel.append(
                region, position, self.file_size, log_offset=log_offset, topic=topic,
                body=message.body, properties=properties, queue_id=message.queue_id,
                flag=message.flag, queue_offset=queue_offset, sys_flag=message.sys_flag,
                born_timestamp_ms=message.born_timestamp_ms, born_host=message.born_host,
                store_timestamp_ms=store_ms, store_host=message.store_host,
                reconsume_times=message.reconsume_times,
                prepared_transaction_offset=message.prepared_transaction_offset,
                version=version, property_crc=property_crc,
            )  # fmt: skip
            return size if size < 0 else [size]

        size = kernel.record_size(
            len(topic), len(message.body), len(properties), len(message.born_host),
            len(message.store_host), version,
        )  # fmt: skip
        return self._place(write, size + CRC_RESERVED, queue_offset, store_ms)

    def append_batch(self, message: NewMessage, queue_offset: QueueOffset, now_ms: int) -> Appended:
        """Write the elements of a batch body as consecutive records in one file, all or none."""
        topic = message.topic.encode()
        refused = refusal(self.config, message, topic, b"")
        if refused is not None:
            return refused
        version = kernel.V2 if len(message.topic) > V1_TOPIC_MAX else kernel.V1
        store_ms = self._store_ms(message.topic, now_ms)

        def write(region: Region, position: int, log_offset: int) -> list[int] | int:
            return kernel.append_batch(
                region, position, self.file_size, log_offset=log_offset, topic=topic,
                batch=message.body, queue_id=message.queue_id, queue_offset=queue_offset,
                sys_flag=message.sys_flag, born_timestamp_ms=message.born_timestamp_ms,
                born_host=message.born_host, store_timestamp_ms=store_ms,
                store_host=message.store_host, reconsume_times=message.reconsume_times,
                version=version, property_crc=self.config.enabled_append_prop_crc,
            )  # fmt: skip

        fixed = kernel.record_size(
            len(topic), 0, 0, len(message.born_host), len(message.store_host), version
        )
        fixed += CRC_RESERVED
        # Counting the elements is only needed where the most there can be would not fit.
        size = len(message.body) + fixed * (len(message.body) // BATCH_ELEMENT_FIXED + 1)
        try:
            if size + kernel.FILLER_SIZE > self.file_size:
                size = batch_records_size(message.body, fixed)
            return self._place(write, size, queue_offset, store_ms)
        except ValueError as error:
            return Appended(PutStatus.MESSAGE_ILLEGAL, reason=str(error))

    def begin(self, log_offset: LogOffset) -> None:
        """An empty log without files begins there, where the one it copies begins or its last file
        does. What `leave_unused` gave is done: that file would be followed by a hole."""
        assert self.segments.count == 0 and log_offset % self.file_size == 0, "not a new log"
        assert self._next is None, "a file that is not of this log"
        self.segments.first = log_offset
        self.start_writing(log_offset, 0)

    def append_raw(self, pieces: list[memoryview], *, whole: bool) -> list[memoryview]:
        """Copy bytes of another log to the end of this one, `whole` records or bytes that end
        anywhere; returns those that have to wait for the next file. Raises OSError if that cannot
        be made; what came before is appended then."""
        self._is_copy = True
        if not whole:
            if not self._is_raw:
                self._is_raw = True
                self._mark = self._next_mark = self.flushed
            self._raw_end = UNKNOWN_END
        size = sum(map(len, pieces))
        while size:
            if self._file is None and not self._roll():
                if self.lacks_file:
                    raise OSError(errno.ENOSPC, "no next log file", self.segments.folder)
                return pieces
            assert self._file is not None
            position = self.end - self._base
            here = min(size, self.file_size - position)
            piece, pieces = incoming.split_at(pieces, here)
            incoming.write(self._file, position, piece, here)
            self.tail.end = self.end + here
            size -= here
            if position + here == self.file_size:
                self._file.expect_scans()
                self._close_file()
        return []

    def cut_torn(self, end: LogOffset) -> None:
        """Cut what is left of a record or filler at the end, durably; no sync may be under way. It
        must not come back: what is written over it may reach the disk in parts. Raises OSError."""
        assert self._file is not None, "a half record reaches into no other file"
        position = end - self._base
        head = min(kernel.FILLER_SIZE, self.file_size - position)
        self._file.region.zero(position, head)
        self._file.sync(position, position + head)
        clear_tail(self._file, position)
        self.tail.end = end
        self.flushed = min(self.flushed, end)

    def end_raw(self, last_store_timestamp_ms: int) -> None:
        """From here on records are appended: the log ends at one."""
        self._is_copy = False
        self._raw_end = self.end
        self.tail.last_store_timestamp_ms = max(
            self.tail.last_store_timestamp_ms, last_store_timestamp_ms
        )

    def is_raw(self, log_offset: LogOffset) -> bool:
        """Whether a position up to which the log was synced may lie inside a record."""
        return self._is_raw and log_offset < self._raw_end

    def mark(self, boundary: LogOffset) -> LogOffset:
        """A record boundary before which all is durable, for the checkpoint: recovery begins to
        look there. `boundary` is one; the last one that was flushed counts."""
        if self.flushed >= self._raw_end:
            self._is_raw = False
        if not self._is_raw:
            return self.flushed
        if self._next_mark <= self.flushed:
            self._mark, self._next_mark = max(self._mark, self._next_mark), boundary
        return self._mark

    def view(self, log_offset: int, size: int) -> memoryview | None:
        """The bytes of a record of known size; None where the log does not hold them."""
        start = self.segments.start_of(log_offset)
        position = log_offset - start
        if (
            log_offset < self.segments.first
            or size <= 0
            or log_offset + size > self.end
            or position + size > self.file_size
        ):
            return None
        return self.region(start).view(position, size)

    def record(self, log_offset: int) -> Record | None:
        """The record at `log_offset`, decoded; None if none starts there or its CRC is wrong."""
        if not self.segments.first <= log_offset < self.end:
            return None
        start = self.segments.start_of(log_offset)
        limit = min(self.end - start, self.file_size)
        try:
            found = kernel.decode(self.region(start), log_offset - start, limit, start)
        except ValueError:
            return None
        return found if found.physical_offset == log_offset and found.crc_ok else None

    def region_of(self, start: int) -> Region | None:
        """The memory of the file that begins at a log offset; None if there is none."""
        return self.region(start) if self.segments.holds(start) else None

    def piece(self, start: LogOffset, end: LogOffset) -> tuple[int, Region, int, int]:
        """The part of [start, end) in its first file: (base, region, position, position end)."""
        base = self.segments.start_of(start)
        return base, self.region(base), start - base, min(end - base, self.file_size)

    def unflushed(self, end: LogOffset) -> list[tuple[MappedFile, int, int]]:
        """What must be synced to make all before `end` durable: (file, position, position end)."""
        ranges = []
        at: int = self.flushed
        while at < end:
            base = self.segments.start_of(at)
            stop = min(end, base + self.file_size)
            ranges.append((self.mapped(base), at - base, stop - base))
            at = stop
        return ranges

    def drop_files_behind(self, end: LogOffset) -> None:
        """Remove files that begin at or behind `end`, durably: among them one made ahead and not
        used. The only file stays, for its name says where the log goes on. Raises OSError."""
        self.dropping(end)()

    def dropping(self, end: LogOffset) -> Work:
        """As `drop_files_behind`: they are forgotten now, what is given removes them."""
        segments, files = self.segments, self.files
        paths: list[str] = []
        while segments.count > 1 and segments.last >= end:
            paths.append(segments.forget_last())
        is_last = segments.count > 0 and segments.last >= end
        kept = segments.mapped(segments.last) if is_last else None

        def work() -> None:
            if paths:
                # Who was killed here or in `close` left removals of later ones, not durable yet.
                files.sync_folder(segments.folder)
            for path in paths:
                # One after the other: a power cut must not leave a hole in the log.
                self._remove(path)
            if kept is not None:
                # It may be one that was just being made: see `_create`.
                kept.reserve(0, self.file_size)
                files.sync(kept.path)
                files.sync_folder(segments.folder)

        return work

    def truncate(self, end: LogOffset) -> int:
        """Cut the log at `end`, durably: files behind it go, the rest of its file becomes zeros.

        Law 6: a truncated byte never comes back. Returns how many bytes were not zero (in whole
        pieces). Raises OSError; the log is then as it was or shorter, never mixed.
        """
        self.drop_files_behind(end)
        return self.clearing(end)()

    def clearing(self, end: LogOffset) -> Callable[[], int]:
        """What makes all that its file has behind `end` zeros, durably; see `clear_tail`."""
        if not self.segments.holds(end):
            return lambda: 0
        start = self.segments.start_of(end)
        return partial(clear_tail, self.mapped(start), end - start)

    def stop_at(self, end: LogOffset) -> None:
        """It ends there from now on, and nothing is written to it before `start_writing`. All
        before `end` is durable, no sync under way."""
        self.tail.end = self.flushed = end
        self._close_file()

    @property
    def is_idle(self) -> bool:
        """Whether no disk thread is at work for it."""
        return not (self._lane.busy or self._warming.busy)

    def leave_unused(self) -> Work:
        """Give up the file made ahead; what is given removes it, durably. Waits for the disk unless
        it `is_idle`."""
        return partial(self._remove, self._take_unused())

    def forget_oldest(self) -> str:
        """Take the oldest file out of the log; the caller removes the returned path."""
        assert self.segments.count > 1, "the last file stays"
        return self.segments.forget_first()

    def forget_all(self) -> None:
        """All files are about to be removed, the one made ahead, too: an empty log, until `begin`
        says where. No sync may be under way."""
        self._close_file()
        self._take_unused()
        while self.segments.count:
            self.segments.forget_last()
        self.segments.first = 0
        self.start_writing(LogOffset(0), 0)

    def close(self) -> None:
        """Wait for the file made ahead and remove it if it was not used (as RocketMQ does)."""
        self._close_file()
        path = self._take_unused()
        try:
            if path:
                self.files.remove(path)
        except OSError as error:
            logger.warning("an unused log file stays: %s", error)

    def _store_ms(self, topic: str, now_ms: int) -> int:
        """Store times ascend, for searches. A delayed message is due its delay behind its store
        time (store.md 6.3): that is the clock's, also while the log's last time is ahead of it."""
        return now_ms if topic == SCHEDULE_TOPIC else max(now_ms, self.last_store_timestamp_ms)

    def _place(
        self,
        write: Callable[[Region, int, int], list[int] | int],
        size_max: int,
        queue_offset: QueueOffset,
        store_ms: int,
    ) -> Appended:
        """Write at the end of the log, rolling to the next file if there is no room."""
        if size_max + kernel.FILLER_SIZE > self.file_size:
            reason = f"{size_max} bytes do not fit into a log file of {self.file_size}"
            return Appended(PutStatus.MESSAGE_ILLEGAL, reason=reason)
        if self._file is None and not self._roll():
            return self._no_file()
        assert self._file is not None
        sizes = write(self._file.region, self.end - self._base, self.end)
        if isinstance(sizes, int):
            if not self._roll():
                return self._no_file()
            sizes = write(self._file.region, self.end - self._base, self.end)
            assert not isinstance(sizes, int), "no room in a new file"
        log_offsets = []
        at = self.end
        for size in sizes:
            log_offsets.append(at)
            at = LogOffset(at + size)
        size = at - self.end
        self.tail.end = at
        self.tail.last_store_timestamp_ms = max(self.last_store_timestamp_ms, store_ms)
        return Appended(PutStatus.PUT_OK, queue_offset, log_offsets, at, size, store_ms)

    def _roll(self) -> bool:
        """Go on in the next file. The filler is written only once there is one (nothing lost)."""
        start = self._next_start()
        mapped = self._take_next(start)
        if mapped is None:
            return False
        if self._file is not None:
            kernel.append_filler(self._file.region, self.end - self._base, self.file_size)
            self._file.expect_scans()
        self.segments.adopt(start, mapped, lambda: self._may_close(start))
        self.tail.end = max(start, self.end)
        self.lacks_file = self._ahead_failed = False
        self._open_file(start)
        self.look_ahead()
        return True

    def _no_file(self) -> Appended:
        if self.lacks_file:
            return Appended(PutStatus.CREATE_MAPPED_FILE_FAILED, reason="no next log file")
        return Appended(PutStatus.OS_PAGE_CACHE_BUSY, reason="the next log file is being made")

    def _may_close(self, start: int) -> bool:
        return start + self.file_size <= self.flushed

    def _open_file(self, start: int) -> None:
        self._file = self.mapped(start)
        self._base = start
        self.tail.open(start, self._file.region)

    def _close_file(self) -> None:
        self._file = None
        self._warm = 0
        self.tail.open(0, None)

    def _take_next(self, start: int) -> MappedFile | None:
        """The file made ahead. Where there is none it is made now, and nothing waits for that: what
        comes meanwhile is refused."""
        if self._next is None and not self._lane.busy:
            self._make_next(start)
        mapped, self._next = self._next, None
        self._waits = mapped is None
        if self._waits and self._ahead_failed and not self.lacks_file:
            self.lacks_file = True
            logger.error("there is no next log file at %d: writes are refused", start)
        return mapped

    def _make_next(self, start: int) -> None:
        def done(result: MappedFile | OSError) -> None:
            if isinstance(result, OSError):
                if not self._ahead_failed:
                    logger.warning("could not make the next log file at %d: %s", start, result)
                self._ahead_failed = True  # a roll tries again
            else:
                self._next = result
                self.lacks_file = self._ahead_failed = self._waits = False

        self._lane.submit(partial(self._create, start), done)

    def make_first(self) -> None:
        """Have a file to write to: an empty log gets its first one, any other one what lies behind
        a full file. Raises OSError if an empty log cannot have one."""
        if self.segments.count:
            self.look_ahead()
        elif self._next is None:
            self._next = self._create(self.segments.start_of(self.end))

    def look_ahead(self) -> None:
        """Make the next file, on a disk thread, once the end of the last one is near: a roll does
        not wait for it. Called by `warm` and after each turn of the native path."""
        segments = self.segments
        near = max(self.file_size >> 2, AHEAD_MIN, AHEAD_TICKS * self._grown)
        if self._next is not None or not segments.count or segments.end - self.tail.end > near:
            return
        if not (self._lane.busy or self._ahead_failed or self.rests):
            self._make_next(segments.end)

    def _watch(self, steady_ms: int) -> None:
        """A roll waits for the next file, perhaps too long, or for another try to make it."""
        passed_ms, self._ticked_ms = min(steady_ms - self._ticked_ms, TICK_MAX_MS), steady_ms
        limit_ms = self.config.sync_timeout_ms
        self._waits_ms = self._waits_ms + passed_ms if self._waits else 0
        if self._waits_ms < limit_ms:
            return
        if not self.lacks_file:
            logger.error("the next log file was not made in %d ms: writes are refused", limit_ms)
        self.lacks_file = True
        if not self._lane.busy:
            self._waits_ms = 0
            self._make_next(self._next_start())

    def _next_start(self) -> int:
        return self.segments.end if self.segments.count else self.segments.start_of(self.end)

    def warm(self, steady_ms: int = 0) -> None:
        """Each tick: have the next file in time, and the pages of the next ticks present,
        if the log grows fast.

        The first store into a page of a file costs the writer more than the record it writes; a
        disk thread takes that over. A log that grows slowly is left alone: pages made present too
        early are written to the disk twice.
        """
        if self.rests:
            return
        self._watch(steady_ms)
        self._grown = grown = max(0, self.end - self._seen_end)
        self._seen_end = self.end
        self.look_ahead()
        if self._file is None or self._is_copy or grown < WARM_GROWTH_MIN or self._warming.busy:
            return
        self._warm = max(self._warm, self.end)
        self._warm_on(self.end + min(WARM_TICKS * grown, WARM_AHEAD_MAX))

    def _warm_on(self, until: int) -> None:
        """A step, and when it is done the next one."""
        if self._file is None:
            return
        # The next file may have become the one that is written since.
        at, file_end = max(self._warm, self._base), self._base + self.file_size
        mapped, start = (self._file, self._base) if at < file_end else (self._next, file_end)
        stop = min(until, at + WARM_STEP, start + self.file_size)
        if mapped is None or stop <= at:
            return

        def done(result: OSError | None) -> None:
            if isinstance(result, OSError):
                logger.warning("the log cannot be warmed: %s", result)
                return
            self._warm = max(self._warm, stop)
            if self._warm < until:
                self._warm_on(until)

        self._warming.submit(partial(mapped.touch, at - start, stop - start), done)

    def _take_unused(self) -> str:
        """Forget the file made ahead; its path, for the caller to remove, "" if there is none."""
        self._warming.finish()
        self._lane.finish()
        mapped, self._next = self._next, None
        if mapped is None:
            return ""
        mapped.close()
        return mapped.path

    def _remove(self, path: str) -> None:
        if path:
            self.files.remove(path)
            self.files.sync_folder(self.segments.folder)

    def _create(self, start: int) -> MappedFile:
        """A file with all its blocks, durable by name: a later sync of its bytes is enough."""
        self.files.make_folders(self.segments.folder)
        mapped = self.files.create(self.segments.path(start), self.file_size)
        try:
            mapped.reserve(0, self.file_size)
            self._expect_syncs(mapped, 0)
            self.files.sync(mapped.path)
            self.files.sync_folder(self.segments.folder)
        except BaseException:
            mapped.close()
            self.files.remove(mapped.path)
            raise
        return mapped

    def _expect_syncs(self, mapped: MappedFile, position: int) -> None:
        """Under SYNC_FLUSH each sync is to write the pages that were stored into and no more."""
        if self.config.flush_disk_type is FlushMode.SYNC_FLUSH:
            mapped.expect_random(position)

    def mapped(self, start: int) -> MappedFile:
        return self.segments.mapped(start, lambda: self._may_close(start))

    def region(self, start: int) -> Region:
        """The memory of the file that starts at `start`."""
        if start == self._base and self._file is not None:
            return self._file.region
        return self.mapped(start).region
