"""The proxy's configuration.

Owns the declarations of its keys. It must never read a file or a socket.

RocketMQ's proxy has its keys in a JSON file, rmq-proxy.json; that form and `key=value` lines are
accepted.
"""

import json
from dataclasses import dataclass, replace
from typing import Final

from turbopump.engine.keys import (
    BOOLEAN,
    COUNT,
    HOST,
    INT32_MAX,
    NAME_SERVERS,
    OURS,
    PORT,
    TEXT,
    Key,
    Kind,
    integer_kind,
    key,
)
from turbopump.net.client.credentials import Credentials
from turbopump.net.client.errors import InvalidArgument
from turbopump.net.config.idle import IdleKey, idle_keys
from turbopump.net.config.node_config import NodeConfig
from turbopump.net.ports.listening import BY_CORES
from turbopump.net.transport.options import CLIENT_TLS_KEYS, SERVER_TLS_KEYS
from turbopump.net.wire.java_properties import PropertiesError, Property, parse_properties
from turbopump.pyx.io_threads import THREADS_MAX

DELAYS: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
"""RocketMQ's default of messageDelayLevel: the delays of levels 1 to 18."""
IDLE_KEYS: Final = {
    "messageDelayLevel": IdleKey("String", DELAYS, DELAYS),
    **idle_keys(
        """
        aclCacheExpiredSecond int 600
        aclCacheExpiredSeconds int 300
        aclCacheMaxNum int 20000
        aclCacheRefreshSecond int 60
        aclCacheRefreshSeconds int 20
        authConfigPath String -
        authenticationEnabled boolean false refused clients are not authenticated here
        authenticationMetadataProvider String -
        authenticationProvider String -
        authenticationStrategy String -
        authenticationWhitelist String -
        authorizationEnabled boolean false refused rights are not checked here
        authorizationMetadataProvider String -
        authorizationProvider String -
        authorizationStrategy String -
        authorizationWhitelist String -
        brokerConfigPath String -
        channelExpiredInSeconds int 60
        channelExpiredTimeout long 120000
        consumerProcessorThreadPoolNums int 2
        consumerProcessorThreadPoolQueueCapacity int 10000
        contextExpiredInSeconds int 30
        defaultInvisibleTimeMills long 60000
        detectInterval int 2000
        detectTimeout int 200
        enableAclRpcHookForClusterMode boolean false here true
        enableBatchAck boolean false
        enableGrpcEpoll boolean false
        enableMessageBodyEmptyCheck boolean true
        enablePrintJstack boolean true
        enableProxyAutoRenew boolean true
        enableRemotingLocalProxyGrpc boolean true
        enableTopicMessageTypeCheck boolean true
        grpcBossLoopNum int 1
        grpcClientConsumerLongPollingBatchSize int 32
        grpcClientConsumerMaxLongPollingTimeoutMillis long 20000
        grpcClientConsumerMinLongPollingTimeoutMillis long 5000
        grpcClientIdleTimeMills long 120000
        grpcClientManagerThreadPoolNums int 2
        grpcClientManagerThreadQueueCapacity int 10000
        grpcClientProducerBackoffInitialMillis long 10
        grpcClientProducerBackoffMaxMillis long 1000
        grpcClientProducerBackoffMultiplier int 2
        grpcClientProducerMaxAttempts int 3
        grpcConsumerThreadPoolNums int 2
        grpcConsumerThreadQueueCapacity int 10000
        grpcMaxConcurrentCallsPerConnection int 2147483647
        grpcMaxInboundMessageSize int 136314880
        grpcProducerThreadPoolNums int 2
        grpcProducerThreadQueueCapacity int 10000
        grpcProxyRelayRequestTimeoutInSeconds long 5
        grpcRouteThreadPoolNums int 2
        grpcRouteThreadQueueCapacity int 10000
        grpcThreadPoolNums int 20
        grpcThreadPoolQueueCapacity int 100000
        grpcTransactionThreadPoolNums int 2
        grpcTransactionThreadQueueCapacity int 10000
        grpcWorkerLoopNum int 4
        heartbeatSyncerThreadPoolNums int 4
        heartbeatSyncerThreadPoolQueueCapacity int 100
        heartbeatSyncerTopicClusterName String ''
        heartbeatSyncerTopicName String DefaultHeartBeatSyncerTopic
        initAuthenticationUser String -
        invisibleTimeMillisWhenClear long 1000
        localProxyConnectTimeoutMs int 3000
        lockTimeoutMsInHandleGroup long 3000
        longPollingReserveTimeInMillis long 100
        maxDelayTimeMills long 86400000
        maxInvisibleTimeMills long 43200000
        maxLiteRenewNumPerChannel int 100
        maxLiteTopicSize int 64
        maxMessageGroupSize int 64
        maxRenewRetryTimes int 3
        maxSyncLiteSubscriptionRate int 5000
        maxTransactionRecoverySecond long 3600
        maxUserPropertySize int 16384
        metadataThreadPoolNums int 3
        metadataThreadPoolQueueCapacity int 100000
        metricCollectorAddress String ''
        metricCollectorMode String off
        metricGrpcExporterIntervalInMills long 60000
        metricGrpcExporterTimeOutInMills long 3000
        metricLoggingExporterIntervalInMills long 10000
        metricsExporterType String DISABLE
        metricsGrpcExporterHeader String ''
        metricsGrpcExporterTarget String ''
        metricsInDelta boolean false
        metricsLabel String ''
        metricsPromExporterHost String ''
        metricsPromExporterPort int 5557
        migrateAuthFromV1Enabled boolean false
        minInvisibleTimeMillsForRecv long 10000
        namesrvDomain String ''
        namesrvDomainSubgroup String ''
        printJstackInMillis long 60000
        printThreadPoolStatusInMillis long 3000
        producerProcessorThreadPoolNums int 2
        producerProcessorThreadPoolQueueCapacity int 10000
        proxyClusterName String DefaultCluster
        proxyMode String CLUSTER refused a broker serves gRPC itself
        proxyName String -
        regionId String ''
        remotingAccessAddr String ''
        remotingDefaultThreadPoolNums int 8
        remotingDefaultThreadPoolQueueCapacity int 50000
        remotingHeartbeatThreadPoolNums int 4
        remotingHeartbeatThreadPoolQueueCapacity int 50000
        remotingListenPort int 8080
        remotingPullMessageThreadPoolNums int 8
        remotingPullThreadPoolQueueCapacity int 50000
        remotingSendMessageThreadPoolNums int 8
        remotingSendThreadPoolQueueCapacity int 10000
        remotingTopicRouteThreadPoolNums int 4
        remotingTopicRouteThreadPoolQueueCapacity int 50000
        remotingUpdateOffsetThreadPoolNums int 8
        remotingUpdateOffsetThreadPoolQueueCapacity int 10000
        remotingWaitTimeMillsInDefaultQueue long 3000
        remotingWaitTimeMillsInHeartbeatQueue long 31000
        remotingWaitTimeMillsInPullQueue long 5000
        remotingWaitTimeMillsInSendQueue long 3000
        remotingWaitTimeMillsInTopicRouteQueue long 3000
        remotingWaitTimeMillsInUpdateOffsetQueue long 3000
        renewAheadTimeMillis long 10000
        renewMaxThreadPoolNums int 4
        renewMaxTimeMillis long 10800000
        renewSchedulePeriodMillis long 5000
        renewThreadPoolNums int 2
        renewThreadPoolQueueCapacity int 300
        returnHandleGroupThreadPoolNums int 2
        rocketmqMQClientNum int 6
        sendLatencyEnable boolean false
        startDetectorEnable boolean false
        statefulAuthenticationCacheExpiredSecond int 60
        statefulAuthenticationCacheMaxNum int 10000
        statefulAuthorizationCacheExpiredSecond int 60
        statefulAuthorizationCacheMaxNum int 10000
        subscriptionGroupConfigCacheExpiredSeconds int 300
        subscriptionGroupConfigCacheMaxNum int 20000
        tlsCertWatchIntervalMs int 3600000
        topicConfigCacheExpiredSeconds int 300
        topicConfigCacheMaxNum int 20000
        topicRouteServiceCacheExpiredSeconds int 300
        topicRouteServiceCacheMaxNum int 20000
        topicRouteServiceThreadPoolNums int 2
        topicRouteServiceThreadPoolQueueCapacity int 5000
        traceOn boolean false
        transactionDataExpireMillis long 30000
        transactionDataExpireScanPeriodMillis long 10000
        transactionDataMaxNum int 15
        transactionDataMaxWaitClearMillis long 30000
        transactionHeartbeatBatchNum int 100
        transactionHeartbeatPeriodSecond int 20
        transactionHeartbeatThreadPoolNums int 20
        transactionHeartbeatThreadPoolQueueCapacity int 200
        useDelayLevel boolean false
        userCacheExpiredSecond int 600
        userCacheExpiredSeconds int 300
        userCacheMaxNum int 20000
        userCacheRefreshSecond int 60
        userCacheRefreshSeconds int 20
        userPropertyMaxNum int 128
        """
    ),
}
"""Keys of ProxyConfig and AuthConfig in 5.5.0 that have no effect here."""

