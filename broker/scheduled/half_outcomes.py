"""What became of each half message: one byte a message, from the first one that is still open on.

Owns that memory and how far both queues of transactions are done with. It must never read a store.
Called by transactions.py.

    half queue   | done with      | x  open  x  open  open ...        x: an outcome is known
                                  ^ base
    op queue     | done with      | o  o  o                           each names half messages
                                  ^ op_base

A half message takes hundreds of bytes of the log and one here, for as long as one before it is
open.
"""

from collections import deque
from enum import IntEnum

from turbopump.engine.types import QueueOffset


class HalfOutcome(IntEnum):
    """What is known of a half message."""

    OPEN = 0
    COMMITTED = 1
    ROLLED_BACK = 2
    DONE = 3
    """An op message says so, which does not say how; or there is a newer one of the transaction."""
    GIVEN_UP = 4
    """Its producer was asked often enough."""


class HalfOutcomes:
    """Of one queue of half messages; `base` is the first one that may be open, `op_base` the first
    op message that may count."""

    def __init__(self, base: QueueOffset, op_base: QueueOffset) -> None:
        self.base = base
        self.op_base = op_base
        self._known = bytearray()
        self._ops: deque[tuple[QueueOffset, QueueOffset]] = deque()
        """(the op message's queue offset, the newest half message it names)."""

    def get(self, at: QueueOffset) -> HalfOutcome | None:
        """None for one before `base`."""
        number = at - self.base
        if number < 0:
            return None
        return HalfOutcome(self._known[number]) if number < len(self._known) else HalfOutcome.OPEN

    def is_open(self, at: int) -> bool:
        """Whether nothing is known of one, at or behind `base`."""
        number = at - self.base
        return number >= len(self._known) or (number >= 0 and not self._known[number])

    def set(self, at: QueueOffset, outcome: HalfOutcome) -> None:
        """One before `base` is done with whatever comes."""
        number = at - self.base
        if number < 0:
            return
        missing = number + 1 - len(self._known)
        if missing > 0:
            self._known.extend(bytes(missing))
        self._known[number] = outcome

    def next_open(self, at: QueueOffset) -> QueueOffset:
        """The first one from `at` on of which nothing is known; there may be none there yet."""
        found = self._known.find(HalfOutcome.OPEN, max(at - self.base, 0))
        behind = QueueOffset(self.base + len(self._known))
        return QueueOffset(self.base + found) if found >= 0 else max(at, behind)

    def open_count(self, end: QueueOffset) -> int:
        """How many before `end`, the end of the queue, are open."""
        behind = max(end - self.base - len(self._known), 0)
        return self._known.count(HalfOutcome.OPEN) + behind

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
        del self._known[: base - self.base]
        self.base = base
