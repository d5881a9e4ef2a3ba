"""The master's state machine for a replica's connection."""

import pytest
from tests.unit.net.ha.logs import MemoryLog, on_the_wire

from turbopump.engine.log.epochs import Epochs
from turbopump.engine.types import LogOffset
from turbopump.net.ha import primary
from turbopump.net.ha.actions import Acked, Action, Close, Send, SendLog
from turbopump.net.ha.frames import Ack, Handshake, HandshakeReply, MasterFramer, Transfer
from turbopump.net.ha.primary import PrimaryConnection, PrimaryOptions
from turbopump.net.ha.replica import State


def log_of(end: int, pairs: dict[int, int] | None = None, *, begin: int = 0) -> MemoryLog:
    data = bytearray(number % 251 for number in range(begin, end))
    return MemoryLog(data, Epochs.from_pairs((pairs or {1: 0}).items()), LogOffset(begin))


def connection_of(log: MemoryLog, **options: int) -> PrimaryConnection:
    """A connection after the handshake."""
    machine = PrimaryConnection(PrimaryOptions(**options), log, 0)
    assert machine.on_bytes(Handshake(2).encode(), 0)
    return machine


def frames(log: MemoryLog, actions: list[Action]) -> list[Transfer]:
    found = list(MasterFramer().feed(on_the_wire(log, actions)))
    assert all(isinstance(frame, Transfer) for frame in found)
    return found  # type: ignore[return-value]


def closed(actions: list[Action]) -> str:
    assert isinstance(actions[-1], Close)
    return actions[-1].reason


# --- handshake


def test_the_answer_has_the_epochs_and_the_end() -> None:
    log = log_of(700, {1: 0, 2: 300, 3: 300})
    machine = PrimaryConnection(PrimaryOptions(), log, 0)
    expected = HandshakeReply(LogOffset(700), log.epochs).encode()
    assert machine.on_bytes(Handshake(2).encode(), 0) == [Send(expected)]
    assert machine.on_bytes(Handshake(2).encode(), 5) == []  # sent again because we were late
    assert machine.on_tick(10_000) == []  # silent until the replica reports its position


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (Ack(0).encode(), "an acknowledgement before the handshake"),
        (Handshake(2).encode() + Handshake(3).encode(), "a second handshake"),
        (Handshake(2).encode() + Ack(0).encode() + Handshake(2).encode(), "a second handshake"),
        (Handshake(-1).encode(), "no broker has the id -1"),
        (b"\0\0\0\0", "no replica is in state 0"),
    ],
)
def test_a_replica_out_of_turn_is_left(data: bytes, reason: str) -> None:
    machine = PrimaryConnection(PrimaryOptions(), log_of(10), 0)
    assert closed(machine.on_bytes(data, 0)) == reason
    assert machine.state is State.SHUTDOWN
    assert machine.on_bytes(Handshake(2).encode(), 0) == []


def test_a_master_without_an_epoch_does_not_respond() -> None:
    machine = PrimaryConnection(PrimaryOptions(), MemoryLog(), 0)
    assert closed(machine.on_bytes(Handshake(2).encode(), 0)) == "this master has no epoch yet"


# --- where the stream starts


@pytest.mark.parametrize(
    ("begin", "end", "position", "last_file", "start"),
    [
        (0, 2500, 0, False, 0),
        (1000, 2500, 0, False, 1000),
        (0, 2500, 0, True, 2000),
        (0, 2500, 1700, True, 1700),
        (0, 2500, 1700, False, 1700),
        (0, 2500, 2500, False, 2500),
        (1000, 2500, 700, False, 1000),  # R19
    ],
)
def test_where_the_stream_starts(
    begin: int, end: int, position: int, last_file: bool, start: int
) -> None:
    log = log_of(end, begin=begin)
    log.confirm = LogOffset(end)
    machine = PrimaryConnection(PrimaryOptions(), log, 0)
    machine.on_bytes(Handshake(2, sync_from_last_file=last_file).encode(), 0)
    sent = frames(log, machine.on_bytes(Ack(position).encode(), 0))
    assert sent[0].log_offset == start
    assert b"".join(frame.body for frame in sent) == log.read(start, end - start)
    assert machine.next == end


def test_the_last_file_is_the_last_with_something_confirmed() -> None:
    log = log_of(2500)
    log.confirm = LogOffset(1700)
    machine = PrimaryConnection(PrimaryOptions(), log, 0)
    machine.on_bytes(Handshake(2, sync_from_last_file=True).encode(), 0)
    assert frames(log, machine.on_bytes(Ack(0).encode(), 0))[0].log_offset == 1000


# --- acknowledgements


def test_r18_a_position_behind_the_end_changes_nothing() -> None:
    machine = connection_of(log_of(500))
    actions = machine.on_bytes(Ack(501).encode(), 0)
    assert closed(actions) == "a replica at 501, the log ends at 500" and len(actions) == 1
    assert machine.acked == -1


@pytest.mark.parametrize("position", [-1, -(1 << 63)])
def test_r18_nor_does_a_negative_one(position: int) -> None:
    assert len(connection_of(log_of(500)).on_bytes(Ack(position).encode(), 0)) == 1


