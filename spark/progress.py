"""Shows the progress of a Spark job: a bar on a terminal, a line every LINE_S elsewhere.

Owns the thread that polls Spark's status tracker. It must never touch the job's data, nor fail the
job: progress that cannot be read is not shown.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Look = Callable[[], tuple[int, int | None, str]]
"""Returns (number done, total or None if unknown, unit and state as text) of the progress."""

LOOK_S = 0.5  # interval of updates of a bar
LINE_S = 10.0  # interval of lines on a file that is no terminal; short jobs print none


class Stages:
    """Progress of a session's jobs: finished and known tasks of all known stages."""

    def __init__(self, tracker: Any) -> None:
        self._tracker = tracker
        self._stages: dict[int, tuple[int, int]] = {}
        self._running: set[int] = set()

    def read_progress(self) -> tuple[int, int | None, str]:
        """Return (finished tasks, known tasks or None, number of running stages as text). The
        tracker forgets a stage when it ends, so a stage that was running and is not any longer has
        finished all its tasks."""
        running = set(self._tracker.getActiveStageIds())
        for finished in self._running - running:
            _, tasks = self._stages[finished]
            self._stages[finished] = (tasks, tasks)
        self._running = set()
        for stage in running:
            info = self._tracker.getStageInfo(stage)
            if info is not None:
                self._stages[stage] = (info.numCompletedTasks, info.numTasks)
                self._running.add(stage)
        done = sum(one for one, _ in self._stages.values())
        known = sum(tasks for _, tasks in self._stages.values())
        return done, known or None, f"tasks, {len(self._running)} stages running"


@contextmanager
def show_progress_of(spark: "SparkSession", out: TextIO | None = None) -> Iterator[None]:
    """Show the progress of the session's tasks on `out` (default stderr) until the block ends."""
    with show_progress(Stages(spark.sparkContext.statusTracker()).read_progress, out):
        yield


@contextmanager
def show_progress(progress: Look, out: TextIO | None = None) -> Iterator[None]:
    """Show the progress that `progress` returns until the block ends; `out` defaults to stderr.

    A thread calls `progress` every LOOK_S for a bar on a terminal, else every LINE_S for a line. An
    error of `progress` ends the display, not the block.
    """
    file = out or sys.stderr
    over = threading.Event()
    show = _show_bar if file.isatty() else _print_lines
    thread = threading.Thread(
        target=_show_until_end, args=(show, progress, over, file), name="progress", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _show_until_end(show: "Show", progress: Look, over: threading.Event, file: TextIO) -> None:
    """Run `show` until `over` is set; an error ends the display alone."""
    try:
        show(progress, over, file)
    except Exception:  # the session was stopped meanwhile: show nothing further
        return


def _print_lines(progress: Look, over: threading.Event, file: TextIO) -> None:
    """Print a line of progress every LINE_S until `over` is set."""
    begun_s = time.monotonic()
    while not over.wait(LINE_S):
        done, known, what = progress()
        out_of = f" of {known:,}" if known is not None else ""
        print(f"{time.monotonic() - begun_s:.0f} s: {done:,}{out_of} {what}", file=file, flush=True)


def _show_bar(progress: Look, over: threading.Event, file: TextIO) -> None:
    """Show a bar of progress on the terminal until `over` is set."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    with Progress(
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
        console=Console(file=file),
        transient=True,
    ) as bar:
        task = bar.add_task("", total=None)
        while not over.wait(LOOK_S):
            done, known, what = progress()
            bar.update(task, completed=done, total=known, description=what)


Show = Callable[[Look, threading.Event, TextIO], None]
"""Shows the progress on a file until the event is set."""
