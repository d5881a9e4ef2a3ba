"""Test of lifetime.py: closes inside of handlers, refused and failed starts, task factories."""

import asyncio
import gc
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.net.client.cluster import (
    TOPIC,
    ScriptedCluster,
    Stored,
    now_ms,
    play,
    record_bytes,
)
from tests.unit.net.client.consuming.popping import PoppingBroker, add_popping
from tests.unit.net.client.lives import MADE, client, nothing_is_left

from turbopump.net.client.consuming.consumer import Consumer
from turbopump.net.client.consuming.pop_consumer import PopConsumer
from turbopump.net.client.consuming.pull_consumer import PullConsumer
from turbopump.net.client.errors import ClientError
from turbopump.net.client.lifetime import ClientLifetime
from turbopump.net.client.messages import ReceivedMessage
from turbopump.net.wire.codes import RequestCode

OFFSET = RequestCode.QUERY_CONSUMER_OFFSET
PUSHING = ("Consumer", "PopConsumer")
"""Clients with a handler."""


class Part(ClientLifetime):
    """A client whose start and close run functions of a test."""

    def __init__(self, open_it: Callable[[], Any], shut: Callable[[], Any]) -> None:
        self._open_it, self._shut_it = open_it, shut

    async def _open(self) -> None:
        await self._open_it()

    async def _close_parts(self) -> None:
        await self._shut_it()

    def _mark_closed(self) -> None:
        raise AssertionError("no loop ends")


@pytest.fixture
def one(cluster: ScriptedCluster) -> ScriptedCluster:
    """A broker with one queue, which supports pops."""
    add_popping(cluster, "a")
    return cluster


async def handle(_message: ReceivedMessage) -> None:
    pass


def assert_acknowledged(one: ScriptedCluster, kind: str) -> None:
    """Asserts that the group has acknowledged the first message of the queue, and once."""
    broker = one.named("a")
    assert isinstance(broker, PoppingBroker)
    if kind == "Consumer":
        assert broker.committed["G", TOPIC, 0] == 1
    else:
        assert broker.acked == [0]


@pytest.mark.parametrize("main_closes", ["first", "later", "never"])
@pytest.mark.parametrize("kind", PUSHING)
def test_a_handler_closes_its_consumer(one: ScriptedCluster, kind: str, main_closes: str) -> None:
    """The close does not wait for the handler which calls it; the message is acknowledged."""

    async def story() -> None:
        made = MADE[kind](client())
        entered, goes_on, is_closed = asyncio.Event(), asyncio.Event(), asyncio.Event()
        ends: list[int] = []

        async def closes(_message: ReceivedMessage) -> None:
            entered.set()
            await goes_on.wait()
            await made.close()
            is_closed.set()
            await asyncio.sleep(1)
            ends.append(now_ms())

        made.on_message(closes)
        await made.start()
        one.named("a").put(b"x")
        await entered.wait()
        began_ms = now_ms()
        if main_closes == "first":
            closing = asyncio.create_task(made.close())
            await asyncio.sleep(0)
        goes_on.set()
        await is_closed.wait()
        assert now_ms() == began_ms
        if main_closes == "first":
            await closing
        elif main_closes == "later":
            await made.close()
        else:
            await asyncio.sleep(1.5)
        assert ends == [began_ms + 1_000]
        assert main_closes == "never" or now_ms() == began_ms + 1_000
        for _ in range(20):
            await asyncio.sleep(0)
        assert_acknowledged(one, kind)
        await nothing_is_left(one)

    play(story())


@pytest.mark.parametrize("kind", PUSHING)
def test_a_task_that_outlives_its_handler_waits_for_the_close(
    one: ScriptedCluster, kind: str
) -> None:
    async def story() -> None:
        made = MADE[kind](client())
        started: list[asyncio.Task[None]] = []

        async def closes() -> None:
            await asyncio.sleep(1)
            await made.close()
            assert one.open == 0

        async def starts(_message: ReceivedMessage) -> None:
            started.append(asyncio.create_task(closes()))

        made.on_message(starts)
        await made.start()
        one.named("a").put(b"x")
        await asyncio.sleep(2)
        assert started[0].result() is None
        await nothing_is_left(one)

    play(story())


