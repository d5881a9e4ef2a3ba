"""Recoveries that do not get through in one go (R46), and damage that no recovery may hide."""

import random

import pytest

from tests.sim.disk import PowerCut, SimDisk
from tests.waiting import delete_expired
from turbopump.engine.config import StoreConfig
from turbopump.engine.disk import checkpoint
from turbopump.engine.disk.flush import InlineDisk
from turbopump.engine.store import Store
from turbopump.engine.types import LogOffset, NewMessage, PutStatus

NOW_MS = 1_800_000_000_000
FILES = 24
CONFIG = StoreConfig(
    "/store",
    mapped_file_size_commit_log=4096,
    mapped_file_size_consume_queue=400,
    max_hash_slot_num=16,
    max_index_num=40,
    max_message_size=2048,
)


def opened(disk: SimDisk) -> Store:
    return Store.open(disk, CONFIG, InlineDisk(), NOW_MS)


def fill(disk: SimDisk) -> int:
    """Make a store of many log files and kill its process; return its number of messages."""
    store = opened(disk)
    count = 0
    while store.max_log_offset < FILES * CONFIG.mapped_file_size_commit_log:
        message = NewMessage("topic", count % 3, b"%300d" % count, b"KEYS\x01k%d\x02" % count)
        assert store.append(message, NOW_MS).status is PutStatus.PUT_OK
        count += 1
    disk.kill = True
    disk.end()
    disk.restart()
    return count


def messages(store: Store) -> int:
    return sum(store.max_queue_offset("topic", number) for number in range(3))


@pytest.mark.parametrize("kill", [False, True])
def test_an_interrupted_recovery_is_gone_on_with(kill: bool) -> None:
    disk = SimDisk(random.Random(1), lambda: NOW_MS)
    count = fill(disk)
    # All is on the disk, but nothing of it was noted: the queues have to be built from the start.
    disk.settle()
    for path in [*disk.paths("/store/consumequeue"), "/store/checkpoint"]:
        disk.remove(path)
    reached = [0]
    for _ in range(FILES):
        disk.kill, disk.cut_after = kill, 90
        try:
            store = opened(disk)
        except PowerCut:
            disk.restart()
            marks = checkpoint.load(disk, "/store").marks
            reached.append(0 if marks is None else marks.queues)
            assert reached[-1] >= reached[-2], "progress was lost"
            continue
        break
    else:
        raise AssertionError(f"the recovery never ends: {reached}")
    assert len(set(reached)) >= 4, "nothing was interrupted"
    assert messages(store) == count
    assert len(store.query("topic", "k1", 32, 0, 1 << 60).slices) == 1


def test_a_clean_store_is_opened_without_a_walk() -> None:
    """Opening after a close does the same work for one log file as for many."""
    operations = []
    for fills in (1, 4):
        disk = SimDisk(random.Random(1), lambda: NOW_MS)
        for _ in range(fills):
            fill(disk)
        opened(disk).close(NOW_MS)
        disk.cut_after = 1 << 20
        opened(disk)
        operations.append((1 << 20) - (disk.cut_after or 0))
    assert operations[1] <= operations[0] + 2, operations


@pytest.mark.parametrize("after", range(15, 60, 5))
def test_the_rest_of_a_killed_recovery_is_synced_by_the_next(after: int) -> None:
    """A killed recovery left units that are not durable: the next one syncs them before its
    checkpoint covers them.
    """
    disk = SimDisk(random.Random(1), lambda: NOW_MS)
    store = opened(disk)
    for number in range(5):
        store.append(NewMessage("once", number, b"a queue with one unit"), NOW_MS)
    store.close(NOW_MS)
    fill(disk)
    opened(disk).close(NOW_MS)
    for path in disk.paths("/store/consumequeue"):
        disk.remove(path)
    disk.settle()
    disk.kill, disk.cut_after = True, after
    with pytest.raises(PowerCut):
        opened(disk)
    disk.restart()
    opened(disk)
    for path in disk.paths("/store/consumequeue"):
        assert disk.durable(path) == disk.content(path), f"{path} is not durable"


def test_a_unit_whose_record_waits_for_the_index_is_not_counted() -> None:
    """Regression of seed 12408: the recovery missed the unit that it had cut, trusted no queue and
    restarted a queue with expired records at offset 0.
    """
    disk = SimDisk(random.Random(1), lambda: NOW_MS)
    store = opened(disk)

    def send(topic: str, number: int) -> None:
        message = NewMessage(topic, 0, bytes(300), b"KEYS\x01k%d\x02" % number)
        assert store.append(message, NOW_MS).status is PutStatus.PUT_OK

    entries = CONFIG.max_index_num - 1
    for number in range(2 * entries):
        send("old" if number < 25 else "new", number)
    disk.full = True
    send("new", 2 * entries)
    assert store.dispatched_log_offset < store.max_log_offset, "nothing waits"
    assert store.max_queue_offset("new", 0) == 2 * entries + 1 - 25, "its unit waits, too"
    for hour in range(3):
        later_ms = NOW_MS + (100 + hour) * 3_600_000
        store.tick(later_ms)
        delete_expired(store, later_ms)
    assert store.min_queue_offset("old", 0) == 25, "not all has expired"
    disk.kill = True
    disk.end()
    disk.restart()
    store = opened(disk)
    assert store.max_queue_offset("old", 0) == 25
    assert store.max_queue_offset("new", 0) == 2 * entries + 1 - 25


