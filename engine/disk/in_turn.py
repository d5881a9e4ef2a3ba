"""Durable steps of a store, one after the other, done by a disk's thread.

Owns their order: a step begins when the one before it has reported, and sees what that one left.
It must never know what a step writes, nor let two of them run at once. Called by `replicated`,
whose small files (the epoch list, the marks) are written so: a role changes while the loop goes on;
and by `retention` for removals, with cuts of the log between them.
"""

from collections import deque
from collections.abc import Callable
from functools import partial

from turbopump.engine.disk.disk_steps import Steps
from turbopump.engine.disk.flush import Disk, DiskLane
from turbopump.engine.types import StoreError

Work = Callable[[], None]
Done = Callable[[OSError | None], None]


class InTurn:
    """Loop thread only; the disk's threads do the work."""

    def __init__(self, disk: Disk) -> None:
        self._lane = DiskLane(disk)
        self._waiting: deque[Callable[[], None]] = deque()
        self._inside = False
        """Whether something of several pieces is under way."""

    @property
    def busy(self) -> bool:
        """Whether a step is under way, or waits."""
        return self._lane.busy or self._inside or bool(self._waiting)

    def submit(self, begin: Callable[[], Work], done: Done) -> None:
        """Have `begin` make the work when its turn comes, on the loop; a disk's thread does it, and
        `done` is called on the loop with what went wrong, if anything did."""
        self._waiting.append(lambda: self._lane.submit(begin(), partial(self._ended, done)))
        self._next()

    def run(self, steps: Steps, done: Callable[[OSError | StoreError | None], None]) -> None:
        """Have several pieces done when their turn comes, with nothing else between them; `done` is
        called on the loop with what the steps raised, if they did."""

        def begin() -> None:
            self._inside = True
            self._piece(steps, done, None)

        self._waiting.append(begin)
        self._next()

    def finish(self) -> None:
        """Block until every step so far has reported: before the same files are changed at once."""
        while self.busy:
            self._lane.finish()
            self._next()

    def _next(self) -> None:
        while self._waiting and not self._lane.busy and not self._inside:
            self._waiting.popleft()()

    def _piece(
        self,
        steps: Steps,
        done: Callable[[OSError | StoreError | None], None],
        result: object,
    ) -> None:
        """The next one, or it is over. What is no failure of a disk ends it, too."""
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
            self._lane.submit(work, partial(self._piece, steps, done))
            return
        done(found)
        self._next()

    def _ended(self, done: Done, result: OSError | None) -> None:
        done(result)
        self._next()
