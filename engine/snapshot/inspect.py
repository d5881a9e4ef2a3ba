"""Reads the files of any store, RocketMQ's included, record by record, without opening the store.

Owns a reader's behaviour at damage: it reports file and position, and continues at the next record.
It must never write, lock or need a store that recovery accepts.

Tests: tests/unit/cli/inspect/test_lines.py, tests/unit/engine/snapshot/test_table_damage.py
"""

import array
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial

from turbopump.engine.types import LogOffset
from turbopump.pyx.crc32 import crc32
from turbopump.pyx.index import HEADER_SIZE
from turbopump.pyx.queue import UNIT_SIZE, get_unit
from turbopump.pyx.record import BLANK, FILLER_SIZE, OK, V1, V2, Record, decode, scan
from turbopump.pyx.region import Region

SCAN_ROWS = 1_024
"""Number of records whose boundaries are found per call: some 200 KB of rows."""
SEARCH_CHUNK = 1 << 20
"""Bytes per read when searching for the next record after damage."""
SLOT_CHUNK = 1 << 16
"""Number of slots per read: 256 KB."""
BATCH_UNIT_SIZE = 46
"""Bytes of a unit of a batch consume queue (store.md 13)."""
EXT_HEAD_SIZE = 20
"""Bytes of an extension unit before its bitmap (store.md 12)."""
EXT_FILE_TAIL = 4
"""Bytes at the end of an extension file that never hold a unit."""
INDEX_ENTRY_SIZE = 20
"""Bytes of an index entry."""
DEFAULT_SLOTS = 5_000_000
"""RocketMQ's default number of slots of an index file."""
GUESSED_SLOTS_MAX = 200_000
"""Maximum number of candidate slot counts that are tried for a file."""
BLANK_UNIT_SIZE = 0x7FFFFFFF
"""Size in RocketMQ's pre-fill units before a queue's first unit."""

OpenFile = Callable[[str], AbstractContextManager[Region]]
"""Takes a path; returns a context with the file's memory, which ends with the context."""

_MAGICS = tuple((magic & 0xFFFFFFFF).to_bytes(4, "big") for magic in (V1, V2))


@dataclass(frozen=True, slots=True)
class StoreFile:
    """A file of a store that is to be read."""

    path: str
    """Argument of OpenFile."""
    name: str
    """The last part of the path."""
    base: int
    """Byte of the whole row of files at which the file begins: for a log file its log offset, for a
    queue file 20 (batch queue: 46) times its first unit's number; 0 for an index."""


@dataclass(frozen=True, slots=True)
class Deviation:
    """A place where a store's file deviates from its format."""

    file: str
    """Path of the file."""
    position: int
    """First byte of the deviation in the file."""
    reason: str
    """Description in English, without file and position."""


@dataclass(frozen=True, slots=True)
class LogRecord:
    """A record whose lengths agree. `record_crc`: the CRC-32 of the bytes of the whole record,
    computed here, not stored in it."""

    record: Record
    record_crc: int


@dataclass(frozen=True, slots=True)
class Blank:
    """The filler at the end of a full file: its log offset, and its size, which is all bytes left
    in the file."""

    log_offset: LogOffset
    size: int


@dataclass(frozen=True, slots=True)
class LogFileEnd:
    """The end of the records of a log file."""

    name: str
    """Name of the file."""
    length: int
    """Bytes of the file."""
    full: bool
    """Whether the filler was reached."""
    end_of_records: LogOffset
    """Log offset at which recovery would cut the file: before the first fault, else at the
    filler."""
    stop: str | None
    """Reason for that cut; None: no cut."""


@dataclass(frozen=True, slots=True)
class LogEnd:
    """The end of the log: `records` were found before log offset `end_offset`, the first damage or
    the end, and `after_damage` more after it; `damages` is the number of damaged places."""

    records: int
    end_offset: LogOffset
    after_damage: int
    damages: int


@dataclass(frozen=True, slots=True)
class ConsumeQueueUnit:
    """A unit of a consume queue: its queue offset `index`, and log offset, bytes and tags code of
    its record."""

    index: int
    log_offset: LogOffset
    size: int
    tags_code: int


