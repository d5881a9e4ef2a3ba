"""Ordered pop: the batch of each queue that a consumer holds (consumerOrderInfo.json).

Owns RocketMQ's table of outstanding batches (ConsumerOrderInfoManager).

    free --give--> outstanding --each message acknowledged--> free
                        '--invisible time passed--> the same messages may be popped again

This table neither reads a queue nor commits an offset: it returns the offset to commit.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from turbopump.engine.disk.config_files import ConfigFiles
from turbopump.engine.fastjson import text_size
from turbopump.engine.types import QueueOffset
from turbopump.net.wire.bodies import BadBody, as_int, as_object, optional_text, read_int64
from turbopump.net.wire.java_properties import ConfigError
from turbopump.net.wire.names import check_lengths, kept_size

FILE_NAME: Final = "consumerOrderInfo.json"
"""Name of the file in the broker's configuration folder."""
MAX_SIZE: Final = 64 << 20
"""Maximum size of all batches, in bytes, some 15,000 queues with 32 messages each. At this size
queues without a batch are not popped in order, and no batch is replaced by a larger batch."""
STALE_MS: Final = 24 * 3_600_000
"""Age in ms after its hand-out at which a batch is forgotten (CLEAN_SPAN_FROM_LAST)."""

_BATCH_SIZE: Final = 500
_MESSAGE_SIZE: Final = 40

Pair = tuple[str, str]
"""(topic or retry topic, group)."""


class AckOutcome(Enum):
    """Result of `OrderedBatches.ack` when no offset moves. The values are not sent."""

    IGNORED = "of another pop"
    """The handle belongs to another pop than the queue's present batch, or there is no batch."""
    UNKNOWN = "of no message of the batch"
    """The offset is not in the present batch."""


@dataclass(slots=True)
class OrderedBatch:
    """The messages given out from a queue by an ordered pop, RocketMQ's OrderInfo. Times are epoch
    ms, `invisible_ms` is a duration. `offsets` are ascending queue offsets, never empty. `acked`
    has bit i for the i-th of `offsets`. `visible_ms` has the time of each offset whose invisible
    time was changed since. `counts` has how often an offset had been given out before; without an
    entry, never. `attempt_id` identifies the consumer's request, for a repetition after a lost
    answer."""

    pop_time_ms: int
    invisible_ms: int
    offsets: list[QueueOffset]
    attempt_id: str | None = None
    given_ms: int = 0
    acked: int = 0
    visible_ms: dict[QueueOffset, int] = field(default_factory=dict)
    counts: dict[QueueOffset, int] = field(default_factory=dict)

    def blocked_until_ms(self) -> int:
        """Return the epoch ms at which all unacknowledged messages are visible again: the latest of
        their times; 0 if every message is acknowledged."""
        waiting = [
            self.visible_ms.get(offset, self.pop_time_ms + self.invisible_ms)
            for at, offset in enumerate(self.offsets)
            if not self.acked & 1 << at
        ]
        return max(waiting, default=0)

    def next_offset(self) -> QueueOffset:
        """Return the offset to commit: the first unacknowledged offset, or if all are acknowledged
        the offset after the batch."""
        for at, offset in enumerate(self.offsets):
            if not self.acked & 1 << at:
                return offset
        return QueueOffset(self.offsets[-1] + 1)

    def size(self) -> int:
        """Return the batch's approximate size in bytes, in memory or in the file, which has up to 6
        bytes for a control character of `attempt_id`: the larger one."""
        return _size_of(len(self.offsets), self.attempt_id)

    def to_json(self) -> dict[str, Any]:
        """Return the batch as an object of consumerOrderInfo.json (RocketMQ: OrderInfo); `o` has
        the first offset, then the distance of each other offset to it."""
        first = self.offsets[0]
        members: dict[str, Any] = {
            "popTime": self.pop_time_ms,
            "i": self.invisible_ms,
            "o": [first, *(offset - first for offset in self.offsets[1:])],
            "l": self.given_ms,
            "cm": self.acked,
        }
        if self.visible_ms:
            members["ot"] = {str(offset): at_ms for offset, at_ms in self.visible_ms.items()}
        if self.counts:
            members["oc"] = {str(offset): count for offset, count in self.counts.items()}
        if self.attempt_id is not None:
            members["a"] = self.attempt_id
        return members

    @classmethod
    def from_json(cls, value: Any) -> "OrderedBatch | None":
        """Parse a batch that this broker or RocketMQ wrote; None if it has no messages. Raises
        BadBody."""
        members = as_object(value)
        found = members.get("o")
        if not isinstance(found, list) or not found:
            return None
        first, *rest = (as_int(each, "o") for each in found)
        return cls(
            pop_time_ms=read_int64(members, "popTime"),
            invisible_ms=read_int64(members, "i"),
            offsets=[QueueOffset(first), *(QueueOffset(first + each) for each in rest)],
            attempt_id=optional_text(members, "a"),
            given_ms=read_int64(members, "l"),
            acked=read_int64(members, "cm") & ((1 << len(found)) - 1),
            visible_ms=_by_offset(members.get("ot")),
            counts=_by_offset(members.get("oc")),
        )


