"""TLS and plain peers on one port, in each mode, against other implementations of TLS too."""

import asyncio
import os
import socket
import ssl
import threading
from pathlib import Path

import pytest

from turbopump.net.transport.errors import ConnectError, ConnectionClosed
from turbopump.net.transport.options import (
    ClientTlsSettings,
    RemotingOptions,
    ServerOptions,
    TlsMode,
    TlsSettings,
)
from turbopump.net.transport.tls import (
    HANDSHAKE_BYTE,
    TlsError,
    _make_self_signed,
    server_context,
)
from turbopump.net.wire.command import Command, decode, encode, new_request, new_response

ECHO = 10
TLS_CLIENT = RemotingOptions(tls=ClientTlsSettings())


def trusting_all() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


@pytest.mark.parametrize(
    ("mode", "plain_served", "tls_served"),
    [
        (TlsMode.DISABLED, True, False),
        (TlsMode.PERMISSIVE, True, True),
        (TlsMode.ENFORCING, False, True),
    ],
)
def test_modes(run, serve, connect, talk, mode, plain_served, tls_served) -> None:
    async def main() -> None:
        async with serve(ServerOptions(tls=TlsSettings(mode=mode))) as served:
            async with connect() as client:
                call = client.call(served.address, new_request(ECHO, body=b"plain"), 5000)
                if plain_served:
                    assert (await call).body == b"plain"
                else:
                    with pytest.raises(ConnectionClosed):
                        await call
            async with connect(None, TLS_CLIENT) as client:
                call = client.call(served.address, new_request(ECHO, body=b"tls"), 5000)
                if tls_served:
                    assert (await call).body == b"tls"
                else:
                    with pytest.raises(ConnectError, match="handshake"):
                        await call
            if tls_served:
                async with talk(served.port, ssl=trusting_all()) as raw:
                    raw.send(Command(ECHO, opaque=1, body=b"other"))
                    assert (await raw.answer()).body == b"other"

    run(main())


@pytest.mark.parametrize("fails", [False, True])
def test_others_are_served_while_the_certificate_is_made(
    run, serve, connect, talk, monkeypatch, fails
) -> None:
    """The first TLS peers wait for it, one leaves meanwhile; plain ones do not."""
    go = threading.Event()

    def slowly(settings: TlsSettings) -> ssl.SSLContext:
        assert go.wait(20), "the loop was held"
        if fails:
            raise TlsError("no certificate today")
        return server_context(settings)

    monkeypatch.setattr("turbopump.net.transport.server_tls.server_context", slowly)

    async def main() -> None:
        async with (
            serve(ServerOptions(tls=TlsSettings())) as served,
            connect(None, TLS_CLIENT) as one,
            connect(None, TLS_CLIENT) as other,
        ):
            calls = [
                asyncio.ensure_future(
                    client.call(served.address, new_request(ECHO, body=b"tls"), 10_000)
                )
                for client in (one, other)
            ]
            async with talk(served.port) as gone:
                gone.send(bytes([HANDSHAKE_BYTE]) + b"a hello that begins")
                await served.until(lambda: len(served.hub.area._sizes) == 3)
            await served.alive()
            assert not any(call.done() for call in calls)
            go.set()
            got = await asyncio.gather(*calls, return_exceptions=True)
            if fails:
                assert all(isinstance(one, ConnectError) for one in got)
            else:
                assert [one.body for one in got] == [b"tls", b"tls"]
            await served.until(lambda: served.hub.area.in_use == 0)

    run(main())


def test_without_settings_a_tls_peer_is_closed(run, serve, connect) -> None:
    async def main() -> None:
        async with serve() as served, connect(None, TLS_CLIENT) as client:
            with pytest.raises(ConnectError, match="handshake"):
                await client.call(served.address, new_request(ECHO), 5000)
            await served.alive()

    run(main())


def test_large_bodies_and_calls_both_ways(run, serve, connect) -> None:
    async def main() -> None:
        async with (
            serve(ServerOptions(tls=TlsSettings())) as served,
            connect(None, TLS_CLIENT) as client,
        ):
            body = bytes(range(256)) * 16_384
            calls = [
                client.call(served.address, new_request(ECHO, body=body[:size]), 20_000)
                for size in (0, 1, 16_383, 16_384, 16_385, 300_000, len(body))
            ]
            responses = await asyncio.gather(*calls)
            assert [len(one.body) for one in responses] == [
                0,
                1,
                16_383,
                16_384,
                16_385,
                300_000,
                len(body),
            ]
            assert responses[-1].body == body
            (peer,) = served.server.peers
            asked = peer.call(new_request(307), 5000)
            await served.until(lambda: asked.done)
            assert asked.value.code == 3
            assert served.hub.area.in_use == 0

    run(main())


def test_bytes_one_by_one(run, serve) -> None:
    """A hello and a frame that arrive in single bytes."""

    async def main() -> None:
        async with serve(ServerOptions(tls=TlsSettings())) as served:
            incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            tls = trusting_all().wrap_bio(incoming, outgoing, server_hostname="x")
            reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
            writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

            async def trickle() -> None:
                for byte in outgoing.read():
                    writer.write(bytes([byte]))
                    await asyncio.sleep(0)

            async def until_done(step) -> None:
                while True:
                    try:
                        step()
                    except ssl.SSLWantReadError:
                        await trickle()
                        incoming.write(await reader.read(65_536))
                    else:
                        await trickle()
                        return

            await until_done(tls.do_handshake)
            tls.write(b"".join(encode(Command(ECHO, opaque=5, body=b"slow"))))
            await trickle()
            got = bytearray()
            await until_done(lambda: got.extend(tls.read(65_536)))
            assert decode(bytes(got)).body == b"slow"
            writer.close()
            await writer.wait_closed()

    run(main())


