"""The files of one member: term and vote, the log, the snapshot.

Owns their formats and the order in which they become durable: each method returns when what it was
given will survive a power cut. It must never decide anything, nor guess: a file that is damaged is
named and refused, as a member that forgot a vote or an entry could let a second leader be elected.
Called by the node's driver, on a disk thread; a method that raises OSError ends the member.

`currterm`   term and vote, in two slots that are written in turn, in place
`snapshot`   header, then the state machine's bytes; replaced as a whole
`entries`    header, then records and zeros; appended to in place, replaced as a whole when it is
             full, cut, or other than the leader's

    snapshot and entries begin alike (big-endian):
    0  8 bytes  magic            8  uint32  CRC-32 of all that follows (entries: of the header)
    12 uint32   0                16 int64   index, 24 int64 term, 32 int64 position behind: the base
    40 int64    snapshot: length of the data; entries: where the file ended when it was made
    48          snapshot: data; entries: records

    record: 0 uint32 magic       4  uint32  CRC-32 of all that follows
    8  uint32   length of body   12 uint32  0
    16 int64    index, 24 int64 term, 32 int64 position (DLedger's, which counts 48 bytes each)
    40 int64    where durable records of this file ended when this one was written
    48          body

    slot of currterm, 4096 bytes, the record at 0 and again at 2048:
    0  8 bytes  magic            8  uint32  CRC-32 of all that follows
    12 uint32   length of vote   16 int64   number of the write: even ones in the first slot
    24 int64    term             32         vote: the id of a member, or nothing

The whole record with the highest number counts. A vote costs one sync: the file grows by nothing,
and a torn write leaves the other slot, which was durable before it. A record is there twice so that
one sector that goes bad later does not look like a torn write: that would forget a vote.

A record of entries that is not whole ends the log if it can have been torn: nothing durable lay
behind it. A whole record behind it that was written later than it became durable tells that it is
damaged. The records of the last append are the one place where damage looks like a torn
write.

Crash windows. A replaced file: the old or the new one. Term and vote: the last or the one before,
which was not answered. Snapshot saved, entries not yet rewritten:
the log is longer than it need be, or ends before the snapshot or contradicts it, and then begins
anew behind it. Whatever a killed process left in memory only is synced before it is believed.
"""

import struct
import zlib
from collections.abc import Sequence

from turbopump.controller.raft.actions import (
    AppendEntries,
    SaveSnapshot,
    SaveTerm,
    TruncateFrom,
)
from turbopump.controller.raft.log import Base, Entry, Log, Snapshot
from turbopump.controller.raft.member import Restored
from turbopump.engine.disk import replacing
from turbopump.engine.disk.files import FileLock, Files, MappedFile, sync_above
from turbopump.engine.types import StoreError

CURRENT_TERM = "currterm"
ENTRIES = "entries"
SNAPSHOT = "snapshot"
LOCK = "lock"
TEMPORARY = ".tmp"
SIZE_MIN = 1 << 20
"""Bytes of the file of entries: some thousand events, more than lie between two snapshots."""
SLOT_SIZE = 4096
"""A page: a torn write of one slot leaves the other alone."""
COPY_SIZE = 2048
VOTE_MAX = COPY_SIZE - 32
"""Bytes of the id of the member that got the vote."""

_ENTRIES_MAGIC = b"TPRaftE1"
_SNAPSHOT_MAGIC = b"TPRaftS1"
_VOTE_MAGIC = b"TPRaftV1"
_RECORD_MAGIC = b"\xd1RE1"
_HEADER = struct.Struct(">8sIIqqqq")
_RECORD = struct.Struct(">4sIIIqqqq")
_VOTE = struct.Struct(">8sIIqq")
_AFTER_CRC = 12
_RECORD_AFTER_CRC = 8

Durable = SaveTerm | AppendEntries | TruncateFrom | SaveSnapshot
DURABLE = (SaveTerm, AppendEntries, TruncateFrom, SaveSnapshot)
"""The actions that a storage does."""


