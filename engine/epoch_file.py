"""The file of the epoch list: replaced whole and durably, read with distrust.

Owns the file, its second copy and what may be believed of a damaged one. It must never decide what
the list should say. Called by the node when it opens a store and by whoever changes its epochs.

Every change is durable before it is spoken of (law 4), and comes behind the change of the log it
belongs to: a cut log whose list still has the entries behind the cut is put right at the next open.

The second copy, X.bak, is RocketMQ's name and text, with one line more that RocketMQ passes over:
CURRENT. It is replaced before X, so it is never older than X, and either of the two alone tells the
whole truth. RocketMQ's own X.bak is the list before the last change: with it, bytes written in the
last epoch would look like an older one's, and a truncation would keep what must go (S4). Of such a
copy only what lies below the start of its last entry is believed.

A store with messages but without a believable list is no new store (S1). It may not be elected; as
a replica it gives up what it cannot label, and has it again from the master.
"""

import logging
from dataclasses import dataclass
from enum import Enum

from turbopump.engine.epochs import Epochs, EpochsDamaged, decode
from turbopump.engine.files import Files, sync_above
from turbopump.engine.types import LogOffset, StoreError
from turbopump.pyx.crc32 import masked_crc32

logger = logging.getLogger(__name__)

EPOCH_FILE = "epochFileCheckpoint"
BACKUP = ".bak"
TEMPORARY = ".tmp"
DAMAGED = ".damaged"
CURRENT = b"current"
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


class EpochFile:
    """The epochs of one store."""

    def __init__(self, files: Files, path: str) -> None:
        """Of `open`."""
        self._files = files
        self._path = path
        self._names_synced = False
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

    def _load(self, log_min: LogOffset, log_end: LogOffset, never_kept: bool) -> None:
        found = self._read_both()
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
        copies = found.main, found.backup if found.backup_is_current else None
        if found.main is not None:  # a killed process may have left it in memory only
            self._files.sync(self._path)
            self._files.sync_folder(_folder(self._path))
        if self.epochs.entries and copies != (self.epochs, self.epochs):
            self._write(self.epochs)

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

    def _read_both(self) -> _Found:
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
        return _Found(
            main[0] if main else None,
            backup[0] if backup else None,
            backup is not None and CURRENT in backup[1],
            reasons[0] if reasons else "",
        )

    def _replace(self, epochs: Epochs) -> None:
        if epochs != self.epochs or self.trust is Trust.UNPROVEN:
            self._write(epochs)
            self.epochs = epochs
        self.trust = Trust.WHOLE if epochs.entries else self.trust

    def _write(self, epochs: Epochs) -> None:
        """The second copy first, durably: it is never the older one. A damaged file is kept."""
        files, path = self._files, self._path
        folder = _folder(path)
        files.make_folders(folder)
        if not self._names_synced:
            sync_above(files, folder)
            self._names_synced = True
        if self.trust is Trust.UNPROVEN and files.exists(path):
            files.write(path + DAMAGED, files.read(path))
        text = epochs.encode()
        for target, content in ((path + BACKUP, _marked(text)), (path, text)):
            files.write(path + TEMPORARY, content)
            files.sync(path + TEMPORARY)
            files.rename(path + TEMPORARY, target)
            files.sync_folder(folder)


def _folder(path: str) -> str:
    return path.rpartition("/")[0] or "."


def _marked(text: bytes) -> bytes:
    """The text of a copy that is current: with that word as a line, under the checksum."""
    count, _checksum, lines = text.split(b"\n", 2)
    lines += CURRENT + b"\n"
    return b"%b\n%d\n%b" % (count, masked_crc32(lines), lines)
