"""What became of each half message: one byte a message, from the first one that is still open on.

Owns that memory (pyx/halves.pyx) and how far both queues of transactions are done with. It must
never read a store. Called by transactions.py.

    half queue   | done with      | x  open  x  open  open ...        x: an outcome is known
                                  ^ base
    op queue     | done with      | o  o  o                           each names half messages
                                  ^ op_base

A half message takes hundreds of bytes of the log and one here, for as long as one before it is
open.
"""

from collections import deque
from collections.abc import Callable
from enum import IntEnum

from turbopump.engine.types import LogOffset, QueueOffset
from turbopump.pyx.halves import HalfMarks


class HalfOutcome(IntEnum):
    """What is known of a half message."""

    OPEN = 0
    COMMITTED = 1
    ROLLED_BACK = 2
    DONE = 3
    """An op message says so, which does not say how; or there is a newer one of the transaction."""
    GIVEN_UP = 4
    """Its producer was asked often enough."""


class HalfOutcomes(HalfMarks):
    """Of one queue of half messages and one reign; `op_base` is the first op message that may
    count. What is common with the native path, which ends most of them, is the base's."""

    def __init__(
        self,
        base: QueueOffset,
        op_base: QueueOffset,
        from_log_offset: LogOffset,
        limit: int,
        due: Callable[[], None],
    ) -> None:
        super().__init__(base, from_log_offset, limit, due)
        self.op_base = op_base
        self._ops: deque[tuple[QueueOffset, QueueOffset]] = deque()
        """(the op message's queue offset, the newest half message it names)."""

    def get(self, at: QueueOffset) -> HalfOutcome | None:
        """None for one before `base`."""
        mark = self.mark_of(at)
        return None if mark < 0 else HalfOutcome(mark)

    def note_op(self, op_offset: QueueOffset, newest: QueueOffset) -> None:
        """An op message at that queue offset names half messages, the newest of them this one."""
        self._ops.append((op_offset, newest))

    def op_base_at(self, base: QueueOffset) -> QueueOffset:
        """The first op message that still counts where half messages before `base` do not."""
        for op_offset, newest in self._ops:
            if newest >= base:
                return op_offset
        return QueueOffset(self._ops[-1][0] + 1) if self._ops else self.op_base

    def trim(self, base: QueueOffset) -> None:
        """Forget what is before `base`, of which none is open."""
        assert self.base <= base <= self.next_open(self.base), "an open half message stays"
        self.op_base = self.op_base_at(base)
        while self._ops and self._ops[0][1] < base:
            self._ops.popleft()
        self.drop(base)
