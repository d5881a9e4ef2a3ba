"""Examination of a store's files: the log's beginning, end and confirmed end.

Owns the reading of names, first records, checkpoint and epoch list for a `LogTable`, whose
docstring explains the rules. It must never write, lock or repair anything, nor read more of the log
than it needs.

Tests: tests/unit/engine/snapshot/test_log_table.py
"""

import errno
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise

from turbopump.engine.config import LOG_FOLDER
from turbopump.engine.disk import checkpoint as checkpoints
from turbopump.engine.disk.segments import is_file_name
from turbopump.engine.log import epoch_lines
from turbopump.engine.log.epoch_file import BACKUP, EPOCH_FILE, MARK_FILE
from turbopump.engine.log.epochs import Epochs
from turbopump.engine.snapshot.inspect import Deviation, next_record
from turbopump.engine.snapshot.ranges import INT64_MAX, DamagedLog, LogBytes, LogOpener
from turbopump.engine.types import LogOffset, StoreError
from turbopump.pyx import record as kernel
from turbopump.pyx.region import Region
from turbopump.pyx.walk import CUT_BYTES, Walk, walk, whole_end

TAIL_BYTES = 8 << 20
"""Bytes at the end of a log that are checked for more than lengths, and searched for records after
damage: more than two of the largest records that RocketMQ takes by default."""
HEAD_BYTES = 64 << 10
"""Bytes of the first read of a file, which hold the first record of most files."""
_LISTS = (EPOCH_FILE + BACKUP, EPOCH_FILE, EPOCH_FILE + epoch_lines.SUFFIX)
_TOLD_BY = (checkpoints.FILE_NAME, *_LISTS, MARK_FILE)
_MAGICS = (kernel.V1, kernel.V2, kernel.BLANK)
UNKNOWN_MS = -INT64_MAX
"""An unknown store time, before every time: a file with a damaged beginning is never excluded."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A log file with records: its path, the log offset of its first byte, and its size."""

    path: str
    base: LogOffset
    """Log offset of the file's first byte."""
    size: int
    """Bytes of the file, records or not."""

    @property
    def end(self) -> LogOffset:
        """Log offset after the file's last byte, at which the next file begins."""
        return LogOffset(self.base + self.size)


@dataclass(frozen=True, slots=True)
class Glance:
    """Digest of a store's small files: names, sizes, checkpoint, epoch lists, without reading the
    log.

    While it is unchanged, only the log's end may have changed since the examination.
    """

    root: str | None
    """The store's folder; None if only the log's is known."""
    folder: str
    """The folder of the log's files."""
    digest: bytes
    """16 bytes of BLAKE2b."""

    def is_current(self, opener: LogOpener) -> bool:
        """Whether the store's files still have this digest; False if a file is removed meanwhile.
        Reads the small files. Raises OSError."""
        try:
            return read_glance(self.root, self.folder, opener) == self
        except FileNotFoundError:  # removed between the listing and the reading
            return False


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """The result of examining a store's files with `examine_store`; LogTable explains the terms."""

    glance: Glance
    """Digest of the small files before the examination."""
    segments: tuple[Segment, ...]
    """Files with records, by log offset."""
    epochs: Epochs
    """The epoch list up to `end`; empty without a readable list."""
    is_replicated: bool
    """Whether the store is (or was) a copy in a group."""
    end: LogOffset
    """Log offset after the last whole record."""
    confirmed_end: LogOffset
    """Record boundary up to which a replicated store is confirmed; else `end`."""
    last_store_ms: int
    """Store time of the last record in epoch ms; UNKNOWN_MS if the log is empty."""


