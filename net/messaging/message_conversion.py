"""A message of SendMessage as the fields of a send by remoting, and the checks of it.

Owns the checks of RocketMQ's proxy in its order (GrpcValidator, SendMessageActivity) and the names
of properties. It must never send.

Tests: tests/unit/net/messaging/test_sending.py
"""

import re
import zlib
from collections.abc import Sequence
from typing import Any, Final

from turbopump.net.grpc.codes import Code, Encoding, MessageType
from turbopump.net.messaging.routes import type_of
from turbopump.net.messaging.rpc import RpcRefused
from turbopump.net.wire import properties as names
from turbopump.net.wire.names import AUTO_CREATE_TOPIC
from turbopump.net.wire.topics import MIXED, TopicConfig
from turbopump.pyx.index import java_hash

USER_PROPERTIES_MAX: Final = 128
"""Maximum number of a message's user properties (userPropertyMaxNum)."""
PROPERTIES_SIZE_MAX: Final = 16_384
"""Maximum bytes of names and values of user properties, tag and keys (maxUserPropertySize)."""
GROUP_SIZE_MAX: Final = 63
"""Maximum bytes of a message group (maxMessageGroupSize)."""
DELAY_MAX_MS: Final = 24 * 3_600_000
"""Longest time until a delayed message is delivered (maxDelayTimeMills)."""
RECOVERY_MAX_S: Final = 3_600
"""Longest time in seconds before the first check of a transaction
(maxTransactionRecoverySecond)."""

MESSAGE_ID_MAX: Final = 255
"""Maximum characters of a message id, and of a host's name."""
TIME_MAX_MS: Final = 1 << 53
"""Epoch milliseconds from which the time of a message's birth is replaced by the server's."""

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_WORD: Final = (1 << 64) - 1


def check_sendable(messages: Sequence[Any], topic: TopicConfig, body_max: int, now_ms: int) -> None:
    """Raises RpcRefused for the first Message that may not be sent: first each message is checked
    by itself, then each message's type against the topic's. `body_max` is in bytes; `now_ms` is
    epoch time, the begin of a delay."""
    for message in messages:
        _check_body(message.body, body_max)
        _check_properties(message)
        _check_system(message.system_properties, now_ms)
    for message in messages:
        _check_type(message.system_properties, topic)


def _check_body(body: bytes, body_max: int) -> None:
    """Raises RpcRefused for an empty body, or a body over `body_max` bytes."""
    if not body:
        raise RpcRefused(Code.MESSAGE_BODY_EMPTY, "message body cannot be empty")
    if len(body) > body_max:
        text = f"message body cannot exceed the max {body_max}"
        raise RpcRefused(Code.MESSAGE_BODY_TOO_LARGE, text)


def _check_properties(message: Any) -> None:
    """Raises RpcRefused for properties, tag or keys of a Message that clients may not set, or
    that are too large."""
    user, system = message.user_properties, message.system_properties
    if len(user) > USER_PROPERTIES_MAX:
        text = f"{len(user)} user properties, over {USER_PROPERTIES_MAX}"
        raise RpcRefused(Code.MESSAGE_PROPERTIES_TOO_LARGE, text)
    size = len(system.tag.encode()) + sum(len(key.encode()) for key in system.keys)
    for key, value in user.items():
        if key in names.RESERVED:
            text = f"property is used by system: {key}"
            raise RpcRefused(Code.ILLEGAL_MESSAGE_PROPERTY_KEY, text)
        if _CONTROL.search(key) or _CONTROL.search(value) or not key:
            text = "the key and the value of a property cannot have control characters"
            raise RpcRefused(Code.ILLEGAL_MESSAGE_PROPERTY_KEY, text)
        size += len(key.encode()) + len(value.encode())
    _check_tag(system)
    for key in system.keys:
        if not key.strip() or _CONTROL.search(key):
            text = "a key cannot be blank nor have control characters"
            raise RpcRefused(Code.ILLEGAL_MESSAGE_KEY, text)
    if size > PROPERTIES_SIZE_MAX:
        text = f"properties of {size} bytes, over {PROPERTIES_SIZE_MAX}"
        raise RpcRefused(Code.MESSAGE_PROPERTIES_TOO_LARGE, text)


def _check_tag(system: Any) -> None:
    """Raises RpcRefused for a tag of SystemProperties that is blank or has invalid characters."""
    if not system.HasField("tag"):
        return
    tag = system.tag
    if not tag.strip() or "|" in tag or _CONTROL.search(tag):
        text = "a tag cannot be blank nor have | or control characters"
        raise RpcRefused(Code.ILLEGAL_MESSAGE_TAG, text)


def _check_system(system: Any, now_ms: int) -> None:
    """Raises RpcRefused for an invalid message id, time, message group or trace context in
    SystemProperties; `now_ms` is epoch time."""
    message_id = system.message_id
    if not message_id.strip() or len(message_id) > MESSAGE_ID_MAX or _CONTROL.search(message_id):
        text = f"a message id has 1 to {MESSAGE_ID_MAX} characters that can be printed"
        raise RpcRefused(Code.ILLEGAL_MESSAGE_ID, text)
    if system.orphaned_transaction_recovery_duration.seconds > RECOVERY_MAX_S:
        text = f"the recovery duration of a transaction cannot exceed {RECOVERY_MAX_S} s"
        raise RpcRefused(Code.BAD_REQUEST, text)
    if _timestamp_ms(system.delivery_timestamp) - now_ms > DELAY_MAX_MS:
        text = f"the max delay time of a message cannot exceed {DELAY_MAX_MS} ms"
        raise RpcRefused(Code.ILLEGAL_DELIVERY_TIME, text)
    if system.HasField("message_group"):
        group = system.message_group
        if not group.strip() or len(group.encode()) > GROUP_SIZE_MAX or _CONTROL.search(group):
            text = f"a message group has 1 to {GROUP_SIZE_MAX} bytes, no control characters"
            raise RpcRefused(Code.ILLEGAL_MESSAGE_GROUP, text)
    if _CONTROL.search(system.trace_context):
        raise RpcRefused(Code.BAD_REQUEST, "a trace context cannot have control characters")


