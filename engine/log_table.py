"""A store as a table: which records it has, and ranges of them that can be decoded apart.

Owns where a log begins and ends for an analyst, what of it is confirmed, who wrote what, and where
it may be split. It must never write, lock or repair anything, nor need a store that recovery
accepts: live, stopped, killed and RocketMQ's own stores are all just files. Called by spark.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from turbopump.engine.epochs import Epochs
from turbopump.engine.inspect import Damage
from turbopump.engine.types import LogOffset, StoreError
from turbopump.pyx.columns import COLUMNS, Batch
from turbopump.pyx.region import Region

INT64_MAX = (1 << 63) - 1
RANGE_BYTES = 128 << 20  # of a range: seconds of work for a worker, and few enough to plan
BATCH_ROWS = 65_536
BATCH_BYTES = 32 << 20  # of texts and bodies in a batch


class DamagedLog(StoreError):
    """Bytes of the log are no records; `damage` says which file, where and why."""

    def __init__(self, damage: Damage) -> None:
        super().__init__(f"{damage.file} is damaged at byte {damage.position}: {damage.reason}")
        self.damage = damage


class SegmentGone(StoreError):
    """A file of the log was removed (by retention) since the table was opened."""


class LogBytes(Protocol):
    """One open file of a log."""

    size: int
    step: int
    """Bytes to ask for at once; a mapped file gives all it has for the price of one byte."""

    def region(self, start: int, end: int) -> Region:
        """The bytes [start, end) of the file; position 0 of the region is `start`."""

    def close(self) -> None: ...


class LogOpener(Protocol):
    """Where the files of a store are: a disk, an object store."""

    def list_files(self, folder: str) -> list[tuple[str, int]]:
        """Names and sizes of the files in a folder, sorted; empty if there is none."""

    def read(self, path: str) -> bytes:
        """A small file, whole. Raises FileNotFoundError."""

    def open(self, path: str) -> LogBytes:
        """Raises FileNotFoundError."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A file of the log that has records. Times are of its first and (at most) its last record."""

    path: str
    base: LogOffset
    size: int
    first_store_ms: int
    last_store_ms: int


@dataclass(frozen=True, slots=True)
class LogRange:
    """Records [start, end) of a file, to be decoded anywhere: a plain value, it can be pickled."""

    path: str
    base: LogOffset
    """Log offset of the file's first byte."""
    start: int
    """Position of the first record in the file."""
    end: int
    closed: bool
    """Whether a record ends at `end`; if not, one that reaches beyond is left out."""
    file_size: int
    first_store_ms: int
    last_store_ms: int
    confirmed_end: LogOffset
    epochs: tuple[tuple[int, int], ...] = ()
    """(epoch, start) of the epochs its bytes belong to."""

    @property
    def log_offset(self) -> LogOffset:
        """Of the first record."""
        return LogOffset(self.base + self.start)


@dataclass(frozen=True, slots=True)
class Wish:
    """What is wanted of the records; a plain value. Store times are inclusive at both ends."""

    columns: tuple[str, ...] = COLUMNS
    topics: frozenset[bytes] | None = None
    queue_ids: frozenset[int] | None = None
    min_store_ms: int = -INT64_MAX - 1
    max_store_ms: int = INT64_MAX
    min_log_offset: int = 0
    end_log_offset: int = INT64_MAX
    check_body: bool = False
    batch_rows: int = BATCH_ROWS
    batch_bytes: int = BATCH_BYTES


class LogTable:
    """What a store had when it was opened. Records appended since are not part of it."""

    path: str
    segments: tuple[Segment, ...]
    epochs: Epochs
    """Empty without an epoch file."""
    is_replicated: bool
    """Whether the store is (or was) one of several copies: then readers stop at `confirmed_end`."""
    min: LogOffset
    end: LogOffset
    """Behind the last whole record."""
    confirmed_end: LogOffset
    """`end` of a store that is no copy of another; else what its checkpoint says is confirmed,
    which may lie inside a record (RocketMQ's) and, of a live broker, a second behind."""

    @classmethod
    def open(cls, path: str, opener: LogOpener | None = None) -> "LogTable":
        """Look at a store, a commitlog folder or a single log file. Raises StoreError, OSError."""
        raise NotImplementedError

    def epoch_at(self, log_offset: int) -> int | None:
        """The epoch that the byte was written in; None if nothing says."""
        raise NotImplementedError

    def boundary(self, log_offset: int) -> LogOffset:
        """The first record at or behind a log offset, `end` if there is none."""
        raise NotImplementedError

    def split(
        self,
        range_bytes: int = RANGE_BYTES,
        wish: Wish | None = None,
        *,
        confirmed: bool = True,
        start: int | None = None,
        end: int | None = None,
    ) -> list[LogRange]:
        """Ranges of about that size, in order, that together hold every record of the table that
        the wish does not rule out by its time or log offset.

        `start` and `end` are log offsets where a record begins (a stream's own positions, or what
        `boundary` said): only what lies between them. Raises SegmentGone if the log no longer has
        `start`.
        """
        raise NotImplementedError


def decode(
    part: LogRange,
    wish: Wish,
    opener: LogOpener | None = None,
    *,
    damaged: Callable[[Damage], None] | None = None,
) -> Iterator[Batch]:
    """The records of a range that are wanted, batch by batch (none without rows).

    Raises DamagedLog behind the rows before it, unless `damaged` takes it: then it goes on with the
    next record that says that it lies where it lies. Raises SegmentGone if the file is gone.
    """
    raise NotImplementedError