def test_our_client_against_another_servers_tls(run, listen, connect) -> None:
    async def echo(raw) -> None:
        request = await raw.answer()
        raw.send(new_response(request, 0, body=request.body))
        await raw.closed()

    async def main() -> None:
        context = server_context(TlsSettings())
        async with listen(echo, ssl=context) as address, connect(None, TLS_CLIENT) as client:
            response = await client.call(address, new_request(ECHO, body=b"x" * 100_000), 5000)
            assert response.body == b"x" * 100_000

    run(main())


def test_garbage_after_a_hello_byte_and_inside_tls(run, serve, talk) -> None:
    async def main() -> None:
        async with serve(ServerOptions(tls=TlsSettings())) as served:
            async with talk(served.port) as raw:
                raw.send(b"\x16" + b"garbage" * 100)
                await raw.closed()
            async with talk(served.port, ssl=trusting_all()) as raw:
                raw.send(b"\xff\xff\xff\xff")
                assert await raw.closed() == b""
            await served.alive()
            await served.until(lambda: not served.server.peers)
            assert served.hub.area.in_use == 0

    run(main())


def test_a_handshake_that_does_not_end_in_time(run, serve, talk) -> None:
    async def main() -> None:
        options = ServerOptions(tls=TlsSettings(), frame_timeout_ms=200)
        async with serve(options) as served, talk(served.port) as raw:
            raw.send(b"\x16\x03\x01\x02\x00\x01")
            assert await raw.closed() == b""
            await served.alive()

    run(main())


def test_a_client_whose_server_never_answers_the_hello(run, listen, connect) -> None:
    async def main() -> None:
        options = RemotingOptions(tls=ClientTlsSettings(), connect_timeout_ms=200)
        async with listen() as address, connect(None, options) as client:
            with pytest.raises(ConnectError, match="timed out"):
                await client.call(address, new_request(ECHO), 5000)
            while client._hub.connections:
                await asyncio.sleep(0.005)

    run(main())


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (TlsSettings(cert_path="missing.pem", key_path="missing.pem"), r"missing\.pem"),
        (TlsSettings(key_path="missing.pem"), "both"),
        # Every peer would be refused; a permissive server is of use to plain ones.
        (TlsSettings(mode=TlsMode.ENFORCING, test_mode=False), "certPath"),
    ],
)
def test_a_certificate_that_will_be_missing_is_known_at_start(run, serve, settings, reason) -> None:
    async def main() -> None:
        with pytest.raises(TlsError, match=reason):
            async with serve(ServerOptions(tls=settings)):
                pass

    run(main())


def test_plain_peers_are_served_where_there_is_no_certificate(run, serve, connect) -> None:
    async def main() -> None:
        options = ServerOptions(tls=TlsSettings(test_mode=False))
        async with serve(options) as served, connect() as client:
            call = client.call(served.address, new_request(ECHO, body=b"plain"), 5000)
            assert (await call).body == b"plain"

    run(main())


def renew(folder: Path) -> bytes:
    """Replace certificate and key in the folder; return the certificate as a peer sees it."""
    certificate, key = _make_self_signed()
    for name, content in (("cert.pem", certificate), ("key.pem", key)):
        (folder / f"{name}.new").write_bytes(content)
        os.replace(folder / f"{name}.new", folder / name)
    return ssl.PEM_cert_to_DER_cert(certificate.decode())


async def shown_certificate(port: int) -> bytes:
    """Certificate that a new connection is shown."""
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting_all())
    try:
        shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        assert isinstance(shown, bytes)
        return shown
    finally:
        writer.close()


def test_a_renewed_certificate_is_shown_without_a_restart(
    run, serve, connect, monkeypatch, tmp_path
) -> None:
    monkeypatch.setattr("turbopump.net.transport.server_tls.LOOK_S", 0.01)

    async def main() -> None:
        first = renew(tmp_path)
        settings = TlsSettings(
            mode=TlsMode.ENFORCING,
            cert_path=str(tmp_path / "cert.pem"),
            key_path=str(tmp_path / "key.pem"),
            test_mode=False,
        )
        trust = ClientTlsSettings(
            trust_cert_path=str(tmp_path / "cert.pem"), auth_server=True, test_mode=False
        )
        async with (
            serve(ServerOptions(tls=settings)) as served,
            connect(None, RemotingOptions(tls=trust)) as client,
        ):
            request = new_request(ECHO, body=b"x")
            assert (await client.call(served.address, request, 5000)).body == b"x"
            assert await shown_certificate(served.port) == first
            (tmp_path / "key.pem").write_text("broken")
            await asyncio.sleep(0.1)
            assert await shown_certificate(served.port) == first
            second = renew(tmp_path)
            while await shown_certificate(served.port) != second:
                await asyncio.sleep(0.01)
            # Open connections stay, and a client also reads its trusted certificates again.
            assert len(served.server.peers) >= 1
            client.reconnect_next(served.address)
            assert (await client.call(served.address, request, 5000)).body == b"x"

    run(main())
