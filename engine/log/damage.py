"""Damage in the middle of the commit log: its places, their state, and how to get past them.

Owns the list of damaged places and its file. It must never change the log, nor call a place damaged
because a peer reports a record there: records follow each other from the beginning of a file, and
only positions reached by that walk count.

A damaged record is never served and never dispatched again. A log without replicas cannot repair
it, so a broker with such a log is ineligible: it refuses writes, and must not become the master of
a group. The list outlives the process, because a start does not read the whole log; a place that is
whole again (restored from a copy) leaves the list at the next start.
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
"""Name of the list in the store's folder `config`."""
PLACES_MAX = 1000
"""Maximum number of places in the list: a disk with more damage must be replaced."""
SUSPECTS_MAX = 10_000
"""Maximum number of queue units and index entries that `check_target` checks: each check walks a
file."""
SEARCH_CHUNK = 1 << 20
"""Bytes per read in a search for the next record after damage."""
MAGIC_AT = 4
"""Position of the magic in a record."""
_MAGICS = tuple((magic & 0xFFFFFFFF).to_bytes(4, "big") for magic in (kernel.V1, kernel.V2))
WHOLE = ""
"""Reason of a place that is not damaged."""
NO_RECORD = "no record begins there"
"""Reason of a place whose bytes do not begin like a record."""


@dataclass(frozen=True, slots=True)
class Damage:
    """A place of the log where a record was whole and is damaged now."""

    log_offset: LogOffset
    """Log offset at which the damaged record begins."""
    end: LogOffset
    """Log offset of the next record after the damage, or the end of the log."""
    file: str
    """Path of the log file."""
    position: int
    """First byte of the record in `file`."""
    reason: str
    """Fault of the record, as a text for the operator."""
    given_up: bool = False
    """Whether an operator gave the record up, so that the broker continues without it."""

    def __str__(self) -> str:
        return f"{self.file} is damaged at byte {self.position}: {self.reason}"


