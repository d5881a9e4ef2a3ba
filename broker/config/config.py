"""The broker's configuration: its keys, together with the keys of its store and of replication.

Owns the declarations of RocketMQ's keys (BrokerConfig) that have an effect here, and the checks for
contradicting values. It must never read a file or a socket.
"""

from dataclasses import dataclass
from typing import ClassVar, Final

from turbopump.broker.config.kinds import (
    DELAYS,
    METRICS,
    NAME,
    REBALANCE_MODE,
    REQUEST_MODE,
    ROOMS,
    STRATEGY,
    MetricsExporterType,
    parse_delay_levels,
)
from turbopump.broker.config.known_keys import IDLE_KEYS
from turbopump.broker.config.pop_config import PopConfig
from turbopump.broker.config.replication_config import NO_ID_YET, OF_MACHINE, ReplicationConfig
from turbopump.engine.config import StoreConfig
from turbopump.engine.keys import (
    ANY,
    BOOLEAN,
    COUNT,
    HOST,
    INT32_MAX,
    INT64_MAX,
    NAME_SERVERS,
    OURS,
    PORT,
    TEXT,
    between,
    key,
    section,
)
from turbopump.net.allocation.shares import MachineRooms
from turbopump.net.config.node_config import NodeConfig
from turbopump.net.transport.options import CLIENT_TLS_KEYS, SERVER_TLS_KEYS
from turbopump.net.wire.java_properties import ConfigError, parse_properties
from turbopump.net.wire.topics import PERM_READ, PERM_WRITE

MAX_QUEUES_OF_TOPIC: Final = 65_536
"""Maximum queues per topic: bounds the offset tables and the size of a route."""
NO_GRPC: Final = -1
QUEUES: Final = between(1, MAX_QUEUES_OF_TOPIC)
_DELAY_TEXT: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"


