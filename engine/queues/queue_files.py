"""The files of consume queues: for each topic and queue id, 20-byte units that point into the log.

Owns the queue folders, the room that the native dispatcher writes into, and the offsets of each
queue. It must never read the commit log, nor decide which units to cut: the subclass in
consume_queue.py does, and all other code uses that class.

Tests: tests/unit/engine/queues/test_many_queues.py
"""

from collections.abc import Iterator
from dataclasses import dataclass

from turbopump.engine.config import QUEUE_UNIT_SIZE
from turbopump.engine.disk.files import Files, MappedFile
from turbopump.engine.disk.segments import MappingPool, Segments
from turbopump.engine.disk.store_paths import queue_folder, topic_folder
from turbopump.engine.queues.deleted_topics import DeletedTopics
from turbopump.engine.types import LogOffset, QueueOffset, QueueUnit
from turbopump.pyx import queue as kernel
from turbopump.pyx.dispatch import QueueTable
from turbopump.pyx.region import Region

FOLDER = "consumequeue"
"""Name of the queues' folder in the store's folder."""
RESERVE_MIN = 4096
"""Bytes of blocks that a queue file gets first. Each later reservation doubles them, so that
100,000 small queues cost 400 MB and a busy queue reserves rarely."""
RESERVE_MAX = 1 << 20
"""Maximum bytes of blocks that one reservation adds."""
LOOK_MAX = 64 << 10
"""Queue files up to this number of bytes are read as a copy when the store opens: mapping each of
100,000 queues takes longer, and 16 pages each."""
BLANK_SIZE = 0x7FFFFFFF
"""The size field of a pre-filled blank unit (RocketMQ: ConsumeQueue.fillPreBlank)."""
ZERO = QueueOffset(0)
"""The first offset of every queue."""


@dataclass(slots=True, eq=False)
class ConsumeQueue:
    """A plain consume queue. Its units from `min_offset` to before `max_offset` exist."""

    topic: str
    """Topic of the queue."""
    queue_id: int
    """Id of the queue in its topic."""
    slot: int
    """Number of the queue in QueueTable."""
    segments: Segments
    """The queue's files; unit n lies at byte n * 20 of them."""
    min_offset: QueueOffset = ZERO
    """Queue offset of the first unit whose record exists."""
    attached: int = -1
    """First byte, in the queue, of the file that the native table writes into; -1: no file."""
    flushed_offset: QueueOffset = ZERO
    """Queue offset before which all units are durable."""
    names_synced: bool = True
    """Whether the names of the queue's files and folders are durable."""
    is_tidy: bool = False
    """Whether its only file was found with units from the first on and zeros after them, and is
    unchanged."""
    emptied: bool = False
    """Whether it was cut to nothing with its first file kept, whose name records the next
    offset."""


