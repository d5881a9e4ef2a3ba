"""Cutting units of removed records off queues, extensions and the index.

Owns the order of that work, in steps. It must never touch the log. Recovery repeats the work if it
finds the mark of a process that did not finish. During a truncation the loop serves readers between
the steps: each queue shrinks before its files change, and the log keeps the records until all
queues are cut.

Tests: tests/unit/engine/lifecycle/test_truncation.py
"""

import logging
from functools import partial
from typing import Final

from turbopump.engine.config import QUEUE_UNIT_SIZE
from turbopump.engine.disk.disk_steps import Steps, Unsynced, no_work
from turbopump.engine.lifecycle.parts import StoreParts
from turbopump.engine.queues.queue_ext import is_address
from turbopump.engine.queues.queue_files import ConsumeQueue
from turbopump.engine.types import LogOffset
from turbopump.pyx import queue as queue_kernel

logger = logging.getLogger(__name__)

ABORT_FILE: Final = "abort"
"""Name of the file in the store's folder that exists while a store is open, with the process id as
text; a start that finds it recovers as after a crash."""
CUTTING: Final = b"-"
"""Replaces the first digit of the process id in `abort`: a single store, which needs no disk
space."""
QUEUES_PER_STEP: Final = 100
"""Number of queues examined before the loop gets a turn."""


def has_units_from(parts: StoreParts, log_end: LogOffset) -> bool:
    """Whether queues or the index have units of records from `log_end` on, or extensions lack their
    queue, so that a cut of the log at `log_end` has to cut them, too."""
    queues, table = parts.queues, parts.queues.table
    if any(table.max_log_offset(queue.slot) > log_end for queue in queues):
        return True
    if any(batch.max_log_offset > log_end for batch in parts.batches):
        return True
    names = parts.extensions.queues_with_extension() if parts.extensions is not None else []
    if any(queues.find(*name) is None for name in names):
        return True
    return parts.index is not None and parts.index.has_entries_from(log_end)


def truncate_units(
    parts: StoreParts, log_end: LogOffset, *, every: bool, again: bool = False
) -> Steps:
    """Steps that cut units of records from `log_end` on, but not the index: of `every` queue, or of
    the queues that end after it. At the end the cuts are durable: one sync for all, because syncing
    100,000 queues singly takes minutes. The steps raise OSError.

    With `every`, zeros already there are synced, too: they may come from a killed process, and the
    units below them must not return. If an earlier sync may have failed, all work is done `again`:
    the system takes such zeros for written, and removed names may still exist.
    """
    table, left = parts.queues.table, Unsynced()
    yield partial(_mark_cutting, parts, True)
    for number, queue in enumerate(list(parts.queues)):
        if number % QUEUES_PER_STEP == QUEUES_PER_STEP - 1:
            yield no_work
        if every or table.max_log_offset(queue.slot) > log_end:
            yield from _cut_queue(parts, queue, log_end, left)
            if every and queue.segments.count:
                left.files.append(queue.segments.path(queue.segments.last_file_start))
                # A process may have been killed between making the file and syncing its name.
                queue.names_synced = False
            if every and again:
                left.folders.append(queue.segments.folder)
                parts.queues.touch_tail(queue)
    if parts.extensions is not None:
        for topic, queue_id in parts.extensions.queues_with_extension():
            if parts.queues.find(topic, queue_id) is None:
                yield from parts.extensions.truncation_steps(topic, queue_id, None, left)
    for batch in parts.batches:
        if every or batch.max_log_offset > log_end:
            yield from parts.batches.truncation_steps(batch, log_end, left)
            left.folders.append(batch.segments.folder)
            batch.names_synced = batch.names_synced and not every
    yield partial(parts.files.sync_all, left.files, left.folders)
    yield partial(_mark_cutting, parts, False)


def _cut_queue(parts: StoreParts, queue: ConsumeQueue, log_end: LogOffset, left: Unsynced) -> Steps:
    """Steps that cut a consume queue and its extension at `log_end`, and add the changed
    paths to `left`."""
    if (yield from parts.queues.truncation_steps(queue, log_end, left)):
        logger.info("%s/%d: units cut", queue.topic, queue.queue_id)
    parts.queues.correct_min(queue, parts.log.min)
    extensions = parts.extensions
    if extensions is not None:
        address = _last_address(parts, queue)
        yield from extensions.truncation_steps(queue.topic, queue.queue_id, address, left)


def _last_address(parts: StoreParts, queue: ConsumeQueue) -> int | None:
    """Address of the last extension unit that a queue unit points to; later extension units are
    cut. None if no unit points to an extension."""
    for offset in range(parts.queues.max_offset(queue) - 1, queue.min_offset - 1, -1):
        at = offset * QUEUE_UNIT_SIZE
        start = queue.segments.start_of(at)
        code = queue_kernel.get_unit(queue.segments.file_region(start), at - start)[2]
        if is_address(code):
            return code
    return None


def _mark_cutting(parts: StoreParts, cutting: bool) -> None:
    """Record for the next process whether queues are being cut. The mark is not synced: a power cut
    may lose it, but then all readable data is durable. Raises OSError."""
    digit = str(parts.files.process_id())[:1].encode()
    mark = CUTTING if cutting else digit
    parts.files.write(f"{parts.config.root}/{ABORT_FILE}", mark, 0)
