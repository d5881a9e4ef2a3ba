"""What all simulations have in common."""

import logging
from collections.abc import Callable, Iterator

import pytest

from tests.sim.planting import Patch, Plant


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Trouble makes nodes talkative."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Plant], None]]:
    """Plants bugs for the rest of a test, each of which has to take hold by its end."""
    patch = Patch(monkeypatch)

    def planted(bug: Plant) -> None:
        bug(patch)

    yield planted
    patch.check()
