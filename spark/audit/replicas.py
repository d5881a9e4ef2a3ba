"""A store to be audited, as its files tell of it before its log is looked into.

Owns what is read of a store once: which log files there are, the epoch list or what is wrong with
it, confirmOffset, deleted topics, whether it was stopped in order. It must never change, lock or
create a file: the store may be a killed broker's, or a running one's. Called by the job.

Confirmed is what the checkpoint says (confirmPhyOffset) if the store was one of several copies: it
is saved each second and at the end, so that of a killed broker's log a little less is compared. A
store that never was replicated has its whole log confirmed.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise

from turbopump.engine import fastjson
from turbopump.engine.config import StoreConfig
from turbopump.engine.disk import checkpoint
from turbopump.engine.disk.files import MappedFile
from turbopump.engine.disk.real_files import RealFiles
from turbopump.engine.disk.segments import is_file_name
from turbopump.engine.log import epoch_lines, epochs
from turbopump.engine.log.boundary import was_replicated
from turbopump.engine.log.epoch_file import BACKUP, MARK_FILE
from turbopump.engine.log.epochs import Epochs, EpochsDamaged
from turbopump.engine.queues import deleted_topics
from turbopump.engine.queues.batch_queue import FOLDER as BATCH_FOLDER
from turbopump.engine.queues.queue_ext import FOLDER as EXTENSION_FOLDER
from turbopump.engine.queues.queue_files import FOLDER as QUEUE_FOLDER
from turbopump.engine.types import LogOffset
from turbopump.engine.upkeep.unit_cutting import ABORT_FILE
from turbopump.pyx.crc32 import masked_crc32
from turbopump.spark.audit.verdicts import Finding

LOG_FOLDER = "commitlog"
NO_EPOCHS = Epochs()


class Unusable(Exception):
    """Nothing can be audited with what was given; the text is one sentence for the operator."""


@dataclass(slots=True, frozen=True)
class LogFile:
    """One file of a log; it begins at log offset `base`."""

    path: str
    base: int
    size: int

    @property
    def end(self) -> int:
        """Where the next one begins."""
        return self.base + self.size


@dataclass(slots=True, frozen=True)
class Labels:
    """The epoch list of a store, and what is wrong with its files."""

    epochs: Epochs = NO_EPOCHS
    known: bool = False
    """Whether `epochs` can be believed: the file, or its current second copy, is whole."""
    findings: tuple[Finding, ...] = ()


@dataclass(slots=True, frozen=True)
class AuditedReplica:
    """See the module."""

    name: str
    root: str
    files: tuple[LogFile, ...]
    labels: Labels
    replicated: bool
    confirm: int | None
    """confirmOffset as it was saved; None: all that is whole counts."""
    is_stopped: bool
    """Whether it was stopped in order: no process has it, and none died with it."""
    deleted: dict[str, int]
    """By topic: records that end there or before are of a former life."""
    batch_topics: frozenset[str]
    min: int = 0
    end: int = 0
    """Where its whole records end; known once the log was scanned."""

    @property
    def confirmed_end(self) -> int:
        """Up to where it must be as all others are."""
        return min(self.promised_end, self.end)

    @property
    def promised_end(self) -> int:
        """What it says is confirmed, whether it has that or not."""
        return self.end if self.confirm is None else self.confirm

    @property
    def epochs(self) -> Epochs:
        """The list, without entries that were never reached."""
        return self.labels.epochs.within(LogOffset(self.end))

    def scanned(self, end: int, confirm: int | None) -> "AuditedReplica":
        """With what a scan found."""
        return replace(self, end=end, confirm=confirm)

    def file_at(self, log_offset: int) -> LogFile | None:
        """The file that holds a byte."""
        for file in self.files:
            if file.base <= log_offset < file.end:
                return file
        return None


def open_replica(text: str, epoch_file: str = "") -> AuditedReplica:
    """A store by its path, or by `name=path`. Raises Unusable.

    `epoch_file` is where its epoch list is, if the broker's storePathEpochFile moved it.
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
        labels = _labels(files, config.epoch_path, name or root, is_marked=is_marked)
        return AuditedReplica(
            name or root,
            root,
            log,
            labels,
            replicated,
            confirm=saved.confirm_offset if replicated else None,
            is_stopped=not files.exists(f"{root}/{ABORT_FILE}"),
            deleted=_deleted(files, root),
            batch_topics=frozenset(files.list_folder(f"{root}/{BATCH_FOLDER}")),
            min=log[0].base if log else 0,
        )
    except OSError as error:
        raise Unusable(f"{root} cannot be read: {error}") from error


