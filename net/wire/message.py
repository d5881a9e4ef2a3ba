"""Stored records as clients receive them, and the body of a batch as clients send it.

Owns the decoding of pull and query responses: decompression, inner batches, properties. It must
never touch a store: the broker passes records on without decoding them. Consumers and the admin
client decode, producers encode.
"""

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from turbopump.engine.compression import BadCompression, CompressionMissing, plain_body
from turbopump.engine.types import Buffer, LogOffset, QueueOffset
from turbopump.net.wire.bodies import BadBody
from turbopump.net.wire.message_id import encode_message_id
from turbopump.net.wire.properties import INNER_BASE, UNIQ_KEY, decode_properties
from turbopump.pyx.record import Record, decode
from turbopump.pyx.region import Region

# Bits of a message's sys_flag (RocketMQ: MessageSysFlag).
MULTI_TAGS_FLAG: Final = 0x2
"""Bit of sys_flag: the message may have several tags."""
TRANSACTION_MASK: Final = 0xC
"""Bits of sys_flag for the state of a transaction; 0: the message has no transaction."""
TRANSACTION_PREPARED: Final = 0x4
"""Value under TRANSACTION_MASK: a half message, which no consumer receives."""
TRANSACTION_COMMIT: Final = 0x8
"""Value under TRANSACTION_MASK: a committed message."""
TRANSACTION_ROLLBACK: Final = 0xC
"""Value under TRANSACTION_MASK: a message rolled back."""
NEED_UNWRAP_FLAG: Final = 0x40
"""Bit of sys_flag: readers must unwrap the inner batch."""
INNER_BATCH_FLAG: Final = 0x80
"""Bit of sys_flag: the body is a batch of messages."""

_ELEMENT_HEAD: Final = struct.Struct(">iiiii")
_INT16_MAX: Final = 0x7FFF
_INT32_MAX: Final = 0x7FFFFFFF
_OFFSET_DIGITS: Final = 18  # always fit an int64


class BodyChanged(BadBody):
    """A body whose CRC differs from its record's: damaged on a disk or in transit."""


@dataclass(slots=True)
class MessageView:
    """A stored message. Hosts are packed (net/wire/hosts.py), timestamps epoch milliseconds, `body`
    is decompressed, `size` is the bytes of its record, `body_crc` the CRC of the body as stored."""

    topic: str
    queue_id: int
    queue_offset: QueueOffset
    log_offset: LogOffset
    size: int
    body_crc: int
    flag: int
    sys_flag: int
    born_timestamp_ms: int
    born_host: bytes
    store_timestamp_ms: int
    store_host: bytes
    reconsume_times: int
    prepared_transaction_offset: int
    body: bytes
    properties: dict[str, str]

    @property
    def offset_message_id(self) -> str:
        """The broker's id of the message: hex text of its store host and log offset."""
        return encode_message_id(self.store_host, self.log_offset)

    @property
    def message_id(self) -> str:
        """The client's id if the message has one, else the broker's."""
        return self.properties.get(UNIQ_KEY) or self.offset_message_id


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A message with an unreadable body, which is as stored, and the error."""

    message: MessageView
    error: BadBody | CompressionMissing


def reconsume_times_after(reconsume_times: int, more: int = 1) -> int:
    """Compute reconsumeTimes after `more` attempts, at most the largest int of 32 bits: a producer
    may set the number to that, and Java's would become negative."""
    return min(reconsume_times + more, _INT32_MAX)


def decode_messages(body: Buffer, *, check_crc: bool = True) -> list[MessageView]:
    """Decode the messages of concatenated records, in their order, inner batches unwrapped
    (RocketMQ: MessageDecoder.decodesBatch).

    Raises BadBody for bytes that are no record, for a body whose CRC differs (if checked) or that
    cannot be decompressed, and CompressionMissing.
    """
    messages: list[MessageView] = []
    for found in decode_each(body, check_crc=check_crc):
        if isinstance(found, Unreadable):
            raise found.error
        messages.append(found)
    return messages


def decode_each(body: Buffer, *, check_crc: bool = True) -> Iterator[MessageView | Unreadable]:
    """Decode like `decode_messages`, record by record while the caller iterates; a message with an
    unreadable body becomes an Unreadable.

    Raises BadBody, after the records before, for bytes that are no record, because the start of the
    next record is then unknown.
    """
    region = Region(body)
    position = 0
    while position < region.size:
        try:
            record = decode(region, position, region.size)
        except ValueError as error:
            raise BadBody(f"no record at byte {position}: {error}") from None
        position += record.size
        message = _to_view(record)
        try:
            if check_crc and not record.crc_ok:
                raise BodyChanged(
                    f"the body of the record at log offset {record.physical_offset} changed"
                )
            message.body = decompress_body(record.sys_flag, record.body)
            wrapped = record.sys_flag & NEED_UNWRAP_FLAG and record.sys_flag & INNER_BATCH_FLAG
            readable = list(_inner_messages(message)) if wrapped else [message]
        except (BadBody, CompressionMissing) as error:
            yield Unreadable(message, error)
        else:
            yield from readable


