"""A stage for each test."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from tests.unit.pyx.load_loop.stages import Stage


@pytest.fixture
def stage() -> Iterator[Stage]:
    with ExitStack() as stack:
        yield Stage(stack)
