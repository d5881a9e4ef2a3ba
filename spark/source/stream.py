"""The log as a stream of Spark: `spark.readStream.format("turbopump")`.

Owns the interface of a stream written in Python: offsets, limits, partitions, batches. It must
never silently deliver bytes of a log that was truncated below bytes already delivered: it raises an
exception that ends the query, or logs a warning if the user chose to continue.

A place in the stream is a `positions.StreamPosition` for each store. It is judged before a batch is
planned, and again after the batch was read: a log may be truncated at any moment, but before new
bytes come an entry in the epoch list that labels them (engine/replicated.py, 2).
"""

import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    SupportsTriggerAvailableNow,
)

from turbopump.engine.snapshot.log_table import LogRange, LogTable, ScanQuery, SegmentGone
from turbopump.engine.types import LogOffset, StoreError
from turbopump.spark.source.options import EARLIEST, LATEST, BadOption, SourceOptions
from turbopump.spark.source.partitions import open_store, read_part
from turbopump.spark.source.positions import (
    BadPosition,
    Fate,
    StreamCut,
    StreamExpired,
    StreamPosition,
    StreamVerdict,
    compare_with_log,
    decode_position,
    position_at,
)

logger = logging.getLogger(__name__)

Offsets = dict[str, list[object]]
"""Encoded StreamPosition (`StreamPosition.encode`) of each store, by its path or URI: Spark's
offset."""


