"""Round robin, failed brokers avoided, and the hash of a sharding key."""

from random import Random

from turbopump.net.client.selection import AVOID_MS, QueueSelector, choose_by_key
from turbopump.net.wire.queues import MessageQueue

QUEUES = [MessageQueue("T", name, at) for name in ("a", "b") for at in range(2)]


def begins_first() -> QueueSelector:
    """A selector that begins every topic at its first queue."""

    class First(Random):
        def randrange(self, *_: object) -> int:
            return 0

    return QueueSelector(First())


def test_round_robin_visits_every_queue() -> None:
    selector = begins_first()
    assert [selector.choose_queue(QUEUES, (), 0) for _ in range(8)] == QUEUES * 2


def test_producers_of_one_message_each_use_every_queue() -> None:
    first = {QueueSelector(Random(seed)).choose_queue(QUEUES, (), 0) for seed in range(50)}
    assert first == set(QUEUES)


def test_a_seed_repeats_the_beginning_and_each_topic_has_its_own() -> None:
    topics = [[MessageQueue(f"T{n}", "a", at) for at in range(8)] for n in range(20)]

    def begins() -> list[int]:
        selector = QueueSelector(Random(7))
        return [selector.choose_queue(queues, (), 0).queue_id for queues in topics]

    assert begins() == begins()
    assert len(set(begins())) > 2


def test_topics_are_counted_apart() -> None:
    selector = begins_first()
    other = [MessageQueue("U", "a", at) for at in range(2)]
    assert selector.choose_queue(QUEUES, (), 0) is QUEUES[0]
    assert selector.choose_queue(other, (), 0) is other[0]
    assert selector.choose_queue(QUEUES, (), 0) is QUEUES[1]


def test_broker_tried_already_is_left_out_while_there_is_another() -> None:
    selector = begins_first()
    names = [selector.choose_queue(QUEUES, {"a"}, 0).broker_name for _ in range(4)]
    assert names == ["b"] * 4
    assert selector.choose_queue(QUEUES, {"a", "b"}, 0).broker_name in ("a", "b")


def test_broker_that_failed_is_avoided_for_a_while() -> None:
    selector = begins_first()
    selector.note_failure("b", 1000)
    names = {selector.choose_queue(QUEUES, (), 1001).broker_name for _ in range(4)}
    assert names == {"a"}
    assert selector.choose_queue(QUEUES, {"a"}, 1001).broker_name == "b"
    names = {selector.choose_queue(QUEUES, (), 1000 + AVOID_MS).broker_name for _ in range(4)}
    assert names == {"a", "b"}


def test_success_ends_the_avoidance() -> None:
    selector = begins_first()
    selector.note_failure("b", 1000)
    selector.note_success("b")
    assert {selector.choose_queue(QUEUES, (), 1001).broker_name for _ in range(4)} == {"a", "b"}


def test_key_goes_where_java_sends_it() -> None:
    # Known values of String.hashCode: "TagA" 2598919, "polygenelubricants" Integer.MIN_VALUE.
    seven = [MessageQueue("T", "a", at) for at in range(7)]
    assert choose_by_key(seven, "TagA") is seven[2598919 % 7]
    assert choose_by_key(seven, "polygenelubricants") is seven[(1 << 31) % 7]
