"""The command line as processes, and a cluster to point it at."""

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from turbopump.testing import RunningCluster, running_cluster

PROGRAM = [sys.executable, "-m", "turbopump"]
TIMEOUT_S = 60
SMALL_FILES = (
    "mappedFileSizeCommitLog=8388608\nmappedFileSizeConsumeQueue=200000\n"
    "maxHashSlotNum=1000\nmaxIndexNum=4000\n"
)


@dataclass
class Done:
    """Exit code and output of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


def run_command(*arguments: str, stdin: str | None = None, cwd: Path | None = None) -> Done:
    """Run a command to its end."""
    done = subprocess.run(
        [*PROGRAM, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        cwd=cwd,
    )
    return Done(done.returncode, done.stdout, done.stderr)


class Up:
    """A running `turbopump up --json` or node."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [*PROGRAM, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        line = ""
        try:
            line = self.process.stdout.readline()
            self.ready = json.loads(line)
        except BaseException as error:
            # Nothing of it is left for the next test, not even an open file.
            self.process.kill()
            _, err = self.process.communicate()
            if not isinstance(error, ValueError):
                raise
            raise AssertionError(f"not ready: {line}{err}") from error

    def stop(self, number: signal.Signals = signal.SIGTERM) -> Done:
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=TIMEOUT_S)
        return Done(self.process.returncode, out, err)


@pytest.fixture(scope="session")
def program() -> list[str]:
    """The command line's own command line."""
    return PROGRAM


@pytest.fixture(scope="session")
def command() -> Callable[..., Done]:
    """Run a command to its end."""
    return run_command


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """Run a command in this process: no start-up to pay."""
    from turbopump.cli.app import run

    def call(*arguments: str) -> Done:
        monkeypatch.setattr("sys.argv", ["turbopump", *arguments])
        with pytest.raises(SystemExit) as ended:
            run()
        written = capsys.readouterr()
        return Done(int(ended.value.code or 0), written.out, written.err)

    return call


@pytest.fixture
def launch() -> Iterator[Callable[..., Up]]:
    """Factory of commands that print when they are ready; killed at the end if they still run."""
    with contextlib.ExitStack() as stack:

        def start(*arguments: str) -> Up:
            running = Up(*arguments)
            stack.callback(running.process.communicate)
            stack.callback(running.process.kill)
            return running

        yield start


@pytest.fixture
def up(tmp_path: Path, launch: Callable[..., Up]) -> Callable[..., Up]:
    """Start `up` with small files on free ports in the test's data folder."""
    config = tmp_path / "small.conf"
    config.write_text(SMALL_FILES)

    def start(*more: str) -> Up:
        given = (
            "--data",
            str(tmp_path / "data"),
            "-c",
            str(config),
            "--json",
            "--namesrv-port",
            "0",
            "--broker-port",
            "0",
            "--controller-port",
            "0",
        )
        return launch("up", *given, *more)

    return start


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """A cluster for the tests of a file."""
    with running_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running
