"""Disk usage and ages of files are read by a disk thread; the last values count until it
reports."""

import errno
import os
from typing import Any

import pytest
from tests.unit.engine.conftest import HeldDisk, HeldJob

from turbopump.engine.config import StoreConfig
from turbopump.engine.disk.flush import InlineDisk
from turbopump.engine.disk.real_files import RealFiles
from turbopump.engine.lifecycle import disk_use
from turbopump.engine.lifecycle.disk_use import DiskReport, DiskUse
from turbopump.engine.queues.consume_queue import ConsumeQueues
from turbopump.engine.types import PutStatus, StoreHealth

NOW_MS = 1_700_000_000_000
INTERVAL_MS = 10_000
TICK_MS = 100
YEAR_MS = 365 * 24 * 3_600_000


class AskedFiles(RealFiles):
    """Files with a set disk usage; counts the queries, and those made on the loop."""

    def __init__(self) -> None:
        super().__init__()
        self.used = 0.1
        self.error: OSError | None = None
        self.inside = False
        self.asked = 0
        self.on_loop = 0

    def ask(self) -> None:
        self.asked += 1
        self.on_loop += not self.inside

    def used_ratio(self, path: str) -> float:
        self.ask()
        if self.error is not None:
            raise self.error
        return self.used

    def disk_space(self, path: str) -> tuple[int, int]:
        self.ask()
        return 1000, int(1000 * (1 - self.used))

    def modified_ms(self, path: str) -> int:
        self.ask()
        return super().modified_ms(path)


@pytest.fixture
def files(stores: Any, monkeypatch: pytest.MonkeyPatch) -> AskedFiles:
    stores.files = AskedFiles()
    stores.configure(
        delete_when="00;01;02;03;04;05;06;07;08;09;10;11;12;13;14;15;16;17;18;19;20;21;22;23"
    )
    run = HeldJob.run

    def inside(job: HeldJob) -> None:
        stores.files.inside = True
        try:
            run(job)
        finally:
            stores.files.inside = False

    monkeypatch.setattr(HeldJob, "run", inside)
    return stores.files  # type: ignore[no-any-return]


@pytest.fixture
def filled(stores: Any, files: AskedFiles, put: Any, held_disk: HeldDisk) -> Any:
    """A durable store of several files, which has made no query since it was opened."""
    stores.configure(flush_consume_queue_thorough_interval_ms=1)
    store = stores.open(held_disk)
    for _ in range(60):
        put(store, "A", body=bytes(1000))
    for second in range(4):
        held_disk.drain()
        store.tick(NOW_MS + second * 1000)
    held_disk.drain()
    for path in (stores.root / "commitlog").iterdir():
        os.utime(path, (NOW_MS / 1000, NOW_MS / 1000))
    files.asked = files.on_loop = 0
    return store


def test_a_tick_asks_no_disk(filled: Any, files: AskedFiles, held_disk: HeldDisk) -> None:
    """Otherwise a disk that hangs would block the loop, and no lease would be renewed."""
    late_ms = NOW_MS + YEAR_MS
    filled.tick(late_ms)
    assert (files.asked, filled.min_log_offset) == (0, 0)
    assert (filled.disk_used_ratio(), filled.disk_space()) == (0.1, (1000, 900))
    files.used = 0.2
    held_disk.drain()
    assert files.asked > 3, "the disk, and the oldest files"
    assert filled.min_log_offset == 0, "a tick decides"
    filled.tick(late_ms + TICK_MS)
    assert filled.min_log_offset > 0
    assert (filled.disk_used_ratio(), filled.disk_space()) == (0.2, (1000, 800))
    assert files.on_loop == 0


def test_the_last_answer_holds_until_the_next_one(
    filled: Any, files: AskedFiles, held_disk: HeldDisk
) -> None:
    files.used = 0.95
    now_ms = NOW_MS + INTERVAL_MS
    filled.tick(now_ms)
    assert filled.put_refusal(now_ms) is None
    held_disk.drain()
    filled.tick(now_ms + TICK_MS)
    assert filled.put_refusal(now_ms) is PutStatus.SERVICE_NOT_AVAILABLE
    assert filled.why_unfit == "the disk is too full"
    files.used = 0.1
    filled.tick(now_ms + INTERVAL_MS)
    assert filled.put_refusal(now_ms) is PutStatus.SERVICE_NOT_AVAILABLE
    held_disk.drain()
    filled.tick(now_ms + INTERVAL_MS + TICK_MS)
    assert filled.put_refusal(now_ms) is None


