"""`turbopump inspect epochs A [B]`: the writers of a log's parts, and where two logs part.

Owns the lines. It must never change, lock or create a file: the store may belong to a running
broker.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from turbopump.cli.errors import UserError
from turbopump.cli.inspect.files import log_files, open_readonly
from turbopump.cli.inspect.lines import Members, damage_line
from turbopump.engine.config import LOG_FOLDER
from turbopump.engine.log.epoch_file import BACKUP, EPOCH_FILE
from turbopump.engine.log.epoch_lines import SUFFIX, newest_valid
from turbopump.engine.log.epochs import (
    LOG_OFFSET_MAX,
    Epochs,
    EpochsDamaged,
    consistent_point,
    decode,
)
from turbopump.engine.snapshot.inspect import Deviation
from turbopump.engine.types import LogOffset
from turbopump.pyx.walk import walk


@dataclass(frozen=True, slots=True)
class Labelled:
    """The epoch list of a log, and where the log ends."""

    path: Path
    """The epoch file."""
    epochs: Epochs
    end: LogOffset
    """End of the log's last record; LOG_OFFSET_MAX if only the epoch file is known."""


def read(path: Path, epoch_file: Path | None = None) -> Labelled | Members:
    """Read the epochs of a store or of an epoch file; if that is damaged, return the line about its
    damage (`lines.damage_line`) in their place.

    `epoch_file` is the path of a store's epoch file if it was moved (storePathEpochFile). Raises
    UserError without an epoch file.
    """
    file = epoch_file or (path / EPOCH_FILE if path.is_dir() else path)
    if not file.is_file():
        hint = "; if storePathEpochFile moved it: --epoch-file" if path.is_dir() else ""
        raise UserError(f"{file}: no epoch file is there{hint}")
    others = (file.with_name(file.name + BACKUP), file, file.with_name(file.name + SUFFIX))
    texts = [one.read_bytes() if one.is_file() else None for one in others]
    try:
        decode(texts[1] or b"")
    except EpochsDamaged as error:
        return damage_line(Deviation(str(file), 0, str(error)))
    epochs = newest_valid(*texts, is_marked=True)[0] or Epochs()
    folder = (path if path.is_dir() else file.parent) / LOG_FOLDER
    return Labelled(file, epochs, log_end(folder) if folder.is_dir() else LOG_OFFSET_MAX)


def log_end(folder: Path) -> LogOffset:
    """Return the log offset after the last record of the log in a commitlog folder; its last files
    may be empty, because files are created ahead. Raises UserError."""
    files = log_files(folder)
    for file in reversed(files):
        with open_readonly(file.path) as region:
            found = walk(region, 0, region.size, file.base)
        if found.position:
            return LogOffset(file.base + found.position)
    return LogOffset(files[0].base)


def epoch_lines(log: Labelled) -> Iterator[Members]:
    """Yield one line for each entry of the epoch list; `end` is None if unknown."""
    for number, entry in enumerate(log.epochs):
        end = log.epochs.end_of(number, log.end)
        yield {
            "t": "epoch",
            "file": str(log.path),
            "epoch": entry.epoch,
            "start": entry.start,
            "end": None if end == LOG_OFFSET_MAX else end,
        }


def epoch_differences(a: Labelled, b: Labelled) -> Iterator[Members]:
    """Yield a line for each entry that only one log has, and a last line with the log offset up to
    which both logs are the same, None if unknown."""
    for log, other in ((a, b), (b, a)):
        for entry in log.epochs:
            if entry not in other.epochs.entries:
                yield {
                    "t": "onlyIn",
                    "file": str(log.path),
                    "epoch": entry.epoch,
                    "start": entry.start,
                }
    point = consistent_point(a.epochs, a.end, b.epochs, b.end)
    yield {
        "t": "consistentPoint",
        "offset": None if point == LOG_OFFSET_MAX else point,
        "same": point is not None and point == a.end == b.end,
    }
