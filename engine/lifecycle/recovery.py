"""Opening a store: the crash windows from first to last, and the repair that each needs.

Owns the order in which a store is examined, planned and repaired. It must never serve a byte, and
never guess: a state that cannot be derived from the log is a StoreError. `recover_store` runs once,
on the loop thread, before any byte can be written or read.

`recover_store` first decides everything (`_plan_recovery`), then executes. Each step can be
interrupted and repeated, because no step destroys information that a later step needs, and the
checkpoint moves only after the data was synced. So a crash during recovery is not a window of its
own: the next recovery starts at the checkpoint, which moves on file by file. truncation.py lists
the windows of a truncation; recovery meets them as windows 6 to 11.
"""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import takewhile

from turbopump.engine.disk import checkpoint as checkpoints
from turbopump.engine.disk.checkpoint import Checkpoint
from turbopump.engine.disk.disk_steps import run_to_end
from turbopump.engine.disk.files import Files, sync_parent_folders
from turbopump.engine.disk.segments import is_file_name
from turbopump.engine.lifecycle import restart
from turbopump.engine.lifecycle.parts import StoreParts
from turbopump.engine.lifecycle.truncate_queues import ABORT_FILE, CUTTING, truncate_units
from turbopump.engine.log.commit_log import NOT_MASTER, CommitLog
from turbopump.engine.log.damage import NO_RECORD, resume_at
from turbopump.engine.log.record_boundary import confirmed_end, may_end_inside
from turbopump.engine.log.scan import (
    STEP_BYTES,
    LogScan,
    abnormal_recovery_start,
    first_timestamp,
    normal_recovery_start,
    scan_log,
)
from turbopump.engine.queues.dispatcher import QueueGapError
from turbopump.engine.queues.index import IndexPart
from turbopump.engine.queues.queue_files import ConsumeQueue
from turbopump.engine.types import LogOffset, OpeningStopped, Progress, StoreError
from turbopump.pyx import record as kernel
from turbopump.pyx.walk import CUT_BYTES, SECTORS, WHOLE

logger = logging.getLogger(__name__)

Watch = Callable[[Progress], None]
"""Receives the progress of a recovery; may raise OpeningStopped to end it."""


@dataclass(slots=True, frozen=True)
class RecoveryPlan:
    """The findings and decisions of a recovery, made before the first byte is changed."""

    clean: bool
    """Whether the store was closed in order."""
    scan: LogScan
    """The walk that found the end of the log."""
    queues_from: LogOffset
    """Log offset before which the queues are complete and durable."""
    cut_queues_at: LogOffset
    """Log offset from which queue units are cut."""
    cut_before: bool
    """Whether a process ended while it cut queues: its cut may look durable although it is not."""
    index_files: int
    """Number of whole index files, counted from the oldest."""
    damaged: tuple[tuple[LogOffset, str], ...] = ()
    """(log offset, reason) of each record met by the scan that was durable once and is no longer
    whole."""


def recover_store(parts: StoreParts, now_ms: int, watch: Watch) -> None:
    """Bring the files and parts of a locked store into a state in which it can be written; waits
    for the disk. `now_ms`: epoch ms.

    `watch` receives the progress of long steps, and may raise OpeningStopped, which passes through:
    finished work is kept. Raises StoreError with a sentence for the operator if the store cannot be
    opened, and OSError.
    """
    # Window 14: a process was emptying the store; see restart.py.
    restart.finish_pending(parts.files, parts.config)
    # Window 1: the stop was not clean. As in RocketMQ, the file `abort` exists while a store is
    # open.
    clean = not parts.files.exists(f"{parts.config.root}/{ABORT_FILE}")
    saved = checkpoints.load(parts.files, parts.config.root)
    parts.checkpointer.load(saved)
    parts.damage.load()
    _load_files(parts)
    plan = _plan_recovery(parts, saved, clean, watch)
    _mark_running(parts, plan)
    _execute_plan(parts, plan, saved, now_ms, watch)


