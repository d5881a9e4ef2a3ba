"""Opening a store: the list of crash windows, top down, and what each leaves to be done.

Owns the order in which a store is looked at, planned and repaired. It must never serve a byte, and
never guess: what cannot be derived from the log is a StoreError. Called once by Store.open, on the
loop thread, before anything can be written or read.

`recover` decides on what is there (`_survey`), then executes: every step can be interrupted and
done again, because nothing that a later step needs to know is lost by an earlier one, and the
checkpoint moves only behind what was synced. So a crash during recovery is no window of its own:
the next one starts where the checkpoint says, which moves on file by file. The windows of a
truncation are listed in truncation.py; recovery meets them as windows 6 to 11.
"""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import takewhile

from turbopump.engine.disk import checkpoint as checkpoints
from turbopump.engine.disk.checkpoint import Checkpoint
from turbopump.engine.disk.disk_steps import at_once
from turbopump.engine.disk.files import Files, sync_above
from turbopump.engine.disk.segments import is_file_name
from turbopump.engine.log.boundary import confirmed_end, may_end_inside
from turbopump.engine.log.commit_log import NOT_MASTER, CommitLog
from turbopump.engine.log.damage import NO_RECORD, resume_at
from turbopump.engine.log.scan import (
    STEP_BYTES,
    LogScan,
    first_timestamp,
    scan_log,
    start_abnormal,
    start_normal,
)
from turbopump.engine.queues.dispatcher import QueueGapError
from turbopump.engine.queues.index import IndexPart
from turbopump.engine.queues.queue_files import ConsumeQueue
from turbopump.engine.types import LogOffset, OpeningStopped, Progress, StoreError
from turbopump.engine.upkeep import restart
from turbopump.engine.upkeep.parts import StoreParts
from turbopump.engine.upkeep.unit_cutting import ABORT_FILE, CUTTING, cut_units
from turbopump.pyx import record as kernel
from turbopump.pyx.walk import CUT_BYTES, SECTORS, WHOLE

logger = logging.getLogger(__name__)

Watch = Callable[[Progress], None]


@dataclass(slots=True, frozen=True)
class RecoveryPlan:
    """What has to be done: decided before the first byte is changed."""

    clean: bool
    scan: LogScan
    queues_from: LogOffset
    """Queues are complete and durable for records before this."""
    cut_queues_at: LogOffset
    """Units of records from here on are cut."""
    cut_before: bool
    """A process did not come to the end of cutting queues: the cut may look durable and not be.
    """
    index_files: int
    """So many index files are whole."""
    damaged: tuple[tuple[LogOffset, str], ...] = ()
    """Records of the walk that were durable once and are whole no more, and why they are not."""


def recover(parts: StoreParts, now_ms: int, watch: Watch) -> None:
    """Bring a store into a state that can be written.

    `watch` receives the progress of what may take long, and may raise OpeningStopped: what was
    filled up by then is kept. Raises StoreError (one sentence) where the store cannot be opened,
    OSError from the disk.
    """
    # Window 14: a process was emptying the store; see restart.py.
    restart.finish_pending(parts.files, parts.config)
    # Window 1: the stop was not clean. RocketMQ's mark for it: `abort` exists while it runs.
    clean = not parts.files.exists(f"{parts.config.root}/{ABORT_FILE}")
    saved = checkpoints.load(parts.files, parts.config.root)
    parts.checkpointer.load(saved)
    parts.damage.load()
    _load(parts)
    plan = _survey(parts, saved, clean, watch)
    _mark_running(parts, plan)
    _execute(parts, plan, saved, now_ms, watch)


def _mark_running(parts: StoreParts, plan: RecoveryPlan) -> None:
    """From the first change on a crash is a crash (RocketMQ: `abort` holds the pid as text)."""
    files, root = parts.files, parts.config.root
    path = f"{root}/{ABORT_FILE}"
    # Queues are cut next.
    _write_abort(parts)
    files.sync(path)
    files.make_folders(parts.log.segments.folder)
    sync_above(files, path)
    if not parts.log.segments.folder.startswith(f"{root}/"):
        sync_above(files, parts.log.segments.folder)
    parts.checkpointer.lower(plan.index_files, plan.cut_queues_at < plan.scan.end)


def _write_abort(parts: StoreParts) -> None:
    text = CUTTING + str(parts.files.process_id()).encode()[1:]
    parts.files.write(f"{parts.config.root}/{ABORT_FILE}", text)


