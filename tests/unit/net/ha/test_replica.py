"""The replica's state machine: its truncations, recorded epochs, and closed connections."""

from dataclasses import replace

import pytest
from tests.unit.net.ha.logs import MemoryLog, Shell

from turbopump.engine.log.epochs import ENTRIES_MAX, Epochs
from turbopump.engine.types import LogOffset
from turbopump.net.ha.actions import (
    Action,
    Append,
    Close,
    Confirm,
    Connect,
    RecordEpochs,
    Restart,
    Send,
    Truncate,
)
from turbopump.net.ha.frames import Ack, Handshake, HandshakeReply, Transfer
from turbopump.net.ha.replica import (
    ACK_BYTES,
    ACK_MS,
    CATCH_UP_ACK_BYTES,
    CATCH_UP_ACK_MS,
    RETRY_MAX_MS,
    SUSPEND_MS,
    Replica,
    ReplicaOptions,
    State,
)


def epochs(pairs: dict[int, int]) -> Epochs:
    return Epochs.from_pairs(pairs.items())


def shell_of(
    pairs: dict[int, int] | None = None, end: int = 0, *, epoch: int = -1, **options: bool | int
) -> Shell:
    """A replica that has just sent its handshake."""
    log = MemoryLog(bytearray(b"x" * end), epochs(pairs or {}))
    shell = Shell(Replica(ReplicaOptions(2, **options)), log)
    shell.do(shell.replica.follow("master:10912", epoch, 0))
    shell.do(shell.replica.on_connected(log.state(), 0))
    return shell


def reply(pairs: dict[int, int], end: int) -> bytes:
    return HandshakeReply(LogOffset(end), epochs(pairs)).encode()


def piece(at: int, body: bytes = b"", *, epoch: int = 1, start: int = 0, confirm: int = 0) -> bytes:
    return Transfer(at, epoch, start, confirm).encode_header(len(body)) + body


def following(pairs: dict[int, int], end: int, **options: bool | int) -> Shell:
    """A replica that has the master's whole log and epoch list."""
    shell = shell_of(pairs, end, **options)
    shell.feed(reply(pairs, end))
    assert shell.replica.state is State.TRANSFER
    shell.done.clear()
    shell.take()
    return shell


# --- connecting


def test_the_handshake_is_said_once() -> None:
    shell = shell_of(sync_from_last_file=True, async_learner=True)
    assert shell.take() == Handshake(2, True, True).encode()
    for now_ms in range(0, 20_000, 100):
        shell.do(shell.replica.on_tick(now_ms))
    assert shell.take() == b""  # a second handshake leads RocketMQ's replicas into a livelock


def test_lost_connections_are_made_again_soon_and_then_less_often() -> None:
    replica = Replica(ReplicaOptions(2))
    assert replica.on_tick(0) == []  # no master to follow
    assert replica.follow("master:1", 1, 0) == [Connect("master:1")]
    waits, now_ms = [], 0
    for _ in range(8):
        assert replica.on_tick(now_ms) == []
        replica.on_closed("refused", now_ms)
        since = now_ms
        while not (actions := replica.on_tick(now_ms)):
            now_ms += 50
        assert actions == [Connect("master:1")]
        waits.append(now_ms - since)
    assert waits == [100, 200, 400, 800, 1600, 3200, RETRY_MAX_MS, RETRY_MAX_MS]


def test_another_master_means_another_connection() -> None:
    shell = following({1: 0}, 50)
    actions = shell.replica.follow("other:1", 2, 10)
    assert actions == [Close("another master"), Connect("other:1")]
    assert shell.replica.follow("other:1", 2, 10) == []
    assert shell.replica.follow("other:1", 3, 10)[0] == Close("another master")  # fenced


def test_shutdown_is_the_last_word() -> None:
    shell = following({1: 0}, 50)
    assert shell.replica.shutdown() == [Close("shut down")]
    assert shell.replica.state is State.SHUTDOWN
    assert shell.replica.on_bytes(piece(50, b"x"), 0) == []
    assert shell.replica.on_tick(10**6) == []
    assert shell.replica.follow("master:1", 9, 0) == []


def test_an_unsolicited_connection_is_closed() -> None:
    replica = Replica(ReplicaOptions(2))
    assert replica.on_connected(MemoryLog().state(), 0) == [Close("not asked for")]


# --- the handshake: own epochs and end, the master's, the actions before the position is sent

