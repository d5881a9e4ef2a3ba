from turbopump.pyx.filter import FilterScan
from turbopump.pyx.region import Region

UNIT_SIZE: int  # 20

def put_unit(region: Region, position: int, log_offset: int, size: int, tags_code: int) -> None: ...
def get_unit(region: Region, position: int) -> tuple[int, int, int]:
    """Return (log_offset, size, tags_code) of a unit; size 0 means not written."""

def fill_blank(region: Region, position: int, end: int) -> None:
    """Pre-fill units (0, 0x7FFFFFFF, 0), as RocketMQ does before a queue's first offset."""

def find_end(region: Region, position: int, end: int) -> tuple[int, int]:
    """Find the end of the units: (position after the last valid unit, end (log offset + size) of
    that unit's record or -1).

    Blank units are passed over, and have no end.
    """

def lower_bound(region: Region, position: int, end: int, log_offset: int) -> int:
    """Return the position of the first unit whose log offset is >= log_offset, else `end`."""

class Selection:
    @property
    def units(self) -> list[tuple[int, int]]:
        """(log_offset, size) of the chosen units."""

    @property
    def next_position(self) -> int:
        """Position after the last unit passed; a unit that would exceed max_size is not passed."""

    @property
    def size(self) -> int:
        """Sum of the chosen sizes."""

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
    """Choose units for a pull: tag codes match by the low 32 bits (None: all); at least one unit
    is chosen even if larger than max_size; the selection stops at the first unit not written. It
    examines at most max_units, and passes over blank units. `scan` then chooses among the units
    whose tags match: it examines the records, and stops the selection after some milliseconds."""
