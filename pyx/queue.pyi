"""Units of consume queues, in the mapped memory of a queue file (csrc/queue_unit.h)."""

from turbopump.pyx.filter import FilterScan
from turbopump.pyx.region import Region

UNIT_SIZE: int
"""Bytes of a queue unit: 20."""

def put_unit(region: Region, position: int, log_offset: int, size: int, tags_code: int) -> None:
    """Write the unit of the record of `size` bytes at `log_offset` at byte `position` of a queue
    file. Raises IndexError outside the region."""

def get_unit(region: Region, position: int) -> tuple[int, int, int]:
    """Return (log offset of the record, its size in bytes, tags code) of the unit at byte
    `position` of a queue file; size 0: not written; size 0x7FFFFFFF: a blank."""

def fill_blank(region: Region, position: int, end: int) -> None:
    """Fill the bytes [position, end) with blank units (0, 0x7FFFFFFF, 0), as RocketMQ does before a
    queue's first offset."""

def find_end(region: Region, position: int, end: int) -> tuple[int, int]:
    """Walk the units of [position, end) up to the first invalid one: (position after the last valid
    unit, log offset of the end of the last record that a unit points to, -1 without such a unit).

    Blank units are valid, and point to no record.
    """

def lower_bound(region: Region, position: int, end: int, log_offset: int) -> int:
    """Return the position of the first unit of [position, end) whose log offset is `log_offset` or
    more, else `end`. The units must be valid and in the order of the log."""

class Selection:
    """Result of `select`."""

    @property
    def units(self) -> list[tuple[int, int]]:
        """(log offset, size in bytes) of the record of each chosen unit, in the order of the
        queue."""

    @property
    def next_position(self) -> int:
        """Position in the region after the last unit examined; a unit that would exceed max_size
        does not count as examined."""

    @property
    def size(self) -> int:
        """Sum in bytes of the sizes of the chosen units' records."""

def select(
    region: Region,
    position: int,
    end: int,
    *,
    codes: frozenset[int] | None,
    max_count: int,
    max_size: int,
    max_units: int,
    scan: FilterScan | None = None,
) -> Selection:
    """Choose at most `max_count` units of [position, end) for a pull, with records of at most
    `max_size` bytes together; the first one may be larger. `codes` match tags codes by the low 32
    bits (None: all). The selection examines at most `max_units` units, passes over blank units, and
    stops at the first unit not written. `scan` then chooses among the units
    whose tags match: it examines the records, and stops the selection after some milliseconds."""
