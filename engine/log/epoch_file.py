"""The files of the epoch list: a change costs one sync, and damaged copies are recognized.

Owns the file, its second copy, the lines file beside them, and the rules which copy is valid after
a crash or damage. It must never decide which epochs the list should have.

Every change is durable before anything else reports it (law 4), and follows the change of the log
that it belongs to: the next open repairs a list with entries after the end of a cut log.

A change is a line in X.changes (epoch_lines.py), synced once. X itself, in RocketMQ's form, and its
second copy are written later while the broker runs (`write_copies_work`), or before a clean stop
ends. RocketMQ reads X alone: if the broker was killed during a change of role, X lacks the last
change.

The second copy, X.bak, has RocketMQ's name and text, and two more lines that RocketMQ ignores:
CURRENT, and the number of the list. It is replaced after X. State of the files after a crash:

    before the line, or a torn line    X, X.bak and the whole lines have the list before
    after the line                     its number is above that of X.bak: it has the list
    after X was replaced               the same: X.bak still has the older number
    after X.bak was replaced           the line does not count, X has the list

So X.bak with the lines has the valid list if X is damaged, and X has it once X.bak has its number.
An X.bak without a number was written by RocketMQ or an older version, which do not write lines:
then lines are ignored and X is valid. RocketMQ's own X.bak is the list before the last change. With
it, bytes of the last epoch would get the label of an older epoch, and a truncation would keep bytes
that must go (S4). Of such a copy, only the part below the start of its last entry is used.

A store with messages but without a valid list is not a new store (S1). It may not be elected; as a
replica it cuts the bytes that it cannot label, and copies them again from the master.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import partial

from turbopump.engine.config import EPOCH_FILE as EPOCH_FILE
from turbopump.engine.disk import atomic_replace
from turbopump.engine.disk.files import Files, sync_parent_folders
from turbopump.engine.log import epoch_lines
from turbopump.engine.log.epoch_lines import CURRENT as CURRENT
from turbopump.engine.log.epochs import Epochs, EpochsDamaged, decode
from turbopump.engine.types import LogOffset, StoreError
from turbopump.pyx.crc32 import masked_crc32

logger = logging.getLogger(__name__)

BACKUP = ".bak"
"""Suffix of the second copy after the epoch file's name."""
DAMAGED = ".damaged"
"""Suffix of the copy that is made of a damaged X before X is replaced."""
MARK_FILE = "replicated"
"""Beside the list: a list exists or existed, so a missing list is a loss."""
PLAIN_MARK_FILE = "copied"
"""Default HA, which has no epoch list, appended bytes of another log."""
WHOLE_MARK_FILE = "copiedWhole"
"""The bytes copied from another log were whole records since the last start or the start before."""


class Trust(Enum):
    """Whether an epoch list labels all bytes of its log correctly."""

    NEW = "NEW"
    """There is no list, and no byte that needs a label."""
    WHOLE = "WHOLE"
    """The list labels every byte of the log from its first entry on."""
    UNPROVEN = "UNPROVEN"
    """Some bytes have no valid label: see `believed_end`."""


@dataclass(slots=True)
class _ReadCopies:
    """The epoch file and its second copy as read from the disk; None for a copy that is missing or
    damaged."""

    main: Epochs | None
    backup: Epochs | None
    backup_is_current: bool
    reason: str
    number: int | None
    """Number of the list that both copies have; None if the second copy has no number, and then
    lines are ignored."""


