"""mqadmin's view of replicas: how far each follows, and the records of each master."""

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from interop.support.groups import (
    BROKER_NAME,
    CLUSTER,
    Group,
    Kind,
    Ports,
    wait_listening,
    wait_ready,
)
from interop.support.mqadmin import Admin
from interop.support.ports import BROKER_AND_HA, free_port

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]
TIMEOUT_S = 60
COUNT = 5
SMALL = {"mappedFileSizeCommitLog": str(16 << 20), "brokerIP2": "127.0.0.1"}
REPLICA = re.compile(
    r"^(127\.0\.0\.1:\d+) +(\d+) +(\d+) +\d+\.\d\d +(OK|Fall Behind) +(\d+)$", re.MULTILINE
)
ENTRY = re.compile(r"#Epoch: EpochEntry\{epoch=(\d+), startOffset=(\d+), endOffset=(\d+)\}")


@dataclass
class Pair:
    """Two brokers with a common name at a common name server, and mqadmin."""

    admin: Admin
    brokers: list[Ports]
    group_file: Path

    def show(self, command: str, *words: object, until: Callable[[str], object]) -> str:
        """Return the output of a command once it matches."""
        deadline = time.monotonic() + TIMEOUT_S
        while not until(printed := self.admin.run(command, *words)):
            assert time.monotonic() < deadline, printed
            time.sleep(0.2)
        return printed

    def send(self) -> None:
        """Send messages to the broker that is the master."""
        for number in range(COUNT):
            sent = self.admin.rows("sendMessage", "-t", "Replicated", "-p", f"body-{number}")
            assert sent[0][2] == "SEND_OK", sent

    def elect(self, epoch: int, master: int) -> None:
        """Write into the group file which broker is the master (1 or 2)."""
        addresses = {
            str(number): f"127.0.0.1:{ports.broker + 1}"
            for number, ports in enumerate(self.brokers, 1)
        }
        text = json.dumps({"epoch": epoch, "master": master, "brokers": addresses})
        beside = self.group_file.with_suffix(".tmp")
        beside.write_text(text)
        beside.rename(self.group_file)


@pytest.fixture
def start(
    kind: Kind, built: None, work: Path, request: pytest.FixtureRequest
) -> Iterator[Callable[..., Pair]]:
    """Starts a name server, two brokers with settings of their own, and mqadmin."""
    folder = work / request.node.name
    groups: list[Group] = []

    def call(*settings: dict[str, str]) -> Pair:
        first = Ports.free()
        brokers = [first, Ports(first.namesrv, free_port(BROKER_AND_HA))]
        pair = Pair(None, brokers, folder / "group.json")  # type: ignore[arg-type]
        groups.append(Group(first, [kind.namesrv(first, folder)]))
        pair.elect(1, 1)
        wait_listening(first.namesrv, groups[0].members[0])
        for number, (ports, values) in enumerate(zip(brokers, settings, strict=True), 1):
            own = folder / f"broker-{number}"
            groups[0].members.append(kind.broker(ports, own, own / "store", {**SMALL, **values}))
        wait_ready(groups[0])
        pair.admin = stack.enter_context(closing(Admin(groups[0], folder / "mqadmin")))
        return pair

    with ExitStack() as stack:
        yield call
    for group in groups:
        group.stop()


def test_a_master_and_its_slave(start: Callable[..., Pair]) -> None:
    """Default HA; the slave learns from the name server where its master is."""
    pair = start(
        {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2"},
        {"brokerRole": "SLAVE", "brokerId": "1"},
    )
    master, slave = pair.brokers
    where = ("-b", master.broker_address)
    pair.show("haStatus", *where, until=lambda text: "#InSyncSlaveNum\t1\n" in text)
    pair.send()
    printed = pair.show("haStatus", *where, until=lambda text: re.search(r" 0 +\d+\.\d\d", text))
    assert f"#MasterAddr\t{master.broker_address}\n" in printed, printed
    assert "#SlaveNum\t1\n" in printed, printed
    found = re.search(r"#MasterCommitLogMaxOffset\t(\d+)\n", printed)
    assert found and int(found[1]) > 0, printed
    (replica,) = REPLICA.findall(printed)
    assert replica[1:] == (found[1], "0", "OK", found[1]), printed
    assert pair.admin.run("haStatus", "-c", CLUSTER).count("#MasterAddr") == 1, "masters only"

    printed = pair.admin.run("haStatus", "-b", slave.broker_address)
    assert f"#MasterAddr\t127.0.0.1:{master.broker + 1}\n" in printed, printed
    assert f"#CommitLogMaxOffset\t{found[1]}\n" in printed, printed
    for name in ("#LastReadTime", "#LastWriteTime"):
        assert re.search(rf"{name}\t20\d\d-\d\d-\d\d \d\d:\d\d:\d\d,\d\d\d\n", printed), printed
    assert "only for controllerMode" in pair.admin.run("getBrokerEpoch", "-b", BROKER_NAME)


def _is_pair_of(master: Ports, text: str) -> bool:
    return f"#MasterAddr\t{master.broker_address}\n" in text and "#InSyncSlaveNum\t1\n" in text


def test_epochs_of_a_pair_that_switches(start: Callable[..., Pair], kind: Kind) -> None:
    """Each replica shows each master's term, with the log offset at which it began."""
    if kind.name != "turbopump":
        pytest.skip("RocketMQ switches with a controller only")
    file = {"haGroupFile": "../group.json"}
    pair = start({**file, "brokerId": "1"}, {**file, "brokerId": "2"})
    for epoch, ports in enumerate(pair.brokers, 1):
        pair.elect(epoch, epoch)
        pair.show("haStatus", "-c", CLUSTER, until=partial(_is_pair_of, ports))
        pair.send()

    def entries(text: str) -> list[tuple[str, str, str]]:
        return ENTRY.findall(text)

    printed = pair.show(
        "getBrokerEpoch",
        "-b",
        BROKER_NAME,
        until=lambda text: len(set(entries(text))) == 2 and len(entries(text)) == 4,
    )
    first, second = entries(printed)[:2]
    assert (first[0], first[1], second[0], second[1]) == ("1", "0", "2", first[2]), printed
    assert int(second[2]) > int(second[1]) > 0, printed
    for ports in pair.brokers:
        assert f"#brokerAddr\t{ports.broker_address}\n" in printed, printed
    assert len(entries(pair.admin.run("getBrokerEpoch", "-c", CLUSTER))) == 4
