"""Apache RocketMQ's own mqadmin at a container of brokers (RIP-31): addBroker and removeBroker."""

import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from interop.support.groups import (
    CLUSTER,
    Group,
    Kind,
    Ports,
    ask,
    broker_properties,
    wait_listening,
)
from interop.support.mqadmin import Admin
from interop.support.ports import BROKER, BROKER_AND_HA, free_port
from interop.support.processes import Process

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

ROUTE_TIMEOUT_S = 60
GET_BROKER_CLUSTER_INFO = 106
TOPIC = "container-letters"


@dataclass
class Container:
    """A running container with the brokers "one" and "two"."""

    process: Process
    address: str
    admin: Admin
    folder: Path
    namesrv: int

    def file(self, name: str, **settings: str) -> Path:
        """Return the properties of a further broker."""
        return _file(self.folder, self.namesrv, name, **settings)

    def add(self, path: Path) -> str:
        return self.admin.run("addBroker", "-c", self.address, "-b", path)

    def remove(self, name: str) -> str:
        return self.admin.run("removeBroker", "-c", self.address, "-b", f"{CLUSTER}:{name}:0")

    def names(self) -> set[str]:
        """Return the brokers that the name server has. clusterList asks each of them, and
        RocketMQ's cannot answer in its first seconds."""
        body = ask(self.namesrv, GET_BROKER_CLUSTER_INFO, {}).body.decode()
        return set(re.findall(r'"brokerName":"(\w+)"', body))

    def until(self, *names: str) -> None:
        """Wait until the name server shows these brokers and no others."""
        deadline = time.monotonic() + ROUTE_TIMEOUT_S
        while self.names() != set(names):
            assert self.process.running and time.monotonic() < deadline, self.process.tail()
            time.sleep(0.2)


def _file(folder: Path, namesrv: int, name: str, **settings: str) -> Path:
    ports = Ports(namesrv, free_port(BROKER_AND_HA))
    home = folder / name
    # Small files: each of RocketMQ's brokers would reserve gigabytes.
    values = {
        "brokerName": name,
        "mappedFileSizeCommitLog": str(16 << 20),
        "mappedFileSizeConsumeQueue": "600000",
        **settings,
    }
    return broker_properties(ports, home, home / "store", values)


@pytest.fixture(scope="module")
def container(kind: Kind, built: None, work: Path) -> Iterator[Container]:
    """Start a container of the kind under test, with a name server of that kind."""
    folder = work / "container"
    space, port = Ports(free_port(), 0), free_port(BROKER)
    with ExitStack() as stack:
        namesrv = kind.namesrv(space, folder / "namesrv")
        stack.callback(namesrv.stop)
        wait_listening(space.namesrv, namesrv)
        files = [_file(folder, space.namesrv, name) for name in ("one", "two")]
        process = kind.container(port, space.namesrv_address, files, folder)
        stack.callback(process.stop)
        wait_listening(port, process)
        admin = stack.enter_context(closing(Admin(Group(space, [namesrv]), folder / "mqadmin")))
        made = Container(process, f"127.0.0.1:{port}", admin, folder, space.namesrv)
        made.until("one", "two")
        yield made


def test_a_broker_comes_goes_and_returns(container: Container) -> None:
    admin, path = container.admin, container.file("three")
    assert f"add broker to {container.address} success" in container.add(path)
    container.until("one", "two", "three")
    again = container.add(path)
    assert f"{CLUSTER}_three_0 has already been added to current broker container" in again
    assert "CODE: 1 " in again
    admin.run("updateTopic", "-c", CLUSTER, "-t", TOPIC, "-r", 1, "-w", 1)
    for name in ("one", "three"):
        words = ("-t", TOPIC, "-p", "body", "-b", name, "-i", 0)
        assert admin.rows("sendMessage", *words)[0][:3] == [name, "0", "SEND_OK"]
    assert f"remove broker from {container.address} success" in container.remove("three")
    container.until("one", "two")
    refusal = container.remove("three")
    assert "Broker not exist" in refusal and "CODE: 211 " in refusal
    assert f"add broker to {container.address} success" in container.add(path)
    container.until("one", "two", "three")
    ends = {row[0]: row[3] for row in admin.rows("topicStatus", "-t", TOPIC)}
    assert ends == {"one": "1", "two": "0", "three": "1"}, "it has its former store"
    assert f"remove broker from {container.address} success" in container.remove("three")


def test_brokers_that_cannot_be_added(container: Container) -> None:
    assert "addBroker properties empty" in container.add(container.folder / "none.conf")
    slave = container.file("four", brokerRole="SLAVE", brokerId="0")
    assert "slave broker id must be > 0" in container.add(slave)
    wanting = container.file("five", brokerRole="SYNC_MASTER", inSyncReplicas="2")
    assert "invalid replicas number" in container.add(wanting)
    container.until("one", "two")


def test_the_containers_own_configuration(kind: Kind, container: Container) -> None:
    printed = container.admin.pairs("getBrokerConfig", "-b", container.address)
    port = container.address.rpartition(":")[2]
    assert printed["listenPort"] == port
    # RocketMQ's has the machine's, whatever its file contains: the key has no setter.
    assert kind.name == "rocketmq" or printed["brokerContainerIP"] == "127.0.0.1"
    assert printed["configBlackList"] == "configBlackList;brokerConfigPaths"
    assert printed["updateNamesrvAddrInterval"] == "120000"
    words = ("-b", container.address, "-k", "brokerConfigPaths", "-v", "x")
    refused = container.admin.run("updateBrokerConfig", *words)
    assert "Can not update config in black list." in refused
