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

from turbopump.broker.pop.revive_log import ReviveLog
from turbopump.engine.later import Later
from turbopump.engine.store import Store
from turbopump.engine.types import PutStatus, QueueOffset, QueueUnit
from turbopump.net.wire import properties as names
from turbopump.net.wire.bodies import BadBody
from turbopump.net.wire.pop_records import (
    ACK_TAG,
    BATCH_ACK_TAG,
    CHECK_POINT_TAG,
    ORDERED_TAG,
    Acknowledgement,
    CheckPoint,
    CheckPointKey,
)
from turbopump.net.wire.properties import decode_properties
from turbopump.pyx.index import java_hash
from turbopump.pyx.record import Record

logger = logging.getLogger(__name__)

REVIVE_GROUP: Final = "CID_RMQ_SYS_REVIVE_GROUP"
"""Whose offset in the revive topic is the progress (PopAckConstants.REVIVE_GROUP): that of the last
check point done, not of the next one, as in RocketMQ."""
READ_MAX: Final = 256
"""Records of all revive queues that are read in a step, some 5 ms."""
OPEN_MAX: Final = 50_000
"""Check points of one revive queue that are read and not done; while the first of them are due, no
more are read."""
BACK_MAX: Final = 10_000
"""Records before the progress whose check points are remembered as done: timers of a new master,
or after a crash, deliver some of them once more."""
DONE_MAX: Final = 5_000
"""Check points of one revive queue that are remembered as done, 300 bytes each."""
FOREIGN_MS: Final = 13 * 3_600_000
"""A check point is stored a second before it is due. One that is due so long after it was stored is
none of a broker, and is passed over: clients may write to the topic."""
PAUSES_MS: Final = (1_000, 2_000, 5_000, 10_000, 30_000)
"""After failures in a row. What failed may be in the log all the same, as another copy each time;
so one message at a time is tried then."""
_MINUTES: Final = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 60, 120)
PUT_OFF_S: Final = (10, 20, 30, *(60 * minutes for minutes in _MINUTES))
"""How long a message is put off that cannot be revived, by how often it was
(PopReviveService.ckRewriteIntervalsInSeconds)."""
REVIVED_MAX: Final = 64
"""Messages of one revive queue that are on their way to retry topics."""
UNREAD_SLACK_MS: Final = 2_000
"""Where a revive queue is not read to its end, check points are due so much before what was read
last: acknowledgements lie up to two seconds behind them (PopReviveService)."""


