"""A message as a send request, and the answer as a result: no connection, no clock.

Owns the checks of a message, its properties, compression, the request headers, and which answers
are worth another try. It must never send.
"""

import re
import zlib
from collections.abc import Mapping, Sequence
from typing import Final

from turbopump.net.client.errors import BrokerError, InvalidArgument, NoWritableQueue, check_type
from turbopump.net.client.messages import (
    MAX_BODY_SIZE,
    Message,
    SendResult,
    SendStatus,
    check_types,
)
from turbopump.net.client.options import COMPRESS_OVER
from turbopump.net.transport.errors import ConnectError, RemotingError
from turbopump.net.wire import properties as names
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_request
from turbopump.net.wire.header import read_header
from turbopump.net.wire.headers.send import (
    RecallMessageRequest,
    RecallMessageResponse,
    SendMessageRequestV2,
    SendMessageResponse,
    write_send,
)
from turbopump.net.wire.message import TRANSACTION_PREPARED, encode_batch
from turbopump.net.wire.message_id import decode_handle
from turbopump.net.wire.names import AUTO_CREATE_TOPIC, DLQ_PREFIX, RETRY_PREFIX
from turbopump.net.wire.queues import MessageQueue

DEFAULT_TOPIC_QUEUES: Final = 4
"""Queues requested for a topic that a send creates (DefaultMQProducer.defaultTopicQueueNums)."""

COMPRESSION_LEVEL: Final = 5
"""Zlib level of message bodies, RocketMQ's default."""

TOPIC_SIZE_MAX: Final = 127
"""Maximum characters of a topic name; retry and dead-letter topics may have 255."""
GROUP_SIZE_MAX: Final = 120
"""Maximum characters of a group name."""
PROPERTIES_SIZE_MAX: Final = 32767
"""Maximum bytes of a message's encoded properties."""
BATCH_MAX: Final = 4096
"""Maximum number of messages in a batch: each is a record, and the broker appends all of them
without a pause."""

_COMPRESSED_ZLIB: Final = 0x301
"""MessageSysFlag: compressed, by zlib."""

_NAME: Final = re.compile(r"[%|a-zA-Z0-9_-]+")

RETRIED_CODES: Final = frozenset(
    {
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.NO_PERMISSION,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
        ResponseCode.GO_AWAY,
    }
)
"""Answers after which another broker is tried (DefaultMQProducer.retryResponseCodes)."""

_STATUS: Final = {
    int(ResponseCode.SUCCESS): SendStatus.SEND_OK,
    int(ResponseCode.FLUSH_DISK_TIMEOUT): SendStatus.FLUSH_DISK_TIMEOUT,
    int(ResponseCode.FLUSH_SLAVE_TIMEOUT): SendStatus.FLUSH_SLAVE_TIMEOUT,
    int(ResponseCode.SLAVE_NOT_AVAILABLE): SendStatus.SLAVE_NOT_AVAILABLE,
}


def check_topic(topic: str) -> None:
    """Raises InvalidArgument unless `topic` is 1 to 127 characters of %|a-zA-Z0-9_- (255 for a
    retry or dead-letter topic), as brokers demand (TopicValidator)."""
    check_type(topic, str, "a topic's name", "a text")
    limit = 255 if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)) else TOPIC_SIZE_MAX
    if not _NAME.fullmatch(topic) or len(topic) > limit:
        raise InvalidArgument(f"{topic[:200]!r} is no topic name: 1 to {limit} of %|a-zA-Z0-9_-")


def check_group(group: str) -> None:
    """Raises InvalidArgument unless `group` is 1 to 120 characters of %|a-zA-Z0-9_-."""
    check_type(group, str, "a group's name", "a text")
    if not _NAME.fullmatch(group) or len(group) > GROUP_SIZE_MAX:
        rule = f"1 to {GROUP_SIZE_MAX} of %|a-zA-Z0-9_-"
        raise InvalidArgument(f"{group[:200]!r} is no group name: {rule}")


