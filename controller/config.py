"""A controller's configuration: RocketMQ's properties keys, typed and checked.

Owns which keys there are, what they mean, what is said of a bad one, and who the members of the
quorum are. It must never read a file or a socket. Called by node.py, the CLI, cluster.py and the
handlers of 1009/1010.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from turbopump.net.transport.options import ClientTlsSettings, TlsSettings
from turbopump.net.wire import property_update
from turbopump.net.wire.hosts import join, split
from turbopump.net.wire.java_properties import ConfigError, Property
from turbopump.net.wire.property_update import KeyTable
from turbopump.net.wire.property_values import (
    CLIENT_TLS_KEYS,
    INT32_MAX,
    NETTY_CLIENT_KEYS,
    NETTY_SERVER_KEYS,
    SERVER_TLS_KEYS,
    Parse,
    between,
    boolean,
    idle_keys,
    text,
)

ALL: Final = "0.0.0.0"
LOOPBACK: Final = "127.0.0.1"

MEMBERS_MAX: Final = 15
"""Of a quorum: each entry is sent to all by one leader; groups have 1, 3 or 5."""

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
"""ControllerConfig of 5.5.0, without the keys that are honoured: accepted and shown, so that its
files and tools work unchanged. An election is tried until there is a master."""


ALWAYS_BLACK_LISTED: Final = frozenset({"configBlackList", "configStorePath", "rocketmqHome"})


@dataclass(slots=True)
class ControllerConfig:
    """Everything a controller is given from outside (RocketMQ: common/ControllerConfig).

    Without `peers` the controller is alone, at `listen_port`; with them its port is that of its own
    entry, as in RocketMQ, and `listen_port` says nothing; it listens at that entry's host unless
    `bind_address` is given. The timers of the quorum have the names
    of DLedgerConfig, which RocketMQ's controller does not let one set: ours are shorter, so that a
    leader that is cut off is replaced in two seconds (DLedger: 6 and more). The two scans are a
    comparison of some numbers here, so they are made more often than RocketMQ's 5,000 ms.
    """

    bind_address: str = ""
    listen_port: int = 19876
    controller_type: str = "DLedger"
    group: str = "DLedgerController"
    peers: str = ""
    self_id: str = "n0"
    store_path: str = ""
    config_store_path: str = ""
    config_black_list: str = "configBlackList;configStorePath"
    enable_elect_unclean_master: bool = False
    is_process_read_event: bool = False
    notify_broker_role_changed: bool = True
    scan_not_active_broker_interval_ms: int = 500
    scan_inactive_master_interval_ms: int = 500
    server_channel_max_idle_seconds: int = 120
    heartbeat_interval_ms: int = 500
    heartbeat_leak_max: int = 3
    vote_interval_ms_min: int = 150
    vote_interval_ms_max: int = 450
    preferred_leader_ids: str = ""
    snapshot_threshold: int = 1_000
    tls: dict[str, str] = field(default_factory=dict)
    others: dict[str, str] = field(default_factory=dict)

    @property
    def black_list(self) -> frozenset[str]:
        """Keys that UPDATE_CONTROLLER_CONFIG may not touch."""
        configured = (part.strip() for part in self.config_black_list.split(";"))
        return frozenset(part for part in configured if part) | ALWAYS_BLACK_LISTED

    @property
    def members(self) -> dict[str, str]:
        """`host:port` by id, of all members, in the order of the file.

        Raises ConfigError where this controller is not one of them.
        """
        if not self.peers:
            host = {"::": "::1", "": LOOPBACK, ALL: LOOPBACK}.get(
                self.bind_address, self.bind_address
            )
            return {self.self_id: join(host, self.listen_port)}
        members = parse_peers(self.peers)
        if self.self_id not in members:
            raise ConfigError(
                f"controllerDLegerSelfId={self.self_id} is none of controllerDLegerPeers="
                f"{self.peers}"
            )
        return members

    @property
    def listen_at(self) -> tuple[str, int]:
        """Host and port to listen at. Raises ConfigError where it is none of its peers."""
        if not self.peers:
            return self.bind_address or ALL, self.listen_port
        host, port = split(self.members[self.self_id])
        return self.bind_address or host, port

    @property
    def client_tls(self) -> ClientTlsSettings | None:
        """How it connects to its peers and to brokers; None: without TLS."""
        return ClientTlsSettings.from_properties(self.tls)

    @property
    def folder(self) -> str:
        """Where the controller keeps what it must know again; "~" is its user's home."""
        path = self.store_path or f"~/{self.controller_type}Controller"
        return f"{path}/raft-{self.self_id}"

    @staticmethod
    def knows(key: str) -> bool:
        """Whether a controller has this key."""
        return _TABLE.knows(key)

    def values(self, *, secrets: bool = False) -> dict[str, str]:
        """Every key and its value as text, keys of RocketMQ that do nothing here included.

        Passwords only with `secrets`: for the configuration file, never for an answer.
        """
        return _TABLE.shown(self, self.others, self.tls, secrets=secrets)

    def changing(self, properties: Iterable[Property]) -> list[Property]:
        """What of a request a running controller takes over and keeps. Raises PropertiesError for
        what needs a restart."""
        return _TABLE.changing(properties, self)

    def update(self, properties: Iterable[Property]) -> list[str]:
        """Take over values; returns warnings. Raises ConfigError and then changes nothing."""
        update = property_update.read(_TABLE, properties, self.tls)
        self._check_votes(update.values)
        for attribute, value in update.values.items():
            setattr(self, attribute, value)
        self.others.update(update.others)
        self.tls = update.tls
        return update.warnings

    def _check_votes(self, changed: dict[str, object]) -> None:
        least = changed.get("vote_interval_ms_min", self.vote_interval_ms_min)
        most = changed.get("vote_interval_ms_max", self.vote_interval_ms_max)
        assert isinstance(least, int)
        assert isinstance(most, int)
        if least > most:
            raise ConfigError(f"minVoteIntervalMs={least} is above maxVoteIntervalMs={most}")


