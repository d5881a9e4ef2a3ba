"""Durability: group commit, visibility with SYNC_FLUSH, intervals of ASYNC_FLUSH, failures."""

import errno
from typing import Any

import pytest

from turbopump.engine.disk import checkpoint as checkpoints
from turbopump.engine.disk import sync_watch
from turbopump.engine.disk.files import MappedFile
from turbopump.engine.disk.real_files import RealFiles
from turbopump.engine.lifecycle import checkpointer
from turbopump.engine.log import group_commit
from turbopump.engine.types import (
    FlushMode,
    NewMessage,
    PutStatus,
    ReadStatus,
    StoreError,
    StoreHealth,
)

NOW_MS = 1_700_000_000_000


@pytest.fixture
def sync(stores: Any) -> Any:
    stores.configure(flush_disk_type=FlushMode.SYNC_FLUSH)
    return stores


def statuses(store: Any, *appended: Any) -> list[PutStatus]:
    """Statuses of the responses, as they arrive."""
    seen: list[PutStatus] = []
    for one in appended:
        store.when_safe(one).then(seen.append)
    return seen


def test_async_flush_answers_at_once(stores: Any, put: Any, held_disk: Any) -> None:
    store = stores.open(held_disk)
    held_disk.drain()
    assert statuses(store, put(store)) == [PutStatus.PUT_OK]
    assert store.flushed_log_offset == 0
    assert store.dispatched_log_offset == store.max_log_offset > 0


def test_async_flush_follows_its_rhythm(stores: Any, put: Any, held_disk: Any) -> None:
    stores.configure(flush_commit_log_least_pages=2)
    store = stores.open(held_disk)
    held_disk.drain()
    store.tick(NOW_MS)
    held_disk.drain()
    put(store, body=bytes(10))
    store.tick(NOW_MS + 600)
    held_disk.drain()
    assert store.flushed_log_offset == 0, "less than flushCommitLogLeastPages"
    for _ in range(3):
        put(store, body=bytes(3000))
    store.tick(NOW_MS + 700)
    held_disk.drain()
    assert store.flushed_log_offset == 0, "before flushIntervalCommitLog"
    store.tick(NOW_MS + 1200)
    held_disk.drain()
    assert store.flushed_log_offset == store.max_log_offset
    put(store)
    store.tick(NOW_MS + 10_100)
    held_disk.drain()
    assert store.flushed_log_offset == store.max_log_offset, "the thorough flush takes all"


def test_sync_flush_answers_and_shows_only_durable_messages(
    sync: Any, put: Any, held_disk: Any
) -> None:
    store = sync.open(held_disk)
    held_disk.drain()
    arrivals: list[int] = []
    store.on_arrival(lambda topic, queue_id, maximum: arrivals.append(maximum))
    first = put(store)
    responses = statuses(store, first)
    assert (responses, arrivals, store.dispatched_log_offset) == ([], [], 0)
    assert store.read("T", 0, 0, 32).status is ReadStatus.NO_MESSAGE_IN_QUEUE
    assert store.record(first.log_offsets[0]) is None
    held_disk.drain()
    assert (responses, arrivals) == ([PutStatus.PUT_OK], [1])
    assert store.dispatched_log_offset == store.flushed_log_offset == first.end
    assert store.read("T", 0, 0, 32).count == 1


def test_group_commit_shares_one_sync_among_all_that_wait(
    sync: Any, put: Any, held_disk: Any
) -> None:
    store = sync.open(held_disk)
    held_disk.drain()
    appended = [put(store, body=b"%d" % number) for number in range(10)]
    responses = statuses(store, *appended)
    while len(held_disk.jobs) > 1:
        held_disk.step()
    syncs = 0
    while held_disk.jobs:
        held_disk.step()
        syncs += 1
    assert responses == [PutStatus.PUT_OK] * 10
    assert syncs == 2, "the first one's, and one for the nine that came meanwhile"
    assert store.read("T", 0, 0, 32).count == 10


