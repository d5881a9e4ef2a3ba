"""What all simulations have in common."""

import logging
from collections.abc import Callable, Iterator

import pytest

from tests.failures import logged
from tests.sim.planting import Patch, Plant


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Trouble makes nodes log much; only errors are looked at (tests/failures/logged.py)."""
    product = logging.getLogger("turbopump")
    logging.disable(logging.WARNING)
    product.propagate = False
    yield
    product.propagate = True
    logging.disable(logging.NOTSET)


@pytest.fixture(autouse=True)
def no_logged_failures(request: pytest.FixtureRequest) -> Iterator[None]:
    """A node that catches an exception and logs it fails the test, but where a bug is planted."""
    logged.FAILURES.take()
    yield
    if "plant" not in request.fixturenames:
        logged.check()


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Plant], None]]:
    """Plants bugs for the rest of a test, each of which has to take hold by its end."""
    patch = Patch(monkeypatch)

    def planted(bug: Plant) -> None:
        bug(patch)

    yield planted
    patch.check()
