"""Credentials: their sources, files in RocketMQ's form, and secrets that are never shown."""

import logging
import pickle
from pathlib import Path
from typing import Any

import pytest

from turbopump.net.client.credentials import (
    Credentials,
    _warn_of_readers,
    effective_credentials,
    signer_of,
)
from turbopump.net.client.errors import InvalidArgument
from turbopump.net.client.options import ClientOptions
from turbopump.net.client.shared_client import SharedClient
from turbopump.net.wire.command import Command
from turbopump.net.wire.signature import is_signed

ALICE = Credentials("alice", "s3cret")
TOOLS = "accessKey: alice\nsecretKey: s3cret\n"


def written(folder: Path, text: str, mode: int = 0o600) -> Path:
    """A file with these contents."""
    path = folder / "tools.yml"
    path.write_text(text)
    path.chmod(mode)
    return path


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (TOOLS, ALICE),
        ("# mine\naccessKey: alice # me\nsecretKey:   s3cret\nother: x\n", ALICE),
        ("\ufeffaccessKey : alice\r\nsecretKey: s3cret\r\n", ALICE),
        ("---\n'accessKey': 'alice'\n\"secretKey\": \"s3\\u0063ret\" # it\n", ALICE),
        ("accessKey: a:b c\nsecretKey: 'it''s # all'\n", Credentials("a:b c", "it's # all")),
        ("accessKey: a\nsecretKey: '''q'''\n", Credentials("a", "'q'")),
        ("accessKey: a\nsecretKey: x#y\nsecurityToken: t\n", Credentials("a", "x#y", "t")),
        ("accessKey: rocketmq2\nsecretKey: 12345678\n", Credentials("rocketmq2", "12345678")),
        ("outer:\n  accessKey: bob\naccessKey: alice\nsecretKey: s3cret\n", ALICE),
        ('{"accessKey": "alice", "secretKey": "s3cret", "securityToken": null}', ALICE),
        ('{"accessKey": "alice", "secretKey": 123}', Credentials("alice", "123")),
    ],
)
def test_a_file(tmp_path: Path, text: str, expected: Credentials) -> None:
    assert Credentials.from_file(written(tmp_path, text)) == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "accessKey and secretKey missing"),
        ("accessKey: alice\n", "secretKey missing"),
        ("accessKey: alice\nsecretKey: # nothing\n", "secretKey missing"),
        ("accessKey: alice\nsecretKey:s3cret\n", "a blank must follow the colon"),
        ("accessKey: alice\nsecretKey: |\n  s3cret\n", "on the same line"),
        ("accessKey: alice\nsecretKey: 's3cret\n", "on the same line"),
        ("accessKey: alice\nsecretKey: 's3' cret\n", "on the same line"),
        ('accessKey: alice\nsecretKey: "s3\\q"\n', "on the same line"),
        ("accessKey: alice\nsecretKey: &s3 cret\n", "on the same line"),
        ('{"accessKey": "alice", "secretKey": ["s3cret"]}', "secretKey missing"),
        ('{"accessKey": "alice", s3', "no JSON"),
        ("#" * (65 << 10), "at most 65536 bytes"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_without_its_secret(
    tmp_path: Path, text: str, reason: str
) -> None:
    path = written(tmp_path, text)
    with pytest.raises(InvalidArgument, match=reason) as caught:
        Credentials.from_file(path)
    assert str(caught.value).startswith(f"{path}: ") and "s3" not in str(caught.value)
    path.write_bytes(b"accessKey: \xff\n")
    with pytest.raises(InvalidArgument, match="UTF-8"):
        Credentials.from_file(path)
    with pytest.raises(FileNotFoundError):
        Credentials.from_file(tmp_path / "gone")


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o640, 0o604, 0o644])
def test_a_file_that_others_may_read_is_warned_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int
) -> None:
    _warn_of_readers.cache_clear()
    path = written(tmp_path, TOOLS, mode)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert Credentials.from_file(path) == ALICE
    warned = [record.getMessage() for record in caplog.records]
    text = f"{path} has a secret, and other users may read it: chmod 600 {path}"
    assert warned == ([text] if mode & 0o044 else [])


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (("", "s3cret"), "the access key is empty"),
        ((" ", "s3cret"), "the access key is empty"),
        (("alice", ""), "credentials of alice: the secret key is empty"),
        (("alice", b"s3cret"), "secret_key is no text"),
        (("alice", None), "secret_key is no text"),
        (("alice", "s3cret", 1), "security_token is no text"),
    ],
)
def test_values_that_cannot_sign(given: tuple[Any, ...], reason: str) -> None:
    with pytest.raises(InvalidArgument, match=reason) as caught:
        Credentials(*given)
    assert "s3" not in str(caught.value)


def test_the_secret_is_not_shown() -> None:
    made = Credentials("alice", "s3cret", "t0ken")
    for shown in (repr(made), str(made), f"{ClientOptions(credentials=made)}"):
        assert "alice" in shown and "s3cret" not in shown and "t0ken" not in shown
    assert pickle.loads(pickle.dumps(made)) == made, "Spark sends it to its workers"


def test_the_environment(tmp_path: Path) -> None:
    path = written(tmp_path, "accessKey: bob\nsecretKey: b0b\n")
    found = Credentials.from_environment
    named = {"TURBOPUMP_CREDENTIALS": str(path)}
    both = {"TURBOPUMP_ACCESS_KEY": "alice", "TURBOPUMP_SECRET_KEY": "s3cret"}
    assert found({}) is None
    assert found(dict.fromkeys((*named, *both), "")) is None
    assert found(both) == ALICE
    assert found({**both, "TURBOPUMP_SECURITY_TOKEN": "t"}) == Credentials("alice", "s3cret", "t")
    assert found(named) == Credentials("bob", "b0b")
    assert found({**both, **named}) == ALICE
    for name in both:
        half = {name: both[name]}
        assert found({**half, **named}) == Credentials("bob", "b0b")
        with pytest.raises(InvalidArgument, match=f"{name} is set in the environment, but TURBO"):
            found(half)
    with pytest.raises(InvalidArgument, match=r"TURBOPUMP_CREDENTIALS: .*gone: No such file"):
        found({"TURBOPUMP_CREDENTIALS": str(tmp_path / "gone")})


def test_options_come_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert effective_credentials(None) is None
    monkeypatch.setenv("TURBOPUMP_ACCESS_KEY", "bob")
    with pytest.raises(InvalidArgument, match="TURBOPUMP_SECRET_KEY is not"):
        SharedClient("127.0.0.1:9876")
    SharedClient("127.0.0.1:9876", ClientOptions(credentials=ALICE))
    monkeypatch.setenv("TURBOPUMP_SECRET_KEY", "b0b")
    assert effective_credentials(None) == Credentials("bob", "b0b")
    assert effective_credentials(ALICE) is ALICE
    wrong: Any = "alice:s3cret"
    with pytest.raises(InvalidArgument, match=r"credentials is a turbopump\.Credentials"):
        effective_credentials(wrong)


def test_a_request_is_signed_with_the_token() -> None:
    sign = signer_of(Credentials("alice", "s3cret", "t0ken"))
    assert sign is not None
    request = Command(310, fields={"b": "T"}, body=b"hello")
    sign(request)
    assert request.fields["AccessKey"] == "alice" and request.fields["SecurityToken"] == "t0ken"
    assert is_signed(request, "s3cret") and not is_signed(request, "other")
    assert signer_of(None) is None