def _log_files(files: RealFiles, root: str) -> tuple[LogFile, ...]:
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


def _deleted(files: RealFiles, root: str) -> dict[str, int]:
    """As deleted_topics.py writes it; a damaged file says nothing."""
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
def mapped(path: str) -> Iterator[MappedFile]:
    """A file, mapped for reading only; nothing is read before it is looked at."""
    opened = RealFiles().open(path, readonly=True)
    try:
        yield opened
    finally:
        opened.close()


def queue_folder(root: str) -> str:
    """Where a store has its consume queues."""
    return f"{root}/{QUEUE_FOLDER}"


def extension_folder(root: str) -> str:
    """Where a store has what does not fit into the units of its consume queues."""
    return f"{root}/{EXTENSION_FOLDER}"


# Epoch files


def _labels(files: RealFiles, path: str, name: str, *, is_marked: bool) -> Labels:
    paths = (path + BACKUP, path, path + epoch_lines.SUFFIX)
    backup, main, lines = (files.read(one) if files.exists(one) else None for one in paths)
    found, _reasons = epoch_lines.told(backup, main, lines, is_marked=is_marked)
    findings: list[Finding] = []
    if main is not None:
        try:
            epochs.decode(main)
            return Labels(found or Epochs(), True)
        except EpochsDamaged as error:
            findings = list(_faults(main, str(error), name, path))
    if backup is not None:
        try:
            epochs.decode(backup)
        except EpochsDamaged as error:
            findings.append(Finding(f"the epoch file is damaged: {error}", name, path + BACKUP, 0))
    # A second copy without its word is RocketMQ's: the list before the last change (S4).
    return Labels(found or Epochs(), found is not None, tuple(findings))


def _faults(text: bytes, reason: str, store: str, path: str) -> Iterator[Finding]:
    """What is wrong with a list that does not decode, line by line where that can be said."""
    lines = text.split(b"\n")
    body = b"".join(line + b"\n" for line in lines[2:-1])
    crc_is_right = len(lines) > 2 and lines[1] == b"%d" % masked_crc32(body)
    before: tuple[int, int] | None = None
    position, told = len(lines[0]) + 1 + len(lines[1]) + 1 if len(lines) > 2 else 0, False
    for line in lines[2:-1]:
        match = epochs.ENTRY.fullmatch(line)
        if match:
            epoch, start = int(match[1]), int(match[2])
            what = _disorder(before, epoch, start)
            if what:
                told = True
                yield Finding(what, store, path, position, start, epoch=epoch)
            before = epoch, start
        position += len(line) + 1
    if not told or not crc_is_right:
        yield Finding(f"the epoch file is damaged: {reason}", store, path, 0)


def _disorder(before: tuple[int, int] | None, epoch: int, start: int) -> str:
    if before is None or (epoch > before[0] and start >= before[1]):
        return ""
    if epoch == before[0]:
        return f"epoch {epoch} is there twice, from {before[1]} and from {start} on"
    if epoch < before[0]:
        return f"epoch {epoch} follows epoch {before[0]}"
    return f"epoch {epoch} begins at {start}, before epoch {before[0]} at {before[1]}"
