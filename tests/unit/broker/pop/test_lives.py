"""Topics and groups that are deleted and made again: earlier pops do not count in the next life.
(Otherwise acknowledged messages of a new topic would not be delivered after a restart.)"""

from typing import Any

import pytest
from tests.unit.broker.pop.poppers import Popper

from turbopump.broker.pop.lives import Lives
from turbopump.broker.pop.offset_recovery import READ_MAX, PoppedOffsets, recover_offsets
from turbopump.broker.pop.outstanding import PoppedQueue
from turbopump.engine.types import QueueOffset
from turbopump.net.wire.bodies import encode_json
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command
from turbopump.net.wire.topics import TopicConfig

LONG_MS = 50_000
REVIVE_TOPIC = "rmq_sys_REVIVE_LOG_DefaultCluster"


def delete_topic(popper: Popper) -> None:
    response = popper.world.ask_fields(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
    assert response.code == ResponseCode.SUCCESS
    popper.world.now_ms += 1


def make_topic(popper: Popper) -> None:
    config = TopicConfig("T", read_queue_nums=2, write_queue_nums=2)
    popper.world.broker.topics.put(config, popper.world.now_ms)


def make_again(popper: Popper) -> None:
    delete_topic(popper)
    make_topic(popper)


def delete_group(popper: Popper) -> None:
    fields = {"groupName": "g", "cleanOffset": "true"}
    response = popper.world.ask_fields(RequestCode.DELETE_SUBSCRIPTIONGROUP, fields)
    assert response.code == ResponseCode.SUCCESS
    popper.world.now_ms += 1


def restart(popper: Popper) -> None:
    popper.world.close()
    popper.world.open()


def bodies(popper: Popper, **changes: Any) -> list[str]:
    return [body for body, _ in popper.pop(**changes)]


@pytest.mark.parametrize("in_order", [False, True])
def test_all_of_a_topic_that_was_made_again_is_delivered_after_a_restart(
    popper: Popper, in_order: bool
) -> None:
    popper.send(*map(str, range(20)))
    for _, handle in popper.pop(order=in_order, invisible_time=LONG_MS):
        assert popper.ack(handle).code == ResponseCode.SUCCESS
    make_again(popper)
    new = [f"new {number}" for number in range(30)]
    popper.send(*new)
    restart(popper)
    assert bodies(popper, order=in_order, invisible_time=LONG_MS) == new


def test_all_is_delivered_again_to_a_group_that_was_made_again(popper: Popper) -> None:
    popper.send("a", "b")
    for _, handle in popper.pop(invisible_time=LONG_MS):
        popper.ack(handle)
    delete_group(popper)
    restart(popper)
    assert bodies(popper) == ["a", "b"]


def test_a_check_point_of_before_revives_no_message_of_the_next_life(popper: Popper) -> None:
    popper.send("a", "b")
    popper.pop()
    make_again(popper)
    popper.send("new")
    [(body, handle)] = popper.pop(invisible_time=LONG_MS)
    assert body == "new" and popper.ack(handle).code == ResponseCode.SUCCESS
    popper.world.pass_time(5_000)
    assert bodies(popper) == []


def test_a_check_point_of_the_next_life_revives(popper: Popper) -> None:
    make_again(popper)
    popper.send("new")
    assert bodies(popper) == ["new"]
    popper.world.pass_time(5_000)
    assert bodies(popper) == ["new"]


@pytest.mark.parametrize("end", [make_again, delete_group])
def test_a_handle_of_before_acknowledges_nothing(popper: Popper, end: Any) -> None:
    popper.send("a")
    [(_, old)] = popper.pop(invisible_time=LONG_MS)
    end(popper)
    popper.send("new")
    popper.pop()
    response: Command = popper.ack(old)
    assert response.code == ResponseCode.NO_MESSAGE
    popper.world.pass_time(5_000)
    assert "new" in bodies(popper)


def test_a_pop_is_later_than_the_deletion_though_the_clock_went_back(popper: Popper) -> None:
    """Otherwise its check point would count for the former life, and the message would be lost."""
    popper.world.pass_time(9_000)
    make_again(popper)
    popper.world.set_clock(-5_000)
    popper.send("new")
    assert bodies(popper) == ["new"]
    popper.world.pass_time(12_000)
    assert bodies(popper) == ["new"]


@pytest.mark.parametrize("end", [make_again, delete_group])
def test_a_pop_of_before_is_of_the_former_life_though_the_clock_went_back(
    popper: Popper, end: Any
) -> None:
    """The pop's time is later than the clock at the deletion: messages of the next life counted as
    handed out, and old handles acknowledged them. Pops of the second life are later, too."""
    for life in ("old", "next"):
        popper.send(life)
        [*_, (_, old)] = popper.pop(invisible_time=LONG_MS)
        popper.world.set_clock(-5_000)
        end(popper)
        popper.send("new")
        assert "new" in bodies(popper)
        assert popper.ack(old).code == ResponseCode.NO_MESSAGE
        restart(popper)
        popper.world.pass_time(20_000)
        [*_, (body, handle)] = popper.pop(invisible_time=LONG_MS)
        assert body == "new"
        assert popper.ack(handle).code == ResponseCode.SUCCESS


def test_nothing_is_popped_of_a_topic_while_it_is_deleted(popper: Popper) -> None:
    popper.send("a")
    popper.world.broker.store.deletions.in_progress.add("T")
    assert bodies(popper) == []


@pytest.mark.parametrize("end", [make_again, delete_group])
def test_offsets_of_before_come_not_back_with_a_crash(popper: Popper, end: Any) -> None:
    """consumerOffset.json is saved every 5 s: the file had the offsets of the former life."""
    world = popper.world
    popper.send("a", "b")
    popper.pop(invisible_time=LONG_MS)
    world.broker.offsets.save()
    end(popper)
    popper.send("c", "d")
    world.broker.offsets.save = lambda: None  # type: ignore[method-assign]
    restart(popper)
    assert bodies(popper)[-2:] == ["c", "d"]
    assert len(bodies(popper)) == 0
    assert world.broker.offsets.query("g", "T", 0) == (2 if end is make_again else 4)


def test_times_of_deletions_survive_a_restart(popper: Popper) -> None:
    world = popper.world
    make_again(popper)
    delete_group(popper)
    topic_ms = world.broker.store.deletions.deleted_ms("T")
    group_ms = world.broker.groups.deleted_ms("g")
    assert 0 < topic_ms < group_ms
    restart(popper)
    assert world.broker.store.deletions.deleted_ms("T") == topic_ms
    assert world.broker.groups.deleted_ms("g") == group_ms
    assert world.broker.pop.lives.ended_ms("T", "g") == group_ms


def test_a_group_that_keeps_its_offsets_keeps_its_popped_messages(popper: Popper) -> None:
    popper.send("a")
    popper.pop()
    popper.world.ask_fields(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "g"})
    assert bodies(popper) == []
    popper.world.pass_time(5_000)
    assert bodies(popper) == ["a"]


