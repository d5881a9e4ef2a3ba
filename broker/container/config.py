"""The configuration of a container: its own keys, and the keys that it changes in its brokers.

Owns the declarations of RocketMQ's keys (BrokerContainerConfig) and the rules for the file of a
broker in a container. It must never read a file or a socket.
"""

from dataclasses import dataclass
from typing import Final

from turbopump.broker.config.config import BrokerConfig
from turbopump.broker.config.replication_config import OF_MACHINE, BrokerRole
from turbopump.engine.keys import (
    BOOLEAN,
    COUNT,
    HOST,
    INT32_MAX,
    NAME_SERVERS,
    OURS,
    PORT,
    TEXT,
    Kind,
    integer_kind,
    key,
)
from turbopump.net.config.idle import NETTY_CLIENT_KEYS, NETTY_SERVER_KEYS, idle_keys
from turbopump.net.config.node_config import NodeConfig
from turbopump.net.transport.options import SERVER_TLS_KEYS
from turbopump.net.wire.java_properties import (
    ConfigError,
    Property,
    escape_unprintable,
    parse_properties,
)

BROKERS_MAX: Final = 64
"""Maximum brokers of a container: they share a thread, and requests of peers must not add brokers
without limit."""
PATH_MAX: Final = 4_096
"""Maximum characters of the path of a file (Linux)."""
FILE_MAX: Final = 1 << 20
"""Maximum bytes of a broker's configuration file; a file with every key has a hundredth of it."""
SHARED: Final = ("namesrvAddr", "fetchNameSrvAddrByDnsLookup", "fetchNamesrvAddrInterval")
"""Keys of a container that override its brokers' keys if it has a namesrvAddr."""
DEFAULT_BROKER_PORT: Final = 10_911
"""Value of listenPort in a file without this key."""

IDLE_KEYS = {
    **NETTY_SERVER_KEYS,
    **NETTY_CLIENT_KEYS,
    **idle_keys(
        """
        fetchNamesrvAddrByAddressServer boolean false refused namesrvAddr takes the addresses
        rocketmqHome String -
        updateNamesrvAddrInterval long 120000
        useTLS boolean false refused each broker has its own keys of TLS
        """
    ),
}
"""Keys of BrokerContainerConfig of 5.5.0 that are not honoured."""


class AddRefused(Exception):
    """A broker that cannot be added; the message is RocketMQ's, or a sentence for the operator."""


def _parse_paths(value: str) -> list[str]:
    """Split a list of paths separated by `:`; raises ValueError for too many or too long paths."""
    found = [path.strip() for path in value.split(":") if path.strip()]
    if len(found) > BROKERS_MAX or any(len(path) > PATH_MAX for path in found):
        raise ValueError(PATHS.expected)
    return found


PATHS: Final = Kind(f"files separated by :, at most {BROKERS_MAX}", _parse_paths, ":".join)
"""Kind of the key brokerConfigPaths."""


