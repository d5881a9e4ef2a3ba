"""Reads of a store: records by queue, key and time, and the ranges of its queues.

Owns the view of all parts as one. It must never change a part, nor show a record before its
dispatch. The store is a subclass (engine/store.py). Loop thread only.

Tests: tests/unit/engine/queues/test_lookup.py
"""

from turbopump.engine.queues.dispatcher import LogDispatcher
from turbopump.engine.queues.lookup import Lookup, Wanted
from turbopump.engine.queues.parts import QueueParts
from turbopump.engine.queues.unit_repair import UnitRepair
from turbopump.engine.statistics import StoreStatistics
from turbopump.engine.types import (
    Boundary,
    LogOffset,
    QueryResult,
    QueueOffset,
    QueueUnit,
    ReadResult,
)
from turbopump.pyx.record import Record


class StoreReader:
    """The store as readers see it."""

    def __init__(
        self,
        parts: QueueParts,
        dispatcher: LogDispatcher,
        statistics: StoreStatistics,
    ) -> None:
        self.statistics = statistics
        self._log = parts.log
        self._queues, self._batches = parts.queues, parts.batches
        self._damage = parts.damage
        self._dispatcher = dispatcher
        self._lookup = Lookup(parts, UnitRepair(parts.log, parts.queues, dispatcher))
        self._first = LogOffset(-1), -1

    @property
    def min_log_offset(self) -> LogOffset:
        """Log offset of the first byte that retention has not removed."""
        return self._log.min

    @property
    def max_log_offset(self) -> LogOffset:
        """Log offset at which the next record will be written."""
        return self._log.end

    @property
    def last_store_timestamp_ms(self) -> int:
        """The latest store time of the log, and the least time of the next record. It is ahead of
        the clock if the clock was set back."""
        return self._log.last_store_timestamp_ms

    @property
    def flushed_log_offset(self) -> LogOffset:
        """Log offset before which all bytes are durable."""
        return self._log.flushed

    @property
    def dispatched_log_offset(self) -> LogOffset:
        """Log offset before which all records can be read."""
        return self._dispatcher.position

    def read(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_count: int,
        wanted: Wanted = None,
        max_size: int = 0,
    ) -> ReadResult:
        """Records of a queue from `queue_offset` on that are `wanted` (None: all), within the
        limits of remoting.md 10.5 and `max_size` bytes (0: no limit of its own)."""
        result = self._lookup.read(topic, queue_id, queue_offset, max_count, wanted, max_size)
        self.statistics.read(result.count)
        return result

    def record(self, log_offset: int) -> Record | None:
        """The record at `log_offset`; None if it is not visible, if no record starts there, or if
        its body does not fit its CRC."""
        if log_offset >= self._dispatcher.position:
            return None
        return self._log.record(log_offset)

    def record_of(self, unit: QueueUnit) -> Record | None:
        """The record of a queue unit; None if it is removed or damaged. Damage is noted."""
        record = self.record(unit.log_offset)
        if record is None:
            self._damage.suspect(unit.log_offset, unit.size)
        return record

    def record_view(self, log_offset: int) -> memoryview | None:
        """The stored bytes of the record at `log_offset`, None as for `record`."""
        record = self.record(log_offset)
        return None if record is None else self._log.view(log_offset, record.size)

    def min_queue_offset(self, topic: str, queue_id: int) -> QueueOffset:
        """Offset of the first message of a queue that still exists; 0 for an unknown queue."""
        batch = self._batches.find(topic, queue_id)
        if batch is not None:
            return batch.min_offset
        queue = self._queues.find(topic, queue_id)
        return queue.min_offset if queue is not None else QueueOffset(0)

    def max_queue_offset(self, topic: str, queue_id: int) -> QueueOffset:
        """Offset after the last message that can be read; 0 for an unknown queue."""
        batch = self._batches.find(topic, queue_id)
        if batch is not None:
            return batch.max_offset
        queue = self._queues.find(topic, queue_id)
        return self._queues.max_offset(queue) if queue is not None else QueueOffset(0)

    def next_queue_offset(self, topic: str, queue_id: int) -> QueueOffset:
        """Offset of a queue's next record; it may be greater than the readable end."""
        return self._lookup.next_queue_offset(topic, queue_id)

    def search_time(
        self, topic: str, queue_id: int, timestamp_ms: int, boundary: Boundary
    ) -> QueueOffset:
        """The queue offset that belongs to a store time (store.md 11)."""
        return self._lookup.search_time(topic, queue_id, timestamp_ms, boundary)

    def search_time_by_clock(
        self, topic: str, queue_id: int, timestamp_ms: int, boundary: Boundary, now_ms: int
    ) -> QueueOffset:
        """The queue offset that belongs to a time, while the clock shows `now_ms`. After the clock
        was ahead, messages have store times of the future: no message was stored after `now_ms`, so
        a search from `now_ms` on finds the end of the queue."""
        if timestamp_ms >= now_ms and self.last_store_timestamp_ms > now_ms:
            return self.max_queue_offset(topic, queue_id)
        return self.search_time(topic, queue_id, timestamp_ms, boundary)

    def store_timestamp_ms(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Store time of a message, -1 if it does not exist."""
        return self._lookup.store_timestamp_ms(topic, queue_id, queue_offset)

    def stored_ms(self, topic: str, queue_id: int, queue_offset: int) -> tuple[int, bool]:
        """(store time of a message, whether it is exact); see `Lookup.stored_ms`."""
        return self._lookup.stored_ms(topic, queue_id, queue_offset, self.statistics.started_ms)

    @property
    def first_stored_ms(self) -> int:
        """Store time of the log's first message, -1 if the log is empty."""
        begin, found_ms = self._first  # read once: it is on the oldest page of the log
        if begin != self._log.min or found_ms < 0:
            record = self.record(self._log.min)
            self._first = self._log.min, record.store_timestamp_ms if record is not None else -1
        return self._first[1]

    def query(
        self, topic: str, key: str, max_count: int, begin_ms: int, end_ms: int, kind: str = ""
    ) -> QueryResult:
        """Records by key; `kind` is "" or "K" for keys, "U" for the unique key, "T" for tags."""
        return self._lookup.query(topic, key, max_count, begin_ms, end_ms, kind)

    def units(self, topic: str, queue_id: int, queue_offset: int, count: int) -> list[QueueUnit]:
        """Queue units from `queue_offset` on, at most `count`."""
        return self._lookup.units(topic, queue_id, queue_offset, count)

    def in_memory(self, log_offset: int) -> bool:
        """Whether a record is near enough to the end of the log to be likely in memory."""
        return self._lookup.in_memory(log_offset)

    def topics(self) -> list[str]:
        """Topics that have a queue, sorted."""
        return sorted(self._queues.topics() | self._batches.topics())

    def queue_ids(self, topic: str) -> list[int]:
        """Ids of a topic's queues, sorted."""
        ids = {queue.queue_id for queue in self._queues.of_topic(topic)}
        return sorted(ids | {queue.queue_id for queue in self._batches.of_topic(topic)})
