"""A store as one of several copies, in trouble: lost epochs, damage, full, failing and slow disks;
and variants: batch topics, queue extensions, default HA, retention."""

from typing import Any

import pytest
from tests.shortcuts.log_cuts import restart_log, truncate_log
from tests.waiting import delete_expired, record_epochs

from turbopump.engine.disk import checkpoint
from turbopump.engine.log import replica_append
from turbopump.engine.log.epochs import Epochs
from turbopump.engine.types import FlushMode, LogOffset, NewMessage, PutStatus, StoreError

NOW_MS = 1_700_000_000_000
LISTS = ("epochFileCheckpoint", "epochFileCheckpoint.bak")
ZERO = LogOffset(0)


@pytest.fixture
def records(tmp_path: Any, stores: Any, put: Any) -> Any:
    """Makes a master's log: its bytes and its epochs."""

    def make(count: int = 40, **config: Any) -> tuple[bytes, Epochs]:
        other = type(stores)(tmp_path / "master")
        other.config = stores.config
        other.configure(root=str(tmp_path / "master"), **config)
        other.batch_topics = stores.batch_topics
        store = other.open()
        leader = store.as_replicated(NOW_MS)
        leader.to_master(2, NOW_MS)
        for number in range(count):
            body = b"%04d" % number + bytes(number * 37 % 900)
            put(store, queue_id=number % 3, body=body, TAGS=f"t{number % 2}")
            for topic in other.batch_topics:
                put(store, topic=topic, body=body, INNER_NUM="3")
        data = b"".join(leader.view(ZERO, leader.end))
        other.close()
        return data, leader.epochs

    return make


def open_copy(stores: Any, data: bytes, epochs: Epochs, disk: Any = None) -> Any:
    store = stores.open(disk)
    log = store.as_replicated(NOW_MS)
    record_epochs(log, epochs)
    for at in range(0, len(data), 1000):
        log.append(LogOffset(at), data[at : at + 1000], NOW_MS)
    return store, log


def test_a_store_that_lost_its_epochs_does_not_lead(stores: Any, records: Any) -> None:
    """S1: the store does not count as new, and serves no unconfirmed records."""
    data, epochs = records()
    store, log = open_copy(stores, data, epochs)
    log.confirm_to(LogOffset(9000), NOW_MS)
    confirm = log.confirm
    store.close(NOW_MS)
    for name in LISTS:
        (stores.root / name).unlink()
    store = stores.open()
    assert store.dispatched_log_offset == confirm
    log = store.as_replicated(NOW_MS)
    assert (log.may_lead, log.believed_end, len(log.epochs)) == (False, 0, 0)
    with pytest.raises(StoreError, match="it is missing, but there are messages"):
        log.to_master(5, NOW_MS)
    refused = store.append(NewMessage("T", 0, b"x"), NOW_MS)
    assert refused.status is PutStatus.SERVICE_NOT_AVAILABLE
    restart_log(log, NOW_MS)
    record_epochs(log, epochs)
    log.append(ZERO, data, NOW_MS)
    assert (log.may_lead, log.believed_end) == (True, len(data))


def test_the_list_lies_where_the_configuration_says(
    stores: Any, records: Any, tmp_path: Any
) -> None:
    """storePathEpochFile also holds for the check before the store opens, and for the files that a
    restart of the log removes."""
    elsewhere = tmp_path / "epochs" / "list"
    data, epochs = records()
    stores.configure(epoch_file=str(elsewhere))
    store, log = open_copy(stores, data, epochs)
    log.confirm_to(LogOffset(9000), NOW_MS)
    confirm = log.confirm
    store.close(NOW_MS)
    assert elsewhere.exists()
    assert not any((stores.root / name).exists() for name in LISTS)
    (stores.root / "replicated").unlink()
    store = stores.open()
    assert store.dispatched_log_offset == confirm
    log = store.as_replicated(NOW_MS)
    assert (log.may_lead, log.epochs) == (True, epochs)
    restart_log(log, NOW_MS)
    left = {path.name: path.read_bytes() for path in elsewhere.parent.iterdir()}
    assert left == {"list.changes": b""}