CUTS = {
    "P1": ({0: 0}, 1000, {0: 0, 1: 900}, 1100, Truncate(900), {0: 0, 1: 900}),
    "P2": ({0: 0}, 900, {0: 0, 1: 1000}, 1200, None, {0: 0}),
    "P3": ({0: 0, 1: 900}, 1200, {0: 0, 1: 900, 2: 1300}, 1400, None, {0: 0, 1: 900}),
    "P4": ({0: 0, 1: 1000}, 1200, {0: 0, 2: 900}, 1100, Truncate(900), {0: 0, 2: 900}),
    "P6": ({0: 0, 2: 1000}, 1300, {0: 0, 3: 1200}, 1500, Truncate(1000), {0: 0}),
    "X1": ({}, 0, {1: 0}, 500, None, {}),
    "X3": ({1: 0}, 1000, {1: 0}, 900, Truncate(900), {1: 0}),
    "X5": ({2: 100}, 200, {3: 300}, 400, Restart(), {}),
    "X6": ({1: 0, 2: 100}, 100, {1: 0, 3: 100}, 250, None, {1: 0, 3: 100}),
    "X7": ({1: 0, 2: 100}, 180, {1: 0, 2: 100}, 180, None, {1: 0, 2: 100}),
    "epochs without writes": ({1: 0}, 70, {1: 0, 2: 70, 3: 70}, 70, None, {1: 0, 2: 70, 3: 70}),
}


@pytest.mark.parametrize("name", CUTS)
def test_where_the_log_is_cut(name: str) -> None:
    own, end, master, master_end, cut, after = CUTS[name]
    shell = shell_of(own, end)
    shell.take()
    shell.feed(reply(master, master_end))
    done = [action for action in shell.done[2:] if isinstance(action, Truncate | Restart)]
    assert done == ([cut] if cut else [])
    position = cut.log_end if isinstance(cut, Truncate) else 0 if cut else end
    assert shell.take() == Ack(position).encode()  # at once
    assert (shell.log.epochs, shell.log.end) == (epochs(after), position)
    assert shell.replica.state is State.TRANSFER


def test_the_position_is_told_behind_the_cut_and_the_record() -> None:
    shell = shell_of({1: 0}, 1000)
    actions = shell.replica.on_bytes(reply({1: 0, 2: 900}, 1100), 0)
    assert actions == [Truncate(900)]
    shell.log.truncate(900)
    actions = shell.replica.on_truncated(shell.log.state(), 0)
    assert actions == [RecordEpochs(epochs({1: 0, 2: 900})), Send(Ack(900).encode())]


def test_x2_a_master_without_epochs_is_not_followed() -> None:
    shell = shell_of({1: 0}, 100)
    shell.feed(reply({}, 0))
    assert (shell.replica.state, shell.closed) == (State.SUSPEND, ["the master has no epochs"])
    assert shell.replica.on_tick(SUSPEND_MS - 1) == []
    assert shell.replica.on_tick(SUSPEND_MS) == [Connect("master:10912")]
    assert shell.log.end == 100


def test_x8_a_cut_that_the_store_refuses_suspends() -> None:
    shell = shell_of({1: 0}, 1000)
    assert shell.replica.on_bytes(reply({1: 0, 2: 900}, 1100), 0) == [Truncate(900)]
    assert shell.replica.on_failed("no record begins at 900", 0) == [
        Close("no record begins at 900")
    ]
    assert shell.replica.state is State.SUSPEND
    assert shell.replica.on_truncated(shell.log.state(), 0) == []


def test_i12_confirmed_bytes_are_not_cut() -> None:
    shell = shell_of({1: 0}, 1000)
    shell.log.confirm = LogOffset(950)
    shell.do(shell.replica.on_closed("again", 0))
    shell.connect(RETRY_MAX_MS)
    shell.feed(reply({1: 0, 2: 900}, 1100))
    assert shell.replica.state is State.SUSPEND and shell.log.end == 1000
    assert "parts from this one at 900, before confirmed 950" in shell.replica.reason


def test_i12_unless_the_operator_allows_it() -> None:
    shell = shell_of({1: 0}, 1000, cut_confirmed=True)
    shell.log.confirm = LogOffset(1000)
    shell.do(shell.replica.on_closed("again", 0))
    shell.connect(RETRY_MAX_MS)
    shell.feed(reply({1: 0, 2: 900}, 1100))
    assert (shell.log.end, shell.replica.confirm_offset) == (900, 900)


