"""Reads of a store: a queue from an offset on, a queue by time, records by key.

Owns the limits of a read and the searches. It must never write, and never show a record before its
dispatch: it only follows queue units and index entries.
"""

from bisect import bisect_left
from dataclasses import dataclass, replace

from turbopump.engine.config import QUEUE_UNIT_SIZE
from turbopump.engine.queues.batch_queue import BatchQueue
from turbopump.engine.queues.key_check import KeyCheck
from turbopump.engine.queues.parts import QueueParts
from turbopump.engine.queues.queue_ext import is_address
from turbopump.engine.queues.queue_files import ConsumeQueue
from turbopump.engine.queues.unit_repair import UnitRepair
from turbopump.engine.types import (
    LIGHT_PREFIX,
    Boundary,
    LogOffset,
    QueryResult,
    QueueOffset,
    QueueUnit,
    ReadResult,
    ReadStatus,
)
from turbopump.pyx import queue as kernel
from turbopump.pyx.filter import Filter, FilterScan
from turbopump.pyx.region import Region
from turbopump.pyx.walk import part_end

Wanted = frozenset[int] | Filter | None
"""Filter of a reader: tags codes, a filter of properties, or None for all messages."""
FILTER_SIZE = 16_000
"""Bytes of units that one read examines at most, unless it may return more messages than that
(maxFilterMessageSize)."""
FILTER_UNITS_NEAR = 1 << 14
"""Maximum number of units that one read with a filter of properties examines near the end of the
log. RocketMQ examines 800, but the round trip to the client costs more than the filter.
FLT_WORK_MAX may end the read earlier."""
NO_LIMIT = 1 << 40
"""Bytes of a read without a size of its own: only the limits of remoting.md 10.5 count."""
BORN_V6 = 0x10
"""Bit of sysFlag: the born host has 16 bytes of address and moves the store time (store.md 3)."""
TIME_END_MAX = 76
"""Bytes of a record up to the end of the store time, with an IPv6 born host."""


@dataclass(slots=True)
class _Selection:
    """The slices of the log that a read has selected, and the queue offset after the
    examined units."""

    slices: list[memoryview]
    count: int = 0
    size: int = 0
    removed: bool = False
    doubtful: bool = False
    """Whether a unit before `examined_to` does not fit the log."""
    examined_to: int = 0
    next_offset: int = 0


class _ServedRange:
    """The messages that a read may serve: messages of a queue from `first` to before `end`."""

    __slots__ = ("end", "first", "queue_id", "topic")

    def __init__(self, queue: ConsumeQueue, first: int, end: int) -> None:
        self.topic = queue.topic.encode(errors="surrogateescape")
        self.queue_id = queue.queue_id
        self.first = first
        self.end = end


def _is_unit(log_offset: int, size: int, _tags_code: int) -> bool:
    """Whether a unit is valid, as cq_is_valid checks: zeros and negative numbers of a faulty disk
    are not units."""
    return log_offset >= 0 and size > 0


