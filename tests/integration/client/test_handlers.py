"""Kinds of message handlers that a program may have, and the effects of their errors and
results.
"""

import asyncio
import functools
import logging
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.integration.client.scripted import ScriptedBroker, pulled

from turbopump.engine.deferred import Deferred
from turbopump.net.client.consuming.consumer import Consumer
from turbopump.net.client.errors import BrokerError, ClientClosed, ClientError
from turbopump.net.client.messages import ReceivedMessage
from turbopump.net.client.options import ConsumerOptions, Outcome
from turbopump.net.transport.dispatcher import Response
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_response

pytestmark = pytest.mark.integration

Until = Callable[..., Awaitable[None]]
PULL = RequestCode.PULL_MESSAGE
BACK = RequestCode.CONSUMER_SEND_MSG_BACK


def delivering(broker: ScriptedBroker, *bodies: bytes) -> ScriptedBroker:
    """The queue of topic T holds these."""

    def pull(request: Command) -> Response:
        if request.fields["topic"] == "T" and request.fields["queueOffset"] == "0":
            return pulled(request, 0, len(bodies), list(bodies))
        return Deferred()

    broker.responses[PULL] = pull
    return broker


class Called:
    """A handler that is an object, as a web framework's are."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    async def __call__(self, message: ReceivedMessage) -> None:
        await asyncio.sleep(0)
        self.bodies.append(message.body)


@pytest.mark.parametrize("after_start", [False, True])
def test_a_plain_function_runs_in_a_thread(until: Until, after_start: bool) -> None:
    """A plain function is called once for each message, without a retry, while the loop goes on."""
    seen: list[tuple[bytes, bool]] = []
    both = threading.Barrier(2, timeout=60)

    def handle(message: ReceivedMessage) -> None:
        both.wait()  # two at the same time, while the loop goes on
        seen.append((message.body, threading.current_thread() is threading.main_thread()))

    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            consumer = Consumer("g", [delivering(broker, b"one", b"two").address])
            consumer.subscribe("T")
            if not after_start:
                assert consumer.on_message(handle) is handle
            async with consumer:
                if after_start:
                    consumer.on_message(handle)
                await until(lambda: len(seen) == 2)
            assert broker.requests_of(BACK) == []

    asyncio.run(scenario())
    assert sorted(seen) == [(b"one", False), (b"two", False)]


def test_every_kind_of_coroutine_function_runs_on_the_loop(until: Until) -> None:
    bodies: list[bytes] = []
    threads: set[Any] = set()

    async def note(message: ReceivedMessage, word: str = "") -> None:
        threads.add(threading.current_thread())
        bodies.append(message.body)

    called = Called()

    async def scenario(handler: Any, done: Callable[[], bool]) -> None:
        async with ScriptedBroker() as broker:
            consumer = Consumer("g", [delivering(broker, b"one").address])
            consumer.subscribe("T")
            consumer.on_message(handler)
            async with consumer:
                await until(done)
            assert broker.requests_of(BACK) == []

    for handler in (note, functools.partial(note, word="x"), lambda message: note(message)):
        bodies.clear()
        asyncio.run(scenario(handler, lambda: bodies == [b"one"]))
    asyncio.run(scenario(called, lambda: called.bodies == [b"one"]))
    assert threads == {threading.main_thread()}


@pytest.mark.parametrize("value", [None, Outcome.ACK, True, False, "done"])
def test_returning_acknowledges(until: Until, value: object) -> None:
    seen: list[bytes] = []

    def handle(message: ReceivedMessage) -> object:
        seen.append(message.body)
        return value

    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            consumer = Consumer("g", [delivering(broker, b"one", b"two").address])
            consumer.subscribe("T")
            consumer.on_message(handle)
            async with consumer:
                await until(lambda: len(seen) == 2)
            assert broker.requests_of(BACK) == []

    asyncio.run(scenario())


class Unlucky(Exception):
    pass


def fails(message: ReceivedMessage) -> None:
    raise Unlucky("in a thread")


def stops(message: ReceivedMessage) -> None:
    next(iter(()))


async def fails_on_the_loop(message: ReceivedMessage) -> None:
    raise Unlucky("on the loop")


@pytest.mark.parametrize("handler", [fails, stops, fails_on_the_loop])
def test_an_exception_of_a_handler_is_logged_with_its_traceback(
    until: Until, caplog: pytest.LogCaptureFixture, handler: Any
) -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            consumer = Consumer("g", [delivering(broker, b"one").address])
            consumer.subscribe("T")
            consumer.on_message(handler)
            async with consumer:
                await until(lambda: len(broker.requests_of(BACK)) == 1)

    with caplog.at_level(logging.ERROR):
        asyncio.run(scenario())
    assert "the handler failed on message" in caplog.text
    assert f"in {handler.__name__}" in caplog.text


def test_a_handler_and_an_iterator_do_not_share_messages() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            consumer = Consumer("g", [broker.address])
            consumer.subscribe("T")
            async with consumer:
                consumer.on_message(fails)
                with pytest.raises(ClientError, match="handler"):
                    await consumer.receive()
                with pytest.raises(ClientError, match="handler"):
                    aiter(consumer)
            with pytest.raises(ClientClosed):
                consumer.on_message(fails)

    asyncio.run(scenario())


def test_closing_does_not_wait_for_a_thread_for_ever() -> None:
    blocked, go_on = threading.Event(), threading.Event()

    def handle(message: ReceivedMessage) -> None:
        blocked.set()
        go_on.wait(80)

    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            options = ConsumerOptions(close_timeout_ms=50)
            consumer = Consumer("g", [delivering(broker, b"one").address], options=options)
            consumer.subscribe("T")
            consumer.on_message(handle)
            async with asyncio.timeout(60):
                async with consumer:
                    await asyncio.to_thread(blocked.wait, 60)
            assert not go_on.is_set()

    try:
        asyncio.run(scenario())
    finally:
        go_on.set()


REFUSALS = [
    (ResponseCode.SUBSCRIPTION_PARSE_FAILED, "parse the consumer's subscription failed"),
    (ResponseCode.NO_PERMISSION, "the topic [T] pulling message is forbidden"),
    (ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "subscription group [g] does not exist"),
    (
        ResponseCode.SYSTEM_ERROR,
        "The broker does not support consumer to filter message by SQL92",
    ),
]


@pytest.mark.parametrize(("code", "remark"), REFUSALS)
def test_a_refusal_for_good_is_raised_through_the_iterator(
    monkeypatch: pytest.MonkeyPatch, code: int, remark: str
) -> None:
    monkeypatch.setattr("turbopump.net.client.backoff.REFUSED_MS", 1)

    async def scenario() -> None:
        async with ScriptedBroker(queues=2) as broker:
            broker.responses[PULL] = lambda request: (
                new_response(request, code, remark)
                if request.fields["topic"] == "T"
                else Deferred()
            )
            consumer = Consumer("g", [broker.address])
            consumer.subscribe("T")
            async with asyncio.timeout(60), consumer:
                for _ in range(2):  # raised again at the next question
                    with pytest.raises(BrokerError) as caught:
                        async for _message in consumer:
                            raise AssertionError("no message came")
                    assert (caught.value.code, caught.value.remark) == (code, remark)

    asyncio.run(scenario())


def test_a_refusal_of_one_queue_of_two_or_for_a_moment_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, until: Until
) -> None:
    """An operator takes the right to read from one broker, or a broker is busy."""
    monkeypatch.setattr("turbopump.net.client.backoff.REFUSED_MS", 1)
    state = {"waits": True}

    def pull(request: Command) -> Response:
        if request.fields["topic"] != "T":
            return Deferred()
        if not state["waits"] and request.fields["queueId"] == "1":
            return pulled(request, 0, 1, [b"at last"])
        if request.fields["queueId"] == "0":
            return new_response(request, ResponseCode.NO_PERMISSION, "forbidden")
        return new_response(request, ResponseCode.SYSTEM_BUSY, "busy")

    async def scenario() -> None:
        async with ScriptedBroker(queues=2) as broker:
            broker.responses[PULL] = pull
            consumer = Consumer("g", [broker.address])
            consumer.subscribe("T")
            async with asyncio.timeout(60), consumer:
                receiving = asyncio.ensure_future(consumer.receive())
                await until(lambda: len(broker.requests_of(PULL)) > 8)
                assert not receiving.done()
                state["waits"] = False
                message = await receiving
                assert message is not None and message.body == b"at last"

    asyncio.run(scenario())