def test_a_log_that_contradicts_the_master_from_its_beginning_is_not_removed_if_confirmed() -> None:
    for confirm, state in ((0, State.TRANSFER), (10, State.SUSPEND)):
        shell = shell_of({2: 0}, 200)
        shell.log.confirm = LogOffset(confirm)
        shell.do(shell.replica.on_closed("again", 0))
        shell.connect(RETRY_MAX_MS)
        shell.feed(reply({3: 0}, 400))
        assert shell.replica.state is state


def test_f40_bytes_confirmed_before_the_masters_first_epoch_may_be_cut() -> None:
    """Retention removed the common epochs; the unconfirmed tails contradict each other."""
    for confirm, state in ((290, State.TRANSFER), (291, State.SUSPEND)):
        shell = shell_of({12: 100, 15: 274}, 299)
        shell.log.confirm = LogOffset(confirm)
        shell.do(shell.replica.on_closed("again", 0))
        shell.connect(RETRY_MAX_MS)
        shell.feed(reply({18: 290}, 302))
        assert shell.replica.state is state
        assert (Restart() in shell.done) is (state is State.TRANSFER)


def test_a_log_of_which_nothing_is_confirmed_begins_anew_wherever_it_begins() -> None:
    """The log's first file expired, or it has only the master's last file; its epochs are
    damaged."""
    shell = shell_of({}, 0)
    begin = LogOffset(1000)
    shell.log = MemoryLog(bytearray(b"y" * 300), Epochs(), begin, begin, believed=begin)
    shell.do(shell.replica.on_closed("again", 0))
    shell.connect(RETRY_MAX_MS)
    shell.feed(reply({2: 400, 3: 900}, 1400))
    assert Restart() in shell.done and shell.replica.state is State.TRANSFER


def test_s1_a_log_without_believable_epochs_is_not_taken_for_new() -> None:
    """The log is removed and copied again; RocketMQ would keep it and report it as empty."""
    shell = shell_of({}, 0)
    shell.log = MemoryLog(bytearray(b"y" * 300), Epochs(), believed=LogOffset(0))
    shell.log.confirm = LogOffset(300)
    shell.do(shell.replica.on_closed("again", 0))
    shell.connect(RETRY_MAX_MS)
    shell.take()
    shell.feed(reply({1: 0}, 400))
    assert Restart() in shell.done and shell.take() == Ack(0).encode()


def test_s1_of_a_damaged_list_only_the_believed_part_counts() -> None:
    shell = shell_of({}, 0)
    log = shell.log = MemoryLog(bytearray(b"y" * 1500), epochs({1: 0}), believed=LogOffset(900))
    log.confirm = LogOffset(900)
    shell.do(shell.replica.on_closed("again", 0))
    shell.connect(RETRY_MAX_MS)
    shell.feed(reply({1: 0, 2: 900}, 1500))
    assert Truncate(LogOffset(900)) in shell.done
    assert shell.log.epochs == epochs({1: 0, 2: 900})


def test_a_master_that_is_not_yet_one_is_left() -> None:
    shell = shell_of({1: 0}, 100, epoch=3)
    shell.feed(reply({1: 0, 2: 100}, 100))
    assert shell.closed == ["the master is of epoch 2, not of 3"]
    assert shell.replica.state is State.READY


def test_a_master_of_an_older_epoch_than_the_log_is_left() -> None:
    shell = shell_of({1: 0, 3: 90}, 100, epoch=2)
    shell.feed(reply({1: 0, 2: 100}, 100))
    assert shell.closed == ["the master is of epoch 2, not of 3"]
    assert shell.log.end == 100
    lenient = shell_of({1: 0, 3: 90}, 100, epoch=2, fenced=False)
    lenient.feed(reply({1: 0, 2: 100}, 100))
    assert lenient.log.end == 90


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (piece(0, b"x"), "a transfer before the answer to the handshake"),
        (reply({1: 0}, 0) * 2, "a second answer to the handshake"),
        (b"\0\0\0\4", "no master is in state 4"),
    ],
)
def test_a_master_out_of_turn_is_left(data: bytes, reason: str) -> None:
    shell = shell_of()
    shell.feed(data)
    assert shell.closed == [reason]


def test_bytes_that_come_while_the_log_is_cut_wait() -> None:
    shell = shell_of({1: 0}, 1000)
    data = reply({1: 0, 2: 900}, 1100) + piece(900, b"new", epoch=2, start=900)
    assert shell.replica.on_bytes(data[:-1], 0) == [Truncate(900)]
    assert shell.replica.on_bytes(data[-1:], 0) == []
    shell.log.truncate(900)
    shell.do(shell.replica.on_truncated(shell.log.state(), 0))
    assert shell.log.read(900, 3) == b"new"


