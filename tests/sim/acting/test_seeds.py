"""The suite of acting replicas: seeds that hold, and bugs that it finds."""

from collections.abc import Callable

import pytest

from tests.sim.acting.operators import operator_of
from tests.sim.acting.planted import (
    BUGS,
    REMADE_BUGS,
    a_master_that_was_not_heard_asks_nothing,
    who_comes_later_is_not_asked,
)
from tests.sim.acting.suite import Run, run_comes_later, run_seed, run_stood_still
from tests.sim.broker.remakes import REMADE_FROM, Remake
from tests.sim.planting import Plant
from tests.sim.share import check_found, played

SEEDS = range(12)
REMADE_SEEDS = range(REMADE_FROM, REMADE_FROM + 30)
REMADE = REMADE_SEEDS[:9]
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


def test_topics_and_groups_are_deleted_and_made_again() -> None:
    found = [operator_of(Run(seed)) for seed in played(REMADE)]
    assert all(sum(one.acts[act] for one in found) for act in Remake), "an act was not done"
    assert sum(one.is_sure for one in found) > len(found) // 2, "hardly anything was judged"


@pytest.mark.parametrize("bug", REMADE_BUGS, ids=lambda bug: bug.__name__)
def test_seeds_with_an_operator_find(bug: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    check_found(bug, monkeypatch, run_seed, REMADE_SEEDS)


def test_a_master_that_stood_still_has_offsets_committed_meanwhile() -> None:
    for seed in range(3):
        run_stood_still(seed)


def test_a_replica_that_comes_later_is_asked() -> None:
    for seed in range(3):
        run_comes_later(seed)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_the_suite_finds(bug: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    check_found(bug, monkeypatch, STORIES.get(bug, run_seed), range(60))
