"""What holds for all tests."""

from typing import Any

import pytest
from hypothesis import settings

from tests import parallel

# A sanitized kernel on a machine with other work may take any time.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All workers of a parallel run have them in the same order."""
    items[:] = parallel.ordered(items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Hands out the units of tests.parallel one by one, unless another way is asked for."""
    if config.getoption("dist") != "load":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class Units(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return parallel.unit_of(nodeid)

    config.option.loadscopereorder = False
    return Units(config, log)