def check_message(message: Message) -> None:
    """Raises InvalidArgument for a message that a broker would refuse or could not give back: a bad
    topic, an empty or too large body, more than one kind of delay, a key with a blank, a property
    that is empty or has a name of RocketMQ's own."""
    check_type(message, Message, "the message", "a turbopump.Message")
    check_topic(message.topic)
    check_types(message)  # the program may have changed it
    if not message.body:
        raise InvalidArgument("a message needs a body")
    if len(message.body) > MAX_BODY_SIZE:
        raise InvalidArgument(f"a body of {len(message.body)} bytes exceeds {MAX_BODY_SIZE}")
    if min(message.delay_level, message.delay_ms, message.deliver_at_ms) < 0:
        raise InvalidArgument("a message is not delivered before now")
    if sum(map(bool, (message.delay_level, message.delay_ms, message.deliver_at_ms))) > 1:
        raise InvalidArgument("only one of delay_level, delay_ms and deliver_at_ms may be set")
    if any(not key or " " in key for key in message.keys):
        raise InvalidArgument("keys are texts without blanks")
    for name, value in message.properties.items():
        if name in names.RESERVED:
            raise InvalidArgument(f"the property name {name} belongs to RocketMQ")
        if not name or not value:
            raise InvalidArgument("a property needs a name and a value")


def properties_of(message: Message, unique_id: str) -> dict[str, str]:
    """All properties of a message, RocketMQ's own included; `unique_id` becomes its UNIQ_KEY. The
    message is not changed."""
    properties = dict(message.properties)
    if message.tags:
        properties[names.TAGS] = message.tags
    if message.keys:
        properties[names.KEYS] = names.KEY_SEPARATOR.join(message.keys)
    if message.delay_level:
        properties[names.DELAY] = str(message.delay_level)
    if message.delay_ms:
        properties[names.TIMER_DELAY_MS] = str(message.delay_ms)
    if message.deliver_at_ms:
        properties[names.TIMER_DELIVER_MS] = str(message.deliver_at_ms)
    if message.sharding_key:
        properties[names.SHARDING_KEY] = message.sharding_key
    properties[names.UNIQ_KEY] = unique_id
    return properties


def encoded_properties(properties: dict[str, str]) -> bytes:
    """Encode properties in the UTF-8 form of a record (wire/properties.py); raises InvalidArgument
    beyond PROPERTIES_SIZE_MAX bytes, or for a name or value with a separator character."""
    try:
        encoded = names.encode_properties(properties)
    except ValueError as error:
        raise InvalidArgument(str(error)) from None
    if len(encoded) > PROPERTIES_SIZE_MAX:
        raise InvalidArgument(f"properties of {len(encoded)} bytes exceed {PROPERTIES_SIZE_MAX}")
    return encoded


def send_request(
    message: Message,
    queue: MessageQueue,
    group: str,
    unique_id: str,
    now_ms: int,
    *,
    compress_over: int = COMPRESS_OVER,
    oneway: bool = False,
    half: Mapping[str, str] | None = None,
) -> Command:
    """Build SEND_MESSAGE_V2 for one message, without checking it; raises InvalidArgument if the
    properties are too large.

    `now_ms` (epoch milliseconds) becomes the born timestamp. A body of `compress_over` bytes or
    more is compressed by zlib; 0 never compresses. `half` are the properties that make the message
    the first half of a transaction.
    """
    body, sys_flag = bytes(message.body), 0
    if 0 < compress_over <= len(body):
        body, sys_flag = zlib.compress(body, COMPRESSION_LEVEL), _COMPRESSED_ZLIB
    properties = properties_of(message, unique_id)
    if half is not None:
        properties, sys_flag = {**properties, **half}, sys_flag | TRANSACTION_PREPARED
    header = SendMessageRequestV2(
        producer_group=group,
        topic=queue.topic,
        default_topic=AUTO_CREATE_TOPIC,
        default_topic_queue_nums=DEFAULT_TOPIC_QUEUES,
        queue_id=queue.queue_id,
        sys_flag=sys_flag,
        born_timestamp=now_ms,
        flag=message.flag,
        properties=encoded_properties(properties).decode(),
        reconsume_times=0,
        unit_mode=False,
        batch=False,
        broker_name=queue.broker_name,
    )
    code = RequestCode.SEND_MESSAGE_V2
    return new_request(code, body=body, oneway=oneway, fields=write_send(code, header))


def check_batch(messages: Sequence[Message]) -> None:
    """Raises InvalidArgument for messages that cannot form a batch, and for an invalid message
    (MessageBatch.generateFromList); `batch_request` checks the total size."""
    check_type(messages, (list, tuple), "a batch", "a list of messages")
    if not 0 < len(messages) <= BATCH_MAX:
        raise InvalidArgument(f"a batch has 1 to {BATCH_MAX} messages, not {len(messages)}")
    for message in messages:
        check_message(message)
        if message.topic != messages[0].topic:
            raise InvalidArgument("the messages of a batch have one topic")
        if message.delay_level or message.delay_ms or message.deliver_at_ms:
            raise InvalidArgument("a batch cannot be delayed")
        if message.topic.startswith(RETRY_PREFIX):
            raise InvalidArgument("a batch cannot go to a retry topic")


