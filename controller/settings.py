"""The controller's configuration, for those who ask for it and who change it.

Owns the answers to GET_CONTROLLER_CONFIG (1010) and UPDATE_CONTROLLER_CONFIG (1009). It must never
know a key: the node's configuration does. Called by core.py; any controller answers, each for
itself.
"""

from typing import Protocol

from turbopump.engine.later import Later
from turbopump.net.wire.codes import ResponseCode
from turbopump.net.wire.command import Command, response
from turbopump.net.wire.java_properties import (
    PropertiesError,
    Property,
    format_properties,
    parse_properties,
)


class Settings(Protocol):
    """What a node lets others see and change of its configuration."""

    @property
    def black_list(self) -> frozenset[str]:
        """Keys that are only changed in the file (configBlackList)."""

    def values(self) -> dict[str, str]:
        """Every key and its value as text."""

    def change(self, properties: list[Property]) -> Later[str | None]:
        """Take over and save, all or nothing; why not, or None."""


def listing(settings: Settings, request: Command) -> Command:
    """1010: `key=value` lines in order."""
    body = format_properties(settings.values()).encode()
    return response(request, ResponseCode.SUCCESS, body=body)


def update(settings: Settings, request: Command) -> Later[Command]:
    """1009: answered when it is saved."""
    assert isinstance(request.body, bytes), "a decoded body is bytes"
    told: Later[Command] = Later()
    try:
        properties = parse_properties(request.body.decode("utf-8", "replace"))
    except PropertiesError as error:
        told.resolve(response(request, ResponseCode.SYSTEM_ERROR, str(error)))
        return told
    if any(item.key in settings.black_list for item in properties):
        remark = "Can not update config in black list."
        told.resolve(response(request, ResponseCode.NO_PERMISSION, remark))
        return told

    def answer(reason: str | None) -> Command:
        code = ResponseCode.SUCCESS if reason is None else ResponseCode.SYSTEM_ERROR
        return response(request, code, reason)

    return settings.change(properties).map(answer)
