"""Pulls: the order of checks, status to code, long polls, filters, commits."""

from collections.abc import Callable
from typing import Any

import pytest

from turbopump.engine.deferred import Deferred
from turbopump.engine.types import QueueOffset
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_request
from turbopump.net.wire.groups import SubscriptionGroupConfig
from turbopump.net.wire.header import read_header
from turbopump.net.wire.headers.pull import (
    COMMIT_OFFSET_FLAG,
    SUBSCRIPTION_FLAG,
    SUSPEND_FLAG,
    PullMessageRequest,
    PullMessageResponse,
)
from turbopump.net.wire.headers.send import SendMessageRequestV2
from turbopump.net.wire.heartbeat import ConsumerData
from turbopump.net.wire.message import decode_messages
from turbopump.net.wire.subscription import parse_subscription
from turbopump.net.wire.topics import TopicConfig

PULL, LITE = RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE


def send(world: Any, body: bytes, tag: str = "", topic: str = "T", queue_id: int = 0) -> None:
    """Send a message."""
    properties = f"TAGS\x01{tag}\x02" if tag else ""
    header = SendMessageRequestV2(
        "PG", topic, "TBW102", 4, queue_id, 0, 1, 0, properties=properties
    )
    assert world.ask(RequestCode.SEND_MESSAGE_V2, header, body).code == 0


def header(**changed: Any) -> PullMessageRequest:
    """A pull of queue 0 of T from its begin, with its own subscription to everything."""
    values: dict[str, Any] = {
        "consumer_group": "G",
        "topic": "T",
        "queue_id": 0,
        "queue_offset": 0,
        "max_msg_nums": 32,
        "sys_flag": SUBSCRIPTION_FLAG,
        "commit_offset": 0,
        "suspend_timeout_millis": 15_000,
        "sub_version": 0,
        "subscription": "*",
        **changed,
    }
    return PullMessageRequest(**values)


def bodies(response: Command) -> list[bytes]:
    """The messages of an answer."""
    assert isinstance(response.body, list)
    return [bytes(one.body) for one in decode_messages(b"".join(response.body))]


def numbers(response: Command) -> tuple[int, int, int, int]:
    """suggested broker, next, min and max offset."""
    back = read_header(PullMessageResponse, response.fields)
    assert (back.topic_sys_flag, back.group_sys_flag) == (0, 0)
    return (
        back.suggest_which_broker_id,
        back.next_begin_offset,
        back.min_offset,
        back.max_offset,
    )


def subscribe(world: Any, expression: str = "*", version: int = 0, **changed: Any) -> None:
    """A heartbeat's effect: the group's subscription to T."""
    subscription = parse_subscription("T", expression, changed.pop("kind", None), version)
    values = {
        "group_name": "G",
        "consume_type": "CONSUME_PASSIVELY",
        "message_model": "CLUSTERING",
        "consume_from_where": "CONSUME_FROM_LAST_OFFSET",
        "subscription_data_set": [subscription],
        **changed,
    }
    world.broker.consumers.register(world.client, "client", ConsumerData(**values), world.now_ms)


def hold(world: Any, **changed: Any) -> Deferred[Command | None]:
    """A pull that has to wait."""
    changed.setdefault("sys_flag", SUBSCRIPTION_FLAG | SUSPEND_FLAG)
    response = world.dispatch(new_request(PULL, header(**changed)))
    assert isinstance(response, Deferred)
    assert not response.done
    return response


def answered(later: Deferred[Command | None]) -> Command:
    """The answer that has come."""
    assert later.done
    assert later.value is not None
    return later.value


@pytest.mark.parametrize("code", [PULL, LITE])
def test_found(world: Any, code: int) -> None:
    for number in range(3):
        send(world, b"%d" % number)
    response = world.ask(code, header(queue_offset=1))
    assert (response.code, response.remark) == (0, "FOUND")
    assert bodies(response) == [b"1", b"2"]
    assert numbers(response) == (0, 3, 0, 3)


def test_body_is_the_log_itself(world: Any) -> None:
    send(world, b"one")
    response = world.ask(PULL, header())
    (piece,) = response.body
    unit = world.broker.store.units("T", 0, QueueOffset(0), 1)[0]
    assert piece == world.broker.store.record_view(unit.log_offset)
    assert isinstance(piece, memoryview)


def test_limits_of_one_answer(world: Any) -> None:
    for _ in range(40):
        send(world, b"x")
    assert len(bodies(world.ask(PULL, header(max_msg_nums=5)))) == 5
    assert len(bodies(world.ask(PULL, header(max_msg_nums=1000)))) == 32
    assert len(bodies(world.ask(PULL, header(max_msg_nums=0)))) == 1


