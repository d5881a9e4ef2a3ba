"""The pull loop of a queue: its start, its reaction to each failure, and its waits."""

import asyncio
from typing import Any

import pytest
from tests.unit.net.client.cluster import (
    NAME_SERVER,
    START_MS,
    TOPIC,
    ScriptedBroker,
    ScriptedCluster,
    now_ms,
    options,
    play,
)

from turbopump.net.client.consuming.consumer import Consumer
from turbopump.net.client.errors import BrokerError
from turbopump.net.client.messages import ReceivedMessage
from turbopump.net.client.options import ConsumeFrom, ConsumerOptions
from turbopump.net.transport.errors import ConnectError
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.route import BrokerData

RETRY = "%RETRY%G"
PULL, COMMIT = RequestCode.PULL_MESSAGE, RequestCode.UPDATE_CONSUMER_OFFSET
ROUTE, BEAT = RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.HEART_BEAT


@pytest.fixture
def one(cluster: ScriptedCluster) -> ScriptedCluster:
    """A broker with one queue of ten messages, the first at offset 100, and no retry topic."""
    cluster.add("a")
    broker = cluster.named("a")
    broker.least[TOPIC, 0] = 100
    for number in range(100, 110):
        broker.put(b"%d" % number)
    return cluster


def consumer(**more: Any) -> Consumer:
    made = Consumer(
        "G",
        NAME_SERVER,
        options=ConsumerOptions(**more),
        client_options=options(instance_name="unit"),
    )
    made.subscribe(TOPIC)
    return made


async def take(message: ReceivedMessage) -> None:
    """A handler that acknowledges; a plain function would run in a thread, in real time."""


def pulls(cluster: ScriptedCluster) -> list[tuple[int, int]]:
    """(ms, queue offset) of each pull of the topic."""
    return [(call.at_ms, int(call.request.fields["queueOffset"])) for call in cluster.made(PULL)]


def run(made: Consumer, seconds: float) -> None:
    async def story() -> None:
        async with made:
            await asyncio.sleep(seconds)

    play(story())


@pytest.mark.parametrize(
    ("where", "committed", "first"),
    [
        (ConsumeFrom.FIRST, None, 100),
        (ConsumeFrom.LAST, None, 110),
        (ConsumeFrom.TIMESTAMP, None, 107),
        (ConsumeFrom.LAST, 103, 103),
        (ConsumeFrom.FIRST, 104, 104),
    ],
)
def test_where_a_queue_begins(
    one: ScriptedCluster, where: ConsumeFrom, committed: int | None, first: int
) -> None:
    if committed is not None:
        one.named("a").committed["G", TOPIC, 0] = committed
    run(consumer(consume_from=where, consume_from_ms=START_MS + 107), 0.1)
    assert pulls(one)[0] == (0, first)


def test_a_retry_topic_is_read_from_its_beginning(one: ScriptedCluster) -> None:
    """All its messages are for this group, whichever start the group has in other topics."""
    one.routes[RETRY] = one.route(1, "a")
    one.named("a").queues[RETRY, 0] += one.named("a").queues[TOPIC, 0]
    run(consumer(consume_from=ConsumeFrom.LAST), 0.1)
    retried = [call for call in one.made(PULL) if call.request.fields["topic"] == RETRY]
    assert retried[0].request.fields["queueOffset"] == "0"


def test_an_offset_that_is_not_known_is_never_committed(one: ScriptedCluster) -> None:
    """Otherwise 0 would be committed, and the group would restart from the beginning."""
    one.fail("a", RequestCode.QUERY_CONSUMER_OFFSET, *[ConnectError("gone")] * 99)

    async def story() -> None:
        async with consumer(persist_ms=1_000) as made:
            await asyncio.sleep(3)
            one.named("a").members += ["127.0.0.1@a", "127.0.0.1@b"]
            made._balancer.rebalance_soon()
            await asyncio.sleep(1)
            assert [queue for queue in made.queues if queue.topic == TOPIC] == []

    play(story())
    assert not one.made(COMMIT)


