"""The tries of a send: the next broker, the pauses, and the end."""

import asyncio
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

from turbopump.net.client.client_instance import ClientInstance
from turbopump.net.client.errors import (
    BrokerError,
    ClientClosed,
    ClientError,
    NoWritableQueue,
    RouteNotFound,
)
from turbopump.net.client.messages import Message, SendResult
from turbopump.net.client.options import ClientOptions, ProducerOptions
from turbopump.net.client.producer import Producer
from turbopump.net.client.shared_client import SharedClient, instance_of
from turbopump.net.transport.errors import CallTimeout, ConnectError, ConnectionClosed
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.queues import MessageQueue

SEND = RequestCode.SEND_MESSAGE_V2
ROUTE = RequestCode.GET_ROUTEINFO_BY_TOPIC
BUSY = ResponseCode.SYSTEM_BUSY


def producer(client: ClientOptions | None = None, **more: Any) -> Producer:
    return Producer(
        "P",
        NAME_SERVER,
        options=ProducerOptions(**more),
        client_options=client or options(),
        seed=1,
    )


def sent(made: Producer, *, topic: str = TOPIC, **how: Any) -> SendResult:
    async def story() -> SendResult:
        async with made:
            return await made.send(Message(topic, b"x"), **how)

    return play(story())


def test_another_broker_is_tried_at_once(cluster: ScriptedCluster) -> None:
    cluster.add("a", "b", "c")
    for name in "abc":
        cluster.fail(name, SEND, BUSY)
    with pytest.raises(BrokerError) as failed:
        sent(producer())
    assert failed.value.code == BUSY
    calls = cluster.made(SEND)
    assert len({call.address for call in calls}) == 3, "three tries, three brokers"
    assert [call.at_ms for call in calls] == [0, 0, 0], (
        "no pause before a broker that was not tried"
    )


def test_a_single_broker_is_tried_again_after_pauses_that_double(cluster: ScriptedCluster) -> None:
    cluster.add("a")
    cluster.fail("a", SEND, BUSY, BUSY, BUSY, BUSY, BUSY)
    result = sent(producer(retries=5, timeout_ms=10_000))
    assert result.queue_offset == 0
    assert cluster.times(SEND) == [0, 100, 300, 700, 1500, 2500]


def test_retries_are_counted_and_the_last_error_is_raised(cluster: ScriptedCluster) -> None:
    cluster.add("a")
    cluster.fail("a", SEND, BUSY, ConnectionClosed("cut"), ResponseCode.SYSTEM_ERROR, BUSY)
    with pytest.raises(BrokerError) as failed:
        sent(producer(retries=2))
    assert failed.value.code == ResponseCode.SYSTEM_ERROR
    assert len(cluster.made(SEND)) == 3


@pytest.mark.parametrize("code", [ResponseCode.MESSAGE_ILLEGAL, ResponseCode.FLOW_CONTROL])
def test_an_answer_that_stays_the_same_is_not_tried_again(
    cluster: ScriptedCluster, code: int
) -> None:
    cluster.add("a", "b")
    for name in "ab":
        cluster.fail(name, SEND, code)
    with pytest.raises(BrokerError):
        sent(producer())
    assert len(cluster.made(SEND)) == 1


def test_a_broker_that_cannot_be_reached_costs_no_try(cluster: ScriptedCluster) -> None:
    """During a failover only the timeout counts: no request was sent, so there can be no
    duplicate."""
    cluster.add("a")
    address = cluster.named("a").address
    cluster.down.add(address)

    async def story() -> int:
        async with producer(retries=0, timeout_ms=5_000) as made:
            sending = asyncio.create_task(made.send(Message(TOPIC, b"x")))
            await asyncio.sleep(2)
            cluster.down.clear()
            await sending
            return now_ms()

    assert play(story()) == 2_500
    assert cluster.times(SEND) == [0, 100, 300, 700, 1500, 2500]


