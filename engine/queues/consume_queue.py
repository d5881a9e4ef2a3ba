"""Consume queues: for each topic and queue id, 20-byte units that point into the commit log.

Owns the queue folders, the room the native dispatcher writes into, the offsets of each queue, and
how a queue is cut. It must never read the commit log or decide what may be seen. Called by the
dispatcher, recovery, retention, lookup and the store.
"""

import logging
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass

from turbopump.engine.config import QUEUE_UNIT_SIZE
from turbopump.engine.disk.disk_steps import Unsynced, Work, removal
from turbopump.engine.disk.files import Files
from turbopump.engine.disk.segments import MappingPool, Segments, clear_tail, is_file_name
from turbopump.engine.disk.store_paths import queue_folder, queue_folders, topic_folder
from turbopump.engine.queues.deleted_topics import DeletedTopics
from turbopump.engine.types import LogOffset, QueueOffset, QueueUnit
from turbopump.pyx import queue as kernel
from turbopump.pyx.dispatch import QueueTable
from turbopump.pyx.region import Region

logger = logging.getLogger(__name__)

FOLDER = "consumequeue"
# Blocks of a queue file are reserved from one page on and then doubled, so that 100,000 small
# queues cost 400 MB and a busy one reserves rarely.
RESERVE_MIN = 4096
RESERVE_MAX = 1 << 20
# Up to this much of a queue's file is looked at in a copy when the store opens: a mapping for each
# of 100,000 queues takes longer, and 16 pages each.
LOOK_MAX = 64 << 10
# The size of a pre-filled blank unit (RocketMQ: ConsumeQueue.fillPreBlank).
BLANK_SIZE = 0x7FFFFFFF
ZERO = QueueOffset(0)


@dataclass(slots=True, eq=False)
class ConsumeQueue:
    """One queue. Units `min_offset` to the table's max offset are there."""

    topic: str
    queue_id: int
    slot: int
    segments: Segments
    min_offset: QueueOffset = ZERO
    attached: int = -1
    """Start of the file the native table writes into, -1 if none."""
    flushed_offset: QueueOffset = ZERO
    names_synced: bool = True
    """Whether the names of the queue's files and folders are durable."""
    is_tidy: bool = False
    """Its only file was found with units from the first on and zeros behind, and is unchanged."""
    emptied: bool = False
    """Cut to nothing, with its first file kept: the name of that says how far it had counted."""


