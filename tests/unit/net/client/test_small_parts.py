"""Turns between queues, rates over a minute, waits after failures, version names."""

from tests.unit.net.client.consuming.test_process_queue import received

from turbopump.engine.types import QueueOffset
from turbopump.net.client import backoff
from turbopump.net.client.admin import parse as admin_parse
from turbopump.net.client.consuming.process_queue import ProcessQueue, Totals
from turbopump.net.client.consuming.rates import Rates, TopicRates
from turbopump.net.client.consuming.ready_queues import ReadyQueues
from turbopump.net.client.errors import BrokerError
from turbopump.net.transport.errors import ConnectError
from turbopump.net.wire.queues import MessageQueue


def process(queue_id: int, count: int) -> ProcessQueue:
    queue = ProcessQueue(MessageQueue("T", "a", queue_id), QueueOffset(0), Totals())
    queue.add_messages([received(at) for at in range(count)], QueueOffset(count))
    return queue


def test_queues_take_turns() -> None:
    ready = ReadyQueues()
    first, second = process(0, 3), process(1, 1)
    for queue in (first, second, first):
        ready.add_queue(queue)
    turns = []
    while (item := ready.take_message(0)) is not None:
        turns.append((item[0].queue.queue_id, item[1].queue_offset))
    assert turns == [(0, 0), (1, 0), (0, 1), (0, 2)]
    assert not ready
    first.add_messages([received(3)], QueueOffset(4))
    assert ready.take_message(0) is None
    ready.add_queue(first)
    assert ready.take_message(0) is not None


def test_rates_cover_the_last_minute() -> None:
    rates = TopicRates()
    for now_ms in range(0, 20_000, 100):
        rates.count_handled("T", now_ms % 1000 != 0, 5, now_ms)
    rates.count_pulled("T", 32, 10, 19_000)
    read = rates.read("T", 20_000)
    assert (read.ok_tps, read.failed_tps, read.failed_count) == (9.0, 1.0, 20)
    assert (read.handling_ms, read.pulling_ms, read.pull_tps) == (5.0, 10.0, 1.6)
    assert rates.read("T", 100_000) == Rates()
    assert rates.read("U", 0) == Rates()
    rates.forget_topic("T")
    assert rates.read("T", 20_000) == Rates()


def test_waits_double_up_to_a_second() -> None:
    gone = ConnectError("x")
    assert [backoff.wait_ms(gone, failures) for failures in (1, 2, 3, 4, 5, 99)] == [
        100,
        200,
        400,
        800,
        1000,
        1000,
    ]
    assert backoff.send_wait_ms(2) == 200


def test_answers_decide_about_waits() -> None:
    assert backoff.wait_ms(BrokerError(215, None, "a"), 5) == 20
    assert backoff.wait_ms(BrokerError(24, None, "a"), 1) == 100
    assert [backoff.wait_ms(BrokerError(16, None, "a"), failures) for failures in (1, 2, 9)] == [
        1000,
        2000,
        3000,
    ]
    assert backoff.needs_heartbeat(BrokerError(25, None, "a"))
    assert not backoff.needs_heartbeat(BrokerError(16, None, "a"))
    assert not backoff.needs_heartbeat(ConnectError("x"))


def test_versions_are_named_as_rocketmq_names_them() -> None:
    known = {
        213: "V4_0_0",
        232: "V4_1_0_SNAPSHOT",
        273: "V4_3_0",
        355: "V4_7_1",
        393: "V4_9_0",
        409: "V4_9_8",
        413: "V5_0_0",
        441: "V5_1_4",
        479: "V5_3_3",
        513: "V5_5_0",
    }
    assert {ordinal: admin_parse.version_name(ordinal) for ordinal in known} == known
    assert admin_parse.version_name(121) == "V3(121)"


def test_order_configuration_keeps_the_other_brokers() -> None:
    assert admin_parse.order_text("a:4;b:8", {"b": 2, "c": 1}) == "a:4;b:2;c:1"
    assert admin_parse.order_text("", {"a": 1}) == "a:1"


def test_attribute_changes_are_read() -> None:
    changes = "+message.type=FIFO, +queue.type=SimpleCQ,-reserve.time"
    assert admin_parse.attributes_of(changes) == {
        "message.type": "FIFO",
        "queue.type": "SimpleCQ",
    }
    assert admin_parse.attributes_of("") == {}


def test_figures_of_a_broker_that_says_little_are_zero() -> None:
    line = admin_parse.broker_line("C", "a", 0, "a:1", {"putTps": "x", "pageCache": "1"}, 0)
    assert (line.in_tps, line.hours, line.active) == (0.0, 0.0, False)
    info = {"putTps": "4.5 3 2", "earliestMessageTimeStamp": "3600000", "brokerActive": "true"}
    line = admin_parse.broker_line("C", "a", 0, "a:1", info, 3 * 3_600_000)
    assert (line.in_tps, line.hours, line.active) == (4.5, 2.0, True)
