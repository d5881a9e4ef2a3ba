"""The suite of acting replicas: seeds that hold, and bugs that it finds."""

from collections.abc import Callable

import pytest

from tests.sim.acting.planted import (
    BUGS,
    a_master_that_was_not_heard_asks_nothing,
    who_comes_later_is_not_asked,
)
from tests.sim.acting.suite import run_comes_later, run_seed, run_stood_still
from tests.sim.planting import Plant
from tests.sim.share import check_found, played

SEEDS = range(12)
STORIES: dict[Plant, Callable[[int], object]] = {
    a_master_that_was_not_heard_asks_nothing: run_stood_still,
    who_comes_later_is_not_asked: run_comes_later,
}
"""Bugs that the seeds do not show, each with the story that does."""


def test_acting_replicas() -> None:
    found = [run_seed(seed) for seed in played(SEEDS)]
    assert sum(one.acted for one in found) > 10, "no replica acted"
    assert sum(one.grants for one in found) > 0, "no lock was given"
    assert sum(one.returns for one in found) > len(found), "no master came back"


def test_a_master_that_stood_still_has_what_was_committed_meanwhile() -> None:
    for seed in range(3):
        run_stood_still(seed)


def test_a_replica_that_comes_later_is_asked() -> None:
    for seed in range(3):
        run_comes_later(seed)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_the_suite_finds(bug: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    check_found(bug, monkeypatch, STORIES.get(bug, run_seed), range(60))
