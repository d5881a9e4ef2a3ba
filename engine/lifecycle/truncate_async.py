"""Cutting or restarting a replica's log while its loop runs, in steps on disk threads.

Owns when such steps begin, which other work is suspended meanwhile, when a step counts as failed,
and the work after the log's own steps (truncation.py, restart.py): epochs and queue counts. It must
never take bytes. Other durable steps of `replicated` wait until the steps end.

No other work may touch the files meanwhile: no sync of the log, no round of the checkpointer, no
removal, no next file, no change of the epoch list. Work under way is waited for, and no new work
begins until the steps end; a begun deletion of a topic is finished first.

    idle --cut, restart, begin--> waiting --other work ended--> running --last step--> idle
"""

from collections.abc import Callable
from typing import TypeVar

from turbopump.engine.deferred import Deferred
from turbopump.engine.disk.disk_steps import Steps
from turbopump.engine.disk.sync_watch import SyncWatch
from turbopump.engine.lifecycle import truncation
from turbopump.engine.lifecycle.parts import StoreParts
from turbopump.engine.lifecycle.restart import steps_of_restart
from turbopump.engine.lifecycle.retention import Retention
from turbopump.engine.log.epoch_keeping import EpochKeeping
from turbopump.engine.log.group_commit import GroupCommit
from turbopump.engine.queues.queue_counts import QueueCounts
from turbopump.engine.types import LogOffset, StoreError

T = TypeVar("T")
Ended = OSError | StoreError | None
"""Result of a cut or restart: None if it is complete and durable, or the error."""


