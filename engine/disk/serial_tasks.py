"""Durable steps of a store, run one after the other on a disk thread.

Owns their order: a step begins when the step before it has reported, and sees its results. It must
never know the content of a step, nor run two steps at once. The epoch list and the mark files are
written this way, so that a role changes while the loop runs; and removals of files, with cuts of
the log between them.

Tests: tests/unit/engine/replicated/test_role_steps.py
"""

from collections import deque
from collections.abc import Callable
from functools import partial

from turbopump.engine.disk.disk_steps import Steps
from turbopump.engine.disk.flush import Disk, DiskLane
from turbopump.engine.types import StoreError

Work = Callable[[], None]
"""The work of a step, which a disk thread runs; may raise OSError."""
Done = Callable[[OSError | None], None]
"""Receives, on the loop thread, None or the error of a step."""


class SerialTasks:
    """A queue of durable steps, which run one after the other. Loop thread only; disk
    threads do the work."""

    def __init__(self, disk: Disk) -> None:
        self._lane = DiskLane(disk)
        self._waiting: deque[Callable[[], None]] = deque()
        self._inside = False
        """Whether steps of several pieces are under way."""

    @property
    def busy(self) -> bool:
        """Whether a step is under way or waits."""
        return self._lane.busy or self._inside or bool(self._waiting)

    def submit(self, begin: Callable[[], Work], done: Done) -> None:
        """Queue a step, without waiting: when its turn comes, maybe inside this call, `begin` is
        called on the loop thread and returns the work, a disk thread runs it, and `done` receives
        the error or None on the loop thread."""
        self._waiting.append(lambda: self._lane.submit(begin(), partial(self._report_result, done)))
        self._begin_next()

    def run_steps(self, steps: Steps, done: Callable[[OSError | StoreError | None], None]) -> None:
        """Queue steps of several pieces, with no other step between them, without waiting; `done`
        receives the error that the steps raised, or None, on the loop thread."""

        def begin() -> None:
            self._inside = True
            self._run_piece(steps, done, None)

        self._waiting.append(begin)
        self._begin_next()

    def wait_until_idle(self) -> None:
        """Block until every queued step has reported, also steps that are queued meanwhile: before
        the same files are changed elsewhere. Each `done` is called on this thread."""
        while self.busy:
            self._lane.wait_until_idle()
            self._begin_next()

    def _begin_next(self) -> None:
        """Begin waiting steps until one is under way, unless this is called inside `begin` or
        `done`."""
        while self._waiting and not self._lane.busy and not self._inside:
            self._waiting.popleft()()

    def _run_piece(
        self,
        steps: Steps,
        done: Callable[[OSError | StoreError | None], None],
        result: object,
    ) -> None:
        """Resume the steps with the result of their last piece, and run the next piece on a disk
        thread, or call `done` at their end. Any exception ends the steps."""
        found: OSError | StoreError | None = None
        work = None
        try:
            work = steps.throw(result) if isinstance(result, OSError) else next(steps)
        except StopIteration:
            pass
        except (OSError, StoreError) as error:
            found = error
        finally:
            self._inside = work is not None
        if work is not None:
            self._lane.submit(work, partial(self._run_piece, steps, done))
            return
        done(found)
        self._begin_next()

    def _report_result(self, done: Done, result: OSError | None) -> None:
        """Call `done` with the result of a step, then begin the next step."""
        done(result)
        self._begin_next()
