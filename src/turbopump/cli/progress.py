"""Progress while a node opens a big store: events for programs, a bar on a terminal.

Owns the interval of events. The log lines about recovery come from the node.
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
"""Seconds between two events, and before the first: most starts take less and show nothing."""


class Recovering:
    """Shows the progress of recovery: JSON events on stdout, or a bar on stderr if that is a
    terminal.

    `show_progress` may be called at any rate; `remove_bar` must be called before other output.
    """

    def __init__(self, as_json: bool) -> None:
        self._json = as_json
        self._shown_s = time.monotonic()
        self._bar: Bar | None = None
        self._task: TaskID | None = None

    def show_progress(self, progress: "Progress") -> None:
        """Show `progress` of the node's recovery, if INTERVAL_S has passed or a bar is shown."""
        now_s = time.monotonic()
        if self._bar is None and now_s - self._shown_s < INTERVAL_S:
            return
        self._shown_s = now_s
        if self._json:
            print_json(progress_event(progress))
        elif sys.stderr.isatty():
            self._draw_bar(progress)

    def remove_bar(self) -> None:
        """Remove the bar: the node is ready, stopped or failed."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _draw_bar(self, progress: "Progress") -> None:
        """Draw or update the bar on the terminal."""
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


def progress_event(progress: "Progress") -> dict[str, object]:
    """Build the JSON event of `progress`; `done` and `total` are bytes of the log."""
    return {
        "event": "recovering",
        "phase": progress.phase,
        "percent": 100 * progress.done // max(1, progress.total),
        "done": progress.done,
        "total": progress.total,
    }
