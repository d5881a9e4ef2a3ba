"""Pulls with property filters: results, errors, long polls, versions, limits."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.broker.handlers.test_pull import answered, bodies, header, hold, numbers

from turbopump.broker.tables import filters as table
from turbopump.broker.tables.bloom import BloomFilter
from turbopump.broker.tables.filters import TooManyFilters
from turbopump.engine import fastjson
from turbopump.engine.deferred import Deferred
from turbopump.engine.types import QueueOffset
from turbopump.net.wire.bodies import run_to_result
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import Command, new_request
from turbopump.net.wire.headers.pull import SUBSCRIPTION_FLAG, SUSPEND_FLAG
from turbopump.net.wire.headers.send import SendMessageRequestV2
from turbopump.net.wire.heartbeat import ConsumerData, HeartbeatData
from turbopump.net.wire.subscription import parse_subscription
from turbopump.net.wire.topics import TopicConfig

PULL = RequestCode.PULL_MESSAGE
DAY_MS = 86_400_000


def send(world: Any, body: bytes, **properties: object) -> None:
    """Send a message to queue 0 of T."""
    text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
    one = SendMessageRequestV2("PG", "T", "TBW102", 4, 0, 0, 1, 0, properties=text)
    assert world.ask(RequestCode.SEND_MESSAGE_V2, one, body).code == 0


def heartbeat(
    world: Any,
    expression: str,
    version: int,
    *,
    kind: str = "SQL92",
    topic: str = "T",
    peer: Any = None,
) -> Command:
    """Send the heartbeat of a member of G with its filter for the topic."""
    wanted = parse_subscription(topic, expression, kind, version)
    data = HeartbeatData("client", [], [ConsumerData("G", subscription_data_set=[wanted])])
    return beat(world, data, peer)


def beat(world: Any, data: HeartbeatData, peer: Any = None) -> Command:
    """Send a heartbeat; one with expressions is handled in steps."""
    response = world.dispatch(new_request(RequestCode.HEART_BEAT, None, data.encode()), peer)
    found: Command = response if isinstance(response, Command) else run_to_result(response)
    return found


def reopen(world: Any) -> None:
    """Stop the broker and start it again."""
    world.broker.store.close(world.now_ms)
    world.open()


def carried(expression: str, **changed: Any) -> Any:
    """Send a pull that includes its expression."""
    return header(subscription=expression, expression_type="SQL92", **changed)


def test_a_pull_returns_the_matching_messages(world: Any) -> None:
    for number in range(10):
        send(world, b"%d" % number, a=number)
    send(world, b"none")
    response = world.ask(PULL, carried("a BETWEEN 3 AND 5 OR a IS NULL"))
    assert (response.code, response.remark) == (0, "FOUND")
    assert bodies(response) == [b"3", b"4", b"5", b"none"]
    assert numbers(response) == (0, 11, 0, 11)
    response = world.ask(PULL, carried("a > 20"))
    assert (response.code, response.remark, numbers(response)[1]) == (20, "NO_MATCHED_MESSAGE", 11)
    assert bodies(world.ask(PULL, carried("a >= 0", max_msg_nums=2, queue_offset=4))) == [
        b"4",
        b"5",
    ]


def test_a_heartbeat_brings_the_filter_of_pulls_without_one(world: Any) -> None:
    for number in range(6):
        send(world, b"%d" % number, a=number)
    assert heartbeat(world, "a < 2", 7).code == 0
    for version in (7, 0):
        response = world.ask(PULL, header(sys_flag=0, sub_version=version))
        assert bodies(response) == [b"0", b"1"]
    response = world.ask(PULL, header(sys_flag=0, sub_version=8))
    assert (response.code, response.remark) == (25, "the consumer's subscription not latest")


def test_a_group_changes_its_expression(world: Any) -> None:
    for number in range(4):
        send(world, b"%d" % number, a=number)
    for expression, version, wanted in [
        ("a < 1", 7, [b"0"]),
        ("a < 3", 6, [b"0"]),  # an older version of the subscription
        ("a < 2", 8, [b"0", b"1"]),
        ("a < 2", 9, [b"0", b"1"]),
    ]:
        heartbeat(world, expression, version)
        assert bodies(world.ask(PULL, header(sys_flag=0, sub_version=0))) == wanted
    heartbeat(world, "*", 10, kind="TAG")
    assert len(bodies(world.ask(PULL, header(sys_flag=0, sub_version=10)))) == 4
    heartbeat(world, "a = 3", 11)
    assert bodies(world.ask(PULL, header(sys_flag=0, sub_version=11))) == [b"3"]


@pytest.mark.parametrize(
    ("kind", "former", "latter"), [("SQL92", "a < 1", "a >= 1"), ("TAG", "old", "new")]
)
def test_a_member_whose_clock_is_slow_brings_its_new_filter(
    world: Any, kind: str, former: str, latter: str
) -> None:
    send(world, b"old", a=0, TAGS="old")
    send(world, b"new", a=1, TAGS="new")
    slow, fast = world.peer(), world.peer()
    heartbeat(world, former, 100, kind=kind, peer=slow)
    heartbeat(world, former, 900, kind=kind, peer=fast)
    assert bodies(world.ask(PULL, header(sys_flag=0, sub_version=900))) == [b"old"]
    heartbeat(world, latter, 200, kind=kind, peer=slow)
    for _ in range(2):
        for version in (200, 900):
            assert bodies(world.ask(PULL, header(sys_flag=0, sub_version=version))) == [b"new"]
        # the member's own subscription has not changed
        heartbeat(world, former, 900, kind=kind, peer=fast)
    heartbeat(world, former, 901, kind=kind, peer=fast)
    assert bodies(world.ask(PULL, header(sys_flag=0, sub_version=901))) == [b"old"]


def test_a_filter_of_a_group_that_is_gone_does_not_outrank_a_slow_clock(world: Any) -> None:
    for number in range(3):
        send(world, b"%d" % number, a=number)
    heartbeat(world, "a < 1", 900)
    world.broker.consumers.unregister(world.client, "client", "G")
    heartbeat(world, "a > 1", 100)
    assert bodies(world.ask(PULL, header(sys_flag=0, sub_version=100))) == [b"2"]


@pytest.mark.parametrize("expression", ["a <", "a > 'x'", "a LIKE 'x'"])
def test_an_expression_that_is_none_is_no_filter(world: Any, expression: str) -> None:
    send(world, b"x", a=1)
    assert heartbeat(world, "a = 1", 1).code == 0
    assert heartbeat(world, expression, 2).code == 0
    response = world.ask(PULL, header(sys_flag=0, sub_version=2))
    assert (response.code, response.remark) == (
        27,
        "The broker's consumer filter data is not exist!Your expression may be wrong!",
    )
    response = world.ask(PULL, carried(expression))
    assert (response.code, response.remark.startswith("Invalid MessageSelector. ")) == (23, True)
    assert heartbeat(world, "a = 1", 3).code == 0
    assert bodies(world.ask(PULL, header(sys_flag=0, sub_version=3))) == [b"x"]


def test_a_filter_that_is_older_than_the_pull(world: Any) -> None:
    send(world, b"x", a=1)
    heartbeat(world, "a = 1", 1)
    subscription = parse_subscription("T", "a = 1", "SQL92", 5)
    data = ConsumerData("G", subscription_data_set=[subscription])
    world.broker.consumers.register(world.client, "client", data, world.now_ms)
    response = world.ask(PULL, header(sys_flag=0, sub_version=5))
    assert (response.code, response.remark) == (
        28,
        "the consumer's consumer filter data not latest",
    )


def test_a_held_pull_waits_for_a_message_that_matches(world: Any) -> None:
    world.broker.topics.put(TopicConfig("T"), world.now_ms)
    flags = SUBSCRIPTION_FLAG | SUSPEND_FLAG
    held = hold(world, subscription="a = 1", expression_type="SQL92", sys_flag=flags)
    for number in (0, 2, 3):
        send(world, b"%d" % number, a=number)
        world.broker.held_pulls.attempt_grown()
        assert not held.done
    send(world, b"one", a=1)
    world.broker.held_pulls.attempt_grown()
    assert bodies(answered(held)) == [b"one"]
    assert numbers(answered(held))[1] == 4


def test_a_held_pull_whose_filter_changes_reads_with_the_new_one(world: Any) -> None:
    world.broker.topics.put(TopicConfig("T"), world.now_ms)
    heartbeat(world, "a = 1", 1)
    held = hold(world, sys_flag=SUSPEND_FLAG, sub_version=1)
    heartbeat(world, "a = 2", 2)
    send(world, b"one", a=1)
    world.broker.held_pulls.attempt_grown()
    assert not held.done
    send(world, b"two", a=2)
    world.broker.held_pulls.attempt_grown()
    assert bodies(answered(held)) == [b"two"]


def test_many_held_pulls_with_costly_filters_take_turns(world: Any) -> None:
    world.broker.topics.put(TopicConfig("T"), world.now_ms)
    costly = " OR ".join(["a CONTAINS 'x'"] * 30)
    holds = [
        hold(world, subscription=costly, expression_type="SQL92", sub_version=number)
        for number in range(4)
    ]
    send(world, b"x", a="xx")
    world.broker.held_pulls.attempt_grown()
    done = sum(one.done for one in holds)
    assert 0 < done < 4
    for _ in range(3):
        world.broker.held_pulls.attempt_grown()
    assert all(one.done for one in holds)


def test_one_read_examines_no_more_than_takes_milliseconds(world: Any) -> None:
    long = "y" * 30_000
    for number in range(8):
        send(world, b"%d" % number, a=long)
    costly = " OR ".join(["a CONTAINS 'x'"] * 30)
    response = world.ask(PULL, carried(costly))
    assert (response.code, numbers(response)[1]) == (20, 1)
    assert numbers(world.ask(PULL, carried("a CONTAINS 'x'")))[1] == 8


def test_the_file_is_rocketmqs_and_is_read_again(world: Any) -> None:
    send(world, b"one", a=1)
    heartbeat(world, "a = 1 AND b IS NULL OR c = '中'", 3)
    heartbeat(world, "a >", 4, topic="U")
    world.broker.filters.remove_unused(world.now_ms)
    saved = world.files.load(table.FILE_NAME)
    one = saved["filterDataByTopic"]["T"]["groupFilterData"]["G"]
    assert one == {
        "bloomFilterData": {"bitNum": 112, "bitPos": one["bloomFilterData"]["bitPos"]},
        "bornTime": world.now_ms,
        "clientVersion": 3,
        "consumerGroup": "G",
        "dead": True,  # the second heartbeat named U alone
        "deadTime": world.now_ms,
        "expression": "a = 1 AND b IS NULL OR c = '中'",
        "expressionType": "SQL92",
        "topic": "T",
    }
    assert saved == {"filterDataByTopic": {"T": {"groupFilterData": {"G": one}, "topic": "T"}}}
    heartbeat(world, "a = 1 AND b IS NULL OR c = '中'", 5)
    world.broker.filters.remove_unused(world.now_ms)
    reopen(world)
    known = world.broker.filters.get("T", "G")
    assert (known.client_version, known.is_dead) == (5, True)
    assert known.filter.evaluate(b"a\x011\x02") is True
    heartbeat(world, "a = 1 AND b IS NULL OR c = '中'", 5)
    assert not world.broker.filters.get("T", "G").is_dead


OF_ROCKETMQ = """{
\t"filterDataByTopic":{
\t\t"T":{
\t\t\t"groupFilterData":{
\t\t\t\t"g":{
\t\t\t\t\t"bloomFilterData":{
\t\t\t\t\t\t"bitNum":216,
\t\t\t\t\t\t"bitPos":[162,52,132]
\t\t\t\t\t},
\t\t\t\t\t"bornTime":1795592574857,
\t\t\t\t\t"clientVersion":123,
\t\t\t\t\t"consumerGroup":"g",
\t\t\t\t\t"dead":true,
\t\t\t\t\t"deadTime":1795592574938,
\t\t\t\t\t"expression":"a > 1 AND b = 'x中'",
\t\t\t\t\t"expressionType":"SQL92",
\t\t\t\t\t"topic":"T"
\t\t\t\t}
\t\t\t},
\t\t\t"topic":"T"
\t\t},
\t\t"T2":{
\t\t\t"groupFilterData":{
\t\t\t\t"g":{
\t\t\t\t\t"bloomFilterData":{
\t\t\t\t\t\t"bitNum":216,
\t\t\t\t\t\t"bitPos":[91,146,15]
\t\t\t\t\t},
\t\t\t\t\t"bornTime":1795592574936,
\t\t\t\t\t"clientVersion":124,
\t\t\t\t\t"consumerGroup":"g",
\t\t\t\t\t"dead":true,
\t\t\t\t\t"deadTime":1795592574938,
\t\t\t\t\t"expression":"a IS NULL",
\t\t\t\t\t"expressionType":"SQL92",
\t\t\t\t\t"topic":"T2"
\t\t\t\t}
\t\t\t},
\t\t\t"topic":"T2"
\t\t}
\t}
}"""
"""A file that ConsumerFilterManager of RocketMQ 5.5.0 wrote."""


def test_the_file_of_a_rocketmq_broker(make_world: Callable[..., Any]) -> None:
    world = make_world("expectConsumerNumUseFilter=64\n")
    world.files.save(table.FILE_NAME, fastjson.loads(OF_ROCKETMQ))
    reopen(world)
    filters = world.broker.filters
    assert b"".join(filters._content()()).decode() == OF_ROCKETMQ
    one = filters.get("T", "g")
    assert one.bits == BloomFilter(20, 64).bit_positions("g#T")
    assert one.filter.evaluate("a\x012\x02b\x01x中\x02".encode()) is True


def test_a_file_with_other_bits_or_a_bad_expression(world: Any) -> None:
    heartbeat(world, "a = 1", 3)
    world.broker.filters.remove_unused(world.now_ms)
    saved = world.files.load(table.FILE_NAME)
    group = saved["filterDataByTopic"]["T"]["groupFilterData"]["G"]
    group["expression"] = "a >"
    world.files.save(table.FILE_NAME, saved)
    reopen(world)
    assert world.broker.filters.get("T", "G") is None
    group["expression"], group["bloomFilterData"]["bitNum"] = "a = 1", 120
    world.files.save(table.FILE_NAME, saved)
    reopen(world)
    assert world.broker.filters.get("T", "G") is None
    assert world.broker.filters.size == 0


def test_filters_of_groups_that_are_gone_are_forgotten_after_a_day(world: Any) -> None:
    heartbeat(world, "a = 1", 3)
    world.broker.consumers.peer_closed(world.client)
    known = world.broker.filters.get("T", "G")
    assert (known.is_dead, known.dead_ms) == (True, world.now_ms)
    world.broker.filters.remove_unused(world.now_ms + DAY_MS - 1)
    assert world.broker.filters.get("T", "G") is not None
    world.broker.filters.remove_unused(world.now_ms + DAY_MS)
    assert world.broker.filters.get("T", "G") is None
    assert world.broker.filters.size == 0


def register(world: Any, group: str, version: int = 1) -> None:
    one = parse_subscription("T", f"a = '{group}'", "SQL92", version)
    for _ in world.broker.filters.register(group, [one], world.now_ms):
        pass


def test_a_hundred_thousand_filters(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is the same with fewer bytes."""
    monkeypatch.setattr(table, "MAX_SIZE", 1 << 20)
    filters = world.broker.filters
    with pytest.raises(TooManyFilters, match="the filters of all groups need over 1048576 bytes"):
        for number in range(2_000):
            register(world, f"G{number}")
    assert (1 << 20) * 0.99 < filters.size <= 1 << 20
    assert filters.get("T", "G3").filter.evaluate(b"a\x01G3\x02") is True
    filters.unregister("G3", world.now_ms)
    filters.unregister("G4", world.now_ms)
    register(world, "new")  # replaces the filter that has been unused longest
    assert filters.get("T", "new") is not None
    assert (filters.get("T", "G3"), filters.get("T", "G4") is None) == (None, False)
    response = heartbeat(world, "b = '" + "x" * 60_000 + "'", 1)
    assert (response.code, "filters of all groups" in response.remark) == (1, True)


