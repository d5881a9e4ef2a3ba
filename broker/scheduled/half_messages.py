"""Records of a transaction and how each is made from the previous one (TransactionalMessageBridge).

    send -> half message -> (renewed half message ->)* committed message, rolled back, or given up

An op message lists the queue offsets of half messages that are finished. The functions here build
and read these records; they never access a store.

Tests: tests/unit/broker/scheduled/test_transactions.py, tests/golden_stores/test_transactions.py
"""

import re
from collections.abc import Iterator
from typing import Final

from turbopump.engine.log.record_parts import encode_copy
from turbopump.engine.types import LogOffset, NewMessage, QueueOffset
from turbopump.net.wire import properties as names
from turbopump.net.wire.names import GIVEN_UP_TOPIC, HALF_QUEUE_ID, HALF_TOPIC, OP_TOPIC
from turbopump.net.wire.properties import decode_properties, encode_properties
from turbopump.pyx.record import Record

DONE_TAG: Final = "d"
"""Tag of op messages; messages of OP_TOPIC with another tag are ignored."""
MAX_CHECK_TIMES: Final = 1_000_000
"""Upper bound for TRANSACTION_CHECK_TIMES, which is text in a record that another broker may have
written."""

_TRANSACTION_BITS = 0x4 | 0x8
_COMMITTED = 0x8
_INT = re.compile(r"[0-9]{1,9}", re.ASCII)
_QUEUE_OFFSET = re.compile(rb"[0-9]{1,18}")
_SECONDS = re.compile(r"[0-9]{1,12}", re.ASCII)
_OP_PROPERTIES = encode_properties({names.WAIT: "true", names.TAGS: DONE_TAG})


def target_of(properties: dict[str, str]) -> tuple[str, int] | None:
    """Return (topic, queue id) of a half message after commit, from REAL_TOPIC and REAL_QID; None
    if they are missing or malformed, or name HALF_TOPIC."""
    topic, queue = properties.get(names.REAL_TOPIC), properties.get(names.REAL_QID, "")
    if not topic or topic == HALF_TOPIC or not _INT.fullmatch(queue):
        return None
    return topic, int(queue)


def committed_properties(properties: dict[str, str]) -> dict[str, str]:
    """Return a copy of a half message's properties without REAL_TOPIC, REAL_QID and CRC32, as
    consumers receive them."""
    left = dict(properties)
    for name in (names.REAL_TOPIC, names.REAL_QID, names.CRC32):
        left.pop(name, None)
    return left


def committed_flag(sys_flag: int) -> int:
    """Return a half message's sysFlag with its transaction bits set to committed (0x8)."""
    return (sys_flag & ~_TRANSACTION_BITS) | _COMMITTED


def is_committed(sys_flag: int) -> bool:
    """Whether the transaction bits of a sysFlag mark a committed message."""
    return sys_flag & _TRANSACTION_BITS == _COMMITTED


def renewed_half(record: Record, properties: dict[str, str]) -> NewMessage:
    """Return a half message to append to HALF_TOPIC in place of `record`, with these properties."""
    return _make_copy(record, HALF_TOPIC, properties)


def half_for_other_master(record: Record, properties: dict[str, str]) -> NewMessage | None:
    """Return the half message of a record for another master, in the form in which a producer sends
    it: with its real topic and queue id. None if it has no target."""
    where = target_of(properties)
    if where is None:
        return None
    left = committed_properties(properties)
    for name in (names.TRANSACTION_ID, names.TRAN_PREPARED_QUEUE_OFFSET):
        left.pop(name, None)
    message = _make_copy(record, where[0], left)
    message.queue_id = where[1]
    return message


def given_up_message(record: Record, properties: dict[str, str]) -> NewMessage:
    """Return the message to append to GIVEN_UP_TOPIC for a half message that is not checked
    again."""
    return _make_copy(record, GIVEN_UP_TOPIC, properties)


def _make_copy(record: Record, topic: str, properties: dict[str, str]) -> NewMessage:
    """Make a copy of a record for a topic of transactions, with these properties but without
    CRC32."""
    kept = {name: value for name, value in properties.items() if name != names.CRC32}
    return NewMessage(
        topic=topic,
        queue_id=HALF_QUEUE_ID,
        body=record.body,
        properties=encode_properties(kept),
        flag=record.flag,
        sys_flag=record.sys_flag & ~_TRANSACTION_BITS,
        born_timestamp_ms=record.born_timestamp_ms,
        born_host=record.born_host,
        store_host=record.store_host,
        reconsume_times=record.reconsume_times,
        is_copy=True,
    )


def op_message(body: bytes, now_ms: int, host: bytes) -> NewMessage:
    """Return a message for OP_TOPIC. `body` contains the queue offsets of finished half messages,
    each followed by a comma (TransactionalOpBatchService); `now_ms` (epoch ms) is its born time and
    `host` its packed born and store address."""
    return NewMessage(
        topic=OP_TOPIC,
        queue_id=HALF_QUEUE_ID,
        body=body,
        properties=_OP_PROPERTIES,
        born_timestamp_ms=now_ms,
        born_host=host,
        store_host=host,
    )


def read_op(record: Record) -> Iterator[QueueOffset]:
    """Yield the queue offsets of half messages that an op message lists; other text is skipped, and
    a record without DONE_TAG yields nothing. RocketMQ 4 writes a single offset without a comma."""
    if decode_properties(record.properties).get(names.TAGS) != DONE_TAG:
        return
    for text in record.body.split(b","):
        if _QUEUE_OFFSET.fullmatch(text):
            yield QueueOffset(int(text))


def check_times(properties: dict[str, str]) -> int:
    """Return how often the producer of a half message was asked (TRANSACTION_CHECK_TIMES); 0 for
    malformed text, at most MAX_CHECK_TIMES."""
    text = properties.get(names.TRANSACTION_CHECK_TIMES, "")
    return min(int(text), MAX_CHECK_TIMES) if _INT.fullmatch(text) else 0


def immunity_ms(properties: dict[str, str]) -> int | None:
    """Return for how many ms after its birth a half message is not checked (CHECK_IMMUNITY_TIME, in
    s); None for the broker's default.

    As in RocketMQ (getImmunityTime), -1 and text that is not a number also mean the default.
    """
    text = properties.get(names.CHECK_IMMUNITY_TIME, "")
    return int(text) * 1_000 if _SECONDS.fullmatch(text) else None


def as_committed(
    record: Record, log_offset: LogOffset, queue_offset: QueueOffset, properties: dict[str, str]
) -> bytes:
    """Return the encoded record sent to a producer with a check: the half message in its committed
    form, with its real topic and queue id. It must have a target.

    `log_offset` and `queue_offset` belong to the half message.
    """
    where = target_of(properties)
    assert where is not None, "a half message without a target is not checked"
    made = encode_copy(
        record,
        where[0].encode(),
        encode_properties(properties),
        log_offset=log_offset,
        queue_id=where[1],
        queue_offset=queue_offset,
        prepared_transaction_offset=0,
    )
    return bytes(made)


def same_body(record: Record, other: Record) -> bool:
    """Whether two records with equal unique keys belong to one transaction: equal born time, born
    host, body length and CRC. A program may send a message object again, with the same key."""
    return (
        record.born_timestamp_ms == other.born_timestamp_ms
        and record.born_host == other.born_host
        and record.body_crc == other.body_crc
        and len(record.body) == len(other.body)
    )


def unique_key(properties: dict[str, str]) -> str:
    """Return the key under which all records of a transaction are indexed; "" if it has no key."""
    return properties.get(names.UNIQ_KEY, "")
