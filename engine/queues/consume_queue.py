"""Consume queues since the opening of a store: finding their ends, cutting and expiring them.

Owns which units of a queue are valid, cut or removed; queue_files.py owns the files. It must never
read the commit log or decide which units readers may see.

Tests: tests/unit/engine/queues/test_lookup.py, tests/unit/engine/queues/test_many_queues.py
"""

import logging
from collections.abc import Callable, Generator

from turbopump.engine.config import QUEUE_UNIT_SIZE
from turbopump.engine.disk.disk_steps import Unsynced, Work, removal_work
from turbopump.engine.disk.segments import clear_tail, is_file_name
from turbopump.engine.disk.store_paths import queue_folder, queue_folders, topic_folder
from turbopump.engine.queues import queue_files
from turbopump.engine.queues.queue_files import (
    BLANK_SIZE,
    ConsumeQueue,
    ConsumeQueueFiles,
    log_end_before,
)
from turbopump.engine.types import QueueOffset
from turbopump.pyx import queue as kernel
from turbopump.pyx.region import Region

logger = logging.getLogger(__name__)


class ConsumeQueues(ConsumeQueueFiles):
    """All plain queues of a store. Loop thread only, except the work that steps yield."""

    def load(
        self, is_plain: Callable[[str], bool], min_log_offset: int, durable_end: int
    ) -> list[tuple[ConsumeQueue, list[int]]]:
        """Find all queues on the disk and the deleted topics; their ends are found by
        `recover_ends`. The log begins at `min_log_offset`; units of records before `durable_end`
        were durable. Returns (queue, starts of the files after the hole) of each queue with a hole
        in its row of files. Removes files of deleted topics, files that age had removed, and files
        that were cut short while others have the configured size. Raises StoreError for other files
        of a wrong size; OSError."""
        self.deleted_topics.load()
        if self.deleted_topics:
            # A process may have been killed while it removed their files.
            names = filter(self.deleted_topics.former_life_end, self.files.list_folder(self.folder))
            folders = [topic_folder(self.folder, name) for name in names]
            self.files.sync_all([], [self.folder, *folders])
        broken = []
        known: list[bool] = []

        def is_cut_short(path: str) -> bool:
            if not known:
                known.append(self._has_whole_file())
            if known[0]:
                logger.warning("%s is cut short: rebuilt from the log", path)
                self.lacks_files = True
            return known[0]

        for topic, queue_id in queue_folders(self.files, self.folder):
            if self.deleted_topics.former_life_end(topic) > 0:
                former = queue_folder(self.folder, topic, queue_id)
                self._drop_former(former, self.deleted_topics.former_life_end(topic))
            queue = self.add(topic, queue_id, is_plain(topic))
            behind = queue.segments.load(is_cut_short)
            while behind and self._drop_aged(queue, behind[0], min_log_offset, durable_end):
                behind = queue.segments.load(is_cut_short)
            if behind:
                broken.append((queue, behind))
                self.lacks_files = True
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
        """Find where the units of each queue end and begin, and set that in queue and table; the
        log begins at `min_log_offset`. Reads the files."""
        for queue in self:
            self.recover_end(queue)
            self.correct_min(queue, min_log_offset)

    def recover_end(self, queue: ConsumeQueue) -> None:
        """Find the end of a queue whose units have no hole, in the last file or, if that has no
        unit yet, in a file before it. Sets the min offset to the first unit that is not blank, and
        max offset, next offset and flushed offset to the end."""
        segments = queue.segments
        queue.min_offset = QueueOffset(segments.first // QUEUE_UNIT_SIZE)
        for start in reversed(segments.file_starts()):
            region, position, log_end = self._end_in(queue, start)
            if position > 0 or start == segments.first:
                self._set_end(queue, start + position, log_end)
                if start != segments.first or region is None:
                    end = min(self.file_size, start + position - segments.first)
                    region = self._file_memory(queue, segments.first, end)
                self._skip_blanks(queue, region)
                return
        self._set_end(queue, segments.first, -1)

    def truncation_steps(
        self, queue: ConsumeQueue, log_end: int, left: Unsynced
    ) -> Generator[Work, None, bool]:
        """Steps that cut the units of records at log offset `log_end` or later: later files are
        removed, and units in the last file become zeros. The steps add to `left` the files that the
        caller must sync, return whether anything was cut, and raise OSError. Between two steps the
        queue already ends before the cut. Units after the durable part may have holes, so the walk
        goes back to the last file whose first unit stays."""
        segments = queue.segments
        cleared = False
        # The last unit is enough, because units are in the order of the log. (An empty file must be
        # removed: the queue may be forgotten, and the file would be in the way then.)
        log_reached = self.table.max_log_offset(queue.slot)
        if queue.is_tidy and self.table.max_offset(queue.slot) > 0 and 0 < log_reached <= log_end:
            return False
        queue.is_tidy = False
        before = (segments.end, self.table.max_offset(queue.slot))
        self._detach_queue(queue)
        at = self.end_before(queue, log_end)
        # Set first, so that no reader uses units of a removed file if the disk fails in between.
        self._set_end(queue, at, -1)
        queue.min_offset = QueueOffset(min(queue.min_offset, at // QUEUE_UNIT_SIZE))
        while segments.count:
            start = segments.last_file_start
            keep = at - start
            if keep > 0 or start == segments.first > 0:
                mapped = segments.mapped_file(start)
                if clear_tail(mapped, keep, sync=False):
                    cleared = True
                    left.files.append(mapped.path)
                self._set_end(queue, at, log_end_before(mapped.region, keep))
                self._skip_blanks(queue, segments.file_region(segments.first))
                if keep == 0:
                    # The table waits for the offset that the log gives next, see settle.
                    queue.emptied = True
                    self.table.set_progress(
                        queue.slot, 0, self.deleted_topics.former_life_end(queue.topic)
                    )
                break
            # One after the other: a queue that lost only its first file would begin after it.
            yield removal_work(self.files, segments.forget_last(), segments.folder)
        else:
            # min <= max also for a queue without files (R13): it starts again at 0.
            self._set_end(queue, 0, -1)
            queue.min_offset = QueueOffset(0)
        was_cut = before != (segments.end, self.table.max_offset(queue.slot))
        return was_cut or cleared

    def touch_tail(self, queue: ConsumeQueue) -> None:
        """Make the pages after the last unit of the last file dirty without a change, so that the
        next sync writes them even if the system takes them for clean. Raises OSError."""
        segments = queue.segments
        if segments.count:
            mapped = segments.mapped_file(segments.last_file_start)
            keep = max(0, self.max_offset(queue) * QUEUE_UNIT_SIZE - segments.last_file_start)
            for start, end in mapped.data_ranges(keep):
                mapped.mark_dirty(start, end)

    def end_before(self, queue: ConsumeQueue, log_end: int) -> int:
        """The byte of the queue at which `truncation_steps` with `log_end` cuts; changes
        nothing."""
        segments = queue.segments
        for start in reversed(segments.file_starts()):
            region = self.file_region(queue, start)
            end, _log_end = kernel.find_end(region, 0, self.file_size)
            keep = kernel.lower_bound(region, 0, end, log_end)
            if keep > 0 or start == segments.first > 0:
                return start + keep
        return 0

    def drop_files_from(self, queue: ConsumeQueue, starts: list[int]) -> None:
        """Remove the queue's files that begin at the bytes `starts`, after a hole in the row,
        durably; the caller rebuilds their units from the log. Raises OSError."""
        for start in starts:
            self.files.remove(queue.segments.path(start))
        self.files.sync_folder(queue.segments.folder)

    def continue_at(self, queue: ConsumeQueue, queue_offset: int) -> bool:
        """Continue a queue that was cut to nothing (`emptied`) with `queue_offset`, the next offset
        in the log. Returns whether its first file begins with that offset; if not, its files are
        removed (`reset`). Raises OSError."""
        at = queue_offset * QUEUE_UNIT_SIZE
        if not queue.emptied or at != queue.segments.first:
            self.reset_queue(queue)
            return False
        queue.emptied = False
        self.table.set_progress(
            queue.slot, queue_offset, self.deleted_topics.former_life_end(queue.topic)
        )
        return True

    def settle_next_offset(self, queue: ConsumeQueue, min_log_offset: int) -> None:
        """Set a queue's next offset to its max offset after all of the log, which begins at
        `min_log_offset`, was dispatched. A queue that stayed `emptied` continues at the offset of
        its first file, or begins at 0 if the log has all records since its topic's deletion. An
        empty queue of a deleted topic is forgotten. Raises OSError."""
        if queue.emptied and self.deleted_topics.former_life_end(queue.topic) >= min_log_offset:
            # The log still has its first record, so a power cut removed the file, not age.
            self.reset_queue(queue)
        if queue.emptied:
            offset = self.max_offset(queue)
            queue.emptied = False
            self.table.set_progress(
                queue.slot, offset, self.deleted_topics.former_life_end(queue.topic)
            )
        self.table.set_next_offset(queue.slot, self.max_offset(queue))
        if self.max_offset(queue) == 0 and self.deleted_topics.former_life_end(queue.topic) > 0:
            self._forget_queue(queue)

    def correct_min(self, queue: ConsumeQueue, min_log_offset: int) -> None:
        """Move the queue's min offset past units whose records lie before `min_log_offset`, the
        log's beginning; no unit is changed (RocketMQ: correctMinOffset)."""
        segments = queue.segments
        maximum = self.table.max_offset(queue.slot)
        # No bytes lie before the log's first byte.
        if min_log_offset <= 0 or segments.count == 0 or queue.min_offset >= maximum:
            return
        at = queue.min_offset * QUEUE_UNIT_SIZE
        while at < maximum * QUEUE_UNIT_SIZE:
            start = segments.start_of(at)
            end = min(maximum * QUEUE_UNIT_SIZE - start, self.file_size)
            region = self._file_memory(queue, start, end)
            found = kernel.lower_bound(region, at - start, end, min_log_offset)
            at = start + found
            if found < end:
                break
        queue.min_offset = QueueOffset(at // QUEUE_UNIT_SIZE)
        self.table.changed()

    def delete_expired(self, queue: ConsumeQueue, log_min: int, durable_end: int) -> list[str]:
        """Take out files whose last unit's record lies before `log_min`, but never the last durable
        file: the queue would count from 0 again after a power cut. The checkpoint must cover the
        next unit (its record begins before `durable_end`): see `_drop_aged`.

        Returns their paths, oldest first, for the caller to remove.
        """
        expired = []
        segments = queue.segments
        durable = queue.flushed_offset * QUEUE_UNIT_SIZE
        while segments.count > 1 and segments.first + self.file_size < durable:
            region = self.file_region(queue, segments.first)
            log_offset, size, _tags = kernel.get_unit(region, self.file_size - QUEUE_UNIT_SIZE)
            if log_offset >= log_min or size == 0:
                break
            region = self.file_region(queue, segments.first + self.file_size)
            if kernel.get_unit(region, 0)[0] >= durable_end:
                break
            expired.append(segments.forget_first())
            self.table.changed()
        queue.min_offset = QueueOffset(max(queue.min_offset, segments.first // QUEUE_UNIT_SIZE))
        return expired

    def forget_topic(self, topic: str, count: int) -> list[ConsumeQueue]:
        """Forget up to `count` queues of a topic that `deleted` has, and return them; the caller
        repeats this until it returns [], and removes their files."""
        forgotten = self.of_topic(topic)[:count]
        for queue in forgotten:
            self._forget_queue(queue)
        raw = topic.encode(errors="surrogateescape")
        for name, slot in [special for special in self._special if special[0] == raw]:
            self.table.remove(slot)
            self._special.remove((name, slot))
        return forgotten

    def forget_all(self) -> None:
        """Forget all queues at once; the caller removes all files."""
        for queue in list(self):
            self._forget_queue(queue)
        for _topic, slot in self._special:
            self.table.remove(slot)
        self._special.clear()

    def _drop_former(self, folder: str, log_end: int) -> None:
        """Remove files of a topic's earlier life: a power cut may undo any single removal, so they
        may lie among the files of its present life."""
        for name in self.files.list_folder(folder):
            path = f"{folder}/{name}"
            if not is_file_name(name) or self.files.file_size(path) != self.file_size:
                continue
            mapped = self.files.open(path, readonly=True)
            log_offset = _first_log_offset(mapped.region, self.file_size)
            mapped.close()
            if 0 <= log_offset < log_end:
                logger.warning("%s belongs to a deleted topic: removed", path)
                self.files.remove(path)
        self.files.sync_folder(folder)

    def _drop_aged(self, queue: ConsumeQueue, behind: int, log_min: int, durable_end: int) -> bool:
        """Remove the files before a hole if age had removed them, because a power cut may undo
        removals. Returns False if their last unit's record exists, or if the file after the hole
        does not begin with a durable unit: then the missing file was lost before it was durable."""
        segments = queue.segments
        mapped = self.files.open(segments.path(behind), readonly=True)
        log_offset, size, _tags = kernel.get_unit(mapped.region, 0)
        mapped.close()
        if size == 0 or log_offset >= durable_end:
            return False
        region = segments.file_region(segments.last_file_start)
        log_offset, size, _tags = kernel.get_unit(region, self.file_size - QUEUE_UNIT_SIZE)
        if size == 0 or log_offset >= log_min:
            return False
        while segments.count:
            self.files.remove(segments.forget_last())
        return True

    def _end_in(self, queue: ConsumeQueue, start: int) -> tuple[Region | None, int, int]:
        """(memory with the file's units, None if only its tail was read; position after the last
        unit if the units have no hole; end of that unit's record)."""
        segments = queue.segments
        at, data = self.files.read_tail(segments.path(start), queue_files.LOOK_MAX)
        region, first = Region(data), -at % QUEUE_UNIT_SIZE
        end, _log_end = kernel.find_end(region, first, max(first, len(data)))
        if at == 0:
            queue.is_tidy = segments.count == 1 and region.is_zero(end, len(data) - end)
            return region, end, log_end_before(region, end)
        if end > first:
            return None, at + end, log_end_before(region, end)
        region = segments.file_region(start)
        end, _log_end = kernel.find_end(region, 0, self.file_size)
        return region, end, log_end_before(region, end)


def _first_log_offset(region: Region, file_size: int) -> int:
    """Log offset of the first unit that is not blank; -1 without such a unit."""
    if not region.is_zero(0, file_size):
        for position in range(0, file_size - QUEUE_UNIT_SIZE + 1, QUEUE_UNIT_SIZE):
            log_offset, size, _tags = kernel.get_unit(region, position)
            if size not in (0, BLANK_SIZE):
                return log_offset
    return -1
