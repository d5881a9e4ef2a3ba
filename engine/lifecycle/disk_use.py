"""Disk usage and the ages of the oldest log files, requested on a disk thread.

Owns the last answer, and the time since the last answer. It must never ask on the loop's thread
once the store runs, nor decide the consequences.

While no answer comes the last one holds, for a minute: a disk that does not answer by then, or
answers with an error, is `silent`, and counts as having no room.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from turbopump.engine.config import StoreConfig
from turbopump.engine.disk.files import Files
from turbopump.engine.disk.flush import Disk, DiskLane
from turbopump.engine.disk.sync_watch import TICK_MAX_MS

logger = logging.getLogger(__name__)

SILENT_MS = 60_000
"""Time without an answer after which the disk is silent: six intervals of asking, by RocketMQ's
default. A slow disk still reports its usage at once."""


@dataclass(frozen=True, slots=True)
class DiskReport:
    """The disk usage of a store and the times of requested files, as a disk thread read them."""

    used_percent: float
    """Usage of the fuller of the two disks, which hold the log and the queues: 0.0 to 100.0."""
    space: tuple[int, int]
    """(total, free) bytes of the disk that holds the log; (0, 0) if its folder does not exist."""
    modified_ms: dict[str, int | None] = field(default_factory=dict)
    """Path to modification time in epoch ms of each requested file, None for a removed file."""


def read_disk_report(files: Files, config: StoreConfig, paths: Sequence[str] = ()) -> DiskReport:
    """Read the usage of the disks of log and queues and the modification times of the files
    `paths`; waits for the disk. Raises OSError."""
    folders = {config.log_folder, config.root}
    used = [files.used_ratio(path) * 100 for path in folders if files.exists(path)]
    space = files.disk_space(config.log_folder) if files.exists(config.log_folder) else (0, 0)
    return DiskReport(max(used, default=0.0), space, modified_times(files, paths))


def modified_times(files: Files, paths: Sequence[str]) -> dict[str, int | None]:
    """Path to modification time in epoch ms, None for a removed file; waits for the disk. Raises
    OSError."""
    found: dict[str, int | None] = {}
    for path in paths:
        try:
            found[path] = files.modified_ms(path)
        except FileNotFoundError:
            found[path] = None
    return found


class DiskUse:
    """The disk usage of a store. Loop thread only; a disk thread does the asking."""

    def __init__(self, files: Files, config: StoreConfig, disk: Disk, room: DiskReport) -> None:
        """`room` is the answer of the disk when the store was opened."""
        self.room = room
        """The last answer that was no error."""
        self.failed = False
        """Whether the last answer was an error."""
        self._files = files
        self._config = config
        self._lane = DiskLane(disk)
        self._is_new = False
        self._is_void = False
        self._owed = False
        self._silent_ms = 0

    @property
    def is_silent(self) -> bool:
        """Whether the disk has given no answer but errors for SILENT_MS after a question: then
        `room` does not count."""
        return self._silent_ms >= SILENT_MS

    def begin_query(self, paths: Sequence[str]) -> None:
        """Ask for the room and the times of these files on a disk thread, without waiting;
        `take_report` returns the answer. No-op while an answer is outstanding."""
        if not self._lane.busy:
            self._owed, self._is_void = True, False
            ask = partial(read_disk_report, self._files, self._config, paths)
            self._lane.submit(ask, self._on_answer)

    def add_elapsed(self, passed_ms: int) -> None:
        """Count `passed_ms` since the last tick (at most TICK_MAX_MS of it) as time without an
        answer, if no answer but errors has come since the last question."""
        if self._owed:
            self._silent_ms += min(passed_ms, TICK_MAX_MS)

    def take_report(self) -> DiskReport | None:
        """Return the disk's answer, once; None if no answer without an error came since the last
        call."""
        is_new, self._is_new = self._is_new, False
        return self.room if is_new else None

    def void_ages(self) -> None:
        """Drop known and requested file times, because files are about to be removed and their
        names may be used again; a file without a time counts as too young to be removed."""
        self._is_void = True
        self.room = replace(self.room, modified_ms={})

    def _on_answer(self, response: DiskReport | OSError) -> None:
        """Keep an answer of the disk as `room`; an error is logged once, and `room` stays."""
        was_failed, self.failed = self.failed, isinstance(response, OSError)
        if isinstance(response, OSError):
            if not was_failed:
                logger.warning("the usage of the disk is unknown: %s", response)
            return
        self.room = replace(response, modified_ms={}) if self._is_void else response
        self._is_new, self._owed, self._silent_ms = True, False, 0
