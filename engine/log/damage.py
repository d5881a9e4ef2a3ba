"""Damage in the middle of the commit log: where it is, what is known of it, and how to get past it.

Owns the list of damaged places and its file. It must never change the log, nor call a place damaged
because a peer says that a record is there: records follow each other from the beginning of a file
on, and only what lies on that way counts. Called by the dispatcher, lookup, recovery, truncation
and the store.

A damaged record is never served and never dispatched anew. Nothing in a log of one copy can repair
it, so the broker with such a log is ineligible: it takes no writes, and must not become a master
that others follow. The list outlives the process, because a start does not read the whole log; a
place that is whole again (restored from a copy) is taken off it at the next start.
"""

import logging
from dataclasses import asdict, dataclass, replace
from typing import Any

from turbopump.engine.disk.config_files import ConfigFiles
from turbopump.engine.disk.files import Files
from turbopump.engine.disk.flush import Disk, DiskLane
from turbopump.engine.log.commit_log import DAMAGED, CommitLog
from turbopump.engine.types import LogOffset, StoreError
from turbopump.pyx import record as kernel
from turbopump.pyx.region import Region
from turbopump.pyx.walk import walk

logger = logging.getLogger(__name__)

FILE_NAME = "logDamage.json"
# More than an operator reads; a disk that has so many is to be replaced.
PLACES_MAX = 1000
# Units and index entries that were looked into and point to no record: each cost a walk of a file.
SUSPECTS_MAX = 10_000
# Bytes searched at once for the record behind damage.
SEARCH_CHUNK = 1 << 20
MAGIC_AT = 4
_MAGICS = tuple((magic & 0xFFFFFFFF).to_bytes(4, "big") for magic in (kernel.V1, kernel.V2))
WHOLE = ""
NO_RECORD = "no record begins there"


@dataclass(frozen=True, slots=True)
class Damage:
    """A place where a record was and no whole one is."""

    log_offset: LogOffset
    end: LogOffset
    """Where records go on, or the end of the log."""
    file: str
    position: int
    """The first byte of the record in `file`."""
    reason: str
    given_up: bool = False
    """An operator gave the record up: the broker goes on without it."""

    def __str__(self) -> str:
        return f"{self.file} is damaged at byte {self.position}: {self.reason}"


