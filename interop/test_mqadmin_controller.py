"""mqadmin and `turbopump admin` at the same controllers: both print the same.

The brokers are connections that register and send heartbeats, as a broker does, so that each test
has the group it needs; groups with real brokers are in test_controllers.py.
"""

import json
import re
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import pytest

from interop.support.groups import CLUSTER, TURBOPUMP, Group, Kind, Ports, ask, wait_listening
from interop.support.mqadmin import Admin
from interop.support.ports import free_port, free_ports
from interop.support.processes import Process

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

T = TypeVar("T")
LEADER_TIMEOUT_S = 120
CHANGE_TIMEOUT_S = 30
COMMAND_TIMEOUT_S = 60
HEARTBEAT_LASTS_MS = "600000"
HEARTBEAT, ALTER, ELECT, REGISTER, METADATA = 904, 1001, 1002, 1003, 1005
NEXT_ID, APPLY_ID = 1012, 1013


@dataclass
class Registered:
    """A broker as the controllers see it; it lives as long as its connections."""

    name: str
    number: int
    address: str
    connections: dict[int, socket.socket] = field(default_factory=dict)
    """Connections by the controller's port."""

    @property
    def header(self) -> dict[str, str]:
        """Header fields that name the broker."""
        return {
            "clusterName": CLUSTER,
            "brokerName": self.name,
            "brokerId": str(self.number),
            "invokeTime": "1",
        }

    def close(self) -> None:
        """Close its connections, which the controllers notice."""
        for connection in self.connections.values():
            connection.close()


@dataclass
class Quorum:
    """Three controllers, and both tools."""

    kind: Kind
    ports: list[int]
    members: list[Process]
    mqadmin: Admin
    namesrv: str
    opened: ExitStack

    @property
    def addresses(self) -> str:
        """Addresses for -a."""
        return ";".join(f"127.0.0.1:{port}" for port in self.ports)

    def leader(self) -> int:
        """Return the port of the leader that all controllers name."""
        return until(lambda: _leader(self.ports), LEADER_TIMEOUT_S)

    def must(
        self, code: int, fields: dict[str, str], body: bytes = b"", by: Registered | None = None
    ) -> dict[str, str]:
        """Return the leader's answer to a request, on a new connection or on a broker's own."""
        if by is not None:
            return _request(by.connections[self.leader()], code, fields, body)
        response = ask(self.leader(), code, fields, body)
        assert response.code == 0, response
        return response.fields

    def alter(self, master: Registered, epoch: int, members: list[int], set_epoch: int) -> None:
        """Propose a SyncStateSet as a master, in place of the SyncStateSet of that epoch."""
        body = {"syncStateSet": members, "syncStateSetEpoch": set_epoch}
        self.must(
            ALTER,
            {
                "brokerName": master.name,
                "masterBrokerId": str(master.number),
                "masterEpoch": str(epoch),
                "invokeTime": "1",
            },
            json.dumps(body).encode(),
            by=master,
        )

    def register(self, name: str) -> Registered:
        """Register a further broker of a group, in RocketMQ's three steps, and keep it alive."""
        group = {"clusterName": CLUSTER, "brokerName": name}
        number = self.must(NEXT_ID, group)["nextBrokerId"]
        address = f"127.0.0.1:{10_000 + 10 * int(number)}"
        self.must(
            APPLY_ID, {**group, "appliedBrokerId": number, "registerCheckCode": f"{address};1"}
        )
        made = Registered(name, int(number), address)
        self.opened.callback(made.close)
        beat = {
            **made.header,
            "brokerAddr": address,
            "epoch": "0",
            "maxOffset": "0",
            "confirmOffset": "0",
            "electionPriority": "1",
            "heartbeatTimeoutMills": HEARTBEAT_LASTS_MS,
        }
        for port in self.ports:
            made.connections[port] = socket.create_connection(("127.0.0.1", port))
            _request(made.connections[port], HEARTBEAT, beat)
        self.must(REGISTER, {**made.header, "brokerAddress": address}, by=made)
        return made

    def group(self, name: str, count: int) -> list[Registered]:
        """Register brokers 1 to `count`; 1 is the master, all are in the SyncStateSet."""
        brokers = [self.register(name) for _ in range(count)]
        self.must(ELECT, {**brokers[0].header, "designateElect": "false"}, by=brokers[0])
        self.alter(brokers[0], 1, [one.number for one in brokers], 1)
        return brokers

    def ours(self, command: str, *words: object) -> tuple[int, str]:
        """Return the exit code and output of `turbopump admin COMMAND WORDS...`."""
        done = subprocess.run(
            [TURBOPUMP, "admin", command, *map(str, words)],
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
        )
        return done.returncode, done.stdout

    def both(self, command: str, *words: object) -> str:
        """Return the output of both tools, which must be equal except for blank lines at the
        ends."""
        theirs = self.mqadmin.run(command, *words)
        code, ours = self.ours(command, *words)
        assert code == 0, ours
        assert ours.strip() == theirs.strip()
        return ours

    def refused(self, text: str, command: str, *words: object) -> None:
        """Check that both tools fail, and print the controller's message."""
        printed = self.mqadmin.run(command, *words)
        assert text in printed and "success" not in printed, printed
        code, printed = self.ours(command, *words)
        assert code == 1 and text in printed, printed


