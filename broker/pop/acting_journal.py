"""Notes of an acting replica on its hand-outs and their acknowledgements (popNotes.json).

A pop or an acknowledgement is answered once its note is on disk. The notes are kept until the
master has them in its log (RIP-32; RocketMQ's replica writes them to other masters, where check
points and acknowledgements miss each other). A note is forgotten only after the master confirmed
it.

    pop, ack -> popNotes.json of the acting replica -> that of the returned master -> its log
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, Final, TypeVar

from turbopump.broker.tables.table_saver import TableSaver
from turbopump.broker.traffic.role import Role
from turbopump.engine import fastjson
from turbopump.engine.deferred import Deferred
from turbopump.engine.disk import config_changes
from turbopump.engine.disk.json_table import Content, JsonTable
from turbopump.engine.types import PutStatus, QueueOffset
from turbopump.net.wire.bodies import (
    BadBody,
    as_int,
    as_object,
    read_int64,
    read_list,
    read_table,
    read_text,
)
from turbopump.net.wire.java_properties import ConfigError
from turbopump.net.wire.pop_records import (
    CHECK_POINT_TAG,
    MESSAGES_MAX,
    Acknowledgement,
    CheckPoint,
    CheckPointKey,
    unique_key,
)

T = TypeVar("T")

FILE_NAME: Final = "popNotes.json"
"""Name of the file in the broker's configuration folder."""
POP_NOTES: Final = "popNotes"
"""Field of a request for offsets (43): the number after which notes are requested. In its answer: a
page of notes (`ActingJournal.notes_after`)."""
RETURN_NUMBER: Final = "returnNumber"
"""Field of the same request: the number of the 906 with which the returned master began to ask; 0
if a replica asks."""
TAKES_NOTES: Final = "takesPopNotes"
"""Field of a replica's request for offsets, and of its answer: the master takes notes over."""
SIZE_MAX: Final = 32 << 20
"""Maximum size of all notes in memory, in bytes, some 50,000 notes: the file can be read again up
to 64 MiB."""
SETTLED_MS: Final = 15_000
"""Age in ms after its pop at which a note with all messages handled may be removed to make room:
the group's offset is on disk by then, because it is saved every 5 s."""
PAGE: Final = 200
"""Maximum number of notes in an answer, some 100 KB and 5 ms."""
TAKEN_MAX: Final = 32
"""Number of other brokers' tables for which the last number taken over is remembered."""
_GENERATION: Final = re.compile("[0-9a-f]{16}")
_TABLE: Final = "noteTable"
_TAKEN: Final = "taken"
_ROW_SIZE: Final = 300
"""Bytes of a note in memory, beside its text."""


@dataclass(slots=True, frozen=True)
class JournaledPop:
    """A note of an acting replica: a check point that it gave out in place of its master, and the
    acknowledgements. `check_point` is None if the check point is in the log and only
    acknowledgements are noted. `invisible_ms` is the check point's invisible time in ms; `acked`
    contains the queue offsets of handled messages, without order; `number` is greater than that of
    every note changed before."""

    key: CheckPointKey
    revive_queue_id: int
    invisible_ms: int
    check_point: CheckPoint | None
    acked: tuple[QueueOffset, ...]
    number: int

    @property
    def name(self) -> str:
        """The key of the note in the file: unique for each check point."""
        return unique_key(self.key, CHECK_POINT_TAG)

    @property
    def is_complete(self) -> bool:
        """Whether the note has a check point and each of its messages is handled."""
        point = self.check_point
        return point is not None and set(point.queue_offsets()) <= set(self.acked)

    def acked_bits(self, check_point: CheckPoint) -> int:
        """Return the handled messages as a bit set of `check_point`: bit i for its i-th message."""
        found = 0
        for queue_offset in self.acked:
            index = check_point.index_of(queue_offset)
            if index is not None:
                found |= 1 << index
        return found

    def to_acknowledgement(self) -> Acknowledgement:
        """Return the handled messages as a batch acknowledgement record, even for a single
        message."""
        return Acknowledgement(self.key, self.acked, is_batch=True)

    def to_json(self) -> dict[str, Any]:
        """Return the note as an object of popNotes.json and of answers; `from_json` parses it."""
        value: dict[str, Any] = {
            "ack": self.to_acknowledgement().encode_body().decode(),
            "invisibleTime": self.invisible_ms,
            "number": self.number,
            "reviveQueueId": self.revive_queue_id,
        }
        if self.check_point is not None:
            value["checkPoint"] = self.check_point.encode_body().decode()
        return value

    def row(self) -> bytes:
        """Return the note as a row of a JSON table (see json_table.Row)."""
        return fastjson.encode_member(self.name, self.to_json(), 2)

    @classmethod
    def from_json(cls, value: Any) -> "JournaledPop":
        """Parse the result of `to_json`. Raises BadBody if a member is missing, malformed, negative
        or too long."""
        members = as_object(value)
        ack = Acknowledgement.parse(read_text(members, "ack").encode(), True)
        if not (ack.key.topic and ack.key.group):
            raise BadBody("a note without a topic or a group")
        encoded, check_point = members.get("checkPoint"), None
        if encoded is not None:
            check_point = CheckPoint.parse(read_text(members, "checkPoint").encode())
            if check_point.key != ack.key:
                raise BadBody("a note with two check points")
        if len(ack.queue_offsets) > MESSAGES_MAX:
            raise BadBody(f"a note with {len(ack.queue_offsets)} acknowledgements")
        numbers = [
            read_int64(members, name) for name in ("reviveQueueId", "invisibleTime", "number")
        ]
        if min(numbers) < 0:
            raise BadBody("a note with a negative number")
        return cls(ack.key, numbers[0], numbers[1], check_point, ack.queue_offsets, numbers[2])


