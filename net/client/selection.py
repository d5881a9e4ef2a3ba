"""The choice of a message's queue: round robin around brokers that failed, or by key.

Owns the counters and the memory of failures. It must never send or read a clock.
"""

from collections.abc import Callable, Collection, Sequence
from random import Random

from turbopump.net.wire.queues import MessageQueue
from turbopump.pyx.index import java_hash

AVOID_MS = 3000
"""Milliseconds for which a failed broker is avoided while there is another: about as long as a
failover takes, and short enough that a recovered broker gets its share."""

COUNTERS_MAX = 10_000
"""Maximum number of topics whose round-robin position is remembered; beyond it the oldest position
is forgotten."""


Choose = Callable[[Sequence[MessageQueue]], MessageQueue]
"""Chooses one of a topic's queues, which are sorted and not empty."""


class QueueSelector:
    """Round robin for each topic; brokers that failed come last. Times are of the monotonic clock.

    The first queue is random (RocketMQ: ThreadLocalIndex): otherwise many producers that send a few
    messages each would all send to the first queue.
    """

    def __init__(self, random: Random) -> None:
        self._random = random
        self._next: dict[str, int] = {}
        self._avoid_until_ms: dict[str, int] = {}

    def choose_queue(
        self, queues: Sequence[MessageQueue], tried: Collection[str], now_ms: int
    ) -> MessageQueue:
        """Return the next queue of `queues` (one topic, not empty) and advance the topic's round.

        Brokers that failed within AVOID_MS are chosen only when there is no other broker, and
        brokers in `tried` (names of brokers at which this send failed) after those.
        """
        assert queues, "a route without queues cannot be sent to"
        topic = queues[0].topic
        start = self._next.pop(topic, None)
        if start is None:
            start = self._random.randrange(len(queues))
        if len(self._next) >= COUNTERS_MAX:
            del self._next[next(iter(self._next))]

        def rank(queue: MessageQueue) -> int:
            avoided = now_ms < self._avoid_until_ms.get(queue.broker_name, 0)
            return 2 * (queue.broker_name in tried) + avoided

        at = min(
            range(start, start + len(queues)), key=lambda index: rank(queues[index % len(queues)])
        )
        self._next[topic] = (at + 1) % len(queues)
        return queues[at % len(queues)]

    def note_failure(self, broker_name: str, now_ms: int) -> None:
        """Avoid the broker until `now_ms` + AVOID_MS: a send to it failed."""
        self._avoid_until_ms[broker_name] = now_ms + AVOID_MS

    def note_success(self, broker_name: str) -> None:
        """Stop avoiding the broker: a send to it succeeded."""
        self._avoid_until_ms.pop(broker_name, None)


def choose_by_key(queues: Sequence[MessageQueue], key: str) -> MessageQueue:
    """The queue of a sharding key among `queues` (not empty, sorted), by the hash of
    SelectMessageQueueByHash: a Java producer with the same key and route sends to the same
    queue."""
    return queues[abs(java_hash(key.encode())) % len(queues)]
