"""Values of properties: from text to what a configuration holds, and back.

Owns the parsers that several nodes' keys share and the keys of TLS. It must never know
which node has which key. Called by the nodes' config modules.
"""

import re
from collections.abc import Callable
from typing import Final

INT32_MAX: Final = 2**31 - 1

SERVER_TLS_KEYS: Final = frozenset(
    {
        "tls.server.mode",
        "tls.server.need.client.auth",
        "tls.server.keyPath",
        "tls.server.keyPassword",
        "tls.server.certPath",
        "tls.server.authClient",
        "tls.server.trustCertPath",
        "tls.test.mode.enable",
    }
)

CLIENT_TLS_KEYS: Final = frozenset(
    {
        "tls.enable",
        "tls.client.certPath",
        "tls.client.keyPath",
        "tls.client.keyPassword",
        "tls.client.trustCertPath",
        "tls.client.authServer",
    }
)

SECRET_KEYS: Final = frozenset({"tls.server.keyPassword", "tls.client.keyPassword"})
"""What no answer to a peer shows."""

Parse = Callable[[str], object]
"""A value of its text; raises ValueError with what was expected."""


def text(value: str) -> str:
    """Any text."""
    return value


def boolean(value: str) -> bool:
    """`true` or `false`, in any case, as Java reads them; raises ValueError for anything else."""
    if value.lower() not in ("true", "false"):
        raise ValueError("true or false")
    return value.lower() == "true"


def between(low: int, high: int) -> Callable[[str], int]:
    """A parser of whole numbers within the limits, which are in its ValueError."""

    def parse(value: str) -> int:
        if not re.fullmatch(r"-?\d{1,19}", value) or not low <= int(value) <= high:
            raise ValueError(f"a whole number from {low} to {high}")
        return int(value)

    return parse


def show(value: object) -> str:
    """A value as RocketMQ writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
