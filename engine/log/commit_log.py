"""The commit log: records one after the other in preallocated files, with one writer.

Owns the end of the log, rolling with the filler, copying another log, and cutting or removing its
files. next_file.py makes the next file ahead, record_writing.py makes the bytes of a record. It
must never know a queue, decide which bytes are durable or visible, or block on a sync.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from functools import partial

from turbopump.engine.config import StoreConfig
from turbopump.engine.disk.disk_steps import Work
from turbopump.engine.disk.files import Files, MappedFile
from turbopump.engine.disk.flush import Disk
from turbopump.engine.disk.segments import MappingPool, Segments, clear_tail
from turbopump.engine.log import replica_append
from turbopump.engine.log.next_file import NextFile, expect_syncs
from turbopump.engine.log.page_warmer import PageWarmer
from turbopump.engine.log.record_parts import (
    size_refusal,
    without_crc,
)
from turbopump.engine.log.record_writing import Write, batch_writer, record_writer
from turbopump.engine.types import (
    SCHEDULE_TOPIC,
    Appended,
    LogOffset,
    NewMessage,
    PutStatus,
    QueueOffset,
)
from turbopump.pyx import record as kernel
from turbopump.pyx.ha_copy import PlainFrames
from turbopump.pyx.record import Record
from turbopump.pyx.region import Region
from turbopump.pyx.tail import Tail

logger = logging.getLogger(__name__)

CLOSED, SYNC_FAILED, CHECKPOINT_FAILED, DISK_FULL, STALLED, DAMAGED, SLOW = 1, 2, 4, 8, 16, 32, 64
"""Bits of Tail.refusals, reasons for which the native path must not append: the store is closed;
a sync of the log, or of the checkpoint, failed; the disk is full; queues and index cannot follow
the log; the log has damage; UNFLUSHED_MAX bytes or more wait for a sync. Store.append checks the
same conditions in Python."""
NOT_MASTER = 128
"""Bit of Tail.refusals: the store is a replica."""
UNKNOWN_END = LogOffset(1 << 63)
"""Log offset above every real one: the end of raw bytes is not known yet."""


class CommitLog:
    """The log files and their positions: `min` <= `flushed` <= `end`. All three are record
    boundaries, except after `append_fitting_pieces` of bytes that are not whole records: then
    `flushed` and `end` may lie inside a record."""

    def __init__(self, files: Files, config: StoreConfig, disk: Disk, pool: MappingPool) -> None:
        self.config = config
        """Configuration of the store; an operator may change some members at run time."""
        self.files = files
        """Access to the file system."""
        self.tail = Tail()
        """The end of the log and its counters; the native path changes them, too."""
        self.flushed = LogOffset(0)
        """Log offset before which all bytes are durable; GroupCommit and replication move it."""
        self.segments = Segments(pool, config.log_folder, config.mapped_file_size_commit_log)
        """Row of the log's files, without the next file that was made ahead."""
        self.file_size = config.mapped_file_size_commit_log
        """Size of a log file in bytes."""
        self._is_copy = False
        self._is_raw = False
        self._raw_end = LogOffset(0)
        self._mark = self._next_mark = LogOffset(0)
        self._next = NextFile(files, config, disk, self.segments)
        self._warmer = PageWarmer(disk, self.file_size, self._file_at)
        self._seen_end = 0
        self._grown = 0
        self.is_suspended = False
        """Whether no next file may be made, because the log is being cut; the cut sets this."""
        self._file: MappedFile | None = None
        self._base = 0

    @property
    def end(self) -> LogOffset:
        """Log offset at which the next record will be written."""
        return LogOffset(self.tail.end)

    @property
    def lacks_file(self) -> bool:
        """Whether the last attempt to continue in a next file failed, or takes longer than
        syncTimeoutMs; appends that need the file then get CREATE_MAPPED_FILE_FAILED."""
        return self._next.is_missing

    @property
    def last_store_timestamp_ms(self) -> int:
        """Latest store time of all records, in epoch ms. Only records of delayed messages may have
        an earlier store time than the record before them."""
        return self.tail.last_store_timestamp_ms

    @property
    def min(self) -> LogOffset:
        """Log offset of the first byte that retention has not removed."""
        return LogOffset(self.segments.first)

    def start_writing(self, end: LogOffset, last_store_timestamp_ms: int) -> None:
        """Let the next record be written at `end`, after recovery or a cut. The caller guarantees
        that no file follows that of `end`, and that all bytes before `end` are durable.
        `last_store_timestamp_ms` is the latest store time of the records, in epoch ms."""
        self.tail.end = self._seen_end = end
        self.flushed = end
        self._is_copy = self._is_raw = False
        self._raw_end = LogOffset(0)
        self.tail.last_store_timestamp_ms = last_store_timestamp_ms
        if self.segments.contains(end):
            start = self.segments.start_of(end)
            expect_syncs(self.config, self.mapped_file(start), end - start)
            self._open_file(start)

    def append(
        self, message: NewMessage, properties: bytes, queue_offset: QueueOffset, now_ms: int
    ) -> Appended:
        """Write one record at `end` into the mapped file, neither durable nor dispatched yet.

        `properties` are stored instead of the message's own. The store time is `now_ms` (epoch ms),
        or the log's latest store time if that is later; SCHEDULE_TOPIC always gets `now_ms`.
        Statuses: PUT_OK, or with no byte written MESSAGE_ILLEGAL, PROPERTIES_SIZE_EXCEEDED (limits:
        store.md 4), OS_PAGE_CACHE_BUSY while the next file is being made, and
        CREATE_MAPPED_FILE_FAILED if `lacks_file`. Raises ValueError for hosts of a wrong length."""
        topic = message.topic.encode()
        if self.config.enabled_append_prop_crc:
            properties = without_crc(properties)
        refused = size_refusal(self.config, message, topic, properties)
        if refused is not None:
            return refused
        store_ms = self._store_ms(message.topic, now_ms)
        write, size = record_writer(self.config, message, topic, properties, queue_offset, store_ms)
        return self._write_at_end(write, size, queue_offset, store_ms)

    def append_batch(self, message: NewMessage, queue_offset: QueueOffset, now_ms: int) -> Appended:
        """Write the elements of `message.body`, a batch body (remoting.md 9.4), as consecutive
        records in one file, all or none. `queue_offset` is the first record's; properties and flag
        are the elements' own. Times and statuses as for `append`; a malformed body is
        MESSAGE_ILLEGAL."""
        topic = message.topic.encode()
        refused = size_refusal(self.config, message, topic, b"")
        if refused is not None:
            return refused
        store_ms = self._store_ms(message.topic, now_ms)
        try:
            write, size = batch_writer(self.config, message, topic, queue_offset, store_ms)
            return self._write_at_end(write, size, queue_offset, store_ms)
        except ValueError as error:
            return Appended(PutStatus.MESSAGE_ILLEGAL, reason=str(error))

    def begin_at(self, log_offset: LogOffset) -> None:
        """Let an empty log without files begin at `log_offset`, the first byte of a file: the
        beginning of the master's log or of its last file. No file is made yet. The work that
        `discard_next_file_work` returned must be done, because a hole in the log would follow the
        unused file."""
        assert self.segments.count == 0 and log_offset % self.file_size == 0, "not a new log"
        assert self._next.ready is None, "a file that is not of this log"
        self.segments.first = log_offset
        self.start_writing(log_offset, 0)

    def append_fitting_pieces(self, pieces: list[memoryview], *, whole: bool) -> list[memoryview]:
        """Append bytes of another log at `end`, not durable yet: `whole` records, or bytes that may
        end anywhere. Returns the rest of `pieces`, which the caller appends again once the next
        file is made; [] if all were appended. Raises OSError if `lacks_file`; the bytes that fit
        into the current file are appended then."""
        self._is_copy = True
        if not whole:
            if not self._is_raw:
                self._is_raw = True
                self._mark = self._next_mark = self.flushed
            self._raw_end = UNKNOWN_END
        size = sum(map(len, pieces))
        while size:
            if self._file is None and not self._roll_file():
                if self.lacks_file:
                    raise OSError(errno.ENOSPC, "no next log file", self.segments.folder)
                return pieces
            assert self._file is not None
            position = self.end - self._base
            here = min(size, self.file_size - position)
            piece, pieces = replica_append.split_at(pieces, here)
            replica_append.write(self._file, position, piece, here)
            self.tail.end = self.end + here
            size -= here
            if position + here == self.file_size:
                self._file.expect_scans()
                self._close_file()
        return []

    def append_frames(self, frames: PlainFrames) -> bool:
        """Append bodies as `append_fitting_pieces` appends whole records. False, with nothing
        written, unless `append_fitting_pieces` opened the current file and they leave room in it
        (PlainFrames.write)."""
        return self._is_copy and frames.write(self.tail)

    def cut_torn(self, end: LogOffset) -> None:
        """Cut the log at `end`, where an incomplete record or filler begins, durably; blocks for
        the disk, and no sync may be under way. The bytes of the incomplete record must not come
        back: a record written over them may reach the disk only in part. Raises OSError."""
        assert self._file is not None, "a half record reaches into no other file"
        position = end - self._base
        head = min(kernel.FILLER_SIZE, self.file_size - position)
        self._file.region.zero(position, head)
        self._file.sync(position, position + head)
        clear_tail(self._file, position)
        self.tail.end = end
        self.flushed = min(self.flushed, end)

    def end_raw(self, last_store_timestamp_ms: int) -> None:
        """End the appending of raw bytes, before this store appends records itself. The caller
        guarantees that the log ends at a record boundary; `last_store_timestamp_ms` is the store
        time of the last record, in epoch ms."""
        self._is_copy = False
        self._raw_end = self.end
        self.tail.last_store_timestamp_ms = max(
            self.tail.last_store_timestamp_ms, last_store_timestamp_ms
        )

    def is_raw(self, log_offset: LogOffset) -> bool:
        """Whether `log_offset`, the end of a sync, may lie inside a record: bytes that are not
        whole records were appended there, and `checkpoint_boundary` has not yet found all of them
        flushed."""
        return self._is_raw and log_offset < self._raw_end

    def checkpoint_boundary(self, boundary: LogOffset) -> LogOffset:
        """Return the record boundary for the checkpoint, where recovery starts its scan: `flushed`,
        or an earlier offset while `flushed` may lie inside a record. All bytes before the result
        are durable. `boundary` is a record boundary, which a later call may return once it is
        flushed."""
        if self.flushed >= self._raw_end:
            self._is_raw = False
        if not self._is_raw:
            return self.flushed
        if self._next_mark <= self.flushed:
            self._mark, self._next_mark = max(self._mark, self._next_mark), boundary
        return self._mark

    def view_bytes(self, log_offset: int, size: int) -> memoryview | None:
        """A read-only view of the `size` bytes at `log_offset`, without a check of their content;
        None if the log does not have all of them, or they do not lie in one file."""
        start = self.segments.start_of(log_offset)
        position = log_offset - start
        if (
            log_offset < self.segments.first
            or size <= 0
            or log_offset + size > self.end
            or position + size > self.file_size
        ):
            return None
        return self.file_region(start).view(position, size)

    def read_record(self, log_offset: int) -> Record | None:
        """The record at `log_offset`, decoded, visible or not; None if no record starts there, or
        if its body does not fit its CRC."""
        if not self.segments.first <= log_offset < self.end:
            return None
        start = self.segments.start_of(log_offset)
        limit = min(self.end - start, self.file_size)
        try:
            found = kernel.decode(self.file_region(start), log_offset - start, limit, start)
        except ValueError:
            return None
        return found if found.physical_offset == log_offset and found.crc_ok else None

    def region_of(self, start: int) -> Region | None:
        """Mapped memory of the file that begins at log offset `start`; None if the log has no such
        file."""
        return self.file_region(start) if self.segments.contains(start) else None

    def part_in_one_file(self, start: LogOffset, end: LogOffset) -> tuple[int, Region, int, int]:
        """The part of the log offsets [start, end) that lies in the file of `start`: (log offset at
        which the file begins, the file's memory, first byte of the part in the file, byte after
        it)."""
        base = self.segments.start_of(start)
        return base, self.file_region(base), start - base, min(end - base, self.file_size)

    def unflushed_ranges(self, end: LogOffset) -> list[tuple[MappedFile, int, int]]:
        """Ranges to sync so that all bytes before `end` are durable, ascending: (file, first byte
        in the file, byte after the range)."""
        ranges = []
        at: int = self.flushed
        while at < end:
            base = self.segments.start_of(at)
            stop = min(end, base + self.file_size)
            ranges.append((self.mapped_file(base), at - base, stop - base))
            at = stop
        return ranges

    def drop_files_from_end(self, end: LogOffset) -> None:
        """Remove the files that begin at `end` or later, durably; blocks for the disk. The log's
        only file stays, because its name records where the log continues. `self.end` is unchanged.
        Raises OSError."""
        self.drop_files_work(end)()

    def drop_files_work(self, end: LogOffset) -> Work:
        """Take the files that begin at `end` or later out of the log now; the returned work, for a
        disk thread, removes them durably. See `drop_files_from_end`."""
        segments, files = self.segments, self.files
        paths: list[str] = []
        while segments.count > 1 and segments.last_file_start >= end:
            paths.append(segments.forget_last())
        is_last = segments.count > 0 and segments.last_file_start >= end
        kept = segments.mapped_file(segments.last_file_start) if is_last else None

        def remove_files() -> None:
            if paths:
                # A process killed here or in `close` may have removed later files without syncing
                # the folder.
                files.sync_folder(segments.folder)
            for path in paths:
                # Remove one file after the other: a power cut must not leave a hole in the log.
                self._remove(path)
            if kept is not None:
                # The file may be an unfinished next file, without its blocks: see NextFile.
                kept.reserve(0, self.file_size)
                files.sync(kept.path)
                files.sync_folder(segments.folder)

        return remove_files

    def truncate(self, end: LogOffset) -> int:
        """Cut the log at `end`, durably: remove later files and zero the rest of the file of `end`.

        Law 6: a truncated byte never comes back. Blocks for the disk. `self.end` is unchanged; the
        caller sets it (`start_writing`). Returns the number of bytes in the 64 KiB pieces
        that were not all zeros. Raises OSError; the log is then unchanged or shorter, never mixed.
        """
        self.drop_files_from_end(end)
        return self.zero_tail_work(end)()

    def zero_tail_work(self, end: LogOffset) -> Callable[[], int]:
        """Return work for a disk thread that zeroes the file of `end` from `end` to its last byte,
        durably. The work returns the number of bytes in the 64 KiB pieces that were not all zeros,
        and raises OSError."""
        if not self.segments.contains(end):
            return lambda: 0
        start = self.segments.start_of(end)
        return partial(clear_tail, self.mapped_file(start), end - start)

    def stop_at(self, end: LogOffset) -> None:
        """End the log at `end` in memory, without a change of its files, and write nothing before
        the next `start_writing`. The caller guarantees that all bytes before `end` are durable and
        no sync is under way."""
        self.tail.end = self.flushed = end
        self._close_file()

    @property
    def is_idle(self) -> bool:
        """Whether no disk thread works on the next file or warms pages."""
        return self._next.is_idle and self._warmer.is_idle

    def discard_next_file_work(self) -> Work:
        """Give up the file that was made ahead; the returned work, for a disk thread, removes it
        durably, or does nothing if there is no such file. Blocks until the disk threads have
        finished their work on it, unless the log `is_idle`."""
        return partial(self._remove, self._forget_unused_file())

    def forget_oldest(self) -> str:
        """Take the oldest file out of the log, so that `min` moves to the next file; the caller
        removes the returned path. A log with a single file is a programmer error."""
        assert self.segments.count > 1, "the last file stays"
        return self.segments.forget_first()

    def forget_all(self) -> None:
        """Make this an empty log at 0, which takes no records before `begin_at`, because the caller
        is about to remove all files, the next file included. Blocks until the disk threads have
        finished their work on the next file; no sync may be under way."""
        self._close_file()
        self._forget_unused_file()
        while self.segments.count:
            self.segments.forget_last()
        self.segments.first = 0
        self.start_writing(LogOffset(0), 0)

    def close(self) -> None:
        """Stop writing; block until the file that is being made ahead is ready, and remove it if it
        was not used (as RocketMQ does). Errors are logged. Unsynced bytes are not synced."""
        self._close_file()
        path = self._forget_unused_file()
        try:
            if path:
                self.files.remove(path)
        except OSError as error:
            logger.warning("an unused log file could not be removed: %s", error)

    def _store_ms(self, topic: str, now_ms: int) -> int:
        """Store time of a new record. Store times ascend, because searches by time need that. A
        delayed message takes the clock's time even if the log's last time is ahead of the clock:
        its delivery time is its store time plus its delay (store.md 6.3)."""
        return now_ms if topic == SCHEDULE_TOPIC else max(now_ms, self.last_store_timestamp_ms)

    def _write_at_end(
        self,
        write: Write,
        size_max: int,
        queue_offset: QueueOffset,
        store_ms: int,
    ) -> Appended:
        """Write at the end of the log, rolling to the next file if there is no room."""
        if size_max + kernel.FILLER_SIZE > self.file_size:
            reason = f"{size_max} bytes do not fit into a log file of {self.file_size}"
            return Appended(PutStatus.MESSAGE_ILLEGAL, reason=reason)
        if self._file is None and not self._roll_file():
            return self._no_file_result()
        assert self._file is not None
        sizes = write(self._file.region, self.end - self._base, self.end)
        if isinstance(sizes, int):
            if not self._roll_file():
                return self._no_file_result()
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

    def _roll_file(self) -> bool:
        """Continue in the next file. Returns False, without a change, if there is no next file yet.
        The filler is written only when the next file exists, so that a failed roll changes nothing.
        """
        start = self._next.start_at(self.end)
        mapped = self._next.take_file(start)
        if mapped is None:
            return False
        if self._file is not None:
            kernel.append_filler(self._file.region, self.end - self._base, self.file_size)
            self._file.expect_scans()
        self.segments.adopt_file(start, mapped, lambda: self._may_close(start))
        self.tail.end = max(start, self.end)
        self._next.note_adopted()
        self._open_file(start)
        self.make_next_file_if_near()
        return True

    def _no_file_result(self) -> Appended:
        """The refusal of an append that needs the next file, which failed or is being made."""
        if self.lacks_file:
            return Appended(PutStatus.CREATE_MAPPED_FILE_FAILED, reason="no next log file")
        return Appended(PutStatus.OS_PAGE_CACHE_BUSY, reason="the next log file is being made")

    def _may_close(self, start: int) -> bool:
        """Whether the mapping of the file that begins at `start` may be closed: all its
        bytes are durable."""
        return start + self.file_size <= self.flushed

    def _open_file(self, start: int) -> None:
        """Let the writer continue in the existing file that begins at `start`."""
        self._file = self.mapped_file(start)
        self._base = start
        self.tail.open(start, self._file.region)

    def _close_file(self) -> None:
        """Leave the writer without a current file."""
        self._file = None
        self._warmer.forget_warm_pages()
        self.tail.open(0, None)

    def make_first(self) -> None:
        """Have a file to write to: create the first file of an empty log, blocking for the disk, or
        have a disk thread make the next file if the last one is nearly full. Raises OSError if the
        first file cannot be created."""
        if self.segments.count:
            self.make_next_file_if_near()
        else:
            self._next.make_first(self.end)

    def make_next_file_if_near(self) -> None:
        """Begin to make the next file on a disk thread once the end of the last one is near, unless
        `is_suspended`; so a roll does not wait for the disk."""
        if not self.is_suspended:
            self._next.make_if_near(self.tail.end, self._grown)

    def warm_ahead(self, steady_ms: int = 0) -> None:
        """Call every 100 ms with the monotonic clock `steady_ms`: disk threads make the next file
        in time, and make pages present if the log grows fast."""
        if self.is_suspended:
            return
        self._next.watch_for_missing(self.end, steady_ms)
        self._grown = grown = max(0, self.end - self._seen_end)
        self._seen_end = self.end
        self.make_next_file_if_near()
        if self._file is not None and not self._is_copy:
            self._warmer.warm_ahead(self.end, grown)

    def _file_at(self, log_offset: int) -> tuple[MappedFile | None, int]:
        """(file that holds `log_offset`, or the next file for offsets after the current one; log
        offset at which that file begins)."""
        if self._file is None:
            return None, 0
        file_end = self._base + self.file_size
        return (self._file, self._base) if log_offset < file_end else (self._next.ready, file_end)

    def _forget_unused_file(self) -> str:
        """Forget the unused next file. Returns its path, which the caller removes, or "" if there
        is no such file."""
        self._warmer.wait_until_idle()
        return self._next.discard_file()

    def _remove(self, path: str) -> None:
        """Remove a log file durably; no-op for ""."""
        if path:
            self.files.remove(path)
            self.files.sync_folder(self.segments.folder)

    def mapped_file(self, start: int) -> MappedFile:
        """The mapped file that starts at log offset `start`; it must exist in the log."""
        return self.segments.mapped_file(start, lambda: self._may_close(start))

    def file_region(self, start: int) -> Region:
        """Mapped memory of the file that starts at log offset `start`; it must exist in the log."""
        if start == self._base and self._file is not None:
            return self._file.region
        return self.mapped_file(start).region
