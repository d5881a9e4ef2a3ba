"""What records are made of, before they are written: the size of a batch's, texts without a CRC.

Owns what is said of bytes that senders sent. It must never write anything. Called by the commit
log.
"""

from turbopump.engine.types import Buffer
from turbopump.pyx.record import count_batch

CRC_PROPERTY = b"__CRC32#"
CRC_RESERVED = 20
"""`__CRC32#` 0x01 ten digits 0x02 (RocketMQ: CommitLog.CRC32_RESERVED_LEN), and a separator that
may have to be added before it."""
BATCH_ELEMENT_FIXED = 22
"""An element of a batch body without body and properties (remoting.md 9.4)."""


def batch_records_size(batch: Buffer, fixed: int) -> int:
    """Bytes of the records of a batch body; `fixed` is a record without body and properties.

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
