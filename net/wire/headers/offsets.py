"""Headers about offsets: of groups (query, update) and of queues (min, max, by time).

Owns the fields of the RocketMQ header classes of the same names. It must never hold behaviour.
Called by the broker's offset handlers and by consumers and the admin client.
"""

from dataclasses import dataclass, field

from turbopump.net.wire.header import Int32, Int64


@dataclass(slots=True)
class QueryConsumerOffsetRequest:
    """QueryConsumerOffsetRequestHeader."""

    consumer_group: str
    topic: str
    queue_id: Int32
    set_zero_if_not_found: bool | None = None
    broker_name: str | None = field(default=None, metadata={"key": "bname"})


@dataclass(slots=True)
class QueryConsumerOffsetResponse:
    """QueryConsumerOffsetResponseHeader; `offset` is the next queue offset to consume."""

    offset: Int64 | None = None


@dataclass(slots=True)
class UpdateConsumerOffsetRequest:
    """UpdateConsumerOffsetRequestHeader. queue_id and commit_offset may be absent: code 29."""

    consumer_group: str
    topic: str
    queue_id: Int32 | None = None
    commit_offset: Int64 | None = None
    broker_name: str | None = field(default=None, metadata={"key": "bname"})


@dataclass(slots=True)
class SearchOffsetRequest:
    """SearchOffsetRequestHeader; `timestamp` is epoch ms, boundary_type `LOWER` or `UPPER`."""

    topic: str
    queue_id: Int32
    timestamp: Int64
    boundary_type: str | None = None
    broker_name: str | None = field(default=None, metadata={"key": "bname"})


@dataclass(slots=True)
class SearchOffsetResponse:
    """SearchOffsetResponseHeader."""

    offset: Int64


@dataclass(slots=True)
class GetMaxOffsetRequest:
    """GetMaxOffsetRequestHeader; `committed` false asks for offsets not yet readable."""

    topic: str
    queue_id: Int32
    committed: bool | None = None
    broker_name: str | None = field(default=None, metadata={"key": "bname"})


@dataclass(slots=True)
class GetMaxOffsetResponse:
    """GetMaxOffsetResponseHeader."""

    offset: Int64


@dataclass(slots=True)
class GetMinOffsetRequest:
    """GetMinOffsetRequestHeader."""

    topic: str
    queue_id: Int32
    broker_name: str | None = field(default=None, metadata={"key": "bname"})


@dataclass(slots=True)
class GetMinOffsetResponse:
    """GetMinOffsetResponseHeader."""

    offset: Int64


@dataclass(slots=True)
class GetEarliestMsgStoretimeRequest:
    """GetEarliestMsgStoretimeRequestHeader."""

    topic: str
    queue_id: Int32
    broker_name: str | None = field(default=None, metadata={"key": "bname"})


@dataclass(slots=True)
class GetEarliestMsgStoretimeResponse:
    """GetEarliestMsgStoretimeResponseHeader; `timestamp` is epoch ms, -1 if there is none."""

    timestamp: Int64
