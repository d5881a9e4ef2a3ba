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
    """The store as readers see it. Log offsets, queue offsets and times of unknown queues are 0, []
    or -1 as each method states; an unknown queue raises nothing."""

    def __init__(
        self,
        parts: QueueParts,
        dispatcher: LogDispatcher,
        statistics: StoreStatistics,
    ) -> None:
        self.statistics = statistics
        """Counters of the store since its opening."""
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
        """The latest store time of the log in epoch ms, and the least store time of the next
        record. It is ahead of the clock if the clock was set back."""
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
        """Read visible records of a queue from `queue_offset` on that are `wanted` (None: all): at
        most `max_count` messages and `max_size` bytes (0: no limit of its own), and never more than
        the limits of remoting.md 10.5; a first record above the bytes is still returned. Counts
        the messages in `statistics`."""
        result = self._lookup.read(topic, queue_id, queue_offset, max_count, wanted, max_size)
        self.statistics.read(result.count)
        return result

    def record(self, log_offset: int) -> Record | None:
        """The record at `log_offset`, decoded; None if it is not visible yet, if no record starts
        there, or if its body does not fit its CRC."""
        if log_offset >= self._dispatcher.position:
            return None
        return self._log.read_record(log_offset)

    def record_of(self, unit: QueueUnit) -> Record | None:
        """The record of a queue unit, decoded; None if it is removed, damaged or not visible. Then
        the log is checked there, and damage is noted (LogDamage.check_target)."""
        record = self.record(unit.log_offset)
        if record is None:
            self._damage.check_target(unit.log_offset, unit.size)
        return record

    def record_view(self, log_offset: int) -> memoryview | None:
        """A view of the stored bytes of the record at `log_offset`, None as for `record`."""
        record = self.record(log_offset)
        return None if record is None else self._log.view_bytes(log_offset, record.size)

    def min_queue_offset(self, topic: str, queue_id: int) -> QueueOffset:
        """Queue offset of the queue's first message that retention has not removed; 0 for an
        unknown queue."""
        batch = self._batches.find(topic, queue_id)
        if batch is not None:
            return batch.min_offset
        queue = self._queues.find(topic, queue_id)
        return queue.min_offset if queue is not None else QueueOffset(0)

    def max_queue_offset(self, topic: str, queue_id: int) -> QueueOffset:
        """Queue offset after the last message that can be read; 0 for an unknown queue."""
        batch = self._batches.find(topic, queue_id)
        if batch is not None:
            return batch.max_offset
        queue = self._queues.find(topic, queue_id)
        return self._queues.max_offset(queue) if queue is not None else QueueOffset(0)

    def next_queue_offset(self, topic: str, queue_id: int) -> QueueOffset:
        """Queue offset that the next appended message gets, 0 for an unknown queue; it is above
        `max_queue_offset` while appended messages are not dispatched."""
        return self._lookup.next_queue_offset(topic, queue_id)

    def search_time(
        self, topic: str, queue_id: int, timestamp_ms: int, boundary: Boundary
    ) -> QueueOffset:
        """The queue offset that belongs to a store time in epoch ms. LOWER: the first message
        stored at that time or later, else `max_queue_offset` (in a batch queue the last unit).
        UPPER: the last message stored at that time or earlier, else the first one. 0 for an unknown
        queue (store.md 11)."""
        return self._lookup.search_time(topic, queue_id, timestamp_ms, boundary)

    def search_time_until_now(
        self, topic: str, queue_id: int, timestamp_ms: int, boundary: Boundary, now_ms: int
    ) -> QueueOffset:
        """Search as `search_time` does, while the wall clock shows `now_ms` (all times in epoch
        ms). If the clock was ahead before, messages have store times of the future: a search from
        `now_ms` on then returns `max_queue_offset`."""
        if timestamp_ms >= now_ms and self.last_store_timestamp_ms > now_ms:
            return self.max_queue_offset(topic, queue_id)
        return self.search_time(topic, queue_id, timestamp_ms, boundary)

    def store_timestamp_ms(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Store time of a message in epoch ms, read from the log; -1 if it does not exist."""
        return self._lookup.store_timestamp_ms(topic, queue_id, queue_offset)

    def stored_ms(self, topic: str, queue_id: int, queue_offset: int) -> tuple[int, bool]:
        """(store time of a message in epoch ms, whether it is exact), without a read of the log. If
        it is not exact, the message was stored at that time or before; -1: unknown."""
        return self._lookup.stored_ms(topic, queue_id, queue_offset, self.statistics.started_ms)

    @property
    def first_stored_ms(self) -> int:
        """Store time in epoch ms of the log's first record, -1 if it is not visible or damaged, or
        the log is empty."""
        begin, found_ms = self._first  # read once: it is on the oldest page of the log
        if begin != self._log.min or found_ms < 0:
            record = self.record(self._log.min)
            self._first = self._log.min, record.store_timestamp_ms if record is not None else -1
        return self._first[1]

    def query(
        self, topic: str, key: str, max_count: int, begin_ms: int, end_ms: int, kind: str = ""
    ) -> QueryResult:
        """Visible records of `topic` with `key`, the newest `max_count` (at most maxMsgsNumBatch)
        with store times in [begin_ms, end_ms], epoch ms to a second. `kind` "T" searches for tags;
        "", "K" and "U" for keys and the unique key. Empty without an index."""
        return self._lookup.query(topic, key, max_count, begin_ms, end_ms, kind)

    def units(self, topic: str, queue_id: int, queue_offset: int, count: int) -> list[QueueUnit]:
        """Units of a queue from `queue_offset` on, ascending, at most `count`, with tags codes in
        place of extension addresses; [] for an unknown queue."""
        return self._lookup.units(topic, queue_id, queue_offset, count)

    def in_memory(self, log_offset: int) -> bool:
        """Whether the record at `log_offset` is near enough to the end of the log to be likely in
        memory: accessMessageInMemoryMaxRatio percent of the machine's memory."""
        return self._lookup.in_memory(log_offset)

    def topics(self) -> list[str]:
        """Topics that have a plain or batch queue in the store, sorted; topics that are only
        configured are not included."""
        return sorted(self._queues.topics() | self._batches.topics())

    def queue_ids(self, topic: str) -> list[int]:
        """Ids of the topic's queues that exist in the store, ascending; [] for an unknown topic."""
        ids = {queue.queue_id for queue in self._queues.of_topic(topic)}
        return sorted(ids | {queue.queue_id for queue in self._batches.of_topic(topic)})
