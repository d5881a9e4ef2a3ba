"""A store as a table: its records, and ranges of them that can be decoded separately.

Owns a log's beginning and end for an analyst, its confirmed end, the epochs of its bytes, and the
places where it may be split. It must never write, lock or repair anything, nor need a store that
recovery accepts: live, stopped, killed and RocketMQ's own stores are all read as files.

The end. A log ends after the last whole record: its lengths agree, its body has its CRC, and its
stored log offset is its place. In our own stores the walk begins at the checkpoint's mark, a record
boundary at most some seconds old; in RocketMQ's stores at the start of the last file with records,
and there only the last TAIL_BYTES are checked for more than lengths. The last record of a live
store may be half written: a last record whose texts end in zeros is excluded. If records follow
shortly after the end, it is not the end but damage.

The confirmed end. A store that is a copy in a group (it has an epoch file, its second copy or our
mark: `boundary.was_replicated`) is read up to the confirmPhyOffset of its checkpoint. The broker
writes that offset once a second and at a stop (RocketMQ: with each flush of the checkpoint), so in
a live store it is about a second old. Ours is always a record boundary; RocketMQ's may lie inside a
record, and then the record's start counts. Any other store is confirmed up to its end: with a
single copy, or default HA, no further confirmation will come.

Splits. Every file begins with a record. Inside a file, a record is searched from a position on:
magic, lengths that agree, the body's CRC, its own log offset (64 bits that only a record at this
very place has), and records that follow it up to the end of the bytes read. Bytes of a body can
look like that only if a sender put them there on purpose and guessed the log offset; then the
record before reaches beyond its range, and `ranges.decode` reports it.

Times. A log does not prove that store times ascend: a clock may have been set back, and after a
failover another machine's clock counts. So limits by time exclude no file and no range, unless the
query has `prune_by_time`: then those whose first and last record are more than PRUNE_SLACK_MS away.
"""

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from turbopump.engine.log.epochs import Epochs
from turbopump.engine.snapshot.inspect import Deviation, next_record
from turbopump.engine.snapshot.opening import (
    UNKNOWN_MS,
    Glance,
    Segment,
    examine_store,
    first_ms_of,
    store_ms,
)
from turbopump.engine.snapshot.ranges import (
    BATCH_BYTES,
    BATCH_ROWS,
    INT64_MAX,
    DamagedLog,
    DiskOpener,
    LogBytes,
    LogOpener,
    LogRange,
    MappedLog,
    ScanQuery,
    SegmentGone,
    decode,
    open_log,
)
from turbopump.engine.types import LogOffset, StoreError
from turbopump.pyx import record as kernel
from turbopump.pyx.walk import walk

__all__ = [
    "BATCH_BYTES",
    "BATCH_ROWS",
    "DamagedLog",
    "DiskOpener",
    "LogBytes",
    "LogOpener",
    "LogRange",
    "LogTable",
    "MappedLog",
    "SegmentGone",
    "Segment",
    "ScanQuery",
    "decode",
]

RANGE_BYTES = 128 << 20
"""Default bytes of a range: a second of work, and few enough ranges to plan."""
PRUNE_SLACK_MS = 600_000
"""Ten minutes, more than clocks of a group may differ: distance of a file's or range's times from a
query's limits beyond which `prune_by_time` excludes it."""
SEARCH_BYTES = 1 << 20
"""Bytes of the first search for a record; each further search has twice as many."""
_ANY_TIME = (-INT64_MAX, INT64_MAX)
LISTINGS_MAX = 100
"""Maximum number of examinations by `open`: a live store removes files one by one
(deleteFileBatchMax: 10 by default), and each removal may fall into an examination."""


