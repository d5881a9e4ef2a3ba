"""A store with tiny files over a temporary folder, and a disk that works when a test calls it."""

import errno
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from turbopump.engine.config import StoreConfig
from turbopump.engine.disk.files import FileLock, Files, MappedFile
from turbopump.engine.disk.flush import Disk, InlineDisk
from turbopump.engine.disk.real_files import RealFiles
from turbopump.engine.lifecycle.disk_use import read_disk_report
from turbopump.engine.store import Store
from turbopump.engine.types import Appended, NewMessage, Progress, PutStatus, QueueOffset

T = TypeVar("T")
NOW_MS = 1_700_000_000_000
DELAYS_MS = (1000, 5000, 10_000)


class HeldJob:
    """Work of a HeldDisk."""

    def __init__(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        self._work = work
        self._done = done
        self.ran = False
        self.asks_room = getattr(work, "func", None) is read_disk_report

    def run(self) -> None:
        self.ran = True
        result: Any
        try:
            result = self._work()
        except OSError as error:
            result = error
        self._done(result)

    def wait_and_report(self) -> None:
        if not self.ran:
            self.run()


class HeldDisk:
    """A disk that works only in `step`, so that a test sees every moment between two syncs. Log
    files are made at once or, with `holds_files`, by `make_files`."""

    def __init__(self) -> None:
        self.jobs: deque[HeldJob] = deque()
        self.holds_files = False
        self._files: list[HeldJob] = []

    def submit(self, work: Callable[[], T], done: Callable[[T | OSError], None]) -> HeldJob:
        job = HeldJob(work, done)
        if getattr(getattr(work, "func", None), "__name__", "") == "_create":
            if self.holds_files:
                self._files.append(job)
            else:
                job.run()
        else:
            self.jobs.append(job)
        return job

    def make_files(self) -> None:
        """Finish the requested log files, or fail to make them."""
        files, self._files = self._files, []
        for job in files:
            job.wait_and_report()

    def step(self, count: int = 1) -> None:
        """Run the oldest pieces of work."""
        for _ in range(count):
            self.jobs.popleft().wait_and_report()

    def say_room(self) -> None:
        """Report the disk's usage, as a thread without a sync does."""
        for job in [job for job in self.jobs if job.asks_room]:
            self.jobs.remove(job)
            job.wait_and_report()

    def drain(self, *, say_room: bool = True) -> None:
        """Run all queued work and the work that it queues; optionally except for queries of disk
        usage."""
        while todo := [job for job in self.jobs if say_room or not job.asks_room]:
            self.jobs.remove(todo[0])
            todo[0].wait_and_report()

    def close(self) -> None:
        self.drain()


class TroubledMappedFile:
    """A mapping on a disk that may be full or failing."""

    def __init__(self, disk: "TroubledFiles", mapped: MappedFile) -> None:
        self.path, self.size, self.region = mapped.path, mapped.size, mapped.region
        self.mark_dirty, self.data_ranges = mapped.mark_dirty, mapped.data_ranges
        self.close = mapped.close
        self.expect_random, self.expect_scans = mapped.expect_random, mapped.expect_scans
        self.write = mapped.write
        self._disk = disk
        self._mapped = mapped

    def reserve(self, start: int, end: int) -> None:
        self._disk.check_space()
        self._mapped.reserve(start, end)

    def sync(self, start: int, end: int) -> None:
        self._disk.check_sync()
        self._mapped.sync(start, end)


class TroubledFiles(RealFiles):
    """The real files, which can be full or fail to sync."""

    def __init__(self) -> None:
        super().__init__()
        self.full = False
        self.fail_sync = False
        self.used = 0.1

    def check_space(self) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, "no space left on device")

    def check_sync(self) -> None:
        if self.fail_sync:
            raise OSError(errno.EIO, "input/output error")

    def create(self, path: str, size: int, reserved: int = 0) -> MappedFile:
        self.check_space()
        return TroubledMappedFile(self, super().create(path, size, reserved))

    def open(self, path: str, *, readonly: bool = False) -> MappedFile:
        return TroubledMappedFile(self, super().open(path, readonly=readonly))

    def write(self, path: str, data: bytes, position: int = -1) -> None:
        self.check_space()
        super().write(path, data, position)

    def sync(self, path: str) -> None:
        self.check_sync()
        super().sync(path)

    def sync_folder(self, path: str) -> None:
        self.check_sync()
        super().sync_folder(path)

    def used_ratio(self, path: str) -> float:
        return self.used

    def lock(self, path: str, content: bytes) -> FileLock:
        self.check_space()
        return super().lock(path, content)


