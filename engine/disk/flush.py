"""Disk threads: the only place of the engine that owns threads.

Owns `Disk`, the way to run blocking disk work off the loop thread, and its two kinds. It must never
touch a table or a file itself: the work does, and it only syncs, preallocates, writes whole files
or removes.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol, TypeVar

from turbopump.engine.disk.files import MappedFile
from turbopump.engine.disk.real_files import RealMappedFile
from turbopump.pyx.syncer import Syncer

T = TypeVar("T")

RUN_S = 0.001
"""Seconds of Python work on a disk thread before the loop's thread gets a turn."""
PAUSE_S = 0.000_1
"""Seconds that the loop's thread surely gets. The interpreter itself lets a thread run for 5 ms,
and a waiting thread starts to wait again whenever the interpreter was free for a moment."""

_disk_thread = threading.local()

STORE_THREADS = 10
"""Number of disk threads of a store, at least one for each DiskLane: a sync that sends wait for
never waits for a file that is being removed, made or read. An idle thread costs some KB."""

LOOK_S = 0.02
"""Seconds between two checks whether awaited work has reported."""

ABANDONED: list[DiskThreads] = []
"""Disk threads abandoned at shutdown because a task did not return: the process then has to end by
`os._exit`."""


def pause_if_long() -> None:
    """Sleep for PAUSE_S if this disk thread has worked for RUN_S, to give the interpreter to the
    loop's thread: call it between two pieces of long Python work. No-op on other threads."""
    since = getattr(_disk_thread, "since", None)
    if since is not None and time.perf_counter() - since >= RUN_S:
        time.sleep(PAUSE_S)
        _disk_thread.since = time.perf_counter()


class Job(Protocol):
    """A piece of work that was handed to a `Disk`."""

    def wait_and_report(self) -> None:
        """Block until the work ran, and call `done` on this thread if it was not called yet."""


class Disk(Protocol):
    """Runs blocking work elsewhere and reports on the loop thread."""

    def submit(self, work: Callable[[], T], done: Callable[[T | OSError], None]) -> Job:
        """Run `work` on a disk thread, then `done` with its result or OSError on the loop thread.
        Does not wait.

        Pieces of work may run at the same time, in any order; a DiskLane keeps them in order.
        Another exception of `work` is passed to `done` as an OSError.
        """

    def close(self) -> None:
        """Block until all work has reported, then stop; nothing may be submitted afterwards."""


class _FinishedJob:
    """A job whose work has run and reported."""

    def wait_and_report(self) -> None:
        return


class InlineDisk:
    """Runs the work at once, on the calling thread: for tests and tools."""

    def submit(self, work: Callable[[], T], done: Callable[[T | OSError], None]) -> Job:
        """Run `work`, then `done` with its result or OSError, before this call returns; other
        exceptions of `work` pass through."""
        result: T | OSError
        try:
            result = work()
        except OSError as error:
            result = error
        done(result)
        return _FinishedJob()

    def close(self) -> None:
        """No-op: no work is ever under way."""
        return


