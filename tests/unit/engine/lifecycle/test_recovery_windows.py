"""The crash windows of recovery.py, each alone: the files after the crash, and the result of the
next start. Windows that need a simulated disk are in test_truncation.py and tests/sim."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from turbopump.engine.disk import checkpoint as checkpoints
from turbopump.engine.disk.real_files import RealFiles
from turbopump.engine.types import StoreError

NOW_MS = 1_700_000_000_000
FOREVER = 1 << 62
FILE_SIZE = 16 * 1024
MESSAGES = 100


def fill(store: Any, put: Any, first: int = 0, count: int = MESSAGES) -> list[int]:
    """Append messages, 23 to each file; returns their log offsets."""
    return [
        put(
            store,
            "T",
            number % 2,
            b"%04d" % number + bytes(600),
            NOW_MS + number,
            KEYS=f"k{number:03d}",
        ).log_offsets[0]
        for number in range(first, first + count)
    ]


def log_file(stores: Any, start: int) -> Path:
    return Path(stores.root / "commitlog" / f"{start:020d}")


def write_at(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def check(stores: Any, put: Any, read_bodies: Any, count: int) -> None:
    """Check that `count` messages are there, in order and by key, that the store accepts more, and
    that a second start has the same result."""
    for more in (0, 1):
        store = stores.open()
        bodies = read_bodies(store, "T", 0) + read_bodies(store, "T", 1)
        assert sorted(int(body[:4]) for body in bodies) == list(range(count + more))
        for number in (0, count // 2, count - 1):
            assert len(store.query("T", f"k{number:03d}", 9, 0, FOREVER).slices) == 1
        if not more:
            fill(store, put, count, 1)
            stores.kill(store)


@pytest.fixture
def killed(stores: Any, put: Any) -> list[int]:
    """Kill a store with all its pages written; returns the log offsets of its records."""
    store = stores.open()
    starts = fill(store, put)
    stores.kill(store)
    return starts


@pytest.mark.parametrize("kept", range(8))
def test_torn_filler(stores: Any, put: Any, read_bodies: Any, killed: list[int], kept: int) -> None:
    """The disk has the first bytes of the last full file's filler, and nothing of the next file."""
    first = next(at for at in killed if at % FILE_SIZE == 0 and at > FILE_SIZE)
    last = killed[killed.index(first) - 1]
    end = last + killed[1] - killed[0]
    path = log_file(stores, last // FILE_SIZE * FILE_SIZE)
    write_at(path, end % FILE_SIZE + kept, bytes(8 - kept))
    for later in list((stores.root / "commitlog").iterdir()):
        if later.name > path.name:
            later.write_bytes(bytes(FILE_SIZE))
    check(stores, put, read_bodies, killed.index(first))


@pytest.mark.parametrize("next_file", ["missing", "empty", "zeros"])
def test_file_roll(
    stores: Any, put: Any, read_bodies: Any, killed: list[int], next_file: str
) -> None:
    """The filler is written, and the next file has no record yet."""
    first = [at for at in killed if at % FILE_SIZE == 0][-1]
    for path in list((stores.root / "commitlog").iterdir()):
        if int(path.name) > first or (int(path.name) == first and next_file == "missing"):
            path.unlink()
    if next_file != "missing":
        log_file(stores, first).write_bytes(b"" if next_file == "empty" else bytes(FILE_SIZE))
    check(stores, put, read_bodies, killed.index(first))


def test_short_last_file(stores: Any, put: Any, read_bodies: Any, killed: list[int]) -> None:
    """The file's tail was never allocated: the size of the other files gives the expected size."""
    last = killed[-1] // FILE_SIZE * FILE_SIZE
    path = log_file(stores, last)
    for later in list((stores.root / "commitlog").iterdir()):
        if later.name > path.name:
            later.unlink()
    path.write_bytes(path.read_bytes()[: killed[-1] - last + 40])
    check(stores, put, read_bodies, MESSAGES - 1)
    assert path.stat().st_size == FILE_SIZE


@pytest.mark.parametrize("number", [60, 99])
def test_zeroed_page_behind_the_mark(
    stores: Any, put: Any, read_bodies: Any, killed: list[int], number: int
) -> None:
    """A power cut lost a page: records after it may be on the disk, and are removed."""
    page = killed[number] // 4096 * 4096
    start = page // FILE_SIZE * FILE_SIZE
    write_at(log_file(stores, start), page - start, bytes(4096))
    size = killed[1] - killed[0]
    whole = sum(at + size <= page for at in killed)
    check(stores, put, read_bodies, whole)


def test_queues_ahead_of_the_log(
    stores: Any, put: Any, read_bodies: Any, killed: list[int]
) -> None:
    """The queues' pages were written, the pages of the last log records were not."""
    start = killed[90] // FILE_SIZE * FILE_SIZE
    for path in (stores.root / "commitlog").iterdir():
        at = max(0, killed[90] - int(path.name))
        if int(path.name) >= start:
            write_at(path, at, bytes(FILE_SIZE - at))
    check(stores, put, read_bodies, 90)


@pytest.mark.parametrize("end", ["kill", "close"])
@pytest.mark.parametrize("what", ["consumequeue", "index"])
def test_queues_and_index_behind_the_log(
    stores: Any, put: Any, read_bodies: Any, what: str, end: str
) -> None:
    """The queue files are older copies: the missing units are added."""
    store = stores.open()
    fill(store, put, 0, 40)
    stores.kill(store)
    shutil.copytree(stores.root / what, stores.root.parent / "copy")
    store = stores.open()
    fill(store, put, 40, 60)
    if end == "kill":
        stores.kill(store)
    else:
        store.close(NOW_MS)
    shutil.rmtree(stores.root / what)
    shutil.copytree(stores.root.parent / "copy", stores.root / what)
    check(stores, put, read_bodies, MESSAGES)


class TestCheckpoint:
    def copies(self, stores: Any, put: Any) -> tuple[list[bytes], list[int]]:
        """Copies of the checkpoint from each start of a store, and the log offsets of the
        records."""
        found, starts = [], []
        for first in range(0, MESSAGES, 20):
            store = stores.open()
            found.append((stores.root / "checkpoint").read_bytes())
            starts += fill(store, put, first, 20)
            stores.kill(store)
        return found, starts

    @pytest.mark.parametrize("number", range(5))
    def test_older_than_the_log(self, stores: Any, put: Any, read_bodies: Any, number: int) -> None:
        copies, _starts = self.copies(stores, put)
        (stores.root / "checkpoint").write_bytes(copies[number])
        check(stores, put, read_bodies, MESSAGES)

    def test_newer_than_the_log(self, stores: Any, put: Any, read_bodies: Any) -> None:
        """Bytes that the checkpoint calls durable are missing: acknowledged messages may be lost,
        so an operator decides. Without the checkpoint the store opens with the rest."""
        copies, starts = self.copies(stores, put)
        store = stores.open()
        stores.kill(store)
        for path in list((stores.root / "commitlog").iterdir()):
            if int(path.name) >= 2 * FILE_SIZE:
                path.unlink()
        with pytest.raises(StoreError, match=r"durable up to \d+, but .* later ones are missing"):
            stores.open()
        assert len(copies) == 5
        (stores.root / "checkpoint").unlink()
        check(stores, put, read_bodies, sum(at < 2 * FILE_SIZE for at in starts))

    def test_newer_than_a_file_from_a_backup(self, stores: Any, put: Any, read_bodies: Any) -> None:
        """F25: a file was replaced by an older copy. Its missing records are damage, not the end of
        the log."""
        copies, starts = self.copies(stores, put)
        store = stores.open()
        stores.kill(store)
        lacking = starts[30]
        path = log_file(stores, lacking // FILE_SIZE * FILE_SIZE)
        write_at(path, lacking % FILE_SIZE, bytes(FILE_SIZE - lacking % FILE_SIZE))
        store = stores.open()
        assert len(copies) == 5
        assert store.damage is None
        assert store.max_log_offset > starts[-1], "nothing is cut"
        file_end = lacking // FILE_SIZE * FILE_SIZE + FILE_SIZE
        there = [n for n, at in enumerate(starts) if at < lacking or at >= file_end]
        assert sorted(int(body[:4]) for body in self.served(store)) == there
        assert store.damage.log_offset == lacking

    @staticmethod
    def served(store: Any) -> list[bytes]:
        found = []
        for queue_id in (0, 1):
            at = 0
            while at < store.max_queue_offset("T", queue_id):
                result = store.read("T", queue_id, at, 32)
                at = result.next_queue_offset
                for piece in result.slices:
                    data = bytes(piece)
                    while data:
                        size = int.from_bytes(data[:4], "big")
                        found.append(data[88:92])
                        data = data[size:]
        return found


def test_abort_file_of_a_start_that_did_nothing(stores: Any, put: Any, read_bodies: Any) -> None:
    """A crash between the mark and the first change has the effect of any other crash."""
    store = stores.open()
    fill(store, put)
    store.close(NOW_MS)
    (stores.root / "abort").write_text("1")
    saved = checkpoints.load(RealFiles(), str(stores.root))
    assert saved.marks is not None
    check(stores, put, read_bodies, MESSAGES)
