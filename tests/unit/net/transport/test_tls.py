"""TLS between two memory buffers."""

import builtins
import ssl
from types import SimpleNamespace

import pytest

from turbopump.net.transport.options import ClientAuth, ClientTlsSettings, TlsSettings
from turbopump.net.transport.tls import (
    HANDSHAKE_BYTE,
    TlsError,
    TlsSession,
    _make_self_signed,
    client_context,
    server_context,
)
from turbopump.net.transport.writing import Sealing
from turbopump.pyx.socket_writing import SEALED_MAX


def pump(one: TlsSession, other: TlsSession) -> None:
    """Carry bytes both ways until the handshake is done."""
    for _ in range(10):
        for sender, receiver in ((one, other), (other, one)):
            sender.handshake()
            data = sender.outgoing()
            if data:
                receiver.feed(data)
        if one.established and other.established:
            return
    raise AssertionError("the handshake does not end")


def pair(server: TlsSettings, client: ClientTlsSettings) -> tuple[TlsSession, TlsSession]:
    return (
        TlsSession(server_context(server), server_side=True),
        TlsSession(client_context(client), server_side=False),
    )


def test_bytes_come_through() -> None:
    server, client = pair(TlsSettings(), ClientTlsSettings())
    assert not client.handshake()
    hello = client.outgoing()
    assert hello[0] == HANDSHAKE_BYTE
    server.feed(hello)
    pump(server, client)
    parts: list[bytes] = []
    sealing = Sealing()
    sealing.add([b"one", memoryview(b"two" * 100_000), b""])
    sealing.write(SimpleNamespace(write=parts.append), client, lambda: len(parts) < 3)
    assert len(parts) == 3 and sealing.size > 0, "as far as it is wanted"
    sealing.write(SimpleNamespace(write=parts.append), client, lambda: True)
    assert sealing.size == 0
    assert max(map(len, parts)) < 2 * SEALED_MAX, "a large answer is not encrypted at once"
    server.feed(b"".join(parts))
    room, read = memoryview(bytearray(1 << 20)), 0
    while size := server.read_into(room[read : read + 7000]):
        read += size
    assert bytes(room[:read]) == b"one" + b"two" * 100_000
    server.feed(client.sealed(b"last"))
    client.end()
    server.feed(client.outgoing())
    assert (server.read_into(room), bytes(room[:4])) == (4, b"last")
    assert server.read_into(room) == server.read_into(room) == -1


def test_bytes_before_garbage_are_read_before_it_fails() -> None:
    server, client = pair(TlsSettings(), ClientTlsSettings())
    pump(client, server)
    server.feed(client.sealed(b"good") + b"\x17\x03\x03\x00\x20" + b"g" * 32)
    room = memoryview(bytearray(1 << 16))
    assert (server.read_into(room), bytes(room[:4])) == (4, b"good")
    for _ in range(2):
        with pytest.raises(ssl.SSLError):
            server.read_into(room)


def test_bytes_other_than_tls_fail() -> None:
    server, _ = pair(TlsSettings(), ClientTlsSettings())
    server.feed(bytes([HANDSHAKE_BYTE]) + b"no hello at all" * 10)
    with pytest.raises(ssl.SSLError):
        server.handshake()


@pytest.fixture
def files(tmp_path):
    certificate, key = _make_self_signed()
    (tmp_path / "cert.pem").write_bytes(certificate)
    (tmp_path / "key.pem").write_bytes(key)
    return str(tmp_path / "cert.pem"), str(tmp_path / "key.pem")


def test_certificates_from_files_are_checked(files) -> None:
    cert, key = files
    settings = TlsSettings(cert_path=cert, key_path=key, test_mode=False)
    trusting = ClientTlsSettings(trust_cert_path=cert, auth_server=True, test_mode=False)
    pump(*pair(settings, trusting))
    server, client = pair(TlsSettings(), trusting)
    with pytest.raises(ssl.SSLCertVerificationError):
        pump(server, client)


def test_clients_are_checked_where_asked_for(files) -> None:
    cert, key = files
    settings = TlsSettings(
        trust_cert_path=cert, need_client_auth=ClientAuth.REQUIRE, auth_client=True
    )
    pump(*pair(settings, ClientTlsSettings(cert_path=cert, key_path=key)))
    with pytest.raises(ssl.SSLError):
        pump(*pair(settings, ClientTlsSettings()))


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (TlsSettings(test_mode=False), "outside test mode"),
        (TlsSettings(cert_path="only.pem"), "both"),
        (TlsSettings(cert_path="no.pem", key_path="no.pem"), "no.pem"),
        (TlsSettings(auth_client=True), "trustCertPath"),
        (TlsSettings(auth_client=True, trust_cert_path="no.pem"), "no.pem"),
    ],
)
def test_settings_that_make_no_context(settings, text) -> None:
    with pytest.raises(TlsError, match=text):
        server_context(settings)


def test_a_client_that_checks_needs_something_to_check_with() -> None:
    with pytest.raises(TlsError, match="trustCertPath"):
        client_context(ClientTlsSettings(auth_server=True, test_mode=False))


def test_a_missing_package_is_named(monkeypatch) -> None:
    real = builtins.__import__

    def absent(name: str, *rest):
        if name.startswith("cryptography"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(TlsError, match="cryptography"):
        server_context(TlsSettings())
