"""A whole broker group in one process: name server, controllers and brokers on the running loop.

Owns the layout of a data folder and the order of start and stop. It must never know a request.
Called by `turbopump up`, by the pytest fixture and by programs: `async with Cluster() as cluster`.
"""

import asyncio
import errno
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from turbopump.broker.config import BrokerConfig
from turbopump.broker.node import BrokerNode, StartError
from turbopump.engine.files import RealFiles
from turbopump.engine.types import Progress, StoreError
from turbopump.namesrv.config import NamesrvConfig
from turbopump.namesrv.node import NameServerNode
from turbopump.net.wire.hosts import join
from turbopump.net.wire.java_properties import Property
from turbopump.net.wire.property_values import show

if TYPE_CHECKING:
    from turbopump.controller.config import ControllerConfig
    from turbopump.controller.node import ControllerNode

LAYOUT = 1
"""Version of a data folder: layout.json, namesrv/, controller/, logs/ and a store folder for each
broker."""

LAYOUT_FILE = "layout.json"
LOOPBACK = "127.0.0.1"
MODE = "tls.server.mode"
WILDCARDS = ("0.0.0.0", "::")  # nothing that a client could be told
REPLICA_PORTS_APART = 10  # room for the VIP port before, and the HA port behind
REGISTERED_POLL_MS = 10
REGISTERED_TIMEOUT_MS = 10_000  # a broker registers in milliseconds where both are one process
ELECTED_TIMEOUT_MS = 30_000  # controllers elect their leader, brokers register, one is elected
CONTROLLER_GROUP = "turbopump"

SMALL_FILES = {
    "mappedFileSizeCommitLog": str(16 << 20),  # a message of 4 MiB fits, and rolling happens
    "mappedFileSizeConsumeQueue": str(20 * 5_000),
    "maxHashSlotNum": "20000",
    "maxIndexNum": "80000",
}
"""Broker properties for tests: files of some MB instead of gigabytes."""


class ClusterError(StartError):
    """The cluster cannot run; the message is one sentence."""


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """A running broker of a cluster; `address` is `host:port`, `id` 0 the master's, -1 that of one
    without a role."""

    name: str
    id: int
    address: str
    pid: int
    role: str


