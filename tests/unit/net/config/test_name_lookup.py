"""Name servers by DNS: all hosts of a name, looked up again, and never an empty list."""

import asyncio
from typing import Any

import pytest

from turbopump.broker.config.config import BrokerConfig, load_config
from turbopump.net.config.name_lookup import NameServerLookup


class Names:
    """The DNS resolver of a loop."""

    def __init__(self) -> None:
        self.hosts: dict[str, list[str]] = {"names": ["10.0.0.2", "10.0.0.1"]}

    async def getaddrinfo(self, host: str, _port: None, **_more: Any) -> list[Any]:
        if host not in self.hosts:
            raise OSError("unknown host")
        return [(2, 1, 6, "", (address, 0)) for address in self.hosts[host]]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> tuple[BrokerConfig, Names, list[int], Any]:
    config, _ = load_config("namesrvAddr=names:9876\nfetchNameSrvAddrByDnsLookup=true\n")
    names, changes = Names(), list[int]()
    lookup = NameServerLookup(config, lambda: changes.append(1))

    async def look() -> None:
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", names.getaddrinfo)
        await lookup.look_up()

    return config, names, changes, lambda: asyncio.run(look())


def test_all_hosts_of_a_name_are_name_servers_and_are_looked_up_again(made: Any) -> None:
    config, names, changes, look = made
    look()
    assert config.namesrv_addr == ["10.0.0.1:9876", "10.0.0.2:9876"]
    assert config.values_as_text()["namesrvAddr"] == "names:9876", "an operator sees the name"
    look()
    assert len(changes) == 1
    names.hosts["names"] = ["10.0.0.3"]
    look()
    assert (config.namesrv_addr, len(changes)) == (["10.0.0.3:9876"], 2)


def test_a_lookup_that_fails_keeps_the_known_addresses(made: Any) -> None:
    config, names, changes, look = made
    look()
    names.hosts.clear()
    look()
    assert (len(config.namesrv_addr), len(changes)) == (2, 1)


def test_an_operators_change_is_looked_up(made: Any) -> None:
    config, names, _changes, look = made
    look()
    names.hosts["others"] = ["10.0.0.9"]
    config.namesrv_addr = ["others:1"]
    look()
    assert config.namesrv_addr == ["10.0.0.9:1"]
    assert config.values_as_text()["namesrvAddr"] == "others:1"


def test_the_names_count_again_once_the_key_is_turned_off(made: Any) -> None:
    config, _names, changes, look = made
    look()
    config.fetch_namesrv_addr_by_dns_lookup = False
    look()
    assert (config.namesrv_addr, config.namesrv_names) == (["names:9876"], ())
    assert len(changes) == 2