def _mark_running(parts: StoreParts, plan: RecoveryPlan) -> None:
    """Mark the store as open before the first change, so that a crash is recognized (RocketMQ:
    `abort` holds the process id as text)."""
    files, root = parts.files, parts.config.root
    path = f"{root}/{ABORT_FILE}"
    # The next step cuts queues.
    _write_cutting_mark(parts)
    files.sync(path)
    files.make_folders(parts.log.segments.folder)
    sync_parent_folders(files, path)
    if not parts.log.segments.folder.startswith(f"{root}/"):
        sync_parent_folders(files, parts.log.segments.folder)
    parts.checkpointer.lower_checkpoint(plan.index_files, plan.cut_queues_at < plan.scan.end)


def _write_cutting_mark(parts: StoreParts) -> None:
    """Write the abort file with the mark that queues are being cut."""
    text = CUTTING + str(parts.files.process_id()).encode()[1:]
    parts.files.write(f"{parts.config.root}/{ABORT_FILE}", text)


def _has_cutting_mark(parts: StoreParts) -> bool:
    """Whether the abort file has the mark that a killed process was cutting queues."""
    path = f"{parts.config.root}/{ABORT_FILE}"
    return parts.files.exists(path) and not parts.files.read(path)[:1].isdigit()


def _load_files(parts: StoreParts) -> None:
    """Load the lists of files of log, queues and index. Raises StoreError for files that contradict
    the configuration."""
    # Window 2: a crash (or a copy) left a log file shorter than the files after it require.
    _extend_short_files(parts)
    log = parts.log
    behind = log.segments.load()
    if behind:
        # Window 3: a log file is missing between others. The log cannot be derived from other
        # files.
        raise StoreError(
            f"the commit log file {log.segments.path(log.segments.end)} is missing while "
            f"{log.segments.path(behind[0])} exists"
        )
    parts.batches.load()
    # Window 4: a queue file is missing between others, or is short: its units and the units of
    # later files are rebuilt from the log.
    marks = parts.checkpointer.checkpoint.marks
    durable_end = LogOffset(log.segments.end)
    if marks is not None and marks.queues >= log.min:
        durable_end = marks.queues
    broken = parts.queues.load(parts.dispatcher.is_plain, log.min, durable_end)
    if broken:
        # The next step removes file names: if their sync fails, the next start must repeat it.
        _write_cutting_mark(parts)
    for queue, starts in broken:
        logger.warning("%s/%d lacks a file: rebuilt from the log", queue.topic, queue.queue_id)
        parts.queues.drop_files_from(queue, starts)
    if parts.extensions is not None:
        parts.extensions.load()
    # Window 5: an index file with an invalid header is rebuilt, like a missing one.
    if parts.index is not None:
        parts.index.load()
        for path in parts.index.bad:
            logger.warning("%s is damaged: rebuilt from the log", path)


def _extend_short_files(parts: StoreParts) -> None:
    """Extend a short last file with records to the size that the names of the other files prove.

    A single file proves no size (the configuration may be wrong), nor does a short file with
    records in a later file.
    """
    segments = parts.log.segments
    files = parts.files
    folder = segments.folder
    names = [
        name
        for name in files.list_folder(folder)
        if is_file_name(name) and not files.is_folder(f"{folder}/{name}")
    ]
    sizes = {name: files.file_size(f"{folder}/{name}") for name in names}
    if not any(size == segments.file_size for size in sizes.values()):
        return
    for number, name in enumerate(names):
        path = f"{segments.folder}/{name}"
        if not 0 < sizes[name] < segments.file_size:
            continue
        for later in names[number + 1 :]:
            if sizes[later] and begins_with_record(files, f"{segments.folder}/{later}"):
                raise StoreError(f"{path} is cut short, but records follow it in {later}")
        logger.warning("%s is cut short: extended to %d bytes", path, segments.file_size)
        files.resize(path, segments.file_size)


def begins_with_record(files: Files, path: str) -> bool:
    """Whether the existing log file at `path` begins with a record. Raises OSError."""
    mapped = files.open(path, readonly=True)
    try:
        return kernel.scan(mapped.region, 0, mapped.size, 1).count > 0
    finally:
        mapped.close()


