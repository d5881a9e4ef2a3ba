"""What a program gets from `import turbopump`: every error, and options that say what they want."""

import inspect
from pathlib import Path
from typing import Any

import pytest

import turbopump
from turbopump.net.client import errors as client_errors
from turbopump.net.transport import errors as transport_errors
from turbopump.net.transport.options import ClientTlsSettings, RemotingOptions


@pytest.mark.parametrize("module", [client_errors, transport_errors])
def test_every_error_of_the_client_is_exported(module: Any) -> None:
    errors = {
        name
        for name, found in inspect.getmembers(module, inspect.isclass)
        if issubclass(found, Exception) and found.__module__ == module.__name__
    }
    assert errors and errors <= set(turbopump.__all__)
    assert all(getattr(turbopump, name) is getattr(module, name) for name in errors)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"body": "text"}, "bytes, not str: text.encode()"),
        ({"body": {"a": 1}}, "bytes, not dict"),
        ({"body": None}, "bytes, not NoneType"),
        ({"body": b"x", "keys": "order-1"}, r"keys=\['order-1'\]"),
    ],
)
def test_a_message_says_what_it_wants(arguments: Any, words: str) -> None:
    with pytest.raises(turbopump.InvalidArgument, match=words):
        turbopump.Message("T", **arguments)
    for body in (b"x", bytearray(b"x"), memoryview(b"x")):
        turbopump.Message("T", body)  # type: ignore[arg-type]


def test_one_tls_option() -> None:
    own = ClientTlsSettings(cert_path="c", key_path="k")
    trusting = ClientTlsSettings(trust_cert_path="ca.pem", auth_server=True, test_mode=False)
    for given, tls in (
        (False, None),
        (True, ClientTlsSettings()),
        ("ca.pem", trusting),
        (Path("ca.pem"), trusting),
        (own, own),
    ):
        assert turbopump.ClientOptions(tls=given).remoting.tls == tls
    assert turbopump.ClientOptions().remoting == RemotingOptions(), "the same defaults"
    options = turbopump.ClientOptions(connect_timeout_ms=1, idle_timeout_ms=2, max_in_flight=3)
    remoting = options.remoting
    assert (remoting.connect_timeout_ms, remoting.idle_timeout_ms, remoting.max_in_flight) == (
        1,
        2,
        3,
    )