class ConsumeQueues:
    """All plain queues of a store, and the native table they are written through."""

    def __init__(self, files: Files, root: str, file_size: int, pool: MappingPool) -> None:
        assert file_size % QUEUE_UNIT_SIZE == 0, "a file of broken units"
        self.files = files
        self.folder = f"{root}/{FOLDER}"
        self.file_size = file_size
        self.table = QueueTable()
        self._pool = pool
        self.deleted = DeletedTopics(files, root)
        self._by_topic: dict[str, dict[int, ConsumeQueue]] = {}
        self._by_slot: dict[int, ConsumeQueue] = {}
        self._special: list[tuple[bytes, int]] = []
        self.removing: set[str] = set()
        """Topics whose files are being removed on another thread: none is made meanwhile."""
        self.lacking = False
        """Whether `load` found files missing that were there once, or cut short."""

    def __iter__(self) -> Iterator[ConsumeQueue]:
        return iter(self._by_slot.values())

    def __len__(self) -> int:
        return len(self._by_slot)

    def topics(self) -> set[str]:
        """Topics that have a queue."""
        return set(self._by_topic)

    def of_topic(self, topic: str) -> list[ConsumeQueue]:
        """The queues of a topic."""
        return list(self._by_topic.get(topic, {}).values())

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue, if there is one."""
        queues = self._by_topic.get(topic)
        return None if queues is None else queues.get(queue_id)

    def by_slot(self, slot: int) -> ConsumeQueue:
        """The queue of a slot of the table."""
        return self._by_slot[slot]

    def add(self, topic: str, queue_id: int, plain: bool = True) -> ConsumeQueue:
        """A new, empty queue; its files come with its first unit. Not plain: see QueueTable."""
        assert self.find(topic, queue_id) is None, "added twice"
        folder = queue_folder(self.folder, topic, queue_id)
        slot = self.table.add(topic.encode(errors="surrogateescape"), queue_id, plain)
        segments = Segments(self._pool, folder, self.file_size)
        queue = ConsumeQueue(topic, queue_id, slot, segments)
        self._by_topic.setdefault(topic, {})[queue_id] = queue
        self._by_slot[slot] = queue
        self.table.set_progress(slot, 0, self.deleted.end(topic))
        return queue

    def add_special(self, topic: bytes, queue_id: int) -> None:
        """Have the table stop at records of a queue that is not kept here (QueueTable: SPECIAL)."""
        self._special.append((topic, self.table.add(topic, queue_id, False)))

    def load(
        self, is_plain: Callable[[str], bool], min_log_offset: int, durable_end: int
    ) -> list[tuple[ConsumeQueue, list[int]]]:
        """Find all queues on the disk. Returns those with a hole in their row of files, and the
        starts behind the hole. Raises StoreError for a file of another size, unless others have
        the configured one: then it was cut short, and counts as missing. Units of records before
        `durable_end` were durable."""
        self.deleted.load()
        if self.deleted:
            # A process may have been killed while it removed their files.
            names = filter(self.deleted.end, self.files.list_folder(self.folder))
            folders = [topic_folder(self.folder, name) for name in names]
            self.files.sync_all([], [self.folder, *folders])
        broken = []
        known: list[bool] = []

        def is_cut_short(path: str) -> bool:
            if not known:
                known.append(self._has_whole_file())
            if known[0]:
                logger.warning("%s is cut short: rebuilt from the log", path)
                self.lacking = True
            return known[0]

        for topic, queue_id in queue_folders(self.files, self.folder):
            if self.deleted.end(topic) > 0:
                former = queue_folder(self.folder, topic, queue_id)
                self._drop_former(former, self.deleted.end(topic))
            queue = self.add(topic, queue_id, is_plain(topic))
            behind = queue.segments.load(is_cut_short)
            while behind and self._drop_aged(queue, behind[0], min_log_offset, durable_end):
                behind = queue.segments.load(is_cut_short)
            if behind:
                broken.append((queue, behind))
                self.lacking = True
        return broken

    def _has_whole_file(self) -> bool:
        """Whether any file of any queue has the configured size."""
        files = self.files
        return any(
            size == self.file_size and is_file_name(name)
            for topic, queue_id in queue_folders(files, self.folder)
            for name, size in files.list_files(queue_folder(self.folder, topic, queue_id))
        )

    def recover_ends(self, min_log_offset: int) -> None:
        """Find where the units of each queue end and begin, and tell the table."""
        for queue in self:
            self.recover_end(queue)
            self.correct_min(queue, min_log_offset)

    def recover_end(self, queue: ConsumeQueue) -> None:
        """Find the end of a queue whose units have no hole: the last file decides, or if it has
        no unit yet, the one before it."""
        segments = queue.segments
        queue.min_offset = QueueOffset(segments.first // QUEUE_UNIT_SIZE)
        for start in reversed(segments.starts()):
            region, position, log_end = self._end_in(queue, start)
            if position > 0 or start == segments.first:
                self._set_end(queue, start + position, log_end)
                if start != segments.first or region is None:
                    end = min(self.file_size, start + position - segments.first)
                    region = self._look(queue, segments.first, end)
                self._skip_blanks(queue, region)
                return
        self._set_end(queue, segments.first, -1)

    def max_offset(self, queue: ConsumeQueue) -> QueueOffset:
        """Units dispatched: the offset of the next one."""
        if queue.emptied:
            return QueueOffset(queue.segments.first // QUEUE_UNIT_SIZE)
        return QueueOffset(self.table.max_offset(queue.slot))

    def first_units(self) -> int:
        """The queue offsets at which the first files begin, added up."""
        return sum(queue.segments.first for queue in self) // QUEUE_UNIT_SIZE

    def make_room(self, queue: ConsumeQueue, queue_offset: int) -> None:
        """Attach reserved room for unit `queue_offset`, the next one. Raises OSError (disk full).

        A queue's first file that does not begin with its first unit is pre-filled with blanks
        before it, as RocketMQ does after a deletion (store.md 11).
        """
        segments = queue.segments
        queue.is_tidy = False
        if queue.emptied:
            self.reset(queue)
        at = queue_offset * QUEUE_UNIT_SIZE
        start = segments.start_of(at)
        if segments.count == 0:
            self.files.make_folders(segments.folder)
            queue.names_synced = False
            region = segments.create(start, lambda: self._may_close(queue, start)).region
            try:
                self._reserve(queue, start, at - start)
            except OSError:
                self.files.remove(segments.forget_last())
                raise
            if at > start:
                kernel.fill_blank(region, 0, at - start)
            queue.min_offset = QueueOffset(queue_offset)
            self.table.changed()
        elif start == segments.end:
            segments.create(start, lambda: self._may_close(queue, start))
            queue.names_synced = False
        assert segments.holds(at), "room asked for beyond the next unit"
        region = self.region(queue, start)
        limit = self._reserve(queue, start, at - start)
        self.table.attach(queue.slot, region, start // QUEUE_UNIT_SIZE, limit)
        queue.attached = start

    def put(self, queue: ConsumeQueue, log_offset: int, size: int, tags_code: int) -> None:
        """Write the next unit from here, for queues that are not plain. Raises OSError."""
        offset = self.table.max_offset(queue.slot)
        self.make_room(queue, offset)
        start = queue.attached
        region = queue.segments.region(start)
        position = offset * QUEUE_UNIT_SIZE - start
        kernel.put_unit(region, position, log_offset, size, tags_code)
        self.table.set_progress(queue.slot, offset + 1, log_offset + size)

    def fill_blank(self, queue: ConsumeQueue, queue_offset: QueueOffset) -> None:
        """Stand-ins for units that the log no longer has: the count stays. Raises OSError."""
        log_end = self.table.max_log_offset(queue.slot)
        while (offset := self.table.max_offset(queue.slot)) < queue_offset:
            self.make_room(queue, offset)
            start = queue.attached
            stop = min(queue_offset * QUEUE_UNIT_SIZE, self._room_end(queue, start, offset))
            kernel.fill_blank(
                self.region(queue, start), offset * QUEUE_UNIT_SIZE - start, stop - start
            )
            self.table.set_progress(queue.slot, stop // QUEUE_UNIT_SIZE, log_end)

    def units(self, queue: ConsumeQueue, queue_offset: int, count: int) -> list[QueueUnit]:
        """Up to `count` units from `queue_offset` on, as far as there are."""
        found = []
        end = min(queue_offset + count, self.max_offset(queue))
        for offset in range(max(queue_offset, queue.min_offset), end):
            at = offset * QUEUE_UNIT_SIZE
            start = queue.segments.start_of(at)
            region = self.region(queue, start)
            log_offset, size, tags_code = kernel.get_unit(region, at - start)
            found.append(QueueUnit(LogOffset(log_offset), size, tags_code, QueueOffset(offset)))
        return found

    def region(self, queue: ConsumeQueue, start: int) -> Region:
        """The memory of a queue's file."""
        return queue.segments.mapped(start, lambda: self._may_close(queue, start)).region

    def truncating(
        self, queue: ConsumeQueue, log_end: int, left: Unsynced
    ) -> Generator[Work, None, bool]:
        """Cut away units of records at or behind `log_end`; what is cut becomes zeros, which `left`
        has to make durable. Between two steps the queue ends before what is cut. Units may have
        holes behind the durable part, so the walk goes back to the last file whose first unit is
        one to keep. Returns whether anything was cut."""
        segments = queue.segments
        cleared = False
        # The last unit speaks for all: they are in the order of the log.
        # (An empty file must go: the queue may be forgotten, and the file be in the way then.)
        log_reached = self.table.max_log_offset(queue.slot)
        if queue.is_tidy and self.table.max_offset(queue.slot) > 0 and 0 < log_reached <= log_end:
            return False
        queue.is_tidy = False
        before = (segments.end, self.table.max_offset(queue.slot))
        self._detach(queue)
        at = self.end_before(queue, log_end)
        # First, so that no reader looks for units whose file is gone if the disk fails in between.
        self._set_end(queue, at, -1)
        queue.min_offset = QueueOffset(min(queue.min_offset, at // QUEUE_UNIT_SIZE))
        while segments.count:
            start = segments.last
            keep = at - start
            if keep > 0 or start == segments.first > 0:
                mapped = segments.mapped(start)
                if clear_tail(mapped, keep, sync=False):
                    cleared = True
                    left.files.append(mapped.path)
                self._set_end(queue, at, _log_end_before(mapped.region, keep))
                self._skip_blanks(queue, segments.region(segments.first))
                if keep == 0:
                    # The table waits for the offset that the log gives next, see settle.
                    queue.emptied = True
                    self.table.set_progress(queue.slot, 0, self.deleted.end(queue.topic))
                break
            # One after the other: a queue that lost its first file alone would begin behind it.
            yield removal(self.files, segments.forget_last(), segments.folder)
        else:
            # min <= max also for a queue without files (R13): it starts anew at 0.
            self._set_end(queue, 0, -1)
            queue.min_offset = QueueOffset(0)
        was_cut = before != (segments.end, self.table.max_offset(queue.slot))
        return was_cut or cleared

    def touch_tail(self, queue: ConsumeQueue) -> None:
        """Have the next sync write what lies behind the last unit, whatever the system thinks."""
        segments = queue.segments
        if segments.count:
            mapped = segments.mapped(segments.last)
            keep = max(0, self.max_offset(queue) * QUEUE_UNIT_SIZE - segments.last)
            for start, end in mapped.data(keep):
                mapped.touch(start, end)

    def end_before(self, queue: ConsumeQueue, log_end: int) -> int:
        """The byte of the queue at which `truncate` cuts."""
        segments = queue.segments
        for start in reversed(segments.starts()):
            region = self.region(queue, start)
            end, _log_end = kernel.find_end(region, 0, self.file_size)
            keep = kernel.lower_bound(region, 0, end, log_end)
            if keep > 0 or start == segments.first > 0:
                return start + keep
        return 0

    def drop_files_from(self, queue: ConsumeQueue, starts: list[int]) -> None:
        """Remove files behind a hole in the row: their units come again from the log."""
        for start in starts:
            self.files.remove(queue.segments.path(start))
        self.files.sync_folder(queue.segments.folder)

    def continue_at(self, queue: ConsumeQueue, queue_offset: int) -> bool:
        """The log goes on with `queue_offset` for a queue that was cut to nothing: whether its
        first file is the one to go on in. If not the queue begins without files."""
        at = queue_offset * QUEUE_UNIT_SIZE
        if not queue.emptied or at != queue.segments.first:
            self.reset(queue)
            return False
        queue.emptied = False
        self.table.set_progress(queue.slot, queue_offset, self.deleted.end(queue.topic))
        return True

    def settle(self, queue: ConsumeQueue, min_log_offset: int) -> None:
        """All of the log is dispatched: a queue that stayed empty goes on counting, unless all that
        the log has of it is of a former life of its topic."""
        if queue.emptied and self.deleted.end(queue.topic) >= min_log_offset:
            # The log reaches back to its first record, so age took no file: a power cut did.
            self.reset(queue)
        if queue.emptied:
            offset = self.max_offset(queue)
            queue.emptied = False
            self.table.set_progress(queue.slot, offset, self.deleted.end(queue.topic))
        self.table.set_next_offset(queue.slot, self.max_offset(queue))
        if self.max_offset(queue) == 0 and self.deleted.end(queue.topic) > 0:
            self._forget(queue)

    def reset(self, queue: ConsumeQueue) -> None:
        """Remove a queue's files: its units come again from the log. Raises OSError."""
        self._detach(queue)
        segments = queue.segments
        if segments.count:
            while segments.count:
                self.files.remove(segments.forget_last())
            self.files.sync_folder(segments.folder)
        queue.emptied = False
        queue.min_offset = ZERO
        self._set_end(queue, 0, -1)

    def correct_min(self, queue: ConsumeQueue, min_log_offset: int) -> None:
        """Move the min offset past units whose records are gone (RocketMQ: correctMinOffset)."""
        segments = queue.segments
        maximum = self.table.max_offset(queue.slot)
        # Nothing lies before the log's first byte.
        if min_log_offset <= 0 or segments.count == 0 or queue.min_offset >= maximum:
            return
        at = queue.min_offset * QUEUE_UNIT_SIZE
        while at < maximum * QUEUE_UNIT_SIZE:
            start = segments.start_of(at)
            end = min(maximum * QUEUE_UNIT_SIZE - start, self.file_size)
            region = self._look(queue, start, end)
            found = kernel.lower_bound(region, at - start, end, min_log_offset)
            at = start + found
            if found < end:
                break
        queue.min_offset = QueueOffset(at // QUEUE_UNIT_SIZE)
        self.table.changed()

    def delete_expired(self, queue: ConsumeQueue, log_min: int, durable_end: int) -> list[str]:
        """Take files out whose last unit's record is gone, oldest first, but never the last one
        that is durable: the queue would count from 0 again after a power cut. The checkpoint has
        the next unit (its record begins before `durable_end`): see `_drop_aged`.

        Returns their paths for the caller to remove.
        """
        expired = []
        segments = queue.segments
        durable = queue.flushed_offset * QUEUE_UNIT_SIZE
        while segments.count > 1 and segments.first + self.file_size < durable:
            region = self.region(queue, segments.first)
            log_offset, size, _tags = kernel.get_unit(region, self.file_size - QUEUE_UNIT_SIZE)
            if log_offset >= log_min or size == 0:
                break
            region = self.region(queue, segments.first + self.file_size)
            if kernel.get_unit(region, 0)[0] >= durable_end:
                break
            expired.append(segments.forget_first())
            self.table.changed()
        queue.min_offset = QueueOffset(max(queue.min_offset, segments.first // QUEUE_UNIT_SIZE))
        return expired

    def forget_topic(self, topic: str, count: int) -> list[ConsumeQueue]:
        """Forget up to so many queues of a topic that `deleted` has; returns them. The caller
        removes their files."""
        gone = self.of_topic(topic)[:count]
        for queue in gone:
            self._forget(queue)
        raw = topic.encode(errors="surrogateescape")
        for name, slot in [special for special in self._special if special[0] == raw]:
            self.table.remove(slot)
            self._special.remove((name, slot))
        return gone

    def forget_all(self) -> None:
        """Know no queue any more: the caller removes all files."""
        for queue in list(self):
            self._forget(queue)
        for _topic, slot in self._special:
            self.table.remove(slot)
        self._special.clear()

    def _drop_former(self, folder: str, log_end: int) -> None:
        """Remove files of a topic's former life: a power cut takes back removals, each by itself,
        so they may lie among the files of its present one."""
        for name in self.files.list_folder(folder):
            path = f"{folder}/{name}"
            if not is_file_name(name) or self.files.file_size(path) != self.file_size:
                continue
            mapped = self.files.open(path, readonly=True)
            log_offset = _first_log_offset(mapped.region, self.file_size)
            mapped.close()
            if 0 <= log_offset < log_end:
                logger.warning("%s is of a deleted topic: removed", path)
                self.files.remove(path)
        self.files.sync_folder(folder)

    def _drop_aged(self, queue: ConsumeQueue, behind: int, log_min: int, durable_end: int) -> bool:
        """Remove the files before a hole if age had removed them: a power cut takes back removals.
        False if they have a unit whose record is there, or if the file behind the hole does not
        begin with a durable one: then it is that which was lost, not durable yet."""
        segments = queue.segments
        mapped = self.files.open(segments.path(behind), readonly=True)
        log_offset, size, _tags = kernel.get_unit(mapped.region, 0)
        mapped.close()
        if size == 0 or log_offset >= durable_end:
            return False
        region = segments.region(segments.last)
        log_offset, size, _tags = kernel.get_unit(region, self.file_size - QUEUE_UNIT_SIZE)
        if size == 0 or log_offset >= log_min:
            return False
        while segments.count:
            self.files.remove(segments.forget_last())
        return True

    def close(self) -> None:
        """Let go of all mappings: one that the table holds would keep its file's blocks."""
        for queue in self:
            self._detach(queue)
        self.table.set_index(None)

    def dirty_paths(self, queue: ConsumeQueue) -> tuple[list[str], list[str], QueueOffset]:
        """What to sync to make the queue durable: (files, folders, the offset reached then)."""
        maximum = self.max_offset(queue)
        segments = queue.segments
        first = segments.start_of(queue.flushed_offset * QUEUE_UNIT_SIZE)
        last = segments.start_of(max(0, maximum - 1) * QUEUE_UNIT_SIZE)
        paths = []
        if maximum > queue.flushed_offset:
            paths = [
                segments.path(start)
                for start in range(first, last + 1, self.file_size)
                if segments.holds(start)
            ]
        folders = []
        if not queue.names_synced and segments.count:
            root = self.folder.rpartition("/")[0]
            folders = [segments.folder, topic_folder(self.folder, queue.topic), self.folder, root]
        return paths, folders, maximum

    def _forget(self, queue: ConsumeQueue) -> None:
        self._detach(queue)
        while queue.segments.count:
            queue.segments.forget_last()
        self.table.remove(queue.slot)
        del self._by_slot[queue.slot]
        queues = self._by_topic[queue.topic]
        del queues[queue.queue_id]
        if not queues:
            del self._by_topic[queue.topic]

    def _set_end(self, queue: ConsumeQueue, at: int, log_end: int) -> None:
        offset = at // QUEUE_UNIT_SIZE
        former = self.deleted.end(queue.topic)
        self.table.set_progress(queue.slot, offset, max(log_end, former))
        self.table.set_next_offset(queue.slot, offset)
        queue.flushed_offset = QueueOffset(offset)

    def _end_in(self, queue: ConsumeQueue, start: int) -> tuple[Region | None, int, int]:
        """The units of a file, None if only the last of them were looked at; the position behind
        the last one if there is no hole among them, and the end of its record."""
        segments = queue.segments
        at, data = self.files.tail(segments.path(start), LOOK_MAX)
        region, first = Region(data), -at % QUEUE_UNIT_SIZE
        end, _log_end = kernel.find_end(region, first, max(first, len(data)))
        if at == 0:
            queue.is_tidy = segments.count == 1 and region.is_zero(end, len(data) - end)
            return region, end, _log_end_before(region, end)
        if end > first:
            return None, at + end, _log_end_before(region, end)
        region = segments.region(start)
        end, _log_end = kernel.find_end(region, 0, self.file_size)
        return region, end, _log_end_before(region, end)

    def _look(self, queue: ConsumeQueue, start: int, end: int) -> Region:
        """Memory that holds the bytes [0, end) of a file, as they are now."""
        if end <= LOOK_MAX:
            at, data = self.files.tail(queue.segments.path(start), LOOK_MAX)
            if at == 0 and end <= len(data):
                return Region(data)
        return self.region(queue, start)

    def _skip_blanks(self, queue: ConsumeQueue, region: Region) -> None:
        """The pre-filled blanks of a first file are not units: begin behind them."""
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
        position = queue_offset * QUEUE_UNIT_SIZE - start
        room = _reserve_end(position, self.file_size) - position
        return start + position + room // QUEUE_UNIT_SIZE * QUEUE_UNIT_SIZE

    def _reserve(self, queue: ConsumeQueue, start: int, position: int) -> int:
        limit = _reserve_end(position, self.file_size)
        mapped = queue.segments.mapped(start)
        mapped.reserve(0 if position <= RESERVE_MIN else position, limit)
        # The next unit's page alone: the kernel would fill all that is ahead of it with zeros.
        mapped.expect_random()
        return limit

    def _may_close(self, queue: ConsumeQueue, start: int) -> bool:
        """Asked before a mapping closes: the table must not write into it any more."""
        if queue.attached == start:
            self._detach(queue)
        return True

    def _detach(self, queue: ConsumeQueue) -> None:
        if queue.attached >= 0:
            self.table.attach(queue.slot, None, 0, 0)
            queue.attached = -1


def _reserve_end(position: int, file_size: int) -> int:
    """Up to where blocks are reserved when the next unit lies at `position`."""
    wanted = position + max(RESERVE_MIN, min(position, RESERVE_MAX))
    return min(file_size, -(-wanted // RESERVE_MIN) * RESERVE_MIN)


def _first_log_offset(region: Region, file_size: int) -> int:
    """The log offset of the first unit that is none of the blanks; -1 without one."""
    if not region.is_zero(0, file_size):
        for position in range(0, file_size - QUEUE_UNIT_SIZE + 1, QUEUE_UNIT_SIZE):
            log_offset, size, _tags = kernel.get_unit(region, position)
            if size not in (0, BLANK_SIZE):
                return log_offset
    return -1


def _log_end_before(region: Region, position: int) -> int:
    """End of the record of the unit before `position`; -1 if there is none or it is a blank."""
    if position == 0:
        return -1
    log_offset, size, _tags = kernel.get_unit(region, position - QUEUE_UNIT_SIZE)
    return -1 if size == BLANK_SIZE else log_offset + size
