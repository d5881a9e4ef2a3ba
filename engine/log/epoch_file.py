"""The files of the epoch list: a change is one sync, what is read is read with distrust.

Owns the file, its second copy, the lines beside them and what may be believed of a damaged one. It
must never decide what the list should say. Called by the node when it opens a store and by all
that changes its epochs.

Every change is durable before it is spoken of (law 4), and comes behind the change of the log it
belongs to: a cut log whose list still has the entries behind the cut is put right at the next open.

A change is a line in X.changes (epoch_lines.py), synced once. X itself, in RocketMQ's form, and its
second copy follow while the broker goes on (`folding`), at a clean stop before it is over. RocketMQ
reads X alone: where the broker was killed amid a change of role that list lacks the last change.

The second copy, X.bak, is RocketMQ's name and text, with two lines more that RocketMQ passes over:
CURRENT, and the number of the list. It is replaced behind X. What a crash leaves:

    before the line, or a torn one     X, X.bak and the whole lines are the list before
    the line                           its number is above that of X.bak: it is the list
    X replaced                         the same: X.bak has the older number still
    X.bak replaced                     the line counts no more, X has the list

So X.bak with the lines tells the whole truth where X is damaged, and X does once X.bak has its
number. An X.bak without a number is RocketMQ's or an older version's, which know nothing of lines:
they count for nothing then, and X is believed. RocketMQ's own X.bak is the list before the last
change: with it, bytes written in the last epoch would look like an older one's, and a truncation
would keep what must go (S4). Of such a copy only what lies below the start of its last entry is
believed.

A store with messages but without a believable list is no new store (S1). It may not be elected; as
a replica it gives up what it cannot label, and has it again from the master.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import partial

from turbopump.engine.config import EPOCH_FILE as EPOCH_FILE
from turbopump.engine.disk import replacing
from turbopump.engine.disk.files import Files, sync_above
from turbopump.engine.log import epoch_lines
from turbopump.engine.log.epoch_lines import CURRENT as CURRENT
from turbopump.engine.log.epochs import Epochs, EpochsDamaged, decode
from turbopump.engine.types import LogOffset, StoreError
from turbopump.pyx.crc32 import masked_crc32

logger = logging.getLogger(__name__)

BACKUP = ".bak"
DAMAGED = ".damaged"
MARK_FILE = "replicated"
"""Beside the list: there is one, or there was."""
PLAIN_MARK_FILE = "copied"
"""Bytes of another log were appended by default HA, which has no list."""
WHOLE_MARK_FILE = "copiedWhole"
"""Bytes of another log were written as whole records since the last start, or the one before."""


class Trust(Enum):
    """What an epoch list is worth."""

    NEW = "NEW"
    """There is no list, and no byte that would need one."""
    WHOLE = "WHOLE"
    UNPROVEN = "UNPROVEN"
    """Some bytes have no label that can be believed: see `believed_end`."""


@dataclass(slots=True)
class _Found:
    """The two copies as they were read; None: missing or damaged."""

    main: Epochs | None
    backup: Epochs | None
    backup_is_current: bool
    reason: str
    number: int | None
    """Of the list that both have; None where nothing says so, and lines count for nothing."""


class EpochFile:
    """The epochs of one store."""

    def __init__(self, files: Files, path: str) -> None:
        """Of `open`."""
        self._files = files
        self._path = path
        self._names_synced = False
        self._number = 0
        """Of the newest list, also of one that could not be written."""
        self._kept: int | None = None
        """The number that X and X.bak have; None: they have none, and are to be written first."""
        self._lines_end = 0
        self._writing: int | None = None
        """Of the change under way: where its line ends, 0 if it replaces the copies; None: none."""
        self._has_lines = False
        """Whether the file of lines is there, durably."""
        self.epochs = Epochs()
        self.trust = Trust.NEW
        self.reason = ""
        """Why the list is unproven, for the operator."""
        self._proven_end = LogOffset(0)
        self.lost_from: LogOffset | None = None
        """The log once reached this offset and no longer does: it lost bytes in a crash."""

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
        """Read the list of a log that holds [log_min, log_end), and put right what a crash left.

        `never_kept` says that a list that is not there was never there: no byte has a label.
        Raises StoreError if the disk fails: a list that cannot be read is not a damaged one.
        """
        self = cls(files, path)
        try:
            self._load(log_min, log_end, never_kept)
        except OSError as error:
            raise StoreError(f"{path} cannot be used: {error}") from error
        return self

    @property
    def may_lead(self) -> bool:
        """Whether a master may be made of this store as far as its epochs go."""
        return self.trust is not Trust.UNPROVEN

    def believed_end(self, log_end: LogOffset) -> LogOffset:
        """Up to where the list tells the truth about a log that ends at `log_end`."""
        return min(self._proven_end, log_end) if self.trust is Trust.UNPROVEN else log_end

    def append(self, epoch: int, start: LogOffset) -> None:
        """Record a new epoch; durable on return. Raises OSError, ValueError; nothing changed then.

        An unproven list takes none: its bytes would get the label of a later epoch.
        """
        if self.trust is Trust.UNPROVEN:
            raise ValueError(f"no epoch can follow: {self.reason}")
        self._replace(self.epochs.appended(epoch, start))

    def cut(self, log_end: LogOffset) -> None:
        """After the log was cut at `log_end`. Raises OSError."""
        if self.trust is Trust.UNPROVEN:
            self._proven_end = min(self._proven_end, log_end)
        else:
            self._replace(self.epochs.cut(log_end))

    def expire(self, log_min: LogOffset) -> None:
        """After retention removed what was before `log_min`. Raises OSError."""
        if self.trust is not Trust.UNPROVEN:
            self._replace(self.epochs.without_expired(log_min))

    def adopt(self, epochs: Epochs) -> None:
        """Take a list that was shown to label this log, as a handshake does. Raises OSError."""
        self._replace(epochs)
        self.trust, self.reason = Trust.WHOLE, ""

    def begin_lines(self) -> None:
        """Before the first change: have the file of lines, so that each costs one sync. Raises
        OSError. Without it each replaces both copies."""
        files, path = self._files, self._path + epoch_lines.SUFFIX
        folder = _folder(path)
        files.make_folders(folder)
        if not files.exists(path):
            files.write(path, b"")
            files.sync(path)
        replacing.sync_names(files, path)
        self._sync_names()
        self._has_lines = True

    def writing(self, epochs: Epochs) -> Callable[[], None] | None:
        """What makes a list durable, for a disk's thread; None if it is. `took` is to follow if the
        work did not fail, and no other change may begin meanwhile. The work raises OSError."""
        self._writing = None
        if epochs == self.epochs and self.trust is not Trust.UNPROVEN:
            return None
        self._number += 1
        if self._kept is None or not self._has_lines:
            self._writing = 0
            return partial(self._write, epochs, self._number)
        if self._kept == self._number - 1:
            self._lines_end = 0  # the copies have all that was recorded
        line = epoch_lines.encode(self._number, epochs)
        self._writing = self._lines_end + len(line)
        return partial(self._add, self._lines_end, line)

    def took(self, epochs: Epochs) -> None:
        """The list that was written is the list now: it labels this log."""
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
        """Whether X and X.bak lack what a line has, or a line has what failed. An empty list is not
        written where there is none: messages of before there were epochs would look labelled."""
        has_any = self._kept is not None and (self._kept > 0 or bool(self.epochs.entries))
        return has_any and self._kept != self._number

    def folding(self) -> tuple[Callable[[], None], Callable[[], None]]:
        """(what has X and X.bak follow, for a disk's thread; what is to be called if that did not
        fail). Not while a change is under way; changes may come meanwhile, cuts of the log too. The
        work raises OSError."""
        number, epochs = self._number, self.epochs

        def took() -> None:
            self._kept = number

        return partial(self._write, epochs, number), took

    def fold(self) -> None:
        """Have X and X.bak follow now. Raises OSError."""
        if self.is_behind:
            work, took = self.folding()
            work()
            took()

    def _load(self, log_min: LogOffset, log_end: LogOffset, never_kept: bool) -> None:
        found = self._read_both(never_kept)
        newest = self._read_lines()
        in_lines = newest is not None and found.number is not None and newest[0] > found.number
        copies = found.main, found.backup if found.backup_is_current else None
        self._kept = found.number
        self._number = max(found.number or 0, newest[0] if newest else 0)
        if newest is not None and in_lines:
            found.main, found.backup, self._lines_end = newest[1], None, newest[2]
        if found.main is not None and (found.main.entries or log_min == log_end):
            self._believe(found.main, log_end)
        elif found.backup is not None and found.backup_is_current and found.backup.entries:
            logger.warning("%s: %s; restored from its second copy", self._path, found.reason)
            self._believe(found.backup, log_end)
        elif log_min == log_end or (never_kept and found.main is None and not found.reason):
            if found.reason:
                logger.warning("%s: %s; the log is empty and needs none", self._path, found.reason)
        else:
            self._distrust(found, log_min, log_end)
            return
        if copies[0] is not None:  # a killed process may have left it in memory only
            self._files.sync(self._path)
            self._files.sync_folder(_folder(self._path))
        is_kept = copies == (self.epochs, self.epochs) and found.number is not None
        if self.epochs.entries and not is_kept:
            self._number += 1
            self._write(self.epochs, self._number)
            self._kept = self._number

    def _believe(self, epochs: Epochs, log_end: LogOffset) -> None:
        self.epochs = epochs.within(log_end)
        if len(self.epochs) < len(epochs):
            self.lost_from = epochs.entries[-1].start
            logger.warning(
                "%s: the log ends at %d, an epoch began at %d", self._path, log_end, self.lost_from
            )
        if self.epochs.entries:
            self.trust = Trust.WHOLE

    def _distrust(self, found: _Found, log_min: LogOffset, log_end: LogOffset) -> None:
        """The log has bytes and no list says whose; an older list tells of some of them."""
        self.trust = Trust.UNPROVEN
        self.reason = f"{self._path}: {found.reason or 'it is missing, but there are messages'}"
        self._proven_end = log_min
        if found.backup is not None and found.backup.entries:
            last = found.backup.entries[-1].start
            self._proven_end = LogOffset(max(log_min, min(last, log_end)))
            self.epochs = found.backup.cut(self._proven_end)
        logger.error("%s; believed up to %d of %d", self.reason, self._proven_end, log_end)

    def _read_lines(self) -> tuple[int, Epochs, int] | None:
        path = self._path + epoch_lines.SUFFIX
        return epoch_lines.newest(self._files.read(path)) if self._files.exists(path) else None

    def _read_both(self, never_kept: bool) -> _Found:
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
        return _Found(
            main[0] if main else None,
            backup[0] if backup else None,
            is_current,
            reasons[0] if reasons else "",
            number,
        )

    def _replace(self, epochs: Epochs) -> None:
        work = self.writing(epochs)
        was = self.trust
        if work is not None:
            work()
            self.took(epochs)
        self.trust = Trust.WHOLE if epochs.entries else was

    def _add(self, position: int, line: bytes) -> None:
        """The one sync of a change."""
        path = self._path + epoch_lines.SUFFIX
        self._files.write(path, line, position)
        self._files.sync(path)

    def _write(self, epochs: Epochs, number: int) -> None:
        """X, then X.bak with the number: until that is there a line of the list still counts. Where
        there is no X yet it comes behind X.bak: without a number no line would count. A damaged
        file is kept."""
        files, path = self._files, self._path
        folder = _folder(path)
        files.make_folders(folder)
        self._sync_names()
        if self.trust is Trust.UNPROVEN and files.exists(path):
            files.write(path + DAMAGED, files.read(path))
        text = epochs.encode()
        copies = [(path, text), (path + BACKUP, _marked(text, number))]
        if not files.exists(path):
            copies.reverse()
        for target, content in copies:
            replacing.replace(files, target, content)

    def _sync_names(self) -> None:
        if not self._names_synced:
            sync_above(self._files, _folder(self._path))
            self._names_synced = True


def _folder(path: str) -> str:
    return path.rpartition("/")[0] or "."


def _marked(text: bytes, number: int) -> bytes:
    """The text of a copy that is current, with that word and its number, under the checksum."""
    count, _checksum, lines = text.split(b"\n", 2)
    lines += CURRENT + b"\nnumber %d\n" % number
    return b"%d\n%d\n%b" % (int(count), masked_crc32(lines), lines)
