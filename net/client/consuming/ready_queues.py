"""The choice of the next message to handle: fair between the queues that have one.

Owns the turn of the queues. It must never run a handler.

Tests: tests/unit/net/client/test_small_parts.py
"""

from collections import deque

from turbopump.net.client.consuming.process_queue import ProcessQueue
from turbopump.net.client.messages import ReceivedMessage


class ReadyQueues:
    """Queues that may have a message to hand out, in turn.

    A queue without a message leaves. It is offered again when that may have changed: after a pull,
    an acknowledgement in ordered mode, the end of a suspension, or a renewed lock. True while a
    queue is in the turn, even if it has no message.
    """

    def __init__(self) -> None:
        self._turn: deque[ProcessQueue] = deque()
        self._members: set[int] = set()

    def __bool__(self) -> bool:
        return bool(self._turn)

    def add_queue(self, queue: ProcessQueue) -> None:
        """Add a queue that may have a message to hand out, at the end of the turn; a queue in the
        turn keeps its place."""
        if id(queue) not in self._members:
            self._members.add(id(queue))
            self._turn.append(queue)

    def take_message(self, now_ms: int) -> tuple[ProcessQueue, ReceivedMessage] | None:
        """Take (queue, its next message), which is in flight then; the queue goes to the end of the
        turn. None when no queue has a message at `now_ms` (monotonic clock); all have left then."""
        while self._turn:
            queue = self._turn.popleft()
            message = queue.take_message(now_ms)
            if message is not None:
                self._turn.append(queue)
                return queue, message
            self._members.discard(id(queue))
        return None
