"""The store that the tests of tables read."""

from typing import Any

import pytest
from tests.unit.engine.snapshot.log_tables import COUNT, fill

from turbopump.engine.store import Store


@pytest.fixture
def store(stores: Any, put: Any) -> Store:
    """Messages in some three files; the store stays open."""
    opened: Store = stores.open()
    fill(opened, put, range(COUNT))
    return opened
