"""Start and close of every client: cancelled at any wait, at the same time, twice, in two loops."""

import asyncio
from typing import Any

import pytest
from tests.unit.net.client.cluster import (
    NAME_SERVER,
    TOPIC,
    ScriptedCluster,
    now_ms,
    play,
)
from tests.unit.net.client.consuming.popping import add_popping
from tests.unit.net.client.lives import MADE, client, nothing_is_left

from turbopump.net.client.errors import ClientClosed, ClientError
from turbopump.net.client.messages import Message
from turbopump.net.client.producer import Producer
from turbopump.net.wire.codes import RequestCode

ROUTE, BEAT = RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.HEART_BEAT
LEAVE = RequestCode.UNREGISTER_CLIENT
TURNS_MAX = 200
"""Turns of the loop after which each start against these servers has ended or hangs."""
HANGS_TURNS = 40
"""Turns after which each start waits for a name server that does not answer."""
FOR_EVER = [None] * 999


ASKING = ("Consumer", "PopConsumer", "SimpleConsumer")
"""Clients whose start needs a name server's answer."""
AGAIN = ("Producer", "TransactionProducer", "SimpleConsumer", "PullConsumer", "Admin")
"""Clients that can be started again after their close."""


@pytest.fixture
def one(cluster: ScriptedCluster) -> ScriptedCluster:
    """A broker with one queue, which supports pops."""
    add_popping(cluster, "a")
    return cluster


@pytest.mark.parametrize("is_silent", [False, True])
@pytest.mark.parametrize("kind", MADE)
def test_a_start_cancelled_at_any_wait_leaves_nothing(
    one: ScriptedCluster, kind: str, is_silent: bool
) -> None:
    async def is_ended(turns: int) -> bool:
        if is_silent:
            one.fail(NAME_SERVER, ROUTE, *FOR_EVER)
        shared = client()
        made = MADE[kind](shared)
        starting = asyncio.create_task(made.start())
        for _ in range(turns):
            await asyncio.sleep(0)
        is_ended = starting.done()
        starting.cancel()
        await asyncio.wait({starting})
        if is_ended:
            await made.close()
        else:
            assert starting.cancelled()
        one.faults.clear()
        await nothing_is_left(one)
        async with MADE[kind](shared):
            pass  # the group has no consumer, and the client can be started
        if kind in AGAIN:
            async with made:
                pass
        await nothing_is_left(one)
        return is_ended

    async def story() -> None:
        turns, hangs = 0, is_silent and kind in ASKING
        while not await is_ended(turns):
            turns += 1
            if hangs and turns == HANGS_TURNS:
                return
            assert turns < TURNS_MAX
        assert not hangs, "the start waited for the name server"

    play(story())


@pytest.mark.parametrize("kind", ASKING)
def test_a_start_in_a_time_limit(one: ScriptedCluster, kind: str) -> None:
    one.fail(NAME_SERVER, ROUTE, *FOR_EVER)

    async def story() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1), MADE[kind](client()):
                raise AssertionError("it does not start")
        assert now_ms() == 1_000
        await nothing_is_left(one)

    play(story())


@pytest.mark.parametrize("kind", MADE)
def test_a_cancelled_start_leaves_the_other_users_of_a_client(
    one: ScriptedCluster, kind: str
) -> None:
    one.fail(NAME_SERVER, ROUTE, *FOR_EVER)

    async def story() -> None:
        shared = client()
        async with Producer("Other", client=shared) as producer:
            starting = asyncio.create_task(MADE[kind](shared).start())
            for _ in range(3):
                await asyncio.sleep(0)
            starting.cancel()
            await asyncio.wait({starting})
            one.faults.clear()
            await asyncio.sleep(1)
            assert await producer.queues(TOPIC)
        await nothing_is_left(one)

    play(story())


@pytest.mark.parametrize("kind", MADE)
def test_a_close_during_a_start_ends_it(one: ScriptedCluster, kind: str) -> None:
    async def is_ended(turns: int) -> bool:
        made = MADE[kind](client())
        starting = asyncio.create_task(made.start())
        for _ in range(turns):
            await asyncio.sleep(0)
        is_ended = starting.done()
        await made.close()
        if turns and not is_ended:
            with pytest.raises(ClientClosed, match="closed while it started"):
                await starting
        else:
            await starting
            await made.close()
        await nothing_is_left(one)
        return is_ended

    async def story() -> None:
        turns = 1
        while not await is_ended(turns):
            turns += 1
            assert turns < TURNS_MAX

    play(story())


