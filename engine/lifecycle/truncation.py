"""Cutting the end of a running store off. Law 6: a truncated byte never comes back.

Owns the order of the steps. It must never cut anywhere but where a record begins, nor report a cut
before all steps are done. `Store.truncate` runs the steps and waits; `cutting` runs them on disk
threads (disk_steps.py). Nothing is appended meanwhile.

Between two steps the loop serves reads. So the queues shrink before the end of the log moves:
otherwise a reader would look for removed records. Extensions and index follow their queues; their
remaining entries point to records that exist, or that a search finds missing. A replica rarely has
units of cut records: dispatch, and so readers, stop at confirmOffset, and only after an unclean
election does a master lack bytes before it.

A crash leaves the old log or the cut one, never a third, because recovery walks the log from the
checkpoint's mark to the first bytes that are not a record. The windows:

1. The checkpoint may cover bytes after the cut. It is lowered first and synced, and recovery then
starts its scan before the cut: it finds the old end, and dispatches the tail again.

2. Queues, extensions and index entries of cut records are cut, if there are any. A crash leaves
some of them cut and the old log: recovery cuts queues at the checkpoint's mark, which is the cut
now, rebuilds index files that were not closed before it, and dispatches the tail again.

3. The head of the record at the cut (its size and magic) becomes zeros and is synced. Before that
sync recovery finds either state; after it, recovery finds the cut, whatever bytes follow.

4. Log files after the cut are removed, the last one first and each name durably, so that no hole is
left; the rest of the cut file becomes zeros and is synced. Recovery repeats this.

5. The checkpoint is written again: log, queues and index agree, and it records that.
"""

import logging
from functools import partial

from turbopump.engine.disk.disk_steps import Steps, run_to_end
from turbopump.engine.lifecycle import recovery
from turbopump.engine.lifecycle.parts import StoreParts
from turbopump.engine.lifecycle.retention import Retention
from turbopump.engine.lifecycle.truncate_queues import has_units_from, truncate_units
from turbopump.engine.log.commit_log import CommitLog
from turbopump.engine.log.damage import LogDamage
from turbopump.engine.log.group_commit import GroupCommit
from turbopump.engine.types import LogOffset, PutStatus, StoreError
from turbopump.pyx import record as kernel
from turbopump.pyx.tail import UNLIMITED
from turbopump.pyx.walk import walk

logger = logging.getLogger(__name__)


def truncate_and_wait(
    parts: StoreParts,
    commit: GroupCommit,
    retention: Retention,
    log_end: LogOffset,
    now_ms: int,
) -> None:
    """Cut the log of a running store at `log_end`, where a record begins, and wait for the disk;
    see Store.truncate. Raises StoreError."""
    last_timestamp_before(parts.log, parts.damage, log_end)
    retention.wait_for_removals()
    retention.void_ages()
    parts.checkpointer.wait_for_round()
    run_to_end(truncation_steps(parts, commit, log_end, now_ms))


def truncation_steps(
    parts: StoreParts, commit: GroupCommit, log_end: LogOffset, now_ms: int
) -> Steps:
    """Steps that do the work of `truncate_and_wait`; no other thread may work on the store. Pending
    sends of cut records are answered with FLUSH_DISK_TIMEOUT at the end. The steps raise
    StoreError; after an error of the disk the store refuses writes."""
    if commit.failed or parts.checkpointer.failed:
        raise StoreError("the log cannot be cut: the store does not take changes now")
    timestamp_ms = last_timestamp_before(parts.log, parts.damage, log_end)
    withdrawn = commit.prepare_cut(log_end, PutStatus.FLUSH_DISK_TIMEOUT)
    try:
        if commit.failed is not None:
            raise StoreError(f"the log cannot be cut at {log_end}: {commit.failed}")
        yield from _truncate_steps(parts, log_end, timestamp_ms, now_ms)
        commit.resume_after_cut(timestamp_ms)
    except OSError as error:
        commit.fail_for_good(error)
        raise StoreError(f"the log cannot be cut at {log_end}: {error}") from error
    finally:
        commit.pending.answer(withdrawn)


def last_timestamp_before(log: CommitLog, damage: LogDamage, log_offset: LogOffset) -> int:
    """Store time in epoch ms of the last record before `log_offset`, 0 if there is no such record;
    at the log's end the latest store time of the log.

    Raises StoreError if the log lacks `log_offset` or it is not a record boundary. The log file is
    walked from its beginning, because bytes of a body may look like a record.
    """
    if not log.min <= log_offset <= log.end:
        raise StoreError(
            f"the log cannot be cut at {log_offset}: it has the bytes from {log.min} to {log.end}"
        )
    if log_offset == log.end:
        return log.last_store_timestamp_ms
    return timestamp_before(log, damage, log_offset)


