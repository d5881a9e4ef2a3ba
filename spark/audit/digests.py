"""Compares replicas as bytes: digests of blocks, and the first byte at which two differ.

Owns the blocks and how a difference is narrowed down. It must never judge which bytes may differ.

A block begins at a multiple of BLOCK_BYTES of the log, so all stores have the same blocks wherever
they begin. Blocks are divided where a log begins, ends, has its confirmed end or diverges from
another log, so that each piece is compared as a whole or not at all.
"""

import hashlib
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from turbopump.pyx import record as kernel
from turbopump.pyx.region import Region
from turbopump.spark.audit.replicas import AuditedReplica, LogFile, map_file
from turbopump.spark.audit.scan import RecordWalk, topic_of

BLOCK_BYTES = 4 << 20
"""Bytes of log under one digest: 16 bytes each, 40 MB for 10 TB; narrowing down reads 4 MiB."""
DIGEST_BYTES = 16
"""Bytes of a digest (BLAKE2b)."""
COMPARE_BYTES = 4096
"""Bytes compared at once when a difference is narrowed down."""


@dataclass(slots=True, frozen=True)
class DigestTask:
    """Pieces of a file to digest."""

    store: str
    """Name of the store."""
    file: LogFile
    bounds: tuple[int, ...]
    """Log offsets of the pieces' starts, ascending, and of the last piece's end."""


@dataclass(slots=True, frozen=True)
class DigestReport:
    """Digests of the task's pieces, in order."""

    task: DigestTask
    digests: tuple[bytes, ...]


def tasks_of(
    replicas: Sequence[AuditedReplica], cuts: Sequence[int], block: int
) -> list[DigestTask]:
    """Make one task for each file of each store that has records.

    Its pieces end at multiples of `block`, and at the log offsets `cuts` and the starts of all
    stores' files.
    """
    inner = sorted({*cuts, *(file.base for one in replicas for file in one.files)})
    tasks = []
    for replica in replicas:
        for file in replica.files:
            start, end = max(file.base, replica.min), min(file.end, replica.end)
            if start < end:
                blocks = range(start - start % block + block, end, block)
                between = inner[bisect_right(inner, start) : bisect_left(inner, end)]
                bounds = tuple(sorted({start, end, *blocks, *between}))
                tasks.append(DigestTask(replica.name, file, bounds))
    return tasks


def digest_file(task: DigestTask) -> DigestReport:
    """Read the pieces of the task's file and return their digests. Raises OSError."""
    digests = []
    base = task.file.base
    with map_file(task.file.path) as opened:
        for start, end in zip(task.bounds, task.bounds[1:], strict=False):
            view = opened.region.view(start - base, end - start)
            digests.append(hashlib.blake2b(view, digest_size=DIGEST_BYTES).digest())
    return DigestReport(task, tuple(digests))


def first_difference(one: LogFile, other: LogFile, start: int, end: int) -> int | None:
    """Return the first log offset in [start, end) at which two files differ; None if they do
    not. Raises OSError."""
    with map_file(one.path) as left, map_file(other.path) as right:
        for at in range(start, end, COMPARE_BYTES):
            size = min(COMPARE_BYTES, end - at)
            mine = left.region.read(at - one.base, size)
            theirs = right.region.read(at - other.base, size)
            if mine != theirs:
                pairs = zip(mine, theirs, strict=True)
                return at + next(n for n, (a, b) in enumerate(pairs) if a != b)
    return None


@dataclass(slots=True, frozen=True)
class RecordPlace:
    """Place of a record: its first byte in the log, and its place in its queue."""

    log_offset: int
    topic: str
    queue_id: int
    queue_offset: int


def record_at(file: LogFile, log_offset: int) -> RecordPlace | None:
    """Return the place of the record that contains the byte at `log_offset`, by a walk from the
    file's beginning.

    None in a filler, in damage or after the end. Raises OSError.
    """
    with map_file(file.path) as opened:
        for row in RecordWalk(opened.region, file, None):
            at = file.base + row[kernel.POSITION]
            if at > log_offset:
                return None
            if log_offset < at + row[kernel.SIZE]:
                return _place_of(row, opened.region, at)
    return None


def _place_of(row: list[int], region: Region, at: int) -> RecordPlace:
    """Return the place of the record in `row`, whose first byte has the log offset `at`."""
    return RecordPlace(at, topic_of(row, region), row[kernel.QUEUE_ID], row[kernel.QUEUE_OFFSET])
