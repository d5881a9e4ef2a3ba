"""Requests that follow an answer, and times to deliver, against a scripted peer."""

import random
from contextlib import ExitStack

import pytest
from tests.unit.pyx.load_loop.stages import (
    NEVER_NS,
    ROWS,
    Request,
    Script,
    Stage,
    answer,
    answer_with,
    fine,
)

from turbopump.pyx.load import (
    CODE_MALFORMED,
    DONE,
    FOLLOW_ACKS,
    FOLLOW_END,
    FOLLOW_MAX,
    LATE,
    LOST,
    SEND,
)
from turbopump.pyx.load_parts import OPAQUE_BASE

POP, ACK, END = 310, 200051, 37
END_TEXT = b'{"code":37,"extFields":{"log":"\1","state":"\2","id":"\3"},"flag":2,"opaque":1}'
ACK_TEXT = (
    b'{"code":200051,"extFields":{"queue":"\2","handle":"\3 \5 \6 \7 \4 b \2 \1","offset":"\1"},'
    b'"opaque":1000000001}'
)
POPPED = {
    "startOffsetInfo": "0 3 100;1 3 7;0 11 0",
    "msgOffsetInfo": "0 3 100,102;1 3 9;0 11 5,6,7",
    "popTime": "1700000000000",
    "invisibleTime": "60000",
    "reviveQid": "4",
}
HANDLES = [
    "100 1700000000000 60000 4 0 b 3 100",
    "100 1700000000000 60000 4 0 b 3 102",
    "7 1700000000000 60000 4 1 b 3 9",
    "0 1700000000000 60000 4 0 b 11 5",
    "0 1700000000000 60000 4 0 b 11 6",
    "0 1700000000000 60000 4 0 b 11 7",
]


def half(request: Request) -> bytes:
    """Store a half message at a log offset and a queue offset that the request's number decides."""
    if request.code == END:
        return b""
    fields = {
        "msgId": f"7F00000100002A9F{(0xABC << 40) + request.number:016X}",
        "queueOffset": str(request.number * 10),
        "transactionId": f"T{request.number}",
    }
    return answer_with(request.opaque, 0, fields)


def popper(pops: int, nothing: int = 19, ack_code: int = 0) -> Script:
    """A script that serves `pops` pops of six messages, and then finds nothing."""
    left = [pops]

    def script(request: Request) -> bytes:
        if request.code == ACK:
            return answer(request.opaque, ack_code)
        left[0] -= 1
        if left[0] < 0:
            return answer(request.opaque, nothing)
        return answer_with(request.opaque, 0, POPPED)

    return script


def test_the_end_of_a_transaction_follows_each_half_message() -> None:
    with ExitStack() as stack:
        stage = Stage(stack)
        stage.load.set_follow(FOLLOW_END, END_TEXT)
        peer = stage.send(half, 3)
        assert stage.run(messages=20) == DONE
        assert stage.load.counters(SEND)["messages"] == 20
    halves = [request.number for request in peer.requests if request.code != END]
    ends = [request.fields for request in peer.requests if request.code == END]
    assert [end["log"] for end in ends] == [str((0xABC << 40) + number) for number in halves]
    assert [end["state"] for end in ends] == [str(number * 10) for number in halves]
    assert [end["id"] for end in ends] == [f"T{number}" for number in halves]


def test_an_answer_without_an_id_is_malformed(stage: Stage) -> None:
    stage.load.set_follow(FOLLOW_END, END_TEXT)
    stage.send(fine)
    assert stage.run(messages=5) == LOST


@pytest.mark.parametrize("nothing", [19, 209, 210])
@pytest.mark.parametrize("chunk", [7, 1 << 20])
def test_each_popped_message_is_acknowledged_before_the_next_pop(
    stage: Stage, nothing: int, chunk: int
) -> None:
    stage.load.set_follow(FOLLOW_ACKS, ACK_TEXT)
    peers = [stage.send(popper(pops, nothing), 1, chunk) for pops in (3, 0, 5)]
    assert stage.run() == DONE
    found = stage.load.counters(SEND)
    assert (found["messages"], found["errors"]) == (8 * 6, [])
    assert stage.load.measured_ns < NEVER_NS, "it ends when no connection finds messages"
    for peer, pops in zip(peers, (3, 0, 5), strict=True):
        assert [it.code for it in peer.requests] == [POP, *[ACK] * 6] * pops + [POP]
        acks = [it for it in peer.requests if it.code == ACK]
        assert [it.fields["handle"] for it in acks] == HANDLES * pops
        assert {(it.fields["queue"], it.fields["offset"]) for it in acks} <= {
            ("3", "100"),
            ("3", "102"),
            ("3", "9"),
            ("11", "5"),
            ("11", "6"),
            ("11", "7"),
        }
        assert {it.opaque for it in acks} <= {OPAQUE_BASE + 1}