@pytest.mark.parametrize("after", range(12))
def test_a_queue_file_that_was_just_made_gets_its_name_synced_by_the_next_start(after: int) -> None:
    """Found by the simulation: a topic was deleted and created again, and the process killed."""
    disk = SimDisk(random.Random(1), lambda: NOW_MS)
    store = opened(disk)
    store.append(NewMessage("topic", 0, b"of the former life"), NOW_MS)
    store.close(NOW_MS)
    store = opened(disk)
    store.delete_topic("topic")
    disk.kill, disk.cut_after = True, after
    try:
        store.append(NewMessage("topic", 0, b"of the present one"), NOW_MS)
        disk.end()
    except PowerCut:
        pass
    disk.restart()
    store = opened(disk)
    store.append(NewMessage("topic", 0, b"of the present one"), NOW_MS)
    for second in range(4):
        store.tick(NOW_MS + 60_000 * second)
    for path in disk.paths("/store/consumequeue"):
        assert disk.durable(path) == disk.content(path), f"{path} is not durable"


def test_an_empty_file_of_a_deleted_topic_is_not_in_the_way() -> None:
    """Found by the simulation: the power cut kept the new file, but not the first record in it."""
    disk = SimDisk(random.Random(1), lambda: NOW_MS)
    store = opened(disk)
    store.append(NewMessage("topic", 0, b"of the former life"), NOW_MS)
    store.close(NOW_MS)
    store = opened(disk)
    store.delete_topic("topic")
    disk.kill = True
    disk.end()
    disk.restart()
    disk.make_folders("/store/consumequeue/topic/0")
    disk.create(f"/store/consumequeue/topic/0/{0:020d}", CONFIG.mapped_file_size_consume_queue)
    store = opened(disk)
    for number in range(2):
        appended = store.append(NewMessage("topic", 0, b"of the present one"), NOW_MS)
        assert (appended.status, appended.queue_offset) == (PutStatus.PUT_OK, number)
        assert store.max_queue_offset("topic", 0) == number + 1


def test_an_older_checkpoint_does_not_miss_the_units_that_came_after_it() -> None:
    """Regression of seed 16870: no queue was trusted, and a queue whose records had all expired
    restarted at offset 0.
    """
    disk = SimDisk(random.Random(1), lambda: NOW_MS)
    store = opened(disk)

    def send(topic: str, count: int) -> None:
        for _ in range(count):
            assert store.append(NewMessage(topic, 0, bytes(300)), NOW_MS).status is PutStatus.PUT_OK

    send("old", 25)
    send("new", 40)
    for hour in range(3):
        later_ms = NOW_MS + (100 + hour) * 3_600_000
        store.tick(later_ms)
        delete_expired(store, later_ms)
    assert store.min_queue_offset("old", 0) == 25, "not all has expired"
    older = bytes(disk.content("/store/checkpoint"))
    send("new", 1)
    store.close(NOW_MS)
    disk.write("/store/checkpoint", older, 0)
    store = opened(disk)
    assert store.max_queue_offset("old", 0) == 25
    assert store.max_queue_offset("new", 0) == 41


def one_topic_expired(new: int) -> tuple[SimDisk, Store]:
    """A store of two topics: all 25 messages of "old" have expired, of "new" not all."""
    disk = SimDisk(random.Random(1), lambda: NOW_MS)
    store = opened(disk)
    for topic, count in (("old", 25), ("new", new)):
        for _ in range(count):
            store.append(NewMessage(topic, 0, bytes(300)), NOW_MS)
    for hour in range(3):
        later_ms = NOW_MS + (100 + hour) * 3_600_000
        store.tick(later_ms)
        delete_expired(store, later_ms)
    assert store.min_queue_offset("old", 0) == 25, "not all has expired"
    return disk, store


def test_an_older_checkpoint_does_not_cut_expired_files() -> None:
    """Regression of seed 408395: a queue whose records had all expired was cut after a kill."""
    disk, store = one_topic_expired(new=40)
    disk.kill = True
    disk.end()
    disk.restart()
    older = checkpoint.load(disk, "/store")
    assert older.marks is not None
    marks = older.marks._replace(queues=LogOffset(0), queue_count=-1)
    checkpoint.save(disk, "/store", older._replace(marks=marks))
    store = opened(disk)
    assert store.max_queue_offset("old", 0) == 25
    assert store.max_queue_offset("new", 0) == 40


