"""Requests that query or change a node's configuration.

Owns the bounds of such a request, the form of its lines, and the responses of name servers and
controllers (318 and 319, 1009 and 1010). It must never know which node has which key.

Tests: tests/unit/broker/handlers/admin/test_broker.py, tests/unit/namesrv/test_handlers.py
"""

import copy
import logging
import re
from collections.abc import Callable
from typing import Final

from turbopump.engine.deferred import Deferred
from turbopump.engine.types import Buffer
from turbopump.net.config.idle import line_suffix
from turbopump.net.config.node_config import MAX_KEY_SHOWN, NodeConfig
from turbopump.net.wire.codes import ResponseCode
from turbopump.net.wire.command import Command, new_response
from turbopump.net.wire.java_properties import (
    PropertiesError,
    Property,
    format_properties,
    parse_properties,
)

logger = logging.getLogger(__name__)

MAX_UPDATE: Final = 64 << 10
"""Maximum bytes of a request to change a configuration: five times all keys of a broker."""
MAX_LINES: Final = 2_000
"""Maximum lines of such a request: a broker has some 500 keys."""
LISTED_MAX: Final = 20
"""Maximum number of warnings that are logged for a request, and of refused keys in a broker's
response."""
_KEY: Final = re.compile(r"[A-Za-z][A-Za-z0-9._]*")


def parse_update(body: Buffer) -> list[Property]:
    """Parse the body of a request that changes a configuration; a repeated key has its last value,
    at its first place.

    A peer's text becomes lines of a file, so keys must be names, and all characters of values
    printable. Raises PropertiesError, also for a body beyond MAX_UPDATE or MAX_LINES.
    """
    if len(body) > MAX_UPDATE:
        raise PropertiesError(f"a change of the configuration exceeds {MAX_UPDATE} bytes")
    if bytes(body).count(b"\n") > MAX_LINES:
        raise PropertiesError(f"a change of the configuration has over {MAX_LINES} lines")
    try:
        properties = parse_properties(str(body, "utf-8"))
    except UnicodeDecodeError:
        raise PropertiesError("the properties are not UTF-8") from None
    for item in properties:
        if not _KEY.fullmatch(item.key):
            raise PropertiesError(f"{item.key[:MAX_KEY_SHOWN]!r} is no key{line_suffix(item)}")
        if not item.value.isprintable():
            raise PropertiesError(
                f"{item.key}: the value is not one line of text{line_suffix(item)}"
            )
    # The last value of a repeated key counts, as in Java.
    return list({item.key: item for item in properties}.values())


def get_config(config: NodeConfig, request: Command) -> Command:
    """The response to 319 and 1010: UTF-8 lines `key=value` of all values but credentials, sorted
    by key."""
    body = format_properties(config.values_as_text()).encode()
    return new_response(request, ResponseCode.SUCCESS, body=body)


def update_config(
    config: NodeConfig,
    request: Command,
    address: str,
    save: Callable[[list[Property]], Deferred[OSError | None]],
) -> Command | Deferred[Command]:
    """Handle 318 and 1009: check the change on a copy of `config`, call `save` with the accepted
    properties, and change `config` once it resolves to None. Returns the response: at once if the
    change is refused (NO_PERMISSION or SYSTEM_ERROR), else when it is saved, or SYSTEM_ERROR if
    that failed.

    `address` is the peer's, for the log. `save` resolves to the error of the write, or None.
    """
    assert not isinstance(request.body, list), "a decoded body is bytes"
    try:
        properties = parse_update(request.body or b"")
        if any(config.is_black_listed(item.key) for item in properties):
            remark = "Can not update config in black list."
            return new_response(request, ResponseCode.NO_PERMISSION, remark)
        for warning in copy.copy(config).update_keys(properties)[:LISTED_MAX]:
            logger.warning("configuration from %s: %s", address, warning)
        changed = config.accepted_changes(properties)
    except PropertiesError as error:
        return new_response(request, ResponseCode.SYSTEM_ERROR, str(error))

    def answer_saved(error: OSError | None) -> Command:
        if error is not None:
            logger.error("configuration change from %s was not saved: %s", address, error)
            return new_response(request, ResponseCode.SYSTEM_ERROR, f"not saved: {error}")
        config.update_keys(changed)
        return new_response(request, ResponseCode.SUCCESS)

    return save(changed).map(answer_saved)
