"""The suites have teeth: each planted bug is found within a limited number of seeds.

The seed that finds it is played again without it, and finds nothing.
"""

import pytest

from tests.sim import config_suite, store_suite
from tests.sim.planted import ABOUT, CONFIG_BUGS, STORE_BUGS
from tests.sim.planting import Plant
from tests.sim.share import check_found
from tests.sim.test_seeds import CONFIG_SEEDS, STORE_SEEDS, THEMED_SEEDS


@pytest.mark.parametrize("bug", STORE_BUGS, ids=lambda bug: bug.__name__)
def test_the_store_suite_finds(bug: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    about = ABOUT.get(bug, ())
    seeds = THEMED_SEEDS if about else STORE_SEEDS
    check_found(bug, monkeypatch, lambda seed: store_suite.run_seed(seed, about), seeds)


@pytest.mark.parametrize("bug", CONFIG_BUGS, ids=lambda bug: bug.__name__)
def test_the_config_suite_finds(bug: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    check_found(bug, monkeypatch, config_suite.run_seed, CONFIG_SEEDS)
