"""The suites have teeth: each planted bug is found within so many seeds.

The same seeds without a bug are played by test_seeds.py, and find nothing.
"""

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.sim import config_suite, store_suite
from tests.sim.planted import ABOUT, CONFIG_BUGS, STORE_BUGS, Plant
from tests.sim.test_seeds import CONFIG_SEEDS, STORE_SEEDS, THEMED_SEEDS
from turbopump.engine.types import StoreError


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """A planted bug makes an engine talkative."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def first_finding(run_seed: Callable[[int], Any], seeds: range) -> str:
    """What the first failing seed says. Anything but a finding is an error of the plant."""
    for seed in seeds:
        try:
            run_seed(seed)
        except (AssertionError, StoreError) as finding:
            return f"seed {seed}: {finding}"
    return ""


@pytest.mark.parametrize("bug", STORE_BUGS, ids=lambda bug: bug.__name__)
def test_the_store_suite_finds(bug: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)
    about = ABOUT.get(bug, ())
    seeds = THEMED_SEEDS if about else STORE_SEEDS
    found = first_finding(lambda seed: store_suite.run_seed(seed, about), seeds)
    assert found, f"not found in {seeds} {about}"


@pytest.mark.parametrize("bug", CONFIG_BUGS, ids=lambda bug: bug.__name__)
def test_the_config_suite_finds(bug: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)
    assert first_finding(config_suite.run_seed, CONFIG_SEEDS), f"not found in {CONFIG_SEEDS}"