class LogDamage:
    """The damaged places of a log, in the order of the log. Loop thread only; methods that walk the
    log block it."""

    def __init__(self, files: Files, root: str, log: CommitLog, disk: Disk) -> None:
        self._log = log
        self._files = ConfigFiles(files, f"{root}/config")
        self._lane = DiskLane(disk)
        self._places: dict[int, Damage] = {}
        self._suspects: set[tuple[int, int]] = set()
        self._saved: tuple[Damage, ...] = ()
        self.first: Damage | None = None
        """The place with the least log offset that was not given up, and so makes the broker
        ineligible; None if there is no such place."""

    @property
    def known_places(self) -> list[Damage]:
        """All known places by ascending log offset, given up or not."""
        return [self._places[at] for at in sorted(self._places)]

    # The list

    def load(self) -> None:
        """Read the list of earlier runs, without a look at the log. Raises StoreError if the file
        is damaged or cannot be read."""
        value = self._files.load(FILE_NAME)
        if value is None:
            return
        try:
            for one in value["places"]:
                place = _from_json(one)
                self._places[place.log_offset] = place
        except (KeyError, TypeError, ValueError) as error:
            raise StoreError(f"{FILE_NAME} is not a list of damaged places: {error}") from None
        self._update_refusal()
        self._saved = tuple(self.known_places)

    def drop_obsolete(self) -> None:
        """Call once after recovery: drop the places that retention removed, that lie after the
        log's end, or whose records are whole again, and log the others."""
        for place in self.known_places:
            inside = self._log.min <= place.log_offset < self._log.end
            if not inside or self._fault_at(place.log_offset) == WHOLE:
                logger.warning("the record is removed or whole again: %s", place)
                del self._places[place.log_offset]
            elif not place.given_up:
                logger.error("writes are refused: %s", place)
        self._update_refusal()

    def note_damage(self, log_offset: int, reason: str) -> Damage:
        """Add the damaged record that a walk through the log met at `log_offset`, and return its
        place; a known place is returned unchanged. With PLACES_MAX places the new one is returned
        and logged, but not added. Saved by the next `save`."""
        known = self._places.get(log_offset)
        if known is not None:
            return known
        log = self._log
        start = log.segments.start_of(log_offset)
        end = resume_at(log, log_offset, log.end)
        path, position = log.segments.path(start), log_offset - start
        place = Damage(LogOffset(log_offset), end, path, position, reason)
        logger.error("%s; the record is not served, and writes are refused", place)
        if len(self._places) < PLACES_MAX:
            self._places[log_offset] = place
            self._update_refusal()
        return place

    def mark_given_up(self, log_offset: int) -> Damage:
        """Mark the damage at `log_offset` as given up, as an operator asked, and return its place:
        it no longer makes the broker ineligible. Saved by the next `save`. Raises StoreError if no
        damage is known there."""
        place = self._places.get(log_offset)
        if place is None:
            known = ", ".join(str(at) for at in sorted(self._places)) or "none"
            raise StoreError(f"no damage is known at log offset {log_offset}; known: {known}")
        self._places[log_offset] = replace(place, given_up=True)
        self._update_refusal()
        return self._places[log_offset]

    def forget_from(self, log_end: int) -> None:
        """Drop the places at `log_end` or later, because the log was cut there, and let
        `check_target` check every place again. Saved by the next `save`."""
        self._places = {at: place for at, place in self._places.items() if at < log_end}
        self._suspects.clear()
        self._update_refusal()

    def save(self) -> None:
        """Drop the places that retention removed, and begin to save the list on a disk thread if it
        changed since the last call and no save is under way. A failure is only logged. A place that
        was not saved before a crash will be found again."""
        if self._places and min(self._places) < self._log.min:
            self._places = {at: place for at, place in self._places.items() if at >= self._log.min}
            self._update_refusal()
        places = tuple(self.known_places)
        if places == self._saved or self._lane.busy:
            return
        self._saved = places
        value = {"places": [_to_json(place) for place in places]}

        def done(result: OSError | None) -> None:
            if result is not None:
                logger.error("%s could not be saved: %s", FILE_NAME, result)

        self._lane.submit(lambda: self._files.save(FILE_NAME, value), done)

    def close(self) -> None:
        """Save the list if it changed, and block until it is saved, or the failure was logged."""
        self._lane.wait_until_idle()
        self.save()
        self._lane.wait_until_idle()

    # Looking

    def is_whole(self, log_offset: int, size: int) -> bool:
        """Whether the log offsets [log_offset, log_offset + size), which must lie in one existing
        file, hold exactly whole records: lengths, body CRCs and stored log offsets agree."""
        log = self._log
        base = log.segments.start_of(log_offset)
        position, end = log_offset - base, log_offset - base + size
        return walk(log.file_region(base), position, end, base).position == end

    def check_target(self, log_offset: int, size: int) -> None:
        """Check the log where a queue unit, or an index entry (`size` 0), points to no whole
        record: walk its file up to `log_offset`, and note damage of the log; a wrong pointer is
        only logged. Each place is checked once."""
        log = self._log
        name = (log_offset, size)
        if log_offset in self._places or name in self._suspects:
            return
        if not log.min <= log_offset < log.end or len(self._suspects) >= SUSPECTS_MAX:
            return
        self._suspects.add(name)
        at = self.verify_records(log.segments.start_of(log_offset), log_offset)
        reason = self._fault_at(log_offset) if at == log_offset else WHOLE
        if reason:
            self.note_damage(log_offset, reason)
        else:
            logger.error(
                "a queue unit or index entry points to log offset %d, size %d, where no such "
                "record is: the entry is skipped",
                log_offset,
                size,
            )

    def verify_records(self, start: int, until: int) -> int:
        """Walk the log from `start`, where a record begins, to the end of the first record that
        ends at `until` or later, and note damaged places on the way. Returns that end, a log
        offset."""
        at = start
        while at < until:
            at, reason = self._walk_to(at, until)
            if reason:
                at = self.note_damage(at, reason).end
        return at

    def known_end(self, log_offset: int) -> LogOffset | None:
        """Log offset of the next record after the damage known at `log_offset`; None if no damage
        is known there."""
        place = self._places.get(log_offset)
        return None if place is None else place.end

    def _walk_to(self, start: int, until: int) -> tuple[int, str]:
        """Walk to the end of the first record that ends at `until` or later, and return (that end,
        ""); at a damaged record return (its beginning, the reason). Known damage is passed over."""
        log = self._log
        at = start
        while at < until:
            base = log.segments.start_of(at)
            limit = min(log.end - base, log.file_size)
            stop = min(until - base, limit)
            found = walk(log.file_region(base), at - base, stop, base)
            at = base + found.position
            if at >= until:
                break
            if found.status == kernel.BLANK_FOUND:
                at = base + log.file_size
                continue
            # The record that reaches beyond `stop`, or the damaged one.
            last = walk(
                log.file_region(base), at - base, min(limit, self._stated_end(base, at)), base
            )
            if last.count:
                at = base + last.position
            elif at in self._places:
                at = self._places[at].end
            else:
                return at, last.reason or found.reason or NO_RECORD
        return at, WHOLE

    def skip_damage(self, log_offset: int, until: int) -> LogOffset:
        """Note the damage that the dispatcher met at `log_offset`. Returns the log offset at which
        the dispatcher continues, at most `until`."""
        place = self.note_damage(log_offset, self._fault_at(log_offset) or NO_RECORD)
        return LogOffset(min(place.end, until))

    def _stated_end(self, base: int, at: int) -> int:
        """Position in the file after the record that begins at log offset `at`, according to its
        size field; `base` is the log offset of the file's first byte."""
        region = self._log.file_region(base)
        position = at - base
        if position + MAGIC_AT > self._log.file_size:
            return self._log.file_size
        return max(position, position + region.get_i32(position))

    def _fault_at(self, log_offset: int) -> str:
        """Reason why no whole record begins at `log_offset`; WHOLE if one begins there."""
        log = self._log
        base = log.segments.start_of(log_offset)
        position, limit = log_offset - base, min(log.end - base, log.file_size)
        end = min(limit, self._stated_end(base, log_offset))
        found = walk(log.file_region(base), position, max(end, position), base)
        if found.count or found.status == kernel.BLANK_FOUND:
            return WHOLE
        return found.reason or NO_RECORD

    def _update_refusal(self) -> None:
        """Set `first` to the first place that is not given up; the log refuses writes while there
        is such a place."""
        self.first = next((place for place in self.known_places if not place.given_up), None)
        self._log.tail.refuse(DAMAGED, self.first is not None)


