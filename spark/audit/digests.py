"""Replicas compared as bytes: digests of blocks, and the first byte where two differ.

Owns the blocks and how a difference is narrowed down. It must never judge what may differ. Called
by the job's tasks and by `compare`.

A block begins at a multiple of BLOCK_BYTES of the log, so that it is the same one wherever a store
begins. Blocks are divided where some log begins, ends, is confirmed to or parts from another: each
piece is then compared as a whole or not at all.
"""

import hashlib
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from turbopump.pyx import record as kernel
from turbopump.pyx.region import Region
from turbopump.spark.audit.replicas import AuditedReplica, LogFile, mapped
from turbopump.spark.audit.scan import RecordWalk, topic_of

BLOCK_BYTES = 4 << 20
"""A digest of 16 bytes for each: 40 MB for 10 TB, and a difference is found by reading 4 MiB."""
DIGEST_BYTES = 16
COMPARE_BYTES = 4096


@dataclass(slots=True, frozen=True)
class DigestTask:
    """Pieces of one file: the log offsets where they begin, and where the last one ends."""

    store: str
    file: LogFile
    bounds: tuple[int, ...]


@dataclass(slots=True, frozen=True)
class DigestReport:
    """The digests, in the order of the pieces."""

    task: DigestTask
    digests: tuple[bytes, ...]


def tasks_of(
    replicas: Sequence[AuditedReplica], cuts: Sequence[int], block: int
) -> list[DigestTask]:
    """One for each file of each store."""
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
    """Raises OSError."""
    digests = []
    base = task.file.base
    with mapped(task.file.path) as opened:
        for start, end in zip(task.bounds, task.bounds[1:], strict=False):
            view = opened.region.view(start - base, end - start)
            digests.append(hashlib.blake2b(view, digest_size=DIGEST_BYTES).digest())
    return DigestReport(task, tuple(digests))


def first_difference(one: LogFile, other: LogFile, start: int, end: int) -> int | None:
    """The first log offset in [start, end) at which two files differ. Raises OSError."""
    with mapped(one.path) as left, mapped(other.path) as right:
        for at in range(start, end, COMPARE_BYTES):
            size = min(COMPARE_BYTES, end - at)
            mine = left.region.read(at - one.base, size)
            theirs = right.region.read(at - other.base, size)
            if mine != theirs:
                pairs = zip(mine, theirs, strict=True)
                return at + next(n for n, (a, b) in enumerate(pairs) if a != b)
    return None


@dataclass(slots=True, frozen=True)
class Lies:
    """The record that a byte lies in."""

    log_offset: int
    topic: str
    queue_id: int
    queue_offset: int


def record_at(file: LogFile, log_offset: int) -> Lies | None:
    """The record a byte lies in, found from the file's beginning on; None in a filler, in damage or
    behind the end. Raises OSError."""
    with mapped(file.path) as opened:
        for row in RecordWalk(opened.region, file, None):
            at = file.base + row[kernel.POSITION]
            if at > log_offset:
                return None
            if log_offset < at + row[kernel.SIZE]:
                return _lies(row, opened.region, at)
    return None


def _lies(row: list[int], region: Region, at: int) -> Lies:
    return Lies(at, topic_of(row, region), row[kernel.QUEUE_ID], row[kernel.QUEUE_OFFSET])
