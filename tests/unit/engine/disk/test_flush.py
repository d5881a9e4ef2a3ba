"""Disk threads: results come back in the order of the loop, failures as values."""

import asyncio
import ctypes
import errno
import queue
import select
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from turbopump.engine.disk import flush
from turbopump.engine.disk.files import MappedFile
from turbopump.engine.disk.flush import (
    ABANDONED,
    STORE_THREADS,
    Disk,
    DiskLane,
    DiskThreads,
    InlineDisk,
    pause_if_long,
)
from turbopump.engine.disk.real_files import RealFiles, RealMappedFile


class Loop:
    """Runs posted callbacks on the test's thread."""

    def __init__(self) -> None:
        self.posted: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.closed = False

    def post(self, callback: Callable[[], None]) -> None:
        if self.closed:
            raise RuntimeError("the loop is closed")
        self.posted.put(callback)

    def run_one(self) -> None:
        self.posted.get(timeout=30)()


def fail() -> None:
    raise OSError(5, "broken")


def test_work_runs_elsewhere_and_reports_here() -> None:
    loop = Loop()
    disk = DiskThreads(loop.post, threads=1)
    seen: list[Any] = []
    disk.submit(threading.get_ident, lambda result: seen.append((result, threading.get_ident())))
    loop.run_one()
    ((worker, reporter),) = seen
    assert worker != reporter == threading.get_ident()
    disk.close()


