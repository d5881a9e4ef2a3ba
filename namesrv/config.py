"""The name server's configuration: RocketMQ's properties keys, typed and checked.

Owns which keys there are, what they mean here and what is said of a bad one. It must never read a
file or a socket. Called by node.py, the CLI and the handlers of 318/319.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from turbopump.net.transport.options import TlsSettings
from turbopump.net.wire import property_update
from turbopump.net.wire.java_properties import Property
from turbopump.net.wire.property_update import KeyTable
from turbopump.net.wire.property_values import (
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

IDLE_KEYS = {
    **NETTY_SERVER_KEYS,
    **NETTY_CLIENT_KEYS,
    **idle_keys(
        """
        clientRequestThreadPoolNums int 8
        clientRequestThreadPoolQueueCapacity int 50000
        clusterTest boolean false refused no other name server is asked here
        defaultThreadPoolNums int 16
        defaultThreadPoolQueueCapacity int 10000
        productEnvName String center
        rocketmqHome String ''
        unRegisterBrokerQueueCapacity int 3000
        useTLS boolean false refused brokers are notified of changes without TLS here
        """
    ),
}
"""NamesrvConfig of 5.5.0, without the keys that are honoured: accepted and shown, so that its files
and tools work unchanged."""


NOT_SHOWN = (NETTY_CLIENT_KEYS.keys() - NETTY_SERVER_KEYS.keys()) | {"useTLS"}
"""Keys of the client inside 5.5.0's name server: its file may have them, its answer has not."""

ALWAYS_BLACK_LISTED = frozenset(
    {"configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome"}
)


@dataclass(slots=True)
class NamesrvConfig:
    """Everything a name server is given from outside (RocketMQ: common/namesrv/NamesrvConfig).

    `listen_port` 0 lets the system choose. An empty `config_store_path` means that changes by
    UPDATE_NAMESRV_CONFIG last until the process ends. `enable_controller_in_namesrv` is for what
    makes the nodes of a process: it is read at their start.
    """

    bind_address: str = "0.0.0.0"
    listen_port: int = 9876
    kv_config_path: str = "~/namesrv/kvConfig.json"
    config_store_path: str = ""
    config_black_list: str = "configBlackList;configStorePath;kvConfigPath"
    order_message_enable: bool = False
    return_order_topic_config_to_broker: bool = True
    scan_not_active_broker_interval_ms: int = 5_000
    server_channel_max_idle_seconds: int = 120
    support_acting_master: bool = False
    enable_all_topic_list: bool = True
    enable_topic_list: bool = True
    notify_min_broker_id_changed: bool = False
    need_wait_for_service: bool = False
    wait_seconds_for_service: int = 45
    delete_topic_with_broker_registration: bool = False
    enable_controller_in_namesrv: bool = False
    tls: dict[str, str] = field(default_factory=dict)
    others: dict[str, str] = field(default_factory=dict)

    @property
    def black_list(self) -> frozenset[str]:
        """Keys that UPDATE_NAMESRV_CONFIG may not touch."""
        configured = (part.strip() for part in self.config_black_list.split(";"))
        return frozenset(part for part in configured if part) | ALWAYS_BLACK_LISTED

    @staticmethod
    def knows(key: str) -> bool:
        """Whether a name server has this key."""
        return _TABLE.knows(key)

    def values(self, *, secrets: bool = False) -> dict[str, str]:
        """Every key and its value as text, keys of RocketMQ that do nothing here included.

        Passwords only with `secrets`: for the configuration file, never for an answer.
        """
        found = _TABLE.shown(self, self.others, self.tls, secrets=secrets)
        return {key: value for key, value in found.items() if secrets or key not in NOT_SHOWN}

    def changing(self, properties: Iterable[Property]) -> list[Property]:
        """What of a request a running name server takes over and keeps. Raises PropertiesError for
        what needs a restart."""
        return _TABLE.changing(properties, self)

    def update(self, properties: Iterable[Property]) -> list[str]:
        """Take over values; returns warnings. Raises ConfigError and then changes nothing."""
        update = property_update.read(_TABLE, properties, self.tls)
        for attribute, value in update.values.items():
            setattr(self, attribute, value)
        self.others.update(update.others)
        self.tls = update.tls
        return update.warnings


_KEYS: dict[str, tuple[str, Parse]] = {
    "bindAddress": ("bind_address", text),
    "listenPort": ("listen_port", between(0, 65_535)),
    "kvConfigPath": ("kv_config_path", text),
    "configStorePath": ("config_store_path", text),
    "configBlackList": ("config_black_list", text),
    "orderMessageEnable": ("order_message_enable", boolean),
    "returnOrderTopicConfigToBroker": ("return_order_topic_config_to_broker", boolean),
    "scanNotActiveBrokerInterval": (
        "scan_not_active_broker_interval_ms",
        between(10, INT32_MAX),
    ),
    "serverChannelMaxIdleTimeSeconds": (
        "server_channel_max_idle_seconds",
        between(1, INT32_MAX // 1_000),
    ),
    "supportActingMaster": ("support_acting_master", boolean),
    "enableAllTopicList": ("enable_all_topic_list", boolean),
    "enableTopicList": ("enable_topic_list", boolean),
    "notifyMinBrokerIdChanged": ("notify_min_broker_id_changed", boolean),
    "needWaitForService": ("need_wait_for_service", boolean),
    "waitSecondsForService": ("wait_seconds_for_service", between(0, INT32_MAX // 1_000)),
    "deleteTopicWithBrokerRegistration": ("delete_topic_with_broker_registration", boolean),
    "enableControllerInNamesrv": ("enable_controller_in_namesrv", boolean),
}


_FIXED = frozenset(
    {
        "bindAddress",
        "configBlackList",
        "configStorePath",
        "enableControllerInNamesrv",
        "kvConfigPath",
        "listenPort",
        "serverChannelMaxIdleTimeSeconds",
    }
)
"""What a name server is started with."""

_TABLE = KeyTable(
    _KEYS,
    SERVER_TLS_KEYS,
    TlsSettings.from_properties,
    IDLE_KEYS,
    live=frozenset(_KEYS) - _FIXED,
)
