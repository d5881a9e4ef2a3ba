"""Where the records of a commit log end, and where to begin to look.

Owns the walk over records that recovery trusts. It must never change a byte. Called by recovery.

A record is taken only if its lengths agree, its body fits its CRC, it says that it lies where it
lies, and no sector of its topic or properties is missing. RocketMQ checks the first two.
"""

from dataclasses import dataclass

from turbopump.engine.commit_log import CommitLog
from turbopump.engine.types import LogOffset
from turbopump.pyx import record as kernel
from turbopump.pyx.record import ScanResult
from turbopump.pyx.region import Region

# Records checked by one native call: a memory of rows of 768 KiB.
SCAN_ROWS = 4096
# A power cut may leave a page with some of its sectors written.
SECTOR_BITS = 9


@dataclass(slots=True, frozen=True)
class LogScan:
    """Where the records of the log end and why."""

    start: LogOffset
    end: LogOffset
    last_timestamp_ms: int
    count: int
    reason: str
    """Empty if the log simply ends there, else what is wrong with the bytes that follow."""


def scan_log(
    log: CommitLog, start: LogOffset, last_timestamp_ms: int, *, torn_pages: bool
) -> LogScan:
    """Walk the records from `start` on to the first bytes that are none.

    `torn_pages` says that parts of pages may be missing (the store was not closed).
    """
    at: int = start
    count = 0
    reason = ""
    while log.segments.holds(at):
        base = log.segments.start_of(at)
        region = log.segments.region(base)
        result = kernel.scan(region, at - base, log.file_size, SCAN_ROWS)
        good, reason = _good(result, region, base, torn_pages)
        if good:
            last_timestamp_ms = result.rows[good - 1, kernel.STORE_TIMESTAMP_MS]
        count += good
        if reason:
            at = base + result.rows[good, kernel.POSITION]
            break
        at = base + result.position
        if result.status == kernel.OK and good:
            continue
        if result.status == kernel.BLANK_FOUND:
            at = base + log.file_size
            continue
        length = min(log.file_size - result.position, kernel.FILLER_SIZE)
        if not region.is_zero(result.position, length):
            reason = result.reason or "the file ends inside a record"
        break
    return LogScan(start, LogOffset(at), last_timestamp_ms, count, reason)


def start_normal(log: CommitLog, dispatched: int) -> LogOffset:
    """The last file that begins before what was dispatched (CommitLog.recoverNormally)."""
    for start in reversed(log.segments.starts()):
        first = kernel.scan(log.segments.region(start), 0, log.file_size, 1)
        if first.count and (
            first.rows[0, kernel.STORE_TIMESTAMP_MS]
            and first.rows[0, kernel.PHYSICAL_OFFSET] <= dispatched
        ):
            return LogOffset(start)
    return log.min


def start_abnormal(log: CommitLog, safe_timestamp_ms: int) -> LogOffset:
    """The last file that begins before what was surely flushed (CommitLog.recoverAbnormally)."""
    for start in reversed(log.segments.starts()):
        first = kernel.scan(log.segments.region(start), 0, log.file_size, 1)
        if first.count and 0 < first.rows[0, kernel.STORE_TIMESTAMP_MS] <= safe_timestamp_ms:
            return LogOffset(start)
    return log.min


def _good(result: ScanResult, region: Region, base: int, torn_pages: bool) -> tuple[int, str]:
    """How many of the scanned records to take, and what is wrong with the next one."""
    if result.count == 0:
        return 0, ""
    cells = result.rows.cast("B").cast("q")

    def column(number: int) -> list[int]:
        values: list[int] = cells[number :: kernel.ROW_WIDTH].tolist()
        return values

    count, reason = result.count, ""
    positions = column(kernel.POSITION)
    for number, (position, stored) in enumerate(
        zip(positions, column(kernel.PHYSICAL_OFFSET), strict=True)
    ):
        if position + base != stored:
            # Bytes of an older life of the file: RocketMQ does not compare, and would serve them.
            count, reason = number, "a record says it lies elsewhere"
            break
    if not torn_pages:
        return count, reason
    for number, (topic_at, position, size) in enumerate(
        zip(column(kernel.TOPIC_AT), positions, column(kernel.SIZE), strict=True)
    ):
        if number >= count:
            break
        if topic_at >> SECTOR_BITS != (position + size - 1) >> SECTOR_BITS:
            row = result.rows
            topic_size = row[number, kernel.TOPIC_SIZE]
            properties = row[number, kernel.PROPERTIES_AT], row[number, kernel.PROPERTIES_SIZE]
            if _lacks_sector(region, topic_at, topic_size) or _lacks_sector(region, *properties):
                return number, "a sector of the record's topic or properties is missing"
    return count, reason


def _lacks_sector(region: Region, at: int, length: int) -> bool:
    """Whether the part of a text that lies in one sector is all zeros.

    The body's CRC says nothing of topic and properties, and a sector that never reached the disk
    leaves zeros in a preallocated file. No text has them: a topic cannot, and properties are names
    and values with their separators.
    """
    end = at + length
    while at < end:
        stop = min(end, ((at >> SECTOR_BITS) + 1) << SECTOR_BITS)
        if region.is_zero(at, stop - at):
            return True
        at = stop
    return False
