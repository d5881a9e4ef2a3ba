"""Batch consume queues: 46-byte units, each for a record that holds several messages.

Owns the folders below `batchconsumequeue` and the offsets of topics with `queue.type=BatchCQ`
(RocketMQ: store/queue/BatchConsumeQueue). It must never read the commit log. Such topics are rare,
so nothing here is native.

Tests: tests/golden_stores/test_records.py, tests/unit/engine/queues/test_lookup.py
"""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from turbopump.engine.config import BATCH_UNIT_SIZE
from turbopump.engine.disk.disk_steps import Steps, Unsynced, removal_work
from turbopump.engine.disk.files import Files
from turbopump.engine.disk.segments import MappingPool, Segments, clear_tail
from turbopump.engine.disk.store_paths import queue_folder, queue_folders, topic_folder
from turbopump.engine.types import LogOffset, QueueOffset, QueueUnit
from turbopump.pyx.index import java_hash
from turbopump.pyx.record import Record

FOLDER = "batchconsumequeue"
"""Name of the batch queues' folder in the store's folder."""
# log offset, size, tags code, store time, base queue offset, count, compacted offset, reserved.
_UNIT = struct.Struct(">qiqqqhii")
_NOT_COMPACTED = -1
_COUNT_DIGITS = 9  # any sender may write thousands of digits, and int() refuses those
ZERO = QueueOffset(0)
"""The first offset of every queue."""
assert _UNIT.size == BATCH_UNIT_SIZE


@dataclass(slots=True, frozen=True)
class BatchUnit:
    """A unit: `count` messages from queue offset `base` on, in the record of `size` bytes at
    `log_offset`, stored at `store_timestamp_ms` (epoch ms)."""

    log_offset: int
    size: int
    tags_code: int
    """Java's hash of the tags, 0 without tags."""
    store_timestamp_ms: int
    base: int
    count: int

    @property
    def is_valid(self) -> bool:
        """Whether the bytes are a written unit, not zeros or damage (RocketMQ: BatchConsumeQueue,
        store.md 13)."""
        return self.log_offset >= 0 and self.size > 0 and self.base >= 0 and self.count > 0


@dataclass(slots=True, eq=False)
class BatchQueue:
    """A batch queue. Offsets count messages, ends are bytes of the queue's files."""

    topic: str
    """Topic of the queue."""
    queue_id: int
    """Id of the queue in its topic."""
    segments: Segments
    """The queue's files, a row of 46-byte units."""
    unit_end: int = 0
    """Byte after the last unit."""
    min_offset: QueueOffset = ZERO
    """Queue offset of the first message that exists."""
    max_offset: QueueOffset = ZERO
    """Queue offset after the last message that has a unit."""
    next_offset: QueueOffset = ZERO
    """Queue offset of the next appended message, if above `max_offset`."""
    max_log_offset: int = 0
    """Log offset of the end of the last unit's record."""
    flushed_end: int = 0
    """Byte before which all units are durable."""
    names_synced: bool = True
    """Whether the names of the queue's files and folders are durable."""


