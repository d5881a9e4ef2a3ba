"""Old files are removed by age, by disk usage and on request; queues, index and minimums follow."""

import errno
import os
import shutil
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import delete_expired

from turbopump.engine.disk import checkpoint
from turbopump.engine.disk.real_files import RealFiles
from turbopump.engine.lifecycle import retention
from turbopump.engine.types import NewMessage, PutStatus, ReadStatus

HOUR_MS = 3_600_000
# Noon in UTC: in no time zone is it the fourth hour for all of the tests' hours at once, so the
# hour of deleteWhen is chosen by each test from the local time.
NOW_MS = 1_700_000_000_000
LATER_MS = NOW_MS + 200_000
INTERVAL_MS = 10_000


class UsedFiles(RealFiles):
    """Files on a disk whose usage the test sets."""

    used = 0.1

    def used_ratio(self, path: str) -> float:
        return self.used


@pytest.fixture
def disk(stores: Any) -> UsedFiles:
    files = UsedFiles()
    stores.files = files
    stores.configure(delete_when=other_hour(NOW_MS), file_reserved_time_hours=72)
    return files


def local_hour(now_ms: int) -> int:
    return datetime.fromtimestamp(now_ms // 1000).hour


def other_hour(now_ms: int) -> str:
    """An hour of the day that differs from the present one."""
    return f"{(local_hour(now_ms) + 12) % 24:02d}"


@pytest.fixture
def filled(stores: Any, disk: UsedFiles, put: Any, settle: Any) -> Callable[[], Any]:
    """Open a durable store of several files, all with NOW_MS as their time."""

    def run() -> Any:
        store = stores.open()
        for number in range(120):
            body = b"%d" % number + bytes(1000)
            put(store, "AB"[number % 2], 0, body, KEYS=f"k{number}", TAGS="t")
        assert settle(store) < LATER_MS
        age(stores.root, 0)
        return store

    return run


def age(root: Path, hours: int) -> None:
    """Set the files' time to `hours` before NOW_MS."""
    for path in (root / "commitlog").iterdir():
        seconds = (NOW_MS - hours * HOUR_MS) / 1000
        os.utime(path, (seconds, seconds))


def log_names(root: Path) -> list[int]:
    return sorted(int(path.name) for path in (root / "commitlog").iterdir())


def check_follows(store: Any, root: Path) -> None:
    """Check that queues, index and minimums refer only to existing files."""
    minimum = store.min_log_offset
    assert log_names(root)[0] == minimum > 0
    for topic in "AB":
        first = store.min_queue_offset(topic, 0)
        assert 0 < first < store.max_queue_offset(topic, 0)
        assert store.units(topic, 0, first, 1)[0].log_offset >= minimum
        assert store.store_timestamp_ms(topic, 0, first) > 0
        assert store.store_timestamp_ms(topic, 0, first - 1) == -1
        assert store.read(topic, 0, first - 1, 1).status is ReadStatus.OFFSET_TOO_SMALL
        oldest = min(int(path.name) for path in (root / "consumequeue" / topic / "0").iterdir())
        assert first * 20 - oldest < store.config.queue_file_size
    assert store.query("A", "k0", 9, 0, 1 << 62).slices == []
    assert len(store.query("B", "k119", 9, 0, 1 << 62).slices) == 1
    assert len(list((root / "index").iterdir())) < 4


def test_nothing_goes_before_its_time(stores: Any, disk: UsedFiles, put: Any, filled: Any) -> None:
    store = filled()
    names = log_names(stores.root)
    age(stores.root, 71)
    assert delete_expired(store, NOW_MS) == 0
    age(stores.root, 1000)
    store.tick(LATER_MS)
    assert log_names(stores.root) == names, "neither the hour nor the disk asked for it"


def test_by_hand_old_files_are_removed_but_never_the_last_one(
    stores: Any, disk: UsedFiles, put: Any, filled: Any
) -> None:
    store = filled()
    age(stores.root, 72)
    count = len(log_names(stores.root)) - 1
    removed = delete_expired(store, NOW_MS)
    assert 0 < removed < count
    check_follows(store, stores.root)
    while delete_expired(store, NOW_MS):
        pass
    assert log_names(stores.root)[0] == store.max_log_offset // 16384 * 16384
    assert put(store, "A").status is PutStatus.PUT_OK


def test_at_the_hour_of_delete_when(stores: Any, disk: UsedFiles, put: Any, filled: Any) -> None:
    stores.configure(delete_when=f"{local_hour(NOW_MS):02d}")
    store = filled()
    age(stores.root, 73)
    store.tick(LATER_MS)
    check_follows(store, stores.root)


def test_only_the_oldest_in_a_row(stores: Any, disk: UsedFiles, put: Any, filled: Any) -> None:
    store = filled()
    age(stores.root, 100)
    second = sorted((stores.root / "commitlog").iterdir())[1]
    os.utime(second, (NOW_MS / 1000, NOW_MS / 1000))
    assert delete_expired(store, NOW_MS) == 1


def test_over_disk_max_used_space_ratio_old_files_are_removed(
    stores: Any, disk: UsedFiles, put: Any, filled: Any
) -> None:
    store = filled()
    disk.used = 0.80
    store.tick(LATER_MS)
    assert store.min_log_offset == 0, "nothing is old"
    age(stores.root, 80)
    store.tick(LATER_MS + INTERVAL_MS)
    assert store.min_log_offset > 0
    assert store.put_refusal(NOW_MS) is None


def test_over_the_forcing_ratio_young_files_go_too(
    stores: Any, disk: UsedFiles, put: Any, filled: Any
) -> None:
    store = filled()
    disk.used = 0.86
    store.tick(LATER_MS)
    check_follows(store, stores.root)
    assert store.put_refusal(NOW_MS) is None


def test_forcing_can_be_switched_off(stores: Any, disk: UsedFiles, put: Any, filled: Any) -> None:
    stores.configure(clean_file_forcibly_enable=False)
    store = filled()
    disk.used = 0.95
    store.tick(LATER_MS)
    assert store.min_log_offset == 0


def test_over_the_warning_ratio_writes_are_refused_until_it_helped(
    stores: Any, disk: UsedFiles, put: Any, filled: Any
) -> None:
    store = filled()
    disk.used = 0.91
    store.tick(LATER_MS)
    assert store.put_refusal(NOW_MS) is PutStatus.SERVICE_NOT_AVAILABLE
    assert store.read("A", 0, store.min_queue_offset("A", 0), 1).status is ReadStatus.FOUND
    disk.used = 0.5
    store.tick(LATER_MS + INTERVAL_MS)
    assert put(store, "A").status is PutStatus.PUT_OK


def test_unflushed_files_are_not_removed(
    stores: Any, disk: UsedFiles, put: Any, held_disk: Any
) -> None:
    store = stores.open(held_disk)
    held_disk.drain()
    for _ in range(60):
        put(store, "A", body=bytes(1000))
    age(stores.root, 100)
    assert delete_expired(store, NOW_MS) == 0


def test_a_file_that_is_gone_already_is_forgotten(stores: Any, filled: Any) -> None:
    store = filled()
    sorted((stores.root / "commitlog").iterdir())[0].unlink()
    assert delete_expired(store, NOW_MS) == 1
    assert store.min_log_offset == 16384


@pytest.mark.parametrize("end", ["close", "kill"])
def test_a_restart_keeps_minimums_and_counts(
    stores: Any, disk: UsedFiles, put: Any, filled: Any, read_bodies: Any, end: str
) -> None:
    store = filled()
    age(stores.root, 100)
    delete_expired(store, NOW_MS)
    before = [
        (store.min_queue_offset(topic, 0), store.max_queue_offset(topic, 0)) for topic in "AB"
    ]
    bodies, minimum = read_bodies(store, "A"), store.min_log_offset
    if end == "close":
        store.close(NOW_MS)
    else:
        stores.kill(store)
    again = stores.open()
    assert again.min_log_offset == minimum
    assert [
        (again.min_queue_offset(topic, 0), again.max_queue_offset(topic, 0)) for topic in "AB"
    ] == before
    assert read_bodies(again, "A") == bodies
    check_follows(again, stores.root)
    assert put(again, "A").queue_offset == before[0][1]


def test_a_rebuild_after_files_went_counts_from_where_the_log_begins(
    stores: Any, disk: UsedFiles, put: Any, filled: Any, read_bodies: Any
) -> None:
    """RocketMQ fills the part of a first file before the first offset with a filler."""
    store = filled()
    age(stores.root, 100)
    delete_expired(store, NOW_MS)
    first, last = store.min_queue_offset("A", 0), store.max_queue_offset("A", 0)
    bodies = read_bodies(store, "A")
    store.close(NOW_MS)
    shutil.rmtree(stores.root / "consumequeue")
    for _ in range(2):
        again = stores.open()
        assert again.min_queue_offset("A", 0) == first
        assert again.max_queue_offset("A", 0) == last
        assert read_bodies(again, "A") == bodies
        again.close(NOW_MS)
    name = f"{first * 20 // 200 * 200:020d}"
    data = (stores.root / "consumequeue/A/0" / name).read_bytes()
    blanks = first % 10
    assert data[: blanks * 20] == (bytes(8) + b"\x7f\xff\xff\xff" + bytes(8)) * blanks


def test_batch_queues_and_extensions_follow(
    stores: Any, disk: UsedFiles, put: Any, settle: Any
) -> None:
    stores.batch_topics.add("Inner")
    stores.configure(
        mapper_file_size_batch_consume_queue=92,
        enable_consume_queue_ext=True,
        mapped_file_size_consume_queue_ext=100,
    )
    store = stores.open()
    for _ in range(60):
        message = NewMessage("Inner", 0, bytes(500), b"INNER_NUM\x012\x02", sys_flag=0xC0)
        assert store.append(message, NOW_MS).status is PutStatus.PUT_OK
        put(store, "A", 0, bytes(500), TAGS="t")
    settle(store)
    age(stores.root, 100)
    extensions = len(list((stores.root / "consumequeue_ext/A/0").iterdir()))
    batches = len(list((stores.root / "batchconsumequeue/Inner/0").iterdir()))
    assert delete_expired(store, NOW_MS) > 0
    first = store.min_queue_offset("Inner", 0)
    assert 0 < first < 120
    assert store.read("Inner", 0, first, 1).status is ReadStatus.FOUND
    assert store.read("A", 0, store.min_queue_offset("A", 0), 1).status is ReadStatus.FOUND
    assert len(list((stores.root / "consumequeue_ext/A/0").iterdir())) < extensions
    assert len(list((stores.root / "batchconsumequeue/Inner/0").iterdir())) < batches


@pytest.mark.parametrize("is_batch", [False, True])
def test_a_queue_keeps_its_last_durable_file(
    stores: Any, disk: UsedFiles, put: Any, settle: Any, is_batch: bool
) -> None:
    """Found by the simulation: the next file was not durable yet, and the queue counted from 0
    again after a power cut."""
    queue, unit_size = ("batchconsumequeue", 46) if is_batch else ("consumequeue", 20)
    if is_batch:
        stores.batch_topics = {"C"}
    stores.configure(mapper_file_size_batch_consume_queue=10 * 46)
    store = stores.open()
    for _ in range(10):
        put(store, "C", 0)
    for _ in range(40):
        put(store, "A", 0, bytes(1000))
    settle(store)
    put(store, "C", 0)
    age(stores.root, 100)
    files = stores.root / queue / "C" / "0"
    assert delete_expired(store, NOW_MS) > 0
    names = sorted(int(path.name) for path in files.iterdir())
    assert names == [0, 10 * unit_size], "its second file may be gone after a power cut"
    for _ in range(40):
        put(store, "A", 0, bytes(1000))
    for round_number in range(4):
        store.tick(LATER_MS + round_number * 30_000)
    age(stores.root, 100)
    assert delete_expired(store, NOW_MS) > 0
    assert sorted(int(path.name) for path in files.iterdir()) == [10 * unit_size]


def test_the_log_waits_for_the_checkpoint_that_is_on_its_way(
    stores: Any, disk: UsedFiles, put: Any, held_disk: Any
) -> None:
    """Found by the simulation: with the old checkpoint a recovery would cut queue units of expired
    records."""
    stores.configure(flush_commit_log_least_pages=0, flush_consume_queue_thorough_interval_ms=1)
    store = stores.open(held_disk)
    for _ in range(40):
        put(store, body=bytes(1000))
    held_disk.drain()
    for second in range(3):
        store.tick(NOW_MS + second * 1000)
        if second < 2:
            held_disk.drain()
    age(stores.root, 100)
    marks = checkpoint.load(disk, str(stores.root)).marks
    assert marks is not None and marks.queues == 0
    assert held_disk.jobs, "the checkpoint is on its way"
    assert delete_expired(store, NOW_MS) == 0
    held_disk.drain()
    assert delete_expired(store, NOW_MS) > 0


class StubbornFiles(UsedFiles):
    """A disk on which a file cannot be removed, or a removal does not become durable."""

    stubborn = ""
    bad_sync = False

    def remove(self, path: str) -> None:
        if self.stubborn and path.endswith(self.stubborn):
            raise OSError(errno.EPERM, "operation not permitted")
        super().remove(path)

    def sync_folder(self, path: str) -> None:
        if self.bad_sync and path.endswith("commitlog"):
            raise OSError(errno.EIO, "input/output error")
        super().sync_folder(path)


@pytest.fixture
def stubborn(stores: Any, disk: UsedFiles) -> StubbornFiles:
    stores.files = StubbornFiles()
    return stores.files  # type: ignore[no-any-return]


def test_a_log_file_that_stays_keeps_those_behind_it(
    stores: Any, stubborn: StubbornFiles, filled: Any, read_bodies: Any
) -> None:
    """A hole in the log would prevent the next start."""
    stores.configure(delete_file_batch_max=2)
    store = filled()
    age(stores.root, 100)
    names = log_names(stores.root)
    stubborn.stubborn = f"{names[1]:020d}"
    assert [delete_expired(store, NOW_MS) for _ in range(2)] == [2, 2]
    assert store.min_log_offset == names[4]
    assert log_names(stores.root) == names[1:]
    stores.kill(store)
    again = stores.open()
    assert again.min_log_offset == names[1]
    assert read_bodies(again, "A")
    delete_expired(again, NOW_MS)
    stubborn.stubborn = ""
    again.tick(LATER_MS)
    again.tick(LATER_MS + INTERVAL_MS)
    assert log_names(stores.root) == names[3:]


def test_a_removal_that_is_not_durable_ends_them(
    stores: Any, stubborn: StubbornFiles, filled: Any
) -> None:
    store = filled()
    age(stores.root, 100)
    names = log_names(stores.root)
    stubborn.bad_sync = True
    delete_expired(store, NOW_MS)
    stubborn.bad_sync = False
    for number in range(9):
        store.tick(LATER_MS + number * INTERVAL_MS)
        delete_expired(store, NOW_MS)
    assert log_names(stores.root) == names[1:], "a second sync would succeed in any case"


def test_many_queues_follow_some_at_a_time(
    stores: Any, disk: UsedFiles, put: Any, settle: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(retention, "FOLLOW_MAX", 10)
    store = stores.open()
    for number in range(200):
        put(store, "Q", number % 35, bytes(700))
    now_ms = settle(store)
    age(stores.root, 100)
    assert delete_expired(store, NOW_MS) > 0

    def followed() -> int:
        return sum(store.min_queue_offset("Q", queue_id) > 0 for queue_id in range(35))

    seen = [followed()]
    assert store.read("Q", 34, 0, 1).status is ReadStatus.MESSAGE_WAS_REMOVING
    store.delete_topic("Gone")
    for _ in range(4):
        now_ms += 1
        store.tick(now_ms)
        seen.append(followed())
    assert seen == [10, 20, 30, 35, 35]
    assert store.read("Q", 34, 0, 1).status is ReadStatus.OFFSET_TOO_SMALL


def test_cleaning_does_not_wait_for_removals(
    stores: Any, disk: UsedFiles, put: Any, held_disk: Any
) -> None:
    """While the disk does not answer, files that expire are queued after the pending removals."""
    stores.configure(delete_file_batch_max=1, flush_consume_queue_thorough_interval_ms=1)
    store = stores.open(held_disk)
    for _ in range(60):
        put(store, "A", body=bytes(1000))
    for second in range(4):
        held_disk.drain()
        store.tick(NOW_MS + second * 1000)
    held_disk.drain()
    age(stores.root, 100)
    folder = stores.root / "commitlog"
    before = len(list(folder.iterdir()))
    first, second = store.deleting_expired(NOW_MS), store.deleting_expired(NOW_MS)
    while not second.done:
        held_disk.step()
    assert (first.value, second.value) == (1, 1)
    assert held_disk.jobs and len(list(folder.iterdir())) == before
    held_disk.drain()
    assert len(list(folder.iterdir())) == before - 2