class ActingJournal:
    """The notes of pops that acting replicas served in place of their master (popNotes.json), until
    the master has them in its log. Loop thread only. Changes are written to the file soon; times
    are epoch ms."""

    def __init__(
        self, saver: TableSaver, role: Role, name: Callable[[], str], *, is_elected: bool
    ) -> None:
        """`name` returns a text that differs between brokers and between calls; `is_elected`:
        controllers elect the master of this group."""
        self.on_note: Callable[[CheckPointKey], None] = lambda key: None
        """Called with the key of a note after it was made or changed, before it is on disk."""
        self.master_takes = False
        """Whether this broker's last master takes over notes: a RocketMQ master does not."""
        self._role = role
        self._name = name
        self._is_elected = is_elected
        self._generation = ""
        self._saver = saver
        self._rows: JsonTable[JournaledPop] = JsonTable()
        self._by_number: dict[str, JournaledPop] = {}
        """The notes by name, in the order of their numbers; a changed note moves to the end."""
        self._number = self._size = self._looked_ms = 0
        self._taken: dict[str, int] = {}
        self._read: tuple[int, int] | None = None
        """The number of a master's return, and of the last note that this master has read."""

    def load(self) -> None:
        """Replace the table with the content of popNotes.json; without a file it stays empty.
        Raises ConfigError."""
        saved = self._saver.load(FILE_NAME, self._content)
        if saved is None:
            return
        try:
            members = as_object(saved)
            self._generation = _generation_of(members)
            self.master_takes = members.get("masterTakes") is True
            self._number = read_int64(members, "number")
            self._taken = {
                name: as_int(at, _TAKEN)
                for name, at in as_object(members.get(_TAKEN) or {}).items()
            }
            found = read_table(members, _TABLE, JournaledPop.from_json)
        except BadBody as error:
            raise ConfigError(f"{FILE_NAME} is damaged: {error}") from None
        rows = sorted(found.values(), key=lambda note: note.number)
        self._by_number = {note.name: note for note in rows}
        self._rows.replace(self._by_number)
        self._size = sum(map(_size_of, rows))

    @property
    def in_use(self) -> bool:
        """Whether this broker is a replica that pops for its missing master, with notes in place of
        the log. It does so only if the master takes over the notes made meanwhile. Where
        controllers elect masters it does not: another master follows soon."""
        role = self._role
        acts = role.is_acting and not role.is_master and not self._is_elected
        return acts and self.master_takes

    @property
    def generation(self) -> str:
        """The identity of this table for other brokers: 16 hexadecimal digits. Note numbers are
        comparable within one generation. Made on first use, because most brokers never act."""
        if not self._generation:
            self._generation = blake2b(self._name().encode(), digest_size=8).hexdigest()
        return self._generation

    def __len__(self) -> int:
        return len(self._rows)

    def get(self, key: CheckPointKey) -> JournaledPop | None:
        """Return the note of a check point, None if there is no note."""
        return self._rows.get(unique_key(key, CHECK_POINT_TAG))

    def all_notes(self) -> list[JournaledPop]:
        """Return all notes, least number first."""
        return list(self._by_number.values())

    # On a replica that acts

    def add_check_point(
        self, check_point: CheckPoint, revive_queue_id: int, now_ms: int
    ) -> Deferred[PutStatus]:
        """Note that the messages of a check point were given out. Resolves with PUT_OK once the
        note is on disk, UNKNOWN_ERROR if it cannot be saved, OS_PAGE_CACHE_BUSY (nothing noted) if
        the notes exceed SIZE_MAX."""
        known = self.get(check_point.key)
        acked = known.acked if known is not None else ()
        note = JournaledPop(
            check_point.key, revive_queue_id, check_point.invisible_ms, check_point, acked, 0
        )
        return self._put_note(note, now_ms)

    def add_ack(
        self, ack: Acknowledgement, invisible_ms: int, revive_queue_id: int, now_ms: int
    ) -> Deferred[PutStatus]:
        """Note that messages are handled. `invisible_ms` is the invisible time of their check
        point. Resolves as `add_check_point` does, or with MESSAGE_ILLEGAL for more than
        MESSAGES_MAX messages."""
        known = self.get(ack.key) or JournaledPop(
            ack.key, revive_queue_id, invisible_ms, None, (), 0
        )
        acked = tuple(dict.fromkeys((*known.acked, *ack.queue_offsets)))
        if len(acked) > MESSAGES_MAX:
            # no check point has as many messages
            return Deferred.resolved(PutStatus.MESSAGE_ILLEGAL)
        return self._put_note(replace(known, acked=acked), now_ms)

    def add_handled(
        self, check_point: CheckPoint, queue_offsets: Sequence[QueueOffset], revive_queue_id: int
    ) -> Deferred[object]:
        """Note messages of an open check point as handled: they are safe at another master, or were
        acknowledged in records that the returned master will not read again. Resolves, with no
        meaning in the value, once the note is on disk or has failed: after a failure they may be
        delivered again. Without `master_takes` nothing is noted."""
        if not self.master_takes:
            return Deferred.resolved(None)
        known = self.get(check_point.key)
        ack = Acknowledgement(check_point.key, tuple(queue_offsets), is_batch=True)
        if known is not None and set(queue_offsets) <= set(known.acked):
            return self._saver.when_saved().map(lambda _error: None)
        now_ms = check_point.revive_ms
        added = self.add_ack(ack, check_point.invisible_ms, revive_queue_id, now_ms)
        return added.map(lambda _status: None)

    # On a broker that takes notes over

    def notes_after(self, after: int, return_number: int) -> dict[str, Any]:
        """Return a page for a peer: at most PAGE notes with numbers greater than `after`, least
        number first; `read_page` parses it. `return_number` identifies the return of a master that
        asks, and the last page is remembered for `taken_over`; 0: another replica asks."""
        found = [note for note in self.all_notes() if note.number > after]
        some, is_last = found[:PAGE], len(found) <= PAGE
        if is_last and return_number:
            self._read = return_number, self._number
        return {
            "generation": self.generation,
            "isLast": is_last,
            "notes": [note.to_json() for note in some],
            "number": some[-1].number if some else max(after, self._number),
        }

    def take_notes(self, generation: str, notes: Sequence[JournaledPop]) -> bool:
        """Add the notes of another broker's table with numbers greater than those taken before;
        `notes` begin with the least number. They are merged into known notes, get new numbers, and
        are safe once the saver has saved. Returns False, with nothing added, if they would exceed
        SIZE_MAX."""
        if generation == self.generation:
            return True  # they came from here
        known = self._taken.get(generation, 0)
        new = [note for note in notes if note.number > known]
        if not new:
            return True
        if self._size + sum(map(_size_of, new)) > SIZE_MAX:
            return False
        self._taken.pop(generation, None)
        self._taken[generation] = new[-1].number
        while len(self._taken) > TAKEN_MAX:
            del self._taken[next(iter(self._taken))]
        self._put_notes([self._merge_note(note) for note in new])
        return True

    def forget_notes(self, upto: int) -> None:
        """Remove notes with numbers up to `upto`: they are in the master's log, and confirmed. The
        file is written soon."""
        self._remove([note for note in self.all_notes() if note.number <= upto])

    def forget_taken_over_notes(self, return_number: int) -> None:
        """Remove the notes on the pages that the master of the return `return_number` has read to
        the last page: it serves now, so the notes are safe there. Another return number removes
        nothing."""
        if self._read is not None and self._read[0] == return_number:
            self.forget_notes(self._read[1])
        self._read = None

    def set_master_takes(self, *, master_takes: bool) -> None:
        """Set whether the master takes over notes; a change is saved soon."""
        if master_takes != self.master_takes:
            self.master_takes = master_takes
            self._save([], [])

    def _merge_note(self, note: JournaledPop) -> JournaledPop:
        """Return the note with the acknowledgements of the known note of its check point added."""
        mine = self.get(note.key)
        if mine is None:
            return note
        acked = tuple(dict.fromkeys((*mine.acked, *note.acked)))[:MESSAGES_MAX]
        return replace(mine, acked=acked, check_point=mine.check_point or note.check_point)

    # The table of notes

    def _put_note(self, note: JournaledPop, now_ms: int) -> Deferred[PutStatus]:
        """Add or replace a note, if there is room; resolves as `add_check_point` does."""
        if self._size + _size_of(note) > SIZE_MAX // 2:
            self._make_room(now_ms)
        if self._size + _size_of(note) > SIZE_MAX:
            return Deferred.resolved(PutStatus.OS_PAGE_CACHE_BUSY)
        self._put_notes([note])
        return self._saver.when_saved().map(
            lambda error: PutStatus.PUT_OK if error is None else PutStatus.UNKNOWN_ERROR
        )

    def _make_room(self, now_ms: int) -> None:
        """Remove complete notes whose pop is older than SETTLED_MS, at most once in a tenth of that
        time."""
        if abs(now_ms - self._looked_ms) < SETTLED_MS // 10:
            return  # each look goes over all notes
        self._looked_ms = now_ms
        over = [note for note in self.all_notes() if note.is_complete]
        self._remove([one for one in over if now_ms - one.key.pop_time_ms > SETTLED_MS])

    def _put_notes(self, notes: Sequence[JournaledPop]) -> None:
        """Add or replace notes, each with a new number, and have the file written soon."""
        put = []
        for note in notes:
            self._number += 1
            numbered = replace(note, number=self._number)
            old = self._rows.get(numbered.name)
            self._size += _size_of(numbered) - (_size_of(old) if old is not None else 0)
            self._rows.put(numbered.name, numbered)
            self._by_number.pop(numbered.name, None)
            self._by_number[numbered.name] = numbered
            put.append(numbered)
        self._save([fastjson.strip_layout(note.row()) for note in put], [])
        for note in put:
            self.on_note(note.key)

    def _remove(self, notes: Sequence[JournaledPop]) -> None:
        """Remove notes, and have the file written soon."""
        for note in notes:
            self._rows.remove(note.name)
            del self._by_number[note.name]
            self._size -= _size_of(note)
        if notes:
            self._save([], [note.name for note in notes])

    def _save(self, rows: list[bytes], gone: list[str]) -> None:
        """Have the changed rows, and the names of removed notes (`gone`), appended to the file."""
        change = config_changes.encode_change(self._members(), {_TABLE: rows}, {_TABLE: gone})
        self._saver.save_changed(FILE_NAME, self._content, change)

    def _members(self) -> dict[str, Any]:
        """The members of the file besides the notes."""
        return {
            "generation": self.generation,
            "masterTakes": self.master_takes,
            "number": self._number,
            _TAKEN: dict(self._taken),
        }

    def _content(self) -> Content:
        """The whole content of the file."""
        return self._rows.snapshot(_TABLE, self._members())


def read_page(value: Any) -> tuple[str, list[JournaledPop], int | None]:
    """Parse a page made by `ActingJournal.notes_after`: return (generation, notes, number to
    continue after; None on the last page). Raises BadBody."""
    members = as_object(value)
    notes = read_list(members, "notes", JournaledPop.from_json)
    more = None if members.get("isLast") is not False else read_int64(members, "number")
    return _generation_of(members), notes, more


def _generation_of(members: dict[str, Any]) -> str:
    """Read the generation of a peer's table of notes. Raises BadBody."""
    generation = read_text(members, "generation")
    if not _GENERATION.fullmatch(generation):
        raise BadBody("notes without a generation")
    return generation


def _size_of(note: JournaledPop) -> int:
    """Approximate bytes of a note, in memory or in the file."""
    point = note.check_point
    key = note.key
    names = len(key.topic) + len(key.group) + len(key.broker_name)
    distances = len(point.distances) if point is not None else 0
    return _ROW_SIZE + (3 if point is not None else 2) * names + 11 * (len(note.acked) + distances)
