"""What is shown while a node opens a big store: events for programs, a bar on a terminal.

Owns the pace. The log lines of all runs come from the node. Called by up.py and nodes.py.
"""

import sys
import time
from typing import TYPE_CHECKING

from turbopump.cli.output import print_json

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

    from turbopump.engine.types import Progress

INTERVAL_S = 1.0
"""Between two events, and before the first: most starts show nothing."""


class Recovering:
    """`reached` is called as often as the node likes, `end` before anything else is printed."""

    def __init__(self, as_json: bool) -> None:
        self._json = as_json
        self._shown_s = time.monotonic()
        self._bar: Bar | None = None
        self._task: TaskID | None = None

    def reached(self, progress: "Progress") -> None:
        """The node opens its store and is so far."""
        now_s = time.monotonic()
        if self._bar is None and now_s - self._shown_s < INTERVAL_S:
            return
        self._shown_s = now_s
        if self._json:
            print_json(event(progress))
        elif sys.stderr.isatty():
            self._show(progress)

    def end(self) -> None:
        """Ready, stopped or failed: the bar goes."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _show(self, progress: "Progress") -> None:
        if self._bar is None or self._task is None:
            from rich.console import Console
            from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar

            self._bar = Bar(
                TextColumn("{task.description}"),
                BarColumn(),
                TaskProgressColumn(),
                TimeRemainingColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self._task = self._bar.add_task(progress.phase)
            self._bar.start()
        self._bar.update(
            self._task,
            description=progress.phase,
            completed=progress.done,
            total=progress.total,
        )


def event(progress: "Progress") -> dict[str, object]:
    """The line for programs; `done` and `total` are bytes of the log."""
    return {
        "event": "recovering",
        "phase": progress.phase,
        "percent": 100 * progress.done // max(1, progress.total),
        "done": progress.done,
        "total": progress.total,
    }
