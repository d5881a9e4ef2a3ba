"""Reactions of a producer to every response of a broker, healthy or not."""

import asyncio

import pytest
from tests.integration.client.scripted import ScriptedBroker, route_of, stored

from turbopump.net.client.errors import BrokerError, RouteNotFound
from turbopump.net.client.messages import Message, SendStatus
from turbopump.net.client.options import ClientOptions, ProducerOptions
from turbopump.net.client.producer import Producer
from turbopump.net.client.shared_client import SharedClient, instance_of
from turbopump.net.transport.errors import CallTimeout
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_response

pytestmark = pytest.mark.integration
SEND = RequestCode.SEND_MESSAGE_V2
MESSAGE = Message("T", b"x")


@pytest.mark.parametrize("code", [1, 2, 14, 16, 17, 204, 205])
def test_send_is_tried_again_after_these_codes(code: int) -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker, Producer("pg", [broker.address]) as producer:
            broker.responses[SEND] = stored
            broker.fail(SEND, code, times=1)
            assert (await producer.send(MESSAGE)).status is SendStatus.SEND_OK
            assert len(broker.requests_of(SEND)) == 2

    asyncio.run(scenario())


@pytest.mark.parametrize("code", [13, 29, 215])
def test_send_is_given_up_after_others(code: int) -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker, Producer("pg", [broker.address]) as producer:
            broker.fail(SEND, code, "because")
            with pytest.raises(BrokerError, match="because") as caught:
                await producer.send(MESSAGE)
            assert (caught.value.code, caught.value.address) == (code, broker.address)
            assert len(broker.requests_of(SEND)) == 1

    asyncio.run(scenario())


def test_tries_are_bounded() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker, Producer("pg", [broker.address]) as producer:
            broker.fail(SEND, ResponseCode.SYSTEM_BUSY)
            with pytest.raises(BrokerError):
                await producer.send(Message("T", b"x"))
            assert len(broker.requests_of(SEND)) == 3
            with pytest.raises(BrokerError):
                await producer.send(Message("T", b"x", sharding_key="k"))
            assert len(broker.requests_of(SEND)) == 4

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (10, SendStatus.FLUSH_DISK_TIMEOUT),
        (11, SendStatus.SLAVE_NOT_AVAILABLE),
        (12, SendStatus.FLUSH_SLAVE_TIMEOUT),
    ],
)
def test_stored_less_safely_is_a_success(code: int, status: SendStatus) -> None:
    async def scenario() -> None:
        def answer(request: Command) -> Command:
            done = stored(request, 41)
            done.code = code
            return done

        async with ScriptedBroker() as broker, Producer("pg", [broker.address]) as producer:
            broker.responses[SEND] = answer
            result = await producer.send(MESSAGE)
            assert (result.status, result.queue_offset) == (status, 41)

    asyncio.run(scenario())


def test_another_broker_is_tried_and_the_failed_one_avoided() -> None:
    async def scenario() -> None:
        async with ScriptedBroker("broker-a") as bad, ScriptedBroker("broker-b") as good:
            bad.routes["T"] = route_of(bad, good)
            bad.fail(SEND, ResponseCode.SYSTEM_BUSY)
            good.responses[SEND] = stored
            async with Producer("pg", [bad.address]) as producer:
                results = [await producer.send(MESSAGE) for _ in range(6)]
            assert {result.queue.broker_name for result in results} == {"broker-b"}
            assert (len(bad.requests_of(SEND)), len(good.requests_of(SEND))) == (1, 6)

    asyncio.run(scenario())


def test_master_that_moved_is_found_by_asking_at_once() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as names, ScriptedBroker() as new:
            old = ScriptedBroker()
            async with old:
                old.responses[SEND] = new.responses[SEND] = stored
                names.routes["T"] = route_of(old)
                async with Producer("pg", [names.address]) as producer:
                    await producer.send(MESSAGE)
                    await old.__aexit__()
                    names.routes["T"] = route_of(new)
                    async with asyncio.timeout(15):  # by its clock it would ask after 30 s
                        await producer.send(MESSAGE)
            assert len(new.requests_of(SEND)) == 1

    asyncio.run(scenario())


