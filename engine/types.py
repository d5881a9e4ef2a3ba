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
"""The n-th message of a queue."""

Epoch = NewType("Epoch", int)
"""The term of a master."""

Buffer = bytes | bytearray | memoryview

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
"""The topic of delayed messages; its queue units hold the delivery time: store time plus the
level's delay."""

TIMER_TOPIC = "rmq_sys_wheel_timer"
"""The topic of timers, from which wheel and timer log are derived."""

HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
"""The topic of messages whose transaction has not ended."""

RETRY_PREFIX = "%RETRY%"

LIGHT_PREFIX = "%LMQ%"
"""Prefix of a light queue's topic: it has queue units and no records of its own."""

LONG_AGO_MS = -(1 << 62)
"""A time before any steady time: work that is due an interval after it is due at the first tick."""


class TurbopumpError(Exception):
    """The base of every exception of the public API."""


class StoreError(TurbopumpError):
    """The store cannot be opened or used; the text is one sentence for the operator."""


class OpeningStopped(StoreError):
    """The caller gave up while the store was being recovered; the next start continues."""


@dataclass(slots=True, frozen=True)
class Progress:
    """Progress of the opening of a store."""

    phase: str
    done: int
    """Finished bytes of the log, of `total`."""
    total: int


class PutStatus(Enum):
    """Result of an append (RocketMQ: store/PutMessageStatus)."""

    PUT_OK = "PUT_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"
    SERVICE_NOT_AVAILABLE = "SERVICE_NOT_AVAILABLE"
    CREATE_MAPPED_FILE_FAILED = "CREATE_MAPPED_FILE_FAILED"
    MESSAGE_ILLEGAL = "MESSAGE_ILLEGAL"
    PROPERTIES_SIZE_EXCEEDED = "PROPERTIES_SIZE_EXCEEDED"
    OS_PAGE_CACHE_BUSY = "OS_PAGE_CACHE_BUSY"
    UNKNOWN_ERROR = "UNKNOWN_ERROR"
    IN_SYNC_REPLICAS_NOT_ENOUGH = "IN_SYNC_REPLICAS_NOT_ENOUGH"


class StoreHealth(Enum):
    """Whether a store takes messages; the texts are sent to controllers (`unfit`)."""

    FIT = ""
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
    """Result of a read of a queue (RocketMQ: store/GetMessageStatus)."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"


class Boundary(IntEnum):
    """The neighbour that a search by time returns when no message has exactly that time."""

    LOWER = 0
    UPPER = 1


class FlushMode(Enum):
    """The condition for acknowledging a send (RocketMQ: flushDiskType)."""

    ASYNC_FLUSH = "ASYNC_FLUSH"
    SYNC_FLUSH = "SYNC_FLUSH"


@dataclass(slots=True)
class NewMessage:
    """A message on its way into the log; hosts are packed: ip (4 or 16 bytes) and int32 port.

    `properties` is the encoded text: name 0x01 value 0x02 ... . The store sets the IPv6 bits of
    sys_flag from the host lengths, the message version from the topic length, the queue offset, the
    log offset, the store time and the CRC.
    """

    topic: str
    queue_id: int
    body: Buffer
    properties: bytes = b""
    flag: int = 0
    sys_flag: int = 0
    born_timestamp_ms: int = 0
    born_host: bytes = b"\x7f\x00\x00\x01\x00\x00\x00\x00"
    store_host: bytes = b"\x7f\x00\x00\x01\x00\x00\x00\x00"
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    is_copy: bool = False
    """Whether its body is in the log already, so that a lower maxMessageSize set since does not
    refuse it."""


@dataclass(slots=True)
class Appended:
    """The outcome of an append. Unless `status` is PUT_OK, nothing was written.

    `queue_offset` is the first offset of a batch, `log_offsets` has one per record, `end` is the
    log offset that must be durable before the append may be acknowledged.
    """

    status: PutStatus
    queue_offset: QueueOffset = QueueOffset(0)
    log_offsets: list[LogOffset] = field(default_factory=list)
    end: LogOffset = LogOffset(0)
    size: int = 0
    store_timestamp_ms: int = 0
    reason: str = ""


@dataclass(slots=True)
class ReadResult:
    """The result of a pull: records as slices of the mapping (never copied), or the reason for
    none.

    The slices stay valid as long as they are referenced, even when retention unlinks their file.
    """

    status: ReadStatus
    next_queue_offset: QueueOffset
    min_queue_offset: QueueOffset
    max_queue_offset: QueueOffset
    slices: list[memoryview] = field(default_factory=list)
    count: int = 0
    size: int = 0


@dataclass(slots=True, frozen=True)
class QueueUnit:
    """A unit of a consume queue: the place of a record, and the code for matching tags.

    `count` is above 1 for an inner batch, which holds that number of messages from `queue_offset`
    on. `is_extended`: the unit holds an address, and the code is from the queue's extension.
    """

    log_offset: LogOffset
    size: int
    tags_code: int
    queue_offset: QueueOffset = QueueOffset(0)
    count: int = 1
    is_extended: bool = False


@dataclass(slots=True)
class QueryResult:
    """Records found by key, oldest first, and time and log offset of the last record in the index.

    The records have the key; entries of other keys with the same hash were left out.
    """

    slices: list[memoryview] = field(default_factory=list)
    last_timestamp_ms: int = 0
    last_log_offset: LogOffset = LogOffset(0)
