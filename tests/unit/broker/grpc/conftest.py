"""Fixtures with brokers whose clients use gRPC (fronts.py)."""

from collections.abc import Callable

import pytest
from tests.unit.broker.conftest import World
from tests.unit.broker.grpc.fronts import GrpcWorld


@pytest.fixture
def make_front(make_world: Callable[..., World]) -> Callable[..., GrpcWorld]:
    """Makes a GrpcWorld with properties of its own."""
    return lambda properties="": GrpcWorld(make_world(properties))


@pytest.fixture
def front(make_front: Callable[..., GrpcWorld]) -> GrpcWorld:
    """A GrpcWorld with the defaults."""
    return make_front()