def test_queue_offsets_count_on_while_nothing_is_visible(
    sync: Any, put: Any, held_disk: Any, read_bodies: Any
) -> None:
    store = sync.open(held_disk)
    held_disk.drain()
    assert [put(store, body=b"%d" % n).queue_offset for n in range(5)] == [0, 1, 2, 3, 4]
    assert store.max_queue_offset("T", 0) == 0
    held_disk.drain()
    assert read_bodies(store) == [b"0", b"1", b"2", b"3", b"4"]


def test_a_wait_that_takes_too_long_is_a_timeout_and_the_message_stays(
    sync: Any, put: Any, held_disk: Any
) -> None:
    store = sync.open(held_disk)
    held_disk.drain()
    responses = statuses(store, put(store))
    store.tick(NOW_MS + 4999)
    assert responses == []
    store.tick(NOW_MS + 5000)
    assert responses == [PutStatus.FLUSH_DISK_TIMEOUT]
    held_disk.drain()
    assert responses == [PutStatus.FLUSH_DISK_TIMEOUT]
    assert store.max_queue_offset("T", 0) == 1


def test_a_clock_set_back_pauses_nothing(
    stores: Any, sync: Any, put: Any, held_disk: Any, troubled: Any
) -> None:
    """Flushes, deadlines, the checkpoint and the disk's usage use the steady clock."""
    sync.configure(flush_disk_type=FlushMode.ASYNC_FLUSH)
    store = sync.open(held_disk)
    held_disk.drain()
    put(store)
    back_ms = NOW_MS - 3_600_000
    store.tick(NOW_MS, NOW_MS)
    held_disk.drain()
    put(store, body=bytes(4096))
    store.tick(back_ms, NOW_MS + 10_000)
    held_disk.drain()
    assert store.flushed_log_offset == store.max_log_offset
    troubled.used = 0.99
    store.tick(back_ms, NOW_MS + 20_000)
    held_disk.drain()
    store.tick(back_ms, NOW_MS + 20_100)
    assert store.put_refusal(back_ms) is PutStatus.SERVICE_NOT_AVAILABLE, "the disk was looked at"
    held_disk.drain()
    store.tick(back_ms, NOW_MS + 90_000)
    held_disk.drain()
    store.tick(back_ms, NOW_MS + 92_000)
    held_disk.drain()
    saved = checkpoints.load(troubled, str(sync.root))
    assert saved.marks is not None and saved.marks.queues == store.max_log_offset
    assert store.statistics.rate("put_count", 60) > 0


def test_a_deadline_does_not_wait_for_the_wall_clock(sync: Any, put: Any, held_disk: Any) -> None:
    store = sync.open(held_disk)
    held_disk.drain()
    store.tick(NOW_MS, 70)
    responses = statuses(store, put(store))
    store.tick(NOW_MS - 3_600_000, 5069)
    assert responses == []
    store.tick(NOW_MS - 3_600_000, 5070)
    assert responses == [PutStatus.FLUSH_DISK_TIMEOUT]


def test_a_message_without_a_waiting_sender_is_visible_too(
    sync: Any, put: Any, held_disk: Any
) -> None:
    store = sync.open(held_disk)
    held_disk.drain()
    put(store)
    put(store)
    held_disk.drain()
    assert store.max_queue_offset("T", 0) == 2


def test_a_sync_over_several_files(sync: Any, put: Any, held_disk: Any) -> None:
    store = sync.open(held_disk)
    held_disk.drain()
    appended = [put(store, body=bytes(3000)) for _ in range(30)]
    responses = statuses(store, *appended)
    held_disk.drain()
    assert responses == [PutStatus.PUT_OK] * 30
    assert store.flushed_log_offset == store.max_log_offset