# --- transfer


@pytest.mark.parametrize("body", [b"", b"x"])
@pytest.mark.parametrize("at", [0, 49, 51])
def test_a_frame_of_another_place_ends_the_connection(at: int, body: bytes) -> None:
    shell = following({1: 0}, 50)
    shell.feed(piece(50, b""))
    shell.feed(piece(at, body))
    assert shell.closed == [f"bytes from {at} on, the log ends at 50"]
    assert (shell.log.end, shell.done) == (50, [Close(shell.closed[0])])


def test_r19_a_master_whose_log_begins_behind_ours_makes_us_start_anew() -> None:
    shell = following({1: 0}, 50)
    shell.feed(piece(2000, b"x"))
    assert isinstance(shell.done[0], Restart) and shell.log.end == 0
    assert shell.replica.state is State.READY
    shell.connect(RETRY_MAX_MS)
    shell.take()
    shell.feed(reply({1: 0}, 2001))
    assert shell.take() == Ack(0).encode()
    shell.feed(piece(2000, b"x"))
    assert (shell.log.min, shell.log.end, shell.log.epochs) == (2000, 2001, epochs({1: 0}))
    # The replica must not become master before it knows the counts of queues without a message
    # here.
    assert shell.take() == b""
    shell.feed(piece(2001, b"y"))
    shell.do(shell.replica.on_tick(RETRY_MAX_MS))
    assert shell.take() == b""
    shell.do(shell.replica.on_counted(RETRY_MAX_MS))
    assert shell.take() == Ack(2002).encode()


def test_a_log_whose_counts_are_still_wanted_is_a_learners_in_its_next_life() -> None:
    """Seed 910181 of `ha`: the master treats the first acknowledgement as the replica's
    position."""
    log = MemoryLog(bytearray(b"x" * 50), epochs({1: 0}))
    shell = Shell(Replica(ReplicaOptions(2)), log)
    shell.do(shell.replica.follow("master:10912", 1, 0))
    shell.do(shell.replica.on_connected(replace(log.state(), counted=False), 0))
    assert shell.take() == Handshake(2, False, True).encode()
    shell.feed(reply({1: 0}, 50))
    assert shell.take() == Ack(50).encode()
    shell.feed(piece(50, b"abc"))
    assert shell.take() == Ack(53).encode()
    shell.do(shell.replica.on_counted(0))
    assert shell.closed == ["idle queues are counted"]
    shell.connect(RETRY_MAX_MS)
    assert shell.take() == Handshake(2, False, False).encode()
    shell.feed(reply({1: 0}, 53))
    shell.do(shell.replica.on_counted(0))
    assert (shell.take(), shell.replica.state) == (Ack(53).encode(), State.TRANSFER)


def test_bytes_are_appended_confirmed_and_reported() -> None:
    shell = following({1: 0}, 50)
    shell.feed(piece(50, b"abc", confirm=52) + piece(53, b"de", confirm=90))
    kinds: list[Action] = [Append(50, b"abc"), Confirm(52), Append(53, b"de"), Confirm(55)]
    assert shell.done == [*kinds, Send(Ack(55).encode())]  # one acknowledgement a read


def test_inside_a_frame_acknowledgements_are_paced() -> None:
    shell, cut = following({1: 0}, 50), piece(53, b"defg", confirm=57)
    shell.feed(piece(50, b"abc") + cut[:-1])
    assert shell.done == [Append(50, b"abc")]
    assert shell.take() == b""
    shell.do(shell.replica.on_tick(1))
    assert shell.take() == Ack(53).encode()
    shell.feed(cut[-1:])
    assert shell.take() == Ack(57).encode()
    shell.feed(piece(57, b"h", confirm=57) + b"\0", now_ms=ACK_MS)
    assert shell.take() == b""
    shell.feed(b"\0", now_ms=ACK_MS + 1)
    assert shell.take() == Ack(58).encode()


