"""Dispatch: from the log to queues and index, each byte once.

Owns the dispatched log offset and the work that the native dispatch cannot do alone: new queues,
room in queue and index files, queues that are not plain. It must never run beyond the offset it is
given (SYNC_FLUSH: the flushed one).

Tests: tests/unit/engine/lifecycle/test_recovery.py, tests/unit/pyx/test_dispatch.py
"""

import errno
import logging
from collections.abc import Callable, Sequence

from turbopump.engine.disk.store_paths import is_folder_name
from turbopump.engine.log.commit_log import STALLED
from turbopump.engine.queues.batch_queue import inner_count
from turbopump.engine.queues.new_lives import NewLife, NewLives
from turbopump.engine.queues.parts import QueueParts
from turbopump.engine.queues.queue_files import ConsumeQueue
from turbopump.engine.types import SCHEDULE_TOPIC, LogOffset, QueueOffset, StoreError
from turbopump.pyx import dispatch as kernel
from turbopump.pyx.index import java_hash
from turbopump.pyx.record import Record, decode
from turbopump.pyx.region import Region

logger = logging.getLogger(__name__)

GAP_MAX = 10_000_000
"""Maximum number of blank units that fill a hole in a queue (200 MB); a larger hole means a damaged
number."""
_LEVEL_DIGITS = 9


class QueueGapError(Exception):
    """The queue of a record lacks the units before the record's: the dispatch began too late in the
    log (recovery only)."""


