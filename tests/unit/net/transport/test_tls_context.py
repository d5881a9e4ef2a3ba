"""Contexts are rebuilt when their files change; broken new files change nothing."""

import asyncio
import logging
import os
import ssl
import threading
from functools import partial
from pathlib import Path

import pytest

from turbopump.engine.deferred import Deferred
from turbopump.net.transport.options import ClientTlsSettings, TlsSettings
from turbopump.net.transport.tls import TlsError, _make_self_signed, client_context, server_context
from turbopump.net.transport.tls_context import TlsContext


def renew(folder: Path) -> bytes:
    """Replace certificate and key as tools do; returns the certificate."""
    certificate, key = _make_self_signed()
    for name, content in (("cert.pem", certificate), ("key.pem", key)):
        (folder / f"{name}.new").write_bytes(content)
        os.replace(folder / f"{name}.new", folder / name)
    return certificate


@pytest.fixture
def context(tmp_path: Path) -> TlsContext:
    renew(tmp_path)
    settings = TlsSettings(
        cert_path=str(tmp_path / "cert.pem"), key_path=str(tmp_path / "key.pem"), test_mode=False
    )
    return TlsContext(settings, partial(server_context, settings))


def test_it_is_the_same_until_files_change(context: TlsContext, tmp_path: Path) -> None:
    first = context.load()
    asyncio.run(context.reload_if_changed())
    assert context.load() is first
    renew(tmp_path)
    assert context.load() is first
    asyncio.run(context.reload_if_changed())
    assert context.load() is not first


def test_files_that_fit_no_more_change_nothing(
    context: TlsContext, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = context.load()
    good = (tmp_path / "cert.pem").read_bytes()
    for number, broken in enumerate((b"", b"no certificate", good[: len(good) // 2], None)):
        caplog.clear()
        if broken is None:
            os.unlink(tmp_path / "cert.pem")
        else:
            (tmp_path / "cert.pem").write_bytes(broken)
        # The second file may also be replaced between the two checks.
        asyncio.run(context.reload_if_changed())
        assert not caplog.records, number
        for _ in range(3):
            asyncio.run(context.reload_if_changed())
        (record,) = caplog.records
        assert "cert.pem" in record.getMessage()
        assert context.load() is first
    with caplog.at_level(logging.INFO):
        renew(tmp_path)
        asyncio.run(context.reload_if_changed())
    assert context.load() is not first
    assert caplog.records[-1].levelno == logging.INFO


def test_one_file_after_the_other_is_no_reason_to_complain(
    context: TlsContext, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = context.load()
    certificate, key = _make_self_signed()
    (tmp_path / "cert.pem").write_bytes(certificate)
    asyncio.run(context.reload_if_changed())
    assert context.load() is first
    (tmp_path / "key.pem").write_bytes(key)
    asyncio.run(context.reload_if_changed())
    assert context.load() is not first
    assert not caplog.records


def test_a_client_has_the_newest_trust(tmp_path: Path) -> None:
    renew(tmp_path)
    settings = ClientTlsSettings(
        trust_cert_path=str(tmp_path / "cert.pem"), auth_server=True, test_mode=False
    )
    context = TlsContext(settings, partial(client_context, settings))

    async def newest() -> ssl.SSLContext:
        found = await asyncio.gather(*(context.newest_context() for _ in range(3)))
        assert len(set(map(id, found))) == 1
        return found[0]

    async def main() -> None:
        before = await newest()
        assert await newest() is before
        renew(tmp_path)
        after = await newest()
        assert after is not before
        os.unlink(tmp_path / "cert.pem")
        assert await newest() is after

    asyncio.run(main())


def test_the_first_time_it_must_be_right(tmp_path: Path) -> None:
    settings = TlsSettings(cert_path=str(tmp_path / "no.pem"), key_path=str(tmp_path / "no.pem"))
    context = TlsContext(settings, partial(server_context, settings))
    with pytest.raises(TlsError, match=r"no\.pem"):
        context.load()
    with pytest.raises(TlsError, match=r"no\.pem"):
        asyncio.run(context.newest_context())
    asyncio.run(context.reload_if_changed())


def test_without_files_there_is_one_for_ever() -> None:
    settings = TlsSettings()
    context = TlsContext(settings, partial(server_context, settings))
    assert not context.has_files
    assert context.load() is asyncio.run(context.newest_context())


def test_the_first_one_is_made_by_a_thread_for_all_callers() -> None:
    """A certificate takes tens of ms, after the import of a package."""
    made_by: list[threading.Thread] = []

    def make() -> ssl.SSLContext:
        made_by.append(threading.current_thread())
        return server_context(TlsSettings())

    context = TlsContext(TlsSettings(), make)

    async def main() -> None:
        got: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        first = context.get()
        assert isinstance(first, Deferred) and not first.done
        assert context.get() is first
        first.then(got.set_result)
        assert await got is context.get() is context.load()

    asyncio.run(main())
    (thread,) = made_by
    assert thread is not threading.current_thread()


@pytest.mark.parametrize("error", [TlsError("no package"), OSError("no memory")])
def test_where_none_can_be_made_it_is_tried_again(error: Exception) -> None:
    found: list[Exception | None] = [error, None]

    def make() -> ssl.SSLContext:
        failure = found.pop(0)
        if failure is not None:
            raise failure
        return server_context(TlsSettings())

    context = TlsContext(TlsSettings(), make)

    async def ask() -> object:
        got: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        made = context.get()
        assert isinstance(made, Deferred)
        made.then(got.set_result)
        return await got

    refused = asyncio.run(ask())
    assert isinstance(refused, TlsError) and str(error) in str(refused)
    assert isinstance(asyncio.run(ask()), ssl.SSLContext)
