"""The handle of a popped message and the offsets in the response to a pop, as texts.

Owns their layout (RocketMQ: ExtraInfoUtil, KeyBuilder). It must never judge whether a handle is
still valid: the broker does.

    handle        startOffset popTime invisibleTime reviveQid retryFlag brokerName queueId [offset]
    receipt       a handle with offset, then logOffset: by gRPC
    start offsets flag queueId startOffset;...
    offsets       flag queueId offset,offset,...;...
    counts        flag queueId count;...  and  flag qo<queueId>%<offset> count;...
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from turbopump.engine.types import QueueOffset
from turbopump.net.wire.names import RETRY_PREFIX

ORDERED_REVIVE_QUEUE: Final = 999
"""Number in place of a revive queue's: an ordered pop (KeyBuilder.POP_ORDER_REVIVE_QUEUE)."""

HANDLE_MAX: Final = 1_024
"""Maximum characters of a handle: seven numbers and a broker's name."""

_PARTS_MIN, _PARTS_MAX = 7, 9
_BROKER: Final = re.compile(r"[!-~]{1,255}")
"""Pattern of a broker's name, which is stored in records and sent back by peers: printable, without
blanks."""


def is_receipt(handle: str) -> bool:
    """Whether a handle has the ninth part, by which gRPC servers know the record."""
    return handle.count(" ") == _PARTS_MAX - 1


class RetryKind(Enum):
    """Kind of the topic that held a popped message; the value is the flag in the texts."""

    NORMAL = "0"
    """The subscribed topic itself."""
    RETRY_V1 = "1"
    """The group's retry topic `%RETRY%group_topic`."""
    RETRY_V2 = "2"
    """The group's retry topic `%RETRY%group+topic`."""

    def topic_of(self, topic: str, group: str) -> str:
        """The name of the topic itself, or of the group's retry topic for it."""
        if self is RetryKind.NORMAL:
            return topic
        return f"{RETRY_PREFIX}{group}{'_' if self is RetryKind.RETRY_V1 else '+'}{topic}"


def original_topic(group: str, topic: str) -> str:
    """The topic in the name `%RETRY%group_topic` or `%RETRY%group+topic` of this group; any other
    `topic` is returned unchanged."""
    prefix = RETRY_PREFIX + group
    is_popped = topic.startswith((f"{prefix}_", f"{prefix}+")) and len(topic) > len(prefix) + 1
    return topic[len(prefix) + 1 :] if is_popped else topic


class BadHandle(ValueError):
    """A text that is no handle, or no list of offsets or counts; the message is one sentence."""


@dataclass(slots=True, frozen=True)
class PopHandle:
    """The handle that a consumer returns for a message that it popped.

    `start` is the queue offset that names the check point, `queue_offset` the message's own, if the
    handle has it. Times are in ms, `pop_time_ms` of the wall clock.
    """

    start: QueueOffset
    pop_time_ms: int
    invisible_ms: int
    revive_queue_id: int
    kind: RetryKind
    broker_name: str
    queue_id: int
    queue_offset: QueueOffset | None = None

    @classmethod
    def parse(cls, text: str) -> "PopHandle":
        """Parse a handle; the ninth part, a log offset from the proxy, is ignored.

        Raises BadHandle for another form, and for numbers out of range.
        """
        parts = text[:HANDLE_MAX].split(" ")
        if len(text) > HANDLE_MAX or not _PARTS_MIN <= len(parts) <= _PARTS_MAX:
            raise BadHandle(f"a handle has {_PARTS_MIN} to {_PARTS_MAX} parts: {text[:100]!r}")
        try:
            kind = RetryKind(parts[4])
        except ValueError:
            raise BadHandle(f"a handle of retry flag {parts[4][:20]!r}") from None
        if not _BROKER.fullmatch(parts[5]):
            raise BadHandle(f"a handle of broker {parts[5][:100]!r}")
        return cls(
            start=QueueOffset(_parse_number(parts[0], 63)),
            pop_time_ms=_parse_number(parts[1], 62),
            invisible_ms=_parse_number(parts[2], 62),
            revive_queue_id=_parse_number(parts[3], 31),
            kind=kind,
            broker_name=parts[5],
            queue_id=_parse_number(parts[6], 31),
            queue_offset=QueueOffset(_parse_number(parts[7], 63)) if len(parts) > 7 else None,
        )

    def text(self) -> str:
        """Format the handle: its parts separated by blanks, without `queue_offset` if None."""
        parts = [
            self.start,
            self.pop_time_ms,
            self.invisible_ms,
            self.revive_queue_id,
            self.kind.value,
            self.broker_name,
            self.queue_id,
        ]
        if self.queue_offset is not None:
            parts.append(self.queue_offset)
        return " ".join(map(str, parts))

    @property
    def is_ordered(self) -> bool:
        """Whether the handle comes from an ordered pop."""
        return self.revive_queue_id == ORDERED_REVIVE_QUEUE