def _was_cutting(parts: StoreParts) -> bool:
    path = f"{parts.config.root}/{ABORT_FILE}"
    return parts.files.exists(path) and not parts.files.read(path)[:1].isdigit()


def _load(parts: StoreParts) -> None:
    """Find the files; whatever contradicts the configuration is refused here."""
    # Window 2: a crash (or a copy) left a log file shorter than its place in the row demands.
    _extend_short_files(parts)
    log = parts.log
    behind = log.segments.load()
    if behind:
        # Window 3: a log file is missing between others. The log cannot be derived from anything.
        raise StoreError(
            f"the commit log file {log.segments.path(log.segments.end)} is missing while "
            f"{log.segments.path(behind[0])} exists"
        )
    parts.batches.load()
    # Window 4: a queue file is missing between others, or is cut short: what it had and the files
    # behind it come from the log.
    marks = parts.checkpointer.checkpoint.marks
    durable_end = LogOffset(log.segments.end)
    if marks is not None and marks.queues >= log.min:
        durable_end = marks.queues
    broken = parts.queues.load(parts.dispatcher.is_plain, log.min, durable_end)
    if broken:
        # Names are removed next: should their sync fail, the next start has to do it again.
        _write_abort(parts)
    for queue, starts in broken:
        logger.warning("%s/%d lacks a file: rebuilt from the log", queue.topic, queue.queue_id)
        parts.queues.drop_files_from(queue, starts)
    if parts.extensions is not None:
        parts.extensions.load()
    # Window 5: an index file whose header makes no sense is rebuilt, like one that is missing.
    if parts.index is not None:
        parts.index.load()
        for path in parts.index.bad:
            logger.warning("%s is damaged: rebuilt from the log", path)