def test_a_master_that_lost_its_epochs_does_not_lead_again(stores: Any, put: Any) -> None:
    store = stores.open()
    log = store.as_replicated(NOW_MS)
    log.to_master(1, NOW_MS)
    put(store)
    log.confirm_to(log.end, NOW_MS)
    store.close(NOW_MS)
    for name in LISTS:
        (stores.root / name).unlink()
    assert not stores.open().as_replicated(NOW_MS).may_lead


def test_a_cut_takes_epochs_and_confirm_with_it(stores: Any, records: Any) -> None:
    """Also below confirmOffset, as after an unclean election: different bytes will follow there."""
    data, _epochs = records()
    size = int.from_bytes(data[:4])
    store, log = open_copy(stores, data, Epochs.from_pairs([(2, 0), (3, size), (4, 9000)]))
    log.confirm_to(log.end, NOW_MS)
    store.tick(NOW_MS + 60_000)
    truncate_log(log, LogOffset(size), NOW_MS)
    assert log.epochs == Epochs.from_pairs([(2, 0)])
    assert log.confirm == size
    assert checkpoint.load(stores.files, str(stores.root)).confirm_offset == size
    log.append(LogOffset(size), data[size:], NOW_MS)
    store.tick(NOW_MS + 120_000)
    assert log.confirm == size
    assert checkpoint.load(stores.files, str(stores.root)).confirm_offset == size


def test_a_store_that_never_had_epochs_may_lead(stores: Any, put: Any) -> None:
    store = stores.open()
    for _ in range(5):
        put(store)
    store.close(NOW_MS)
    store = stores.open()
    log = store.as_replicated(NOW_MS)
    end = log.end
    assert (log.confirm, log.may_lead, len(log.epochs)) == (end, True, 0)
    assert log.to_master(1, NOW_MS) == end
    assert log.epochs == Epochs.from_pairs([(1, end)])
    assert put(store).queue_offset == 5


def test_queues_of_all_kinds_count_on(stores: Any, records: Any, put: Any) -> None:
    stores.configure(enable_consume_queue_ext=True)
    stores.batch_topics = {"B"}
    data, epochs = records(12)
    store, log = open_copy(stores, data, epochs)
    log.confirm_to(LogOffset(3000), NOW_MS)
    assert 0 < store.max_queue_offset("B", 0) < 36
    log.to_master(4, NOW_MS)
    assert put(store, queue_id=1).queue_offset == 4
    assert put(store, topic="B", INNER_NUM="2").queue_offset == 36
    assert put(store, topic="B", INNER_NUM="2").queue_offset == 38
    assert put(store, queue_id=7).queue_offset == 0
    log.confirm_to(log.end, NOW_MS)
    assert store.max_queue_offset("B", 0) == 40
    assert store.max_queue_offset("T", 1) == 5


def test_a_full_disk_stops_the_copy_where_it_is(
    stores: Any, records: Any, troubled: Any, read_bodies: Any
) -> None:
    data, epochs = records(200)
    size = int.from_bytes(data[:4])
    store, log = open_copy(stores, data[:size], epochs)
    troubled.full = True
    with pytest.raises(OSError, match="no next log file"):
        log.append(LogOffset(size), data[size:], NOW_MS)
    reached = log.end
    assert reached % stores.config.mapped_file_size_commit_log == 0 < reached
    troubled.full = False
    log.append(reached, data[reached:], NOW_MS)
    assert log.end == len(data)
    log.confirm_to(log.end, NOW_MS)
    assert len(read_bodies(store, queue_id=0)) == 67