@dataclass(slots=True)
class ContainerConfig(NodeConfig):
    """All settings of a container (RocketMQ: container/BrokerContainerConfig)."""

    IDLE = IDLE_KEYS
    TLS = SERVER_TLS_KEYS
    NODE = "the container"
    """The node's name in messages to operators."""
    NEVER_BY_REQUEST = NodeConfig.NEVER_BY_REQUEST | {"brokerConfigPaths"}

    bind_address: str = key("bindAddress", HOST, "0.0.0.0", "The address to listen at.")
    listen_port: int = key(
        "listenPort", PORT, 10_811, "Port for requests that add and remove brokers; 0: a free port."
    )
    vip_port_enable: bool = key(
        "vipPortEnable", BOOLEAN, True, "Listen at listenPort - 2, too.", rocketmq=OURS
    )
    broker_container_ip: str = key(
        "brokerContainerIP",
        TEXT,
        "",
        "Host of the container's address; empty: an address of the machine.",
        rocketmq=OF_MACHINE,
    )
    namesrv_addr: list[str] = key(
        "namesrvAddr",
        NAME_SERVERS,
        [],
        "Addresses of the name servers of all its brokers; empty: each broker's file names them.",
        live=True,
    )
    fetch_namesrv_addr_by_dns_lookup: bool = key(
        "fetchNameSrvAddrByDnsLookup",
        BOOLEAN,
        False,
        "Whether a name in the container's namesrvAddr stands for all its addresses in DNS;"
        " each broker looks them up.",
        live=True,
    )
    fetch_namesrv_addr_interval_ms: int = key(
        "fetchNamesrvAddrInterval",
        COUNT,
        10_000,
        "Milliseconds between two such look-ups.",
        live=True,
    )
    broker_config_paths: list[str] = key(
        "brokerConfigPaths", PATHS, [], "Files of the brokers that start with the container."
    )
    server_channel_max_idle_seconds: int = key(
        "serverChannelMaxIdleTimeSeconds",
        integer_kind(1, INT32_MAX // 1_000),
        120,
        "Seconds of silence after which a connection is closed.",
    )
    config_black_list: str = key(
        "configBlackList",
        TEXT,
        "configBlackList;brokerConfigPaths",
        "Keys that no request may change, separated by ;.",
    )
    path: str = ""
    """Path of the configuration file; empty without a file."""

    @property
    def name_server_properties(self) -> list[Property]:
        """The container's keys of name servers (SHARED) with their values, which replace the values
        of its brokers; empty if the container has no namesrvAddr."""
        if not self.namesrv_addr:
            return []
        return [
            Property(name, text) for name, text in self.values_as_text().items() if name in SHARED
        ]


def broker_config(
    text: str, path: str, container: ContainerConfig
) -> tuple[BrokerConfig, list[str]]:
    """Read the configuration of a container's broker from the `text` of its file at `path`; returns
    (configuration, warnings for the operator, each a sentence). No file is read.

    Same rules as in RocketMQ (BrokerContainerProcessor.addBroker): the port of its replicas, if it
    has any, is listenPort + 1, a master's id is 0 whatever the file contains, and all brokers use
    the container's name servers. Raises AddRefused, PropertiesError.
    """
    items = parse_properties(text)
    given = {item.key: item.value.strip() for item in items}
    if not given:
        raise AddRefused("addBroker properties empty")
    if not any(BrokerConfig.has_key(key) for key in given):
        raise AddRefused(
            f"{path or 'the file'} is no properties file of a broker: it has no key of a broker"
        )
    items += _broker_id_of_role(given)
    _check_replicas(given)
    if _read_number(given, "haListenPort", 0) > 0:
        port = _read_number(given, "listenPort", DEFAULT_BROKER_PORT)
        items.append(Property("haListenPort", str(port + 1 if port > 0 else 0)))
    warnings: list[str] = []
    for item in container.name_server_properties:
        if given.get(item.key, item.value) != item.value:
            own = escape_unprintable(given[item.key][:PATH_MAX])
            warnings.append(f"{item.key}={own} does nothing: the container has {item.value}")
        items.append(item)
    config = BrokerConfig(path=path)
    warnings += config.update_keys(items)
    return config, warnings


def _broker_id_of_role(given: dict[str, str]) -> list[Property]:
    """The brokerId to add to the `given` settings of a broker's file: 0 for a master; nothing for a
    replica, which must have its own id, or if controllers or a group file assign the id. Raises
    AddRefused, ConfigError."""
    if given.get("enableControllerMode", "").lower() == "true" or "haGroupFile" in given:
        return []
    if given.get("brokerRole") != BrokerRole.SLAVE.name:
        return [Property("brokerId", "0")]
    if _read_number(given, "brokerId", 0) <= 0:
        raise AddRefused("slave broker id must be > 0")
    return []


def _check_replicas(given: dict[str, str]) -> None:
    """Raise AddRefused if totalReplicas, inSyncReplicas and minInSyncReplicas contradict each
    other."""
    total, in_sync, least = (
        _read_number(given, name, 1)
        for name in ("totalReplicas", "inSyncReplicas", "minInSyncReplicas")
    )
    if total < in_sync or total < least or in_sync < least:
        raise AddRefused("invalid replicas number")


def _read_number(given: dict[str, str], name: str, default: int) -> int:
    """The number in setting `name`, `default` without the setting; raises ConfigError like the key
    itself if the text is no number."""
    text = given.get(name, str(default))
    try:
        return int(text) if len(text) < 20 else default
    except ValueError:
        raise ConfigError(
            f"{name}={escape_unprintable(text[:100])}: expected a whole number"
        ) from None