@dataclass(frozen=True, slots=True)
class LogTable:
    """The content of a store when it was opened. Records appended since are not part of it."""

    path: str
    """The path that was opened, without a slash at its end."""
    segments: tuple[Segment, ...]
    """Files with records, by log offset."""
    epochs: Epochs
    """The epoch list; empty without a readable epoch file."""
    is_replicated: bool
    """Whether the store is (or was) a copy in a group: then readers stop at `confirmed_end`."""
    end: LogOffset
    """Log offset after the last whole record."""
    confirmed_end: LogOffset
    """A record boundary: the confirmed end in the checkpoint of a replicated store, else `end`."""
    opener: LogOpener
    """Access to the files for `find_boundary` and `split_ranges`."""
    glance: Glance
    """Digest by which readers on other machines notice a change: see `Glance.is_current`."""
    last_store_ms: int
    """Store time of the last record in epoch ms; UNKNOWN_MS if the log is empty."""

    @classmethod
    def open(
        cls,
        path: str,
        opener: LogOpener | None = None,
        *,
        damaged: Callable[[Deviation], None] | None = None,
        check_body: bool = False,
    ) -> "LogTable":
        """Read a store, a commitlog folder or a single log file, as it is now; nothing is locked or
        written. `opener` None: a DiskOpener.

        `damaged` receives each deviation; with None the first one raises DamagedLog: a file that is
        missing between others, an unreadable epoch list, and records of the last file that end
        early (`decode` reports that place again if its query has the same `check_body`: a record
        with only its body damaged is damage only then). Raises StoreError if there is no log,
        OSError.
        """
        opener = opener or DiskOpener()
        path = path.rstrip("/") or "/"
        for _attempt in range(LISTINGS_MAX):
            try:
                facts = examine_store(path, opener, damaged, check_body)
            except FileNotFoundError as error:
                missing = error
                continue
            return cls(
                path,
                facts.segments,
                facts.epochs,
                facts.is_replicated,
                facts.end,
                facts.confirmed_end,
                opener,
                facts.glance,
                facts.last_store_ms,
            )
        raise StoreError(f"{path} changes faster than it can be read: {missing}")

    @property
    def min(self) -> LogOffset:
        """Log offset of the first record; `end` if the log is empty."""
        return self.segments[0].base if self.segments else self.end

    def epoch_at(self, log_offset: int) -> int | None:
        """The epoch in which the byte at a log offset was written; None if it is unknown."""
        number = self.epochs.index_at(LogOffset(log_offset))
        return None if number is None else self.epochs.entries[number].epoch

    def find_boundary(self, log_offset: int) -> LogOffset:
        """Log offset of a record that begins at `log_offset` or shortly after; the end of that file
        or of the log if no record follows there. May read the file. Raises SegmentGone."""
        if log_offset <= self.min:
            return self.min
        number = bisect_right(self.segments, log_offset, key=lambda one: one.base) - 1
        if log_offset >= self.end or number < 0:
            return self.end
        segment = self.segments[number]
        limit = min(segment.end, self.end)
        file = open_log(self.opener, segment.path)
        try:
            found = _find_record(file, segment, log_offset - segment.base, limit - segment.base)
        finally:
            file.close()
        return LogOffset(limit if found is None else segment.base + found[0])

    def split_ranges(
        self,
        range_bytes: int = RANGE_BYTES,
        query: ScanQuery | None = None,
        *,
        confirmed: bool = True,
        start: int | None = None,
        end: int | None = None,
    ) -> list[LogRange]:
        """Ranges of about `range_bytes`, by log offset, that together hold every record of the
        table up to `confirmed_end` (`confirmed=False`: up to the table's end), except records that
        the query excludes by log offset or, with `prune_by_time`, by time; its other limits are
        left to `decode`.

        `start` and `end` are log offsets where a record begins (a stream's own positions, or
        results of `find_boundary`): only records from `start` on that begin before `end`. May read
        the files. Raises SegmentGone if the log no longer has `start`, or a file that must be read.
        """
        assert range_bytes > 0, "a range of no bytes"
        query = query or ScanQuery()
        first: int = self.min if start is None else start
        if first < self.min:
            raise SegmentGone(f"{self.path} begins at {self.min} now: {first} was removed")
        last = min(self.confirmed_end if confirmed else self.end, INT64_MAX if end is None else end)
        ranges: list[LogRange] = []
        times = self._first_times() if query.prune_by_time else [_ANY_TIME] * len(self.segments)
        for segment, (first_ms, last_ms) in zip(self.segments, times, strict=True):
            begin, stop = max(first, segment.base), min(last, segment.end)
            if (
                begin < stop
                and begin < query.end_log_offset
                and stop > query.min_log_offset
                and _may_match_time(query, first_ms, last_ms)
            ):
                cuts = self._split_places(segment, begin, stop, range_bytes)
                ranges += [
                    self._make_range(segment, here, there)
                    for (here, ms), (there, later_ms) in pairwise(
                        [(begin - segment.base, first_ms), *cuts, (stop - segment.base, last_ms)]
                    )
                    if segment.base + here < query.end_log_offset
                    and segment.base + there > query.min_log_offset
                    and (not query.prune_by_time or _may_match_time(query, ms, max(ms, later_ms)))
                ]
        return ranges

    def _first_times(self) -> list[tuple[int, int]]:
        """For each file (store time of its first record, store time of the first record of a later
        file), in epoch ms; UNKNOWN_MS if the file has no first record. Raises SegmentGone."""
        made: list[tuple[int, int]] = []
        until = self.last_store_ms
        for segment in reversed(self.segments):
            try:
                first = first_ms_of(segment, self.opener)
            except FileNotFoundError:
                raise SegmentGone(f"{segment.path} is gone: it was removed meanwhile") from None
            if first is None:
                made.append((UNKNOWN_MS, until))
            else:
                made.append((first, max(first, until)))
                until = first
        return made[::-1]

    def _split_places(
        self, segment: Segment, begin: int, stop: int, range_bytes: int
    ) -> list[tuple[int, int]]:
        """(position in the file, store time in epoch ms) of the records at which the part of a file
        between the log offsets `begin` and `stop` is split."""
        position, limit = begin - segment.base, stop - segment.base
        cuts: list[tuple[int, int]] = []
        if limit - position > range_bytes:
            file = open_log(self.opener, segment.path)
            try:
                while limit - position > range_bytes:
                    found = _find_record(file, segment, position + range_bytes, limit)
                    if found is None:
                        break
                    cuts.append(found)
                    position = found[0]
            finally:
                file.close()
        return cuts

    def _make_range(self, segment: Segment, start: int, end: int) -> LogRange:
        """The records at positions [start, end) of a file as a LogRange."""
        epochs = self._epochs_of(segment.base + start, segment.base + end)
        return LogRange(
            segment.path, segment.base, start, end, segment.size, self.confirmed_end, epochs
        )

    def _epochs_of(self, start: int, end: int) -> tuple[tuple[int, int], ...]:
        """(epoch, log offset at which it starts) of the epochs that label bytes of the log offsets
        [start, end)."""
        first = self.epochs.index_at(LogOffset(start)) or 0
        return tuple((e.epoch, e.start) for e in self.epochs.entries[first:] if e.start < end)


def _may_match_time(query: ScanQuery, first_store_ms: int, last_store_ms: int) -> bool:
    """Whether a range with these store times of its first and last record may have records within
    the query's limits of time, with PRUNE_SLACK_MS for clocks that were set back."""
    return (
        first_store_ms - PRUNE_SLACK_MS <= query.max_store_ms
        and last_store_ms + PRUNE_SLACK_MS >= query.min_store_ms
    )


def _find_record(
    file: LogBytes, segment: Segment, position: int, limit: int
) -> tuple[int, int] | None:
    """(position in the file, store time in epoch ms) of the first record at or after `position`
    before `limit`; None without such a record."""
    length = SEARCH_BYTES
    while position < limit:
        stop = min(position + length, limit)
        region = file.region(position, stop)
        base = segment.base + position
        at = 0
        while (found := next_record(region, at, base)) is not None:
            chain = walk(region, found, region.size, base)
            if chain.count and (chain.status != kernel.BAD_RECORD or chain.count > 1):
                return position + found, store_ms(region, found)
            at = found + 1
        if stop == limit:
            return None
        # No record, or a record longer than the bytes read.
        length *= 2
    return None
