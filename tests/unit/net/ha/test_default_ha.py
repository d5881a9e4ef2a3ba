"""Default HA: the streams of a real pair through both machines, and the rules of ha.md 1."""

import random

import pytest
from tests.unit.net.ha.logs import MemoryLog, on_the_wire
from tests.wire.ha_streams import PLAIN_CONNECTIONS, steps, stream

from turbopump.engine.types import LogOffset
from turbopump.net.ha import default_ha
from turbopump.net.ha.actions import Acked, Action, Append, Close, Connect, Send
from turbopump.net.ha.default_ha import (
    DefaultHaGroup,
    DefaultHaOptions,
    DefaultHaPrimary,
    DefaultHaReplica,
)
from turbopump.net.ha.frames import DefaultHaFramer, DefaultHaTransfer, Report
from turbopump.net.ha.primary import PrimaryOptions
from turbopump.net.ha.replica import (
    ACK_BYTES,
    ACK_MS,
    CATCH_UP_ACK_BYTES,
    CATCH_UP_ACK_MS,
    LARGE_READ,
    State,
)

START = LogOffset(0)
SMALL_READ = LARGE_READ - 1


def bodies(connection: int) -> bytes:
    frames = DefaultHaFramer().feed(stream("plain", connection, "master-to-slave"))
    return b"".join(frame.body for frame in frames)


def following(end: int = 0, **options: int) -> DefaultHaReplica:
    replica = DefaultHaReplica(DefaultHaOptions(**options))
    assert replica.follow("master:1", 0) == [Connect("master:1")]
    assert replica.on_connected(LogOffset(end), 0) == [Send(Report(LogOffset(end)).encode())]
    return replica


def piece(at: int, body: bytes = b"") -> bytes:
    return DefaultHaTransfer(LogOffset(at)).encode_header(len(body)) + body


# --- a real pair


@pytest.mark.parametrize("seed", range(3))
def test_our_replica_ends_with_the_real_masters_log(seed: int) -> None:
    chance = random.Random(seed)
    log = MemoryLog()
    for connection in PLAIN_CONNECTIONS:
        replica = following(log.end)
        data = stream("plain", connection, "master-to-slave")
        while data:
            size = chance.choice([1, 11, 500, 40_000])
            for action in replica.on_bytes(data[:size], 0):
                assert isinstance(action, Append | Send)
                if isinstance(action, Append):
                    log.append(action.log_offset, action.data)
            data = data[size:]
        last = [s for s in steps("plain", connection) if s["direction"] == "master-to-slave"][-1]
        assert log.end == replica.log_end == last["offset"] + last["size"]
    assert log.data == bodies(0) + bodies(1)