@pytest.mark.parametrize("what", ["truncate", "restart", "to_master", "record_epochs"])
def test_a_sync_that_fails_is_an_error(
    stores: Any, records: Any, troubled: Any, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_append, "HELD_MAX", 0)  # a part of a record is in the log
    data, epochs = records()
    store, log = open_copy(stores, data[:-5], epochs)
    calls = {
        "truncate": lambda: truncate_log(log, ZERO, NOW_MS),
        "restart": lambda: restart_log(log, NOW_MS),
        "to_master": lambda: log.to_master(9, NOW_MS),
        "record_epochs": lambda: record_epochs(log, Epochs.from_pairs([(2, 0), (3, 900)])),
    }
    troubled.fail_sync = True
    with pytest.raises((StoreError, OSError)):
        calls[what]()
    troubled.fail_sync = False
    assert not log.is_master
    assert log.epochs == epochs or what == "restart"
    if what == "record_epochs":
        log.append(log.end, data[-5:], NOW_MS)
        return
    with pytest.raises(StoreError, match="takes no changes"):
        log.append(log.end, b"more", NOW_MS)
    refused = store.append(NewMessage("T", 0, b"x"), NOW_MS)
    assert refused.status is PutStatus.SERVICE_NOT_AVAILABLE


def test_under_sync_flush_readers_wait_for_the_disk(
    stores: Any, records: Any, held_disk: Any
) -> None:
    data, epochs = records()
    stores.configure(flush_disk_type=FlushMode.SYNC_FLUSH)
    store = stores.open(held_disk)
    log = store.as_replicated(NOW_MS)
    held_disk.drain()
    record_epochs(log, epochs)
    durable: list[int] = []
    log.on_flushed.append(durable.append)
    log.append(ZERO, data[:5000], NOW_MS)
    log.append(LogOffset(5000), data[5000:], NOW_MS)
    assert not log.confirm_to(LogOffset(len(data)), NOW_MS)
    assert (log.confirm, store.dispatched_log_offset, log.flushed) == (0, 0, 0)
    while log.flushed == 0:
        held_disk.step()
    assert 4000 < durable[0] == log.confirm == store.dispatched_log_offset < 5000
    held_disk.drain()
    assert durable[-1] == log.confirm == store.dispatched_log_offset == len(data)


def test_a_deposed_master_fails_waiting_sends(stores: Any, held_disk: Any) -> None:
    stores.configure(flush_disk_type=FlushMode.SYNC_FLUSH)
    store = stores.open(held_disk)
    log = store.as_replicated(NOW_MS)
    log.to_master(1, NOW_MS)
    held_disk.drain()
    grown: list[int] = []
    log.on_appended.append(lambda: grown.append(log.end))
    appended = store.append(NewMessage("T", 0, b"x"), NOW_MS)
    later = store.when_safe(appended)
    assert grown == [appended.end]
    log.to_replica(NOW_MS)
    assert later.value is PutStatus.SERVICE_NOT_AVAILABLE
    assert store.append(NewMessage("T", 0, b"x"), NOW_MS).status is PutStatus.SERVICE_NOT_AVAILABLE
    assert store.pending.withheld, "until a master's term sets the number of copies for a send"


def test_damage_in_copied_bytes(stores: Any, records: Any) -> None:
    """A bit flipped during the transfer or in memory: the record is reported and skipped, and the
    copy never becomes master."""
    data, epochs = records()
    broken = bytearray(data)
    first = int.from_bytes(data[:4])
    broken[first + 4] ^= 0x40
    store, log = open_copy(stores, bytes(broken), epochs)
    log.confirm_to(LogOffset(len(data)), NOW_MS)
    assert log.confirm == len(data)
    assert log.damage is not None and log.damage.log_offset == first
    assert not log.may_lead
    with pytest.raises(StoreError, match="the log cannot be led"):
        log.to_master(9, NOW_MS)
    assert store.max_queue_offset("T", 0) == 14


def test_damage_in_unconfirmed_bytes_is_not_led(stores: Any, records: Any) -> None:
    data, epochs = records()
    broken = bytearray(data)
    broken[int.from_bytes(data[:4]) + 4] ^= 0x40
    _store, log = open_copy(stores, bytes(broken), epochs)
    with pytest.raises(StoreError, match="no record begins at log offset"):
        log.to_master(9, NOW_MS)
    assert not log.is_master


