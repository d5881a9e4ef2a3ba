"""What all simulations have in common."""

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Trouble makes nodes talkative."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