class ConsumeQueueFiles:
    """All plain queues of a store, and the native table through which they are written."""

    def __init__(self, files: Files, root: str, file_size: int, pool: MappingPool) -> None:
        assert file_size % QUEUE_UNIT_SIZE == 0, "a file of broken units"
        self.files = files
        self.folder = f"{root}/{FOLDER}"
        """Path of the folder of all plain queues."""
        self.file_size = file_size
        """Size of a queue file in bytes, a multiple of 20."""
        self.table = QueueTable()
        """Native table of the plain queues' counters, by slot."""
        self._pool = pool
        self.deleted_topics = DeletedTopics(files, root)
        """The deleted topics, whose earlier records get no units."""
        self._by_topic: dict[str, dict[int, ConsumeQueue]] = {}
        self._by_slot: dict[int, ConsumeQueue] = {}
        self._special: list[tuple[bytes, int]] = []
        self.removing: set[str] = set()
        """Topics whose files another thread is removing: no file of them is made meanwhile."""
        self.lacks_files = False
        """Whether `load` found files missing that existed once, or cut short."""

    def __iter__(self) -> Iterator[ConsumeQueue]:
        """All plain queues in no order; none may be added or removed during the iteration."""
        return iter(self._by_slot.values())

    def __len__(self) -> int:
        """Number of plain queues."""
        return len(self._by_slot)

    def topics(self) -> set[str]:
        """Topics that have a plain queue."""
        return set(self._by_topic)

    def of_topic(self, topic: str) -> list[ConsumeQueue]:
        """The plain queues of a topic, in no order; an empty list for an unknown topic."""
        return list(self._by_topic.get(topic, {}).values())

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The plain queue, None if it does not exist."""
        queues = self._by_topic.get(topic)
        return None if queues is None else queues.get(queue_id)

    def by_slot(self, slot: int) -> ConsumeQueue:
        """The queue of a slot of the table. Raises KeyError for a slot without a plain queue."""
        return self._by_slot[slot]

    def add(self, topic: str, queue_id: int, plain: bool = True) -> ConsumeQueue:
        """Add an empty queue, which must not exist; its files are made with its first unit. Records
        of a queue that is not `plain` stop the native dispatch (QueueTable: SPECIAL)."""
        assert self.find(topic, queue_id) is None, "added twice"
        folder = queue_folder(self.folder, topic, queue_id)
        slot = self.table.add(topic.encode(errors="surrogateescape"), queue_id, plain)
        segments = Segments(self._pool, folder, self.file_size)
        queue = ConsumeQueue(topic, queue_id, slot, segments)
        self._by_topic.setdefault(topic, {})[queue_id] = queue
        self._by_slot[slot] = queue
        self.table.set_progress(slot, 0, self.deleted_topics.former_life_end(topic))
        return queue

    def add_stop_entry(self, topic: bytes, queue_id: int) -> None:
        """Let the native dispatch stop with SPECIAL at records of a queue that has no plain queue
        here: a batch queue, or a name that no folder can have."""
        self._special.append((topic, self.table.add(topic, queue_id, False)))

    def max_offset(self, queue: ConsumeQueue) -> QueueOffset:
        """Queue offset after the last dispatched unit."""
        if queue.emptied:
            return QueueOffset(queue.segments.first // QUEUE_UNIT_SIZE)
        return QueueOffset(self.table.max_offset(queue.slot))

    def first_units(self) -> int:
        """Sum over all queues of the queue offset at which the first file begins."""
        return sum(queue.segments.first for queue in self) // QUEUE_UNIT_SIZE

    def make_room(self, queue: ConsumeQueue, queue_offset: int) -> None:
        """Reserve blocks for unit `queue_offset`, the queue's next unit, in a new file if needed,
        and attach that file to the native table. Raises OSError (disk full).

        If a queue's first file does not begin with its first unit, it is pre-filled with blanks
        before it, as RocketMQ does after a deletion (store.md 11).
        """
        segments = queue.segments
        queue.is_tidy = False
        if queue.emptied:
            self.reset_queue(queue)
        at = queue_offset * QUEUE_UNIT_SIZE
        start = segments.start_of(at)
        position = at - start
        if segments.count and start != segments.end:
            assert segments.contains(at), "room asked for beyond the next unit"
            region = self.file_region(queue, start)
            limit = self._reserve_unit(queue, start, position)
        else:
            limit = _reserve_end(position, self.file_size)
            region = self._add_file(queue, start, position, limit)
        self.table.attach(queue.slot, region, start // QUEUE_UNIT_SIZE, limit)
        queue.attached = start

    def _add_file(self, queue: ConsumeQueue, start: int, position: int, limit: int) -> Region:
        """Make the queue's next file, for the unit at `position` of it, with blocks up to `limit`;
        returns its memory. Raises OSError, and then there is no such file."""
        segments = queue.segments
        is_first = segments.count == 0
        if is_first:
            self.files.make_folders(segments.folder)
        mapped = segments.create(start, lambda: self._may_close(queue, start), limit)
        queue.names_synced = False
        _expect_units(mapped)
        if is_first:
            if position > 0:
                kernel.fill_blank(mapped.region, 0, position)
            queue.min_offset = QueueOffset((start + position) // QUEUE_UNIT_SIZE)
            self.table.changed()
        return mapped.region

    def write_unit(self, queue: ConsumeQueue, log_offset: int, size: int, tags_code: int) -> None:
        """Write the next unit of a queue that is not plain, for the record of `size` bytes at
        `log_offset`; it is visible but not durable then. Raises OSError."""
        offset = self.table.max_offset(queue.slot)
        self.make_room(queue, offset)
        start = queue.attached
        region = queue.segments.file_region(start)
        position = offset * QUEUE_UNIT_SIZE - start
        kernel.put_unit(region, position, log_offset, size, tags_code)
        self.table.set_progress(queue.slot, offset + 1, log_offset + size)

    def fill_blank(self, queue: ConsumeQueue, queue_offset: QueueOffset) -> None:
        """Write blank units from the queue's end to before `queue_offset`, in place of units whose
        records the log no longer has, so that later offsets stay. Raises OSError."""
        log_end = self.table.max_log_offset(queue.slot)
        while (offset := self.table.max_offset(queue.slot)) < queue_offset:
            self.make_room(queue, offset)
            start = queue.attached
            stop = min(queue_offset * QUEUE_UNIT_SIZE, self._room_end(queue, start, offset))
            kernel.fill_blank(
                self.file_region(queue, start), offset * QUEUE_UNIT_SIZE - start, stop - start
            )
            self.table.set_progress(queue.slot, stop // QUEUE_UNIT_SIZE, log_end)

    def units(self, queue: ConsumeQueue, queue_offset: int, count: int) -> list[QueueUnit]:
        """The units with queue offsets from `queue_offset` to before `queue_offset + count` that
        exist, ascending, blank and damaged ones included."""
        found = []
        end = min(queue_offset + count, self.max_offset(queue))
        for offset in range(max(queue_offset, queue.min_offset), end):
            at = offset * QUEUE_UNIT_SIZE
            start = queue.segments.start_of(at)
            region = self.file_region(queue, start)
            log_offset, size, tags_code = kernel.get_unit(region, at - start)
            found.append(QueueUnit(LogOffset(log_offset), size, tags_code, QueueOffset(offset)))
        return found

    def file_region(self, queue: ConsumeQueue, start: int) -> Region:
        """Mapped memory of the queue's file that begins at byte `start` of the queue; the file must
        exist."""
        return queue.segments.mapped_file(start, lambda: self._may_close(queue, start)).region

    def reset_queue(self, queue: ConsumeQueue) -> None:
        """Remove all files of a queue durably, so that it begins at 0 without units; the caller
        rebuilds its units from the log. Raises OSError."""
        self._detach_queue(queue)
        segments = queue.segments
        if segments.count:
            while segments.count:
                self.files.remove(segments.forget_last())
            self.files.sync_folder(segments.folder)
        queue.emptied = False
        queue.min_offset = ZERO
        self._set_end(queue, 0, -1)

    def close(self) -> None:
        """Release all mappings that the table holds, which would keep the blocks of removed files.
        Nothing is synced."""
        for queue in self:
            self._detach_queue(queue)
        self.table.set_index(None)

    def dirty_paths(self, queue: ConsumeQueue) -> tuple[list[str], list[str], QueueOffset]:
        """(files, folders, queue offset): the paths to sync so that all units before that queue
        offset are durable. Syncs nothing and changes nothing: the caller sets `flushed_offset` and
        `names_synced`."""
        maximum = self.max_offset(queue)
        segments = queue.segments
        first = segments.start_of(queue.flushed_offset * QUEUE_UNIT_SIZE)
        last = segments.start_of(max(0, maximum - 1) * QUEUE_UNIT_SIZE)
        paths = []
        if maximum > queue.flushed_offset:
            paths = [
                segments.path(start)
                for start in range(first, last + 1, self.file_size)
                if segments.contains(start)
            ]
        folders = []
        if not queue.names_synced and segments.count:
            root = self.folder.rpartition("/")[0]
            folders = [segments.folder, topic_folder(self.folder, queue.topic), self.folder, root]
        return paths, folders, maximum

    def _forget_queue(self, queue: ConsumeQueue) -> None:
        """Remove a queue from memory and table; its files stay on the disk, unmapped."""
        self._detach_queue(queue)
        while queue.segments.count:
            queue.segments.forget_last()
        self.table.remove(queue.slot)
        del self._by_slot[queue.slot]
        queues = self._by_topic[queue.topic]
        del queues[queue.queue_id]
        if not queues:
            del self._by_topic[queue.topic]

    def _set_end(self, queue: ConsumeQueue, at: int, log_end: int) -> None:
        """Set max, next and flushed offset of a queue whose units end at byte `at`; `log_end` is
        the log offset of the end of its last record."""
        offset = at // QUEUE_UNIT_SIZE
        former = self.deleted_topics.former_life_end(queue.topic)
        self.table.set_progress(queue.slot, offset, max(log_end, former))
        self.table.set_next_offset(queue.slot, offset)
        queue.flushed_offset = QueueOffset(offset)

    def _file_memory(self, queue: ConsumeQueue, start: int, end: int) -> Region:
        """Memory with the bytes [0, end) of the queue's file that begins at byte `start`: a copy if
        the file is small, without mapping it, else the mapping."""
        if end <= LOOK_MAX:
            at, data = self.files.read_tail(queue.segments.path(start), LOOK_MAX)
            if at == 0 and end <= len(data):
                return Region(data)
        return self.file_region(queue, start)

    def _skip_blanks(self, queue: ConsumeQueue, region: Region) -> None:
        """Set the min offset after the pre-filled blanks of a first file, which are not units."""
        segments = queue.segments
        end = min(self.file_size, self.max_offset(queue) * QUEUE_UNIT_SIZE - segments.first)
        low, high = 0, max(end, 0) // QUEUE_UNIT_SIZE
        while low < high:
            middle = (low + high) // 2
            unit = kernel.get_unit(region, middle * QUEUE_UNIT_SIZE)
            if unit[0] == 0 and unit[1] == BLANK_SIZE:
                low = middle + 1
            else:
                high = middle
        queue.min_offset = QueueOffset(segments.first // QUEUE_UNIT_SIZE + low)

    def _room_end(self, queue: ConsumeQueue, start: int, queue_offset: int) -> int:
        """Byte of the queue up to which whole units have room once blocks for unit `queue_offset`
        are reserved, in the file that begins at byte `start`."""
        position = queue_offset * QUEUE_UNIT_SIZE - start
        room = _reserve_end(position, self.file_size) - position
        return start + position + room // QUEUE_UNIT_SIZE * QUEUE_UNIT_SIZE

    def _reserve_unit(self, queue: ConsumeQueue, start: int, position: int) -> int:
        """Reserve blocks for the next unit, at `position` of the file that begins at byte `start`.
        Returns the position up to which blocks are reserved."""
        limit = _reserve_end(position, self.file_size)
        mapped = queue.segments.mapped_file(start)
        mapped.reserve(0 if position <= RESERVE_MIN else position, limit)
        _expect_units(mapped)
        return limit

    def _may_close(self, queue: ConsumeQueue, start: int) -> bool:
        """Detach the table before a mapping closes: the table must not write into it afterwards."""
        if queue.attached == start:
            self._detach_queue(queue)
        return True

    def _detach_queue(self, queue: ConsumeQueue) -> None:
        """Let the native table write no more into the queue's file, until it is attached again."""
        if queue.attached >= 0:
            self.table.attach(queue.slot, None, 0, 0)
            queue.attached = -1


def _expect_units(mapped: MappedFile) -> None:
    """Advise the kernel to load the next unit's page alone: otherwise it would fill all following
    pages with zeros."""
    mapped.expect_random()


def _reserve_end(position: int, file_size: int) -> int:
    """Position up to which blocks are reserved when the next unit lies at `position`."""
    wanted = position + max(RESERVE_MIN, min(position, RESERVE_MAX))
    return min(file_size, -(-wanted // RESERVE_MIN) * RESERVE_MIN)


def log_end_before(region: Region, position: int) -> int:
    """Log offset of the end of the record of the unit before byte `position` of a queue file's
    memory; -1 at the file's beginning, or if that unit is a blank."""
    if position == 0:
        return -1
    log_offset, size, _tags = kernel.get_unit(region, position - QUEUE_UNIT_SIZE)
    return -1 if size == BLANK_SIZE else log_offset + size
