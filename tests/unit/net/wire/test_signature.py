"""Signatures of remoting requests. The expected texts are of `openssl dgst -sha1 -hmac`."""

import pytest

from turbopump.net.wire.command import Command, decode, encode
from turbopump.net.wire.signature import (
    SIGNATURE,
    is_signed,
    sign,
    sign_request,
    signed_content,
)


@pytest.mark.parametrize(
    ("secret", "content", "expected"),
    [
        ("12345678", b"rocketmqgDefault_Producerhello", "yKI8vdRzYRyqNH7OTjTcJ3/c6iU="),
        ("x", b"bodyonly", "Mq0mKzmnraz7GQZdoDt/vxkf5os="),
        ("s\u00e9cret", "rootTopicAq\u00fc1body".encode(), "YekyTiVArwu/YB+4JeTcqB+wHN0="),
        ("k", b"alice\xff", "oMB86z3n3RDU60HS6xIl+wH3sZ4="),
    ],
)
def test_the_signature_is_hmac_sha1_in_base64(secret: str, content: bytes, expected: str) -> None:
    assert sign(secret, content) == expected


def test_the_content_is_the_values_in_the_order_of_keys_then_the_body() -> None:
    fields = {"topic": "T", "AccessKey": "root", "a": "1", "Signature": "old", "Z": "z"}
    assert signed_content(fields, b"body") == b"rootz1Tbody"
    assert signed_content(fields, [memoryview(b"bo"), memoryview(b"dy")]) == b"rootz1Tbody"
    assert signed_content({}, b"") == b""


def test_keys_are_sorted_by_utf16_units() -> None:
    # By code points U+FFFD comes before U+1F600, in UTF-16 after it.
    assert signed_content({"\ufffd": "2", "\U0001f600": "1", "a": "0"}) == b"012"
    assert signed_content({"\ud800": "\ud800"}) == b"?"


def test_a_signed_request_is_accepted_after_both_codecs() -> None:
    for codec in (0, 1):
        request = Command(310, fields={"b": "T\u00fc", "e": "0", "x": ""}, body=b"hello")
        sign_request(request, "alice", "s3cret", "token")
        assert request.fields["SecurityToken"] == "token"
        request.codec = type(request.codec)(codec)
        received = decode(b"".join(encode(request)))
        assert is_signed(received, "s3cret")
        assert not is_signed(received, "s3cret2")
        received.body = b"hellp"
        assert not is_signed(received, "s3cret")


def test_signing_again_replaces_the_signature() -> None:
    request = Command(310, fields={"b": "T"})
    sign_request(request, "alice", "first")
    sign_request(request, "alice", "second")
    assert is_signed(request, "second") and not is_signed(request, "first")


@pytest.mark.parametrize("part", ["", "prefix", "longer", "not base64 \u00fc", "case"])
def test_other_signatures_are_refused(part: str) -> None:
    request = Command(34, fields={}, body=b"{}")
    sign_request(request, "alice", "s3cret")
    right = request.fields[SIGNATURE]
    wrong = {"": "", "prefix": right[:-4], "longer": right + "=", "case": right.swapcase()}
    request.fields[SIGNATURE] = wrong.get(part, part)
    assert not is_signed(request, "s3cret")


def test_a_request_without_a_signature_is_not_signed() -> None:
    assert not is_signed(Command(34, fields={"AccessKey": "alice"}), "s3cret")


def test_old_clients_add_a_field_after_signing() -> None:
    request = Command(12, version=399, fields={"topic": "T"})
    sign_request(request, "alice", "s3cret")
    request.fields["_UNIQUE_KEY_QUERY"] = "true"
    assert is_signed(request, "s3cret")
    request.version = 400
    assert not is_signed(request, "s3cret")
