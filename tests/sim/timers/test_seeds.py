"""The suite of timers: seeds that hold, and bugs that it finds."""

import pytest

from tests.sim.planting import Plant
from tests.sim.share import check_found, played
from tests.sim.timers.planted import BUGS
from tests.sim.timers.suite import run_seed

SEEDS = range(100)
FIND_SEEDS = range(200)
FOUND = (
    62,  # narrower slots after a restart, and a clock that was ahead when a delay was stored
    78,  # a clock that was ahead by a month, with slots of 5 ms: the cursor came too slowly
    110,  # a recall that rolled late was in the queue when its timer was delivered
    396,  # slots of 250 ms became slots of 5 ms: a timer came 100 ms early
)


def test_timers() -> None:
    for seed in played(SEEDS):
        run_seed(seed)


@pytest.mark.parametrize("seed", FOUND)
def test_a_seed_that_failed_once_holds(seed: int) -> None:
    run_seed(seed)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_the_suite_finds(bug: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    check_found(bug, monkeypatch, run_seed, FIND_SEEDS)
