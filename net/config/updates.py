"""Requests that change a node's configuration: a peer's text before a node looks at it.

Owns the bounds of such a request and what its lines may be. It must never know which node has which
key. Called by the handlers of 25, 318 and 1009.
"""

import re
from typing import Final

from turbopump.engine.types import Buffer
from turbopump.net.config.idle import place
from turbopump.net.config.node_config import MAX_KEY_SHOWN
from turbopump.net.wire.java_properties import PropertiesError, Property, parse_properties

MAX_UPDATE: Final = 64 << 10
"""Bytes of a request that changes a configuration: all keys of a broker are a fifth of it."""
MAX_LINES: Final = 2_000
"""Of such a request: a broker has some 500 keys."""
MAX_TOLD: Final = 20
"""Warnings of one that are logged, and refused keys that its answer names."""
_KEY: Final = re.compile(r"[A-Za-z][A-Za-z0-9._]*")


def parse_update(body: Buffer) -> list[Property]:
    """The properties of a request that changes a configuration.

    A peer's text becomes lines of a file: keys are names, and nothing has a character that a line
    cannot show. Raises PropertiesError.
    """
    if len(body) > MAX_UPDATE:
        raise PropertiesError(f"a change of the configuration is over {MAX_UPDATE} bytes")
    if bytes(body).count(b"\n") > MAX_LINES:
        raise PropertiesError(f"a change of the configuration has over {MAX_LINES} lines")
    try:
        properties = parse_properties(str(body, "utf-8"))
    except UnicodeDecodeError:
        raise PropertiesError("the properties are not UTF-8") from None
    for item in properties:
        if not _KEY.fullmatch(item.key):
            raise PropertiesError(f"{item.key[:MAX_KEY_SHOWN]!r} is no key{place(item)}")
        if not item.value.isprintable():
            raise PropertiesError(f"{item.key}: the value is not one line of text{place(item)}")
    # Of a key that is there several times the last one counts, as in Java.
    return list({item.key: item for item in properties}.values())
