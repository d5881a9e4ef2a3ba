"""The broker's configuration: its keys, together with the keys of its store and of replication.

Owns the declarations of RocketMQ's keys (BrokerConfig) that have an effect here, and the checks for
contradicting values. It must never read a file or a socket.
"""

from dataclasses import dataclass
from typing import ClassVar, Final

from turbopump.broker.config.auth_config import AuthConfig
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
    integer_kind,
    key,
    section,
)
from turbopump.net.allocation.shares import MachineRooms
from turbopump.net.config.node_config import NodeConfig
from turbopump.net.ports.listening import BY_CORES
from turbopump.net.transport.options import CLIENT_TLS_KEYS, SERVER_TLS_KEYS
from turbopump.net.wire.java_properties import ConfigError, parse_properties
from turbopump.net.wire.names import TRACE_TOPIC
from turbopump.net.wire.topics import PERM_READ, PERM_WRITE
from turbopump.pyx.io_threads import THREADS_MAX

MAX_QUEUES_OF_TOPIC: Final = 65_536
"""Maximum queues per topic: bounds the offset tables and the size of a route."""
NO_GRPC: Final = -1
"""Value of grpcServerPort: no such port."""
QUEUES: Final = integer_kind(1, MAX_QUEUES_OF_TOPIC)
"""Kind of a number of queues of a topic."""
_DELAY_TEXT: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"


