"""Groups of a Java broker and ours under controllers of either kind: elections, kills, mqadmin."""

import re
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from interop.support.controlled import Controlled, Member
from interop.support.groups import BROKER_NAME, CLUSTER, Kind, Ports, RocketMQ, Turbopump
from interop.support.mqadmin import Admin
from interop.test_mixed_pairs import COUNT, FILE_SIZE, MORE, SETTINGS, Broker, Pair, epochs, until

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]
SAFE = {
    **SETTINGS,
    "mappedFileSizeCommitLog": str(FILE_SIZE),
    "allAckInSyncStateSet": "true",
    "totalReplicas": "2",
    "slaveTimeout": "6000",
}
OURS, THEIRS = 0, 1
"""Numbers of the two brokers."""
REPLICA = re.compile(
    rf"(InSyncReplica|NotInSyncReplica):\tReplicaIdentity\{{brokerName='{BROKER_NAME}', "
    r"brokerId=(\d+), brokerAddress='([^']+)', alive=(true|false)\}"
)


@dataclass
class Mixed:
    """A group, and comparisons of its logs and tables."""

    group: Controlled
    pair: Pair
    terms: int = 1

    def broker(self, place: int) -> Member:
        """The kinds of controllers and brokers."""
        return self.group.brokers[place]

    def wait_master(self, place: int) -> None:
        """Return when the controllers show the master, and it accepts sends without or with all
        replicas."""
        one = self.broker(place)
        self.group.until(f"{one.name} is the master", lambda: self.group.master is one)
        self.pair.master = place
        until(
            "it takes a message",
            lambda: self.pair.brokers[place].send("raw", b"of a new term") == 0,
        )
        self.terms += 1

    def elect(self, place: int) -> None:
        """Elect a master, as an administrator does."""
        response = self.group.elect(self.broker(place))
        assert response is not None and response.code == 0, response
        self.wait_master(place)
        self.group.wait_whole()

    def kill_master(self, place: int) -> None:
        """Kill the master with SIGKILL; the other broker leads; the killed one comes back."""
        self.group.wait_whole()
        self.broker(place).kill()
        self.wait_master(1 - place)
        self.broker(place).start()
        self.group.wait_whole()

    def same(self) -> None:
        """Compare logs, records that readers receive, tables and epochs."""
        self.pair.same()
        one, other = self.pair.brokers
        until("the epochs are the same", lambda: written(one) == written(other))
        found = [epoch for epoch, _ in written(one)]
        assert found == sorted(set(found)) and len(found) >= self.terms, (found, self.terms)


def written(broker: Broker) -> list[tuple[int, int]]:
    """Return the epochs with the log offsets at which they start, except epochs without records: a
    Java replica learns of an epoch with its first bytes. A master whose heartbeats are late for a
    while, on a slow disk, gets another epoch before the current one has received a message."""
    found = [tuple(map(int, line.split("-"))) for line in epochs(broker)]
    starts = [start for _, start in found]
    return [
        (epoch, start)
        for (epoch, start), end in zip(found, [*starts[1:], None], strict=True)
        if start != end
    ]


@contextmanager
def mixed(
    controllers: list[Kind], namesrv: Kind, kinds: list[Kind], folder: Path
) -> Iterator[Mixed]:
    """Run a group whose master is the broker of the first kind; no process is left."""
    group = Controlled(folder, namesrv, controllers, kinds, SAFE)
    brokers = [
        Broker(kind, Ports(group.namesrv_port, member.port), member.folder)
        for kind, member in zip(kinds, group.brokers, strict=True)
    ]
    try:
        group.start()
        yield Mixed(group, Pair(folder, brokers))
    finally:
        group.abandon()


def switch_each_way(group: Mixed) -> None:
    """Elections by an administrator and by death, of masters of both kinds."""
    group.pair.run("move", f"exchange-write:0,{COUNT}")
    group.same()
    group.elect(THEIRS)
    group.pair.run("move", f"exchange-continue:{COUNT},{COUNT + MORE},{group.pair.kept}")
    group.same()
    group.kill_master(THEIRS)
    group.same()
    group.kill_master(OURS)
    group.same()
    group.elect(OURS)
    group.pair.run("kinds", "send-sync", "send-batch")
    group.same()


def test_java_broker_and_ours_under_our_controllers(kind: Kind, built: None, work: Path) -> None:
    """Three controllers of ours; the leading one dies during the test."""
    with mixed([kind] * 3, kind, [kind, RocketMQ()], work / "our-controllers") as group:
        switch_each_way(group)
        leader = group.group.leader()
        assert leader is not None
        leader.kill()
        group.group.until(
            "another controller leads", lambda: group.group.leader() not in (None, leader)
        )
        group.group.wait_whole()
        leader.start()
        with closing(Admin(group.group.as_group, work / "our-controllers" / "mqadmin")) as admin:
            mqadmin_reads(group, admin)
            mqadmin_elects(group, admin, THEIRS)
            mqadmin_configures(group, admin)
            if kind.name == "turbopump":
                mqadmin_cleans(group, admin)
        group.same()


def test_java_broker_and_ours_under_a_java_controller(kind: Kind, built: None, work: Path) -> None:
    """A Java controller sends requests to our broker and a 5.5.0 broker, and answers theirs."""
    with mixed([RocketMQ()], RocketMQ(), [kind, RocketMQ()], work / "java-controller") as group:
        switch_each_way(group)


