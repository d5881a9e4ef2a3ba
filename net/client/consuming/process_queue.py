"""The messages of a queue between pull and acknowledgement, and the offset to commit.

Owns the order of hand-out, the messages in flight, the committable offset under out-of-order
acknowledgements, and the flow-control decision. It must never wait, call or read a clock.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from turbopump.engine.types import QueueOffset
from turbopump.net.client.messages import ReceivedMessage
from turbopump.net.wire.queues import MessageQueue


@dataclass(frozen=True, slots=True)
class FlowLimits:
    """Limits of messages between pull and acknowledgement, beyond which pulling pauses.

    The limits of a queue are RocketMQ's (pullThresholdForQueue, pullThresholdSizeForQueue,
    consumeConcurrentlyMaxSpan); the limits of the whole consumer (`total_...`) bound the sum over
    many queues. Bytes are of bodies; `queue_span` is the distance of offsets from the oldest
    unacknowledged to the newest message, and does not count in ordered mode. One answer (32
    messages, 256 KiB) may go beyond a limit.
    """

    queue_messages: int = 1000
    queue_bytes: int = 100 * 1024 * 1024
    queue_span: int = 2000
    total_messages: int = 20_000
    total_bytes: int = 256 * 1024 * 1024


@dataclass(slots=True)
class Totals:
    """Messages (number) and `size` (bytes of their bodies) held by all queues of a consumer; each
    ProcessQueue updates the object that it shares."""

    messages: int = 0
    size: int = 0


class ProcessQueue:
    """A consumer's queue: pulled messages, messages in flight, acknowledgements.

    In ordered mode at most one message is in flight; the next message is handed out only after the
    acknowledgement of the previous one, and only until `lock_until_ms`. A `retired` queue hands out
    no further message but still counts acknowledgements; in a `dropped` queue (another member's, or
    reset) they change nothing. Times are of the monotonic clock, but for `last_pull_ms`,
    `last_lock_ms` and `last_consume_ms`, which are epoch milliseconds because operators see them.
    `size` is the bytes of the bodies held; the next pull begins at `next_queue_offset`.
    """

    __slots__ = (
        "_acked",
        "_in_flight",
        "_order",
        "_suspended_until_ms",
        "_waiting",
        "dropped",
        "last_consume_ms",
        "last_lock_ms",
        "last_pull_ms",
        "lock_until_ms",
        "next_queue_offset",
        "ordered",
        "queue",
        "retired",
        "size",
        "totals",
    )

    def __init__(
        self,
        queue: MessageQueue,
        next_queue_offset: QueueOffset,
        totals: Totals,
        *,
        ordered: bool = False,
    ) -> None:
        self.queue = queue
        self.next_queue_offset = next_queue_offset
        self.totals = totals
        self.ordered = ordered
        self.retired = False
        self.dropped = False
        self.size = 0
        self.last_pull_ms = 0
        self.last_consume_ms = 0
        self.last_lock_ms = 0
        self.lock_until_ms = 0
        self._waiting: deque[ReceivedMessage] = deque()
        self._in_flight: dict[int, tuple[ReceivedMessage, int]] = {}
        self._order: deque[int] = deque()
        self._acked: set[int] = set()
        self._suspended_until_ms = 0

    @property
    def count(self) -> int:
        """Number of messages held: waiting and in flight."""
        return len(self._waiting) + len(self._in_flight)

    @property
    def in_flight(self) -> int:
        """Number of messages handed out and not yet acknowledged."""
        return len(self._in_flight)

    @property
    def offset_span(self) -> int:
        """Distance in offsets between the oldest unacknowledged and the newest pulled message; 0 if
        all are acknowledged."""
        return self._order[-1] - self._order[0] if self._order else 0

    @property
    def commit_queue_offset(self) -> QueueOffset:
        """The next offset to consume: everything below it is acknowledged or filtered out."""
        return QueueOffset(self._order[0]) if self._order else self.next_queue_offset

    @property
    def newest_queue_offset(self) -> int:
        """The highest queue offset of a message that is not yet below `commit_queue_offset`; 0
        without such a message."""
        return self._order[-1] if self._order else 0

    def add_messages(
        self, messages: Iterable[ReceivedMessage], next_queue_offset: QueueOffset
    ) -> int:
        """Add a pull's messages, ascending by offset; returns the number of new messages, 0 in a
        retired queue.

        `next_queue_offset` is the start of the next pull: messages that the filter removed lie
        below it and need no acknowledgement. Messages that are known already are left out.
        """
        if self.retired:
            return 0
        added = 0
        for message in messages:
            if message.queue_offset < self.next_queue_offset:
                continue
            self.next_queue_offset = QueueOffset(message.queue_offset + 1)
            self._waiting.append(message)
            self._order.append(message.queue_offset)
            self.size += len(message.body)
            self.totals.size += len(message.body)
            added += 1
        self.totals.messages += added
        self.next_queue_offset = max(self.next_queue_offset, next_queue_offset)
        return added

    def take_message(self, now_ms: int) -> ReceivedMessage | None:
        """Return the waiting message with the lowest offset, which is in flight then; None if no
        message waits, the queue is suspended, or in ordered mode a message is in flight or the lock
        ended. `now_ms` is of the monotonic clock."""
        if not self._waiting or now_ms < self._suspended_until_ms:
            return None
        if self.ordered and (self._in_flight or now_ms >= self.lock_until_ms):
            return None
        message = self._waiting.popleft()
        self._in_flight[message.queue_offset] = (message, now_ms)
        return message

    def is_in_flight(self, message: ReceivedMessage) -> bool:
        """Whether this very message object is in flight here: handed out by `take_message`, and not
        acknowledged, put back or dropped since."""
        entry = self._in_flight.get(message.queue_offset)
        return not self.dropped and entry is not None and entry[0] is message

    def ack(self, message: ReceivedMessage, now_ms: int) -> bool:
        """Acknowledge a message in memory, at `now_ms` (epoch milliseconds); False if it was not in
        flight (late or repeated). Commits nothing: see `commit_queue_offset`."""
        if not self.is_in_flight(message):
            return False
        del self._in_flight[message.queue_offset]
        self.last_consume_ms = now_ms
        self._acked.add(message.queue_offset)
        while self._order and self._order[0] in self._acked:
            self._acked.discard(self._order.popleft())
        self._subtract_message(message)
        return True

    def put_back(self, message: ReceivedMessage, not_before_ms: int) -> bool:
        """Let `take_message` return the message again, as the next, not before `not_before_ms`
        (monotonic clock).

        The whole queue pauses until then (ordered mode: ConsumeMessageOrderlyService's
        suspendCurrentQueue). A retired queue forgets the message instead. False if the message was
        not in flight.
        """
        if not self.is_in_flight(message):
            return False
        del self._in_flight[message.queue_offset]
        if self.retired:
            self._subtract_message(message)
            return True
        self._waiting.appendleft(message)
        self._suspended_until_ms = max(self._suspended_until_ms, not_before_ms)
        return True

    def suspended_for_ms(self, now_ms: int) -> int:
        """Milliseconds after `now_ms` (monotonic clock) for which `put_back` suspends the queue;
        0 if it does not."""
        return max(0, self._suspended_until_ms - now_ms)

    def overdue_messages(self, now_ms: int, timeout_ms: int) -> list[ReceivedMessage]:
        """Messages in flight for longer than `timeout_ms` at `now_ms` (monotonic clock), by offset.
        They stay in flight."""
        return [
            message
            for _, (message, since_ms) in sorted(self._in_flight.items())
            if now_ms - since_ms > timeout_ms
        ]

    def forget_waiting(self) -> None:
        """Hand out no further message of the queue: the messages that wait are forgotten, and left
        to its next owner; messages in flight may still be acknowledged."""
        self.retired = True
        for message in self._waiting:
            self._subtract_message(message)
        self._waiting.clear()

    def stop_consuming(self) -> None:
        """Give up the queue: hand out no message and count no acknowledgement (`ack` and `put_back`
        return False); `totals` no longer has its messages. Dropping twice does nothing."""
        if self.dropped:
            return
        self.forget_waiting()
        self.dropped = True
        for message, _ in self._in_flight.values():
            self._subtract_message(message)

    def on_handler_ended(self, message: ReceivedMessage) -> None:
        """A handler of a dropped queue returned: stop counting the message as in flight. An
        AssertionError if the queue is not dropped."""
        assert self.dropped, "only a dropped queue forgets without an acknowledgement"
        self._in_flight.pop(message.queue_offset, None)

    def _subtract_message(self, message: ReceivedMessage) -> None:
        """Subtract a message from the totals."""
        self.size -= len(message.body)
        self.totals.size -= len(message.body)
        self.totals.messages -= 1


def pause_reason(queue: ProcessQueue, limits: FlowLimits) -> str | None:
    """An English text for logs about the limit for which the next pull of the queue must wait; None
    if the queue may be pulled. The limits of the whole consumer do not stop an empty queue."""
    totals = queue.totals
    if queue.count >= limits.queue_messages:
        return f"{queue.count} messages of the queue wait for acknowledgement"
    if queue.size >= limits.queue_bytes:
        return f"{queue.size} bytes of the queue wait for acknowledgement"
    if not queue.ordered and queue.offset_span >= limits.queue_span:
        return f"acknowledgements of the queue span {queue.offset_span} messages"
    if queue.count and totals.messages >= limits.total_messages:
        return f"{totals.messages} messages wait for acknowledgement"
    if queue.count and totals.size >= limits.total_bytes:
        return f"{totals.size} bytes wait for acknowledgement"
    return None
