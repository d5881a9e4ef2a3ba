"""Revival on an acting replica: unacknowledged messages go to retry topics at other masters.

Owns the open check points of the dead master and the messages on their way. It must never write to
this broker's log (I11), never send a message whose acknowledgement is in that log, and never count
a check point as done before each of its messages is acknowledged or has arrived (I16).

    revive queues of the log ------.
    check points and acks, due -----+-> open check points
    among the timers                |
    notes of this replica (acting_journal.py)'

    open --due--> copies on their way --all acknowledged or arrived--> done

A check point and its acknowledgements meet here, because this broker's log has all that the dead
master stored and this broker copied: neither is sent elsewhere alone. (RocketMQ sends both to other
brokers, where they miss each other.)
"""

import heapq
import itertools
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from turbopump.broker.escape.bridge import Escape
from turbopump.broker.escape.retry_window import RetryWindow
from turbopump.broker.pop.acting_journal import ActingJournal
from turbopump.broker.pop.revive import BACK_MAX, DONE_MAX, FOREIGN_MS, READ_MAX, ReviveProgress
from turbopump.engine.deferred import Deferred, gather
from turbopump.engine.store import Store
from turbopump.engine.timer.timer_files import TIMER_TOPIC
from turbopump.engine.types import Buffer, NewMessage, QueueOffset, QueueUnit
from turbopump.net.wire import properties as names
from turbopump.net.wire.bodies import BadBody, as_int
from turbopump.net.wire.pop_records import (
    ACK_TAG,
    BATCH_ACK_TAG,
    CHECK_POINT_TAG,
    Acknowledgement,
    CheckPoint,
    CheckPointKey,
)
from turbopump.net.wire.properties import decode_properties
from turbopump.pyx.index import java_hash
from turbopump.pyx.record import Record

logger = logging.getLogger(__name__)

OPEN_MAX: Final = 25_000
"""Maximum number of late check points (due, not taken completely by a master), of 600 to 2,500
bytes each; beyond it no timer is read. As many may be open that are not due. Further check points
wait for the master."""
SENT_PER_STEP: Final = 128
"""Maximum number of messages sent in a step, some 5 ms."""
FOREIGN_PAUSE_MS: Final = 60_000
"""Pause in ms before a check point of another broker is tried again: its messages are not in this
log."""

_CHECK_POINT: Final = java_hash(CHECK_POINT_TAG.encode()) & 0xFFFFFFFF
_ACKS: Final = {java_hash(tag.encode()) & 0xFFFFFFFF for tag in (ACK_TAG, BATCH_ACK_TAG)}


class LeavingCopies(Protocol):
    """Makes the copies of messages that an acting replica sends to other masters (retries.py)."""

    def is_former(self, check_point: CheckPoint) -> bool:
        """Whether the topic or the group was deleted since the pop: nothing is sent then."""

    def copy_for_other_master(
        self, record: Record, check_point: CheckPoint
    ) -> tuple[NewMessage, str]:
        """Return (the copy for the retry topic at another master, the topic whose route names the
        masters that the group reads)."""


@dataclass(slots=True, eq=False)
class _OpenCheckPoint:
    """A check point that is not done. Bit i of `acked`: message i is handled, or has arrived at
    another master."""

    check_point: CheckPoint
    acked: int
    queue_id: int
    """Queue id of the revive queue."""
    left: Callable[[], None]
    """Called once the check point is done."""
    is_late: bool = False
    """Whether the check point is due."""

    @property
    def all_bits(self) -> int:
        """The bits of all messages of the check point."""
        return (1 << len(self.check_point.distances)) - 1


