"""What the files of a store say about its log: where it begins and ends, what of it is confirmed.

Owns the look at names, first records, checkpoint and epoch list that makes a `LogTable`; its rules
are told there. It must never write, lock or repair anything, nor read more of the log than it
needs. Called by log_table.
"""

import errno
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from turbopump.engine import checkpoint as checkpoints
from turbopump.engine.epoch_file import BACKUP, CURRENT, EPOCH_FILE, MARK_FILE
from turbopump.engine.epochs import Epochs, EpochsDamaged
from turbopump.engine.epochs import decode as decode_epochs
from turbopump.engine.inspect import Damage, next_record
from turbopump.engine.log_ranges import INT64_MAX, DamagedLog, LogBytes, LogOpener
from turbopump.engine.segments import is_file_name
from turbopump.engine.types import LogOffset, StoreError
from turbopump.pyx import record as kernel
from turbopump.pyx.region import Region
from turbopump.pyx.walk import CUT_BYTES, Walk, walk, whole_end

LOG_FOLDER = "commitlog"
TAIL_BYTES = 8 << 20  # more than two of the largest records that RocketMQ takes by default
HEAD_BYTES = 64 << 10  # holds the first record of most files
UNKNOWN_MS = -INT64_MAX  # before every time: a file with a damaged beginning is never left out


@dataclass(frozen=True, slots=True)
class Segment:
    """A file of the log that has records. Times are of its first and (at most) its last record."""

    path: str
    base: LogOffset
    size: int
    first_store_ms: int
    last_store_ms: int

    @property
    def end(self) -> LogOffset:
        """Log offset of the next file."""
        return LogOffset(self.base + self.size)


@dataclass(frozen=True, slots=True)
class Facts:
    """What there is; see LogTable."""

    segments: tuple[Segment, ...]
    epochs: Epochs
    is_replicated: bool
    end: LogOffset
    confirmed_end: LogOffset


@dataclass(slots=True)
class _File:
    path: str
    base: LogOffset
    size: int
    first_ms: int | None
    """Store time of the first record, None if none begins the file."""


def look_at(path: str, opener: LogOpener, damaged: Callable[[Damage], None] | None) -> Facts:
    """Raises StoreError, DamagedLog, OSError; FileNotFoundError if a file went meanwhile."""
    root, files = _files(path, opener)
    # Files behind the last one that has records were made ahead, or never begun.
    while files and files[-1].first_ms is None and not _has_records(files[-1], opener):
        files.pop()
    for before, after in pairwise(files):
        if before.base + before.size != after.base:
            reason = f"the next file begins at {after.base}, not at {before.base + before.size}"
            _report(Damage(before.path, before.size, reason), damaged)
    epochs = _epochs(root, opener, damaged)
    is_replicated = epochs is not None or _has(root, MARK_FILE, opener)
    saved = checkpoints.UNKNOWN
    if root is not None and _has(root, checkpoints.FILE_NAME, opener):
        saved = checkpoints.decode(opener.read(f"{root}/{checkpoints.FILE_NAME}"))
    if not files:
        nowhere = saved.marks.log if saved.marks is not None else LogOffset(0)
        return Facts((), epochs or Epochs(), is_replicated, nowhere, nowhere)
    mark = saved.marks.log if saved.marks is not None else LogOffset(0)
    end, last_ms = _end(files[-1], mark, opener, damaged)
    segments = _segments(files, last_ms)
    confirmed = end
    if is_replicated:
        known = saved.marks is not None  # ours: a record's end
        confirmed = _confirmed(segments, LogOffset(min(saved.confirm_offset, end)), known, opener)
    return Facts(segments, (epochs or Epochs()).within(end), is_replicated, end, confirmed)


def _report(damage: Damage, damaged: Callable[[Damage], None] | None) -> None:
    if damaged is None:
        raise DamagedLog(damage)
    damaged(damage)


def _has(root: str | None, name: str, opener: LogOpener) -> bool:
    return root is not None and any(name == one for one, _size in opener.list_files(root))