class LogDamage:
    """The damaged places of one log, in order."""

    def __init__(self, files: Files, root: str, log: CommitLog, disk: Disk) -> None:
        self._log = log
        self._files = ConfigFiles(files, f"{root}/config")
        self._lane = DiskLane(disk)
        self._places: dict[int, Damage] = {}
        self._suspects: set[tuple[int, int]] = set()
        self._saved: tuple[Damage, ...] = ()
        self.first: Damage | None = None
        """The oldest place that makes the broker ineligible."""

    @property
    def places(self) -> list[Damage]:
        """All known places, oldest first."""
        return [self._places[at] for at in sorted(self._places)]

    # The list

    def load(self) -> None:
        """Read what earlier runs found; the log is not looked at yet. Raises StoreError."""
        value = self._files.load(FILE_NAME)
        if value is None:
            return
        try:
            for one in value["places"]:
                place = _from_json(one)
                self._places[place.log_offset] = place
        except (KeyError, TypeError, ValueError) as error:
            raise StoreError(f"{FILE_NAME} is not a list of damaged places: {error}") from None
        self._changed()
        self._saved = tuple(self.places)

    def check(self) -> None:
        """Recovery is over: forget places that are gone or whole again, and name the others."""
        for place in self.places:
            inside = self._log.min <= place.log_offset < self._log.end
            if not inside or self._fault(place.log_offset) == WHOLE:
                logger.warning("no longer so: %s", place)
                del self._places[place.log_offset]
            elif not place.given_up:
                logger.error("writes are refused: %s", place)
        self._changed()

    def note(self, log_offset: int, reason: str) -> Damage:
        """A record on the way through the log is damaged."""
        known = self._places.get(log_offset)
        if known is not None:
            return known
        log = self._log
        start = log.segments.start_of(log_offset)
        end = resume_at(log, log_offset, log.end)
        path, position = log.segments.path(start), log_offset - start
        place = Damage(LogOffset(log_offset), end, path, position, reason)
        logger.error("%s; it is not served, and writes are refused from now on", place)
        if len(self._places) < PLACES_MAX:
            self._places[log_offset] = place
            self._changed()
        return place

    def give_up(self, log_offset: int) -> Damage:
        """The operator does without this record. Raises StoreError if no damage is known there."""
        place = self._places.get(log_offset)
        if place is None:
            known = ", ".join(str(at) for at in sorted(self._places)) or "none"
            raise StoreError(f"no damage is known at log offset {log_offset}; known: {known}")
        self._places[log_offset] = replace(place, given_up=True)
        self._changed()
        return self._places[log_offset]

    def forget_from(self, log_end: int) -> None:
        """The log was cut."""
        self._places = {at: place for at, place in self._places.items() if at < log_end}
        self._suspects.clear()
        self._changed()

    def save(self) -> None:
        """Have the list on the disk soon. What is not yet is found again, and what age removed
        from the log goes."""
        if self._places and min(self._places) < self._log.min:
            self._places = {at: place for at, place in self._places.items() if at >= self._log.min}
            self._changed()
        places = tuple(self.places)
        if places == self._saved or self._lane.busy:
            return
        self._saved = places
        value = {"places": [_to_json(place) for place in places]}

        def done(result: OSError | None) -> None:
            if result is not None:
                logger.error("%s could not be saved: %s", FILE_NAME, result)

        self._lane.submit(lambda: self._files.save(FILE_NAME, value), done)

    def close(self) -> None:
        """Save, and wait for it."""
        self._lane.finish()
        self.save()
        self._lane.finish()

    # Looking

    def is_whole(self, log_offset: int, size: int) -> bool:
        """Whether [log_offset, log_offset + size) of one file is whole records: lengths, body CRCs
        and the place that each says it lies at."""
        log = self._log
        base = log.segments.start_of(log_offset)
        position, end = log_offset - base, log_offset - base + size
        return walk(log.region(base), position, end, base).position == end

    def suspect(self, log_offset: int, size: int) -> None:
        """A queue unit or an index entry (size 0) points to what is no whole record: find out
        whether the log is damaged, or only what points into it."""
        log = self._log
        name = (log_offset, size)
        if log_offset in self._places or name in self._suspects:
            return
        if not log.min <= log_offset < log.end or len(self._suspects) >= SUSPECTS_MAX:
            return
        self._suspects.add(name)
        at = self.verify(log.segments.start_of(log_offset), log_offset)
        reason = self._fault(log_offset) if at == log_offset else WHOLE
        if reason:
            self.note(log_offset, reason)
        else:
            logger.error(
                "a queue unit or index entry points to log offset %d, size %d: no such record is "
                "there, it is passed over",
                log_offset,
                size,
            )

    def verify(self, start: int, until: int) -> int:
        """Walk from a record's beginning to the end of the first record that ends at or behind
        `until`, and note what is damaged on the way; returns that end."""
        at = start
        while at < until:
            at, reason = self._walk(at, until)
            if reason:
                at = self.note(at, reason).end
        return at

    def known_end(self, log_offset: int) -> LogOffset | None:
        """Where records go on behind the damage known to begin here; None if none is known."""
        place = self._places.get(log_offset)
        return None if place is None else place.end

    def _walk(self, start: int, until: int) -> tuple[int, str]:
        """To the end of the first record that ends at or behind `until`: (that, ""), or to a
        damaged one: (its beginning, why). Known damage is passed over."""
        log = self._log
        at = start
        while at < until:
            base = log.segments.start_of(at)
            limit = min(log.end - base, log.file_size)
            stop = min(until - base, limit)
            found = walk(log.region(base), at - base, stop, base)
            at = base + found.position
            if at >= until:
                break
            if found.status == kernel.BLANK_FOUND:
                at = base + log.file_size
                continue
            # The record that reaches beyond the stop, or what is wrong.
            last = walk(log.region(base), at - base, min(limit, self._size_at(base, at)), base)
            if last.count:
                at = base + last.position
            elif at in self._places:
                at = self._places[at].end
            else:
                return at, last.reason or found.reason or NO_RECORD
        return at, WHOLE

    def skip(self, log_offset: int, until: int) -> LogOffset:
        """The dispatcher meets no record: note it; returns where to go on, at most `until`."""
        place = self.note(log_offset, self._fault(log_offset) or NO_RECORD)
        return LogOffset(min(place.end, until))

    def _size_at(self, base: int, at: int) -> int:
        """The position behind the record that begins at `at`, by its own size field."""
        region = self._log.region(base)
        position = at - base
        if position + MAGIC_AT > self._log.file_size:
            return self._log.file_size
        return max(position, position + region.get_i32(position))

    def _fault(self, log_offset: int) -> str:
        """What is wrong with the record that should begin here; WHOLE if nothing is."""
        log = self._log
        base = log.segments.start_of(log_offset)
        position, limit = log_offset - base, min(log.end - base, log.file_size)
        end = min(limit, self._size_at(base, log_offset))
        found = walk(log.region(base), position, max(end, position), base)
        if found.count or found.status == kernel.BLANK_FOUND:
            return WHOLE
        return found.reason or NO_RECORD

    def _changed(self) -> None:
        self.first = next((place for place in self.places if not place.given_up), None)
        self._log.tail.refuse(DAMAGED, self.first is not None)


