"""The pull consumer: positions, reading ahead, polls, commits, and its handling of failures."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.unit.net.client.cluster import (
    NAME_SERVER,
    START_MS,
    TOPIC,
    ScriptedCluster,
    now_ms,
    options,
    play,
)

from turbopump.net.client.consuming.pull_consumer import PullConsumer, PullOptions
from turbopump.net.client.errors import BrokerError, ClientClosed, ClientError, RouteNotFound
from turbopump.net.client.options import ConsumeFrom
from turbopump.net.client.producer import Producer
from turbopump.net.client.shared_client import SharedClient
from turbopump.net.transport.errors import ConnectError
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.heartbeat import HeartbeatData
from turbopump.net.wire.queues import MessageQueue

PULL = RequestCode.LITE_PULL_MESSAGE
FIRST, SECOND = MessageQueue(TOPIC, "a", 0), MessageQueue(TOPIC, "a", 1)


@pytest.fixture
def two(cluster: ScriptedCluster) -> ScriptedCluster:
    """A broker with two queues; ten messages in the first one."""
    cluster.add("a", queues=2)
    for number in range(10):
        cluster.named("a").put(b"%d" % number)
    return cluster


def on(story: Callable[[PullConsumer], Awaitable[None]], **more: Any) -> None:
    """Run a story with a started consumer, then close it."""
    more = {"consume_from": ConsumeFrom.FIRST} | more

    async def whole() -> None:
        made = PullConsumer(
            "G",
            NAME_SERVER,
            options=PullOptions(**more),
            client_options=options(instance_name="unit"),
        )
        async with made:
            await story(made)

    play(whole())


async def bodies(made: PullConsumer, **how: int) -> list[bytes]:
    return [bytes(message.body) for message in await made.poll(**how)]


def test_the_position_follows_returned_messages(two: ScriptedCluster) -> None:
    async def story(made: PullConsumer) -> None:
        await made.assign([FIRST])
        assert made.position(FIRST) is None, "not known before the first answer"
        assert await bodies(made, max_count=3) == [b"0", b"1", b"2"]
        assert made.position(FIRST) == 3
        await made.commit()
        assert two.named("a").committed["G", TOPIC, 0] == 3
        assert await made.committed(FIRST) == 3 and await made.committed(SECOND) is None
        await made.assign([FIRST, SECOND])
        assert len(await bodies(made)) == 7, "a queue that stays assigned keeps its place"
        assert made.position(FIRST) == 10
        assert await bodies(made, timeout_ms=500) == []
        assert made.position(SECOND) == 0

    on(story)


def test_a_committed_offset_is_where_reading_begins(two: ScriptedCluster) -> None:
    two.named("a").committed["G", TOPIC, 0] = 8

    async def story(made: PullConsumer) -> None:
        await made.assign([FIRST])
        assert await bodies(made) == [b"8", b"9"]

    on(story, consume_from=ConsumeFrom.LAST)


def test_seeking(two: ScriptedCluster) -> None:
    async def story(made: PullConsumer) -> None:
        await made.assign([FIRST])
        await made.seek(FIRST, 7)
        assert await bodies(made) == [b"7", b"8", b"9"]
        await made.seek_to_begin(FIRST)
        assert await bodies(made, max_count=1) == [b"0"]
        await made.seek_to_time(FIRST, START_MS + 5)
        assert await bodies(made, max_count=1) == [b"5"]
        await made.seek_to_end(FIRST)
        assert await bodies(made, timeout_ms=100) == []
        two.named("a").put(b"10")
        assert await bodies(made) == [b"10"]
        with pytest.raises(ClientError, match="is not assigned"):
            await made.seek(SECOND, 0)

    on(story)


def test_an_offset_beyond_the_queue_goes_on_where_the_broker_says(two: ScriptedCluster) -> None:
    async def story(made: PullConsumer) -> None:
        await made.assign([FIRST])
        await made.seek(FIRST, 99)
        assert await bodies(made, timeout_ms=100) == []
        assert made.position(FIRST) == 10
        two.named("a").put(b"10")
        assert await bodies(made) == [b"10"]

    on(story)


@pytest.mark.parametrize("limit", [{"buffer_messages": 4}, {"buffer_bytes": 4}])
def test_reading_ahead_stops_at_its_bound(two: ScriptedCluster, limit: dict[str, int]) -> None:
    async def story(made: PullConsumer) -> None:
        await made.assign([FIRST])
        await asyncio.sleep(5)
        assert [call.request.fields["queueOffset"] for call in two.made(PULL)] == ["0", "2"]
        assert await bodies(made, max_count=1) == [b"0"]
        await asyncio.sleep(5)
        assert [call.request.fields["queueOffset"] for call in two.made(PULL)] == ["0", "2", "4"]

    on(story, pull_batch=2, **limit)


def test_queues_take_turns(two: ScriptedCluster) -> None:
    for number in range(10):
        two.named("a").put(b"b%d" % number, 1)

    async def story(made: PullConsumer) -> None:
        await made.assign([FIRST, SECOND])
        await asyncio.sleep(1)
        polled = [await bodies(made, max_count=2) for _ in range(4)]
        assert polled == [[b"0", b"1"], [b"b0", b"b1"], [b"2", b"3"], [b"b2", b"b3"]]

    on(story)


def test_messages_that_are_filtered_out_move_the_position(two: ScriptedCluster) -> None:
    two.named("a").put(b"wanted", properties=b"TAGS\x01x\x02")
    two.named("a").put(b"not")

    async def story(made: PullConsumer) -> None:
        await made.assign([FIRST], "x || y")
        assert await bodies(made) == [b"wanted"]
        assert made.position(FIRST) == 12
        two.named("a").put(b"not")
        assert await bodies(made, timeout_ms=100) == []
        assert made.position(FIRST) == 13

    on(story)


def test_failures_are_waited_for_and_raised_only_where_nothing_came(two: ScriptedCluster) -> None:
    two.fail("a", PULL, *[ResponseCode.NO_PERMISSION] * 3)

    async def story(made: PullConsumer) -> None:
        await made.assign([FIRST])
        with pytest.raises(BrokerError) as failed:
            await made.poll(500)
        assert (failed.value.code, now_ms()) == (ResponseCode.NO_PERMISSION, 500)
        assert len(await bodies(made, timeout_ms=10_000)) == 10
        assert now_ms() == 6_000, "after waits of 1, 2 and 3 s"

    on(story)


def test_a_broker_that_cannot_be_reached_is_no_error_of_a_poll(two: ScriptedCluster) -> None:
    two.fail("a", PULL, *[ConnectError("gone")] * 3)

    async def story(made: PullConsumer) -> None:
        await made.assign([FIRST])
        assert await bodies(made, timeout_ms=500) == []
        assert len(await bodies(made)) == 10 and now_ms() == 700
        assert len(two.made(RequestCode.GET_ROUTEINFO_BY_TOPIC)) == 4, "it may have moved"

    on(story)


def test_a_commit_that_fails_is_raised(two: ScriptedCluster) -> None:
    two.fail("a", RequestCode.UPDATE_CONSUMER_OFFSET, ResponseCode.SYSTEM_ERROR)

    async def story(made: PullConsumer) -> None:
        await made.assign([FIRST])
        with pytest.raises(BrokerError):
            await made.commit({FIRST: 4})
        await made.commit({FIRST: 5, SECOND: 6})
        assert two.named("a").committed == {("G", TOPIC, 0): 5, ("G", TOPIC, 1): 6}

    on(story)


def test_a_queue_that_is_not_assigned_any_more_is_not_read(two: ScriptedCluster) -> None:
    async def story(made: PullConsumer) -> None:
        await made.assign([FIRST, SECOND])
        await asyncio.sleep(0.1)
        await made.assign([SECOND])
        before = len(two.made(PULL))
        await asyncio.sleep(60)
        assert made.assigned == [SECOND]
        assert {call.request.fields["queueId"] for call in two.made(PULL)[before:]} == {"1"}
        assert await bodies(made, timeout_ms=100) == [], "messages that were read ahead are dropped"

    on(story)


def readers() -> int:
    """The number of tasks that read ahead."""
    return sum(task.get_name().startswith("read ") for task in asyncio.all_tasks())


def test_seeks_at_the_same_time_leave_a_single_reader(two: ScriptedCluster) -> None:
    async def story(made: PullConsumer) -> None:
        await made.assign([FIRST])
        await asyncio.sleep(1)
        await asyncio.gather(*(made.seek(FIRST, offset) for offset in (3, 5, 8)))
        await asyncio.sleep(1)
        assert readers() == 1
        assert await bodies(made) == [b"8", b"9"]

    on(story)


def test_a_cancelled_seek_leaves_a_reader(two: ScriptedCluster) -> None:
    async def story(made: PullConsumer) -> None:
        await made.assign([FIRST])
        for turns in range(1, 10):
            await bodies(made)
            seeking = asyncio.create_task(made.seek(FIRST, 9))
            for _ in range(turns):
                await asyncio.sleep(0)
            seeking.cancel()
            await asyncio.wait({seeking})
            two.named("a").put(b"more")
            assert await bodies(made), turns

    on(story)


def test_assignments_at_the_same_time_leave_the_last(two: ScriptedCluster) -> None:
    async def story(made: PullConsumer) -> None:
        await asyncio.gather(*(made.assign(queues) for queues in ([FIRST], [], [SECOND])))
        assert made.assigned == [SECOND] and readers() == 1

    on(story)


def test_a_close_during_an_assignment_leaves_no_reader(two: ScriptedCluster) -> None:
    async def is_ended(turns: int) -> bool:
        shared = SharedClient(NAME_SERVER, options(instance_name="unit"))
        async with Producer("P", client=shared):
            async with PullConsumer("G", client=shared) as made:
                assigning = asyncio.create_task(made.assign([FIRST, SECOND]))
                for _ in range(turns):
                    await asyncio.sleep(0)
                is_ended = assigning.done()
            await asyncio.wait({assigning})
            error = assigning.exception()
            assert error is None or isinstance(error, ClientClosed), "the close came first"
            assert not made.assigned and not readers()
        return is_ended

    async def story() -> None:
        turns = 1
        while not await is_ended(turns):
            turns += 1
            assert turns < 100

    play(story())


def test_a_consumer_that_starts_again_has_no_subscription(two: ScriptedCluster) -> None:
    async def story(made: PullConsumer) -> None:
        for _ in range(2):
            await made.assign([FIRST])
            await made.close()
            await made.start()
            await made._instance.heartbeat()
            body = two.made(RequestCode.HEART_BEAT)[-1].request.body
            assert isinstance(body, bytes)
            (member,) = HeartbeatData.decode(body).consumer_data_set
            assert not member.subscription_data_set

    on(story)


def test_misuse_is_one_clear_error(two: ScriptedCluster) -> None:
    async def story(made: PullConsumer) -> None:
        with pytest.raises(ClientError, match="started already"):
            await made.start()
        with pytest.raises(RouteNotFound, match="no name server knows topic gone"):
            await made.assign([MessageQueue("gone", "a", 0)])
        await made.assign([SECOND])
        response = two.ask_client(RequestCode.GET_CONSUMER_RUNNING_INFO, {"consumerGroup": "G"})
        assert response.remark == "this is a pull consumer"
        waiting = asyncio.create_task(made.poll(60_000))
        await asyncio.sleep(1)
        await made.close()
        assert await waiting == [] and now_ms() == 1_000, "closing ends a poll"
        with pytest.raises(ClientClosed):
            await made.poll()

    on(story)
    assert two.open == 0
    (leaving,) = two.made(RequestCode.UNREGISTER_CLIENT)
    assert leaving.request.fields["consumerGroup"] == "G"
