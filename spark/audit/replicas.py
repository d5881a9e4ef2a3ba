"""Opens a store for the audit: the content of its small files, before its log is scanned.

Owns the facts of a store that are read once: log files, the epoch list or its faults,
confirmOffset, deleted topics, and whether it was shut down cleanly. It must never change, lock or
create a file: the store may belong to a killed broker, or to a running one.

The confirmed end of a replicated store is confirmPhyOffset of its checkpoint. A broker saves that
each second and at shutdown, so slightly less of a killed broker's log is compared. A store that was
never replicated counts as confirmed to its end.

Tests: tests/unit/spark/audit/test_digests.py
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise

from turbopump.engine import fastjson
from turbopump.engine.config import LOG_FOLDER, StoreConfig
from turbopump.engine.disk import checkpoint
from turbopump.engine.disk.files import MappedFile
from turbopump.engine.disk.real_files import RealFiles
from turbopump.engine.disk.segments import is_file_name
from turbopump.engine.lifecycle.truncate_queues import ABORT_FILE
from turbopump.engine.log import epoch_lines, epochs
from turbopump.engine.log.epoch_file import BACKUP, MARK_FILE
from turbopump.engine.log.epochs import Epochs, EpochsDamaged
from turbopump.engine.log.record_boundary import was_replicated
from turbopump.engine.queues import deleted_topics
from turbopump.engine.queues.batch_queue import FOLDER as BATCH_FOLDER
from turbopump.engine.queues.queue_ext import FOLDER as EXTENSION_FOLDER
from turbopump.engine.queues.queue_files import FOLDER as QUEUE_FOLDER
from turbopump.engine.types import LogOffset
from turbopump.pyx.crc32 import masked_crc32
from turbopump.spark.audit.verdicts import Finding

NO_EPOCHS = Epochs()
"""An epoch list without entries."""


class Unusable(Exception):
    """The input cannot be audited; the text is a sentence for the operator."""


@dataclass(slots=True, frozen=True)
class LogFile:
    """A file of a log; it begins at log offset `base` and has `size` bytes, records or not."""

    path: str
    base: int
    size: int

    @property
    def end(self) -> int:
        """Log offset at which the next file begins."""
        return self.base + self.size


@dataclass(slots=True, frozen=True)
class Labels:
    """The epoch list of a store, and the faults of its files."""

    epochs: Epochs = NO_EPOCHS
    known: bool = False
    """Whether `epochs` is reliable: the file, or its current second copy, is intact."""
    findings: tuple[Finding, ...] = ()
    """Faults of the files."""


@dataclass(slots=True, frozen=True)
class AuditedReplica:
    """A store to be audited: the content of its small files, before its log is scanned."""

    name: str
    """Name given by the user, or the path."""
    root: str
    """Path of the store."""
    files: tuple[LogFile, ...]
    """Files of the log, ascending, without gaps."""
    labels: Labels
    replicated: bool
    """Whether the store ever belonged to a replicated group."""
    confirm: int | None
    """The saved confirmOffset; None: the whole log counts as confirmed."""
    is_stopped: bool
    """Whether it was shut down cleanly, so that no process has it open and none died with it."""
    deleted: dict[str, int]
    """End of the log at a topic's last deletion, by topic: earlier records are not the present
    topic's."""
    batch_topics: frozenset[str]
    """Topics whose records hold several messages."""
    min: int = 0
    """First log offset of the log."""
    end: int = 0
    """End of the whole records; known after the scan."""

    @property
    def confirmed_end(self) -> int:
        """Log offset up to which the log must equal all others: `promised_end`, but at most
        `end`."""
        return min(self.promised_end, self.end)

    @property
    def promised_end(self) -> int:
        """The confirmed end as the store reports it, even if its log is shorter; the log's end if
        it reports none."""
        return self.end if self.confirm is None else self.confirm

    @property
    def epochs(self) -> Epochs:
        """The epoch list, without entries after the end of the log."""
        return self.labels.epochs.limited_to(LogOffset(self.end))

    def with_scan(self, end: int, confirm: int | None) -> "AuditedReplica":
        """Return a copy with the scan's end of the whole records and confirmed end."""
        return replace(self, end=end, confirm=confirm)

    def file_at(self, log_offset: int) -> LogFile | None:
        """Return the file that contains the byte at `log_offset`; None outside of the files."""
        for file in self.files:
            if file.base <= log_offset < file.end:
                return file
        return None


