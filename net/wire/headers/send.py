"""Headers of the send path: send in both spellings, its response, and the send-back of consumers.

Owns the fields of RocketMQ's SendMessageRequestHeader (V1 and V2), SendMessageResponseHeader,
ConsumerSendMsgBackRequestHeader and the headers of recalls. It must never check their meaning.

Tests: tests/wire/test_golden_headers.py
"""

from dataclasses import dataclass, field, fields
from typing import Final

from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.header import Int32, Int64, read_header, write_header

MAX_RECONSUME_SINCE: Final = 121
"""MQVersion V3_4_9: clients since this version send maxReconsumeTimes."""

_V1_CODES = frozenset({RequestCode.SEND_MESSAGE, RequestCode.SEND_REPLY_MESSAGE})


@dataclass(slots=True)
class SendMessageRequest:
    """Request SEND_MESSAGE (SendMessageRequestHeader), and replies.

    `default_topic` and `default_topic_queue_nums` are the template and the queues of a topic that
    the send creates; `sys_flag` has the bits of net/wire/message.py and of compression;
    `born_timestamp` is epoch ms; `flag` is the program's; `properties` is the text of
    net/wire/properties.py; `batch`: the body is a batch.
    """

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool | None = None
    max_reconsume_times: Int32 | None = None
    batch: bool | None = None
    broker_name: str | None = field(default=None, metadata={"key": "bname"})


@dataclass(slots=True)
class SendMessageRequestV2(SendMessageRequest):
    """Request SEND_MESSAGE_V2 (SendMessageRequestHeaderV2): the same members under one-letter
    keys."""

    producer_group: str = field(metadata={"key": "a"})
    topic: str = field(metadata={"key": "b"})
    default_topic: str = field(metadata={"key": "c"})
    default_topic_queue_nums: Int32 = field(metadata={"key": "d"})
    queue_id: Int32 = field(metadata={"key": "e"})
    sys_flag: Int32 = field(metadata={"key": "f"})
    born_timestamp: Int64 = field(metadata={"key": "g"})
    flag: Int32 = field(metadata={"key": "h"})
    properties: str | None = field(default=None, metadata={"key": "i"})
    reconsume_times: Int32 | None = field(default=None, metadata={"key": "j"})
    unit_mode: bool | None = field(default=None, metadata={"key": "k"})
    max_reconsume_times: Int32 | None = field(default=None, metadata={"key": "l"})
    batch: bool | None = field(default=None, metadata={"key": "m"})
    broker_name: str | None = field(default=None, metadata={"key": "n"})


def read_send(code: int, extension: dict[str, str]) -> SendMessageRequest:
    """Read the send header from extFields in the spelling that `code` uses: V1 for 10 and 324, else
    V2.

    Raises BadHeader (RocketMQ: SendMessageRequestHeader.parseRequestHeader).
    """
    cls = SendMessageRequest if code in _V1_CODES else SendMessageRequestV2
    return read_header(cls, extension)


def write_send(code: int, header: SendMessageRequest) -> dict[str, str]:
    """Write extFields of a send header, of either class, in the spelling that `code` uses: V1 for
    10 and 324, else V2."""
    cls = SendMessageRequest if code in _V1_CODES else SendMessageRequestV2
    if type(header) is not cls:
        header = cls(**{member.name: getattr(header, member.name) for member in fields(cls)})
    return write_header(header)


@dataclass(slots=True)
class SendMessageResponse:
    """Response to a send (SendMessageResponseHeader).

    `msg_id` is the offset message id, of a batch the ids of its records, joined by commas;
    `queue_offset` that of the message, of a batch of the first; `transaction_id` the UNIQ_KEY;
    `recall_handle` is set for a timer.
    """

    msg_id: str
    queue_id: Int32
    queue_offset: Int64
    transaction_id: str | None = None
    batch_uniq_id: str | None = None
    recall_handle: str | None = None


@dataclass(slots=True)
class RecallMessageRequest:
    """Request RECALL_MESSAGE (RecallMessageRequestHeader); see net/wire/message_id.py."""

    topic: str
    recall_handle: str
    producer_group: str | None = None
    broker_name: str | None = field(default=None, metadata={"key": "bname"})


@dataclass(slots=True)
class RecallMessageResponse:
    """Response to RECALL_MESSAGE (RecallMessageResponseHeader); `msg_id` is the message's unique
    key."""

    msg_id: str


@dataclass(slots=True)
class ConsumerSendMsgBackRequest:
    """Request CONSUMER_SEND_MSG_BACK (ConsumerSendMsgBackRequestHeader); `offset` is the log offset
    of the record to retry; `delay_level` 0: the broker chooses, below 0: a dead letter;
    `max_reconsume_times` is the limit of retries."""

    offset: Int64
    group: str
    delay_level: Int32
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool | None = None
    max_reconsume_times: Int32 | None = None
    broker_name: str | None = field(default=None, metadata={"key": "bname"})
