"""The brokers of a container: their states, names, folders and ports.

Owns names, folders and ports, so that no two brokers have the same. It must never start or stop a
broker. Runs on the loop's thread.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol

from turbopump.broker.config.config import NO_GRPC, BrokerConfig
from turbopump.broker.config.kinds import MetricsExporterType
from turbopump.broker.config.replication_config import NO_ID_YET
from turbopump.broker.container.config import BROKERS_MAX
from turbopump.broker.context import BrokerContext
from turbopump.broker.registration.addresses import VIP_DISTANCE
from turbopump.net.transport.dispatcher import Dispatcher
from turbopump.net.wire.hosts import join

WILDCARDS = ("", "0.0.0.0", "::")
"""Hosts that mean all addresses of the machine."""


class InnerBroker(Protocol):
    """A broker as its container uses it."""

    context: BrokerContext
    """The broker's parts; absent before `start` has returned."""
    table: Dispatcher
    """The handlers of the broker's requests; absent before `start` has returned."""

    @property
    def address(self) -> str:
        """Address `host:port` for its clients."""

    async def start(self) -> None:
        """Start the broker, and return when it serves; raises the errors of BrokerNode.start, and
        then nothing of it runs."""

    async def stop(self) -> None:
        """Hand over the lead, answer pending requests, write everything to disk, and close all
        connections; returns when that is done."""


class LifeStage(Enum):
    """Stage in a broker's life."""

    STARTING = "starting"
    """The broker was added to the container, and its `start` has not returned."""
    SERVING = "serving"
    """The broker's `start` has returned."""
    STOPPING = "stopping"
    """The broker's `stop` has begun; afterwards it is no member."""


class ExclusiveResource(NamedTuple):
    """A resource that only a single broker can have: a folder, or a port at a host."""

    what: str
    """Noun for messages; of a folder: "the folder " and its path, which `conflicts_with`
    compares."""
    host: str = ""
    """Host of a port; "" for a folder."""
    port: int = 0
    """Number of a port; 0 for a folder."""

    def conflicts_with(self, other: "ExclusiveResource") -> bool:
        """Whether the two resources conflict: the same port at the same host or a wildcard, or
        folders that are equal or lie in each other."""
        if not self.port:
            return not other.port and (
                _lies_in(self.what, other.what) or _lies_in(other.what, self.what)
            )
        hosts = {self.host, other.host}
        return self.port == other.port and (len(hosts) == 1 or not hosts.isdisjoint(WILDCARDS))


@dataclass(slots=True, eq=False)
class ContainerMember:
    """A broker of the container, with its resources and its stage of life."""

    config: BrokerConfig
    """The broker's configuration in force."""
    node: InnerBroker
    """The broker itself."""
    claims: Sequence[ExclusiveResource]
    """The broker's folders and ports, which no other member may use."""
    state: LifeStage = LifeStage.STARTING
    """Stage of its life, set by the container."""

    @property
    def name(self) -> str:
        """Canonical name cluster_brokerName_id as in RocketMQ (BrokerIdentity.getCanonicalName); it
        changes with `id`."""
        config = self.config
        return f"{config.broker_cluster_name}_{config.broker_name}_{self.id}"

    @property
    def id(self) -> int:
        """The broker id that name servers show, 0 for a master; before the role is known, the id in
        the broker's file."""
        if self.state is LifeStage.STARTING:
            return self.config.broker_id
        role = self.node.context.role
        return role.broker_id if role.is_known else self.config.broker_id

    @property
    def is_master(self) -> bool:
        """Whether the broker accepts messages of producers now."""
        return self.state is LifeStage.SERVING and self.node.context.role.is_active_master


