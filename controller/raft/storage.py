"""The files of a member: term and vote, the log, the snapshot.

Owns their formats and the order in which they become durable: each method returns when its data
will survive a power cut. It must never decide anything, nor guess: a damaged file is reported and
refused, because a member that forgot a vote or an entry could let a second leader be elected. Its
methods run on a disk thread; an OSError ends the member.

`currterm`   term and vote, in two slots that are written in turn, in place
`snapshot`   header, then the state machine's bytes; replaced as a whole
`entries`    header, then records and zeros; appended to in place, replaced as a whole when it is
             full, truncated, or other than the leader's

    snapshot and entries begin alike (big-endian):
    0  8 bytes  magic            8  uint32  CRC-32 of all that follows (entries: of the header)
    12 uint32   0                16 int64   index, 24 int64 term, 32 int64 position after: the base
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

The intact record with the highest number counts. A vote costs one sync: the file does not grow, and
a torn write does not touch the other slot, which was durable before. A slot has its record twice,
so that one sector that fails later does not look like a torn write, which would forget a vote.

A record of entries that is not intact ends the log if it can be a torn write: nothing durable
followed it. An intact later record that was written after the broken one became durable proves
damage. Only among the records of the last append does damage look like a torn write.

Crash windows. A replaced file: the old or the new one. Term and vote: the last ones, or those
before, and no answer was sent for the last. Snapshot saved, entries not yet rewritten: the log is
longer than necessary, or ends before the snapshot or contradicts it, and then starts after it. Data
that a killed process left only in memory is synced before it is used.
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
from turbopump.controller.raft.member_state import Restored
from turbopump.engine.disk import atomic_replace
from turbopump.engine.disk.files import FileLock, Files, MappedFile, sync_parent_folders
from turbopump.engine.types import StoreError

CURRENT_TERM = "currterm"
"""Name of the file of term and vote."""
ENTRIES = "entries"
"""Name of the file of the log."""
SNAPSHOT = "snapshot"
"""Name of the file of the snapshot."""
LOCK = "lock"
"""Name of the file that a running process locks."""
TEMPORARY = ".tmp"
"""Ending of a file's name until the file replaces the old one."""
SIZE_MIN = 1 << 20
"""Bytes of the file of entries, at least: some thousand events, more than between two snapshots."""
SLOT_SIZE = 4096
"""Bytes of a slot of `currterm`: a page, so that a torn write does not touch the other slot."""
COPY_SIZE = 2048
"""Bytes of each of the two copies of the record in a slot."""
VOTE_MAX = COPY_SIZE - 32
"""Bytes of the id of the member that got the vote, at most."""

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
"""An action that `RaftStorage.perform_actions` performs."""
DURABLE = (SaveTerm, AppendEntries, TruncateFrom, SaveSnapshot)
"""The same for `isinstance`."""