def examine_store(
    path: str,
    opener: LogOpener,
    damaged: Callable[[Deviation], None] | None,
    check_body: bool = False,
) -> StoreFacts:
    """Examine the files of the store, commitlog folder or log file at `path`, for LogTable.open,
    which explains `check_body`. `damaged` receives each deviation; None: the first one raises
    DamagedLog. Raises StoreError if there is no log, OSError, and FileNotFoundError if a file was
    removed meanwhile: call it again then."""
    root, folder, files = _log_files(path, opener)
    glance = read_glance(root, folder, opener)
    # Files after the last file with records were made ahead, or never begun.
    ahead: list[Segment] = []
    while files and not _has_records(files[-1], opener):
        ahead.append(files.pop())
    if not files:
        for file in ahead:
            _must_be_blank(file, opener)
    for before, after in pairwise(files):
        if before.base + before.size != after.base:
            _must_be_missing(before, after, folder, opener)
            reason = f"the next file begins at {after.base}, not at {before.base + before.size}"
            _report_damage(Deviation(before.path, before.size, reason), damaged)
    epochs = _read_epochs(root, opener, damaged)
    is_replicated = epochs is not None or _has_file(root, MARK_FILE, opener)
    saved = checkpoints.UNKNOWN
    if root is not None and _has_file(root, checkpoints.FILE_NAME, opener):
        saved = checkpoints.decode(opener.read(f"{root}/{checkpoints.FILE_NAME}"))
    if not files:
        nowhere = saved.marks.log if saved.marks is not None else LogOffset(0)
        return StoreFacts(
            glance, (), epochs or Epochs(), is_replicated, nowhere, nowhere, UNKNOWN_MS
        )
    mark = saved.marks.log if saved.marks is not None else LogOffset(0)
    end, last_ms = _records_end(files[-1], mark, opener, damaged, check_body)
    segments = tuple(files)
    confirmed = end
    if is_replicated:
        known = saved.marks is not None  # ours: a record boundary
        confirmed = _confirmed_boundary(
            segments, LogOffset(min(saved.confirm_offset, end)), known, opener
        )
    there = {name for name, _size in opener.list_files(folder)}
    for file in files:
        if file.path.rpartition("/")[2] not in there:
            raise FileNotFoundError(f"{file.path} was removed while the log was looked at")
    known_epochs = (epochs or Epochs()).limited_to(end)
    return StoreFacts(glance, segments, known_epochs, is_replicated, end, confirmed, last_ms)


def _must_be_missing(before: Segment, after: Segment, folder: str, opener: LogOpener) -> None:
    """Check a gap between two files: a folder that changes while it is listed may seem to lack
    files. Raises FileNotFoundError in that case, so that the caller examines the store again."""
    there = {name for name, _size in opener.list_files(folder)}
    found = [one for one in there if is_file_name(one) and before.base < int(one) < after.base]
    if found or before.path.rpartition("/")[2] not in there:
        raise FileNotFoundError(f"{folder} changed while it was listed")


def read_glance(root: str | None, folder: str, opener: LogOpener) -> Glance:
    """Read the small files of a store for a Glance. `root`: the store's folder or None, `folder`:
    the log's. Raises OSError."""
    hasher = blake2b(repr(opener.list_files(folder)).encode(), digest_size=16)
    for name, size in [] if root is None else opener.list_files(root):
        if name in _TOLD_BY:
            hasher.update(repr((name, size, opener.read(f"{root}/{name}"))).encode())
    return Glance(root, folder, hasher.digest())


def _report_damage(damage: Deviation, damaged: Callable[[Deviation], None] | None) -> None:
    """Call `damaged` with the damage; None: raise DamagedLog."""
    if damaged is None:
        raise DamagedLog(damage)
    damaged(damage)


def _has_file(root: str | None, name: str, opener: LogOpener) -> bool:
    """Whether the folder `root` has a file of this name; False without a folder."""
    return root is not None and any(name == one for one, _size in opener.list_files(root))


def _log_files(path: str, opener: LogOpener) -> tuple[str | None, str, list[Segment]]:
    """(the store's folder if it is known, the folder of the log, the files of the log)."""
    for folder in (f"{path}/{LOG_FOLDER}", path):
        listed = [
            (name, size)
            for name, size in opener.list_files(folder)
            if is_file_name(name) and int(name) <= INT64_MAX - size
        ]
        if listed:
            files = [
                Segment(f"{folder}/{name}", LogOffset(int(name)), size) for name, size in listed
            ]
            return _store_folder(folder), folder, files
    if opener.list_files(path):
        if _has_file(path, checkpoints.FILE_NAME, opener):
            return path, f"{path}/{LOG_FOLDER}", []  # a store that never took a message
        raise StoreError(f"{path} has no commit log")
    folder, _slash, name = path.rpartition("/")
    try:
        file = opener.open(path)
    except FileNotFoundError:
        raise StoreError(f"there is no commit log at {path}") from None
    except OSError as error:
        if error.errno == errno.ENODEV:  # a folder cannot be mapped
            raise StoreError(f"{path} has no commit log") from None
        if error.errno == errno.EINVAL:  # nor an empty file
            raise StoreError(f"{path} is no file of a log: it is empty") from None
        raise
    try:
        size = file.size
        first, first_ms = _first_record(file, None)
    finally:
        file.close()
    base = int(name) if is_file_name(name) else first
    if not 0 <= base <= INT64_MAX - size:
        raise StoreError(f"{path} is no file of a log: it would begin at {base}")
    if first_ms is None and not is_file_name(name):
        raise StoreError(f"{path} is no file of a log: no record begins it")
    return _store_folder(folder), folder, [Segment(path, LogOffset(base), size)]