def test_a_close_waits_for_a_handler_whose_queue_was_given_up(one: ScriptedCluster) -> None:
    """The close waits even if the handler calls it; its message has another owner then."""

    async def story() -> None:
        made = MADE["Consumer"](client())
        entered, goes_on = asyncio.Event(), asyncio.Event()
        ends: list[int] = []

        async def closes(_message: ReceivedMessage) -> None:
            entered.set()
            await goes_on.wait()
            await made.close()
            await asyncio.sleep(1)
            ends.append(now_ms())

        made.on_message(closes)
        await made.start()
        one.named("a").put(b"x")
        await entered.wait()
        made.unsubscribe(TOPIC)
        await asyncio.sleep(5)
        assert all(queue.topic != TOPIC for queue in made.queues)
        goes_on.set()
        await asyncio.sleep(0)
        began_ms = now_ms()
        await made.close()
        assert ends == [began_ms + 1_000] == [now_ms()]
        await nothing_is_left(one)

    play(story())


@pytest.mark.parametrize("closes_in_s", [1, 100])
def test_a_close_waits_for_an_operators_message(one: ScriptedCluster, closes_in_s: int) -> None:
    """The wait ends after the limit of a close, 10 s."""

    async def story() -> None:
        made = MADE["Consumer"](client())
        ends: list[int] = []

        async def closes(_message: ReceivedMessage) -> None:
            await made.close()
            await asyncio.sleep(closes_in_s)
            ends.append(now_ms())

        made.on_message(closes)
        await made.start()
        fields = {"consumerGroup": "G", "clientId": made.client_id, "brokerName": "a"}
        record = record_bytes((TOPIC, 0), 5, Stored(b"x"))
        later = one.ask_client(RequestCode.CONSUME_MESSAGE_DIRECTLY, fields, record)
        await asyncio.sleep(0)
        began_ms = now_ms()
        await made.close()
        if closes_in_s == 1:
            assert ends == [began_ms + 1_000]
            assert b"CR_SUCCESS" in later.value.body
        else:
            assert not ends and now_ms() == began_ms + 10_000
        await nothing_is_left(one)

    play(story())


@pytest.mark.parametrize("kind", PUSHING)
def test_a_handler_in_a_thread_closes_its_consumer(one: ScriptedCluster, kind: str) -> None:
    async def story() -> None:
        made = MADE[kind](client())
        loop, is_closed = asyncio.get_running_loop(), asyncio.Event()

        def closes(_message: ReceivedMessage) -> None:
            asyncio.run_coroutine_threadsafe(made.close(), loop).result(5)
            loop.call_soon_threadsafe(is_closed.set)

        made.on_message(closes)
        await made.start()
        one.named("a").put(b"x")
        async with asyncio.timeout(5):
            await is_closed.wait()
            await made.close()
        assert_acknowledged(one, kind)

    asyncio.run(story())


def waits_in_its_start(one: ScriptedCluster) -> Any:
    """A consumer that handles a message of its first queue while its start waits for the start
    offset of the other queue."""
    one.routes[TOPIC] = one.route(2, "a")
    broker = one.named("a")
    for queue_id in range(2):
        broker.committed["G", TOPIC, queue_id] = 0
    broker.put(b"x", 0)
    broker.put(b"y", 1)
    one.fail("a", OFFSET, None)
    return MADE["Consumer"](client())


def test_a_handler_closes_a_consumer_that_starts(one: ScriptedCluster) -> None:
    async def story() -> None:
        made = waits_in_its_start(one)
        handled: list[bytes] = []

        async def closes(message: ReceivedMessage) -> None:
            await made.close()
            await asyncio.sleep(0.5)
            handled.append(bytes(message.body))

        made.on_message(closes)
        async with made:
            assert not handled and now_ms() == 0, "the handler still runs"
        assert len(handled) == 1 and now_ms() == 500
        await nothing_is_left(one)

    play(story())


