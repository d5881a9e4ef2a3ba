"""What is seen of a Spark job while it runs: a bar on a terminal, a line now and then elsewhere.

Owns the thread that asks Spark's status tracker. It must never touch the job's data, nor fail it:
what cannot be asked is not shown. Called by session.py.
"""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOK_S = 0.5  # between two looks at the tracker
LINE_S = 10.0  # between two lines where nobody can rewrite one; short jobs print none


class Stages:
    """How far the jobs of a session are: tasks done and known of all stages seen so far."""

    def __init__(self, tracker: Any) -> None:
        self._tracker = tracker
        self._stages: dict[int, tuple[int, int]] = {}
        self._running: set[int] = set()

    def look(self) -> tuple[int, int, int]:
        """(tasks done, tasks known, stages running) now.

        A stage that ran when last seen and does not now has done all its tasks: the tracker
        forgets those that are over.
        """
        running = set(self._tracker.getActiveStageIds())
        for gone in self._running - running:
            _, tasks = self._stages[gone]
            self._stages[gone] = (tasks, tasks)
        self._running = set()
        for stage in running:
            info = self._tracker.getStageInfo(stage)
            if info is not None:
                self._stages[stage] = (info.numCompletedTasks, info.numTasks)
                self._running.add(stage)
        done = sum(one for one, _ in self._stages.values())
        return done, sum(tasks for _, tasks in self._stages.values()), len(self._running)


@contextmanager
def watching(spark: "SparkSession", out: TextIO | None = None) -> Iterator[None]:
    """Show how far `spark` is until the block ends."""
    file = out or sys.stderr
    stages = Stages(spark.sparkContext.statusTracker())
    over = threading.Event()
    show = _bar if file.isatty() else _lines
    thread = threading.Thread(
        target=_follow, args=(show, stages, over, file), name="progress", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _follow(show: Any, stages: Stages, over: threading.Event, file: TextIO) -> None:
    try:
        show(stages, over, file)
    except Exception:  # the session was stopped under us: what was shown so far is all there is
        return


def _lines(stages: Stages, over: threading.Event, file: TextIO) -> None:
    begun_s = time.monotonic()
    while not over.wait(LINE_S):
        done, known, running = stages.look()
        seconds = time.monotonic() - begun_s
        print(f"{seconds:.0f} s: {done} of {known} tasks, {running} stages", file=file, flush=True)


def _bar(stages: Stages, over: threading.Event, file: TextIO) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    with Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        console=Console(file=file), transient=True,
    ) as bar:  # fmt: skip
        task = bar.add_task("tasks", total=None)
        while not over.wait(LOOK_S):
            done, known, running = stages.look()
            bar.update(task, completed=done, total=known or None, description=f"{running} stages")