def test_retries_pass_unfiltered(world: Any) -> None:
    """RocketMQ's clients subscribe to the retry topic by tags."""
    world.broker.topics.put(TopicConfig("%RETRY%G"), world.now_ms)
    wanted = [
        parse_subscription("T", "a = 1", "SQL92", 1),
        parse_subscription("%RETRY%G", "*", None, 1),
    ]
    data = HeartbeatData("client", [], [ConsumerData("G", subscription_data_set=wanted)])
    assert beat(world, data).code == 0
    one = SendMessageRequestV2(
        "PG", "%RETRY%G", "TBW102", 4, 0, 0, 1, 0, properties="RETRY_TOPIC\x01T\x02a\x012\x02"
    )
    assert world.ask(RequestCode.SEND_MESSAGE_V2, one, b"again").code == 0
    response = world.ask(PULL, header(topic="%RETRY%G", sys_flag=0, sub_version=1))
    assert bodies(response) == [b"again"]


EXTENDED = "enableConsumeQueueExt=true\nmappedFileSizeConsumeQueueExt=4096\n"


def test_bit_maps_are_written_when_asked_for(make_world: Callable[..., Any]) -> None:
    world = make_world(EXTENDED + "enableCalcFilterBitMap=true\n")
    send(world, b"before", a=1)
    heartbeat(world, "a = 1", 1)
    for number in (1, 2):
        send(world, b"%d" % number, a=number)
    extensions = world.broker.store.extensions
    maps = [
        extensions.get("T", 0, address).bitmap
        for address in [unit.tags_code for unit in raw_units(world, 3)]
    ]
    bits = world.broker.filters.get("T", "G").bits
    assert len(set(bits)) > 0
    assert maps == [b"", bit_map(bits), bytes(14)]
    response = world.ask(PULL, header(sys_flag=0, sub_version=1))
    assert bodies(response) == [b"before", b"1"]


