"""Declared keys: their page is up to date, defaults are RocketMQ's, each key does something."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from tests.configuration import NODES, PAGE, TABLES, page
from tests.test_names import modules
from turbopump.broker.config.config import BrokerConfig
from turbopump.engine.keys import OURS
from turbopump.net.config.node_config import NodeConfig, declared_keys

GOLDEN = Path(__file__).parent / "golden" / "config_keys_5_5_0.tsv"
CLASSES = {
    "broker": (
        *("NettyServerConfig", "NettyClientConfig", "MessageStoreConfig", "BrokerConfig"),
        "AuthConfig",
    ),
    "name server": ("NettyServerConfig", "NettyClientConfig", "NamesrvConfig"),
    "controller": ("NettyServerConfig", "NettyClientConfig", "ControllerConfig"),
    "proxy": ("AuthConfig", "ProxyConfig"),
    "container": ("NettyServerConfig", "NettyClientConfig", "BrokerContainerConfig"),
}
"""Classes of RocketMQ with a node's keys; where several have a key, the last one's
default counts.
"""
AT_START = {"listenPort"}
"""RocketMQ's start gives each kind of node a port of its own, whatever the class has."""


def defaults_of(node: str) -> dict[str, str]:
    """RocketMQ's defaults, by key."""
    lines = [line.split("\t") for line in GOLDEN.read_text().splitlines()]
    defaults = {
        kind: {key: text for name, key, _, text in lines if name == kind} for kind in CLASSES[node]
    }
    return {key: text for kind in CLASSES[node] for key, text in defaults[kind].items()}


def test_the_page_equals_the_declarations() -> None:
    assert PAGE.read_text() == page(), "run: python -m tests.configuration"


@pytest.mark.parametrize("node", NODES)
def test_a_default_is_rocketmqs_or_says_that_it_is_not(node: str) -> None:
    theirs, wrong = defaults_of(node), []
    for name, (_, _, key) in declared_keys(NODES[node]).items():
        default = "" if key.default is None else key.kind.to_text(key.default)
        if name not in AT_START and theirs.get(name) != "null":
            documented = {OURS: None, "": default}.get(key.rocketmq, key.rocketmq)
            if documented != theirs.get(name):
                wrong.append(f"{name}={default}: {documented} is said, {theirs.get(name)} it is")
    assert wrong == []


def test_every_declared_key_is_one_sentence() -> None:
    for keys in TABLES.values():
        for key in keys:
            assert key.meaning.endswith("."), key.name
            assert "|" not in key.meaning, key.name


def reads(tree: ast.Module) -> Iterator[str]:
    """Attributes that a module reads."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            yield node.attr


def test_every_declared_key_does_something() -> None:
    """Each declared key is read:

    RocketMQ's users rely on the effect of a key that is accepted without a warning.
    """
    read = {name for _, tree in modules() for name in reads(tree)}
    for config in NODES.values():
        idle = [name for name, one in declared_keys(config).items() if one.attribute not in read]
        assert idle == []


def test_a_key_is_declared_once() -> None:
    class Twice(BrokerConfig):
        IDLE: ClassVar = {"listenPort": next(iter(BrokerConfig.IDLE.values()))}

    with pytest.raises(AssertionError, match="among the idle"):
        declared_keys(Twice)
    assert issubclass(Twice, NodeConfig)