@dataclass(frozen=True)
class StreamPartition(InputPartition):
    """A range of a store's log, and a reader's position after it."""

    location: str
    """Path or URI of the store."""
    part: LogRange
    position: StreamPosition
    """Position after the range, judged when it was read."""


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """An endless scan over stores; Spark calls its methods. They raise StoreError if a store cannot
    be read, StreamCut or StreamExpired as the options demand."""

    def __init__(self, options: SourceOptions, schema: pa.Schema, query: ScanQuery) -> None:
        self._options = options
        self._schema = schema
        self._query = query
        self._last: dict[str, LogOffset] | None = None
        """End of the stream, by store; None: it has no end."""

    def initialOffset(self) -> Offsets:
        """Return the positions at which a new query begins (`startingOffsets`). Raises
        BadOption."""
        text = self._options.starting_offsets.strip()
        given: Mapping[str, Any] = {}
        if text not in (EARLIEST, LATEST):
            given = _parse_offsets(text, self._options.paths)
        offsets: Offsets = {}
        for location in self._options.paths:
            table = open_store(self._options, location)
            if location in given:
                offsets[location] = _start_position(location, table, given[location]).encode()
            else:
                at = self._readable_end(table) if text == LATEST else table.min
                offsets[location] = position_at(table, at).encode()
        return offsets

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit of a micro-batch (`maxBytesPerTrigger`)."""
        bytes_max = self._options.max_bytes_per_trigger
        return ReadAllAvailable() if bytes_max is None else ReadMaxBytes(bytes_max)

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:
        """Return the end of the next batch: the confirmed ends, or less under a limit.

        Several stores share the limit equally; a store leaves the rest of its share unused.
        """
        share = None
        if isinstance(limit, ReadMaxBytes):
            share = max(1, limit.max_bytes // len(self._options.paths))
        offsets: Offsets = {}
        for location in self._options.paths:
            table = open_store(self._options, location)
            at = self._resume_offset(table, self._position(start, location, table))
            end = max(at, self._readable_end(table))
            if share is not None and at + share < end:
                end = min(end, table.find_boundary(at + share))
            if self._last is not None and location in self._last:
                end = max(at, min(end, self._last[location]))
            offsets[location] = position_at(table, end).encode()
            if (
                end == at
                and location in start
                and decode_position(start[location]).log_offset == at
            ):
                offsets[location] = start[location]
        return offsets

    def reportLatestOffset(self) -> Offsets:
        """Return the positions at the stores' present ends, for Spark's metrics."""
        ends: Offsets = {}
        for location in self._options.paths:
            table = open_store(self._options, location)
            ends[location] = position_at(table, self._readable_end(table)).encode()
        return ends

    def prepareForTriggerAvailableNow(self) -> None:
        """Let the stream end at the stores' present ends."""
        self._last = {}
        for location in self._options.paths:
            table = open_store(self._options, location)
            self._last[location] = self._readable_end(table)

    def partitions(self, start: Offsets, end: Offsets) -> list[StreamPartition]:
        """Return the ranges of logs from `start` to `end`; a store without new bytes has none."""
        found = []
        for location in self._options.paths:
            if location not in end:
                continue  # the checkpoint is older than this store in `paths`
            table = open_store(self._options, location)
            first = self._resume_offset(table, self._position(start, location, table))
            position = decode_position(end[location])
            last = self._resume_offset(table, position)
            if last <= first:
                continue
            for part in table.split_ranges(
                self._options.partition_bytes,
                self._query,
                confirmed=False,
                start=table.find_boundary(first),
                end=last,
            ):
                read = position_at(table, part.base + part.end)
                found.append(StreamPartition(location, part, read))
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the batches of a range, then check that the log was not truncated meanwhile.

        A range that retention removed meanwhile cannot be read to its end; see the module.
        """
        assert isinstance(partition, StreamPartition)
        failed: StoreError | None = None
        try:
            yield from read_part(
                self._options, self._schema, self._query, partition.location, partition.part
            )
        except StoreError as error:
            failed = error
        verdict = compare_with_log(
            open_store(self._options, partition.location), partition.position
        )
        if verdict.fate is Fate.CUT:
            self._report_verdict(verdict)
        elif isinstance(failed, SegmentGone):
            text = f"{failed}; with failOnDataLoss=false the stream continues after it"
            _raise_or_warn(StreamExpired(text), self._options.fail_on_data_loss)
        elif failed is not None:
            raise failed

    def _position(self, start: Offsets, location: str, table: LogTable) -> StreamPosition:
        """Return a store's position in `start`; a new store begins at the start of its log."""
        if location in start:
            return decode_position(start[location])
        return position_at(table, table.min)

    def _readable_end(self, table: LogTable) -> LogOffset:
        """Return the log offset up to which the stream may read a store now."""
        return table.confirmed_end if self._options.confirmed else table.end

    def _resume_offset(self, table: LogTable, position: StreamPosition) -> LogOffset:
        """Return the log offset at which to continue after a position. Raises StreamCut,
        StreamExpired unless disabled."""
        verdict = compare_with_log(table, position)
        self._report_verdict(verdict)
        return verdict.resume

    def _report_verdict(self, verdict: StreamVerdict) -> None:
        """Raise or log the error of a truncated or expired position, as the options demand."""
        options = self._options
        if verdict.fate is Fate.CUT:
            advice = f"; with failOnTruncation=false the stream goes on at {verdict.resume}"
            _raise_or_warn(StreamCut(verdict.reason + advice), options.fail_on_truncation)
        elif verdict.fate is Fate.EXPIRED:
            advice = f"; with failOnDataLoss=false the stream goes on at {verdict.resume}"
            _raise_or_warn(StreamExpired(verdict.reason + advice), options.fail_on_data_loss)


def _raise_or_warn(error: StoreError, raised: bool) -> None:
    """Raise the error if `raised`, else log it as a warning."""
    if raised:
        raise error
    logger.warning("%s", error)


def _parse_offsets(text: str, paths: tuple[str, ...]) -> Mapping[str, Any]:
    """Parse the option startingOffsets as positions by store; raises BadOption."""
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise BadOption(
            f"startingOffsets is {text!r}, but must be {EARLIEST}, {LATEST} or a JSON object of"
            " [epoch, log offset] by store"
        )
    for location in sorted(set(found) - set(paths)):
        raise BadOption(f"startingOffsets names {location!r}, which is not read")
    return found


def _start_position(location: str, table: LogTable, value: object) -> StreamPosition:
    """Return the position that a user chose for a store; a plain log offset is used as it is."""
    try:
        if isinstance(value, int):
            return position_at(table, table.find_boundary(value))
        return decode_position(value)
    except BadPosition as error:
        raise BadOption(f"startingOffsets of {location!r}: {error}") from error
