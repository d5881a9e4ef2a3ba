"""The broker's configuration: RocketMQ's properties keys, typed and checked.

Owns which keys there are, what they mean here and what is said of a bad one. It must never read a
file or a socket. Called by node.py, the CLI and the handlers of UPDATE/GET_BROKER_CONFIG.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields, replace
from enum import Enum

from turbopump.broker.config.known_keys import IDLE_KEYS
from turbopump.broker.config.replication_config import (
    NO_ID_YET,
    RANGES,
    BrokerRole,
    ReplicationConfig,
)
from turbopump.broker.config.replication_config import PROPERTY_FIELDS as REPLICATION_FIELDS
from turbopump.engine.config import PROPERTY_FIELDS, StoreConfig
from turbopump.engine.types import FlushMode, StoreError
from turbopump.net.transport.options import ClientTlsSettings, TlsSettings
from turbopump.net.wire.java_properties import (
    ConfigError,
    Property,
    parse_properties,
    printable,
)
from turbopump.net.wire.property_values import (
    CLIENT_TLS_KEYS,
    SERVER_TLS_KEYS,
    idle_values,
    place,
    shown,
    without_effect,
)
from turbopump.net.wire.topics import PERM_READ, PERM_WRITE

TLS_KEYS = SERVER_TLS_KEYS | CLIENT_TLS_KEYS
"""Keys of TlsSettings for peers and of ClientTlsSettings for name servers; RocketMQ takes them from
system properties or tls.config.file."""
TLS_ALIASES = {"useTLS": "tls.enable"}
"""NettyClientConfig has it under this name."""
MAX_QUEUES_OF_TOPIC = 65_536  # per topic: bounds the offset tables and what a route carries
DEFAULT_ROOT = "turbopump-data/store"  # RocketMQ: $HOME/store; ours never leaves the folder
_INT32_MAX = 2**31 - 1
MAX_KEY_SHOWN = 100  # characters of a foreign key repeated in a message
_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DELAY = re.compile(r"(\d{1,9})([smhd])")
_DELAY_TEXT = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
_MAX_DELAY_LEVELS = 64  # one queue of SCHEDULE_TOPIC_XXXX each; RocketMQ's default has 18


class MetricsExporterType(Enum):
    """Where metrics go; RocketMQ's names and numbers. OTLP_GRPC and LOG are refused."""

    DISABLE = 0
    OTLP_GRPC = 1
    PROM = 2
    LOG = 3


