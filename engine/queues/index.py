"""Index files: from the hash of a key to the log offsets of records that carry it.

Owns the row of index files, the choice of the current file, and the search over all. It must never
read the commit log.

Tests: tests/unit/engine/queues/test_lookup.py, tests/unit/pyx/test_index.py
"""

import logging
import struct
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from datetime import datetime

from turbopump.engine.config import INDEX_HEADER_SIZE, StoreConfig
from turbopump.engine.disk.disk_steps import Steps, Work, no_work, removal_work
from turbopump.engine.disk.files import Files
from turbopump.engine.disk.segments import MappingPool
from turbopump.engine.types import LogOffset, StoreError
from turbopump.pyx.index import IndexFile
from turbopump.pyx.region import Region

logger = logging.getLogger(__name__)

FOLDER = "index"
"""Name of the index folder in the store's folder."""
# Key hash, log offset, seconds since the file's begin, number of the slot's previous entry.
_ENTRY = struct.Struct(">iqii")
ENTRY_SIZE = _ENTRY.size
"""Bytes of an entry: 20."""
# In the header (hash_index.h).
_END_TIMESTAMP_AT = 8
_END_LOG_OFFSET_AT = 24
_SLOT_COUNT_AT = 32
_COUNT_AT = 36
RESERVE_ENTRIES = (1 << 20) // ENTRY_SIZE
"""Number of entries that get blocks at once: 1 MiB, some seconds of a busy broker."""
ENTRIES_PER_STEP = 2048
"""Number of entries that a cut removes before the loop gets a turn, some 5 ms."""
EXAMINED_MAX = 2048
"""Maximum number of records that a search examines: some milliseconds of the loop's thread."""
ENTRIES_MAX = 8 * EXAMINED_MAX
"""Maximum number of entries of a file that a search reads: a record has several entries."""


@dataclass(slots=True)
class IndexPart:
    """A file of the index and the content of its header. Times are store times in epoch ms. A file
    without entries has times and log offsets of the end of the file before it, or 0."""

    path: str
    begin_timestamp_ms: int
    """Store time of the first record with an entry."""
    end_timestamp_ms: int
    """Store time of the last record with an entry."""
    begin_log_offset: int
    """Log offset of the first record with an entry."""
    end_log_offset: int
    """Log offset of the last record with an entry, where that record begins."""
    count: int
    """Number of the next entry: one more than the number of entries."""

    def may_cover(self, begin_ms: int, end_ms: int) -> bool:
        """Whether the file may have entries with store times in [begin_ms, end_ms], epoch ms
        (IndexFile.isTimeMatched)."""
        return begin_ms <= self.end_timestamp_ms and end_ms >= self.begin_timestamp_ms