def _files(path: str, opener: LogOpener) -> tuple[str | None, list[_File]]:
    """(the store's folder if it is known, the files of its log)."""
    for folder in (f"{path}/{LOG_FOLDER}", path):
        listed = [
            (name, size)
            for name, size in opener.list_files(folder)
            if is_file_name(name) and int(name) <= INT64_MAX - size
        ]
        if listed:
            files = [
                _file(f"{folder}/{name}", LogOffset(int(name)), size, opener)
                for name, size in listed
            ]
            return _root(folder), files
    if opener.list_files(path):
        if _has(path, checkpoints.FILE_NAME, opener):
            return path, []  # a store that never took a message
        raise StoreError(f"{path} has no commit log")
    folder, _slash, name = path.rpartition("/")
    try:
        file = opener.open(path)
    except FileNotFoundError:
        raise StoreError(f"there is no commit log at {path}") from None
    except OSError as error:
        if error.errno == errno.ENODEV:  # nobody can map a folder
            raise StoreError(f"{path} has no commit log") from None
        raise
    size = file.size
    base = int(name) if is_file_name(name) else _first_record(file, None)[0]
    file.close()
    if not 0 <= base <= INT64_MAX - size:
        raise StoreError(f"{path} is no file of a log: it would begin at {base}")
    return _root(folder), [_file(path, LogOffset(base), size, opener)]


def _root(folder: str) -> str | None:
    above, _slash, name = folder.rpartition("/")
    return above or "." if name == LOG_FOLDER else None


def _file(path: str, base: LogOffset, size: int, opener: LogOpener) -> _File:
    if size == 0:
        return _File(path, base, size, None)
    file = opener.open(path)
    try:
        _base, first_ms = _first_record(file, base)
    finally:
        file.close()
    return _File(path, base, size, first_ms)


def store_ms(region: Region, position: int) -> int:
    """Store time of the record at a position."""
    found = kernel.scan(region, position, region.size, 1, False)
    return int(found.rows[0, kernel.STORE_TIMESTAMP_MS])


def _first_record(file: LogBytes, base: int | None) -> tuple[int, int | None]:
    """(where the file's first record says that it lies, its store time), (0, None) if there is none
    or it does not lie at `base`."""
    length = min(HEAD_BYTES, file.size)
    region = file.region(0, length)
    found = kernel.scan(region, 0, length, 1, False)
    if found.status == kernel.SHORT and 8 <= length < region.get_i32(0) <= file.size:
        length = region.get_i32(0)
        found = kernel.scan(file.region(0, length), 0, length, 1, False)
    if not found.count:
        return 0, None
    at = int(found.rows[0, kernel.PHYSICAL_OFFSET])
    if base is not None and at != base:
        return 0, None
    return at, int(found.rows[0, kernel.STORE_TIMESTAMP_MS])


def _segments(files: list[_File], last_ms: int) -> tuple[Segment, ...]:
    """With times: a file ends before the next one begins that is known."""
    made: list[Segment] = []
    known: int | None = None
    for file in reversed(files):
        first = file.first_ms
        until = last_ms if known is None else known
        made.append(
            Segment(
                file.path, file.base, file.size,
                UNKNOWN_MS if first is None else first,
                until if first is None else max(first, until),
            )
        )  # fmt: skip
        known = known if first is None else first
    return tuple(reversed(made))


def _epochs(
    root: str | None, opener: LogOpener, damaged: Callable[[Damage], None] | None
) -> Epochs | None:
    """The list of a store; None if it has none. Of its second copy only a current one counts."""
    fault: Damage | None = None
    for name in (EPOCH_FILE, EPOCH_FILE + BACKUP):
        if root is None or not _has(root, name, opener):
            continue
        path = f"{root}/{name}"
        try:
            epochs, others = decode_epochs(opener.read(path))
        except EpochsDamaged as error:
            fault = fault or Damage(path, 0, str(error))
            continue
        if name == EPOCH_FILE or CURRENT in others:
            return epochs
    if fault is not None:
        _report(fault, damaged)
        return Epochs()
    return None


def _has_records(file: _File, opener: LogOpener) -> bool:
    """Whether records follow, near the beginning of a file, on one that is damaged."""
    if file.size == 0:
        return False
    log = opener.open(file.path)
    try:
        return _behind(log, file.base, 0, UNKNOWN_MS) is not None
    finally:
        log.close()


