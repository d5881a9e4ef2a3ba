"""The output during a long recovery: nothing at first, then events or a bar."""

import json
import sys
from typing import Any

import pytest

from turbopump.cli import progress
from turbopump.cli.progress import Recovering
from turbopump.engine.types import Progress


@pytest.fixture
def clock(monkeypatch: Any) -> Any:
    """A clock in seconds, which the test advances."""
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_events_for_programs_one_a_second(clock: Any, capsys: Any) -> None:
    shown = Recovering(True)
    for number in range(16):
        shown.show_progress(Progress("checking the log", number, 70))
        clock[0] += 0.25
    shown.remove_bar()
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["done"] for line in lines] == [4, 8, 12]
    assert lines[0] == {
        "event": "recovering",
        "phase": "checking the log",
        "percent": 5,
        "done": 4,
        "total": 70,
    }


def test_a_bar_on_a_terminal_that_goes_at_the_end(
    clock: Any, capsys: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    shown = Recovering(False)
    shown.show_progress(Progress("filling the queues", 1, 100))
    clock[0] += 2
    shown.show_progress(Progress("filling the queues", 40, 100))
    shown.show_progress(Progress("filling the queues", 50, 100))
    shown.remove_bar()
    shown.remove_bar()
    out, err = capsys.readouterr()
    assert out == ""
    assert "filling the queues" in err
    assert "50%" in err


def test_no_progress_without_a_reader(clock: Any, capsys: Any) -> None:
    shown = Recovering(False)
    clock[0] += 2
    shown.show_progress(Progress("filling the queues", 40, 100))
    shown.remove_bar()
    assert capsys.readouterr() == ("", "")
