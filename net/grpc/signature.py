"""Signatures of gRPC calls: the metadata `authorization` and `x-mq-date-time`.

Owns the algorithm MQv2-HMAC-SHA1 and the form of both values. It must never know a user, nor log a
secret. Clients sign each call and each stream with it (RocketMQ: client/java's Signature).

Only the text of the time is signed, nothing of the request: only TLS keeps recorded metadata from
being sent with another call.
"""

import hmac
import time
from typing import Final

ALGORITHM: Final = "MQv2-HMAC-SHA1"
"""The first word of an authorization."""
AUTHORIZATION: Final = b"authorization"
"""Name of the metadata with the user and the signature."""
DATE_TIME: Final = b"x-mq-date-time"
"""Name of the metadata with the signed time."""
SESSION_TOKEN: Final = b"x-mq-session-token"
"""Name of the metadata with a token, which is not signed."""


def signed_metadata(
    access_key: str, secret: str, now_ms: int, security_token: str = ""
) -> list[tuple[bytes, bytes]]:
    """Return the metadata of a call at `now_ms` (epoch milliseconds) that is signed by a user.

    `access_key` and `security_token` must be texts that `can_be_sent`.
    """
    signed = date_time(now_ms)
    authorization = (
        f"{ALGORITHM} Credential={access_key}, SignedHeaders={DATE_TIME.decode()},"
        f" Signature={signature(secret, signed)}"
    )
    found = [(DATE_TIME, signed.encode()), (AUTHORIZATION, authorization.encode())]
    return [*found, (SESSION_TOKEN, security_token.encode())] if security_token else found


def date_time(epoch_ms: int) -> str:
    """Return the text of a time, in UTC: 20300131T080000Z. Java's clients write local time with the
    same Z: servers need not read it, because they check the signature of the text."""
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(epoch_ms / 1_000))


def signature(secret: str, signed: str) -> str:
    """Return the signature of the text of a time: HMAC-SHA1 with the UTF-8 of `secret`, as hex
    digits in capitals."""
    digest = hmac.digest(secret.encode("utf-8", "replace"), signed.encode(), "sha1")
    return digest.hex().upper()


def can_be_sent(value: str, ends_at: str = "") -> bool:
    """Whether a text can be a value of metadata, which has only printable ASCII, and has none of
    the characters `ends_at`. For a user's name these are "/" and ",": servers end it there."""
    return value.isascii() and value.isprintable() and not set(value) & set(ends_at)