def old_and_new(old: int, new: int) -> tuple[SimDisk, Store, int]:
    """Make a store with `old` expired and `new` current messages, all durable; also return the time
    now.
    """
    late_ms = NOW_MS + 1000 * 3_600_000
    disk = SimDisk(random.Random(1), lambda: NOW_MS)
    store = opened(disk)
    for number in range(old + new):
        if number == old:
            store.tick(NOW_MS + 20_000)
            disk.now_ms = lambda: late_ms
        message = NewMessage("topic", 0, bytes(300), b"KEYS\x01k%d\x02" % number)
        assert store.append(message, disk.now_ms()).status is PutStatus.PUT_OK
    store.tick(late_ms)
    store.tick(late_ms + 1000)
    return disk, store, late_ms


def kill(disk: SimDisk) -> None:
    disk.kill = True
    disk.end()
    disk.restart()


def test_a_lost_index_file_is_missed_although_the_log_begins_later() -> None:
    """Found by seed 304631: the first log file had expired, so fewer entries were no wonder."""
    disk, store, late_ms = old_and_new(12, 90)
    assert delete_expired(store, late_ms) > 0
    minimum = store.min_queue_offset("topic", 0)
    assert 0 < minimum < CONFIG.max_index_num - 1, "the first index file has no live records"
    marks = checkpoint.load(disk, "/store").marks
    assert marks is not None and marks.log_min == 0, "the checkpoint is none from before that"
    kill(disk)
    disk.remove(disk.paths("/store/index")[0])
    store = opened(disk)
    for number in range(minimum, 102):
        assert len(store.query("topic", f"k{number}", 32, 0, 1 << 60).slices) == 1, number


def test_index_files_go_when_the_checkpoint_counts_them_no_more() -> None:
    """Else the start after a crash would take them for lost, and rebuild the whole index."""
    disk, store, late_ms = old_and_new(60, 140)
    first, *others, last = disk.paths("/store/index")
    delete_expired(store, late_ms)
    assert store.min_queue_offset("topic", 0) > CONFIG.max_index_num, "too few have expired"
    assert disk.exists(first), "its entries are counted"
    for second in (60, 61, 71):
        store.tick(late_ms + second * 1000)
    assert disk.paths("/store/index") == [*others, last], "it is not removed"
    kill(disk)
    opened(disk)
    assert disk.paths("/store/index")[: len(others)] == others, "rebuilt"


def test_a_deletion_that_was_seen_by_a_start_stays() -> None:
    """Found by seed 314255: the save that wrote the name down was killed before its last sync; the
    next process believed it, and a power cut then took it back with units of the former life."""
    for after in range(40):
        disk = SimDisk(random.Random(1), lambda: NOW_MS)
        store = opened(disk)
        store.append(NewMessage("topic", 0, b"of the former life"), NOW_MS)
        store.tick(NOW_MS + 60_000)
        disk.kill, disk.cut_after = True, after
        try:
            store.delete_topic("topic")
            disk.end()
        except PowerCut:
            pass
        disk.restart()
        opened(disk)
        name = "/store/config/deletedTopics.json"
        if disk.exists(name):
            assert disk.durable(name) == disk.content(name), f"killed after {after} operations"


def test_a_queue_of_expired_records_keeps_its_count_when_another_one_lost_a_file() -> None:
    """Regression of seed 2050532: all queues were rebuilt from the log, which had no records of the
    expired queue.
    """
    disk, store = one_topic_expired(new=60)
    names = disk.paths("/store/consumequeue/old/0")
    assert names and not names[0].endswith("/" + "0" * 20), "its first file has expired, too"
    kill(disk)
    disk.remove(disk.paths("/store/consumequeue/new/0")[-1])
    store = opened(disk)
    assert store.max_queue_offset("old", 0) == 25
    assert store.max_queue_offset("new", 0) == 60


def left_by_a_power_cut(disk: SimDisk, topic: str) -> None:
    """The second file of a queue, without the first one and without units."""
    size = CONFIG.mapped_file_size_consume_queue
    disk.make_folders(f"/store/consumequeue/{topic}/0")
    disk.create(f"/store/consumequeue/{topic}/0/{size:020d}", size)


def test_a_file_that_a_queue_lost_does_not_count_as_expired() -> None:
    """Found by seed 5196186: the queue was cut to nothing, and later began at a removed file."""
    disk, store, late_ms = old_and_new(60, 30)
    kill(disk)
    left_by_a_power_cut(disk, "lost")
    store = opened(disk)
    assert delete_expired(store, late_ms) > 0
    assert (store.min_queue_offset("lost", 0), store.max_queue_offset("lost", 0)) == (0, 0)
    for second in (60, 61, 71):
        store.tick(late_ms + second * 1000)
    marks = checkpoint.load(disk, "/store").marks
    assert marks is not None and marks.first_units == store.min_queue_offset("topic", 0) // 20 * 20


