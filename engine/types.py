"""The store's terms as types: one name for each kind of number.

Owns the NewTypes and enums that every room above uses. It must never hold behaviour.
docs/ARCHITECTURE.md, "Words", explains the terms.

Tests: tests/unit/engine/log/test_commit_log.py
"""

from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import NewType

LogOffset = NewType("LogOffset", int)
"""A byte of the commit log, counted from the first byte the log ever had."""

QueueOffset = NewType("QueueOffset", int)
"""The number of a message in its queue, counted from 0 and never used again after removal."""

Epoch = NewType("Epoch", int)
"""The number of a master's term; each new master of a group has a greater number."""

Buffer = bytes | bytearray | memoryview
"""Bytes that a function reads and does not change."""

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
"""The topic of delayed messages; its queue units hold the delivery time: store time plus the
level's delay."""

TIMER_TOPIC = "rmq_sys_wheel_timer"
"""The topic of timers, from which wheel and timer log are derived."""

HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
"""The topic of half messages: messages of transactions, before their commit or rollback."""

RETRY_PREFIX = "%RETRY%"
"""Prefix of a consumer group's retry topic; the group's name follows."""

LIGHT_PREFIX = "%LMQ%"
"""Prefix of a light queue's topic: it has queue units and no records of its own."""

LONG_AGO_MS = -(1 << 62)
"""A time in ms before any time of the steady clock, as the last time of work that was never done:
it is due at the first tick."""


class TurbopumpError(Exception):
    """The base of every exception of the public API."""


class StoreError(TurbopumpError):
    """The store cannot be opened or used; the text is one sentence for the operator."""


class OpeningStopped(StoreError):
    """The caller's `watch` raised this to stop the opening of a store; the next opening continues
    the recovery."""


@dataclass(slots=True, frozen=True)
class Progress:
    """Progress of one phase of a store's recovery; each phase begins at 0."""

    phase: str
    """The work of the phase in English, for the log: "checking the log"."""
    done: int
    """Bytes of the log that the phase has finished."""
    total: int
    """Bytes of the log that the phase has to read."""


class PutStatus(Enum):
    """Result of an append, or of the wait for its durability and copies (RocketMQ:
    store/PutMessageStatus)."""

    PUT_OK = "PUT_OK"
    """Written; as the result of the wait also durable and copied as the send requires."""
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    """Written, but not durable in time, or its sync failed; the message may survive or not."""
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    """Written, but not copied to the required number of brokers in time."""
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"
    """A status of RocketMQ that the engine never returns."""
    SERVICE_NOT_AVAILABLE = "SERVICE_NOT_AVAILABLE"
    """Refused, because the store is closed, failed, full or not the master's, or the topic is being
    deleted; from the wait: the broker stopped being the master, and the outcome is unknown."""
    CREATE_MAPPED_FILE_FAILED = "CREATE_MAPPED_FILE_FAILED"
    """Refused, because the next log file could not be made."""
    MESSAGE_ILLEGAL = "MESSAGE_ILLEGAL"
    """Refused for good: the message can never be stored."""
    PROPERTIES_SIZE_EXCEEDED = "PROPERTIES_SIZE_EXCEEDED"
    """Refused for good: the encoded properties are too long."""
    OS_PAGE_CACHE_BUSY = "OS_PAGE_CACHE_BUSY"
    """Refused for now, because the disk does not keep up; a retry may succeed."""
    UNKNOWN_ERROR = "UNKNOWN_ERROR"
    """Failed in the broker after or outside of the append; the engine never returns it."""
    IN_SYNC_REPLICAS_NOT_ENOUGH = "IN_SYNC_REPLICAS_NOT_ENOUGH"
    """Refused by the broker, because too few replicas are in sync; the engine never returns it."""


class StoreHealth(Enum):
    """Whether a store takes messages; the texts are sent to controllers (`unfit`)."""

    FIT = ""
    """The store takes messages, and its syncs are fast enough."""
    SLOW = "slow"
    """The store takes messages, but its syncs take too long for their senders: a broker with a
    faster disk should lead. Sent in a separate field (`slow`), because an older controller treats
    an unknown word in `unfit` as FAILED."""
    FULL = "full"
    """The store takes no messages for now, because the disk has no room. It may lead."""
    STOPPING = "stopping"
    """The store takes messages, but its broker is about to stop: another broker should lead."""
    FAILED = "failed"
    """The store takes no messages until it is opened again or repaired, and cannot lead."""


class ReadStatus(Enum):
    """Result of a read of a queue from a queue offset (RocketMQ: store/GetMessageStatus)."""

    FOUND = "FOUND"
    """The result has records."""
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    """The examined messages are not wanted by the reader; it continues after them."""
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    """Retention has removed the records of the examined units; the reader continues after them."""
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    """A status of RocketMQ that the engine never returns."""
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    """The offset is greater than the max offset, which is the next offset of the result."""
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    """The offset is the max offset: the queue has no newer message yet."""
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    """The offset is less than the min offset, which is the next offset of the result."""
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    """The store has no such queue."""
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"
    """The queue has never had a visible message: its max offset is 0."""