def _plan_recovery(parts: StoreParts, saved: Checkpoint, clean: bool, watch: Watch) -> RecoveryPlan:
    """Decide where the log ends and from which log offset queues must be filled."""
    log = parts.log
    was_cutting = _has_cutting_mark(parts)
    parts.queues.recover_ends(log.min)
    dispatched = _dispatched_end(parts)
    if log.segments.count == 0:
        # Window 3 again: no log to derive queues from. Perhaps its disk is not mounted.
        if dispatched > 0:
            raise StoreError(
                f"the queues point to records up to log offset {dispatched}, but "
                f"{log.segments.folder} holds no commit log"
            )
        zero = LogOffset(0)
        return RecoveryPlan(clean, LogScan(zero, zero, 0, 0, ""), zero, zero, was_cutting, 0)
    marks = saved.marks
    if marks is not None and marks.log > log.segments.end:
        # Window 3 at the end: the missing part was acknowledged.
        raise StoreError(
            f"the commit log was durable up to {marks.log}, but its last file is "
            f"{log.segments.path(log.segments.last_file_start)}: later ones are missing. Without "
            f"{parts.config.root}/{checkpoints.FILE_NAME} the store opens with the remaining files"
        )
    if marks is not None and marks.log < log.segments.first:
        logger.warning("the checkpoint is ignored: it is older than the log")
        marks = None
    elif clean and marks is not None and marks.log_min < log.min:
        # Not removed by age, because retention also moves `log_min` in the checkpoint. The records
        # cannot be restored.
        logger.error(
            "%s begins at %d, but began at %d when the store was closed: files were removed since",
            log.segments.folder,
            log.min,
            marks.log_min,
        )
    index_files = _whole_index_files(parts, saved, clean)
    # Windows 6 and 7: torn record, torn filler, a filler without its next file, zeroed pages in
    # bytes that were not durable yet. (A filler's size is repaired; a walk does not need it.) All
    # bytes before our own mark were synced; without our mark, RocketMQ's timestamps determine the
    # first file of the scan.
    if marks is not None:
        start = marks.log
    elif clean:
        start = normal_recovery_start(log, dispatched)
    else:
        start = abnormal_recovery_start(log, saved.safe_timestamp_ms)
    scan, damaged = _scan_log(parts, start, saved, dispatched, clean, watch)
    if scan.reason:
        logger.warning("the log is cut at %d: %s", scan.end, scan.reason)
    if clean:
        # Window 8: units after the log's end are cut, missing units are added.
        queues_from = marks.queues if marks is not None else LogOffset(dispatched)
        queues_from = LogOffset(min(queues_from, scan.end))
        return RecoveryPlan(clean, scan, queues_from, scan.end, was_cutting, index_files, damaged)
    # Window 9: queue pages reach the disk in any order. Units of records after the mark are cut and
    # written again, because holes may be among them. (Expired units were durable and do not come
    # back: a checkpoint with a smaller offset is older.)
    queues_from = LogOffset(min(marks.queues if marks is not None else start, scan.end))
    queues_from = max(queues_from, log.min)
    return RecoveryPlan(clean, scan, queues_from, queues_from, was_cutting, index_files, damaged)


def _scan_log(
    parts: StoreParts,
    start: LogOffset,
    saved: Checkpoint,
    dispatched: int,
    clean: bool,
    watch: Watch,
) -> tuple[LogScan, tuple[tuple[LogOffset, str], ...]]:
    """Walk the log from `start` to its end. Returns (the scan, (log offset, reason) of each damaged
    record): a damaged record that was durable is not the end."""
    log = parts.log
    damaged = []
    torn_fillers: list[LogOffset] = []

    def reached(at: int) -> None:
        watch(Progress("checking the log", at - start, log.segments.end - start))

    torn = WHOLE
    if not clean:
        is_cut = may_end_inside(parts.files, parts.config, saved)
        torn = CUT_BYTES if is_cut else SECTORS
    scan = scan_log(log, start, saved.log_timestamp_ms, torn=torn, reached=reached)
    while (behind := _next_after_damage(parts, scan, saved, dispatched, clean)) is not None:
        damaged.append((scan.end, scan.reason or NO_RECORD))
        torn_fillers += scan.torn_fillers
        scan = scan_log(log, behind, scan.last_timestamp_ms, torn=torn, reached=reached)
    torn_fillers += scan.torn_fillers
    return replace(scan, start=start, torn_fillers=tuple(torn_fillers)), tuple(damaged)


