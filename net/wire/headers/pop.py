"""Headers of pop consumption: pop, its acknowledgements, its polls.

Owns the fields of RocketMQ's PopMessageRequestHeader, AckMessageRequestHeader,
ChangeInvisibleTimeRequestHeader and their like. It must never decide about a message. Called by
the broker's pop handlers and by the client that pops.
"""

from dataclasses import dataclass, field

from turbopump.net.wire.header import Int32, Int64


@dataclass(slots=True)
class PopMessageRequest:
    """PopMessageRequestHeader; `queue_id` -1 is any queue. Times are in ms: `invisible_time` hides
    what is popped, `poll_time` from `born_time` on bounds a long poll."""

    consumer_group: str
    topic: str
    queue_id: Int32
    max_msg_nums: Int32
    invisible_time: Int64
    poll_time: Int64
    born_time: Int64
    init_mode: Int32
    exp_type: str | None = None
    exp: str | None = None
    order: bool | None = None
    attempt_id: str | None = None
    broker_name: str | None = field(default=None, metadata={"key": "bname"})


@dataclass(slots=True)
class PopMessageResponse:
    """PopMessageResponseHeader; `rest_num` messages are left behind those that were popped."""

    pop_time: Int64
    invisible_time: Int64
    revive_qid: Int32
    rest_num: Int64
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


@dataclass(slots=True)
class AckMessageRequest:
    """AckMessageRequestHeader; `topic` is the one that the record lies in: the retry topic of a
    message that was revived. `extra_info` is the handle (net/wire/pop_handles.py)."""

    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    offset: Int64
    broker_name: str | None = field(default=None, metadata={"key": "bname"})


@dataclass(slots=True)
class ChangeInvisibleTimeRequest:
    """ChangeInvisibleTimeRequestHeader; `invisible_time` in ms counts from now on. `suspend`: the
    delivery that ends with it does not count as one (5.5.0)."""

    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    offset: Int64
    invisible_time: Int64
    suspend: bool = False
    broker_name: str | None = field(default=None, metadata={"key": "bname"})


@dataclass(slots=True)
class ChangeInvisibleTimeResponse:
    """ChangeInvisibleTimeResponseHeader: what the new handle is made of."""

    pop_time: Int64
    invisible_time: Int64
    revive_qid: Int32


@dataclass(slots=True)
class PeekMessageRequest:
    """PeekMessageRequestHeader."""

    topic: str
    queue_id: Int32
    max_msg_nums: Int32
    consumer_group: str


@dataclass(slots=True)
class NotificationRequest:
    """NotificationRequestHeader: whether there is anything to pop, without popping it."""

    consumer_group: str
    topic: str
    queue_id: Int32
    poll_time: Int64
    born_time: Int64
    order: bool | None = None
    attempt_id: str | None = None


@dataclass(slots=True)
class NotificationResponse:
    """NotificationResponseHeader."""

    has_msg: bool
    polling_full: bool


@dataclass(slots=True)
class PollingInfoRequest:
    """PollingInfoRequestHeader."""

    consumer_group: str
    topic: str
    queue_id: Int32


@dataclass(slots=True)
class PollingInfoResponse:
    """PollingInfoResponseHeader."""

    polling_num: Int32