def test_java_brokers_alone_under_our_controllers(built: None, work: Path) -> None:
    """RocketMQ brokers under our controllers: elections, kills, the SyncStateSet, notices."""
    kinds: list[Kind] = [RocketMQ(), RocketMQ()]
    with mixed([Turbopump()] * 3, Turbopump(), kinds, work / "java-brokers") as group:
        switch_each_way(group)


def shown(admin: Admin, command: str, *words: object, when: Callable[[str], object]) -> str:
    """Return the output of a command once it matches."""
    printed = ""

    def is_so() -> bool:
        nonlocal printed
        printed = admin.run(command, *words)
        return bool(when(printed))

    try:
        until(command, is_so)
    except AssertionError as error:
        raise AssertionError(f"{error}:\n{printed}") from error
    return printed


def anyone(group: Controlled) -> str:
    """Return a controller that does not lead: all but two of the commands take only one address,
    and ask this controller for the leader."""
    leader = group.leader()
    return next(one.address for one in group.controllers if one is not leader)


def mqadmin_reads(group: Mixed, admin: Admin) -> None:
    """Run getSyncStateSet, getControllerMetaData, getBrokerEpoch."""
    whole, leader = group.group, group.group.leader()
    assert leader is not None
    addresses = whole.controller_addresses
    printed = shown(
        admin,
        "getSyncStateSet",
        "-a",
        addresses,
        "-b",
        BROKER_NAME,
        when=lambda text: "#SyncStateSetNums\t2\n" in text,
    )
    found = whole.sync()
    assert found is not None
    for line in (
        f"#brokerName\t{BROKER_NAME}",
        f"#MasterBrokerId\t{found.ids[found.master]}",
        f"#MasterAddr\t{found.master}",
        f"#MasterEpoch\t{found.master_epoch}",
        f"#SyncStateSetEpoch\t{found.set_epoch}",
    ):
        assert f"{line}\n" in printed, printed
    rows = {
        (where, address, int(number), alive)
        for where, number, address, alive in REPLICA.findall(printed)
    }
    assert rows == {
        ("InSyncReplica", address, number, "true") for address, number in found.ids.items()
    }, printed
    assert "#SyncStateSetNums\t2\n" in admin.run("getSyncStateSet", "-a", addresses, "-c", CLUSTER)

    # A returned broker learns its leader from the next heartbeat.
    printed = shown(
        admin,
        "getControllerMetaData",
        "-a",
        anyone(whole),
        when=lambda text: f"#ControllerLeaderId\t{leader.name}\n" in text,
    )
    assert f"#ControllerLeaderAddress\t{leader.address}\n" in printed, printed
    for one in whole.controllers:
        assert f"#Peer:\t{one.name}:{one.address}" in printed, printed

    printed = admin.run("getBrokerEpoch", "-b", BROKER_NAME)
    entries = re.findall(r"#Epoch: EpochEntry\{epoch=(\d+), startOffset=(\d+)", printed)
    wanted = [tuple(line.split("-")) for line in epochs(group.pair.brokers[OURS])]
    assert entries == wanted * 2, printed


def mqadmin_elects(group: Mixed, admin: Admin, place: int) -> None:
    """Run electMaster."""
    whole, broker = group.group, group.broker(place)
    before = whole.sync()
    assert before is not None and before.master != broker.address
    printed = admin.run(
        "electMaster",
        "-a",
        anyone(whole),
        "-b",
        before.ids[broker.address],
        "-bn",
        BROKER_NAME,
        "-c",
        CLUSTER,
    )
    for line in (
        f"#ClusterName\t{CLUSTER}",
        f"#BrokerName\t{BROKER_NAME}",
        f"#BrokerMasterAddr\t{broker.address}",
        f"#MasterEpoch\t{before.master_epoch + 1}",
    ):
        assert f"{line}\n" in printed, printed
    group.wait_master(place)
    whole.wait_whole()


def mqadmin_configures(group: Mixed, admin: Admin) -> None:
    """Run getControllerConfig, updateControllerConfig."""
    address = group.group.controllers[0].address
    key = "scanNotActiveBrokerInterval"
    printed = admin.run("getControllerConfig", "-a", address)
    assert f"============{address}============" in printed, printed
    assert re.search(rf"^{key} += +\d+$", printed, re.MULTILINE), printed
    printed = admin.run("updateControllerConfig", "-a", address, "-k", key, "-v", "4000")
    assert "update controller config success!" in printed, printed
    printed = admin.run("getControllerConfig", "-a", address)
    assert re.search(rf"^{key} += +4000$", printed, re.MULTILINE), printed
    printed = admin.run("updateControllerConfig", "-a", address, "-k", "configStorePath", "-v", "x")
    assert "Can not update config in black list" in printed, printed


def mqadmin_cleans(group: Mixed, admin: Admin) -> None:
    """Run cleanBrokerMetadata; then our broker registers again, which a RocketMQ broker never
    does."""
    whole, ours = group.group, group.broker(OURS)
    found = whole.sync()
    assert found is not None and found.master != ours.address
    where = ("-a", anyone(whole), "-bn", BROKER_NAME, "-c", CLUSTER)
    number = found.ids[ours.address]
    printed = admin.run("cleanBrokerMetadata", *where, "-b", number)
    assert "is still alive, clean up failure" in printed, printed
    ours.stop()
    whole.until("it counts as dead", lambda: ours.address not in (whole.sync() or found).in_sync)
    printed = admin.run("cleanBrokerMetadata", *where, "-b", number)
    assert f"clear broker {BROKER_NAME} metadata from controller success!" in printed, printed
    ours.start()
    whole.wait_whole()
    after = whole.sync()
    assert after is not None and after.ids[ours.address] not in found.ids.values(), after