class DiskLane:
    """A lane that runs at most one piece of disk work at a time; one thread at a time may use
    it."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._job: Job | None = None
        self.busy = False
        """Whether work has not reported yet; already False while its `done` runs."""

    def submit(
        self, work: Callable[[], T], done: Callable[[T | OSError], None], disk: Disk | None = None
    ) -> None:
        """Submit work as `Disk.submit` does, to `disk` if given, else to the lane's disk. Calling
        while `busy` is a programmer error."""
        self._run_job(lambda free: (disk or self._disk).submit(work, free), done)

    def _run_job(
        self, begin: Callable[[Callable[[T], None]], Job], done: Callable[[T], None]
    ) -> None:
        """Mark the lane busy until the job that `begin` starts has reported; then call `done` with
        its result."""
        assert not self.busy, "two pieces of work in one lane"

        def free_lane(result: T) -> None:
            self.busy = False
            self._job = None
            done(result)

        self.busy = True
        job = begin(free_lane)
        # An inline disk is done by now, and `done` may even have begun the next work.
        if self.busy and self._job is None:
            self._job = job

    def sync(
        self,
        ranges: list[tuple[MappedFile, int, int]],
        done: Callable[[OSError | None], None],
    ) -> None:
        """Make ranges of mapped files, (file, first position, position after the last byte),
        durable on a disk thread, then call `done` with None or the first error on the loop thread.
        Calling while `busy` is a programmer error."""
        disk = self._disk
        if isinstance(disk, DiskThreads) and len(ranges) == 1:
            self._run_job(lambda free: disk.sync(*ranges[0], free), done)
            return

        def sync_ranges() -> None:
            for mapped, start, stop in ranges:
                mapped.sync(start, stop)

        self.submit(sync_ranges, done)

    def wait_until_idle(self) -> None:
        """Block until the work under way, if any, has run, and call its `done` on this thread."""
        if self._job is not None:
            self._job.wait_and_report()


class _ThreadJob:
    """A piece of work on its way through a disk thread."""

    __slots__ = ("_done", "_ran", "_result", "_work")

    def __init__(self, work: Callable[[], object], done: Callable[[object], None]) -> None:
        self._work = work
        self._done: Callable[[object], None] | None = done
        # Held until the work ran: an Event costs more than the rest of this class.
        self._ran = threading.Lock()
        self._ran.acquire()
        self._result: object = None

    def run(self) -> None:
        """Run the work on this disk thread and keep its result; an exception becomes an OSError."""
        try:
            self._result = self._work()
        except OSError as error:
            self._result = error
        except Exception as error:
            # A programmer error must reach the loop as a failure, not end the thread silently.
            self._result = OSError(f"{type(error).__name__}: {error}")
        self._ran.release()

    def wait_and_report(self) -> None:
        """Block until the work ran, then `report_result`."""
        with self._ran:
            pass
        self.report_result()

    def report_result(self) -> None:
        """Call `done` with the result of the work, unless it was called before."""
        done, self._done = self._done, None
        if done is not None:
            done(self._result)


class _SyncJob:
    """The sync of a range on its way through the native thread."""

    __slots__ = ("_done", "_path", "_syncer")

    def __init__(self, syncer: Syncer, path: str, done: Callable[[OSError | None], None]) -> None:
        self._syncer = syncer
        self._path = path
        self._done: Callable[[OSError | None], None] | None = done

    def deliver_if_ended(self) -> None:
        """Call `done` if the native thread has ended the sync; does not wait."""
        failed = self._syncer.take()
        if failed is not None:
            self._report_result(failed)

    def wait_and_report(self) -> None:
        """Block until the native thread has ended the sync, and call `done`."""
        if self._done is not None:
            self._report_result(self._syncer.wait())

    def _report_result(self, failed: int) -> None:
        """Call `done` once, with an OSError for the errno `failed`, or None if that is 0."""
        done, self._done = self._done, None
        if done is not None:
            done(OSError(failed, "msync failed", self._path) if failed else None)


class DescriptorLoop(Protocol):
    """A loop that calls back whenever a descriptor is readable (asyncio.AbstractEventLoop)."""

    def add_reader(self, descriptor: int, callback: Callable[[], None], /) -> object:
        """Call `callback` on the loop thread whenever the descriptor is readable."""
        ...

    def remove_reader(self, descriptor: int, /) -> object:
        """End the calls of `add_reader` for the descriptor."""
        ...


class _Worker:
    """A sleeping disk thread, and the job for which it is woken; None: the thread has to end."""

    __slots__ = ("job", "wake")

    def __init__(self) -> None:
        self.job: _ThreadJob | None = None
        self.wake = threading.Lock()
        self.wake.acquire()


class DiskThreads:
    """A `Disk` with a small pool of threads; `post` (loop.call_soon_threadsafe) has to run the
    function that it receives on the loop thread. One thread at a time may use this object.

    Each piece of work wakes one thread. Threads waiting at a common queue would wake each other,
    and each would need the interpreter to see that the queue is empty. With `loop` there is one
    more thread, for `sync`, which sends wait for. It is native: neither it nor the loop waits for
    the interpreter to change hands. It serves only the thread that made this object.
    """

    def __init__(
        self,
        post: Callable[[Callable[[], None]], object],
        threads: int = STORE_THREADS,
        loop: DescriptorLoop | None = None,
    ) -> None:
        self._post = post
        self._pending: set[_ThreadJob | _SyncJob] = set()
        self._syncing: _SyncJob | None = None
        self._syncer: Syncer | None = None
        self._owner = threading.get_ident()
        self._abandoned = False
        if loop is not None:
            self._syncer = Syncer()
            self._loop = loop
            loop.add_reader(self._syncer.descriptor, self._report_native_sync)
        # Guards the next three. Work waits in the queue only while no thread is idle.
        self._lock = threading.Lock()
        self._queue: deque[_ThreadJob] = deque()
        self._idle = [_Worker() for _ in range(threads)]
        self._closed = False
        self._threads = [
            threading.Thread(target=self._run, args=(worker,), name=f"disk-{number}", daemon=True)
            for number, worker in enumerate(self._idle)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, work: Callable[[], T], done: Callable[[T | OSError], None]) -> Job:
        """Run `work` on an idle thread, or once a thread is idle; then `done` with its result or
        OSError on the loop thread. Does not wait; other exceptions become an OSError."""

        def deliver(result: object) -> None:
            self._pending.discard(job)
            done(result)  # type: ignore[arg-type]

        job = _ThreadJob(work, deliver)
        self._pending.add(job)
        with self._lock:
            if not self._idle:
                self._queue.append(job)
                return job
            # The thread that became idle last: its core is the least likely to be asleep.
            worker = self._idle.pop()
        worker.job = job
        worker.wake.release()
        return job

    def sync(
        self, mapped: MappedFile, start: int, end: int, done: Callable[[OSError | None], None]
    ) -> Job:
        """Make positions [start, end) of a mapped file durable, on the native thread if it is idle;
        `done` receives None or the error on the loop thread. Does not wait."""
        syncer = self._syncer
        if (
            syncer is None
            or syncer.busy
            or not isinstance(mapped, RealMappedFile)
            or threading.get_ident() != self._owner  # while a store opens on a thread of its own
        ):
            return self.submit(lambda: mapped.sync(start, end), done)

        def deliver(result: OSError | None) -> None:
            self._pending.discard(job)
            self._syncing = None
            done(result)

        job = _SyncJob(syncer, mapped.path, deliver)
        syncer.begin(mapped.region, start, end - start)
        self._syncing = job
        self._pending.add(job)
        return job

    @property
    def idle(self) -> bool:
        """Whether all submitted work has reported to its `done`."""
        return not self._pending

    def _report_native_sync(self) -> None:
        """The loop's callback for the native thread's descriptor: report the sync if
        it has ended."""
        if self._syncing is not None:
            self._syncing.deliver_if_ended()
        elif self._syncer is not None:
            self._syncer.take()  # a finished wait leaves its event in the descriptor

    def stop_watching(self) -> None:
        """Stop watching the native thread on the loop, so that another thread may call
        `wait_and_report` or `close`. Loop thread only, and no work may be submitted afterwards."""
        if self._syncer is not None:
            self._loop.remove_reader(self._syncer.descriptor)

    def wait_until_idle(self) -> None:
        """Block until all work has reported, including work that a `done` submits; each `done` is
        called on this thread. May run on any thread, while no other thread uses this object."""
        while self._pending:
            next(iter(self._pending)).wait_and_report()

    def abandon_threads(self) -> None:
        """Give up the threads, because some work does not return; does not wait, and adds this
        object to ABANDONED. The threads end with the process, which must end by `os._exit`."""
        self.stop_watching()
        self._abandoned = True
        ABANDONED.append(self)

    async def close_within(self, seconds: float) -> bool:
        """Wait up to `seconds` for all work while the loop runs, then `close`, and return True. If
        some work did not report, `abandon_threads`, and return False."""
        until = time.monotonic() + seconds
        while self._pending and time.monotonic() < until:
            await asyncio.sleep(LOOK_S)
        if self._pending:
            self.abandon_threads()
            return False
        self.close()
        return True

    def close(self) -> None:
        """Block until all work has reported and all threads have ended; no-op after
        `abandon_threads`."""
        if self._abandoned:
            return
        self.wait_until_idle()
        if self._syncer is not None:
            self._loop.remove_reader(self._syncer.descriptor)
            self._syncer.close()
            self._syncer = None
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for worker in idle:
            worker.wake.release()
        for thread in self._threads:
            thread.join()

    def _run(self, worker: _Worker) -> None:
        """Main function of a disk thread: run jobs whenever `worker` is woken, until `close`."""
        _disk_thread.since = 0.0
        while not self._closed:
            worker.wake.acquire()
            job, worker.job = worker.job, None
            while job is not None:
                job.run()
                try:
                    self._post(job.report_result)
                except RuntimeError:
                    pass  # the loop is closed: close() delivers the remaining results
                job = self._next_job(worker)

    def _next_job(self, worker: _Worker) -> _ThreadJob | None:
        """The next waiting job for this thread; None: there is none, and the thread was added to
        the idle threads."""
        with self._lock:
            if self._queue:
                return self._queue.popleft()
            if not self._closed:
                self._idle.append(worker)
            return None


class LastThread:
    """A thread for the last work of a node; the end of the process does not wait for it."""

    def __init__(self, work: Callable[[], None], ended: Callable[[], None]) -> None:
        """Start the thread, which runs `work`, and calls `ended`, also on that thread, when the
        work returned or raised."""
        self._work = work
        self._ended = ended
        self._error: BaseException | None = None
        threading.Thread(target=self._run, name="last", daemon=True).start()

    def raise_failure(self) -> None:
        """Raise the exception that the work raised, if any. Call it only after `ended`: it does not
        wait."""
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        """Main function of the thread: run the work, keep its exception, call `ended`."""
        try:
            self._work()
        except BaseException as error:
            self._error = error
        self._ended()
