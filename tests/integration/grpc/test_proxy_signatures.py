"""A proxy signs all its requests to name servers and brokers with the credentials of its file."""

import asyncio
import logging
import threading
from collections.abc import Iterator

import pytest
from tests.integration.grpc.test_endpoints import go_round
from tests.integration.grpc.test_messaging import make_topics

from turbopump import ClientOptions, Credentials
from turbopump.net.grpc.server import why_no_grpc
from turbopump.net.transport.connection import Connection
from turbopump.net.transport.options import RemotingOptions
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import Command
from turbopump.net.wire.java_properties import Property
from turbopump.net.wire.signature import ACCESS_KEY, is_signed
from turbopump.proxy.config import ProxyConfig
from turbopump.proxy.node import ProxyNode
from turbopump.testing import RunningCluster, running_cluster

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(why_no_grpc() is not None, reason="libnghttp2 is not installed"),
]
INNER = '{"accessKey": "inner", "secretKey": "s3cret"}'
WANTED = {
    RequestCode.ACK_MESSAGE,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
    RequestCode.GET_BROKER_CLUSTER_INFO,
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG,
    RequestCode.GET_TOPIC_CONFIG,
    RequestCode.HEART_BEAT,
    RequestCode.POP_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.UNREGISTER_CLIENT,
}
"""Codes of requests that the proxy must have sent."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with running_cluster() as running:
        asyncio.run(make_topics(running, {"TInner": "NORMAL"}))
        yield running


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[Command]:
    """Requests that the proxy writes, which runs in this thread; the nodes of the cluster run in
    another."""
    found: list[Command] = []
    send = Connection.send

    def record(connection: Connection, command: Command) -> None:
        is_client = isinstance(connection._hub.options, RemotingOptions)
        if is_client and threading.current_thread() is threading.main_thread():
            found.append(command)
        send(connection, command)

    monkeypatch.setattr(Connection, "send", record)
    return found


def test_every_request_of_a_proxy_is_signed(
    cluster: RunningCluster, written: list[Command], caplog: pytest.LogCaptureFixture
) -> None:
    config = ProxyConfig()
    config.update_keys(
        [
            Property("namesrvAddr", cluster.namesrv),
            Property("bindAddress", "127.0.0.1"),
            Property("grpcServerPort", "0"),
            Property("innerClientAuthenticationCredentials", INNER),
        ]
    )

    async def story() -> None:
        node = ProxyNode(config)
        await node.start()
        try:
            user = ClientOptions(credentials=Credentials("alice", "another"))
            await go_round(node.address, "TInner", user)
        finally:
            await node.stop()

    with caplog.at_level(logging.WARNING, "turbopump.proxy"):
        asyncio.run(story())
    [warned] = [one.getMessage() for one in caplog.records if one.name == "turbopump.proxy.node"]
    assert "does not authenticate its clients" in warned and "the user inner" in warned
    assert "s3cret" not in warned
    assert {int(one.code) for one in written} >= WANTED
    assert {one.fields.get(ACCESS_KEY) for one in written} == {"inner"}
    assert all(is_signed(one, "s3cret") for one in written)
