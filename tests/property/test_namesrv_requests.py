"""Whatever arrives at a name server is answered with a code; no handler trips over it."""

import logging
import zlib
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.disk_parts import saved_at_once
from tests.unit.links import NoLink
from tests.unit.namesrv.test_handlers import CODES

from turbopump.engine.deferred import Deferred
from turbopump.namesrv import handlers
from turbopump.namesrv.config import NamesrvConfig
from turbopump.namesrv.handlers import NameServer
from turbopump.namesrv.key_values import KeyValues
from turbopump.namesrv.routes import RouteTable
from turbopump.net.transport.dispatcher import Dispatcher
from turbopump.net.transport.peer import Peer
from turbopump.net.wire.bodies import run_to_result
from turbopump.net.wire.command import Command, new_request
from turbopump.net.wire.registration.register import RegisterBrokerBody
from turbopump.net.wire.topics import DataVersion, TopicConfig, TopicConfigs

KEYS = [
    "topic", "brokerName", "brokerAddr", "clusterName", "brokerId", "haServerAddr", "namespace",
    "key", "value", "heartbeatTimeoutMillis", "enableActingMaster", "compressed", "bodyCrc32",
    "cluster", "acceptStandardJsonOnly", "__ZONE_NAME", "__ZONE_MODE",
]  # fmt: skip
VALUES = st.sampled_from(["", "0", "1", "-1", "true", "T", "a", "9" * 30]) | st.text(max_size=20)
GOOD = RegisterBrokerBody(
    TopicConfigs(DataVersion(1, 2, 3), {name: TopicConfig(name) for name in ("T", "U")})
)
BODIES = st.sampled_from([b"", GOOD.encode(), GOOD.encode(compressed=True), b"a=1\nlistenPort=2"])


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A good body cut, changed, or compressed again; or anything."""
    body = draw(BODIES | st.binary(max_size=60))
    body = body[: draw(st.integers(0, len(body)))] if draw(st.booleans()) else body
    if body and draw(st.booleans()):
        at = draw(st.integers(0, len(body) - 1))
        body = body[:at] + bytes([draw(st.integers(0, 255))]) + body[at + 1 :]
    return zlib.compress(body) if draw(st.booleans()) else body


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    requests=st.lists(
        st.tuples(
            st.sampled_from(CODES),
            st.dictionaries(st.sampled_from(KEYS), VALUES),
            damaged(),
            st.sampled_from([0, 36, 37, 400, 412, 513, 2**31 - 1]),
        ),
        max_size=6,
    )
)
def test_every_request_is_answered(
    requests: list[tuple[int, dict[str, str], bytes, int]], caplog: pytest.LogCaptureFixture
) -> None:
    server = NameServer(
        NamesrvConfig(),
        RouteTable(),
        KeyValues(saved_at_once),
        0,
        lambda notice: None,
        saved_at_once,
    )
    dispatcher = Dispatcher()
    handlers.register(dispatcher, server)
    peer = Peer("192.0.2.1:1", b"", NoLink())
    caplog.set_level(logging.ERROR)
    for code, fields, body, version in requests:
        request = new_request(code, body=body, fields=fields)
        request.version = version
        response = dispatcher.dispatch(request, peer, 1_000)
        if isinstance(response, Generator):
            response = run_to_result(response)
        if isinstance(response, Deferred):
            response = response.value
        assert isinstance(response, Command)
        assert response.code in (0, 1, 16, 17, 22)
    assert [record for record in caplog.records if record.exc_info] == []
    server.routes.unregister_silent(2**70)
    peer.lost()
    assert server.routes.cluster_info().broker_addr_table == {}
