"""Durable steps of a store, one after the other, done by a disk's thread.

Owns their order: a step begins when the one before it has reported, and sees what that one left.
It must never know what a step writes, nor let two of them run at once. Called by `replicated`,
whose small files (the epoch list, the marks) are written so: a role changes while the loop goes on.
"""

from collections import deque
from collections.abc import Callable
from functools import partial

from turbopump.engine.flush import Disk, Lane

Work = Callable[[], None]
Done = Callable[[OSError | None], None]


class InTurn:
    """Loop thread only; the disk's threads do the work."""

    def __init__(self, disk: Disk) -> None:
        self._lane = Lane(disk)
        self._waiting: deque[tuple[Callable[[], Work], Done]] = deque()

    @property
    def busy(self) -> bool:
        """Whether a step is under way, or waits."""
        return self._lane.busy or bool(self._waiting)

    def submit(self, begin: Callable[[], Work], done: Done) -> None:
        """Have `begin` make the work when its turn comes, on the loop; a disk's thread does it, and
        `done` is called on the loop with what went wrong, if anything did."""
        self._waiting.append((begin, done))
        self._next()

    def finish(self) -> None:
        """Block until every step so far has reported: for who changes the same files at once."""
        while self.busy:
            self._lane.finish()
            self._next()

    def _next(self) -> None:
        while self._waiting and not self._lane.busy:
            begin, done = self._waiting.popleft()
            self._lane.submit(begin(), partial(self._ended, done))

    def _ended(self, done: Done, result: OSError | None) -> None:
        done(result)
        self._next()
