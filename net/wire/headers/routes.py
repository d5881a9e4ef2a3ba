"""Headers of the requests to a name server (remoting.md 8).

Owns their members and the choice of required ones. It must never hold behaviour. Names are
RocketMQ's classes in remoting/protocol/header/namesrv without the word Header.

Tests: tests/wire/test_golden_headers.py, tests/wire/test_golden_acting.py
"""

from dataclasses import dataclass

from turbopump.net.wire.header import Int32, Int64


@dataclass(slots=True)
class GetRouteInfoRequest:
    """Request 105, a topic's route.

    `accept_standard_json_only` requests quoted integer keys in the body.
    """

    topic: str
    accept_standard_json_only: bool | None = None


@dataclass(slots=True)
class RegisterBrokerRequest:
    """Request 103, registration of a broker; addresses are "host:port". `body_crc32` is the masked
    CRC of the body as sent, 0 for unchecked; `compressed`: the body is
    (net/wire/registration/register.py).

    `enable_acting_master` None marks a broker older than 5.0. `changes_only`, which RocketMQ does
    not know: the body has changed topics, and does not say that the broker has no others.
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
    changes_only: bool | None = None


@dataclass(slots=True)
class RegisterBrokerResponse:
    """Response to 103; for a replica it has its live master's address and replication port."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


@dataclass(slots=True)
class UnRegisterBrokerRequest:
    """Request 104: unregister a broker."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


@dataclass(slots=True)
class QueryDataVersionRequest:
    """Request 322: whether the name server has other topics of the broker; the body is the broker's
    DataVersion."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


@dataclass(slots=True)
class QueryDataVersionResponse:
    """Response to 322: whether the name server's topics are of another version."""

    changed: bool


@dataclass(slots=True)
class BrokerHeartbeatRequest:
    """Request 904, a heartbeat. A name server needs only the first three; a controller reads the
    rest.

    Five members are ours; a Java controller ignores them. `leased`: as master it serves only under
    leases granted in its term. `standing`: 2 for the master of `epoch`, 1 for a member of its
    SyncStateSet, 0 for a replica outside of it, as far as the broker has learnt since its start.
    `unfit`: the broker accepts no messages now; "full" until there is room, or "failed", when it
    cannot be master either (engine.types.StoreHealth). `syncStateSetEpoch`: of the newest set that
    it knows. `slow`: whether the broker's syncs take too long for sends; absent while that is
    unknown.
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
    """Request 901: the members of a broker group."""

    cluster_name: str
    broker_name: str


@dataclass(slots=True)
class NotifyMinBrokerIdChangeRequest:
    """Request 905, sent one-way by the name server to the brokers of a group: the smallest broker
    id that is online, its address and replication address, and the address that went offline."""

    min_broker_id: Int64 | None = None
    broker_name: str | None = None
    min_broker_addr: str | None = None
    offline_broker_addr: str | None = None
    ha_broker_addr: str | None = None


@dataclass(slots=True)
class ExchangeHaInfo:
    """Request 906 between brokers, and its response with the same members. Without an address it is
    a query.

    Addresses are "host:port", the flush offset is a log offset. Two members are ours; RocketMQ
    ignores them. `returnNumber`: the number of the master's query
    that a replica answers. `isOnline`, without an address: the master that sent that query serves
    now.
    """

    master_ha_address: str | None = None
    master_flush_offset: Int64 | None = None
    master_address: str | None = None
    return_number: Int64 | None = None
    is_online: bool | None = None


@dataclass(slots=True)
class PutKVConfigRequest:
    """Request 100: set a key value.

    RocketMQ requires all three; each missing field has its own error.
    """

    namespace: str | None = None
    key: str | None = None
    value: str | None = None


@dataclass(slots=True)
class GetKVConfigRequest:
    """Request 101: get a key value. RocketMQ does not check its fields: a null field names no
    item."""

    namespace: str | None = None
    key: str | None = None


@dataclass(slots=True)
class GetKVConfigResponse:
    """Response to 101: the value."""

    value: str | None = None


@dataclass(slots=True)
class DeleteKVConfigRequest:
    """Request 102: delete a key value; unchecked like 101."""

    namespace: str | None = None
    key: str | None = None


@dataclass(slots=True)
class GetKVListByNamespaceRequest:
    """Request 219: list a namespace; unchecked like 101."""

    namespace: str | None = None


@dataclass(slots=True)
class WipeWritePermOfBrokerRequest:
    """Request 205: remove the write permission of a broker's topics."""

    broker_name: str


@dataclass(slots=True)
class WipeWritePermOfBrokerResponse:
    """Response to 205: the number of topics that lost the permission."""

    wipe_topic_count: Int32


@dataclass(slots=True)
class AddWritePermOfBrokerRequest:
    """Request 327: give write permission to a broker's topics."""

    broker_name: str


@dataclass(slots=True)
class AddWritePermOfBrokerResponse:
    """Response to 327: the number of topics that got the permission."""

    add_topic_count: Int32


@dataclass(slots=True)
class GetTopicsByClusterRequest:
    """Request 224: the topics of a cluster."""

    cluster: str


@dataclass(slots=True)
class DeleteTopicFromNamesrvRequest:
    """Request 216: delete a topic, without a cluster from all clusters.

    RocketMQ does not check the topic.
    """

    topic: str | None = None
    cluster_name: str | None = None


@dataclass(slots=True)
class RegisterTopicRequest:
    """Request 217: register a topic; only the queues of the body's TopicRouteData count.

    RocketMQ does not check the topic.
    """

    topic: str | None = None