class Boundary(IntEnum):
    """The queue offset that a search by store time returns."""

    LOWER = 0
    """The first message with this time; without one, the first later message."""
    UPPER = 1
    """The last message with this time; without one, the last earlier message."""


class FlushMode(Enum):
    """Whether a send is acknowledged before or after its record is on the disk (RocketMQ:
    flushDiskType)."""

    ASYNC_FLUSH = "ASYNC_FLUSH"
    """The record is in memory; it becomes durable later, and is visible to readers at once."""
    SYNC_FLUSH = "SYNC_FLUSH"
    """The record is durable; readers see it only then."""


@dataclass(slots=True)
class NewMessage:
    """A message on its way into the log.

    The store sets the IPv6 bits of sys_flag from the host lengths, the message version from the
    topic length, the queue offset, the log offset, the store time and the CRC.
    """

    topic: str
    queue_id: int
    body: Buffer
    properties: bytes = b""
    """The encoded text: name 0x01 value 0x02 name ... ."""
    flag: int = 0
    """The producer's own number; the broker does not use it."""
    sys_flag: int = 0
    """Bits of RocketMQ's MessageSysFlag."""
    born_timestamp_ms: int = 0
    """Time of the producer's clock, in epoch ms."""
    born_host: bytes = b"\x7f\x00\x00\x01\x00\x00\x00\x00"
    """The producer's address: ip (4 or 16 bytes) and port (4 bytes, big endian)."""
    store_host: bytes = b"\x7f\x00\x00\x01\x00\x00\x00\x00"
    """The broker's address in the same form."""
    reconsume_times: int = 0
    """Number of earlier failed deliveries to the consumer group."""
    prepared_transaction_offset: int = 0
    """Log offset of the half message, in the commit or rollback of a transaction."""
    is_copy: bool = False
    """Whether its body is in the log already, so that a lower maxMessageSize set since does not
    refuse it."""


@dataclass(slots=True)
class Appended:
    """The outcome of an append. Unless `status` is PUT_OK, nothing was written, and only `status`
    and `reason` have a meaning. PUT_OK does not mean durable: see `Store.when_safe`."""

    status: PutStatus
    queue_offset: QueueOffset = QueueOffset(0)
    """Queue offset of the message; of a batch: of its first message."""
    log_offsets: list[LogOffset] = field(default_factory=list)
    """Log offset of each record, in the order of the batch."""
    end: LogOffset = LogOffset(0)
    """Log offset after the last record: all bytes before must be durable before the append may be
    acknowledged."""
    size: int = 0
    """Bytes of all records together."""
    store_timestamp_ms: int = 0
    """Store time in the records, in epoch ms."""
    reason: str = ""
    """Reason of a refusal in English, for the sender; "": only the status is known."""


@dataclass(slots=True)
class ReadResult:
    """The result of a read of a queue: status, records, and the queue offset for the next read."""

    status: ReadStatus
    next_queue_offset: QueueOffset
    """Queue offset from which the reader should continue."""
    min_queue_offset: QueueOffset
    """Queue offset of the queue's first message that exists; 0 for an unknown queue."""
    max_queue_offset: QueueOffset
    """Queue offset after the queue's last visible message; 0 for an unknown queue."""
    slices: list[memoryview] = field(default_factory=list)
    """The whole records by queue offset, as slices of the mapped log (not copied); they stay valid
    as long as they are referenced, even when retention unlinks their file."""
    count: int = 0
    """Number of messages in the records: a record of an inner batch has several."""
    size: int = 0
    """Bytes of all slices."""


@dataclass(slots=True, frozen=True)
class QueueUnit:
    """A unit of a consume queue: the place of a record, and the code for matching tags."""

    log_offset: LogOffset
    """Log offset at which the record begins."""
    size: int
    """Bytes of the record."""
    tags_code: int
    """Java's hash of the message's tag; of a delayed message: its delivery time in epoch ms."""
    queue_offset: QueueOffset = QueueOffset(0)
    count: int = 1
    """Number of messages in the record; above 1 for an inner batch, whose messages have the queue
    offsets from `queue_offset` on."""
    is_extended: bool = False
    """Whether the unit on the disk holds an address, and `tags_code` is from the queue's
    extension."""


@dataclass(slots=True)
class QueryResult:
    """The result of a query by key: the records found, and the last indexed record."""

    slices: list[memoryview] = field(default_factory=list)
    """The whole records that have the key, oldest first; entries of other keys with the same hash
    are left out. Valid as long as they are referenced."""
    last_timestamp_ms: int = 0
    """Store time of the last record in the index, in epoch ms, whatever its key; 0: no record."""
    last_log_offset: LogOffset = LogOffset(0)
    """Log offset of that record."""
