"""A proxy's name servers while it runs: a changing file, names by DNS, and the proxy's requests."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.unit.broker.grpc.fronts import message
from tests.unit.proxy.worlds import NAME_SERVER, ProxyWorld

from turbopump.net.grpc.codes import Code
from turbopump.net.wire.java_properties import Property
from turbopump.proxy.config import ProxyConfig
from turbopump.proxy.names import FollowedNames


class Followed:
    """The name servers of a proxy with the configuration file `file`; `look` advances the clock."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "rmq-proxy.json"
        self.config = ProxyConfig(path=str(self.file))
        self.write("namesrvAddr=a:1\n")
        self.config.update_keys([Property("namesrvAddr", "a:1")])
        self.changes: list[list[str]] = []
        self.names = FollowedNames(
            self.config, lambda: self.changes.append(list(self.config.namesrv_addr))
        )

    def write(self, text: str) -> None:
        """Replace the file with a new one, as operators' tools do."""
        fresh = self.file.with_suffix(".new")
        fresh.write_text(text)
        fresh.replace(self.file)

    async def look(self) -> None:
        await self.names.read()
        self.names.stop()
        await self.names.resolve_names()


@pytest.fixture
def followed(tmp_path: Path) -> Followed:
    return Followed(tmp_path)


def test_a_changed_file_replaces_the_name_servers(followed: Followed) -> None:
    asyncio.run(followed.look())
    assert followed.changes == [], "the file is as the proxy read it at its start"
    followed.write('{"namesrvAddr": "b:2;c:3", "fetchNamesrvAddrInterval": 50}')
    asyncio.run(followed.look())
    asyncio.run(followed.look())
    assert followed.changes == [["b:2", "c:3"]]
    assert followed.config.fetch_namesrv_addr_interval_ms == 50


@pytest.mark.parametrize(
    "text", ["namesrvAddr=\n", "maxMessageSize=1\n", '{"namesrvAddr": ', "namesrvAddr=b\n"]
)
def test_a_file_that_cannot_be_used_changes_nothing(
    followed: Followed, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    followed.write(text)
    for _ in range(2):
        asyncio.run(followed.look())
    assert (followed.config.namesrv_addr, followed.changes) == (["a:1"], [])
    assert caplog.text.count("the name servers are unchanged") == 1
    followed.file.unlink()
    asyncio.run(followed.look())
    assert followed.config.namesrv_addr == ["a:1"]
    assert "No such file" in caplog.text


def test_names_of_the_file_are_looked_up(
    followed: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hosts(*_what: Any, **_more: Any) -> list[Any]:
        return [(2, 1, 6, "", (address, 0)) for address in ("10.0.0.2", "10.0.0.1")]

    async def look() -> None:
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", hosts)
        await followed.look()

    followed.write("namesrvAddr=names:9\nfetchNameSrvAddrByDnsLookup=true\n")
    asyncio.run(look())
    asyncio.run(look())
    assert followed.changes == [["names:9"], ["10.0.0.1:9", "10.0.0.2:9"]]
    assert followed.config.name_servers == ["names:9"]


def test_the_new_name_servers_are_asked(proxy: ProxyWorld) -> None:
    proxy.no_response["127.0.0.1:1"] = "the connection was refused"
    proxy.config.namesrv_addr = ["127.0.0.1:1"]
    proxy.known.name_servers_changed()
    status = proxy.ask("QueryRoute", topic={"name": "TNormal"}).status
    assert status.code == Code.INTERNAL_SERVER_ERROR, "the old server is no longer queried"
    moved = proxy.brokers[0]
    proxy.masters["a"] = moved.address = "127.0.0.1:11911"
    proxy.config.namesrv_addr = [NAME_SERVER]
    proxy.known.name_servers_changed()
    proxy.tick(2_000)
    assert proxy.known.master_address("a") == moved.address, "all brokers are asked for at once"
    assert proxy.send(message()).status.code == Code.OK
