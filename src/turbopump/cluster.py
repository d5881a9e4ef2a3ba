"""A whole broker group in one process: name server, controllers and brokers on the running loop.

Owns the layout of a data folder and the order of start and stop. It must never handle a request.
`turbopump up`, the pytest fixture and programs use it: `async with Cluster() as cluster`.
"""

import asyncio
import errno
import json
import logging
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from glob import escape, glob
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from turbopump.broker.config.config import BrokerConfig
from turbopump.broker.node import BrokerNode, StartError
from turbopump.engine.disk.real_files import RealFiles
from turbopump.engine.disk.segments import file_size_in
from turbopump.engine.keys import BOOLEAN, bare_host
from turbopump.engine.types import Progress, StoreError
from turbopump.namesrv.config import NamesrvConfig
from turbopump.namesrv.node import NameServerNode
from turbopump.net.wire.hosts import join
from turbopump.net.wire.java_properties import PropertiesError, Property, parse_properties

if TYPE_CHECKING:
    from turbopump.controller.config import ControllerConfig
    from turbopump.controller.node import ControllerNode

logger = logging.getLogger(__name__)

LAYOUT = 1
"""Version of a data folder's layout: layout.json, namesrv/, controller/, logs/, and for each broker
a store folder and a file with the changes of properties at run time, as in `broker-a` and
`broker-a.properties`."""

CHANGES = ".properties"
"""Ending of the file with a broker's changed properties, after the path of its store."""

LAYOUT_FILE = "layout.json"
"""Name of the file in a data folder that has LAYOUT."""
LOOPBACK = "127.0.0.1"
"""Address at which a cluster listens by default."""
MODE = "tls.server.mode"
"""Property whose value `enforcing` makes servers refuse connections without TLS."""
WILDCARDS = ("0.0.0.0", "::")  # addresses to which no client could connect
REPLICA_PORTS_APART = 10  # leaves room for the VIP port below and the HA port above
REGISTERED_POLL_MS = 10  # interval of checks at the start whether brokers are registered
REGISTERED_TIMEOUT_MS = 10_000  # a broker registers within ms if the name server is in its process
ELECTED_TIMEOUT_MS = 30_000  # controllers elect their leader, brokers register, a master is elected
CONTROLLER_GROUP = "turbopump"  # name of the controllers' quorum
NAMESRV_OWN = frozenset({"bindAddress", "configStorePath", "kvConfigPath", "listenPort"})
"""Keys in the file of an earlier version, which wrote every key; the cluster sets these itself."""

SUPPORT_ACTING = "supportActingMaster"
"""Property of name servers that lets a replica act for its master (RIP-32)."""

LOG_FILE_SIZE = 64 << 20
"""Bytes of a file of a new log.

Files reserve their blocks, so RocketMQ's 1 GiB would be much for a first message on a user's
machine.
"""

SMALL_FILES = {
    # room for a message of 4 MiB, and small enough for tests to roll files
    "mappedFileSizeCommitLog": str(16 << 20),
    "mappedFileSizeConsumeQueue": str(20 * 5_000),
    "maxHashSlotNum": "20000",
    "maxIndexNum": "80000",
}
"""Broker properties for tests: files of some MB instead of gigabytes."""


class ClusterError(StartError):
    """The cluster cannot run; the message is one sentence."""


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """A running broker of a cluster, as of the call that returned it.

    `address` is `host:port`; `id` is 0 for the master and -1 for a broker that is not registered;
    `pid` is the process; `role` is "master" or "slave"; `grpc` is the `host:port` for gRPC, empty
    if it is off.
    """

    name: str
    id: int
    address: str
    pid: int
    role: str
    grpc: str = ""


