"""Append, scan, dispatch and recovery of the store, each beside a C loop over the same bytes.

Back of the envelope: a C loop copies 1 KB records into a warm mapping at some 5 million a second
and 128 B ones at 20 million; a Python call into the engine costs about a microsecond or two, so
one-at-a-time appends are bound by the call, and scan, dispatch and recovery (native, a batch a
call) by memory.
"""

import ctypes
import mmap
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bench.engine_append import HOST, ready_lane, send_frame

from turbopump.engine.config import StoreConfig
from turbopump.engine.disk.flush import InlineDisk
from turbopump.engine.disk.real_files import RealFiles
from turbopump.engine.store import Store
from turbopump.engine.types import LogOffset, NewMessage, QueueOffset
from turbopump.pyx import record
from turbopump.pyx.dispatch import DONE, NEEDS_ROOM, UNKNOWN_QUEUE, QueueTable
from turbopump.pyx.lane import Lane
from turbopump.pyx.queue import UNIT_SIZE
from turbopump.pyx.region import Region

COUNT = 100_000
APPENDS = 50_000  # of 1 KB: more than the caches hold
LIMIT_MAP = 256 << 20
# Large enough that opening and closing files does not dominate.
RECOVERED_SIZE = 256 << 20
QUEUES = int(os.environ.get("QUEUES", "1000"))
MEMORY = Path("/dev/shm")
NOW_MS = 1_800_000_000_000
PROPERTIES = b"UNIQ_KEY\x017F0000010000558C00000000000000EF\x02WAIT\x01true\x02"


def message(body: bytes) -> NewMessage:
    """A message with this body for queue 0 of the benchmark's topic."""
    return NewMessage(topic="Bench", queue_id=0, body=body, properties=PROPERTIES)


def open_store(folder: Path, **values: Any) -> Store:
    """Open a store whose syncs run on the calling thread; `values` are fields of StoreConfig."""
    config = StoreConfig(root=str(folder), **{"mapped_file_size_commit_log": 256 << 20, **values})
    return Store.open(RealFiles(), config, InlineDisk(), NOW_MS)


def filled_map(count: int, body: bytes) -> tuple[mmap.mmap, int]:
    """(anonymous mapping with `count` records of a single queue, position of their end)."""
    one = record.record_size(5, len(body), len(PROPERTIES), 8, 8, record.V1)
    memory = mmap.mmap(-1, one * count + 4096)
    region = Region(memory)
    at = 0
    for number in range(count):
        at += record.append(
            region,
            at,
            region.size,
            log_offset=at,
            topic=b"Bench",
            body=body,
            properties=PROPERTIES,
            queue_id=0,
            flag=0,
            queue_offset=number,
            sys_flag=0,
            born_timestamp_ms=NOW_MS,
            born_host=b"\x7f\0\0\1\0\0\0\1",
            store_timestamp_ms=NOW_MS,
            store_host=b"\x7f\0\0\1\0\0\0\1",
            reconsume_times=0,
            prepared_transaction_offset=0,
            version=record.V1,
        )
    region.release()
    return memory, at


def c_buffer(memory: mmap.mmap) -> Any:
    """The memory of a mapping as an argument for ctypes."""
    return (ctypes.c_char * len(memory)).from_buffer(memory)


@pytest.mark.parametrize("size", [128, 1024])
def test_append_store(measure: Any, tmp_path: Path, size: int) -> None:
    """Measure appends by `Store.append`."""
    store = open_store(tmp_path / "store")
    one = message(b"x" * size)

    def append() -> None:
        for _ in range(1000):
            store.append(one, NOW_MS)

    measure(f"append {size} B", append, 1000)
    store.close(NOW_MS)
    shutil.rmtree(tmp_path / "store")


@pytest.mark.parametrize("size", [128, 1024])
def test_append_limit(measure: Any, limits: ctypes.CDLL, tmp_path: Path, size: int) -> None:
    """Copy into new bytes of a warm file mapping that no cache holds, like a log's."""
    one = record.record_size(5, size, len(PROPERTIES), 8, 8, record.V1)
    with open(tmp_path / "file", "w+b") as file:
        file.truncate(LIMIT_MAP)
        memory = mmap.mmap(file.fileno(), LIMIT_MAP)
    memory[:] = bytes(LIMIT_MAP)
    start, source, at = ctypes.addressof(c_buffer(memory)), b"x" * one, 0

    def append() -> None:
        nonlocal at
        if at + one * APPENDS > LIMIT_MAP:
            at = 0
        at += limits.limit_append(ctypes.c_void_p(start + at), source, one, APPENDS)

    measure(f"append {size} B", append, APPENDS)


