"""A broker with authentication on real sockets: every port and every way of a request is closed."""

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop
from interop.support.ports import BROKER, BROKER_AND_HA, free_port
from tests.integration.broker.conftest import serving

from turbopump.net.transport.client import Client
from turbopump.net.wire.command import Command, new_request
from turbopump.net.wire.headers.send import SendMessageRequestV2
from turbopump.net.wire.message import decode_messages
from turbopump.net.wire.signature import sign_request

pytestmark = pytest.mark.integration

SECURED = (
    "authenticationEnabled=true\nauthorizationEnabled=true\n"
    'initAuthenticationUser={"username":"root","password":"secret"}\n'
)
HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def send(signed: bool, *, oneway: bool = False) -> Command:
    """A send that the native lane would serve."""
    header = SendMessageRequestV2("PG", "T", "TBW102", 4, 0, 0, 1, 0, properties="")
    request = new_request(310, header, b"hello", oneway=oneway)
    if signed:
        sign_request(request, "root", "secret")
    return request


def pull(signed: bool) -> Command:
    """A pull that the native lane would serve."""
    fields = {
        "consumerGroup": "G", "topic": "T", "queueId": "0", "queueOffset": "0",
        "maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0",
        "subVersion": "0", "subscription": "*",
    }  # fmt: skip
    request = Command(11, fields=fields)
    if signed:
        sign_request(request, "root", "secret")
    return request


def test_the_native_lane_serves_no_unsigned_request(serve: Callable[..., Any]) -> None:
    """Signed requests have made the lane know the topic, and a group that pulls it."""
    port = free_port(BROKER)

    async def run() -> None:
        async with serve(f"{SECURED}listenPort={port}\n") as (node, caller):
            vip = f"127.0.0.1:{port - 2}"
            for _ in range(3):
                assert (await caller.client.call(node.address, send(True), 5_000)).code == 0
                found = await caller.client.call(node.address, pull(True), 5_000)
                assert found.code == 0
            for address in (node.address, vip):
                for client in (caller.client, Client(lambda: 0)):
                    refused = await client.call(address, send(False), 5_000)
                    assert (refused.code, refused.remark) == (16, "username cannot be null.")
                    assert (await client.call(address, pull(False), 5_000)).code == 16
                    await client.notify(address, send(False, oneway=True))
                    if client is not caller.client:
                        await client.close()
            found = await caller.client.call(node.address, pull(True), 5_000)
            assert isinstance(found.body, bytes)
            assert len(list(decode_messages(found.body))) == 3

    uvloop.run(run())


def test_a_replica_signs_its_requests(tmp_path: Path) -> None:
    """A replica copies tables and users; with another inner secret it copies none."""
    port = free_port(BROKER_AND_HA)

    def is_slave(number: int, secret: str) -> str:
        inner = f'{{"accessKey":"inner","secretKey":"{secret}"}}'
        return (
            f"{SECURED}innerClientAuthenticationCredentials={inner}\nbrokerName=b\n"
            f"brokerRole=SLAVE\nbrokerId={number}\nhaMasterAddress=127.0.0.1:{port + 1}\n"
        )

    master_is = (
        f'{SECURED}innerClientAuthenticationCredentials={{"accessKey":"inner","secretKey":"one"}}\n'
        f"brokerName=b\nlistenPort={port}\nhaListenPort={port + 1}\n"
    )

    async def run() -> None:
        async with (
            serving(tmp_path / "a", master_is) as (master, caller),
            serving(tmp_path / "b", is_slave(1, "one")) as (slave, _),
            serving(tmp_path / "c", is_slave(2, "other")) as (forged, _),
        ):
            assert (await caller.client.call(master.address, send(True), 5_000)).code == 0
            async with asyncio.timeout(30):
                while slave.context.topics.get("T") is None:
                    await asyncio.sleep(0.02)
                replicating = forged._replicating
                assert replicating is not None
                while "check signature failed" not in replicating.metadata.error:
                    await asyncio.sleep(0.02)
                user = {"username": "ann"}, b'{"password":"hers"}'
                request = new_request(3001, fields=user[0], body=user[1])
                sign_request(request, "root", "secret")
                assert (await caller.client.call(master.address, request, 5_000)).code == 0
                users = slave.context.users
                assert users is not None
                while users.user("ann") is None:
                    await asyncio.sleep(0.02)
            assert forged.context.topics.get("T") is None
            assert forged.context.users is not None and forged.context.users.user("ann") is None

    uvloop.run(run())


def test_grpc_is_off(serve: Callable[..., Any]) -> None:
    async def run() -> None:
        async with serve(SECURED) as (node, _):
            host, port = node.address.split(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(HTTP2)
            assert await asyncio.wait_for(reader.read(100), 10) == b""
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
            assert node.grpc_address == ""

    uvloop.run(run())


def test_a_peer_that_guesses_keeps_its_connection(serve: Callable[..., Any]) -> None:
    async def run() -> None:
        async with serve(SECURED) as (node, caller):
            for number in range(50):
                request = send(False)
                sign_request(request, "root", f"guess {number}")
                response = await caller.client.call(node.address, request, 5_000)
                assert response.code == 16
            assert (await caller.client.call(node.address, send(True), 5_000)).code == 0

    uvloop.run(run())