class RaftStorage:
    """The files of one folder; `open` it first."""

    def __init__(self, files: Files, folder: str, size_min: int = SIZE_MIN) -> None:
        self._files = files
        self._folder = folder
        self._size_min = size_min
        self._base = Base()
        self._entries: list[Entry] = []
        self._end = 0
        """Where the next record goes."""
        self._mapped: MappedFile | None = None
        self._votes: MappedFile | None = None
        self._vote_number = -1
        """Of the last write of term and vote."""
        self._lock: FileLock | None = None
        self.syncs = 0
        """Made by this object, so that a driver sees what one takes."""

    def open(self) -> Restored:
        """What the last life left, durable. Raises StoreError for damage or a folder in use, and
        OSError."""
        files, folder = self._files, self._folder
        files.make_folders(folder)
        try:
            self._lock = files.lock(self._path(LOCK), b"%d" % files.process_id())
        except BlockingIOError:
            raise StoreError(f"{folder} is used by another process") from None
        try:
            return self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> Restored:
        files = self._files
        term, vote, has_term = self._load_term()
        snapshot = self._load_snapshot()
        log, is_clean = self._load_entries(snapshot)
        entries = self._path(ENTRIES)
        if log is None:
            if has_term or snapshot is not None:
                raise StoreError(f"{entries} is missing")
            log, is_clean = Log(), False
        if not has_term and (log.end >= 0 or snapshot is not None):
            raise StoreError(f"{self._path(CURRENT_TERM)} is missing")
        if log.end_term > term:
            raise StoreError(f"{self._path(CURRENT_TERM)} says term {term}, but the log has later")
        if snapshot is not None and not self._agrees(log, snapshot):
            log, is_clean = Log(snapshot.base), False
        self._base, self._entries = log.base, list(log.entries())
        if not is_clean:
            self._rewrite()
        if not has_term or self._vote_number < 0:
            self._make_votes(term, vote)
        if self._mapped is None:
            self._map()
        if self._votes is None:
            self._votes = files.open(self._path(CURRENT_TERM))
        self._keep()
        return Restored(term, vote, log, snapshot, is_new=not has_term)

    def do(self, actions: Sequence[Durable]) -> None:
        """Do durable actions in order, with as few syncs as that takes: term and vote once, as the
        last of them has it and before the entries of that term; entries that follow each other
        together; nothing that the last snapshot replaces. Raises OSError."""
        terms = [action for action in actions if isinstance(action, SaveTerm)]
        if terms:
            self.save_term(terms[-1].term, terms[-1].vote)
        snapshots = [at for at, one in enumerate(actions) if isinstance(one, SaveSnapshot)]
        entries: list[Entry] = []
        for action in actions[snapshots[-1] if snapshots else 0 :]:
            if isinstance(action, AppendEntries):
                entries += action.entries
                continue
            if entries and not isinstance(action, SaveTerm):
                self.append(tuple(entries))
                entries = []
            if isinstance(action, TruncateFrom):
                self.truncate_from(action.index)
            elif isinstance(action, SaveSnapshot):
                self.save_snapshot(action.snapshot, action.base, action.entries)
        if entries:
            self.append(tuple(entries))

    def save_term(self, term: int, vote: str | None) -> None:
        """Write term and vote into the slot that does not hold the last ones, with one sync."""
        assert self._votes is not None, "not open"
        number = self._vote_number + 1
        at = _slot(number)
        self._votes.region.write(at, _vote_record(number, term, vote))
        self._votes.sync(at, at + SLOT_SIZE)
        self.syncs += 1
        self._vote_number = number

    def append(self, entries: tuple[Entry, ...]) -> None:
        """Entries behind the end; all at once with one sync."""
        assert self._mapped is not None, "not open"
        next_index = self._base.index + len(self._entries) + 1
        assert entries and entries[0].index == next_index, "entries do not follow the log"
        data = b"".join(_record(entry, self._end) for entry in entries)
        start, end = self._end, self._end + len(data)
        self._entries += entries
        if end > self._mapped.size:
            self._rewrite()
            return
        self._mapped.region.write(start, data)
        self._mapped.sync(start, end)
        self.syncs += 1
        self._end = end

    def truncate_from(self, index: int) -> None:
        """Remove entries from `index` on: the file is replaced, so that none comes back."""
        at = index - self._base.index - 1
        assert 0 <= at < len(self._entries), "nothing to cut"
        del self._entries[at:]
        self._rewrite()

    def save_snapshot(self, snapshot: Snapshot, base: Base, entries: tuple[Entry, ...]) -> None:
        """Replace the snapshot, then let the log be what is left of it. Where its file ends with
        these entries, or with the first of them, it is not replaced: what it has before them does
        no harm, and goes when it is full. So a snapshot costs two syncs, seldom more."""
        at = snapshot.base
        head = struct.pack(">Iqqqq", 0, at.index, at.term, at.pos, len(snapshot.data))
        checksum = zlib.crc32(snapshot.data, zlib.crc32(head))
        self._replace(
            SNAPSHOT,
            _SNAPSHOT_MAGIC + checksum.to_bytes(4, "big") + head + snapshot.data,
        )
        kept = self._behind(base)
        if kept is None or tuple(kept) != entries[: len(kept)]:
            self._base, self._entries = base, list(entries)
            self._rewrite()
            return
        self._base, self._entries = base, kept
        if len(kept) < len(entries):
            self.append(entries[len(kept) :])

    def close(self) -> None:
        """Give mappings and lock back."""
        for mapped in (self._mapped, self._votes):
            if mapped is not None:
                mapped.close()
        self._mapped = self._votes = None
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _behind(self, base: Base) -> list[Entry] | None:
        """What the file has behind that; None if that is not in it."""
        at = base.index - self._base.index
        if not 0 <= at <= len(self._entries):
            return None
        term = self._entries[at - 1].term if at else self._base.term
        return self._entries[at:] if term == base.term else None

    # Files as wholes

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name}"

    def _replace(self, name: str, data: bytes) -> None:
        files, path = self._files, self._path(name)
        replacing.replace(files, path, data, TEMPORARY)
        self.syncs += 2

    def _read(self, name: str) -> bytes | None:
        path = self._path(name)
        return self._files.read(path) if self._files.exists(path) else None

    def _keep(self) -> None:
        """A process that was killed may have left all this in memory only, or names of it; a sync
        that failed may have left pages that look written."""
        assert self._mapped is not None and self._votes is not None
        for mapped in (self._mapped, self._votes):
            mapped.touch(0, mapped.size)
            mapped.sync(0, mapped.size)
        if self._files.exists(self._path(SNAPSHOT)):
            self._files.sync(self._path(SNAPSHOT))
        self._files.sync_folder(self._folder)
        sync_above(self._files, self._folder)

    # Term and vote

    def _make_votes(self, term: int, vote: str | None) -> None:
        """The file as a whole: of a new member, or out of the text of an earlier version."""
        self._replace(CURRENT_TERM, _vote_record(0, term, vote).ljust(2 * SLOT_SIZE, b"\0"))
        self._vote_number = 0

    def _load_term(self) -> tuple[int, str | None, bool]:
        data = self._read(CURRENT_TERM)
        if data is None:
            return 0, None, False
        if data.startswith(b"currTerm="):
            return self._load_text(data)
        found = [
            record
            for at in range(0, 2 * SLOT_SIZE, COPY_SIZE)
            if (record := _vote_at(data, at)) is not None
        ]
        if len(data) != 2 * SLOT_SIZE or not found:
            raise StoreError(f"{self._path(CURRENT_TERM)} is damaged: it has no whole record")
        self._vote_number, term, vote = max(found)
        return term, vote or None, True

    def _load_text(self, data: bytes) -> tuple[int, str | None, bool]:
        """DLedger's names and a checksum, as earlier versions wrote them."""
        path = self._path(CURRENT_TERM)
        try:
            first, second, third = data.decode().splitlines()
            text = f"{first}\n{second}\n"
            if third != f"checksum={zlib.crc32(text.encode()):08x}":
                raise ValueError("its checksum does not fit")
            term = int(first.removeprefix("currTerm="))
            return term, second.removeprefix("voteLeader=") or None, True
        except ValueError as error:
            raise StoreError(f"{path} is damaged: {error}") from None

    # Snapshot

    def _load_snapshot(self) -> Snapshot | None:
        data = self._read(SNAPSHOT)
        if data is None:
            return None
        base, size = self._header(SNAPSHOT, data, _SNAPSHOT_MAGIC, len(data))
        if _HEADER.size + size != len(data):
            raise StoreError(f"{self._path(SNAPSHOT)} is damaged: its length does not fit")
        return Snapshot(base, data[_HEADER.size :])

    def _header(self, name: str, data: bytes, magic: bytes, end: int) -> tuple[Base, int]:
        path = self._path(name)
        if len(data) < _HEADER.size:
            raise StoreError(f"{path} is damaged: it has only {len(data)} bytes")
        found, checksum, _zero, index, term, pos, size = _HEADER.unpack_from(data)
        if found != magic:
            raise StoreError(f"{path} is damaged: it does not begin as such a file does")
        if checksum != zlib.crc32(memoryview(data)[_AFTER_CRC:end]):
            raise StoreError(f"{path} is damaged: its checksum does not fit")
        return Base(index, term, pos), size

    def _agrees(self, log: Log, snapshot: Snapshot) -> bool:
        """Whether the log goes on from the snapshot; if not, what it has was replaced by it."""
        return log.term_at(snapshot.base.index) == snapshot.base.term

    # Entries

    def _map(self) -> None:
        self._mapped = self._files.open(self._path(ENTRIES))

    def _rewrite(self) -> None:
        """Replace the file by one of all entries, with room for more."""
        if self._mapped is not None:
            self._mapped.close()
            self._mapped = None
        records = b"".join(_record(entry, 0) for entry in self._entries)
        end = _HEADER.size + len(records)
        base = self._base
        head = struct.pack(">Iqqqq", 0, base.index, base.term, base.pos, end)
        data = _ENTRIES_MAGIC + zlib.crc32(head).to_bytes(4, "big") + head + records
        size = self._size_min
        while size < 2 * end:
            size *= 2
        self._replace(ENTRIES, data.ljust(size, b"\0"))
        self._end = end
        self._map()

    def _load_entries(self, snapshot: Snapshot | None) -> tuple[Log | None, bool]:
        """The log, and whether there is nothing but zeros behind it."""
        data = self._read(ENTRIES)
        if data is None:
            return None, False
        path = self._path(ENTRIES)
        base, made_end = self._header(ENTRIES, data, _ENTRIES_MAGIC, _HEADER.size)
        start = snapshot.base.index if snapshot is not None else -1
        if base.index > start:
            raise StoreError(f"{path} begins with {base.index + 1}, but a snapshot ends at {start}")
        log, at = Log(base), _HEADER.size
        while (entry := _entry_at(data, at)) is not None:
            if entry.index != log.end + 1 or entry.term < log.end_term:
                raise StoreError(f"{path} is damaged: entry {entry.index} at byte {at}")
            log.extend([entry])
            at += entry.size
        if at < max(made_end, _durable_end(data, at)):
            raise StoreError(f"{path} is damaged: entry {log.end + 1} at byte {at}")
        self._end = at
        return log, not data[at:].strip(b"\0")