@pytest.mark.parametrize("position", [99, 501, 1 << 62])
def test_r18_nor_unsent_or_decreasing_offsets(position: int) -> None:
    log = log_of(500)
    machine = connection_of(log)
    machine.on_bytes(Ack(100).encode(), 0)
    log.write(b"x" * 50)  # there, but not sent
    actions = machine.on_bytes(Ack(position).encode(), 0)
    assert "acknowledged" in closed(actions) and len(actions) == 1
    assert machine.acked == 100


def test_acknowledgements_are_told() -> None:
    log = log_of(500)
    machine = PrimaryConnection(PrimaryOptions(), log, 0)
    machine.on_bytes(Handshake(7, async_learner=True).encode(), 0)
    assert machine.on_bytes(Ack(500).encode(), 0)[0] == Acked(7, LogOffset(500), True)
    assert machine.on_bytes(Ack(500).encode(), 0) == [Acked(7, LogOffset(500), True)]


# --- the stream


def test_batches_span_no_file_and_no_epoch() -> None:
    log = log_of(2600, {1: 0, 2: 1200, 3: 1200, 4: 2000, 5: 2600})
    machine = connection_of(log, transfer_batch_size=700)
    sent = frames(log, machine.on_bytes(Ack(0).encode(), 0))
    assert [(f.log_offset, len(f.body), f.epoch, f.epoch_start) for f in sent] == [
        (0, 700, 1, 0),
        (700, 300, 1, 0),
        (1000, 200, 1, 0),
        (1200, 700, 3, 1200),
        (1900, 100, 3, 1200),
        (2000, 600, 4, 2000),
    ]


def test_bytes_older_than_all_epochs_have_the_first_ones_label() -> None:
    log = log_of(900, {4: 500})
    sent = frames(log, connection_of(log).on_bytes(Ack(0).encode(), 0))
    assert [(f.log_offset, len(f.body), f.epoch) for f in sent] == [(0, 500, 4), (500, 400, 4)]


def test_r15_no_connection_outlives_its_epoch() -> None:
    log = log_of(500)
    machine = connection_of(log)
    machine.on_bytes(Ack(100).encode(), 0)
    log.epochs = log.epochs.with_epoch(2, 500)
    late = machine.on_bytes(Ack(500).encode(), 0)
    assert late == [Close("the epoch changed")]  # and the acknowledgement does not count
    again = connection_of(log)
    again.on_bytes(Ack(500).encode(), 0)
    log.write(b"x")
    (frame,) = frames(log, again.send_available(0))
    assert (frame.epoch, frame.epoch_start) == (2, 500)


def test_the_epoch_change_is_noticed_by_a_tick_too() -> None:
    log = log_of(500)
    machine = connection_of(log)
    log.epochs = log.epochs.with_epoch(2, 500)
    assert machine.on_tick(1) == [Close("the epoch changed")]


def test_headers_have_confirm_and_an_idle_replica_is_told_it_at_once() -> None:
    log = log_of(500)
    log.confirm = LogOffset(100)
    machine = connection_of(log)
    (frame,) = frames(log, machine.on_bytes(Ack(0).encode(), 0))
    assert frame.confirm_offset == 100
    assert machine.send_available(1) == []
    log.confirm = LogOffset(500)
    (frame,) = frames(log, machine.send_available(2))
    assert (frame.log_offset, frame.body, frame.confirm_offset) == (500, b"", 500)
    assert machine.send_available(3) == []


def test_heartbeats() -> None:
    log = log_of(500)
    machine = connection_of(log, heartbeat_interval_ms=1000)
    machine.on_bytes(Ack(500).encode(), 0)
    machine.send_available(0)
    assert machine.on_tick(1000) == []
    (frame,) = frames(log, machine.on_tick(1001))
    assert (frame.log_offset, frame.body, frame.epoch) == (500, b"", 1)
    assert machine.on_tick(1500) == []


def test_a_silent_replica_is_left() -> None:
    machine = connection_of(log_of(5))
    assert closed(machine.on_tick(20_001)) == "the replica is silent"


def test_bytes_in_flight_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    log = log_of(10_000)
    machine = connection_of(log, transfer_batch_size=100, in_flight_max=250)
    machine.on_bytes(Ack(0).encode(), 0)
    assert (machine.next, machine.in_flight) == (300, 300)
    machine.on_bytes(Ack(100).encode(), 0)
    assert machine.next == 400
    monkeypatch.setattr(primary, "FRAMES_AT_ONCE_MAX", 1)
    machine.on_bytes(Ack(400).encode(), 0)
    assert machine.next == 500


def test_an_old_beginning_does_not_count_as_on_its_way() -> None:
    log = log_of(10_000, begin=5000)
    machine = connection_of(log, transfer_batch_size=100, in_flight_max=250)
    machine.on_bytes(Ack(0).encode(), 0)
    assert machine.next == 5300


def test_a_full_socket_gets_nothing() -> None:
    log = log_of(500)
    machine = connection_of(log)
    assert machine.on_writable(False, 0) == []
    assert machine.on_bytes(Ack(0).encode(), 0) == [Acked(2, LogOffset(0), False)]
    assert isinstance(machine.on_writable(True, 0)[0], SendLog)


def test_a_replica_that_retention_overtakes_is_left() -> None:
    log = log_of(5000)
    machine = connection_of(log, transfer_batch_size=100, in_flight_max=100)
    machine.on_bytes(Ack(0).encode(), 0)
    del log.data[:1000]
    log.min = LogOffset(1000)
    assert closed(machine.send_available(0)) == "the log begins at 1000, 100 is gone"