def parse_peers(value: str) -> dict[str, str]:
    """`n0-host:port;n1-host:port` as addresses by id (DLedger: MemberState.loadPeers).

    An id ends at the first "-". Raises ConfigError.
    """
    members: dict[str, str] = {}
    for part in value.split(";"):
        if not part.strip():
            continue
        name, dash, address = part.strip().partition("-")
        try:
            host, port = split(address)
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
    """The text of which `parse_peers` makes these members."""
    return ";".join(f"{name}-{address}" for name, address in members.items())


def _peers(value: str) -> str:
    if value:
        parse_peers(value)
    return value


def _only_dledger(value: str) -> str:
    if value != "DLedger":
        raise ValueError("DLedger (jRaft's wire protocol is not spoken here)")
    return value


def _name(value: str) -> str:
    if not value or any(char in value for char in ";-:# \t") or not value.isprintable():
        raise ValueError("a name without blanks, ';', '-', ':' and '#'")
    return value


def _group(value: str) -> str:
    if not value.strip():
        raise ValueError("a name")
    return value


_MS = between(10, INT32_MAX)

_ALIASES: Final = {"processReadEvent": "isProcessReadEvent", "useTLS": "tls.enable"}
"""RocketMQ sets isProcessReadEvent by the name of its setter."""

_KEYS: Final[dict[str, tuple[str, Parse]]] = {
    "bindAddress": ("bind_address", text),
    "listenPort": ("listen_port", between(0, 65_535)),
    "controllerType": ("controller_type", _only_dledger),
    "controllerDLegerGroup": ("group", _group),
    "controllerDLegerPeers": ("peers", _peers),
    "controllerDLegerSelfId": ("self_id", _name),
    "controllerStorePath": ("store_path", text),
    "configStorePath": ("config_store_path", text),
    "configBlackList": ("config_black_list", text),
    "enableElectUncleanMaster": ("enable_elect_unclean_master", boolean),
    "isProcessReadEvent": ("is_process_read_event", boolean),
    "notifyBrokerRoleChanged": ("notify_broker_role_changed", boolean),
    "scanNotActiveBrokerInterval": ("scan_not_active_broker_interval_ms", _MS),
    "scanInactiveMasterInterval": ("scan_inactive_master_interval_ms", _MS),
    "serverChannelMaxIdleTimeSeconds": (
        "server_channel_max_idle_seconds",
        between(1, INT32_MAX // 1_000),
    ),
    "heartBeatTimeIntervalMs": ("heartbeat_interval_ms", _MS),
    "maxHeartBeatLeak": ("heartbeat_leak_max", between(1, 100)),
    "minVoteIntervalMs": ("vote_interval_ms_min", _MS),
    "maxVoteIntervalMs": ("vote_interval_ms_max", _MS),
    "preferredLeaderIds": ("preferred_leader_ids", text),
    "snapshotThreshold": ("snapshot_threshold", between(1, INT32_MAX)),
}


def _check_tls(tls: dict[str, str]) -> None:
    TlsSettings.from_properties(tls)
    ClientTlsSettings.from_properties({**tls, "tls.enable": "true"})
    ClientTlsSettings.from_properties(tls)


_LIVE: Final = frozenset(
    {
        "enableElectUncleanMaster",
        "isProcessReadEvent",
        "notifyBrokerRoleChanged",
        "scanInactiveMasterInterval",
        "scanNotActiveBrokerInterval",
    }
)
"""What the state machine goes by; the others are the quorum's, the port's or the disk's."""

_TABLE: Final = KeyTable(
    _KEYS, SERVER_TLS_KEYS | CLIENT_TLS_KEYS, _check_tls, IDLE_KEYS, _ALIASES, _LIVE
)
