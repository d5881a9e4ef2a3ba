"""A single port for plain and TLS, gRPC and remoting, distinguished by the first bytes."""

import asyncio
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from tests.integration.grpc.conftest import WAYS, Served, until
from tests.wire.h2_frames import BEGIN, PREFACE

from turbopump.net.grpc.server import GrpcServer
from turbopump.net.transport.client import Client
from turbopump.net.transport.options import (
    ClientTlsSettings,
    RemotingOptions,
    TlsMode,
    TlsSettings,
)
from turbopump.net.wire.codes import ResponseCode
from turbopump.net.wire.command import new_request

pytestmark = pytest.mark.integration

Serve = Callable[..., Served]
UNKNOWN = 9_999


def trusting_all(*protocols: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if protocols:
        context.set_alpn_protocols(protocols)
    return context


@contextmanager
def talk(served: Served, way: str = "", *protocols: str) -> Iterator[socket.socket]:
    """A socket whose reads wait at most ten seconds."""
    with socket.create_connection(("127.0.0.1", served.port), 10) as plain:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if "secure" not in way:
            yield plain
        else:
            with trusting_all(*protocols).wrap_socket(plain) as secure:
                yield secure


def is_closed(one: socket.socket) -> bool:
    """Whether the other side closes the connection without a byte."""
    try:
        return one.recv(1) == b""
    except (ConnectionResetError, ssl.SSLError):
        return True


def served_by_remoting(served: Served, secure: bool) -> int:
    """The code of an answer of remoting."""

    async def ask() -> int:
        tls = ClientTlsSettings() if secure else None
        client = Client(lambda: 0, options=RemotingOptions(tls=tls))
        try:
            address = f"127.0.0.1:{served.port}"
            return (await client.call(address, new_request(UNKNOWN), 5_000)).code
        finally:
            await client.close()

    return asyncio.run(ask())


def test_both_protocols_plain_and_by_tls_share_a_port(serve: Serve) -> None:
    served = serve("handed")
    for secure in (False, True):
        channel = served.connect(secure)
        for _ in range(2):
            assert channel.unary_unary("/S/Echo")(b"x", timeout=10) == b"x"
            code = served_by_remoting(served, secure)
            assert code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        until(lambda: not served.remoting.peers)
        assert served.server.open == 1
        channel.close()
        until(lambda: served.server.open == 0)


@pytest.mark.parametrize("way", WAYS)
def test_first_bytes_may_come_one_by_one(serve: Serve, way: str) -> None:
    served = serve(way)
    with talk(served, way, "h2") as one:
        for byte in BEGIN:
            one.sendall(bytes([byte]))
        assert one.recv(9)[3] == 4  # SETTINGS
        assert served.server.open == 1
    until(lambda: served.server.open == 0)


@pytest.mark.parametrize("way", ["secure", "handed, secure"])
def test_a_hello_in_pieces_and_much_behind_the_handshake(serve: Serve, way: str) -> None:
    served = serve(way)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    session = trusting_all("h2").wrap_bio(incoming, outgoing)
    with talk(served) as one:
        while True:
            try:
                session.do_handshake()
                break
            except ssl.SSLWantReadError:
                for byte in outgoing.read():
                    one.sendall(bytes([byte]))
                incoming.write(one.recv(65_536))
        # The end of the handshake and the first frames are one segment.
        session.write(BEGIN)
        one.sendall(outgoing.read())
        assert session.selected_alpn_protocol() == "h2"
        incoming.write(one.recv(65_536))
        while True:
            try:
                got = session.read(9)
                break
            except ssl.SSLWantReadError:
                incoming.write(one.recv(65_536))
        assert got[3] == 4


@pytest.mark.parametrize("way", WAYS)
def test_the_mode_refuses_plain_or_tls_peers(serve: Serve, way: str) -> None:
    secure = "secure" in way
    mode = TlsMode.DISABLED if secure else TlsMode.ENFORCING
    served = serve(way.replace("secure", ""), TlsSettings(mode=mode))
    with talk(served) as one:
        one.sendall(b"\x16\x03\x01\x00\x05hello" if secure else BEGIN)
        assert is_closed(one)
    other = served.connect(not secure)
    assert other.unary_unary("/S/Echo")(b"x", timeout=10) == b"x"
    other.close()


@pytest.mark.parametrize("way", ["", "handed"])
def test_connections_that_only_begin_like_tls_or_http2_are_closed(serve: Serve, way: str) -> None:
    served = serve(way)
    for first in (b"\x16" + bytes(600), b"PROXY TCP4 1.1.1.1 2.2.2.2 1 2\r\n" * 2, b"\x50" * 100):
        with talk(served) as one:
            one.sendall(first)
            for _ in range(100):
                if is_closed(one):  # SETTINGS may have been sent before
                    break
    until(lambda: served.server.open == 0)
    assert not served.remoting.peers


def test_remoting_with_tls_agrees_on_no_other_protocol(serve: Serve) -> None:
    served = serve("handed")
    with talk(served, "secure", "http/1.1") as one:
        assert isinstance(one, ssl.SSLSocket)
        assert one.selected_alpn_protocol() is None
        one.sendall(PREFACE)
        assert is_closed(one)
    assert served.server.open == 0


def test_a_stopped_server_is_handed_nothing(serve: Serve) -> None:
    served = serve("handed")
    served.run(served.server.stop())
    with talk(served) as one:
        one.sendall(BEGIN)
        assert is_closed(one)
    assert served_by_remoting(served, False) == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


@pytest.mark.parametrize("way", WAYS)
def test_a_large_answer_to_a_slow_reader_delays_no_other_call(serve: Serve, way: str) -> None:
    served = serve(way)
    slow, other = served.connect("secure" in way), served.connect("secure" in way)
    stream = slow.unary_stream("/S/Many")(b"20000", timeout=30)
    assert next(stream) == b"0"
    began = time.monotonic()
    assert other.unary_unary("/S/Echo")(b"x" * 100_000, timeout=10) == b"x" * 100_000
    assert time.monotonic() - began < 5
    assert sum(1 for _ in stream) == 20_000
    slow.close()
    other.close()


def test_handed_connections_count_against_the_limit_of_the_port(serve: Serve) -> None:
    served = serve("handed")
    limited: GrpcServer = served.server
    hub = served.remoting._hub
    assert hub is not None
    hub._most = 2
    with talk(served) as one, talk(served) as two:
        for each in (one, two):
            each.sendall(BEGIN)
            assert each.recv(9)
        until(lambda: limited.open == 2)
        with talk(served) as three:
            three.sendall(BEGIN)
            assert is_closed(three)
    until(lambda: limited.open == 0)
    assert served_by_remoting(served, False) == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
