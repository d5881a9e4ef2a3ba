"""A wall clock that is set while clients work: waits and leases do not notice."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest
from tests.integration.client.scripted import ScriptedBroker, pulled, stored

from turbopump.net.client.consuming.consumer import Consumer
from turbopump.net.client.messages import Message, ReceivedMessage
from turbopump.net.client.options import ClientOptions, ConsumerOptions, Outcome
from turbopump.net.client.producer import Producer
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_response

pytestmark = pytest.mark.integration

Until = Callable[..., Awaitable[None]]
HOUR_MS = 3_600_000


class WallClock:
    """Clock in epoch milliseconds, wrong by the test's amount."""

    def __init__(self) -> None:
        self.wrong_by_ms = 0

    def __call__(self) -> int:
        return time.time_ns() // 1_000_000 + self.wrong_by_ms


@pytest.mark.parametrize("by_ms", [HOUR_MS, -HOUR_MS])
def test_a_send_has_the_time_it_was_given(by_ms: int) -> None:
    async def scenario() -> None:
        clock = WallClock()

        def once_busy(request: Command) -> Command:
            if len(broker.requests_of(RequestCode.SEND_MESSAGE_V2)) > 1:
                return stored(request)
            clock.wrong_by_ms = by_ms
            return new_response(request, ResponseCode.SERVICE_NOT_AVAILABLE)

        async with ScriptedBroker() as broker:
            broker.responses[RequestCode.SEND_MESSAGE_V2] = once_busy
            options = ClientOptions(now_ms=clock)
            async with Producer("pg", [broker.address], client_options=options) as producer:
                await producer.send(Message("T", b"x"))
                assert len(broker.requests_of(RequestCode.SEND_MESSAGE_V2)) == 2

    asyncio.run(scenario())


@pytest.mark.parametrize("by_ms", [HOUR_MS, -HOUR_MS])
def test_an_ordered_queue_pauses_and_keeps_its_lock_as_long_as_before(
    until: Until, by_ms: int
) -> None:
    async def scenario() -> None:
        clock = WallClock()
        seen: list[str] = []

        async def handle(message: ReceivedMessage) -> Outcome:
            seen.append(message.text)
            # While the queue pauses.
            asyncio.get_running_loop().call_later(0.02, setattr, clock, "wrong_by_ms", by_ms)
            return Outcome.RETRY if len(seen) < 3 else Outcome.ACK

        def lock(request: Command) -> Command:
            assert isinstance(request.body, bytes)
            queues = request.body[request.body.index(b'"mqSet":') + 8 : -1]
            return new_response(request, 0, body=b'{"lockOKMQSet":' + queues + b"}")

        async with ScriptedBroker() as broker:
            hold = broker.responses[RequestCode.PULL_MESSAGE]
            responses = [lambda request: pulled(request, 0, 2, [b"a", b"b"])]
            broker.responses[RequestCode.PULL_MESSAGE] = lambda request: (
                responses.pop()(request)
                if responses and request.fields["topic"] == "T"
                else hold(request)
            )
            broker.responses[RequestCode.LOCK_BATCH_MQ] = lock
            consumer = Consumer(
                "g",
                [broker.address],
                options=ConsumerOptions(ordered=True, suspend_ms=100),
                client_options=ClientOptions(now_ms=clock),
            )
            consumer.subscribe("T")
            consumer.on_message(handle)
            await consumer.start()
            await until(lambda: seen == ["a", "a", "a", "b"])
            await consumer.close()

    asyncio.run(scenario())
