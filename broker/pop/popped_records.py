"""The records of a pop in the form that the consumer receives.

A record of a retry topic is rewritten: the consumer sees the topic that it popped, and the handle
as a property (RocketMQ: PopMessageProcessor.popMsgFromQueue). Records of the topic itself are never
copied.

Tests: tests/unit/broker/handlers/pop/test_pops.py
"""

import struct
from typing import Final

from turbopump.broker.pop.popping import Popped, PopQuery, QueueBatch
from turbopump.broker.pop.retries import PROPERTIES_MAX
from turbopump.net.wire import properties as names
from turbopump.net.wire.pop_handles import PopHandle, RetryKind
from turbopump.net.wire.properties import (
    NAME_VALUE_SEPARATOR,
    PROPERTY_SEPARATOR,
    decode_properties,
    encode_properties,
)
from turbopump.pyx.record import V1, V2

_SYS_FLAG_AT: Final = 36
_BORN_V6, _STORE_V6 = 0x10, 0x20
_HEAD: Final = 84
"""Size in bytes of a record's head with two IPv4 hosts, up to the body's length."""

_NOT_NEEDED: Final = (
    names.CRC32,
    names.CLUSTER,
    names.MSG_REGION,
    names.TRACE_ON,
    names.FIRST_POP_TIME,
    names.ORIGIN_GROUP,
    names.UNIQ_KEY,
)


def records_of(
    taken: QueueBatch, popped: Popped, query: PopQuery, broker_name: str
) -> list[memoryview]:
    """Return the records of a queue: slices of the log, or rewritten records of a retry topic."""
    if taken.kind is RetryKind.NORMAL:
        return taken.slices
    made, number = [], 0
    for piece in taken.slices:
        position = 0
        while position < len(piece):
            size = int.from_bytes(piece[position : position + 4], "big")
            handle = PopHandle(
                start=taken.start,
                pop_time_ms=popped.pop_time_ms,
                invisible_ms=query.invisible_ms,
                revive_queue_id=popped.revive_queue_id,
                kind=taken.kind,
                broker_name=broker_name,
                queue_id=taken.queue.queue_id,
                queue_offset=taken.offsets[number],
            )
            record = piece[position : position + size]
            made.append(memoryview(of_topic(record, query.topic, handle.text())))
            position += size
            number += 1
    return made


def of_topic(record: memoryview, topic: str, handle: str) -> bytes:
    """Rewrite a record for another topic, with the handle as a property. Its CRCs and its place
    are not changed."""
    sys_flag = int.from_bytes(record[_SYS_FLAG_AT : _SYS_FLAG_AT + 4], "big")
    body_at = _HEAD + 12 * bool(sys_flag & _BORN_V6) + 12 * bool(sys_flag & _STORE_V6)
    topic_at = body_at + 4 + int.from_bytes(record[body_at : body_at + 4], "big")
    magic = int.from_bytes(record[4:8], "big", signed=True)
    wide = 2 if magic == V2 else 1
    topic_size = int.from_bytes(record[topic_at : topic_at + wide], "big")
    properties_at = topic_at + wide + topic_size
    size = int.from_bytes(record[properties_at : properties_at + 2], "big")
    properties = _with_handle(record[properties_at + 2 : properties_at + 2 + size], handle)
    name = topic.encode()
    short = len(name) < 128
    behind = struct.pack(">B" if short else ">H", len(name)) + name
    behind += struct.pack(">H", len(properties)) + properties
    head = struct.pack(">ii", topic_at + len(behind), V1 if short else V2)
    return head + bytes(record[8:topic_at]) + behind


def _with_handle(properties: memoryview, handle: str) -> bytes:
    """Add the handle to properties. If they become too long, properties of the broker are dropped:
    a client cannot read an answer with longer ones."""
    known = bytes(properties)
    separator = PROPERTY_SEPARATOR.encode()
    if known and not known.endswith(separator):
        known += separator
    own = f"{names.POP_CK}{NAME_VALUE_SEPARATOR}{handle}{PROPERTY_SEPARATOR}".encode()
    if len(known) + len(own) <= PROPERTIES_MAX:
        return known + own
    kept = decode_properties(properties)
    for name in _NOT_NEEDED:
        kept.pop(name, None)
        known = encode_properties(kept)
        if len(known) + len(own) <= PROPERTIES_MAX:
            return known + own
    return own
