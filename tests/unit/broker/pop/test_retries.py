"""`%RETRY%a_b_c` is the version 1 name of three retry topics: only one group reads it."""

from typing import Any

import pytest
from tests.unit.broker.conftest import World

from turbopump.broker.pop.retries import OWNER
from turbopump.broker.tables.table_saver import TableSaver
from turbopump.broker.tables.topics import FILE_NAME, TABLE
from turbopump.engine.types import QueueOffset
from turbopump.net.wire.bodies import encode_json
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import new_request
from turbopump.net.wire.groups import SubscriptionGroupConfig
from turbopump.net.wire.headers.pop import PopMessageRequest
from turbopump.net.wire.message import decode_messages
from turbopump.net.wire.properties import decode_properties, encode_properties
from turbopump.net.wire.topics import TopicConfig
from turbopump.pyx.record import Record

SHARED, SECOND = "%RETRY%a_b_c", "%RETRY%a_b+c"


@pytest.fixture
def pops(world: World) -> World:
    for topic in ("b_c", "c"):
        config = TopicConfig(topic, read_queue_nums=1, write_queue_nums=1)
        world.broker.topics.put(config, world.now_ms)
    return world


def send(world: World, topic: str, body: str, **properties: str) -> None:
    fields = {
        "a": "p", "b": topic, "c": "TBW102", "d": "8", "e": "0", "f": "0",
        "g": str(world.now_ms), "h": "0", "i": encode_properties(properties).decode(),
        "j": "0", "k": "false", "m": "false",
    }  # fmt: skip
    response: Any = world.dispatch(
        new_request(RequestCode.SEND_MESSAGE_V2, fields=fields, body=body.encode())
    )
    assert response.code == ResponseCode.SUCCESS


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
    response = world.ask(RequestCode.POP_MESSAGE, request)
    if response.code != ResponseCode.SUCCESS:
        return []
    found = decode_messages(b"".join(response.body))
    return [(one.topic, bytes(one.body).decode()) for one in found]


def stored(world: World, topic: str) -> int:
    return world.broker.store.max_queue_offset(topic, 0)


def newest(world: World, topic: str) -> Record:
    store = world.broker.store
    (unit,) = store.units(topic, 0, QueueOffset(store.max_queue_offset(topic, 0) - 1), 1)
    record = store.record_of(unit)
    assert record is not None
    return record


def properties_of(world: World, topic: str) -> dict[str, str]:
    return decode_properties(newest(world, topic).properties)


def owner(world: World) -> str | None:
    topic = world.broker.topics.peek_topic(SHARED)
    return None if topic is None else topic.attributes.get(OWNER)


def crash(world: World) -> None:
    """Restart the broker without a save of its tables, which it saves every few seconds."""
    world.disk.release()
    world.broker.store.close(world.now_ms)
    world.open()


def lose_topic(world: World, name: str) -> None:
    """Restart the broker like a new master that has copied the log, but not yet the topic."""
    crash(world)
    saved = world.files.load(FILE_NAME)
    assert saved is not None
    del saved[TABLE][name]
    world.files.save(FILE_NAME, saved)
    crash(world)
    queues = {name: 1}
    world.broker.topics.create_from_store(queues.copy, world.now_ms, always=True)
    assert owner(world) is None and world.broker.topics.peek_topic(name) is not None


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


def test_a_group_that_pulls_now_finds_them_in_the_topic_that_it_reads(pops: World) -> None:
    send(pops, "c", "popped")
    assert pop(pops, "g", "c") == [("c", "popped")]
    members = {"topic": "c", "consumerGroup": "g", "mode": "PULL", "popShareQueueNum": 0}
    response = pops.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, None, encode_json(members))
    assert response.code == ResponseCode.SUCCESS
    pops.pass_time(3_000)
    assert (stored(pops, "%RETRY%g"), stored(pops, "%RETRY%g_c")) == (1, 0)


