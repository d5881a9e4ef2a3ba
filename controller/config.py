"""A controller's configuration.

Owns the declarations of its keys, and the members of the quorum. It must never read a file or a
socket.
"""

from dataclasses import dataclass
from typing import ClassVar, Final

from turbopump.engine.keys import (
    BOOLEAN,
    COUNT,
    HOST,
    INT32_MAX,
    OURS,
    PORT,
    TEXT,
    Kind,
    integer_kind,
    key,
)
from turbopump.net.config.idle import NETTY_CLIENT_KEYS, NETTY_SERVER_KEYS, idle_keys
from turbopump.net.config.node_config import NodeConfig
from turbopump.net.transport.options import CLIENT_TLS_KEYS, SERVER_TLS_KEYS
from turbopump.net.wire.hosts import join, split_host_port
from turbopump.net.wire.java_properties import ConfigError

ALL: Final = "0.0.0.0"
"""Address to listen at on all IPv4 interfaces."""
LOOPBACK: Final = "127.0.0.1"
"""Address by which a controller without peers is known if it listens at all interfaces."""

MEMBERS_MAX: Final = 15
"""Members of a quorum, at most: the leader sends each entry to all. Quorums have 1, 3 or 5."""

IDLE_KEYS: Final = {
    **NETTY_SERVER_KEYS,
    **NETTY_CLIENT_KEYS,
    **idle_keys(
        """
        controllerRequestThreadPoolQueueCapacity int 50000
        controllerThreadPoolNums int 16
        electMasterMaxRetryCount int 3
        jRaftControllerRPCAddr String -
        jRaftElectionTimeoutMs int -
        jRaftGroupId String -
        jRaftInitConf String -
        jRaftScanWaitTimeoutMs int -
        jRaftServerId String -
        jRaftSnapshotIntervalSecs int -
        jraftConfig String -
        mappedFileSize int 1073741824
        metricGrpcExporterIntervalInMills long 60000
        metricGrpcExporterTimeOutInMills long 3000
        metricLoggingExporterIntervalInMills long 10000
        metricsExporterType String DISABLE refused controllers have no metrics here
        metricsGrpcExporterHeader String ''
        metricsGrpcExporterTarget String ''
        metricsInDelta boolean false
        metricsLabel String ''
        metricsPromExporterHost String ''
        metricsPromExporterPort int 5557
        rocketmqHome String -
        """
    ),
}
"""Keys of 5.5.0's ControllerConfig that have no effect here: accepted and shown, so that RocketMQ's
files and tools work unchanged. An election is tried until there is a master, so it has no retry
count."""


def parse_peers(value: str) -> dict[str, str]:
    """Parse `n0-host:port;n1-host:port` as addresses by id (DLedger: MemberState.loadPeers).

    An id ends at the first "-"; the order is kept, empty parts are skipped. Raises ConfigError if a
    part is malformed, an id occurs twice, or there are 0 or over MEMBERS_MAX members.
    """
    members: dict[str, str] = {}
    for part in value.split(";"):
        if not part.strip():
            continue
        name, dash, address = part.strip().partition("-")
        try:
            host, port = split_host_port(address)
            if not dash or not name or not port:
                raise ValueError
        except ValueError:
            raise ConfigError(
                f"controllerDLegerPeers={value}: expected n0-host:port;n1-host:port, "
                f"{part.strip()!r} is no id-host:port"
            ) from None
        if name in members:
            raise ConfigError(f"controllerDLegerPeers={value}: {name} is there twice")
        members[name] = join(host, port)
    if not members or len(members) > MEMBERS_MAX:
        raise ConfigError(f"controllerDLegerPeers={value}: expected 1 to {MEMBERS_MAX} members")
    return members


def format_peers(members: dict[str, str]) -> str:
    """Format members (`host:port` by id) as text for `parse_peers`."""
    return ";".join(f"{name}-{address}" for name, address in members.items())


def _checked_peers(value: str) -> str:
    """The value itself. Raises ConfigError if it is neither empty nor a list of `parse_peers`."""
    if value:
        parse_peers(value)
    return value