@pytest.mark.parametrize("connection", PLAIN_CONNECTIONS)
def test_our_master_writes_the_real_ones_bytes(
    connection: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(default_ha, "FRAMES_AT_ONCE_MAX", 1)
    truth = steps("plain", connection)
    whole = bytearray(bodies(0) + bodies(1))
    log = MemoryLog(whole, file_size=262_144)
    machine = DefaultHaPrimary(PrimaryOptions(heartbeat_interval_ms=4900), log, 7, 0)
    machine.on_writable(False, 0)
    read, sent_bytes, sent_at, acked = stream("plain", connection, "slave-to-master"), b"", 0, []
    for number, step in enumerate(truth):
        now_ms = int(step["ms"])
        if step["direction"] == "slave-to-master":
            first = step["at"] == 0
            following_steps = (s for s in truth[number:] if s["direction"] == "master-to-slave")
            log.data = whole[: next(following_steps)["offset"]] if first else whole
            actions = machine.on_bytes(read[step["at"] :][:8], now_ms)
            acked += [a.log_offset for a in actions if isinstance(a, Acked)]
        else:
            log.data = whole[: step["offset"] + step["size"]]
            machine.last_write_ms = now_ms if step["size"] else sent_at
            sent_bytes += on_the_wire(log, machine.on_writable(True, now_ms))
            machine.on_writable(False, now_ms)
            sent_at = now_ms
    assert acked == [s["offset"] for s in truth if s["kind"] == "report"]
    assert sent_bytes == stream("plain", connection, "master-to-slave")


# --- the replica


@pytest.mark.parametrize("at", [0, 49, 51])
@pytest.mark.parametrize("body", [b"", b"x"])
def test_a_frame_of_another_place_ends_the_connection(at: int, body: bytes) -> None:
    replica = following(50)
    assert replica.on_bytes(piece(at, body), 0) == [
        Close(f"bytes from {at} on, the log ends at 50")
    ]
    assert replica.state is State.READY
    assert replica.on_tick(99) == [] and replica.on_tick(100) == [Connect("master:1")]


def test_an_empty_replica_takes_the_first_bytes() -> None:
    replica = following()
    assert replica.on_bytes(piece(2000) + piece(2000, b"ab"), 0) == [
        Append(LogOffset(2000), b"ab"),
        Send(Report(LogOffset(2002)).encode()),
    ]
    replica = following()
    assert isinstance(replica.on_bytes(piece(-5, b"x"), 0)[-1], Close)


def test_signs_of_life() -> None:
    replica = following(50, heartbeat_interval_ms=1000, housekeeping_interval_ms=4000)
    assert replica.on_tick(1000) == []
    assert replica.on_tick(1001) == [Send(Report(LogOffset(50)).encode())]
    assert replica.on_bytes(piece(50), 1500) == []
    assert replica.on_tick(5501) == [Close("the master is silent")]


def test_inside_a_frame_reports_are_paced() -> None:
    replica, cut = following(50), piece(53, b"defg")
    assert replica.on_bytes(piece(50, b"abc") + cut[:-1], 0) == [Append(LogOffset(50), b"abc")]
    assert replica.on_tick(1) == [Send(Report(LogOffset(53)).encode())]
    assert replica.on_tick(100) == []
    at_its_end = [Append(LogOffset(53), b"defg"), Send(Report(LogOffset(57)).encode())]
    assert replica.on_bytes(cut[-1:], 100) == at_its_end
    much = piece(57, bytes(ACK_BYTES)) + piece(57 + ACK_BYTES)[:1]
    assert not replica.on_bytes(much[:-SMALL_READ], 100)
    enough = replica.on_bytes(much[-SMALL_READ:], 100)
    assert enough[1:] == [Send(Report(LogOffset(57 + ACK_BYTES)).encode())]
    late = piece(57 + ACK_BYTES)[1:] + piece(57 + ACK_BYTES, b"x") + b"\0"
    assert len(replica.on_bytes(late, 100 + ACK_MS)) == 1
    assert replica.on_bytes(b"\0", 101 + ACK_MS) == [
        Send(Report(LogOffset(58 + ACK_BYTES)).encode())
    ]


def test_in_a_catch_up_reports_are_few() -> None:
    replica, at, counts = following(50), 50, []
    for number in range(CATCH_UP_ACK_BYTES // ACK_BYTES):
        frame = piece(at, bytes(ACK_BYTES))[min(number, 1) :] + b"\0"
        counts.append(len(replica.on_bytes(frame, CATCH_UP_ACK_MS)))
        at += ACK_BYTES
    assert counts == [1, 1, 1, 2]
    late = piece(at, bytes(ACK_BYTES))[1:] + b"\0"
    assert len(replica.on_bytes(late, 2 * CATCH_UP_ACK_MS + 1)) == 2


def test_leaving() -> None:
    replica = following(50)
    assert replica.follow("other:1", 5) == [Close("another master"), Connect("other:1")]
    assert replica.follow("other:1", 5) == []
    assert replica.shutdown() == [Close("shut down")]
    assert (replica.on_tick(10**6), replica.follow("x:1", 0)) == ([], [])
    assert DefaultHaReplica(DefaultHaOptions()).on_connected(START, 0) == [Close("not asked for")]


# --- the master


def connection_of(begin: int, end: int, **options: int) -> tuple[DefaultHaPrimary, MemoryLog]:
    log = MemoryLog(bytearray(end - begin), min=LogOffset(begin))
    return DefaultHaPrimary(PrimaryOptions(**options), log, 7, 0), log


def positions(log: MemoryLog, actions: list[Action]) -> list[tuple[int, int]]:
    frames = DefaultHaFramer().feed(on_the_wire(log, actions))
    return [(frame.log_offset, len(frame.body)) for frame in frames]


@pytest.mark.parametrize(
    ("report", "expected"),
    [(0, [(2000, 500)]), (1700, [(1700, 300), (2000, 500)]), (2500, [])],
)
def test_where_the_stream_starts(report: int, expected: list[tuple[int, int]]) -> None:
    """A new replica receives only the last file; no frame crosses a file boundary."""
    machine, log = connection_of(0, 2500)
    assert machine.on_tick(9000) == []
    actions = machine.on_bytes(Report(LogOffset(report)).encode(), 0)
    assert positions(log, actions) == expected


def test_of_several_reports_the_last_counts() -> None:
    machine, _log = connection_of(0, 2500)
    reports = b"".join(Report(LogOffset(at)).encode() for at in (1 << 60, -1, 300))
    assert machine.on_bytes(reports, 0)[0] == Acked(7, LogOffset(300), False)
    assert machine.next == 2500 and machine._started == 300


@pytest.mark.parametrize("report", [-1, 2501, 99])
def test_r18_positions_that_cannot_be(report: int) -> None:
    machine, _log = connection_of(0, 2500, transfer_batch_size=10, in_flight_max=10)
    if report == 99:
        machine.on_bytes(Report(LogOffset(100)).encode(), 0)
    actions = machine.on_bytes(Report(LogOffset(report)).encode(), 0)
    assert len(actions) == 1 and isinstance(actions[0], Close)


def test_bounds_and_ends() -> None:
    machine, log = connection_of(0, 2500, transfer_batch_size=100, in_flight_max=250)
    actions = machine.on_bytes(Report(LogOffset(1000)).encode(), 0)
    assert positions(log, actions) == [(1000, 100), (1100, 100), (1200, 100)]
    del log.data[:2000]
    log.min = LogOffset(2000)
    assert machine.send_available(0) == [Close("the log begins at 2000, 1300 is gone")]
    machine, _log = connection_of(0, 2500)
    assert machine.on_tick(20_001) == [Close("the replica is silent")]


# --- the replicas that count: HAServerTest

GAP = 268_435_456


def test_in_sync_counts() -> None:
    group = DefaultHaGroup()
    assert group.in_sync_count(START) == 1
    for number, at in enumerate((123, 124, 123, 125)):
        group.on_ack(number, LogOffset(at))
    ends = GAP, 123 + GAP, 124 + GAP, 125 + GAP
    assert [group.in_sync_count(LogOffset(end)) for end in ends] == [5, 3, 2, 1]
    group.on_closed(3)
    assert group.in_sync_count(LogOffset(GAP)) == 4


@pytest.mark.parametrize(
    ("acked", "need", "expected"),
    [
        ([], 1, True),
        ([], 2, False),
        ([124], 1, True),
        ([125], 2, True),
        ([125], 3, False),
        ([125, 128], 3, True),
        ([123, 128], 3, False),
    ],
)
def test_copies(acked: list[int], need: int, expected: bool) -> None:
    group = DefaultHaGroup()
    for number, at in enumerate(acked):
        group.on_ack(number, LogOffset(at))
    assert (group.copies_end(need) >= LogOffset(124)) is expected
