"""Headers about clients: connected clients, leaving a group, and requests relayed to a client.

Owns the fields of the RocketMQ header classes of the same names. It must never hold behaviour.

Tests: tests/wire/test_golden_headers.py
"""

from dataclasses import dataclass, field

from turbopump.net.wire.header import Int32, Int64


@dataclass(slots=True)
class UnregisterClientRequest:
    """Request UNREGISTER_CLIENT (UnregisterClientRequestHeader); a Java client sends one request
    for each group."""

    client_id: str = field(default="", metadata={"key": "clientID"})
    producer_group: str | None = None
    consumer_group: str | None = None


@dataclass(slots=True)
class GetConsumerListByGroupRequest:
    """Request GET_CONSUMER_LIST_BY_GROUP (GetConsumerListByGroupRequestHeader): the client ids of a
    group's members."""

    consumer_group: str


@dataclass(slots=True)
class GetConsumerConnectionListRequest:
    """Request GET_CONSUMER_CONNECTION_LIST (GetConsumerConnectionListRequestHeader): the members of
    a group with their addresses and subscriptions."""

    consumer_group: str


@dataclass(slots=True)
class GetProducerConnectionListRequest:
    """Request GET_PRODUCER_CONNECTION_LIST (GetProducerConnectionListRequestHeader): the members of
    a producer group with their addresses."""

    producer_group: str


@dataclass(slots=True)
class NotifyConsumerIdsChangedRequest:
    """Request NOTIFY_CONSUMER_IDS_CHANGED (NotifyConsumerIdsChangedRequestHeader); broker to
    client, one-way."""

    consumer_group: str


@dataclass(slots=True)
class GetConsumerRunningInfoRequest:
    """Request GET_CONSUMER_RUNNING_INFO (GetConsumerRunningInfoRequestHeader); a tool sends it to
    the broker, which forwards it to the client. `jstack_enable` also requests its threads."""

    consumer_group: str
    client_id: str
    jstack_enable: bool | None = None


@dataclass(slots=True)
class ConsumeMessageDirectlyResultRequest:
    """Request CONSUME_MESSAGE_DIRECTLY (ConsumeMessageDirectlyResultRequestHeader): have a client
    handle the message `msg_id` (an offset message id); the broker adds `broker_name` and the
    record as the body."""

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None


@dataclass(slots=True)
class ResetOffsetRequest:
    """Request 222 from a tool to the broker, and 220 from the broker to a client
    (ResetOffsetRequestHeader).

    `timestamp` is epoch ms, -1 means the end of the queue; `queue_id` -1 means every queue;
    `offset`, a queue offset, counts only with a queue id and is absent or -1 if the time decides.
    Without `is_force` no offset moves forward.
    """

    topic: str
    group: str
    timestamp: Int64
    is_force: bool = True
    queue_id: Int32 = -1
    offset: Int64 | None = None


@dataclass(slots=True)
class GetConsumerStatusRequest:
    """Request 223 from a tool to the broker, and 221 from the broker to a client
    (GetConsumerStatusRequestHeader): the offsets of a group's members in a topic; `client_addr`
    selects a single member."""

    topic: str
    group: str
    client_addr: str | None = None


@dataclass(slots=True)
class ReplyMessageRequest:
    """Request 326: a reply on its way to the producer of the request (ReplyMessageRequestHeader).

    Hosts are "ip:port" texts, times epoch ms; the body of the request is the reply's body.
    """

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    born_host: str
    store_host: str
    store_timestamp: Int64
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool | None = None