class Lookup:
    """All reading of a store. An unknown queue raises nothing. Loop thread only."""

    def __init__(self, parts: QueueParts, units: UnitRepair) -> None:
        config = self._config = parts.config
        self._log = parts.log
        self._queues, self._batches = parts.queues, parts.batches
        self._index, self._extensions = parts.index, parts.extensions
        self._damage = parts.damage
        self._repair = units
        self.memory_size = (
            parts.files.memory_size() * config.access_message_in_memory_max_ratio // 100
        )
        """Bytes at the end of the log that count as being in memory."""

    def in_memory(self, log_offset: int) -> bool:
        """Whether the record at `log_offset` lies within `memory_size` bytes of the log's end, and
        so is probably in the page cache."""
        return self._log.end - log_offset <= self.memory_size

    def read(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_count: int,
        wanted: Wanted,
        max_size: int,
    ) -> ReadResult:
        """Read records of a queue from `queue_offset` on that are `wanted`, from a single queue
        file (DefaultMessageStore.getMessage). `max_count` limits messages, `max_size` bytes (0 or
        below: none), and the limits of remoting.md 10.5 both; a first record over the bytes is
        still returned. `next_queue_offset` of the result lies after all units that were examined.
        Damaged units are repaired from the log meanwhile, and damage of the log is noted."""
        batch = self._batches.find(topic, queue_id)
        queue = None if batch is not None else self._queues.find(topic, queue_id)
        if batch is not None:
            minimum, maximum = batch.min_offset, batch.max_offset
        elif queue is not None:
            minimum, maximum = queue.min_offset, self._queues.max_offset(queue)
        else:
            zero = QueueOffset(0)
            return ReadResult(ReadStatus.NO_MATCHED_LOGIC_QUEUE, zero, zero, zero)

        def empty_result(status: ReadStatus, next_offset: int) -> ReadResult:
            return ReadResult(status, QueueOffset(next_offset), minimum, maximum)

        if maximum == 0:
            return empty_result(ReadStatus.NO_MESSAGE_IN_QUEUE, 0)
        if queue_offset < minimum:
            return empty_result(ReadStatus.OFFSET_TOO_SMALL, minimum)
        if queue_offset == maximum:
            return empty_result(ReadStatus.OFFSET_OVERFLOW_ONE, queue_offset)
        if queue_offset > maximum:
            return empty_result(ReadStatus.OFFSET_OVERFLOW_BADLY, maximum)
        size_max = max_size if max_size > 0 else NO_LIMIT
        if queue is not None and self._extensions is None:
            chosen = self._read_plain(queue, queue_offset, max_count, wanted, size_max)
            if chosen.doubtful and self._repair.repair_units(
                queue, queue_offset, chosen.examined_to
            ):
                chosen = self._read_plain(queue, queue_offset, max_count, wanted, size_max)
        else:
            units = self._decoded_units(queue, batch, queue_offset, max_count, wanted)
            chosen = self._read_units(units, queue_offset, max_count, size_max)
        if chosen.count:
            status = ReadStatus.FOUND
        elif chosen.removed:
            status = ReadStatus.MESSAGE_WAS_REMOVING
        else:
            status = ReadStatus.NO_MATCHED_MESSAGE
        return ReadResult(
            status,
            QueueOffset(chosen.next_offset),
            minimum,
            maximum,
            chosen.slices,
            chosen.count,
            chosen.size,
        )

    def units_of(
        self, topic: bytes, queue_id: int, queue_offset: int
    ) -> tuple[Region, int, int, int] | None:
        """The queue file with the unit `queue_offset`, for the native path: (its memory, queue
        offset at which it begins, the queue's slot, the queue's min offset). None if there is no
        such unit, or the queue is not plain."""
        queue = self._queues.find(topic.decode(errors="surrogateescape"), queue_id)
        if queue is None or not self._queues.table.is_plain(queue.slot):
            return None
        if not queue.min_offset <= queue_offset < self._queues.max_offset(queue):
            return None
        start = queue.segments.start_of(queue_offset * QUEUE_UNIT_SIZE)
        region = self._queues.file_region(queue, start)
        return region, start // QUEUE_UNIT_SIZE, queue.slot, queue.min_offset

    def next_queue_offset(self, topic: str, queue_id: int) -> QueueOffset:
        """Queue offset that the next message appended to a queue gets, also if messages before it
        are not dispatched yet; 0 for an unknown queue."""
        batch = self._batches.find(topic, queue_id)
        if batch is not None:
            return max(batch.next_offset, batch.max_offset)
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return QueueOffset(0)
        following = QueueOffset(self._queues.table.next_offset(queue.slot))
        return max(self._queues.max_offset(queue), following)

    def search_time(
        self, topic: str, queue_id: int, timestamp_ms: int, boundary: Boundary
    ) -> QueueOffset:
        """The queue offset that belongs to a store time in epoch ms. LOWER: the first message
        stored then or later, else the queue's max offset (in a batch queue its last unit). UPPER:
        the last message stored then or earlier, else the first one. 0 for an unknown queue
        (ConsumeQueue.getOffsetInQueueByTime)."""
        batch = self._batches.find(topic, queue_id)
        if batch is not None:
            return self._search_batch(batch, timestamp_ms, boundary)
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return QueueOffset(0)
        low, high = queue.min_offset, self._queues.max_offset(queue)
        found = self._search_queue(queue, low, high, timestamp_ms, boundary)
        return QueueOffset(min(max(found, low), high))

    def store_timestamp_ms(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Store time of a message in epoch ms, read from the log; -1 if it does not exist."""
        units = self.units(topic, queue_id, queue_offset, 1)
        return self._time_of(units[0].log_offset, units[0].size) if units else -1

    def stored_ms(
        self, topic: str, queue_id: int, queue_offset: int, opened_ms: int
    ) -> tuple[int, bool]:
        """(store time of an existing message in epoch ms, whether it is exact), without a read of
        the log. `opened_ms` is the epoch ms at which the store was opened.

        If it is not exact, the message was stored at that time or before; -1: unknown. Times of
        messages since the store was opened are exact within the limits of csrc/queue_marks.h.
        """
        queue = self._queues.find(topic, queue_id)
        if queue is None:  # batch queues have no marks
            return -1, False
        found_ms, known = self._queues.table.stored_ms(queue.slot, queue_offset)
        return (opened_ms, False) if found_ms < 0 else (found_ms, known)

    def units(self, topic: str, queue_id: int, queue_offset: int, count: int) -> list[QueueUnit]:
        """Units of a queue from `queue_offset` on, ascending, at most `count`, with tags codes in
        place of extension addresses; [] for an unknown queue. A batch queue begins with the unit
        that holds that message."""
        batch = self._batches.find(topic, queue_id)
        if batch is not None:
            return self._batches.units(batch, queue_offset, count)
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return []
        units = self._queues.units(queue, queue_offset, count)
        if self._extensions is None:
            return units
        return [self._with_tags_code(queue, unit) for unit in units]

    def query(
        self, topic: str, key: str, max_count: int, begin_ms: int, end_ms: int, kind: str
    ) -> QueryResult:
        """Records of `topic` with `key`, the newest `max_count` (at most maxMsgsNumBatch) with
        store times in [begin_ms, end_ms], epoch ms to a second; `kind` "T" searches for a tag, any
        other kind for a key or unique key. Damaged records are left out and noted. Empty without an
        index (DefaultMessageStore.queryMessage)."""
        index = self._index
        if index is None:
            return QueryResult()
        text = f"{topic}#T#{key}" if kind == "T" else f"{topic}#{key}"
        log_offset, timestamp_ms = index.last_indexed()
        result = QueryResult([], timestamp_ms, LogOffset(max(0, log_offset)))
        count = min(max_count, self._config.max_msgs_num_batch)
        if count <= 0:
            return result

        wanted = KeyCheck(self._log, topic, key, kind)
        hits = index.search(
            text.encode(errors="surrogateescape"), count, begin_ms, end_ms, wanted.record_has_key
        )
        for hit in sorted(hits):
            record = self._log.read_record(hit)
            if record is None:
                self._damage.check_target(hit, 0)
                continue
            view = self._log.view_bytes(hit, record.size)
            if view is not None:
                result.slices.append(view)
        return result

    def _read_plain(
        self,
        queue: ConsumeQueue,
        queue_offset: int,
        max_count: int,
        wanted: Wanted,
        max_size: int,
    ) -> _Selection:
        """Select natively inside one queue file, then take slices of the log."""
        at = queue_offset * QUEUE_UNIT_SIZE
        start = queue.segments.start_of(at)
        unit_end = self._queues.max_offset(queue) * QUEUE_UNIT_SIZE
        end = min(unit_end - start, queue.segments.file_size)
        region = self._queues.file_region(queue, start)
        first = kernel.get_unit(region, at - start)[0]
        count, size = self._read_limits(first, max_count, max_size)
        scan, units_max = None, FILTER_SIZE // QUEUE_UNIT_SIZE
        if isinstance(wanted, Filter):
            scan = FilterScan(wanted, self._log.file_size, self._log.end, self._log.region_of)
            units_max = FILTER_UNITS_NEAR if self.in_memory(first) else units_max
        selection = kernel.select(
            region,
            at - start,
            end,
            codes=None if isinstance(wanted, Filter) else wanted,
            max_count=count,
            max_size=size,
            max_units=max(units_max, max_count),
            scan=scan,
        )
        chosen = _Selection([])
        stop = selection.next_position
        chosen.next_offset = chosen.examined_to = (start + stop) // QUEUE_UNIT_SIZE
        if stop < end and not _is_unit(*kernel.get_unit(region, stop)):
            # Not written or damaged, but before the queue's end.
            chosen.doubtful = True
            chosen.examined_to += 1
        if chosen.next_offset == queue_offset:
            # The reader continues after this unit. RocketMQ continues in the next file
            # (ConsumeQueue.rollNextFile), and skips existing messages.
            chosen.next_offset += 1
        part = None
        if not queue.topic.startswith(LIGHT_PREFIX):
            part = _ServedRange(queue, queue_offset, chosen.next_offset)
        self._collect_slices(chosen, selection.units, part=part)
        return chosen

    def _read_limits(self, log_offset: int, max_count: int, max_size: int) -> tuple[int, int]:
        """(maximum number of messages, maximum bytes) of a read that begins at a record:
        `max_count` and `max_size` within the configured limits, which depend on whether the record
        is in memory."""
        config = self._config
        if self.in_memory(log_offset):
            count = config.max_transfer_count_on_message_in_memory
            size = config.max_transfer_bytes_on_message_in_memory
        else:
            count = config.max_transfer_count_on_message_in_disk
            size = config.max_transfer_bytes_on_message_in_disk
        return max(1, min(max_count, count)), min(max_size, size)

    def _collect_slices(
        self,
        chosen: _Selection,
        units: list[tuple[int, int]],
        counts: dict[int, int] | None = None,
        part: _ServedRange | None = None,
    ) -> None:
        """Turn units into slices; neighbours in the log become one slice. `counts` is the number of
        messages of each record, by log offset, if not always 1; `part` is the set of messages that
        may be served."""
        log = self._log
        start_of = log.segments.start_of
        run: list[tuple[int, int]] = []
        run_start = run_end = 0
        for log_offset, size in units:
            start = start_of(log_offset)
            # No record reaches into the next file: a damaged unit is skipped like a removed one.
            in_log = log.min <= log_offset <= log.end - size
            if size <= 0 or not in_log or start != start_of(log_offset + size - 1):
                chosen.removed = True
                chosen.doubtful |= log_offset >= log.min
                continue
            if log_offset != run_end or start != start_of(run_start):
                self._add_run(chosen, run, run_end, counts, part)
                run, run_start = [], log_offset
            run.append((log_offset, size))
            run_end = log_offset + size
        self._add_run(chosen, run, run_end, counts, part)

    def _add_run(
        self,
        chosen: _Selection,
        run: list[tuple[int, int]],
        end: int,
        counts: dict[int, int] | None,
        part: _ServedRange | None,
    ) -> None:
        """Add one slice for adjacent records, or one for each whole record: a damaged record or
        another message is never served, and the reader continues after it."""
        if not run:
            return
        start = run[0][0]
        if self._are_served(start, end, part):
            view = self._log.view_bytes(start, end - start)
            assert view is not None, "a queue unit points outside the log"
            chosen.slices.append(view)
            chosen.size += end - start
            chosen.count += len(run) if counts is None else sum(counts[at] for at, _size in run)
        elif len(run) > 1:
            for one in run:
                self._add_run(chosen, [one], one[0] + one[1], counts, part)
        else:
            chosen.removed = chosen.doubtful = True
            self._damage.check_target(start, end - start)

    def _are_served(self, start: int, end: int, part: _ServedRange | None) -> bool:
        """Whether the log offsets [start, end) consist of whole records and, with `part`, only of
        messages of that queue and range."""
        if part is None:
            return self._damage.is_whole(start, end - start)
        base = self._log.segments.start_of(start)
        behind = part_end(
            self._log.file_region(base),
            start - base,
            end - base,
            base,
            part.topic,
            part.queue_id,
            part.first,
            part.end,
        )
        if behind < 0:
            return False
        part.first = behind
        return True

    def _decoded_units(
        self,
        queue: ConsumeQueue | None,
        batch: BatchQueue | None,
        queue_offset: int,
        max_count: int,
        wanted: Wanted,
    ) -> list[tuple[QueueUnit, bool]]:
        """Units to examine, each with whether it matches; for queues that are not plain."""
        if batch is not None:
            found = self._batches.units(batch, queue_offset, max(1, max_count))
        else:
            assert queue is not None
            count = max(FILTER_SIZE // QUEUE_UNIT_SIZE, max_count)
            found = self._queues.units(queue, queue_offset, count)
            found = [self._with_tags_code(queue, unit) for unit in found]
        if isinstance(wanted, Filter):
            return [(unit, self._filter_matches(wanted, unit)) for unit in found]
        codes = None if wanted is None else {code & 0xFFFFFFFF for code in wanted}
        return [(unit, codes is None or unit.tags_code & 0xFFFFFFFF in codes) for unit in found]

    def _filter_matches(self, wanted: Filter, unit: QueueUnit) -> bool:
        """Whether a filter matches a record; True for a missing record, which is skipped later.

        The bit map of a queue extension is not used: if another broker wrote it, a filter may be
        missing in it, and reading the record is as fast.
        """
        start = self._log.segments.start_of(unit.log_offset)
        position = unit.log_offset - start
        in_log = self._log.min <= unit.log_offset <= self._log.end - unit.size
        region = self._log.region_of(start) if in_log and unit.size > 0 else None
        if region is None or position + unit.size > region.size:
            return True
        return wanted.matches(region, position, unit.size)

    def _read_units(
        self, units: list[tuple[QueueUnit, bool]], queue_offset: int, max_count: int, max_size: int
    ) -> _Selection:
        """Select the units that match, within the limits, and collect the slices of their
        records."""
        chosen = _Selection([], next_offset=queue_offset)
        picked: list[tuple[int, int]] = []
        counts: dict[int, int] = {}
        messages = total = 0
        for unit, matches in units:
            if matches:
                count, size = self._read_limits(unit.log_offset, max_count, max_size)
                if picked and (messages + unit.count > count or total + unit.size > size):
                    break
                picked.append((unit.log_offset, unit.size))
                counts[unit.log_offset] = unit.count
                messages += unit.count
                total += unit.size
            chosen.next_offset = unit.queue_offset + unit.count
        self._collect_slices(chosen, picked, counts)
        return chosen

    def _with_tags_code(self, queue: ConsumeQueue, unit: QueueUnit) -> QueueUnit:
        """The unit with its tags code in place of the address of an extension unit."""
        if self._extensions is None or not is_address(unit.tags_code):
            return unit
        extra = self._extensions.get(queue.topic, queue.queue_id, unit.tags_code)
        if extra is None:
            return unit
        return replace(unit, tags_code=extra.tags_code, is_extended=True)

    def _search_queue(
        self, queue: ConsumeQueue, low: int, high: int, timestamp_ms: int, boundary: Boundary
    ) -> int:
        """Choose the file by the time of its last unit, then search inside it (store.md 11)."""
        if low >= high:
            return low
        per_file = queue.segments.file_size // QUEUE_UNIT_SIZE
        starts = range(low // per_file * per_file, high, per_file)
        if boundary == Boundary.LOWER:
            # The first file whose last unit is late enough, else the last file.
            def late(start: int) -> bool:
                return self._time_at(queue, min(start + per_file, high) - 1) >= timestamp_ms

            start = next(filter(late, starts), starts[-1])
        else:
            # The last file whose first unit is early enough, else the first file.
            def early(start: int) -> bool:
                return self._time_at(queue, max(start, low)) <= timestamp_ms

            start = next(filter(early, reversed(starts)), starts[0])
        first = max(low, start)
        last = min(high, start + per_file) - 1
        if self._time_at(queue, last) < timestamp_ms:
            return last + 1 if boundary == Boundary.LOWER else last
        if self._time_at(queue, first) > timestamp_ms:
            return first if boundary == Boundary.LOWER else 0
        # The first unit with a time at or above (LOWER) or strictly above (UPPER).
        left, right = first, last + 1
        while left < right:
            middle = (left + right) // 2
            time_ms = self._time_at(queue, middle)
            if time_ms < timestamp_ms or (boundary == Boundary.UPPER and time_ms == timestamp_ms):
                left = middle + 1
            else:
                right = middle
        return left if boundary == Boundary.LOWER else left - 1

    def _search_batch(
        self, queue: BatchQueue, timestamp_ms: int, boundary: Boundary
    ) -> QueueOffset:
        """Queue offset of a time in a batch queue. LOWER: the first unit not older than the time,
        else the last. UPPER: the last not newer, else the first
        (BatchConsumeQueue.getOffsetInQueueByTime, without its mistake of taking the next unit when
        that is the last one)."""
        units = self._batches.unit_positions(queue, queue.min_offset)
        if not units:
            return queue.min_offset

        def is_behind(at: int) -> bool:
            unit = self._batches.read_unit(queue, at)
            time_ms = self._time_of(unit.log_offset, unit.size)
            later = boundary == Boundary.UPPER
            return time_ms > timestamp_ms if later else time_ms >= timestamp_ms

        number = bisect_left(units, True, key=is_behind)
        if boundary == Boundary.UPPER:
            number -= 1
        at = units[min(max(number, 0), len(units) - 1)]
        return QueueOffset(self._batches.read_unit(queue, at).base)

    def _time_at(self, queue: ConsumeQueue, queue_offset: int) -> int:
        """Store time in epoch ms of an existing message of a queue; -1 if its record is removed."""
        at = queue_offset * QUEUE_UNIT_SIZE
        start = queue.segments.start_of(at)
        region = self._queues.file_region(queue, start)
        log_offset, size, _tags = kernel.get_unit(region, at - start)
        return self._time_of(log_offset, size)

    def _time_of(self, log_offset: int, size: int) -> int:
        """Store time in epoch ms, read from a record's header; -1 if the record is removed."""
        view = self._log.view_bytes(log_offset, size)
        if view is None or size < TIME_END_MAX:
            return -1
        sys_flag = int.from_bytes(view[36:40], "big")
        at = 68 if sys_flag & BORN_V6 else 56
        return int.from_bytes(view[at : at + 8], "big", signed=True)
