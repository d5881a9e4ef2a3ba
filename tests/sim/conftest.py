"""Fixtures that all simulations share."""

import logging
from collections.abc import Callable, Iterator

import pytest

from tests.failures import logged
from tests.sim.planting import Patch, Plant
from tests.sim.share import IS_REST, is_bug_played


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the planted bugs that `.ci/run` plays at the lowest priority (tests/sim/share.py).
    A run that names tests plays each of them, but for the run of `.ci/run`."""
    names_tests = config.option.keyword or any("::" in argument for argument in config.args)
    if names_tests and not IS_REST:
        return
    chosen = list(is_bug_played([item.nodeid for item in items]))
    config.hook.pytest_deselected(
        items=[item for item, plays in zip(items, chosen, strict=True) if not plays]
    )
    items[:] = [item for item, plays in zip(items, chosen, strict=True) if plays]


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