@dataclass(frozen=True, slots=True)
class BatchQueueUnit:
    """A unit of a batch consume queue: the place of a record with several messages, and their queue
    offsets."""

    index: int
    """Number of the unit in the queue, from 0; not a queue offset."""
    log_offset: LogOffset
    size: int
    """Bytes of the record."""
    tags_code: int
    store_timestamp_ms: int
    """Epoch ms."""
    base_queue_offset: int
    """Queue offset of the first message of the record."""
    count: int
    """Number of messages in the record."""
    compacted: int
    """RocketMQ's compacted offset, as stored."""
    reserved: int
    """The last four bytes, as stored."""


@dataclass(frozen=True, slots=True)
class ExtUnit:
    """A unit of a consume queue's extension: its position in the file, its bytes, and the tags
    code, store time (epoch ms) and filter bitmap of its message. Size 0 is the end of the units."""

    position: int
    size: int
    tags_code: int
    store_timestamp_ms: int
    bitmap: bytes


@dataclass(frozen=True, slots=True)
class IndexHead:
    """The header of an index file: store times in epoch ms and log offsets of the first and last
    record, `slot_count` slots in use, and `count`, the number of entries plus 1. Not stored: the
    file has `slots` slots, and room for `entries` entries, of which entry 0 is not used."""

    begin_timestamp_ms: int
    end_timestamp_ms: int
    begin_log_offset: LogOffset
    end_log_offset: LogOffset
    slot_count: int
    count: int
    slots: int
    entries: int


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """Index entry `number` (from 1): Java's hash of topic#key, log offset of the record, seconds
    from the file's first store time, and `previous`, the number of the next older entry of its
    slot; 0: it has none."""

    number: int
    key_hash: int
    log_offset: LogOffset
    time_diff_seconds: int
    previous: int


LogLine = LogRecord | Blank | LogFileEnd | LogEnd | Deviation
"""A result of `walk_log`."""
QueueLine = ConsumeQueueUnit | BatchQueueUnit | ExtUnit | Deviation
"""A result of a walk over a queue or extension file."""


def walk_log(files: Sequence[StoreFile], open_file: OpenFile, start: int = 0) -> Iterator[LogLine]:
    """Generate a line for each record, filler and damage of a commit log's files, which ascend, one
    for the end of each file, and last a LogEnd. A damaged record has its Deviation before it.

    Files are opened one at a time. Zeros where a record should start are the end of the log unless
    a later file has records. `start` is a log offset: the walk begins with the record there, or
    else with the next record, and does not examine earlier bytes. Errors of `open_file` pass
    through.
    """
    records = after_damage = damages = 0
    end: int | None = None
    reached = max(files[0].base, start) if files else 0
    for number, file in enumerate(files):
        with open_file(file.path) as region:
            if file.base + region.size <= start:
                continue
            rest = files[number + 1 :]
            first = _walk_start(region, max(0, start - file.base), file.base)
            for line in _walk_log_file(
                file, region, partial(_has_first_record, rest, open_file), first
            ):
                if isinstance(line, Deviation):
                    damages += 1
                    end = reached if end is None else end
                elif isinstance(line, LogRecord):
                    records += end is None
                    after_damage += end is not None
                    reached = line.record.log_offset + line.record.size
                elif isinstance(line, LogFileEnd) and line.full and end is None:
                    reached = line.end_of_records
                yield line
        if (
            isinstance(line, LogFileEnd)
            and not line.full
            and not _has_first_record(rest, open_file)
        ):
            break  # the following files were only created ahead
    yield LogEnd(records, LogOffset(reached if end is None else end), after_damage, damages)


def _has_first_record(files: Sequence[StoreFile], open_file: OpenFile) -> bool:
    """Whether any of the files does not begin with zeros."""
    for file in files:
        with open_file(file.path) as region:
            if region.size >= FILLER_SIZE and not region.is_zero(0, FILLER_SIZE):
                return True
    return False