def test_the_start_is_asked_for_until_a_broker_says_it(one: ScriptedCluster) -> None:
    query = RequestCode.QUERY_CONSUMER_OFFSET
    one.named("a").committed["G", TOPIC, 0] = 105
    one.fail("a", query, ConnectError("1"), ConnectError("2"), ResponseCode.SYSTEM_ERROR)
    run(consumer(), 5)
    assert one.times(query) == [0, 100, 300, 3_300], "the third failure is an answer"
    assert pulls(one)[0] == (3_300, 105)
    assert not [call for call in one.made(COMMIT) if call.at_ms < 3_300], "nothing was known yet"


def test_a_broker_that_cannot_be_reached_is_tried_soon_and_looked_for(one: ScriptedCluster) -> None:
    one.fail("a", PULL, *[ConnectError("gone")] * 6)
    run(consumer(consume_from=ConsumeFrom.FIRST), 5)
    assert [at for at, _ in pulls(one)[:7]] == [0, 100, 300, 700, 1_500, 2_500, 3_500]
    asked = {call.at_ms for call in one.made(ROUTE) if call.request.fields["topic"] == TOPIC}
    assert asked == {0, 100, 300, 700, 1_500, 2_500}, "it may have moved"


def test_the_waits_begin_anew_after_a_success(one: ScriptedCluster) -> None:
    one.fail("a", PULL, ConnectError("gone"), ConnectError("gone"))
    made = consumer(consume_from=ConsumeFrom.FIRST, pull_batch=4)

    async def story() -> None:
        async with made:
            await asyncio.sleep(1)
            one.fail("a", PULL, ConnectError("gone"))
            one.named("a").put(b"110")  # ends the long poll
            await asyncio.sleep(1)

    play(story())
    times = [at for at, offset in pulls(one) if offset == 111]
    assert times == [1_000, 1_100]


def test_a_refusal_is_waited_for_longer(one: ScriptedCluster) -> None:
    one.fail("a", PULL, *[ResponseCode.NO_PERMISSION] * 4)
    run(consumer(), 12)
    assert [at for at, _ in pulls(one)[:5]] == [0, 1_000, 3_000, 6_000, 9_000]


def test_flow_control_passes_at_once(one: ScriptedCluster) -> None:
    one.fail("a", PULL, *[ResponseCode.FLOW_CONTROL] * 3)
    run(consumer(), 1)
    assert [at for at, _ in pulls(one)[:4]] == [0, 20, 40, 60]


@pytest.mark.parametrize(
    "code", [ResponseCode.SUBSCRIPTION_NOT_EXIST, ResponseCode.SUBSCRIPTION_NOT_LATEST]
)
def test_a_subscription_that_the_broker_lacks_is_sent_again(
    one: ScriptedCluster, code: int
) -> None:
    one.fail("a", PULL, code)
    run(consumer(), 1)
    assert [at for at, _ in pulls(one)[:2]] == [0, 100]
    beats = [call for call in one.made(BEAT) if call.address in one.brokers]
    assert [call.at_ms for call in beats] == [0, 0], "the first, and a commit that repairs it"


@pytest.mark.parametrize(("at", "goes_on"), [(50, 100), (500, 110)])
def test_an_offset_outside_of_the_queue_moves_to_the_brokers(
    one: ScriptedCluster, at: int, goes_on: int
) -> None:
    one.named("a").committed["G", TOPIC, 0] = at
    run(consumer(), 1)
    assert [offset for _, offset in pulls(one)[:2]] == [at, goes_on]
    assert one.named("a").committed["G", TOPIC, 0] == goes_on
    assert one.times(COMMIT)[0] == 0, "committed at once"


def test_a_pull_brings_the_commit_along(one: ScriptedCluster) -> None:
    broker = one.named("a")

    async def story() -> None:
        made = consumer(consume_from=ConsumeFrom.FIRST, pull_batch=5, persist_ms=1_000_000)
        made.on_message(take)
        async with made:
            await asyncio.sleep(1)
            broker.put(b"110")
            await asyncio.sleep(15.1)  # the long poll ends
            assert broker.committed["G", TOPIC, 0] == 111
            assert not one.made(COMMIT)

    play(story())


