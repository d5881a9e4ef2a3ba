"""Hosts in brackets, as an IPv6 address is written before a port."""

import pytest

from turbopump.broker.config.config import BrokerConfig
from turbopump.broker.container.config import ContainerConfig
from turbopump.controller.config import ControllerConfig
from turbopump.engine.keys import bare_host, keys_of
from turbopump.namesrv.config import NamesrvConfig
from turbopump.proxy.config import ProxyConfig


@pytest.mark.parametrize(
    ("text", "host"),
    [("[::1]", "::1"), ("::1", "::1"), ("127.0.0.1", "127.0.0.1"), ("[::1", "[::1"), ("", "")],
)
def test_an_address_in_brackets_is_the_same_one(text: str, host: str) -> None:
    assert bare_host(text) == host


def test_the_key_of_every_kind_of_node_takes_brackets() -> None:
    for kind in (BrokerConfig, NamesrvConfig, ControllerConfig, ContainerConfig, ProxyConfig):
        assert keys_of(kind)["bind_address"].kind.parse("[::1]") == "::1", kind