def _walk_start(region: Region, position: int, base: int) -> int:
    """Position where the walk of a file begins: at a record, or at the end of the file's
    records."""
    if position == 0:
        return 0
    found = next_record(region, position, base)
    if found is not None:
        return found
    position = 0  # only the file's end follows: only a walk can find its beginning
    while (scanned := scan(region, position, region.size, SCAN_ROWS, False)).status == OK:
        if scanned.position in (position, region.size):
            break
        position = scanned.position
    return scanned.position


def _walk_log_file(
    file: StoreFile, region: Region, goes_on: Callable[[], bool], position: int
) -> Iterator[LogLine]:
    """Generate the lines of a log file from `position` on, with its LogFileEnd; `goes_on` returns
    whether a later file has a record."""
    full = False
    stop: str | None = None
    cut: int | None = None
    while True:
        found = scan(region, position, region.size, SCAN_ROWS, False)
        for row in range(found.count):
            record = decode(region, found.rows[row, 0], region.size, file.base)
            fault = _fault_of(record, file)
            if fault:
                at = record.log_offset - file.base
                cut = at if cut is None else cut
                stop = stop or fault
                yield Deviation(file.path, at, fault)
            data = region.view(record.log_offset - file.base, record.size)
            yield LogRecord(record, crc32(data))
        position = found.position
        if found.status == OK and position < region.size:
            continue
        reason = _why_no_record(region, position)
        if reason is None:
            full = True
            yield Blank(LogOffset(file.base + position), region.get_i32(position))
            break
        stop, cut = stop or reason, position if cut is None else cut
        if _is_zero_at(region, position) and not goes_on():
            break
        yield Deviation(file.path, position, reason)
        resumed = next_record(region, position + 1, file.base)
        if resumed is None:
            break
        position = resumed
    end = LogOffset(file.base + (position if cut is None else cut))
    yield LogFileEnd(file.name, region.size, full, end, stop)


def _fault_of(record: Record, file: StoreFile) -> str:
    """The fault of a record whose lengths agree, as recovery and reads check it; "" if it has
    none."""
    if not record.crc_ok:
        return "body crc"
    # The log offset of the bytes of a file with another name is unknown.
    if record.physical_offset != record.log_offset and file.name.isdecimal():
        return f"says it lies at {record.physical_offset}"
    return ""


def _why_no_record(region: Region, position: int) -> str | None:
    """Reason why no record starts at a position; None for a filler."""
    left = region.size - position
    if left < FILLER_SIZE:
        return f"{left} bytes left, not even a filler"
    size, magic = region.get_i32(position), region.get_i32(position + 4)
    if magic == BLANK and size == left:
        return None
    if magic == BLANK:
        return f"filler of {size} bytes where {left} are left"
    if magic not in (V1, V2):
        return f"no magic, size {size} magic {magic}"
    if size > left:
        return f"size {size} beyond the file"
    try:
        decode(region, position, region.size)
    except ValueError as error:
        return str(error)
    raise AssertionError("the scan stopped at a record that decodes")


def _is_zero_at(region: Region, position: int) -> bool:
    """Whether zeros are where a record or filler should start."""
    head = min(FILLER_SIZE, region.size - position)
    return region.is_zero(position, head)


def next_record(region: Region, position: int, base: int) -> int | None:
    """The first position of the region at or after `position` of a record whose stored log offset
    agrees with its place, if the region begins at log offset `base`; None without such a record.
    The body's CRC is not checked."""
    start = position + 4
    while start < region.size - 4:
        length = min(SEARCH_CHUNK, region.size - start)
        chunk = region.read(start, length)
        for at in _magics_in(chunk):
            candidate = start + at - 4
            try:
                record = decode(region, candidate, region.size, base)
            except (ValueError, IndexError):
                continue
            if record.physical_offset == record.log_offset:
                return candidate
        if length < SEARCH_CHUNK:
            return None
        start += length - 3
    return None


def _magics_in(chunk: bytes) -> Iterator[int]:
    """Positions of the record magics in the bytes, ascending."""
    at = -1
    while True:
        hits = [hit for magic in _MAGICS if (hit := chunk.find(magic, at + 1)) >= 0]
        if not hits:
            return
        at = min(hits)
        yield at


