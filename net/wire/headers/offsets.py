"""Headers about offsets: of groups (query, update) and of queues (min, max, by time).

Owns the fields of the RocketMQ header classes of the same names. It must never hold behaviour.

Tests: tests/wire/test_golden_headers.py
"""

from dataclasses import dataclass, field

from turbopump.net.wire.header import Int32, Int64


@dataclass(slots=True)
class QueryConsumerOffsetRequest:
    """Request QUERY_CONSUMER_OFFSET (QueryConsumerOffsetRequestHeader): a group's offset in a
    queue. `set_zero_if_not_found` False: never answer 0 for a group without an offset."""

    consumer_group: str
    topic: str
    queue_id: Int32
    set_zero_if_not_found: bool | None = None
    broker_name: str | None = field(default=None, metadata={"key": "bname"})


@dataclass(slots=True)
class QueryConsumerOffsetResponse:
    """Response to QUERY_CONSUMER_OFFSET (QueryConsumerOffsetResponseHeader); `offset` is the next
    queue offset to consume."""

    offset: Int64 | None = None


@dataclass(slots=True)
class UpdateConsumerOffsetRequest:
    """Request UPDATE_CONSUMER_OFFSET (UpdateConsumerOffsetRequestHeader).

    `commit_offset` is the next queue offset to consume. Without it, or without `queue_id`, the
    response is 29 (INVALID_PARAMETER).
    """

    consumer_group: str
    topic: str
    queue_id: Int32 | None = None
    commit_offset: Int64 | None = None
    broker_name: str | None = field(default=None, metadata={"key": "bname"})


@dataclass(slots=True)
class SearchOffsetRequest:
    """Request SEARCH_OFFSET_BY_TIMESTAMP (SearchOffsetRequestHeader); `timestamp` is epoch ms.
    `boundary_type` `LOWER` (or None): the first message stored then or later, else the queue's end;
    `UPPER`: the last message stored then or before, else the queue's begin."""

    topic: str
    queue_id: Int32
    timestamp: Int64
    boundary_type: str | None = None
    broker_name: str | None = field(default=None, metadata={"key": "bname"})


@dataclass(slots=True)
class SearchOffsetResponse:
    """Response to SEARCH_OFFSET_BY_TIMESTAMP (SearchOffsetResponseHeader); `offset` is a queue
    offset."""

    offset: Int64


@dataclass(slots=True)
class GetMaxOffsetRequest:
    """Request GET_MAX_OFFSET (GetMaxOffsetRequestHeader); `committed` false includes offsets that
    are not yet readable."""

    topic: str
    queue_id: Int32
    committed: bool | None = None
    broker_name: str | None = field(default=None, metadata={"key": "bname"})


@dataclass(slots=True)
class GetMaxOffsetResponse:
    """Response to GET_MAX_OFFSET (GetMaxOffsetResponseHeader); `offset` is the queue offset of the
    next message."""

    offset: Int64


@dataclass(slots=True)
class GetMinOffsetRequest:
    """Request GET_MIN_OFFSET (GetMinOffsetRequestHeader)."""

    topic: str
    queue_id: Int32
    broker_name: str | None = field(default=None, metadata={"key": "bname"})


@dataclass(slots=True)
class GetMinOffsetResponse:
    """Response to GET_MIN_OFFSET (GetMinOffsetResponseHeader); `offset` is the queue offset of the
    first stored message."""

    offset: Int64


@dataclass(slots=True)
class GetEarliestMsgStoretimeRequest:
    """Request GET_EARLIEST_MSG_STORETIME (GetEarliestMsgStoretimeRequestHeader): the store time of
    the first stored message of a queue."""

    topic: str
    queue_id: Int32
    broker_name: str | None = field(default=None, metadata={"key": "bname"})


@dataclass(slots=True)
class GetEarliestMsgStoretimeResponse:
    """Response to GET_EARLIEST_MSG_STORETIME (GetEarliestMsgStoretimeResponseHeader); `timestamp`
    is epoch ms, -1 without a message."""

    timestamp: Int64
