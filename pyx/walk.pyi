"""Walks over records that decide which of them to trust or to serve (csrc/walk.h)."""

from turbopump.pyx.region import Region

DOUBTS: dict[int, str]
"""Text of Walk.reason for each doubt about a well-formed record, by the kernel's number."""

WHOLE: int
"""Damage that `walk` expects: none, records were written whole."""
SECTORS: int
"""Damage that `walk` expects: sectors (512 bytes) of a page may be missing after a power cut."""
CUT_BYTES: int
"""Damage that `walk` expects: also the rest of a sector may be missing, because bytes were copied
in pieces that end anywhere."""

class Walk:
    """Result of `walk`: the end of the records to trust, and why they end there."""

    @property
    def status(self) -> int:
        """Reason for the end: record.OK (end of the range), BLANK_FOUND, BAD_RECORD or SHORT."""

    @property
    def position(self) -> int:
        """Position in the region after the last record taken."""

    @property
    def count(self) -> int:
        """Number of records taken."""

    @property
    def store_timestamp_ms(self) -> int:
        """Store time of the last record taken, in epoch ms; 0 if no record was taken."""

    @property
    def reason(self) -> str:
        """Sentence that describes the damage for BAD_RECORD; else empty."""

def walk(region: Region, position: int, end: int, log_base: int, torn: int = 0) -> Walk:
    """Walk the records of the positions [position, end) without the GIL and without rows.
    `log_base` is the log offset of the region's first byte; `torn` is WHOLE, SECTORS or CUT_BYTES.

    A record is taken if its lengths agree, its body fits its CRC and its stored log offset is
    log_base + its position. In addition, with SECTORS no sector of its topic or properties may be
    zeros, and with CUT_BYTES no sector may end in a zero.
    """

def whole_end(region: Region, position: int, end: int) -> tuple[int, int]:
    """Find the end of the last record that lies whole in [position, end): (status, position in the
    region after it). A record or filler begins at `position`.

    Only lengths and magics are checked, because the bytes are copied unchanged. The statuses equal
    `walk`'s: BLANK_FOUND stops before a filler, SHORT if the range ends inside a record.
    """

def whole_size(pieces: list[memoryview], room: int, file_size: int) -> tuple[int, int]:
    """Measure the whole records in consecutive pieces: (status, bytes up to the end of the last
    whole record).

    The first piece begins with a record, and its file of `file_size` bytes has `room` bytes left.
    Only lengths and magics are checked; a filler is whole at its file's end. The statuses are OK,
    SHORT if the last piece ends inside a record, and BAD_RECORD for bytes that begin no record.
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
    """Return the queue offset after the last record of [position, end), if the range has only whole
    records of that queue, in order, with queue offsets in [first, stop); else -1."""
