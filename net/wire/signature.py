"""Signatures of remoting requests: the bytes that are signed, and HMAC-SHA1 over them.

Owns the content of a signature and its comparison. It must never know a user, nor log a secret.
Brokers verify requests with it, clients sign them (RocketMQ: AclUtils, AclSigner).

The content is the values of all extFields except Signature, in the order of their keys and without
a separator, then the body. Code, opaque, flag and version are not part of it, and it has no time:
only TLS keeps a recorded request from being sent again.
"""

import base64
import hmac
from collections.abc import Mapping
from typing import Final

from turbopump.net.wire.command import Body, Command

ACCESS_KEY: Final = "AccessKey"
"""Field with the name of the user that signed a request."""
SIGNATURE: Final = "Signature"
"""Field with the signature, as padded base64."""
SECURITY_TOKEN: Final = "SecurityToken"
"""Field with a token: signed like any other field, and not checked."""
UNIQUE_KEY_QUERY: Final = "_UNIQUE_KEY_QUERY"
"""Field that clients up to UNSIGNED_UNIQUE_KEY_VERSION add to a request after signing it."""
UNSIGNED_UNIQUE_KEY_VERSION: Final = 399
"""MQVersion number of 4.9.3."""


def signed_content(fields: Mapping[str, str], body: Body = b"", *, without: str = "") -> bytes:
    """Return the bytes that are signed; field `without` is left out, as Signature always is.

    Keys are sorted as Java sorts them, by UTF-16 code units. Values are encoded as UTF-8, with `?`
    for half of a surrogate pair.
    """
    plain = "".join(fields).isascii()
    keys = sorted(fields) if plain else sorted(fields, key=_utf16)
    values = [fields[key] for key in keys if key not in (SIGNATURE, without)]
    head = "".join(values).encode("utf-8", "replace")
    if isinstance(body, list):
        return b"".join((head, *body))
    return head + body if body else head


def sign(secret: str, content: bytes) -> str:
    """Return the signature of `content`: HMAC-SHA1 with the UTF-8 of `secret`, as padded base64."""
    digest = hmac.digest(secret.encode("utf-8", "replace"), content, "sha1")
    return base64.b64encode(digest).decode("ascii")


def sign_request(
    request: Command, access_key: str, secret: str, security_token: str | None = None
) -> None:
    """Set AccessKey, SecurityToken (unless it is None or empty) and Signature of `request`; a
    Signature that it has is replaced.

    To be called after every other field and the body are set.
    """
    request.fields[ACCESS_KEY] = access_key
    if security_token:
        request.fields[SECURITY_TOKEN] = security_token
    request.fields[SIGNATURE] = sign(secret, signed_content(request.fields, request.body))


def is_signed(request: Command, secret: str) -> bool:
    """Whether the Signature of a received request is that of `secret`; False without a Signature.

    The time of the comparison does not depend on the position of a difference. For clients up to
    4.9.3 the field _UNIQUE_KEY_QUERY is left out, as in RocketMQ
    (DefaultAuthenticationContextBuilder).
    """
    given = request.fields.get(SIGNATURE)
    if not given:
        return False
    old = request.version <= UNSIGNED_UNIQUE_KEY_VERSION
    without = UNIQUE_KEY_QUERY if old else ""
    expected = sign(secret, signed_content(request.fields, request.body, without=without))
    return hmac.compare_digest(expected.encode(), given.encode("utf-8", "replace"))


def _utf16(key: str) -> bytes:
    """Return the sort key by which Java orders texts."""
    return key.encode("utf-16-be", "surrogatepass")