def bit_map(bits: tuple[int, ...]) -> bytes:
    """The bytes of RocketMQ's BitsArray."""
    return sum(1 << bit for bit in set(bits)).to_bytes(14, "little")


def raw_units(world: Any, count: int) -> list[Any]:
    """Queue units as stored: with addresses of extensions."""
    lookup = world.broker.store._lookup
    queue = lookup._queues.find("T", 0)
    found: list[Any] = lookup._queues.units(queue, QueueOffset(0), count)
    return found


def test_a_pull_with_a_filter_in_a_batch_topic(world: Any) -> None:
    batch = TopicConfig("B", attributes={"queue.type": "BatchCQ"})
    world.broker.topics.put(batch, world.now_ms)
    for number in range(3):
        one = SendMessageRequestV2(
            "PG", "B", "TBW102", 4, 0, 0, 1, 0, properties=f"a\x01{number}\x02"
        )
        assert world.ask(RequestCode.SEND_MESSAGE_V2, one, b"%d" % number).code == 0
    response = world.ask(PULL, carried("a <> 1", topic="B"))
    assert bodies(response) == [b"0", b"2"]


def test_a_pull_that_waits_is_checked_again(world: Any) -> None:
    world.broker.topics.put(TopicConfig("T"), world.now_ms)
    heartbeat(world, "a = 1", 1)
    held = world.dispatch(new_request(PULL, header(sys_flag=SUSPEND_FLAG, sub_version=1)))
    assert isinstance(held, Deferred)
    heartbeat(world, "a >", 2)
    send(world, b"x", a=1)
    world.broker.held_pulls.attempt_grown()
    assert answered(held).code == 27
