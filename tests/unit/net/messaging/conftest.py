"""Brokers whose clients use gRPC, as tests of a broker's gRPC have them."""

from tests.unit.broker.conftest import make_world
from tests.unit.broker.grpc.conftest import front, make_front

__all__ = ["front", "make_front", "make_world"]
