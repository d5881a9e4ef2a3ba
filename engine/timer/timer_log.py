"""The timer log: one unit for each waiting message, in the order of their queue.

Owns the row of files, their fillers and the end of the units. It must never know a unit's message,
nor make a file while it runs: it reports the file it needs.

Units are 52 bytes (csrc/timer.h); none reaches across files. Their log offsets ascend, because they
are added in the order of the timers' queue.

Tests: tests/unit/broker/scheduled/test_timers.py, tests/golden_stores/test_timers.py
"""

from collections.abc import Iterator
from typing import NamedTuple

from turbopump.engine.disk.files import Files, MappedFile
from turbopump.engine.disk.segments import MappingPool, Segments, clear_tail
from turbopump.engine.types import LogOffset
from turbopump.pyx import timer as kernel
from turbopump.pyx.region import Region

_NEEDED = kernel.UNIT_SIZE + kernel.FILLER_SIZE
MIN_FILE_SIZE = _NEEDED
"""Least bytes of a file: a unit and a filler."""
_MAPPED_MAX = 1_024
"""Maximum number of mapped files: 100 GiB of units in files of the usual size."""


class TimerUnit(NamedTuple):
    """A unit of the timer log: a message that waits for its time (csrc/timer.h)."""

    prev_position: int
    """Position of the slot's unit before; -1: none."""
    magic: int
    """Bits: pyx.timer.DEFAULT, ROLL, DELETE."""
    write_ms: int
    """Time at which the unit was written, in epoch ms."""
    delay_ms: int
    """Time from `write_ms` to the slot's time, maybe negative."""
    log_offset: LogOffset
    """Log offset of the message in TIMER_TOPIC."""
    size: int
    """Bytes of its record."""
    topic_hash: int
    """Java's hash of the message's real topic."""