def _next_after_damage(
    parts: StoreParts, scan: LogScan, saved: Checkpoint, dispatched: int, clean: bool
) -> LogOffset | None:
    """Log offset of the next record after a damaged record that was durable; None if nothing proves
    that it was durable.

    Window 12: such a record must not be taken for a torn one, because the cut would remove all
    later records, acknowledged or not. Records before our own mark are not walked here. After it,
    only a place already in the list of damaged places was surely durable. A store without our mark
    has two other proofs. After a clean stop, neither queues nor files continue after the end of the
    log, so a unit or a file there is a proof. After any other stop, RocketMQ's checkpoint may prove
    that a later record is durable. (Records of an earlier use of the file, which RocketMQ leaves
    after the end, are older than the records before them.)
    """
    log, marks = parts.log, saved.marks
    known = parts.damage.known_end(scan.end) is not None
    durable_ms = saved.log_timestamp_ms - checkpoints.SAFETY_MS
    file_end = LogOffset(log.segments.start_of(scan.end) + log.file_size)
    if clean:
        doubtful = dispatched > scan.end or first_timestamp(log, file_end) > 0
    else:
        doubtful = scan.last_timestamp_ms < durable_ms
    if not log.segments.contains(scan.end) or not (known or (marks is None and doubtful)):
        return None
    behind = resume_at(log, scan.end, file_end)
    timestamp_ms = first_timestamp(log, behind)
    if known or (clean and timestamp_ms):
        return behind
    return behind if scan.last_timestamp_ms <= timestamp_ms < durable_ms else None


def _dispatched_end(parts: StoreParts) -> int:
    """Log offset of the end of the last record that has a queue unit."""
    table = parts.queues.table
    ends = [table.max_log_offset(queue.slot) for queue in parts.queues]
    return max([0, *ends, *(queue.max_log_offset for queue in parts.batches)])


def _execute_plan(
    parts: StoreParts, plan: RecoveryPlan, saved: Checkpoint, now_ms: int, watch: Watch
) -> None:
    """Carry out the plan: cut the log at its end, repair queues and index, and dispatch the records
    that they lack."""
    log, end = parts.log, plan.scan.end
    # Window 15: the store is a copy in a group.
    confirm = confirmed_end(parts.files, log, plan.queues_from, end, saved)
    if confirm is not None:
        log.tail.refuse(NOT_MASTER, True)
        log.tail.limit = parts.checkpointer.confirm = confirm
    # Cut the log first, durably: a cut byte must not come back in the next recovery.
    if _was_closed_cleanly(plan, saved):
        log.drop_files_from_end(end)
    elif log.truncate(end):
        logger.warning("bytes after the end of the log at %d were zeroed", end)
    if not plan.clean:
        _sync_scanned_tail(log, plan.scan)
    # The last record may be of a delayed message, whose time is earlier (CommitLog.append).
    last_ms = max(plan.scan.last_timestamp_ms, saved.log_timestamp_ms if saved.marks else 0)
    log.start_writing(end, last_ms)
    parts.damage.drop_obsolete()
    for log_offset, reason in plan.damaged:
        parts.damage.note_damage(log_offset, reason)
    parts.queues.deleted_topics.lower_ends(end)
    run_to_end(
        truncate_units(parts, plan.cut_queues_at, every=not plan.clean, again=plan.cut_before)
    )
    queues_from = _dispatch_start(parts, plan, saved)
    index_from = _trim_index(parts, plan, saved)
    try:
        _dispatch_missing(parts, plan.scan, queues_from, index_from, now_ms, watch)
    except OpeningStopped:
        parts.checkpointer.sync_and_save()
        raise
    settle_queues(parts)


def settle_queues(parts: StoreParts) -> None:
    """Set the next queue offset of each queue to follow its last unit, after a recovery or a cut;
    an empty queue whose first offset is unknown waits for its next record instead, unless log and
    queues end at the same record."""
    complete = parts.dispatcher.position == parts.log.end
    # Window 13: of a queue that was made or deleted, a power cut kept only a later file, without
    # units. The queue offset in its name counts only if age may have removed the files before it.
    for queue in list(parts.queues):
        if complete or not queue.emptied:
            parts.queues.settle_next_offset(queue, parts.log.min)
    for batch in parts.batches:
        parts.batches.correct_min(batch, parts.log.min)
        batch.next_offset = batch.max_offset