def test_a_start_with_a_time_limit_does_not_wait_for_handlers(one: ScriptedCluster) -> None:
    async def story() -> None:
        made = waits_in_its_start(one)
        entered = asyncio.Event()

        async def waits(_message: ReceivedMessage) -> None:
            entered.set()
            await asyncio.sleep(100)

        made.on_message(waits)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1), made:
                raise AssertionError("it does not start")
        assert entered.is_set() and now_ms() == 1_000
        await nothing_is_left(one)

    play(story())


@pytest.mark.parametrize("kind", PUSHING)
def test_a_refused_start_can_be_corrected(one: ScriptedCluster, kind: str) -> None:
    made_by = {"Consumer": Consumer, "PopConsumer": PopConsumer}[kind]

    async def story() -> None:
        shared = client()
        made: Any = made_by("G", client=shared)
        made.on_message(handle)
        with pytest.raises(ClientError, match="subscribe"):
            await made.start()
        made.subscribe(TOPIC)
        async with PullConsumer("G", client=shared):
            with pytest.raises(ClientError, match="has a consumer in this instance already"):
                await made.start()
        async with made:
            assert one.open == 1
        with pytest.raises(ClientError, match="starts once"):
            await made.start()
        await nothing_is_left(one)

    play(story())


async def nothing() -> None:
    pass


async def fails() -> None:
    raise RuntimeError("the undo")


def test_a_failure_of_the_undo_does_not_replace_the_failure_of_the_start() -> None:
    async def refused() -> None:
        raise ClientError("refused")

    async def story() -> None:
        with pytest.raises(ClientError, match="refused"):
            await Part(refused, fails).start()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1), Part(asyncio.Event().wait, fails):
                raise AssertionError("it does not start")
        with pytest.raises(RuntimeError, match="the undo"):
            await Part(nothing, fails).close()

    play(story())


def test_the_failure_of_a_cancelled_start_is_retrieved() -> None:
    async def fails_late() -> None:
        try:
            await asyncio.sleep(100)
        finally:
            await fails()

    async def story() -> None:
        lost: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _loop, more: lost.append(more))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1), Part(fails_late, nothing):
                raise AssertionError("it does not start")
        await asyncio.sleep(1)
        gc.collect()
        assert not lost

    play(story())


def test_a_task_factory_that_runs_work_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The factory resembles `asyncio.eager_task_factory` of Python 3.12."""

    def at_once(loop: asyncio.AbstractEventLoop, work: Any, **_named: Any) -> Any:
        with pytest.raises(StopIteration):
            work.send(None)
        done = loop.create_future()
        done.set_result(None)
        return done

    async def story() -> None:
        asyncio.get_running_loop().set_task_factory(at_once)
        made = Part(nothing, nothing)
        for _ in range(2):
            await made.start()
            await made.close()
            # Else a later `start` waits for a close that has ended, and never leaves its loop.
            assert getattr(made, "_shutting") is None  # noqa: B009

    play(story())


def test_a_close_whose_task_is_cancelled_can_be_repeated() -> None:
    """A program may cancel all tasks of its loop, also a task that has not begun."""
    shuts: list[int] = []

    async def shut() -> None:
        shuts.append(now_ms())

    async def story() -> None:
        made = Part(nothing, shut)
        await made.start()
        closing = asyncio.create_task(made.close())
        await asyncio.sleep(0)
        for task in asyncio.all_tasks():
            if task.get_name() == "close":
                task.cancel()
        await asyncio.wait({closing})
        assert closing.cancelled() and not shuts
        with pytest.raises(ClientError, match="started already"):
            await made.start()
        await made.close()
        assert len(shuts) == 1
        async with made:
            pass

    play(story())
