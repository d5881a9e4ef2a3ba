"""A push consumer's assignment: its computation, added and revoked queues, their locks."""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

import pytest
from tests.unit.net.client.cluster import (
    NAME_SERVER,
    TOPIC,
    ScriptedCluster,
    now_ms,
    options,
    play,
)

from turbopump.net.client.consuming.consumer import Consumer
from turbopump.net.client.messages import ReceivedMessage
from turbopump.net.client.options import ConsumeFrom, ConsumerOptions, MessageModel
from turbopump.net.transport.errors import ConnectError
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.queues import MessageQueue

OWN, OTHER = "127.0.0.1@unit", "127.0.0.1@zz"
RETRY = "%RETRY%G"
MEMBERS = RequestCode.GET_CONSUMER_LIST_BY_GROUP
LOCK, UNLOCK = RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ


def queues(*numbers: int, broker: str = "a") -> list[MessageQueue]:
    return [MessageQueue(TOPIC, broker, number) for number in numbers]


def consumer(**more: Any) -> Consumer:
    """A consumer "unit" of group G that starts at the first message and handles none by itself."""
    made = Consumer(
        "G",
        NAME_SERVER,
        options=ConsumerOptions(consume_from=ConsumeFrom.FIRST, **more),
        client_options=options(instance_name="unit"),
    )
    made.subscribe(TOPIC)
    return made


def of_topic(made: Consumer) -> list[MessageQueue]:
    return [queue for queue in made.queues if queue.topic == TOPIC]


def on(
    cluster: ScriptedCluster, story: Callable[[Consumer], Awaitable[None]], **more: Any
) -> Consumer:
    """Run a story with a started consumer, then close it."""
    made = consumer(**more)

    async def whole() -> None:
        async with made:
            await story(made)

    play(whole())
    return made


@pytest.fixture
def four(cluster: ScriptedCluster) -> ScriptedCluster:
    """A broker with four queues, and the group's retry topic."""
    cluster.add("a", queues=4, topics=(TOPIC,))
    cluster.routes[RETRY] = cluster.route(1, "a")
    return cluster


