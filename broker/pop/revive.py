"""Messages that were popped and not acknowledged in time become visible again.

Owns how far each revive queue is worked through (RocketMQ: PopReviveService): check points are read
with their acknowledgements, and what is left of one whose time is over goes to the group's retry
topic. It must never pass a check point before each of its messages is acknowledged, or safe in the
retry topic (I16), and never revive before all acknowledgements of that time were read. Called by
the broker's tick, on the master alone.

    revive queue  | done | done | open | open |  ...  acks  | end
                         ^ progress (the last one done)     ^ next to read
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from turbopump.engine.later import Later
from turbopump.engine.store import Store
from turbopump.engine.types import PutStatus, QueueOffset, QueueUnit
from turbopump.net.wire import properties as names
from turbopump.net.wire.bodies import BadBody
from turbopump.net.wire.pop_records import (
    ACK_TAG,
    BATCH_ACK_TAG,
    CHECK_POINT_TAG,
    Acknowledgement,
    CheckPoint,
    CheckPointKey,
)
from turbopump.net.wire.properties import decode_properties
from turbopump.pyx.record import Record

logger = logging.getLogger(__name__)

REVIVE_GROUP: Final = "CID_RMQ_SYS_REVIVE_GROUP"
"""Whose offset in the revive topic is the progress (PopAckConstants.REVIVE_GROUP): that of the last
check point done, not of the next one, as in RocketMQ."""
READ_MAX: Final = 256
"""Records of one revive queue that are read in a step, some 5 ms."""
REVIVED_MAX: Final = 64
"""Messages of one revive queue that are on their way to retry topics."""
UNREAD_SLACK_MS: Final = 2_000
"""Where a revive queue is not read to its end, check points are due so much before what was read
last: acknowledgements lie up to two seconds behind them (PopReviveService)."""


class RetryWriter(Protocol):
    """Stores what is revived."""

    def revive(
        self, record: Record, check_point: CheckPoint, now_ms: int
    ) -> Later[PutStatus] | None:
        """A copy of the message in its group's retry topic; resolved once it is safe. None: the
        group or the topic is gone, it is for no consumer any more."""


@dataclass(slots=True)
class _Open:
    """A check point that is not done. Bit i of `acked`: message i is handled, or is in the retry
    topic; of `coming`: it is on its way there."""

    check_point: CheckPoint
    queue_offset: QueueOffset
    acked: int
    coming: int = 0

    @property
    def whole(self) -> int:
        """The bits of all its messages."""
        return (1 << len(self.check_point.distances)) - 1


class ReviveQueue:
    """One queue of the revive topic. Loop thread only.

    `progress` reads and sets the last check point done; `delivered_ms` is the time up to which each
    record that waited for its time lies in the revive queue.
    """

    def __init__(
        self,
        store: Store,
        topic: str,
        queue_id: int,
        writer: RetryWriter,
        progress: "ReviveProgress",
    ) -> None:
        self._store = store
        self._topic = topic
        self._queue_id = queue_id
        self._writer = writer
        self._progress = progress
        self._open: dict[CheckPointKey, _Open] = {}
        self._next: QueueOffset | None = None
        self._seen_ms = 0
        self._coming = 0
        self._life = 0

    def forget(self) -> None:
        """Another broker is the master, or was: all is read again from the progress on."""
        self._open.clear()
        self._next, self._seen_ms, self._coming = None, 0, 0
        self._life += 1

    def step(self, now_ms: int, delivered_ms: int) -> bool:
        """Read on and revive what is due; True if there may be more at once."""
        more = self._read()
        # What is not read may hold the acknowledgements of what was read.
        until_ms = self._seen_ms - UNREAD_SLACK_MS if more else min(now_ms, delivered_ms)
        for entry in list(self._open.values()):
            if entry.check_point.revive_ms > until_ms or self._coming >= REVIVED_MAX:
                break
            self._revive(entry, now_ms)
        self._advance(now_ms)
        return more

    def _read(self) -> bool:
        """The next records; whether there are still more."""
        if self._next is None:
            low = self._store.min_queue_offset(self._topic, self._queue_id)
            self._next = QueueOffset(max(self._progress.get(self._queue_id) + 1, low, 0))
        units = self._store.units(self._topic, self._queue_id, self._next, READ_MAX)
        for unit in units:
            record = self._store.record_of(unit)
            if record is not None:  # else retention took it, or it is damaged, which was noted
                self._take(record, unit)
            self._next = QueueOffset(unit.queue_offset + 1)
        return len(units) == READ_MAX

    def _take(self, record: Record, unit: QueueUnit) -> None:
        properties = decode_properties(record.properties)
        due = properties.get(names.TIMER_DELIVER_MS, "")
        due_ms = int(due) if due.isdigit() and len(due) < 19 else record.store_timestamp_ms
        self._seen_ms = max(self._seen_ms, min(due_ms, record.store_timestamp_ms))
        tag = properties.get(names.TAGS)
        try:
            if tag == CHECK_POINT_TAG:
                self._open_one(CheckPoint.parse(record.body), unit.queue_offset)
            elif tag in (ACK_TAG, BATCH_ACK_TAG):
                self._take_ack(Acknowledgement.parse(record.body, tag == BATCH_ACK_TAG))
        except BadBody as error:
            # The topic takes messages of clients, as RocketMQ's does.
            logger.warning("a record of %s at %d: %s", self._topic, unit.log_offset, error)

    def _open_one(self, check_point: CheckPoint, queue_offset: QueueOffset) -> None:
        known = self._open.get(check_point.key)
        if known is None:
            self._open[check_point.key] = _Open(check_point, queue_offset, check_point.acked)

    def _take_ack(self, ack: Acknowledgement) -> None:
        entry = self._open.get(ack.key)
        if entry is None:
            return  # it came after its check point was done: the message was given out again
        for queue_offset in ack.queue_offsets:
            index = entry.check_point.index_of(queue_offset)
            if index is not None:
                entry.acked |= 1 << index

    def _revive(self, entry: _Open, now_ms: int) -> None:
        """Send what is not acknowledged to the retry topic."""
        left = entry.whole & ~(entry.acked | entry.coming)
        if not left:
            return
        for index, queue_offset in enumerate(entry.check_point.queue_offsets()):
            if left & 1 << index:
                self._revive_one(entry, index, queue_offset, now_ms)

    def _revive_one(self, entry: _Open, index: int, queue_offset: QueueOffset, now_ms: int) -> None:
        key, life = entry.check_point.key, self._life
        units = self._store.units(key.topic, key.queue_id, queue_offset, 1)
        record = self._store.record_of(units[0]) if units else None
        written = None
        if record is not None and units[0].queue_offset == queue_offset:
            written = self._writer.revive(record, entry.check_point, now_ms)
        if written is None:
            entry.acked |= 1 << index  # it is gone, or for no consumer
            return
        entry.coming |= 1 << index
        self._coming += 1

        def done(status: PutStatus) -> None:
            if life != self._life:
                return
            entry.coming &= ~(1 << index)
            self._coming -= 1
            if status is PutStatus.PUT_OK:
                entry.acked |= 1 << index  # else the next step tries again

        written.then(done)

    def _advance(self, now_ms: int) -> None:
        """The progress goes over check points that are done, in the order of the queue."""
        done = None
        for key, entry in list(self._open.items()):
            if entry.acked != entry.whole:
                break
            # An acknowledged one may go before its time: its acknowledgements are read.
            del self._open[key]
            done = entry.queue_offset
        if done is not None:
            self._progress.set(self._queue_id, done, now_ms)


@dataclass(slots=True, frozen=True)
class ReviveProgress:
    """Where the progress is kept: the revive group's committed offsets."""

    get: Callable[[int], int]
    set: Callable[[int, QueueOffset, int], None]
