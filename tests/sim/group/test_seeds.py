"""Groups with controllers under simulation: a part of the seeds that `make sim SUITE=group` plays,
and the proof that the suite has teeth.
"""

from collections.abc import Callable

import pytest

from tests.sim.group import suite as group_suite
from tests.sim.group.planted import BUGS, OF_STORIES
from tests.sim.planting import Plant
from tests.sim.share import check_found, played

SEEDS = range(40)
# Maximum number of seeds for each bug, with the faults that it needs: the rarest bug shows in one
# of some forty.
THEMED_SEEDS = range(120)
# Seeds that found bugs which are mended. A change of the suite's steps changes their stories, so
# each bug also has a test of its own (group/test_stories.py).
REGRESSIONS = {
    "each registration of a broker with a doubt makes its slow disk sync, a heartbeat is lost": 140,
    "a paused broker begins a term that is over, and lacks what the next one confirmed": 987,
    "the same with disks that do not sync": 200881,
}
# So that the processes of a parallel run share them.
PARTS = 4


@pytest.mark.parametrize("part", range(PARTS))
def test_group(part: int) -> None:
    for seed in played(SEEDS)[part::PARTS]:
        group_suite.run_seed(seed)


@pytest.mark.parametrize("seed", REGRESSIONS.values(), ids=REGRESSIONS)
def test_past_finding(seed: int) -> None:
    group_suite.run_seed(seed)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_the_suite_finds(bug: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    about, seeds = BUGS[bug], range(4 * len(THEMED_SEEDS))
    check_found(
        bug, monkeypatch, lambda seed: group_suite.run_seed(seed, about), seeds, beyond=True
    )


@pytest.mark.parametrize("bug", OF_STORIES, ids=lambda bug: bug.__name__)
def test_a_story_finds(bug: Plant, plant: Callable[[Plant], None]) -> None:
    plant(bug)
    with pytest.raises(AssertionError):
        OF_STORIES[bug]()
