"""Messages that were popped and not acknowledged in time become visible again.

Owns how far each revive queue is worked through (RocketMQ: PopReviveService): check points are read
with their acknowledgements, and what is left of one whose time is over goes to the group's retry
topic. It must never pass a check point before each of its messages is acknowledged, or safe in the
retry topic (I16), and never revive before all acknowledgements of that time were read. Called by
the broker's tick, on the master alone.

    revive queue  | done | done | open | open |  ...  acks  | end
                         ^ progress (the last one done)     ^ next to read
"""

import heapq
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NamedTuple, Protocol

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
WRITES_MAX: Final = 40
"""Messages that are revived in a step, of all revive queues, some 5 ms."""
LOOKS_MAX: Final = 4_096
"""Check points of one revive queue that a step passes over: acknowledged ones, and done ones."""
UNSAVED_LOOKS: Final = 64
"""Check points of one revive queue that a step looks at once more, because their retry topic was
not saved."""
PAUSES_MS: Final = (1_000, 2_000, 5_000, 10_000, 30_000)
"""After failures in a row. What failed may be in the log all the same, as another copy each time;
so one message at a time is tried then. A store that refuses a message writes nothing: it is tried
again after the first of these pauses, and does not count as a failure."""
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
"""Statuses that a copy gets each time it is tried."""
_REFUSED: Final = {
    PutStatus.SERVICE_NOT_AVAILABLE,
    PutStatus.OS_PAGE_CACHE_BUSY,
    PutStatus.CREATE_MAPPED_FILE_FAILED,
    PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH,
}
"""Statuses of a store that writes nothing for now: a full or slow disk, a change of role."""


class RetryTopic(Enum):
    """Whether messages of a check point can be revived."""

    READY = auto()
    UNSAVED = auto()
    """It was made just now: a crash would take it, and no pop would read its messages. Or the topic
    of the messages is being deleted."""
    FULL = auto()
    """The table of topics has no room for it."""
    GONE = auto()
    """The topic or the group is deleted, or was deleted since the pop: there is no consumer for
    the messages."""


class RetryWriter(Protocol):
    """Stores what is revived."""

    def prepare(self, check_point: CheckPoint, now_ms: int) -> RetryTopic:
        """Make the retry topic of a check point's group, if it is missing."""

    def revive(self, record: Record, check_point: CheckPoint, now_ms: int) -> Later[PutStatus]:
        """A copy of the message in that topic, which is READY; resolved once it is safe."""


class Stepped(NamedTuple):
    """The work of a step of a revive queue: records read, and messages sent to retry topics."""

    read: int
    written: int


