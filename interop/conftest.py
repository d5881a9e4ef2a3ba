"""Session set-up: the broker under test, builds of the clients, folders for files, and the summary.

Run it with `make interop` (files of tests side by side, each with groups of its own), or with
`python -m pytest interop` from the repository root; `--target rocketmq` runs the same tests against
Apache RocketMQ itself, which validates the tests.
"""

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests import io_threads

from interop.support import groups, toolchain
from interop.support.groups import Group, Kind
from interop.support.suites import Suites
from interop.support.tracebacks import tracebacks

KINDS: dict[str, Kind] = {"rocketmq": groups.RocketMQ(), "turbopump": groups.Turbopump()}
_SUITES = pytest.StashKey[Suites]()
_BUILD_SECONDS = pytest.StashKey[float]()
_TRACEBACKS = pytest.StashKey[list[str]]()
"""Tracebacks in the logs of all nodes, of all workers of a parallel run."""
TRACEBACKS_SHOWN = 3
WORK = toolchain.CACHE / f"work-{os.getpid()}"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that chooses between Turbopump and RocketMQ."""
    parser.addoption(
        "--target",
        choices=sorted(KINDS),
        default="turbopump",
        help="the broker group that the clients are run against",
    )
    parser.addoption(
        "--messages",
        type=int,
        default=20_000,
        help="how many a pair of a RocketMQ broker and ours is loaded with",
    )


def pytest_configure() -> None:
    """Give our nodes I/O threads if the environment asks for them."""
    io_threads.switch_on()


def pytest_sessionstart() -> None:
    """Fail the run before any test if a tool is missing."""
    missing = toolchain.missing_tools()
    if missing:
        pytest.exit("interop cannot run: " + "; ".join(missing), returncode=1)


@pytest.fixture(scope="session")
def kind(pytestconfig: pytest.Config) -> Kind:
    """Return the maker of the brokers under test."""
    return KINDS[pytestconfig.getoption("--target")]


@pytest.fixture(scope="session")
def built(pytestconfig: pytest.Config) -> None:
    """Compile the clients; this takes most of a first run's time."""
    started = time.monotonic()
    try:
        toolchain.build_java()
        toolchain.build_go()
    except toolchain.BuildError as error:
        pytest.exit(f"interop cannot run: {error}", returncode=1)
    pytestconfig.stash[_BUILD_SECONDS] = time.monotonic() - started


@pytest.fixture(scope="session")
def work() -> Path:
    """Return a folder for this run's stores and logs."""
    WORK.mkdir(parents=True)
    return WORK


@pytest.fixture(scope="session")
def group(kind: Kind, built: None, work: Path) -> Iterator[Group]:
    """Start one broker group for all clients and for mqadmin."""
    folder = work / "group"
    if kind.name == "turbopump":
        started = groups.start_up_command(folder)
    else:
        started = groups.start(kind, groups.Ports.free(), folder, folder / "store")
    yield started
    alive = [process.name for process in started.members if process.running]
    started.stop()
    assert len(alive) == len(started.members), f"only {alive} lived to the end"


@pytest.fixture(scope="session")
def suites(group: Group, work: Path, pytestconfig: pytest.Config) -> Suites:
    """Return the client suites; each runs once when its first test asks."""
    made = Suites(group, work)
    pytestconfig.stash[_SUITES] = made
    return made


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Pass the tracebacks of a worker's nodes to the controlling process of a parallel run."""
    found = getattr(node, "workeroutput", {}).get("tracebacks", [])
    node.config.stash.setdefault(_TRACEBACKS, []).extend(found)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config
) -> None:
    """Print a summary of each client suite, and the folder to look at after a failure."""
    made = config.stash.get(_SUITES, None)
    terminalreporter.section(f"interop against {config.getoption('--target')}")
    if _BUILD_SECONDS in config.stash:
        terminalreporter.write_line(f"built in {config.stash[_BUILD_SECONDS]:.1f} s")
    if made is not None:
        for line in made.summary():
            terminalreporter.write_line(line)
    found = config.stash.get(_TRACEBACKS, [])
    for one in found[:TRACEBACKS_SHOWN]:
        terminalreporter.write_line(one)
    terminalreporter.write_line(f"tracebacks in nodes' logs: {len(found)}")
    if exitstatus != 0 and WORK.exists():
        terminalreporter.write_line(f"logs and stores are kept in {WORK}")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Fail the run for a traceback in a node's log; delete the files of a good run."""
    found = session.config.stash.setdefault(_TRACEBACKS, [])
    found += tracebacks(WORK)
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["tracebacks"] = found
    if found and exitstatus == 0:
        session.exitstatus = exitstatus = pytest.ExitCode.TESTS_FAILED
    if exitstatus == 0:
        shutil.rmtree(WORK, ignore_errors=True)