def start_offsets(popped: Iterable[tuple[RetryKind, int, int]]) -> str:
    """Format startOffsetInfo from (kind, queue id, first queue offset) in the order given, each
    queue once."""
    return ";".join(f"{kind.value} {queue_id} {start}" for kind, queue_id, start in popped)


def message_offsets(popped: Iterable[tuple[RetryKind, int, Sequence[int]]]) -> str:
    """Format msgOffsetInfo from (kind, queue id, queue offsets of the messages) in the order given,
    each queue once."""
    return ";".join(
        f"{kind.value} {queue_id} {','.join(map(str, offsets))}"
        for kind, queue_id, offsets in popped
    )


def read_start_offsets(text: str) -> dict[tuple[RetryKind, int], QueueOffset]:
    """Parse startOffsetInfo: (kind, queue id) to first queue offset. Raises BadHandle."""
    found = {}
    for part in filter(None, text.split(";")):
        words = part.split(" ")
        try:
            kind = RetryKind(words[0])
        except ValueError:
            raise BadHandle(f"a start offset of retry flag {words[0][:20]!r}") from None
        if len(words) != 3:
            raise BadHandle(f"a start offset has three parts: {part[:100]!r}")
        found[kind, _parse_number(words[1], 31)] = QueueOffset(_parse_number(words[2], 63))
    return found


def order_counts(kind: RetryKind, queue_id: int, counts: Mapping[QueueOffset, int]) -> str:
    """Format orderCountInfo of a queue: the number of former deliveries of each queue offset.

    If no message was delivered before, only the queue's own entry is written
    (ConsumerOrderInfoManager.update).
    """
    each = [f"{kind.value} qo{queue_id}%{at} {count}" for at, count in counts.items()]
    if not any(counts.values()):
        each.clear()
    return ";".join([*each, f"{kind.value} {queue_id} {min(counts.values(), default=0)}"])


def read_order_counts(text: str) -> dict[tuple[int, QueueOffset | None], int]:
    """Parse orderCountInfo: (queue id, queue offset) to the number of former deliveries; queue
    offset None stands for all other messages of the queue. Raises BadHandle."""
    found: dict[tuple[int, QueueOffset | None], int] = {}
    for part in filter(None, text.split(";")):
        words = part.split(" ")
        if len(words) != 3:
            raise BadHandle(f"an order count has three parts: {part[:100]!r}")
        queue, is_message, at = words[1].partition("%")
        queue_id = _parse_number(queue.removeprefix("qo"), 31)
        place = QueueOffset(_parse_number(at, 63)) if is_message else None
        found[queue_id, place] = _parse_number(words[2], 31)
    return found


def _parse_number(text: str, bits: int) -> int:
    """Parse a decimal number below 2 ** `bits`; raises BadHandle."""
    if text.isascii() and text.isdigit() and len(text) < 20 and int(text) < 1 << bits:
        return int(text)
    raise BadHandle(f"a handle with {text[:30]!r} for a number")