@pytest.mark.parametrize("what", ["no answer", "an error"])
def test_a_disk_that_does_not_say_it_is_full(
    filled: Any, files: AskedFiles, held_disk: HeldDisk, what: str
) -> None:
    """Otherwise the store would accept messages forever on an outdated disk usage."""
    files.error = OSError(errno.EIO, "input/output error") if what == "an error" else None
    now_ms = NOW_MS + INTERVAL_MS
    filled.tick(now_ms)
    for _ in range(disk_use.SILENT_MS // TICK_MS):
        assert filled.health is StoreHealth.FIT
        if what == "an error":
            held_disk.say_room()
        held_disk.drain(say_room=False)
        now_ms += TICK_MS
        filled.tick(now_ms)
    assert filled.put_refusal(now_ms) is PutStatus.SERVICE_NOT_AVAILABLE
    assert filled.health is StoreHealth.FULL
    assert filled.why_unfit == "the disk does not say how full it is"
    files.error = None
    filled.tick(now_ms + 1000)
    held_disk.drain()
    filled.tick(now_ms + 1000 + TICK_MS)
    assert filled.put_refusal(now_ms) is None
    assert filled.why_unfit == ""


def test_a_process_that_stood_still_has_not_waited(filled: Any, held_disk: HeldDisk) -> None:
    """The disk may have answered during the pause."""
    filled.tick(NOW_MS + INTERVAL_MS)
    filled.tick(NOW_MS + INTERVAL_MS * 100)
    assert filled.health is StoreHealth.FIT


def test_a_disk_is_asked_once_at_a_time(filled: Any, held_disk: HeldDisk) -> None:
    filled.tick(NOW_MS + INTERVAL_MS)
    jobs = len(held_disk.jobs)
    filled.tick(NOW_MS + INTERVAL_MS * 2)
    assert len(held_disk.jobs) == jobs


def test_a_file_that_was_made_meanwhile_has_no_age(
    stores: Any, filled: Any, files: AskedFiles, held_disk: HeldDisk
) -> None:
    """The disk reports on the log from before the truncation, and new files have the same names."""
    late_ms = NOW_MS + YEAR_MS
    filled.tick(late_ms)
    filled.truncate(filled.max_log_offset, late_ms)
    held_disk.drain()
    filled.tick(late_ms + TICK_MS)
    assert filled.min_log_offset == 0
    filled.tick(late_ms + TICK_MS + INTERVAL_MS)
    held_disk.drain()
    filled.tick(late_ms + 2 * TICK_MS + INTERVAL_MS)
    assert filled.min_log_offset > 0


def test_files_that_are_deleted_by_hand_are_asked_for_by_a_disks_thread(
    filled: Any, files: AskedFiles, held_disk: HeldDisk
) -> None:
    files.on_loop = files.asked = 0
    result = filled.deleting_expired(NOW_MS + YEAR_MS)
    assert (result.done, files.asked, filled.min_log_offset) == (False, 0, 0)
    held_disk.drain()
    assert result.value > 0
    assert filled.min_log_offset > 0
    assert files.asked > 0
    assert files.on_loop == 0


def test_files_that_cannot_be_looked_into_when_others_are_deleted_are_an_answer(
    filled: Any, held_disk: HeldDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(ConsumeQueues, "correct_min", broken)
    result = filled.deleting_expired(NOW_MS + YEAR_MS)
    held_disk.drain()
    assert isinstance(result.value, OSError)


def test_reports_of_times_before_a_cut_are_void(tmp_path: Any) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"")
    config = StoreConfig(str(tmp_path))
    use = DiskUse(RealFiles(), config, InlineDisk(), DiskReport(0.0, (0, 0)))
    use.begin_query([str(path), str(path) + "gone"])
    room = use.take_report()
    assert room is not None
    assert room.modified_ms == {
        str(path): path.stat().st_mtime_ns // 1_000_000,
        str(path) + "gone": None,
    }
    use.begin_query([str(path)])
    use.void_ages()
    room = use.take_report()
    assert room is not None
    assert room.modified_ms == {}