@dataclass(slots=True)
class BrokerConfig:
    """Everything a broker is given from outside. Defaults are RocketMQ's unless said; `others` are
    keys that do nothing here.

    `listen_port` 0 lets the system choose (for tests and embedding; no VIP port then).
    """

    broker_name: str = "broker-a"
    broker_cluster_name: str = "DefaultCluster"
    broker_id: int = 0
    broker_ip1: str = ""
    bind_address: str = "0.0.0.0"
    listen_port: int = 10911
    vip_port_enable: bool = True
    namesrv_addr: list[str] = field(default_factory=list)
    broker_permission: int = PERM_READ | PERM_WRITE
    default_topic_queue_nums: int = 8
    auto_create_topic_enable: bool = True
    auto_create_subscription_group: bool = True
    cluster_topic_enable: bool = True
    broker_topic_enable: bool = True
    trace_topic_enable: bool = False
    msg_trace_topic_name: str = "RMQ_SYS_TRACE_TOPIC"
    revive_queue_num: int = 8
    long_polling_enable: bool = True
    short_polling_time_ms: int = 1_000
    lite_pull_message_enable: bool = True
    use_server_side_reset_offset: bool = True
    notify_consumer_ids_changed_enable: bool = True
    validate_system_topic_when_update_topic: bool = True
    enable_single_topic_register: bool = True
    region_id: str = "DefaultRegion"
    trace_on: bool = True
    start_accept_send_request_timestamp_ms: int = 0
    message_delay_level: str = _DELAY_TEXT
    register_name_server_period_ms: int = 30_000
    register_broker_timeout_ms: int = 24_000
    flush_consumer_offset_interval_ms: int = 5_000
    consumer_offset_update_version_step: int = 500
    flush_delay_offset_interval_ms: int = 10_000
    delay_offset_update_version_step: int = 200
    channel_expired_timeout_ms: int = 120_000
    subscription_expired_timeout_ms: int = 600_000
    server_channel_max_idle_seconds: int = 120
    metrics_exporter_type: MetricsExporterType = MetricsExporterType.DISABLE
    metrics_prom_exporter_port: int = 5557
    metrics_prom_exporter_host: str = ""
    slave_read_enable: bool = False
    offset_check_in_slave: bool = False
    replication: ReplicationConfig = field(default_factory=ReplicationConfig)
    tls_properties: dict[str, str] = field(default_factory=dict)
    store: StoreConfig = field(default_factory=lambda: StoreConfig(root=DEFAULT_ROOT))
    config_black_list: str = "configBlackList;brokerConfigPath"
    path: str = ""
    others: dict[str, str] = field(default_factory=dict)

    @property
    def delay_levels_ms(self) -> list[int]:
        """The delay of level 1, 2, ... in ms (RocketMQ: ScheduleMessageService.parseDelayLevel)."""
        return parse_delay_levels(self.message_delay_level)

    @property
    def writable(self) -> bool:
        """Whether brokerPermission allows sends."""
        return bool(self.broker_permission & PERM_WRITE)

    @property
    def readable(self) -> bool:
        """Whether brokerPermission allows pulls."""
        return bool(self.broker_permission & PERM_READ)

    @property
    def tls(self) -> TlsSettings:
        """The `tls.*` keys, which RocketMQ reads from system properties."""
        return TlsSettings.from_properties(self.tls_properties)

    @property
    def client_tls(self) -> ClientTlsSettings | None:
        """TLS towards name servers; None unless `tls.enable`."""
        return ClientTlsSettings.from_properties(self.tls_properties)

    def values(self) -> dict[str, str]:
        """Every key and its value in force as text, keys of RocketMQ that do nothing here included.

        Credentials stay out, and TLS settings (RocketMQ keeps them elsewhere).
        """
        shown = idle_values(IDLE_KEYS, self.others)
        for key, known in _KEYS.items():
            shown[key] = _show(getattr(self, known.attribute))
        for key, attribute in PROPERTY_FIELDS.items():
            shown[key] = _show(getattr(self.store, attribute))
        for key, attribute in REPLICATION_FIELDS.items():
            shown[key] = _show(getattr(self.replication, attribute))
        shown["allAckInSyncStateSet"] = _show(self.replication.all_ack)
        shown["brokerIP2"] = self.replication.broker_ip2 or self.broker_ip1
        if not self.replication.ha_master_address:
            del shown["haMasterAddress"]  # null in RocketMQ
        if not self.replication.ha_group_file:
            del shown["haGroupFile"]  # RocketMQ has no such key
        if not self.replication.store_path_broker_identity:
            del shown["storePathBrokerIdentity"]  # RocketMQ does not show the default either
        shown["useTLS"] = _show(self.client_tls is not None)
        shown["storePathCommitLog"] = self.store.log_folder
        shown["storePathEpochFile"] = self.store.epoch_path
        return shown

    def update(self, properties: Iterable[Property]) -> list[str]:
        """Take over values; returns warnings. Raises ConfigError and then changes nothing.

        Store and replication keys are kept for the next start: what runs keeps what it was started
        with.
        """
        parsed: list[tuple[str, object]] = []
        others: dict[str, str] = {}
        warnings: list[str] = []
        in_vain: list[Property] = []
        store, replication = self.store, self.replication
        tls = dict(self.tls_properties)
        for item in properties:
            known = _KEYS.get(item.key)
            if known is not None:
                parsed.append((known.attribute, _parse(known, item)))
            elif item.key in PROPERTY_FIELDS:
                store = _parse_store(store, item)
            elif item.key in REPLICATION_FIELDS:
                replication = _parse_replication(replication, item)
            elif (key := TLS_ALIASES.get(item.key, item.key)) in TLS_KEYS:
                tls[key] = item.value
                _check_tls(tls, item)
            elif (idle := IDLE_KEYS.get(item.key)) is not None:
                if refusal := idle.refusal(item):
                    raise ConfigError(refusal)
                others[item.key] = item.value
                if not idle.is_quiet(item.value):
                    in_vain.append(item)
            else:
                warnings.append(printable(f"unknown key {item.key[:MAX_KEY_SHOWN]}{place(item)}"))
        warnings += without_effect(in_vain)
        contradiction = replication.contradiction(_broker_id_of(parsed, self.broker_id))
        if contradiction is not None:
            raise ConfigError(contradiction)
        warnings += replication.remarks() if replication != self.replication else []
        for attribute, value in parsed:
            setattr(self, attribute, value)
        self.store, self.replication, self.tls_properties = store, replication, tls
        self.others.update(others)
        return warnings


def is_known(key: str) -> bool:
    """Whether a broker has this key, or RocketMQ's would."""
    keys = (_KEYS, PROPERTY_FIELDS, REPLICATION_FIELDS, TLS_ALIASES, TLS_KEYS, IDLE_KEYS)
    return any(key in each for each in keys)