STATUS = [
    (0, 0, 19, "NO_MESSAGE_IN_QUEUE", 0),
    (0, 5, 21, "NO_MESSAGE_IN_QUEUE", 0),
    (2, 2, 19, "OFFSET_OVERFLOW_ONE", 2),
    (2, 7, 21, "OFFSET_OVERFLOW_BADLY", 2),
    (2, -1, 21, "OFFSET_TOO_SMALL", 0),
]


@pytest.mark.parametrize(("messages", "asked", "code", "remark", "next_offset"), STATUS)
def test_status_to_code(
    world: Any, messages: int, asked: int, code: int, remark: str, next_offset: int
) -> None:
    world.broker.topics.put(TopicConfig("T"), world.now_ms)
    for _ in range(messages):
        send(world, b"x")
    response = world.ask(PULL, header(queue_offset=asked))
    assert (response.code, response.remark) == (code, remark)
    assert numbers(response) == (0, next_offset, 0, messages)
    assert not response.body


def refuse_group(world: Any) -> None:
    world.broker.groups.put(SubscriptionGroupConfig("G", consume_enable=False), world.now_ms)


def write_only_topic(world: Any) -> None:
    world.broker.topics.put(TopicConfig("T", perm=2), world.now_ms)


def no_broadcast(world: Any) -> None:
    group = SubscriptionGroupConfig("G", consume_broadcast_enable=False)
    world.broker.groups.put(group, world.now_ms)
    subscribe(world, message_model="BROADCASTING")


def forbidden(world: Any) -> None:
    subscribe(world)
    world.broker.groups.set_forbidden("G", "T", 4, world.now_ms)


def nothing(_world: Any) -> None:
    pass


def old_subscription(world: Any) -> None:
    subscribe(world, version=4)


def sql_subscription(world: Any) -> None:
    subscribe(world, "a > 1", kind="SQL92")


def other_topic(world: Any) -> None:
    subscribe(world, subscription_data_set=[parse_subscription("U", "*")])


OFF = "enablePropertyFilter=false\n"
NO_SQL = "The broker does not support consumer to filter message by SQL92"
CHECKS: list[tuple[str, Callable[[Any], None], int, dict[str, Any], int, str, str | None]] = [
    ("brokerPermission=2\n", nothing, PULL, {}, 16, "pulling message is forbidden", "1"),
    ("litePullMessageEnable=false\n", nothing, LITE, {}, 16, "for lite pull consumer", "1"),
    (
        "autoCreateSubscriptionGroup=false\n",
        nothing,
        PULL,
        {},
        26,
        "subscription group [G] does not exist",
        None,
    ),
    ("", nothing, PULL, {"consumer_group": "g g"}, 26, "[g g] does not exist", None),
    ("", refuse_group, PULL, {}, 16, "subscription group no permission, G", "2"),
    ("", nothing, PULL, {"topic": "U"}, 17, "topic[U] not exist, apply first please! \nSee", None),
    ("", write_only_topic, PULL, {}, 16, "the topic[T] pulling message is forbidden", "3"),
    (
        "",
        nothing,
        PULL,
        {"queue_id": 77},
        29,
        "queueId[77] is illegal, topic:[T] topicConfig.readQueueNums:[16] consumer:[/127.0.0.1:",
        None,
    ),
    ("", nothing, PULL, {"queue_id": -1}, 29, "queueId[-1] is illegal", None),
    ("", nothing, PULL, {"subscription": "||"}, 23, "parse the consumer's subscription", None),
    ("", nothing, PULL, {"sys_flag": 0}, 24, "the consumer's group info not exist", None),
    ("", no_broadcast, PULL, {"sys_flag": 0}, 16, "can not consume by broadcast way", "4"),
    ("", forbidden, PULL, {"sys_flag": 0}, 16, "is forbidden for topic[T]", "5"),
    ("", other_topic, PULL, {"sys_flag": 0}, 24, "the consumer's subscription not exist", None),
    (
        "",
        old_subscription,
        PULL,
        {"sys_flag": 0, "sub_version": 5},
        25,
        "the consumer's subscription not latest",
        None,
    ),
    (OFF, sql_subscription, PULL, {"sys_flag": 0}, 1, NO_SQL, None),
    (OFF, nothing, PULL, {"subscription": "a = 1", "expression_type": "SQL92"}, 1, NO_SQL, None),
]


@pytest.mark.parametrize(
    ("properties", "prepare", "code", "changed", "response_code", "remark", "forbidden_type"),
    CHECKS,
)
def test_refused_with_the_documented_answer(
    make_world: Callable[..., Any],
    properties: str,
    prepare: Callable[[Any], None],
    code: int,
    changed: dict[str, Any],
    response_code: int,
    remark: str,
    forbidden_type: str | None,
) -> None:
    world = make_world(properties)
    world.broker.topics.put(TopicConfig("T"), world.now_ms)
    prepare(world)
    response = world.ask(code, header(**changed))
    assert (response.code, remark in (response.remark or "")) == (response_code, True), (
        response.remark
    )
    assert response.fields.get("forbiddenType") == forbidden_type
    assert not response.body


