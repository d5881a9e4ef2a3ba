"""Lag of a group that pops: in metrics, in the response to 208 and in the runtime table."""

from collections import Counter
from typing import Any

from prometheus_client.parser import text_string_to_metric_families
from tests.unit.broker.pop.poppers import Popper

from turbopump.broker.introspection.metrics import CounterSnapshot, render
from turbopump.broker.introspection.runtime_info import runtime_table
from turbopump.broker.pop.in_flight import FORGET_MS, InFlight
from turbopump.broker.pop.outstanding import PoppedQueue
from turbopump.engine.types import QueueOffset
from turbopump.net.client.admin import parse
from turbopump.net.wire.bodies import load_object
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.headers.pop import ChangeInvisibleTimeRequest
from turbopump.net.wire.topics import TopicConfig

LONG_MS = 50_000


def figures(popper: Popper, *, is_retry: bool = False) -> dict[str, float]:
    """Metrics of group g and topic T, by the ends of their names."""
    broker, now_ms = popper.world.broker, popper.world.now_ms
    body, _ = render(CounterSnapshot.read_counters(broker, now_ms), "")
    wanted = {"consumer_group": "g", "topic": "T", "is_retry": str(is_retry).lower()}
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(body.decode()):
        for sample in family.samples:
            name = sample.name.removeprefix("rocketmq_consumer_")
            if name != sample.name and wanted.items() <= sample.labels.items():
                assert name not in found, "one set of labels has one figure"
                found[name] = sample.value
    return found


def counts(popper: Popper, *, is_retry: bool = False) -> tuple[float, float, float]:
    """Counts of messages: not acknowledged, in flight, ready."""
    found = figures(popper, is_retry=is_retry)
    return tuple(found[f"{name}_messages"] for name in ("lag", "inflight", "ready"))  # type: ignore[return-value]


def progress(popper: Popper) -> tuple[dict[str, Any], Any]:
    """Queues with their offsets in the response to 208, and the counts of popped messages."""
    answer = popper.world.ask_fields(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "g"})
    response = load_object(answer.body).get("popInflight")
    queues, _, popped = parse.consume_stats(bytes(answer.body))
    assert popped == sum((response or {}).values())
    found = {
        f"{one.topic} {one.queue_id}": (one.broker_offset, one.consumer_offset, one.pull_offset)
        for one in queues
        if one.broker_offset
    }
    return found, response


def test_popped_messages_are_in_flight_until_acknowledged(popper: Popper) -> None:
    popper.send("a", "b", "c")
    popper.world.pass_time(1_000)
    popper.send("d")
    popper.world.pass_time(1_000)
    popped = popper.pop(max_msg_nums=2, invisible_time=LONG_MS)
    assert counts(popper) == (4, 2, 2)
    assert figures(popper)["lag_latency_milliseconds"] == 2_000
    assert figures(popper)["queueing_latency_milliseconds"] == 2_000
    # As in RocketMQ: handed out messages lie before the offset, and no pull offset counts them.
    assert progress(popper) == ({"T 0": (4, 2, 2)}, {"T": 2})
    popper.ack(popped[0][1])
    assert counts(popper) == (3, 1, 2)
    popper.ack(popped[1][1])
    assert counts(popper) == (2, 0, 2)
    assert progress(popper) == ({"T 0": (4, 2, 2)}, None)
    popper.pop(max_msg_nums=1)
    popper.ack(popper.pop(max_msg_nums=1, invisible_time=LONG_MS)[0][1])
    assert counts(popper) == (1, 1, 0)
    assert figures(popper)["lag_latency_milliseconds"] == 2_000
    assert figures(popper)["queueing_latency_milliseconds"] == 0
    runtime = runtime_table(popper.world.broker, popper.world.now_ms)
    assert runtime["consumerPop_g"].endswith(" 1 in flight")
    assert runtime["consumerLag_T@g"].startswith("1 messages, 2000 ms")


def test_redelivered_messages_lag_under_the_name_of_their_topic(popper: Popper) -> None:
    """The labels are RocketMQ's: `is_retry` is true, and the topic is the original topic."""
    popper.send("a", "b")
    popper.pop(max_msg_nums=1)
    popper.world.pass_time(2_000)
    assert counts(popper) == (1, 0, 1)
    assert counts(popper, is_retry=True) == (1, 0, 1)
    assert len(popper.pop(invisible_time=LONG_MS)) == 2
    assert counts(popper) == (1, 1, 0)
    assert counts(popper, is_retry=True) == (1, 1, 0)
    assert progress(popper)[1] == {"T": 1, "%RETRY%g_T": 1}
    world = popper.world
    world.broker.topics.put(TopicConfig("%RETRY%g+T", 1, 1), world.now_ms)
    world.broker.offsets.commit("g", "%RETRY%g+T", 0, QueueOffset(0), world.now_ms)
    assert counts(popper, is_retry=True) == (1, 1, 0)


def test_outstanding_batches_of_ordered_queues_lie_after_the_offset(popper: Popper) -> None:
    popper.send("a", "b", "c")
    popped = popper.pop(order=True, max_msg_nums=2, invisible_time=LONG_MS)
    assert counts(popper) == (3, 2, 1)
    popper.ack(popped[1][1])
    assert counts(popper)[1] == 1
    popper.ack(popped[0][1])
    assert counts(popper) == (1, 0, 1)
    popper.pop(order=True)
    assert counts(popper) == (1, 1, 0)
    popper.world.pass_time(3_000)
    assert counts(popper) == (1, 0, 1)


def test_a_message_whose_time_was_changed_is_in_flight_once(popper: Popper) -> None:
    popper.send("a")
    [(_, handle)] = popper.pop()
    header = ChangeInvisibleTimeRequest("g", "T", 0, handle, 0, LONG_MS)
    popper.world.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header)
    assert counts(popper) == (1, 1, 0)
    popper.world.pass_time(2_000)
    assert counts(popper) == (1, 1, 0)


def test_counts_are_forgotten_with_their_time() -> None:
    """The counters do not grow, whichever way the messages were settled."""
    in_flight, queue = InFlight(lambda: None), PoppedQueue("T", "g", 3)
    in_flight.count_popped(queue, QueueOffset(7), 5_000, 3, 1_000)
    in_flight.count_popped(queue, QueueOffset(4), 9_000, 2, 1_000)
    assert in_flight.count_of("g", "T", 1_000) == (5, [(3, 4)])
    in_flight.count_acked("g", "T", 9_000, 2)
    in_flight.count_acked("g", "T", 9_000, 2)  # once more, and of another group
    in_flight.count_acked("h", "T", 5_000, 1)
    assert in_flight.count_of("g", "T", 1_000) == (3, [(3, 7)])
    assert in_flight.counts_by_group(1_000) == Counter(g=3)
    assert in_flight.count_of("g", "T", 6_000) == (0, [])
    assert not in_flight._counts and not in_flight._first and not in_flight._looked
    for now_ms in 1_000, 1_000 + FORGET_MS:  # native pops, of which nothing reads the counts
        in_flight.apply_native(("g", "T"), now_ms + 900, 0, 1, (3, QueueOffset(4)), now_ms)
    assert len(in_flight._counts["g", "T"]) == 1