def load_config(text: str, path: str = "") -> tuple[BrokerConfig, list[str]]:
    """A configuration from the text of a properties file, and warnings to log.

    Raises PropertiesError (a ConfigError is one): one sentence with key, value, what was expected
    and the line.
    """
    config = BrokerConfig(path=path)
    warnings = config.update(parse_properties(text))
    return config, warnings


def parse_delay_levels(text: str) -> list[int]:
    """`1s 5s 1m` as [1000, 5000, 60000]; raises ValueError."""
    parts = text.split()
    if not 1 <= len(parts) <= _MAX_DELAY_LEVELS:
        raise ValueError(f"1 to {_MAX_DELAY_LEVELS} delays")
    matches = [_DELAY.fullmatch(part) for part in parts]
    if not all(matches):
        raise ValueError("delays such as 1s 5m 2h 1d, separated by blanks")
    return [int(match[1]) * _UNIT_MS[match[2]] for match in matches if match]


@dataclass(frozen=True, slots=True)
class _Key:
    attribute: str
    parse: Callable[[str], object]


def _text(value: str) -> str:
    return value


def _name(value: str) -> str:
    if not re.fullmatch(r"[%|a-zA-Z0-9_.-]{1,127}", value) or not value.strip("."):
        raise ValueError("1 to 127 letters, digits and % | _ - ., not dots alone")
    return value


