"""Outcomes of half messages in memory: one byte for each, from the first open one.

Extends the marks of pyx/halves.pyx by the progress in both queues of transactions. No store is
read.

    half queue   | done with      | x  open  x  open  open ...        x: an outcome is known
                                  ^ base
    op queue     | done with      | o  o  o                           each names half messages
                                  ^ op_base

A half message takes hundreds of bytes of the log and one byte here, while an earlier one is open.

Tests: tests/unit/broker/scheduled/test_transactions.py
"""

from collections import deque
from collections.abc import Callable
from enum import IntEnum

from turbopump.engine.types import LogOffset, QueueOffset
from turbopump.pyx.halves import HalfMarks


class TransactionOutcome(IntEnum):
    """The known outcome of a half message."""

    OPEN = 0
    """Not ended, as far as known."""
    COMMITTED = 1
    """The committed message is in the log."""
    ROLLED_BACK = 2
    """The producer rolled it back."""
    DONE = 3
    """An op message marks it as finished, without the outcome; or the transaction has a newer half
    message."""
    GIVEN_UP = 4
    """The producer was asked the maximum number of times, or the half message became too old."""


class TransactionOutcomes(HalfMarks):
    """The outcomes of half messages in a term, one byte for each from queue offset `base` on. The
    base class has the part shared with the native path, which ends most half messages."""

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
        """Queue offset of the first op message that may still count."""
        self._ops: deque[tuple[QueueOffset, QueueOffset]] = deque()
        """(the op message's queue offset, the newest half message it names)."""

    def get(self, at: QueueOffset) -> TransactionOutcome | None:
        """Return the outcome of the half message at queue offset `at`; OPEN if none was set, even
        if it is not stored yet; None before `base`."""
        mark = self.mark_of(at)
        return None if mark < 0 else TransactionOutcome(mark)

    def note_op(self, op_offset: QueueOffset, newest: QueueOffset) -> None:
        """Note that the op message at `op_offset` names half messages up to `newest`; calls come in
        the order of op messages."""
        self._ops.append((op_offset, newest))

    def op_base_at(self, base: QueueOffset) -> QueueOffset:
        """Return the queue offset of the first noted op message that names a half message at or
        after `base`, else the offset after the last noted one; `op_base` if none was noted."""
        for op_offset, newest in self._ops:
            if newest >= base:
                return op_offset
        return QueueOffset(self._ops[-1][0] + 1) if self._ops else self.op_base

    def forget_before(self, base: QueueOffset) -> None:
        """Forget the half messages before `base`, which must all be ended (asserted), and op
        messages that name no later one."""
        assert self.base <= base <= self.next_open(self.base), "an open half message stays"
        self.op_base = self.op_base_at(base)
        while self._ops and self._ops[0][1] < base:
            self._ops.popleft()
        self.drop(base)