@pytest.mark.parametrize("thorough_ms, round_bytes", [(1000, 1 << 30), (60_000, 1)])
def test_rounds_that_are_always_due_are_noted(
    stores: Any, put: Any, monkeypatch: Any, thorough_ms: int, round_bytes: int
) -> None:
    """Retention waits for the checkpoint: a busy store must not delay it forever."""
    monkeypatch.setattr(checkpointer, "ROUND_BYTES", round_bytes)
    stores.configure(
        flush_consume_queue_thorough_interval_ms=thorough_ms, flush_commit_log_least_pages=0
    )
    store = stores.open()
    ends = []
    for second in range(8):
        put(store)
        store.tick(NOW_MS + second * 1000)
        marks = checkpoints.load(RealFiles(), str(stores.root)).marks
        assert marks is not None
        ends.append(marks.queues)
    assert len(set(ends)) >= 3, f"the checkpoint stands still: {ends}"


class TestFailingSync:
    def test_is_never_taken_as_done(
        self, stores: Any, sync: Any, troubled: Any, put: Any, held_disk: Any
    ) -> None:
        store = sync.open(held_disk)
        held_disk.drain()
        first, second = put(store), put(store)
        responses = statuses(store, first, second)
        troubled.fail_sync = True
        held_disk.drain()
        assert responses == [PutStatus.FLUSH_DISK_TIMEOUT] * 2
        troubled.fail_sync = False
        # The device works again, but it is unknown which pages the kernel dropped.
        refused = store.append(NewMessage("T", 0, b"x"), NOW_MS)
        assert refused.status is PutStatus.SERVICE_NOT_AVAILABLE
        assert store.put_refusal(NOW_MS) is PutStatus.SERVICE_NOT_AVAILABLE
        store.tick(NOW_MS + 60_000)
        held_disk.drain()
        assert store.flushed_log_offset == 0
        assert store.max_queue_offset("T", 0) == 0
        store.close(NOW_MS)
        assert (stores.root / "abort").exists(), "the next start must look at the log"

    def test_reads_go_on(self, stores: Any, troubled: Any, put: Any, read_bodies: Any) -> None:
        store = stores.open()
        put(store, body=b"kept")
        troubled.fail_sync = True
        store.tick(NOW_MS + 20_000)
        assert store.put_refusal(NOW_MS) is PutStatus.SERVICE_NOT_AVAILABLE
        assert read_bodies(store) == [b"kept"]

    def test_of_queues_refuses_writes_too(self, stores: Any, troubled: Any, put: Any) -> None:
        store = stores.open()
        put(store)
        store.tick(NOW_MS + 600)
        troubled.fail_sync = True
        store.tick(NOW_MS + 61_000)
        assert store.put_refusal(NOW_MS) is PutStatus.SERVICE_NOT_AVAILABLE