class OrderedBatches:
    """The outstanding batches of ordered pops: at most one for each queue of a topic and group.
    Loop thread only. The file is written now and then. After a crash the records in the log count
    (order_journal.py). For a broker that wrote no records, the committed offset is still at the
    first unacknowledged message."""

    def __init__(self, files: ConfigFiles) -> None:
        self._files = files
        self._changed = False
        self._table: dict[Pair, dict[int, OrderedBatch]] = {}
        self.size = 0
        """Approximate size of all batches in memory, in bytes."""

    def load(self) -> None:
        """Add the batches of the file, written by RocketMQ or this broker; without a file, nothing.
        Raises ConfigError."""
        saved = self._files.load(FILE_NAME)
        if saved is None:
            return
        try:
            for name, queues in as_object(as_object(saved).get("table") or {}).items():
                topic, _, group = name.partition("@")
                for queue_id, value in as_object(queues).items():
                    batch = OrderedBatch.from_json(value)
                    if batch is not None:
                        self._set_batch((topic, group), as_int(queue_id, name), batch)
        except BadBody as error:
            raise ConfigError(f"{FILE_NAME} is damaged: {error}") from None

    def get(self, topic: str, group: str, queue_id: int) -> OrderedBatch | None:
        """Return the batch last given out of the queue, also if all of it is acknowledged or
        visible again; None if there is no batch. Not a copy."""
        return self._table.get((topic, group), {}).get(queue_id)

    def restore_batch(self, topic: str, group: str, queue_id: int, batch: OrderedBatch) -> None:
        """Replace the batch of a queue with the state found in the log; without room for it the
        queue has no batch."""
        if len(batch.offsets) <= self.room(topic, group, queue_id, batch.attempt_id):
            self._set_batch((topic, group), queue_id, batch)
            self._changed = True
        else:
            self.remove_batch(topic, group, queue_id)

    def unacknowledged_count(self, topic: str, group: str, now_ms: int) -> int:
        """Return the number of unacknowledged messages in the group's batches of the topic that
        block their queues at `now_ms` (epoch ms)."""
        batches = self._table.get((topic, group), {}).values()
        return sum(
            len(batch.offsets) - batch.acked.bit_count()
            for batch in batches
            if now_ms < batch.blocked_until_ms()
        )

    def remove_outdated(self, done: Callable[[str, str, int], int]) -> None:
        """Remove batches that were handled under another master: `done(topic, group, queue_id)`
        returns the group's offset, and all messages of the batch are before it."""
        for pair, queues in self._table.items():
            for queue_id, batch in list(queues.items()):
                if done(*pair, queue_id) > batch.offsets[-1]:
                    self.remove_batch(*pair, queue_id)

    def end_former(self, is_former: Callable[[str, str, int], bool]) -> None:
        """Remove batches given out in a former life: `is_former(topic, group, pop_time_ms)` is
        True."""
        for (topic, group), queues in self._table.items():
            for queue_id, batch in list(queues.items()):
                if is_former(topic, group, batch.pop_time_ms):
                    self.remove_batch(topic, group, queue_id)

    def blocked_until_ms(
        self, topic: str, group: str, queue_id: int, attempt_id: str | None, now_ms: int
    ) -> int:
        """Return the epoch ms until which the queue may not be popped; 0: it may be popped now. A
        pop with the `attempt_id` of the batch is not blocked, because its answer was lost (R43)."""
        batch = self._table.get((topic, group), {}).get(queue_id)
        if batch is None or (attempt_id is not None and attempt_id == batch.attempt_id):
            return 0
        until_ms = batch.blocked_until_ms()
        return until_ms if now_ms < until_ms else 0

    def room(self, topic: str, group: str, queue_id: int, attempt_id: str | None) -> int:
        """Return the maximum number of messages in a new batch of the queue; 0: no room for
        a batch. All batches together stay below MAX_SIZE, or this one does not get larger."""
        before = self.get(topic, group, queue_id)
        free = max(0, MAX_SIZE - self.size) + (0 if before is None else before.size())
        return max(0, free - _size_of(0, _kept(attempt_id))) // (3 * _MESSAGE_SIZE)

    def hand_out(
        self,
        topic: str,
        group: str,
        queue_id: int,
        offsets: Sequence[QueueOffset],
        *,
        attempt_id: str | None,
        pop_time_ms: int,
        invisible_ms: int,
    ) -> Mapping[QueueOffset, int]:
        """Replace the queue's batch with messages given out now; `offsets` are ascending. Return
        how often each offset had been given out before, 0 for the first time; a repeated
        `attempt_id` is not counted, and one that is longer than a name is not kept."""
        attempt_id = _kept(attempt_id)
        pair = topic, group
        before = self._table.get(pair, {}).get(queue_id)
        batch = OrderedBatch(
            pop_time_ms, invisible_ms, list(offsets), attempt_id, given_ms=pop_time_ms
        )
        if before is not None:
            again = attempt_id is not None and attempt_id == before.attempt_id
            known = set(before.offsets)
            for offset in offsets:
                count = before.counts.get(offset, 0) + (not again and offset in known)
                if count:
                    batch.counts[offset] = count
        self._set_batch(pair, queue_id, batch)
        self._changed = True
        return {offset: batch.counts.get(offset, 0) for offset in offsets}

    def ack(
        self,
        topic: str,
        group: str,
        queue_id: int,
        offset: QueueOffset,
        pop_time_ms: int,
    ) -> QueueOffset | AckOutcome:
        """Mark a message as handled and return the offset to commit, which the caller commits.
        `pop_time_ms` must be that of the present batch: acknowledgements of earlier pops are
        IGNORED (I17).

        Without a batch, as for a RocketMQ broker's or a forged handle, the result is IGNORED too:
        its messages are popped once more. RocketMQ commits past any offset, which loses the
        messages before it.
        """
        batch = self.get(topic, group, queue_id)
        if batch is None:
            return AckOutcome.IGNORED
        if batch.pop_time_ms != pop_time_ms:
            return AckOutcome.IGNORED
        if offset not in batch.offsets:
            return AckOutcome.UNKNOWN
        batch.acked |= 1 << batch.offsets.index(offset)
        self._changed = True
        return batch.next_offset()

    def hide_message(
        self,
        topic: str,
        group: str,
        queue_id: int,
        offset: QueueOffset,
        pop_time_ms: int,
        until: int,
    ) -> bool:
        """Keep the message of the pop at `pop_time_ms` invisible until `until` (epoch ms), also if
        that is earlier than now. Return False, with no effect, if the queue's present batch is of
        another pop or does not contain the message; else True."""
        batch = self._table.get((topic, group), {}).get(queue_id)
        if batch is None or batch.pop_time_ms != pop_time_ms or offset not in batch.offsets:
            return False
        batch.visible_ms[offset] = until
        self._changed = True
        return True

    def make_batch_visible(self, topic: str, group: str, queue_id: int, pop_time_ms: int) -> None:
        """Make the batch of that pop time visible at once, because it reached no consumer; another
        batch stays. Times set by `hide_message` stay."""
        batch = self.get(topic, group, queue_id)
        if batch is not None and batch.pop_time_ms == pop_time_ms:
            batch.invisible_ms = 0
            self._changed = True

    def clear_all(self) -> None:
        """Remove all batches: another broker is the master."""
        self._changed = self._changed or bool(self._table)
        self._table.clear()
        self.size = 0

    def remove_batch(self, topic: str, group: str, queue_id: int) -> None:
        """Remove the batch of a queue, if it has one: the group's offset was changed."""
        queues = self._table.get((topic, group), {})
        batch = queues.pop(queue_id, None)
        if batch is not None:
            self.size -= batch.size()
            self._changed = True

    def remove_stale(self, queues_of: Callable[[str, str], int], now_ms: int) -> None:
        """Remove batches given out more than STALE_MS before `now_ms` (epoch ms), and batches of
        queues that do not exist: `queues_of(topic, group)` returns the number of queues, 0 if the
        topic or the group is gone."""
        for pair, queues in list(self._table.items()):
            count = queues_of(*pair)
            for queue_id, batch in list(queues.items()):
                if queue_id >= count or now_ms - batch.given_ms > STALE_MS:
                    self.remove_batch(*pair, queue_id)
            if not queues:
                del self._table[pair]

    def take_unsaved_content(self) -> dict[str, Any] | None:
        """Return the content to write to FILE_NAME and regard it as saved; None if nothing has
        changed since. After a failed write the caller calls `save_failed`."""
        if not self._changed:
            return None
        self._changed = False
        return self.to_json()

    def save(self) -> None:
        """Write the file now if anything has changed; blocks, for a clean stop. Raises OSError."""
        content = self.take_unsaved_content()
        if content is not None:
            self._files.save(FILE_NAME, content)

    def save_failed(self) -> None:
        """Make the next `take_unsaved_content` return the content again: the last content is not on
        disk."""
        self._changed = True

    def to_json(self) -> dict[str, Any]:
        """Return the content of consumerOrderInfo.json, whether changed or not."""
        return {
            "table": {
                f"{topic}@{group}": {str(at): batch.to_json() for at, batch in queues.items()}
                for (topic, group), queues in self._table.items()
                if queues
            }
        }

    def _set_batch(self, pair: Pair, queue_id: int, batch: OrderedBatch) -> None:
        """Set the batch of a queue, and count its size."""
        queues = self._table.setdefault(pair, {})
        if queue_id in queues:
            self.size -= queues[queue_id].size()
        queues[queue_id] = batch
        self.size += batch.size()


def _kept(attempt_id: str | None) -> str | None:
    """The attempt id to keep: None for an id that is longer than a name, which no client sends."""
    return None if check_lengths(attempt=attempt_id) else attempt_id


def _size_of(count: int, attempt_id: str | None) -> int:
    """Approximate size of a batch of `count` messages, in bytes."""
    attempt = attempt_id or ""
    size = _BATCH_SIZE + 3 * _MESSAGE_SIZE * count
    return size + max(kept_size(attempt), text_size(attempt))


def _by_offset(value: Any) -> dict[QueueOffset, int]:
    """Parse a JSON object from queue offset to number. Raises BadBody."""
    return {
        QueueOffset(as_int(offset, "an offset")): as_int(each, offset)
        for offset, each in as_object(value or {}).items()
    }