def _checked_controller_type(value: str) -> str:
    """The value itself. Raises ValueError unless it is "DLedger"."""
    if value != "DLedger":
        raise ValueError("DLedger (jRaft's wire protocol is not spoken here)")
    return value


def _checked_member_id(value: str) -> str:
    """The value itself. Raises ValueError unless it can be a member's id."""
    if not value or any(char in value for char in ";-:# \t") or not value.isprintable():
        raise ValueError("a name without blanks, ';', '-', ':' and '#'")
    return value


def _checked_group(value: str) -> str:
    """The value itself. Raises ValueError if it is blank."""
    if not value.strip():
        raise ValueError("a name")
    return value


PERIOD: Final = integer_kind(10, INT32_MAX)
"""Kind of a setting that is a time in ms, at least 10."""
PEERS: Final = Kind("n0-host:port;n1-host:port", _checked_peers)
"""Kind of `controllerDLegerPeers`: empty, or text for `parse_peers`."""
DLEDGER: Final = Kind("DLedger", _checked_controller_type)
"""Kind of `controllerType`: only DLedger is accepted."""
ID: Final = Kind("a name without blanks, ';', '-', ':' and '#'", _checked_member_id)
"""Kind of `controllerDLegerSelfId`."""
GROUP: Final = Kind("a name", _checked_group)
"""Kind of `controllerDLegerGroup`: any text that is not blank."""