def test_the_deletion_of_one_topic_keeps_the_retry_topic_of_the_other(pops: World) -> None:
    send(pops, "b_c", "for a")
    send(pops, "c", "for a_b")
    assert pop(pops, "a", "b_c")
    pops.pass_time(3_000)
    assert pop(pops, "a_b", "c")
    response: Any = pops.dispatch(
        new_request(RequestCode.DELETE_TOPIC_IN_BROKER, fields={"topic": "c"})
    )
    pops.pass_time(1_000)
    assert response is not None
    assert pops.broker.topics.peek_topic("c") is None
    assert pop(pops, "a", "b_c") == [("b_c", "for a")]


def test_a_store_that_has_mixed_them_is_read_by_both(pops: World) -> None:
    """The store is RocketMQ's: both groups have an offset in the topic."""
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


PAIRS = [("a", "b_c"), ("a_b", "c")]
ORDERS = pytest.mark.parametrize(
    "first, second", [PAIRS, PAIRS[::-1]], ids=["a first", "a_b first"]
)


def v2(pair: tuple[str, str]) -> str:
    return f"%RETRY%{pair[0]}+{pair[1]}"


def revived(world: World, pair: tuple[str, str]) -> None:
    """The pair has a message in its retry topic."""
    send(world, pair[1], f"for {pair[0]}")
    assert pop(world, *pair) == [(pair[1], f"for {pair[0]}")]
    world.pass_time(3_000)


@ORDERS
def test_a_crash_before_offsets_are_saved_changes_no_owner(
    pops: World, first: tuple[str, str], second: tuple[str, str]
) -> None:
    revived(pops, first)
    assert stored(pops, SHARED) == 1 and owner(pops) == first[0]
    crash(pops)
    assert pops.broker.offsets.query(first[0], SHARED, 0) < 0, "this crash took no offset"
    send(pops, second[1], f"for {second[0]}")
    assert pop(pops, *second) == [(second[1], f"for {second[0]}")], "only its own"
    pops.pass_time(3_000)
    assert stored(pops, SHARED) == 1 and stored(pops, v2(second)) == 1
    assert pop(pops, *second) == [(second[1], f"for {second[0]}")]
    assert pop(pops, *first) == [(first[1], f"for {first[0]}")]


def test_nothing_is_stored_before_the_owner_is_durable(pops: World) -> None:
    pops.broker.topics.create_internal(SHARED, 1, 6, pops.now_ms)
    send(pops, "b_c", "for a")
    assert pop(pops, "a", "b_c")
    pops.config_disk.hold()
    pops.pass_time(3_000)
    assert owner(pops) == "a" and stored(pops, SHARED) == 0
    pops.config_disk.release()
    pops.pass_time(1_000)
    assert stored(pops, SHARED) == 1


@ORDERS
def test_a_new_master_without_the_topic_finds_the_owner_in_its_log(
    pops: World, first: tuple[str, str], second: tuple[str, str]
) -> None:
    revived(pops, first)
    assert properties_of(pops, SHARED)["ORIGIN_GROUP"] == first[0]
    lose_topic(pops, SHARED)
    assert pop(pops, *second) == []
    revived(pops, second)
    assert stored(pops, SHARED) == 1 and stored(pops, v2(second)) == 1
    for _ in range(2):
        assert pop(pops, *first) == [(first[1], f"for {first[0]}")]
        pops.pass_time(3_000)
    assert stored(pops, SHARED) == 3 and owner(pops) == first[0], "an owner again"


def test_messages_that_a_pulling_group_sent_back_are_its_own_without_the_topic(
    pops: World,
) -> None:
    pops.broker.topics.create_internal(SHARED, 1, 6, pops.now_ms)
    pops.broker.groups.put(SubscriptionGroupConfig(group_name="a_b_c"), pops.now_ms)
    send(pops, SHARED, "of a_b_c", RETRY_TOPIC="x")
    pops.broker.groups.delete("a_b_c", pops.now_ms)
    assert pop(pops, "a_b", "c") == []
    revived(pops, ("a_b", "c"))
    assert stored(pops, SHARED) == 1 and owner(pops) is None