def open_replica(text: str, epoch_file: str = "") -> AuditedReplica:
    """Read the small files of a store given as a path or as `name=path`. Raises Unusable.

    `epoch_file` is the path of its epoch list, if the broker's storePathEpochFile moved it.
    """
    name, _, path = text.rpartition("=")
    root = path.rstrip("/") or "/"
    files, config = RealFiles(), StoreConfig(root, epoch_file=epoch_file)
    try:
        log = _log_files(files, root)
        replicated = was_replicated(files, config)
        saved = checkpoint.load(files, root)
        if epoch_file and not files.exists(epoch_file):
            raise Unusable(f"{epoch_file}: no epoch file is there")
        is_marked = files.exists(f"{root}/{MARK_FILE}")
        labels = _read_labels(files, config.epoch_path, name or root, is_marked=is_marked)
        return AuditedReplica(
            name or root,
            root,
            log,
            labels,
            replicated,
            confirm=saved.confirm_offset if replicated else None,
            is_stopped=not files.exists(f"{root}/{ABORT_FILE}"),
            deleted=_read_deleted(files, root),
            batch_topics=frozenset(files.list_folder(f"{root}/{BATCH_FOLDER}")),
            min=log[0].base if log else 0,
        )
    except OSError as error:
        raise Unusable(f"{root} cannot be read: {error}") from error


def _log_files(files: RealFiles, root: str) -> tuple[LogFile, ...]:
    """Return the files of a store's log, in order; raises Unusable if files are missing in
    between."""
    folder = f"{root}/{LOG_FOLDER}"
    if not files.is_folder(folder):
        raise Unusable(f"{root} is no store: it has no folder {LOG_FOLDER}")
    found = [
        LogFile(f"{folder}/{name}", int(name), size)
        for name, size in files.list_files(folder)
        if is_file_name(name) and size
    ]
    for one, other in pairwise(found):
        if other.base != one.end:
            raise Unusable(f"{other.path} does not go on where {one.path} ends, at {one.end}")
    return tuple(found)


def _read_deleted(files: RealFiles, root: str) -> dict[str, int]:
    """Read the table that deleted_topics.py writes: the end of the log at a topic's last
    deletion, by topic. Damaged files count as empty."""
    path = f"{root}/config/{deleted_topics.FILE_NAME}"
    for one in (path, f"{path}.bak"):
        if files.exists(one):
            try:
                ends = fastjson.loads(files.read(one))["logEnds"]
                return {str(topic): int(end) for topic, end in ends.items()}
            except (ValueError, KeyError, TypeError, AttributeError):
                continue
    return {}


@contextmanager
def map_file(path: str) -> Iterator[MappedFile]:
    """Map a file read-only until the block ends; pages are read when they are used. Raises
    OSError."""
    opened = RealFiles().open(path, readonly=True)
    try:
        yield opened
    finally:
        opened.close()


def queue_folder(root: str) -> str:
    """Return the path of the folder of a store's consume queues."""
    return f"{root}/{QUEUE_FOLDER}"


def extension_folder(root: str) -> str:
    """Return the path of the folder of the extensions of a store's consume queues."""
    return f"{root}/{EXTENSION_FOLDER}"


# Epoch files


def _read_labels(files: RealFiles, path: str, name: str, *, is_marked: bool) -> Labels:
    """Read the newest valid epoch list of its files, and their faults; `is_marked`: its mark
    file exists."""
    paths = (path + BACKUP, path, path + epoch_lines.SUFFIX)
    backup, main, lines = (files.read(one) if files.exists(one) else None for one in paths)
    found, _reasons = epoch_lines.newest_valid(backup, main, lines, is_marked=is_marked)
    findings: list[Finding] = []
    if main is not None:
        try:
            epochs.decode(main)
            return Labels(found or Epochs(), True)
        except EpochsDamaged as error:
            findings = list(_find_faults(main, str(error), name, path))
    if backup is not None:
        try:
            epochs.decode(backup)
        except EpochsDamaged as error:
            findings.append(Finding(f"the epoch file is damaged: {error}", name, path + BACKUP, 0))
    # A second copy without its mark file is RocketMQ's, from before the last change (S4).
    return Labels(found or Epochs(), found is not None, tuple(findings))


def _find_faults(text: bytes, reason: str, store: str, path: str) -> Iterator[Finding]:
    """Yield the faults of an epoch list that does not decode, by line where possible."""
    lines = text.split(b"\n")
    body = b"".join(line + b"\n" for line in lines[2:-1])
    crc_is_right = len(lines) > 2 and lines[1] == b"%d" % masked_crc32(body)
    before: tuple[int, int] | None = None
    position, found = len(lines[0]) + 1 + len(lines[1]) + 1 if len(lines) > 2 else 0, False
    for line in lines[2:-1]:
        match = epochs.ENTRY.fullmatch(line)
        if match:
            epoch, start = int(match[1]), int(match[2])
            what = _why_not_after(before, epoch, start)
            if what:
                found = True
                yield Finding(what, store, path, position, start, epoch=epoch)
            before = epoch, start
        position += len(line) + 1
    if not found or not crc_is_right:
        yield Finding(f"the epoch file is damaged: {reason}", store, path, 0)


def _why_not_after(before: tuple[int, int] | None, epoch: int, start: int) -> str:
    """Return the reason why an entry may not follow the entry `before`; "" if it may."""
    if before is None or (epoch > before[0] and start >= before[1]):
        return ""
    if epoch == before[0]:
        return f"epoch {epoch} is there twice, from {before[1]} and from {start} on"
    if epoch < before[0]:
        return f"epoch {epoch} follows epoch {before[0]}"
    return f"epoch {epoch} begins at {start}, before epoch {before[0]} at {before[1]}"
