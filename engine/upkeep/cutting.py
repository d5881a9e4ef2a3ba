"""A replica's log is cut, or begins anew, while its loop goes on: by steps that disk threads do.

Owns when such steps begin, what rests meanwhile, when a piece of them counts as failed, and what
follows the log's own (truncation.py, restart.py): its epochs, the counts of its queues. It must
never take bytes. Called by `replicated`, whose other durable steps wait until these are over.

Nothing else may be at work on the files: no sync of the log, no round of the checkpointer, no
removal, no file made ahead, no change of the epoch list. What is under way is waited for, and none
of it begins until the steps are over; of a deletion of a topic what was begun is done before.
"""

from collections.abc import Callable
from typing import TypeVar

from turbopump.engine.disk.disk_steps import Steps
from turbopump.engine.disk.sync_watch import SyncWatch
from turbopump.engine.later import Later
from turbopump.engine.log.epoch_keeping import EpochKeeping
from turbopump.engine.log.group_commit import GroupCommit
from turbopump.engine.queues.queue_counts import QueueCounts
from turbopump.engine.types import LogOffset, StoreError
from turbopump.engine.upkeep import truncation
from turbopump.engine.upkeep.parts import StoreParts
from turbopump.engine.upkeep.restart import steps_of_restart
from turbopump.engine.upkeep.retention import Retention

T = TypeVar("T")
Ended = OSError | StoreError | None
"""How it went."""


class Cutting:
    """Of one store, one at a time. Loop thread only."""

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
        self._told: Later[Ended] | None = None
        self._steps: Steps | None = None
        """Those that have not begun yet."""
        self._size = 0

    @property
    def busy(self) -> bool:
        """Whether steps are under way, or wait to be."""
        return self._told is not None

    def cut(self, log_end: LogOffset, now_ms: int, was_cut: Callable[[], None]) -> Later[Ended]:
        """Cut the log at the start of a record, then its epochs; `was_cut` is called then."""

        def steps() -> Steps:
            yield from truncation.steps_of_cut(self._parts, self._commit, log_end, now_ms)
            yield from self._kept.cutting(log_end)
            was_cut()

        return self._run(steps(), self._parts.log.end - log_end)

    def restart(self, emptied: Callable[[], None]) -> Later[Ended]:
        """Remove the log and all that is derived from it; `emptied` is called then."""
        return self._run(self._restarting(emptied), self._parts.log.end - self._parts.log.min)

    def begin(
        self, log_offset: LogOffset, emptied: Callable[[], None], began: Callable[[], None]
    ) -> Later[Ended]:
        """Have an empty log begin there; its epochs are recorded by now, and label what comes.
        `emptied`, if it had a file, and `began` are called."""
        parts, log, kept = self._parts, self._parts.log, self._kept

        def steps() -> Steps:
            if log_offset % log.file_size:
                text = f"{log_offset} is not where a file of {log.file_size} bytes begins"
                raise StoreError(text)
            if log.segments.count:
                epochs = kept.epochs
                yield from self._restarting(emptied)
                if epochs.entries:
                    yield from kept.adopting(epochs)
            yield from self._counts.forgetting(wanted=True)
            yield log.leave_unused()  # it would be followed by a hole
            log.begin(log_offset)
            parts.dispatcher.start(log_offset, log_offset)
            began()
            # Recovery has to know where queues begin, or a lost first file of one is not missed.
            yield from parts.checkpointer.finishing()

        return self._run(steps(), log.file_size)

    def _restarting(self, emptied: Callable[[], None]) -> Steps:
        self._kept.forget()
        try:
            yield from steps_of_restart(self._parts, self._commit, self._retention)
            yield from self._kept.reopening()
            yield from self._counts.forgetting(wanted=False)
        except OSError as error:
            self._commit.fail(error)
            raise StoreError(f"the log cannot begin anew: {error}") from error
        emptied()

    def _run(self, steps: Steps, size: int) -> Later[Ended]:
        """A piece writes so many bytes at most."""
        assert self._told is None, "two cuts at once"
        told = self._told = Later()
        self._steps, self._size = steps, size
        self._rest(True)
        self._retention.void_ages()
        self.tick()
        return told

    def after(self, begin: Callable[[], Later[T]]) -> Later[T]:
        """What is to wait until the steps that are under way are over."""
        assert self._told is not None, "nothing is under way"
        told: Later[T] = Later()
        self._told.then(lambda _ended: begin().then(told.resolve))
        return told

    def tick(self) -> None:
        """Every 100 ms: begin, once nothing else is under way."""
        log, checkpointer = self._parts.log, self._parts.checkpointer
        if (
            self._steps is not None
            and not self._kept.busy
            and self._commit.is_idle
            and checkpointer.is_free
            and log.is_idle
            and not self._retention.turn.busy
        ):
            self._start(self._steps)

    def finish(self) -> None:
        """Block until it is over."""
        if self._steps is not None:
            self._kept.finish()
            self._commit.let_go()
            self._retention.wait()
            self._parts.checkpointer.wait()
            self._start(self._steps)
        if self.busy:
            self._retention.turn.finish()

    def _start(self, steps: Steps) -> None:
        self._steps = None
        self._retention.turn.run(self._watched(steps), self._ended)

    def _ended(self, ended: Ended) -> None:
        told, self._told = self._told, None
        assert told is not None, "nothing was under way"
        self._rest(False)
        told.resolve(ended)

    def _rest(self, rests: bool) -> None:
        self._commit.rests = self._parts.log.rests = rests
        self._parts.checkpointer.reserve(rests)

    def _watched(self, steps: Steps) -> Steps:
        """A piece that does not return is the store's failure; what comes after that is nothing."""
        commit, failed = self._commit, None
        watch = _Watch(self._parts)
        commit.cut_watch = watch.passed
        try:
            while True:
                try:
                    work = next(steps) if failed is None else steps.throw(failed)
                except StopIteration:
                    return
                failed = None
                watch.begin(self._size)
                try:
                    yield work
                except OSError as error:
                    failed = error
                if commit.failed is not None:
                    raise StoreError(f"the log cannot be cut: {commit.failed}")
        finally:
            commit.cut_watch = None
            steps.close()


class _Watch:
    """A piece may be several syncs: each of them has its time."""

    def __init__(self, parts: StoreParts) -> None:
        self._files = parts.files
        self._watch = SyncWatch("a cut of the log", parts.config)
        self._returned = self._files.syncs_returned()

    def begin(self, size: int) -> None:
        self._watch.begin(size)

    def passed(self, passed_ms: int) -> OSError | None:
        returned = self._files.syncs_returned()
        if returned != self._returned:
            self._returned = returned
            self._watch.returned()
        return self._watch.passed(passed_ms)