def test_the_later_deletion_ends_a_life() -> None:
    lives = Lives({"T": 5}.__getitem__, {"g": 7, "h": 0}.__getitem__)
    assert lives.is_former("T", "g", 7) and not lives.is_former("T", "g", 8)
    assert lives.is_former("T", "h", 5) and not lives.is_former("T", "h", 6)
    assert lives.pop_time_ms("T", "g", 3) == 8


# Pulls


def test_an_online_consumer_begins_at_the_first_message_of_the_next_life(popper: Popper) -> None:
    world = popper.world
    body = {
        "clientID": "c", "producerDataSet": [], "consumerDataSet": [{
            "groupName": "g", "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "unitMode": False,
            "subscriptionDataSet": [{"topic": "T", "subString": "*", "subVersion": 1}],
        }],
    }  # fmt: skip
    world.ask(RequestCode.HEART_BEAT, None, encode_json(body))
    popper.send("a", "b")
    make_again(popper)
    popper.send("new", "newer", "newest")
    commit = {"consumerGroup": "g", "topic": "T", "queueId": "0", "commitOffset": "2"}
    world.ask_fields(RequestCode.UPDATE_CONSUMER_OFFSET, commit)
    pull = {
        "consumerGroup": "g", "topic": "T", "queueId": "0", "queueOffset": "2", "sysFlag": "4",
        "maxMsgNums": "8", "commitOffset": "0", "suspendTimeoutMillis": "0", "subVersion": "1",
        "subscription": "*", "expressionType": "TAG",
    }  # fmt: skip
    response = world.ask_fields(RequestCode.PULL_MESSAGE, pull)
    assert response.code == ResponseCode.PULL_OFFSET_MOVED
    assert response.fields["nextBeginOffset"] == "0"
    assert world.ask_fields(RequestCode.PULL_MESSAGE, pull).code == ResponseCode.SUCCESS