class RaftStorage:
    """The files in one folder; `open` it first.

    All methods block, and may raise OSError; afterwards the object must not be used.
    """

    def __init__(self, files: Files, folder: str, size_min: int = SIZE_MIN) -> None:
        self._files = files
        self._folder = folder
        self._size_min = size_min
        self._base = Base()
        self._entries: list[Entry] = []
        self._end = 0
        """Position of the next record."""
        self._mapped: MappedFile | None = None
        self._votes: MappedFile | None = None
        self._vote_number = -1
        """Number of the last write of term and vote."""
        self._lock: FileLock | None = None
        self.syncs = 0
        """Number of syncs, by which a driver measures their duration."""

    def open(self) -> Restored:
        """Lock the folder, made if it is missing, and load and sync the durable state of the
        previous process.

        Raises StoreError for damage or a folder in use, and OSError; the folder is unlocked then.
        """
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
        """Load all files, check that they fit together, and make them durable. Raises
        StoreError."""
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
            raise StoreError(
                f"{self._path(CURRENT_TERM)} has term {term}, but the log has later ones"
            )
        if snapshot is not None and not self._continues(log, snapshot):
            log, is_clean = Log(snapshot.base), False
        self._base, self._entries = log.base, list(log.entries())
        if not is_clean:
            self._rewrite_entries()
        if not has_term or self._vote_number < 0:
            self._make_votes(term, vote)
        if self._mapped is None:
            self._map_entries()
        if self._votes is None:
            self._votes = files.open(self._path(CURRENT_TERM))
        self._sync_all()
        return Restored(term, vote, log, snapshot, is_new=not has_term)

    def perform_actions(self, actions: Sequence[Durable]) -> None:
        """Perform durable actions in order, with as few syncs as possible.

        Term and vote are written once, with the last values, before the entries of that term.
        Consecutive entries are written together, and none that the last snapshot replaces. Raises
        OSError.
        """
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
        """Write term and vote into the slot without the last ones, with one sync."""
        assert self._votes is not None, "not open"
        number = self._vote_number + 1
        at = _slot_position(number)
        self._votes.region.write(at, _vote_record(number, term, vote))
        self._votes.sync(at, at + SLOT_SIZE)
        self.syncs += 1
        self._vote_number = number

    def append(self, entries: tuple[Entry, ...]) -> None:
        """Append entries that continue the log to the file, with one sync; a full file is replaced
        by a larger one, with two."""
        assert self._mapped is not None, "not open"
        next_index = self._base.index + len(self._entries) + 1
        assert entries and entries[0].index == next_index, "entries do not follow the log"
        data = b"".join(_entry_record(entry, self._end) for entry in entries)
        start, end = self._end, self._end + len(data)
        self._entries += entries
        if end > self._mapped.size:
            self._rewrite_entries()
            return
        self._mapped.region.write(start, data)
        self._mapped.sync(start, end)
        self.syncs += 1
        self._end = end

    def truncate_from(self, index: int) -> None:
        """Remove the entry at `index` and all after it, by replacing the file."""
        at = index - self._base.index - 1
        assert 0 <= at < len(self._entries), "nothing to cut"
        del self._entries[at:]
        self._rewrite_entries()

    def save_snapshot(self, snapshot: Snapshot, base: Base, entries: tuple[Entry, ...]) -> None:
        """Replace the snapshot, then adjust the log to `base` and `entries`.

        If the file's entries after `base` are the first of these, the file is not replaced: older
        entries do no harm, and go when it is full. So a snapshot costs two syncs, seldom more.
        """
        at = snapshot.base
        head = struct.pack(">Iqqqq", 0, at.index, at.term, at.pos, len(snapshot.data))
        checksum = zlib.crc32(snapshot.data, zlib.crc32(head))
        self._replace_file(
            SNAPSHOT,
            _SNAPSHOT_MAGIC + checksum.to_bytes(4, "big") + head + snapshot.data,
        )
        kept = self._entries_after(base)
        if kept is None or tuple(kept) != entries[: len(kept)]:
            self._base, self._entries = base, list(entries)
            self._rewrite_entries()
            return
        self._base, self._entries = base, kept
        if len(kept) < len(entries):
            self.append(entries[len(kept) :])

    def close(self) -> None:
        """Close the files and unlock the folder, without a sync; it may be called again."""
        for mapped in (self._mapped, self._votes):
            if mapped is not None:
                mapped.close()
        self._mapped = self._votes = None
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _entries_after(self, base: Base) -> list[Entry] | None:
        """Return the file's entries after `base`; None if the file lacks it."""
        at = base.index - self._base.index
        if not 0 <= at <= len(self._entries):
            return None
        term = self._entries[at - 1].term if at else self._base.term
        return self._entries[at:] if term == base.term else None

    # Whole files

    def _path(self, name: str) -> str:
        """Path of the file `name` in the storage's folder."""
        return f"{self._folder}/{name}"

    def _replace_file(self, name: str, data: bytes) -> None:
        files, path = self._files, self._path(name)
        atomic_replace.replace(files, path, data, TEMPORARY)
        self.syncs += 2

    def _read_file(self, name: str) -> bytes | None:
        """Content of a file in the folder; None if it is missing."""
        path = self._path(name)
        return self._files.read(path) if self._files.exists(path) else None

    def _sync_all(self) -> None:
        """Sync all files and folders.

        A killed process may have left data or names only in memory; a failed sync may have left
        pages that look written.
        """
        assert self._mapped is not None and self._votes is not None
        for mapped in (self._mapped, self._votes):
            mapped.mark_dirty(0, mapped.size)
            mapped.sync(0, mapped.size)
        if self._files.exists(self._path(SNAPSHOT)):
            self._files.sync(self._path(SNAPSHOT))
        self._files.sync_folder(self._folder)
        sync_parent_folders(self._files, self._folder)

    # Term and vote

    def _make_votes(self, term: int, vote: str | None) -> None:
        """Write the whole file of term and vote, for a new member or in place of an
        earlier version's text."""
        self._replace_file(CURRENT_TERM, _vote_record(0, term, vote).ljust(2 * SLOT_SIZE, b"\0"))
        self._vote_number = 0

    def _load_term(self) -> tuple[int, str | None, bool]:
        """Load (term, vote, whether the file exists). Raises StoreError for a damaged file."""
        data = self._read_file(CURRENT_TERM)
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
        """Decode the file of earlier versions, a text with DLedger's names and a checksum: (term,
        vote, True). Raises StoreError."""
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
        """Load the snapshot; None without a file. Raises StoreError if it is damaged."""
        data = self._read_file(SNAPSHOT)
        if data is None:
            return None
        base, size = self._read_header(SNAPSHOT, data, _SNAPSHOT_MAGIC, len(data))
        if _HEADER.size + size != len(data):
            raise StoreError(f"{self._path(SNAPSHOT)} is damaged: its length does not fit")
        return Snapshot(base, data[_HEADER.size :])

    def _read_header(self, name: str, data: bytes, magic: bytes, end: int) -> tuple[Base, int]:
        """Decode the header of a file: (base, length of the data or durable end); the checksum
        covers the bytes up to `end`. Raises StoreError."""
        path = self._path(name)
        if len(data) < _HEADER.size:
            raise StoreError(f"{path} is damaged: it has only {len(data)} bytes")
        found, checksum, _zero, index, term, pos, size = _HEADER.unpack_from(data)
        if found != magic:
            raise StoreError(f"{path} is damaged: its first bytes are of no such file")
        if checksum != zlib.crc32(memoryview(data)[_AFTER_CRC:end]):
            raise StoreError(f"{path} is damaged: its checksum does not fit")
        return Base(index, term, pos), size

    def _continues(self, log: Log, snapshot: Snapshot) -> bool:
        """Whether the log continues from the snapshot; if not, the snapshot replaced it."""
        return log.term_at(snapshot.base.index) == snapshot.base.term

    # Entries

    def _map_entries(self) -> None:
        self._mapped = self._files.open(self._path(ENTRIES))

    def _rewrite_entries(self) -> None:
        """Replace the file of entries by a file with all of them and room for more."""
        if self._mapped is not None:
            self._mapped.close()
            self._mapped = None
        records = b"".join(_entry_record(entry, 0) for entry in self._entries)
        end = _HEADER.size + len(records)
        base = self._base
        head = struct.pack(">Iqqqq", 0, base.index, base.term, base.pos, end)
        data = _ENTRIES_MAGIC + zlib.crc32(head).to_bytes(4, "big") + head + records
        size = self._size_min
        while size < 2 * end:
            size *= 2
        self._replace_file(ENTRIES, data.ljust(size, b"\0"))
        self._end = end
        self._map_entries()

    def _load_entries(self, snapshot: Snapshot | None) -> tuple[Log | None, bool]:
        """Load the log; return it and whether only zeros follow it."""
        data = self._read_file(ENTRIES)
        if data is None:
            return None, False
        path = self._path(ENTRIES)
        base, made_end = self._read_header(ENTRIES, data, _ENTRIES_MAGIC, _HEADER.size)
        start = snapshot.base.index if snapshot is not None else -1
        if base.index > start:
            raise StoreError(f"{path} begins with {base.index + 1}, but a snapshot ends at {start}")
        log, at = Log(base), _HEADER.size
        while (entry := _entry_at(data, at)) is not None:
            if entry.index != log.end + 1 or entry.term < log.end_term:
                raise StoreError(f"{path} is damaged: entry {entry.index} at byte {at}")
            log.append_entries([entry])
            at += entry.size
        if at < max(made_end, _durable_end(data, at)):
            raise StoreError(f"{path} is damaged: entry {log.end + 1} at byte {at}")
        self._end = at
        return log, not data[at:].strip(b"\0")


