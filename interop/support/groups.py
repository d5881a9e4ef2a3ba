"""Broker groups of a name server and a broker each: RocketMQ's own, or ours.

controlled.py makes larger groups, with controllers, of the same kinds. A group is started on free
loopback ports with its files in one folder. Nothing here uses Turbopump's own client: readiness is
checked with one hand-made frame.
"""

import json
import socket
import struct
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from interop.support import processes, toolchain
from interop.support.ports import BROKER_AND_HA, free_port
from interop.support.processes import Process

READY_TIMEOUT_S = 60
BROKER_HEAP_MB = 512
CONTROLLER_HEAP_MB = 128
CLUSTER = "DefaultCluster"
BROKER_NAME = "broker-a"
GET_ROUTEINFO_BY_TOPIC = 105
TURBOPUMP = str(Path(sys.executable).parent / "turbopump")


@dataclass(frozen=True)
class Ports:
    """The addresses of a group."""

    namesrv: int
    broker: int

    @classmethod
    def free(cls) -> "Ports":
        """Choose ports that no process listens on now."""
        return cls(free_port(), free_port(BROKER_AND_HA))

    @property
    def namesrv_address(self) -> str:
        """Address of the name server, for clients."""
        return f"127.0.0.1:{self.namesrv}"

    @property
    def broker_address(self) -> str:
        """Address of the broker, for mqadmin -b."""
        return f"127.0.0.1:{self.broker}"


class Kind(Protocol):
    """A maker of name servers and brokers."""

    name: str

    def namesrv(self, ports: Ports, folder: Path) -> Process:
        """Starts a name server with its files under `folder`."""
        ...

    def broker(self, ports: Ports, folder: Path, store: Path, settings: dict[str, str]) -> Process:
        """Starts a broker on the store at `store`."""
        ...

    def controller(
        self, own: int, peers: list[int], folder: Path, settings: dict[str, str]
    ) -> Process:
        """Starts the controller number `own`; `ports` are the ports of all controllers."""
        ...

    def container(self, port: int, namesrv: str, brokers: list[Path], folder: Path) -> Process:
        """Starts a container of brokers, each with a properties file."""
        ...


def _properties(file: Path, values: dict[str, str]) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
    return file


def broker_properties(ports: Ports, folder: Path, store: Path, settings: dict[str, str]) -> Path:
    """Writes the properties file that RocketMQ's broker and ours are started with."""
    values = {
        "brokerClusterName": CLUSTER,
        "brokerName": BROKER_NAME,
        "brokerId": "0",
        "brokerIP1": "127.0.0.1",
        "listenPort": str(ports.broker),
        "haListenPort": str(ports.broker + 1),
        "namesrvAddr": ports.namesrv_address,
        "storePathRootDir": str(store),
        "storePathCommitLog": str(store / "commitlog"),
        **settings,
    }
    return _properties(folder / "broker.conf", values)


def controller_properties(
    own: int, peers: list[int], folder: Path, settings: dict[str, str]
) -> Path:
    """Writes the properties file that a controller of either kind is started with."""
    named = ";".join(f"n{number}-127.0.0.1:{port}" for number, port in enumerate(peers))
    values = {
        "controllerDLegerGroup": "interop",
        "controllerDLegerPeers": named,
        "controllerDLegerSelfId": f"n{own}",
        "controllerStorePath": str(folder / "store"),
        "configStorePath": str(folder / "controller.properties"),
        **settings,
    }
    return _properties(folder / "controller.conf", values)


def container_properties(port: int, namesrv: str, brokers: list[Path], folder: Path) -> Path:
    """Writes the properties file that a container of either kind is started with."""
    values = {
        "listenPort": str(port),
        "brokerContainerIP": "127.0.0.1",
        "namesrvAddr": namesrv,
        "brokerConfigPaths": ":".join(map(str, brokers)),
        "rocketmqHome": str(folder),
    }
    return _properties(folder / "container.conf", values)