@dataclass(slots=True)
class ControllerConfig(NodeConfig):
    """A controller's settings (RocketMQ: common/ControllerConfig).

    Without `peers` the controller is the only member, at `listen_port`. With peers its port is that
    of its own entry, as in RocketMQ, and `listen_port` has no effect; it listens at that entry's
    host unless `bind_address` is given. The timers of the quorum have the names of DLedgerConfig,
    which RocketMQ's controller does not let users set. Ours are shorter, so that a leader that is
    cut off is replaced in two seconds (DLedger: 6 and more). The two scans only compare some
    numbers here, so they run more often than RocketMQ's 5,000 ms.
    """

    IDLE = IDLE_KEYS
    TLS: ClassVar = {**SERVER_TLS_KEYS, **CLIENT_TLS_KEYS}
    NEVER_BY_REQUEST = NodeConfig.NEVER_BY_REQUEST | {"configStorePath"}

    bind_address: str = key(
        "bindAddress",
        HOST,
        "",
        "Address to listen at; empty: the host of its own entry in the peers, or all.",
        rocketmq="0.0.0.0",
    )
    listen_port: int = key("listenPort", PORT, 19876, "Port of a controller without peers.")
    controller_type: str = key(
        "controllerType", DLEDGER, "DLedger", "Protocol of the quorum: DLedger's."
    )
    group: str = key(
        "controllerDLegerGroup",
        GROUP,
        "DLedgerController",
        "Name of the quorum.",
        rocketmq="none: it has to be given",
    )
    peers: str = key(
        "controllerDLegerPeers",
        PEERS,
        "",
        "All members of the quorum; empty: this controller is the only one.",
        rocketmq="none: it has to be given",
    )
    self_id: str = key(
        "controllerDLegerSelfId",
        ID,
        "n0",
        "Id of this controller among the members.",
        rocketmq="none: it has to be given",
    )
    store_path: str = key(
        "controllerStorePath",
        TEXT,
        "",
        "Folder of the durable state; empty: a folder in the user's home.",
    )
    config_store_path: str = key(
        "configStorePath",
        TEXT,
        "",
        "File for changes by request; empty: not saved.",
        rocketmq="~/controller/controller.properties",
    )
    config_black_list: str = key(
        "configBlackList",
        TEXT,
        "configBlackList;configStorePath",
        "Keys that no request may change, separated by ;.",
    )
    enable_elect_unclean_master: bool = key(
        "enableElectUncleanMaster",
        BOOLEAN,
        False,
        "Elect a broker that may lack acknowledged messages if no other is available.",
        live=True,
    )
    is_process_read_event: bool = key(
        "isProcessReadEvent",
        BOOLEAN,
        False,
        "Commit reads by the quorum, too.",
        live=True,
        aliases=("processReadEvent",),
    )
    notify_broker_role_changed: bool = key(
        "notifyBrokerRoleChanged",
        BOOLEAN,
        True,
        "Notify the brokers of a group of its new master.",
        live=True,
    )
    scan_not_active_broker_interval_ms: int = key(
        "scanNotActiveBrokerInterval",
        PERIOD,
        500,
        "Milliseconds between two checks for dead brokers.",
        live=True,
        rocketmq="5000",
    )
    scan_inactive_master_interval_ms: int = key(
        "scanInactiveMasterInterval",
        PERIOD,
        500,
        "Milliseconds between two checks for groups without a master.",
        live=True,
        rocketmq="5000",
    )
    server_channel_max_idle_seconds: int = key(
        "serverChannelMaxIdleTimeSeconds",
        integer_kind(1, INT32_MAX // 1_000),
        120,
        "Seconds of silence after which a connection is closed.",
    )
    heartbeat_interval_ms: int = key(
        "heartBeatTimeIntervalMs",
        PERIOD,
        500,
        "Milliseconds between two heartbeats of the leader.",
        rocketmq=OURS,
    )
    heartbeat_leak_max: int = key(
        "maxHeartBeatLeak",
        integer_kind(1, 100),
        3,
        "Missed heartbeats before another leader is elected.",
        rocketmq=OURS,
    )
    vote_interval_ms_min: int = key(
        "minVoteIntervalMs",
        PERIOD,
        150,
        "Milliseconds between two rounds of votes, at least.",
        rocketmq=OURS,
    )
    vote_interval_ms_max: int = key(
        "maxVoteIntervalMs",
        PERIOD,
        450,
        "Milliseconds between two rounds of votes, at most.",
        rocketmq=OURS,
    )
    preferred_leader_ids: str = key(
        "preferredLeaderIds",
        TEXT,
        "",
        "Preferred leaders among the members, separated by ;.",
        rocketmq=OURS,
    )
    snapshot_threshold: int = key(
        "snapshotThreshold",
        COUNT,
        1_000,
        "Changes after which a snapshot is written and replaces the log before it, or fewer of"
        " over 16 MiB.",
        rocketmq=OURS,
    )

    @property
    def members(self) -> dict[str, str]:
        """Addresses (`host:port`) by id of all members, this one included, in order of the file.

        Without `peers` this controller at `bind_address`, or LOOPBACK if it listens at all
        interfaces. Raises ConfigError if this controller is not among its peers.
        """
        if not self.peers:
            host = {"::": "::1", "": LOOPBACK, ALL: LOOPBACK}.get(
                self.bind_address, self.bind_address
            )
            return {self.self_id: join(host, self.listen_port)}
        members = parse_peers(self.peers)
        if self.self_id not in members:
            raise ConfigError(
                f"controllerDLegerSelfId={self.self_id} is not in controllerDLegerPeers="
                f"{self.peers}"
            )
        return members

    @property
    def listen_at(self) -> tuple[str, int]:
        """(host, port) to listen at. Raises ConfigError if this controller is not among its
        peers."""
        if not self.peers:
            return self.bind_address or ALL, self.listen_port
        host, port = split_host_port(self.members[self.self_id])
        return self.bind_address or host, port

    @property
    def folder(self) -> str:
        """Path of the folder of the quorum's files; a leading "~" is not expanded yet."""
        path = self.store_path or f"~/{self.controller_type}Controller"
        return f"{path}/raft-{self.self_id}"

    def check_change(self, _before: NodeConfig) -> list[str]:
        """Raise ConfigError if minVoteIntervalMs is above maxVoteIntervalMs; return no warnings."""
        least, most = self.vote_interval_ms_min, self.vote_interval_ms_max
        if least > most:
            raise ConfigError(f"minVoteIntervalMs={least} is above maxVoteIntervalMs={most}")
        return []
