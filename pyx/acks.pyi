from collections.abc import Callable
from typing import Self

from turbopump.pyx.dispatch import QueueTable

MAX_ACKERS: int

class Acks:
    """Which acknowledgements a broker serves natively. Loop thread only."""

    def __new__(cls, queues: QueueTable) -> Self: ...
    def begin(
        self,
        low_of: Callable[[bytes, int], int],
        counted: Callable[[bytes, bytes, int, int, int, int, int, int], None],
    ) -> None:
        """Serve from now on. `low_of(topic, queue_id)` is the first queue offset of a queue;
        `counted(group, topic, until_ms, floor, change, acked, queue_id, first)` takes what became
        of messages that are hidden up to some time in that second: their count is the greater one
        of `floor` and of what it was and `change`; `acked` requests were answered; `first` of
        `queue_id` was popped first, -1: nothing was."""

    def configure(self, revive_topic: bytes, revive_queues: int) -> None:
        """The topic that records go to when they are due, and its queues."""

    def serve(self, group: bytes, topic: bytes, queue_limit: int, ended_ms: int) -> None:
        """Acknowledgements of this group and topic are plain, of queue ids below the limit and of
        pops after `ended_ms`, in epoch ms, when a former life of either ended."""

    def forget(self, topic: bytes) -> None:
        """Acknowledgements of this topic are for the Python handler until they are served again."""

    def forget_all(self) -> None:
        """As `forget` for every topic."""

    def mark_changed(
        self, queue_id: int, start: int, pop_time_ms: int, offset: int, by: int
    ) -> None:
        """A change of a message's time replaced a handle (`by` 1): its acknowledgement is for the
        Python handler, until the handle is forgotten (-1)."""

    def tell(self) -> None:
        """Have all counted that was written and popped: what is alike is counted together."""