def test_in_a_catch_up_acknowledgements_are_few() -> None:
    shell, at = following({1: 0}, 50), 50
    for number in range(CATCH_UP_ACK_BYTES // ACK_BYTES):
        assert shell.take() == b""
        shell.feed(piece(at, bytes(ACK_BYTES))[min(number, 1) :] + b"\0", CATCH_UP_ACK_MS)
        at += ACK_BYTES
    assert shell.take() == Ack(at).encode()


def test_a_cut_frame_leaves_nothing() -> None:
    shell = following({1: 0}, 50)
    shell.feed(piece(50, b"abc")[:-1])
    assert shell.done == []


def test_i7_confirm_never_goes_back() -> None:
    shell = following({1: 0}, 50)
    for confirm in (20, 10, -1, 50, 49):
        shell.feed(piece(50, confirm=confirm))
    assert shell.done == [Confirm(20), Confirm(50)]


def test_a_new_epoch_is_recorded_before_its_bytes() -> None:
    shell = following({1: 0}, 50)
    shell.feed(piece(50, b"a", epoch=2, start=50))
    assert shell.done[:2] == [RecordEpochs(epochs({1: 0, 2: 50})), Append(50, b"a")]


def test_a_heartbeat_tells_a_new_epoch_too() -> None:
    shell = following({1: 0}, 50)
    shell.feed(piece(50, epoch=3, start=50))
    assert shell.done == [RecordEpochs(epochs({1: 0, 3: 50}))]


def test_rocketmqs_last_bytes_of_an_epoch_have_the_next_ones_label() -> None:
    shell = shell_of()
    shell.feed(reply({1: 0, 2: 100}, 150))
    shell.feed(piece(0, b"x" * 60) + piece(60, b"x" * 40, epoch=2, start=100))
    shell.feed(piece(100, b"x" * 50, epoch=2, start=100))
    assert (shell.closed, shell.log.end) == ([], 150)
    recorded = [action for action in shell.done if isinstance(action, RecordEpochs)]
    assert recorded == [RecordEpochs(epochs({1: 0})), RecordEpochs(epochs({1: 0, 2: 100}))]


def test_labels_ahead_of_the_log_wait_for_it() -> None:
    shell = following({1: 0}, 50)
    shell.feed(piece(50, b"x" * 10, epoch=2, start=100))
    assert shell.log.epochs == epochs({1: 0})
    shell.feed(piece(60, b"x" * 40, epoch=2, start=100))
    assert shell.log.epochs == epochs({1: 0, 2: 100})


@pytest.mark.parametrize(
    ("epoch", "start"), [(1, 0), (2, 5), (0, 0), (5, 20)], ids=["old", "start", "older", "back"]
)
def test_bytes_of_an_epoch_that_cannot_be_end_the_connection(epoch: int, start: int) -> None:
    shell = following({1: 0, 2: 30}, 50)
    shell.feed(piece(50, b"x", epoch=epoch, start=start))
    assert len(shell.closed) == 1 and shell.log.end == 50


def test_epochs_to_come_are_bounded() -> None:
    shell = following({1: 0}, 50)
    far = b"".join(piece(50, epoch=epoch, start=10**9) for epoch in range(2, ENTRIES_MAX + 3))
    shell.feed(far)
    assert shell.closed == ["epochs without end"]


def test_a_heartbeat_with_an_old_label_is_borne() -> None:
    shell = following({1: 0, 2: 30}, 50)
    shell.feed(piece(50))
    assert shell.closed == []


def test_an_empty_replica_bears_a_master_without_a_log() -> None:
    shell = shell_of()
    shell.feed(reply({1: 0, 2: 0}, 0))
    shell.feed(piece(-1) + piece(0, epoch=2))
    assert (shell.closed, shell.log.epochs) == ([], epochs({1: 0, 2: 0}))


def test_signs_of_life() -> None:
    shell = following({1: 0}, 50, heartbeat_interval_ms=1000, housekeeping_interval_ms=4000)
    assert shell.replica.on_tick(1000) == []
    assert shell.replica.on_tick(1001) == [Send(Ack(50).encode())]
    assert shell.replica.on_tick(1500) == []
    shell.feed(piece(50), now_ms=2000)
    assert shell.replica.on_tick(6000) == [Send(Ack(50).encode())]
    assert shell.replica.on_tick(6001) == [Close("the master is silent")]
    assert shell.replica.state is State.READY


def test_a_master_that_never_answers_is_left() -> None:
    shell = shell_of()
    assert shell.replica.on_tick(20_000) == []
    assert shell.replica.on_tick(20_001) == [Close("the master is silent")]


def test_only_durable_bytes_are_acknowledged_if_requested() -> None:
    shell = following({1: 0}, 50, ack_durable=True)
    shell.feed(piece(50, b"x" * 20))
    assert shell.take() == b""
    shell.do(shell.replica.on_durable(LogOffset(60), 0))
    assert shell.take() == Ack(60).encode()
    shell.do(shell.replica.on_durable(LogOffset(999), 0))
    assert shell.take() == Ack(70).encode()