def resume_at(log: CommitLog, log_offset: int, log_end: int) -> LogOffset:
    """Log offset of the next whole record after the damaged record at `log_offset`, in a log that
    ends at `log_end`: by the damaged record's own length if a record begins there, else by a search
    through its file. Without a further record in this file: the start of the next file, or
    `log_end`. Blocks for the search."""
    base = log.segments.start_of(log_offset)
    region, limit = log.file_region(base), min(log_end - base, log.file_size)
    try:
        behind = log_offset - base + kernel.decode(region, log_offset - base, limit, base).size
    except ValueError:
        behind = limit + 1
    if behind == limit or (behind < limit and _record_begins(region, behind, limit, base)):
        return LogOffset(base + behind)
    position = find_record(region, log_offset - base + 1, limit, base)
    return LogOffset(base + (limit if position is None else position))


def _record_begins(region: Region, position: int, end: int, base: int) -> bool:
    """Whether a record or the file's filler begins at `position` of a log file that has bytes up to
    `end`; `base` is the log offset of the file's first byte."""
    try:
        return kernel.decode(region, position, end, base).physical_offset == base + position
    except ValueError:
        return kernel.scan(region, position, end, 1).status == kernel.BLANK_FOUND


def find_record(region: Region, position: int, end: int, base: int) -> int | None:
    """First position in [position, end) of a whole record with a correct body CRC whose stored log
    offset is `base` + its position; None if there is no such record. `base` is the log offset of
    the region's first byte."""
    start = position + MAGIC_AT
    while start < end:
        chunk = region.read(start, min(SEARCH_CHUNK, end - start))
        hits = sorted(_magic_positions(chunk))
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


def _magic_positions(chunk: bytes) -> list[int]:
    """Positions of all record magics in the bytes, in no order."""
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
        raise ValueError(f"{value} is not a damaged place")
    return place