@pytest.mark.parametrize("dispatched", [False, True], ids=["log", "and-dispatch"])
@pytest.mark.parametrize("size", [128, 1024])
def test_append_native(measure: Any, tmp_path: Path, size: int, dispatched: bool) -> None:
    """Measure the path of plain sends from the decoded request, into new pages of a warm file."""
    folder, frame, count = tmp_path / "store", send_frame(size), APPENDS

    def append(lane: Lane) -> None:
        assert lane.append_repeatedly(frame, HOST, count, dispatched) == count

    with ready_lane(folder) as lane:
        measure(f"append {size} B", append, count, setup=lambda: ((lane,), {}))
    shutil.rmtree(folder)


@pytest.mark.parametrize("size", [128, 1024])
def test_scan_kernel(measure: Any, size: int) -> None:
    """Measure the native scan of records with their CRCs."""
    memory, end = filled_map(COUNT, b"x" * size)
    region = Region(memory)

    def scan() -> None:
        assert record.validate(region, 0, end).count == COUNT

    measure(f"scan {size} B, CRC checked", scan, COUNT)
    region.release()


@pytest.mark.parametrize("size", [128, 1024])
def test_scan_limit(measure: Any, limits: ctypes.CDLL, size: int) -> None:
    """Measure the C loop that reads each byte of the same records once."""
    memory, end = filled_map(COUNT, b"x" * size)
    place = c_buffer(memory)
    measure(f"scan {size} B, CRC checked", lambda: limits.limit_scan(place, end), COUNT)


def test_dispatch_kernel(measure: Any) -> None:
    """Measure the native dispatch of records to one queue."""
    memory, end = filled_map(COUNT, b"x" * 128)
    log = Region(memory)
    units = Region(mmap.mmap(-1, COUNT * UNIT_SIZE))

    def dispatch() -> None:
        table = QueueTable()
        stop = table.dispatch(log, 0, 0, end)
        assert stop.status == UNKNOWN_QUEUE
        slot = table.add(b"Bench", 0)
        assert table.dispatch(log, 0, 0, end).status == NEEDS_ROOM
        table.attach(slot, units, 0, units.size)
        assert table.dispatch(log, 0, 0, end).status == DONE

    measure("dispatch 128 B, no index", dispatch, COUNT)


def test_dispatch_limit(measure: Any, limits: ctypes.CDLL) -> None:
    """Measure the C loop that writes a unit for each of the same records."""
    memory, end = filled_map(COUNT, b"x" * 128)
    place, units = c_buffer(memory), (ctypes.c_char * (COUNT * UNIT_SIZE))()
    measure("dispatch 128 B, no index", lambda: limits.limit_dispatch(place, end, units), COUNT)


def empty_folder(name: str) -> Path:
    """Return a folder in memory if it has room, so that the disk's speed does not matter."""
    has_room = MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > 4 * RECOVERED_SIZE
    folder = Path(tempfile.mkdtemp(prefix=f"turbopump-{name}-", dir=MEMORY if has_room else None))
    return folder / "store"


@pytest.fixture(scope="module", params=[128, 1024])
def log_of(request: pytest.FixtureRequest) -> Iterator[tuple[int, Path, int, int]]:
    """A closed store with RECOVERED_SIZE bytes of log: (body size in bytes, folder, log offset of
    the end, number of records)."""
    root = empty_folder("recovery")
    store = open_store(root, mapped_file_size_commit_log=RECOVERED_SIZE)
    body, count = b"x" * request.param, 0
    one = record.record_size(5, len(body), len(PROPERTIES), 8, 8, record.V1)
    while store.max_log_offset + 2 * one < RECOVERED_SIZE:
        keyed = PROPERTIES.replace(b"558C00000000000000EF", b"558C%016X" % count)
        store.append(NewMessage("Bench", 0, body, keyed), NOW_MS)
        count += 1
    end = store.max_log_offset
    store.close(NOW_MS)
    yield request.param, root, end, count
    shutil.rmtree(root.parent)


