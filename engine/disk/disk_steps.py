"""Disk work in several pieces, with turns of the loop between them.

Owns the form of such work: a generator that yields each piece for a disk thread, and continues on
the loop when the piece is done. A failed piece is raised at its yield. It must never run a piece
itself, except in `run_to_end`; `serial_tasks` runs the pieces.

Between two pieces the loop serves requests, so the store must be in a valid state there.

Tests: tests/unit/engine/lifecycle/test_recovery.py,
    tests/unit/engine/lifecycle/test_truncate_async.py
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

from turbopump.engine.disk.files import Files

Work = Callable[[], Any]
"""A piece of work; raises OSError, and its result is ignored. It runs on a disk thread, and touches
files and memory that the loop leaves alone meanwhile."""
Steps = Generator[Work, None, None]
"""Work in pieces: the generator runs on the loop and yields each piece for a disk thread; an
OSError of a piece is raised at its yield. It may raise OSError or StoreError."""


@dataclass(slots=True)
class Unsynced:
    """Paths of files and folders that steps have changed, for one sync of all at the end; the steps
    append to both lists."""

    files: list[str] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)


def no_work() -> None:
    """Work that does nothing: a piece of steps that only gives the loop a turn, or has nothing to
    change."""


def removal_work(files: Files, path: str, folder: str) -> Work:
    """Return the work that removes the file `path` and syncs its folder, which is `folder`, so that
    each removal is durable before the next: a crash in between must not leave a hole. The file must
    exist."""

    def remove_and_sync() -> None:
        files.remove(path)
        files.sync_folder(folder)

    return remove_and_sync


def run_to_end(steps: Steps) -> None:
    """Run all steps and their pieces on this thread until they end: for tools, at a start, and
    where no loop waits. Raises the errors that the steps raise."""
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