def until(what: Callable[[], T | None], timeout_s: float) -> T:
    """Return the first result that is true; controllers need their time."""
    deadline = time.monotonic() + timeout_s
    while not (found := what()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def _leader(ports: list[int]) -> int | None:
    """Return the port of the controller that names itself as leader, if no other is named."""
    named = set()
    for port in ports:
        try:
            fields = ask(port, METADATA, {}, timeout_s=2).fields
        except (OSError, struct.error):
            continue
        named.add(fields.get("controllerLeaderAddress"))
    if len(named) != 1:
        return None
    (address,) = named
    return int(address.rpartition(":")[2]) if address else None


def _request(
    connection: socket.socket, code: int, fields: dict[str, str], body: bytes = b""
) -> dict[str, str]:
    """Send a request on a connection that stays open; its answer must be a success."""
    header = json.dumps(
        {
            "code": code,
            "language": "OTHER",
            "version": 513,
            "opaque": 1,
            "flag": 0,
            "serializeTypeCurrentRPC": "JSON",
            "extFields": fields,
        }
    ).encode()
    sizes = struct.pack(">II", 4 + len(header) + len(body), len(header))
    connection.sendall(sizes + header + body)
    with connection.makefile("rb") as stream:
        size, header_size = struct.unpack(">II", stream.read(8))
        response = json.loads(stream.read(header_size & 0xFFFFFF))
        stream.read(size - 4 - (header_size & 0xFFFFFF))
    assert response["code"] == 0, response
    return response.get("extFields") or {}


@pytest.fixture(scope="module")
def quorum(kind: Kind, built: None, work: Path) -> Iterator[Quorum]:
    """Start three controllers of the kind under test, and a name server for mqadmin."""
    folder = work / "mqadmin-controller"
    ports = free_ports(3)
    space = Ports(free_port(), 0)
    with ExitStack() as stack:
        namesrv = kind.namesrv(space, folder / "namesrv")
        stack.callback(namesrv.stop)
        wait_listening(space.namesrv, namesrv)
        members = []
        for own in range(3):
            members.append(kind.controller(own, ports, folder / f"n{own}", {}))
            stack.callback(members[-1].stop)
        for port, member in zip(ports, members, strict=True):
            wait_listening(port, member)
        admin = Admin(Group(space, [namesrv]), folder / "mqadmin")
        stack.enter_context(closing(admin))
        opened = stack.enter_context(ExitStack())
        made = Quorum(kind, ports, members, admin, space.namesrv_address, opened)
        made.leader()
        yield made


def test_the_leader_is_shown(quorum: Quorum) -> None:
    """getControllerMetaData, through any controller."""
    leader = quorum.leader()
    for port in quorum.ports:
        printed = quorum.both("getControllerMetaData", "-a", f"127.0.0.1:{port}")
        assert f"#ControllerLeaderAddress\t127.0.0.1:{leader}\n" in printed, printed
        assert printed.count("#Peer:\t") == 3, printed


def test_a_group_and_its_dead_member(quorum: Quorum) -> None:
    """getSyncStateSet: master, epochs, members in sync and not."""
    name = "admin-sets"
    brokers = quorum.group(name, 3)
    where = ("-a", f"127.0.0.1:{quorum.ports[0]}", "-b", name)
    printed = quorum.both("getSyncStateSet", *where)
    for line in (
        f"#brokerName\t{name}",
        "#MasterBrokerId\t1",
        "#MasterEpoch\t1",
        "#SyncStateSetEpoch\t2",
        "#SyncStateSetNums\t3",
    ):
        assert f"{line}\n" in printed, printed
    assert printed.count("alive=true}") == 3 and "NotInSyncReplica" not in printed, printed

    brokers[2].close()
    until(lambda: "alive=false}" in quorum.ours("getSyncStateSet", *where)[1], CHANGE_TIMEOUT_S)
    quorum.alter(brokers[0], 1, [1, 2], 2)
    printed = quorum.both("getSyncStateSet", *where)
    assert "NotInSyncReplica:\tReplicaIdentity{brokerName='admin-sets', brokerId=3, " in printed
    code, printed = quorum.ours("getSyncStateSet", *where[:3], "unknown")
    assert code == 1 and "do not know unknown" in printed, printed


def test_elections_by_an_administrator(quorum: Quorum) -> None:
    """electMaster: by either tool, and refused to both."""
    name = "admin-elects"
    brokers = quorum.group(name, 3)

    def words(number: int) -> tuple[object, ...]:
        return ("-a", quorum.addresses.partition(";")[0], "-b", number, "-bn", name, "-c", CLUSTER)

    printed = quorum.mqadmin.run("electMaster", *words(2))
    if quorum.kind.name == "rocketmq":
        # RocketMQ's tool cannot read the answer of its own controller; the election succeeded.
        assert "not support unquoted name" in printed, printed
    else:
        assert printed.strip().splitlines() == elected(name, brokers[1].address, 2, 3), printed
    quorum.alter(brokers[1], 2, [1, 2, 3], 3)
    code, printed = quorum.ours("electMaster", *words(3))
    assert code == 0, printed
    shown = elected(name, brokers[2].address, 3, 5)
    assert printed.strip().splitlines()[: len(shown)] == shown, printed
    members = re.findall(r"^\t#Broker\t(\d+)\t(\S+)$", printed, re.MULTILINE)
    assert members == [(str(one.number), one.address) for one in brokers], printed
    quorum.refused("2011", "electMaster", *words(3))  # this broker is the master already
    brokers[0].close()
    where = ("-a", quorum.addresses.partition(";")[0], "-b", name)
    until(lambda: "alive=false}" in quorum.ours("getSyncStateSet", *where)[1], CHANGE_TIMEOUT_S)
    quorum.refused("2012", "electMaster", *words(1))


def elected(name: str, address: str, epoch: int, set_epoch: int) -> list[str]:
    """Return the lines that mqadmin prints for an election; its list of members stays empty."""
    return [
        f"#ClusterName\t{CLUSTER}",
        f"#BrokerName\t{name}",
        f"#BrokerMasterAddr\t{address}",
        f"#MasterEpoch\t{epoch}",
        f"#SyncStateSetEpoch\t{set_epoch}",
    ]


def test_replicas_are_forgotten(quorum: Quorum) -> None:
    """cleanBrokerMetadata: refused for a living broker; then once by each tool."""
    name, where = "admin-cleans", ("-a", quorum.addresses.partition(";")[0])
    brokers = quorum.group(name, 3)
    words = (*where, "-bn", name, "-c", CLUSTER)
    quorum.refused("2009", "cleanBrokerMetadata", *words, "-b", "2;3")
    quorum.refused("2009", "cleanBrokerMetadata", *words)
    quorum.refused(
        "2009", "cleanBrokerMetadata", *where, "-bn", "unknown", "-c", CLUSTER, "-b", "1"
    )
    for broker in brokers[1:]:
        broker.close()
    asked = ("getSyncStateSet", *where, "-b", name)
    until(lambda: quorum.ours(*asked)[1].count("alive=false}") == 2, CHANGE_TIMEOUT_S)
    success = f"clear broker {name} metadata from controller success!"
    assert success in quorum.mqadmin.run("cleanBrokerMetadata", *words, "-b", "2")
    code, printed = quorum.ours("cleanBrokerMetadata", *words, "-b", "3")
    assert (code, printed.strip()) == (0, success)
    printed = quorum.both(*asked)
    assert re.findall(r"brokerId=(\d+)", printed) == ["1"], printed
    for tool in (quorum.mqadmin.run, lambda *rest: quorum.ours(*rest)[1]):
        printed = tool("cleanBrokerMetadata", *where, "-bn", name, "-b", "1")
        assert "clusterName" in printed or "-c" in printed, printed
    code, printed = quorum.ours("cleanBrokerMetadata", *where, "-bn", name, "-l")
    assert code == 0, printed
    assert quorum.ours(*asked)[0] == 1


def test_configurations(quorum: Quorum) -> None:
    """getControllerConfig and updateControllerConfig: each tool reads the values that the other
    writes."""
    key, where = "scanNotActiveBrokerInterval", ("-a", quorum.addresses)

    def shown(printed: str) -> dict[str, dict[str, str]]:
        parts = re.split(r"=+(127\.0\.0\.1:\d+)=+\n", printed)[1:]
        tables = (re.findall(r"^(\S+) *= *(.*?) *$", part, re.MULTILINE) for part in parts[1::2])
        return {address: dict(table) for address, table in zip(parts[::2], tables, strict=True)}

    def read() -> dict[str, dict[str, str]]:
        code, printed = quorum.ours("getControllerConfig", *where)
        assert code == 0, printed
        ours, theirs = shown(printed), shown(quorum.mqadmin.run("getControllerConfig", *where))
        differing = {
            where: set(ours[where].items()) ^ set(table.items()) for where, table in theirs.items()
        }
        assert not any(differing.values()), differing
        assert list(ours) == quorum.addresses.split(";")
        return ours

    found = read()
    assert {table["controllerDLegerSelfId"] for table in found.values()} == {"n0", "n1", "n2"}
    (value,) = {table[key] for table in found.values()}
    words = ("updateControllerConfig", *where, "-k", key, "-v")
    printed = quorum.mqadmin.run(*words, "4321")
    assert {table[key] for table in read().values()} == {"4321"}
    code, ours = quorum.ours(*words, value)
    assert (code, ours.strip()) == (0, printed.strip().replace("4321", value))
    assert {table[key] for table in read().values()} == {value}
    quorum.refused(
        "black list", "updateControllerConfig", *where, "-k", "configStorePath", "-v", "x"
    )


def test_top_shows_them(quorum: Quorum) -> None:
    """The controllers and their leader; without brokers at the name server there is no group."""
    leader = quorum.leader()
    done = subprocess.run(
        [TURBOPUMP, "top", "-n", quorum.namesrv, "-a", quorum.addresses, "--once", "--json"],
        capture_output=True,
        text=True,
        timeout=COMMAND_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    sample = json.loads(done.stdout)
    shown = {each["address"]: each["is_leader"] for each in sample["controllers"]}
    assert shown == {f"127.0.0.1:{port}": port == leader for port in quorum.ports}
    assert [each["id"] for each in sample["controllers"]] == ["n0", "n1", "n2"]
    if quorum.kind.name == "turbopump":
        assert len({each["term"] for each in sample["controllers"]}) == 1
        assert sample["controllers"][0]["term"] is not None