class RoomyFiles(RealFiles):
    """The real files on a disk with room, so that this machine's disk usage affects no test."""

    def used_ratio(self, path: str) -> float:
        return 0.1


class Stores:
    """Opens stores in a folder; stores still open at the end are killed."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.files: Files = RoomyFiles()
        self.config = StoreConfig(
            str(root),
            mapped_file_size_commit_log=16 * 1024,
            mapped_file_size_consume_queue=200,
            max_hash_slot_num=64,
            max_index_num=100,
            max_message_size=4096,
        )
        self.batch_topics: set[str] = set()
        self.watch: Callable[[Progress], None] = lambda _progress: None
        self._open: list[Store] = []

    def configure(self, **values: Any) -> None:
        """Change settings for the stores opened next."""
        self.config = replace(self.config, **values)

    def open(self, disk: Disk | None = None, now_ms: int = NOW_MS) -> Store:
        """Open the store of the folder."""
        store = Store.open(
            self.files,
            self.config,
            disk or InlineDisk(),
            now_ms,
            delay_levels_ms=DELAYS_MS,
            is_batch_topic=self.batch_topics.__contains__,
            watch=self.watch,
        )
        self._open.append(store)
        return store

    def kill(self, store: Store) -> None:
        """Leave the files as a killed process does: without a flush or an orderly close."""
        self._open.remove(store)
        if store._closed:
            return
        store._pool.close()
        store._lock.release()

    def close(self) -> None:
        """Kill all open stores."""
        while self._open:
            self.kill(self._open[0])


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    """The folder of a store."""
    opened = Stores(tmp_path / "store")
    yield opened
    opened.close()


@pytest.fixture
def troubled(stores: Stores) -> TroubledFiles:
    """Have the stores of this test on a disk that can be full or fail."""
    files = TroubledFiles()
    stores.files = files
    return files


@pytest.fixture
def held_disk() -> HeldDisk:
    """A disk that works when a test calls it."""
    return HeldDisk()


def text(**properties: str) -> bytes:
    """Encode properties of a message."""
    return b"".join(f"{name}\x01{value}\x02".encode() for name, value in properties.items())


@pytest.fixture
def properties() -> Callable[..., bytes]:
    """A function that encodes properties of a message."""
    return text


@pytest.fixture
def put() -> Callable[..., Appended]:
    """Append a message, which the store must accept."""

    def run(
        store: Store,
        topic: str = "T",
        queue_id: int = 0,
        body: bytes = b"body",
        now_ms: int = NOW_MS,
        sys_flag: int = 0,
        **values: str,
    ) -> Appended:
        message = NewMessage(topic, queue_id, body, text(**values), sys_flag=sys_flag)
        appended = store.append(message, now_ms)
        assert appended.status is PutStatus.PUT_OK, appended
        return appended

    return run


@pytest.fixture
def settle() -> Callable[[Store], int]:
    """Advance the clock until all is durable; returns the time."""

    def run(store: Store) -> int:
        now_ms = NOW_MS
        for _ in range(4):
            now_ms += 30_000
            store.tick(now_ms)
        assert store.flushed_log_offset == store.max_log_offset
        return now_ms

    return run


@pytest.fixture
def batch_body() -> Callable[..., bytes]:
    """A batch body (remoting.md 9.4) of bodies without properties."""

    def run(*bodies: bytes) -> bytes:
        return b"".join(
            (22 + len(body)).to_bytes(4, "big")
            + bytes(12)
            + len(body).to_bytes(4, "big")
            + body
            + bytes(2)
            for body in bodies
        )

    return run


@pytest.fixture
def read_bodies() -> Callable[..., list[bytes]]:
    """Bodies of a queue, read as a consumer reads them."""

    def run(store: Store, topic: str = "T", queue_id: int = 0) -> list[bytes]:
        bodies = []
        at = store.min_queue_offset(topic, queue_id)
        while at < store.max_queue_offset(topic, queue_id):
            result = store.read(topic, queue_id, at, 32)
            assert result.next_queue_offset > at
            for unit in store.units(topic, queue_id, at, result.next_queue_offset - at):
                record = store.record(unit.log_offset)
                assert record is not None
                assert record.queue_offset == unit.queue_offset
                bodies.append(record.body)
            at = QueueOffset(result.next_queue_offset)
        return bodies

    return run