def resume_at(log: CommitLog, log_offset: int, log_end: int) -> LogOffset:
    """Where the next whole record begins behind a damaged one: by its own lengths if they lead to
    one, else the next bytes that are one; without any the next file, or the end of the log."""
    base = log.segments.start_of(log_offset)
    region, limit = log.region(base), min(log_end - base, log.file_size)
    try:
        behind = log_offset - base + kernel.decode(region, log_offset - base, limit, base).size
    except ValueError:
        behind = limit + 1
    if behind == limit or (behind < limit and _begins(region, behind, limit, base)):
        return LogOffset(base + behind)
    position = find_record(region, log_offset - base + 1, limit, base)
    return LogOffset(base + (limit if position is None else position))


def _begins(region: Region, position: int, end: int, base: int) -> bool:
    """Whether a record or the file's filler begins here."""
    try:
        return kernel.decode(region, position, end, base).physical_offset == base + position
    except ValueError:
        return kernel.scan(region, position, end, 1).status == kernel.BLANK_FOUND


def find_record(region: Region, position: int, end: int, base: int) -> int | None:
    """The next position in [position, end) of a whole record that says it lies there."""
    start = position + MAGIC_AT
    while start < end:
        chunk = region.read(start, min(SEARCH_CHUNK, end - start))
        hits = sorted(_hits(chunk))
        for hit in hits:
            candidate = start + hit - MAGIC_AT
            try:
                record = kernel.decode(region, candidate, end, base)
            except (ValueError, IndexError):
                continue
            if record.crc_ok and record.physical_offset == record.log_offset:
                return candidate
        # A magic may lie across two chunks.
        start += max(len(chunk) - 3, 1) if len(chunk) == SEARCH_CHUNK else len(chunk)
    return None


def _hits(chunk: bytes) -> list[int]:
    found = []
    for magic in _MAGICS:
        at = chunk.find(magic)
        while at >= 0:
            found.append(at)
            at = chunk.find(magic, at + 1)
    return found


def _to_json(place: Damage) -> dict[str, Any]:
    return asdict(place)


def _from_json(value: dict[str, Any]) -> Damage:
    place = Damage(**value)
    numbers = (place.log_offset, place.end, place.position)
    if not all(isinstance(number, int) and number >= 0 for number in numbers):
        raise ValueError(f"{value} is no place")
    return place
