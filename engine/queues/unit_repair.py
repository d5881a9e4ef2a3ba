"""Repair of queue units that were damaged after they were written, from the log.

Owns the search between a unit's neighbours. It must never trust a unit because it looks valid: the
record must be that message of that queue.

Tests: tests/unit/engine/lifecycle/test_recovery.py
"""

import logging

from turbopump.engine.config import QUEUE_UNIT_SIZE
from turbopump.engine.log.commit_log import CommitLog
from turbopump.engine.queues.consume_queue import ConsumeQueues
from turbopump.engine.queues.dispatcher import LogDispatcher
from turbopump.engine.queues.queue_files import ConsumeQueue
from turbopump.engine.types import LIGHT_PREFIX
from turbopump.pyx import queue as queue_kernel
from turbopump.pyx import record as kernel
from turbopump.pyx.record import Record

logger = logging.getLogger(__name__)

SEARCH_MAX = 64 << 20
"""Maximum bytes of the log that a search reads, in some 10 ms, because it blocks the loop. If the
neighbours lie further apart, removing the queue's folder and restarting repairs the queue."""
NEIGHBOURS_MAX = 100
"""Maximum number of neighbours examined on each side for a unit that fits."""
TRIED_MAX = 10_000
"""Maximum number of units that are remembered after a search, so that each costs only one search;
afterwards no further unit is searched."""
# Light message queues point to records of other queues (store.md 9).


class UnitRepair:
    """Repairs units of plain queues. Loop thread only, which a search blocks."""

    def __init__(self, log: CommitLog, queues: ConsumeQueues, dispatcher: LogDispatcher) -> None:
        self._log = log
        self._queues = queues
        self._dispatcher = dispatcher
        self._tried: set[tuple[str, int, int]] = set()

    def repair_units(self, queue: ConsumeQueue, first: int, end: int) -> int:
        """Check the units [first, end) of a queue, write the damaged ones again in the mapped file
        from the log, and log each; returns the number repaired. The log is searched once for each
        unit; 0 for the queue of a light topic (LIGHT_PREFIX)."""
        if queue.topic.startswith(LIGHT_PREFIX):
            return 0
        count = 0
        for queue_offset in range(max(first, queue.min_offset), end):
            name = (queue.topic, queue.queue_id, queue_offset)
            if self._record_of_unit(queue, queue_offset) or name in self._tried:
                continue
            if len(self._tried) >= TRIED_MAX:
                break
            self._tried.add(name)
            record = self._search_log(queue, queue_offset)
            if record is not None:
                self._rewrite_unit(queue, queue_offset, record)
                count += 1
            else:
                logger.error(
                    "%s at byte %d: unit %d of %s/%d does not point to that message, and none was "
                    "found in the log: it is passed over",
                    *self._place_of_unit(queue, queue_offset),
                    queue_offset,
                    queue.topic,
                    queue.queue_id,
                )
        return count

    def _place_of_unit(self, queue: ConsumeQueue, queue_offset: int) -> tuple[str, int]:
        """(path of the queue file of a unit, position of the unit in it)."""
        at = queue_offset * QUEUE_UNIT_SIZE
        start = queue.segments.start_of(at)
        return queue.segments.path(start), at - start

    def _record_of_unit(self, queue: ConsumeQueue, queue_offset: int) -> Record | None:
        """The record that a unit points to; None if it is not the message with that queue
        offset of the queue."""
        for unit in self._queues.units(queue, queue_offset, 1):
            record = self._log.read_record(unit.log_offset)
            if record is not None and record.size == unit.size:
                return record if self._is_message(record, queue, queue_offset) else None
        return None

    def _is_message(self, record: Record, queue: ConsumeQueue, queue_offset: int) -> bool:
        """Whether a record is the message with this queue offset of this queue."""
        name = record.topic.decode(errors="surrogateescape"), record.queue_id
        return name == (queue.topic, queue.queue_id) and record.queue_offset == queue_offset

    def _search_log(self, queue: ConsumeQueue, queue_offset: int) -> Record | None:
        """Search the log for a message between the records of its neighbouring units;
        None if it is not there."""
        log = self._log
        # Earlier bytes hold messages of an earlier life of the topic, with the same numbers.
        at = max(int(log.min), self._queues.deleted_topics.former_life_end(queue.topic))
        end = int(self._dispatcher.position)
        before = range(queue_offset - 1, queue.min_offset - 1, -1)[:NEIGHBOURS_MAX]
        behind = range(queue_offset + 1, self._queues.max_offset(queue))[:NEIGHBOURS_MAX]
        for number in before:
            found = self._record_of_unit(queue, number)
            if found is not None:
                at = found.log_offset + found.size
                break
        for number in behind:
            found = self._record_of_unit(queue, number)
            if found is not None:
                end = found.log_offset
                break
        end = min(end, at + SEARCH_MAX)
        while at < end:
            base = log.segments.start_of(at)
            region, limit = log.file_region(base), min(end - base, log.file_size)
            rows = kernel.scan(region, at - base, limit)
            for row in range(rows.count):
                if rows.rows[row, kernel.QUEUE_OFFSET] == queue_offset:
                    record = log.read_record(base + rows.rows[row, kernel.POSITION])
                    if record is not None and self._is_message(record, queue, queue_offset):
                        return record
            at = base + rows.position
            if rows.status == kernel.BLANK_FOUND:
                at = base + log.file_size
            elif rows.status != kernel.OK:
                break
        return None

    def _rewrite_unit(self, queue: ConsumeQueue, queue_offset: int, record: Record) -> None:
        """Write a damaged unit again, from the record, and log that."""
        path, position = self._place_of_unit(queue, queue_offset)
        region = self._queues.file_region(queue, queue_offset * QUEUE_UNIT_SIZE - position)
        logger.error(
            "%s is damaged at byte %d: unit %d of %s/%d was put right from the log",
            path,
            position,
            queue_offset,
            queue.topic,
            queue.queue_id,
        )
        code = self._dispatcher.tags_code(record)
        queue_kernel.put_unit(region, position, record.log_offset, record.size, code)