@pytest.mark.parametrize("kind", MADE)
def test_a_cancelled_close_goes_on_by_itself(one: ScriptedCluster, kind: str) -> None:
    """The broker does not answer the request to leave, so that the close waits a second for it."""

    async def story() -> None:
        shared = client()
        async with Producer("Other", client=shared) as producer:
            await producer.queues(TOPIC)
            made = MADE[kind](shared)
            await made.start()
            one.fail("a", LEAVE, *FOR_EVER)
            began_ms = now_ms()
            closing = asyncio.create_task(made.close())
            for _ in range(3):
                await asyncio.sleep(0)
            closing.cancel()
            await asyncio.wait({closing})
            assert now_ms() == began_ms, "the caller does not wait"
            await made.close()
            assert kind == "Admin" or now_ms() == began_ms + 1_000, "this caller waits"
            one.faults.clear()
        await nothing_is_left(one)
        async with MADE[kind](shared):
            pass

    play(story())


@pytest.mark.parametrize("kind", MADE)
def test_a_block_in_a_task_that_is_cancelled(one: ScriptedCluster, kind: str) -> None:
    async def block() -> None:
        async with MADE[kind](client()):
            await asyncio.sleep(1_000)

    async def story() -> None:
        running = asyncio.create_task(block())
        await asyncio.sleep(1)
        running.cancel()
        await asyncio.wait({running})
        assert running.cancelled()
        await nothing_is_left(one)

    play(story())


@pytest.mark.parametrize("kind", MADE)
def test_a_block_of_a_task_that_was_cancelled_before(one: ScriptedCluster, kind: str) -> None:
    async def block(made: Any) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        async with made:
            raise AssertionError("the first wait ends the task")

    async def story() -> None:
        running = asyncio.create_task(block(MADE[kind](client())))
        await asyncio.wait({running})
        assert running.cancelled()
        await nothing_is_left(one)

    play(story())


@pytest.mark.parametrize("kind", MADE)
def test_starts_and_closes_at_the_same_time(one: ScriptedCluster, kind: str) -> None:
    async def story() -> None:
        made = MADE[kind](client())
        await made.close()
        if kind not in AGAIN:
            with pytest.raises(ClientError, match="starts once"):
                await made.start()
            made = MADE[kind](client())
        starts = (made.start() for _ in range(3))
        first, *rest = await asyncio.gather(*starts, return_exceptions=True)
        assert first is None
        assert [type(error) for error in rest] == [ClientError] * 2
        await asyncio.gather(*(made.close() for _ in range(3)))
        await made.close()
        await nothing_is_left(one)
        if kind in AGAIN:
            closing = asyncio.create_task(made.start())
            await asyncio.sleep(1)
            ending = asyncio.create_task(made.close())
            await asyncio.sleep(0)
            await made.start()  # waits for the close
            await asyncio.wait({closing, ending})
            await made.close()
            await nothing_is_left(one)

    play(story())


def test_a_cancelled_first_user_leaves_the_start_to_the_second(one: ScriptedCluster) -> None:
    async def is_ended(turns: int) -> bool:
        shared = client()
        first, second = (Producer(group, client=shared) for group in ("P", "Q"))
        starting = [asyncio.create_task(each.start()) for each in (first, second)]
        for _ in range(turns):
            await asyncio.sleep(0)
        is_ended = starting[0].done()
        starting[0].cancel()
        await asyncio.wait(starting)
        assert starting[1].exception() is None and one.open == 1
        assert await second.queues(TOPIC)
        await asyncio.gather(first.close(), second.close())
        await nothing_is_left(one)
        return is_ended

    async def story() -> None:
        turns = 1
        while not await is_ended(turns):
            turns += 1
            assert turns < TURNS_MAX

    play(story())


def test_a_start_that_fails_is_undone(one: ScriptedCluster) -> None:
    """The consumer's group is refused; neither the start nor the close ends the first consumer."""

    async def story() -> None:
        shared = client()
        async with MADE["SimpleConsumer"](shared) as first:
            for kind in ("SimpleConsumer", "PullConsumer", "PopConsumer", "Consumer"):
                second = MADE[kind](shared)
                with pytest.raises(ClientError, match="has a consumer in this instance already"):
                    await second.start()
                await second.close()
            assert one.open == 1
            one.named("a").put(b"x")
            assert [message.body for message in await first.receive()] == [b"x"]
        await nothing_is_left(one)

    play(story())