def _store_folder(folder: str) -> str | None:
    """The store's folder above a log's folder; None if that folder is not named `commitlog`."""
    above, _slash, name = folder.rpartition("/")
    return above or "." if name == LOG_FOLDER else None


def first_ms_of(segment: Segment, opener: LogOpener) -> int | None:
    """Store time in epoch ms of a file's first record, None if no record begins the file or its
    stored log offset is not the file's. Raises FileNotFoundError, OSError."""
    if segment.size == 0:
        return None
    file = opener.open(segment.path)
    try:
        return _first_record(file, segment.base)[1]
    finally:
        file.close()


def store_ms(region: Region, position: int) -> int:
    """Store time in epoch ms of the whole record that begins at a position of the region."""
    found = kernel.scan(region, position, region.size, 1, False)
    return int(found.rows[0, kernel.STORE_TIMESTAMP_MS])


def _first_record(file: LogBytes, base: int | None) -> tuple[int, int | None]:
    """(stored log offset of the file's first record, its store time in epoch ms); (0, None) if
    there is no record or its place is not `base`."""
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


def _read_epochs(
    root: str | None, opener: LogOpener, damaged: Callable[[Deviation], None] | None
) -> Epochs | None:
    """The epoch list of a store; None if it has none. The second copy counts only if it is
    current."""
    texts: list[bytes | None] = []
    for name in _LISTS:
        is_there = root is not None and _has_file(root, name, opener)
        texts.append(opener.read(f"{root}/{name}") if is_there else None)
    epochs, faults = epoch_lines.newest_valid(*texts, is_marked=_has_file(root, MARK_FILE, opener))
    if epochs is None and faults:
        name = EPOCH_FILE if texts[1] is not None else EPOCH_FILE + BACKUP
        _report_damage(Deviation(f"{root}/{name}", 0, faults[-1]), damaged)
        return Epochs()
    return epochs


def _has_records(file: Segment, opener: LogOpener) -> bool:
    """Whether a record begins a file, or follows near the beginning of a damaged file."""
    if file.size == 0:
        return False
    if first_ms_of(file, opener) is not None:
        return True
    log = opener.open(file.path)
    try:
        return _record_after_end(log, file.base, 0, UNKNOWN_MS) is not None
    finally:
        log.close()


def _must_be_blank(file: Segment, opener: LogOpener) -> None:
    """Raise StoreError for a file that is not a log's, because files of queues and timers have
    similar names.

    A log's own file without a record holds zeros, or a first record that is being written: when
    read a second time, its magic is there.
    """
    if file.size == 0:
        return
    for _look in range(2):
        log = opener.open(file.path)
        try:
            head = log.region(0, min(HEAD_BYTES, log.size)).read(0, min(HEAD_BYTES, log.size))
        finally:
            log.close()
        if not any(head) or int.from_bytes(head[4:8], "big", signed=True) in _MAGICS:
            return
    raise StoreError(f"{file.path} is no file of a log: no record begins it")


def _records_end(
    file: Segment,
    mark: int,
    opener: LogOpener,
    damaged: Callable[[Deviation], None] | None,
    check_body: bool,
) -> tuple[LogOffset, int]:
    """(log offset after the last whole record of `file`, store time of that record in epoch ms).
    The walk begins at log offset `mark`."""
    first_ms = first_ms_of(file, opener)
    log = opener.open(file.path)
    last_ms, reason = UNKNOWN_MS if first_ms is None else first_ms, ""

    def trusted(region: Region, position: int) -> tuple[int, int]:
        nonlocal last_ms, reason
        found = walk(region, 0, region.size, file.base + position)
        last_ms = found.store_timestamp_ms if found.count else last_ms
        reason = found.reason
        return found.status, found.position

    try:
        start = mark - file.base
        if not 0 < start <= file.size:
            start = _boundary_near_end(log)
        while True:
            status, end = _walk_pieces(log, start, log.size, trusted)
            left = file.size - end
            if status == kernel.BLANK_FOUND and log.region(end, end + 4).get_i32(0) == left:
                end = file.size
                break
            behind = _record_after_end(log, file.base, end, last_ms)
            if behind is None or _walk_pieces(log, end, log.size, trusted)[1] > end:
                # The second condition: a live store grew during the examination.
                end = _without_unfinished(log, file.base, start, end)
                break
            if check_body or behind != _end_by_lengths(log, file.base, end):
                _report_damage(
                    Deviation(file.path, end, reason or "no record begins there"), damaged
                )
            start = behind
    finally:
        log.close()
    return LogOffset(file.base + end), last_ms


