"""Start and close of the clients by gRPC: cancelled at any wait, at the same time, in two loops."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.net.client.cluster import options, play
from tests.unit.net.client.grpc.scripted import ScriptedServer

from turbopump.net.client.consuming.simple_consumer import SimpleConsumer
from turbopump.net.client.errors import ClientClosed, ClientError
from turbopump.net.client.producer import Producer

ENDPOINTS = "127.0.0.1:8081"
TURNS_MAX = 60
"""Turns of the loop after which a start has ended or waits for a silent server."""
MADE: dict[str, Callable[[], Any]] = {
    "Producer": lambda: Producer(endpoints=ENDPOINTS, client_options=options()),
    "SimpleConsumer": lambda: SimpleConsumer("G", endpoints=ENDPOINTS, client_options=options()),
}


async def nothing_is_left(server: ScriptedServer) -> None:
    """Asserts that no task, channel or heartbeat is left of any client."""
    assert asyncio.all_tasks() == {asyncio.current_task()} and server.open == 0
    sent = len(server.calls)
    await asyncio.sleep(100)
    assert len(server.calls) == sent


@pytest.mark.parametrize("is_silent", [False, True])
@pytest.mark.parametrize("kind", MADE)
def test_a_start_cancelled_at_any_wait_leaves_nothing(
    server: ScriptedServer, kind: str, is_silent: bool
) -> None:
    async def is_ended(turns: int) -> bool:
        server.is_silent = is_silent
        made = MADE[kind]()
        starting = asyncio.create_task(made.start())
        for _ in range(turns):
            await asyncio.sleep(0)
        is_ended = starting.done()
        starting.cancel()
        await asyncio.wait({starting})
        if is_ended:
            await made.close()
        await nothing_is_left(server)
        server.is_silent = False
        async with made:
            await asyncio.sleep(10)
        assert [name for name, _ in server.calls[-2:]] == ["Heartbeat", "NotifyClientTermination"]
        await nothing_is_left(server)
        return is_ended

    async def story() -> None:
        turns = 0
        while not await is_ended(turns):
            turns += 1
            if is_silent and turns == TURNS_MAX:
                return
            assert turns < TURNS_MAX
        assert not is_silent

    play(story())


@pytest.mark.parametrize("kind", MADE)
def test_a_close_during_a_start_ends_it(server: ScriptedServer, kind: str) -> None:
    server.is_silent = True

    async def story() -> None:
        made = MADE[kind]()
        starting = asyncio.create_task(made.start())
        await asyncio.sleep(1)
        with pytest.raises(ClientError, match="started already"):
            await made.start()
        await asyncio.gather(made.close(), made.close())
        with pytest.raises(ClientClosed, match="closed while it started"):
            await starting
        await nothing_is_left(server)

    play(story())


@pytest.mark.parametrize("kind", MADE)
def test_a_client_serves_one_loop_after_the_other(server: ScriptedServer, kind: str) -> None:
    made = MADE[kind]()

    async def contended() -> None:
        async with made:
            await asyncio.gather(*(made._transport._session.send_settings() for _ in range(3)))

    for _ in range(2):
        asyncio.run(contended())
    assert server.open == 0


@pytest.mark.parametrize("does_close", [False, True])
@pytest.mark.parametrize("kind", MADE)
def test_a_loop_that_was_closed_before_the_client(
    server: ScriptedServer, kind: str, does_close: bool
) -> None:
    made = MADE[kind]()
    play(made.start())

    async def story() -> None:
        server.open = 0  # the channel of the first loop ended with it
        if does_close:
            await made.close()
        async with made:
            assert server.open == 1
        await nothing_is_left(server)

    play(story())
