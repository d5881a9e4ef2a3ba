"""A replica of ours on a real store, fed with a real master's bytes: its files equal the real
replica's in the end. The story is that of test_golden_ha_machines.
"""

import hashlib
import random
from pathlib import Path

import pytest
from tests.wire.ha_streams import HA, SWITCHING, stream
from tests.wire.test_golden_ha_machines import (
    COMMON_END,
    DIVERGED_END,
    FINAL_END,
    FINAL_LOG,
    FOLLOWERS,
)

from turbopump.broker.ha.follower import Follower
from turbopump.engine.config import StoreConfig
from turbopump.engine.disk.flush import InlineDisk
from turbopump.engine.disk.real_files import RealFiles
from turbopump.engine.replicated import Replicated
from turbopump.engine.store import Store
from turbopump.engine.types import Buffer, FlushMode, LogOffset
from turbopump.net.ha.replica import Replica, ReplicaOptions, State

MESSAGES = 78
NOW_MS = 1_800_000_000_000


class Line:
    """The only connection of a replica; keeps the sent bytes."""

    def __init__(self) -> None:
        self.sent = bytearray()
        self.is_open = False

    def connect(self, _address: str) -> int:
        self.is_open = True
        return 1

    def send(self, _connection: int, buffers: list[Buffer]) -> bool:
        for buffer in buffers:
            self.sent += buffer
        return True

    def set_paused(self, _connection: int, _paused: bool) -> None:
        raise AssertionError("an idle disk keeps up")

    def close(self, _connection: int) -> None:
        self.is_open = False


def open_store(root: Path, mode: FlushMode) -> Store:
    config = StoreConfig(
        root=str(root),
        mapped_file_size_commit_log=262_144,
        mapped_file_size_consume_queue=1000,
        max_hash_slot_num=500,
        max_index_num=1000,
        flush_disk_type=mode,
    )
    return Store.open(RealFiles(), config, InlineDisk(), NOW_MS)


def replay(run: str, connection: int, store: Store, chance: random.Random) -> Replicated:
    """Feed a replica with all bytes that the master sent on a connection, in random pieces."""
    broker_id, epoch = FOLLOWERS[connection]
    log, line = store.as_replicated(NOW_MS), Line()
    durable = store.config.flush_disk_type is FlushMode.SYNC_FLUSH
    machine = Replica(ReplicaOptions(broker_id, ack_durable=durable, cut_confirmed=True))
    follower = Follower(log, machine, line, lambda: NOW_MS)
    follower.follow("master", epoch, 0)
    follower.on_connected(1, 0)
    data = stream(run, connection, "master-to-slave")
    while data:
        size = chance.choice([1, 7, 100, 5000, 40_000])
        follower.on_bytes(1, memoryview(bytearray(data[:size])), 0)
        data = data[size:]
    follower.on_tick(100)  # the master was killed inside a frame
    assert line.is_open
    assert machine.state is State.TRANSFER
    assert line.sent[-8:] == log.end.to_bytes(8, "big"), "all of it is acknowledged"
    follower.shutdown(0)
    return log


def log_sum(log: Replicated) -> str:
    return hashlib.sha256(b"".join(log.view(log.min, log.end - log.min))).hexdigest()


def count(store: Store) -> int:
    return sum(
        store.max_queue_offset(topic, queue_id)
        for topic in store.topics()
        for queue_id in store.queue_ids(topic)
    )


@pytest.mark.parametrize("run", SWITCHING)
@pytest.mark.parametrize("mode", FlushMode)
def test_our_replicas_files_end_as_the_real_ones(run: str, mode: FlushMode, tmp_path: Path) -> None:
    chance = random.Random(run)
    epoch_file = tmp_path / "epochFileCheckpoint"

    def wrote(stage: str) -> None:
        log.tick(NOW_MS)  # RocketMQ's file follows
        assert epoch_file.read_bytes() == (HA / run / "epochs" / stage).read_bytes()

    store = open_store(tmp_path, mode)
    log = replay(run, 0, store, chance)
    assert log.end == log.confirm == COMMON_END
    wrote("1-before/b")
    # From here on it is the other broker, which wrote on alone before it was killed.
    log.append(LogOffset(COMMON_END), b"x" * (DIVERGED_END - COMMON_END), NOW_MS)
    replay(run, 1, store, chance)
    wrote("4-a-truncated/a")
    replay(run, 2, store, chance)
    wrote("6-end/b")
    assert log.end == log.confirm == FINAL_END
    assert log_sum(log) == FINAL_LOG[run]
    messages = count(store)
    store.close(NOW_MS)
    store = open_store(tmp_path, mode)
    log = store.as_replicated(NOW_MS)
    assert log.end == log.confirm == FINAL_END
    assert log_sum(log) == FINAL_LOG[run]
    assert count(store) == messages == MESSAGES
    assert not log.damage
    assert not store.check_log()
    store.close(NOW_MS)
