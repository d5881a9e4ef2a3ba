"""Connections of commands; each failure gives a one-line message and an exit code."""

import asyncio
import errno
import logging
import os
from pathlib import Path

import pytest

from turbopump.cli import app, logs, run_command
from turbopump.cli.errors import (
    BAD_INPUT,
    FAILED,
    CommandFailed,
    UserError,
    exit_with_error,
    failure_of,
    sentence_of,
)
from turbopump.cli.files import read_text
from turbopump.cli.run_command import TLS_FILE, client_options, failing_clearly, one_line
from turbopump.net.client.errors import ClientError, InvalidArgument
from turbopump.net.transport.errors import ConnectError
from turbopump.net.wire.bodies import BadBody
from turbopump.net.wire.header import BadHeader

NO_OFFSET = "an answer cannot be understood: the custom field <offset> is missing"


@pytest.mark.parametrize(
    ("raised", "kind", "sentence"),
    [
        (InvalidArgument("a message\nneeds a body"), UserError, "a message needs a body"),
        (ClientError("no  route"), CommandFailed, "no route"),
        (ConnectError("a:1 cannot be reached"), CommandFailed, "a:1 cannot be reached"),
        (BadBody("no JSON"), CommandFailed, "an answer cannot be understood: no JSON"),
        (BadHeader("offset", "is missing"), CommandFailed, NO_OFFSET),
        (ClientError(""), CommandFailed, "ClientError"),
    ],
)
def test_exceptions_of_clients(raised: Exception, kind: type[UserError], sentence: str) -> None:
    async def work() -> None:
        raise raised

    with pytest.raises(UserError) as caught:
        asyncio.run(failing_clearly(work()))
    assert type(caught.value) is kind and str(caught.value) == sentence


def test_other_errors_are_ours_and_stay() -> None:
    async def work() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(failing_clearly(work()))
    assert one_line(ValueError("  a\t\n b ")) == "a b"


@pytest.mark.parametrize("text", ["tls.test.mode.enable=perhaps\n", "a=\\u00\n"])
def test_a_tls_file_that_cannot_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    path = tmp_path / "tls.properties"
    monkeypatch.setenv(TLS_FILE, str(path))
    with pytest.raises(UserError, match="No such file"):
        client_options()
    path.write_text(text)
    with pytest.raises(UserError) as caught:
        client_options()
    assert str(caught.value).startswith(f"{path}: ")


def test_certificates_that_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, certificate = tmp_path / "tls.properties", tmp_path / "ca.pem"
    certificate.write_text("no certificate")
    path.write_text(
        f"tls.test.mode.enable=false\ntls.client.authServer=true\n"
        f"tls.client.trustCertPath={certificate}\n"
    )
    monkeypatch.setenv(TLS_FILE, str(path))
    with pytest.raises(UserError) as caught:
        client_options()
    assert str(caught.value).startswith(f"{path}: ") and str(certificate) in str(caught.value)


def test_tls_by_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "tls.properties"
    path.write_text("tls.enable=false\ntls.client.authServer=false\n")
    monkeypatch.delenv(TLS_FILE, raising=False)
    assert not client_options().tls
    monkeypatch.setenv(TLS_FILE, str(path))
    assert client_options().tls, "the variable requests it"
    monkeypatch.setenv(TLS_FILE, "")
    assert not client_options().tls


def test_a_coroutine_runs_on_a_loop_of_its_own() -> None:
    async def work() -> str:
        return type(asyncio.get_running_loop()).__module__

    assert run_command.run(work()) == "uvloop"
    with pytest.raises(RuntimeError):
        asyncio.get_running_loop()


@pytest.mark.parametrize(
    ("number", "name", "sentence", "kind"),
    [
        (errno.ENOENT, "/a", "/a: No such file or directory", UserError),
        (errno.ENOSPC, "/a", "/a: the disk is full", UserError),
        (errno.ENOSPC, None, "the disk is full", CommandFailed),
        (errno.EACCES, None, "Permission denied", CommandFailed),
    ],
)
def test_refusals_of_the_system(
    number: int, name: str | None, sentence: str, kind: type[UserError]
) -> None:
    error = OSError(number, "as the system reports", name)
    assert sentence_of(error) == sentence
    assert type(failure_of(error)) is kind and str(failure_of(error)) == sentence
    assert sentence_of(OSError("no number")) == "no number"


def test_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    for error, code in ((UserError("bad"), BAD_INPUT), (CommandFailed("not done"), FAILED)):
        with pytest.raises(SystemExit) as ended:
            exit_with_error(error)
        assert ended.value.code == code
        assert capsys.readouterr().err == f"turbopump: {error}\n"


def test_texts_of_files(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with pytest.raises(UserError, match="No such file"):
        read_text(path)
    path.write_bytes("grün\n".encode())
    assert read_text(path) == "grün\n"
    path.write_bytes(b"gr\xfcn")
    with pytest.raises(UserError, match="is not UTF-8 text"):
        read_text(path)


@pytest.mark.parametrize(
    ("raised", "code", "error"),
    [
        (BrokenPipeError(errno.EPIPE, "gone"), FAILED, ""),
        (OSError(errno.ENOSPC, "full"), FAILED, "turbopump: the disk is full\n"),
        (
            PermissionError(errno.EACCES, "no", "/a"),
            BAD_INPUT,
            "turbopump: /a: Permission denied\n",
        ),
        (CommandFailed("not done"), FAILED, "turbopump: not done\n"),
    ],
)
def test_how_a_command_ends(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    raised: Exception,
    code: int,
    error: str,
) -> None:
    def command() -> None:
        raise raised

    dropped: list[int] = []
    monkeypatch.setattr(app, "app", command)
    monkeypatch.setattr(app, "_drop_output", lambda: dropped.append(1))
    with pytest.raises(SystemExit) as ended:
        app.run()
    assert (ended.value.code, capsys.readouterr().err) == (code, error)
    is_output = isinstance(raised, OSError) and raised.filename is None
    assert bool(dropped) == is_output, "a flush of the rest would fail once more"


def test_output_is_dropped_where_it_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open("/dev/full", "w") as full:
        monkeypatch.setattr("sys.stdout", full)
        full.write("x")
        with pytest.raises(OSError):
            full.flush()
        app._drop_output()
        assert os.readlink(f"/proc/self/fd/{full.fileno()}") == os.devnull
        full.flush()
        monkeypatch.undo()


def test_logs_go_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[dict[str, object]] = []
    monkeypatch.setattr(logging, "basicConfig", lambda **all: given.append(all))
    monkeypatch.setattr(logging, "raiseExceptions", True)
    logs.configure_logging(None, "debug")
    logs.configure_logging(tmp_path / "a" / "b", "warning")
    alone, both = given
    assert [alone["level"], both["level"]] == ["DEBUG", "WARNING"]
    (_stderr,), (_stderr, rotating) = alone["handlers"], both["handlers"]
    assert isinstance(rotating, logging.handlers.RotatingFileHandler)
    assert rotating.maxBytes == logs.FILE_SIZE_MAX and rotating.backupCount == logs.FILES_MAX
    assert (tmp_path / "a" / "b" / "turbopump.log").exists()
    rotating.close()
    assert not logging.raiseExceptions, "a full disk does not print a traceback for each line"
