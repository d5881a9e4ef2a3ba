"""The options of credentials: their order, the warning about `ps`, and commands that have them."""

import getpass
import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer

from turbopump.cli import credentials as options
from turbopump.cli.app import app
from turbopump.cli.credentials import with_credentials
from turbopump.cli.errors import UserError
from turbopump.cli.run_command import client_options
from turbopump.net.client.credentials import Credentials

ALICE, BOB = Credentials("alice", "s3cret"), Credentials("bob", "b0b")
Found = Callable[..., Credentials | None]


@pytest.fixture(autouse=True)
def empty_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable names credentials, and there is no terminal."""
    for name in ("ACCESS_KEY", "SECRET_KEY", "SECURITY_TOKEN", "CREDENTIALS", "TLS"):
        monkeypatch.delenv(f"TURBOPUMP_{name}", raising=False)
    monkeypatch.setattr(options, "TERMINAL", "/dev/null/none")


@pytest.fixture
def found() -> Found:
    """Run a command with these words, and return the credentials of its clients."""
    seen: list[Credentials | None] = []

    def command(number: Annotated[int, typer.Option("-n")] = 0) -> None:
        """A command."""
        assert number == 7
        seen.append(client_options().credentials)

    program = typer.Typer()
    program.command()(with_credentials(command))

    def run(*words: object) -> Credentials | None:
        program(["-n", "7", *map(str, words)], standalone_mode=False)
        return seen.pop()

    return run


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with bob's credentials."""
    path = tmp_path / "tools.yml"
    path.write_text("accessKey: bob\nsecretKey: b0b\n")
    path.chmod(0o600)
    return path


def test_without_options_the_environment_counts(
    found: Found, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert found() is None
    monkeypatch.setenv("TURBOPUMP_CREDENTIALS", str(file))
    assert found() == BOB
    monkeypatch.setenv("TURBOPUMP_ACCESS_KEY", "alice")
    monkeypatch.setenv("TURBOPUMP_SECRET_KEY", "s3cret")
    assert found() == ALICE
    assert found("--credentials", file) == BOB, "options come first"
    monkeypatch.delenv("TURBOPUMP_CREDENTIALS")
    monkeypatch.delenv("TURBOPUMP_SECRET_KEY")
    with pytest.raises(UserError, match="TURBOPUMP_ACCESS_KEY is set in the environment, but"):
        found()


def test_the_secret_of_a_user_comes_from_the_environment(
    found: Found, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TURBOPUMP_SECRET_KEY", "s3cret")
    assert found("--access-key", "alice") == ALICE
    monkeypatch.setenv("TURBOPUMP_ACCESS_KEY", "bob")
    with pytest.raises(UserError, match="the secret key of alice is missing: TURBOPUMP_SECRET_KEY"):
        found("--access-key", "alice")
    monkeypatch.delenv("TURBOPUMP_ACCESS_KEY")
    monkeypatch.delenv("TURBOPUMP_SECRET_KEY")
    monkeypatch.setenv("TURBOPUMP_CREDENTIALS", str(file))
    assert found("--access-key", "bob") == BOB
    with pytest.raises(UserError, match="the secret key of alice is missing"):
        found("--access-key", "alice")


def test_the_terminal_is_asked_last(found: Found, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "TERMINAL", os.devnull)
    asked: list[str] = []
    answers = ["s3cret", ""]

    def ask(prompt: str) -> str:
        asked.append(prompt)
        return answers.pop(0) if answers else interrupt()

    def interrupt() -> str:
        raise EOFError

    monkeypatch.setattr(getpass, "getpass", ask)
    assert found("--access-key", "alice") == ALICE
    assert asked == ["Secret key of alice: "]
    with pytest.raises(UserError, match="credentials of alice: the secret key is empty"):
        found("--access-key", "alice")
    with pytest.raises(UserError, match="the secret key of alice is missing"):
        found("--access-key", "alice")


def test_a_secret_on_the_command_line_is_warned_of(
    found: Found, file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert found("--access-key", "alice", "--secret-key", "s3cret") == ALICE
    shown = capsys.readouterr()
    assert "--secret-key can be read by every user of this machine (ps)" in shown.err
    assert "s3cret" not in shown.err + shown.out
    with pytest.raises(UserError, match="--secret-key needs the name of its user"):
        found("--secret-key", "s3cret")
    with pytest.raises(UserError, match="the secret is given twice"):
        found("--secret-key", "s3cret", "--credentials", file)
    monkeypatch.setenv("TURBOPUMP_ACCESS_KEY", "alice")
    assert found("--secret-key", "s3cret") == ALICE
    capsys.readouterr()
    assert found("--credentials", file, "--access-key", "bob") == BOB
    assert capsys.readouterr().err == ""


def test_files_that_cannot_be_used(found: Found, file: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has the secret of bob, not of alice"):
        found("--credentials", file, "--access-key", "alice")
    with pytest.raises(UserError, match="gone: No such file"):
        found("--credentials", tmp_path / "gone")
    file.write_text("accessKey: bob\n")
    with pytest.raises(UserError, match="secretKey missing"):
        found("--credentials", file)


def test_all_commands_of_clients_have_the_options() -> None:
    def options_of(*words: str) -> set[str]:
        found: Any = typer.main.get_command(app)
        for word in words:
            found = found.commands[word]
        return {name for one in found.params for name in one.opts}

    wanted = {"--access-key", "--secret-key", "--credentials"}
    admin: Any = typer.main.get_command(app)
    commands = [("send",), ("consume",), ("top",)]
    commands += [("admin", name) for name in admin.commands["admin"].commands]
    assert len(commands) > 45
    assert [words for words in commands if not options_of(*words) >= wanted] == []
    assert not options_of("broker") & wanted


def test_the_load_generator_refuses_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURBOPUMP_ACCESS_KEY", "alice")
    monkeypatch.setenv("TURBOPUMP_SECRET_KEY", "s3cret")
    with pytest.raises(UserError, match="the load generator does not sign: unset TURBOPUMP_ACCESS"):
        app(["bench", "producer", "-t", "T"], standalone_mode=False)