class AsyncTruncation:
    """The cuts of a store, one at a time: a call of `begin_cut`, `begin_restart` or `begin_log_at`
    while `busy` is a programmer error. They do not wait: the result resolves on the loop thread.
    Loop thread only."""

    def __init__(
        self,
        parts: StoreParts,
        commit: GroupCommit,
        retention: Retention,
        kept: EpochKeeping,
        counts: QueueCounts,
    ) -> None:
        self._parts, self._commit, self._retention = parts, commit, retention
        self._kept, self._counts = kept, counts
        self._result: Deferred[Ended] | None = None
        self._steps: Steps | None = None
        """Steps that have not begun yet."""
        self._size = 0

    @property
    def busy(self) -> bool:
        """Whether a cut, restart or beginning is under way or waiting."""
        return self._result is not None

    def begin_cut(
        self, log_end: LogOffset, now_ms: int, was_cut: Callable[[], None]
    ) -> Deferred[Ended]:
        """Remove the log from `log_end` on, where a record begins, then the epochs that begin
        there or later; then call `was_cut` on the loop thread, not after an error. `now_ms`: epoch
        ms."""

        def cut_steps() -> Steps:
            yield from truncation.truncation_steps(self._parts, self._commit, log_end, now_ms)
            yield from self._kept.cut_steps(log_end)
            was_cut()

        return self._run(cut_steps(), self._parts.log.end - log_end)

    def begin_restart(self, emptied: Callable[[], None]) -> Deferred[Ended]:
        """Remove the log, all files derived from it, and the epochs; then call `emptied` on the
        loop thread, not after an error."""
        return self._run(self._restart_steps(emptied), self._parts.log.end - self._parts.log.min)

    def begin_log_at(
        self, log_offset: LogOffset, emptied: Callable[[], None], began: Callable[[], None]
    ) -> Deferred[Ended]:
        """Let an empty log begin at `log_offset`, which must be a multiple of the file size. Its
        epochs are already recorded, and label the bytes to come. Calls `emptied` if the log had a
        file, which is removed, then `began`, both on the loop thread."""
        parts, log, kept = self._parts, self._parts.log, self._kept

        def begin_steps() -> Steps:
            if log_offset % log.file_size:
                text = f"{log_offset} is not where a file of {log.file_size} bytes begins"
                raise StoreError(text)
            if log.segments.count:
                epochs = kept.epochs
                yield from self._restart_steps(emptied)
                if epochs.entries:
                    yield from kept.adopt_steps(epochs)
            yield from self._counts.forget_steps(wanted=True)
            yield log.discard_next_file_work()  # a hole would follow the unused file
            log.begin_at(log_offset)
            parts.dispatcher.start(log_offset, log_offset)
            began()
            # Recovery must know where queues begin, or it would not notice a missing first file.
            yield from parts.checkpointer.sync_and_save_steps()

        return self._run(begin_steps(), log.file_size)

    def _restart_steps(self, emptied: Callable[[], None]) -> Steps:
        """Steps that remove log, derived files and epochs, then call `emptied`. Raises StoreError;
        after an OSError the store refuses writes."""
        self._kept.clear_epochs()
        try:
            yield from steps_of_restart(self._parts, self._commit, self._retention)
            yield from self._kept.reopen_steps()
            yield from self._counts.forget_steps(wanted=False)
        except OSError as error:
            self._commit.fail_for_good(error)
            raise StoreError(f"the log cannot be restarted: {error}") from error
        emptied()

    def _run(self, steps: Steps, size: int) -> Deferred[Ended]:
        """Suspend other work and let the steps begin once it has ended; each step writes at most
        `size` bytes. Resolves when the steps have ended."""
        assert self._result is None, "two cuts at once"
        result = self._result = Deferred()
        self._steps, self._size = steps, size
        self._suspend_other_work(True)
        self._retention.void_ages()
        self.tick()
        return result

    def run_after_cut(self, begin: Callable[[], Deferred[T]]) -> Deferred[T]:
        """Call `begin` when the cut under way has ended, well or not, and resolve with the result
        of `begin`. Only while `busy`."""
        assert self._result is not None, "nothing is under way"
        result: Deferred[T] = Deferred()
        self._result.then(lambda _on_ended: begin().then(result.resolve))
        return result

    def tick(self) -> None:
        """Every 100 ms: begin waiting steps once no other work is under way."""
        log, checkpointer = self._parts.log, self._parts.checkpointer
        if (
            self._steps is not None
            and not self._kept.busy
            and self._commit.is_idle
            and checkpointer.is_free
            and log.is_idle
            and not self._retention.turn.busy
        ):
            self._start_steps(self._steps)

    def wait_until_idle(self) -> None:
        """Block until the cut under way or waiting has ended, if any, and its result has
        resolved."""
        if self._steps is not None:
            self._kept.wait_until_idle()
            self._commit.wait_for_sync()
            self._retention.wait_for_removals()
            self._parts.checkpointer.wait_for_round()
            self._start_steps(self._steps)
        if self.busy:
            self._retention.turn.wait_until_idle()

    def _start_steps(self, steps: Steps) -> None:
        """Run the waiting steps in the store's serial tasks."""
        self._steps = None
        self._retention.turn.run_steps(self._with_time_limit(steps), self._on_ended)

    def _on_ended(self, ended: Ended) -> None:
        """The steps have ended: let other work continue, and resolve the result."""
        result, self._result = self._result, None
        assert result is not None, "nothing was under way"
        self._suspend_other_work(False)
        result.resolve(ended)

    def _suspend_other_work(self, suspended: bool) -> None:
        """Suspend syncs, next files and checkpoint rounds (`suspended` True), or let them
        continue."""
        self._commit.is_suspended = self._parts.log.is_suspended = suspended
        self._parts.checkpointer.block_rounds(suspended)

    def _with_time_limit(self, steps: Steps) -> Steps:
        """Run the steps with a time limit. A step that does not return fails the store, and the
        result of later steps is ignored."""
        commit, failed = self._commit, None
        watch = _StepTimeLimit(self._parts)
        commit.cut_watch = watch.add_elapsed_ms
        try:
            while True:
                try:
                    work = next(steps) if failed is None else steps.throw(failed)
                except StopIteration:
                    return
                failed = None
                watch.begin_step(self._size)
                try:
                    yield work
                except OSError as error:
                    failed = error
                if commit.failed is not None:
                    raise StoreError(f"the log cannot be cut: {commit.failed}")
        finally:
            commit.cut_watch = None
            steps.close()


class _StepTimeLimit:
    """The time limit of a step, which may consist of several syncs: each sync has the full
    limit."""

    def __init__(self, parts: StoreParts) -> None:
        self._files = parts.files
        self._watch = SyncWatch("a cut of the log", parts.config)
        self._returned = self._files.syncs_returned()

    def begin_step(self, size: int) -> None:
        """Begin the time of a step that writes `size` bytes."""
        self._watch.begin_sync(size)

    def add_elapsed_ms(self, passed_ms: int) -> OSError | None:
        """Add milliseconds to the time of the step's current sync. Returns a TimeoutError once the
        limit is reached, else None."""
        returned = self._files.syncs_returned()
        if returned != self._returned:
            self._returned = returned
            self._watch.note_sync_ended()
        return self._watch.add_elapsed(passed_ms)