def test_subscription_of_the_heartbeat_filters_by_tag(world: Any) -> None:
    for tag in ("a", "b", "", "a"):
        send(world, f"of {tag}".encode(), tag)
    subscribe(world, "a || c", version=7)
    response = world.ask(PULL, header(sys_flag=0, sub_version=7))
    assert bodies(response) == [b"of a", b"of a"]
    assert numbers(response)[1] == 4


def test_filter_that_matches_nothing_moves_on(world: Any) -> None:
    for _ in range(3):
        send(world, b"x", "b")
    response = world.ask(PULL, header(subscription="a"))
    assert (response.code, response.remark) == (20, "NO_MATCHED_MESSAGE")
    assert numbers(response) == (0, 3, 0, 3)


def test_carried_subscription_is_known_to_admin_tools(world: Any) -> None:
    send(world, b"x")
    world.ask(PULL, header(subscription="a || b"))
    found = world.broker.consumers.find_subscription("G", "T")
    assert found is not None
    assert found.sub_string == "a || b"
    assert world.broker.consumers.group("G") is None


def test_commit_in_a_pull(world: Any) -> None:
    send(world, b"x")
    world.ask(PULL, header(commit_offset=1))
    assert world.broker.offsets.query("G", "T", 0) == -1
    flags = SUBSCRIPTION_FLAG | COMMIT_OFFSET_FLAG
    world.ask(PULL, header(commit_offset=1, sys_flag=flags))
    assert world.broker.offsets.query("G", "T", 0) == 1
    assert world.broker.offsets.query_pull("G", "T", 0) == 1


def test_reset_offset_is_answered_once(world: Any) -> None:
    for _ in range(3):
        send(world, b"x")
    world.broker.offsets.set_reset("G", "T", 0, QueueOffset(1), world.now_ms)
    response = world.ask(PULL, header(queue_offset=3))
    assert (response.code, response.remark) == (21, "OFFSET_RESET")
    assert numbers(response) == (0, 1, 0, 3)
    assert world.ask(PULL, header(queue_offset=3)).code == ResponseCode.PULL_NOT_FOUND


def test_idle_pull_is_woken_by_a_message(world: Any) -> None:
    send(world, b"first")
    later = hold(world, queue_offset=1)
    send(world, b"other queue", queue_id=1)
    world.broker.held_pulls.attempt_grown()
    assert not later.done
    send(world, b"second")
    world.broker.held_pulls.attempt_grown()
    response = answered(later)
    assert response.code == 0
    assert bodies(response) == [b"second"]
    assert world.broker.held_pulls.count == 0


def test_pull_without_the_flag_is_not_held(world: Any) -> None:
    send(world, b"x")
    assert world.ask(PULL, header(queue_offset=1)).code == ResponseCode.PULL_NOT_FOUND


def test_only_not_found_is_held(world: Any) -> None:
    send(world, b"x")
    flags = SUBSCRIPTION_FLAG | SUSPEND_FLAG
    assert world.ask(PULL, header(queue_offset=9, sys_flag=flags)).code == 21


def test_pull_is_answered_when_its_time_is_over(world: Any) -> None:
    send(world, b"x")
    later = hold(world, queue_offset=1, suspend_timeout_millis=15_000)
    world.pass_time(14_900)
    assert not later.done
    world.pass_time(200)
    response = answered(later)
    assert (response.code, response.remark) == (19, "OFFSET_OVERFLOW_ONE")
    assert numbers(response) == (0, 1, 0, 1)


def test_hold_is_bounded_whatever_the_client_asks(world: Any) -> None:
    send(world, b"x")
    later = hold(world, queue_offset=1, suspend_timeout_millis=1 << 60)
    world.pass_time(120_000, step_ms=10_000)
    assert answered(later).code == ResponseCode.PULL_NOT_FOUND


def test_short_polling(make_world: Callable[..., Any]) -> None:
    world = make_world("longPollingEnable=false\nshortPollingTimeMills=500\n")
    send(world, b"x")
    later = hold(world, queue_offset=1)
    world.pass_time(500)
    assert answered(later).code == ResponseCode.PULL_NOT_FOUND


def test_messages_of_other_tags_do_not_wake(world: Any) -> None:
    send(world, b"x")
    later = hold(world, queue_offset=1, subscription="a")
    for _ in range(3):
        send(world, b"no", "b")
        world.broker.held_pulls.attempt_grown()
    assert not later.done
    send(world, b"yes", "a")
    world.broker.held_pulls.attempt_grown()
    response = answered(later)
    assert bodies(response) == [b"yes"]
    assert numbers(response)[1] == 5


