"""Callbacks for queues that have grown.

Owns the list of callbacks. It must never report units that readers may not see yet: it takes them
from the dispatcher.

Tests: tests/unit/broker/handlers/test_pull.py
"""

from collections.abc import Callable

from turbopump.engine.lifecycle.parts import StoreParts
from turbopump.engine.statistics import StoreStatistics
from turbopump.engine.types import QueueOffset

QueueListener = Callable[[str, int, QueueOffset], None]
"""Receives (topic, queue id, new max queue offset) of a queue that has grown."""


class QueueListeners:
    """Calls the registered callbacks for each queue that has new units."""

    def __init__(self, parts: StoreParts, statistics: StoreStatistics) -> None:
        self._parts = parts
        self._statistics = statistics
        self._callbacks: list[QueueListener] = []

    def add_callback(self, callback: QueueListener) -> None:
        """Register a callback, which `notify_grown_queues` calls for each queue that has grown;
        callbacks run in the order of registration and cannot be removed."""
        self._callbacks.append(callback)

    def notify_grown_queues(self) -> None:
        """Mark the queues that dispatch has grown since the last call as dirty, and call each
        callback for each of these queues. While the log is being cut, the end of a queue may move
        back at any step: the callbacks wait for the tick after the cut."""
        parts, queues = self._parts, self._parts.queues
        if parts.log.is_suspended:
            return
        if self._statistics.lane is not None:
            self._statistics.lane.arrivals_taken()
        slots, batches = parts.dispatcher.take_arrivals()
        if not slots and not batches:
            return
        parts.checkpointer.dirty.mark_dirty(slots, batches)
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
