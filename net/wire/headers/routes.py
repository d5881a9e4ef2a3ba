"""Headers of the requests that a name server answers (remoting.md 8).

Owns their members and which of them are required. It must never hold behaviour. Called by the name
server's handlers and by everyone who asks or registers there. Names are RocketMQ's classes in
remoting/protocol/header/namesrv without the word Header.
"""

from dataclasses import dataclass

from turbopump.net.wire.header import Int32, Int64


@dataclass(slots=True)
class GetRouteInfoRequest:
    """105. `accept_standard_json_only` asks for quoted integer keys in the body."""

    topic: str
    accept_standard_json_only: bool | None = None


@dataclass(slots=True)
class RegisterBrokerRequest:
    """103. `body_crc32` is the masked CRC of the body as sent, 0 for unchecked.

    `enable_acting_master` None marks a broker older than 5.0.
    """

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64
    ha_server_addr: str = ""
    heartbeat_timeout_millis: Int64 | None = None
    enable_acting_master: bool | None = None
    compressed: bool = False
    body_crc32: Int32 = 0


@dataclass(slots=True)
class RegisterBrokerResponse:
    """103: for a replica, where its live master and its replication port are."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


@dataclass(slots=True)
class UnRegisterBrokerRequest:
    """104."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


@dataclass(slots=True)
class QueryDataVersionRequest:
    """322; the body is the broker's DataVersion."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


@dataclass(slots=True)
class QueryDataVersionResponse:
    """322: whether the name server's topics are of another version."""

    changed: bool


@dataclass(slots=True)
class BrokerHeartbeatRequest:
    """904. Only the first three matter to a name server; a controller reads the rest.

    Five are ours, which a Java controller ignores. `leased`: as master it serves only under leases
    granted in its reign. `standing`: 2 of the master of `epoch`, 1 of a member of its SyncStateSet,
    0 of a replica outside of it, as far as the broker learnt in this life. `unfit`: it takes no
    messages now, "full" until there is room or "failed", when it cannot be led either
    (engine.types.Fitness). `syncStateSetEpoch`: of the newest set that it knows. `slow`: whether
    the broker's syncs take too long for sends; absent while that is unknown.
    """

    cluster_name: str
    broker_addr: str
    broker_name: str
    broker_id: Int64 | None = None
    epoch: Int32 | None = None
    max_offset: Int64 | None = None
    confirm_offset: Int64 | None = None
    heartbeat_timeout_mills: Int64 | None = None
    election_priority: Int32 | None = None
    leased: bool | None = None
    unfit: str | None = None
    standing: Int32 | None = None
    sync_state_set_epoch: Int32 | None = None
    slow: bool | None = None


@dataclass(slots=True)
class GetBrokerMemberGroupRequest:
    """901."""

    cluster_name: str
    broker_name: str


@dataclass(slots=True)
class NotifyMinBrokerIdChangeRequest:
    """905, sent one-way by the name server to the brokers of a group."""

    min_broker_id: Int64 | None = None
    broker_name: str | None = None
    min_broker_addr: str | None = None
    offline_broker_addr: str | None = None
    ha_broker_addr: str | None = None


@dataclass(slots=True)
class ExchangeHaInfo:
    """906, between brokers; its answer has the same members. Without an address in it, it asks.

    Two are ours, which RocketMQ ignores. `returnNumber`: which of its master's questions a replica
    answers. `isOnline`, without an address: the master that asked it so serves now.
    """

    master_ha_address: str | None = None
    master_flush_offset: Int64 | None = None
    master_address: str | None = None
    return_number: Int64 | None = None
    is_online: bool | None = None


@dataclass(slots=True)
class PutKVConfigRequest:
    """100. RocketMQ requires all three; a missing one has an answer of its own."""

    namespace: str | None = None
    key: str | None = None
    value: str | None = None


@dataclass(slots=True)
class GetKVConfigRequest:
    """101; RocketMQ does not check its fields: a null one names no item."""

    namespace: str | None = None
    key: str | None = None


@dataclass(slots=True)
class GetKVConfigResponse:
    """101."""

    value: str | None = None


@dataclass(slots=True)
class DeleteKVConfigRequest:
    """102, unchecked as 101."""

    namespace: str | None = None
    key: str | None = None


@dataclass(slots=True)
class GetKVListByNamespaceRequest:
    """219, unchecked as 101."""

    namespace: str | None = None


@dataclass(slots=True)
class WipeWritePermOfBrokerRequest:
    """205."""

    broker_name: str


@dataclass(slots=True)
class WipeWritePermOfBrokerResponse:
    """205."""

    wipe_topic_count: Int32


@dataclass(slots=True)
class AddWritePermOfBrokerRequest:
    """327."""

    broker_name: str


@dataclass(slots=True)
class AddWritePermOfBrokerResponse:
    """327."""

    add_topic_count: Int32


@dataclass(slots=True)
class GetTopicsByClusterRequest:
    """224."""

    cluster: str


@dataclass(slots=True)
class DeleteTopicFromNamesrvRequest:
    """216. Without a cluster the topic goes from all of them. RocketMQ does not check the topic."""

    topic: str | None = None
    cluster_name: str | None = None


@dataclass(slots=True)
class RegisterTopicRequest:
    """217; the body is a TopicRouteData of which the queues count. RocketMQ does not check the
    topic."""

    topic: str | None = None