class TestHangingCheckpoint:
    """A hanging sync of queues, index or checkpoint has the same effect, also during a sync of the
    log."""

    def test_counts_as_failed_after_its_time(
        self, stores: Any, put: Any, held_disk: Any, caplog: Any
    ) -> None:
        store = stores.open(held_disk)
        put(store)
        store.tick(NOW_MS + 600)
        held_disk.drain()
        began = 61_000
        store.tick(NOW_MS + began)
        for later_ms in range(0, 5000, 100):
            store.tick(NOW_MS + began + later_ms)
        assert store.health is StoreHealth.FIT
        logged = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
        assert ["queues or checkpoint" in text for text in logged] == [True], (
            "logged while it hangs"
        )
        store.tick(NOW_MS + began + 5000)
        assert store.health is StoreHealth.FAILED
        assert "a sync of queues or checkpoint has not returned" in store.why_unfit
        assert (
            store.append(NewMessage("T", 0, b"x"), NOW_MS).status is PutStatus.SERVICE_NOT_AVAILABLE
        )
        held_disk.drain()
        assert store.health is StoreHealth.FAILED, "it came back, and nothing is made of that"

    def test_of_many_syncs_each_has_its_time(
        self, stores: Any, put: Any, held_disk: Any, monkeypatch: Any
    ) -> None:
        store = stores.open(held_disk)
        for number in range(6):
            put(store, topic=f"T{number}")
        store.tick(NOW_MS + 600)
        held_disk.drain()
        steady_ms, syncs = NOW_MS + 61_000, 0
        sync, sync_folder = RealFiles.sync, RealFiles.sync_folder

        def three_seconds() -> None:
            nonlocal steady_ms, syncs
            syncs += 1
            for _ in range(30):
                steady_ms += 100
                store.tick(steady_ms)
                held_disk.say_room()

        def slow(files: RealFiles, path: str) -> None:
            sync(files, path)
            three_seconds()

        def slow_folder(files: RealFiles, path: str) -> None:
            sync_folder(files, path)
            three_seconds()

        monkeypatch.setattr(RealFiles, "sync", slow)
        monkeypatch.setattr(RealFiles, "sync_folder", slow_folder)
        store.tick(steady_ms)
        held_disk.step(len(held_disk.jobs))
        monkeypatch.undo()
        assert syncs > 6
        assert store.health is StoreHealth.FIT, store.why_unfit


class TestHangingSync:
    """A sync that does not return: the disk holds it, and the clock advances by ticks."""

    def test_counts_as_failed_after_its_time(
        self, sync: Any, put: Any, held_disk: Any, caplog: Any
    ) -> None:
        sync.configure(sync_flush_timeout_ms=60_000)
        store = sync.open(held_disk)
        held_disk.drain()
        responses = statuses(store, put(store))
        for later_ms in range(0, 5000, 100):
            store.tick(NOW_MS + later_ms)
        assert (responses, store.health) == ([], StoreHealth.FIT)
        assert [one.levelname for one in caplog.records] == ["WARNING"], "logged while it hangs"
        store.tick(NOW_MS + 5000)
        assert responses == [PutStatus.FLUSH_DISK_TIMEOUT]
        assert store.health is StoreHealth.FAILED
        assert "syncTimeoutMs" in store.why_unfit
        refused = store.append(NewMessage("T", 0, b"x"), NOW_MS)
        assert refused.status is PutStatus.SERVICE_NOT_AVAILABLE
        held_disk.drain()
        assert store.health is StoreHealth.FAILED, "it came back, and nothing is made of that"
        assert (store.flushed_log_offset, store.max_queue_offset("T", 0)) == (0, 0)

    def test_many_bytes_may_take_longer(
        self, sync: Any, put: Any, held_disk: Any, monkeypatch: Any
    ) -> None:
        monkeypatch.setattr(sync_watch, "SYNC_BYTES_MS", 1)
        store = sync.open(held_disk)
        held_disk.drain()
        end = put(store, body=bytes(1000)).end
        for later_ms in range(0, 5000 + end, 100):
            store.tick(NOW_MS + later_ms)
        assert store.health is StoreHealth.FIT
        store.tick(NOW_MS + 5000 + end + 100)
        assert store.health is StoreHealth.FAILED

    def test_a_process_that_stood_still_blames_no_disk(
        self, sync: Any, put: Any, held_disk: Any
    ) -> None:
        store = sync.open(held_disk)
        held_disk.drain()
        put(store)
        store.tick(NOW_MS + 100)
        store.tick(NOW_MS + 100_000)
        assert store.health is StoreHealth.FIT

    def test_that_ends_in_time_leaves_the_next_its_own(
        self, sync: Any, put: Any, held_disk: Any
    ) -> None:
        store = sync.open(held_disk)
        held_disk.drain()
        for turn in range(4):
            put(store)
            for later_ms in range(100, 4100, 100):
                store.tick(NOW_MS + turn * 4000 + later_ms)
            held_disk.drain()
        assert store.health is StoreHealth.SLOW
        assert (store.put_refusal(NOW_MS), store.why_unfit) == (None, ""), "it takes messages"


