"""Round robin, failed brokers avoided, and the hash of a sharding key."""

from turbopump.net.client.selection import AVOID_MS, QueueSelector, choose_by_key
from turbopump.net.wire.queues import MessageQueue

QUEUES = [MessageQueue("T", name, at) for name in ("a", "b") for at in range(2)]


def test_round_robin_visits_every_queue() -> None:
    selector = QueueSelector()
    assert [selector.choose(QUEUES, (), 0) for _ in range(8)] == QUEUES * 2


def test_topics_are_counted_apart() -> None:
    selector = QueueSelector()
    other = [MessageQueue("U", "a", at) for at in range(2)]
    assert selector.choose(QUEUES, (), 0) is QUEUES[0]
    assert selector.choose(other, (), 0) is other[0]
    assert selector.choose(QUEUES, (), 0) is QUEUES[1]


def test_broker_tried_already_is_left_out_while_there_is_another() -> None:
    selector = QueueSelector()
    names = [selector.choose(QUEUES, {"a"}, 0).broker_name for _ in range(4)]
    assert names == ["b"] * 4
    assert selector.choose(QUEUES, {"a", "b"}, 0).broker_name in ("a", "b")


def test_broker_that_failed_is_avoided_for_a_while() -> None:
    selector = QueueSelector()
    selector.failed("b", 1000)
    names = {selector.choose(QUEUES, (), 1001).broker_name for _ in range(4)}
    assert names == {"a"}
    assert selector.choose(QUEUES, {"a"}, 1001).broker_name == "b"
    names = {selector.choose(QUEUES, (), 1000 + AVOID_MS).broker_name for _ in range(4)}
    assert names == {"a", "b"}


def test_success_ends_the_avoidance() -> None:
    selector = QueueSelector()
    selector.failed("b", 1000)
    selector.succeeded("b")
    assert {selector.choose(QUEUES, (), 1001).broker_name for _ in range(4)} == {"a", "b"}


def test_key_goes_where_java_sends_it() -> None:
    # Known values of String.hashCode: "TagA" 2598919, "polygenelubricants" Integer.MIN_VALUE.
    seven = [MessageQueue("T", "a", at) for at in range(7)]
    assert choose_by_key(seven, "TagA") is seven[2598919 % 7]
    assert choose_by_key(seven, "polygenelubricants") is seven[(1 << 31) % 7]
