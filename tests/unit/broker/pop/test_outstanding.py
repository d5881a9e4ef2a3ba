"""Hand-outs, and the point at which they advance the group's offset."""

import pytest
from tests.unit.broker.conftest import World

from turbopump.broker.pop.outstanding import OutstandingPops, PoppedQueue
from turbopump.engine.types import QueueOffset

QUEUE = PoppedQueue("T", "g", 0)


def made() -> tuple[OutstandingPops, list[int]]:
    committed: list[int] = []
    return OutstandingPops(lambda _queue, offset: committed.append(offset)), committed


def test_offsets_are_committed_in_the_order_of_the_queue() -> None:
    outstanding, committed = made()
    first = outstanding.add(QUEUE, QueueOffset(4))
    second = outstanding.add(QUEUE, QueueOffset(9))
    assert outstanding.next_offset(QUEUE) == 9
    outstanding.mark_safe(QUEUE, second)
    assert committed == []
    outstanding.mark_safe(QUEUE, first)
    assert committed == [9]
    assert outstanding.next_offset(QUEUE) is None


def test_messages_without_a_check_point_are_popped_again_with_all_later_ones() -> None:
    outstanding, committed = made()
    first = outstanding.add(QUEUE, QueueOffset(4))
    second = outstanding.add(QUEUE, QueueOffset(9))
    third = outstanding.add(QUEUE, QueueOffset(12))
    outstanding.drop_from(QUEUE, second)
    assert outstanding.next_offset(QUEUE) == 4
    outstanding.drop_from(
        QUEUE, third
    )  # its check point failed, too: the hand-out was removed already
    outstanding.mark_safe(QUEUE, first)
    assert committed == [4]
    assert outstanding.next_offset(QUEUE) is None


def test_filtered_messages_move_the_offset_after_pending_ones() -> None:
    outstanding, committed = made()
    first = outstanding.add(QUEUE, QueueOffset(4))
    outstanding.skip_messages(QUEUE, QueueOffset(4), QueueOffset(8))
    assert committed == []
    outstanding.mark_safe(QUEUE, first)
    assert committed == [8]


def test_an_offset_that_was_set_is_not_moved_by_pending_acknowledgements() -> None:
    outstanding, committed = made()
    first = outstanding.add(QUEUE, QueueOffset(4))
    outstanding.forget_queue(QUEUE)
    outstanding.mark_safe(QUEUE, first)
    assert committed == []


def test_a_hand_out_that_fails_late_takes_nothing_of_a_later_one_with_it() -> None:
    outstanding, committed = made()
    first = outstanding.add(QUEUE, QueueOffset(4))
    second = outstanding.add(QUEUE, QueueOffset(9))
    outstanding.drop_from(QUEUE, first)
    again = outstanding.add(QUEUE, QueueOffset(4))
    rest = outstanding.add(QUEUE, QueueOffset(9))
    outstanding.drop_from(QUEUE, second)
    outstanding.mark_safe(QUEUE, again)
    outstanding.mark_safe(QUEUE, rest)
    assert committed == [4, 9]


@pytest.mark.parametrize("kind", ["topic", "group"])
def test_hand_outs_of_a_deleted_name_move_no_offset(world: World, kind: str) -> None:
    pops, queue_offset = world.broker.pop, QueueOffset(4)
    deleted, other = PoppedQueue("T", "g", 0), PoppedQueue("U", "h", 0)
    hand_outs = [(queue, pops.outstanding.add(queue, queue_offset)) for queue in (deleted, other)]
    pops.forget_topic("T") if kind == "topic" else pops.forget_group("g")
    for queue, hand_out in hand_outs:
        pops.outstanding.mark_safe(queue, hand_out)
    committed = [world.broker.offsets.query(one.group, one.topic, 0) for one in (deleted, other)]
    assert committed == [-1, 4]
