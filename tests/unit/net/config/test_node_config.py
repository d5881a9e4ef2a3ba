"""The common part of all nodes' configurations, tested with an invented one."""

from dataclasses import dataclass
from typing import ClassVar

import pytest

from turbopump.engine.keys import BOOLEAN, COUNT, PORT, TEXT, key, section
from turbopump.engine.types import StoreError
from turbopump.net.config.idle import idle_keys
from turbopump.net.config.node_config import NodeConfig
from turbopump.net.wire.java_properties import (
    ConfigError,
    PropertiesError,
    Property,
    parse_properties,
)


@dataclass(frozen=True, slots=True)
class Part:
    low: int = key("low", COUNT, 1, "At least.")
    high: int = key("high", COUNT, 9, "At most.", live=True)

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise StoreError("low is above high")


@dataclass(slots=True)
class Made(NodeConfig):
    IDLE: ClassVar = idle_keys("threads int 4\nacl boolean false refused nothing is checked")

    port: int = key("port", PORT, 80, "Where it listens.")
    name: str = key("name", TEXT, "", "What it is called.", in_force="called", shows_empty=False)
    loud: bool = key("loud", BOOLEAN, False, "Whether.", live=True, aliases=("isLoud",))
    part: Part = section(Part)

    @property
    def called(self) -> str:
        return self.name or ("n" if self.loud else "")

    def check_change(self, before: NodeConfig) -> list[str]:
        if self.port == 7 and self.loud:
            raise ConfigError("port 7 is quiet")
        return ["loud is hardly meant"] if self.loud else []


def test_values_of_the_node_and_of_its_parts() -> None:
    config = Made()
    assert config.update_keys(
        parse_properties("port=81\nhigh=5\nisLoud=TRUE\nthreads=9\nx=1\n")
    ) == [
        "unknown key x ignored (line 5)",
        "known, but without effect here: threads=9 (line 4)",
        "loud is hardly meant",
    ]
    assert (config.port, config.part, config.loud) == (81, Part(1, 5), True)
    shown = {"port": "81", "low": "1", "high": "5", "loud": "true", "name": "n", "threads": "9"}
    assert config.values_as_text() == shown | {"acl": "false"}
    assert "name" not in Made().values_as_text()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("port=81\nhigh=x", "high=x: expected a whole number from 1 to 2147483647 (line 2)"),
        ("port=81\nlow=10", "low is above high"),
        ("port=7\nloud=true", "port 7 is quiet"),
        ("port=81\nacl=true", "acl=true: not supported yet, only false (nothing is checked)"),
    ],
)
def test_a_bad_value_changes_nothing(text: str, message: str) -> None:
    config = Made()
    with pytest.raises(ConfigError) as raised:
        config.update_keys(parse_properties(text))
    assert message in str(raised.value)
    assert config == Made()


def test_two_values_of_a_part_may_be_wrong_one_by_one() -> None:
    config = Made()
    config.update_keys(parse_properties("low=20\nhigh=30"))
    assert config.part == Part(20, 30)


def test_keys_a_running_node_takes_over() -> None:
    config = Made()
    given = [Property("port", "80"), Property("isLoud", "true"), Property("unknown", "1")]
    assert config.accepted_changes(given) == given[1:2]
    with pytest.raises(PropertiesError, match="port, low cannot change while this node runs"):
        config.accepted_changes(
            [Property("port", "81"), Property("low", "2"), Property("high", "3")]
        )


@pytest.mark.parametrize("listed", ["loud", "isLoud"])
def test_a_black_listed_key_is_so_by_all_its_names(listed: str) -> None:
    config = Made(config_black_list=f"a; {listed}")
    assert [name for name in ("loud", "isLoud", "a", "port") if config.is_black_listed(name)] == [
        "loud",
        "isLoud",
        "a",
    ]