class Cluster:
    """A name server with a broker, a master with replicas, or brokers whose master controllers
    elect.

    Any RocketMQ client can connect to it.

    Args:
        data: the data folder; None for a temporary folder, removed at the end.
        host: the address to listen at and to give to clients; a wildcard listens at all addresses
            of this machine and gives clients the address by which others reach it.
        namesrv_port, broker_port: 0 for free ones.
        replicas: replicas of the broker; a send is answered once one of them has it. Their
            ports are REPLICA_PORTS_APART apart, unless ports are free ones.
        acting_master: whether the replica with the lowest id acts for its master while no master
            runs (RIP-32).
        brokers, controllers: with controllers, that number of brokers is one group whose master
            they elect; `replicas` is then 0. The brokers' ports are as for replicas; controllers
            listen on consecutive ports from `controller_port`.
        broker_properties, controller_properties, namesrv_properties: RocketMQ's keys; they override
            the cluster's own values.
        on_progress: called several times a second with the progress of a big store's recovery.
    """

    def __init__(
        self,
        data: str | os.PathLike[str] | None = None,
        *,
        host: str = LOOPBACK,
        namesrv_port: int = 0,
        broker_port: int = 0,
        replicas: int = 0,
        acting_master: bool = False,
        brokers: int = 1,
        controllers: int = 0,
        controller_port: int = 0,
        broker_properties: Mapping[str, str] | None = None,
        controller_properties: Mapping[str, str] | None = None,
        namesrv_properties: Mapping[str, str] | None = None,
        on_progress: Callable[[Progress], None] = lambda _progress: None,
    ) -> None:
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        if data is None:
            self._temporary = tempfile.TemporaryDirectory("-turbopump")
            data = self._temporary.name
        self.data = Path(data)
        self._host = bare_host(host)
        self._ports = namesrv_port, broker_port
        self._controller_port = controller_port
        self._replicas = replicas
        self._acting_master = acting_master
        self._sizes = brokers, controllers
        self._on_progress = on_progress
        self._broker_properties = dict(broker_properties or {})
        self._controller_properties = dict(controller_properties or {})
        self._namesrv_properties = dict(namesrv_properties or {})
        self._namesrv: NameServerNode | None = None
        self._controllers: list[ControllerNode] = []
        self._brokers: list[tuple[BrokerNode, BrokerConfig]] = []
        self.warnings: list[str] = []

    @property
    def namesrv(self) -> str:
        """The name server's `host:port`; only between `start` and `stop`."""
        assert self._namesrv is not None, "the cluster is not started"
        return self._namesrv.address

    @property
    def controllers(self) -> list[str]:
        """The running controllers' `host:port`, in the order of their numbers; an empty list
        without controllers."""
        return [controller.address for controller in self._controllers]

    @property
    def brokers(self) -> list[BrokerAddress]:
        """The running brokers, the master first, then by id; with controllers, in the roles that
        the name server has now. Only between `start` and `stop`."""
        assert self._brokers, "the cluster is not started"
        found = [
            BrokerAddress(
                config.broker_name,
                broker_id := self._id_of(broker, config),
                broker.address,
                os.getpid(),
                "master" if broker_id == 0 else "slave",
                broker.grpc_address,
            )
            for broker, config in self._brokers
        ]
        return sorted(found, key=lambda broker: (broker.id < 0, broker.id))

    async def start(self) -> None:
        """Prepare the data folder and start all nodes; returns when clients can send.

        Raises ClusterError, StoreError, StartError, TlsError, PropertiesError or OSError; then no
        node runs.
        """
        self.check()
        prepare_data(self.data)
        try:
            await self._start_namesrv()
            await self._start_controllers(self._sizes[1])
            for number in range(self.broker_count):
                await self._start_broker(number)
            await self._await_registration()
        except BaseException:
            await self.stop()
            raise

    def check(self) -> None:
        """Raise ClusterError if the arguments make no possible group; starts nothing."""
        brokers, controllers = self._sizes
        if brokers > 1 and not controllers:
            raise ClusterError(
                f"{brokers} brokers of a group need controllers, which elect their master; "
                "replicas of a fixed master do not"
            )
        if controllers and controllers % 2 == 0:
            raise ClusterError(
                f"{controllers} controllers tolerate as many failures as {controllers - 1}: "
                "use 1, 3 or 5"
            )
        if controllers and self._replicas:
            raise ClusterError("replicas follow a fixed master: not with controllers")
        if self._acting_master and self.broker_count < 2:
            raise ClusterError(
                "an acting master must be a replica: --replicas 1 or more, or --brokers "
                "2 or more with controllers"
            )

    @property
    def broker_count(self) -> int:
        """Number of brokers in the group, running or not."""
        brokers, controllers = self._sizes
        return brokers if controllers else self._replicas + 1

    def namesrv_properties(self) -> dict[str, str]:
        """Return the properties with which `start` runs the name server, by RocketMQ's keys."""
        return {
            "bindAddress": self._host,
            "listenPort": str(self._ports[0]),
            "kvConfigPath": str(self.data / "namesrv" / "kvConfig.json"),
            **({SUPPORT_ACTING: "true"} if self._acting_master else {}),
            **self._tls_of_servers(),
            **self._namesrv_properties,
        }

    def controller_properties(self, number: int) -> dict[str, str]:
        """Return the properties of the controller `number` (from 0), without its peers."""
        port = self._controller_port
        return {
            "bindAddress": self._host,
            "listenPort": str(port + number if port else 0),
            "controllerDLegerGroup": CONTROLLER_GROUP,
            "controllerDLegerSelfId": f"n{number}",
            "controllerStorePath": str(self.data / "controller"),
            **self._tls_of_servers(),
            "tls.enable": self._tls_enabled(),
            **self._controller_properties,
        }

    def broker_properties(
        self, number: int, namesrv: str, controllers: list[str]
    ) -> dict[str, str]:
        """Return the properties of the broker `number` (from 0).

        `namesrv` and `controllers` are `host:port`; an empty list: a group with a fixed master.
        """
        given = self._common_broker_properties(BrokerConfig().broker_name, namesrv)
        if number:
            port = self._ports[1]
            given |= {
                "listenPort": str(port + REPLICA_PORTS_APART * number if port else 0),
                "haListenPort": "0",
            }
        root = given["storePathRootDir"]
        if controllers:
            given |= {
                "enableControllerMode": "true",
                "controllerAddr": ";".join(controllers),
                "storePathRootDir": f"{root}-{number + 1}" if number else root,
                "haListenPort": "0",
            }
        elif number:
            given |= {
                "brokerRole": "SLAVE",
                "brokerId": str(number),
                "storePathRootDir": f"{root}-replica-{number}",
            }
        return given

    async def stop_broker(self, broker: BrokerAddress) -> None:
        """Stop a broker of `brokers` for good, in order; returns when it has stopped. Controllers
        elect another master later if it was the master.

        Raises ClusterError if no broker runs at its address.
        """
        found = next((one for one in self._brokers if one[0].address == broker.address), None)
        if found is None:
            raise ClusterError(f"no broker runs at {broker.address}")
        self._brokers.remove(found)
        await found[0].stop()

    async def stop(self) -> None:
        """Stop the running nodes: brokers first, which save their state, then controllers, the name
        server last. A temporary data folder is removed."""
        brokers, self._brokers = self._brokers, []
        controllers, self._controllers = self._controllers, []
        namesrv, self._namesrv = self._namesrv, None
        try:
            await _stop_nodes(broker for broker, _ in brokers)
        finally:
            try:
                await _stop_nodes(controllers)
            finally:
                if namesrv is not None:
                    await namesrv.stop()
                if self._temporary is not None:
                    self._temporary.cleanup()

    async def __aenter__(self) -> "Cluster":
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    async def _start_namesrv(self) -> None:
        """Start the name server with its properties and the changes of earlier runs."""
        own_file = str(self.data / "namesrv" / "namesrv.properties")
        config = NamesrvConfig(config_store_path=own_file)
        passed_over = NAMESRV_OWN | ({SUPPORT_ACTING} if self._acting_master else set())
        self.warnings += config.update_keys(_as_properties(self.namesrv_properties()))
        self.warnings += config.update_keys(changed_before(own_file, passed_over))
        namesrv = NameServerNode(config)
        await namesrv.start()
        self._namesrv = namesrv

    async def _start_controllers(self, count: int) -> None:
        """Start controllers.

        All listen before any begins: only then are the peers' free ports known.
        """
        if not count:
            return  # avoids the import
        from turbopump.controller.config import format_peers
        from turbopump.controller.node import ControllerNode

        configs = [self._controller_config(number) for number in range(count)]
        self._controllers = [ControllerNode(config) for config in configs]
        host = LOOPBACK if self._host in WILDCARDS else self._host
        peers = {
            config.self_id: join(host, await controller.listen())
            for config, controller in zip(configs, self._controllers, strict=True)
        }
        for config, controller in zip(configs, self._controllers, strict=True):
            config.peers = format_peers(peers)
            await controller.start()

    def _controller_config(self, number: int) -> "ControllerConfig":
        """The configuration of controller `number`, with the changes of earlier runs."""
        from turbopump.controller.config import ControllerConfig

        own_file = str(self.data / "controller" / f"n{number}.properties")
        config = ControllerConfig(config_store_path=own_file)
        warnings = config.update_keys(_as_properties(self.controller_properties(number)))
        self.warnings += [] if number else warnings
        self.warnings += config.update_keys(changed_before(config.config_store_path))
        return config

    async def _start_broker(self, number: int) -> None:
        """Start broker `number` with its properties and the changes of earlier runs."""
        config = BrokerConfig()
        given = self.broker_properties(number, self.namesrv, self.controllers)
        warnings = config.update_keys(_as_properties(given))
        self.warnings += [] if number else warnings
        config.path = f"{config.store.root}{CHANGES}"
        self.warnings += config.update_keys(changed_before(config.path))
        broker = BrokerNode(config, on_progress=self._on_progress)
        await broker.start()
        self._brokers.append((broker, config))

    def _common_broker_properties(self, default_name: str, namesrv: str) -> dict[str, str]:
        """The properties that all brokers of the cluster share; the caller's `broker_properties`
        override them."""
        name = self._broker_properties.get("brokerName", default_name)
        own = {
            "storePathRootDir": str(self.data / name),
            "mappedFileSizeCommitLog": str(self._log_file_size(name)),
            "bindAddress": self._host,
            "brokerIP1": "" if self._host in WILDCARDS else self._host,
            "listenPort": str(self._ports[1]),
            "namesrvAddr": namesrv,
            "tls.enable": self._tls_enabled(),
        }
        if self._replicas:
            own |= {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2"}
        if self._acting_master:
            own |= {
                "enableSlaveActingMaster": "true",
                "totalReplicas": str(self.broker_count),
            }
        return {**own, **self._broker_properties}

    def _log_file_size(self, name: str) -> int:
        """File size of the existing logs, because all members of a group must have the same;
        LOG_FILE_SIZE for the first log."""
        files, given = RealFiles(), self._broker_properties
        root = given.get("storePathRootDir", str(self.data / name))
        folders = [given.get("storePathCommitLog", f"{root}/commitlog")]
        folders += [f"{each}/commitlog" for each in sorted(glob(f"{escape(root)}-*"))]
        found = (file_size_in(files, folder) for folder in folders)
        return next(filter(None, found), LOG_FILE_SIZE)

    def _id_of(self, broker: BrokerNode, config: BrokerConfig) -> int:
        """Id of a broker: 0 for the master.

        With controllers it is the id that the name server gives to clients, -1 before registration.
        """
        if not self._controllers:
            return config.broker_id
        assert self._namesrv is not None
        members = self._namesrv.members(config.broker_name)
        return next((each for each, at in members.items() if at == broker.address), -1)

    def _tls_of_servers(self) -> dict[str, str]:
        """The broker's properties for TLS servers, which apply to the name server and controllers,
        too."""
        return {
            key: value.strip().lower() if key == MODE else value
            for key, value in self._broker_properties.items()
            if key.startswith("tls.server.") or key == "tls.test.mode.enable"
        }

    def _tls_enabled(self) -> str:
        """Value of the brokers' property tls.enable (TLS of the requests that they send): "true" if
        servers require TLS."""
        return BOOLEAN.to_text(self._tls_of_servers().get(MODE) == "enforcing")

    async def _await_registration(self) -> None:
        """Wait until the name server has the brokers' addresses, a master's among them."""
        timeout_ms = ELECTED_TIMEOUT_MS if self._controllers else REGISTERED_TIMEOUT_MS
        for _ in range(timeout_ms // REGISTERED_POLL_MS):
            brokers = self.brokers
            if self._has_registered(brokers) and any(broker.id == 0 for broker in brokers):
                return
            await asyncio.sleep(REGISTERED_POLL_MS / 1_000)
        raise ClusterError(f"broker {self.brokers[0].name} did not register at {self.namesrv}")

    def _has_registered(self, brokers: list[BrokerAddress]) -> bool:
        """Whether all these brokers are registered at the name server."""
        assert self._namesrv is not None
        return all(self._namesrv.is_registered(broker.name, broker.address) for broker in brokers)


async def _stop_nodes(nodes: "Iterable[BrokerNode | ControllerNode]") -> None:
    """Stop nodes at the same time; raises the first error after all have ended."""
    stops = (node.stop() for node in nodes)
    for ended in await asyncio.gather(*stops, return_exceptions=True):
        if ended is not None:
            raise ended


def prepare_data(data: Path) -> None:
    """Create a data folder and its LAYOUT_FILE, durably, or check that its layout is LAYOUT.

    Raises OSError if it cannot be created or written, StoreError if it is of another version.
    """
    files, marker = RealFiles(), data / LAYOUT_FILE
    if data.is_file():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(data))
    data.mkdir(parents=True, exist_ok=True)
    if marker.exists():
        found = _read_layout(marker.read_bytes())
        if found != LAYOUT:
            raise StoreError(
                f"{data} is a data folder of another version: its layout is {found}, "
                f"this program needs {LAYOUT}"
            )
        return
    fresh = f"{marker}.tmp"
    files.write(fresh, json.dumps({"layout": LAYOUT}).encode() + b"\n")
    files.sync(fresh)
    files.rename(fresh, str(marker))
    files.sync_folder(str(data))


def _read_layout(text: bytes) -> object:
    """The number of the data folder's layout; "missing" or "unreadable" for another text."""
    try:
        value = json.loads(text)
    except ValueError:
        return "unreadable"
    return value.get("layout", "missing") if isinstance(value, dict) else "unreadable"


def changed_before(path: str, passed_over: Iterable[str] = ()) -> list[Property]:
    """Return the properties that admin requests (UPDATE_BROKER_CONFIG and the like) changed in an
    earlier run, from the file at `path`, without the keys `passed_over`; [] without the file.
    Raises ClusterError if it is malformed, OSError."""
    files = RealFiles()
    if not files.exists(path):
        return []
    try:
        found = parse_properties(files.read(path).decode("utf-8", "replace"))
    except PropertiesError as error:
        raise ClusterError(f"{path}: {error}") from None
    found = [item for item in found if item.key not in passed_over]
    names = ", ".join(item.key for item in found)
    logger.info("%s: keys that were changed at run time: %s", path, names)
    return found


def _as_properties(values: Mapping[str, str]) -> list[Property]:
    return [Property(key, value) for key, value in values.items()]