def _was_closed_cleanly(plan: RecoveryPlan, saved: Checkpoint) -> bool:
    """Whether this broker closed the store itself: then no bytes follow the log's end."""
    return plan.clean and saved.marks is not None and saved.marks.log == plan.scan.end


def _sync_scanned_tail(log: CommitLog, scan: LogScan) -> None:
    """Make bytes durable that a killed process left in the page cache, before they are read
    (R36)."""
    for filler in scan.torn_fillers:
        start = log.segments.start_of(filler)
        kernel.append_filler(log.segments.file_region(start), filler - start, log.file_size)
    for start in log.segments.file_starts():
        first, last = max(scan.start - start, 0), min(log.file_size, scan.end - start)
        if first < last and first < log.file_size:
            mapped = log.segments.mapped_file(start)
            # If a sync of these bytes failed before the kill, the system would count them as
            # written.
            mapped.mark_dirty(first, last)
            mapped.sync(first, last)
    if log.segments.contains(scan.end):
        # Zeros after the end may come from a truncation that was killed before its sync.
        start = log.segments.start_of(scan.end)
        mapped = log.segments.mapped_file(start)
        for first, last in mapped.data_ranges(scan.end - start):
            mapped.mark_dirty(first, last)
        mapped.sync(scan.end - start, log.file_size)
    # The removal of file names by that truncation may not be durable either.
    log.files.sync_folder(log.segments.folder)


def _dispatch_start(parts: StoreParts, plan: RecoveryPlan, saved: Checkpoint) -> LogOffset:
    """Log offset from which records are dispatched: the oldest record if earlier units are
    missing."""
    marks = saved.marks
    # Window 10: queues are missing. All records that the log still has are dispatched again.
    trusted = len(parts.queues) > 0
    if marks is not None and marks.queues == plan.queues_from and marks.queue_count >= 0:
        counts = parts.checkpointer.dirty.count_units()
        if plan.queues_from < plan.cut_queues_at:
            # Closed cleanly, but the checkpoint is older: units were added after it.
            counts = parts.checkpointer.dirty.count_units_before(plan.queues_from)
        trusted = counts == (marks.queue_count, marks.unit_count)
    # Without our marks no units were counted, but a hole between queue files was seen. The queues
    # of a RocketMQ broker are taken as they are; a store that lost its checkpoint may have lost
    # more.
    trusted = trusted and not parts.queues.lacks_files and not saved.damaged
    # Age removes the first files of queues only together with files of the log.
    log_min, removed = (marks.log_min, marks.first_units) if marks is not None else (0, 0)
    if parts.log.min <= log_min and parts.queues.first_units() > removed:
        trusted = False
    if not trusted:
        if plan.queues_from > parts.log.min:
            logger.warning("queues are missing: all are compared with the log")
        parts.checkpointer.doubt_queues(parts.log.min)
        for queue in parts.queues:
            # The queue may have begun with the missing file: only age removes first files. Units
            # older than the log cannot be rebuilt from it, so a queue with only such units stays. A
            # queue without units stays if nothing but its file name records what age removed.
            emptied = queue.emptied and marks is not None
            if queue.segments.first > 0 and (emptied or _ends_in_log(parts, queue)):
                parts.queues.reset_queue(queue)
        return parts.log.min
    return LogOffset(max(plan.queues_from, parts.log.min))


def _ends_in_log(parts: StoreParts, queue: ConsumeQueue) -> bool:
    """Whether the last unit of a queue points to a record that the log still has."""
    return parts.queues.table.max_log_offset(queue.slot) > parts.log.min


def _trim_index(parts: StoreParts, plan: RecoveryPlan, saved: Checkpoint) -> LogOffset:
    """Drop index files that may be incomplete. Returns the log offset from which records need
    entries."""
    index, log, end = parts.index, parts.log, plan.scan.end
    if index is None:
        return end
    # Remove bad files only after the checkpoint's count excludes them: if this start is killed, the
    # next one notices only the count.
    index.remove_bad()
    marks = saved.marks
    counted = marks is not None and index.entry_count(None, marks.log_min) == marks.entry_count
    if plan.clean and marks is not None and counted:
        return LogOffset(max(min(marks.index, end), log.min))
    while index.parts:
        last, _timestamp_ms = index.last_indexed()
        known = last < log.min or (last < max(end, 1) and log.read_record(last) is not None)
        if known and len(index.parts) <= plan.index_files and index.parts[-1].count > 1:
            # The last record may lack keys: it is dispatched again, and only missing keys are
            # added.
            return LogOffset(max(last, log.min))
        path = index.drop_last()
        logger.info("%s is rebuilt from the log", path)
        parts.files.remove(path)
        parts.files.sync_folder(index.folder)
    return log.min


