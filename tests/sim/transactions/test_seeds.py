"""The suite of transactions: seeds that hold, and bugs that it finds."""

import pytest

from tests.sim.planting import Plant
from tests.sim.share import check_found, played
from tests.sim.transactions.planted import BUGS
from tests.sim.transactions.suite import run_seed

SEEDS = range(300)
# Bugs that some seed in thousands shows, by a cut between two records that are written together.
RARE = {"op_message_before_the_commit": range(5_000)}
# So that the processes of a parallel run share them.
PARTS = 2
# Seeds that found bugs which are mended.
REGRESSIONS = {
    "a repeated commit is answered before the first one is safe": 4,
    "the newest half message of a transaction cannot be read yet": 208,
    "another half message lies where the lost one was": 33,
    "a rollback of what was given up is not remembered": 712,
    "what a term before had and this one gave up is committed twice": 7_000_887,
}


@pytest.mark.parametrize("part", range(PARTS))
def test_transactions(part: int) -> None:
    for seed in played(SEEDS)[part::PARTS]:
        run_seed(seed)


@pytest.mark.parametrize("seed", REGRESSIONS.values(), ids=REGRESSIONS)
def test_past_finding(seed: int) -> None:
    run_seed(seed)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_the_suite_finds(bug: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    check_found(bug, monkeypatch, run_seed, RARE.get(bug.__name__, SEEDS))