def _end_by_lengths(log: LogBytes, base: int, at: int) -> int | None:
    """Position after the record at position `at`, whatever its body is; None if no record is there
    with the log offset `base` + `at`."""
    region = log.region(at, min(at + TAIL_BYTES, log.size))
    found = kernel.scan(region, 0, region.size, 1, False)
    if not found.count or found.rows[0, kernel.PHYSICAL_OFFSET] != base + at:
        return None
    return at + int(found.rows[0, kernel.SIZE])


def _record_after_end(log: LogBytes, base: int, end: int, last_ms: int) -> int | None:
    """Position of the next record shortly after the end of the records, which proves damage; None
    without such a record.

    The record must be stored later than those before: RocketMQ leaves old bytes after the place
    where it cut a log.
    """
    limit = min(end + TAIL_BYTES, log.size)
    if limit - end < kernel.FILLER_SIZE:
        return None
    region = log.region(end, limit)
    found = next_record(region, 1, base + end)
    if found is None or store_ms(region, found) < last_ms:
        return None
    return end + found


def _without_unfinished(log: LogBytes, base: int, start: int, end: int) -> int:
    """End of the records [start, end) without a last record that is being written now."""
    _status, sure = _walk_pieces(
        log,
        start,
        end,
        lambda r, at: _status_and_position(walk(r, 0, r.size, base + at, CUT_BYTES)),
    )
    if sure == end:
        return end
    size = log.region(sure, sure + 4).get_i32(0)
    return sure if sure + size >= end else end


def _status_and_position(found: Walk) -> tuple[int, int]:
    return found.status, found.position


def _boundary_near_end(log: LogBytes) -> int:
    """Position of the end of some record, between TAIL_BYTES and twice as much before the end of
    the records."""
    passed = [0, 0]

    def note(region: Region, start: int) -> tuple[int, int]:
        status, position = whole_end(region, 0, region.size)
        if position:
            passed.append(start)
        return status, position

    _walk_pieces(log, 0, log.size, note, TAIL_BYTES)
    return passed[-2]


def _confirmed_boundary(
    segments: tuple[Segment, ...], confirm: LogOffset, is_record_end: bool, opener: LogOpener
) -> LogOffset:
    """Log offset of the last record boundary at `confirm` (confirmOffset) or before;
    `is_record_end`: `confirm` is a boundary."""
    number = bisect_right(segments, confirm, key=lambda one: one.base) - 1
    if is_record_end or number < 0 or confirm >= segments[number].end:
        return confirm
    segment = segments[number]
    log = opener.open(segment.path)
    try:
        _status, end = _walk_pieces(
            log, 0, confirm - segment.base, lambda r, _at: whole_end(r, 0, r.size), TAIL_BYTES
        )
    finally:
        log.close()
    return LogOffset(segment.base + end)


def _walk_pieces(
    log: LogBytes,
    start: int,
    end: int,
    run: Callable[[Region, int], tuple[int, int]],
    step_max: int = INT64_MAX,
) -> tuple[int, int]:
    """Run a walk over the records of [start, end) piece by piece; returns (status with which the
    walk ended, position in the file where it ended).

    `run` receives a piece and its position, and returns (status, position in the piece where the
    walk stopped).
    """
    at, step = start, min(log.step, step_max)
    while at < end:
        stop = min(at + step, end)
        status, passed = run(log.region(at, stop), at)
        at += passed
        if status not in (kernel.OK, kernel.SHORT) or (status == kernel.SHORT and stop == end):
            return status, at
        # A record may be longer than a step, or damaged so that its length field is.
        step = step if passed else step * 2
    return kernel.OK, at
