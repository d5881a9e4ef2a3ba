"""The end of the records of a commit log, and the place where recovery starts its scan.

Owns the walk over records that recovery relies on. It must never change a byte.

A record is accepted only if its lengths agree, its body fits its CRC, its stored log offset is its
place, and no sector of its topic or properties is missing. RocketMQ checks the first two.

Tests: tests/unit/engine/lifecycle/test_progress.py, tests/unit/engine/log/test_damage.py
"""

from collections.abc import Callable
from dataclasses import dataclass

from turbopump.engine.log.commit_log import CommitLog
from turbopump.engine.types import LogOffset
from turbopump.pyx import record as kernel
from turbopump.pyx.walk import walk

STEP_BYTES = 64 << 20
"""Bytes between two progress reports: a tenth of a second of recovery, a second on a slow disk."""


@dataclass(slots=True, frozen=True)
class LogScan:
    """The result of a scan: the end of the records, and why it is there."""

    start: LogOffset
    """Log offset at which the scan began."""
    end: LogOffset
    """Log offset after the last record, or after the filler that follows it."""
    last_timestamp_ms: int
    """Store time of the last record in epoch ms; without records the value given to the scan."""
    count: int
    """Number of records from `start` to `end`."""
    reason: str
    """Empty if only zeros follow `end`, else a text that describes the fault of the bytes there."""
    torn_fillers: tuple[LogOffset, ...] = ()
    """Fillers on the way whose stored size is not the rest of their file."""


def scan_log(
    log: CommitLog,
    start: LogOffset,
    last_timestamp_ms: int,
    *,
    torn: int,
    reached: Callable[[int], None] = lambda _at: None,
) -> LogScan:
    """Walk the records from `start`, where a record begins, to the first bytes that are not a
    record. Blocks the caller for the whole walk.

    `last_timestamp_ms` is the store time of the record before `start`. `torn` is the damage that
    records may have (WHOLE, SECTORS or CUT_BYTES of pyx.walk). `reached` receives the log offset
    after every STEP_BYTES or file, and may raise to end the walk.
    """
    at: int = start
    count = 0
    reason = ""
    torn_fillers: list[LogOffset] = []
    step = STEP_BYTES
    while log.segments.contains(at):
        base = log.segments.start_of(at)
        region = log.segments.file_region(base)
        stop = min(at - base + step, log.file_size)
        result = walk(region, at - base, stop, base, torn)
        if result.count:
            reached(base + result.position)
        if result.count:
            last_timestamp_ms = result.store_timestamp_ms
        count += result.count
        at = base + result.position
        if result.status == kernel.BLANK_FOUND:
            if region.get_i32(result.position) != log.file_size - result.position:
                torn_fillers.append(LogOffset(at))
            at = base + log.file_size
            continue
        if stop < log.file_size and result.status in (kernel.OK, kernel.SHORT):
            # A record may be longer than a step, or damaged so that its length field is.
            step = STEP_BYTES if result.count else log.file_size
            continue
        length = min(log.file_size - result.position, kernel.FILLER_SIZE)
        if not region.is_zero(result.position, length):
            reason = result.reason or "the file ends inside a record"
        break
    return LogScan(start, LogOffset(at), last_timestamp_ms, count, reason, tuple(torn_fillers))


def first_timestamp(log: CommitLog, log_offset: LogOffset) -> int:
    """Store time in epoch ms of the record at `log_offset`, 0 if no record begins there."""
    if not log.segments.contains(log_offset):
        return 0
    base = log.segments.start_of(log_offset)
    first = kernel.scan(log.segments.file_region(base), log_offset - base, log.file_size, 1)
    return int(first.rows[0, kernel.STORE_TIMESTAMP_MS]) if first.count else 0


def normal_recovery_start(log: CommitLog, dispatched: int) -> LogOffset:
    """Log offset of the last file whose first record begins at or before `dispatched`, the log
    offset up to which queues are complete; `log.min` without such a file
    (CommitLog.recoverNormally)."""
    for start in reversed(log.segments.file_starts()):
        first = kernel.scan(log.segments.file_region(start), 0, log.file_size, 1)
        if first.count and (
            first.rows[0, kernel.STORE_TIMESTAMP_MS]
            and first.rows[0, kernel.PHYSICAL_OFFSET] <= dispatched
        ):
            return LogOffset(start)
    return log.min


def abnormal_recovery_start(log: CommitLog, safe_timestamp_ms: int) -> LogOffset:
    """Log offset of the last file whose first record was stored at or before `safe_timestamp_ms`
    (epoch ms), and so was surely flushed; `log.min` without such a file
    (CommitLog.recoverAbnormally)."""
    for start in reversed(log.segments.file_starts()):
        first = kernel.scan(log.segments.file_region(start), 0, log.file_size, 1)
        if first.count and 0 < first.rows[0, kernel.STORE_TIMESTAMP_MS] <= safe_timestamp_ms:
            return LogOffset(start)
    return log.min
