"""Ranges of a log's records, and their decoding into batches of columns.

Owns the content of a range, the access to its bytes and the handling of damage. It must never
write, lock or repair anything.

The start of a range is proved only by decoding: a split was found by searching for a record (see
log_table). Records follow each other by their lengths from the start of the file. So if each
range's records end exactly where the range ends, all starts were right, one after the other; if a
start was wrong, the record before it reaches beyond its range's end, and that is reported as
damage.

All functions may read a store that is being written. The decoded bytes lie before the end that the
table had when it was opened and do not change, except in two cases. Retention removes files: an
opened file stays readable, an unopened one raises `SegmentGone`. A replica's log is cut: the bytes
become zeros, which is reported as damage ("the space is empty").

Tests: tests/unit/engine/snapshot/test_log_table.py
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from turbopump.engine.disk.files import Files, MappedFile
from turbopump.engine.disk.real_files import RealFiles
from turbopump.engine.snapshot.inspect import Deviation, next_record
from turbopump.engine.types import LogOffset, StoreError
from turbopump.pyx import columns as kernel
from turbopump.pyx.columns import COLUMNS, Batch, Decoder
from turbopump.pyx.region import Region

INT64_MAX = (1 << 63) - 1
"""The greatest log offset or store time."""
BATCH_ROWS = 65_536
"""Default of `ScanQuery.batch_rows`."""
BATCH_BYTES = 16 << 20
"""Default of `ScanQuery.batch_bytes`: a batch stays in memory that the allocator reuses without the
kernel."""


class DamagedLog(StoreError):
    """Bytes of the log are not records; `damage` has the file, the place and the reason."""

    def __init__(self, damage: Deviation) -> None:
        super().__init__(f"{damage.file} is damaged at byte {damage.position}: {damage.reason}")
        self.damage = damage
        """The first deviation that was found."""


class SegmentGone(StoreError):
    """A file of the log, or the log offset at which a read was to start, was removed (by retention)
    since the table was opened: open a new table."""


class LogBytes(Protocol):
    """An open file of a log. Positions are bytes of the file."""

    size: int
    """Bytes of the file when it was opened."""
    step: int
    """Bytes to request at once; a mapped file returns all its bytes at no extra cost."""

    def region(self, start: int, end: int) -> Region:
        """The bytes [start, end) of the file, which lie inside it; position 0 of the region is
        `start`. The region stays valid after `close`. Raises OSError."""

    def close(self) -> None:
        """Close the file."""
        ...


class LogOpener(Protocol):
    """Access to the files of a store on a disk or in an object store. The methods wait, and raise
    OSError."""

    def list_files(self, folder: str) -> list[tuple[str, int]]:
        """(name, size in bytes) of each file in a folder, sorted by name; empty if the folder does
        not exist."""

    def read(self, path: str) -> bytes:
        """Read a small file whole. Raises FileNotFoundError."""

    def open(self, path: str) -> LogBytes:
        """Open a log file. Raises FileNotFoundError."""


class MappedLog:
    """A mapped log file: its regions are slices of the mapping."""

    def __init__(self, mapped: MappedFile) -> None:
        self._mapped = mapped
        self.size = self.step = mapped.size
        """Bytes of the file, all of which may be requested at once."""

    def region(self, start: int, end: int) -> Region:
        """The bytes [start, end) of the file, not copied; position 0 of the region is `start`."""
        return Region(self._mapped.region.view(start, end - start))

    def close(self) -> None:
        """Close the file; regions stay valid, and the mapping ends with the last of them."""
        self._mapped.close()


class DiskOpener:
    """Files of a disk, mapped for reading: of `files`, or of the operating system. The methods
    raise OSError."""

    def __init__(self, files: Files | None = None) -> None:
        self._files = files or RealFiles()

    def list_files(self, folder: str) -> list[tuple[str, int]]:
        """(name, size in bytes) of each file in a folder, sorted by name; empty if the folder does
        not exist or is a file."""
        return self._files.list_files(folder)

    def read(self, path: str) -> bytes:
        """The whole content of a file. Raises FileNotFoundError."""
        return self._files.read(path)

    def open(self, path: str) -> LogBytes:
        """Map a log file, which must not be empty, read-only. Raises FileNotFoundError."""
        return MappedLog(self._files.open(path, readonly=True))


@dataclass(frozen=True, slots=True)
class LogRange:
    """Records [start, end) of a file, to be decoded anywhere: a plain value that can be pickled."""

    path: str
    """Path of the log file, for a LogOpener."""
    base: LogOffset
    """Log offset of the file's first byte."""
    start: int
    """Position in the file of the range's first record."""
    end: int
    """Position after the last record: a record boundary, or the file's end."""
    file_size: int
    """Bytes of the whole file."""
    confirmed_end: LogOffset
    """The table's `confirmed_end`."""
    epochs: tuple[tuple[int, int], ...] = ()
    """(epoch, log offset at which it starts) of the epochs that its bytes belong to, ascending."""

    @property
    def log_offset(self) -> LogOffset:
        """Log offset of the first record."""
        return LogOffset(self.base + self.start)


