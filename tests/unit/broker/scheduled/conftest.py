"""An acting replica whose due messages go to other masters (escape/cluster.py)."""

from collections.abc import Callable

import pytest
from tests.unit.broker.conftest import World
from tests.unit.broker.escape.cluster import Replica


@pytest.fixture
def replica(make_world: Callable[..., World]) -> Replica:
    """A replica that acts for its master, with the defaults."""
    return Replica(make_world)
