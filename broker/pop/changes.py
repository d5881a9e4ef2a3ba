"""Handles whose message has another time: a consumer changed it, and got a new handle.

Owns which handles were replaced, so that a change that is repeated is one change, and an
acknowledgement by the old handle is an error: its check point is handled, and the message comes
again. It must never decide an answer, nor keep a handle beyond its time. A restart forgets them.
Called by the handlers of acknowledgements.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from turbopump.engine.later import Later
from turbopump.engine.types import PutStatus, QueueOffset
from turbopump.net.wire.names import kept_size
from turbopump.net.wire.pop_records import CheckPointKey

MAX_SIZE: Final = 16 << 20
"""Bytes of all handles; beyond it those that were replaced first are forgotten."""
HANDLE_SIZE: Final = 700
"""Bytes of one besides its texts."""


@dataclass(slots=True, frozen=True)
class TimeChange:
    """The new time of a message: its check point began at `pop_time_ms`. `written` is resolved once
    that, and the acknowledgement of the old one, are safe."""

    pop_time_ms: int
    invisible_ms: int
    written: Later[PutStatus]
    until_ms: int
    """When the old handle's time ends, in epoch ms."""


_Handle = tuple[CheckPointKey, QueueOffset]


class ChangedHandles:
    """Loop thread only."""

    def __init__(self) -> None:
        self.mark: Callable[[CheckPointKey, QueueOffset, int], None] = lambda key, offset, by: None
        """Has native code leave acknowledgements by a handle to Python (1), or not any longer (-1).
        """
        self._changes: dict[_Handle, TimeChange] = {}
        self.size = 0
        """Bytes of all handles."""

    def get(self, key: CheckPointKey, offset: QueueOffset) -> TimeChange | None:
        """How the message's time was changed by that handle."""
        return self._changes.get((key, offset))

    def add(self, key: CheckPointKey, offset: QueueOffset, change: TimeChange, now_ms: int) -> None:
        """The handle is replaced. A change that fails is dropped: the handle holds as before."""
        self._changes[key, offset] = change
        self.size += _size(key)
        self.mark(key, offset, 1)
        while self._changes:
            first = next(iter(self._changes))
            if self.size <= MAX_SIZE and self._changes[first].until_ms > now_ms:
                break
            self.drop(*first)
        change.written.then(
            lambda status: None if status is PutStatus.PUT_OK else self.drop(key, offset)
        )

    def drop(self, key: CheckPointKey, offset: QueueOffset) -> None:
        """Forget the handle."""
        if self._changes.pop((key, offset), None) is not None:
            self.size -= _size(key)
            self.mark(key, offset, -1)


def _size(key: CheckPointKey) -> int:
    return HANDLE_SIZE + kept_size(key.topic, key.group, key.broker_name)
