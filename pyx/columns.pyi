"""Records of the log as columns in Apache Arrow's memory layout, without Python per record."""

from collections.abc import Iterable, Sequence

from turbopump.pyx.region import Region

COLUMNS: tuple[str, ...]
"""Every column that can be requested, in the order of the table (all but `store`)."""

KINDS: dict[str, str]
"""Column -> type of its buffers: "int32", "int64", "time" (int64 microseconds since 1970, UTC),
"bool", "text" (UTF-8), "binary", "map" (text to text)."""

NULLABLE: frozenset[str]
"""Columns that may be null: epoch, keys, tags, unique_key."""

# Values of Batch.status.
OK: int
"""Status: the end was reached, or the batch is full."""
BLANK_FOUND: int
"""Status: a filler is at `position`."""
BAD_RECORD: int
"""Status: the bytes at `position` are no valid record."""
SHORT: int
"""Status: the range ends inside the record at `position`."""
NO_ROOM: int
"""Status: the record at `position` is larger than the limit of a batch."""

class Batch:
    """Rows in Arrow's layout. The batch owns the memory, which never changes after `decode`."""

    @property
    def rows(self) -> int:
        """Number of rows: records that passed the filters."""

    @property
    def seen(self) -> int:
        """Number of records examined, including records that a filter left out."""

    @property
    def position(self) -> int:
        """Position of the first byte of the region not consumed: the next decode begins here."""

    @property
    def status(self) -> int:
        """Reason why the decode ended; the batch has the rows before `position` in any case.

        OK: the end was reached, or the batch is full: see `position`. BLANK_FOUND: a filler is at
        `position`. SHORT: the range ends inside the record at `position`. BAD_RECORD: the bytes at
        `position` are no record, see `reason`. NO_ROOM: the record at `position` is larger than
        the limit of a batch; decode again with `room_wanted`.
        """

    @property
    def reason(self) -> str:
        """Sentence that describes the damage for BAD_RECORD; else empty."""

    @property
    def skip(self) -> int:
        """Size of the record where only its body is wrong (BAD_RECORD): the next record begins
        after it; else 0."""

    @property
    def nbytes(self) -> int:
        """Number of bytes in all buffers of the batch."""

    def column(self, name: str) -> tuple[memoryview | None, ...]:
        """Return the buffers of a column, in the order of pyarrow.Array.from_buffers; a validity of
        None means that no value is null.

        int32, int64, time:  (validity, values)
        bool:                (validity, bits)
        text, binary:        (validity, int32 offsets, bytes)
        map:                 (validity, int32 offsets, int32 key offsets, keys, int32 value offsets,
                             values); `entries` is the number of entries
        Raises KeyError for a column that was not requested.
        """

    def null_count(self, name: str) -> int:
        """Return the number of nulls in a column. Raises KeyError for a column that was not
        requested."""

    @property
    def entries(self) -> int:
        """Number of entries of all maps together."""

class Decoder:
    """Decodes ranges of a log into batches, with the columns requested of each record.

    Filters are applied before a record is copied: `topics` as stored bytes, `queue_ids`, times of
    storage [min_store_ms, max_store_ms], log offsets of the records' first bytes [min_log_offset,
    end_log_offset) (decoding stops there). None and the defaults: no filter. `epochs` are
    (epoch, start) pairs in ascending order, for the column epoch; `confirmed_end` is for the column
    confirmed. `check_body`: a record whose body fails its CRC is BAD_RECORD; the bodies of records
    that a filter left out are not read. Only one thread may use a decoder at a time.
    """

    def __init__(
        self,
        columns: Sequence[str],
        *,
        topics: Iterable[bytes] | None = None,
        queue_ids: Iterable[int] | None = None,
        min_store_ms: int = ...,
        max_store_ms: int = ...,
        min_log_offset: int = 0,
        end_log_offset: int = ...,
        epochs: Sequence[tuple[int, int]] = (),
        confirmed_end: int = ...,
        check_body: bool = False,
        batch_rows: int = 65536,
        batch_bytes: int = ...,
    ) -> None:
        """Raises ValueError for an unknown column or limits below 1."""

    def decode(
        self, region: Region, position: int, end: int, log_base: int, room_wanted: int = 0
    ) -> Batch:
        """Decode the next rows of [position, end), without the GIL. A record begins at `position`.

        `log_base` is the log offset of the region's first byte. A batch has at most batch_rows
        rows, batch_bytes bytes of bodies and a quarter of batch_bytes in each text column. If
        room_wanted is larger than batch_bytes, one record may have that many bytes.
        """