def test_a_broker_that_may_not_serve_for_the_moment_costs_no_try(cluster: ScriptedCluster) -> None:
    """A master whose lease expired while its machine was paused has it back within a second."""
    cluster.add("a")
    cluster.fail("a", SEND, *[ResponseCode.SERVICE_NOT_AVAILABLE] * 8)
    sent(producer(retries=0, timeout_ms=10_000))
    assert cluster.times(SEND)[:6] == [0, 100, 300, 700, 1500, 2500]
    queue = MessageQueue(TOPIC, "a", 0)
    cluster.fail("a", SEND, *[ResponseCode.SERVICE_NOT_AVAILABLE] * 8)
    with pytest.raises(BrokerError):
        sent(producer(timeout_ms=10_000), queue=queue)
    assert len(cluster.made(SEND)) == 9 + 1, "a fixed queue is tried once"


def test_the_time_of_a_send_bounds_all_its_tries(cluster: ScriptedCluster) -> None:
    cluster.add("a")
    cluster.down.add(cluster.named("a").address)

    async def story() -> int:
        async with producer(timeout_ms=1_000) as made:
            with pytest.raises(ConnectError):
                await made.send(Message(TOPIC, b"x"))
            return now_ms()

    assert play(story()) == 700, "the next pause would end after the deadline"


def test_a_broker_that_hangs_takes_its_share_of_the_time(cluster: ScriptedCluster) -> None:
    cluster.add("a", "b")
    cluster.fail("a", SEND, None)
    cluster.fail("b", SEND, None)
    with pytest.raises(CallTimeout):
        sent(producer(retries=1, timeout_ms=3_000, try_timeout_ms=1_000))
    assert [call.timeout_ms for call in cluster.made(SEND)] == [1_000, 1_000]
    assert cluster.times(SEND) == [0, 1_000]


def test_a_hanging_name_server_does_not_outlast_the_send(cluster: ScriptedCluster) -> None:
    cluster.add("a")
    cluster.fail(NAME_SERVER, ROUTE, None)

    async def story() -> int:
        async with producer(client=options(timeout_ms=60_000), timeout_ms=2_000) as made:
            with pytest.raises(CallTimeout, match="not stored in time"):
                await made.send(Message(TOPIC, b"x"))
            return now_ms()

    assert play(story()) == 2_000


def test_a_failover_is_followed_to_the_new_route(cluster: ScriptedCluster) -> None:
    """The route is requested at each failure, at most every 100 ms."""
    cluster.add("a", "b")
    old, new = cluster.named("a"), cluster.named("b")
    cluster.routes[TOPIC] = cluster.route(1, "a")

    async def story() -> SendResult:
        async with producer() as made:
            await made.send(Message(TOPIC, b"1"))
            cluster.down.add(old.address)
            cluster.routes[TOPIC] = cluster.route(1, "b")
            await asyncio.sleep(1)
            return await made.send(Message(TOPIC, b"2"))

    assert play(story()).queue == MessageQueue(TOPIC, "b", 0)
    assert [one.body for one in new.queues[TOPIC, 0]] == [b"2"]
    assert cluster.times(SEND) == [0, 1_000, 1_000], "the route showed a broker not yet tried"


def test_senders_that_fail_together_ask_for_the_route_once(cluster: ScriptedCluster) -> None:
    cluster.add("a", "b")
    cluster.fail("a", SEND, *[BUSY] * 9)
    cluster.fail("b", SEND, *[BUSY] * 9)

    async def story() -> None:
        async with producer(timeout_ms=10_000, retries=9) as made:
            await made.queues(TOPIC)
            await asyncio.gather(*(made.send(Message(TOPIC, b"x")) for _ in range(6)))

    play(story())
    moments = cluster.times(ROUTE)
    assert len(moments) == len(set(moments)), "one for each moment of failures, not each sender"
    assert min(after - before for before, after in pairwise(moments)) >= 100


def test_a_broker_that_failed_is_passed_over_for_three_seconds(cluster: ScriptedCluster) -> None:
    cluster.add("a", "b")
    cluster.fail("a", SEND, BUSY)

    async def story() -> None:
        async with producer() as made:
            while cluster.faults[cluster.named("a").address, SEND]:
                await made.send(Message(TOPIC, b"x"))
            before = len(cluster.made(SEND))
            for _ in range(4):
                await made.send(Message(TOPIC, b"x"))
            names = {call.address for call in cluster.made(SEND)[before:]}
            assert names == {cluster.named("b").address}
            await asyncio.sleep(3)
            for _ in range(2):
                await made.send(Message(TOPIC, b"x"))
            assert cluster.made(SEND)[-2].address != cluster.made(SEND)[-1].address

    play(story())


