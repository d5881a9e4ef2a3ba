"""Proxies in front of brokers (worlds.py)."""

from collections.abc import Callable

import pytest
from tests.unit.broker.conftest import World, make_world
from tests.unit.proxy.worlds import ProxyWorld

__all__ = ["make_world"]
OF_BROKERS = "transactionTimeOut=3000\ntransactionCheckInterval=1000\n"


@pytest.fixture
def make_proxy(make_world: Callable[..., World]) -> Callable[..., ProxyWorld]:
    """Makes a proxy with its own properties, in front of brokers `a` and `b`."""

    def make(**properties: str) -> ProxyWorld:
        worlds = [make_world(f"brokerName={name}\n{OF_BROKERS}", name) for name in "ab"]
        return ProxyWorld(worlds, properties)

    return make


@pytest.fixture
def proxy(make_proxy: Callable[..., ProxyWorld]) -> ProxyWorld:
    """A proxy in front of brokers `a` and `b`."""
    return make_proxy()