def test_filtered_pull_ends_where_it_has_looked(world: Any) -> None:
    send(world, b"x")
    later = hold(world, queue_offset=1, subscription="a")
    send(world, b"no", "b")
    world.broker.held_pulls.attempt_grown()
    world.pass_time(15_100)
    response = answered(later)
    assert response.code == ResponseCode.PULL_NOT_FOUND
    assert numbers(response)[1] == 2


def test_waiting_pull_learns_of_a_reset(world: Any) -> None:
    send(world, b"x")
    later = hold(world, queue_offset=1)
    world.broker.offsets.set_reset("G", "T", 0, QueueOffset(0), world.now_ms)
    world.broker.held_pulls.attempt_grown()
    response = answered(later)
    assert (response.code, response.remark) == (21, "OFFSET_RESET")


def test_waiting_pull_sees_the_subscription_of_its_wake(world: Any) -> None:
    send(world, b"x")
    subscribe(world, "a", version=1)
    later = hold(world, queue_offset=1, sys_flag=SUSPEND_FLAG, sub_version=1)
    subscribe(world, "b", version=2)
    send(world, b"for b", "b")
    world.broker.held_pulls.attempt_grown()
    assert bodies(answered(later)) == [b"for b"]


def test_waiting_pull_of_a_deleted_topic_is_told(world: Any) -> None:
    send(world, b"x")
    later = hold(world, queue_offset=1)
    world.broker.topics.delete("T", world.now_ms)
    world.pass_time(15_100)
    assert answered(later).code == ResponseCode.TOPIC_NOT_EXIST


def test_held_pull_commits_once(world: Any) -> None:
    send(world, b"x")
    flags = SUBSCRIPTION_FLAG | SUSPEND_FLAG | COMMIT_OFFSET_FLAG
    hold(world, queue_offset=1, commit_offset=1, sys_flag=flags)
    world.broker.offsets.commit("G", "T", 0, QueueOffset(0), world.now_ms)
    send(world, b"y")
    world.broker.held_pulls.attempt_grown()
    assert world.broker.offsets.query("G", "T", 0) == 0


def test_lost_connection_is_forgotten(world: Any) -> None:
    send(world, b"x")
    later = hold(world, queue_offset=1)
    hold(world, queue_offset=1)
    world.client.lost()
    assert world.broker.held_pulls.count == 0
    send(world, b"y")
    world.broker.held_pulls.attempt_grown()
    assert not later.done


@pytest.mark.logs_tracebacks
def test_failure_of_a_held_pull_is_answered(world: Any, monkeypatch: Any) -> None:
    def broken(*_arguments: object) -> None:
        raise RuntimeError("disk on fire")

    send(world, b"x")
    later = hold(world, queue_offset=1)
    send(world, b"y")
    monkeypatch.setattr(type(world.broker.store), "read", broken)
    world.broker.held_pulls.attempt_grown()
    response = answered(later)
    assert response.code == ResponseCode.SYSTEM_ERROR
    assert response.remark == "RuntimeError: disk on fire"
    assert world.broker.held_pulls.count == 0


@pytest.mark.parametrize("by_ms", [3_600_000, -3_600_000])
def test_a_clock_that_is_set_does_not_change_how_long_a_pull_waits(world: Any, by_ms: int) -> None:
    send(world, b"x")
    later = hold(world, queue_offset=1)
    world.set_clock(by_ms)
    world.pass_time(1_000, step_ms=1_000)
    assert not later.done
    world.pass_time(19_000, step_ms=19_000)
    assert answered(later).code == ResponseCode.PULL_NOT_FOUND


def test_stopping_broker_holds_nothing_more(world: Any) -> None:
    send(world, b"x")
    later = hold(world, queue_offset=1)
    world.broker.shutting_down = True
    world.broker.held_pulls.release_all()
    world.broker.held_pulls.release_some()
    assert answered(later).code == ResponseCode.PULL_NOT_FOUND
    flags = SUBSCRIPTION_FLAG | SUSPEND_FLAG
    assert world.ask(PULL, header(queue_offset=1, sys_flag=flags)).code == 19


def test_sync_flush_shows_messages_once_they_are_safe(make_world: Callable[..., Any]) -> None:
    world = make_world("flushDiskType=SYNC_FLUSH\n")
    send(world, b"first")
    later = hold(world, queue_offset=1)
    world.disk.hold()
    second = SendMessageRequestV2("PG", "T", "TBW102", 4, 0, 0, 1, 0)
    world.dispatch(new_request(RequestCode.SEND_MESSAGE_V2, second, b"second"))
    world.broker.held_pulls.attempt_grown()
    assert not later.done
    world.disk.release()
    world.broker.held_pulls.attempt_grown()
    assert bodies(answered(later)) == [b"second"]