def test_an_empty_file_of_a_deleted_topic_does_not_say_how_far_it_had_counted() -> None:
    """Found by seeds 5195118 and 5417943: a power cut left one file of a removed folder."""
    disk, store, late_ms = old_and_new(60, 30)
    store.append(NewMessage("gone", 0, bytes(300)), late_ms)
    store.tick(late_ms + 60_000)
    assert delete_expired(store, late_ms) > 0
    store.delete_topic("gone")
    kill(disk)
    left_by_a_power_cut(disk, "gone")
    store = opened(disk)
    assert store.max_queue_offset("gone", 0) == 0
    assert store.append(NewMessage("gone", 0, b"of the new life"), late_ms).queue_offset == 0


@pytest.mark.parametrize("after", range(4, 14))
def test_a_removed_log_file_does_not_come_back_behind_a_hole(after: int) -> None:
    """Regression of seed 5312075: a killed close had removed the preallocated file, not durably;
    the start removed the file before it, and the power was cut.
    """
    for seed in range(8):
        disk = SimDisk(random.Random(seed), lambda: NOW_MS)
        store = opened(disk)
        while store.max_log_offset <= CONFIG.mapped_file_size_commit_log:
            store.append(NewMessage("topic", 0, bytes(300)), NOW_MS)
        disk.fail_syncs = 1
        store.tick(NOW_MS + 60_000)
        store.close(NOW_MS)
        # The pages that were not written are read again.
        disk.forget_lost()
        kill(disk)
        assert len(disk.paths("/store/commitlog")) == 2, "none to remove, or the file made ahead"
        disk.cut_after = after
        try:
            opened(disk)
            disk.end()
        except PowerCut:
            pass
        disk.restart()
        opened(disk)


def test_a_filler_whose_size_is_torn_is_put_right() -> None:
    """Regression of seed 5430263: a sector ended inside of the filler's size.

    All records after it are kept.
    """
    disk = SimDisk(random.Random(1), lambda: NOW_MS)
    fill(disk)
    path = disk.paths("/store/commitlog")[1]
    content = disk.content(path)
    filler = content.rindex(b"\xcb\xd4\x31\x94") - 4
    whole = bytes(content)
    content[filler + 3] = 0
    assert content != whole, "torn where nothing was"
    end = opened(disk).max_log_offset
    assert end >= FILES * CONFIG.mapped_file_size_commit_log
    assert disk.content(path) == disk.durable(path) == whole


def test_a_file_of_expired_records_stays_if_the_one_behind_it_was_lost() -> None:
    """Regression of seed 6245233: a lost file was taken for an expired one, and the queue's count
    was lost with it.
    """
    disk = SimDisk(random.Random(1), lambda: NOW_MS)
    store = opened(disk)
    for topic, count in (("old", 20), ("new", 60)):
        for _ in range(count):
            store.append(NewMessage(topic, 0, bytes(300)), NOW_MS)
    for hour in range(3):
        later_ms = NOW_MS + (100 + hour) * 3_600_000
        store.tick(later_ms)
        delete_expired(store, later_ms)
    assert store.min_queue_offset("old", 0) == store.max_queue_offset("old", 0) == 20
    kill(disk)
    size = CONFIG.mapped_file_size_consume_queue
    disk.create(f"/store/consumequeue/old/0/{2 * size:020d}", size)
    store = opened(disk)
    assert (store.min_queue_offset("old", 0), store.max_queue_offset("old", 0)) == (20, 20)


def test_an_index_file_is_not_whole_because_it_ends_when_a_whole_one_does() -> None:
    """Found by seeds 6151064 and 6228099: a clock was set back, so all records had one time."""
    disk = SimDisk(random.Random(1), lambda: NOW_MS)
    store = opened(disk)
    for number in range(60):
        store.append(NewMessage("topic", 0, bytes(30), b"KEYS\x01k%d\x02" % number), NOW_MS)
    for second in (60, 61, 71):
        store.tick(NOW_MS + second * 1000)
    kill(disk)
    first, last = disk.paths("/store/index")
    saved = checkpoint.load(disk, "/store")
    assert saved.index_timestamp_ms == NOW_MS, f"{first} is not durable"
    # Its header reached the disk, and its slots did not.
    disk.content(last)[40:104] = bytes(64)
    checkpoint.save(disk, "/store", saved._replace(marks=None))
    store = opened(disk)
    for number in range(60):
        assert len(store.query("topic", f"k{number}", 32, 0, 1 << 60).slices) == 1, number
