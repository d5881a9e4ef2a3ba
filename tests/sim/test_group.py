"""Groups with controllers under simulation: a part of the seeds that `make sim SUITE=group` plays,
and the proof that the suite has teeth.
"""

import logging
from collections.abc import Iterator

import pytest

from tests.sim import group_suite
from tests.sim.group_planted import BUGS, OF_STORIES
from tests.sim.planted import Plant
from tests.sim.test_planted import first_finding

SEEDS = range(40)
# For each bug so many at most are about the faults it needs: the rarest shows in one of twelve.
THEMED_SEEDS = range(60)
# So that the processes of a parallel run share them.
PARTS = 4


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Trouble makes nodes talkative."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("part", range(PARTS))
def test_group(part: int) -> None:
    for seed in SEEDS[part::PARTS]:
        group_suite.run_seed(seed)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_the_suite_finds(bug: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    about = BUGS[bug]
    bug(monkeypatch)
    found = first_finding(lambda seed: group_suite.run_seed(seed, about), THEMED_SEEDS)
    assert found, f"not found in {THEMED_SEEDS} {about}"


@pytest.mark.parametrize("bug", OF_STORIES, ids=lambda bug: bug.__name__)
def test_a_story_finds(bug: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)
    with pytest.raises(AssertionError):
        OF_STORIES[bug]()
