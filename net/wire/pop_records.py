"""Check points and acknowledgements of popped messages, as stored in the revive topic.

Owns their JSON, their tags and their names (RocketMQ: PopCheckPoint, AckMsg, BatchAckMsg,
PopAckConstants, PopMessageProcessor.genCkUniqueId). It must never know a log. `CheckPointKey`
connects a check point and its acknowledgements.

    check point  tag ck    due at pop time + invisible time - 1 s, so that it is read first
    acks         ack, bAck due at pop time + invisible time
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from turbopump.engine.types import Buffer, QueueOffset
from turbopump.net.wire.bodies import (
    BadBody,
    as_int,
    encode_json,
    load_small_object,
    read_int32,
    read_int64,
)
from turbopump.net.wire.names import name_member
from turbopump.net.wire.properties import PROPERTY_SEPARATOR

CHECK_POINT_TAG: Final = "ck"
"""TAGS of a check point's record."""
ACK_TAG: Final = "ack"
"""TAGS of the record of a single acknowledgement."""
BATCH_ACK_TAG: Final = "bAck"
"""TAGS of the record of several acknowledgements."""
ORDERED_TAG: Final = "order"
"""Tag of records about messages taken from a queue with ordered pops: ours, RocketMQ's brokers
ignore it."""
CHECK_POINT_LEAD_MS: Final = 1_000
"""Milliseconds by which a check point is due before its acknowledgements
(PopAckConstants.ackTimeInterval)."""
MESSAGES_MAX: Final = 32
"""Maximum messages of a check point: one bit of an int each
(PopMessageRequestHeader.maxMsgNums)."""


class CheckPointKey(NamedTuple):
    """Fields that a check point and its acknowledgements share: the popped queue, the queue
    offset `start`, which names the check point, and the time of the pop (epoch ms)."""

    topic: str
    group: str
    queue_id: int
    start: QueueOffset
    pop_time_ms: int
    broker_name: str


@dataclass(slots=True, frozen=True)
class CheckPoint:
    """A delivery of up to 32 popped messages of a queue.

    `invisible_ms` is the hidden time from the pop on; `distances` are the messages' queue offsets
    less `start`; `acked` has bit i for the i-th message, from 0; `retries` counts how often it was
    stored again because a message could not be revived.
    `is_suspended`: the consumer returned the messages on purpose (5.5.0: PopCheckPoint.suspend).
    """

    key: CheckPointKey
    invisible_ms: int
    distances: tuple[int, ...]
    acked: int = 0
    retries: int = 0
    is_suspended: bool = False

    @property
    def revive_ms(self) -> int:
        """Time (epoch ms) at which the unacknowledged messages become visible again."""
        return self.key.pop_time_ms + self.invisible_ms

    def queue_offsets(self) -> list[QueueOffset]:
        """The queue offsets of its messages, acknowledged or not, in the order of `distances`."""
        return [QueueOffset(self.key.start + distance) for distance in self.distances]

    def index_of(self, queue_offset: int) -> int | None:
        """Index in `distances`, and bit in `acked`, of the message with that queue offset; None if
        there is no such message."""
        try:
            return self.distances.index(queue_offset - self.key.start)
        except ValueError:
            return None

    def encode_body(self) -> bytes:
        """Encode the JSON body of its record, in RocketMQ's form."""
        key = self.key
        members: dict[str, Any] = {
            "bm": self.acked,
            "bn": key.broker_name,
            "c": key.group,
            "d": list(self.distances),
            "it": self.invisible_ms,
            "n": len(self.distances),
            "pt": key.pop_time_ms,
            "q": key.queue_id,
            "reviveTime": self.revive_ms,
            "ro": 0,
            "so": key.start,
            "sp": self.is_suspended,
            "t": key.topic,
        }
        if self.retries:
            members["rp"] = str(self.retries)
        return encode_json(members)

    @classmethod
    def parse(cls, body: Buffer) -> "CheckPoint":
        """Parse a record's body, ours or RocketMQ's; raises BadBody."""
        members = load_small_object(body)
        count = read_int32(members, "n")
        if not 0 < count <= MESSAGES_MAX:
            raise BadBody(f"a check point of {count} messages")
        distances = members.get("d") or list(range(count))
        if not isinstance(distances, list) or len(distances) != count:
            raise BadBody("a check point with other distances than messages")
        return cls(
            _read_key(members),
            _read_natural(members, "it"),
            _read_distances(distances),
            read_int32(members, "bm") & ((1 << count) - 1),
            _read_natural(members, "rp"),
            members.get("sp") is True,
        )


