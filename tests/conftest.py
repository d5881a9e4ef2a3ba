"""Fixtures and hooks of all tests."""

import gc
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import settings

from tests import io_threads
from tests.failures import logged
from tests.selection import parallel
from tests.selection.long import left_out

# A sanitized kernel on a machine with other work may take any time.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Switch the garbage collector off during the collection of tests.

    Collected tests live as long as the run: the collector would traverse all of them again and
    again, a fifth of the time, and later at each full collection.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_configure() -> None:
    """Exceptions that nodes of this process catch are counted from the beginning; nodes get I/O
    threads if the environment asks for them."""
    logged.watch()
    io_threads.switch_on()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests that take long, and sort the others, so that all workers of a parallel
    run have the same order (tests/selection)."""
    left = left_out(items, config.option, config.args)
    config.hook.pytest_deselected(items=left)
    kept = set(items).difference(left)
    items[:] = parallel.ordered([item for item in items if item in kept])


@pytest.fixture(autouse=True)
def no_tracebacks(request: pytest.FixtureRequest) -> Generator[None]:
    """Fails a test in whose process the product logged an exception that no disk raised.

    A test that provokes such an exception is marked `logs_tracebacks`.
    """
    logged.FAILURES.take()
    yield
    if request.node.get_closest_marker("logs_tracebacks") is None:
        logged.check()
    else:
        assert logged.FAILURES.take(), "the test is marked logs_tracebacks, but logged none"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Hand out the units of tests.selection one by one, unless another way is asked for."""
    if config.getoption("dist") != "load":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class Units(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return parallel.unit_of(nodeid)

    config.option.loadscopereorder = False
    return Units(config, log)
