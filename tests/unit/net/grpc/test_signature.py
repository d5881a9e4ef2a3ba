"""Signatures of gRPC calls. The expected digits are of `openssl dgst -sha1 -hmac`."""

import pytest

from turbopump.net.grpc.signature import can_be_sent, date_time, signature, signed_metadata

NOW_MS = 1_780_000_000_999


def test_the_metadata_of_a_call() -> None:
    assert signed_metadata("alice", "s3cret", NOW_MS) == [
        (b"x-mq-date-time", b"20260528T202640Z"),
        (
            b"authorization",
            b"MQv2-HMAC-SHA1 Credential=alice, SignedHeaders=x-mq-date-time,"
            b" Signature=8EF574D464386032C3262BD9AE5F7D274B5FFCFD",
        ),
    ]
    with_token = signed_metadata("alice", "s3cret", NOW_MS, "token")
    assert with_token[2:] == [(b"x-mq-session-token", b"token")]
    assert with_token[:2] == signed_metadata("alice", "s3cret", NOW_MS)


def test_the_time_is_in_utc() -> None:
    assert date_time(0) == "19700101T000000Z"
    assert date_time(NOW_MS) == "20260528T202640Z"


def test_a_secret_that_is_not_ascii() -> None:
    assert (
        signature("s\u00e9cret", "20260528T202640Z") == "06E18F7F7413889A0A03E37704A5C5CDBF15AD24"
    )


@pytest.mark.parametrize(
    ("value", "fits"),
    [
        ("alice", True),
        ("a b", True),
        ("a/b", False),
        ("a,b", False),
        ("\u00fc", False),
        ("a\n", False),
    ],
)
def test_names_that_metadata_can_hold(value: str, fits: bool) -> None:
    assert can_be_sent(value, ends_at="/,") is fits
    assert can_be_sent("a/b,c")
