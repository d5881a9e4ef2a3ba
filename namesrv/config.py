"""The name server's configuration.

Owns the declarations of its keys. It must never read a file or a socket.
"""

from dataclasses import dataclass

from turbopump.engine.keys import BOOLEAN, HOST, INT32_MAX, PORT, TEXT, integer_kind, key
from turbopump.net.config.idle import NETTY_CLIENT_KEYS, NETTY_SERVER_KEYS, idle_keys
from turbopump.net.config.node_config import NodeConfig
from turbopump.net.transport.options import SERVER_TLS_KEYS

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
"""Keys of NamesrvConfig in 5.5.0 that have no effect here, by name: accepted and shown, so that its
files and tools work unchanged; some values are refused."""


NOT_SHOWN = (NETTY_CLIENT_KEYS.keys() - NETTY_SERVER_KEYS.keys()) | {"useTLS"}
"""Keys of the client inside 5.5.0's name server: its file may have them, its answer to 319 has
not."""

SECONDS = INT32_MAX // 1_000
"""Maximum value of a key in seconds: its ms must be an int32."""


@dataclass(slots=True)
class NamesrvConfig(NodeConfig):
    """All settings of a name server (RocketMQ: common/namesrv/NamesrvConfig); for the class
    attributes see NodeConfig.

    With `listen_port` 0 the system chooses a port. With an empty `config_store_path` changes by
    UPDATE_NAMESRV_CONFIG last until the process ends. `enable_controller_in_namesrv` is read by the
    code that creates the nodes of a process, at their start.
    """

    IDLE = IDLE_KEYS
    TLS = SERVER_TLS_KEYS
    NEVER_BY_REQUEST = NodeConfig.NEVER_BY_REQUEST | {"configStorePath", "kvConfigPath"}

    bind_address: str = key("bindAddress", HOST, "0.0.0.0", "The address to listen at.")
    listen_port: int = key(
        "listenPort", PORT, 9876, "Port for clients and brokers; 0: a free port."
    )
    kv_config_path: str = key(
        "kvConfigPath", TEXT, "~/namesrv/kvConfig.json", "The file of the key values."
    )
    config_store_path: str = key(
        "configStorePath",
        TEXT,
        "",
        "The file that keeps changes by request; empty: none.",
        rocketmq="~/namesrv/namesrv.properties",
    )
    config_black_list: str = key(
        "configBlackList",
        TEXT,
        "configBlackList;configStorePath;kvConfigPath",
        "Keys that no request may change, separated by ;.",
    )
    order_message_enable: bool = key(
        "orderMessageEnable",
        BOOLEAN,
        False,
        "Add the order of a topic's queues from the key values to its route.",
        live=True,
    )
    return_order_topic_config_to_broker: bool = key(
        "returnOrderTopicConfigToBroker",
        BOOLEAN,
        True,
        "Answer a broker that registers with the orders of topics.",
        live=True,
    )
    scan_not_active_broker_interval_ms: int = key(
        "scanNotActiveBrokerInterval",
        integer_kind(10, INT32_MAX),
        5_000,
        "Milliseconds between two checks for silent brokers.",
        live=True,
    )
    server_channel_max_idle_seconds: int = key(
        "serverChannelMaxIdleTimeSeconds",
        integer_kind(1, SECONDS),
        120,
        "Seconds of silence after which a connection is closed.",
    )
    support_acting_master: bool = key(
        "supportActingMaster",
        BOOLEAN,
        False,
        "Show the replica with the lowest id as the master of a group without one.",
        live=True,
    )
    enable_all_topic_list: bool = key(
        "enableAllTopicList", BOOLEAN, True, "Answer the list of all topics.", live=True
    )
    enable_topic_list: bool = key(
        "enableTopicList", BOOLEAN, True, "Answer the lists of some topics.", live=True
    )
    notify_min_broker_id_changed: bool = key(
        "notifyMinBrokerIdChanged",
        BOOLEAN,
        False,
        "Notify the brokers of a group when its lowest id changes.",
        live=True,
    )
    need_wait_for_service: bool = key(
        "needWaitForService",
        BOOLEAN,
        False,
        "Withhold routes for waitSecondsForService after the start.",
        live=True,
    )
    wait_seconds_for_service: int = key(
        "waitSecondsForService",
        integer_kind(0, SECONDS),
        45,
        "Seconds after the start in which routes are withheld (needWaitForService).",
        live=True,
    )
    delete_topic_with_broker_registration: bool = key(
        "deleteTopicWithBrokerRegistration",
        BOOLEAN,
        False,
        "Remove the topics that a registration does not name.",
        live=True,
    )
    enable_controller_in_namesrv: bool = key(
        "enableControllerInNamesrv", BOOLEAN, False, "Run a controller in the same process."
    )

    def values_as_text(self) -> dict[str, str]:
        """Current text of every key by name, as of every node, but for NOT_SHOWN."""
        shown = NodeConfig.values_as_text(self)
        return {name: value for name, value in shown.items() if name not in NOT_SHOWN}