class PopEscape:
    """Revival on a replica that acts for its master: sends messages that were not acknowledged in
    time to retry topics at other masters. Loop thread only; times are epoch ms, as in check
    points."""

    def __init__(
        self,
        store: Store,
        escape: Escape,
        copies: LeavingCopies,
        progress: ReviveProgress,
        notes: ActingJournal,
        revive: tuple[str, Callable[[], int]],
        broker_name: str,
        delivered_ms: Callable[[int], int],
        acts: Callable[[], bool],
    ) -> None:
        """`revive`: the revive topic and its number of queues; `delivered_ms` returns the time up
        to which all timers in the log were delivered; `acts` returns whether this replica revives.
        """
        self._store, self._escape, self._copies = store, escape, copies
        self._progress, self._notes, self._broker_name = progress, notes, broker_name
        notes.on_note = self._on_note
        self._topic, self._queue_count = revive
        self._delivered_ms, self._acts = delivered_ms, acts
        self._open: dict[CheckPointKey, _OpenCheckPoint] = {}
        self._done: dict[CheckPointKey, None] = {}
        self._due: list[tuple[int, int, _OpenCheckPoint]] = []
        """Heap of (time, number, check point whose messages are to be sent then)."""
        self._numbers = itertools.count()
        self._queues: list[dict[CheckPointKey, QueueOffset]] = []
        """Open check points of each revive queue, in its order."""
        self._reading: Iterator[None] | None = None
        self._is_on = self._is_read = False
        self._late_count = self._now_ms = 0
        self._left = 0
        """Number of messages that this step may still send."""
        self._window: RetryWindow[_OpenCheckPoint, bool] = RetryWindow(
            escape, self._send_remaining, self._remove_entry
        )

    @property
    def has_room(self) -> bool:
        """Whether timers may be passed to `take_timer_message`. The revive queues must be read
        first: in a master's log, too, timers follow the records of these queues."""
        return self._is_read and self._late_count < OPEN_MAX

    @property
    def open_count(self) -> int:
        """Number of check points that are not done."""
        return len(self._open)

    def handles_topic(self, topic: str) -> bool:
        """Whether a due timer for the topic must be passed to `take_timer_message` instead of being
        sent: it is the revive topic."""
        return topic == self._topic

    def take_timer_message(self, message: NewMessage, left: Callable[[], None]) -> None:
        """Take the message of an expired timer: a check point or acknowledgements. `left` is
        called, possibly before this returns, once a restart need not deliver this timer again; not
        at all if there is no room or acting stops. Malformed messages are logged and count as done.
        An acknowledgement's slot is never before that of its check point, which holds back the
        progress."""
        properties = decode_properties(message.properties)
        try:
            if properties.get(names.TAGS) == CHECK_POINT_TAG:
                check_point = CheckPoint.parse(message.body)
                _check_time(check_point, self._now_ms)
                if check_point.key not in self._open and check_point.key not in self._done:
                    if len(self._open) < 2 * OPEN_MAX:  # else its slot holds back the progress
                        queue_id = as_int(properties.get(names.REAL_QID, "0"), names.REAL_QID)
                        self._add(check_point, queue_id, left)
                    return
            else:
                entry, acked = self._apply_acks(properties.get(names.TAGS), message.body)
                if entry is not None:
                    # A master that is back may find the check point in its revive queue, and skips
                    # timers before the progress of this replica.
                    self._note_handled(entry, acked).then(lambda _on_note: left())
                    return
        except BadBody as error:
            logger.warning("ignored a timer for %s: %s", self._topic, error)
        left()

    def stop(self) -> None:
        """Stop acting and drop all open check points: answers to messages on their way are
        ignored."""
        if self._is_on:
            for table in (self._open, self._done, self._due, self._queues):
                table.clear()
            self._window.clear()
            self._reading, self._is_on, self._is_read = None, False, False
            self._late_count = 0

    def step(self, now_ms: int) -> bool:
        """Read the revive queues first, in steps, then send messages that were not acknowledged in
        time, at most SENT_PER_STEP. Ends the work if this replica no longer acts. Returns whether
        to call again at once."""
        self._now_ms = now_ms
        if not self._acts():
            self.stop()
            return False
        if not self._is_on:
            self._is_on, self._reading = True, self._read_all()
        if self._reading is not None:
            if next(self._reading, self) is not self:
                return True
            self._reading = None
        until_ms, self._left = min(now_ms, self._delivered_ms(now_ms)), SENT_PER_STEP
        while self._left > 0:
            more = self._window.resend_failed(
                1
            )  # in turn with others, which failures must not hold up
            if self._due and self._due[0][0] <= until_ms and self._escape.has_room:
                self._begin_sending(heapq.heappop(self._due)[-1])
            elif not more:
                return False
        return True

    # Open check points

    def _read_all(self) -> Iterator[None]:
        """Read the revive queues, in steps, then the acknowledgements among the timers for their
        open check points."""
        for queue_id in range(self._queue_count()):
            self._queues.append({})
            yield from self._read_queue(queue_id)
        if self._open:
            first_ms = min(key.pop_time_ms for key in self._open)
            yield from self._read_acks(first_ms)
        self._is_read = True
        for at, note in enumerate(self._notes.all_notes(), 1):
            self._on_note(note.key)
            if at % READ_MAX == 0:
                yield

    def _on_note(self, key: CheckPointKey) -> None:
        """Apply a new or changed note (acting_journal.py): messages were given out, or
        acknowledged."""
        note, entry = self._notes.get(key), self._open.get(key)
        if note is None or not self._is_read:
            return  # all notes are applied once the log was read
        if entry is not None:
            entry.acked |= note.acked_bits(entry.check_point)
            return
        is_open = not note.is_complete and key not in self._done
        has_room = len(self._open) < 2 * OPEN_MAX  # else it waits for the master
        if note.check_point is not None and is_open and has_room:
            self._add(note.check_point, note.revive_queue_id, _do_nothing)

    def _read_queue(self, queue_id: int) -> Iterator[None]:
        """Read a revive queue from the progress on, in steps."""
        store, topic = self._store, self._topic
        end = store.max_queue_offset(topic, queue_id)
        low = max(store.min_queue_offset(topic, queue_id), 0)
        first = max(min(self._progress.get(queue_id) + 1, end), low)
        at = QueueOffset(max(first - BACK_MAX, low))
        is_full = False
        while at < end:
            at = QueueOffset(max(at, store.min_queue_offset(topic, queue_id)))
            units = store.units(topic, queue_id, at, READ_MAX)
            if not units:
                return
            for unit in units:
                is_full = is_full or len(self._open) >= OPEN_MAX
                if not (is_full and unit.tags_code & 0xFFFFFFFF == _CHECK_POINT):
                    self._apply_record(queue_id, unit, is_done=unit.queue_offset < first)
            at = QueueOffset(units[-1].queue_offset + 1)
            yield

    def _apply_record(self, queue_id: int, unit: QueueUnit, *, is_done: bool) -> None:
        """Apply a record of a revive queue. `is_done`: it is before the progress, so its check
        point is done."""
        code = unit.tags_code & 0xFFFFFFFF
        is_wanted = code == _CHECK_POINT or (code in _ACKS and not is_done)
        record = self._store.record_of(unit) if is_wanted else None
        if record is None:
            return
        tag = decode_properties(record.properties).get(names.TAGS)
        try:
            if tag != CHECK_POINT_TAG:
                self._apply_acks(tag, record.body)
                return
            check_point = CheckPoint.parse(record.body)
            _check_time(check_point, record.store_timestamp_ms)
        except BadBody as error:
            logger.warning(
                "ignored a record of %s at log offset %d: %s", self._topic, unit.log_offset, error
            )
            return
        if is_done:
            self._remember_done(check_point.key)
        elif check_point.key not in self._open and check_point.key not in self._done:
            self._queues[queue_id][check_point.key] = unit.queue_offset
            left = partial(self._advance_progress, queue_id)
            self._add(check_point, queue_id, left)

    def _read_acks(self, since_ms: int) -> Iterator[None]:
        """Read the acknowledgements stored since `since_ms` as timers. The progress of timers may
        be past them although that of the revive queue is not past their check points."""
        store = self._store
        low = max(store.min_queue_offset(TIMER_TOPIC, 0), 0)
        end = store.max_queue_offset(TIMER_TOPIC, 0)
        while end > low:
            start = QueueOffset(max(low, end - READ_MAX))
            for unit in reversed(store.units(TIMER_TOPIC, 0, start, end - start)):
                if unit.tags_code & 0xFFFFFFFF not in _ACKS:
                    continue
                record = store.record_of(unit)
                if record is None:
                    continue
                if record.store_timestamp_ms < since_ms:
                    return
                properties = decode_properties(record.properties)
                if properties.get(names.REAL_TOPIC) == self._topic:
                    try:
                        entry, acked = self._apply_acks(properties.get(names.TAGS), record.body)
                        if entry is not None:
                            self._note_handled(entry, acked)  # see take
                    except BadBody:
                        continue  # written by a client
            end = start
            yield

    def _add(self, check_point: CheckPoint, queue_id: int, left: Callable[[], None]) -> None:
        """Add an open check point, with the acknowledgements of its note; `left` is called once it
        is done."""
        entry = _OpenCheckPoint(check_point, check_point.acked, queue_id, left)
        note = self._notes.get(check_point.key)
        if note is not None:
            entry.acked |= note.acked_bits(check_point)
        self._open[check_point.key] = entry
        self._schedule(entry, check_point.revive_ms)

    def _apply_acks(
        self, tag: str | None, body: Buffer
    ) -> tuple[_OpenCheckPoint | None, list[QueueOffset]]:
        """Mark messages as handled by the acknowledgements in a record; return the check point
        (None if it is done or unknown) and the offsets of the handled messages."""
        if tag not in (ACK_TAG, BATCH_ACK_TAG):
            return None, []
        ack = Acknowledgement.parse(body, tag == BATCH_ACK_TAG)
        entry, acked = self._open.get(ack.key), list[QueueOffset]()
        if entry is None:
            return None, []
        for queue_offset in ack.queue_offsets:
            index = entry.check_point.index_of(queue_offset)
            if index is not None:
                entry.acked |= 1 << index
                acked.append(queue_offset)
        return entry, acked

    def _note_handled(
        self, entry: _OpenCheckPoint, acked: Sequence[QueueOffset]
    ) -> Deferred[object]:
        """Note the handled messages of a check point in the journal; resolves once the note is on
        disk."""
        return self._notes.add_handled(entry.check_point, acked, entry.queue_id)

    def _remember_done(self, key: CheckPointKey) -> None:
        """Remember that the check point is done, in case its record comes again: the progress of
        the timers may be older."""
        self._done[key] = None
        if len(self._done) > 2 * DONE_MAX * len(self._queues):
            self._done = dict.fromkeys(list(self._done)[DONE_MAX * len(self._queues) :])

    def _advance_progress(self, queue_id: int) -> None:
        """Move the progress of the revive queue over check points that are done, in the order of
        the queue."""
        queue, done = self._queues[queue_id], None
        while queue and (first := next(iter(queue))) not in self._open:
            done = queue.pop(first)
        if done is not None:
            self._progress.set(queue_id, done, self._now_ms)

    # Messages that are sent

    def _schedule(self, entry: _OpenCheckPoint, at_ms: int) -> None:
        """Schedule the check point for `at_ms`, the time at which its messages are due."""
        heapq.heappush(self._due, (at_ms, next(self._numbers), entry))

    def _begin_sending(self, entry: _OpenCheckPoint) -> None:
        """Begin to send the messages of a check point that is due, unless it is another
        broker's."""
        self._late_count += not entry.is_late
        entry.is_late = True
        if self._is_done(entry) or entry.check_point.key.broker_name == self._broker_name:
            self._window.start(entry)
        else:
            self._left -= 1
            self._schedule(entry, self._now_ms + FOREIGN_PAUSE_MS)

    def _is_done(self, entry: _OpenCheckPoint) -> bool:
        """Whether each message of the check point is handled, or its topic or group was deleted
        since the pop."""
        if self._copies.is_former(entry.check_point):
            entry.acked = entry.all_bits  # other messages lie at its offsets now
        return entry.acked == entry.all_bits

    def _send_remaining(
        self, entry: _OpenCheckPoint, failures: int
    ) -> Deferred[bool | None] | None:
        """Send the unacknowledged messages of a check point; resolves once all are answered, to
        None if a retry is needed. No Deferred: there is nothing to send."""
        if self._is_done(entry):
            self._left -= 1
            self._remove_entry(entry)
            return None
        sent = [
            self._send(entry, index, queue_offset, failures)
            for index, queue_offset in enumerate(entry.check_point.queue_offsets())
            if not entry.acked & 1 << index
        ]
        self._left -= len(sent)
        return gather(sent).map(lambda _answered: entry.acked == entry.all_bits or None)

    def _send(
        self, entry: _OpenCheckPoint, index: int, queue_offset: QueueOffset, failures: int
    ) -> Deferred[None]:
        """Send the message with that index in the check point; its result is applied before the
        Deferred resolves."""
        key = entry.check_point.key
        units = self._store.units(key.topic, key.queue_id, queue_offset, 1)
        record = self._store.record_of(units[0]) if units else None
        took = partial(self._on_arrival, entry, index)
        if record is None or units[0].queue_offset != queue_offset:
            # Retention removed it; or the replica that gave it out had more of the log.
            is_removed = queue_offset < self._store.max_queue_offset(key.topic, key.queue_id)
            return Deferred.resolved(is_removed or None).map(took)
        message, home = self._copies.copy_for_other_master(record, entry.check_point)
        return self._escape.send(message, failures, home=home).map(took)

    def _on_arrival(self, entry: _OpenCheckPoint, index: int, arrival: object) -> None:
        """Mark a message as handled, because it has arrived at another master (`arrival` is not
        None)."""
        if arrival is not None and self._open.get(entry.check_point.key) is entry:
            entry.acked |= 1 << index
            self._note_handled(entry, entry.check_point.queue_offsets()[index : index + 1])

    def _remove_entry(self, entry: _OpenCheckPoint, *_arrival: object) -> None:
        """Forget a check point: each of its messages is acknowledged or has arrived at another
        master."""
        key = entry.check_point.key
        if self._open.pop(key, None) is entry:
            self._late_count -= 1
            self._remember_done(key)
            entry.left()


def _do_nothing() -> None:
    """Do nothing: a check point that came from a note holds back no progress."""


def _check_time(check_point: CheckPoint, known_ms: int) -> None:
    """Raise BadBody for a check point that is due too late after `known_ms`: a client may have
    written it."""
    if check_point.revive_ms > known_ms + FOREIGN_MS:
        raise BadBody(f"the check point's time {check_point.revive_ms} is too late")
