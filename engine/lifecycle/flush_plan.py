"""Derived files that are not durable yet, and the plan of a pass that syncs them.

Owns the dirty queues. It must never sync, nor write a checkpoint: it returns a plan with the marks
that hold after the sync. Loop thread only.

Tests: tests/unit/engine/log/test_group_commit.py
"""

from dataclasses import dataclass, field

from turbopump.engine.config import QUEUE_UNIT_SIZE
from turbopump.engine.disk.checkpoint import DurableMarks
from turbopump.engine.queues.batch_queue import BatchQueue
from turbopump.engine.queues.dispatcher import LogDispatcher
from turbopump.engine.queues.index import IndexPart
from turbopump.engine.queues.parts import QueueParts
from turbopump.engine.queues.queue_files import ConsumeQueue
from turbopump.engine.types import LogOffset, QueueOffset

PAGE_SIZE = 4096
"""Bytes of a page, the least that the sync of a queue writes."""


@dataclass(slots=True)
class FlushPlan:
    """The files that one pass has to sync, and the progress that holds after their sync."""

    marks: DurableMarks
    """Marks for the checkpoint once the pass is done."""
    index_ms: int
    """Store time in epoch ms up to which the index is durable after the pass, for RocketMQ."""
    timestamp_ms: int
    """Store time in epoch ms of the last dispatched record."""
    paths: list[str] = field(default_factory=list)
    """Files to sync."""
    folders: dict[str, None] = field(default_factory=dict)
    """Folders to sync after the files; the keys are their paths, in this order."""
    flushed_queue_ends: list[tuple[ConsumeQueue, QueueOffset]] = field(default_factory=list)
    """(queue, queue offset before which its units are durable after the pass)."""
    flushed_batch_ends: list[tuple[BatchQueue, int]] = field(default_factory=list)
    """(batch queue, its `flushed_end` after the pass)."""
    rolled: list[IndexPart] = field(default_factory=list)
    """Full index files to sync."""
    last_unit_log_offset: int = 0
    """Greatest log offset that a synced unit points to; 0 without units."""
    size: int = 0
    """Approximate number of bytes to sync."""


class DirtyFiles:
    """The queues of a store with units that no `plan_sync` has included yet."""

    def __init__(self, parts: QueueParts, dispatcher: LogDispatcher) -> None:
        self._parts = parts
        self._dispatcher = dispatcher
        self._queues: set[int] = set()
        self._batches: set[tuple[str, int]] = set()

    def mark_dirty(self, slots: list[int], batches: list[tuple[str, int]]) -> None:
        """Add queues to which dispatch wrote units: `slots` of consume queues, and (topic, queue
        id) of batch queues."""
        self._queues.update(slots)
        self._batches.update(batches)

    def unmark_queue(self, slot: int) -> None:
        """Unmark the consume queue with this slot, because it was deleted."""
        self._queues.discard(slot)

    def unmark_all(self) -> None:
        """Unmark all queues, because they are on their way to the disk, or removed."""
        self._queues.clear()
        self._batches.clear()

    def count_units(self) -> tuple[int, int]:
        """(number of queues that have or had units, sum of their max offsets), of consume queues
        and batch queues."""
        queues = self._parts.queues
        counts = [queues.max_offset(queue) for queue in queues]
        counts += [batch.max_offset for batch in self._parts.batches]
        return sum(count > 0 for count in counts), sum(counts)

    def count_units_before(self, log_end: LogOffset) -> tuple[int, int]:
        """The result of `count_units` once the queues are cut at `log_end`; reads the queues."""
        queues, batches = self._parts.queues, self._parts.batches
        counts = [queues.end_before(queue, log_end) // QUEUE_UNIT_SIZE for queue in queues]
        counts += [batches.max_offset_before(batch, log_end) for batch in batches]
        return sum(count > 0 for count in counts), sum(counts)

    def plan_sync(self, last: bool) -> FlushPlan:
        """Plan the sync of all dirty files; syncs none. Afterwards no queue is dirty, and the
        caller must carry out the plan. With `last` the current index file counts as finished."""
        index = self._parts.index
        rolled: list[IndexPart] = []
        if index is not None:
            rolled, index.rolled = index.rolled, []
        marks, index_ms = self._marks_after_sync(last)
        plan = FlushPlan(marks, index_ms, self._dispatcher.last_store_timestamp_ms, rolled=rolled)
        self._plan_queues(plan)
        self._plan_batches(plan)
        if self._parts.extensions is not None:
            paths, folders = self._parts.extensions.dirty_paths()
            plan.paths += paths
            plan.folders.update(dict.fromkeys(folders))
        if index is not None and rolled:
            plan.paths += [part.path for part in rolled]
            plan.size += len(rolled) * self._parts.config.index_file_size
            plan.folders[index.folder] = None
        self.unmark_all()
        return plan

    def _plan_queues(self, plan: FlushPlan) -> None:
        """Add the dirty consume queues to the plan."""
        queues = self._parts.queues
        for slot in self._queues:
            queue = queues.by_slot(slot)
            paths, folders, offset = queues.dirty_paths(queue)
            # Set now, not after the round: a file made meanwhile belongs to the next round.
            queue.names_synced = True
            plan.paths += paths
            plan.folders.update(dict.fromkeys(folders))
            plan.flushed_queue_ends.append((queue, offset))
            plan.size += PAGE_SIZE + QUEUE_UNIT_SIZE * max(0, offset - queue.flushed_offset)
            for unit in queues.units(queue, offset - 1, 1):
                plan.last_unit_log_offset = max(plan.last_unit_log_offset, unit.log_offset)

    def _plan_batches(self, plan: FlushPlan) -> None:
        """Add the dirty batch queues to the plan."""
        batches = self._parts.batches
        for name in self._batches:
            batch = batches.find(*name)
            if batch is not None:
                paths, folders, end = batches.dirty_paths(batch)
                batch.names_synced = True
                plan.paths += paths
                plan.folders.update(dict.fromkeys(folders))
                plan.flushed_batch_ends.append((batch, end))

    def _marks_after_sync(self, last: bool) -> tuple[DurableMarks, int]:
        """(DurableMarks that hold once the plan is synced, indexMsgTimestamp for RocketMQ in epoch
        ms)."""
        log, index = self._parts.log, self._parts.index
        index_end, index_ms, entries = LogOffset(0), 0, 0
        dispatched = self._dispatcher.position
        # A recovery has to find again that a topic began anew, until its deletion is on record.
        position = self._dispatcher.new_lives.first_seen(dispatched)
        if self._dispatcher.stalled is None and position == dispatched:
            count, units = self.count_units()
        else:
            # The record that dispatch waits for may have its unit: a recovery cuts that unit before
            # it counts.
            count, units = self.count_units_before(position)
        if index is not None:
            closed = len(index.parts) if last else index.closed_count()
            index_end, index_ms = index.end_of(closed)
            entries = index.entry_count(closed, log.min)
            if last:
                index_end = dispatched
        first_units = self._parts.queues.first_units()
        marks = DurableMarks(
            log.flushed, position, index_end, count, units, entries, log.min, first_units
        )
        return marks, index_ms