@dataclass(slots=True)
class _Open:
    """A check point that is not done. Bit i of `acked`: message i is handled, or is in the retry
    topic; of `coming`: it is on its way there."""

    check_point: CheckPoint
    queue_offset: QueueOffset
    acked: int
    coming: int = 0
    is_due: bool = False
    """Whether it waits, in the heap for its time or in `_unsaved` for its retry topic."""

    @property
    def left(self) -> int:
        """The bits of messages that are neither handled nor on their way."""
        return self.whole & ~(self.acked | self.coming)

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
        self._due: list[tuple[int, int, _Open]] = []
        """A heap of (revive time, number, check point)."""
        self._number = 0
        self._unsaved: deque[_Open] = deque()
        """Check points that are due, and wait for their retry topics."""
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
        self._due.clear()
        self._unsaved.clear()
        self._next, self._seen_ms, self._coming = None, 0, 0
        self._failures, self._paused_ms, self._behind = 0, 0, None
        self._life += 1

    def read_first(self) -> None:
        """All that is in the queue now is read before anything more is revived: what came late may
        be acknowledgements of what was read long ago."""
        self._behind = self._store.max_queue_offset(self._topic, self._queue_id)

    def step(
        self, now_ms: int, settled_ms: int, room: int, writes: int, *, holds: bool = False
    ) -> Stepped:
        """Read on, `room` records at most, and revive `writes` due messages at most, unless it
        `holds`. `settled_ms` is the time up to which each acknowledgement can be read."""
        is_full = len(self._open) >= OPEN_MAX and self._first_due_ms() <= self._unread_ms()
        taken = self._read(room) if room > 0 and not is_full else room
        until_ms = min(now_ms, settled_ms)
        if taken == room:
            # Records that are not read may acknowledge messages of the check points that are.
            until_ms = min(until_ms, self._unread_ms())
        if self._behind is not None and (is_full or (self._next or 0) >= self._behind):
            self._behind = None  # of one that is full nothing more would be read
        written = 0
        if self._behind is None and not holds:
            written = self._revive_due(now_ms, until_ms, writes)
        self._advance(now_ms)
        return Stepped(0 if is_full else taken, written)

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
        is_number = due.isascii() and due.isdigit() and len(due) < 19
        due_ms = int(due) if is_number else record.store_timestamp_ms
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
            entry = _Open(check_point, queue_offset, check_point.acked)
            self._open[check_point.key] = entry
            self._put_in(entry)

    def _put_in(self, entry: _Open) -> None:
        """It waits for its time."""
        if not entry.is_due:
            entry.is_due = True
            self._number += 1
            heapq.heappush(self._due, (entry.check_point.revive_ms, self._number, entry))

    def _take_ack(self, ack: Acknowledgement) -> None:
        entry = self._open.get(ack.key)
        if entry is None:
            return  # it came after its check point was done: the message was given out again
        for queue_offset in ack.queue_offsets:
            index = entry.check_point.index_of(queue_offset)
            if index is not None:
                # Of a copy that is on its way it says nothing before that is safe.
                entry.acked |= (1 << index) & ~entry.coming

    def _revive_due(self, now_ms: int, until_ms: int, most: int) -> int:
        """Revive `most` messages at most that are due by `until_ms`; how many were tried. A check
        point that is due later, of a client, keeps none of those after it."""
        left = most
        for _ in range(min(UNSAVED_LOOKS, len(self._unsaved))):
            if self._is_held(now_ms, left):
                break
            left -= self._revive_entry(self._unsaved.popleft(), now_ms, left)
        for _ in range(LOOKS_MAX):
            if self._is_held(now_ms, left) or not self._due or self._due[0][0] > until_ms:
                break
            entry = heapq.heappop(self._due)[2]
            # One whose retry topic was made now costs as much as a message.
            left -= self._revive_entry(entry, now_ms, left) or entry.is_due
        return most - left

    def _is_held(self, now_ms: int, left: int) -> bool:
        """Whether nothing more is revived in this step."""
        most = 1 if self._failures else REVIVED_MAX
        return left <= 0 or now_ms < self._paused_ms or self._coming >= most

    def _revive_entry(self, entry: _Open, now_ms: int, most: int) -> int:
        """Revive what is left of a check point that is due; how many messages were tried."""
        entry.is_due = False
        if not entry.left:
            return 0
        key, tried = entry.check_point.key, 0
        state = RetryTopic.READY
        if key.broker_name == self._broker_name:
            state = self._writer.prepare(entry.check_point, now_ms)
        if state is RetryTopic.GONE:
            entry.acked = entry.whole & ~entry.coming
        elif state is RetryTopic.UNSAVED:
            entry.is_due = True
            self._unsaved.append(entry)
        else:
            is_full = state is RetryTopic.FULL
            tried = self._revive(entry, now_ms, most, is_full=is_full)
            if entry.left:
                self._put_in(entry)
        return tried

    def _revive(self, entry: _Open, now_ms: int, most: int, *, is_full: bool = False) -> int:
        """Send messages that are not acknowledged to the retry topic, `most` at most; how many were
        tried. Where the table of topics `is_full` they are put off."""
        left, tried, given = entry.left, 0, []
        for index, queue_offset in enumerate(entry.check_point.queue_offsets()):
            if not left & 1 << index:
                continue
            if self._is_held(now_ms, most - tried):
                break
            tried += 1
            if is_full:
                is_logged = self._put_one_off(entry, index, queue_offset, now_ms)
            else:
                is_logged = self._revive_one(entry, index, queue_offset, now_ms)
            if is_logged:
                given.append(queue_offset)
        if given:
            # After the copies in the log: a broker that has this record has them, too, whatever
            # progress it knows of (RocketMQ makes each of them once more).
            done = Acknowledgement(entry.check_point.key, tuple(given), is_batch=True)
            invisible_ms = entry.check_point.invisible_ms
            self._log.add_ack(done, invisible_ms, self._queue_id, now_ms)
        return tried

    def _revive_one(self, entry: _Open, index: int, queue_offset: QueueOffset, now_ms: int) -> bool:
        """Send one message to the retry topic; whether the log has what stands for it."""
        key = entry.check_point.key
        if key.broker_name != self._broker_name:
            # Of another broker, which had ours keep it: what has that offset here is another one.
            return self._put_one_off(entry, index, queue_offset, now_ms)
        units = self._store.units(key.topic, key.queue_id, queue_offset, 1)
        record = self._store.record_of(units[0]) if units else None
        if record is None or units[0].queue_offset != queue_offset:
            entry.acked |= 1 << index  # retention took it
            return False
        written = self._writer.revive(record, entry.check_point, now_ms)
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
        life, at_once = self._life, written.done
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
                self._failed(now_ms, is_refused=at_once and status in _REFUSED)
                self._put_in(entry)

        written.then(done)
        return not written.done or written.value is PutStatus.PUT_OK

    def _failed(self, now_ms: int, *, is_refused: bool) -> None:
        """A write of `now_ms` failed. All that were under way at one moment fail together: they
        count once."""
        if now_ms < self._paused_ms:
            return
        number = 0 if is_refused else min(self._failures, len(PAUSES_MS) - 1)
        self._paused_ms = now_ms + PAUSES_MS[number]
        self._failures += not is_refused

    def _remember(self, key: CheckPointKey) -> None:
        """The check point is done, also where it comes again."""
        self._done[key] = None
        if len(self._done) > 2 * DONE_MAX:
            self._done = dict.fromkeys(list(self._done)[DONE_MAX:])

    def _advance(self, now_ms: int) -> None:
        """The progress goes over check points that are done, in the order of the queue."""
        done: list[tuple[CheckPointKey, QueueOffset]] = []
        for key, entry in self._open.items():
            if entry.acked != entry.whole or len(done) == LOOKS_MAX:
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
