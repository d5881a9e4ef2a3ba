"""A pop with a selective filter reads on at once, until it finds a message or reaches the end."""

import pytest
from tests.unit.broker.pop.poppers import Popper

from turbopump.engine.deferred import Deferred
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import new_request
from turbopump.net.wire.headers.pop import NotificationRequest

READ_MAX = 800
"""Queue units that one read with tags examines (maxFilterMessageSize)."""
TURNS = 40


def with_turns(popper: Popper, waits: object, turns: int) -> None:
    for _ in range(turns):
        if isinstance(waits, Deferred) and not waits.done:
            popper.world.turn()


@pytest.mark.parametrize("is_ordered", [False, True])
@pytest.mark.parametrize("kind", ["TAG", "SQL92"])
def test_a_waiting_pop_reads_on_over_messages_that_do_not_match(
    popper: Popper, kind: str, is_ordered: bool
) -> None:
    unmatched = 17_000 if kind == "SQL92" else 3 * READ_MAX + 1
    for _ in range(unmatched // 100 + 1):
        popper.send(*["x"] * 100, tag="other")
    popper.send("found", tag="B")
    expression = "B" if kind == "TAG" else "TAGS = 'B'"
    asked = {"exp_type": kind, "exp": expression, "poll_time": 15_000, "order": is_ordered}
    waits = popper.request(**asked)
    assert isinstance(waits, Deferred) and not waits.done
    with_turns(popper, waits, TURNS)
    assert waits.done, "no time has passed"
    assert [body for body, _ in popper.messages(waits.value)] == ["found"]


def test_one_sweep_reads_a_bounded_part(popper: Popper) -> None:
    for _ in range(100):
        popper.send(*["x"] * 100, tag="other")
    waits = popper.request(exp_type="TAG", exp="B", poll_time=15_000)
    popper.world.turn()
    known = popper.world.broker.offsets.query("g", "T", 0)
    assert known <= 4 * READ_MAX
    with_turns(popper, waits, TURNS)
    assert popper.world.broker.offsets.query("g", "T", 0) == 10_000
    assert isinstance(waits, Deferred) and not waits.done


def test_an_empty_answer_says_how_much_is_left(popper: Popper) -> None:
    for _ in range(10):
        popper.send(*["x"] * 100, tag="other")
    response = popper.request(exp_type="TAG", exp="B", poll_time=0)
    assert not isinstance(response, Deferred)
    assert response.code == ResponseCode.POLLING_TIMEOUT
    assert int(response.fields["restNum"]) == 200


def test_a_pop_without_a_poll_time_does_not_wait_for_a_clock_that_is_ahead(popper: Popper) -> None:
    response = popper.request(poll_time=0, born_time=popper.world.now_ms + 60_000)
    assert not isinstance(response, Deferred) and response.code == ResponseCode.POLLING_TIMEOUT
    waits = popper.request(poll_time=5_000, born_time=popper.world.now_ms + 60_000)
    popper.world.pass_time(5_000)
    assert isinstance(waits, Deferred) and waits.done


def test_an_ordered_pop_of_any_queue_is_woken_when_the_time_of_a_batch_ends(popper: Popper) -> None:
    popper.send("a", queue_id=0)
    popper.send("b", queue_id=1)
    world = popper.world
    popped = popper.pop(order=True, invisible_time=2_000, max_msg_nums=32)
    assert sorted(body for body, _ in popped) == ["a", "b"]
    waits = [popper.request(order=True, poll_time=10_000, invisible_time=9_000) for _ in range(2)]
    for _ in range(25):
        world.pass_time(100)
        world.turn()
    bodies = [body for one in waits for body, _ in popper.messages(one.value)]  # type: ignore[union-attr]
    assert sorted(bodies) == ["a", "b"]


def test_the_same_attempt_gets_its_messages_again(popper: Popper) -> None:
    """The first response was lost; see RocketMQ's PopOrderlyIT.testReentrant."""
    popper.send("a")
    for _ in range(3):
        popped = popper.pop(order=True, attempt_id="one", invisible_time=9_000)
        assert [body for body, _ in popped] == ["a"]


@pytest.mark.parametrize("queue_id", [-1, 0])
def test_a_notification_in_order_waits_for_a_batch(popper: Popper, queue_id: int) -> None:
    world = popper.world
    popper.send("a")
    popper.pop(order=True, attempt_id="one", invisible_time=3_000)

    def notify(attempt_id: str, poll_ms: int) -> object:
        asked = NotificationRequest("g", "T", queue_id, poll_ms, world.now_ms, True, attempt_id)
        return world.dispatch(new_request(RequestCode.NOTIFICATION, asked))

    same = notify("one", 500)
    assert not isinstance(same, Deferred) and same.fields["hasMsg"] == "true"  # type: ignore[attr-defined]
    other = notify("two", 500)
    popper.send("after the batch")
    world.turn()
    world.pass_time(500)
    assert isinstance(other, Deferred) and other.value.fields["hasMsg"] == "false"
    late = notify("two", 10_000)
    for _ in range(30):
        world.pass_time(100)
        world.turn()
    assert isinstance(late, Deferred) and late.done and late.value.fields["hasMsg"] == "true"