def _slot_position(number: int) -> int:
    """Return the position in `currterm` of the slot for write `number`."""
    return number % 2 * SLOT_SIZE


def _vote_record(number: int, term: int, vote: str | None) -> bytes:
    """Encode term and vote as the record of write `number`, for a slot of `currterm`."""
    voted = (vote or "").encode()
    assert len(voted) <= VOTE_MAX, "the id of a member is too long"
    head = struct.pack(">Iqq", len(voted), number, term)
    checksum = zlib.crc32(head + voted)
    record = _VOTE_MAGIC + checksum.to_bytes(4, "big") + head + voted
    return 2 * record.ljust(COPY_SIZE, b"\0")


def _vote_at(data: bytes, at: int) -> tuple[int, int, str] | None:
    """Return number, term and vote of an intact record, or None."""
    if at + _VOTE.size > len(data):
        return None
    magic, checksum, size, number, term = _VOTE.unpack_from(data, at)
    end = at + _VOTE.size + size
    if magic != _VOTE_MAGIC or size > VOTE_MAX or end > len(data):
        return None
    if checksum != zlib.crc32(memoryview(data)[at + _AFTER_CRC : end]):
        return None
    if _slot_position(number) != at // SLOT_SIZE * SLOT_SIZE:
        return None
    return number, term, data[at + _VOTE.size : end].decode()


def _entry_record(entry: Entry, durable_end: int) -> bytes:
    """Encode an entry as a record of the file; `durable_end` is the byte before which the file's
    records are durable."""
    head = struct.pack(
        ">IIqqqq", len(entry.body), 0, entry.index, entry.term, entry.pos, durable_end
    )
    checksum = zlib.crc32(entry.body, zlib.crc32(head))
    return _RECORD_MAGIC + checksum.to_bytes(4, "big") + head + entry.body


def _entry_at(data: bytes, at: int) -> Entry | None:
    """Return the entry of the record at position `at`; None if that record is not intact."""
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
    """Return the greatest durable end that the intact records from position `at` on contain."""
    found = 0
    while (at := data.find(_RECORD_MAGIC, at)) >= 0:
        if _entry_at(data, at) is not None:
            found = max(found, _RECORD.unpack_from(data, at)[-1])
        at += 1
    return found
