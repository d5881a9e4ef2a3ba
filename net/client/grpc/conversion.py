"""Conversion of the public API's messages to gRPC messages and back.

Owns which field becomes which. It must never call.

Tests: tests/integration/grpc/test_messaging.py
"""

import zlib
from typing import Any, Final

from turbopump.net.client.errors import InvalidArgument
from turbopump.net.client.messages import MAX_BODY_SIZE, Message, ReceivedMessage
from turbopump.net.client.sending import check_message
from turbopump.net.grpc.codes import Encoding, MessageType
from turbopump.net.wire import properties as names

ANY_ENCODING: Final = 47
"""zlib's window bits for gzip or zlib format, detected by the first bytes: RocketMQ's proxy labels
both as gzip."""


def time_of(at_ms: int) -> dict[str, int]:
    """The fields `seconds` and `nanos` of a Timestamp (`at_ms` since 1970) or a Duration of
    `at_ms`."""
    seconds, left_ms = divmod(at_ms, 1_000)
    return {"seconds": seconds, "nanos": left_ms * 1_000_000}


def ms_of(time: Any) -> int:
    """Milliseconds of a Timestamp (since 1970) or a Duration; fractions are cut off."""
    return int(time.seconds) * 1_000 + int(time.nanos) // 1_000_000


def encode_message(message: Message, message_id: str, now_ms: int, host: str) -> dict[str, Any]:
    """The fields of a gRPC Message, uncompressed. Raises InvalidArgument for an invalid message, a
    delay_level or a flag, which gRPC cannot carry.

    `now_ms` (epoch milliseconds) is the born timestamp, and the start of delay_ms; `host` is the
    name of this machine.
    """
    check_message(message)
    if message.delay_level:
        raise InvalidArgument("gRPC knows no levels of delay: delay_ms or deliver_at_ms")
    if message.flag:
        raise InvalidArgument("gRPC carries no flag along")
    system: dict[str, Any] = {
        "message_id": message_id,
        "keys": list(message.keys),
        "body_encoding": Encoding.IDENTITY,
        "message_type": MessageType.NORMAL,
        "born_timestamp": time_of(now_ms),
        "born_host": host,
    }
    if message.tags:
        system["tag"] = message.tags
    if message.sharding_key:
        system["message_group"] = message.sharding_key
        system["message_type"] = MessageType.FIFO
    due_ms = message.deliver_at_ms or (now_ms + message.delay_ms if message.delay_ms else 0)
    if due_ms:
        system["delivery_timestamp"] = time_of(due_ms)
        system["message_type"] = MessageType.DELAY
    return {
        "topic": {"name": message.topic},
        "user_properties": dict(message.properties),
        "system_properties": system,
        "body": bytes(message.body),
    }


def decode_message(given: Any, broker_name: str) -> ReceivedMessage:
    """Convert `given`, a gRPC Message, to a ReceivedMessage; its receipt becomes the property
    POP_CK. Record fields that gRPC does not carry (log offset, flags, sizes and checksums) are
    0, `offset_message_id` is "". Raises ValueError for a body that cannot be decompressed, or is
    larger than MAX_BODY_SIZE."""
    system, properties = given.system_properties, dict(given.user_properties)
    keys = tuple(system.keys)
    properties[names.UNIQ_KEY] = system.message_id
    properties[names.POP_CK] = system.receipt_handle
    if system.tag:
        properties[names.TAGS] = system.tag
    if keys:
        properties[names.KEYS] = names.KEY_SEPARATOR.join(keys)
    if system.message_group:
        properties[names.SHARDING_KEY] = system.message_group
    topic = given.topic.name
    return ReceivedMessage(
        topic=topic,
        body=_decompress_body(given),
        tags=system.tag,
        keys=keys,
        properties=properties,
        flag=0,
        message_id=system.message_id,
        offset_message_id="",
        broker_name=broker_name,
        queue_id=system.queue_id,
        queue_offset=system.queue_offset,
        log_offset=0,
        sys_flag=0,
        born_timestamp_ms=ms_of(system.born_timestamp),
        born_host=system.born_host,
        store_timestamp_ms=ms_of(system.store_timestamp),
        store_host=system.store_host,
        reconsume_times=max(0, system.delivery_attempt - 1),
        prepared_transaction_offset=0,
        body_crc=0,
        store_size=0,
        stored_topic=topic,
    )


def _decompress_body(given: Any) -> bytes:
    """Return the body of a gRPC Message without its compression; raises ValueError."""
    body: bytes = given.body
    if given.system_properties.body_encoding != Encoding.GZIP:
        return body
    unpacking = zlib.decompressobj(wbits=ANY_ENCODING)
    try:
        plain = unpacking.decompress(body, MAX_BODY_SIZE + 1)
    except zlib.error as error:
        raise ValueError(f"a body cannot be unpacked: {error}") from None
    if len(plain) > MAX_BODY_SIZE or not unpacking.eof:
        raise ValueError("a body cannot be unpacked: it does not end, or is too large")
    return plain