class Cluster:
    """A name server and a broker, a master and its replicas, or brokers that controllers elect a
    master of; reachable by any RocketMQ client.

    Args:
        data: the folder of everything kept; None for one that is removed at the end.
        host: the address to listen at and to tell clients; a wildcard listens at all of this
            machine's, and the one that others reach it at is told.
        namesrv_port, broker_port: 0 for free ones.
        replicas: copies of the broker's log; a send is answered when one of them has it, too. They
            listen REPLICA_PORTS_APART behind one another, unless ports are free ones.
        brokers, controllers: with controllers, that many brokers are one group whose master they
            elect; `replicas` is then 0. Brokers listen as replicas do, controllers on
            `controller_port` and those behind it.
        broker_properties, controller_properties, namesrv_properties: RocketMQ's keys, over what the
            cluster itself sets.
        on_progress: told, several times a second, how far `start` is with recovering a big store.
    """

    def __init__(
        self,
        data: str | os.PathLike[str] | None = None,
        *,
        host: str = LOOPBACK,
        namesrv_port: int = 0,
        broker_port: int = 0,
        replicas: int = 0,
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
        self._host = host
        self._ports = namesrv_port, broker_port
        self._controller_port = controller_port
        self._replicas = replicas
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
        """The name server's `host:port`."""
        assert self._namesrv is not None, "the cluster is not started"
        return self._namesrv.address

    @property
    def controllers(self) -> list[str]:
        """The controllers' `host:port`; empty without."""
        return [controller.address for controller in self._controllers]

    @property
    def brokers(self) -> list[BrokerAddress]:
        """The running brokers, the master first; with controllers, in the roles they have now."""
        assert self._brokers, "the cluster is not started"
        found = [
            BrokerAddress(
                config.broker_name,
                broker_id := self._id_of(broker, config),
                broker.address,
                os.getpid(),
                "master" if broker_id == 0 else "slave",
            )
            for broker, config in self._brokers
        ]
        return sorted(found, key=lambda broker: (broker.id < 0, broker.id))

    async def start(self) -> None:
        """Start all of it; returns when clients can send.

        Raises ClusterError, StoreError, StartError, TlsError, PropertiesError or OSError; nothing
        runs then.
        """
        brokers, controllers = self._sizes
        if brokers > 1 and not controllers:
            raise ClusterError(
                f"{brokers} brokers of one group need controllers, which elect their master; "
                "replicas of one that stays the master do without"
            )
        if controllers and self._replicas:
            raise ClusterError("replicas are those of a master that stays: not with controllers")
        prepare_data(self.data)
        try:
            await self._start_namesrv()
            await self._start_controllers(controllers)
            for number in range(brokers if controllers else self._replicas + 1):
                await self._start_broker(number)
            await self._registered()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop what runs: the brokers write everything down, then the others go."""
        brokers, self._brokers = self._brokers, []
        controllers, self._controllers = self._controllers, []
        namesrv, self._namesrv = self._namesrv, None
        try:
            await _stop_all(broker for broker, _ in brokers)
        finally:
            try:
                await _stop_all(controllers)
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
        config = NamesrvConfig(
            bind_address=self._host,
            listen_port=self._ports[0],
            kv_config_path=str(self.data / "namesrv" / "kvConfig.json"),
            config_store_path=str(self.data / "namesrv" / "namesrv.properties"),
        )
        properties = {**self._tls_of_servers(), **self._namesrv_properties}
        self.warnings += config.update(_properties(properties))
        namesrv = NameServerNode(config)
        await namesrv.start()
        self._namesrv = namesrv

    async def _start_controllers(self, count: int) -> None:
        """All listen before any begins: with free ports they know their peers only then."""
        if not count:
            return  # and pay for no import
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
        from turbopump.controller.config import ControllerConfig

        port = self._controller_port
        config = ControllerConfig(
            bind_address=self._host,
            listen_port=port + number if port else 0,
            group=CONTROLLER_GROUP,
            self_id=f"n{number}",
            store_path=str(self.data / "controller"),
        )
        properties = {
            **self._tls_of_servers(),
            "tls.enable": self._tls_enabled(),
            **self._controller_properties,
        }
        warnings = config.update(_properties(properties))
        self.warnings += [] if number else warnings
        return config

    async def _start_broker(self, number: int) -> None:
        config = BrokerConfig()
        given = self._common_broker_properties(config.broker_name)
        if number:
            port = self._ports[1]
            given |= {
                "listenPort": str(port + REPLICA_PORTS_APART * number if port else 0),
                "haListenPort": "0",
            }
        root = given["storePathRootDir"]
        if self._controllers:
            given |= {
                "enableControllerMode": "true",
                "controllerAddr": ";".join(self.controllers),
                "storePathRootDir": f"{root}-{number + 1}" if number else root,
                "haListenPort": "0",
            }
        elif number:
            given |= {
                "brokerRole": "SLAVE",
                "brokerId": str(number),
                "storePathRootDir": f"{root}-replica-{number}",
            }
        warnings = config.update(_properties(given))
        self.warnings += [] if number else warnings
        broker = BrokerNode(config, on_progress=self._on_progress)
        await broker.start()
        self._brokers.append((broker, config))

    def _common_broker_properties(self, default_name: str) -> dict[str, str]:
        name = self._broker_properties.get("brokerName", default_name)
        own = {
            "storePathRootDir": str(self.data / name),
            "bindAddress": self._host,
            "brokerIP1": "" if self._host in WILDCARDS else self._host,
            "listenPort": str(self._ports[1]),
            "namesrvAddr": self.namesrv,
            "tls.enable": self._tls_enabled(),
        }
        if self._replicas:
            own |= {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2"}
        return {**own, **self._broker_properties}

    def _id_of(self, broker: BrokerNode, config: BrokerConfig) -> int:
        """0 of a master. With controllers what the name server tells clients: -1 before that."""
        if not self._controllers:
            return config.broker_id
        assert self._namesrv is not None
        members = self._namesrv.members(config.broker_name)
        return next((each for each, at in members.items() if at == broker.address), -1)

    def _tls_of_servers(self) -> dict[str, str]:
        """What the broker's properties say of TLS, for the name server too: they have one face."""
        return {
            key: value.strip().lower() if key == MODE else value
            for key, value in self._broker_properties.items()
            if key.startswith("tls.server.") or key == "tls.test.mode.enable"
        }

    def _tls_enabled(self) -> str:
        return show(self._tls_of_servers().get(MODE) == "enforcing")

    async def _registered(self) -> None:
        """Until the name server hands out the brokers' addresses, a master's among them."""
        timeout_ms = ELECTED_TIMEOUT_MS if self._controllers else REGISTERED_TIMEOUT_MS
        for _ in range(timeout_ms // REGISTERED_POLL_MS):
            brokers = self.brokers
            if self._knows(brokers) and any(broker.id == 0 for broker in brokers):
                return
            await asyncio.sleep(REGISTERED_POLL_MS / 1_000)
        raise ClusterError(f"broker {self.brokers[0].name} did not register at {self.namesrv}")

    def _knows(self, brokers: list[BrokerAddress]) -> bool:
        assert self._namesrv is not None
        return all(self._namesrv.knows(broker.name, broker.address) for broker in brokers)


async def _stop_all(nodes: "Iterable[BrokerNode | ControllerNode]") -> None:
    stops = (node.stop() for node in nodes)
    for ended in await asyncio.gather(*stops, return_exceptions=True):
        if ended is not None:
            raise ended


def prepare_data(data: Path) -> None:
    """Make a data folder, or check that this program knows its layout.

    Raises OSError where it cannot be made or written, StoreError where it is of another version.
    """
    files, marker = RealFiles(), data / LAYOUT_FILE
    if data.is_file():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(data))
    data.mkdir(parents=True, exist_ok=True)
    if marker.exists():
        found = _layout_of(marker.read_bytes())
        if found != LAYOUT:
            raise StoreError(
                f"{data} is a data folder of another version: its layout is {found}, "
                f"this program knows {LAYOUT}"
            )
        return
    fresh = f"{marker}.tmp"
    files.write(fresh, json.dumps({"layout": LAYOUT}).encode() + b"\n")
    files.sync(fresh)
    files.rename(fresh, str(marker))
    files.sync_folder(str(data))


def _layout_of(text: bytes) -> object:
    try:
        value = json.loads(text)
    except ValueError:
        return "unreadable"
    return value.get("layout", "missing") if isinstance(value, dict) else "unreadable"


def _properties(values: Mapping[str, str]) -> list[Property]:
    return [Property(key, value) for key, value in values.items()]
