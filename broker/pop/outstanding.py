"""Positions up to which each queue was given out, until they become the group's offset.

Owns the hand-outs whose check points are not safe yet (RocketMQ: the commit queues of
PopBufferMergeService). An offset must never be committed past a check point that a crash or another
master could remove: no consumer would get the messages after it.

    committed <= hand-out, hand-out, ...  in the order of the queue; the next pop starts at the last
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from turbopump.engine.types import QueueOffset

MAX_WAITING: Final = 20_000
"""Maximum number of pending hand-outs of a queue (popCkOffsetMaxQueueSize); at that number the
queue is not popped."""


class PoppedQueue(NamedTuple):
    """A queue as a group reads it; `topic` may be a retry topic."""

    topic: str
    group: str
    queue_id: int


@dataclass(slots=True, eq=False)
class OutstandingBatch:
    """Messages given out of a queue, up to before `end`; `is_safe` once their check point is
    safe."""

    end: QueueOffset
    is_safe: bool = False


class OutstandingPops:
    """The hand-outs of pops whose check points are not safe yet, by queue. Loop thread only.
    `commit(queue, offset)` sets the group's offset; `skip_messages` and `mark_safe` call it before
    they return."""

    def __init__(self, commit: Callable[[PoppedQueue, QueueOffset], None]) -> None:
        self._commit = commit
        self._waiting: dict[PoppedQueue, deque[OutstandingBatch]] = {}
        self._skipped: dict[PoppedQueue, tuple[QueueOffset, QueueOffset]] = {}
        """Messages that the filter skipped since the last hand-out: (first, end), end exclusive."""

    def next_offset(self, queue: PoppedQueue) -> QueueOffset | None:
        """Return the end of the last pending hand-out, where the next pop begins; None if no
        hand-out is pending: the next pop begins at the group's offset."""
        waiting = self._waiting.get(queue)
        return waiting[-1].end if waiting else None

    def is_full(self, queue: PoppedQueue) -> bool:
        """Whether MAX_WAITING hand-outs of the queue wait for their check points."""
        return len(self._waiting.get(queue, ())) >= MAX_WAITING

    def add(self, queue: PoppedQueue, end: QueueOffset) -> OutstandingBatch:
        """Add a hand-out of messages up to before `end`, after the earlier hand-outs of the queue.
        The caller passes the result to `mark_safe` or `drop_from` later."""
        given = OutstandingBatch(end)
        self._waiting.setdefault(queue, deque()).append(given)
        return given

    def skip_messages(self, queue: PoppedQueue, start: QueueOffset, end: QueueOffset) -> None:
        """Count the messages from `start` to before `end` as handed out and safe: the filter
        refused them, so no check point is needed. The next check point must begin at
        `take_check_point_start`.
        """
        self._skipped[queue] = self._skipped_start(queue, start), end
        self.mark_safe(queue, self.add(queue, end))

    def has_skipped(self, queue: PoppedQueue) -> bool:
        """Whether the filter skipped messages since the last hand-out, which the next check point
        must cover."""
        return queue in self._skipped

    def take_check_point_start(self, queue: PoppedQueue, start: QueueOffset) -> QueueOffset:
        """Return where the check point of a hand-out read from `start` must begin: at the first
        message skipped since the last hand-out if the skipped messages end at `start`, else at
        `start`. The skipped messages are forgotten: call it once for each hand-out."""
        origin = self._skipped_start(queue, start)
        self._skipped.pop(queue, None)
        return origin

    def _skipped_start(self, queue: PoppedQueue, start: QueueOffset) -> QueueOffset:
        """Return the first message skipped since the last hand-out if the skipped ones end at
        `start`, else `start`."""
        first, end = self._skipped.get(queue, (start, start))
        return first if end == start else start  # else the offset was set meanwhile

    def mark_safe(self, queue: PoppedQueue, given: OutstandingBatch) -> None:
        """Mark the hand-out as safe. If it is the first pending hand-out of the queue, commit the
        end of the safe hand-outs up to the first that is not safe. A hand-out that was dropped or
        forgotten has no effect."""
        given.is_safe = True
        waiting = self._waiting.get(queue)
        end = None
        while waiting and waiting[0].is_safe:
            end = waiting.popleft().end
        if waiting is not None and not waiting:
            del self._waiting[queue]
        if end is not None:
            self._commit(queue, end)

    def drop_from(self, queue: PoppedQueue, given: OutstandingBatch) -> None:
        """Remove a hand-out whose check point may be missing, and all later hand-outs of the queue:
        their messages are given out once more."""
        self._skipped.pop(queue, None)
        waiting = self._waiting.get(queue)
        if waiting is not None and given in waiting:
            while waiting.pop() is not given:
                pass
            if not waiting:
                del self._waiting[queue]

    def forget_queue(self, queue: PoppedQueue) -> None:
        """Remove the queue's hand-outs without a commit: the group's offset was set, and they must
        not move it."""
        self._waiting.pop(queue, None)
        self._skipped.pop(queue, None)

    def forget_name(self, *, topic: str | None = None, group: str | None = None) -> None:
        """Remove the hand-outs of a deleted topic, or of a group deleted with its offsets, without
        a commit. A retry topic is a topic of its own."""
        known = {*self._waiting, *self._skipped}
        for queue in [one for one in known if topic == one.topic or group == one.group]:
            self.forget_queue(queue)

    def forget_all(self) -> None:
        """Forget all hand-outs without a change of offsets, because the role of this broker
        changed."""
        self._waiting.clear()
        self._skipped.clear()