def _whole_index_files(parts: StoreParts, saved: Checkpoint, clean: bool) -> int:
    """Number of index files that were full and durable when the checkpoint was written.

    Window 11: slots, entries and the header of the current file reach the disk in any order, so
    after a crash only earlier files count; if one of those is missing, the result is 0.
    """
    index, marks = parts.index, saved.marks
    if index is None or index.bad:
        # The records of a file with an invalid header may lie between records of other files.
        return 0
    if marks is None and clean:
        return len(index.parts)

    def is_whole(part: IndexPart) -> bool:
        if marks is None:
            # Records written after the clock was set back have the same time as those before them.
            return part.end_timestamp_ms < saved.index_timestamp_ms
        return part.end_log_offset < marks.index

    whole = len(list(takewhile(is_whole, index.parts)))
    if marks is None:
        return whole
    # (Age removes only files that the checkpoint no longer counts.)
    if index.entry_count(whole, marks.log_min) != marks.entry_count:
        logger.warning("index files are missing: rebuilt from the log")
        return 0
    return whole


def _dispatch_missing(
    parts: StoreParts,
    scan: LogScan,
    queues_from: LogOffset,
    index_from: LogOffset,
    now_ms: int,
    watch: Watch,
) -> None:
    """Dispatch the records that queues and index lack, saving progress file by file (R46)."""
    dispatcher, log = parts.dispatcher, parts.log
    end = LogOffset(min(scan.end, log.tail.limit))
    file_size = log.file_size
    index_until = LogOffset(min(queues_from, end))
    # While the index is filled, the checkpoint keeps the state of the queues.
    dispatcher.start(index_until, index_until)
    at = index_from
    for stop in _dispatch_stops(
        parts, index_from, index_until, scan.start, "filling the index", watch
    ):
        dispatcher.index_only(at, stop, now_ms)
        at = stop
        if stop % file_size == 0:
            parts.checkpointer.sync_and_save()
    index_from = LogOffset(max(index_from, index_until))
    for start in (queues_from, log.min):
        dispatcher.strict = start > log.min
        dispatcher.new_lives.forget_proofs_from(start)  # each start finds them all
        dispatcher.start(start, index_from)
        try:
            for stop in _dispatch_stops(parts, start, end, scan.start, "filling the queues", watch):
                dispatcher.run(stop, now_ms)
                parts.checkpointer.dirty.mark_dirty(*dispatcher.take_arrivals())
                if dispatcher.stalled is not None:
                    raise dispatcher.stalled
                if stop < end and stop % file_size == 0:
                    parts.checkpointer.sync_and_save()
            dispatcher.strict = False
            return
        except QueueGapError as error:
            # Window 10 again, found late: a queue's folder is missing, and no checkpoint had
            # counted it.
            logger.warning("%s: all queues are compared with the log", error)
            parts.checkpointer.doubt_queues(log.min)
            index_from = LogOffset(max(index_from, dispatcher.position))


def _dispatch_stops(
    parts: StoreParts, start: int, end: int, walked_from: int, phase: str, watch: Watch
) -> Iterator[LogOffset]:
    """Log offsets from `start` to `end` at which the dispatch stops to save its progress: each
    file's end, and before `walked_from` the end of each STEP_BYTES; the scan did not walk that
    part, so it is checked for damage here. Reports progress in `phase` to `watch`."""
    log, at = parts.log, start
    while at < end:
        stop = min(end, log.segments.start_of(at) + log.file_size)
        if at < walked_from:
            stop = min(
                end, parts.damage.verify_records(at, min(at + STEP_BYTES, stop, walked_from))
            )
        yield LogOffset(stop)
        at = stop
        watch(Progress(phase, at - start, end - start))
