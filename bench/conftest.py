"""Benchmarks in pairs: a workload and its limit, measured in one run; the summary has their ratio.

Each group has one benchmark named `*_limit`, with which the others in the group are compared.
"""

import ctypes
import subprocess
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent


@pytest.fixture(scope="session")
def limits() -> ctypes.CDLL:
    """The C loops of bench/limits.c, compiled and loaded as a library."""
    folder = HERE / ".out"
    folder.mkdir(exist_ok=True)
    library = folder / "limits.so"
    command = ["gcc", "-O3", "-shared", "-fPIC", "-o", str(library), str(HERE / "limits.c")]
    subprocess.run(command, check=True)
    loaded = ctypes.CDLL(str(library))
    for name in ("limit_append", "limit_dispatch", "limit_filter"):
        getattr(loaded, name).restype = ctypes.c_size_t
    loaded.limit_scan.restype = loaded.limit_bytes.restype = ctypes.c_uint64
    return loaded


Measure = Callable[..., Any]


@pytest.fixture
def measure(benchmark: Any) -> Measure:
    """`measure(group, function, operations, setup=None)`: time it under a group name.

    `operations` is the number of messages that one call handles: the summary prints them per
    second.
    """

    def run(
        group: str,
        function: Callable[..., Any],
        operations: int,
        setup: Callable[[], Any] | None = None,
    ) -> Any:
        benchmark.group = group
        benchmark.extra_info["operations"] = operations
        if setup is None:
            return benchmark(function)
        rounds = 3 if benchmark._max_time >= 0.5 else 1
        return benchmark.pedantic(function, setup=setup, rounds=rounds, iterations=1)

    return run


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print a line for each workload: operations per second, the limit's, and their ratio."""
    session = getattr(config, "_benchmarksession", None)
    if session is None or not session.benchmarks:
        return
    groups: dict[str, dict[str, float]] = defaultdict(dict)
    measured = [entry for entry in session.benchmarks if not entry.has_error]
    for entry in measured:
        groups[entry.group or entry.name][entry.name] = (
            entry.extra_info.get("operations", 1) / entry.stats.min
        )
    terminalreporter.section("of the limit, in this run (best rounds)")
    for group, rates in sorted(groups.items()):
        limit = next((rate for name, rate in rates.items() if "_limit" in name), None)
        for name, rate in rates.items():
            if "_limit" in name:
                continue
            of_limit = f"{rate / limit:7.1%} of {limit:>13,.0f}/s" if limit else "no limit"
            terminalreporter.write_line(f"{group:32} {name:34} {rate:>13,.0f}/s  {of_limit}")
    for entry in measured:
        for name, (half, most) in entry.extra_info.get("latency_us", {}).items():
            terminalreporter.write_line(f"{name:32} p50 {half:>9,.0f} us  p99 {most:>9,.0f} us")
