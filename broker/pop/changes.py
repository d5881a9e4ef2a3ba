"""Receipt handles that were replaced, because a consumer changed the time of their message.

A repeated change counts once, and an acknowledgement by the old handle is an error: its check point
is handled, and the message comes again. A handle is kept until its time ends; a restart forgets
all.

Tests: tests/unit/broker/handlers/pop/test_acks.py
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from turbopump.engine.deferred import Deferred
from turbopump.engine.types import PutStatus, QueueOffset
from turbopump.net.wire.names import kept_size
from turbopump.net.wire.pop_records import CheckPointKey

MAX_SIZE: Final = 16 << 20
"""Maximum size of all handles in memory, in bytes; beyond it the oldest changes are forgotten."""
HANDLE_SIZE: Final = 700
"""Assumed size of a handle in memory, in bytes, besides its texts."""


@dataclass(slots=True, frozen=True)
class TimeChange:
    """The new time of a message, whose new check point has the time `pop_time_ms` (epoch ms) and
    the invisible time `invisible_ms`. `written` resolves with PUT_OK once the new check point, and
    the acknowledgement of the old one, are safe, or with the status of the failure."""

    pop_time_ms: int
    invisible_ms: int
    written: Deferred[PutStatus]
    until_ms: int
    """When the old handle's time ends, in epoch ms."""


_Handle = tuple[CheckPointKey, QueueOffset]


class ChangedHandles:
    """The receipt handles that are no longer valid, because a consumer changed the time of their
    message. A handle is a check point's key and the message's queue offset. Loop thread only."""

    def __init__(self, mark: Callable[[CheckPointKey, QueueOffset, int], None]) -> None:
        """`mark` makes native code leave acknowledgements by a handle to Python (1), or handle them
        again (-1)."""
        self._mark = mark
        self._changes: dict[_Handle, TimeChange] = {}
        self.size = 0
        """Bytes of all handles."""

    def get(self, key: CheckPointKey, offset: QueueOffset) -> TimeChange | None:
        """Return the change made with the handle; None if it was not replaced, or its time has
        ended."""
        return self._changes.get((key, offset))

    def add(self, key: CheckPointKey, offset: QueueOffset, change: TimeChange, now_ms: int) -> None:
        """Record that the handle is replaced, and remove the oldest handles, as long as their time
        ended by `now_ms` (epoch ms) or all handles are larger than MAX_SIZE. If `change.written`
        fails, the record is dropped: the old handle stays valid. The handle must not be recorded
        yet."""
        self._changes[key, offset] = change
        self.size += _size(key)
        self._mark(key, offset, 1)
        while self._changes:
            first = next(iter(self._changes))
            if self.size <= MAX_SIZE and self._changes[first].until_ms > now_ms:
                break
            self.forget_handle(*first)
        change.written.then(
            lambda status: None if status is PutStatus.PUT_OK else self.forget_handle(key, offset)
        )

    def forget_handle(self, key: CheckPointKey, offset: QueueOffset) -> None:
        """Forget the handle, if it is recorded: its time has ended, or the change failed."""
        if self._changes.pop((key, offset), None) is not None:
            self.size -= _size(key)
            self._mark(key, offset, -1)


def _size(key: CheckPointKey) -> int:
    """Bytes of a recorded handle."""
    return HANDLE_SIZE + kept_size(key.topic, key.group, key.broker_name)