def test_a_reader_keeps_files_that_age_would_take(stores: Any, records: Any) -> None:
    data, _epochs = records(90)
    store, log = open_copy(stores, data, Epochs.from_pairs([(1, 0), (2, 100)]))
    log.confirm_to(LogOffset(len(data)), NOW_MS)
    for number in range(1, 4):
        store.tick(NOW_MS + number * 60_000)
    size = log.file_size
    log.protect_files("slow", LogOffset(size + 7))
    last = max((stores.root / "commitlog").iterdir())
    late_ms = int(last.stat().st_mtime * 1000) + 100 * 3_600_000
    pieces = log.view(LogOffset(10), size)
    while delete_expired(store, late_ms):
        pass
    assert log.min == size
    assert b"".join(pieces) == data[10 : 10 + size], "a view holds the mapping"
    with pytest.raises(StoreError, match="the log has"):
        log.view(LogOffset(size - 1), 5)
    log.unprotect_files("slow")
    while delete_expired(store, late_ms):
        pass
    assert log.min > size
    store.tick(late_ms)
    assert log.epochs == Epochs.from_pairs([(2, 100)]), "an epoch goes with its bytes"


def test_default_ha_knows_neither_epochs_nor_confirm(
    stores: Any, records: Any, put: Any, read_bodies: Any
) -> None:
    data, _epochs = records()
    store = stores.open()
    log = store.as_replicated(NOW_MS, plain=True)
    log.append(ZERO, data[:-5], NOW_MS)
    log.confirm_to(log.end, NOW_MS)
    assert len(read_bodies(store, queue_id=0)) == 13
    assert (len(log.epochs), log.may_lead, log.believed_end) == (0, True, log.end)
    start = log.to_master(-1, NOW_MS)
    assert start < len(data) - 5
    assert put(store, queue_id=0).queue_offset == 13
    assert store.max_queue_offset("T", 0) == 14, "seen at once"
    assert not (stores.root / LISTS[0]).exists()
    log.to_replica(NOW_MS)
    log.append(log.end, data[start:], NOW_MS)
    assert store.max_queue_offset("T", 0) == 14


def test_a_store_that_is_taken_out_of_its_group(stores: Any, records: Any, put: Any) -> None:
    data, epochs = records()
    store, log = open_copy(stores, data, epochs)
    log.confirm_to(LogOffset(3000), NOW_MS)
    store.close(NOW_MS)
    store = stores.open()
    assert store.dispatched_log_offset < store.max_log_offset
    assert store.append(NewMessage("T", 0, b"x"), NOW_MS).status is PutStatus.SERVICE_NOT_AVAILABLE
    store.stand_alone(NOW_MS)
    assert not store.pending.withheld, "sends need no replica and may be native"
    assert store.dispatched_log_offset == store.max_log_offset == len(data)
    assert put(store, queue_id=0).queue_offset == 14
    assert store.max_queue_offset("T", 0) == 15


def test_refused_operations(stores: Any, records: Any) -> None:
    data, epochs = records()
    _store, log = open_copy(stores, data, epochs)
    with pytest.raises(StoreError, match="bytes from 5 on, the log ends at"):
        log.append(LogOffset(5), b"x", NOW_MS)
    with pytest.raises(StoreError, match="epoch 2 is not newer"):
        log.to_master(2, NOW_MS)
    log.to_master(3, NOW_MS)
    for call in (
        lambda: log.append(log.end, b"x", NOW_MS),
        lambda: truncate_log(log, ZERO, NOW_MS),
        lambda: restart_log(log, NOW_MS),
    ):
        with pytest.raises(StoreError, match="master"):
            call()
    log.to_replica(NOW_MS)
    restart_log(log, NOW_MS)
    with pytest.raises(StoreError, match="is not where a file"):
        log.append(LogOffset(77), b"x", NOW_MS)
