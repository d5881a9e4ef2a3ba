"""The progress shown during a job."""

import io
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from turbopump.spark import progress


class Tracker:
    """Stands for Spark's status tracker: it reports running stages, and forgets ended ones."""

    def __init__(self) -> None:
        self.stages: dict[int, tuple[int, int]] = {}

    def getActiveStageIds(self) -> list[int]:
        return list(self.stages)

    def getStageInfo(self, stage: int) -> Any:
        done, tasks = self.stages[stage]
        return SimpleNamespace(numCompletedTasks=done, numTasks=tasks) if tasks else None


def test_tasks_of_stages_that_are_over_still_count() -> None:
    tracker = Tracker()
    stages = progress.Stages(tracker)
    assert stages.read_progress() == (0, None, "tasks, 0 stages running")
    tracker.stages = {1: (2, 8), 2: (0, 0)}
    assert stages.read_progress() == (2, 8, "tasks, 1 stages running")
    tracker.stages = {3: (1, 4)}
    assert stages.read_progress() == (9, 12, "tasks, 1 stages running")
    tracker.stages = {}
    assert stages.read_progress() == (12, 12, "tasks, 0 stages running")


class Screen(io.StringIO):
    """A terminal, or not."""

    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


@pytest.mark.parametrize("terminal", [True, False])
def test_it_is_shown_until_the_job_is_over(terminal, monkeypatch) -> None:
    monkeypatch.setattr(progress, "LINE_S", 0.001)
    monkeypatch.setattr(progress, "LOOK_S", 0.001)
    monkeypatch.setenv("TERM", "xterm")
    looked = threading.Semaphore(0)

    def look() -> tuple[int, int, str]:
        looked.release()
        return 1234, 5678, "tasks, 2 stages running"

    screen = Screen(terminal)
    with progress.show_progress(look, screen):
        for _ in range(3):  # the first is on the screen when the third is asked for
            assert looked.acquire(timeout=30)
    text = screen.getvalue()
    assert ("1,234 of 5,678 tasks, 2 stages running\n" in text) is not terminal
    assert ("1234/5678" in text) is terminal
    assert not any(thread.name == "progress" for thread in threading.enumerate())


def test_unavailable_figures_are_not_shown() -> None:
    def look() -> tuple[int, int, str]:
        raise ConnectionError("the session is gone")

    with progress.show_progress(look, Screen(False)):
        pass
