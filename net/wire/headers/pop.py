"""Headers of pop consumption: pop, its acknowledgements, its polls.

Owns the fields of RocketMQ's PopMessageRequestHeader, AckMessageRequestHeader,
ChangeInvisibleTimeRequestHeader and their like. It must never decide about a message.

Tests: tests/wire/test_golden_headers.py
"""

from dataclasses import dataclass, field

from turbopump.net.wire.header import Int32, Int64


@dataclass(slots=True)
class PopMessageRequest:
    """Request POP_MESSAGE (PopMessageRequestHeader); `queue_id` -1 is any queue.

    Times are in ms: popped messages are hidden for `invisible_time`; `poll_time`, counted from
    `born_time` (epoch ms), limits a long poll. `init_mode`: a new group begins at the first message
    (0) or at the end (1). `exp` is an expression of type `exp_type`. `order`: a queue with
    unacknowledged messages delivers no others, but to the same `attempt_id`.
    """

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
    """Response to POP_MESSAGE (PopMessageResponseHeader); `pop_time` (epoch ms), `invisible_time`
    (ms) and `revive_qid` are parts of the handles; net/wire/pop_handles.py has the form of the
    three texts. `rest_num` messages follow after the popped ones."""

    pop_time: Int64
    invisible_time: Int64
    revive_qid: Int32
    rest_num: Int64
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


@dataclass(slots=True)
class AckMessageRequest:
    """Request ACK_MESSAGE (AckMessageRequestHeader).

    `topic` is the topic that holds the record: the retry topic for a message that was revived.
    `extra_info` is the handle (net/wire/pop_handles.py), `offset` the message's queue offset.
    """

    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    offset: Int64
    broker_name: str | None = field(default=None, metadata={"key": "bname"})


@dataclass(slots=True)
class ChangeInvisibleTimeRequest:
    """Request CHANGE_MESSAGE_INVISIBLETIME (ChangeInvisibleTimeRequestHeader); `invisible_time` in
    ms counts from now. With `suspend` the delivery that ends does not count (5.5.0)."""

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
    """Response to CHANGE_MESSAGE_INVISIBLETIME (ChangeInvisibleTimeResponseHeader): the parts of
    the new handle: `pop_time` (epoch ms), `invisible_time` (ms), revive queue."""

    pop_time: Int64
    invisible_time: Int64
    revive_qid: Int32


@dataclass(slots=True)
class PeekMessageRequest:
    """Request PEEK_MESSAGE (PeekMessageRequestHeader): read messages without hiding them; fields as
    in PopMessageRequest."""

    topic: str
    queue_id: Int32
    max_msg_nums: Int32
    consumer_group: str


@dataclass(slots=True)
class NotificationRequest:
    """Request NOTIFICATION (NotificationRequestHeader): whether there are messages to pop, without
    popping them; fields as in PopMessageRequest."""

    consumer_group: str
    topic: str
    queue_id: Int32
    poll_time: Int64
    born_time: Int64
    order: bool | None = None
    attempt_id: str | None = None


@dataclass(slots=True)
class NotificationResponse:
    """Response to NOTIFICATION (NotificationResponseHeader). `polling_full`: the broker holds too
    many polls to hold this one."""

    has_msg: bool
    polling_full: bool


@dataclass(slots=True)
class PollingInfoRequest:
    """Request POLLING_INFO (PollingInfoRequestHeader): the number of a group's polls that wait for
    a queue, or with -1 for any queue."""

    consumer_group: str
    topic: str
    queue_id: Int32


@dataclass(slots=True)
class PollingInfoResponse:
    """Response to POLLING_INFO (PollingInfoResponseHeader): the number of waiting polls."""

    polling_num: Int32