def walk_queue(file: StoreFile, region: Region) -> Iterator[QueueLine]:
    """Generate the units of a consume queue file by queue offset, up to the first unit that was
    never written; a run of wrong units is a Deviation, and RocketMQ's pre-fill is skipped."""

    def read(position: int) -> ConsumeQueueUnit | str | None:
        log_offset, size, tags_code = get_unit(region, position)
        if size == BLANK_UNIT_SIZE and log_offset == 0:
            return None
        if size <= 0 or log_offset < 0:
            return f"no unit: log offset {log_offset}, size {size}"
        index = (file.base + position) // UNIT_SIZE
        return ConsumeQueueUnit(index, LogOffset(log_offset), size, tags_code)

    return _walk_units(file, region, UNIT_SIZE, read)


def walk_batch_queue(file: StoreFile, region: Region) -> Iterator[QueueLine]:
    """Generate the units of a batch consume queue file (topics with queue.type=BatchCQ), as
    `walk_queue` does."""

    def read(position: int) -> BatchQueueUnit | str:
        unit = BatchQueueUnit(
            (file.base + position) // BATCH_UNIT_SIZE,
            LogOffset(region.get_i64(position)),
            region.get_i32(position + 8),
            region.get_i64(position + 12),
            region.get_i64(position + 20),
            region.get_i64(position + 28),
            region.get_i16(position + 36),
            region.get_i32(position + 38),
            region.get_i32(position + 42),
        )
        if unit.log_offset < 0 or unit.size <= 0 or unit.base_queue_offset < 0 or unit.count <= 0:
            return f"no unit: log offset {unit.log_offset}, size {unit.size}, count {unit.count}"
        return unit

    return _walk_units(file, region, BATCH_UNIT_SIZE, read)


def _walk_units(
    file: StoreFile,
    region: Region,
    unit_size: int,
    read: Callable[[int], ConsumeQueueUnit | BatchQueueUnit | str | None],
) -> Iterator[QueueLine]:
    """Units of fixed size; `read` returns a unit, None for a unit to skip, or a fault.

    A run of wrong units is reported as one damage, so that a file that is not a queue does not
    flood the output.
    """
    end = region.size - region.size % unit_size
    start, reason, wrong = 0, "", 0
    for position in range(0, end, unit_size):
        unit = read(position)
        if isinstance(unit, str):
            if not wrong and region.is_zero(position, end - position):
                break
            start, reason = (start, reason) if wrong else (position, unit)
            wrong += 1
            continue
        if wrong:
            yield Deviation(file.path, start, f"{reason} ({wrong} of this kind)")
            wrong = 0
        if unit is not None:
            yield unit
    if wrong:
        yield Deviation(file.path, start, f"{reason} ({wrong} of this kind)")
    if end < region.size:
        yield Deviation(file.path, end, f"length {region.size} is not a multiple of {unit_size}")


def walk_queue_extension(file: StoreFile, region: Region) -> Iterator[QueueLine]:
    """Generate the units of an extension file; the last line is the end mark (size 0) if the file
    has one, or the first Deviation, which ends the walk."""
    position = 0
    while position + EXT_HEAD_SIZE <= region.size - EXT_FILE_TAIL:
        size = region.get_i16(position)
        if size < 1:
            yield ExtUnit(position, 0, 0, 0, b"")
            return
        bitmap_size = region.get_i16(position + 18)
        if bitmap_size < 0 or size != EXT_HEAD_SIZE + bitmap_size:
            yield Deviation(
                file.path, position, f"unit of size {size} with bitmap of {bitmap_size}"
            )
            return
        if position + size > region.size - EXT_FILE_TAIL:
            yield Deviation(file.path, position, f"unit of size {size} beyond the file")
            return
        yield ExtUnit(
            position,
            size,
            region.get_i64(position + 2),
            region.get_i64(position + 10),
            region.read(position + EXT_HEAD_SIZE, bitmap_size),
        )
        position += size


