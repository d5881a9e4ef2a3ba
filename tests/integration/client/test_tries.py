"""Number, duration and queues of a producer's tries to send one message."""

import asyncio
import logging
from collections.abc import Sequence

import pytest
from tests.integration.client.scripted import ScriptedBroker, route_of, stored

from turbopump.net.client.errors import BrokerError
from turbopump.net.client.messages import Message
from turbopump.net.client.options import ProducerOptions
from turbopump.net.client.producer import Producer
from turbopump.net.transport.errors import CallTimeout, ConnectError
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command
from turbopump.net.wire.queues import MessageQueue

pytestmark = pytest.mark.integration

SEND = RequestCode.SEND_MESSAGE_V2
KEYED = Message("T", b"x", sharding_key="k")
QUEUE_ID = "e"


def test_a_fixed_queue_is_tried_once_unless_told_otherwise() -> None:
    async def scenario() -> None:
        async with ScriptedBroker(queues=8) as broker:
            broker.responses[SEND] = stored
            broker.fail(SEND, ResponseCode.SERVICE_NOT_AVAILABLE, times=4)
            async with Producer("pg", [broker.address]) as producer:
                with pytest.raises(BrokerError):
                    await producer.send(KEYED)
            assert len(broker.requests_of(SEND)) == 1
            options = ProducerOptions(timeout_ms=20_000, retries_to_queue=3)
            async with Producer("pg", [broker.address], options=options) as producer:
                await producer.send(KEYED)
            sent = broker.requests_of(SEND)
            assert len(sent) == 5
            # The same message by its content, and the same queue each time.
            assert len({request.fields["i"] for request in sent[1:]}) == 1
            assert len({request.fields[QUEUE_ID] for request in sent}) == 1

    asyncio.run(scenario())


def test_a_chosen_queue_stays_although_the_route_changes() -> None:
    async def scenario() -> None:
        async with ScriptedBroker(queues=8) as broker:
            broker.responses[SEND] = stored
            broker.fail(SEND, ResponseCode.SERVICE_NOT_AVAILABLE, times=2)
            chosen: list[int] = []

            def last(queues: Sequence[MessageQueue]) -> MessageQueue:
                chosen.append(len(queues))
                broker.queues = 4
                return queues[-1]

            options = ProducerOptions(timeout_ms=20_000, retries_to_queue=3)
            async with Producer("pg", [broker.address], options=options) as producer:
                await producer.send(Message("T", b"x"), choose=last)
            assert chosen == [8]
            assert [request.fields[QUEUE_ID] for request in broker.requests_of(SEND)] == ["7"] * 3

    asyncio.run(scenario())


def test_a_broker_that_hangs_costs_one_try() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as names, ScriptedBroker() as hangs, ScriptedBroker() as new:
            new.responses[SEND] = stored

            def hang(request: Command) -> None:
                names.routes["T"] = route_of(new)

            hangs.responses[SEND] = hang
            names.routes["T"] = route_of(hangs)
            options = ProducerOptions(timeout_ms=60_000, try_timeout_ms=200)
            async with (
                asyncio.timeout(50),  # a try with no end of its own: 60 s
                Producer("pg", [names.address], options=options) as producer,
            ):
                await producer.send(Message("T", b"x"))
            assert [len(one.requests_of(SEND)) for one in (hangs, new)] == [1, 1]
            options = ProducerOptions(timeout_ms=400)
            names.routes["T"] = route_of(hangs)
            async with Producer("pg", [names.address], options=options) as producer:
                with pytest.raises(CallTimeout):
                    await producer.send(Message("T", b"x"))

    asyncio.run(scenario())


def test_a_fixed_queue_of_a_dead_broker_is_not_tried_in_a_hot_loop(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The living broker of the route does not cause immediate retries at the fixed queue of the
    dead one.
    """

    async def scenario() -> None:
        async with ScriptedBroker("broker-b") as living:
            dead = ScriptedBroker("broker-a")
            async with dead:
                pass
            living.routes["T"] = route_of(dead, living)
            options = ProducerOptions(timeout_ms=1_000)
            async with Producer("pg", [living.address], options=options) as producer:
                with pytest.raises(ConnectError):
                    await producer.send(Message("T", b"x"), queue=MessageQueue("T", "broker-a", 0))
            assert living.requests_of(SEND) == []

    with caplog.at_level(logging.INFO, "turbopump.net.client.remoting_producer"):
        asyncio.run(scenario())
    tries = [line for line in caplog.messages if line.startswith("try ")]
    assert 0 < len(tries) <= 5
