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
        self._skipped: dict[PoppedQueue, tuple[QueueOffset, QueueOffset]] = {}
        """Messages that the filter passed over since the last hand-out: first, and after the last.
        """

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

    def skip(self, queue: PoppedQueue, start: QueueOffset, end: QueueOffset) -> None:
        """No message from `start` to before `end` is for the group: no check point is needed."""
        self._skipped[queue] = self._origin(queue, start), end
        self.settle(queue, self.add(queue, end))

    def has_skipped(self, queue: PoppedQueue) -> bool:
        """Whether the next check point of the queue is to cover messages that were passed over."""
        return queue in self._skipped

    def take_origin(self, queue: PoppedQueue, start: QueueOffset) -> QueueOffset:
        """Where the check point of a hand-out that was read from `start` has to begin: at the first
        message that was passed over since the last hand-out."""
        origin = self._origin(queue, start)
        self._skipped.pop(queue, None)
        return origin

    def _origin(self, queue: PoppedQueue, start: QueueOffset) -> QueueOffset:
        first, end = self._skipped.get(queue, (start, start))
        return first if end == start else start  # else the offset was set meanwhile

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
        self._skipped.pop(queue, None)
        waiting = self._waiting.get(queue)
        if waiting is not None and given in waiting:
            while waiting.pop() is not given:
                pass
            if not waiting:
                del self._waiting[queue]

    def forget(self, queue: PoppedQueue) -> None:
        """The group's offset was set: what is under way does not move it any more."""
        self._waiting.pop(queue, None)
        self._skipped.pop(queue, None)

    def forget_name(self, *, topic: str | None = None, group: str | None = None) -> None:
        """The topic, or the group with its offsets, is gone: no hand-out of it is committed."""
        known = {*self._waiting, *self._skipped}
        for queue in [one for one in known if topic == one.topic or group == one.group]:
            self.forget(queue)

    def forget_all(self) -> None:
        """Another broker is the master, or was."""
        self._waiting.clear()
        self._skipped.clear()
