"""Headers about clients: who is connected, leaving a group, and what is relayed to a client.

Owns the fields of the RocketMQ header classes of the same names. It must never hold behaviour.
Called by the broker's client handlers, by the client instance and by the admin client.
"""

from dataclasses import dataclass, field

from turbopump.net.wire.header import Int32, Int64


@dataclass(slots=True)
class UnregisterClientRequest:
    """UnregisterClientRequestHeader; a Java client sends one request for each group."""

    client_id: str = field(default="", metadata={"key": "clientID"})
    producer_group: str | None = None
    consumer_group: str | None = None


@dataclass(slots=True)
class GetConsumerListByGroupRequest:
    """GetConsumerListByGroupRequestHeader."""

    consumer_group: str


@dataclass(slots=True)
class GetConsumerConnectionListRequest:
    """GetConsumerConnectionListRequestHeader."""

    consumer_group: str


@dataclass(slots=True)
class GetProducerConnectionListRequest:
    """GetProducerConnectionListRequestHeader."""

    producer_group: str


@dataclass(slots=True)
class NotifyConsumerIdsChangedRequest:
    """NotifyConsumerIdsChangedRequestHeader; broker to client, one-way."""

    consumer_group: str


@dataclass(slots=True)
class GetConsumerRunningInfoRequest:
    """GetConsumerRunningInfoRequestHeader; from a tool to the broker and on to the client."""

    consumer_group: str
    client_id: str
    jstack_enable: bool | None = None


@dataclass(slots=True)
class ConsumeMessageDirectlyResultRequest:
    """ConsumeMessageDirectlyResultRequestHeader; the broker adds broker_name and the record."""

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None


@dataclass(slots=True)
class ResetOffsetRequest:
    """ResetOffsetRequestHeader: of 222 (tool to broker) and 220 (broker to client).

    `timestamp` is epoch ms, -1 means the end of the queue; `queue_id` -1 means every queue;
    `offset` counts only with a queue id and is absent or -1 when the time decides.
    """

    topic: str
    group: str
    timestamp: Int64
    is_force: bool = True
    queue_id: Int32 = -1
    offset: Int64 | None = None


@dataclass(slots=True)
class GetConsumerStatusRequest:
    """GetConsumerStatusRequestHeader: of 223 (tool to broker) and 221 (broker to client)."""

    topic: str
    group: str
    client_addr: str | None = None


@dataclass(slots=True)
class ReplyMessageRequest:
    """ReplyMessageRequestHeader: of 326, a reply on its way to the producer that asked.

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
