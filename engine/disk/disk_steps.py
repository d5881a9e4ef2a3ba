"""Disk work of several pieces, and what the loop's thread does between them.

Owns how such work is written down: a generator that yields each piece for a disk's thread, and goes
on, on the loop, when it is done. A piece that failed is raised where it was yielded. It must never
do a piece by itself, but in `at_once`. Called by what cuts or empties a log
and its queues, and by the checkpointer; `in_turn` runs the pieces.

Between two pieces the loop serves: what it sees then must be a store as it may be.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

from turbopump.engine.disk.files import Files

Work = Callable[[], Any]
"""One piece; raises OSError. It touches files and memory that the loop leaves alone meanwhile."""
Steps = Generator[Work, None, None]


@dataclass(slots=True)
class Unsynced:
    """What steps have changed and leave to one sync of all."""

    files: list[str] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)


def nothing() -> None:
    """A piece without work: the loop has its turn, or what is there stays."""


def removal(files: Files, path: str, folder: str) -> Work:
    """A file goes, durably, before the next one does: else a crash might leave a hole."""

    def work() -> None:
        files.remove(path)
        files.sync_folder(folder)

    return work


def at_once(steps: Steps) -> None:
    """All of it, on this thread: for tools, at a start, and where no loop waits. Raises what the
    steps raise."""
    failed: OSError | None = None
    while True:
        try:
            work = next(steps) if failed is None else steps.throw(failed)
        except StopIteration:
            return
        failed = None
        try:
            work()
        except OSError as error:
            failed = error