@pytest.mark.parametrize("kind", MADE)
def test_a_client_belongs_to_the_loop_that_started_it(one: ScriptedCluster, kind: str) -> None:
    made = MADE[kind](client())
    with asyncio.Runner() as first, asyncio.Runner() as second:
        first.run(made.start())
        for wrong in (made.start, made.close):
            with pytest.raises(ClientError, match="another event loop"):
                second.run(wrong())
        first.run(made.close())
        assert one.open == 0
        if kind in AGAIN:
            second.run(made.start())
            second.run(made.close())
            assert one.open == 0


def test_a_shared_client_belongs_to_a_single_loop(one: ScriptedCluster) -> None:
    shared = client()
    producer, consumer = Producer("P", client=shared), MADE["PullConsumer"](shared)

    async def together() -> None:
        await asyncio.gather(producer.start(), consumer.start())
        await asyncio.gather(producer.close(), consumer.close())

    with asyncio.Runner() as first, asyncio.Runner() as second:
        first.run(producer.start())
        with pytest.raises(ClientError, match="another event loop"):
            second.run(consumer.start())
        with pytest.raises(ClientError, match="another event loop"):
            second.run(producer.queues(TOPIC))
        first.run(producer.close())
        for runner in (first, second):
            runner.run(together())
    assert one.open == 0


def test_a_pull_consumer_polls_in_a_second_loop(one: ScriptedCluster) -> None:
    made = MADE["PullConsumer"](client())

    async def story() -> None:
        async with made:
            await made.assign(await made.queues(TOPIC))
            assert await made.poll(5) == []

    for _ in range(2):
        asyncio.run(story())


@pytest.mark.parametrize("does_close", [False, True])
@pytest.mark.parametrize("kind", MADE)
def test_a_loop_that_was_closed_before_the_client(
    one: ScriptedCluster, kind: str, does_close: bool
) -> None:
    shared = client()
    made = MADE[kind](shared)
    play(made.start())

    async def story() -> None:
        for _ in range(does_close):
            await made.close()
        if kind in AGAIN:
            async with made:
                with pytest.raises(ClientError, match="started already"):
                    await made.start()
        else:
            with pytest.raises(ClientError, match="starts once"):
                await made.start()
        await made.close()
        one.open = 0  # connections of the first loop ended with it
        async with MADE[kind](shared):
            await asyncio.sleep(1)
        await nothing_is_left(one)

    play(story())


def test_a_send_after_the_end_of_the_loop(one: ScriptedCluster) -> None:
    made = Producer("P", client=client())

    async def first() -> None:
        await made.start()
        await made.send(Message(TOPIC, b"x"))

    async def second() -> None:
        with pytest.raises(ClientClosed, match="not started"):
            await made.send(Message(TOPIC, b"y"))
        async with made:
            await made.send(Message(TOPIC, b"x"))

    play(first())
    play(second())
    assert [stored.body for stored in one.named("a").queues[TOPIC, 0]] == [b"x", b"x"]


@pytest.mark.parametrize("turns", range(5))
def test_a_loop_that_ends_during_a_close(one: ScriptedCluster, turns: int) -> None:
    """A consumer is closed that waits in its start for a name server."""
    one.fail(NAME_SERVER, ROUTE, *FOR_EVER)
    made = MADE["SimpleConsumer"](client())
    tasks: list[asyncio.Task[None]] = []

    async def first() -> None:
        tasks.append(asyncio.create_task(made.start()))
        await asyncio.sleep(1)
        tasks.append(asyncio.create_task(made.close()))
        for _ in range(turns):
            await asyncio.sleep(0)

    async def second() -> None:
        one.faults.clear()
        async with made:
            pass

    play(first())
    assert all(task.done() for task in tasks)
    play(second())


def test_the_users_of_a_closed_loop_do_not_count(one: ScriptedCluster) -> None:
    shared = client()
    first, second = Producer("P", client=shared), Producer("Q", client=shared)
    play(first.start())

    async def story() -> None:
        one.open = 0
        await second.start()
        await first.close()
        assert one.open == 1
        await second.close()
        await nothing_is_left(one)

    play(story())
