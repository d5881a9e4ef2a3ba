"""Opening a store on a thread: the progress lines in the log, and giving up."""

import logging
from typing import Any

import pytest

from turbopump.broker.lifecycle.startup_progress import LOG_INTERVAL_MS, StartupProgress
from turbopump.engine.types import OpeningStopped, Progress


def test_told_each_time_and_logged_now_and_then(caplog: Any) -> None:
    now_ms = [0]
    notified: list[Any] = []
    opening = StartupProgress(lambda work: work(), notified.append, lambda: now_ms[0])
    with caplog.at_level(logging.INFO):
        for done in range(11):
            opening.report(Progress("filling the queues", done, 40))
            now_ms[0] += LOG_INTERVAL_MS // 5
    assert [one.done for one in notified] == list(range(11))
    assert caplog.messages == [
        f"opening the store: filling the queues, {percent} %" for percent in (12, 25)
    ]


def test_given_up_it_ends_at_the_next_step() -> None:
    opening = StartupProgress(lambda work: work(), lambda _progress: None, lambda: 0)
    opening.report(Progress("x", 1, 2))
    opening.cancel_opening()
    with pytest.raises(OpeningStopped):
        opening.report(Progress("x", 2, 2))