@dataclass(frozen=True, slots=True)
class ScanQuery:
    """A query: the wanted columns and records, as a plain value that can be pickled. A record is
    wanted if it fits all limits."""

    columns: tuple[str, ...] = COLUMNS
    """Names of the columns to decode (columns.COLUMNS, which is the default)."""
    topics: frozenset[bytes] | None = None
    """Wanted topics in UTF-8; None: all."""
    queue_ids: frozenset[int] | None = None
    """Wanted queue ids; None: all."""
    min_store_ms: int = -INT64_MAX - 1
    """Least store time in epoch ms, included."""
    max_store_ms: int = INT64_MAX
    """Greatest store time in epoch ms, included."""
    min_log_offset: int = 0
    """Least log offset of a record, included."""
    end_log_offset: int = INT64_MAX
    """Log offset before which a record must begin."""
    prune_by_time: bool = False
    """Whether files and ranges are excluded by the times of their first and last records, which may
    lose records if clocks went back: see log_table."""
    check_body: bool = False
    """Whether a record whose body does not fit its CRC is damage; else its body is not checked."""
    batch_rows: int = BATCH_ROWS
    """Maximum number of records in a batch."""
    batch_bytes: int = BATCH_BYTES
    """Maximum bytes of the bodies in a batch; each text column has at most a quarter of it. A
    larger record is a batch alone."""

    def make_decoder(self, part: LogRange) -> Decoder:
        """A new decoder for the records of a range. Raises ValueError for an unknown column."""
        return Decoder(
            self.columns,
            topics=self.topics,
            queue_ids=self.queue_ids,
            min_store_ms=self.min_store_ms,
            max_store_ms=self.max_store_ms,
            min_log_offset=self.min_log_offset,
            end_log_offset=self.end_log_offset,
            epochs=part.epochs,
            confirmed_end=part.confirmed_end,
            check_body=self.check_body,
            batch_rows=self.batch_rows,
            batch_bytes=self.batch_bytes,
        )


def decode(
    part: LogRange,
    query: ScanQuery,
    opener: LogOpener | None = None,
    *,
    damaged: Callable[[Deviation], None] | None = None,
) -> Iterator[Batch]:
    """Generate the wanted records of a range by log offset, batch by batch; no batch is empty.

    `opener` None: a DiskOpener. At damage `damaged` is called, and decoding continues at the next
    record whose stored log offset agrees with its place; with None DamagedLog is raised after the
    batches before the damage. Raises SegmentGone if the file was removed, OSError.
    """
    file = open_log(opener or DiskOpener(), part.path)
    try:
        yield from _decode(part, query.make_decoder(part), file, query, damaged)
    finally:
        file.close()


def open_log(opener: LogOpener, path: str) -> LogBytes:
    """Open a file of a table; the caller closes it. Raises SegmentGone if it was removed,
    OSError."""
    try:
        return opener.open(path)
    except FileNotFoundError:
        raise SegmentGone(f"{path} is gone: it was removed since the log was opened") from None


def _decode(
    part: LogRange,
    decoder: Decoder,
    file: LogBytes,
    query: ScanQuery,
    damaged: Callable[[Deviation], None] | None,
) -> Iterator[Batch]:
    """Generate the wanted records of a range from its open file; see `decode`."""
    at, step = part.start, file.step
    while at < part.end and part.base + at < query.end_log_offset:
        start, stop = at, min(at + step, part.end)
        region = file.region(start, stop)
        status = kernel.OK
        room = 0
        while at < stop and status in (kernel.OK, kernel.NO_ROOM):
            batch = decoder.decode(region, at - start, stop - start, part.base + start, room)
            status, room = batch.status, 0
            at = start + batch.position
            if batch.rows:
                yield batch
            if status == kernel.NO_ROOM:
                room = region.get_i32(batch.position)
            elif status == kernel.OK and part.base + at >= query.end_log_offset:
                return
        if status == kernel.SHORT and stop < part.end:
            # A record may be longer than a step, or damaged so that its length field is.
            step = file.step if at > start else step * 2
            continue
        if status != kernel.OK:
            reason = _fault_at(part, region, batch, at)
            if reason is None:
                return
            _report_damage(part, at, reason, damaged)
            at = at + batch.skip if batch.skip else _next_record(part, file, at)


def _fault_at(part: LogRange, region: Region, batch: Batch, at: int) -> str | None:
    """The fault at the place where records stopped; None for the filler of a full file."""
    if batch.status == kernel.BAD_RECORD:
        return batch.reason
    if batch.status == kernel.SHORT:
        return "a record reaches beyond the end of its range"
    size = region.get_i32(batch.position)
    if size != part.file_size - at:
        return f"filler of {size} bytes where {part.file_size - at} are left"
    return None


def _report_damage(
    part: LogRange, at: int, reason: str, damaged: Callable[[Deviation], None] | None
) -> None:
    """Call `damaged` with a deviation at position `at` of the range's file; None: raise
    DamagedLog."""
    damage = Deviation(part.path, at, reason)
    if damaged is None:
        raise DamagedLog(damage)
    damaged(damage)


def _next_record(part: LogRange, file: LogBytes, at: int) -> int:
    """Position of the next record after damage at position `at`; the range's end if it
    has no such record."""
    region = file.region(at, part.end)
    found = next_record(region, 1, part.base + at)
    return part.end if found is None else at + found