def test_refused_acknowledgements_are_counted_and_the_pops_go_on(stage: Stage) -> None:
    stage.load.set_follow(FOLLOW_ACKS, ACK_TEXT)
    stage.send(popper(4, ack_code=2))
    assert stage.run() == DONE
    assert stage.load.counters(SEND)["messages"] == 4 * 6
    assert stage.errors(SEND) == {2: 4 * 6}


def test_without_a_text_messages_are_only_counted(stage: Stage) -> None:
    stage.load.set_follow(FOLLOW_ACKS, b"")
    peer = stage.send(popper(4))
    assert stage.run() == DONE
    assert stage.load.counters(SEND)["messages"] == 4 * 6
    assert [it.code for it in peer.requests] == [POP] * 5


@pytest.mark.parametrize(
    "wrong",
    [
        {"popTime": None},
        {"msgOffsetInfo": None},
        {"startOffsetInfo": "0 4 100"},
        {"startOffsetInfo": ""},
        {"msgOffsetInfo": "0 3 " + ",".join(map(str, range(100, 1000)))},
    ],
)
def test_a_pop_that_cannot_be_acknowledged_is_malformed(
    stage: Stage, wrong: dict[str, str | None]
) -> None:
    fields = {key: value for key, value in {**POPPED, **wrong}.items() if value is not None}
    stage.load.set_follow(FOLLOW_ACKS, ACK_TEXT)
    stage.send(lambda request: answer_with(request.opaque, 0, fields))
    assert stage.run() == LOST
    assert set(stage.errors(SEND)) <= {CODE_MALFORMED}


@pytest.mark.parametrize("seed", range(20))
def test_damaged_pops_end_a_load_one_way_or_another(stage: Stage, seed: int) -> None:
    """The test is most useful with the sanitizers."""
    chosen = random.Random(seed)
    whole = popper(50)

    def damaged(request: Request) -> bytes:
        made = bytearray(whole(request))
        if chosen.random() < 0.3:
            made[chosen.randrange(4, len(made))] = chosen.randrange(256)
        return bytes(made)

    stage.load.set_follow(FOLLOW_ACKS, ACK_TEXT)
    stage.send(damaged)
    ended = stage.run(drain_ns=10_000_000, silence_ns=50_000_000)
    assert ended in (DONE, LATE, LOST)


def test_messages_are_due_in_turn_with_their_serials(stage: Stage) -> None:
    stage.load.set_due(ROWS[0][3], 1_700_000_000_000, 7)
    peer = stage.send(fine)
    assert stage.run(messages=20, serial=3) == DONE
    due = [int(request.fields["g"]) for request in peer.requests]
    assert due == [1_700_000_000_000 + (3 + number) % 7 for number in range(20)]


def test_a_refusal_stops_the_load_for_a_moment(stage: Stage) -> None:
    stage.send(lambda request: answer(request.opaque, request.number % 2))
    assert stage.run(messages=20, pause_us=30_000) == DONE
    assert stage.load.measured_ns >= 9 * 30_000_000
    assert stage.load.latency(SEND, 0.5) < 30_000_000, "a latency does not contain the pause before"


def test_what_follows_is_checked(stage: Stage) -> None:
    for at, first_ms, spread_ms in [
        (0, 1, 1),
        (ROWS[1][1] - 12, 1, 1),
        (9, -1, 1),
        (9, 1, 0),
    ]:
        with pytest.raises(ValueError, match="to deliver"):
            stage.load.set_due(at, first_ms, spread_ms)
    for kind, text in [(0, b""), (3, b""), (FOLLOW_END, b"x" * (FOLLOW_MAX + 1))]:
        with pytest.raises(ValueError, match="no such requests"):
            stage.load.set_follow(kind, text)
    stage.load.set_follow(FOLLOW_ACKS, ACK_TEXT)
    with pytest.raises(ValueError, match="one pop in flight"):
        stage.load.add_sender(0, 2, 0, 1)
    stage.send(popper(0))
    with pytest.raises(ValueError, match="already"):
        stage.load.set_follow(FOLLOW_ACKS, b"")
    assert stage.run() == DONE
