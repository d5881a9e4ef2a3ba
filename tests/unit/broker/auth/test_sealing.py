"""Encrypted secrets: only the same key opens them, for the same user."""

import base64

import pytest

from turbopump.broker.auth.sealing import Sealer, SealError, read_key
from turbopump.net.wire.java_properties import ConfigError


def test_a_secret_is_opened_by_the_same_key_for_the_same_user() -> None:
    sealer = Sealer(bytes(32))
    sealed = sealer.seal("alice", "s\u00e9cret")
    assert sealer.open("alice", sealed) == "s\u00e9cret"
    assert sealer.seal("alice", "s\u00e9cret") != sealed
    for name, other, text in (
        ("bob", sealer, sealed),
        ("alice", Sealer(bytes(31) + b"1"), sealed),
        ("alice", sealer, sealed[:-8] + "AAAAAAA="),
        ("alice", sealer, "gcm1:"),
        ("alice", sealer, "gcm1:?"),
        ("alice", sealer, "plain"),
    ):
        with pytest.raises(SealError):
            other.open(name, text)


def test_the_forms_of_a_key() -> None:
    key = bytes(range(32))
    assert read_key(base64.b64encode(key) + b"\n", "k") == key
    assert read_key(key.hex().encode(), "k") == key
    for bad in (b"", b"short", base64.b64encode(bytes(31)), b"\xff" * 64):
        with pytest.raises(ConfigError) as raised:
            read_key(bad, "/some/key")
        assert "/some/key" in str(raised.value)
