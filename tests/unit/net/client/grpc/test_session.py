"""Start and close of the clients by gRPC: cancelled at any wait, at the same time, in two loops."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.net.client.cluster import START_MS, options, play
from tests.unit.net.client.grpc.scripted import ScriptedServer

from turbopump.net.client.consuming.simple_consumer import SimpleConsumer
from turbopump.net.client.credentials import Credentials
from turbopump.net.client.errors import BrokerError, ClientClosed, ClientError, InvalidArgument
from turbopump.net.client.producer import Producer
from turbopump.net.grpc.codes import Code
from turbopump.net.grpc.messages import message_class
from turbopump.net.grpc.signature import signed_metadata

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


SIGNED = {b"authorization", b"x-mq-date-time"}


def test_every_call_and_the_stream_are_signed_at_their_time(server: ScriptedServer) -> None:
    alice = options(credentials=Credentials("alice", "s3cret"))

    async def story() -> None:
        async with SimpleConsumer("G", endpoints=ENDPOINTS, client_options=alice) as consumer:
            consumer.subscribe("T")
            await asyncio.sleep(25)

    play(story())
    names = [name for name, _ in server.metadata]
    assert names == ["Telemetry", "Heartbeat", "Heartbeat", "NotifyClientTermination"]
    for (_, sent), elapsed_ms in zip(server.metadata, (0, 10_000, 20_000, 25_000), strict=True):
        wanted = dict(signed_metadata("alice", "s3cret", START_MS + elapsed_ms))
        assert {name: sent[name] for name in SIGNED} == wanted


def test_without_credentials_no_metadata_is_added(server: ScriptedServer) -> None:
    async def story() -> None:
        async with Producer(endpoints=ENDPOINTS, client_options=options()):
            await asyncio.sleep(10)

    play(story())
    assert len(server.metadata) == 3
    for _, sent in server.metadata:
        assert set(sent) == {
            b"x-mq-client-id",
            b"x-mq-language",
            b"x-mq-client-version",
            b"x-mq-protocol",
        }


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (Credentials("a/b", "s3cret"), "cannot send the access key 'a/b'"),
        (Credentials("a\nb", "s3cret"), "cannot send the access key"),
        (Credentials("\u00fc", "s3cret"), "cannot send the access key"),
        (Credentials("alice", "s3cret", "t\n"), "cannot send a token"),
    ],
)
def test_credentials_that_metadata_cannot_hold(given: Credentials, reason: str) -> None:
    with pytest.raises(InvalidArgument, match=reason):
        Producer(endpoints=ENDPOINTS, client_options=options(credentials=given))


def test_a_refusal_of_the_client_is_a_status_alone(server: ScriptedServer) -> None:
    """RocketMQ's proxy sends it before it ends the stream."""
    status = {"code": Code.UNAUTHORIZED, "message": "check signature failed."}
    server.refusal = message_class("TelemetryCommand")(status=status).SerializeToString()

    async def story() -> None:
        made = Producer(endpoints=ENDPOINTS, client_options=options())
        with pytest.raises(BrokerError, match="40100: check signature failed") as caught:
            await made.start()
        assert caught.value.code == Code.UNAUTHORIZED
        await nothing_is_left(server)

    play(story())
