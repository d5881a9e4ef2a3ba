"""Offsets with out-of-order acknowledgements, ordered delivery, drops and flow control."""

from hypothesis import given
from hypothesis import strategies as st

from turbopump.engine.types import QueueOffset
from turbopump.net.client.consuming.process_queue import (
    FlowLimits,
    ProcessQueue,
    Totals,
    pause_reason,
)
from turbopump.net.client.messages import ReceivedMessage
from turbopump.net.wire.queues import MessageQueue

QUEUE = MessageQueue("T", "broker-a", 0)


def received(queue_offset: int, body: bytes = b"x") -> ReceivedMessage:
    return ReceivedMessage(
        topic="T",
        body=body,
        tags="",
        keys=(),
        properties={},
        flag=0,
        message_id="",
        offset_message_id="",
        broker_name="broker-a",
        queue_id=0,
        queue_offset=queue_offset,
        log_offset=0,
        sys_flag=0,
        born_timestamp_ms=0,
        born_host="",
        store_timestamp_ms=0,
        store_host="",
        reconsume_times=0,
        prepared_transaction_offset=0,
        body_crc=0,
        store_size=0,
        stored_topic="T",
    )


def queue_with(*queue_offsets: int, ordered: bool = False, start: int = 0) -> ProcessQueue:
    queue = ProcessQueue(QUEUE, QueueOffset(start), Totals(), ordered=ordered)
    queue.lock_until_ms = 1_000_000
    queue.add_messages([received(at) for at in queue_offsets], QueueOffset(0))
    return queue


def take(queue: ProcessQueue, now_ms: int = 0) -> ReceivedMessage:
    message = queue.take_message(now_ms)
    assert message is not None
    return message


def test_nothing_can_be_committed_past_the_oldest_unacknowledged() -> None:
    queue = queue_with(10, 11, 12, start=10)
    first, second, third = take(queue), take(queue), take(queue)
    assert queue.ack(third, 1) and queue.ack(second, 1)
    assert queue.commit_queue_offset == 10
    assert queue.ack(first, 1)
    assert queue.commit_queue_offset == 13
    assert (queue.count, queue.size, queue.totals) == (0, 0, Totals(0, 0))


def test_filtered_messages_are_committed_with_the_next_begin() -> None:
    queue = queue_with(3, 7, start=3)
    queue.add_messages([], QueueOffset(20))
    assert queue.next_queue_offset == 20
    queue.ack(take(queue), 1)
    assert queue.commit_queue_offset == 7
    queue.ack(take(queue), 1)
    assert queue.commit_queue_offset == 20


def test_second_ack_and_foterm_message_change_nothing() -> None:
    queue = queue_with(0, 1)
    first = take(queue)
    assert queue.ack(first, 1)
    assert not queue.ack(first, 1)
    assert not queue.ack(received(1), 1)
    assert queue.commit_queue_offset == 1


def test_repeated_pull_adds_nothing() -> None:
    queue = queue_with(0, 1)
    assert queue.add_messages([received(0), received(1), received(2)], QueueOffset(3)) == 1
    assert queue.count == 3


def test_ordered_queue_hands_out_one_at_a_time() -> None:
    queue = queue_with(0, 1, ordered=True)
    first = take(queue)
    assert queue.take_message(0) is None
    queue.ack(first, 1)
    assert take(queue).queue_offset == 1


def test_put_back_pauses_and_comes_first() -> None:
    queue = queue_with(0, 1, ordered=True)
    first = take(queue, 100)
    assert queue.put_back(first, 1100)
    assert queue.take_message(1099) is None
    assert queue.suspended_for_ms(600) == 500
    assert take(queue, 1100) is first
    assert queue.commit_queue_offset == 0


def test_dropped_queue_hands_out_nothing_and_ignores_acknowledgements() -> None:
    totals = Totals()
    queue = ProcessQueue(QUEUE, QueueOffset(0), totals)
    queue.add_messages([received(0), received(1)], QueueOffset(2))
    first = take(queue)
    queue.stop_consuming()
    assert totals == Totals(0, 0)
    assert (
        queue.take_message(0) is None and not queue.ack(first, 1) and not queue.put_back(first, 1)
    )
    assert queue.in_flight == 1
    queue.on_handler_ended(first)
    assert queue.in_flight == 0
    assert queue.add_messages([received(2)], QueueOffset(3)) == 0
    assert totals == Totals(0, 0)


def test_a_retired_queue_counts_messages_in_flight() -> None:
    queue = queue_with(0, 1, 2)
    first, second = take(queue), take(queue)
    queue.forget_waiting()
    assert queue.totals.messages == 2
    assert queue.take_message(0) is None and queue.add_messages([received(3)], QueueOffset(4)) == 0
    assert queue.ack(first, 1) and queue.commit_queue_offset == 1
    assert queue.put_back(second, 0) and queue.commit_queue_offset == 1
    assert queue.take_message(0) is None and queue.totals == Totals(0, 0)


def test_ordered_queue_hands_out_nothing_when_its_lock_ran_out() -> None:
    queue = queue_with(0, ordered=True)
    queue.lock_until_ms = 500
    assert queue.take_message(500) is None
    queue.lock_until_ms = 900
    assert take(queue, 500).queue_offset == 0


def test_overdue_names_messages_that_are_in_flight_too_long() -> None:
    queue = queue_with(0, 1, 2)
    first = take(queue, 1000)
    take(queue, 2000)
    assert queue.overdue_messages(2500, 1000) == [first]


def test_flow_control_says_why_a_pull_waits() -> None:
    small = FlowLimits(queue_messages=2, queue_bytes=10, queue_span=5, total_messages=3)
    assert pause_reason(queue_with(), small) is None
    assert "2 messages of the queue" in str(pause_reason(queue_with(0, 1), small))
    assert "span 9" in str(pause_reason(queue_with(0, 9), FlowLimits(queue_span=9)))
    assert pause_reason(queue_with(0, 9, ordered=True), FlowLimits(queue_span=9)) is None
    large = queue_with()
    large.add_messages([received(0, b"0123456789")], QueueOffset(1))
    assert "10 bytes of the queue" in str(pause_reason(large, small))


def test_totals_pause_every_queue_that_holds_something() -> None:
    totals = Totals()
    first = ProcessQueue(QUEUE, QueueOffset(0), totals)
    second = ProcessQueue(QUEUE, QueueOffset(0), totals)
    first.add_messages([received(0), received(1)], QueueOffset(2))
    limits = FlowLimits(total_messages=2)
    assert "2 messages wait" in str(pause_reason(first, limits))
    # An empty queue may always pull: otherwise one slow queue would starve all the others.
    assert pause_reason(second, limits) is None


@given(st.permutations(range(12)), st.integers(0, 12))
def test_committed_offset_is_the_lowest_missing_acknowledgement(
    order: list[int], acknowledged: int
) -> None:
    queue = queue_with(*range(12))
    messages = [take(queue) for _ in range(12)]
    for at in order[:acknowledged]:
        assert queue.ack(messages[at], 0)
    missing = set(range(12)) - set(order[:acknowledged])
    assert queue.commit_queue_offset == min(missing, default=12)
    assert queue.count == 12 - acknowledged