def test_silent_broker_is_a_timeout() -> None:
    async def scenario() -> None:
        options = ProducerOptions(timeout_ms=200)
        async with (
            ScriptedBroker() as broker,
            Producer("pg", [broker.address], options=options) as producer,
        ):
            broker.responses[SEND] = lambda request: None
            with pytest.raises(CallTimeout):
                await producer.send(MESSAGE)

    asyncio.run(scenario())


def test_unknown_topic_borrows_the_route_of_the_default_topic() -> None:
    async def scenario() -> None:
        async with ScriptedBroker(queues=8) as broker:

            def route(request: Command) -> Command:
                if request.fields["topic"] == "TBW102":
                    return new_response(request, 0, body=route_of(broker).encode())
                return new_response(request, ResponseCode.TOPIC_NOT_EXIST, "No topic route info")

            broker.responses[RequestCode.GET_ROUTEINFO_BY_TOPIC] = route
            broker.responses[SEND] = stored
            async with Producer("pg", [broker.address]) as producer:
                assert [queue.queue_id for queue in await producer.queues("New")] == [0, 1, 2, 3]
                await producer.send(Message("New", b"x"))
            [request] = broker.requests_of(SEND)
            assert [request.fields[key] for key in "bcd"] == ["New", "TBW102", "4"]

    asyncio.run(scenario())


def test_no_route_at_all_is_said_at_once() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker, Producer("pg", [broker.address]) as producer:
            broker.fail(RequestCode.GET_ROUTEINFO_BY_TOPIC, ResponseCode.TOPIC_NOT_EXIST)
            with pytest.raises(RouteNotFound, match="T"):
                await producer.send(MESSAGE)

    asyncio.run(scenario())


def test_next_name_server_is_asked_when_the_first_is_gone() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            broker.responses[SEND] = stored
            shared = SharedClient(["127.0.0.1:1", broker.address])
            async with Producer("pg", client=shared) as producer:
                await producer.send(MESSAGE)
                assert instance_of(shared).namesrv[0] == broker.address

    asyncio.run(scenario())


def test_waiting_senders_share_one_answer_about_a_route() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker, Producer("pg", broker.address) as producer:
            broker.responses[SEND] = stored
            await asyncio.gather(*(producer.send(MESSAGE) for _ in range(50)))
            assert len(broker.requests_of(RequestCode.GET_ROUTEINFO_BY_TOPIC)) == 1
            broker.responses[RequestCode.GET_ROUTEINFO_BY_TOPIC] = lambda request: None
            options = ProducerOptions(timeout_ms=10_000)
            patience = ClientOptions(timeout_ms=300)
            other = Producer("pg", broker.address, options=options, client_options=patience)
            async with other, asyncio.timeout(10):  # one by one: 15 s
                failures = await asyncio.gather(
                    *(other.queues("U") for _ in range(50)), return_exceptions=True
                )
            assert {type(failure) for failure in failures} == {CallTimeout}

    asyncio.run(scenario())


def test_producer_is_announced_and_leaves() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            broker.responses[SEND] = stored
            options = ClientOptions(heartbeat_ms=20, instance_name="me")
            async with Producer("pg", [broker.address], client_options=options) as producer:
                await producer.send(MESSAGE)
                async with asyncio.timeout(60):
                    while not broker.client_ids:
                        await asyncio.sleep(0.01)
            assert broker.client_ids == ["127.0.0.1@me"]
            [leaving] = broker.requests_of(RequestCode.UNREGISTER_CLIENT)
            assert leaving.fields == {"clientID": "127.0.0.1@me", "producerGroup": "pg"}

    asyncio.run(scenario())