class IndexFiles:
    """All index files, oldest first; the last file is the current file, which takes new entries.
    Loop thread only, except the work that steps yield."""

    def __init__(self, files: Files, config: StoreConfig, pool: MappingPool) -> None:
        self.files = files
        self.folder = f"{config.root}/{FOLDER}"
        """Path of the folder of all index files."""
        self.config = config
        self._current: IndexFile | None = None
        self.parts: list[IndexPart] = []
        """The files, oldest first; the last file's numbers are as of the last method that used
        them."""
        self.rolled: list[IndexPart] = []
        """Full files that the store has yet to make durable; the store removes them here."""
        self.bad: list[str] = []
        """Paths of files that `load` found to be no index files, until `remove_bad`."""
        self._pool = pool
        self._reserved_entries = 0

    def load(self) -> None:
        """Read the headers of all files. Empty files, files that were cut short while others have
        the configured size, and files with an invalid header become `bad`. Raises StoreError for
        other files of a wrong size; OSError."""
        for name in self.files.list_folder(self.folder):
            path = f"{self.folder}/{name}"
            if not (name.isascii() and name.isdigit()) or self.files.is_folder(path):
                continue
            size = self.files.file_size(path)
            if size not in (0, self.config.index_file_size) and not (
                size < self.config.index_file_size and self._has_whole_file()
            ):
                raise StoreError(
                    f"{path} has {size} bytes, but the store is configured for index files of "
                    f"{self.config.index_file_size}"
                )
            part = self._read_part(path) if size == self.config.index_file_size else None
            if part is None:
                # The next file may get its name.
                self._pool.close_removed(path)
                self.bad.append(path)
            else:
                self.parts.append(part)
        # A file is begun when the file before it is full: an empty file before the last lost its
        # header.
        empty = [part for part in self.parts[:-1] if part.count <= 1]
        for part in empty:
            self._pool.close_removed(part.path)
            self.bad.append(part.path)
        self.parts = [part for part in self.parts if part not in empty]

    def _has_whole_file(self) -> bool:
        """Whether any file has the configured size: then a shorter file was cut."""
        return any(
            name.isascii() and name.isdigit() and size == self.config.index_file_size
            for name, size in self.files.list_files(self.folder)
        )

    def remove_bad(self) -> None:
        """Remove the `bad` files durably, and empty the list. Raises OSError."""
        for path in self.bad:
            self.files.remove(path)
        if self.bad:
            self.files.sync_folder(self.folder)
        self.bad = []

    def last_indexed(self) -> tuple[LogOffset, int]:
        """(log offset, store time in epoch ms) of the last record that has entries; (-1, 0) for an
        index without entries."""
        self._refresh()
        for part in reversed(self.parts):
            if part.count > 1 or part.end_log_offset > 0:
                return LogOffset(part.end_log_offset), part.end_timestamp_ms
        return LogOffset(-1), 0

    def entry_count(self, files: int | None, log_min: int) -> int:
        """Number of entries in the oldest `files` files, None: in all. Files whose last record lies
        before `log_min` are not counted, because they may be removed at any time."""
        self._refresh()
        counted = [part for part in self.parts[:files] if part.end_log_offset >= log_min]
        return sum(part.count - 1 for part in counted)

    def closed_count(self, log_end: int | None = None) -> int:
        """Number of files that take no more entries: all but the last. With `log_end`: the number
        that there would be after `truncation_steps` with it; changes nothing."""
        self._refresh()
        count = len(self.parts)
        if log_end is not None:
            count = sum(not _begins_after(part, log_end) for part in self.parts)
        return max(0, count - 1)

    def end_of(self, files: int) -> tuple[LogOffset, int]:
        """End of the oldest `files` files: (log offset before which all records have their entries
        in these files, store time of the last of these records in epoch ms); (0, 0) for 0 files."""
        if files == 0:
            return LogOffset(0), 0
        part = self.parts[files - 1]
        return LogOffset(part.end_log_offset + 1), part.end_timestamp_ms

    def has_entries_from(self, log_end: int) -> bool:
        """Whether `truncation_steps` with `log_end` would remove files or entries."""
        self._refresh()
        last = self.parts[-1] if self.parts else None
        return last is not None and (_begins_after(last, log_end) or last.end_log_offset >= log_end)

    def truncation_steps(self, log_end: int, store_timestamp_ms: Callable[[int], int]) -> Steps:
        """Steps that remove the entries of records at `log_end` or later, the newest first, so that
        every slot leads to the entry before; they raise OSError. Files that have only such entries
        are removed durably. The remaining entries of the last file equal the entries of a rebuild,
        but are not synced, so they do not count as durable. `store_timestamp_ms(log_offset)`
        returns the store time of a record in epoch ms: it is called for the last record that
        remains. QueueTable must not have an index file set meanwhile (`set_index(None)`)."""
        self._refresh()
        while self.parts and _begins_after(self.parts[-1], log_end):
            yield removal_work(self.files, self.drop_last(), self.folder)
        self.rolled = [part for part in self.rolled if part in self.parts]
        if not self.parts or self.parts[-1].end_log_offset < log_end:
            return
        self._current = None
        path = self.parts[-1].path
        region = self._map_file(path)
        last = yield from self._cut_entries(region, self.parts[-1].count, log_end)
        region.put_i64(_END_LOG_OFFSET_AT, last)
        region.put_i64(_END_TIMESTAMP_AT, store_timestamp_ms(last))
        part = self._read_part(path)
        assert part is not None, "cut to something else than an index file"
        self.rolled = [rolled for rolled in self.rolled if rolled.path != path]
        self.parts[-1] = part

    def drop_last(self) -> str:
        """Take the current file out of the index, so that the file before it is the last; the
        caller removes the returned path."""
        part = self.parts.pop()
        self._current = None
        self._pool.close_removed(part.path)
        return part.path

    def forget_all(self) -> None:
        """Forget all files, `rolled` and `bad` included; the caller removes them. QueueTable must
        not have an index file set."""
        while self.parts:
            self.drop_last()
        self.rolled, self.bad = [], []

    def current_file(self, now_ms: int) -> IndexFile:
        """The current file, perhaps full. In an index without files the first file is made, named
        after `now_ms` (epoch ms) in local time. Raises OSError."""
        if self._current is None:
            if self.parts:
                self._current = self._open_last()
            else:
                self._create(now_ms)
        assert self._current is not None
        return self._current

    def next_with_room(self, now_ms: int) -> IndexFile:
        """Return the file to continue in when `current_file` has no room: the same file with blocks
        for more entries, or a new file named after `now_ms` (epoch ms); the full file then goes
        into `rolled`. Raises OSError."""
        if self._reserved_entries < self.config.max_index_num:
            self._current = self._open_last()
        else:
            self._refresh()
            full = self.parts[-1]
            self._create(now_ms)
            self.rolled.append(full)
        assert self._current is not None
        return self._current

    def roll_current_file(self) -> None:
        """Add the current file to `rolled`, although it is not full, so that the store makes it
        durable. Writes nothing."""
        self._refresh()
        if self.parts and (not self.rolled or self.rolled[-1] is not self.parts[-1]):
            self.rolled.append(self.parts[-1])

    def search(
        self, key: bytes, max_count: int, begin_ms: int, end_ms: int, wanted: Callable[[int], bool]
    ) -> list[LogOffset]:
        """Log offsets for a key (`topic#key`) with store times in [begin_ms, end_ms] (epoch ms, to
        a second), newest first and each once, at most `max_count`.

        Entries are by hash: other keys may have the same hash, and a record has an entry for each
        of its keys. `wanted` returns whether a record exists and has the key; other records do not
        count. It is called for at most EXAMINED_MAX records.
        """
        found: list[LogOffset] = []
        seen: set[int] = set()
        self._refresh()
        for part in reversed(self.parts):
            if part.may_cover(begin_ms, end_ms):
                index = IndexFile(
                    self._map_file(part.path),
                    self.config.max_hash_slot_num,
                    self.config.max_index_num,
                )
                for hit in _matching_offsets(index, key, max_count, begin_ms, end_ms):
                    if len(found) >= max_count or len(seen) >= EXAMINED_MAX:
                        break
                    if hit not in seen:
                        seen.add(hit)
                        if wanted(hit):
                            found.append(LogOffset(hit))
            if part.begin_timestamp_ms < begin_ms or len(found) >= max_count:
                break
        return found

    def take_expired(self, min_log_offset: int) -> list[str]:
        """Take out files whose records all lie before `min_log_offset`, except the last file.
        Returns their paths, oldest first, for the caller to remove."""
        self._refresh()
        paths = []
        while len(self.parts) > 1 and self.parts[0].end_log_offset < min_log_offset:
            part = self.parts.pop(0)
            self._pool.close_removed(part.path)
            paths.append(part.path)
        return paths

    def _cut_entries(
        self, region: Region, count: int, log_end: int
    ) -> Generator[Work, None, LogOffset]:
        """Remove the entries from `log_end` on from slots and header; returns the log offset of the
        record of the last entry kept. Between two steps slots lead to existing entries."""
        entries_at = INDEX_HEADER_SIZE + 4 * self.config.max_hash_slot_num
        slots = region.get_i32(_SLOT_COUNT_AT)
        while count > 1:
            at = entries_at + (count - 1) * ENTRY_SIZE
            key_hash, log_offset, _seconds, before = _ENTRY.unpack(region.read(at, ENTRY_SIZE))
            if log_offset < log_end:
                break
            count -= 1
            before = before if 0 < before < count else 0
            slot = (key_hash & 0xFFFFFFFF) % self.config.max_hash_slot_num
            region.put_i32(INDEX_HEADER_SIZE + 4 * slot, before)
            slots -= before == 0
            region.zero(at, ENTRY_SIZE)
            if count % ENTRIES_PER_STEP == 0:
                yield no_work
        region.put_i32(_SLOT_COUNT_AT, slots)
        region.put_i32(_COUNT_AT, count)
        return LogOffset(region.get_i64(entries_at + (count - 1) * ENTRY_SIZE + 4))

    def _create(self, now_ms: int) -> None:
        """Make a new index file and make it the current file. Raises OSError."""
        self.files.make_folders(self.folder)
        path = f"{self.folder}/{self._name(now_ms)}"
        mapped = self.files.create(path, self.config.index_file_size)
        self._pool.put(mapped, lambda: self._may_close(path))
        try:
            limit = self._reserve_entries(mapped.region.size, path, 1)
        except OSError:
            self._pool.close_removed(path)
            self.files.remove(path)
            raise
        index = IndexFile(mapped.region, self.config.max_hash_slot_num, limit)
        if self.parts:
            last = self.parts[-1]
            index.start_after(last.end_log_offset, last.end_timestamp_ms)
        self._current = index
        self._reserved_entries = limit
        self.parts.append(IndexPart(path, 0, 0, 0, 0, 1))
        self._refresh()

    def _open_last(self) -> IndexFile:
        """Map the last file with blocks for its slots and its next entries. Raises OSError."""
        part = self.parts[-1]
        region = self._map_file(part.path)
        self._refresh()
        limit = self._reserve_entries(region.size, part.path, part.count)
        self._reserved_entries = limit
        return IndexFile(region, self.config.max_hash_slot_num, limit)

    def _reserve_entries(self, size: int, path: str, count: int) -> int:
        """Reserve blocks for the slots and the next entries; returns the number of entries with
        blocks."""
        entries_at = INDEX_HEADER_SIZE + 4 * self.config.max_hash_slot_num
        limit = min(self.config.max_index_num, count + RESERVE_ENTRIES)
        end = min(size, entries_at + limit * ENTRY_SIZE)
        mapped = self._pool.get(path)
        if count <= 1:
            mapped.reserve(0, end)
        else:
            mapped.reserve(entries_at + (count - 1) * ENTRY_SIZE, end)
        return limit

    def _refresh(self) -> None:
        """Update the numbers of the last file from its header."""
        index = self._current
        if index is not None and self.parts:
            part = self.parts[-1]
            part.begin_timestamp_ms = index.begin_timestamp_ms
            part.end_timestamp_ms = index.end_timestamp_ms
            part.begin_log_offset = index.begin_log_offset
            part.end_log_offset = index.end_log_offset
            part.count = index.count

    def _read_part(self, path: str) -> IndexPart | None:
        """The header of an index file; None if it is invalid."""
        index = IndexFile(
            self._map_file(path), self.config.max_hash_slot_num, self.config.max_index_num
        )
        if not 1 <= index.count <= self.config.max_index_num:
            return None
        return IndexPart(
            path,
            index.begin_timestamp_ms,
            index.end_timestamp_ms,
            index.begin_log_offset,
            index.end_log_offset,
            index.count,
        )

    def _map_file(self, path: str) -> Region:
        """Mapped memory of an index file, with the advice of random access."""
        mapped = self._pool.get(path, lambda: self._may_close(path))
        # With random access, a look-up in a file that is not in memory takes a ninth of the time
        # (bench/advice.py).
        mapped.expect_random()
        return mapped.region

    def _may_close(self, path: str) -> bool:
        """Whether the mapping of an index file may be closed: it is not the current file."""
        return not (self.parts and self.parts[-1].path == path)

    def _name(self, now_ms: int) -> str:
        """A file name: local time as yyyyMMddHHmmssSSS, made greater than the name of the last
        file."""
        last = self.parts[-1].path.rpartition("/")[2] if self.parts else ""
        name = _time_name(now_ms)
        return name if name > last else str(int(last) + 1)


def _matching_offsets(
    index: IndexFile, key: bytes, count: int, begin_ms: int, end_ms: int
) -> Iterator[int]:
    """Log offsets of a file's entries with the hash of a key, newest first. More than `count`
    entries are read only if the caller continues."""
    given, room = 0, max(count, 0)
    while room:
        hits = index.search(key, room, begin_ms, end_ms)
        yield from hits[given:]
        if len(hits) < room or room > ENTRIES_MAX:
            return
        given, room = room, room * 4


def _begins_after(part: IndexPart, log_end: int) -> bool:
    """Whether all records of a file lie at `log_end` or later."""
    first = part.begin_log_offset if part.count > 1 else part.end_log_offset
    return first >= log_end


def _time_name(now_ms: int) -> str:
    """Local time as the number yyyyMMddHHmmssSSS, the name of an index file."""
    moment = datetime.fromtimestamp(now_ms // 1000)
    day = (moment.year * 100 + moment.month) * 100 + moment.day
    time = (moment.hour * 100 + moment.minute) * 100 + moment.second
    return str((day * 1_000_000 + time) * 1000 + now_ms % 1000)
