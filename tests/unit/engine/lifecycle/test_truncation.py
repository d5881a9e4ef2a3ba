"""Truncating the log: a truncated byte never returns, and no queue or index refers to it (law 6).

R10, R11, R13, S6, I12, F14: the crash tests stop at each disk operation.
"""

import random
from dataclasses import replace
from typing import Any

import pytest
from tests.sim.checkers import check_key, check_opened, check_store
from tests.sim.disk import PowerCut, SimDisk
from tests.sim.model import Model, Sent
from tests.sim.share import is_crash_tried
from tests.sim.work import QueuedDisk
from tests.waiting import delete_expired

from turbopump.engine.config import StoreConfig
from turbopump.engine.disk import checkpoint
from turbopump.engine.disk.flush import InlineDisk
from turbopump.engine.store import Store
from turbopump.engine.types import FlushMode, LogOffset, NewMessage, PutStatus, StoreError

NOW_MS = 1_700_000_000_000
ROOT = "/store"
NAMES = (("A", 0), ("A", 1), ("B", 0), ("Late", 0))
MESSAGES = 34
CONFIG = StoreConfig(
    ROOT,
    mapped_file_size_commit_log=4096,
    mapped_file_size_consume_queue=100,
    max_hash_slot_num=5,
    max_index_num=12,
    max_message_size=2048,
)