@ORDERS
def test_a_store_without_owners_gets_them(
    pops: World, first: tuple[str, str], second: tuple[str, str]
) -> None:
    """A store of RocketMQ or of an older version has no owners: the offsets decide them once."""
    pops.broker.topics.create_internal(SHARED, 1, 6, pops.now_ms)
    pops.broker.offsets.commit(first[0], SHARED, 0, QueueOffset(0), pops.now_ms)
    revived(pops, second)
    assert stored(pops, v2(second)) == 1 and owner(pops) is None
    revived(pops, first)
    assert stored(pops, SHARED) == 1 and owner(pops) == first[0]
    pops.broker.offsets.remove_topic(SHARED)
    assert pop(pops, *first) == [(first[1], f"for {first[0]}")]
    assert [topic for topic, _ in pop(pops, *second)] == [second[1]]
    pops.pass_time(3_000)
    assert stored(pops, SHARED) == 2 and stored(pops, v2(second)) == 2


def test_an_owner_is_read_after_a_restart_and_lists_of_topics_have_it(pops: World) -> None:
    revived(pops, ("a", "b_c"))
    saver = TableSaver(pops.files, pops.config_disk)
    saved = type(pops.broker.topics)(pops.config, saver)
    saved.load()
    topic = saved.peek_topic(SHARED)
    assert topic is not None and topic.attributes == {OWNER: "a"}
    response = pops.ask_fields(RequestCode.GET_TOPIC_CONFIG, {"topic": SHARED})
    assert TopicConfig.decode(b"".join([bytes(response.body)])).attributes == {OWNER: "a"}


def test_a_client_sets_no_owner(pops: World) -> None:
    fields = {
        "topic": "%RETRY%a_b_d", "defaultTopic": "TBW102", "readQueueNums": "1",
        "writeQueueNums": "1", "perm": "6", "topicFilterType": "SINGLE_TAG",
        "attributes": f"+{OWNER}=a",
    }  # fmt: skip
    response: Any = pops.dispatch(new_request(RequestCode.UPDATE_AND_CREATE_TOPIC, fields=fields))
    assert response.code != ResponseCode.SUCCESS
    assert pops.broker.topics.peek_topic("%RETRY%a_b_d") is None


def test_a_name_of_one_pair_alone_has_no_owner(pops: World) -> None:
    pops.broker.topics.put(TopicConfig("T", 1, 1), pops.now_ms)
    revived(pops, ("g", "T"))
    topic = pops.broker.topics.peek_topic("%RETRY%g_T")
    assert topic is not None and topic.attributes == {}


@ORDERS
def test_an_escaped_message_comes_into_its_own_group_s_topic(
    pops: World, first: tuple[str, str], second: tuple[str, str]
) -> None:
    """A replica of another group sends both to the name of version 1."""
    for group in ("a", "a_b"):
        pops.broker.groups.put(SubscriptionGroupConfig(group_name=group), pops.now_ms)
    for group, topic in (first, second):
        send(pops, SHARED, f"for {topic}", ORIGIN_GROUP=group)
    assert stored(pops, SHARED) == 1 and owner(pops) == first[0]
    assert stored(pops, v2(second)) == 1
    for pair in (first, second):
        assert pop(pops, *pair) == [(pair[1], f"for {pair[1]}")]


def test_an_escaped_message_of_an_unknown_topic_is_no_other_group_s(pops: World) -> None:
    pops.broker.groups.put(SubscriptionGroupConfig(group_name="a_b"), pops.now_ms)
    send(pops, SHARED, "of c", ORIGIN_GROUP="a_b")
    assert owner(pops) == "a_b" and pop(pops, "a", "b_c") == []
