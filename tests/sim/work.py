"""Disk work that waits until the seed lets it run: nothing is durable by luck of a thread."""

import random
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class QueuedJob:
    """One piece of work on a QueuedDisk: it runs, and later its report reaches the loop."""

    __slots__ = ("_disk", "_done", "_result", "_work")

    def __init__(
        self, disk: "QueuedDisk", work: Callable[[], Any], done: Callable[[Any], None]
    ) -> None:
        self._disk = disk
        self._work: Callable[[], Any] | None = work
        self._done: Callable[[Any], None] | None = done
        self._result: Any = None

    def run(self) -> None:
        """The work, as a disk thread does it."""
        work, self._work = self._work, None
        if work is not None:
            try:
                self._result = work()
            except OSError as error:
                self._result = error

    def report(self) -> None:
        """Tell the loop; the job is over."""
        done, self._done = self._done, None
        if done is not None:
            self._disk.jobs.remove(self)
            done(self._result)

    def finish(self) -> None:
        """What a thread that has to wait for the job does."""
        self.run()
        self.report()

    @property
    def ran(self) -> bool:
        return self._work is None


class QueuedDisk:
    """Two threads' worth of disorder: any piece of work may be done before any other, and reports
    come later than the work."""

    def __init__(self, rng: random.Random) -> None:
        self.jobs: list[QueuedJob] = []
        self._rng = rng

    def submit(self, work: Callable[[], T], done: Callable[[T | OSError], None]) -> QueuedJob:
        job = QueuedJob(self, work, done)
        self.jobs.append(job)
        return job

    def step(self) -> None:
        """Do or report some piece of work, if there is one."""
        if self.jobs:
            job = self.jobs[int(self._rng.random() * len(self.jobs))]
            if job.ran:
                job.report()
            else:
                job.run()
                if self._rng.random() < 0.6:
                    job.report()

    def close(self) -> None:
        """Do all work, also what it leads to."""
        while self.jobs:
            self.jobs[0].finish()