class Bench:
    """A store of several files of each kind on a simulated disk, and a model of its content."""

    def __init__(self, seed: int = 1, sync: bool = False, count: int = MESSAGES) -> None:
        self.rng = random.Random(seed)
        self.now_ms = NOW_MS
        self.disk = SimDisk(self.rng, lambda: self.now_ms)
        mode = FlushMode.SYNC_FLUSH if sync else FlushMode.ASYNC_FLUSH
        self.config = replace(CONFIG, flush_disk_type=mode)
        self.model = Model.of(self.config, sync)
        self.number = 0
        self.open()
        for number in range(count):
            self.append(number, late=number > count * 2 // 3)
            if number == count // 2:
                self.save()

    def open(self) -> None:
        self.store = Store.open(self.disk, self.config, InlineDisk(), self.now_ms)

    def append(self, number: int, late: bool = False) -> Sent:
        """A message with two keys, of a size that leaves fillers of all kinds."""
        self.now_ms += 700
        self.number += 1
        name = NAMES[number % 4 if late else number % 3]
        body = b"%06d" % self.number + bytes(50 + number * 97 % 500)
        sent = Sent(name, len(self.model.queues.get(name, [])), body, f"k{number % 7}")
        text = f"KEYS\x01{sent.key} n{self.number}\x02".encode()
        appended = self.store.append(NewMessage(*name, body, text), self.now_ms)
        assert appended.status is PutStatus.PUT_OK
        assert appended.queue_offset == sent.number
        self.model.appended(self.disk, self.store.max_log_offset, [sent])
        return sent

    def save(self) -> None:
        """Make everything durable, and save the checkpoint."""
        for _ in range(4):
            self.now_ms += 30_000
            self.store.tick(self.now_ms)
        self.model.flushed(self.disk, self.store.flushed_log_offset)

    def truncate(self, end: int) -> None:
        self.store.truncate(LogOffset(end), self.now_ms)
        for path in self.disk.paths(self.config.log_folder):
            durable = self.disk.durable(path)
            assert durable is not None
            assert not any(durable[max(0, end - int(path[-20:])) :]), "cut, but not on the disk"
        self.model.required = self.model.safe = 0
        self.model.found(end)
        self.model.flushed(self.disk, self.store.flushed_log_offset)

    def check(self) -> None:
        """Check that no trace of the cut part is left."""
        store = self.store
        check_store(store, self.model, self.config, self.disk, self.rng)
        with_key = [one for one in self.model.sent if one.key]
        for topic, key in sorted({(one.name[0], one.key) for one in with_key}):
            check_key(store, self.model, with_key, topic, key)
        for name in NAMES:
            minimum, maximum = store.min_queue_offset(*name), store.max_queue_offset(*name)
            assert minimum <= maximum == len(self.model.queues.get(name, []))
        assert store.confirm_log_offset == store.max_log_offset == len(self.model.log)
        marks = checkpoint.load(self.disk, ROOT).marks
        assert marks is not None
        assert max(marks.queues, marks.index) <= marks.log <= len(self.model.log)

    def check_equals_rebuild(self) -> None:
        """Check that queues and index equal, byte for byte, a rebuild from the log alone."""
        other = SimDisk(self.rng, lambda: self.now_ms)
        folder = self.config.log_folder
        other.make_folders(folder)
        for path in self.disk.paths(folder):
            other.write(path, bytes(self.disk.content(path)))
        Store.open(other, self.config, InlineDisk(), self.now_ms)
        for kind in ("consumequeue", "index"):
            expected = derived(other, kind)
            assert derived(self.disk, kind) == expected, kind

    def end(self, kill: bool = False) -> None:
        """End the process, or cut the power, between two steps."""
        self.disk.kill = kill
        self.disk.end()
        self.disk.restart()

    def boundaries(self) -> list[int]:
        """Offsets at which the log can be cut: before and after every record, and at file
        beginnings."""
        ends = {0} | {one.start for one in self.model.sent} | {one.end for one in self.model.sent}
        return sorted(ends)


def derived(disk: SimDisk, kind: str) -> list[tuple[str, bytes]]:
    """Files by name; index files by order, because their names are times."""
    paths = disk.paths(f"{ROOT}/{kind}/")
    names = paths if kind != "index" else [str(number) for number in range(len(paths))]
    contents = [bytes(disk.content(path)) for path in paths]
    return list(zip(names, contents, strict=True))


BOUNDARIES = Bench().boundaries()


@pytest.mark.parametrize("sync", [False, True])
def test_cut_at_every_boundary_and_gone_on(sync: bool) -> None:
    """After each cut: zeros after the end, consistent queues, working appends, and restarts that
    have the same result."""
    for end in BOUNDARIES:
        bench = Bench(sync=sync)
        bench.truncate(end)
        bench.check()
        bench.check_equals_rebuild()
        for number in range(6):
            bench.append(number)
        bench.check()
        bench.check_equals_rebuild()
        if end % 2:
            bench.store.close(bench.now_ms)
        else:
            bench.end(kill=True)
            bench.model.ended(power=False, opened=True)
        bench.open()
        check_opened(bench.store, bench.model, bench.disk)
        bench.check()


def test_the_cut_survives_a_power_cut_right_behind_it() -> None:
    for end in BOUNDARIES[:-1]:
        bench = Bench()
        bench.truncate(end)
        bench.end()
        bench.open()
        assert bench.store.max_log_offset == end
        bench.check()


@pytest.mark.parametrize(
    "trouble", ["", "torn pages", "ordered", "kill", "again", "unsaved", "sync"]
)
def test_a_crash_leaves_the_old_log_or_the_cut(trouble: str, caplog: Any) -> None:
    """The crash is at each disk operation in turn; with `again` a second one follows in the
    recovery."""
    seen = set()
    for case, end in enumerate(BOUNDARIES[1:-1:6]):
        for operation in range(1000):
            if not is_crash_tried(operation, case):
                continue
            bench = Bench(seed=operation + end, sync=trouble == "sync")
            bench.disk.torn_pages = trouble == "torn pages"
            bench.disk.ordered = trouble == "ordered"
            bench.disk.kill = trouble == "kill"
            if trouble != "unsaved":
                bench.save()
            model, old_end = bench.model, bench.store.max_log_offset
            bench.disk.cut_after = operation
            try:
                bench.truncate(end)
                break
            except PowerCut:
                bench.disk.restart()
            if trouble == "again":
                crash_in_recovery(bench, operation)
            bench.open()
            found = bench.store.max_log_offset
            # Bytes that were not durable may be lost, back to before the cut's beginning.
            assert found in (end, old_end) or trouble == "unsaved"
            seen.add(found == end)
            model.required = model.safe = 0
            check_opened(bench.store, model, bench.disk)
            bench.check()
            bench.append(0)
            bench.check()
        else:
            raise AssertionError("the truncation has no end")
    assert seen == {True, False}
    # The lowered checkpoint has the queues' counts at the cut, so that not all are rebuilt; a torn
    # checkpoint has none.
    assert trouble == "torn pages" or "queues are missing" not in caplog.text


def crash_in_recovery(bench: Bench, operation: int) -> None:
    bench.disk.cut_after = operation % 12
    try:
        bench.open()
    except PowerCut:
        bench.disk.restart()
    else:
        bench.end()


def test_cuts_again_and_again() -> None:
    """R10: each of many cuts removes only the bytes after it."""
    for seed in range(20):
        bench = Bench(seed)
        for _ in range(8):
            bench.truncate(bench.rng.choice(bench.boundaries()))
            for number in range(bench.rng.randrange(12)):
                bench.append(number, late=True)
            bench.check()
        bench.check_equals_rebuild()


def test_a_cut_behind_expired_files() -> None:
    """Queues with expired first files keep their counters; min <= max (R13)."""
    for number in range(6):
        bench = Bench(count=60)
        bench.save()
        bench.now_ms += 10_000 * 3_600_000
        delete_expired(bench.store, bench.now_ms)
        minimum = bench.store.min_log_offset
        assert minimum > 0
        bench.model.begins(minimum)
        with pytest.raises(StoreError, match="it has the bytes from"):
            bench.store.truncate(LogOffset(minimum - 1), bench.now_ms)
        ends = [minimum, *(one.start for one in bench.model.sent if one.start > minimum)]
        bench.truncate(ends[number * 3 % len(ends)])
        for name in NAMES:
            low, high = bench.store.min_queue_offset(*name), bench.store.max_queue_offset(*name)
            assert low <= high
            assert high == len(bench.model.queues.get(name, []))
        for late in (False, True):
            for index in range(4):
                bench.append(index, late)
        check_store(bench.store, bench.model, bench.config, bench.disk, bench.rng)


def test_other_positions_are_refused() -> None:
    bench = Bench()
    before = {path: bytes(bench.disk.content(path)) for path in bench.disk.paths()}
    inside = [one.start + 1 for one in bench.model.sent] + [one.end - 4 for one in bench.model.sent]
    for end in [*inside, -1, bench.store.max_log_offset + 1]:
        with pytest.raises(StoreError, match=f"the log cannot be cut at {end}: "):
            bench.store.truncate(LogOffset(end), bench.now_ms)
    assert before == {path: bytes(bench.disk.content(path)) for path in bench.disk.paths()}
    bench.check()


def test_a_record_inside_of_a_body_is_no_boundary() -> None:
    """A sender can predict the log offset of its message, and put a fake record there."""
    bench = Bench(count=3)
    size = len(bench.model.log) - bench.model.sent[-1].start
    record = bytearray(bench.model.log[-size:])
    start = bench.store.max_log_offset
    probe = bench.append(3)
    at = bytes(bench.model.log[probe.start :]).find(probe.body) + probe.start
    bench.truncate(start)
    record[28:36] = at.to_bytes(8)
    message = NewMessage("A", 0, bytes(record), b"")
    appended = bench.store.append(message, bench.now_ms)
    shift = bytes(bench.disk.content(f"{ROOT}/commitlog/{0:020d}")).find(bytes(record)) - at
    assert shift == 0
    assert appended.status is PutStatus.PUT_OK
    assert bench.store.record(at) is not None
    with pytest.raises(StoreError, match="no record begins there"):
        bench.store.truncate(LogOffset(at), bench.now_ms)


def test_bytes_without_waiting_callers_are_durable_at_the_end_too() -> None:
    bench = Bench()
    bench.append(99)
    end = bench.store.max_log_offset
    assert bench.store.flushed_log_offset < end
    bench.store.truncate(LogOffset(end), bench.now_ms)
    assert bench.store.flushed_log_offset == end
    bench.end()
    bench.open()
    assert bench.store.max_log_offset == end


def test_nothing_is_cut_at_the_end_and_waiting_callers_are_answered() -> None:
    bench = Bench(sync=True)
    work = QueuedDisk(bench.rng)
    bench.store.close(bench.now_ms)
    bench.store = Store.open(bench.disk, bench.config, work, bench.now_ms)
    name = NAMES[0]
    before = bench.store.max_queue_offset(*name)
    appended = bench.store.append(NewMessage(*name, b"last"), bench.now_ms)
    later = bench.store.when_safe(appended)
    assert (later.done, bench.store.max_queue_offset(*name)) == (False, before)
    bench.store.truncate(bench.store.max_log_offset, bench.now_ms)
    assert later.value is PutStatus.PUT_OK
    assert bench.store.max_queue_offset(*name) == before + 1
    end = bench.store.max_log_offset
    bench.end()
    bench.open()
    assert bench.store.max_log_offset == end


def test_a_caller_that_waits_for_a_cut_record_is_answered() -> None:
    bench = Bench(sync=True, count=3)
    work = QueuedDisk(bench.rng)
    bench.store.close(bench.now_ms)
    bench.store = Store.open(bench.disk, bench.config, work, bench.now_ms)
    notified: list[tuple[int, PutStatus]] = []
    ends = []
    for number in range(4):
        message = NewMessage("A", 0, b"%d" % number, b"")
        appended = bench.store.append(message, bench.now_ms)
        ends.append(appended.end)
        later = bench.store.when_safe(appended)
        later.then(lambda status, number=number: notified.append((number, status)))
    assert notified == []
    bench.store.truncate(ends[1], bench.now_ms)
    assert sorted(notified) == [
        (0, PutStatus.PUT_OK),
        (1, PutStatus.PUT_OK),
        (2, PutStatus.FLUSH_DISK_TIMEOUT),
        (3, PutStatus.FLUSH_DISK_TIMEOUT),
    ]
    assert bench.store.flushed_log_offset == bench.store.max_log_offset == ends[1]
    work.close()
    appended = bench.store.append(NewMessage("A", 0, b"on", b""), bench.now_ms)
    assert (appended.log_offsets, appended.queue_offset) == ([ends[1]], 3)


def test_a_failed_sync_ends_the_writing_not_the_cut() -> None:
    """After EIO in the middle the store refuses messages; the next start has the old end or the
    cut."""
    for failing in range(40):
        bench = Bench()
        bench.save()
        old_end, end = bench.store.max_log_offset, bench.model.sent[5].start
        if not fail_sync(bench, failing, end):
            assert failing > 5
            break
        assert bench.store.put_refusal(bench.now_ms) is PutStatus.SERVICE_NOT_AVAILABLE
        for name in NAMES:
            bench.store.read(*name, 0, 32)
        with pytest.raises(StoreError, match="does not take changes"):
            bench.store.truncate(LogOffset(end), bench.now_ms)
        bench.store.close(bench.now_ms)
        bench.open()
        assert bench.store.max_log_offset in (old_end, end)
        bench.model.required = bench.model.safe = 0
        check_opened(bench.store, bench.model, bench.disk)
        bench.check()
    else:
        raise AssertionError("more syncs than can be")


def fail_sync(bench: Bench, number: int, end: int) -> bool:
    """Truncate with the `number`th sync failing; False if there are fewer syncs."""
    check, count = bench.disk.check_sync, iter(range(1000))

    def fail_one(*given: Any) -> None:
        bench.disk.fail_syncs = int(next(count) == number)
        check(*given)

    bench.disk.check_sync = fail_one  # type: ignore[method-assign]
    try:
        bench.truncate(end)
        return False
    except StoreError:
        return True
    finally:
        bench.disk.check_sync = check  # type: ignore[method-assign]


def test_batch_queues_and_extensions_follow(stores: Any, put: Any, read_bodies: Any) -> None:
    stores.batch_topics.add("Many")
    stores.configure(
        enable_consume_queue_ext=True,
        mapped_file_size_consume_queue_ext=200,
        mapper_file_size_batch_consume_queue=138,
    )
    store = stores.open()
    ends = [
        put(store, "AM"[number % 2] + "any", body=b"%d" % number, TAGS="t", INNER_NUM="2").end
        for number in range(24)
    ]
    for cut in (19, 12, 3):
        store.truncate(ends[cut], NOW_MS)
        assert store.max_queue_offset("Many", 0) == (cut + 1) // 2 * 2
        assert store.max_queue_offset("Aany", 0) == cut // 2 + 1
        bodies = [b"%d" % number for number in range(0, cut + 1, 2)]
        assert read_bodies(store, "Aany") == bodies
    assert put(store, "Many", body=b"on", INNER_NUM="2").queue_offset == 4
    assert put(store, "Aany", body=b"on", TAGS="t").queue_offset == 2
    stores.kill(store)
    store = stores.open()
    assert store.max_queue_offset("Many", 0) == 6
    assert read_bodies(store, "Aany") == [b"0", b"2", b"on"]
    store.truncate(LogOffset(0), NOW_MS)
    assert store.max_queue_offset("Many", 0) == store.min_queue_offset("Many", 0)
    assert put(store, "Aany", body=b"anew", TAGS="t").queue_offset == 0
    assert read_bodies(store, "Aany") == [b"anew"]


def test_views_stay_valid(stores: Any, put: Any) -> None:
    """Views of a removed file and of a kept file stay readable; their content does not matter."""
    store = stores.open()
    placed = [put(store, body=bytes([number]) * 3000) for number in range(12)]
    views = [store.record_view(one.log_offsets[0]) for one in placed]
    store.truncate(placed[2].log_offsets[0], NOW_MS)
    assert all(len(bytes(view)) > 3000 for view in views)
    assert bytes(views[1])[-3000:].count(1) > 0
    assert sorted(path.name for path in (stores.root / "commitlog").iterdir()) == [
        f"{0:020d}",
        f"{stores.config.mapped_file_size_commit_log:020d}",
    ]


def test_a_topic_deleted_before_the_cut_stays_deleted() -> None:
    bench = Bench()
    cut = bench.model.sent[20].start
    bench.store.delete_topic("B")
    bench.model.delete("B")
    bench.truncate(cut)
    bench.append(2)
    for restart in (False, True):
        if restart:
            bench.end(kill=True)
            bench.open()
        assert bench.store.max_queue_offset("B", 0) == 1


def test_files_of_a_deleted_topic_do_not_come_back_behind_a_cut() -> None:
    """Seed 459704: the mark between the log's former and present life was lowered with the log, so
    that a file restored by a power cut looked like one of the present life."""
    for after in range(30):
        bench = Bench(count=12)
        bench.save()
        cut = bench.model.sent[0].start
        bench.disk.kill, bench.disk.cut_after = True, after
        try:
            bench.store.delete_topic("A")
            bench.end(kill=True)
        except PowerCut:
            bench.disk.restart()
        bench.open()
        if bench.store.max_queue_offset("A", 0) == 0:
            bench.model.delete("A")
        bench.truncate(cut)
        for number in (0, 1):
            folder = f"{ROOT}/consumequeue/A/{number}"
            assert not bench.disk.durable_paths(folder), f"killed after {after} operations"