def timestamp_before(log: CommitLog, damage: LogDamage, log_offset: LogOffset) -> int:
    """Store time in epoch ms of the last record that ends at `log_offset` or before, in the file of
    `log_offset` or the file before it, 0 without such a record. `log_offset` must lie in the log.
    Raises StoreError if it is not a record boundary."""
    start, known_ms = log.segments.start_of(log_offset), 0
    tail = log.tail
    if start < tail.dispatched <= log_offset and tail.dispatched_timestamp_ms > 0:
        # A replica is cut near its end while others wait for it: do not read the whole file.
        known_ms = tail.dispatched_timestamp_ms
        at, timestamp_ms = _walk_records(log, damage, tail.dispatched, log_offset)
    else:
        at, timestamp_ms = _walk_records(log, damage, start, log_offset)
    timestamp_ms = timestamp_ms or known_ms
    if at != log_offset:
        raise StoreError(f"the log cannot be cut at {log_offset}: no record begins there")
    if timestamp_ms == 0 and start > log.min:
        _at, timestamp_ms = _walk_records(log, damage, start - log.file_size, start)
    return timestamp_ms


def _walk_records(log: CommitLog, damage: LogDamage, start: int, until: int) -> tuple[int, int]:
    """Walk the records of [start, until), which lie in one log file, past damage that is known.
    Returns (log offset where the walk ended, store time of the last record or 0)."""
    at, timestamp_ms = start, 0
    if start >= until:
        return at, timestamp_ms
    base, region = log.segments.start_of(start), log.file_region(log.segments.start_of(start))
    while True:
        found = walk(region, at - base, min(until - base, log.file_size), base)
        timestamp_ms = found.store_timestamp_ms or timestamp_ms
        at = base + found.position
        behind = damage.known_end(at)
        if at >= until or behind is None:
            return at, timestamp_ms
        at = behind


def _truncate_steps(
    parts: StoreParts, log_end: LogOffset, last_timestamp_ms: int, now_ms: int
) -> Steps:
    """Cut at `log_end`; the record before was stored at `last_timestamp_ms`. No sync of the log may
    be under way. Raises OSError, or StoreError before any change."""
    log, dispatcher = parts.log, parts.dispatcher
    cut_bytes = log.end - log_end
    yield from _dispatch_remaining(parts, log_end, now_ms)
    if cut_bytes == 0:
        return
    yield parts.checkpointer.prepare_cut_work(log_end, last_timestamp_ms)
    # Cut queues begin where earlier lives of their topics end. Those ends are written after the
    # cut, because with the old log they would be unchanged.
    write_ends = parts.queues.deleted_topics.lower_ends_work(log_end)
    if has_units_from(parts, log_end):
        yield from _cut_derived(parts, log_end)
    if dispatcher.position >= log_end:
        dispatcher.last_store_timestamp_ms = last_timestamp_ms
    dispatcher.rewind_to(log_end)
    if log.tail.limit != UNLIMITED:
        log.tail.limit = min(log.tail.limit, log_end)  # after the queues' ends, see above
    yield from cut_log(log, log_end, last_timestamp_ms)
    parts.damage.forget_from(log_end)
    yield write_ends
    recovery.settle_queues(parts)
    yield from parts.checkpointer.sync_and_save_steps(last_timestamp_ms)
    log.make_next_file_if_near()
    logger.info("the log was cut at %d, %d bytes went", log_end, cut_bytes)


def _cut_derived(parts: StoreParts, log_end: LogOffset) -> Steps:
    """Remove the units and index entries of cut records."""
    log, index = parts.log, parts.index
    yield from truncate_units(parts, log_end, every=False)
    if index is not None:
        parts.queues.table.set_index(None)
        yield from index.truncation_steps(log_end, partial(_store_timestamp_ms, log))


def cut_log(log: CommitLog, log_end: LogOffset, last_timestamp_ms: int) -> Steps:
    """Steps that cut the log's own files at `log_end`, durably; the last record that stays was
    stored at `last_timestamp_ms`. A crash leaves either all bytes or the bytes before `log_end`:
    the first sync removes the head of the record there, and no walk gets past that. All bytes
    before `log_end` must be durable. The steps raise OSError."""
    log.stop_at(log_end)
    yield log.discard_next_file_work()  # before its neighbours, or a hole would precede it
    start = log.segments.start_of(log_end)
    mapped, position = log.mapped_file(start), log_end - start
    head = min(kernel.FILLER_SIZE, log.file_size - position)
    mapped.region.zero(position, head)
    yield partial(mapped.sync, position, position + head)
    yield log.drop_files_work(log_end)
    yield log.zero_tail_work(log_end)
    log.start_writing(log_end, last_timestamp_ms)


def _dispatch_remaining(parts: StoreParts, log_end: LogOffset, now_ms: int) -> Steps:
    """Make the remaining bytes durable and dispatch them, so that each queue knows its next
    offset."""
    log, dispatcher, checkpointer = parts.log, parts.dispatcher, parts.checkpointer
    for mapped, start, stop in log.unflushed_ranges(log_end):
        yield partial(mapped.sync, start, stop)
    log.flushed = LogOffset(max(log.flushed, log_end))
    visible = LogOffset(min(log_end, log.tail.limit))
    dispatcher.run(visible, now_ms)
    if dispatcher.position < visible:
        raise StoreError(f"the log cannot be cut at {log_end}: {dispatcher.stalled}")
    checkpointer.dirty.mark_dirty(*dispatcher.take_arrivals())
    yield from checkpointer.sync_and_save_steps()


def _store_timestamp_ms(log: CommitLog, log_offset: int) -> int:
    """Store time in epoch ms of the record at `log_offset`; the log's latest store time if no
    record begins there."""
    record = log.read_record(log_offset)
    return record.store_timestamp_ms if record is not None else log.last_store_timestamp_ms