def read_index_head(region: Region, slots: int | None = None) -> IndexHead:
    """The header of an index file with `slots` slots; None: the number is guessed, because the file
    does not record it. Raises ValueError with a sentence for the user if no number fits (then the
    caller may ask for it).
    """
    if region.size < HEADER_SIZE:
        raise ValueError(f"{region.size} bytes are too few for the header of an index file")
    slot_count, count = region.get_i32(32), region.get_i32(36)
    if count < 1:
        # A header of zeros: the file was created and has no entries; count starts at 1.
        count = 1
    chosen = slots if slots is not None else _guess_slots(region, slot_count, count)
    if chosen is None:
        raise ValueError("the number of slots of the file cannot be guessed: say it with --slots")
    entries = (region.size - HEADER_SIZE - 4 * chosen) // INDEX_ENTRY_SIZE
    if chosen < 1 or entries < 1:
        raise ValueError(f"{chosen} slots do not fit into {region.size} bytes")
    return IndexHead(
        region.get_i64(0),
        region.get_i64(8),
        LogOffset(region.get_i64(16)),
        LogOffset(region.get_i64(24)),
        slot_count,
        count,
        chosen,
        entries,
    )


def walk_slots(region: Region, head: IndexHead) -> Iterator[tuple[int, int]]:
    """Generate (slot, number of its newest entry) of the slots in use, ascending."""
    for first in range(0, head.slots, SLOT_CHUNK):
        for at, value in enumerate(
            _slot_values(region, first, min(SLOT_CHUNK, head.slots - first))
        ):
            if value:
                yield first + at, value


def walk_index_entries(
    file: StoreFile, region: Region, head: IndexHead
) -> Iterator[IndexEntry | Deviation]:
    """Generate the entries of an index file by number, from 1 to the header's count; a wrong entry
    is a Deviation, and so is, at the end, a count that is too large for the file."""
    base = HEADER_SIZE + 4 * head.slots
    last = min(head.count - 1, head.entries - 1)
    for number in range(1, last + 1):
        position = base + number * INDEX_ENTRY_SIZE
        entry = IndexEntry(
            number,
            region.get_i32(position),
            LogOffset(region.get_i64(position + 4)),
            region.get_i32(position + 12),
            region.get_i32(position + 16),
        )
        if entry.key_hash < 0 or entry.log_offset < 0 or not 0 <= entry.previous < number:
            yield Deviation(file.path, position, f"entry {number} is not an entry")
        else:
            yield entry
    if head.count > head.entries:
        reason = f"count {head.count} in the header of a file with {head.entries} entries"
        yield Deviation(file.path, 36, reason)


def _slot_values(region: Region, first: int, count: int) -> "array.array[int]":
    """The values of `count` hash slots from slot `first` on: numbers of entries, 0 in
    unused slots."""
    values = array.array("i", region.read(HEADER_SIZE + 4 * first, 4 * count))
    if sys.byteorder == "little":
        values.byteswap()
    return values


def _guess_slots(region: Region, slot_count: int, count: int) -> int | None:
    """The slot count that the header's own figures confirm; RocketMQ's ratios are tried first."""
    words = (region.size - HEADER_SIZE) // 4
    ratios = [words // 21, words // 11, words // 6]  # 4, 2, 1 entries per slot
    candidates = [DEFAULT_SLOTS, *ratios]
    if words <= GUESSED_SLOTS_MAX:
        candidates += range(1, words)
    for slots in candidates:
        if not 0 < slots < words or (words - slots) % 5:
            continue
        if count <= (words - slots) // 5 and _slots_fit(region, slots, slot_count, count):
            return slots
    return None


def _slots_fit(region: Region, slots: int, slot_count: int, count: int) -> bool:
    """Whether the first entry is in the chain of its slot and the number of used slots is right."""
    if count > 1:
        first = HEADER_SIZE + 4 * slots + INDEX_ENTRY_SIZE
        key_hash = region.get_i32(first)
        if key_hash < 0 or region.get_i32(first + 16) or region.get_i32(first + 12):
            return False
        if not 0 < region.get_i32(HEADER_SIZE + 4 * (key_hash % slots)) < count:
            return False
    used = 0
    for start in range(0, slots, SLOT_CHUNK):
        values = _slot_values(region, start, min(SLOT_CHUNK, slots - start))
        if min(values) < 0 or max(values) >= max(count, 1):
            return False
        used += len(values) - values.count(0)
    return used == slot_count
