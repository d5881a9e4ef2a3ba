"""Disk threads: the only place of the engine that owns threads.

Owns `Disk`, the way to run blocking disk work off the loop thread, and its two kinds. It must never
touch a table or a file itself: the work it is given does. Called by the store's parts with work
that only syncs, preallocates, writes whole files or removes.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Protocol, TypeVar

T = TypeVar("T")


class Job(Protocol):
    """Work that was handed to a disk."""

    def finish(self) -> None:
        """Block until the work ran and `done` was called (at most once in all)."""


class Disk(Protocol):
    """Runs blocking work elsewhere and reports on the loop thread."""

    def submit(self, work: Callable[[], T], done: Callable[[T | OSError], None]) -> Job:
        """Run `work` on a disk thread, then `done` with its result or OSError on the loop."""

    def close(self) -> None:
        """Finish all work and stop."""


class _FinishedJob:
    def finish(self) -> None:
        return


class InlineDisk:
    """Runs the work at once, on the calling thread: for tests and tools."""

    def submit(self, work: Callable[[], T], done: Callable[[T | OSError], None]) -> Job:
        result: T | OSError
        try:
            result = work()
        except OSError as error:
            result = error
        done(result)
        return _FinishedJob()

    def close(self) -> None:
        return


class Lane:
    """At most one piece of work on a disk at a time."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._job: Job | None = None
        self.busy = False

    def submit(
        self, work: Callable[[], T], done: Callable[[T | OSError], None], disk: Disk | None = None
    ) -> None:
        """As Disk.submit (on `disk`, if given). A programmer error while busy."""
        assert not self.busy, "two pieces of work in one lane"

        def free(result: T | OSError) -> None:
            self.busy = False
            self._job = None
            done(result)

        self.busy = True
        job = (disk or self._disk).submit(work, free)
        # An inline disk is done by now, and `done` may even have begun the next work.
        if self.busy and self._job is None:
            self._job = job

    def finish(self) -> None:
        """Block until the work that is under way, if any, has reported."""
        if self._job is not None:
            self._job.finish()


class _ThreadJob:
    """One piece of work on its way through a disk thread."""

    def __init__(self, work: Callable[[], object], done: Callable[[object], None]) -> None:
        self._work = work
        self._done: Callable[[object], None] | None = done
        self._ran = threading.Event()
        self._result: object = None

    def run(self) -> None:
        try:
            self._result = self._work()
        except OSError as error:
            self._result = error
        except Exception as error:
            # A programmer error must reach the loop as a failure, not end the thread in silence.
            self._result = OSError(f"{type(error).__name__}: {error}")
        self._ran.set()

    def finish(self) -> None:
        self._ran.wait()
        self.deliver()

    def deliver(self) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(self._result)


class DiskThreads:
    """A small pool of threads; results come back through `post` (loop.call_soon_threadsafe)."""

    def __init__(
        self, post: Callable[[Callable[[], None]], object], threads: int = 2
    ) -> None:
        self._post = post
        self._queue: queue.SimpleQueue[_ThreadJob | None] = queue.SimpleQueue()
        self._pending: set[_ThreadJob] = set()
        self._threads = [
            threading.Thread(target=self._run, name=f"disk-{number}", daemon=True)
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, work: Callable[[], T], done: Callable[[T | OSError], None]) -> Job:
        def deliver(result: object) -> None:
            self._pending.discard(job)
            done(result)  # type: ignore[arg-type]

        job = _ThreadJob(work, deliver)
        self._pending.add(job)
        self._queue.put(job)
        return job

    def close(self) -> None:
        while self._pending:
            next(iter(self._pending)).finish()
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        while (job := self._queue.get()) is not None:
            job.run()
            try:
                self._post(job.deliver)
            except RuntimeError:
                continue  # the loop is closed: close() delivers what is left