class EpochFile:
    """The epoch list of a store and its files. Methods that change the list block for the disk, and
    the change is durable when they return."""

    def __init__(self, files: Files, path: str) -> None:
        """Make an unread list; use `open`."""
        self._files = files
        self._path = path
        self._names_synced = False
        self._number = 0
        """Number of the newest list, even if writing it failed."""
        self._kept: int | None = None
        """Number of the list in X and X.bak; None: they have no number and must be written
        first."""
        self._lines_end = 0
        self._writing: int | None = None
        """Change under way: position after its line, 0 if it replaces both copies; None: no
        change."""
        self._has_lines = False
        """Whether the lines file exists, durably."""
        self.epochs = Epochs()
        """The current list; if `trust` is UNPROVEN, its valid part."""
        self.trust = Trust.NEW
        """Validity of the list since `open`."""
        self.reason = ""
        """Reason why `trust` is UNPROVEN, as a text for the operator; "" otherwise."""
        self._proven_end = LogOffset(0)
        self.lost_from: LogOffset | None = None
        """Start of the last entry that `open` dropped because the log ends before it: the log lost
        bytes in a crash. None if no entry was dropped."""

    @classmethod
    def open(
        cls,
        files: Files,
        path: str,
        log_min: LogOffset,
        log_end: LogOffset,
        *,
        never_kept: bool = False,
    ) -> "EpochFile":
        """Read the list of a log that holds [log_min, log_end), and repair the effects of a crash
        in both copies; `path` is that of the epoch file. A damaged or missing list raises nothing:
        see `trust`.

        With `never_kept` a missing list never existed, so no byte has a label. Raises StoreError if
        the disk fails: an unreadable list is not a damaged list.
        """
        self = cls(files, path)
        try:
            self._load(log_min, log_end, never_kept)
        except OSError as error:
            raise StoreError(f"{path} cannot be used: {error}") from error
        return self

    @property
    def may_lead(self) -> bool:
        """Whether the epoch list allows this store to become a master's: unless it is UNPROVEN."""
        return self.trust is not Trust.UNPROVEN

    def believed_end(self, log_end: LogOffset) -> LogOffset:
        """Log offset up to which the list labels the bytes correctly, in a log that ends at
        `log_end`: all of the log unless `trust` is UNPROVEN."""
        return min(self._proven_end, log_end) if self.trust is Trust.UNPROVEN else log_end

    def append(self, epoch: int, start: LogOffset) -> None:
        """Record that the master of `epoch`, above all others, writes from log offset `start` on.
        Raises OSError or ValueError, and then nothing changed.

        An unproven list takes no epoch, because its unlabelled bytes would get the label of a later
        one.
        """
        if self.trust is Trust.UNPROVEN:
            raise ValueError(f"no epoch can follow: {self.reason}")
        self._replace_list(self.epochs.with_epoch(epoch, start))

    def cut_entries(self, log_end: LogOffset) -> None:
        """Remove the entries that start at `log_end` or later, where the log was cut. If `trust` is
        UNPROVEN, only lower `believed_end`. Raises OSError."""
        if self.trust is Trust.UNPROVEN:
            self._proven_end = min(self._proven_end, log_end)
        else:
            self._replace_list(self.epochs.cut_at(log_end))

    def begin_lines(self) -> None:
        """Create the lines file unless it exists, durably, so that each later change costs one
        sync. Before this call each change replaces both copies. Raises OSError."""
        files, path = self._files, self._path + epoch_lines.SUFFIX
        folder = _parent_folder(path)
        files.make_folders(folder)
        if not files.exists(path):
            files.write(path, b"")
            files.sync(path)
        atomic_replace.sync_names(files, path)
        self._sync_names()
        self._has_lines = True

    def write_work(self, epochs: Epochs) -> Callable[[], None] | None:
        """Return work for a disk thread that makes `epochs` durable; None if they are the current
        list already. `self.epochs` is unchanged: call `set_written` with the same list if the work
        succeeds, and begin no other change meanwhile. The work raises OSError."""
        self._writing = None
        if epochs == self.epochs and self.trust is not Trust.UNPROVEN:
            return None
        self._number += 1
        if self._kept is None or not self._has_lines:
            self._writing = 0
            return partial(self._write_copies, epochs, self._number)
        if self._kept == self._number - 1:
            self._lines_end = 0  # the copies have all recorded changes
        line = epoch_lines.encode(self._number, epochs)
        self._writing = self._lines_end + len(line)
        return partial(self._write_line, self._lines_end, line)

    def set_written(self, epochs: Epochs) -> None:
        """Make `epochs`, the list of the last `write_work`, the current list in memory; call this
        only after its work has succeeded, or if `write_work` returned None."""
        if self._writing == 0:
            self._kept = self._number
        elif self._writing is not None:
            self._lines_end = self._writing
        self._writing = None
        self.epochs = epochs
        if epochs.entries or self.trust is Trust.UNPROVEN:
            self.trust, self.reason = Trust.WHOLE, ""

    @property
    def is_behind(self) -> bool:
        """Whether the epoch file and its second copy lack a recorded change, or a failed change
        used up a number. False for an empty list without files: if it were written, messages older
        than the first epoch would look labelled."""
        has_any = self._kept is not None and (self._kept > 0 or bool(self.epochs.entries))
        return has_any and self._kept != self._number

    def write_copies_work(self) -> tuple[Callable[[], None], Callable[[], None]]:
        """Return (work for a disk thread that writes the current list into the epoch file and its
        second copy, callback for the loop thread after its success). Must not be called during a
        change; changes and cuts of the log may come while the work runs. The work raises OSError.
        """
        number, epochs = self._number, self.epochs

        def succeeded() -> None:
            self._kept = number

        return partial(self._write_copies, epochs, number), succeeded

    def write_copies(self) -> None:
        """Write the current list into the epoch file and its second copy now, if `is_behind`.
        Blocks for the disk. Raises OSError."""
        if self.is_behind:
            work, succeeded = self.write_copies_work()
            work()
            succeeded()

    def _load(self, log_min: LogOffset, log_end: LogOffset, never_kept: bool) -> None:
        """Set `epochs` and `trust` by the newest valid copy or line, and make that copy durable."""
        found = self._read_both(never_kept)
        newest = self._read_lines()
        in_lines = newest is not None and found.number is not None and newest[0] > found.number
        copies = found.main, found.backup if found.backup_is_current else None
        self._kept = found.number
        self._number = max(found.number or 0, newest[0] if newest else 0)
        if newest is not None and in_lines:
            found.main, found.backup, self._lines_end = newest[1], None, newest[2]
        if found.main is not None and (found.main.entries or log_min == log_end):
            self._trust_list(found.main, log_end)
        elif found.backup is not None and found.backup_is_current and found.backup.entries:
            logger.warning("%s: %s; restored from its second copy", self._path, found.reason)
            self._trust_list(found.backup, log_end)
        elif log_min == log_end or (never_kept and found.main is None and not found.reason):
            if found.reason:
                logger.warning("%s: %s; the log is empty and needs none", self._path, found.reason)
        else:
            self._mark_unproven(found, log_min, log_end)
            return
        if copies[0] is not None:  # a killed process may have left the copy in memory only
            self._files.sync(self._path)
            self._files.sync_folder(_parent_folder(self._path))
        is_kept = copies == (self.epochs, self.epochs) and found.number is not None
        if self.epochs.entries and not is_kept:
            self._number += 1
            self._write_copies(self.epochs, self._number)
            self._kept = self._number

    def _trust_list(self, epochs: Epochs, log_end: LogOffset) -> None:
        """Make a valid list the current list, without entries that start after the log's end."""
        self.epochs = epochs.limited_to(log_end)
        if len(self.epochs) < len(epochs):
            self.lost_from = epochs.entries[-1].start
            logger.warning(
                "%s: the log ends at %d, dropped the epoch that began at %d",
                self._path,
                log_end,
                self.lost_from,
            )
        if self.epochs.entries:
            self.trust = Trust.WHOLE

    def _mark_unproven(self, found: _ReadCopies, log_min: LogOffset, log_end: LogOffset) -> None:
        """Mark the list unproven: the log has bytes without a valid list. An older second copy
        still labels some of them."""
        self.trust = Trust.UNPROVEN
        self.reason = f"{self._path}: {found.reason or 'it is missing, but there are messages'}"
        self._proven_end = log_min
        if found.backup is not None and found.backup.entries:
            last = found.backup.entries[-1].start
            self._proven_end = LogOffset(max(log_min, min(last, log_end)))
            self.epochs = found.backup.cut_at(self._proven_end)
        logger.error(
            "%s; the list is valid up to log offset %d of %d",
            self.reason,
            self._proven_end,
            log_end,
        )

    def _read_lines(self) -> tuple[int, Epochs, int] | None:
        """The result of `epoch_lines.read_newest_line` for the lines file; None without a file or a
        valid line."""
        path = self._path + epoch_lines.SUFFIX
        return (
            epoch_lines.read_newest_line(self._files.read(path))
            if self._files.exists(path)
            else None
        )

    def _read_both(self, never_kept: bool) -> _ReadCopies:
        """Read and decode the epoch file and its second copy."""
        reasons = []
        copies: list[tuple[Epochs, list[bytes]] | None] = []
        for path in (self._path, self._path + BACKUP):
            copies.append(None)
            if not self._files.exists(path):
                continue
            try:
                copies[-1] = decode(self._files.read(path))
            except EpochsDamaged as error:
                reasons.append(str(error))
        main, backup = copies
        if main is not None and not main[0].entries:
            reasons.append("it has no entries")
        is_current = backup is not None and CURRENT in backup[1]
        number = epoch_lines.number_of(backup[1]) if backup is not None else None
        if never_kept and copies == [None, None] and not reasons:
            number = 0
        return _ReadCopies(
            main[0] if main else None,
            backup[0] if backup else None,
            is_current,
            reasons[0] if reasons else "",
            number,
        )

    def _replace_list(self, epochs: Epochs) -> None:
        """Make `epochs` the current list, durably; blocks for the disk. Raises OSError."""
        work = self.write_work(epochs)
        was = self.trust
        if work is not None:
            work()
            self.set_written(epochs)
        self.trust = Trust.WHOLE if epochs.entries else was

    def _write_line(self, position: int, line: bytes) -> None:
        """Write the line of a change at a position of the lines file, durably, with one sync."""
        path = self._path + epoch_lines.SUFFIX
        self._files.write(path, line, position)
        self._files.sync(path)

    def _write_copies(self, epochs: Epochs, number: int) -> None:
        """Write X, then X.bak with the number: until X.bak has it, a line of this list still
        counts. If X does not exist, X.bak is written first, because without a number no line would
        count. A damaged X is kept as X.damaged."""
        files, path = self._files, self._path
        folder = _parent_folder(path)
        files.make_folders(folder)
        self._sync_names()
        if self.trust is Trust.UNPROVEN and files.exists(path):
            files.write(path + DAMAGED, files.read(path))
        text = epochs.encode()
        copies = [(path, text), (path + BACKUP, _with_number(text, number))]
        if not files.exists(path):
            copies.reverse()
        for target, content in copies:
            atomic_replace.replace(files, target, content)

    def _sync_names(self) -> None:
        """Make the names of the folders above the epoch file durable, once."""
        if not self._names_synced:
            sync_parent_folders(self._files, _parent_folder(self._path))
            self._names_synced = True


def _parent_folder(path: str) -> str:
    return path.rpartition("/")[0] or "."


def _with_number(text: bytes, number: int) -> bytes:
    """The text of a current second copy: with CURRENT and the number, covered by the checksum."""
    count, _checksum, lines = text.split(b"\n", 2)
    lines += CURRENT + b"\nnumber %d\n" % number
    return b"%d\n%d\n%b" % (int(count), masked_crc32(lines), lines)
