"""A master and its replica, whose tables follow the master's (pairs.py)."""

from collections.abc import Callable

import pytest
from tests.unit.broker.conftest import World
from tests.unit.broker.ha.pairs import Group


@pytest.fixture
def group(make_world: Callable[..., World]) -> Group:
    """A master and a replica, both with the defaults."""
    return Group(make_world)
