from collections.abc import Iterable, Sequence

from turbopump.pyx.region import Region

COLUMNS: tuple[str, ...]
"""Every column that can be requested, in the order of the table (all but `store`)."""

KINDS: dict[str, str]
"""Column -> how its buffers lie: "int32", "int64", "time" (int64 microseconds since 1970, UTC),
"bool", "text" (UTF-8), "binary", "map" (text to text)."""

NULLABLE: frozenset[str]
"""Columns whose validity may say null: epoch, keys, tags, unique_key."""

# Why a decode stopped, see Batch.status.
OK: int
BLANK_FOUND: int
BAD_RECORD: int
SHORT: int
NO_ROOM: int

class Batch:
    """Rows as Arrow wants them. The memory is the batch's own and never changes any more."""

    @property
    def rows(self) -> int: ...
    @property
    def seen(self) -> int:
        """Records that were looked at, those that a filter left out included."""

    @property
    def position(self) -> int:
        """The first byte of the region that was not consumed: here the next decode goes on."""

    @property
    def status(self) -> int:
        """OK: the end was reached, or the batch is full: see `position`. BLANK_FOUND: a
        filler is at `position`. SHORT: the range ends inside the record at `position`. BAD_RECORD:
        there is none, see `reason`. NO_ROOM: the record at `position` is larger than any batch was
        allowed to be; decode again with `room_wanted`. Rows before it are in the batch in any case.
        """

    @property
    def reason(self) -> str:
        """For BAD_RECORD, one sentence; else empty."""

    @property
    def skip(self) -> int:
        """For BAD_RECORD where only the body is wrong: the record's size, behind which records go
        on; else 0."""

    @property
    def nbytes(self) -> int:
        """Bytes of all its buffers."""

    def column(self, name: str) -> tuple[memoryview | None, ...]:
        """The buffers of a column, in the order of pyarrow.Array.from_buffers; None: no nulls.

        int32, int64, time:  (validity, values)
        bool:                (validity, bits)
        text, binary:        (validity, int32 offsets, bytes)
        map:                 (validity, int32 offsets, int32 key offsets, keys, int32 value offsets,
                             values): the entries count is `entries`
        Raises KeyError for a column that was not requested.
        """

    def null_count(self, name: str) -> int: ...
    @property
    def entries(self) -> int:
        """Entries of all maps together."""

class Decoder:
    """What is wanted of each record; decodes ranges of a log into batches, one after the other.

    Filters are applied before anything is copied: `topics` as stored bytes, `queue_ids`, times of
    storage [min_store_ms, max_store_ms], log offsets of the records' first bytes [min_log_offset,
    end_log_offset) (decoding stops there). None and the widest limits: no filter. `epochs` are
    (epoch, start) pairs in ascending order, for the column epoch; `confirmed_end` is for the column
    confirmed. `check_body`: a record whose body fails its CRC is BAD_RECORD (only of those that the
    filters let pass; other bodies are not read). Not for two threads at once.
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
        """The next rows of [position, end), without the GIL. A record begins at `position`.

        `log_base` is the log offset of the region's first byte. A batch has at most batch_rows
        rows, batch_bytes bytes of bodies (room_wanted if that is more: of one record) and in each
        text column a quarter of them.
        """
