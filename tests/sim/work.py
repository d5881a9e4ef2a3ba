"""Disk work that waits until the seed lets it run, so that durability never depends on thread
timing.

A job on a disk thread spends the time of its syncs (`SimDisk.spent_ms`) itself: meanwhile the loop
and the jobs of other threads go on, and the job reports afterwards.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from tests.sim.disk import SimDisk

T = TypeVar("T")

THREADS = 10
"""Number of disk threads of a store (engine/disk/flush.py): no lane of a store waits for another.
"""


class QueuedJob:
    """A piece of work of a QueuedDisk: it runs, and later its report reaches the loop."""

    __slots__ = ("_disk", "_done", "_result", "_work", "free_ms", "returns")

    def __init__(
        self, disk: "QueuedDisk", work: Callable[[], Any], done: Callable[[Any], None]
    ) -> None:
        self._disk = disk
        self._work: Callable[[], Any] | None = work
        self._done: Callable[[Any], None] | None = done
        self._result: Any = None
        self.free_ms = 0
        """Time until which its thread waits for a sync."""
        self.returns: list[tuple[int, Callable[[], None]]] = []
        """Return time and callback of each of its syncs."""

    def run(self, *, on_loop: bool = False) -> None:
        """The work, as a disk thread does it; `on_loop`: the loop's thread waits for it."""
        work, self._work = self._work, None
        if work is not None:
            before_ms = self._disk.spent_ms()
            try:
                with self._disk.returning(self, before_ms, at_once=on_loop):
                    self._result = work()
            except OSError as error:
                self._result = error
            if not on_loop:
                self.free_ms = self._disk.spend(self._disk.spent_ms() - before_ms)

    def tell(self, now_ms: int) -> None:
        """Report the syncs that have returned by now."""
        while self.returns and self.returns[0][0] <= now_ms:
            self.returns.pop(0)[1]()

    def report(self) -> None:
        """Report the result to the loop and end the job."""
        done, self._done = self._done, None
        if done is not None:
            self._disk.jobs.remove(self)
            done(self._result)

    def wait_and_report(self) -> None:
        """Run the job and report it at once, as for a thread that has to wait for it."""
        self.run(on_loop=True)
        self.report()

    @property
    def ran(self) -> bool:
        return self._work is None


class Stands:
    """A machine whose loop blocks while a sync on it is under way: until then its process is
    `paused`.
    """

    name: str
    disk: "SimDisk"
    work: "QueuedDisk"
    paused: bool
    due_ms: int
    stands_until_ms = 0
    """0: it does not stand still."""

    def stand(self, now_ms: int) -> bool:
        """Pause the machine for the sync time that its code spent; return whether it is
        paused now.
        """
        spent_ms, self.disk.spent_ms = self.disk.spent_ms, 0
        if not spent_ms:
            return False
        self.stands_until_ms = max(now_ms, self.stands_until_ms) + spent_ms
        self.paused = True
        return True

    def go_on(self) -> None:
        """The sync returned, or the process is gone."""
        if self.stands_until_ms:
            self.stands_until_ms, self.paused = 0, False

    def mended(self, now_ms: int) -> None:
        """Syncs that are under way return."""
        self.stands_until_ms = min(self.stands_until_ms, now_ms)
        for job in self.work.jobs if hasattr(self, "work") else ():
            job.free_ms = min(job.free_ms, now_ms)
            job.returns = [(min(at_ms, now_ms), returned) for at_ms, returned in job.returns]

    def wakes_ms(self) -> int:
        """Time of the machine's next event."""
        if self.stands_until_ms:
            return self.stands_until_ms
        if hasattr(self, "work"):
            return min([self.due_ms, *(job.free_ms for job in self.work.jobs if job.free_ms)])
        return self.due_ms


class QueuedDisk:
    """Threads' worth of disorder: any piece of work may be done before any other, and reports come
    later than the work."""

    def __init__(
        self,
        rng: random.Random,
        disk: "SimDisk | None" = None,
        now_ms: Callable[[], int] = lambda: 0,
        threads: int = THREADS,
    ) -> None:
        """`disk` is where the work syncs, if that may take time."""
        self.jobs: list[QueuedJob] = []
        self._rng = rng
        self._disk = disk
        self._now_ms = now_ms
        self._threads = threads
        self._free_ms = 0
        """Time after which no thread waits for a sync."""

    def spent_ms(self) -> int:
        """Time of syncs that counts for the loop, in ms."""
        return self._disk.spent_ms if self._disk is not None else 0

    def spend(self, took_ms: int) -> int:
        """Move `took_ms` of sync time from the loop to a disk thread; return when the thread is
        free, 0 if no time was spent.
        """
        if not took_ms or self._disk is None:
            return 0
        self._disk.spent_ms -= took_ms
        free_ms = self._now_ms() + took_ms
        self._free_ms = max(self._free_ms, free_ms)
        return free_ms

    @contextmanager
    def returning(self, job: QueuedJob, before_ms: int, *, at_once: bool) -> Iterator[None]:
        """Wrap a job's work, so that each of its syncs returns at its own time, not all at the
        first.
        """
        disk = self._disk
        if disk is None or at_once or not (disk.sync_ms or disk.hangs):
            yield
            return
        disk.returns, now_ms = [], self._now_ms()
        try:
            yield
        finally:
            job.returns = [
                (now_ms + spent - before_ms, returned) for spent, returned in disk.returns
            ]
            disk.returns = None

    def ready(self) -> list[QueuedJob]:
        """Jobs that can run or report now."""
        if not self._free_ms or not self.jobs:
            return self.jobs
        now_ms = self._now_ms()
        for job in self.jobs:
            job.tell(now_ms)
        if now_ms >= self._free_ms:
            self._free_ms = 0
            return self.jobs
        waiting = sum(job.free_ms > now_ms for job in self.jobs)
        may_begin = waiting < self._threads
        return [job for job in self.jobs if job.free_ms <= now_ms and (job.ran or may_begin)]

    def submit(self, work: Callable[[], T], done: Callable[[T | OSError], None]) -> QueuedJob:
        job = QueuedJob(self, work, done)
        self.jobs.append(job)
        return job

    def step(self) -> None:
        """Do or report some piece of work, if there is one."""
        jobs = self.ready()
        if jobs:
            job = jobs[int(self._rng.random() * len(jobs))]
            if job.ran:
                job.report()
            else:
                job.run()
                if self._rng.random() < 0.6 and not job.free_ms:
                    job.report()

    def close(self) -> None:
        """Do all work, including follow-up work."""
        while self.jobs:
            self.jobs[0].wait_and_report()