def test_a_fixed_queue_has_one_try_unless_more_are_asked_for(cluster: ScriptedCluster) -> None:
    cluster.add("a", "b")
    queue = MessageQueue(TOPIC, "a", 0)
    cluster.fail("a", SEND, BUSY, BUSY)
    with pytest.raises(BrokerError):
        sent(producer(), queue=queue)
    assert len(cluster.made(SEND)) == 1
    assert sent(producer(retries_to_queue=1), queue=queue).queue == queue
    assert [call.at_ms for call in cluster.made(SEND)[1:]] == [0, 100], "the same queue, later"


def test_the_first_message_of_a_topic_goes_by_the_template(cluster: ScriptedCluster) -> None:
    cluster.add("a", queues=16, topics=("TBW102",))
    result = sent(producer(), topic="new")
    assert result.queue.broker_name == "a" and result.queue.queue_id < 4
    fields = cluster.made(SEND)[0].request.fields
    assert (fields["c"], fields["d"]) == ("TBW102", "4")


def test_without_a_route_there_is_one_clear_error(cluster: ScriptedCluster) -> None:
    cluster.add("a")
    with pytest.raises(RouteNotFound, match="no name server knows topic gone"):
        sent(producer(), topic="gone")
    assert len(cluster.made(ROUTE)) == 2, "the topic's, and the template's"


def test_a_topic_without_a_writable_queue_is_waited_for(cluster: ScriptedCluster) -> None:
    cluster.add("a")
    cluster.routes[TOPIC] = cluster.route(1, "a", perm=4)

    async def story() -> int:
        async with producer(timeout_ms=5_000) as made:
            sending = asyncio.create_task(made.send(Message(TOPIC, b"x")))
            await asyncio.sleep(0.5)
            cluster.routes[TOPIC] = cluster.route(1, "a")
            await sending
            return now_ms()

    assert play(story()) == 700
    cluster.routes[TOPIC] = cluster.route(1, "a", perm=4)
    with pytest.raises(NoWritableQueue):
        sent(producer(timeout_ms=1_000))


def test_one_way_needs_no_answer(cluster: ScriptedCluster) -> None:
    cluster.add("a")

    async def story() -> str:
        async with producer() as made:
            return await made.send_oneway(Message(TOPIC, b"x", sharding_key="k"))

    assert len(play(story())) == 32
    (call,) = cluster.made(SEND)
    assert call.request.is_oneway


def test_a_start_that_fails_leaves_the_client_to_its_other_users(
    cluster: ScriptedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.add("a")

    async def own_ip(_instance: ClientInstance) -> str:
        return "/tmp/socket"

    async def story() -> None:
        client = SharedClient(NAME_SERVER, options=options())
        made = Producer("P", client=client)
        with monkeypatch.context() as patch:
            patch.setattr(ClientInstance, "_own_ip", own_ip)
            with pytest.raises(ClientError, match="'/tmp/socket' is no IP address"):
                await made.start()
        assert instance_of(client, "", None)._users == 0
        async with made:
            await made.queues(TOPIC)

    play(story())
    assert cluster.open == 0


def test_a_producer_leaves_its_brokers_once(cluster: ScriptedCluster) -> None:
    cluster.add("a", "b")
    cluster.down.add(cluster.named("b").address)

    async def story() -> Producer:
        made = producer()
        await made.start()
        await made.queues(TOPIC)
        await made.close()
        await made.close()
        return made

    made = play(story())
    leaving = cluster.made(RequestCode.UNREGISTER_CLIENT)
    assert sorted(call.address for call in leaving) == sorted(cluster.brokers)
    assert {call.request.fields["producerGroup"] for call in leaving} == {"P"}
    assert {call.timeout_ms for call in leaving} == {1_000}, "leaving holds up nothing for long"
    assert cluster.open == 0
    with pytest.raises(ClientClosed):
        play(made.send(Message(TOPIC, b"x")))
