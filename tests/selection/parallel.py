"""Assignment of tests to the workers of a parallel run, and the order in which they begin.

Owns the units that a worker is given whole and the order of their beginnings; it must never decide
whether a test runs. xdist's own groups (`--dist loadgroup`) rest on names of tests that pytest 9.2
does not let it change: without this each of two workers started a Spark of its own, and a
single long test took the last minutes of a run.
"""

from collections.abc import Sequence
from typing import Final, Protocol

TOGETHER: Final = ("tests/integration/spark/", "tests/integration/failover/test_cut_off.py")
"""All tests of each are one unit: one Spark for all of them, one group of processes."""

SINGLE: Final = (
    "tests/crash/",
    "tests/fuzz/test_holds.py",
    "tests/integration/controller/",
    "tests/integration/failover/",
    "tests/integration/ha/",
    "tests/property/",
    "tests/sim/",
    "tests/test_source.py",
    "tests/unit/sim/",
)
"""Folders and files in which each test is a unit: they take long, and their fixtures live no longer
than a test. Every other file is a unit: its tests share brokers and stores.
"""

FIRST: Final = (
    "tests/integration/spark/",
    "tests/integration/failover/",
    "tests/integration/ha/",
    "tests/test_source.py",
    "tests/fuzz/",
    "tests/integration/controller/",
    "tests/sim/",
    "tests/crash/",
    "tests/integration/",
    "tests/property/",
    "tests/unit/sim/",
)
"""Folders of slow tests, the slowest first: the tests at the end are short, so that workers end
together.
"""


class Item(Protocol):
    """Interface of a test that this module needs."""

    nodeid: str


def unit_of(nodeid: str) -> str:
    """The unit that a test belongs to."""
    for place in TOGETHER:
        if nodeid.startswith(place):
            return place
    return nodeid if nodeid.startswith(SINGLE) else nodeid.partition("::")[0]


def place_of(nodeid: str) -> int:
    """A test with a lesser place begins earlier."""
    for place, prefix in enumerate(FIRST):
        if nodeid.startswith(prefix):
            return place
    return len(FIRST)


def ordered(items: Sequence[Item]) -> list[Item]:
    """All tests, the slow ones first."""
    return sorted(items, key=lambda item: place_of(item.nodeid))
