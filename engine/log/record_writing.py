"""Encoding of a message as a record, at a place that the log chooses.

Owns the arguments of the kernel. It must never choose the place, move the log's end or refuse a
message (record_parts.py does).

Tests: tests/unit/engine/log/test_commit_log.py
"""

from collections.abc import Callable

from turbopump.engine.config import StoreConfig
from turbopump.engine.log.record_parts import (
    BATCH_ELEMENT_FIXED,
    CRC_RESERVED,
    V1_TOPIC_MAX,
    batch_records_size,
)
from turbopump.engine.types import NewMessage, QueueOffset
from turbopump.pyx import record as kernel
from turbopump.pyx.region import Region

Write = Callable[[Region, int, int], list[int] | int]
"""Function of (memory of a log file, position in it, log offset of that position) that writes one
or more records there. Returns the size of each record in bytes, or a negative number if the file
has no room for them and a filler; then nothing was written."""


def record_writer(
    config: StoreConfig,
    message: NewMessage,
    topic: bytes,
    properties: bytes,
    queue_offset: QueueOffset,
    store_ms: int,
) -> tuple[Write, int]:
    """(function that writes the message as one record, maximum size of the record in bytes).
    `topic` is the encoded topic; `properties` are stored instead of the message's own; `store_ms`
    is in epoch ms. Raises ValueError for fields that no record can hold."""
    version = kernel.V2 if len(message.topic) > V1_TOPIC_MAX else kernel.V1

    def write(region: Region, position: int, log_offset: int) -> list[int] | int:
        size = kernel.append(
            region,
            position,
            config.mapped_file_size_commit_log,
            log_offset=log_offset,
            topic=topic,
            body=message.body,
            properties=properties,
            queue_id=message.queue_id,
            flag=message.flag,
            queue_offset=queue_offset,
            sys_flag=message.sys_flag,
            born_timestamp_ms=message.born_timestamp_ms,
            born_host=message.born_host,
            store_timestamp_ms=store_ms,
            store_host=message.store_host,
            reconsume_times=message.reconsume_times,
            prepared_transaction_offset=message.prepared_transaction_offset,
            version=version,
            property_crc=config.enabled_append_prop_crc,
        )
        return size if size < 0 else [size]

    size = kernel.record_size(
        len(topic),
        len(message.body),
        len(properties),
        len(message.born_host),
        len(message.store_host),
        version,
    )
    return write, size + CRC_RESERVED


def batch_writer(
    config: StoreConfig,
    message: NewMessage,
    topic: bytes,
    queue_offset: QueueOffset,
    store_ms: int,
) -> tuple[Write, int]:
    """(function that writes the elements of `message.body`, a batch body, as consecutive records,
    all or none; maximum size of all records in bytes). `queue_offset` is the first record's;
    `store_ms` is in epoch ms. Both the call and the function raise ValueError for a malformed
    body."""
    version = kernel.V2 if len(message.topic) > V1_TOPIC_MAX else kernel.V1

    def write(region: Region, position: int, log_offset: int) -> list[int] | int:
        return kernel.append_batch(
            region,
            position,
            config.mapped_file_size_commit_log,
            log_offset=log_offset,
            topic=topic,
            batch=message.body,
            queue_id=message.queue_id,
            queue_offset=queue_offset,
            sys_flag=message.sys_flag,
            born_timestamp_ms=message.born_timestamp_ms,
            born_host=message.born_host,
            store_timestamp_ms=store_ms,
            store_host=message.store_host,
            reconsume_times=message.reconsume_times,
            version=version,
            property_crc=config.enabled_append_prop_crc,
        )

    fixed = kernel.record_size(
        len(topic), 0, 0, len(message.born_host), len(message.store_host), version
    )
    fixed += CRC_RESERVED
    # Count the elements only if the largest possible number of them would not fit.
    size = len(message.body) + fixed * (len(message.body) // BATCH_ELEMENT_FIXED + 1)
    if size + kernel.FILLER_SIZE > config.mapped_file_size_commit_log:
        size = batch_records_size(message.body, fixed)
    return write, size
