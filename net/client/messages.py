"""The messages of the public API, sent and received.

Owns Message, ReceivedMessage, SendStatus, SendResult. It must never talk to a broker.

Tests: tests/unit/net/client/test_sending.py
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from turbopump.net.client.errors import InvalidArgument, check_type
from turbopump.net.wire.queues import MessageQueue

MAX_BODY_SIZE = 4 * 1024 * 1024
"""Largest body in bytes that a producer accepts, before compression; the broker's default
maxMessageSize."""


@dataclass(slots=True)
class Message:
    """A message to send; sending does not change it. Raises InvalidArgument for a member of another
    type; other checks are made when it is sent.

    Args:
        topic: the topic that the message is sent to.
        body: its content, at most MAX_BODY_SIZE bytes.
        tags: one tag, by which consumers filter; empty for no tag.
        keys: business keys, indexed by the broker for queries; no key may contain a blank.
        properties: further user properties; RocketMQ's own names are refused.
        delay_level: 0 for none, else 1..18 of the broker's messageDelayLevel.
        delay_ms: milliseconds from storing to delivery; 0 for immediate delivery.
        deliver_at_ms: time of delivery, in milliseconds since 1970; 0 for immediate delivery. A
            broker accepts up to three days ahead (timerMaxDelaySec).
        flag: a number of the program's own; consumers receive it.
        sharding_key: messages with one key go to one queue (property __SHARDINGKEY); empty for no
            key.
    """

    topic: str
    body: bytes
    tags: str = ""
    keys: Sequence[str] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    delay_level: int = 0
    flag: int = 0
    sharding_key: str = ""
    delay_ms: int = 0
    deliver_at_ms: int = 0

    def __post_init__(self) -> None:
        check_types(self)


def check_types(message: Message) -> None:
    """Raises InvalidArgument if a member has not its declared type: a text as body or as keys, a
    number in properties."""
    body: object = message.body
    if not isinstance(body, bytes | bytearray | memoryview):
        hint = ": text.encode() makes them of a text" if isinstance(body, str) else ""
        raise InvalidArgument(f"the body is bytes, not {type(body).__name__}{hint}")
    if isinstance(message.keys, str):
        raise InvalidArgument(f"keys are a list of texts: keys=[{message.keys[:80]!r}]")
    for name in ("topic", "tags", "sharding_key"):
        check_type(getattr(message, name), str, name, "a text")
    for name in ("delay_level", "flag", "delay_ms", "deliver_at_ms"):
        check_type(getattr(message, name), int, name, "a whole number")
    check_type(message.keys, Sequence, "keys", "a list of texts")
    check_type(message.properties, Mapping, "properties", "a mapping of texts")
    for text in (*message.keys, *message.properties, *message.properties.values()):
        check_type(text, str, "a key or a property", "a text")


class SendStatus(Enum):
    """The durability of a stored message (RocketMQ: client/producer/SendStatus)."""

    SEND_OK = "SEND_OK"
    """Stored as safely as the broker's configuration demands."""
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    """Stored, but the broker did not flush it to disk in time."""
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    """Stored by the master, but too few replicas acknowledged it in time."""
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"
    """Stored by the master, but too few replicas are connected and up to date."""


@dataclass(frozen=True, slots=True)
class SendResult:
    """The place where a message was stored, and its ids.

    `message_id` is the client's own id (UNIQ_KEY; comma-joined for a batch), `offset_message_id`
    the broker's (store address and log offset; comma-joined for a batch), `queue_offset` the
    message's number in its queue (of a batch: the first message's). `recall_handle` is for
    `Producer.recall` and empty unless the message is a timer. By gRPC `offset_message_id` is empty,
    and `queue` has the topic only: broker name "", queue id -1.
    """

    status: SendStatus
    message_id: str
    offset_message_id: str
    queue: MessageQueue
    queue_offset: int
    recall_handle: str = ""

    def to_json(self) -> dict[str, Any]:
        """The members as a dict of texts and numbers, the queue's as `topic`, `broker_name` and
        `queue_id`; `recall_handle` is left out if empty."""
        handle = {"recall_handle": self.recall_handle} if self.recall_handle else {}
        return handle | {
            "status": self.status.value,
            "message_id": self.message_id,
            "offset_message_id": self.offset_message_id,
            "topic": self.queue.topic,
            "broker_name": self.queue.broker_name,
            "queue_id": self.queue.queue_id,
            "queue_offset": self.queue_offset,
        }


@dataclass(slots=True, eq=False)
class ReceivedMessage:
    """A message as a consumer sees it: every field of the stored record, decoded.

    `topic` is the topic it was sent to, also when it comes from a retry topic; `stored_topic` is
    the topic that it was read from. `message_id` is the producer's id, `offset_message_id` the
    broker's. `body` is decompressed. `reconsume_times` is the number of earlier deliveries.
    `queue_offset` is its number in the queue, `log_offset` its first byte in the commit log,
    `store_size` the bytes of its record. Hosts are "ip:port", timestamps epoch milliseconds.
    `properties` holds all properties, RocketMQ's own included. Compared by identity.
    """

    topic: str
    body: bytes
    tags: str
    keys: tuple[str, ...]
    properties: dict[str, str]
    flag: int
    message_id: str
    offset_message_id: str
    broker_name: str
    queue_id: int
    queue_offset: int
    log_offset: int
    sys_flag: int
    born_timestamp_ms: int
    born_host: str
    store_timestamp_ms: int
    store_host: str
    reconsume_times: int
    prepared_transaction_offset: int
    body_crc: int
    store_size: int
    stored_topic: str

    @property
    def queue(self) -> MessageQueue:
        """The queue that the message was read from: for a retried message a queue of the retry
        topic."""
        return MessageQueue(self.stored_topic, self.broker_name, self.queue_id)

    @property
    def text(self) -> str:
        """The body as UTF-8 text; undecodable bytes become U+FFFD."""
        return self.body.decode("utf-8", "replace")

    def to_json(self) -> dict[str, Any]:
        """All fields by name, as JSON-ready data; the body as text in `body` if it is UTF-8, else
        in `body_base64`."""
        members: dict[str, Any] = {
            name: getattr(self, name) for name in self.__slots__ if name not in ("body", "keys")
        }
        members["keys"] = list(self.keys)
        try:
            members["body"] = self.body.decode("utf-8")
        except UnicodeDecodeError:
            members["body_base64"] = base64.b64encode(self.body).decode("ascii")
        return members
