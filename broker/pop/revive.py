"""Revival: messages that were popped and not acknowledged in time become visible again.

Owns the progress of each revive queue (RocketMQ: PopReviveService): check points are read with
their acknowledgements; the unacknowledged messages of a due check point are copied to the group's
retry topic. The progress must never pass a check point before each of its messages is acknowledged,
or safe in the retry topic (I16). Nothing is revived before all acknowledgements of that time were
read. Runs on the master alone.

    revive queue  | done | done | open | open |  ...  acks  | end
                         ^ progress (the last one done)     ^ next to read

    open --due--> being copied --all acknowledged or safe--> done
      ^                |  failed, refused, or retry topic not saved
      '----------------'
"""

import heapq
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NamedTuple, Protocol

from turbopump.broker.pop.revive_log import ReviveLog
from turbopump.engine.deferred import Deferred
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
"""Group whose offset in the revive topic is the progress (PopAckConstants.REVIVE_GROUP): the offset
of the last check point done, not of the next one, as in RocketMQ."""
READ_MAX: Final = 256
"""Maximum number of records of all revive queues that are read in a step, some 5 ms."""
OPEN_MAX: Final = 50_000
"""Maximum number of open check points of a revive queue; while the first of them are due, reading
stops."""
BACK_MAX: Final = 10_000
"""Number of records before the progress whose check points are remembered as done: timers of a new
master, or after a crash, deliver some of them once more."""
DONE_MAX: Final = 5_000
"""Number of check points of a revive queue that are remembered as done, the latest ones; at times
twice as many, 300 bytes each."""
FOREIGN_MS: Final = 13 * 3_600_000
"""Maximum time in ms from a check point's store time to its due time. Brokers store a check point a
second before it is due; a later one was written by a client, and is skipped."""
WRITES_MAX: Final = 40
"""Maximum number of messages of all revive queues that are revived in a step, some 5 ms."""
LOOKS_MAX: Final = 4_096
"""Maximum number of check points of a revive queue that a step passes over: acknowledged ones, and
done ones."""
UNSAVED_LOOKS: Final = 64
"""Maximum number of check points of a revive queue that a step tries again, because their retry
topic was not saved."""
PAUSES_MS: Final = (1_000, 2_000, 5_000, 10_000, 30_000)
"""Pauses in ms after consecutive failures; the last one repeats. A failed message may be in the
log all the same, and each try adds a copy, so one message at a time is tried then. A store that
refuses a message writes nothing: it is tried again after the first of these pauses, and does not
count as a failure."""
_MINUTES: Final = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 60, 120)
REVIVE_RETRY_DELAYS_S: Final = (10, 20, 30, *(60 * minutes for minutes in _MINUTES))
"""Delays in s of a message that cannot be revived: item i after i earlier delays, the last item for
all later ones (PopReviveService.ckRewriteIntervalsInSeconds)."""
REVIVED_MAX: Final = 64
"""Maximum number of messages of a revive queue that are on their way to retry topics."""
UNREAD_SLACK_MS: Final = 2_000
"""While a revive queue is not read to its end, check points are due only up to this many ms before
the last record read: acknowledgements come up to two seconds after them (PopReviveService)."""


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


class RetryTopicState(Enum):
    """Whether messages of a check point can be revived now: the state of the retry topic."""

    READY = auto()
    """The retry topic exists and is saved: messages may be revived."""
    UNSAVED = auto()
    """The retry topic is new and not saved: a crash would remove it, and its messages could not be
    popped. Or the topic of the messages is being deleted."""
    FULL = auto()
    """The table of topics has no room for it."""
    GONE = auto()
    """The topic or the group is deleted, or was deleted since the pop: there is no consumer for the
    messages."""


class RetryWriter(Protocol):
    """Stores revived messages in retry topics (retries.py)."""

    def prepare_topic(self, check_point: CheckPoint, now_ms: int) -> RetryTopicState:
        """Make the retry topic of a check point's group, if it is missing; `now_ms` is epoch ms."""

    def append_copy(
        self, record: Record, check_point: CheckPoint, now_ms: int
    ) -> Deferred[PutStatus]:
        """Append a copy of the message to the check point's retry topic, which must be READY.
        Resolves with PUT_OK once the copy is safe, else with the status of the failure."""


class Stepped(NamedTuple):
    """The work of a step of a revive queue: records read (0 if too many check points are open to
    read), and messages that were tried to be sent to retry topics."""

    read: int
    written: int


