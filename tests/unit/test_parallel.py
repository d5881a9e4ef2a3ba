"""Units of a parallel run: the tests that share a worker, in all installed versions of the
runner."""

import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.selection import parallel
from tests.selection.long import left_out

ROOT = Path(__file__).resolve().parents[2]
SPARK = "tests/integration/spark/"
CUT_OFF = "tests/integration/failover/test_cut_off.py"


@pytest.mark.parametrize(
    ("nodeid", "unit"),
    [
        (f"{SPARK}test_a.py::test_one[x::y]", SPARK),
        (f"{SPARK}test_b.py::Kind::test_one", SPARK),
        ("tests/unit/pyx/test_a.py::Kind::test_one[1]", "tests/unit/pyx/test_a.py"),
        (f"{CUT_OFF}::test_one[1]", CUT_OFF),
        ("tests/sim/test_a.py::test_one[1]", "tests/sim/test_a.py::test_one[1]"),
        ("tests/test_source.py::test_one", "tests/test_source.py::test_one"),
    ],
)
def test_units(nodeid: str, unit: str) -> None:
    assert parallel.unit_of(nodeid) == unit


def test_slow_files_begin_first() -> None:
    class Named:
        def __init__(self, nodeid: str) -> None:
            self.nodeid = nodeid

    names = ["tests/a.py::b", "tests/sim/b.py::a", f"{SPARK}a.py::a", "tests/a.py::a"]
    found = [item.nodeid for item in parallel.ordered([Named(name) for name in names])]
    assert found == [names[2], names[1], names[0], names[3]]


def test_all_places_exist() -> None:
    for place in (*parallel.TOGETHER, *parallel.SINGLE, *parallel.FIRST):
        assert (ROOT / place).exists(), place
        assert place.endswith("/") == (ROOT / place).is_dir(), place


def test_a_file_of_a_parallel_run_has_one_worker() -> None:
    """The runner must use these units: once it silently ignored its own groups."""
    files = ["tests/unit/pyx/test_frame.py", "tests/unit/pyx/test_queue.py"]
    command = [sys.executable, "-m", "pytest", *files, "-n", "2", "-v"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    workers = defaultdict(set)
    for worker, name in re.findall(r"^\[(gw\d+)\].* PASSED ([^:]+)::", done.stdout, re.MULTILINE):
        workers[name].add(worker)
    assert set(workers) == set(files), done.stdout
    assert all(len(each) == 1 for each in workers.values()), workers
    assert set.union(*workers.values()) == {"gw0", "gw1"}


def test_long_tests_are_left_out_of_a_run_that_names_nothing() -> None:
    def marked(*markers: str) -> SimpleNamespace:
        return SimpleNamespace(get_closest_marker=lambda name: name if name in markers else None)

    short, slow = marked("timeout"), marked("timeout", "long")
    everything = SimpleNamespace(keyword="", markexpr="")
    assert left_out([short, slow], everything, ["tests"]) == [slow]
    assert left_out([slow], everything, ["tests/unit/test_x.py::test_y"]) == []
    assert left_out([slow], SimpleNamespace(keyword="cut", markexpr=""), ["tests"]) == []
    assert left_out([slow], SimpleNamespace(keyword="", markexpr="long"), ["tests"]) == []
