"""Hand-outs, and the point at which they advance the group's offset."""

from turbopump.broker.pop.hand_outs import HandOuts, PoppedQueue
from turbopump.engine.types import QueueOffset

QUEUE = PoppedQueue("T", "g", 0)


def made() -> tuple[HandOuts, list[int]]:
    committed: list[int] = []
    return HandOuts(lambda _queue, offset: committed.append(offset)), committed


def test_offsets_are_committed_in_the_order_of_the_queue() -> None:
    hand_outs, committed = made()
    first = hand_outs.add(QUEUE, QueueOffset(4))
    second = hand_outs.add(QUEUE, QueueOffset(9))
    assert hand_outs.next_offset(QUEUE) == 9
    hand_outs.settle(QUEUE, second)
    assert committed == []
    hand_outs.settle(QUEUE, first)
    assert committed == [9]
    assert hand_outs.next_offset(QUEUE) is None


def test_messages_without_a_check_point_are_popped_again_with_all_later_ones() -> None:
    hand_outs, committed = made()
    first = hand_outs.add(QUEUE, QueueOffset(4))
    second = hand_outs.add(QUEUE, QueueOffset(9))
    third = hand_outs.add(QUEUE, QueueOffset(12))
    hand_outs.drop(QUEUE, second)
    assert hand_outs.next_offset(QUEUE) == 4
    hand_outs.drop(QUEUE, third)  # its check point failed, too: the hand-out was removed already
    hand_outs.settle(QUEUE, first)
    assert committed == [4]
    assert hand_outs.next_offset(QUEUE) is None


def test_filtered_messages_move_the_offset_after_pending_ones() -> None:
    hand_outs, committed = made()
    first = hand_outs.add(QUEUE, QueueOffset(4))
    hand_outs.skip(QUEUE, QueueOffset(4), QueueOffset(8))
    assert committed == []
    hand_outs.settle(QUEUE, first)
    assert committed == [8]


def test_an_offset_that_was_set_is_not_moved_by_pending_acknowledgements() -> None:
    hand_outs, committed = made()
    first = hand_outs.add(QUEUE, QueueOffset(4))
    hand_outs.forget(QUEUE)
    hand_outs.settle(QUEUE, first)
    assert committed == []


def test_a_hand_out_that_fails_late_takes_nothing_of_a_later_one_with_it() -> None:
    hand_outs, committed = made()
    first = hand_outs.add(QUEUE, QueueOffset(4))
    second = hand_outs.add(QUEUE, QueueOffset(9))
    hand_outs.drop(QUEUE, first)
    again = hand_outs.add(QUEUE, QueueOffset(4))
    rest = hand_outs.add(QUEUE, QueueOffset(9))
    hand_outs.drop(QUEUE, second)
    hand_outs.settle(QUEUE, again)
    hand_outs.settle(QUEUE, rest)
    assert committed == [4, 9]