class Members:
    """The members of a container. Iteration takes a copy, in the order in which the members were
    added; stopping and starting brokers are included."""

    def __init__(self, own: Sequence[ExclusiveResource]) -> None:
        self._own = own
        """Resources of the container itself."""
        self._members: list[ContainerMember] = []

    def __iter__(self) -> Iterator[ContainerMember]:
        return iter(tuple(self._members))

    def reason_to_refuse(self, config: BrokerConfig, claims: Sequence[ExclusiveResource]) -> str:
        """The reason why a broker with this configuration and these resources cannot be added, as a
        sentence; "" if it can. Nothing is added."""
        name = f"{config.broker_cluster_name}_{config.broker_name}_{config.broker_id}"
        if config.broker_id != NO_ID_YET and self._has_identity_of(config):
            return f"{name} has already been added to current broker container"
        if len(self._members) >= BROKERS_MAX:
            return f"a container has at most {BROKERS_MAX} brokers"
        for claim in claims:
            if any(claim.conflicts_with(one) for one in self._own):
                return f"{name}: {claim.what} is the container's own"
            for other in self._members:
                met = next((one for one in other.claims if claim.conflicts_with(one)), None)
                if met is not None and met.what == claim.what:
                    return f"{name}: {claim.what} is that of {other.name}"
                if met is not None and not claim.port:
                    return (
                        f"{name}: {claim.what} and {met.what} of {other.name}: one is"
                        " inside the other"
                    )
                if met is not None:
                    return f"{name}: {claim.what} is that of {other.name}"
        return ""

    def _has_identity_of(self, config: BrokerConfig) -> bool:
        """Whether a member has this configuration's cluster, brokerName and brokerId."""
        return any(
            (one.config.broker_cluster_name, one.config.broker_name, one.config.broker_id)
            == (config.broker_cluster_name, config.broker_name, config.broker_id)
            for one in self._members
        )

    def add(self, member: ContainerMember) -> None:
        """Add a broker; its resources are not checked (see `reason_to_refuse`)."""
        self._members.append(member)

    def remove_member(self, member: ContainerMember) -> None:
        """Remove a broker that has stopped or did not start, which frees its resources. Raises
        ValueError if it is no member."""
        self._members.remove(member)

    def find(self, cluster: str, name: str, broker_id: int) -> ContainerMember | None:
        """The member with this cluster, brokerName and current id, else a member of that name
        without an id yet; None without a match. A broker that is being stopped is not found."""
        named = [
            one
            for one in self._members
            if (one.config.broker_cluster_name, one.config.broker_name) == (cluster, name)
            and one.state is not LifeStage.STOPPING
        ]
        for wanted in (broker_id, NO_ID_YET):
            for one in named:
                if one.id == wanted:
                    return one
        return None


def _lies_in(folder: str, other: str) -> bool:
    """Whether `folder` is the folder `other`, or lies in it."""
    return folder == other or folder.startswith(other.rstrip("/") + "/")


def claims_of(config: BrokerConfig, folders: Sequence[str]) -> list[ExclusiveResource]:
    """Resources that a broker with this configuration needs: folders first, then ports. `folders`
    are the absolute paths of its files' folders, without links. A port of 0 is any free port and no
    resource."""
    host, port = config.bind_address, config.listen_port
    ports = [(host, port, "port")]
    if config.vip_port_enable and port > VIP_DISTANCE:
        ports.append((host, port - VIP_DISTANCE, "the VIP port"))
    if config.replication.needs_replication:
        behind = port + 1 if port else 0
        ports.append((host, config.replication.ha_listen_port or behind, "the port of replicas"))
    if config.grpc_server_port != NO_GRPC:
        ports.append((host, config.grpc_server_port, "the port of gRPC"))
    if config.metrics_exporter_type is MetricsExporterType.PROM:
        at = config.metrics_prom_exporter_host or config.bind_address
        ports.append((at, config.metrics_prom_exporter_port, "the port of metrics"))
    found = [ExclusiveResource(f"the folder {folder}") for folder in dict.fromkeys(folders)]
    return found + [ExclusiveResource(f"{what} {at}", host, at) for host, at, what in ports if at]


def own_claims(host: str, port: int, vip: bool) -> list[ExclusiveResource]:
    """Resources of the container itself: its `port` at `host`, and with `vip` the VIP port."""
    ports = [port, port - VIP_DISTANCE] if vip else [port]
    return [ExclusiveResource(join(host, at), host, at) for at in ports if at]
