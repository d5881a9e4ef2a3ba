"""Runs a client program over all its scenarios and keeps its output.

One run serves many tests: a JVM for each scenario would cost minutes.
"""

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import TimeoutExpired
from typing import Any

from interop.support import processes, toolchain
from interop.support.groups import Group
from interop.support.processes import Process

JAVA_SCENARIOS = (
    "send-sync",
    "send-async",
    "send-oneway",
    "send-batch",
    "send-auto-topic",
    "big-message",
    "push-cluster",
    "push-broadcast",
    "tag-filter",
    "ordered",
    "retry-dlq",
    "delay",
    "lite-pull",
    "lite-pull-assign",
    "pull",
    "offsets",
    "query",
    "chinese",
)
GO_SCENARIOS = (
    "send-sync",
    "send-async",
    "send-oneway",
    "send-batch",
    "big-message",
    "chinese",
    "push-cluster",
    "push-broadcast",
    "tag-filter",
    "ordered",
    "retry-dlq",
    "delay",
    "pull",
)
SCENARIOS = {"java-5.5": JAVA_SCENARIOS, "java-4.9": JAVA_SCENARIOS, "go": GO_SCENARIOS}
# The longest scenario takes 25 s on a quiet machine; its own limits add up to three minutes.
RUN_TIMEOUT_S = 240
CLIENT_HEAP_MB = 256


@dataclass
class Checks:
    """The lines that one scenario printed."""

    passed: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    ended: bool = False

    def add(self, line: dict[str, Any]) -> None:
        """Add a printed line."""
        if line["kind"] == "done":
            self.ended = True
        elif line["ok"]:
            self.passed.append(line["what"])
        else:
            self.failed.append(f"{line['what']} (after {line['after_ms']} ms): {line['detail']}")


def parse(output: str, scenarios: Iterable[str]) -> dict[str, Checks]:
    """Sorts printed lines by scenario; each scenario asked for has an entry."""
    found = {name: Checks() for name in scenarios}
    for text in output.splitlines():
        if text.startswith("{"):
            line = json.loads(text)
            found[line["scenario"]].add(line)
    return found


def java_client(
    module: str, arguments: list[str], folder: Path, *, name: str = "client"
) -> Process:
    """Starts the Java program of a client version."""
    return processes.java(
        name,
        "turbopump.interop.Main",
        toolchain.classpath(module),
        arguments,
        folder,
        heap_mb=CLIENT_HEAP_MB,
    )


class Suites:
    """The client suites against one group, each run at most once."""

    def __init__(self, group: Group, work: Path) -> None:
        self._group = group
        self._work = work
        self._results: dict[str, dict[str, Checks]] = {}
        self._seconds: dict[str, float] = {}

    def result(self, suite: str, scenario: str) -> Checks:
        """Return the output of a scenario; the first call for a suite runs the whole suite."""
        if suite not in self._results:
            started = time.monotonic()
            self._results[suite] = self._run(suite)
            self._seconds[suite] = time.monotonic() - started
        return self._results[suite][scenario]

    def _run(self, suite: str) -> dict[str, Checks]:
        scenarios = SCENARIOS[suite]
        process = self._start(suite, self._work / suite, list(scenarios))
        try:
            process.wait(RUN_TIMEOUT_S)
        except TimeoutExpired:
            pass  # the scenarios that did not end are failures of their own
        return parse(process.out.read_text(), scenarios)

    def _start(self, suite: str, folder: Path, scenarios: list[str]) -> Process:
        ports, prefix = self._group.ports, suite.replace(".", "")
        if suite == "go":
            command = [
                str(toolchain.CACHE / "go-client"),
                ports.namesrv_address,
                ports.broker_address,
                prefix,
                *scenarios,
            ]
            # The Go client keeps the offsets of broadcasting groups under its home.
            return Process("client", command, folder, environment={"HOME": str(folder)})
        module = suite.replace("java", "client")
        return java_client(module, [ports.namesrv_address, prefix, *scenarios], folder)

    def summary(self) -> list[str]:
        """Return one line for each suite that ran."""
        lines = []
        for suite, scenarios in self._results.items():
            passed = sum(len(checks.passed) for checks in scenarios.values())
            failed = sum(len(checks.failed) for checks in scenarios.values())
            whole = sum(checks.ended and not checks.failed for checks in scenarios.values())
            lines.append(
                f"{suite}: {whole} of {len(scenarios)} scenarios, {passed} checks held, "
                f"{failed} failed, {self._seconds[suite]:.1f} s"
            )
        return lines
