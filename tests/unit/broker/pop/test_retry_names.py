"""`%RETRY%a_b_c` is the version 1 name of three retry topics: only one group reads it."""

from typing import Any

import pytest
from tests.unit.broker.conftest import World

from turbopump.engine.types import QueueOffset
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import new_request
from turbopump.net.wire.groups import SubscriptionGroupConfig
from turbopump.net.wire.headers.pop import PopMessageRequest
from turbopump.net.wire.message import decode_messages
from turbopump.net.wire.topics import TopicConfig

SHARED, SECOND = "%RETRY%a_b_c", "%RETRY%a_b+c"


@pytest.fixture
def pops(world: World) -> World:
    for topic in ("b_c", "c"):
        config = TopicConfig(topic, read_queue_nums=1, write_queue_nums=1)
        world.broker.topics.put(config, world.now_ms)
    return world


def send(world: World, topic: str, body: str) -> None:
    fields = {
        "a": "p", "b": topic, "c": "TBW102", "d": "8", "e": "0", "f": "0",
        "g": str(world.now_ms), "h": "0", "i": "", "j": "0", "k": "false", "m": "false",
    }  # fmt: skip
    answer: Any = world.dispatch(
        new_request(RequestCode.SEND_MESSAGE_V2, fields=fields, body=body.encode())
    )
    assert answer.code == ResponseCode.SUCCESS


def pop(world: World, group: str, topic: str) -> list[tuple[str, str]]:
    """The topic and the body of each message."""
    request = PopMessageRequest(
        consumer_group=group,
        topic=topic,
        queue_id=-1,
        max_msg_nums=32,
        invisible_time=900,
        poll_time=0,
        born_time=world.now_ms,
        init_mode=0,
    )
    answer = world.ask(RequestCode.POP_MESSAGE, request)
    if answer.code != ResponseCode.SUCCESS:
        return []
    found = decode_messages(b"".join(answer.body))
    return [(one.topic, bytes(one.body).decode()) for one in found]


def stored(world: World, topic: str) -> int:
    return world.broker.store.max_queue_offset(topic, 0)


def test_two_pairs_with_one_retry_name_get_their_own_messages(pops: World) -> None:
    send(pops, "b_c", "for a")
    send(pops, "c", "for a_b")
    assert pop(pops, "a", "b_c") == [("b_c", "for a")]
    pops.pass_time(3_000)
    assert stored(pops, SHARED) == 1
    assert pop(pops, "a_b", "c") == [("c", "for a_b")]
    pops.pass_time(3_000)
    for _ in range(2):
        assert pop(pops, "a_b", "c") == [("c", "for a_b")]
        assert pop(pops, "a", "b_c") == [("b_c", "for a")]
        pops.pass_time(3_000)
    assert stored(pops, SHARED) == 3 and stored(pops, SECOND) == 3


@pytest.mark.parametrize("has_topic", [False, True])
def test_a_pulling_group_of_the_name_keeps_its_retry_topic(pops: World, has_topic: bool) -> None:
    pops.broker.groups.put(SubscriptionGroupConfig(group_name="a_b_c"), pops.now_ms)
    if has_topic:
        pops.broker.topics.create_internal(SHARED, 1, 6, pops.now_ms)
        send(pops, SHARED, "of a_b_c")
    send(pops, "c", "for a_b")
    assert pop(pops, "a_b", "c") == [("c", "for a_b")]
    for _ in range(2):
        pops.pass_time(3_000)
        assert pop(pops, "a_b", "c") == [("c", "for a_b")]
    assert stored(pops, SHARED) == int(has_topic)


def test_the_deletion_of_one_topic_keeps_the_retry_topic_of_the_other(pops: World) -> None:
    send(pops, "b_c", "for a")
    send(pops, "c", "for a_b")
    assert pop(pops, "a", "b_c")
    pops.pass_time(3_000)
    assert pop(pops, "a_b", "c")
    answer: Any = pops.dispatch(
        new_request(RequestCode.DELETE_TOPIC_IN_BROKER, fields={"topic": "c"})
    )
    pops.pass_time(1_000)
    assert answer is not None
    assert pops.broker.topics.peek("c") is None
    assert pop(pops, "a", "b_c") == [("b_c", "for a")]


def test_a_store_that_has_mixed_them_is_read_by_both(pops: World) -> None:
    """A store of RocketMQ: both groups have an offset in the topic."""
    pops.broker.topics.create_internal(SHARED, 1, 6, pops.now_ms)
    for group in ("a", "a_b"):
        pops.broker.offsets.commit(group, SHARED, 0, QueueOffset(0), pops.now_ms)
    send(pops, "c", "for a_b")
    assert pop(pops, "a_b", "c") == [("c", "for a_b")]
    pops.pass_time(3_000)
    assert stored(pops, SHARED) == 0 and stored(pops, SECOND) == 1
    send(pops, SHARED, "of before")
    # A pop looks at one of the two retry topics.
    found = [body for _ in range(8) for _, body in pop(pops, "a_b", "c")]
    assert sorted(found) == ["for a_b", "of before"]