def _check_type(system: Any, topic: TopicConfig) -> None:
    """Raises RpcRefused unless the topic accepts the message's type."""
    if system.HasField("lite_topic") or system.HasField("priority"):
        raise RpcRefused(Code.NOT_IMPLEMENTED, "light topics and priorities are not supported")
    expected, actual = type_of(topic), kind_of(system).name
    if expected not in (actual, MIXED):
        text = (
            "TopicMessageType validate failed, the expected type is"
            f" {expected}, but actual type is {actual}"
        )
        raise RpcRefused(Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, text)


def kind_of(system: Any) -> MessageType:
    """Return the type of a message by the fields of its SystemProperties; the client's own type
    counts for transactions alone. A message with a delivery time and a message group is DELAY."""
    if system.message_type == MessageType.TRANSACTION:
        return MessageType.TRANSACTION
    if system.HasField("delivery_timestamp"):
        return MessageType.DELAY
    return MessageType.FIFO if system.HasField("message_group") else MessageType.NORMAL


def queue_of_group(message_group: str, queues: int) -> int:
    """The queue id, below `queues`, for a message group: the same for every client and server,
    RocketMQ's proxy included."""
    return consistent_hash(java_hash(message_group.encode()), queues)


def send_fields(message: Any, queue_id: int, address: str, now_ms: int) -> dict[str, str]:
    """The header of SEND_MESSAGE_V2, whose members have names of a single letter, for a Message.
    `address` is the client's `ip:port`, used if the message names no host; `now_ms` is epoch time,
    used if the message has no valid time of birth."""
    topic, system = message.topic.name, message.system_properties
    born_ms = _timestamp_ms(system.born_timestamp)
    if not 0 < born_ms < TIME_MAX_MS:
        born_ms = now_ms
    properties = _record_properties(message, born_ms, address)
    return {
        "a": topic,
        "b": topic,
        "c": AUTO_CREATE_TOPIC,
        "d": "4",
        "e": str(queue_id),
        "f": "0",
        "g": str(born_ms),
        "h": "0",
        "i": "".join([f"{name}\x01{value}\x02" for name, value in properties.items()]),
    }


def stored_body(message: Any, body_max: int) -> bytes:
    """The body of a Message as it is stored: a gzip body is decompressed, because remoting's
    consumers do not support that format here. Raises RpcRefused for bytes that are not gzip, and
    for an empty body or a body over `body_max` bytes after decompression."""
    body: bytes = message.body
    if message.system_properties.body_encoding != Encoding.GZIP:
        return body
    unpacking = zlib.decompressobj(wbits=31)
    try:
        unpacked = unpacking.decompress(body, body_max + 1)
    except zlib.error as error:
        raise RpcRefused(Code.MESSAGE_CORRUPTED, f"a body is not gzip: {error}") from None
    _check_body(unpacked, body_max)
    if not unpacking.eof or unpacking.unused_data:
        raise RpcRefused(Code.MESSAGE_CORRUPTED, "a body does not end where its gzip does")
    return unpacked


def _record_properties(message: Any, born_ms: int, address: str) -> dict[str, str]:
    """Return the properties of the stored record for a Message; `born_ms` is epoch ms, `address`
    the client's `ip:port`."""
    system = message.system_properties
    properties: dict[str, str] = dict(message.user_properties)
    if system.HasField("tag"):
        properties[names.TAGS] = system.tag
    if system.keys:
        properties[names.KEYS] = names.KEY_SEPARATOR.join(system.keys)
    properties[names.UNIQ_KEY] = system.message_id
    properties[names.WAIT] = "true"
    properties[names.PGROUP] = message.topic.name
    if system.message_type == MessageType.TRANSACTION:
        properties[names.TRAN_MSG] = "true"
        recovery_s = system.orphaned_transaction_recovery_duration.seconds
        if recovery_s > 0:
            properties[names.CHECK_IMMUNITY_TIME] = str(recovery_s)
    if system.HasField("delivery_timestamp"):
        properties[names.TIMER_DELIVER_MS] = str(max(1, _timestamp_ms(system.delivery_timestamp)))
    if system.HasField("message_group"):
        properties[names.SHARDING_KEY] = system.message_group
    if system.trace_context:
        properties[names.TRACE_CONTEXT] = system.trace_context
    born_host = system.born_host
    if not 0 < len(born_host) <= MESSAGE_ID_MAX or _CONTROL.search(born_host):
        born_host = address
    properties[names.BORN_HOST] = born_host
    properties[names.BORN_TIMESTAMP] = str(born_ms)
    return properties


def _timestamp_ms(timestamp: Any) -> int:
    """Return a Timestamp as epoch ms."""
    return int(timestamp.seconds) * 1_000 + int(timestamp.nanos) // 1_000_000


def consistent_hash(number: int, buckets: int) -> int:
    """The bucket, from 0 to `buckets` - 1, of a number; an added bucket moves few numbers. The
    algorithm is Lamping and Veach's, with the generator of RocketMQ's library."""
    state, candidate = number & _WORD, 0
    while True:
        state = (2_862_933_555_777_941_757 * state + 1) & _WORD
        bucket = int((candidate + 1) / (((state >> 33) + 1) / (1 << 31)))
        if bucket >= buckets:
            return candidate
        candidate = bucket
