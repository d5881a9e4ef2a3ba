"""Pop in simulated groups: seeds that hold, and bugs that they find (I16, I17)."""

from functools import partial

import pytest

from tests.sim.planting import Patch, Plant
from tests.sim.poppers import ordered
from tests.sim.poppers.planted import (
    ordered_batches_are_one_brokers,
    proofs_of_new_lives_are_passed_over,
)
from tests.sim.poppers.suite import run_seed
from tests.sim.pops.planted import hand_outs_are_forgotten
from tests.sim.share import check_found
from turbopump.broker.tables.groups import GroupTable

SEEDS = range(4)
ORDERED_SEEDS = range(2)
THEMED_SEEDS = range(100)

# Seeds that found bugs which are mended.
REGRESSIONS = {
    "syncs that wait are behind those of a checkpoint, or return with its last (of the disk)": 20,
    "check points that a new master cannot read yet are passed over": 566,
}


def what_a_new_master_does_not_know_is_for_no_group(patch: Patch) -> None:
    """A replica copies the table of groups now and then: its check points are passed over."""
    patch.setattr(GroupTable, "find_used", lambda self, name, now_ms: self.get(name))


BUGS: dict[Plant, tuple[str, ...]] = {
    hand_outs_are_forgotten: ("kill",),
    what_a_new_master_does_not_know_is_for_no_group: ("kill",),
}
"""Planted bugs, each with the faults that a seed needs to find it."""


def test_poppers() -> None:
    for seed in SEEDS:
        run_seed(seed)


@pytest.mark.parametrize("seed", REGRESSIONS.values(), ids=REGRESSIONS)
def test_past_finding(seed: int) -> None:
    run_seed(seed)


def test_poppers_in_order() -> None:
    for seed in ORDERED_SEEDS:
        ordered.run_seed(seed)


def test_the_suite_in_order_finds_batches_of_one_broker(monkeypatch: Patch) -> None:
    bug = ordered_batches_are_one_brokers
    play = partial(ordered.run_seed, about=("kill",))
    check_found(bug, monkeypatch, play, THEMED_SEEDS, beyond=True)


def test_a_deletion_that_a_dead_master_took_along() -> None:
    ordered.run_seed(72, ("kill",))


def test_the_suite_in_order_finds_proofs_that_are_passed_over(monkeypatch: Patch) -> None:
    bug = proofs_of_new_lives_are_passed_over
    play = partial(ordered.run_seed, about=("kill",))
    check_found(bug, monkeypatch, play, THEMED_SEEDS, beyond=True)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_the_suite_finds(bug: Plant, monkeypatch: Patch) -> None:
    about = BUGS[bug]
    check_found(bug, monkeypatch, lambda seed: run_seed(seed, about), THEMED_SEEDS, beyond=True)
