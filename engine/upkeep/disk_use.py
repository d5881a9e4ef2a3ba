"""How full the disk is, and how old the first log files are: asked by a disk's thread.

Owns the last answer, and for how long none has come. It must never ask on the loop's thread once
the store runs, nor decide what follows from an answer. Called by `retention`, on the loop.

While no answer comes the last one holds, for a minute: by then a disk that does not answer, or
answers that it cannot say, is `silent`, and has no room that is known of.
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

# Six intervals of asking, by RocketMQ's default. A disk that is slow says how full it is at once.
SILENT_MS = 60_000


@dataclass(frozen=True, slots=True)
class Room:
    """What a disk answered."""

    used_percent: float
    """Of the fuller one of the disks that hold log and queues."""
    space: tuple[int, int]
    """(all, free) bytes of the disk that holds the log."""
    modified_ms: dict[str, int | None] = field(default_factory=dict)
    """When each of the files that were asked for was changed, None of those that are gone."""


def room_of(files: Files, config: StoreConfig, paths: Sequence[str] = ()) -> Room:
    """Ask the disk; waits for it. Raises OSError."""
    folders = {config.log_folder, config.root}
    used = [files.used_ratio(path) * 100 for path in folders if files.exists(path)]
    space = files.disk_space(config.log_folder) if files.exists(config.log_folder) else (0, 0)
    return Room(max(used, default=0.0), space, ages_of(files, paths))


def ages_of(files: Files, paths: Sequence[str]) -> dict[str, int | None]:
    """When each file was changed last, None if it is gone; waits for the disk. Raises OSError."""
    found: dict[str, int | None] = {}
    for path in paths:
        try:
            found[path] = files.modified_ms(path)
        except FileNotFoundError:
            found[path] = None
    return found


class DiskUse:
    """Of one store. Loop thread only; a disk's thread asks."""

    def __init__(self, files: Files, config: StoreConfig, disk: Disk, room: Room) -> None:
        """`room` is what the disk answered when the store was opened."""
        self.room = room
        self.failed = False
        """Whether the last answer was that the disk cannot say it."""
        self._files = files
        self._config = config
        self._lane = DiskLane(disk)
        self._is_new = False
        self._is_void = False
        self._owed = False
        self._silent_ms = 0

    @property
    def silent(self) -> bool:
        """Whether the disk has been asked for so long that its last answer holds no more."""
        return self._silent_ms >= SILENT_MS

    def ask(self, paths: Sequence[str]) -> None:
        """Have a disk's thread ask for the room, and for the times of these files; nothing while
        the answer before is still to come."""
        if not self._lane.busy:
            self._owed, self._is_void = True, False
            ask = partial(room_of, self._files, self._config, paths)
            self._lane.submit(ask, self._answered)

    def passed(self, passed_ms: int) -> None:
        """So much time passed since the last tick."""
        if self._owed:
            self._silent_ms += min(passed_ms, TICK_MAX_MS)

    def take(self) -> Room | None:
        """The answer that came since the last call, if one did."""
        is_new, self._is_new = self._is_new, False
        return self.room if is_new else None

    def void_ages(self) -> None:
        """Files are about to go whose names may be used again: what was said of their times, or is
        about to be, is of no others."""
        self._is_void = True
        self.room = replace(self.room, modified_ms={})

    def _answered(self, answer: Room | OSError) -> None:
        was_failed, self.failed = self.failed, isinstance(answer, OSError)
        if isinstance(answer, OSError):
            if not was_failed:
                logger.warning("the disk does not say how much of it is used: %s", answer)
            return
        self.room = replace(answer, modified_ms={}) if self._is_void else answer
        self._is_new, self._owed, self._silent_ms = True, False, 0
