"""Up to where each queue was given out, and when that becomes the group's offset.

Owns the hand-outs whose check points are not safe yet (RocketMQ: the commit queues of
PopBufferMergeService). It must never commit beyond a check point that a crash or another master
could take back: what is behind it would be given to no consumer again. Called by popping.py.

    committed <= hand-out, hand-out, ...  each behind the one before; the last is where to pop next
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from turbopump.engine.types import QueueOffset

MAX_WAITING: Final = 20_000
"""Hand-outs of one queue that wait (popCkOffsetMaxQueueSize); more are not popped meanwhile."""


class PoppedQueue(NamedTuple):
    """A queue as one group reads it; `topic` may be a retry topic."""

    topic: str
    group: str
    queue_id: int


@dataclass(slots=True, eq=False)
class HandOut:
    """What was given out of a queue ends before `end`; `is_safe` once its check point is."""

    end: QueueOffset
    is_safe: bool = False


class HandOuts:
    """The hand-outs under way, by queue. Loop thread only. `commit` sets the group's offset."""

    def __init__(self, commit: Callable[[PoppedQueue, QueueOffset], None]) -> None:
        self._commit = commit
        self._waiting: dict[PoppedQueue, deque[HandOut]] = {}

    def next_offset(self, queue: PoppedQueue) -> QueueOffset | None:
        """Where to pop next; None: at the group's offset."""
        waiting = self._waiting.get(queue)
        return waiting[-1].end if waiting else None

    def is_full(self, queue: PoppedQueue) -> bool:
        """Whether too many hand-outs of the queue wait for their check points."""
        return len(self._waiting.get(queue, ())) >= MAX_WAITING

    def add(self, queue: PoppedQueue, end: QueueOffset) -> HandOut:
        """Something was given out; `settle` or `drop` is to follow."""
        given = HandOut(end)
        self._waiting.setdefault(queue, deque()).append(given)
        return given

    def skip(self, queue: PoppedQueue, end: QueueOffset) -> None:
        """Nothing before `end` is for the group: no check point is needed."""
        self.settle(queue, self.add(queue, end))

    def settle(self, queue: PoppedQueue, given: HandOut) -> None:
        """Its check point is safe. Offsets are committed in the order of the queue."""
        given.is_safe = True
        waiting = self._waiting.get(queue)
        end = None
        while waiting and waiting[0].is_safe:
            end = waiting.popleft().end
        if waiting is not None and not waiting:
            del self._waiting[queue]
        if end is not None:
            self._commit(queue, end)

    def drop(self, queue: PoppedQueue, given: HandOut) -> None:
        """It is not known whether its check point is there: its messages, and those behind them,
        are given out once more."""
        waiting = self._waiting.get(queue)
        if waiting is not None and given in waiting:
            while waiting.pop() is not given:
                pass
            if not waiting:
                del self._waiting[queue]

    def forget(self, queue: PoppedQueue) -> None:
        """The group's offset was set: what is under way does not move it any more."""
        self._waiting.pop(queue, None)

    def forget_all(self) -> None:
        """Another broker is the master, or was."""
        self._waiting.clear()