def encode_batch(elements: Iterable[tuple[int, Buffer, bytes]]) -> bytes:
    """Encode the body of SEND_BATCH_MESSAGE from (flag, body, encoded properties) elements.

    Each is size, magic 0, CRC 0, flag, body size, body, int16 size, properties. Raises ValueError
    for properties over 32,767 bytes.
    """
    pieces: list[Buffer] = []
    for flag, body, properties in elements:
        if len(properties) > _INT16_MAX:
            raise ValueError(f"properties of {len(properties)} bytes exceed {_INT16_MAX}")
        size = _ELEMENT_HEAD.size + len(body) + 2 + len(properties)
        pieces.append(_ELEMENT_HEAD.pack(size, 0, 0, flag, len(body)))
        pieces += (body, len(properties).to_bytes(2, "big"), properties)
    return b"".join(pieces)


def decode_batch(body: Buffer, strict: bool = False) -> Iterator[tuple[int, bytes, bytes]]:
    """Decode a batch body into (flag, body, encoded properties) elements, one by one while the
    caller iterates; raises BadBody at a malformed element.

    An element's own size is ignored, as in RocketMQ, which stored any value; the body bounds each
    element. With `strict`, for batches that arrive now, a wrong size is malformed.
    """
    view = memoryview(body)
    at, end = 0, len(view)
    while at < end:
        at += _ELEMENT_HEAD.size
        if at > end:
            raise BadBody(f"a batch ends inside an element at byte {end}")
        claimed, _, _, flag, size = _ELEMENT_HEAD.unpack_from(view, at - _ELEMENT_HEAD.size)
        properties_at = at + size + 2
        if size < 0 or properties_at > end:
            raise BadBody(f"a batch has an element of {size} bytes, {end - at} left")
        properties_size = int.from_bytes(view[at + size : properties_at], "big", signed=True)
        if not 0 <= properties_size <= end - properties_at:
            raise BadBody(f"a batch has properties of {properties_size} bytes")
        element_end = properties_at + properties_size
        if strict and claimed != element_end - at + _ELEMENT_HEAD.size:
            raise BadBody(f"a batch has an element with the size {claimed}")
        yield flag, bytes(view[at : at + size]), bytes(view[properties_at:element_end])
        at = element_end


def decompress_body(sys_flag: int, body: bytes) -> bytes:
    """Decompress a body by the compression bits of its sys_flag; an uncompressed body is returned
    as it is. Raises BadBody, or CompressionMissing if the method's package is not installed."""
    try:
        return plain_body(sys_flag, body)
    except BadCompression as error:
        raise BadBody(str(error)) from None


def _to_view(record: Record) -> MessageView:
    """Convert a record to a MessageView, whose body is as stored."""
    return MessageView(
        topic=str(record.topic, "utf-8", "replace"),
        queue_id=record.queue_id,
        queue_offset=QueueOffset(record.queue_offset),
        log_offset=LogOffset(record.physical_offset),
        size=record.size,
        body_crc=record.body_crc,
        flag=record.flag,
        sys_flag=record.sys_flag,
        born_timestamp_ms=record.born_timestamp_ms,
        born_host=record.born_host,
        store_timestamp_ms=record.store_timestamp_ms,
        store_host=record.store_host,
        reconsume_times=record.reconsume_times,
        prepared_transaction_offset=record.prepared_transaction_offset,
        body=record.body,
        properties=decode_properties(record.properties),
    )


def _inner_messages(batch: MessageView) -> Iterator[MessageView]:
    """Yield the messages of an inner batch; their queue offsets count from INNER_BASE."""
    base = batch.properties.get(INNER_BASE, "")
    is_offset = base.isascii() and base.isdigit() and len(base) <= _OFFSET_DIGITS
    first = int(base) if is_offset else batch.queue_offset
    for number, (flag, body, properties) in enumerate(decode_batch(batch.body)):
        yield replace(
            batch,
            queue_offset=QueueOffset(first + number),
            flag=flag,
            body=body,
            properties=decode_properties(properties),
        )