def batch_request(
    messages: Sequence[Message],
    queue: MessageQueue,
    group: str,
    unique_ids: Sequence[str],
    batch_id: str,
    now_ms: int,
) -> Command:
    """Build SEND_BATCH_MESSAGE, uncompressed; raises InvalidArgument if the encoded batch exceeds
    MAX_BODY_SIZE.

    `unique_ids` are the ids of the messages, in their order, `batch_id` that of the batch; `now_ms`
    (epoch milliseconds) becomes the born timestamp.
    """
    body = encode_batch(
        [
            (message.flag, message.body, encoded_properties(properties_of(message, unique_id)))
            for message, unique_id in zip(messages, unique_ids, strict=True)
        ]
    )
    if len(body) > MAX_BODY_SIZE:
        raise InvalidArgument(f"a batch of {len(body)} bytes exceeds {MAX_BODY_SIZE}")
    header = SendMessageRequestV2(
        producer_group=group,
        topic=queue.topic,
        default_topic=AUTO_CREATE_TOPIC,
        default_topic_queue_nums=DEFAULT_TOPIC_QUEUES,
        queue_id=queue.queue_id,
        sys_flag=0,
        born_timestamp=now_ms,
        flag=0,
        properties=encoded_properties({names.UNIQ_KEY: batch_id}).decode(),
        reconsume_times=0,
        unit_mode=False,
        batch=True,
        broker_name=queue.broker_name,
    )
    code = RequestCode.SEND_BATCH_MESSAGE
    return new_request(code, body=body, fields=write_send(code, header))


def send_result(
    response: Command, queue: MessageQueue, message_id: str, address: str
) -> SendResult:
    """Convert the response to a send; raises BrokerError for an error code.

    `queue` is the queue of the request, `message_id` the client's own id, `address` the server for
    the error. FLUSH_DISK_TIMEOUT, FLUSH_SLAVE_TIMEOUT and SLAVE_NOT_AVAILABLE are successes: the
    message is stored, but less safely than requested (MQClientAPIImpl.processSendResponse).
    """
    status = _STATUS.get(response.code)
    if status is None:
        raise BrokerError(response.code, response.remark, address)
    header = read_header(SendMessageResponse, response.fields)
    return SendResult(
        status,
        message_id,
        header.msg_id,
        MessageQueue(queue.topic, queue.broker_name, header.queue_id),
        header.queue_offset,
        header.recall_handle or "",
    )


def recall_request(handle: str, group: str) -> tuple[Command, MessageQueue]:
    """(the request RECALL_MESSAGE, queue 0 of the timer's topic at the timer's broker, for the
    choice of an address): a handle names both. Raises InvalidArgument for a malformed handle."""
    check_type(handle, str, "a recall handle", "a text")
    try:
        decoded = decode_handle(handle)
    except ValueError as error:
        raise InvalidArgument(str(error)) from None
    header = RecallMessageRequest(decoded.topic, handle, group, decoded.broker_name)
    queue = MessageQueue(decoded.topic, decoded.broker_name, 0)
    return new_request(RequestCode.RECALL_MESSAGE, header), queue


def recall_result(response: Command, address: str) -> str:
    """The id of the message that was recalled; raises BrokerError for an error code."""
    if response.code != ResponseCode.SUCCESS:
        raise BrokerError(response.code, response.remark, address)
    return read_header(RecallMessageResponse, response.fields).msg_id


def is_uncounted_failure(error: Exception, is_fixed: bool) -> bool:
    """Whether a failed try leaves the number of tries unchanged, because the broker stored nothing:
    a failed connect, no master, or SERVICE_NOT_AVAILABLE unless `is_fixed`.

    `is_fixed`: the caller chose the queue, so only one broker can be tried.
    """
    if isinstance(error, BrokerError):
        return error.code == ResponseCode.SERVICE_NOT_AVAILABLE and not is_fixed
    return isinstance(error, ConnectError | NoWritableQueue)


def is_retryable(error: Exception) -> bool:
    """Whether a failed send may succeed elsewhere or later: no answer, no master for the moment, or
    a code of RETRIED_CODES."""
    if isinstance(error, BrokerError):
        return error.code in RETRIED_CODES
    return isinstance(error, RemotingError | NoWritableQueue)