_CODE: Final = java_hash(CHECK_POINT_TAG.encode()) & 0xFFFFFFFF
_ORDERED: Final = java_hash(ORDERED_TAG.encode()) & 0xFFFFFFFF
_NEVER: Final = {PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED}
"""What a copy is refused with each time."""


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

    `progress` reads and sets the last check point done; `settled_ms` is the time up to which each
    record that waited for its time lies in the revive queue.
    """

    def __init__(
        self,
        store: Store,
        topic: str,
        queue_id: int,
        broker_name: str,
        writer: RetryWriter,
        log: ReviveLog,
        progress: "ReviveProgress",
    ) -> None:
        self._store = store
        self._topic = topic
        self._queue_id = queue_id
        self._broker_name = broker_name
        self._writer = writer
        self._log = log
        self._progress = progress
        self._open: dict[CheckPointKey, _Open] = {}
        self._done: dict[CheckPointKey, None] = {}
        self._next: QueueOffset | None = None
        self._first = QueueOffset(0)
        self._seen_ms = 0
        self._coming = 0
        self._failures = 0
        self._paused_ms = 0
        self._life = 0
        self._behind: QueueOffset | None = None
        """Up to where all is read before anything is revived."""
        self.bound()

    def bound(self) -> None:
        """Not the master: what comes behind the queue's end is new to the next one. A progress
        beyond it is of a log that had more."""
        self._limit = max(0, self._store.max_queue_offset(self._topic, self._queue_id))

    def forget(self) -> None:
        """Another broker is the master, or was: all is read again from the progress on."""
        self._open.clear()
        self._done.clear()
        self._next, self._seen_ms, self._coming = None, 0, 0
        self._failures, self._paused_ms, self._behind = 0, 0, None
        self._life += 1

    def read_first(self) -> None:
        """All that is in the queue now is read before anything more is revived: what came late may
        be acknowledgements of what was read long ago."""
        self._behind = self._store.max_queue_offset(self._topic, self._queue_id)

    def step(self, now_ms: int, settled_ms: int, room: int, *, holds: bool = False) -> int:
        """Read on, `room` records at most, and revive what is due, unless it `holds`; how many were
        read."""
        is_full = len(self._open) >= OPEN_MAX and self._first_due_ms() <= self._unread_ms()
        taken = self._read(room) if room > 0 and not is_full else room
        # What is not read may hold the acknowledgements of what was read.
        until_ms = self._unread_ms() if taken == room else min(now_ms, settled_ms)
        if self._behind is not None and (is_full or (self._next or 0) >= self._behind):
            self._behind = None  # of one that is full nothing more would be read
        if now_ms >= self._paused_ms and self._behind is None and not holds:
            # One that is due later, of a client, must not keep those behind it.
            for entry in self._open.values():
                if self._coming >= (1 if self._failures else REVIVED_MAX):
                    break
                if entry.check_point.revive_ms <= until_ms:
                    self._revive(entry, now_ms)
        self._advance(now_ms)
        return 0 if is_full else taken

    def behind_ms(self, now_ms: int) -> int:
        """For how long the first message that is not handled should have been revived."""
        return max(0, now_ms - self._first_due_ms()) if self._open else 0

    def _unread_ms(self) -> int:
        return self._seen_ms - UNREAD_SLACK_MS

    def _first_due_ms(self) -> int:
        return next(iter(self._open.values())).check_point.revive_ms

    def _read(self, room: int) -> int:
        """The next records; how many there were."""
        if self._next is None:
            low = self._store.min_queue_offset(self._topic, self._queue_id)
            known = min(self._progress.get(self._queue_id) + 1, self._limit)
            self._first = QueueOffset(max(known, low, 0))
            self._next = QueueOffset(max(self._first - BACK_MAX, low, 0))
        units = self._store.units(self._topic, self._queue_id, self._next, room)
        for unit in units:
            self._next = QueueOffset(unit.queue_offset + 1)
            code = unit.tags_code & 0xFFFFFFFF
            if code == _ORDERED or (unit.queue_offset < self._first and code != _CODE):
                continue
            record = self._store.record_of(unit)
            if record is not None:  # else retention took it, or it is damaged, which was noted
                self._take(record, unit)
        return len(units)

    def _take(self, record: Record, unit: QueueUnit) -> None:
        properties = decode_properties(record.properties)
        due = properties.get(names.TIMER_DELIVER_MS, "")
        due_ms = int(due) if due.isdigit() and len(due) < 19 else record.store_timestamp_ms
        self._seen_ms = max(self._seen_ms, min(due_ms, record.store_timestamp_ms))
        tag = properties.get(names.TAGS)
        try:
            if tag == CHECK_POINT_TAG:
                self._open_one(CheckPoint.parse(record.body), unit.queue_offset, record)
            elif tag in (ACK_TAG, BATCH_ACK_TAG):
                self._take_ack(Acknowledgement.parse(record.body, tag == BATCH_ACK_TAG))
        except BadBody as error:
            # The topic takes messages of clients, as RocketMQ's does.
            logger.warning("a record of %s at %d: %s", self._topic, unit.log_offset, error)

    def _open_one(self, check_point: CheckPoint, queue_offset: QueueOffset, record: Record) -> None:
        if check_point.revive_ms > record.store_timestamp_ms + FOREIGN_MS:
            raise BadBody(f"a check point that is due at {check_point.revive_ms}")
        if queue_offset < self._first:
            self._remember(check_point.key)
        elif check_point.key not in self._done and check_point.key not in self._open:
            self._open[check_point.key] = _Open(check_point, queue_offset, check_point.acked)

    def _take_ack(self, ack: Acknowledgement) -> None:
        entry = self._open.get(ack.key)
        if entry is None:
            return  # it came after its check point was done: the message was given out again
        for queue_offset in ack.queue_offsets:
            index = entry.check_point.index_of(queue_offset)
            if index is not None:
                # Of a copy that is on its way it says nothing before that is safe.
                entry.acked |= (1 << index) & ~entry.coming

    def _revive(self, entry: _Open, now_ms: int) -> None:
        """Send what is not acknowledged to the retry topic."""
        left = entry.whole & ~(entry.acked | entry.coming)
        if not left:
            return
        if self._failures:
            left &= -left
        given = []
        for index, queue_offset in enumerate(entry.check_point.queue_offsets()):
            if left & 1 << index and self._revive_one(entry, index, queue_offset, now_ms):
                given.append(queue_offset)
        if given:
            # Behind the copies in the log: what has this record has them, too, whatever progress it
            # knows of (RocketMQ makes each of them once more).
            done = Acknowledgement(entry.check_point.key, tuple(given), is_batch=True)
            invisible_ms = entry.check_point.invisible_ms
            self._log.add_ack(done, invisible_ms, self._queue_id, now_ms)

    def _revive_one(self, entry: _Open, index: int, queue_offset: QueueOffset, now_ms: int) -> bool:
        """Send one message to the retry topic; whether the log has what stands for it."""
        key = entry.check_point.key
        if key.broker_name != self._broker_name:
            # Of another broker, which had ours keep it: what has that offset here is another one.
            return self._put_one_off(entry, index, queue_offset, now_ms)
        units = self._store.units(key.topic, key.queue_id, queue_offset, 1)
        record = self._store.record_of(units[0]) if units else None
        written = None
        if record is not None and units[0].queue_offset == queue_offset:
            written = self._writer.revive(record, entry.check_point, now_ms)
        if written is None:
            entry.acked |= 1 << index  # it is gone, or for no consumer
            return False
        return self._when_written(
            entry,
            index,
            written,
            now_ms,
            lambda: self._put_one_off(entry, index, queue_offset, now_ms),
        )

    def _put_one_off(
        self, entry: _Open, index: int, queue_offset: QueueOffset, now_ms: int
    ) -> bool:
        """A check point of its own for a message that cannot be revived now, so that it keeps no
        others (PopReviveService.rePutCK)."""
        old = entry.check_point
        later_s = PUT_OFF_S[min(old.retries, len(PUT_OFF_S) - 1)]
        if not old.retries:
            logger.warning("offset %d of %s cannot be revived yet", queue_offset, old.key)
        new = CheckPoint(
            old.key._replace(start=queue_offset, pop_time_ms=now_ms),
            1_000 * later_s,
            (0,),
            retries=old.retries + 1,
            is_suspended=old.is_suspended,
        )
        written = self._log.add_check_point(new, self._queue_id, now_ms)
        return self._when_written(entry, index, written, now_ms, None)

    def _when_written(
        self,
        entry: _Open,
        index: int,
        written: Later[PutStatus],
        now_ms: int,
        refused: Callable[[], object] | None,
    ) -> bool:
        """What follows once a message's copy, or its new check point, is safe or is not."""
        life = self._life
        entry.coming |= 1 << index
        self._coming += 1

        def done(status: PutStatus) -> None:
            if life != self._life:
                return
            entry.coming &= ~(1 << index)
            self._coming -= 1
            if status is PutStatus.PUT_OK:
                entry.acked |= 1 << index
                self._failures = 0
            elif status in _NEVER and refused is not None:
                refused()
            else:
                self._paused_ms = now_ms + PAUSES_MS[min(self._failures, len(PAUSES_MS) - 1)]
                self._failures += 1

        written.then(done)
        return not written.done or written.value is PutStatus.PUT_OK

    def _remember(self, key: CheckPointKey) -> None:
        """The check point is done, also where it comes again."""
        self._done[key] = None
        if len(self._done) > 2 * DONE_MAX:
            self._done = dict.fromkeys(list(self._done)[DONE_MAX:])

    def _advance(self, now_ms: int) -> None:
        """The progress goes over check points that are done, in the order of the queue."""
        done = []
        for key, entry in self._open.items():
            if entry.acked != entry.whole:
                break
            # An acknowledged one may go before its time: its acknowledgements are read.
            done.append((key, entry.queue_offset))
        for key, _ in done:
            del self._open[key]
            self._remember(key)
        if done:
            self._progress.set(self._queue_id, done[-1][1], now_ms)


@dataclass(slots=True, frozen=True)
class ReviveProgress:
    """Where the progress is kept: the revive group's committed offsets."""

    get: Callable[[int], int]
    set: Callable[[int, QueueOffset, int], None]
