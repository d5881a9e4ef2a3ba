"""Choice among several name servers, and the change to the next one."""

import asyncio

import pytest
from tests.integration.client.scripted import ScriptedBroker, route_of

from turbopump.engine.deferred import Deferred
from turbopump.net.client.client_instance import ClientInstance
from turbopump.net.client.errors import BrokerError
from turbopump.net.client.options import ClientOptions
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_response

pytestmark = pytest.mark.integration

ROUTE = RequestCode.GET_ROUTEINFO_BY_TOPIC


def test_the_next_name_server_is_asked_while_one_is_silent() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as silent, ScriptedBroker() as other:
            silent.responses[ROUTE] = lambda request: None
            instance = ClientInstance(
                [silent.address, other.address], ClientOptions(timeout_ms=60_000)
            )
            await instance.acquire()
            async with asyncio.timeout(60):
                for topic in ("A", "B"):
                    route = await instance.route(topic)
                    assert route is not None
                    assert route.publish
            # The silent name server is no longer the first.
            assert [len(one.requests_of(ROUTE)) for one in (silent, other)] == [1, 2]
            await instance.release()
            assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(scenario())


def test_a_slow_name_server_is_waited_for_beside_the_next() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as slow, ScriptedBroker() as silent:
            late: Deferred[Command | None] = Deferred()

            def release(request: Command) -> None:
                (first,) = slow.requests_of(ROUTE)
                late.resolve(new_response(first, 0, body=route_of(silent).encode()))

            slow.responses[ROUTE] = lambda request: late
            silent.responses[ROUTE] = release
            instance = ClientInstance(
                [slow.address, silent.address], ClientOptions(timeout_ms=60_000)
            )
            await instance.acquire()
            async with asyncio.timeout(60):
                assert await instance.route("T") is not None
            await instance.release()

    asyncio.run(scenario())


def test_a_name_server_that_refuses_a_request_is_not_asked_past() -> None:
    """An answer is one, whatever its code: the next could only repeat it."""

    async def scenario() -> None:
        async with ScriptedBroker() as first, ScriptedBroker() as second:
            first.fail(ROUTE, ResponseCode.SYSTEM_ERROR)
            instance = ClientInstance([first.address, second.address])
            await instance.acquire()
            with pytest.raises(BrokerError):
                await instance.route("T")
            assert second.requests == []
            await instance.release()

    asyncio.run(scenario())
