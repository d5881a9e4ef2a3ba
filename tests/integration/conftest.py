"""Fixtures of all tests that start processes."""

from collections.abc import Iterator

import pytest
from interop.support.tracebacks import tracebacks

WATCHED = ("failover", "ha")
"""Folders of the tests of chaos and failovers."""


@pytest.fixture(scope="module", autouse=True)
def no_tracebacks(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """A traceback in the log of a node that one of these modules started fails it."""
    if request.path.parent.name not in WATCHED:
        yield
        return
    base = tmp_path_factory.getbasetemp()
    before = set(base.iterdir())
    yield
    found = [one for path in set(base.iterdir()) - before for one in tracebacks(path)]
    assert not found, f"tracebacks in nodes' logs: {len(found)}\n{found[0]}"
