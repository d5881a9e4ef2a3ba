"""Commands in this process, against a scripted cluster in virtual time."""

import io
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import uvloop
from tests.unit.net.client.cluster import START_MS, ScriptedCluster, VirtualLoop, now_ms

from turbopump.cli import app
from turbopump.net.client import client_instance, options


@dataclass(frozen=True, slots=True)
class Ran:
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        """Lines of the output of a successful command."""
        assert (self.code, self.err) == (0, ""), self
        return self.out.splitlines()

    @property
    def json(self) -> list[Any]:
        """Lines of the output, parsed as JSON documents."""
        return [json.loads(line) for line in self.lines]

    @property
    def failure(self) -> tuple[int, str]:
        """The exit code of a failed command, and its error message."""
        assert self.code != 0 and not self.out and self.err.count("\n") == 1, self
        return self.code, self.err.removeprefix("turbopump: ").rstrip("\n")


Command = Callable[..., Ran]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> ScriptedCluster:
    """A broker "a" with topic T in two queues; commands connect to it and wait in virtual time."""
    made = ScriptedCluster()
    made.add("a", queues=2)
    monkeypatch.setattr(client_instance, "Client", made)
    monkeypatch.setattr(uvloop, "new_event_loop", VirtualLoop)
    clocks = SimpleNamespace(
        time_ns=lambda: (START_MS + now_ms()) * 1_000_000, monotonic_ns=lambda: now_ms() * 1_000_000
    )
    monkeypatch.setattr(options, "time", clocks)
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    return made


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs `turbopump WORDS...` with that standard input."""

    def run(*words: object, stdin: bytes = b"") -> Ran:
        monkeypatch.setattr(sys, "argv", ["turbopump", *map(str, words)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capsys.readouterr()
        code: Any = 0
        try:
            app.run()
        except SystemExit as ended:
            code = ended.code
        printed = capsys.readouterr()
        return Ran(code or 0, printed.out, printed.err)

    return run
