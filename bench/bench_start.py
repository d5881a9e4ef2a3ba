"""Start times of our processes: help, and a node that is ready on an empty store.

The limit of both is this machine's bare interpreter, started and ended.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

Measure = Any


@pytest.fixture
def program() -> list[str]:
    """The command that starts Turbopump."""
    return [sys.executable, "-m", "turbopump"]


def test_start_limit(measure: Measure) -> None:
    """Measure the start and end of the bare interpreter."""
    measure("start", lambda: subprocess.run([sys.executable, "-c", "pass"], check=True), 1)


def test_start_help(measure: Measure, program: list[str]) -> None:
    """Measure `turbopump --help`."""

    def ask() -> None:
        subprocess.run([*program, "--help"], check=True, stdout=subprocess.DEVNULL)

    measure("start", ask, 1)


def test_start_ready(measure: Measure, program: list[str], tmp_path: Path) -> None:
    """Measure the time from the start of a name server until it prints its address."""
    started: list[subprocess.Popen[str]] = []

    def stop() -> tuple[tuple[()], dict[str, Any]]:
        for process in started:
            process.terminate()
            process.communicate(timeout=60)
        started.clear()
        return (), {}

    def start() -> None:
        arguments = [
            "up",
            "--data",
            str(tmp_path / "data"),
            "--json",
            "--namesrv-port",
            "0",
            "--broker-port",
            "0",
        ]
        process = subprocess.Popen([*program, *arguments], stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        json.loads(process.stdout.readline())

    try:
        measure("start", start, 1, setup=stop)
    finally:
        stop()