def test_a_suggested_replica_is_read_until_it_fails(one: ScriptedCluster) -> None:
    broker = one.named("a")
    replica = ScriptedBroker("replica", "127.0.0.1:11999")
    replica.queues, replica.least = broker.queues, broker.least
    one.brokers[replica.address] = replica
    addresses = {0: broker.address, 1: replica.address}
    one.routes[TOPIC].broker_datas = [BrokerData("C", "a", addresses)]
    broker.suggested = replica.suggested = 1
    broker.committed["G", TOPIC, 0] = 100

    async def story() -> None:
        async with consumer(pull_batch=5):
            await asyncio.sleep(0.1)
            assert [call.address for call in one.made(PULL)[:3]] == [
                *(broker.address, replica.address, replica.address)
            ]
            committing = [int(call.request.fields["sysFlag"]) & 1 for call in one.made(PULL)]
            assert committing == [1, 0, 0], "offsets are committed at the master only"
            one.down.add(replica.address)
            await asyncio.sleep(15.5)  # the long poll ends
            assert one.made(PULL)[-1].address == broker.address

    play(story())


def test_a_refusal_for_good_is_raised_once_to_a_reader(one: ScriptedCluster) -> None:
    refused = ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    one.fail("a", PULL, refused, refused)

    async def story() -> None:
        async with consumer(consume_from=ConsumeFrom.FIRST) as made:
            for at_ms in (0, 1_000):
                with pytest.raises(BrokerError) as failed:
                    await made.receive()
                assert (failed.value.code, now_ms()) == (refused, at_ms)
            message = await made.receive()
            assert message is not None and (message.body, now_ms()) == (b"100", 3_000)

    play(story())


def test_a_refusal_that_has_passed_is_not_raised(one: ScriptedCluster) -> None:
    one.fail("a", PULL, ResponseCode.NO_PERMISSION)

    async def story() -> None:
        async with consumer(consume_from=ConsumeFrom.LAST) as made:
            await asyncio.sleep(2)
            one.named("a").put(b"110")
            await asyncio.sleep(0.1)
            message = await made.receive()
            assert message is not None and message.body == b"110"
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(made.receive(), 1)

    play(story())


def test_sql_that_the_broker_does_not_do_is_a_refusal_before_the_start(
    one: ScriptedCluster,
) -> None:
    one.fail("a", RequestCode.CHECK_CLIENT_CONFIG, ResponseCode.SYSTEM_ERROR)

    async def story() -> None:
        made = consumer()
        made.subscribe(TOPIC, sql="a > 1")
        with pytest.raises(BrokerError):
            await made.start()

    play(story())
    assert one.open == 0 and not one.made(PULL)


def test_messages_of_other_tags_are_passed_over(one: ScriptedCluster) -> None:
    """The broker knows only the tags' hashes: Aa and BB have the same."""
    broker = one.named("a")
    broker.put(b"Aa", properties=b"TAGS\x01Aa\x02")
    broker.put(b"BB", properties=b"TAGS\x01BB\x02")

    async def story() -> None:
        made = consumer(consume_from=ConsumeFrom.FIRST)
        made.subscribe(TOPIC, "BB")
        async with made:
            message = await made.receive()
            assert message is not None and message.body == b"BB"
            await made.ack(message)
        assert broker.committed["G", TOPIC, 0] == 112

    play(story())


def test_an_invalid_record_is_pulled_again_after_a_wait(one: ScriptedCluster) -> None:
    broker = one.named("a")
    whole = broker.answer

    async def damaged(request: Any) -> Any:
        response = await whole(request)
        if request.code == PULL and len(one.made(PULL)) < 3:
            response.body = b"\0" * 50
        return response

    broker.answer = damaged  # type: ignore[method-assign]
    run(consumer(consume_from=ConsumeFrom.FIRST), 1)
    assert pulls(one)[:3] == [(0, 100), (100, 100), (300, 100)]