def _slot(number: int) -> int:
    """Where the slot of a write begins."""
    return number % 2 * SLOT_SIZE


def _vote_record(number: int, term: int, vote: str | None) -> bytes:
    """What a slot holds."""
    voted = (vote or "").encode()
    assert len(voted) <= VOTE_MAX, "the id of a member is too long"
    head = struct.pack(">Iqq", len(voted), number, term)
    checksum = zlib.crc32(head + voted)
    record = _VOTE_MAGIC + checksum.to_bytes(4, "big") + head + voted
    return 2 * record.ljust(COPY_SIZE, b"\0")


def _vote_at(data: bytes, at: int) -> tuple[int, int, str] | None:
    """Number, term and vote of a whole record, or None."""
    if at + _VOTE.size > len(data):
        return None
    magic, checksum, size, number, term = _VOTE.unpack_from(data, at)
    end = at + _VOTE.size + size
    if magic != _VOTE_MAGIC or size > VOTE_MAX or end > len(data):
        return None
    if checksum != zlib.crc32(memoryview(data)[at + _AFTER_CRC : end]):
        return None
    if _slot(number) != at // SLOT_SIZE * SLOT_SIZE:
        return None
    return number, term, data[at + _VOTE.size : end].decode()


def _record(entry: Entry, durable_end: int) -> bytes:
    head = struct.pack(
        ">IIqqqq", len(entry.body), 0, entry.index, entry.term, entry.pos, durable_end
    )
    checksum = zlib.crc32(entry.body, zlib.crc32(head))
    return _RECORD_MAGIC + checksum.to_bytes(4, "big") + head + entry.body


def _entry_at(data: bytes, at: int) -> Entry | None:
    """The entry of a whole record, or None."""
    if at + _RECORD.size > len(data):
        return None
    magic, checksum, size, _zero, index, term, pos, _end = _RECORD.unpack_from(data, at)
    end = at + _RECORD.size + size
    if magic != _RECORD_MAGIC or end > len(data):
        return None
    if checksum != zlib.crc32(memoryview(data)[at + _RECORD_AFTER_CRC : end]):
        return None
    return Entry(index, term, pos, data[at + _RECORD.size : end])


def _durable_end(data: bytes, at: int) -> int:
    """How far records were durable when one of those behind `at` was written."""
    found = 0
    while (at := data.find(_RECORD_MAGIC, at)) >= 0:
        if _entry_at(data, at) is not None:
            found = max(found, _RECORD.unpack_from(data, at)[-1])
        at += 1
    return found
