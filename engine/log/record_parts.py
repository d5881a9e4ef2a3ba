"""Limits of records before they are written, and property texts without a CRC.

Owns the checks of bytes that senders sent. It must never write anything.

Tests: tests/unit/engine/log/test_commit_log.py
"""

from turbopump.engine.config import StoreConfig
from turbopump.engine.types import (
    RETRY_PREFIX,
    Appended,
    Buffer,
    NewMessage,
    PutStatus,
)
from turbopump.pyx.record import MAX_PROPERTIES, count_batch

CRC_PROPERTY = b"__CRC32#"
CRC_RESERVED = 20
"""Bytes of `__CRC32#` 0x01 ten digits 0x02 (RocketMQ: CommitLog.CRC32_RESERVED_LEN), and of a
separator that may have to be added before it."""
BATCH_ELEMENT_FIXED = 22
"""Bytes of an element of a batch body without body and properties (remoting.md 9.4)."""

V1_TOPIC_MAX = 127
"""Longest topic of a V1 record, with a one-byte length, which every client reads (store.md 3)."""
RETRY_TOPIC_MAX = 255
"""HookUtils: longest name of a retry topic, in bytes; other topics must be shorter."""


def refusal(
    config: StoreConfig, message: NewMessage, topic: bytes, properties: bytes
) -> Appended | None:
    """Refusal of a message over the limits of store.md 4 (RocketMQ: HookUtils, MessageExtEncoder);
    None if it keeps them."""
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
    """Bytes of the records of a batch body; `fixed` is the size of a record without body and
    properties.

    Raises ValueError for a malformed body, and for more elements than a batch may have.
    """
    count, payload = count_batch(batch)
    return count * fixed + payload


def without_crc(properties: bytes) -> bytes:
    """The properties text without a `__CRC32#` that a sender put in."""
    if CRC_PROPERTY not in properties:
        return properties
    kept = [
        pair
        for pair in properties.split(b"\x02")
        if pair and pair.split(b"\x01")[0] != CRC_PROPERTY
    ]
    return b"".join(pair + b"\x02" for pair in kept)
