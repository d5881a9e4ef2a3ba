"""Which groups of which topics pop instead of pulling: messageRequestMode.json.

Owns RocketMQ's table of them, unread: groups of this broker pull. It is there so that what a
RocketMQ master was given is not lost while this broker is its replica, or the master. It must never
decide how a group consumes. Called by the handler of 402 and broker/ha/metadata/pulling.py.
"""

from functools import partial
from typing import Any, Final

from turbopump.broker.tables.saving import Saver
from turbopump.engine.disk.config_files import pieces_of
from turbopump.engine.disk.kept_table import Content
from turbopump.net.wire.bodies import BadBody, as_object, dump, table
from turbopump.net.wire.java_properties import ConfigError

FILE_NAME: Final = "messageRequestMode.json"
MAP: Final = "messageRequestModeMap"
MAX_SIZE: Final = 4 << 20
"""Bytes of the table, some 40,000 groups; a larger one is not taken over."""


class RequestModes:
    """Topic to group to mode. Loop thread only."""

    def __init__(self, saver: Saver) -> None:
        self._saver = saver
        self._modes: dict[str, Any] = {}

    def load(self) -> None:
        """Read the file, RocketMQ's or ours; raises ConfigError."""
        saved = self._saver.load(FILE_NAME, self._take)
        if saved is not None:
            try:
                self._modes = table(as_object(saved), MAP, as_object)
            except BadBody as error:
                raise ConfigError(f"{FILE_NAME} is damaged: {error}") from None

    def adopt(self, members: dict[str, Any]) -> None:
        """Have what a master answered to 402. Raises BadBody."""
        modes = table(members, MAP, as_object)
        if modes == self._modes:
            return
        if len(dump(modes)) > MAX_SIZE:
            raise BadBody(f"{MAP} has over {MAX_SIZE} bytes")
        self._modes = modes
        self._saver.changed(FILE_NAME, self._take)

    def _take(self) -> Content:
        return partial(pieces_of, self.to_json())

    def to_json(self) -> dict[str, Any]:
        """The content of the file, which is also the answer to 402."""
        return {MAP: self._modes}
