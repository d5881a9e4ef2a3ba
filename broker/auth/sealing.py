"""Encryption of users' secrets in the table's file.

Owns the form of an encrypted secret. It must never read a file, nor log or return a key.

The form is `gcm1:` and base64 of 12 bytes of nonce and the output of AES-256-GCM; the user's name
is authenticated with it, so that one user's secret cannot be given to another. It needs the package
`cryptography` (the extra `tls`).
"""

import base64
import binascii
import os
from typing import Final

from turbopump.net.wire.java_properties import ConfigError

PREFIX: Final = "gcm1:"
"""Begin of an encrypted secret."""
KEY_BYTES: Final = 32
"""Bytes of a key."""
_NONCE_BYTES: Final = 12
_MISSING: Final = "the package cryptography is needed to encrypt secrets; install turbopump[tls]"


class SealError(ValueError):
    """An encrypted secret that this key does not open."""


class Sealer:
    """Encrypts and decrypts secrets with one key."""

    def __init__(self, key: bytes) -> None:
        """`key` has KEY_BYTES bytes. Raises ConfigError without the package cryptography."""
        assert len(key) == KEY_BYTES, "a key has 32 bytes"
        try:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        except ImportError:
            raise ConfigError(_MISSING) from None
        self._cipher = AESGCM(key)

    def seal(self, name: str, secret: str) -> str:
        """Encrypt the secret of user `name`; another text for each call."""
        nonce = os.urandom(_NONCE_BYTES)
        sealed = nonce + self._cipher.encrypt(nonce, secret.encode(), name.encode())
        return PREFIX + base64.b64encode(sealed).decode("ascii")

    def open(self, name: str, sealed: str) -> str:
        """Decrypt a text that `seal` returned for the same user. Raises SealError."""
        from cryptography.exceptions import InvalidTag

        try:
            if not sealed.startswith(PREFIX):
                raise SealError("the secret is not encrypted")
            data = base64.b64decode(sealed[len(PREFIX) :], validate=True)
            nonce, rest = data[:_NONCE_BYTES], data[_NONCE_BYTES:]
            return self._cipher.decrypt(nonce, rest, name.encode()).decode()
        except (binascii.Error, InvalidTag, ValueError) as error:
            if isinstance(error, SealError):
                raise
            raise SealError("the secret was encrypted with another key") from None


def read_key(content: bytes, path: str) -> bytes:
    """Return the key in the content of a key file: 32 bytes as base64 or as 64 hexadecimal digits,
    with blanks around them. Raises ConfigError with `path`, without the content."""
    text = content.strip()
    try:
        key = bytes.fromhex(text.decode()) if len(text) == 2 * KEY_BYTES else b""
        key = key or base64.b64decode(text, validate=True)
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise ConfigError(f"{path} has no key: 32 random bytes as base64 or 64 hex digits")
    return key
