"""Conversion of a stored message to the gRPC Message for consumers and checked producers.

Owns which property becomes which field (RocketMQ: GrpcConverter). It must never decide which client
receives a message.

Bodies are sent uncompressed: some gRPC clients cannot decompress the formats that remoting's
producers use.

Tests: tests/unit/net/messaging/test_receiving.py
"""

import hashlib
from functools import lru_cache
from typing import Any, Final

from turbopump.net.grpc.codes import DigestType, Encoding, MessageType
from turbopump.net.grpc.messages import message_class
from turbopump.net.wire import hosts
from turbopump.net.wire import properties as names
from turbopump.net.wire.message import MessageView

_Message: Final = message_class("Message")
_DIGITS_MAX: Final = 15


def message_of(view: MessageView, receipt_handle: str = "", attempt: int = 1) -> Any:
    """A new message Message with the record's content and an uncompressed body. Without a receipt
    handle it cannot be settled. `attempt` is the number of its deliveries, this delivery
    included."""
    properties = view.properties
    made = _Message(
        topic={"name": view.topic},
        user_properties={
            name: value for name, value in properties.items() if name not in names.RESERVED
        },
        body=view.body,
    )
    system = made.system_properties
    if names.TAGS in properties:
        system.tag = properties[names.TAGS]
    if names.KEYS in properties:
        system.keys.extend(properties[names.KEYS].split())
    system.message_id = view.message_id
    system.body_digest.type = DigestType.MD5
    system.body_digest.checksum = hashlib.md5(view.body, usedforsecurity=False).hexdigest().upper()
    system.body_encoding = Encoding.IDENTITY
    system.message_type = _type_of(properties)
    set_ms(system.born_timestamp, view.born_timestamp_ms)
    system.born_host = properties.get(names.BORN_HOST) or _address(view.born_host)
    set_ms(system.store_timestamp, view.store_timestamp_ms)
    system.store_host = _address(view.store_host)
    due = properties.get(names.TIMER_DELIVER_MS, "")
    if due.isascii() and due.isdigit() and len(due) <= _DIGITS_MAX:
        set_ms(system.delivery_timestamp, int(due))
    if receipt_handle:
        system.receipt_handle = receipt_handle
    system.queue_id = view.queue_id
    system.queue_offset = view.queue_offset
    system.delivery_attempt = attempt
    if names.SHARDING_KEY in properties:
        system.message_group = properties[names.SHARDING_KEY]
    if names.TRACE_CONTEXT in properties:
        system.trace_context = properties[names.TRACE_CONTEXT]
    if names.DLQ_ORIGIN_TOPIC in properties and names.DLQ_ORIGIN_MESSAGE_ID in properties:
        system.dead_letter_queue.topic = properties[names.DLQ_ORIGIN_TOPIC]
        system.dead_letter_queue.message_id = properties[names.DLQ_ORIGIN_MESSAGE_ID]
    return made


def set_ms(timestamp: Any, at_ms: int) -> None:
    """Write `at_ms` into a Timestamp (epoch milliseconds) or a Duration, in place."""
    timestamp.seconds, left_ms = divmod(at_ms, 1_000)
    timestamp.nanos = left_ms * 1_000_000


def _type_of(properties: dict[str, str]) -> MessageType:
    """Return the gRPC message type that a stored message's properties imply."""
    if properties.get(names.TRAN_MSG) == "true":
        return MessageType.TRANSACTION
    if names.TIMER_DELIVER_MS in properties or properties.get(names.DELAY, "0") != "0":
        return MessageType.DELAY
    return MessageType.FIFO if names.SHARDING_KEY in properties else MessageType.NORMAL


@lru_cache(1_024)
def _address(packed: bytes) -> str:
    """Return a packed host as `ip:port`."""
    return hosts.unpack_host(packed)