@dataclass(frozen=True)
class RocketMQ:
    """Apache RocketMQ from its published jars."""

    environment: Mapping[str, str] = field(default_factory=dict)
    """Name of its processes in files, to distinguish them from ours."""
    name = "rocketmq"
    namesrv_jars = "server"

    def namesrv(self, ports: Ports, folder: Path) -> Process:
        """See Kind.namesrv."""
        values = {
            "listenPort": str(ports.namesrv),
            "kvConfigPath": str(folder / "kv.json"),
            "rocketmqHome": str(folder),
        }
        config = _properties(folder / "namesrv.conf", values)
        return processes.java(
            "namesrv",
            "org.apache.rocketmq.namesrv.NamesrvStartup",
            toolchain.classpath(self.namesrv_jars),
            ["-c", str(config)],
            folder,
            heap_mb=128,
            environment=self.environment,
        )

    def broker(self, ports: Ports, folder: Path, store: Path, settings: dict[str, str]) -> Process:
        """See Kind.broker."""
        # A busy machine should not refuse sends here.
        settings = {"waitTimeMillsInSendQueue": "10000", **settings}
        config = broker_properties(ports, folder, store, settings)
        return processes.java(
            "broker",
            "org.apache.rocketmq.broker.BrokerStartup",
            toolchain.classpath("server"),
            ["-c", str(config)],
            folder,
            heap_mb=BROKER_HEAP_MB,
            environment=self.environment,
        )

    def controller(
        self, own: int, peers: list[int], folder: Path, settings: dict[str, str]
    ) -> Process:
        """See Kind.controller."""
        values = {"rocketmqHome": str(folder), **settings}
        config = controller_properties(own, peers, folder, values)
        return processes.java(
            "controller",
            "org.apache.rocketmq.controller.ControllerStartup",
            toolchain.classpath("server"),
            ["-c", str(config)],
            folder,
            heap_mb=CONTROLLER_HEAP_MB,
            environment=self.environment,
        )

    def container(self, port: int, namesrv: str, brokers: list[Path], folder: Path) -> Process:
        """See Kind.container."""
        config = container_properties(port, namesrv, brokers, folder)
        return processes.java(
            "container",
            "org.apache.rocketmq.container.BrokerContainerStartup",
            toolchain.classpath("server"),
            ["-c", str(config)],
            folder,
            heap_mb=BROKER_HEAP_MB,
            environment=self.environment,
        )


@dataclass(frozen=True)
class OldRocketMQ(RocketMQ):
    """RocketMQ 5.5.0's broker with RocketMQ 4's name server."""

    name = "rocketmq-4.9"
    namesrv_jars = "namesrv-4.9"

    def namesrv(self, ports: Ports, folder: Path) -> Process:
        """See Kind.namesrv."""
        # The program does not start without this.
        logs = folder / "conf" / "logback_namesrv.xml"
        logs.parent.mkdir(parents=True, exist_ok=True)
        logs.write_text('<configuration><root level="OFF"/></configuration>\n')
        return super().namesrv(ports, folder)


@dataclass(frozen=True)
class Turbopump:
    """Turbopump, through the command line that a user types."""

    environment: Mapping[str, str] = field(default_factory=dict)
    """Name of its processes in files, to distinguish them from RocketMQ's."""
    program: str = TURBOPUMP
    name = "turbopump"

    def namesrv(self, ports: Ports, folder: Path) -> Process:
        """See Kind.namesrv."""
        config = _properties(folder / "namesrv.conf", {"listenPort": str(ports.namesrv)})
        return self._process("namesrv", config, folder)

    def broker(self, ports: Ports, folder: Path, store: Path, settings: dict[str, str]) -> Process:
        """See Kind.broker."""
        config = broker_properties(ports, folder, store, settings)
        return self._process("broker", config, folder)

    def controller(
        self, own: int, peers: list[int], folder: Path, settings: dict[str, str]
    ) -> Process:
        """See Kind.controller."""
        config = controller_properties(own, peers, folder, settings)
        return self._process("controller", config, folder)

    def container(self, port: int, namesrv: str, brokers: list[Path], folder: Path) -> Process:
        """See Kind.container."""
        config = container_properties(port, namesrv, brokers, folder)
        return self._process("container", config, folder)

    def _process(self, what: str, config: Path, folder: Path) -> Process:
        command = [self.program, what, "-c", str(config)]
        return Process(what, command, folder, environment=dict(self.environment))