ALIASES: Final = {
    "tls.test.mode.enable": "tlsTestModeEnable",
    "tls.server.certPath": "tlsCertPath",
    "tls.server.keyPath": "tlsKeyPath",
    "tls.server.keyPassword": "tlsKeyPassword",
}
"""Names in rmq-proxy.json of the keys for TLS, by the keys of properties files."""


def _with_alias(one: Key) -> Key:
    """The key with the name that RocketMQ's proxy has for it as an alias."""
    alias = ALIASES.get(one.name)
    return one if alias is None else replace(one, aliases=(*one.aliases, alias))


TLS_KEYS: Final = {
    name: _with_alias(one) for name, one in (SERVER_TLS_KEYS | CLIENT_TLS_KEYS).items()
}
"""Declarations of the keys for TLS, by name, with ALIASES."""


def _parse_credentials(value: str) -> Credentials | None:
    """Parse RocketMQ's form of credentials, a JSON object; None for an empty text. Raises
    ValueError, without the secret."""
    if not value:
        return None
    try:
        return Credentials.from_text(value)
    except InvalidArgument:
        raise ValueError("a JSON object with accessKey and secretKey") from None


CREDENTIALS: Final = Kind(
    "a JSON object with accessKey and secretKey", _parse_credentials, lambda _value: ""
)
"""Kind of a setting with a name and a secret, whose text is empty: no answer shows it."""
SECONDS: Final = integer_kind(1, INT32_MAX // 1_000)
"""Kind of a setting in seconds, at least 1."""


@dataclass(slots=True)
class ProxyConfig(NodeConfig):
    """All settings of a proxy (RocketMQ: proxy/config/ProxyConfig).

    With `grpc_server_port` 0 the system chooses a port.
    """

    IDLE = IDLE_KEYS
    TLS = TLS_KEYS
    NODE = "this proxy"

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
        rocketmq=OURS,
    )
    fetch_namesrv_addr_interval_ms: int = key(
        "fetchNamesrvAddrInterval",
        COUNT,
        10_000,
        "Milliseconds integer_kind two look-ups, and integer_kind two checks of the proxy's file.",
        live=True,
        rocketmq=OURS,
    )
    cluster_name: str = key(
        "rocketMQClusterName",
        TEXT,
        "",
        "The cluster whose brokers are served; empty: all clusters.",
        rocketmq="DefaultCluster",
    )
    bind_address: str = key(
        "bindAddress", HOST, "0.0.0.0", "The address to listen at.", rocketmq=OURS
    )
    grpc_server_port: int = key("grpcServerPort", PORT, 8081, "Port for clients; 0: a free port.")
    io_threads: int = key(
        "ioThreads",
        integer_kind(BY_CORES, THREADS_MAX),
        BY_CORES,
        "Threads that read and write clients' connections; 0: none; -1: half of the cores, at most "
        "8, none on one or two cores.",
        rocketmq=OURS,
    )
    local_serve_addr: str = key(
        "localServeAddr",
        HOST,
        "",
        "The host in routes for a client whose request has no endpoint; empty:"
        " bindAddress, or the loopback address.",
    )
    echoes_port: bool = key(
        "useEndpointPortFromRequest",
        BOOLEAN,
        False,
        "Give clients the port of their request's endpoint, for use with a load balancer, and not"
        " grpcServerPort.",
    )
    max_message_size: int = key(
        "maxMessageSize",
        integer_kind(1, 64 << 20),
        4 << 20,
        "Maximum bytes of a message's body; brokers have their own limit.",
    )
    route_refresh_seconds: int = key(
        "topicRouteServiceCacheRefreshSeconds",
        SECONDS,
        20,
        "Seconds after which the route of a topic in use is queried again; after a failed call to"
        " a broker it is queried at once.",
    )
    topic_refresh_seconds: int = key(
        "topicConfigCacheRefreshSeconds",
        SECONDS,
        20,
        "Seconds after which the attributes of a topic in use are queried again.",
    )
    group_refresh_seconds: int = key(
        "subscriptionGroupConfigCacheRefreshSeconds",
        SECONDS,
        20,
        "Seconds after which the configuration of a group in use is queried again.",
    )
    inner_credentials: Credentials | None = key(
        "innerClientAuthenticationCredentials",
        CREDENTIALS,
        None,
        "Name and secret that sign the proxy's requests to name servers and brokers; never shown."
        " Clients of the proxy are not authenticated, and have the rights of this user.",
        shows_empty=False,
    )
    shutdown_seconds: int = key(
        "grpcShutdownTimeSeconds",
        SECONDS,
        3,
        "Seconds that pending calls have to end when the proxy stops.",
        rocketmq="30",
    )
    path: str = ""
    """Path of the file that is read again for the name servers' keys; empty: none."""
    namesrv_names: tuple[str, ...] = ()
    """The names in namesrvAddr while `namesrv_addr` has their addresses from DNS."""

    @property
    def name_servers(self) -> list[str]:
        """The configured value of namesrvAddr, before look-ups."""
        return list(self.namesrv_names) or self.namesrv_addr


def read_file(text: str) -> list[Property]:
    """Parse the text of a configuration file: a JSON object, whose nulls are skipped, or
    `key=value` lines. Keys are not checked.

    Raises PropertiesError.
    """
    if not text.lstrip().startswith("{"):
        return parse_properties(text)
    try:
        members = json.loads(text)
    except ValueError as error:
        raise PropertiesError(f"this is no JSON: {error}") from None
    found = []
    for name, value in members.items():
        if value is None:
            continue
        if not isinstance(value, str | bool | int | float):
            raise PropertiesError(f"{name[:100]}: a text, a number, true or false is expected")
        shown = str(value).lower() if isinstance(value, bool) else str(value)
        found.append(Property(name, shown))
    return found