class TestFitness:
    def test_a_failed_sync_is_for_good(self, sync: Any, put: Any, troubled: Any) -> None:
        store = sync.open()
        assert (store.health, store.why_unfit) == (StoreHealth.FIT, "")
        troubled.fail_sync = True
        put(store)
        assert store.health is StoreHealth.FAILED
        troubled.fail_sync = False
        assert store.health is StoreHealth.FAILED
        assert str(errno.EIO) in store.why_unfit

    def test_a_full_disk_is_not(self, stores: Any, troubled: Any) -> None:
        store = stores.open()
        troubled.used = 0.99
        store.tick(NOW_MS + 20_000)
        assert (store.health, store.why_unfit) == (StoreHealth.FULL, "the disk is too full")
        troubled.used = 0.1
        store.tick(NOW_MS + 40_000)
        assert store.health is StoreHealth.FIT

    def test_no_next_log_file(self, stores: Any, troubled: Any, put: Any) -> None:
        store = stores.open()
        troubled.full = True
        while store.append(NewMessage("T", 0, bytes(2000)), NOW_MS).status is PutStatus.PUT_OK:
            pass
        assert store.health is StoreHealth.FULL
        troubled.full = False
        while store.health is StoreHealth.FULL:
            put(store, body=bytes(2000))


class TestFullDisk:
    def test_no_next_log_file(self, stores: Any, troubled: Any, put: Any, read_bodies: Any) -> None:
        store = stores.open()
        put(store, body=b"first")
        troubled.full = True
        status = PutStatus.PUT_OK
        count = 1
        while status is PutStatus.PUT_OK:
            status = store.append(NewMessage("T", 0, bytes(2000)), NOW_MS).status
            count += status is PutStatus.PUT_OK
            assert count < 1000
        assert status in (PutStatus.CREATE_MAPPED_FILE_FAILED, PutStatus.SERVICE_NOT_AVAILABLE)
        end = store.max_log_offset
        assert store.append(NewMessage("T", 0, bytes(2000)), NOW_MS).status is not PutStatus.PUT_OK
        assert store.max_log_offset == end
        troubled.full = False
        assert put(store, body=b"last").queue_offset == count
        assert read_bodies(store) == [b"first", *[bytes(2000)] * (count - 1), b"last"]

    def test_no_room_for_a_queue_file_loses_nothing(
        self, stores: Any, troubled: Any, put: Any, read_bodies: Any
    ) -> None:
        store = stores.open()
        put(store, "Known")
        troubled.full = True
        assert put(store, "New", body=b"waits").queue_offset == 0
        assert store.max_queue_offset("New", 0) == 0
        assert store.put_refusal(NOW_MS) is PutStatus.SERVICE_NOT_AVAILABLE
        troubled.full = False
        assert store.put_refusal(NOW_MS) is None
        assert read_bodies(store, "New") == [b"waits"]

    def test_the_tick_tries_again(self, stores: Any, troubled: Any, put: Any) -> None:
        store = stores.open()
        put(store, "Known")
        troubled.full = True
        put(store, "New")
        troubled.full = False
        store.tick(NOW_MS)
        assert store.max_queue_offset("New", 0) == 1

    def test_queues_that_wait_at_the_end_are_filled_at_the_next_start(
        self, stores: Any, troubled: Any, put: Any, read_bodies: Any
    ) -> None:
        store = stores.open()
        put(store, "Known")
        troubled.full = True
        put(store, "New", body=b"waits")
        store.close(NOW_MS)
        assert (stores.root / "abort").exists()
        troubled.full = False
        assert read_bodies(stores.open(), "New") == [b"waits"]

    def test_at_start_is_one_clear_sentence(self, stores: Any, troubled: Any) -> None:
        troubled.full = True
        with pytest.raises(StoreError, match=f"cannot be opened: .*{errno.ENOSPC}"):
            stores.open()