def _end(
    file: _File, mark: int, opener: LogOpener, damaged: Callable[[Damage], None] | None
) -> tuple[LogOffset, int]:
    """(behind the last whole record of the last file, that record's store time)."""
    log = opener.open(file.path)
    last_ms, reason = file.first_ms or UNKNOWN_MS, ""

    def trusted(region: Region, position: int) -> tuple[int, int]:
        nonlocal last_ms, reason
        found = walk(region, 0, region.size, file.base + position)
        last_ms = found.store_timestamp_ms if found.count else last_ms
        reason = found.reason
        return found.status, found.position

    try:
        start = mark - file.base
        if not 0 < start <= file.size:
            start = _before_end(log)
        while True:
            status, end = _over(log, start, log.size, trusted)
            left = file.size - end
            if status == kernel.BLANK_FOUND and log.region(end, end + 4).get_i32(0) == left:
                end = file.size
                break
            behind = _behind(log, file.base, end, last_ms)
            if behind is None or _over(log, end, log.size, trusted)[1] > end:
                # The second: a live store went on while we looked.
                end = _without_half(log, file.base, start, end)
                break
            _report(Damage(file.path, end, reason or "no record begins there"), damaged)
            start = behind
    finally:
        log.close()
    return LogOffset(file.base + end), last_ms


def _behind(log: LogBytes, base: int, end: int, last_ms: int) -> int | None:
    """Where records go on shortly behind the end of the records: then that is damage, not the end.

    They are stored later than those before: RocketMQ leaves old bytes behind where it cut a log.
    """
    limit = min(end + TAIL_BYTES, log.size)
    if limit - end < kernel.FILLER_SIZE:
        return None
    region = log.region(end, limit)
    found = next_record(region, 1, base + end)
    if found is None or store_ms(region, found) < last_ms:
        return None
    return end + found


def _without_half(log: LogBytes, base: int, start: int, end: int) -> int:
    """Where the records [start, end) end without a last one that is being written just now."""
    _status, sure = _over(
        log, start, end, lambda r, at: _status_of(walk(r, 0, r.size, base + at, CUT_BYTES))
    )
    if sure == end:
        return end
    size = log.region(sure, sure + 4).get_i32(0)
    return sure if sure + size >= end else end


def _status_of(found: Walk) -> tuple[int, int]:
    return found.status, found.position


def _before_end(log: LogBytes) -> int:
    """Some record's end, between TAIL_BYTES and twice of them before the end of the records."""
    passed = [0, 0]

    def note(region: Region, start: int) -> tuple[int, int]:
        status, position = whole_end(region, 0, region.size)
        if position:
            passed.append(start)
        return status, position

    _over(log, 0, log.size, note, TAIL_BYTES)
    return passed[-2]


def _confirmed(
    segments: tuple[Segment, ...], confirm: LogOffset, is_record_end: bool, opener: LogOpener
) -> LogOffset:
    """The last record's end up to confirmOffset."""
    number = bisect_right(segments, confirm, key=lambda one: one.base) - 1
    if is_record_end or number < 0 or confirm >= segments[number].end:
        return confirm
    segment = segments[number]
    log = opener.open(segment.path)
    try:
        _status, end = _over(
            log, 0, confirm - segment.base, lambda r, _at: whole_end(r, 0, r.size), TAIL_BYTES
        )
    finally:
        log.close()
    return LogOffset(segment.base + end)


def _over(
    log: LogBytes,
    start: int,
    end: int,
    run: Callable[[Region, int], tuple[int, int]],
    step_max: int = INT64_MAX,
) -> tuple[int, int]:
    """Run a walk over the records of [start, end) piece by piece; (why it ended, the position).

    `run` is given a piece and its position, and says why and where in the piece it stopped.
    """
    at, step = start, min(log.step, step_max)
    while at < end:
        stop = min(at + step, end)
        status, passed = run(log.region(at, stop), at)
        at += passed
        if status not in (kernel.OK, kernel.SHORT) or (status == kernel.SHORT and stop == end):
            return status, at
        # A record may be longer than a step, or only say so.
        step = step if passed else step * 2
    return kernel.OK, at