@dataclass
class Group:
    """A running name server and broker, or one process that is both."""

    ports: Ports
    members: list[Process]

    def stop(self) -> None:
        """Stops the members, the broker first."""
        for process in reversed(self.members):
            process.stop()

    def kill(self) -> None:
        """Kills the members, the broker first; acknowledged messages must be in their files."""
        for process in reversed(self.members):
            process.kill()


def start(
    kind: Kind, ports: Ports, folder: Path, store: Path, settings: dict[str, str] | None = None
) -> Group:
    """Starts a group and returns when clients can send to it."""
    members = [kind.namesrv(ports, folder)]
    wait_listening(ports.namesrv, members[0])
    members.append(kind.broker(ports, folder, store, settings or {}))
    group = Group(ports, members)
    wait_ready(group)
    return group


def start_up_command(folder: Path) -> Group:
    """Starts our group as the README describes: `turbopump up --json`."""
    ports = Ports.free()
    command = [
        TURBOPUMP,
        "up",
        "--json",
        "--data",
        str(folder / "data"),
        "--namesrv-port",
        str(ports.namesrv),
        "--broker-port",
        str(ports.broker),
    ]
    group = Group(ports, [Process("up", command, folder)])
    wait_ready(group)
    ready = json.loads(group.members[0].out.read_text().splitlines()[0])
    assert ready["event"] == "ready", ready
    assert ready["namesrv"] == [ports.namesrv_address], ready
    return group


def wait_listening(port: int, process: Process) -> None:
    """Returns when a process accepts connections on a port."""
    deadline = time.monotonic() + READY_TIMEOUT_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError as error:
            if not process.running or time.monotonic() > deadline:
                group = Group(Ports(port, 0), [process])
                raise _not_ready(group) from error
            time.sleep(0.02)


def wait_ready(group: Group, names: Sequence[str] = ()) -> None:
    """Returns when the name server returns the broker's route for new topics with all of the
    brokers `names`: a topic is created only at brokers that have registered by then, and RocketMQ's
    register seconds after they listen."""
    deadline = time.monotonic() + READY_TIMEOUT_S
    while not _are_routed(group.ports.namesrv, names):
        if time.monotonic() > deadline or not all(one.running for one in group.members):
            raise _not_ready(group)
        time.sleep(0.02)


def _not_ready(group: Group) -> RuntimeError:
    tails = "\n".join(process.tail() for process in group.members)
    group.stop()
    return RuntimeError(f"the group did not become ready:\n{tails}")


def _are_routed(port: int, names: Sequence[str]) -> bool:
    try:
        response = ask(port, GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"}, timeout_s=2)
    except (OSError, struct.error):
        return False
    return response.code == 0 and all(f'"{name}"'.encode() in response.body for name in names)


def succeeds(port: int, code: int, fields: dict[str, str]) -> bool:
    """Whether a request is answered with SUCCESS."""
    try:
        return ask(port, code, fields, timeout_s=2).code == 0
    except (OSError, struct.error):
        return False


@dataclass(frozen=True)
class Response:
    """A response of RocketMQ's protocol."""

    code: int
    fields: dict[str, str]
    body: bytes
    remark: str


def ask(
    port: int, code: int, fields: dict[str, str], body: bytes = b"", *, timeout_s: float = 30
) -> Response:
    """Sends a request on a new connection, and returns the answer. Raises OSError, struct.error."""
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
    frame = struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body
    with socket.create_connection(("127.0.0.1", port), timeout_s) as connection:
        connection.settimeout(timeout_s)
        connection.sendall(frame)
        with connection.makefile("rb") as stream:
            size, header_size = struct.unpack(">II", stream.read(8))
            header_size &= 0xFFFFFF
            response = json.loads(stream.read(header_size))
            return Response(
                int(response["code"]),
                response.get("extFields") or {},
                stream.read(size - 4 - header_size),
                response.get("remark") or "",
            )