@dataclass(slots=True)
class _OpenCheckPoint:
    """A check point that is not done. Bit i of `acked`: message i is handled, or is in the retry
    topic; of `coming`: its copy is being written."""

    check_point: CheckPoint
    queue_offset: QueueOffset
    acked: int
    coming: int = 0
    is_due: bool = False
    """Whether it waits, in the heap for its time or in `_unsaved` for its retry topic."""

    @property
    def remaining_bits(self) -> int:
        """The bits of messages that are neither handled nor being copied."""
        return self.all_bits & ~(self.acked | self.coming)

    @property
    def all_bits(self) -> int:
        """The bits of all messages of the check point."""
        return (1 << len(self.check_point.distances)) - 1


class ReviveQueue:
    """A queue of the revive topic at work: reads check points and acknowledgements, and revives
    messages that were not acknowledged in time. Loop thread only; times are epoch ms.

    `progress` reads and sets the last check point done. Check points of another `broker_name` are
    written again for later, not revived."""

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
        self._open: dict[CheckPointKey, _OpenCheckPoint] = {}
        self._done: dict[CheckPointKey, None] = {}
        self._due: list[tuple[int, int, _OpenCheckPoint]] = []
        """A heap of (revive time, number, check point)."""
        self._number = 0
        self._unsaved: deque[_OpenCheckPoint] = deque()
        """Check points that are due, and wait for their retry topics."""
        self._next: QueueOffset | None = None
        self._first = QueueOffset(0)
        self._seen_ms = 0
        self._coming = 0
        self._failures = 0
        self._paused_ms = 0
        self._life = 0
        self._behind: QueueOffset | None = None
        """Offset up to which all records are read before anything is revived."""
        self.remember_end()

    def remember_end(self) -> None:
        """Remember the queue's present end. Call it in each step while this broker is not the
        master: the next term begins to read there at the latest, because a greater progress belongs
        to a longer log."""
        self._limit = max(0, self._store.max_queue_offset(self._topic, self._queue_id))

    def forget_state(self) -> None:
        """Drop all state, and ignore pending writes: the role changed. The next `step` reads again
        from the progress."""
        self._open.clear()
        self._done.clear()
        self._due.clear()
        self._unsaved.clear()
        self._next, self._seen_ms, self._coming = None, 0, 0
        self._failures, self._paused_ms, self._behind = 0, 0, None
        self._life += 1

    def read_first(self) -> None:
        """Make `step` revive nothing before all records that are in the queue now are read: late
        records may acknowledge messages of check points read long ago. Reaching OPEN_MAX ends that,
        too."""
        self._behind = self._store.max_queue_offset(self._topic, self._queue_id)

    def step(
        self, now_ms: int, settled_ms: int, room: int, writes: int, *, holds: bool = False
    ) -> Stepped:
        """Read at most `room` records, and revive at most `writes` messages that are due by
        `now_ms` and `settled_ms`, the time up to which each acknowledgement can be read. With
        `holds` nothing is revived. Then the progress moves over check points that are done."""
        is_full = len(self._open) >= OPEN_MAX and self._first_due_ms() <= self._unread_ms()
        taken = self._read(room) if room > 0 and not is_full else room
        until_ms = min(now_ms, settled_ms)
        if taken == room:
            # Records that are not read may acknowledge messages of the check points that are.
            until_ms = min(until_ms, self._unread_ms())
        if self._behind is not None and (is_full or (self._next or 0) >= self._behind):
            self._behind = None  # a full queue reads nothing more
        written = 0
        if self._behind is None and not holds:
            written = self._revive_due(now_ms, until_ms, writes)
        self._advance_progress(now_ms)
        return Stepped(0 if is_full else taken, written)

    def behind_ms(self, now_ms: int) -> int:
        """Return how long, in ms, the first open check point has been due at `now_ms`; 0 if it is
        not due or no check point is open."""
        return max(0, now_ms - self._first_due_ms()) if self._open else 0

    def _unread_ms(self) -> int:
        """The time in epoch ms at which the first unread record may be due."""
        return self._seen_ms - UNREAD_SLACK_MS

    def _first_due_ms(self) -> int:
        """The time in epoch ms at which the first open check point of the queue is due."""
        return next(iter(self._open.values())).check_point.revive_ms

    def _read(self, room: int) -> int:
        """Read the next records; return their number."""
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
            if record is not None:  # else retention removed it, or it is damaged, which was logged
                self._apply_record(record, unit)
        return len(units)

    def _apply_record(self, record: Record, unit: QueueUnit) -> None:
        """Apply a record: open its check point, or count its acknowledgements. A malformed one is
        logged."""
        properties = decode_properties(record.properties)
        due = properties.get(names.TIMER_DELIVER_MS, "")
        is_number = due.isascii() and due.isdigit() and len(due) < 19
        due_ms = int(due) if is_number else record.store_timestamp_ms
        self._seen_ms = max(self._seen_ms, min(due_ms, record.store_timestamp_ms))
        tag = properties.get(names.TAGS)
        try:
            if tag == CHECK_POINT_TAG:
                self._open_check_point(CheckPoint.parse(record.body), unit.queue_offset, record)
            elif tag in (ACK_TAG, BATCH_ACK_TAG):
                self._apply_ack(Acknowledgement.parse(record.body, tag == BATCH_ACK_TAG))
        except BadBody as error:
            # The topic takes messages of clients, as RocketMQ's does.
            logger.warning(
                "ignored a record of %s at log offset %d: %s", self._topic, unit.log_offset, error
            )

    def _open_check_point(
        self, check_point: CheckPoint, queue_offset: QueueOffset, record: Record
    ) -> None:
        """Open a check point, unless it is done or open. Raises BadBody."""
        if check_point.revive_ms > record.store_timestamp_ms + FOREIGN_MS:
            raise BadBody(f"the check point's time {check_point.revive_ms} is too late")
        if queue_offset < self._first:
            self._remember_done(check_point.key)
        elif check_point.key not in self._done and check_point.key not in self._open:
            entry = _OpenCheckPoint(check_point, queue_offset, check_point.acked)
            self._open[check_point.key] = entry
            self._schedule(entry)

    def _schedule(self, entry: _OpenCheckPoint) -> None:
        """Add the check point to the heap of due times, unless it waits already."""
        if not entry.is_due:
            entry.is_due = True
            self._number += 1
            heapq.heappush(self._due, (entry.check_point.revive_ms, self._number, entry))

    def _apply_ack(self, ack: Acknowledgement) -> None:
        """Mark the acknowledged messages of an open check point."""
        entry = self._open.get(ack.key)
        if entry is None:
            return  # its check point is done: the message was given out again
        for queue_offset in ack.queue_offsets:
            index = entry.check_point.index_of(queue_offset)
            if index is not None:
                # It does not count for a copy that is on its way, until that copy is safe.
                entry.acked |= (1 << index) & ~entry.coming

    def _revive_due(self, now_ms: int, until_ms: int, most: int) -> int:
        """Revive at most `most` messages that are due by `until_ms`; return how many were tried. A
        check point of a client that is due later does not hold back the check points after it."""
        left = most
        for _ in range(min(UNSAVED_LOOKS, len(self._unsaved))):
            if self._must_stop(now_ms, left):
                break
            left -= self._revive_entry(self._unsaved.popleft(), now_ms, left)
        for _ in range(LOOKS_MAX):
            if self._must_stop(now_ms, left) or not self._due or self._due[0][0] > until_ms:
                break
            entry = heapq.heappop(self._due)[2]
            # Making a retry topic costs as much as a message.
            left -= self._revive_entry(entry, now_ms, left) or entry.is_due
        return most - left

    def _must_stop(self, now_ms: int, left: int) -> bool:
        """Whether nothing more is revived in this step: `left` messages are allowed, a pause lasts,
        or too many copies are being written."""
        most = 1 if self._failures else REVIVED_MAX
        return left <= 0 or now_ms < self._paused_ms or self._coming >= most

    def _revive_entry(self, entry: _OpenCheckPoint, now_ms: int, most: int) -> int:
        """Revive the remaining messages of a due check point; return how many were tried."""
        entry.is_due = False
        if not entry.remaining_bits:
            return 0
        key, tried = entry.check_point.key, 0
        state = RetryTopicState.READY
        if key.broker_name == self._broker_name:
            state = self._writer.prepare_topic(entry.check_point, now_ms)
        if state is RetryTopicState.GONE:
            entry.acked = entry.all_bits & ~entry.coming
        elif state is RetryTopicState.UNSAVED:
            entry.is_due = True
            self._unsaved.append(entry)
        else:
            is_full = state is RetryTopicState.FULL
            tried = self._revive_messages(entry, now_ms, most, is_full=is_full)
            if entry.remaining_bits:
                self._schedule(entry)
        return tried

    def _revive_messages(
        self, entry: _OpenCheckPoint, now_ms: int, most: int, *, is_full: bool = False
    ) -> int:
        """Revive at most `most` unacknowledged messages of a check point; return how many were
        tried. If the table of topics `is_full` they are put off."""
        left, tried, given = entry.remaining_bits, 0, []
        for index, queue_offset in enumerate(entry.check_point.queue_offsets()):
            if not left & 1 << index:
                continue
            if self._must_stop(now_ms, most - tried):
                break
            tried += 1
            if is_full:
                is_logged = self._postpone_message(entry, index, queue_offset, now_ms)
            else:
                is_logged = self._revive_message(entry, index, queue_offset, now_ms)
            if is_logged:
                given.append(queue_offset)
        if given:
            # Written after the copies: a broker whose log has this record has the copies, too,
            # whichever progress it has (RocketMQ makes each of them once more).
            done = Acknowledgement(entry.check_point.key, tuple(given), is_batch=True)
            invisible_ms = entry.check_point.invisible_ms
            self._log.add_ack(done, invisible_ms, self._queue_id, now_ms)
        return tried

    def _revive_message(
        self, entry: _OpenCheckPoint, index: int, queue_offset: QueueOffset, now_ms: int
    ) -> bool:
        """Append the copy of one message to the retry topic; return whether it is in the log or
        being written."""
        key = entry.check_point.key
        if key.broker_name != self._broker_name:
            # The check point belongs to another broker; this log has a different message at that
            # offset.
            return self._postpone_message(entry, index, queue_offset, now_ms)
        units = self._store.units(key.topic, key.queue_id, queue_offset, 1)
        record = self._store.record_of(units[0]) if units else None
        if record is None or units[0].queue_offset != queue_offset:
            entry.acked |= 1 << index  # retention removed it
            return False
        written = self._writer.append_copy(record, entry.check_point, now_ms)
        return self._track_write(
            entry,
            index,
            written,
            now_ms,
            lambda: self._postpone_message(entry, index, queue_offset, now_ms),
        )

    def _postpone_message(
        self, entry: _OpenCheckPoint, index: int, queue_offset: QueueOffset, now_ms: int
    ) -> bool:
        """Write a new check point for a message that cannot be revived now, so that it does not
        hold back others (PopReviveService.rePutCK); return whether it is in the log or being
        written."""
        old = entry.check_point
        later_s = REVIVE_RETRY_DELAYS_S[min(old.retries, len(REVIVE_RETRY_DELAYS_S) - 1)]
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
        return self._track_write(entry, index, written, now_ms, None)

    def _track_write(
        self,
        entry: _OpenCheckPoint,
        index: int,
        written: Deferred[PutStatus],
        now_ms: int,
        refused: Callable[[], object] | None,
    ) -> bool:
        """Track a message's copy, or its new check point, until the write succeeds or fails;
        `refused` is called if the copy can never be written. Return whether it is in the log or
        being written."""
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
                self._pause_after_failure(now_ms, is_refused=at_once and status in _REFUSED)
                self._schedule(entry)

        written.then(done)
        return not written.done or written.value is PutStatus.PUT_OK

    def _pause_after_failure(self, now_ms: int, *, is_refused: bool) -> None:
        """Pause after a write of `now_ms` failed. Writes that were pending together fail together,
        and count once."""
        if now_ms < self._paused_ms:
            return
        number = 0 if is_refused else min(self._failures, len(PAUSES_MS) - 1)
        self._paused_ms = now_ms + PAUSES_MS[number]
        self._failures += not is_refused

    def _remember_done(self, key: CheckPointKey) -> None:
        """Remember that the check point is done, in case its record comes again."""
        self._done[key] = None
        if len(self._done) > 2 * DONE_MAX:
            self._done = dict.fromkeys(list(self._done)[DONE_MAX:])

    def _advance_progress(self, now_ms: int) -> None:
        """Move the progress over check points that are done, in the order of the queue."""
        done: list[tuple[CheckPointKey, QueueOffset]] = []
        for key, entry in self._open.items():
            if entry.acked != entry.all_bits or len(done) == LOOKS_MAX:
                break
            # An acknowledged check point may leave before its time: its acknowledgements are read.
            done.append((key, entry.queue_offset))
        for key, _ in done:
            del self._open[key]
            self._remember_done(key)
        if done:
            self._progress.set(self._queue_id, done[-1][1], now_ms)


@dataclass(slots=True, frozen=True)
class ReviveProgress:
    """The place of the progress: the revive group's committed offsets. `get(queue_id)` returns the
    offset of the last check point done, -1 for none; `set(queue_id, offset, now_ms)` commits it."""

    get: Callable[[int], int]
    set: Callable[[int, QueueOffset, int], None]
