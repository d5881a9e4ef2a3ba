"""The machines against a real pair: our replica fed with a real master's bytes, our master with a
real replica's. The story is a failover: 1 leads, 2 leads and 1 is cut, 1 leads again."""

import hashlib
import random

import pytest
from tests.unit.net.ha.logs import MemoryLog, Shell, on_the_wire
from tests.wire.ha_streams import CONNECTIONS, HA, SWITCHING, steps, stream

from turbopump.engine.log.epochs import Epochs, decode
from turbopump.engine.types import LogOffset
from turbopump.net.ha import primary
from turbopump.net.ha.actions import Acked, Append, RecordEpochs, Truncate
from turbopump.net.ha.frames import MasterFramer, Transfer
from turbopump.net.ha.primary import PrimaryConnection, PrimaryOptions
from turbopump.net.ha.replica import Replica, ReplicaOptions, State

DIVERGED_END = 717163
COMMON_END = 407727
FINAL_END = 623578
# The log of both brokers in the end, as their stores have it.
FINAL_LOG = {
    "controller-json": "d3cef5075d59833cf68c5ac0d0c0db3acaf52c412bfd02886cd1137e02715177",
    "controller-mixed": "152a95b0222006ebf6022b8926471b704925df4bec2e7f2dc89742765daff062",
}
FOLLOWERS = [(2, 1), (1, 2), (2, 3)]
"""Follower and epoch of each connection."""


def bodies(run: str, connection: int) -> bytes:
    frames = MasterFramer().feed(stream(run, connection, "master-to-slave"))
    return b"".join(frame.body for frame in frames if isinstance(frame, Transfer))


def epochs_at(run: str, stage: str) -> Epochs:
    return decode((HA / run / "epochs" / stage).read_bytes())[0]


def replay(run: str, connection: int, log: MemoryLog, chance: random.Random) -> Shell:
    """Feed a replica with all bytes that the master sent on a connection, in random pieces."""
    broker_id, epoch = FOLLOWERS[connection]
    # allAckInSyncStateSet was off: confirmOffset was the master's end and promised nothing.
    shell = Shell(Replica(ReplicaOptions(broker_id, cut_confirmed=True)), log)
    shell.do(shell.replica.follow("master", epoch, 0))
    shell.do(shell.replica.on_connected(log.state(), 0))
    data = stream(run, connection, "master-to-slave")
    while data:
        size = chance.choice([1, 7, 100, 5000, 40_000])
        shell.feed(data[:size])
        data = data[size:]
    assert shell.closed == []
    return shell


@pytest.mark.parametrize("run", SWITCHING)
@pytest.mark.parametrize("seed", range(5))
def test_our_replicas_end_with_the_log_and_the_epochs_of_the_real_ones(run: str, seed: int) -> None:
    chance = random.Random(seed)
    b = MemoryLog()
    replay(run, 0, b, chance)
    assert b.end == COMMON_END and b.epochs == epochs_at(run, "1-before/b")
    a = MemoryLog(bytearray(b.data), epochs_at(run, "2-after-kill/a"))
    a.write(b"x" * (DIVERGED_END - COMMON_END))
    a.confirm = a.end
    shell = replay(run, 1, a, chance)
    assert Truncate(LogOffset(COMMON_END)) in shell.done
    assert shell.replica.truncated_bytes == DIVERGED_END - COMMON_END
    assert a.epochs == epochs_at(run, "4-a-truncated/a")
    b = MemoryLog(bytearray(a.data), epochs_at(run, "3-b-master/b"), confirm=a.confirm)
    replay(run, 2, b, chance)
    assert b.end == FINAL_END and b.epochs == epochs_at(run, "6-end/b")
    assert hashlib.sha256(b.data).hexdigest() == FINAL_LOG[run]
    assert b.confirm == FINAL_END


@pytest.mark.parametrize("run", SWITCHING)
def test_entries_are_recorded_before_their_bytes(run: str) -> None:
    shell = replay(run, 0, MemoryLog(), random.Random(1))
    kinds = [type(action) for action in shell.done]
    assert kinds.index(RecordEpochs) < kinds.index(Append)


@pytest.mark.parametrize(("run", "connection"), CONNECTIONS)
def test_our_master_answers_a_real_replica_as_the_real_one_did(
    run: str, connection: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Byte for byte, given the log's end and the time of each frame."""
    monkeypatch.setattr(primary, "FRAMES_AT_ONCE_MAX", 1)
    truth = steps(run, connection)
    reply = next(s for s in truth if "entries" in s)
    whole = bytearray(b"".join(bodies(run, number) for number in range(3)))
    whole += bytes(DIVERGED_END - len(whole))
    log = MemoryLog(file_size=262_144, epochs=Epochs.from_pairs(reply["entries"]))
    read, sent_bytes = stream(run, connection, "slave-to-master"), b""
    options = PrimaryOptions(transfer_batch_size=32_768, heartbeat_interval_ms=900)
    machine = PrimaryConnection(options, log, 0)
    acked, sent_at = [], 0
    machine.on_writable(False, 0)  # it may speak when the real one did
    for step in truth:
        now_ms = int(step["ms"])
        if step["direction"] == "slave-to-master":
            handshake = step["kind"] == "handshake"
            log.data = whole[: reply["offset"]] if handshake else whole
            frame = read[step["at"] :][: 16 if handshake else 12]
            actions = machine.on_bytes(frame, now_ms)
            acked += [a.log_offset for a in actions if isinstance(a, Acked)]
            sent_bytes += on_the_wire(log, actions)
        elif "entries" not in step:
            log.confirm = step["confirmOffset"]
            log.data = whole[: log.confirm if step["size"] else step["offset"]]
            machine.last_write_ms = now_ms if step["size"] else sent_at
            sent_bytes += on_the_wire(log, machine.on_writable(True, now_ms))
            machine.on_writable(False, now_ms)
            sent_at = now_ms
    assert machine.state is State.TRANSFER
    assert acked == [s["offset"] for s in truth if s["kind"] == "ack"]
    last = [s for s in truth if s["direction"] == "master-to-slave"][-1]
    assert (
        sent_bytes == stream(run, connection, "master-to-slave")[: last["at"] + 36 + last["size"]]
    )