def test_members_share_and_a_notice_counts_at_once(four: ScriptedCluster) -> None:
    async def story(made: Consumer) -> None:
        assert of_topic(made) == queues(0, 1, 2, 3)
        four.named("a").members.append(OTHER)
        four.ask_client(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": "G"})
        await asyncio.sleep(0.01)
        assert of_topic(made) == queues(0, 1)
        four.named("a").members.remove(OTHER)
        await asyncio.sleep(19.9)
        assert of_topic(made) == queues(0, 1), "without a notice every 20 s"
        await asyncio.sleep(0.2)
        assert of_topic(made) == queues(0, 1, 2, 3)

    on(four, story)


def test_a_notice_for_another_group_is_ignored(four: ScriptedCluster) -> None:
    async def story(made: Consumer) -> None:
        await asyncio.sleep(1)
        before = len(four.made(MEMBERS))
        four.ask_client(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": "H"})
        await asyncio.sleep(1)
        assert len(four.made(MEMBERS)) == before

    on(four, story)


def test_new_queues_of_a_route_are_taken_with_its_refresh(four: ScriptedCluster) -> None:
    async def story(made: Consumer) -> None:
        four.routes[TOPIC] = four.route(6, "a")
        await asyncio.sleep(29.9)
        assert of_topic(made) == queues(0, 1, 2, 3)
        await asyncio.sleep(0.2)
        assert of_topic(made) == queues(0, 1, 2, 3, 4, 5)

    on(four, story, rebalance_ms=100_000)


def test_a_broker_that_forgot_the_member_gets_a_heartbeat_first(four: ScriptedCluster) -> None:
    """A restarted broker lists no members until their next heartbeats: no queue is given up for
    that."""

    async def story(made: Consumer) -> None:
        beats = len(four.made(RequestCode.HEART_BEAT))
        four.named("a").members.clear()
        made._balancer.rebalance_soon()
        await asyncio.sleep(0.01)
        assert of_topic(made) == queues(0, 1, 2, 3)
        assert len(four.made(RequestCode.HEART_BEAT)) == beats + 1
        assert not four.made(RequestCode.UPDATE_CONSUMER_OFFSET), "no queue was given up"

    on(four, story)


def test_a_member_that_no_broker_lists_has_no_share(four: ScriptedCluster) -> None:
    async def story(made: Consumer) -> None:
        four.fail("a", RequestCode.HEART_BEAT, *[ResponseCode.SYSTEM_ERROR] * 99)
        four.named("a").members[:] = [OTHER]
        made._balancer.rebalance_soon()
        await asyncio.sleep(0.01)
        assert of_topic(made) == []
        await asyncio.sleep(5)
        rounds = sorted({call.at_ms for call in four.made(MEMBERS)})
        waits = [after - before for before, after in pairwise(rounds)]
        assert set(waits[-3:]) == {1_000} and max(waits) == 1_000, "tried soon, then each second"

    on(four, story)


def test_members_are_asked_of_the_next_broker(cluster: ScriptedCluster) -> None:
    cluster.add("a", "b", queues=1, topics=(TOPIC, RETRY))
    cluster.fail("a", MEMBERS, *[ConnectError("gone")] * 99)

    async def story(made: Consumer) -> None:
        assert len(of_topic(made)) == 2
        cluster.fail("b", MEMBERS, *[ConnectError("gone")] * 99)
        made._balancer.rebalance_soon()
        await asyncio.sleep(0.05)
        assert len(of_topic(made)) == 2, "without an answer nothing changes"

    on(cluster, story)


def test_an_unsubscribed_topic_is_given_up_and_committed(four: ScriptedCluster) -> None:
    four.named("a").put(b"1")

    async def story(made: Consumer) -> None:
        message = await made.receive()
        assert message is not None and await made.ack(message)
        made.unsubscribe(TOPIC)
        await asyncio.sleep(0.01)
        assert of_topic(made) == []
        assert four.named("a").committed["G", TOPIC, 0] == 1

    on(four, story)


def test_a_message_of_a_queue_that_was_given_up_is_not_acknowledged(four: ScriptedCluster) -> None:
    four.named("a").put(b"1", 3)

    async def story(made: Consumer) -> None:
        message = await made.receive()
        assert message is not None
        four.named("a").members.append(OTHER)
        made._balancer.rebalance_soon()
        await asyncio.sleep(0.01)
        assert not await made.ack(message), "another member gets it"
        assert four.named("a").committed["G", TOPIC, 3] == 0

    on(four, story)


def test_broadcast_takes_all_queues_beside_other_members(four: ScriptedCluster) -> None:
    four.named("a").members.append(OTHER)

    async def story(made: Consumer) -> None:
        assert of_topic(made) == queues(0, 1, 2, 3)
        assert not four.made(MEMBERS)

    made = on(four, story, model=MessageModel.BROADCASTING)
    assert made.queues == []
    assert not four.made(RequestCode.UPDATE_CONSUMER_OFFSET), "its offsets are its own"


def test_ordered_takes_locked_queues(four: ScriptedCluster) -> None:
    broker = four.named("a")
    broker.locks[TOPIC, 2] = OTHER

    async def story(made: Consumer) -> None:
        assert of_topic(made) == queues(0, 1, 3)
        del broker.locks[TOPIC, 2]
        await asyncio.sleep(0.15)
        assert of_topic(made) == queues(0, 1, 2, 3), "tried again after 100 ms"

    on(four, story, ordered=True)
    assert broker.locks == {}, "given back at the end"


def test_locks_are_renewed_every_20_s_and_sooner_without_an_answer(four: ScriptedCluster) -> None:
    async def story(made: Consumer) -> None:
        await asyncio.sleep(1)
        before = len(four.made(LOCK))
        await asyncio.sleep(44)
        held = [call.at_ms for call in four.made(LOCK)[before:]]
        assert held == [20_000, 40_000]
        four.fail("a", LOCK, ConnectError("gone"), ConnectError("gone"))
        await asyncio.sleep(20)
        held = [call.at_ms for call in four.made(LOCK)[before:]]
        assert held == [20_000, 40_000, 60_000, 61_000, 62_000]
        assert of_topic(made) == queues(0, 1, 2, 3), "no answer is no refusal"

    on(four, story, ordered=True, rebalance_ms=1_000_000)


def test_a_lock_that_went_to_another_member_ends_the_queue(four: ScriptedCluster) -> None:
    async def story(made: Consumer) -> None:
        four.named("a").locks[TOPIC, 1] = OTHER
        await asyncio.sleep(20.01)
        assert of_topic(made) == queues(0, 2, 3)

    on(four, story, ordered=True, rebalance_ms=1_000_000)


def test_without_a_lock_no_ordered_message_is_handed_out(four: ScriptedCluster) -> None:
    """The broker may lock a queue for a different member 60 s after the last renewal: 30 s are
    safe."""

    async def story(made: Consumer) -> None:
        four.fail("a", LOCK, *[ConnectError("gone")] * 999)
        await asyncio.sleep(29.9)
        four.named("a").put(b"1")
        message = await made.receive()
        assert message is not None and now_ms() == 29_900
        await made.ack(message)
        await asyncio.sleep(0.2)
        four.named("a").put(b"2")
        waiting = asyncio.create_task(made.receive())
        await asyncio.sleep(5)
        assert not waiting.done()
        four.faults.clear()
        await asyncio.wait_for(waiting, 1.1)

    on(four, story, ordered=True, rebalance_ms=1_000_000)


def test_a_lock_is_given_back_once_the_handler_has_ended(four: ScriptedCluster) -> None:
    four.named("a").put(b"1", 3)
    made = consumer(ordered=True)
    ends = asyncio.Event()

    async def slow(message: ReceivedMessage) -> None:
        await ends.wait()

    async def whole() -> None:
        made.on_message(slow)
        async with made:
            await asyncio.sleep(0.01)
            four.named("a").members.append(OTHER)
            made._balancer.rebalance_soon()
            await asyncio.sleep(10)
            assert of_topic(made) == queues(0, 1)
            assert (TOPIC, 3) in four.named("a").locks, "no other member may begin after it"
            assert (TOPIC, 2) not in four.named("a").locks
            ends.set()
            await asyncio.sleep(0.01)
            assert (TOPIC, 3) not in four.named("a").locks
            assert four.named("a").committed["G", TOPIC, 3] == 1

    play(whole())


def test_a_reset_moves_a_running_queue(four: ScriptedCluster) -> None:
    broker = four.named("a")
    for number in range(5):
        broker.put(b"%d" % number)

    async def story(made: Consumer) -> None:
        first = await made.receive()
        assert first is not None and first.body == b"0"
        key = MessageQueue(TOPIC, "a", 0).bean_key()
        body = b'{"offsetTable":{%s:3}}' % key.encode()
        fields = {"topic": TOPIC, "group": "G", "timestamp": "0", "isForce": "true"}
        response = four.ask_client(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, fields, body)
        assert response.code == ResponseCode.SUCCESS
        await asyncio.sleep(0.01)
        assert broker.committed["G", TOPIC, 0] == 3
        assert not await made.ack(first), "it is of the past"
        again = await made.receive()
        assert again is not None and again.body == b"3"

    on(four, story)


def test_requests_about_a_group_that_is_not_here_are_refused(four: ScriptedCluster) -> None:
    async def story(made: Consumer) -> None:
        response = four.ask_client(RequestCode.GET_CONSUMER_RUNNING_INFO, {"consumerGroup": "H"})
        assert response.code == ResponseCode.SYSTEM_ERROR and "<H> not exist" in response.remark

    on(four, story)


def test_closing_commits_and_leaves(four: ScriptedCluster) -> None:
    for number in range(3):
        four.named("a").put(b"%d" % number)

    async def story(made: Consumer) -> None:
        messages = [await made.receive() for _ in range(3)]
        for message in (messages[0], messages[2]):
            assert message is not None and await made.ack(message)

    made = on(four, story)
    assert four.named("a").committed["G", TOPIC, 0] == 1, "after the oldest acknowledged offset"
    (leaving,) = four.made(RequestCode.UNREGISTER_CLIENT)
    assert leaving.request.fields["consumerGroup"] == "G"
    assert four.open == 0 and made.queues == []


def test_a_consumer_that_finds_no_name_server_leaves_nothing_behind(
    cluster: ScriptedCluster,
) -> None:
    cluster.down.add(NAME_SERVER)
    with pytest.raises(ConnectError):
        on(cluster, lambda made: asyncio.sleep(0))
    assert cluster.open == 0