@dataclass(slots=True)
class BrokerConfig(NodeConfig):
    """All settings of a broker; for the class attributes see NodeConfig.

    `listen_port` 0 lets the system choose (for tests and embedding; no VIP port then). Changed keys
    of the store, of replication and of pop take effect at the next start, except for live keys.
    """

    IDLE = IDLE_KEYS
    TLS: ClassVar = {**SERVER_TLS_KEYS, **CLIENT_TLS_KEYS}
    NODE: ClassVar[str] = "the broker"
    NEVER_BY_REQUEST = NodeConfig.NEVER_BY_REQUEST | {"brokerConfigPath"}

    broker_name: str = key(
        "brokerName",
        NAME,
        "broker-a",
        "Name of the broker's group, shared by a master and its replicas.",
        rocketmq="the name of the machine",
    )
    broker_cluster_name: str = key(
        "brokerClusterName", NAME, "DefaultCluster", "The name of the cluster."
    )
    broker_id: int = key(
        "brokerId",
        integer_kind(NO_ID_YET, INT64_MAX),
        0,
        "0: a master; 1 or more: a replica; -1: controllers assign the id.",
    )
    broker_ip1: str = key(
        "brokerIP1",
        HOST,
        "",
        "The host at which clients find this broker; empty: an address of the machine.",
        rocketmq=OF_MACHINE,
    )
    bind_address: str = key("bindAddress", HOST, "0.0.0.0", "The address to listen at.")
    listen_port: int = key("listenPort", PORT, 10911, "Port for clients; 0: a free port.")
    grpc_server_port: int = key(
        "grpcServerPort",
        integer_kind(NO_GRPC, 65_535),
        NO_GRPC,
        "Port for gRPC besides listenPort; 0: a free port; -1: no such port.",
        rocketmq=OURS,
    )
    grpc_at_listen_port: bool = key(
        "enableRemotingLocalProxyGrpc",
        BOOLEAN,
        True,
        "Serve gRPC at listenPort, too: a connection's first bytes show its protocol.",
        rocketmq=OURS,
    )
    io_threads: int = key(
        "ioThreads",
        integer_kind(BY_CORES, THREADS_MAX),
        BY_CORES,
        "Threads that read and write clients' connections; 0: none; -1: half of the cores, at most "
        "8, none on one or two cores.",
        rocketmq=OURS,
    )
    vip_port_enable: bool = key(
        "vipPortEnable",
        BOOLEAN,
        True,
        "Listen at listenPort - 2, too, which old clients use.",
        rocketmq=OURS,
    )
    namesrv_addr: list[str] = key(
        "namesrvAddr",
        NAME_SERVERS,
        [],
        "Addresses of the name servers.",
        live=True,
        in_force="name_servers",
    )
    fetch_namesrv_addr_by_dns_lookup: bool = key(
        "fetchNameSrvAddrByDnsLookup",
        BOOLEAN,
        False,
        "Whether a name in namesrvAddr stands for all its addresses in DNS, looked up repeatedly.",
        live=True,
    )
    fetch_namesrv_addr_interval_ms: int = key(
        "fetchNamesrvAddrInterval",
        COUNT,
        10_000,
        "Milliseconds between two look-ups of namesrvAddr in DNS.",
        live=True,
    )
    broker_permission: int = key(
        "brokerPermission",
        integer_kind(0, 15),
        PERM_READ | PERM_WRITE,
        "Permissions of clients: 4 read, 2 write, 6 both.",
        live=True,
    )
    default_topic_queue_nums: int = key(
        "defaultTopicQueueNums",
        QUEUES,
        8,
        "Queues of TBW102, and maximum queues of a topic that a send creates from it.",
    )
    auto_create_topic_enable: bool = key(
        "autoCreateTopicEnable",
        BOOLEAN,
        True,
        "Whether a send to an unknown topic creates it.",
        live=True,
    )
    auto_create_subscription_group: bool = key(
        "autoCreateSubscriptionGroup",
        BOOLEAN,
        True,
        "Whether a consumer of an unknown group creates it.",
        live=True,
    )
    cluster_topic_enable: bool = key(
        "clusterTopicEnable",
        BOOLEAN,
        True,
        "Whether sends may create topics from the topic with the cluster's name.",
    )
    broker_topic_enable: bool = key(
        "brokerTopicEnable",
        BOOLEAN,
        True,
        "Whether sends may create topics from the topic with the broker's name.",
    )
    trace_topic_enable: bool = key(
        "traceTopicEnable",
        BOOLEAN,
        False,
        "Whether the broker creates the topic for client traces at its start.",
    )
    msg_trace_topic_name: str = key(
        "msgTraceTopicName", NAME, TRACE_TOPIC, "Topic for client traces (traceTopicEnable)."
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
        "Whether queue extensions record in a bit map which groups' filters match.",
        live=True,
    )
    max_error_rate_of_bloom_filter: int = key(
        "maxErrorRateOfBloomFilter",
        integer_kind(1, 99),
        20,
        "Percent of the groups that such a bit map may show as matching by mistake.",
    )
    expect_consumer_num_use_filter: int = key(
        "expectConsumerNumUseFilter",
        integer_kind(1, 10_000),
        32,
        "Expected number of groups with filters, for which such bit maps are made.",
    )
    filter_data_clean_time_span_ms: int = key(
        "filterDataCleanTimeSpan",
        integer_kind(0, INT64_MAX),
        86_400_000,
        "Milliseconds that an unused filter of a group is kept.",
        live=True,
    )
    revive_queue_num: int = key(
        "reviveQueueNum",
        QUEUES,
        8,
        "Queues of the topic that stores the check points and acknowledgements of pops.",
    )
    long_polling_enable: bool = key(
        "longPollingEnable",
        BOOLEAN,
        True,
        "Whether a pull without messages waits for the time that it requests.",
        live=True,
    )
    short_polling_time_ms: int = key(
        "shortPollingTimeMills",
        ANY,
        1_000,
        "Milliseconds that such a pull waits if longPollingEnable is false.",
        live=True,
    )
    lite_pull_message_enable: bool = key(
        "litePullMessageEnable", BOOLEAN, True, "Whether lite pull consumers are served.", live=True
    )
    use_server_side_reset_offset: bool = key(
        "useServerSideResetOffset",
        BOOLEAN,
        True,
        "Whether the broker applies resets of offsets itself, also for a group without consumers.",
        live=True,
    )
    notify_consumer_ids_changed_enable: bool = key(
        "notifyConsumerIdsChangedEnable",
        BOOLEAN,
        True,
        "Whether consumers are notified when members join or leave their group.",
        live=True,
    )
    server_load_balancer_enable: bool = key(
        "serverLoadBalancerEnable",
        BOOLEAN,
        True,
        "Whether a consumer that queries its assignment gets a share; false: all queues.",
        live=True,
    )
    default_message_request_mode: str = key(
        "defaultMessageRequestMode",
        REQUEST_MODE,
        "PULL",
        "How groups consume that have no mode from setConsumeMode.",
        live=True,
    )
    default_pop_share_queue_num: int = key(
        "defaultPopShareQueueNum",
        integer_kind(-INT32_MAX - 1, INT32_MAX),
        -1,
        "In mode POP: number of next members whose queues a member pops, too; 0 or less: all.",
        live=True,
    )
    rebalance_mode: str = key(
        "rebalanceMode",
        REBALANCE_MODE,
        "BROKER",
        "BROKER: one broker computes a topic's assignment for a group; CLIENT: every broker does.",
        live=True,
        rocketmq=OURS,
    )
    rebalance_strategy: str = key(
        "rebalanceStrategy",
        STRATEGY,
        "",
        "Strategy of assignment, such as STICKY; empty: the consumers' own.",
        live=True,
        rocketmq=OURS,
    )
    rebalance_handover_ms: int = key(
        "rebalanceHandoverTime",
        integer_kind(0, 600_000),
        1_500,
        "Maximum milliseconds that a queue waits for its former owner to give it up.",
        live=True,
        rocketmq=OURS,
    )
    rebalance_history_bytes: int = key(
        "rebalanceHistorySize",
        integer_kind(0, 2**40),
        64 << 20,
        "Maximum bytes of the assignment histories in the store's folder rebalance; 0: no"
        " histories.",
        live=True,
        rocketmq=OURS,
    )
    machine_rooms: MachineRooms = key(
        "machineRooms",
        ROOMS,
        MachineRooms(),
        "Machine rooms of clients and brokers, by prefixes of their names.",
        live=True,
        rocketmq=OURS,
    )
    validate_system_topic_when_update_topic: bool = key(
        "validateSystemTopicWhenUpdateTopic",
        BOOLEAN,
        True,
        "Whether changes of system topics are refused.",
        live=True,
    )
    enable_single_topic_register: bool = key(
        "enableSingleTopicRegister",
        BOOLEAN,
        True,
        "Whether a changed topic is registered alone; false: with all other topics.",
        rocketmq="false",
        live=True,
    )
    region_id: str = key(
        "regionId", NAME, "DefaultRegion", "The region in responses and messages.", live=True
    )
    trace_on: bool = key(
        "traceOn", BOOLEAN, True, "Whether clients are asked to trace their messages.", live=True
    )
    start_accept_send_request_timestamp_ms: int = key(
        "startAcceptSendRequestTimeStamp",
        integer_kind(0, INT64_MAX),
        0,
        "Time before which sends are refused, in milliseconds since 1970.",
        live=True,
    )
    message_delay_level: str = key(
        "messageDelayLevel", DELAYS, _DELAY_TEXT, "The delays of levels 1, 2 and so on."
    )
    register_name_server_period_ms: int = key(
        "registerNameServerPeriod",
        ANY,
        30_000,
        "Milliseconds between two registrations with the name servers; limited to 10000 to 60000.",
        live=True,
    )
    register_broker_timeout_ms: int = key(
        "registerBrokerTimeoutMills",
        COUNT,
        24_000,
        "Milliseconds that a name server has to answer a registration.",
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
        "Number of offset commits after which the version of the offsets increases.",
    )
    flush_delay_offset_interval_ms: int = key(
        "flushDelayOffsetInterval",
        COUNT,
        10_000,
        "Milliseconds between two writes of the progress of delay levels.",
        live=True,
    )
    delay_offset_update_version_step: int = key(
        "delayOffsetUpdateVersionStep",
        COUNT,
        200,
        "Number of deliveries after which the version of that progress increases.",
    )
    timer_wheel_enable: bool = key(
        "timerWheelEnable",
        BOOLEAN,
        True,
        "Whether timers, messages with a delivery time, are accepted.",
    )
    timer_max_delay_sec: int = key(
        "timerMaxDelaySec", COUNT, 3 * 24 * 3600, "Maximum delay of a timer, in seconds.", live=True
    )
    timer_congest_num_each_slot: int = key(
        "timerCongestNumEachSlot",
        COUNT,
        INT32_MAX,
        "Timers per slot above which some are refused; above twice this number all are.",
        live=True,
    )
    timer_flush_interval_ms: int = key(
        "timerFlushIntervalMs",
        COUNT,
        1_000,
        "Milliseconds between two writes of the progress of timers.",
        live=True,
    )
    timer_stop_enqueue: bool = key(
        "timerStopEnqueue",
        BOOLEAN,
        False,
        "Leave new timers in their queue; timers in the wheel are still delivered.",
        live=True,
    )
    timer_stop_dequeue: bool = key(
        "timerStopDequeue", BOOLEAN, False, "Deliver no timers while this is true.", live=True
    )
    recall_message_enable: bool = key(
        "recallMessageEnable", BOOLEAN, False, "Whether producers may recall timers.", live=True
    )
    append_topic_for_timer_delete_key: bool = key(
        "appendTopicForTimerDeleteKey",
        BOOLEAN,
        False,
        "Whether a stored recall names its timer by topic and key; false: by key alone.",
        live=True,
    )
    allow_recall_when_broker_not_writeable: bool = key(
        "allowRecallWhenBrokerNotWriteable",
        BOOLEAN,
        True,
        "Whether recalls are accepted while brokerPermission does not allow writing.",
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
        integer_kind(0, INT64_MAX),
        6_000,
        "Milliseconds after which the broker asks the producer of a half message for its outcome.",
        live=True,
    )
    transaction_check_max: int = key(
        "transactionCheckMax",
        ANY,
        15,
        "Number of such requests after which a half message is given up.",
        live=True,
    )
    transaction_check_interval_ms: int = key(
        "transactionCheckInterval",
        integer_kind(1, INT64_MAX),
        30_000,
        "Milliseconds between two checks of the half messages.",
        live=True,
    )
    transaction_op_msg_max_size: int = key(
        "transactionOpMsgMaxSize",
        integer_kind(20, 1 << 20),
        4_096,
        "Maximum bytes of an op message, a list of finished half messages.",
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
        "Milliseconds without a heartbeat after which a client is removed.",
        live=True,
    )
    subscription_expired_timeout_ms: int = key(
        "subscriptionExpiredTimeout",
        COUNT,
        600_000,
        "Milliseconds without a pull after which a pull's subscription is removed.",
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
        "metricsPromExporterPort", PORT, 5557, "Port of the metrics."
    )
    metrics_prom_exporter_host: str = key(
        "metricsPromExporterHost",
        HOST,
        "",
        "Address of the metrics; empty: bindAddress (RocketMQ: brokerIP1).",
    )
    slave_read_enable: bool = key(
        "slaveReadEnable",
        BOOLEAN,
        False,
        "Whether consumers with a large lag are redirected to a replica.",
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
    auth: AuthConfig = section(AuthConfig)
    store: StoreConfig = section(StoreConfig)
    config_black_list: str = key(
        "configBlackList",
        TEXT,
        "configBlackList;brokerConfigPath",
        "Keys that no request may change, separated by ;.",
    )
    namesrv_names: tuple[str, ...] = ()
    """Host names in namesrvAddr, while `namesrv_addr` has their addresses from DNS; else ()."""
    path: str = ""
    """Path of the configuration file; empty without a file."""

    @property
    def delay_levels_ms(self) -> list[int]:
        """Delays of levels 1, 2, ... in ms (ScheduleMessageService.parseDelayLevel)."""
        return parse_delay_levels(self.message_delay_level)

    @property
    def is_writable(self) -> bool:
        """Whether brokerPermission allows sends now."""
        return bool(self.broker_permission & PERM_WRITE)

    @property
    def is_readable(self) -> bool:
        """Whether brokerPermission allows pulls and pops now."""
        return bool(self.broker_permission & PERM_READ)

    def values_as_text(self) -> dict[str, str]:
        """Current text of every key by name, as of every node, plus brokerIP2 and useTLS, which are
        derived from several settings; of TLS only the latter."""
        found = NodeConfig.values_as_text(self)
        found = {name: text for name, text in found.items() if name not in self.TLS}
        found["brokerIP2"] = self.replication.broker_ip2 or self.broker_ip1
        found["useTLS"] = BOOLEAN.to_text(self.client_tls is not None)
        return found

    @property
    def name_servers(self) -> list[str]:
        """The value of namesrvAddr as configured: names are not resolved."""
        return list(self.namesrv_names) or self.namesrv_addr

    def check_change(self, before: NodeConfig) -> list[str]:
        """Check keys of replication and users; warns of changed ones. Raises ConfigError."""
        of_replication = self.replication.find_contradiction(self.broker_id)
        contradiction = of_replication or self.auth.contradiction(self.grpc_server_port)
        if contradiction is not None:
            raise ConfigError(contradiction)
        assert isinstance(before, BrokerConfig)
        remarks = self.replication.list_warnings() if self.replication != before.replication else []
        return remarks + (self.auth.remarks() if self.auth != before.auth else [])


def load_config(text: str, path: str = "") -> tuple[BrokerConfig, list[str]]:
    """Return (configuration, warnings to log) from a properties file's text; `path` is stored, not
    read. Raises PropertiesError or ConfigError with key, value, expected values and line."""
    config = BrokerConfig(path=path)
    return config, config.update_keys(parse_properties(text))