# Steps


def test_a_step_of_recovery_reads_few_records_of_all_queues(popper: Popper) -> None:
    """A step used to go on in the next revive queue: eight queues with 150 check points each took
    90 ms."""
    world = popper.world
    popper.send(*map(str, range(320)))
    while popper.pop(max_msg_nums=1):
        pass
    step: list[PoppedQueue] = []

    def set_back_ms(queue: PoppedQueue) -> int:
        step.append(queue)  # once for each check point
        return 0

    places = [(REVIVE_TOPIC, queue_id) for queue_id in range(8)]
    known = PoppedOffsets(
        get=lambda queue: -1,
        set=lambda queue, offset: None,
        set_back_ms=set_back_ms,
        lives=Lives(lambda topic: 0, lambda group: 0),
        exists=lambda queue: True,
        restore=lambda logged: None,
    )
    store, broker_name = world.broker.store, world.broker.config.broker_name
    steps = []
    for _ in recover_offsets(store, places, REVIVE_TOPIC, broker_name, known):
        steps.append(len(step))
        step.clear()
    steps.append(len(step))  # entries of the last step, which does not yield
    assert sum(steps) == 320 and max(steps) <= READ_MAX


# Filters


@pytest.mark.parametrize("gap", [3, 1_500])
@pytest.mark.parametrize("apart", [True, False])
def test_recovery_passes_over_messages_that_the_filter_passed_over(
    popper: Popper, gap: int, apart: bool
) -> None:
    """Otherwise a recovery stops at such records, and acknowledged messages are delivered again."""
    world = popper.world
    popper.send("first")
    [(_, handle)] = popper.pop(exp="A", exp_type="TAG", invisible_time=LONG_MS)
    popper.ack(handle)
    popper.send(*map(str, range(gap)), tag="B")
    while apart and world.broker.offsets.query("g", "T", 0) <= gap:
        assert bodies(popper, exp="A", exp_type="TAG", invisible_time=LONG_MS) == []
    popper.send("second", "third")
    found: list[str] = []
    while len(found) < 2:
        for body, handle in popper.pop(exp="A", exp_type="TAG", invisible_time=LONG_MS):
            found.append(body)
            popper.ack(handle)
    assert found == ["second", "third"]
    world.broker.offsets._committed.restore_entry(("T", "g"), 0, QueueOffset(0))  # as saved before
    restart(popper)
    assert bodies(popper, exp="A", exp_type="TAG") == []
    assert world.broker.offsets.query("g", "T", 0) == gap + 3
    popper.send("fourth")
    assert bodies(popper, exp="A", exp_type="TAG") == ["fourth"]


def test_recovery_stops_at_unexamined_records(popper: Popper) -> None:
    world = popper.world
    popper.send("a", "b", "c")
    world.broker.offsets.commit("g", "T", 0, QueueOffset(0), world.now_ms)
    world.pass_time(1)
    bodies(popper, max_msg_nums=1, invisible_time=LONG_MS)
    world.broker.offsets.commit("g", "T", 0, QueueOffset(2), world.now_ms)
    assert bodies(popper, invisible_time=LONG_MS) == ["c"]
    world.broker.offsets._committed.restore_entry(("T", "g"), 0, QueueOffset(0))
    restart(popper)
    assert bodies(popper, invisible_time=LONG_MS) == ["b", "c"]