class BatchQueues:
    """All batch queues of a store. Loop thread only, except the work that steps yield."""

    def __init__(self, files: Files, root: str, file_size: int, pool: MappingPool) -> None:
        self.files = files
        self.folder = f"{root}/{FOLDER}"
        """Path of the folder of all batch queues."""
        self.file_size = file_size
        """Size of a batch queue file in bytes, a multiple of 46."""
        self._pool = pool
        self._by_topic: dict[str, dict[int, BatchQueue]] = {}

    def __iter__(self) -> Iterator[BatchQueue]:
        """All batch queues in no order; none may be added or removed during the iteration."""
        return (queue for queues in self._by_topic.values() for queue in queues.values())

    def topics(self) -> set[str]:
        """Topics that have a batch queue."""
        return set(self._by_topic)

    def has_topic(self, topic: str) -> bool:
        """Whether the topic has a batch queue."""
        return topic in self._by_topic

    def of_topic(self, topic: str) -> list[BatchQueue]:
        """The batch queues of a topic in no order; [] for an unknown topic."""
        return list(self._by_topic.get(topic, {}).values())

    def find(self, topic: str, queue_id: int) -> BatchQueue | None:
        """The batch queue, None if it does not exist."""
        queues = self._by_topic.get(topic)
        return None if queues is None else queues.get(queue_id)

    def get(self, topic: str, queue_id: int) -> BatchQueue:
        """The batch queue; if it does not exist, an empty queue is added, without files yet."""
        queue = self.find(topic, queue_id)
        if queue is None:
            folder = queue_folder(self.folder, topic, queue_id)
            segments = Segments(self._pool, folder, self.file_size)
            queue = BatchQueue(topic, queue_id, segments)
            self._by_topic.setdefault(topic, {})[queue_id] = queue
        return queue

    def load(self) -> None:
        """Find all queues on the disk and the ends of their units. Files after a hole in a queue's
        row are removed: the dispatch writes their units again. Raises StoreError for a file of a
        wrong size; OSError."""
        for topic, queue_id in queue_folders(self.files, self.folder):
            queue = self.get(topic, queue_id)
            for start in queue.segments.load():
                self.files.remove(queue.segments.path(start))
            self._recover_end(queue)

    def write_unit_of(self, topic: str, record: Record, properties: Mapping[bytes, bytes]) -> bool:
        """Write the unit of `record`, whose properties are `properties`, at the queue's end; the
        unit is visible but not durable then. False: the queue has it, or a later unit, already, and
        nothing was written. Raises OSError."""
        queue = self.get(topic, record.queue_id)
        if record.log_offset < queue.max_log_offset or record.queue_offset < queue.max_offset:
            return False
        tags = properties.get(b"TAGS")
        unit = BatchUnit(
            record.log_offset,
            record.size,
            java_hash(tags) if tags else 0,
            record.store_timestamp_ms,
            record.queue_offset,
            inner_count(properties),
        )
        segments = queue.segments
        start = segments.start_of(queue.unit_end)
        if start == segments.end or segments.count == 0:
            self.files.make_folders(segments.folder)
            queue.names_synced = False
            segments.create(start)
        segments.reserve_blocks(queue.unit_end, BATCH_UNIT_SIZE)
        self._write_unit(queue, queue.unit_end, unit)
        if queue.unit_end == segments.first:
            queue.min_offset = QueueOffset(unit.base)
        queue.unit_end += BATCH_UNIT_SIZE
        self._advance_offsets(queue, unit)
        return True

    def units(self, queue: BatchQueue, queue_offset: int, count: int) -> list[QueueUnit]:
        """Units of the queue, ascending, at most `count`, beginning with the unit that holds
        message `queue_offset`, or with the next unit after it."""
        at = self._find_unit(queue, queue_offset)
        found: list[QueueUnit] = []
        while at < queue.unit_end and len(found) < count:
            unit = self.read_unit(queue, at)
            log_offset, base = LogOffset(unit.log_offset), QueueOffset(unit.base)
            found.append(QueueUnit(log_offset, unit.size, unit.tags_code, base, unit.count))
            at += BATCH_UNIT_SIZE
        return found

    def unit_positions(self, queue: BatchQueue, queue_offset: int) -> range:
        """Bytes of the queue at which its units begin, ascending, from the unit that holds message
        `queue_offset` or the next unit after it."""
        return range(self._find_unit(queue, queue_offset), queue.unit_end, BATCH_UNIT_SIZE)

    def read_unit(self, queue: BatchQueue, at: int) -> BatchUnit:
        """The unit that begins at byte `at` of the queue, in an existing file; it may be
        invalid."""
        start = queue.segments.start_of(at)
        data = queue.segments.file_region(start).read(at - start, BATCH_UNIT_SIZE)
        return BatchUnit(*_UNIT.unpack(data)[:6])

    def truncation_steps(self, queue: BatchQueue, log_end: int, left: Unsynced) -> Steps:
        """Steps that cut the units of records at log offset `log_end` or later: later files are
        removed, and units in the last file become zeros. The steps add to `left` the files that the
        caller must sync, and raise OSError."""
        segments = queue.segments
        queue.max_offset = self.max_offset_before(queue, log_end)
        queue.unit_end = self._end_before(queue, log_end)
        while segments.count > 1 and segments.last_file_start >= queue.unit_end:
            yield removal_work(self.files, segments.forget_last(), segments.folder)
        if segments.count:
            mapped = segments.mapped_file(segments.last_file_start)
            if clear_tail(mapped, queue.unit_end - segments.last_file_start, sync=False):
                left.files.append(mapped.path)
        kept = queue.min_offset
        self._recover_end(queue)
        if queue.unit_end == segments.first:
            # An emptied queue continues counting at its first unit's offset, if that is known.
            queue.min_offset = queue.max_offset = queue.next_offset = kept

    def max_offset_before(self, queue: BatchQueue, log_end: int) -> QueueOffset:
        """Max offset of the queue after a `truncation_steps` with `log_end`; changes nothing."""
        at = self._end_before(queue, log_end)
        if at == queue.segments.first:
            return queue.min_offset
        unit = self.read_unit(queue, at - BATCH_UNIT_SIZE)
        return QueueOffset(unit.base + unit.count)

    def correct_min(self, queue: BatchQueue, min_log_offset: int) -> None:
        """Move the queue's min offset past units whose records lie before `min_log_offset`, the
        log's beginning; no unit is changed."""
        at = self._find_unit(queue, queue.min_offset)
        while at < queue.unit_end:
            unit = self.read_unit(queue, at)
            if unit.log_offset >= min_log_offset:
                queue.min_offset = QueueOffset(unit.base)
                return
            at += BATCH_UNIT_SIZE
        queue.min_offset = queue.max_offset

    def delete_expired(self, queue: BatchQueue, min_log_offset: int) -> list[str]:
        """Take out files whose last unit's record lies before `min_log_offset`, but never the last
        durable file. Returns their paths, oldest first, for the caller to remove."""
        expired = []
        while queue.segments.count > 1:
            last = queue.segments.first + self.file_size - BATCH_UNIT_SIZE
            if last + BATCH_UNIT_SIZE >= queue.flushed_end:
                break
            if self.read_unit(queue, last).log_offset >= min_log_offset:
                break
            expired.append(queue.segments.forget_first())
        return expired

    def forget_topic(self, topic: str) -> str:
        """Forget a topic's queues, and return the folder of their files, which may not exist, for
        the caller to remove. Raises StoreError for a topic that is no folder name."""
        folder = topic_folder(self.folder, topic)
        for queue in self._by_topic.pop(topic, {}).values():
            while queue.segments.count:
                queue.segments.forget_last()
        return folder

    def dirty_paths(self, queue: BatchQueue) -> tuple[list[str], list[str], int]:
        """(files, folders, byte): the paths to sync so that all units before that byte of the queue
        are durable. Syncs nothing and changes nothing: the caller sets `flushed_end` and
        `names_synced`."""
        segments = queue.segments
        paths = []
        if queue.unit_end > queue.flushed_end:
            first = segments.start_of(queue.flushed_end)
            starts = range(first, queue.unit_end, self.file_size)
            paths = [segments.path(start) for start in starts if segments.contains(start)]
        folders = []
        if not queue.names_synced and segments.count:
            root = self.folder.rpartition("/")[0]
            folders = [segments.folder, topic_folder(self.folder, queue.topic), self.folder, root]
        return paths, folders, queue.unit_end

    def _write_unit(self, queue: BatchQueue, at: int, unit: BatchUnit) -> None:
        """Store a unit at byte `at` of the queue, in an existing file."""
        start = queue.segments.start_of(at)
        data = _UNIT.pack(
            unit.log_offset,
            unit.size,
            unit.tags_code,
            unit.store_timestamp_ms,
            unit.base,
            unit.count,
            _NOT_COMPACTED,
            0,
        )
        queue.segments.file_region(start).write(at - start, data)

    def _advance_offsets(self, queue: BatchQueue, unit: BatchUnit) -> None:
        """Move the queue's max and next offset past its new last unit."""
        queue.max_offset = QueueOffset(unit.base + unit.count)
        queue.next_offset = QueueOffset(max(queue.next_offset, queue.max_offset))
        queue.max_log_offset = unit.log_offset + unit.size

    def _recover_end(self, queue: BatchQueue) -> None:
        """Set the end of the units: the first invalid unit in the last file that has a valid
        one."""
        segments = queue.segments
        queue.unit_end = segments.first
        queue.max_offset = queue.next_offset = queue.min_offset = QueueOffset(0)
        queue.max_log_offset = 0
        for start in reversed(segments.file_starts()):
            low, high = start, start + self.file_size
            while low < high and self.read_unit(queue, low).is_valid:
                low += BATCH_UNIT_SIZE
            if low > start:
                queue.unit_end = low
                break
        if queue.unit_end > segments.first:
            queue.min_offset = QueueOffset(self.read_unit(queue, segments.first).base)
            queue.next_offset = QueueOffset(0)
            self._advance_offsets(queue, self.read_unit(queue, queue.unit_end - BATCH_UNIT_SIZE))
        queue.flushed_end = queue.unit_end

    def _end_before(self, queue: BatchQueue, log_end: int) -> int:
        """Byte of the queue after the last unit whose record lies before `log_end`."""
        at = queue.unit_end
        while at > queue.segments.first:
            if self.read_unit(queue, at - BATCH_UNIT_SIZE).log_offset < log_end:
                break
            at -= BATCH_UNIT_SIZE
        return at

    def _find_unit(self, queue: BatchQueue, queue_offset: int) -> int:
        """Byte of the unit that holds message `queue_offset`, or of the next unit after it."""
        first = queue.segments.first
        low, high = 0, (queue.unit_end - first) // BATCH_UNIT_SIZE
        while low < high:
            middle = (low + high) // 2
            unit = self.read_unit(queue, first + middle * BATCH_UNIT_SIZE)
            if unit.base + unit.count <= queue_offset:
                low = middle + 1
            else:
                high = middle
        return first + low * BATCH_UNIT_SIZE


def inner_count(properties: Mapping[bytes, bytes]) -> int:
    """Number of messages in a record with these properties: INNER_NUM, or 1 if it is missing or not
    a number from 1 to 32,767."""
    text = properties.get(b"INNER_NUM", b"1")
    count = int(text) if text.isdigit() and len(text) <= _COUNT_DIGITS else 1
    return count if 0 < count < 1 << 15 else 1