@pytest.mark.parametrize("index", [False, True], ids=["queues", "index"])
def test_recovery_store(measure: Any, log_of: tuple[int, Path, int, int], index: bool) -> None:
    """Open after a kill with only the log left: every record is checked and dispatched again."""
    size, root, _end, count = log_of
    config = {"mapped_file_size_commit_log": RECOVERED_SIZE, "message_index_enable": index}
    opened: list[Store] = []

    def setup() -> None:
        if opened:
            opened.pop().close(NOW_MS)
        for name in ("consumequeue", "index"):
            shutil.rmtree(root / name, ignore_errors=True)
        (root / "checkpoint").unlink(missing_ok=True)
        (root / "abort").write_text("1")

    def recover() -> None:
        opened.append(open_store(root, **config))

    measure(recovery_group(size, index), recover, count, setup=setup)
    assert opened[0].max_queue_offset("Bench", 0) == count
    opened.pop().close(NOW_MS)


@pytest.mark.parametrize("index", [False, True], ids=["queues", "index"])
def test_recovery_limit(
    measure: Any, limits: ctypes.CDLL, log_of: tuple[int, Path, int, int], index: bool
) -> None:
    """Scan the same file, freshly mapped, with one unit per record."""
    size, root, end, count = log_of
    units = (ctypes.c_char * (count * UNIT_SIZE))()

    def walk() -> None:
        with open(root / "commitlog" / ("0" * 20), "r+b") as file:
            memory = mmap.mmap(file.fileno(), 0)
        place = c_buffer(memory)
        limits.limit_scan(place, end)
        assert limits.limit_dispatch(place, end, units) == count
        del place
        memory.close()

    measure(recovery_group(size, index), walk, count)


def recovery_group(size: int, index: bool) -> str:
    """Group name of the benchmarks of a recovery."""
    return f"recovery {size} B, {'queues and index' if index else 'queues'}"


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "killed"])
def test_open_queues_store(measure: Any, tmp_path: Path, clean: bool) -> None:
    """Open a store of many queues (QUEUES=100000 in the environment for 100,000)."""
    root = tmp_path / "store"
    store = open_store(root, mapped_file_size_commit_log=64 << 20)
    for number in range(QUEUES):
        store.append(NewMessage(f"Topic{number // 8:06}", number % 8, b"x" * 100), NOW_MS)
    store.close(NOW_MS)
    opened: list[Store] = []

    def setup() -> None:
        if opened:
            opened.pop().close(NOW_MS)
        if not clean:
            (root / "abort").write_text("1")

    def reopen() -> None:
        opened.append(open_store(root, mapped_file_size_commit_log=64 << 20))

    name = "open, queues, " + ("clean" if clean else "after a kill")
    measure(name, reopen, QUEUES, setup=setup)
    assert len(opened[0]._queues) == QUEUES
    opened.pop().close(NOW_MS)
    shutil.rmtree(root)


@pytest.mark.parametrize("megabytes", [64, 512])
def test_open_size_store(measure: Any, megabytes: int) -> None:
    """Open a clean store once per round; its log's size must not matter."""
    root = empty_folder("size")
    size = {"mapped_file_size_commit_log": 64 << 20}
    store = open_store(root, **size)
    one = message(b"x" * (1 << 20))
    for _ in range(megabytes):
        store.append(one, NOW_MS)
    store.close(NOW_MS)
    opened: list[Store] = []

    def setup() -> None:
        if opened:
            opened.pop().close(NOW_MS)

    measure("open, clean", lambda: opened.append(open_store(root, **size)), 1, setup=setup)
    opened.pop().close(NOW_MS)
    shutil.rmtree(root.parent)


def test_read_store(measure: Any, tmp_path: Path) -> None:
    """Measure reads of 32 messages by `Store.read`."""
    store = open_store(tmp_path / "store")
    for _ in range(10_000):
        store.append(message(b"x" * 128), NOW_MS)

    def read() -> None:
        for start in range(0, 9_600, 32):
            assert store.read("Bench", 0, QueueOffset(start), 32, None).count == 32

    measure("read, 32 a call", read, 9_600)
    assert store.record(LogOffset(0)) is not None
    store.close(NOW_MS)


def test_read_limit(measure: Any, limits: ctypes.CDLL) -> None:
    """Measure the C loop over the bytes of the same messages."""
    memory, end = filled_map(9_600, b"x" * 128)
    place = c_buffer(memory)
    measure("read, 32 a call", lambda: limits.limit_scan(place, end), 9_600)
