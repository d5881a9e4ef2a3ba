"""Cutting units off queues, their extensions and the index: those of records that go.

Owns the order in which that is done, in steps. It must never touch the log. Called by recovery,
which finds a mark where a process before did not come to the end of it, and by truncation,
between whose steps the loop serves readers: each queue ends before what is cut before its files
change, and the records are there until all queues do.
"""

import logging
from functools import partial
from typing import Final

from turbopump.engine.config import QUEUE_UNIT_SIZE
from turbopump.engine.disk.disk_steps import Steps, Unsynced, nothing
from turbopump.engine.queues.queue_ext import is_address
from turbopump.engine.queues.queue_files import ConsumeQueue
from turbopump.engine.types import LogOffset
from turbopump.engine.upkeep.parts import StoreParts
from turbopump.pyx import queue as queue_kernel

logger = logging.getLogger(__name__)

ABORT_FILE: Final = "abort"
CUTTING: Final = b"-"
"""In the place of the first digit of the process id: one store, which needs no space."""
QUEUES_OF_STEP: Final = 100
"""Queues that are looked at before the loop has its turn."""


def has_units_from(parts: StoreParts, log_end: LogOffset) -> bool:
    """Whether queues or index speak of records from there on, or extensions of no queue."""
    queues, table = parts.queues, parts.queues.table
    if any(table.max_log_offset(queue.slot) > log_end for queue in queues):
        return True
    if any(batch.max_log_offset > log_end for batch in parts.batches):
        return True
    names = parts.extensions.names() if parts.extensions is not None else []
    if any(queues.find(*name) is None for name in names):
        return True
    return parts.index is not None and parts.index.reaches(log_end)


def cut_units(parts: StoreParts, log_end: LogOffset, *, every: bool, again: bool = False) -> Steps:
    """Cut units of records from `log_end` on: of `every` queue, or those that end behind it. What
    is cut is durable at the end: one sync for all, as 100,000 take minutes.

    With `every` zeros that are there already are synced, too: they may be those of a process that
    was killed before, and what they hide must not return. If a sync may have failed before, it is
    all done `again`: the system takes such zeros for written, and removed names may be left.
    """
    table, left = parts.queues.table, Unsynced()
    yield partial(_mark, parts, True)
    for number, queue in enumerate(list(parts.queues)):
        if number % QUEUES_OF_STEP == QUEUES_OF_STEP - 1:
            yield nothing
        if every or table.max_log_offset(queue.slot) > log_end:
            yield from _cut_queue(parts, queue, log_end, left)
            if every and queue.segments.count:
                left.files.append(queue.segments.path(queue.segments.last))
                # A process may have been killed between making the file and syncing its name.
                queue.names_synced = False
            if every and again:
                left.folders.append(queue.segments.folder)
                parts.queues.touch_tail(queue)
    if parts.extensions is not None:
        for topic, queue_id in parts.extensions.names():
            if parts.queues.find(topic, queue_id) is None:
                yield from parts.extensions.truncating(topic, queue_id, None, left)
    for batch in parts.batches:
        if every or batch.max_log_offset > log_end:
            yield from parts.batches.truncating(batch, log_end, left)
            left.folders.append(batch.segments.folder)
            batch.names_synced = batch.names_synced and not every
    yield partial(parts.files.sync_all, left.files, left.folders)
    yield partial(_mark, parts, False)


def _cut_queue(parts: StoreParts, queue: ConsumeQueue, log_end: LogOffset, left: Unsynced) -> Steps:
    if (yield from parts.queues.truncating(queue, log_end, left)):
        logger.info("%s/%d: units cut", queue.topic, queue.queue_id)
    parts.queues.correct_min(queue, parts.log.min)
    extensions = parts.extensions
    if extensions is not None:
        address = _last_address(parts, queue)
        yield from extensions.truncating(queue.topic, queue.queue_id, address, left)


def _last_address(parts: StoreParts, queue: ConsumeQueue) -> int | None:
    """Of the last extension unit that a queue unit points to: those behind it go."""
    for offset in range(parts.queues.max_offset(queue) - 1, queue.min_offset - 1, -1):
        at = offset * QUEUE_UNIT_SIZE
        start = queue.segments.start_of(at)
        code = queue_kernel.get_unit(queue.segments.region(start), at - start)[2]
        if is_address(code):
            return code
    return None


def _mark(parts: StoreParts, cutting: bool) -> None:
    """Write down whether queues are being cut: for the next process, unless the power goes. After
    that what can be read is durable. Raises OSError."""
    digit = str(parts.files.process_id())[:1].encode()
    mark = CUTTING if cutting else digit
    parts.files.write(f"{parts.config.root}/{ABORT_FILE}", mark, 0)
