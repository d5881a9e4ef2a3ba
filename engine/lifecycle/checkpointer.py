"""Making queues and index durable, then writing the checkpoint that records it.

Owns when a round of syncs is due and the content of the checkpoint; flush_plan.py knows the dirty
files. It must never write a checkpoint before the data that it covers is synced, and never sync on
the loop thread while the store runs.

Tests: tests/unit/engine/log/test_group_commit.py, tests/unit/engine/disk/test_checkpoint.py
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from turbopump.engine.disk import checkpoint as checkpoints
from turbopump.engine.disk.checkpoint import Checkpoint, DurableMarks
from turbopump.engine.disk.disk_steps import Steps, Work, run_to_end
from turbopump.engine.disk.flush import Disk, DiskLane
from turbopump.engine.disk.sync_watch import SyncWatch
from turbopump.engine.lifecycle.flush_plan import DirtyFiles, FlushPlan
from turbopump.engine.log.commit_log import CHECKPOINT_FAILED
from turbopump.engine.queues.dispatcher import LogDispatcher
from turbopump.engine.queues.parts import QueueParts
from turbopump.engine.types import LONG_AGO_MS, LogOffset

logger = logging.getLogger(__name__)

ROUND_BYTES = 256 << 20
"""Bytes of the log with units that are not durable from which a round is due before the thorough
interval ends: after a crash they are dispatched again, in a fraction of a second."""

Done = Callable[[OSError | None], None]
"""Receives, on the loop thread, None or the error of a round."""


class Checkpointer:
    """Writes the checkpoint of a store, in rounds: the dirty files are synced, or the checkpoint is
    written, on a disk thread. At most one round is under way. Loop thread only."""

    def __init__(self, parts: QueueParts, disk: Disk, dispatcher: LogDispatcher) -> None:
        self.checkpoint = Checkpoint()
        """The checkpoint on the disk, or on its way there."""
        self.durable_end = LogOffset(0)
        """Log offset before which queue units are durable, according to the checkpoint on the
        disk."""
        self.durable_log_min = LogOffset(0)
        """Beginning of the log in the checkpoint on the disk, which relies on no byte before it."""
        self.failed: OSError | None = None
        """Error of the first failed round; afterwards no round begins and the store takes no
        messages until it is opened again."""
        self.confirm: LogOffset | None = None
        """confirmOffset to be written; None: the store is not replicated."""
        self.dirty = DirtyFiles(parts, dispatcher)
        """Queues with new units, and the number of units of all queues."""
        self._files, self._config = parts.files, parts.config
        self._log, self._index = parts.log, parts.index
        self._dispatcher = dispatcher
        self._waiting: DurableMarks | None = None
        self._lane = DiskLane(disk)
        self._watch = SyncWatch("queues or checkpoint", parts.config)
        self._ticked_ms = LONG_AGO_MS
        self._last_ms = LONG_AGO_MS
        self._last_thorough_ms = LONG_AGO_MS
        self._requested = False
        self._held = 0
        self._reserved = False
        self._ready: list[Callable[[], None]] = []

    def load(self, saved: Checkpoint) -> None:
        """Set the checkpoint that was read from the disk, before the first round."""
        self.checkpoint = saved
        if saved.marks is not None:
            self.durable_end, self.durable_log_min = saved.marks.queues, saved.marks.log_min

    def start(self, steady_ms: int) -> None:
        """Start the clock when the store is open: the first thorough round is due
        flushConsumeQueueThoroughInterval later."""
        self._last_thorough_ms = steady_ms

    def tick(self, steady_ms: int, log_timestamp_ms: int) -> None:
        """Called every 100 ms with the steady clock and the store time of the last durable record.
        At each flushIntervalConsumeQueue begin to save the log's position and full index files; at
        flushConsumeQueueThoroughInterval, or earlier if a recovery would have to dispatch
        ROUND_BYTES, begin to sync the queues."""
        passed_ms, self._ticked_ms = steady_ms - self._ticked_ms, steady_ms
        if self._lane.busy and self.failed is None:
            late = self._watch.add_elapsed(passed_ms)
            if late is not None:
                self._record_failure(late)
        interval_ms = self._config.flush_interval_consume_queue_ms
        if steady_ms - self._last_ms < interval_ms and not self._requested:
            return
        self._last_ms = steady_ms
        if self._lane.busy or self.failed is not None or self._held or self._reserved:
            return
        thorough_ms = self._config.flush_consume_queue_thorough_interval_ms
        index_waits = self._index is not None and bool(self._index.rolled)
        # A round is noted before the next one begins: until then its reasons still suspend_rounds.
        if self._waiting is None and (
            steady_ms - self._last_thorough_ms >= thorough_ms
            or self._requested
            or index_waits
            or self._dispatcher.position - self.durable_end >= ROUND_BYTES
        ):
            self._last_thorough_ms = steady_ms
            self._requested = False
            self._lane.submit(*self._begin_round())
        elif self._has_progress():
            self._lane.submit(*self._begin_save(log_timestamp_ms))

    def request_round(self) -> None:
        """Let the next tick begin a round that syncs the dirty queues."""
        self._requested = True

    def sync_and_save(self, log_timestamp_ms: int = 0, *, last: bool = False) -> None:
        """Wait for a round under way, then make queues and index durable and save the checkpoint,
        on this thread; the log must be durable already. `log_timestamp_ms`: store time of its last
        record, 0: as before. With `last`, at a close, the current index file counts as finished.
        Raises OSError."""
        self._lane.wait_until_idle()
        run_to_end(self.sync_and_save_steps(log_timestamp_ms, last=last))

    def sync_and_save_steps(self, log_timestamp_ms: int = 0, *, last: bool = False) -> Steps:
        """Steps that do the work of `sync_and_save` without waiting for a round: none may be under
        way or begin. They raise OSError."""
        assert not self._lane.busy, "a round is under way"
        if last and self._index is not None:
            self._index.roll_current_file()
        for begin in (
            partial(self._begin_round, last=last),
            partial(self._begin_save, log_timestamp_ms),
        ):
            if self.failed is not None:
                raise self.failed
            work, done = begin()
            result: OSError | None = None
            try:
                yield work
            except OSError as error:
                result = error
            done(result)
        if self.failed is not None:
            raise self.failed

    def lower_checkpoint(self, index_files: int, cuts_queues: bool) -> None:
        """Lower the checkpoint, durably on return, before a recovery changes the first byte: of
        `index_files` kept index files the last will be written again and no longer counts as
        durable; nor do, in RocketMQ's numbers and with `cuts_queues`, queues whose units are to be
        cut and written again. Raises OSError."""
        changed = old = self.checkpoint
        if self._index is not None:
            closed = max(0, index_files - 1)
            index_end, index_ms = self._index.end_of(closed)
            marks = old.marks
            if marks is not None:
                entries = self._index.entry_count(closed, marks.log_min)
                marks = marks._replace(index=index_end, entry_count=entries)
            index_ms = min(index_ms, old.index_timestamp_ms)
            changed = changed._replace(index_timestamp_ms=index_ms, marks=marks)
        if cuts_queues:
            changed = changed._replace(queue_timestamp_ms=0, queue_log_offset=0)
        if changed != old:
            self.checkpoint = changed
            checkpoints.save(self._files, self._config.root, changed)

    def suspend_rounds(self, ready: Callable[[], None]) -> None:
        """Begin no round before `resume_rounds`, which must follow each call. `ready` is called on
        the loop thread once no round is under way and the checkpointer is not reserved; inside this
        call if that holds already."""
        self._held += 1
        if self._lane.busy or self._reserved:
            self._ready.append(ready)
        else:
            ready()

    def resume_rounds(self) -> None:
        """End a suspension by `suspend_rounds` after queues were deleted; a new round counts the
        queues once no suspension is left."""
        self._held -= 1
        self._requested = True

    @property
    def rounds_are_suspended(self) -> bool:
        """Whether a `ready` of `suspend_rounds` was called and its `resume_rounds` has
        not followed."""
        return self._held > (len(self._ready) if self._reserved else 0)

    @property
    def is_free(self) -> bool:
        """Whether a cut that reserved the checkpointer may begin: no round is under way, and no
        caller of `suspend_rounds` works."""
        return not self._lane.busy and not self.rounds_are_suspended

    def block_rounds(self, reserved: bool) -> None:
        """`block_rounds(True)`: begin no round, and call no `ready` of `suspend_rounds`, because
        the log is about to be cut; does not wait for a round under way. `block_rounds(False)`: end
        that, and call the waiting `ready`."""
        self._reserved = reserved
        if not reserved and not self._lane.busy:
            self._call_ready()

    def mark_uncounted_work(self, queues_end: LogOffset | None = None) -> Callable[[], None]:
        """Return work for any thread that writes into the checkpoint, durably, before queues are
        deleted, that the number of queues is unknown: a recovery must not take them for missing. No
        round may be under way until the work is done; it raises OSError. With `queues_end` a
        recovery dispatches all records from that log offset on, so that their units are made
        again."""

        def lowered(marks: DurableMarks) -> DurableMarks:
            queues = marks.queues if queues_end is None else min(marks.queues, queues_end)
            return marks._replace(queue_count=-1, queues=queues)

        if self._waiting is not None:
            self._waiting = lowered(self._waiting)
        marks = self.checkpoint.marks
        if marks is None:
            return lambda: None
        new = self.checkpoint = self.checkpoint._replace(marks=lowered(marks))
        return lambda: checkpoints.save(self._files, self._config.root, new)

    def doubt_queues(self, start: LogOffset) -> None:
        """Before queues are compared with the log from `start` on: write into the checkpoint,
        durably on return, that later units do not count as durable, because an interrupted recovery
        leaves units that are not. Raises OSError."""
        marks = self.checkpoint.marks
        if marks is not None and marks.queues > start:
            marks = marks._replace(queues=start, queue_count=-1)
            self.checkpoint = self.checkpoint._replace(
                queue_timestamp_ms=0, queue_log_offset=0, marks=marks
            )
            self.durable_end = LogOffset(min(self.durable_end, start))
            checkpoints.save(self._files, self._config.root, self.checkpoint)

    def prepare_cut_work(self, log_end: LogOffset, log_timestamp_ms: int) -> Work:
        """Before the log is cut at `log_end`, after a record stored at `log_timestamp_ms` (epoch
        ms): lower the checkpoint to the cut in memory, in RocketMQ's numbers, too; the returned
        work writes it, durably, and raises OSError. All dispatched units must be durable (see
        `sync_and_save`), and no round may be under way."""
        self._waiting = None
        if self.confirm is not None:
            self.confirm = min(self.confirm, log_end)
        old = self.checkpoint
        marks = old.marks
        index_end, index_ms, entries = LogOffset(0), 0, 0
        if self._index is not None:
            closed = self._index.closed_count(log_end)
            index_end, index_ms = self._index.end_of(closed)
            entries = self._index.entry_count(closed, 0 if marks is None else marks.log_min)
        if marks is not None:
            counts = marks.queue_count, marks.unit_count
            if marks.queues > log_end:
                counts = self.dirty.count_units_before(log_end)
            if marks.index <= index_end:
                index_end, entries = marks.index, marks.entry_count
            marks = DurableMarks(
                min(marks.log, log_end),
                min(marks.queues, log_end),
                index_end,
                *counts,
                entries,
                marks.log_min,
                marks.first_units,
            )
        self.checkpoint = Checkpoint(
            min(old.log_timestamp_ms, log_timestamp_ms),
            min(old.queue_timestamp_ms, log_timestamp_ms),
            min(old.index_timestamp_ms, index_ms),
            min(old.master_flushed_offset, log_end),
            min(old.confirm_offset, log_end),
            min(old.queue_log_offset, log_end),
            marks,
            old.damaged,
        )
        self.durable_end = LogOffset(min(self.durable_end, log_end))
        return partial(checkpoints.save, self._files, self._config.root, self.checkpoint)

    def reset_after_removal(self) -> None:
        """Wait for a round under way, then forget checkpoint and dirty queues, because all files
        are about to be removed, the checkpoint's, too."""
        self._lane.wait_until_idle()
        self._waiting = None
        self.dirty.unmark_all()
        self.checkpoint = Checkpoint()
        self.durable_end = self.durable_log_min = LogOffset(0)
        if self.confirm is not None:
            self.confirm = LogOffset(0)

    def wait_for_round(self) -> None:
        """Block until no round is under way."""
        self._lane.wait_until_idle()

    def _has_progress(self) -> bool:
        """Whether a new checkpoint would cover more than the checkpoint on the disk."""
        if self._waiting is not None and self._waiting.queues <= self._log.flushed:
            return True
        if self.confirm is not None and self.confirm != self.checkpoint.confirm_offset:
            return True
        marks = self.checkpoint.marks
        return marks is not None and marks.log < self._log.checkpoint_boundary(
            self._dispatcher.position
        )

    def _begin_round(self, last: bool = False) -> tuple[Work, Done]:
        """Begin a round: (work that syncs the dirty files, callback for the result)."""
        plan = self.dirty.plan_sync(last)
        files = self._files

        def sync_files() -> None:
            # Files that expire or belong to a topic deleted meanwhile are skipped.
            files.sync_all(plan.paths, list(plan.folders), self._watch.note_sync_ended)

        def on_synced(result: OSError | None) -> None:
            if result is not None:
                self._record_failure(result)
            elif self.failed is None:  # else the round took too long, and its result is ignored
                self._note_durable(plan)
            self._call_ready()

        self._watch.begin_sync(plan.size)
        return sync_files, on_synced

    def _note_durable(self, plan: FlushPlan) -> None:
        """Remember how far the finished round is durable, for the checkpoint that follows."""
        for queue, offset in plan.flushed_queue_ends:
            queue.flushed_offset = offset
        for batch, end in plan.flushed_batch_ends:
            batch.flushed_end = end
        self._waiting = plan.marks
        old = self.checkpoint
        self.checkpoint = old._replace(
            queue_timestamp_ms=plan.timestamp_ms or old.queue_timestamp_ms,
            index_timestamp_ms=plan.index_ms,
            queue_log_offset=plan.last_unit_log_offset or old.queue_log_offset,
        )

    def _begin_save(self, log_timestamp_ms: int) -> tuple[Work, Done]:
        """Begin to write the checkpoint: (work that writes it, callback for the result). Queues and
        log must be durable up to its offsets."""
        waiting, old = self._waiting, self.checkpoint
        if waiting is None or waiting.queues > self._log.flushed:
            waiting = old.marks
        else:
            self._waiting = None
        assert waiting is not None and waiting.queues <= self._log.flushed
        durable = max(self._log.checkpoint_boundary(self._dispatcher.position), waiting.queues)
        marks = waiting._replace(log=durable)
        new = self.checkpoint = old._replace(
            log_timestamp_ms=max(log_timestamp_ms, old.log_timestamp_ms),
            confirm_offset=old.confirm_offset if self.confirm is None else self.confirm,
            marks=marks,
        )

        def save_checkpoint() -> None:
            checkpoints.save(self._files, self._config.root, new)

        def on_saved(result: OSError | None) -> None:
            if result is not None:
                self._record_failure(result)
            elif self.failed is None:
                self.durable_end = marks.queues
                self.durable_log_min = marks.log_min
            self._call_ready()

        self._watch.begin_sync(checkpoints.SIZE)
        return save_checkpoint, on_saved

    def _call_ready(self) -> None:
        """After a round: call the waiting `ready` of `suspend_rounds`, unless the
        checkpointer is reserved."""
        if self._reserved:
            return
        ready, self._ready = self._ready, []
        for callback in ready:
            callback()

    def _record_failure(self, error: OSError) -> None:
        """Keep the first error of a round in `failed`, and refuse writes for good."""
        if self.failed is not None:
            return
        logger.error("queues or checkpoint cannot be made durable, writes are refused: %s", error)
        self.failed = error
        self._log.tail.refuse(CHECKPOINT_FAILED, True)