class LogDispatcher:
    """Makes appended records visible, up to `position`. Loop thread only."""

    def __init__(
        self, parts: QueueParts, is_batch_topic: Callable[[str], bool], delays_ms: Sequence[int]
    ) -> None:
        """`is_batch_topic` recognizes topics with `queue.type=BatchCQ`; `delays_ms` are the delays
        of messageDelayLevel, beginning with level 1."""
        self.log = parts.log
        """The log whose records are dispatched."""
        self.strict = False
        """Whether to raise QueueGapError instead of filling holes, while recovery may still start
        earlier."""
        self.stalled: OSError | None = None
        """Error because of which the queues cannot follow the log (disk full); None once they can
        again."""
        self.new_lives = NewLives()
        """Topics whose deletion the log proves and no table contains yet."""
        self._queues, self._batches = parts.queues, parts.batches
        self._index, self._extensions = parts.index, parts.extensions
        self._batch_arrivals: list[tuple[str, int]] = []
        self._is_batch_topic = is_batch_topic
        self._damage = parts.damage
        self._delays_ms = list(delays_ms)
        self._queues.table.set_delay_levels(self._delays_ms)
        self._index_from = LogOffset(0)

    @property
    def position(self) -> LogOffset:
        """Log offset before which every record has its queue unit and index entries, so that it is
        visible."""
        return LogOffset(self.log.tail.dispatched)

    @position.setter
    def position(self, log_offset: LogOffset) -> None:
        """Set the offset without a dispatch."""
        self.log.tail.dispatched = log_offset

    @property
    def last_store_timestamp_ms(self) -> int:
        """Store time of the last dispatched record, in epoch ms."""
        return self.log.tail.dispatched_timestamp_ms

    @last_store_timestamp_ms.setter
    def last_store_timestamp_ms(self, timestamp_ms: int) -> None:
        """Set the time after records that were dispatched elsewhere."""
        self.log.tail.dispatched_timestamp_ms = timestamp_ms

    def is_plain(self, topic: str) -> bool:
        """Whether the native table may write the units of the topic's queues itself: not for batch
        topics, and for no topic with enableConsumeQueueExt."""
        return self._extensions is None and not self.is_batch(topic)

    def is_batch(self, topic: str) -> bool:
        """Whether the topic's messages go to batch queues, by its configuration or because it has
        such queues."""
        return self._is_batch_topic(topic) or self._batches.has_topic(topic)

    def start(self, position: LogOffset, index_from: LogOffset) -> None:
        """Let the next `run` begin at `position`, a record boundary; records before `index_from`
        get queue units only, because they have their index entries. Dispatches nothing itself."""
        self.position = position
        self._index_from = index_from
        self._queues.table.ready = False

    def rewind_to(self, log_end: LogOffset) -> None:
        """Let the next `run` begin at `log_end`, where the log is cut, if it would begin later. The
        caller removes the units and index entries of the cut records."""
        self.new_lives.forget_proofs_from(log_end)
        index_from = LogOffset(min(self._index_from, log_end))
        self.start(LogOffset(min(self.position, log_end)), index_from)

    def run(self, until: LogOffset, now_ms: int) -> None:
        """Dispatch the records from `position` to `until`, a record boundary, before it returns;
        `now_ms` (epoch ms) names new index files. A full disk stops it before `until`: `stalled` is
        set, and the next call continues.

        Damage is noted and passed over. Raises StoreError for a record with impossible numbers, and
        in strict mode QueueGapError.
        """
        was_stalled, self.stalled = self.stalled is not None, None
        try:
            if self.position < self._index_from:
                self._queues.table.set_index(None)
                self._run(LogOffset(min(until, self._index_from)), now_ms, indexing=False)
            if self.position < until:
                if self._index is not None:
                    self._queues.table.set_index(self._index.current_file(now_ms))
                self._run(until, now_ms, indexing=self._index is not None)
                # The native path continues with the same index.
                self._queues.table.ready = True
        except OSError as error:
            if not was_stalled:
                logger.error("queues and index wait at log offset %d: %s", self.position, error)
            self.stalled = error
            self._queues.table.ready = False
        self.log.tail.refuse(STALLED, self.stalled is not None)

    def take_arrivals(self) -> tuple[list[int], list[tuple[str, int]]]:
        """Take the queues to which dispatch wrote units since the last call: (slots of plain queues
        in QueueTable, (topic, queue id) of batch queues, one for each unit)."""
        batches, self._batch_arrivals = self._batch_arrivals, []
        return self._queues.table.take_arrivals(), batches

    def advance_next_offsets(self, until: LogOffset) -> None:
        """Advance each queue's next offset past the undispatched records from `position` to
        `until`, which have their queue offsets already; nothing becomes visible. Raises StoreError,
        as `run` does."""
        at = self.position
        while at < until:
            base, region, position, end = self.log.part_in_one_file(at, until)
            stop = self._queues.table.count_on(region, base, position, end)
            at = LogOffset(base + stop.position)
            if stop.status == kernel.UNKNOWN_QUEUE:
                self._add_queue(self._decode(base, region, stop.position, end))
            elif stop.status == kernel.SPECIAL:
                self._advance_special(self._decode(base, region, stop.position, end))
                at = LogOffset(at + stop.size)
            elif stop.status == kernel.BLANK_FOUND:
                at = LogOffset(base + self.log.file_size)
            elif stop.status != kernel.DONE:
                at = self._damage.skip_damage(at, until)

    def _advance_special(self, record: Record) -> None:
        """Advance the next offset of a batch queue, or of a queue with extensions, past an
        undispatched record."""
        topic = record.topic.decode(errors="surrogateescape")
        if not is_folder_name(topic) or record.queue_id < 0:
            return
        if self.is_batch(topic):
            batch = self._batches.get(topic, record.queue_id)
            count = inner_count(parse_properties(record.properties))
            present = batch.next_offset if record.queue_offset > 0 else 0
            batch.next_offset = QueueOffset(max(present, record.queue_offset + count))
            return
        queue, table = self._queues.find(topic, record.queue_id), self._queues.table
        assert queue is not None, "a queue with extensions has a slot"
        is_next = record.queue_offset >= table.next_offset(queue.slot)
        if is_next or record.queue_offset == 0:
            table.set_next_offset(queue.slot, record.queue_offset + 1)

    def index_only(self, start: LogOffset, until: LogOffset, now_ms: int) -> None:
        """Write index entries, and no queue units, for the records of [start, until), both record
        boundaries; a no-op without an index. `now_ms` (epoch ms) names new index files. Raises
        OSError."""
        if self._index is None or start >= until:
            return
        self._queues.table.set_index(self._index.current_file(now_ms))
        at = start
        while at < until:
            base, region, position, end = self.log.part_in_one_file(at, until)
            stop = self._queues.table.dispatch(region, base, position, end, queues=False)
            at = LogOffset(base + stop.position)
            if stop.status == kernel.NEEDS_INDEX:
                self._queues.table.set_index(self._index.next_with_room(now_ms))
            elif stop.status == kernel.BLANK_FOUND:
                at = LogOffset(base + self.log.file_size)
            elif stop.status != kernel.DONE:
                at = self._damage.skip_damage(at, until)

    def _run(self, until: LogOffset, now_ms: int, indexing: bool) -> None:
        """Dispatch natively up to `until`, and do at each stop of the native dispatch the work that
        it cannot do. `indexing`: records of special queues need index entries, too."""
        table = self._queues.table
        log = self.log
        while self.position < until:
            base, region, position, end = log.part_in_one_file(self.position, until)
            stop = table.dispatch(region, base, position, end)
            self.position = LogOffset(base + stop.position)
            if stop.store_timestamp_ms:
                self.last_store_timestamp_ms = stop.store_timestamp_ms
            status = stop.status
            if status == kernel.DONE:
                continue
            if status == kernel.NEEDS_ROOM:
                queue = self._queues.by_slot(stop.slot)
                self._check_removed(queue.topic)
                self._queues.make_room(queue, table.max_offset(stop.slot))
            elif status == kernel.NEEDS_INDEX:
                assert self._index is not None, "index room asked for without an index"
                table.set_index(self._index.next_with_room(now_ms))
            elif status == kernel.BLANK_FOUND:
                self.position = LogOffset(base + log.file_size)
            elif status == kernel.UNKNOWN_QUEUE:
                self._add_queue(self._decode(base, region, stop.position, end))
            elif status == kernel.QUEUE_GAP:
                self._fill_gap(self._queues.by_slot(stop.slot), stop.queue_offset)
            elif status in (kernel.SPECIAL, kernel.BEGINS_ANEW):
                after = LogOffset(self.position + stop.size)
                record = self._decode(base, region, stop.position, end)
                if status == kernel.SPECIAL:
                    self._dispatch_special(record)
                else:
                    self._note_new_life(record, table.max_log_offset(stop.slot))
                if indexing:
                    self.index_only(self.position, after, now_ms)
                self.position = after
            else:
                self.position = self._damage.skip_damage(self.position, until)

    def _check_removed(self, topic: str) -> None:
        """Raise while files of the topic's earlier life, which may have the names of its new files,
        are being removed."""
        if topic in self._queues.removing:
            raise BlockingIOError(errno.EBUSY, f"files of topic {topic} are being removed")

    def _decode(self, base: int, region: Region, position: int, end: int) -> Record:
        """The record at `position` of the file that begins at log offset `base`. Raises
        StoreError."""
        try:
            return decode(region, position, end, base)
        except ValueError as error:
            raise StoreError(f"log offset {base + position}: {error}") from None

    def _add_queue(self, record: Record) -> None:
        """Add the record's queue; for a batch topic or a name that no queue can have, let the
        native dispatch stop at each record of it."""
        topic = record.topic.decode(errors="surrogateescape")
        if not is_folder_name(topic) or record.queue_id < 0:
            logger.warning(
                "log offset %d: no queue for topic %r, queue %d",
                record.log_offset,
                topic,
                record.queue_id,
            )
            self._queues.add_stop_entry(record.topic, record.queue_id)
        elif self.is_batch(topic):
            self._queues.add_stop_entry(record.topic, record.queue_id)
        else:
            self._queues.add(topic, record.queue_id, self.is_plain(topic))

    def _fill_gap(self, queue: ConsumeQueue, queue_offset: int) -> None:
        """Let a queue continue at `queue_offset` although units before it are missing: with blank
        units, or as the queue's first offset if it has no files. Raises QueueGapError in strict
        mode, StoreError for a gap of over GAP_MAX units."""
        queues = self._queues
        present = queues.max_offset(queue)
        log_end = queues.table.max_log_offset(queue.slot)
        if queue.emptied and queues.continue_at(queue, queue_offset):
            return
        if queue.segments.count == 0:
            # The earlier records were deleted by age: the queue begins here.
            if self.strict:
                raise QueueGapError(f"{queue.topic}/{queue.queue_id} begins at {queue_offset}")
            queues.table.set_progress(queue.slot, queue_offset, log_end)
            return
        if self.strict:
            raise QueueGapError(f"{queue.topic}/{queue.queue_id} lacks {present}..{queue_offset}")
        if queue_offset - present > GAP_MAX:
            raise StoreError(
                f"log offset {self.position}: queue offset {queue_offset} of {queue.topic}/"
                f"{queue.queue_id} is {queue_offset - present} beyond its last unit"
            )
        logger.warning(
            "%s/%d: units %d to %d are missing and stay blank",
            queue.topic,
            queue.queue_id,
            present,
            queue_offset,
        )
        queues.fill_blank(queue, QueueOffset(queue_offset))
        queues.correct_min(queue, self.log.min)

    def _note_new_life(self, record: Record, former_end: int) -> None:
        """Note that `record`, which gets no unit now, begins a new life of its topic: it proves a
        deletion that is not applied yet. `former_end`: log offset of the end of the queue's last
        dispatched record."""
        topic = record.topic.decode(errors="surrogateescape")
        self.last_store_timestamp_ms = record.store_timestamp_ms
        if topic in self.new_lives:
            return
        at = LogOffset(max(former_end, self.log.min))
        logger.warning(
            "log offset %d: topic %s was deleted at %d or later", record.log_offset, topic, at
        )
        self.new_lives.add(
            topic, NewLife(at, LogOffset(record.log_offset), record.store_timestamp_ms)
        )

    def _dispatch_special(self, record: Record) -> None:
        """Write the unit of a record of a batch topic or of a store with queue extensions."""
        topic = record.topic.decode(errors="surrogateescape")
        properties = parse_properties(record.properties)
        if is_folder_name(topic) and record.queue_id >= 0:
            self._check_removed(topic)
            if self.is_batch(topic):
                batch = self._batches.get(topic, record.queue_id)
                if _begins_new_life(record, batch.max_offset, batch.max_log_offset):
                    self._note_new_life(record, batch.max_log_offset)
                elif self._batches.write_unit_of(topic, record, properties):
                    self._batch_arrivals.append((topic, record.queue_id))
            else:
                self._dispatch_extended(topic, record, properties)
        self.last_store_timestamp_ms = record.store_timestamp_ms

    def _dispatch_extended(
        self, topic: str, record: Record, properties: dict[bytes, bytes]
    ) -> None:
        """Write a unit whose tags code is the address of an extension unit (store.md 12)."""
        queues, extensions = self._queues, self._extensions
        queue = queues.find(topic, record.queue_id)
        assert queue is not None and extensions is not None
        table = queues.table
        if record.log_offset < table.max_log_offset(queue.slot):
            return
        present = queues.max_offset(queue)
        if _begins_new_life(record, present, table.max_log_offset(queue.slot)):
            self._note_new_life(record, table.max_log_offset(queue.slot))
            return
        if record.queue_offset > present:
            self._fill_gap(queue, record.queue_offset)
        elif record.queue_offset < present:
            logger.warning("log offset %d: its queue is further on already", record.log_offset)
            return
        code = self._tags_code(topic, properties, record.store_timestamp_ms)
        bits = extensions.bit_map(topic, record.properties)
        address = extensions.write_unit(
            topic, record.queue_id, code, record.store_timestamp_ms, bits
        )
        queues.write_unit(
            queue, record.log_offset, record.size, code if address is None else address
        )
        table.note_stored(queue.slot, record.store_timestamp_ms)

    def tags_code(self, record: Record) -> int:
        """The tags code for the queue unit of a record: Java's hash of its tags, 0 without tags;
        for a delayed message in SCHEDULE_TOPIC its delivery time in epoch ms."""
        topic = record.topic.decode(errors="surrogateescape")
        properties = parse_properties(record.properties)
        return self._tags_code(topic, properties, record.store_timestamp_ms)

    def _tags_code(self, topic: str, properties: dict[bytes, bytes], store_ms: int) -> int:
        """The tags' hash, or for the delay topic the delivery time (store.md 6.3)."""
        level = properties.get(b"DELAY", b"").removeprefix(b"+")
        if topic == SCHEDULE_TOPIC and level.isdigit() and level.strip(b"0") and self._delays_ms:
            # The last level for any longer number: int() refuses thousands of digits.
            number = int(level) if len(level) <= _LEVEL_DIGITS else len(self._delays_ms)
            return store_ms + self._delays_ms[min(number, len(self._delays_ms)) - 1]
        tags = properties.get(b"TAGS")
        return java_hash(tags) if tags else 0


def _begins_new_life(record: Record, max_offset: int, max_log_offset: int) -> bool:
    """Whether the record begins a new life of its topic, by the rule of the native dispatch
    (new_lives.py)."""
    return record.queue_offset == 0 < max_offset and record.log_offset >= max_log_offset


def parse_properties(text: bytes) -> dict[bytes, bytes]:
    """Names and values of a record's properties text (name 0x01 value 0x02 ...). Later duplicates
    overwrite, and pairs with an empty name or value are left out (store.md 5)."""
    found = {}
    for pair in text.split(b"\x02"):
        name, separator, value = pair.partition(b"\x01")
        if separator and name and value:
            found[name] = value
    return found


def with_inner_base(text: bytes, queue_offset: int) -> tuple[bytes, int]:
    """Return (properties text of a batch topic's message with INNER_BASE set to `queue_offset`,
    number of queue offsets that the message takes). Without INNER_NUM the text is unchanged, and
    the number is 1."""
    properties = parse_properties(text)
    if b"INNER_NUM" in properties:
        properties[b"INNER_BASE"] = str(queue_offset).encode()
        text = b"".join(name + b"\x01" + value + b"\x02" for name, value in properties.items())
    return text, inner_count(properties)
