"""Pop, acknowledge, revive: a broker called through its table of handlers."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.broker.conftest import World
from tests.unit.broker.pop.poppers import INVISIBLE_MS, RETRY, Popper

from turbopump.broker.pop import order_info
from turbopump.broker.tables.offsets import OffsetTable
from turbopump.engine.deferred import Deferred
from turbopump.engine.timer.timer_files import TIMER_TOPIC
from turbopump.engine.types import QueueOffset
from turbopump.net.wire.bodies import encode_json
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_request
from turbopump.net.wire.headers.pop import (
    ChangeInvisibleTimeRequest,
    NotificationRequest,
    PeekMessageRequest,
)
from turbopump.net.wire.pop_handles import PopHandle, RetryKind


def test_nothing_is_popped_before_the_earlier_log_can_be_read(world: World) -> None:
    """A new master has check points that its replicas have not confirmed yet (simulation `poppers`,
    seed 566)."""
    popper, tail = Popper(world), world.broker.store._log.tail
    popper.send("one")
    before, tail.limit = tail.limit, world.broker.store.max_log_offset
    popper.send("two")
    assert popper.pop() == []
    waits = popper.request(poll_time=10_000)
    assert isinstance(waits, Deferred) and not waits.done
    tail.limit = before
    popper.send("three")
    world.pass_time(200)
    assert waits.done and waits.value.code == ResponseCode.POLLING_TIMEOUT
    assert [body for body, _ in popper.pop()] == ["one", "two", "three"]


def test_popped_messages_are_hidden_until_their_time_ends_and_then_redelivered(
    popper: Popper,
) -> None:
    popper.send("a", "b")
    assert [body for body, _ in popper.pop()] == ["a", "b"]
    assert popper.pop() == []
    popper.world.pass_time(INVISIBLE_MS - 100)
    assert popper.pop() == []
    popper.world.pass_time(300)
    again = popper.pop()
    assert [body for body, _ in again] == ["a", "b"]
    assert PopHandle.parse(again[0][1]).kind is RetryKind.RETRY_V1


def test_nothing_is_revived_into_a_topic_that_a_crash_could_take(popper: Popper) -> None:
    """Seed 40 of the simulation of pops: no pop read the topic of the copies."""
    world = popper.world
    popper.send("a")
    popper.pop()
    world.config_disk.hold()
    world.pass_time(2_000)
    assert world.broker.store.max_queue_offset(RETRY, 0) == 0
    world.config_disk.release()
    world.pass_time(5_000)
    assert [body for body, _ in popper.pop()] == ["a"]


def test_a_long_time_is_kept_by_the_timers(popper: Popper) -> None:
    popper.send("a", "b")
    popped = popper.pop(invisible_time=30_000)
    assert popper.ack(popped[0][1]).code == ResponseCode.SUCCESS
    popper.world.pass_time(29_900)
    assert popper.pop() == []
    popper.world.pass_time(300)
    assert [body for body, _ in popper.pop()] == ["b"]


def test_acknowledged_messages_are_never_redelivered(popper: Popper) -> None:
    popper.send("a", "b", "c")
    popped = popper.pop()
    for body, handle in popped:
        if body != "b":
            assert popper.ack(handle).code == ResponseCode.SUCCESS
    popper.world.pass_time(5_000)
    again = popper.pop()
    assert [body for body, _ in again] == ["b"]
    assert popper.ack(again[0][1]).code == ResponseCode.SUCCESS
    popper.world.pass_time(5_000)
    assert popper.pop() == []


def test_a_restart_in_between_loses_nothing_and_repeats_nothing(popper: Popper) -> None:
    popper.send("a", "b", "c")
    popped = popper.pop()
    popper.ack(popped[0][1])
    popper.world.close()
    popper.world.open()
    assert popper.pop() == []
    popper.ack(popped[2][1])
    popper.world.pass_time(5_000)
    assert [body for body, _ in popper.pop()] == ["b"]


def test_an_offset_that_is_ahead_of_the_log_is_put_right_before_messages_come(
    popper: Popper,
) -> None:
    """Seed 84 of the simulation of pops: a power cut removed log records before the offset."""
    world = popper.world
    popper.send("a")
    world.broker.offsets.commit("g", "T", 0, QueueOffset(7), world.now_ms)
    world.close()
    world.open()
    assert world.broker.offsets.query("g", "T", 0) == 1
    saved = OffsetTable(world.files)
    saved.load()
    assert saved.query("g", "T", 0) == 1
    popper.send("b")
    assert [body for body, _ in popper.pop()] == ["b"]


def test_messages_handed_out_since_an_offset_was_set_back_do_not_come_early(
    popper: Popper,
) -> None:
    """Messages handed out before the reset are popped again, as requested."""
    world = popper.world
    offsets = world.broker.offsets
    popper.send("a", "b")
    popper.pop(invisible_time=50_000)
    world.pass_time(100)
    offsets.commit("g", "T", 0, QueueOffset(0), world.now_ms)
    world.pass_time(100)
    assert [body for body, _ in popper.pop(max_msg_nums=1, invisible_time=50_000)] == ["a"]
    number = offsets.all_offsets().lowered["T", "g"][0]
    world.broker.offsets._committed.restore_entry(("T", "g"), 0, QueueOffset(0))  # as saved before
    world.close()
    world.open()
    assert world.broker.offsets.all_offsets().lowered["T", "g"][0] == number
    assert [body for body, _ in popper.pop()] == ["b"]


def test_a_group_that_a_crash_lost_is_made_again_and_a_deleted_one_is_not(popper: Popper) -> None:
    """Seed 340 of the simulation of pops: messages revived for the lost group reached no
    consumer."""
    groups, now_ms = popper.world.broker.groups, popper.world.now_ms
    assert groups.find_used("g", now_ms) is not None
    groups.delete("g", now_ms)
    assert groups.find_used("g", now_ms) is None
    assert groups.find_or_create("g", now_ms) is not None
    assert groups.find_used("g", now_ms) is not None


def test_a_changed_time_makes_another_handle_and_the_old_one_does_nothing(popper: Popper) -> None:
    popper.send("a")
    [(_, handle)] = popper.pop()
    old = popper.header(handle)
    header = ChangeInvisibleTimeRequest(
        "g", "T", old.queue_id, handle, old.offset, invisible_time=950
    )
    popper.world.pass_time(500)
    changed = popper.world.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header)
    assert changed.code == ResponseCode.SUCCESS
    assert popper.ack(handle).code == ResponseCode.MESSAGE_ILLEGAL
    popper.world.pass_time(800)
    assert popper.pop() == []
    popper.world.pass_time(400)
    assert [body for body, _ in popper.pop()] == ["a"]


def test_a_time_that_is_changed_in_the_millisecond_of_the_pop_loses_nothing(popper: Popper) -> None:
    """Otherwise the acknowledgement of the old check point would count for the new one (found by
    the simulation)."""
    popper.send("a")
    [(_, handle)] = popper.pop()
    for _ in range(3):
        old = popper.header(handle)
        header = ChangeInvisibleTimeRequest("g", "T", old.queue_id, handle, old.offset, 950)
        changed = popper.world.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header).fields
        handle = (
            f"{old.offset} {changed['popTime']} {changed['invisibleTime']} {changed['reviveQid']}"
            f" 0 broker-a {old.queue_id} {old.offset}"
        )
    popper.world.pass_time(900)
    assert popper.pop() == []
    popper.world.pass_time(300)
    assert [body for body, _ in popper.pop()] == ["a"]


def test_the_new_handle_acknowledges(popper: Popper) -> None:
    popper.send("a")
    [(_, handle)] = popper.pop()
    old = popper.header(handle)
    header = ChangeInvisibleTimeRequest("g", "T", old.queue_id, handle, old.offset, 950)
    changed = popper.world.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header).fields
    new = (
        f"{old.offset} {changed['popTime']} {changed['invisibleTime']} {changed['reviveQid']}"
        f" 0 broker-a {old.queue_id} {old.offset}"
    )
    assert popper.ack(new).code == ResponseCode.SUCCESS
    popper.world.pass_time(5_000)
    assert popper.pop() == []


def test_batches_of_acknowledgements(popper: Popper) -> None:
    popper.send("a", "b", "c")
    popped = popper.pop()
    handle = PopHandle.parse(popped[0][1])
    entry = {
        "c": "g", "t": "T", "r": "0", "so": handle.start, "q": handle.queue_id,
        "rq": handle.revive_queue_id, "pt": handle.pop_time_ms, "it": handle.invisible_ms,
        "b": "BQ==",
    }  # fmt: skip
    body = encode_json({"brokerName": "broker-a", "acks": [entry, {**entry, "q": 77}]})
    response = popper.world.ask(RequestCode.BATCH_ACK_MESSAGE, body=body)
    assert response.code == ResponseCode.SUCCESS
    popper.world.pass_time(5_000)
    assert [body for body, _ in popper.pop()] == ["b"]
    empty = popper.world.ask(RequestCode.BATCH_ACK_MESSAGE, body=encode_json({"acks": []}))
    assert empty.code == ResponseCode.NO_MESSAGE


def test_a_filter_passes_over_messages_of_other_groups(popper: Popper) -> None:
    popper.send("a", tag="A")
    popper.send("b", tag="B")
    assert [body for body, _ in popper.pop(exp="B", exp_type="TAG")] == ["b"]
    popper.send("c", tag="A")
    assert popper.pop(exp="B") == []
    assert popper.world.broker.offsets.query("g", "T", 0) == 3


def test_a_condition_on_properties_chooses(popper: Popper) -> None:
    popper.send("a", tag="A")
    popper.send("b", tag="B")
    assert [body for body, _ in popper.pop(exp="TAGS = 'B'", exp_type="SQL92")] == ["b"]
    refused = popper.request(exp="TAGS = = 'B'", exp_type="SQL92")
    assert isinstance(refused, Command)
    assert refused.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


def test_pops_of_several_queues_and_of_one(popper: Popper) -> None:
    popper.send("a", "b", queue_id=0)
    popper.send("c", "d", queue_id=1)
    assert [body for body, _ in popper.pop(queue_id=1, max_msg_nums=1)] == ["c"]
    response = popper.request(max_msg_nums=2)
    response = response.value if isinstance(response, Deferred) else response
    assert len(popper.messages(response)) == 2
    assert response.fields["restNum"] == "1"


def test_a_new_group_begins_at_the_first_message_or_the_last(popper: Popper) -> None:
    popper.send("a", "b", "c")
    young = popper.pop(init_mode=1, consumer_group="young")
    assert [body for body, _ in young] == ["a", "b", "c"], "its messages are still in memory"
    popper.world.broker.store.in_memory = lambda _at: False  # type: ignore[method-assign]
    assert [body for body, _ in popper.pop(init_mode=1, consumer_group="late")] == ["c"]
    assert [body for body, _ in popper.pop(init_mode=0, consumer_group="all")] == ["a", "b", "c"]


def test_a_pop_waits_for_a_message(popper: Popper) -> None:
    world = popper.world
    work: list[Callable[[], None]] = []
    world.soon = work.append
    first = popper.request(poll_time=10_000)
    second = popper.request(poll_time=1_000)
    assert isinstance(first, Deferred) and isinstance(second, Deferred) and not first.done
    popper.send("a")
    world.broker.store.notify_arrivals()
    while work:
        work.pop()()
    assert first.done and not second.done
    assert [body for body, _ in popper.messages(first.value)] == ["a"]
    world.pass_time(1_100)
    assert second.value.code == ResponseCode.POLLING_TIMEOUT


def test_ordered_pops_give_a_queue_to_one_consumer_at_a_time(popper: Popper) -> None:
    popper.send("a", "b", queue_id=0)
    first = popper.pop(order=True, max_msg_nums=1)
    assert [body for body, _ in first] == ["a"]
    assert PopHandle.parse(first[0][1]).is_ordered
    assert popper.pop(order=True) == []
    assert popper.ack(first[0][1]).code == ResponseCode.SUCCESS
    assert [body for body, _ in popper.pop(order=True)] == ["b"]
    popper.world.pass_time(1_000)
    again = popper.request(order=True)
    again = again.value if isinstance(again, Deferred) else again
    assert [body for body, _ in popper.messages(again)] == ["b"]
    assert again.fields["orderCountInfo"] == "0 qo0%1 1;0 0 1"
    assert popper.world.broker.offsets.query("g", "T", 0) == 1


def test_a_full_table_of_batches_gives_as_many_messages_as_before(
    popper: Popper, monkeypatch: pytest.MonkeyPatch
) -> None:
    popper.send("a", "b", "c", queue_id=0)
    popper.send("d", queue_id=1)
    first = popper.pop(order=True, max_msg_nums=1, queue_id=0)
    popper.ack(first[0][1])
    monkeypatch.setattr(order_info, "MAX_SIZE", popper.world.broker.pop.orders.size)
    assert [body for body, _ in popper.pop(order=True, queue_id=0)] == ["b"]
    assert popper.pop(order=True, queue_id=1) == []
    assert popper.world.broker.pop.orders.size == order_info.MAX_SIZE


def test_looking_without_popping(popper: Popper) -> None:
    world = popper.world
    popper.send("a")
    peek = PeekMessageRequest("T", -1, 8, "g")
    assert world.ask(RequestCode.PEEK_MESSAGE, peek).code == ResponseCode.SUCCESS
    notice = NotificationRequest("g", "T", -1, 0, world.now_ms)
    assert world.ask(RequestCode.NOTIFICATION, notice).fields["hasMsg"] == "true"
    popper.pop()
    assert world.ask(RequestCode.PEEK_MESSAGE, peek).code == ResponseCode.PULL_NOT_FOUND
    assert world.ask(RequestCode.NOTIFICATION, notice).fields["hasMsg"] == "false"


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"topic": "None"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"queue_id": 2}, ResponseCode.INVALID_PARAMETER),
        ({"queue_id": -2}, ResponseCode.INVALID_PARAMETER),
        ({"max_msg_nums": 33}, ResponseCode.INVALID_PARAMETER),
        ({"max_msg_nums": 0}, ResponseCode.INVALID_PARAMETER),
        ({"invisible_time": 2**62}, ResponseCode.INVALID_PARAMETER),
        ({"invisible_time": -1}, ResponseCode.INVALID_PARAMETER),
        ({"born_time": 1}, ResponseCode.POLLING_TIMEOUT),
        ({"exp": "||", "exp_type": "TAG"}, ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ({"consumer_group": "§"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
    ],
)
def test_bad_pops_are_refused(popper: Popper, changes: dict[str, Any], code: int) -> None:
    response = popper.request(**changes)
    assert isinstance(response, Command) and response.code == code


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"extra_info": "x"}, ResponseCode.MESSAGE_ILLEGAL),
        ({"extra_info": "x" * 1_000_000}, ResponseCode.MESSAGE_ILLEGAL),
        ({"extra_info": "0 1 2 8 0 broker-a 0 0"}, ResponseCode.MESSAGE_ILLEGAL),
        ({"topic": "None"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"queue_id": 2}, ResponseCode.MESSAGE_ILLEGAL),
        ({"offset": -1}, ResponseCode.NO_MESSAGE),
        ({"offset": 2**62}, ResponseCode.NO_MESSAGE),
    ],
)
def test_bad_acknowledgements_are_refused(
    popper: Popper, changes: dict[str, Any], code: int
) -> None:
    popper.send("a")
    [(_, handle)] = popper.pop()
    assert popper.ack(handle, **changes).code == code


def test_acknowledgements_of_one_turn_are_one_record(popper: Popper) -> None:
    """The acknowledgements belong to the same check point, and each is answered once the record is
    safe."""
    world = popper.world
    popper.send(*"abcd")
    popped = popper.pop(invisible_time=1_500)
    before = world.broker.store.max_log_offset
    responses = [
        world.dispatch(new_request(RequestCode.ACK_MESSAGE, popper.header(handle)))
        for body, handle in [*popped[:3], popped[0]]
    ]
    assert not any(isinstance(one, Deferred) and one.done for one in responses)
    assert world.broker.store.max_log_offset == before
    world.turn()
    assert [one.value.code for one in responses if isinstance(one, Deferred)] == [0] * 4
    store = world.broker.store
    (ack,) = store.units(TIMER_TOPIC, 0, QueueOffset(0), 100)[1:]
    assert store.record(ack.log_offset).body.count(b'"aol":[0,1,2]') == 1
    world.pass_time(3_000)
    assert [body for body, _ in popper.pop()] == ["d"]
