"""Limits of records before they are written, property texts without a CRC, and records in memory.

Owns the checks of bytes that senders sent, and the change of a record for a peer. It must never
write to a store.

Tests: tests/unit/engine/log/test_commit_log.py
"""

from collections.abc import Iterator
from typing import Any

from turbopump.engine.config import StoreConfig
from turbopump.engine.types import (
    RETRY_PREFIX,
    Appended,
    Buffer,
    NewMessage,
    PutStatus,
)
from turbopump.pyx.record import (
    FILLER_SIZE,
    MAX_PROPERTIES,
    V1,
    V2,
    Record,
    append,
    count_batch,
    decode,
    record_size,
)
from turbopump.pyx.region import Region

CRC_PROPERTY = b"__CRC32#"
"""Name of the property that holds a record's CRC (enabledAppendPropCRC)."""
CRC_RESERVED = 20
"""Bytes of `__CRC32#` 0x01 ten digits 0x02 (RocketMQ: CommitLog.CRC32_RESERVED_LEN), and of a
separator that may have to be added before it."""
BATCH_ELEMENT_FIXED = 22
"""Bytes of an element of a batch body without body and properties (remoting.md 9.4)."""

V1_TOPIC_MAX = 127
"""Longest topic of a V1 record, with a one-byte length, which every client reads (store.md 3)."""
RETRY_TOPIC_MAX = 255
"""HookUtils: longest name of a retry topic, in bytes; other topics must be shorter."""

_CRC_AT = 8
"""Position of the body's CRC in a record, after size and magic."""


def size_refusal(
    config: StoreConfig, message: NewMessage, topic: bytes, properties: bytes
) -> Appended | None:
    """Return MESSAGE_ILLEGAL or PROPERTIES_SIZE_EXCEEDED with its reason for a message over the
    limits of store.md 4 (RocketMQ: HookUtils, MessageExtEncoder); None for any other message.
    `topic` is the encoded topic, `properties` the text that will be stored."""
    longest = RETRY_TOPIC_MAX if message.topic.startswith(RETRY_PREFIX) else V1_TOPIC_MAX
    v1_overflow = len(message.topic) <= V1_TOPIC_MAX < len(topic)
    if not topic or len(topic) > longest or v1_overflow:
        reason = f"the topic has {len(topic)} bytes, allowed are 1 to {longest}"
        return Appended(PutStatus.MESSAGE_ILLEGAL, reason=reason)
    if len(message.body) > config.max_message_size and not message.is_copy:
        reason = f"the body has {len(message.body)} bytes, over {config.max_message_size}"
        return Appended(PutStatus.MESSAGE_ILLEGAL, reason=reason)
    reserved = CRC_RESERVED + 1 if config.enabled_append_prop_crc else 0
    if len(properties) + reserved > MAX_PROPERTIES:
        reason = f"the properties have {len(properties)} bytes, over {MAX_PROPERTIES}"
        return Appended(PutStatus.PROPERTIES_SIZE_EXCEEDED, reason=reason)
    return None


def batch_records_size(batch: Buffer, fixed: int) -> int:
    """Sum of the sizes in bytes of the records for a batch body; `fixed` is the size of a record
    without body and properties.

    Raises ValueError for a malformed body, and for more elements than a batch may have.
    """
    count, payload = count_batch(batch)
    return count * fixed + payload


def without_crc(properties: bytes) -> bytes:
    """The properties text (name 0x01 value 0x02 ...) without any `__CRC32#` that a sender put in;
    the same object if the text does not contain that name."""
    if CRC_PROPERTY not in properties:
        return properties
    kept = [
        pair
        for pair in properties.split(b"\x02")
        if pair and pair.split(b"\x01")[0] != CRC_PROPERTY
    ]
    return b"".join(pair + b"\x02" for pair in kept)


def records_in(piece: memoryview) -> Iterator[Record]:
    """Decode the consecutive records in a slice of the log; the `log_offset` of each is its
    position in the slice, `physical_offset` its real log offset. CRCs are not required to be right.

    Raises ValueError, when it gets there, for bytes that are no record.
    """
    region, position = Region(piece), 0
    while position < region.size:
        record = decode(region, position, region.size)
        yield record
        position += record.size


def encode_copy(record: Record, topic: bytes, properties: bytes, **changed: int) -> memoryview:
    """Encode a copy of a record, at the same log offset, with another topic and other properties;
    `changed` replaces log_offset, queue_id, queue_offset or prepared_transaction_offset. The copy
    has the stored CRC of the body, so a damaged body stays recognizable, and no CRC property of
    its own. Raises ValueError for fields that no record can hold."""
    version = V1 if len(topic) <= V1_TOPIC_MAX else V2
    body, born_host, store_host = record.body, record.born_host, record.store_host
    sizes = len(topic), len(body), len(properties), len(born_host), len(store_host)
    memory = bytearray(record_size(*sizes, version) + FILLER_SIZE)
    fields: dict[str, Any] = {
        "log_offset": record.physical_offset,
        "queue_id": record.queue_id,
        "queue_offset": record.queue_offset,
        "prepared_transaction_offset": record.prepared_transaction_offset,
        **changed,
    }
    size = append(
        Region(memory),
        0,
        len(memory),
        topic=topic,
        body=body,
        properties=properties,
        flag=record.flag,
        sys_flag=record.sys_flag,
        born_timestamp_ms=record.born_timestamp_ms,
        born_host=born_host,
        store_timestamp_ms=record.store_timestamp_ms,
        store_host=store_host,
        reconsume_times=record.reconsume_times,
        version=version,
        **fields,
    )
    assert size > 0, "the buffer has room for the record"
    memory[_CRC_AT : _CRC_AT + 4] = record.body_crc.to_bytes(4, "big", signed=True)
    return memoryview(memory)[:size]