class TestSlowDisk:
    def test_writes_wait_for_it_and_reads_go_on(
        self, stores: Any, put: Any, held_disk: Any, read_bodies: Any, monkeypatch: Any
    ) -> None:
        monkeypatch.setattr(group_commit, "UNFLUSHED_MAX", 10_000)
        store = stores.open(held_disk)
        held_disk.drain()
        count = 0
        while store.put_refusal(NOW_MS) is None:
            put(store, body=b"%d" % count + bytes(1000))
            count += 1
            assert count < 50, "bounded"
        assert store.put_refusal(NOW_MS) is PutStatus.OS_PAGE_CACHE_BUSY
        refused = store.append(NewMessage("T", 0, b"x"), NOW_MS)
        assert (refused.status, refused.reason) == (
            PutStatus.OS_PAGE_CACHE_BUSY,
            "the disk does not keep up",
        )
        assert len(read_bodies(store)) == count == 10
        held_disk.drain()
        assert store.put_refusal(NOW_MS) is None
        put(store)

    def test_a_disk_that_only_was_not_asked_yet_is_not_slow(
        self, stores: Any, put: Any, monkeypatch: Any
    ) -> None:
        monkeypatch.setattr(group_commit, "UNFLUSHED_MAX", 10_000)
        store = stores.open()
        for _ in range(60):
            put(store, body=bytes(1000))
        assert store.flushed_log_offset > 0
        unflushed = store.max_log_offset - store.flushed_log_offset
        assert unflushed > 2_000, "no sync before there are many bytes to sync"


class ReadOnlyFiles(RealFiles):
    """A file system that was remounted read-only: nothing is made, written or synced."""

    readonly = False

    def _check(self) -> None:
        if self.readonly:
            raise OSError(errno.EROFS, "read-only file system")

    def create(self, path: str, size: int, reserved: int = 0) -> MappedFile:
        self._check()
        return super().create(path, size, reserved)

    def write(self, path: str, data: bytes, position: int = -1) -> None:
        self._check()
        super().write(path, data, position)

    def remove(self, path: str) -> None:
        self._check()
        super().remove(path)


@pytest.mark.parametrize("what", ["log", "queue", "checkpoint"])
def test_a_read_only_remount_stops_writes_and_reads_go_on(
    stores: Any, put: Any, read_bodies: Any, what: str
) -> None:
    files = stores.files = ReadOnlyFiles()
    store = stores.open()
    put(store, body=b"kept")
    files.readonly = True
    refused = []
    for number in range(60):
        if what != "checkpoint":
            body, topic = bytes(1000), f"New{number}" if what == "queue" else "T"
            refused.append(store.append(NewMessage(topic, 0, body), NOW_MS).status)
        store.tick(NOW_MS + number * 2000)
    allowed = {PutStatus.SERVICE_NOT_AVAILABLE}
    if what == "log":
        allowed.add(PutStatus.CREATE_MAPPED_FILE_FAILED)
    assert what == "checkpoint" or refused[-1] in allowed
    assert store.put_refusal(NOW_MS) is PutStatus.SERVICE_NOT_AVAILABLE
    assert read_bodies(store)[0] == b"kept"
    store.close(NOW_MS)
    files.readonly = False
    assert read_bodies(stores.open())[0] == b"kept"


def test_a_close_that_fails_lets_go_of_the_folder(stores: Any, put: Any, monkeypatch: Any) -> None:
    store = stores.open()
    put(store)
    reached = store.max_log_offset

    def damaged(_now_ms: int) -> None:
        raise StoreError("the log is damaged")

    monkeypatch.setattr(store, "_run_dispatcher", damaged)
    store.close(NOW_MS)
    assert (stores.root / "abort").exists(), "the next start must look at the log"
    assert stores.open().max_log_offset == reached