def test_failures_are_values() -> None:
    loop = Loop()
    disk = DiskThreads(loop.post, threads=1)
    seen: list[Any] = []
    disk.submit(fail, seen.append)
    disk.submit(lambda: 1 // 0, seen.append)
    disk.submit(lambda: 7, seen.append)
    for _ in range(3):
        loop.run_one()
    assert [type(one) for one in seen] == [OSError, OSError, int]
    assert "ZeroDivisionError" in str(seen[1])
    disk.close()


def test_finish_waits_and_reports_once() -> None:
    loop = Loop()
    disk = DiskThreads(loop.post)
    gate = threading.Event()
    seen: list[Any] = []
    job = disk.submit(lambda: gate.wait(30), seen.append)
    assert seen == []
    gate.set()
    job.wait_and_report()
    assert seen == [True]
    loop.run_one()
    job.wait_and_report()
    assert seen == [True]
    disk.close()


def test_close_finishes_all_even_without_a_loop() -> None:
    loop = Loop()
    disk = DiskThreads(loop.post, threads=2)
    loop.closed = True
    seen: list[Any] = []
    for number in range(20):
        disk.submit(lambda number=number: number, seen.append)  # type: ignore[misc]
    disk.close()
    assert sorted(seen) == list(range(20))


def test_inline_disk_reports_before_submit_returns() -> None:
    seen: list[Any] = []
    InlineDisk().submit(lambda: 3, seen.append).wait_and_report()
    InlineDisk().submit(fail, seen.append)
    assert seen[0] == 3 and isinstance(seen[1], OSError)


def test_a_lane_is_busy_until_its_work_reported() -> None:
    loop = Loop()
    disk = DiskThreads(loop.post, threads=1)
    lane = DiskLane(disk)
    seen: list[Any] = []

    def again(result: int | OSError) -> None:
        seen.append((result, lane.busy))
        if len(seen) < 3:
            lane.submit(lambda: len(seen), again)

    lane.submit(lambda: 0, again)
    assert lane.busy
    lane.wait_until_idle()
    lane.wait_until_idle()
    lane.wait_until_idle()
    assert seen == [(0, False), (1, False), (2, False)]
    assert not lane.busy
    lane.wait_until_idle()
    disk.close()


def test_each_thread_works_and_further_tasks_wait_for_a_free_thread() -> None:
    loop = Loop()
    disk = DiskThreads(loop.post, threads=2)
    gates = [threading.Event() for _ in range(2)]
    begun: queue.SimpleQueue[str] = queue.SimpleQueue()

    def hold(gate: threading.Event) -> None:
        begun.put(threading.current_thread().name)
        assert gate.wait(30)

    seen: list[Any] = []
    for gate in gates:
        disk.submit(lambda gate=gate: hold(gate), seen.append)  # type: ignore[misc]
    names = [begun.get(timeout=30) for _ in gates]
    assert sorted(names) == ["disk-0", "disk-1"]
    for _ in range(2):
        disk.submit(lambda: threading.current_thread().name, seen.append)
    gates[1].set()
    for _ in range(3):
        loop.run_one()
    # The first task is blocked: the other thread did the rest.
    assert seen[0] is None
    assert seen[1] == seen[2]
    gates[0].set()
    loop.run_one()
    assert seen[3] is None
    disk.close()


def test_a_stop_waits_for_so_long_and_no_longer() -> None:
    """A controller or a name server whose disk hangs ends all the same."""

    async def run() -> None:
        loop = asyncio.get_running_loop()
        hanging, reported = threading.Event(), list[object]()
        disk = DiskThreads(loop.call_soon_threadsafe, threads=1)
        disk.submit(hanging.wait, reported.append)
        assert not await disk.close_within(0)
        assert [disk] == ABANDONED
        ABANDONED.clear()
        hanging.set()
        assert await disk.close_within(10)
        assert reported == [True]

    asyncio.run(run())


def test_no_lane_of_a_store_waits_for_another(stores: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    lanes: list[DiskLane] = []
    begin = DiskLane.__init__

    def note(self: DiskLane, disk: Disk) -> None:
        lanes.append(self)
        begin(self, disk)

    monkeypatch.setattr(DiskLane, "__init__", note)
    stores.open().as_replicated(0)
    assert len(lanes) == STORE_THREADS
    loop = Loop()
    disk = DiskThreads(loop.post)
    together = threading.Barrier(STORE_THREADS)
    seen: list[Any] = []
    for _ in lanes:
        disk.submit(lambda: together.wait(30), seen.append)
    for _ in lanes:
        loop.run_one()
    assert sorted(seen) == list(range(STORE_THREADS))
    disk.close()


class Watched:
    """A loop that watches a single descriptor, and runs its callback when the test calls `run`."""

    def __init__(self) -> None:
        self.descriptor = -1
        self.callback: Callable[[], None] = lambda: None
        self.ended = 0

    def add_reader(self, descriptor: int, callback: Callable[[], None], /) -> None:
        self.descriptor, self.callback = descriptor, callback

    def remove_reader(self, descriptor: int, /) -> None:
        assert descriptor == self.descriptor
        self.ended += 1

    def run(self) -> None:
        """Wait until the descriptor is readable, then run its callback."""
        assert select.select([self.descriptor], [], [], 30)[0]
        self.callback()

    @property
    def is_quiet(self) -> bool:
        return not select.select([self.descriptor], [], [], 0)[0]


@pytest.fixture
def mapped(tmp_path: Path) -> Iterator[MappedFile]:
    file = RealFiles().create(str(tmp_path / "file"), 3 * 4096)
    yield file
    file.close()


def test_a_native_sync_reports_through_the_loop(mapped: MappedFile) -> None:
    loop, watched = Loop(), Watched()
    disk = DiskThreads(loop.post, threads=1, loop=watched)
    lane, seen = DiskLane(disk), list[OSError | None]()
    for start, end in ((0, 10), (4090, 8200)):
        lane.sync([(mapped, start, end)], seen.append)
        assert lane.busy
        watched.run()
        assert not lane.busy and watched.is_quiet
    assert seen == [None, None]
    assert loop.posted.empty(), "no thread with Python took part"
    disk.close()
    assert watched.ended == 1


def test_a_native_sync_that_is_waited_for_reports_once(mapped: MappedFile) -> None:
    watched = Watched()
    disk = DiskThreads(Loop().post, threads=1, loop=watched)
    lane, seen = DiskLane(disk), list[OSError | None]()
    lane.sync([(mapped, 0, 10)], seen.append)
    lane.wait_until_idle()
    assert seen == [None]
    lane.sync([(mapped, 0, 10)], seen.append)
    watched.run()  # completes the first sync, or both
    lane.wait_until_idle()
    assert seen == [None, None]
    lane.sync([(mapped, 0, 10)], seen.append)
    disk.close()
    assert seen == [None, None, None]


def test_two_ranges_and_a_second_sync_go_to_a_disk_thread(mapped: MappedFile) -> None:
    loop, watched = Loop(), Watched()
    disk = DiskThreads(loop.post, threads=1, loop=watched)
    one, other, seen = DiskLane(disk), DiskLane(disk), list[str]()
    one.sync([(mapped, 0, 10)], lambda result: seen.append(f"native {result}"))
    other.sync([(mapped, 0, 10)], lambda result: seen.append(f"busy {result}"))
    loop.run_one()
    watched.run()
    one.sync([(mapped, 0, 10), (mapped, 4096, 5000)], lambda result: seen.append(f"two {result}"))
    loop.run_one()
    assert seen == ["busy None", "native None", "two None"]
    disk.close()


def test_while_a_store_opens_on_another_thread_its_syncs_do_not_touch_the_loop(
    mapped: MappedFile,
) -> None:
    watched = Watched()
    disk = DiskThreads(Loop().post, threads=1, loop=watched)
    seen: list[OSError | None] = []

    def opening() -> None:
        lane = DiskLane(disk)
        lane.sync([(mapped, 0, 10)], seen.append)
        lane.wait_until_idle()

    thread = threading.Thread(target=opening)
    thread.start()
    thread.join()
    assert seen == [None] and watched.is_quiet
    disk.close()


def test_a_native_sync_that_fails_names_the_file(tmp_path: Path) -> None:
    watched = Watched()
    file = RealFiles().create(str(tmp_path / "file"), 3 * 4096)
    assert isinstance(file, RealMappedFile)
    disk = DiskThreads(Loop().post, threads=1, loop=watched)
    lane, seen = DiskLane(disk), list[OSError | None]()
    # A hole in the mapping is the only failure of msync that needs no broken disk.
    buffer = (ctypes.c_char * file.size).from_buffer(file._map)
    start = ctypes.addressof(buffer)
    assert ctypes.CDLL(None).munmap(ctypes.c_void_p(start + 4096), ctypes.c_size_t(4096)) == 0
    lane.sync([(file, 0, file.size)], seen.append)
    watched.run()
    (error,) = seen
    assert error is not None and (error.errno, error.filename) == (errno.ENOMEM, file.path)
    disk.close()


def test_long_work_on_a_disk_thread_gives_way_and_elsewhere_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slept: list[tuple[int, float]] = []
    monkeypatch.setattr(flush, "RUN_S", 0.0)
    monkeypatch.setattr(
        flush.time, "sleep", lambda seconds: slept.append((threading.get_ident(), seconds))
    )
    pause_if_long()
    assert not slept
    loop = Loop()
    disk = DiskThreads(loop.post, threads=1)
    for _ in range(2):
        disk.submit(pause_if_long, lambda result: None)
        loop.run_one()
    disk.close()
    assert [seconds for _, seconds in slept] == [flush.PAUSE_S] * 2
    assert threading.get_ident() not in {thread for thread, _ in slept}
    monkeypatch.setattr(flush, "RUN_S", 3600.0)
    disk = DiskThreads(loop.post, threads=1)
    disk.submit(lambda: [pause_if_long() for _ in range(3)], lambda result: None)
    loop.run_one()
    disk.close()
    assert len(slept) <= 3, "after the first one it has run for no time"
