"""The start of connections to a gRPC port: handshakes take turns, and each has a timeout."""

import asyncio
import ssl
from collections.abc import Callable
from typing import Any, cast

import pytest
from tests.unit.net.grpc.conftest import Bench, Wire, hear
from tests.wire.h2_frames import BEGIN, call

from turbopump.engine.deferred import Deferred
from turbopump.net.grpc.connection import GrpcConnection
from turbopump.net.grpc.opening import GrpcOpening
from turbopump.net.transport.fair_scheduler import HANDSHAKE_REQUESTS, REQUESTS_PER_TURN
from turbopump.net.transport.options import TlsSettings
from turbopump.net.transport.server_tls import ServerTls
from turbopump.net.transport.tls import TlsError, server_context

Make = Callable[..., Bench]
AT_ONCE = REQUESTS_PER_TURN // HANDSHAKE_REQUESTS


class Openings:
    """Peers of a port whose TLS context is ready when the test sets it."""

    def __init__(self, made: Bench) -> None:
        self.made = made
        self.tls = ServerTls(TlsSettings(), ["h2"])
        self.context: ssl.SSLContext | Deferred[ssl.SSLContext | TlsError] = server_context(
            TlsSettings()
        )
        self.tls.context = lambda hello: self.context if hello else None  # type: ignore[method-assign]

    def connect(self) -> tuple[GrpcOpening, Wire]:
        one = GrpcOpening(self.made.hub, self.tls)
        wire = Wire(cast(GrpcConnection, one))
        one.connection_made(cast(asyncio.Transport, wire))
        return one, wire


class Peer:
    """The client's half of a handshake."""

    def __init__(self) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_alpn_protocols(["h2"])
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.session = context.wrap_bio(self.incoming, self.outgoing)

    def exchange(self, heard: bytes = b"") -> bytes:
        self.incoming.write(heard)
        try:
            self.session.do_handshake()
        except ssl.SSLWantReadError:
            pass
        return self.outgoing.read()


@pytest.fixture
def openings(bench: Make) -> Openings:
    return Openings(bench())


def test_handshakes_take_turns(openings: Openings) -> None:
    ports = [openings.connect() for _ in range(3 * AT_ONCE)]
    for one, _ in ports:
        hear(cast(GrpcConnection, one), Peer().exchange())
    answered = [sum(1 for _, wire in ports if wire.out)]
    for _ in range(3):
        # A waiting peer is not read, because it could send more than the server processes.
        assert all(bool(wire.out) == wire.reads for _, wire in ports)
        openings.made.loop.run()
        answered.append(sum(1 for _, wire in ports if wire.out))
    assert answered == [AT_ONCE, 2 * AT_ONCE, 3 * AT_ONCE, 3 * AT_ONCE]


def test_a_peer_becomes_a_connection_behind_its_handshake(openings: Openings) -> None:
    peer = Peer()
    one, wire = openings.connect()
    hear(cast(GrpcConnection, one), peer.exchange())
    heard, wire.out = wire.out, b""
    last = peer.exchange(heard)
    peer.session.write(BEGIN + call(1, b"x"))
    hear(cast(GrpcConnection, one), last + peer.outgoing.read())
    (connection,) = openings.made.hub.connections
    assert connection is wire.connection and isinstance(connection, GrpcConnection)
    peer.incoming.write(wire.out)
    found = b""
    with pytest.raises(ssl.SSLWantReadError):
        while True:
            found += peer.session.read(65_536)
    assert b"\0\0\0\0\x01x" in found
    one.connection_lost(None)
    connection.connection_lost(None)
    assert not openings.made.hub.connections


@pytest.mark.parametrize("fails", [False, True])
def test_nothing_is_read_until_there_is_a_certificate(openings: Openings, fails: bool) -> None:
    given, openings.context = openings.context, Deferred()
    one, wire = openings.connect()
    gone, other = openings.connect()
    for each in (one, gone):
        hear(cast(GrpcConnection, each), Peer().exchange())
    assert (wire.reads, wire.out, other.reads) == (False, b"", False)
    gone.connection_lost(None)
    openings.context.resolve(TlsError("none today") if fails else cast(ssl.SSLContext, given))
    assert wire.out == b""
    openings.made.loop.run()
    assert (bool(wire.out), wire.closed) == ((False, "close") if fails else (True, ""))
    assert other.out == b""


def test_a_broken_handshake_is_answered_by_an_alert(openings: Openings) -> None:
    one, wire = openings.connect()
    hear(cast(GrpcConnection, one), b"\x16\x03\x01\x00\x05hello")
    assert (wire.out[:1], wire.closed) == (b"\x15", "close")


@pytest.mark.parametrize("first", [b"", b"\x16\x03\x01\x02\x00\x01"])
def test_a_peer_that_does_not_begin_in_time_is_cut(openings: Openings, first: bytes) -> None:
    openings.made.hub.start_sweeping()
    one, wire = openings.connect()
    if first:
        hear(cast(GrpcConnection, one), first)
    openings.made.loop.wait(29)
    assert wire.closed == ""
    openings.made.loop.wait(3)
    assert wire.closed == "abort"


@pytest.mark.parametrize("end", ["go_away", "close"])
def test_a_stop_leaves_no_one_half_open(openings: Openings, end: str) -> None:
    one, wire = openings.connect()
    cast(Any, one).__getattribute__(end)()
    assert wire.closed == "abort"