def _extend_short_files(parts: StoreParts) -> None:
    """The last file with records may be short: the names of the others prove what it should be.

    A single file proves nothing (the configuration may be wrong), nor does a short file that is
    followed by records.
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
            if sizes[later] and kernel_has_record(files, f"{segments.folder}/{later}"):
                raise StoreError(f"{path} is cut short, but records follow it in {later}")
        logger.warning("%s is cut short: extended to %d bytes", path, segments.file_size)
        files.resize(path, segments.file_size)


def kernel_has_record(files: Files, path: str) -> bool:
    """Whether a log file begins with a record."""
    mapped = files.open(path, readonly=True)
    try:
        return kernel.scan(mapped.region, 0, mapped.size, 1).count > 0
    finally:
        mapped.close()


def _survey(parts: StoreParts, saved: Checkpoint, clean: bool, watch: Watch) -> RecoveryPlan:
    """Decide where the log ends and from where queues have to be filled up."""
    log = parts.log
    was_cutting = _was_cutting(parts)
    parts.queues.recover_ends(log.min)
    dispatched = _dispatched(parts)
    if log.segments.count == 0:
        # Window 3 again: nothing to derive queues from. Perhaps its disk is not there.
        if dispatched > 0:
            raise StoreError(
                f"the queues point to records up to log offset {dispatched}, but "
                f"{log.segments.folder} holds no commit log"
            )
        zero = LogOffset(0)
        return RecoveryPlan(clean, LogScan(zero, zero, 0, 0, ""), zero, zero, was_cutting, 0)
    marks = saved.marks
    if marks is not None and marks.log > log.segments.end:
        # Window 3 at the end: what is gone there was acknowledged.
        raise StoreError(
            f"the commit log was durable up to {marks.log}, but its last file is "
            f"{log.segments.path(log.segments.last)}: later ones are missing. Without "
            f"{parts.config.root}/{checkpoints.FILE_NAME} the store opens with what is left"
        )
    if marks is not None and marks.log < log.segments.first:
        logger.warning("the checkpoint is older than the log: it is not used")
        marks = None
    elif clean and marks is not None and marks.log_min < log.min:
        # Not by age, which moves our mark with the files. Nothing brings them back.
        logger.error(
            "%s begins at %d, but began at %d when the store was closed: files were removed since",
            log.segments.folder,
            log.min,
            marks.log_min,
        )
    index_files = _whole_index_files(parts, saved, clean)
    # Windows 6, 7: torn record, torn filler, a filler without its next file, zeroed pages in what
    # was not durable yet. (A filler's size is put right: no walk needs it to go on.) All
    # before our own mark was synced; without it RocketMQ's times tell the file to begin with.
    if marks is not None:
        start = marks.log
    elif clean:
        start = start_normal(log, dispatched)
    else:
        start = start_abnormal(log, saved.safe_timestamp_ms)
    scan, damaged = _scan(parts, start, saved, dispatched, clean, watch)
    if scan.reason:
        logger.warning("the log is cut at %d: %s", scan.end, scan.reason)
    if clean:
        # Window 8: queues ahead of the log are cut, behind it filled up.
        queues_from = marks.queues if marks is not None else LogOffset(dispatched)
        queues_from = LogOffset(min(queues_from, scan.end))
        return RecoveryPlan(clean, scan, queues_from, scan.end, was_cutting, index_files, damaged)
    # Window 9: queue pages reach the disk in any order. Units of records behind the mark are cut
    # and written again, because there may be holes among them. (What expired was durable, and does
    # not come again: a checkpoint that speaks of less is an older one.)
    queues_from = LogOffset(min(marks.queues if marks is not None else start, scan.end))
    queues_from = max(queues_from, log.min)
    return RecoveryPlan(clean, scan, queues_from, queues_from, was_cutting, index_files, damaged)


def _scan(
    parts: StoreParts,
    start: LogOffset,
    saved: Checkpoint,
    dispatched: int,
    clean: bool,
    watch: Watch,
) -> tuple[LogScan, tuple[tuple[LogOffset, str], ...]]:
    """Walk the log from `start` to its end, which is not where a durable record is damaged."""
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
    while (behind := _behind_damage(parts, scan, saved, dispatched, clean)) is not None:
        damaged.append((scan.end, scan.reason or NO_RECORD))
        torn_fillers += scan.torn_fillers
        scan = scan_log(log, behind, scan.last_timestamp_ms, torn=torn, reached=reached)
    torn_fillers += scan.torn_fillers
    return replace(scan, start=start, torn_fillers=tuple(torn_fillers)), tuple(damaged)


def _behind_damage(
    parts: StoreParts, scan: LogScan, saved: Checkpoint, dispatched: int, clean: bool
) -> LogOffset | None:
    """Window 12: a record that was durable is whole no more, and must not be taken for a torn one:
    with it all behind it would be cut, acknowledged or not. Where records go on behind it, or None
    if nothing proves that it was durable.

    What lies before our own mark is not walked here; what lies behind it was not durable for all
    that is known. Proofs are needed for what was found damaged before, and for stores without a
    mark: a clean stop leaves neither queues nor files that go on behind the end of the log; and a
    record behind may be one that RocketMQ's checkpoint calls durable. (Records of an older life of
    the file, which RocketMQ leaves behind the end, are older than those before it.)
    """
    log, marks = parts.log, saved.marks
    known = parts.damage.known_end(scan.end) is not None
    durable_ms = saved.log_timestamp_ms - checkpoints.SAFETY_MS
    file_end = LogOffset(log.segments.start_of(scan.end) + log.file_size)
    if clean:
        doubtful = dispatched > scan.end or first_timestamp(log, file_end) > 0
    else:
        doubtful = scan.last_timestamp_ms < durable_ms
    if not log.segments.holds(scan.end) or not (known or (marks is None and doubtful)):
        return None
    behind = resume_at(log, scan.end, file_end)
    timestamp_ms = first_timestamp(log, behind)
    if known or (clean and timestamp_ms):
        return behind
    return behind if scan.last_timestamp_ms <= timestamp_ms < durable_ms else None


def _dispatched(parts: StoreParts) -> int:
    """End of the last record that has a unit."""
    table = parts.queues.table
    ends = [table.max_log_offset(queue.slot) for queue in parts.queues]
    return max([0, *ends, *(queue.max_log_offset for queue in parts.batches)])


def _execute(
    parts: StoreParts, plan: RecoveryPlan, saved: Checkpoint, now_ms: int, watch: Watch
) -> None:
    log, end = parts.log, plan.scan.end
    # Window 15: the store is one of several copies.
    confirm = confirmed_end(parts.files, log, plan.queues_from, end, saved)
    if confirm is not None:
        log.tail.refuse(NOT_MASTER, True)
        log.tail.limit = parts.checkpointer.confirm = confirm
    # The log first, and durably: a byte that is cut now must not come back in the next recovery.
    if _known_clean(plan, saved):
        log.drop_files_behind(end)
    elif log.truncate(end):
        logger.warning("bytes behind the end of the log at %d were cleared", end)
    if not plan.clean:
        _sync_tail(log, plan.scan)
    # The last record may be of a delayed message, whose time is earlier (CommitLog.append).
    last_ms = max(plan.scan.last_timestamp_ms, saved.log_timestamp_ms if saved.marks else 0)
    log.start_writing(end, last_ms)
    parts.damage.check()
    for log_offset, reason in plan.damaged:
        parts.damage.note(log_offset, reason)
    parts.queues.deleted.clamp(end)
    at_once(cut_units(parts, plan.cut_queues_at, every=not plan.clean, again=plan.cut_before))
    queues_from = _queues_from(parts, plan, saved)
    index_from = _trim_index(parts, plan, saved)
    try:
        _fill_up(parts, plan.scan, queues_from, index_from, now_ms, watch)
    except OpeningStopped:
        parts.checkpointer.finish()
        raise
    settle_queues(parts)


def settle_queues(parts: StoreParts) -> None:
    """Log and queues end at the same record: each queue goes on counting from there. If they do not
    an empty queue waits for its next record."""
    complete = parts.dispatcher.position == parts.log.end
    # Window 13: of a queue that was made or deleted a power cut kept a later file alone, without
    # units. What its name says counts only if age may have taken those before it.
    for queue in list(parts.queues):
        if complete or not queue.emptied:
            parts.queues.settle(queue, parts.log.min)
    for batch in parts.batches:
        parts.batches.correct_min(batch, parts.log.min)
        batch.next_offset = batch.max_offset


def _known_clean(plan: RecoveryPlan, saved: Checkpoint) -> bool:
    """Whether we closed this store ourselves: then there is nothing behind its end."""
    return plan.clean and saved.marks is not None and saved.marks.log == plan.scan.end


def _sync_tail(log: CommitLog, scan: LogScan) -> None:
    """What a killed process left in the page cache is durable before it is read (R36)."""
    for filler in scan.torn_fillers:
        start = log.segments.start_of(filler)
        kernel.append_filler(log.segments.region(start), filler - start, log.file_size)
    for start in log.segments.starts():
        first, last = max(scan.start - start, 0), min(log.file_size, scan.end - start)
        if first < last and first < log.file_size:
            mapped = log.segments.mapped(start)
            # Had a sync of these bytes failed before the kill, they would count as written.
            mapped.touch(first, last)
            mapped.sync(first, last)
    if log.segments.holds(scan.end):
        # Zeros behind the end may be those of a truncation that did not come to its sync.
        start = log.segments.start_of(scan.end)
        mapped = log.segments.mapped(start)
        for first, last in mapped.data(scan.end - start):
            mapped.touch(first, last)
        mapped.sync(scan.end - start, log.file_size)
    # And so may be names: of files that it removed.
    log.files.sync_folder(log.segments.folder)


def _queues_from(parts: StoreParts, plan: RecoveryPlan, saved: Checkpoint) -> LogOffset:
    """From where records are dispatched: from the oldest one if units are missing before that."""
    marks = saved.marks
    # Window 10: queues are missing. All that the log still has is dispatched again.
    trusted = len(parts.queues) > 0
    if marks is not None and marks.queues == plan.queues_from and marks.queue_count >= 0:
        counts = parts.checkpointer.dirty.count_units()
        if plan.queues_from < plan.cut_queues_at:
            # Closed well, but the checkpoint is an older one: units came after it.
            counts = parts.checkpointer.dirty.count_units_before(plan.queues_from)
        trusted = counts == (marks.queue_count, marks.unit_count)
    # Without our marks nothing was counted, but a hole in a row of files was seen. A RocketMQ
    # broker's queues are taken as they are; what lost its checkpoint may have lost more than that.
    trusted = trusted and not parts.queues.lacking and not saved.damaged
    # Age takes the first files of queues only together with those of the log.
    log_min, removed = (marks.log_min, marks.first_units) if marks is not None else (0, 0)
    if parts.log.min <= log_min and parts.queues.first_units() > removed:
        trusted = False
    if not trusted:
        if plan.queues_from > parts.log.min:
            logger.warning("queues are missing: all are compared with the log")
        parts.checkpointer.doubt_queues(parts.log.min)
        for queue in parts.queues:
            # It may have begun with the file that is missing: only age removes first files. What
            # is older than the log cannot come from it: a queue with such units alone stays. One
            # without any stays if nothing but its name knows what age removed.
            emptied = queue.emptied and marks is not None
            if queue.segments.first > 0 and (emptied or _reaches(parts, queue)):
                parts.queues.reset(queue)
        return parts.log.min
    return LogOffset(max(plan.queues_from, parts.log.min))


def _reaches(parts: StoreParts, queue: ConsumeQueue) -> bool:
    """Whether the last unit of a queue points to a record that the log still has."""
    return parts.queues.table.max_log_offset(queue.slot) > parts.log.min


def _trim_index(parts: StoreParts, plan: RecoveryPlan, saved: Checkpoint) -> LogOffset:
    """Drop index files that cannot be trusted; returns from where records need entries."""
    index, log, end = parts.index, parts.log, plan.scan.end
    if index is None:
        return end
    # Not before the checkpoint counts without them: if this start is killed, the next one sees
    # nothing wrong but the count.
    index.remove_bad()
    marks = saved.marks
    counted = marks is not None and index.entry_count(None, marks.log_min) == marks.entry_count
    if plan.clean and marks is not None and counted:
        return LogOffset(max(min(marks.index, end), log.min))
    while index.parts:
        last, _timestamp_ms = index.end()
        known = last < log.min or (last < max(end, 1) and log.record(last) is not None)
        if known and len(index.parts) <= plan.index_files and index.parts[-1].count > 1:
            # The last record may lack keys: it is dispatched again, which adds only those.
            return LogOffset(max(last, log.min))
        path = index.drop_last()
        logger.info("%s is rebuilt from the log", path)
        parts.files.remove(path)
        parts.files.sync_folder(index.folder)
    return log.min


def _whole_index_files(parts: StoreParts, saved: Checkpoint, clean: bool) -> int:
    """How many index files were full and durable when the checkpoint was written.

    Window 11: slots and entries of a file that is written reach the disk in any order, its header
    among them, so after a crash only those before it count; if one of these is missing, none.
    """
    index, marks = parts.index, saved.marks
    if index is None or index.bad:
        # The records of a file that makes no sense may lie between those of others.
        return 0
    if marks is None and clean:
        return len(index.parts)

    def is_whole(part: IndexPart) -> bool:
        if marks is None:
            # Records of a clock that was set back have the same time as those before them.
            return part.end_timestamp_ms < saved.index_timestamp_ms
        return part.end_log_offset < marks.index

    whole = len(list(takewhile(is_whole, index.parts)))
    if marks is None:
        return whole
    # (Age removes only files that the checkpoint does not count any more.)
    if index.entry_count(whole, marks.log_min) != marks.entry_count:
        logger.warning("index files are missing: rebuilt from the log")
        return 0
    return whole


def _fill_up(
    parts: StoreParts,
    scan: LogScan,
    queues_from: LogOffset,
    index_from: LogOffset,
    now_ms: int,
    watch: Watch,
) -> None:
    """Dispatch what queues and index lack, saving progress file by file (R46)."""
    dispatcher, log = parts.dispatcher, parts.log
    end = LogOffset(min(scan.end, log.tail.limit))
    file_size = log.file_size
    index_until = LogOffset(min(queues_from, end))
    # While the index is filled the checkpoint says of the queues what they are.
    dispatcher.start(index_until, index_until)
    at = index_from
    for stop in _steps(parts, index_from, index_until, scan.start, "filling the index", watch):
        dispatcher.index_only(at, stop, now_ms)
        at = stop
        if stop % file_size == 0:
            parts.checkpointer.finish()
    index_from = LogOffset(max(index_from, index_until))
    for start in (queues_from, log.min):
        dispatcher.strict = start > log.min
        dispatcher.new_lives.cut(start)  # each start finds them all
        dispatcher.start(start, index_from)
        try:
            for stop in _steps(parts, start, end, scan.start, "filling the queues", watch):
                dispatcher.run(stop, now_ms)
                parts.checkpointer.dirty.arrived(*dispatcher.take_arrivals())
                if dispatcher.stalled is not None:
                    raise dispatcher.stalled
                if stop < end and stop % file_size == 0:
                    parts.checkpointer.finish()
            dispatcher.strict = False
            return
        except QueueGapError as error:
            # Window 10 again, found late: a queue's folder is gone and nothing had counted it.
            logger.warning("%s: all queues are compared with the log", error)
            parts.checkpointer.doubt_queues(log.min)
            index_from = LogOffset(max(index_from, dispatcher.position))


def _steps(
    parts: StoreParts, start: int, end: int, walked_from: int, phase: str, watch: Watch
) -> Iterator[LogOffset]:
    """Where to pause on the way from `start` to `end`: behind some record, at each file's end.
    Records before `walked_from` were not walked: what is damaged there is noted first."""
    log, at = parts.log, start
    while at < end:
        stop = min(end, log.segments.start_of(at) + log.file_size)
        if at < walked_from:
            stop = min(end, parts.damage.verify(at, min(at + STEP_BYTES, stop, walked_from)))
        yield LogOffset(stop)
        at = stop
        watch(Progress(phase, at - start, end - start))