@dataclass(slots=True)
class BrokerConfig(NodeConfig):
    """All settings of a broker.

    `listen_port` 0 lets the system choose (for tests and embedding; no VIP port then). Changed keys
    of the store and of replication take effect at the next start, except for live keys.
    """

    IDLE = IDLE_KEYS
    TLS: ClassVar = {**SERVER_TLS_KEYS, **CLIENT_TLS_KEYS}
    NODE: ClassVar[str] = "the broker"
    NEVER_BY_REQUEST = NodeConfig.NEVER_BY_REQUEST | {"brokerConfigPath"}

    broker_name: str = key(
        "brokerName",
        NAME,
        "broker-a",
        "The name of the group of brokers that this one is of.",
        rocketmq="the name of the machine",
    )
    broker_cluster_name: str = key(
        "brokerClusterName", NAME, "DefaultCluster", "The name of the cluster."
    )
    broker_id: int = key(
        "brokerId",
        between(NO_ID_YET, INT64_MAX),
        0,
        "0: the master, 1 or more: a replica; -1 where controllers give ids.",
    )
    broker_ip1: str = key(
        "brokerIP1",
        HOST,
        "",
        "The host at which clients find this broker; empty: an address of the machine.",
        rocketmq=OF_MACHINE,
    )
    bind_address: str = key("bindAddress", HOST, "0.0.0.0", "The address to listen at.")
    listen_port: int = key(
        "listenPort",
        PORT,
        10911,
        "Where clients connect; 0: a free port.",
    )
    grpc_server_port: int = key(
        "grpcServerPort",
        between(NO_GRPC, 65_535),
        NO_GRPC,
        "Where gRPC is served besides listenPort; 0: a free port, -1: nowhere.",
        rocketmq=OURS,
    )
    grpc_at_listen_port: bool = key(
        "enableRemotingLocalProxyGrpc",
        BOOLEAN,
        True,
        "Serve gRPC at listenPort, too: by a connection's first bytes.",
        rocketmq=OURS,
    )
    vip_port_enable: bool = key(
        "vipPortEnable",
        BOOLEAN,
        True,
        "Listen at the port two below, too, which old clients use.",
        rocketmq=OURS,
    )
    namesrv_addr: list[str] = key(
        "namesrvAddr",
        NAME_SERVERS,
        [],
        "Where the name servers are.",
        live=True,
        in_force="name_servers",
    )
    fetch_namesrv_addr_by_dns_lookup: bool = key(
        "fetchNameSrvAddrByDnsLookup",
        BOOLEAN,
        False,
        "Whether names in namesrvAddr mean all hosts that DNS has for them, looked up again and"
        " again.",
        live=True,
    )
    fetch_namesrv_addr_interval_ms: int = key(
        "fetchNamesrvAddrInterval",
        COUNT,
        10_000,
        "Milliseconds between two of these look-ups.",
        live=True,
    )
    broker_permission: int = key(
        "brokerPermission",
        between(0, 15),
        PERM_READ | PERM_WRITE,
        "What clients may do: 4 read, 2 write, 6 both.",
        live=True,
    )
    default_topic_queue_nums: int = key(
        "defaultTopicQueueNums",
        QUEUES,
        8,
        "Queues of the topic that sends create others from; those have no more.",
    )
    auto_create_topic_enable: bool = key(
        "autoCreateTopicEnable", BOOLEAN, True, "Whether a send creates its topic.", live=True
    )
    auto_create_subscription_group: bool = key(
        "autoCreateSubscriptionGroup",
        BOOLEAN,
        True,
        "Whether a consumer creates its group.",
        live=True,
    )
    cluster_topic_enable: bool = key(
        "clusterTopicEnable",
        BOOLEAN,
        True,
        "Whether topics may be created by the one with the cluster's name.",
    )
    broker_topic_enable: bool = key(
        "brokerTopicEnable",
        BOOLEAN,
        True,
        "Whether topics may be created by the one with the broker's name.",
    )
    trace_topic_enable: bool = key(
        "traceTopicEnable", BOOLEAN, False, "Whether there is a topic for traces of clients."
    )
    msg_trace_topic_name: str = key(
        "msgTraceTopicName", NAME, "RMQ_SYS_TRACE_TOPIC", "The name of that topic."
    )
    enable_property_filter: bool = key(
        "enablePropertyFilter",
        BOOLEAN,
        True,
        "Whether consumers may choose messages by expressions of SQL92.",
        live=True,
        rocketmq="false",
    )
    enable_calc_filter_bit_map: bool = key(
        "enableCalcFilterBitMap",
        BOOLEAN,
        False,
        "Whether queue extensions get bit maps of the filters that match.",
        live=True,
    )
    max_error_rate_of_bloom_filter: int = key(
        "maxErrorRateOfBloomFilter",
        between(1, 99),
        20,
        "Percent of such bits that may be wrong.",
    )
    expect_consumer_num_use_filter: int = key(
        "expectConsumerNumUseFilter",
        between(1, 10_000),
        32,
        "Groups that such bit maps are made for.",
    )
    filter_data_clean_time_span_ms: int = key(
        "filterDataCleanTimeSpan",
        between(0, INT64_MAX),
        86_400_000,
        "How long the filter of a group is kept that does not use it.",
        live=True,
    )
    revive_queue_num: int = key(
        "reviveQueueNum",
        QUEUES,
        8,
        "Queues of the topic in which acknowledgements of pops are kept.",
    )
    long_polling_enable: bool = key(
        "longPollingEnable",
        BOOLEAN,
        True,
        "Whether a pull waits for messages as long as it asks for.",
        live=True,
    )
    short_polling_time_ms: int = key(
        "shortPollingTimeMills",
        ANY,
        1_000,
        "Milliseconds that a pull waits without longPollingEnable.",
        live=True,
    )
    lite_pull_message_enable: bool = key(
        "litePullMessageEnable", BOOLEAN, True, "Whether lite pull consumers are served.", live=True
    )
    use_server_side_reset_offset: bool = key(
        "useServerSideResetOffset",
        BOOLEAN,
        True,
        "Whether a reset of a group's offsets is kept here, and holds without its consumers.",
        live=True,
    )
    notify_consumer_ids_changed_enable: bool = key(
        "notifyConsumerIdsChangedEnable",
        BOOLEAN,
        True,
        "Whether consumers are notified when one of their group comes or goes.",
        live=True,
    )
    server_load_balancer_enable: bool = key(
        "serverLoadBalancerEnable",
        BOOLEAN,
        True,
        "Whether a consumer that asks gets its share of the queues, or all of them.",
        live=True,
    )
    default_message_request_mode: str = key(
        "defaultMessageRequestMode",
        REQUEST_MODE,
        "PULL",
        "How groups get messages of which setConsumeMode said nothing.",
        live=True,
    )
    default_pop_share_queue_num: int = key(
        "defaultPopShareQueueNum",
        between(-INT32_MAX - 1, INT32_MAX),
        -1,
        "Members behind it from which a popping one takes queues besides its own; 0 or less: all.",
        live=True,
    )
    rebalance_mode: str = key(
        "rebalanceMode",
        REBALANCE_MODE,
        "BROKER",
        "Who shares out the queues of consumers that ask: one broker, or each as if by itself.",
        live=True,
        rocketmq=OURS,
    )
    rebalance_strategy: str = key(
        "rebalanceStrategy",
        STRATEGY,
        "",
        "By which strategy, as STICKY; empty: the one that consumers name.",
        live=True,
        rocketmq=OURS,
    )
    rebalance_handover_ms: int = key(
        "rebalanceHandoverTime",
        between(0, 600_000),
        1_500,
        "For how long (ms) a queue waits for its former owner before the next one gets it.",
        live=True,
        rocketmq=OURS,
    )
    rebalance_history_bytes: int = key(
        "rebalanceHistorySize",
        between(0, 2**40),
        64 << 20,
        "Bytes of the histories of assignments in the store's folder rebalance; 0: none.",
        live=True,
        rocketmq=OURS,
    )
    machine_rooms: MachineRooms = key(
        "machineRooms",
        ROOMS,
        MachineRooms(),
        "Which clients and brokers are in which room, by prefixes of their names.",
        live=True,
        rocketmq=OURS,
    )
    validate_system_topic_when_update_topic: bool = key(
        "validateSystemTopicWhenUpdateTopic",
        BOOLEAN,
        True,
        "Whether a change of a topic of the system is refused.",
        live=True,
    )
    enable_single_topic_register: bool = key(
        "enableSingleTopicRegister",
        BOOLEAN,
        True,
        "Whether one changed topic is registered alone, not with all others.",
        rocketmq="false",
        live=True,
    )
    region_id: str = key(
        "regionId", NAME, "DefaultRegion", "The region that answers and messages name.", live=True
    )
    trace_on: bool = key(
        "traceOn", BOOLEAN, True, "Whether clients are asked to trace their messages.", live=True
    )
    start_accept_send_request_timestamp_ms: int = key(
        "startAcceptSendRequestTimeStamp",
        between(0, INT64_MAX),
        0,
        "Milliseconds since 1970 before which sends are refused.",
        live=True,
    )
    message_delay_level: str = key(
        "messageDelayLevel", DELAYS, _DELAY_TEXT, "The delays of levels 1, 2 and so on."
    )
    register_name_server_period_ms: int = key(
        "registerNameServerPeriod",
        ANY,
        30_000,
        "Milliseconds between two registrations with the name servers; at least 10000 and at"
        " most 60000 count.",
        live=True,
    )
    register_broker_timeout_ms: int = key(
        "registerBrokerTimeoutMills",
        COUNT,
        24_000,
        "Milliseconds that a name server has to answer one.",
        live=True,
    )
    flush_consumer_offset_interval_ms: int = key(
        "flushConsumerOffsetInterval",
        COUNT,
        5_000,
        "Milliseconds between two writes of the consumers' offsets.",
        live=True,
    )
    consumer_offset_update_version_step: int = key(
        "consumerOffsetUpdateVersionStep",
        COUNT,
        500,
        "Commits of offsets after which their version is counted up.",
    )
    flush_delay_offset_interval_ms: int = key(
        "flushDelayOffsetInterval",
        COUNT,
        10_000,
        "Milliseconds between two writes of how far delayed messages were delivered.",
        live=True,
    )
    delay_offset_update_version_step: int = key(
        "delayOffsetUpdateVersionStep",
        COUNT,
        200,
        "Deliveries after which the version of that is counted up.",
    )
    timer_wheel_enable: bool = key(
        "timerWheelEnable", BOOLEAN, True, "Whether messages may ask for delivery at a time."
    )
    timer_max_delay_sec: int = key(
        "timerMaxDelaySec",
        COUNT,
        3 * 24 * 3600,
        "Seconds from now at which that may be, at most.",
        live=True,
    )
    timer_congest_num_each_slot: int = key(
        "timerCongestNumEachSlot",
        COUNT,
        INT32_MAX,
        "Timers of a slot from which on more of them are refused; at twice as many all.",
        live=True,
    )
    timer_flush_interval_ms: int = key(
        "timerFlushIntervalMs",
        COUNT,
        1_000,
        "Milliseconds between two writes of how far timers were delivered.",
        live=True,
    )
    timer_stop_enqueue: bool = key(
        "timerStopEnqueue",
        BOOLEAN,
        False,
        "Leave timers in their queue, and deliver only those that are in the wheel.",
        live=True,
    )
    timer_stop_dequeue: bool = key(
        "timerStopDequeue", BOOLEAN, False, "Deliver no timers for now.", live=True
    )
    recall_message_enable: bool = key(
        "recallMessageEnable", BOOLEAN, False, "Whether producers may recall timers.", live=True
    )
    append_topic_for_timer_delete_key: bool = key(
        "appendTopicForTimerDeleteKey",
        BOOLEAN,
        False,
        "Whether a recall that is stored names its message by topic and key.",
        live=True,
    )
    allow_recall_when_broker_not_writeable: bool = key(
        "allowRecallWhenBrokerNotWriteable",
        BOOLEAN,
        True,
        "Whether they may without the permission to write.",
        live=True,
    )
    reject_transaction_message: bool = key(
        "rejectTransactionMessage",
        BOOLEAN,
        False,
        "Whether half messages of transactions are refused.",
        live=True,
    )
    transaction_time_out_ms: int = key(
        "transactionTimeOut",
        between(0, INT64_MAX),
        6_000,
        "Milliseconds after which the producer of a half message is asked how it ends.",
        live=True,
    )
    transaction_check_max: int = key(
        "transactionCheckMax",
        ANY,
        15,
        "How often it is asked before the half message is given up.",
        live=True,
    )
    transaction_check_interval_ms: int = key(
        "transactionCheckInterval",
        between(1, INT64_MAX),
        30_000,
        "Milliseconds between two looks at the half messages.",
        live=True,
    )
    transaction_op_msg_max_size: int = key(
        "transactionOpMsgMaxSize",
        between(20, 1 << 20),
        4_096,
        "Bytes of a message that says which half messages are done with.",
        live=True,
    )
    transaction_metric_flush_interval_ms: int = key(
        "transactionMetricFlushInterval",
        COUNT,
        10_000,
        "Milliseconds between two writes of transactionMetrics.",
        live=True,
    )
    channel_expired_timeout_ms: int = key(
        "channelExpiredTimeout",
        COUNT,
        120_000,
        "Milliseconds without a heartbeat after which a client is forgotten.",
        live=True,
    )
    subscription_expired_timeout_ms: int = key(
        "subscriptionExpiredTimeout",
        COUNT,
        600_000,
        "Milliseconds after which a subscription is forgotten that came with a pull.",
        live=True,
    )
    server_channel_max_idle_seconds: int = key(
        "serverChannelMaxIdleTimeSeconds",
        COUNT,
        120,
        "Seconds of silence after which a connection is closed.",
    )
    metrics_exporter_type: MetricsExporterType = key(
        "metricsExporterType",
        METRICS,
        MetricsExporterType.DISABLE,
        "Whether metrics are served for Prometheus.",
    )
    metrics_prom_exporter_port: int = key(
        "metricsPromExporterPort", PORT, 5557, "The port at which they are."
    )
    metrics_prom_exporter_host: str = key(
        "metricsPromExporterHost",
        HOST,
        "",
        "The address at which they are; empty: bindAddress (RocketMQ: brokerIP1).",
    )
    slave_read_enable: bool = key(
        "slaveReadEnable",
        BOOLEAN,
        False,
        "Whether consumers that are far behind are sent to a replica.",
        live=True,
    )
    offset_check_in_slave: bool = key(
        "offsetCheckInSlave",
        BOOLEAN,
        False,
        "Whether a replica corrects offsets that are outside of its queues.",
        live=True,
    )
    replication: ReplicationConfig = section(ReplicationConfig)
    pop: PopConfig = section(PopConfig)
    store: StoreConfig = section(StoreConfig)
    config_black_list: str = key(
        "configBlackList",
        TEXT,
        "configBlackList;brokerConfigPath",
        "Keys that no request may change, separated by ;.",
    )
    namesrv_given: tuple[str, ...] = ()
    """Server names in namesrvAddr, while `namesrv_addr` holds their addresses from DNS."""
    path: str = ""
    """Path of the configuration file; empty without a file."""

    @property
    def delay_levels_ms(self) -> list[int]:
        """The delays of level 1, 2, ... in ms (RocketMQ:
        ScheduleMessageService.parseDelayLevel)."""
        return parse_delay_levels(self.message_delay_level)

    @property
    def writable(self) -> bool:
        """Whether brokerPermission allows sends."""
        return bool(self.broker_permission & PERM_WRITE)

    @property
    def readable(self) -> bool:
        """Whether brokerPermission allows pulls."""
        return bool(self.broker_permission & PERM_READ)

    def values(self) -> dict[str, str]:
        """Same as for every node, plus keys that are derived from several settings; of TLS only the
        key that RocketMQ's broker has."""
        found = NodeConfig.values(self)
        found = {name: text for name, text in found.items() if name not in self.TLS}
        found["brokerIP2"] = self.replication.broker_ip2 or self.broker_ip1
        found["useTLS"] = BOOLEAN.show(self.client_tls is not None)
        return found

    @property
    def name_servers(self) -> list[str]:
        """The value of namesrvAddr in the configuration."""
        return list(self.namesrv_given) or self.namesrv_addr

    def check(self, before: NodeConfig) -> list[str]:
        """Check the keys of replication. Raises ConfigError."""
        contradiction = self.replication.contradiction(self.broker_id)
        if contradiction is not None:
            raise ConfigError(contradiction)
        assert isinstance(before, BrokerConfig)
        return self.replication.remarks() if self.replication != before.replication else []


def load_config(text: str, path: str = "") -> tuple[BrokerConfig, list[str]]:
    """Read a configuration from the text of a properties file; returns it with warnings to log.

    Raises PropertiesError (a ConfigError is a PropertiesError): a sentence with key, value,
    expected values and line.
    """
    config = BrokerConfig(path=path)
    warnings = config.update(parse_properties(text))
    return config, warnings
