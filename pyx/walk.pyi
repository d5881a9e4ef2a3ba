from turbopump.pyx.region import Region

DOUBTS: dict[int, str]

# What may be missing of a record: nothing, sectors of a page, or all behind any byte of a sector.
WHOLE: int
SECTORS: int
CUT_BYTES: int

class Walk:
    @property
    def status(self) -> int:
        """record.OK, BLANK_FOUND, BAD_RECORD or SHORT."""

    @property
    def position(self) -> int:
        """Behind the last record taken."""

    @property
    def count(self) -> int:
        """Records taken."""

    @property
    def store_timestamp_ms(self) -> int:
        """Of the last record taken; 0 if there is none."""

    @property
    def reason(self) -> str:
        """For BAD_RECORD, one sentence; else empty."""

def walk(region: Region, position: int, end: int, log_base: int, torn: int = 0) -> Walk:
    """Walk the records of [position, end) without the GIL and without rows.

    A record is taken if its lengths agree, its body fits its CRC, it says that it lies at
    log_base + its position and, with SECTORS, no sector of its topic or properties is zeros, with
    CUT_BYTES none ends in one.
    """

def whole_end(region: Region, position: int, end: int) -> tuple[int, int]:
    """(status, position behind the last record that lies whole in [position, end)).

    By lengths and magics alone, for bytes that are copied as they are. The statuses are `walk`'s:
    SHORT where the range ends inside a record.
    """

def whole_size(pieces: list[memoryview], room: int, file_size: int) -> tuple[int, int]:
    """(status, bytes up to the end of the last whole record) of pieces that follow each other.

    They are to be written where a record begins and `room` bytes of a file of `file_size` are left.
    By lengths and magics alone; a filler is whole at its file's end. The statuses are OK, SHORT
    where the last piece ends inside a record, and BAD_RECORD where none begins.
    """

def part_end(
    region: Region,
    position: int,
    end: int,
    log_base: int,
    topic: bytes,
    queue_id: int,
    first: int,
    stop: int,
) -> int:
    """The queue offset behind the records of [position, end), if they are whole ones of that queue,
    in order, with offsets in [first, stop); else -1."""
