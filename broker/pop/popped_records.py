"""The records of a pop in the form that the consumer receives.

A record of a retry topic is rewritten: the consumer sees the topic that it popped, and the handle
as a property (RocketMQ: PopMessageProcessor.popMsgFromQueue). Records of the topic itself are never
copied.

Tests: tests/unit/broker/handlers/pop/test_pops.py
"""

from typing import Final

from turbopump.broker.pop.popping import Popped, PopQuery, QueueBatch
from turbopump.broker.pop.retries import PROPERTIES_MAX
from turbopump.engine.log.record_parts import encode_copy, records_in
from turbopump.engine.types import QueueOffset
from turbopump.net.wire import properties as names
from turbopump.net.wire.pop_handles import PopHandle, RetryKind
from turbopump.net.wire.properties import (
    NAME_VALUE_SEPARATOR,
    PROPERTY_SEPARATOR,
    decode_properties,
    encode_properties,
)

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
    """Return the records of a queue as encoded messages: for the topic itself `taken.slices`,
    slices of the log with any number of records each; for a retry topic one rewritten record per
    element. The order is that of the queue."""
    if taken.kind is RetryKind.NORMAL:
        return taken.slices
    made = []
    for piece in taken.slices:
        for record in records_in(piece):
            handle = PopHandle(
                start=taken.start,
                pop_time_ms=popped.pop_time_ms,
                invisible_ms=query.invisible_ms,
                revive_queue_id=popped.revive_queue_id,
                kind=taken.kind,
                broker_name=broker_name,
                queue_id=taken.queue.queue_id,
                queue_offset=QueueOffset(record.queue_offset),
            )
            properties = _with_handle(record.properties, handle.text())
            made.append(encode_copy(record, query.topic.encode(), properties))
    return made


def _with_handle(known: bytes, handle: str) -> bytes:
    """Return the encoded properties `known` with the handle added. If they become too long,
    properties of the broker are dropped: a client cannot read an answer with longer ones."""
    separator = PROPERTY_SEPARATOR.encode()
    if known and not known.endswith(separator):
        known += separator
    own = f"{names.POP_CK}{NAME_VALUE_SEPARATOR}{handle}{PROPERTY_SEPARATOR}".encode()
    if len(known) + len(own) <= PROPERTIES_MAX:
        return known + own
    kept = decode_properties(known)
    for name in _NOT_NEEDED:
        kept.pop(name, None)
        known = encode_properties(kept)
        if len(known) + len(own) <= PROPERTIES_MAX:
            return known + own
    return own