def _boolean(value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise ValueError("true or false")
    return value.lower() == "true"


def _between(low: int, high: int) -> Callable[[str], int]:
    def parse(value: str) -> int:
        expected = f"a whole number from {low} to {high}"
        if not re.fullmatch(r"[+-]?\d{1,19}", value):
            raise ValueError(expected)
        number = int(value)
        if not low <= number <= high:
            raise ValueError(expected)
        return number

    return parse


def _addresses(value: str) -> list[str]:
    found = [part.strip() for part in value.split(";") if part.strip()]
    for address in found:
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 65_536:
            raise ValueError("host:port, several separated by ;")
    return found


def _address(value: str) -> str:
    found = _addresses(value)
    if len(found) > 1:
        raise ValueError("one host:port")
    return found[0] if found else ""


def _role(value: str) -> BrokerRole:
    if value not in BrokerRole.__members__:
        raise ValueError(" or ".join(BrokerRole.__members__))
    return BrokerRole[value]


def _metrics_exporter(value: str) -> MetricsExporterType:
    for kind in (MetricsExporterType.DISABLE, MetricsExporterType.PROM):
        if value in (kind.name, str(kind.value)):
            return kind
    raise ValueError("DISABLE or PROM (metrics are not sent anywhere yet)")


def _delay_levels(value: str) -> str:
    parse_delay_levels(value)
    return value


_PORT = _between(0, 65_535)
_COUNT = _between(1, _INT32_MAX)
_NATURAL = _between(0, 2**63 - 1)
_MS = _between(0, _INT32_MAX)

_KEYS: dict[str, _Key] = {
    "brokerName": _Key("broker_name", _name),
    "brokerClusterName": _Key("broker_cluster_name", _name),
    "brokerId": _Key("broker_id", _between(NO_ID_YET, 2**63 - 1)),
    "brokerIP1": _Key("broker_ip1", _text),
    "bindAddress": _Key("bind_address", _text),
    "listenPort": _Key("listen_port", _PORT),
    "vipPortEnable": _Key("vip_port_enable", _boolean),
    "namesrvAddr": _Key("namesrv_addr", _addresses),
    "brokerPermission": _Key("broker_permission", _between(0, 15)),
    "defaultTopicQueueNums": _Key("default_topic_queue_nums", _between(1, MAX_QUEUES_OF_TOPIC)),
    "autoCreateTopicEnable": _Key("auto_create_topic_enable", _boolean),
    "autoCreateSubscriptionGroup": _Key("auto_create_subscription_group", _boolean),
    "clusterTopicEnable": _Key("cluster_topic_enable", _boolean),
    "brokerTopicEnable": _Key("broker_topic_enable", _boolean),
    "traceTopicEnable": _Key("trace_topic_enable", _boolean),
    "msgTraceTopicName": _Key("msg_trace_topic_name", _name),
    "reviveQueueNum": _Key("revive_queue_num", _between(1, MAX_QUEUES_OF_TOPIC)),
    "longPollingEnable": _Key("long_polling_enable", _boolean),
    "shortPollingTimeMills": _Key("short_polling_time_ms", _MS),
    "litePullMessageEnable": _Key("lite_pull_message_enable", _boolean),
    "useServerSideResetOffset": _Key("use_server_side_reset_offset", _boolean),
    "notifyConsumerIdsChangedEnable": _Key("notify_consumer_ids_changed_enable", _boolean),
    "validateSystemTopicWhenUpdateTopic": _Key("validate_system_topic_when_update_topic", _boolean),
    "enableSingleTopicRegister": _Key("enable_single_topic_register", _boolean),
    "regionId": _Key("region_id", _name),
    "traceOn": _Key("trace_on", _boolean),
    "startAcceptSendRequestTimeStamp": _Key("start_accept_send_request_timestamp_ms", _NATURAL),
    "messageDelayLevel": _Key("message_delay_level", _delay_levels),
    "registerNameServerPeriod": _Key("register_name_server_period_ms", _MS),
    "registerBrokerTimeoutMills": _Key("register_broker_timeout_ms", _COUNT),
    "flushConsumerOffsetInterval": _Key("flush_consumer_offset_interval_ms", _COUNT),
    "consumerOffsetUpdateVersionStep": _Key("consumer_offset_update_version_step", _COUNT),
    "flushDelayOffsetInterval": _Key("flush_delay_offset_interval_ms", _COUNT),
    "delayOffsetUpdateVersionStep": _Key("delay_offset_update_version_step", _COUNT),
    "channelExpiredTimeout": _Key("channel_expired_timeout_ms", _COUNT),
    "subscriptionExpiredTimeout": _Key("subscription_expired_timeout_ms", _COUNT),
    "serverChannelMaxIdleTimeSeconds": _Key("server_channel_max_idle_seconds", _COUNT),
    "metricsExporterType": _Key("metrics_exporter_type", _metrics_exporter),
    "metricsPromExporterPort": _Key("metrics_prom_exporter_port", _PORT),
    "metricsPromExporterHost": _Key("metrics_prom_exporter_host", _text),
    "configBlackList": _Key("config_black_list", _text),
    "slaveReadEnable": _Key("slave_read_enable", _boolean),
    "offsetCheckInSlave": _Key("offset_check_in_slave", _boolean),
}


_REPLICATION_PARSERS: dict[str, Callable[[str], object]] = {
    "broker_role": _role,
    "broker_ip2": _text,
    "ha_master_address": _address,
    "all_ack_in_sync_state_set": _boolean,
    "sync_from_last_file": _boolean,
    "async_learner": _boolean,
    "ha_flow_control_enable": _boolean,
    "ha_group_file": _text,
    "enable_controller_mode": _boolean,
    "controller_addr": lambda value: tuple(_addresses(value)),
    "store_path_broker_identity": _text,
    **{attribute: _between(low, high) for attribute, (low, high) in RANGES.items()},
}


def _parse(known: _Key, item: Property) -> object:
    try:
        return known.parse(item.value.strip())
    except ValueError as error:
        raise ConfigError(f"{shown(item)}: expected {error}{place(item)}") from None


def _parse_store(store: StoreConfig, item: Property) -> StoreConfig:
    attribute = PROPERTY_FIELDS[item.key]
    try:
        one = StoreConfig.from_properties(store.root, {item.key: item.value})
        return replace(store, **{attribute: getattr(one, attribute)})
    except StoreError as error:
        raise ConfigError(f"{shown(item)}: {error}{place(item)}") from None


def _parse_replication(config: ReplicationConfig, item: Property) -> ReplicationConfig:
    attribute = REPLICATION_FIELDS[item.key]
    known = _Key(attribute, _REPLICATION_PARSERS[attribute])
    return replace(config, **{attribute: _parse(known, item)})  # type: ignore[arg-type]


def _broker_id_of(parsed: list[tuple[str, object]], before: int) -> int:
    found = [value for attribute, value in parsed if attribute == "broker_id"]
    return found[-1] if found and isinstance(found[-1], int) else before


def _check_tls(properties: dict[str, str], item: Property) -> None:
    try:
        TlsSettings.from_properties(properties)
        ClientTlsSettings.from_properties({**properties, "tls.enable": "true"})
        ClientTlsSettings.from_properties(properties)
    except ValueError as error:
        raise ConfigError(f"{shown(item)}: {error}{place(item)}") from None


def _show(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, MetricsExporterType):
        return value.name
    if isinstance(value, FlushMode | BrokerRole):
        return str(value.value)
    return ";".join(value) if isinstance(value, list | tuple) else str(value)


assert {key.attribute for key in _KEYS.values()} <= {
    entry.name for entry in fields(BrokerConfig)
}, "a key without a field"