@dataclass(slots=True, frozen=True)
class Acknowledgement:
    """Acknowledged messages of a check point, by queue offset; `is_batch` decides the form of its
    record: without it `queue_offsets` has a single offset."""

    key: CheckPointKey
    queue_offsets: tuple[QueueOffset, ...]
    is_batch: bool = False

    @property
    def tag(self) -> str:
        """TAGS of the acknowledgement's record: `ack` or `bAck`."""
        return BATCH_ACK_TAG if self.is_batch else ACK_TAG

    def encode_body(self) -> bytes:
        """Encode the JSON body of its record, in RocketMQ's form."""
        key = self.key
        members: dict[str, Any] = {
            "ao": -1 if self.is_batch else self.queue_offsets[0],
            "bn": key.broker_name,
            "c": key.group,
            "pt": key.pop_time_ms,
            "q": key.queue_id,
            "so": key.start,
            "t": key.topic,
        }
        if self.is_batch:
            members["aol"] = list(self.queue_offsets)
        return encode_json(members)

    @classmethod
    def parse(cls, body: Buffer, is_batch: bool) -> "Acknowledgement":
        """Parse a record's body, ours or RocketMQ's, with short or long names; raises BadBody."""
        members = load_small_object(body)
        for long_name, name in _LONG_NAMES.items():
            if name not in members and long_name in members:
                members[name] = members[long_name]
        key = _read_key(members)
        if not is_batch:
            return cls(key, (QueueOffset(_read_natural(members, "ao")),))
        acked = members.get("aol") or []
        if not isinstance(acked, list):
            raise BadBody("acknowledged offsets that are no list")
        return cls(key, tuple(QueueOffset(as_int(each, "aol")) for each in acked), True)


_LONG_NAMES: Final = {
    "ackOffset": "ao",
    "startOffset": "so",
    "consumerGroup": "c",
    "topic": "t",
    "queueId": "q",
    "popTime": "pt",
    "brokerName": "bn",
}


def unique_key(key: CheckPointKey, tag: str, acked: int | None = None) -> str:
    """Build UNIQ_KEY of a check point's record (`tag` CHECK_POINT_TAG, no `acked`), or of the
    acknowledgement (another tag) of queue offset `acked`; -1 is for several offsets."""
    end = f"{key.pop_time_ms}@{key.broker_name}@{CHECK_POINT_TAG if acked is None else ACK_TAG}"
    middle = f"{key.start}@" if acked is None else f"{acked}@"
    assert (acked is None) == (tag == CHECK_POINT_TAG)
    return f"{key.topic}@{key.queue_id}@{middle}{key.group}@{end}"


def acked_offsets(start: QueueOffset, bits: bytes) -> Sequence[QueueOffset]:
    """Convert a bit set of BATCH_ACK_MESSAGE to queue offsets, ascending: bit i, little endian, is
    `start` + i (RocketMQ: BitSetSerializerDeserializer)."""
    return [
        QueueOffset(start + 8 * at + bit)
        for at, byte in enumerate(bits)
        for bit in range(8)
        if byte & 1 << bit
    ]


def _read_key(members: dict[str, Any]) -> CheckPointKey:
    """Read the key of a record.

    A client may have written the record: invalid names must be refused here, because a later record
    with them could not be written.
    """
    topic, group, broker_name = (name_member(members, name) for name in ("t", "c", "bn"))
    if PROPERTY_SEPARATOR in topic + group + broker_name:
        raise BadBody("a name with the separator of properties")
    queue_id, start = read_int32(members, "q"), QueueOffset(_read_natural(members, "so"))
    return CheckPointKey(topic, group, queue_id, start, _read_natural(members, "pt"), broker_name)


def _read_natural(members: dict[str, Any], name: str) -> int:
    """Read a number member that is not negative; raises BadBody."""
    value = read_int64(members, name)
    if value < 0:
        raise BadBody(f"{name} is {value}")
    return value


def _read_distances(values: list[Any]) -> tuple[int, ...]:
    """Read the distances of a check point.

    Thousands are read in a row after a restart, so the distances that a broker wrote are checked
    together.
    """
    if set(map(type, values)) == {int} and min(values) >= 0 and max(values) < 1 << 31:
        return tuple(values)
    return tuple(map(_read_distance, values))


def _read_distance(value: Any) -> int:
    distance = as_int(value, "d")
    if not 0 <= distance < 1 << 31:
        raise BadBody(f"a message at distance {distance} from the first")
    return distance