class TimerLog:
    """The timer log of a store: a 52-byte unit for each waiting message, in the order of their
    queue. Positions are bytes of the whole row of files, from the first byte that it ever had. Loop
    thread only."""

    def __init__(self, files: Files, folder: str, file_size: int) -> None:
        self._files = files
        self.segments = Segments(MappingPool(files, _MAPPED_MAX), folder, file_size)
        """The files of the log."""
        self.end = 0
        """Position of the next unit, perhaps in a file that does not exist yet."""
        self._dirty: set[int] = set()

    def load(self, flushed: int) -> list[str]:
        """Find the files, and set `end` to the end of the units; all before position `flushed` was
        durable once. Returns paths of files after a hole, which are not part of the log; the caller
        removes them. Raises StoreError, OSError."""
        lost = self.segments.load()
        starts = self.segments.file_starts()
        self.end = self.segments.end
        # One file back, as RocketMQ does: the broker that wrote the number may have died meanwhile.
        first = self.segments.start_of(flushed) - self.segments.file_size
        for start in starts:
            if start < first and start != self.segments.last_file_start:
                continue
            stop = kernel.find_end(self.segments.file_region(start), 0, start)
            if start == starts[-1] or self._has_room_for_unit(stop):
                self.end = start + stop
                break
        return [self.segments.path(start) for start in lost]

    def _has_room_for_unit(self, position: int) -> bool:
        """Whether a unit, and a filler after it, fit at `position` of a file."""
        return self.segments.file_size - position >= _NEEDED

    @property
    def missing_file_start(self) -> int | None:
        """Position at which the file begins that must be added before the next unit; None if the
        last file has room."""
        segments = self.segments
        if (
            segments.count
            and segments.contains(self.end)
            and self._has_room_for_unit(self._end_in_file())
        ):
            return None
        return segments.end if segments.count else self.end - self.end % segments.file_size

    @property
    def is_nearly_full(self) -> bool:
        """Whether the last file has less than a quarter of its room left, so that the next one
        should be made now."""
        return self.segments.end - self.end < self.segments.file_size // 4

    def _end_in_file(self) -> int:
        """Position of the log's end in its file."""
        return self.end % self.segments.file_size

    def adopt_file(self, mapped: MappedFile, start: int) -> None:
        """Add a new mapped file that starts at position `start`, the value of `missing_file_start`;
        the rest of the last file becomes filler."""
        segments = self.segments
        if segments.count and segments.contains(self.end):
            last = segments.last_file_start
            kernel.put_filler(segments.file_region(last), self.end - last)
            self._dirty.add(last)
        segments.adopt_file(start, mapped)
        self.end = start

    def allocate_unit(self) -> tuple[Region, int, int]:
        """Take the room for a unit: (region, position in it, position in the log at which the
        region begins). The caller must write the unit; `missing_file_start` must be None."""
        start = self.segments.last_file_start
        position = self.end - start
        self.end += kernel.UNIT_SIZE
        self._dirty.add(start)
        return self.segments.file_region(start), position, start

    def room_for_unit(self) -> tuple[Region, int, int, int]:
        """(region, position in it, position in the log at which the region begins, number of units
        with room) for the next units; takes nothing. The caller writes some and calls
        `advance_end`."""
        start = self.segments.last_file_start
        position = self.end - start
        units = (self.segments.file_size - kernel.FILLER_SIZE - position) // kernel.UNIT_SIZE
        return self.segments.file_region(start), position, start, units

    def advance_end(self, count: int) -> None:
        """Count `count` units that the caller wrote at `room_for_unit`: the end of the log moves,
        and the file becomes dirty."""
        if count:
            self.end += count * kernel.UNIT_SIZE
            self._dirty.add(self.segments.last_file_start)

    def read_unit(self, position: int) -> TimerUnit | None:
        """The unit at a position of the log; None outside of the log's files, or if no unit is
        there."""
        if not self.segments.contains(position):
            return None
        start = self.segments.start_of(position)
        if not 0 <= position - start <= self.segments.file_size - kernel.UNIT_SIZE:
            return None
        found = kernel.read_unit(self.segments.file_region(start), position - start, start)
        return None if found is None else TimerUnit(*found)  # type: ignore[arg-type]

    def readable_parts(self, start: int = 0) -> Iterator[tuple[Region, int, int, int]]:
        """(region, position in it of the first unit, position in it after the last unit or filler,
        position in the log at which the region begins) of the units from position `start` on, file
        by file."""
        segments = self.segments
        for base in segments.file_starts():
            stop = min(self.end, base + segments.file_size)
            if stop > max(start, base):
                yield segments.file_region(base), max(start - base, 0), stop - base, base

    def position_before(self, log_offset: LogOffset) -> int:
        """Position of the first unit whose record lies at a log offset or later; `end` without such
        a unit."""
        per_file = (self.segments.file_size - kernel.FILLER_SIZE) // kernel.UNIT_SIZE
        low, high = 0, sum(
            (stop - start) // kernel.UNIT_SIZE if stop < self.segments.file_size else per_file
            for _region, start, stop, _base in self.readable_parts()
        )  # fmt: skip
        count = high
        while low < high:
            middle = (low + high) // 2
            unit = self.read_unit(self._position_of(middle, per_file))
            if unit is not None and unit.log_offset < log_offset:
                low = middle + 1
            else:
                high = middle
        return self.end if low == count else self._position_of(low, per_file)

    def _position_of(self, number: int, per_file: int) -> int:
        """Position in the log of unit `number`, counted from the log's first unit; a file has
        `per_file` units."""
        whole, rest = divmod(number, per_file)
        return self.segments.first + whole * self.segments.file_size + rest * kernel.UNIT_SIZE

    @property
    def last_unit(self) -> TimerUnit | None:
        """The last unit; None if the log is empty."""
        start = self.segments.start_of(self.end)
        if self.end == start or not self.segments.contains(self.end):
            start = self.segments.start_of(max(0, self.end - 1))
            if not self.segments.contains(start):
                return None
            per_file = (self.segments.file_size - kernel.FILLER_SIZE) // kernel.UNIT_SIZE
            return self.read_unit(start + (per_file - 1) * kernel.UNIT_SIZE)
        return self.read_unit(self.end - kernel.UNIT_SIZE)

    def zero_units_from(self, position: int) -> list[str]:
        """Zero the units from `position` on, not yet durably. Returns the paths of files without
        units for the caller to remove; changed files are dirty. Raises OSError."""
        segments, paths = self.segments, []
        while (
            segments.count
            and segments.last_file_start >= position
            and segments.last_file_start > segments.first
        ):
            self._dirty.discard(segments.last_file_start)
            paths.append(segments.forget_last())
        self.end = position
        if segments.count and segments.last_file_start <= position < segments.end:
            clear_tail(
                segments.mapped_file(segments.last_file_start),
                position - segments.last_file_start,
                sync=False,
            )
            self._dirty.add(segments.last_file_start)
        return paths

    def reserve_blocks(self) -> None:
        """Give the last file all its blocks on the disk, so that storing into it cannot fail, and
        mark it dirty; no-op without files. Raises OSError."""
        if self.segments.count:
            mapped = self.segments.mapped_file(self.segments.last_file_start)
            mapped.reserve(0, mapped.size)
            self._dirty.add(self.segments.last_file_start)

    def take_dirty_paths(self) -> list[str]:
        """Paths of the files written since the last call, which the caller must sync."""
        paths = [self.segments.path(start) for start in sorted(self._dirty)]
        self._dirty.clear()
        return paths

    def mark_changed(self, start: int) -> None:
        """Mark the file that begins at position `start` of the log as dirty."""
        self._dirty.add(start)

    def mark_dirty(self, paths: list[str]) -> None:
        """Mark the files of `take_dirty_paths` dirty again, because their sync failed; files that
        left the log are ignored."""
        known = {self.segments.path(start): start for start in self.segments.file_starts()}
        self._dirty.update(known[path] for path in paths if path in known)

    def expire_first_file(self, log_min: LogOffset) -> str | None:
        """Take the first file out of the log if the records of all its units lie before `log_min`;
        returns its path for the caller to remove, or None. The last file stays."""
        segments = self.segments
        if segments.count < 2:
            return None
        following = self.read_unit(segments.first + segments.file_size)
        if following is None or following.log_offset > log_min:
            return None
        self._dirty.discard(segments.first)
        return segments.forget_first()

    def close(self) -> None:
        """Unmap all files of the log, without a sync."""
        self.segments.pool.close()
