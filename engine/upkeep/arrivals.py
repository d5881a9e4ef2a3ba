"""The callbacks that are called when queues have grown.

Owns the callbacks. It must never report what readers may not see yet: it asks the
dispatcher. Called by the store.
"""

from collections.abc import Callable

from turbopump.engine.statistics import StoreStatistics
from turbopump.engine.types import QueueOffset
from turbopump.engine.upkeep.parts import StoreParts

Arrival = Callable[[str, int, QueueOffset], None]


class Arrivals:
    """Queues that got units since the last time, and what waits for them."""

    def __init__(self, parts: StoreParts, statistics: StoreStatistics) -> None:
        self._parts = parts
        self._statistics = statistics
        self._callbacks: list[Arrival] = []

    def add(self, callback: Arrival) -> None:
        """Call back with (topic, queue id, new max queue offset)."""
        self._callbacks.append(callback)

    def tell(self) -> None:
        """Tell of what was dispatched."""
        parts, queues = self._parts, self._parts.queues
        if self._statistics.lane is not None:
            self._statistics.lane.arrivals_taken()
        slots, batches = parts.dispatcher.take_arrivals()
        if not slots and not batches:
            return
        parts.checkpointer.dirty.arrived(slots, batches)
        if not self._callbacks:
            return
        arrived = [
            (queue.topic, queue.queue_id, queues.max_offset(queue))
            for queue in map(queues.by_slot, slots)
        ]
        for topic, queue_id in batches:
            arrived.append((topic, queue_id, parts.batches.get(topic, queue_id).max_offset))
        for callback in self._callbacks:
            for topic, queue_id, maximum in arrived:
                callback(topic, queue_id, maximum)
