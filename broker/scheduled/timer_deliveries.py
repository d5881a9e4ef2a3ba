"""Delivery of due timers, into this broker's log or as a message for another master.

Owns the step from a unit of the wheel to its message, and the counters. It must never deliver
before the exact time; timers.py decides which broker delivers.

Tests: tests/unit/broker/scheduled/test_timers.py
"""

import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from turbopump.broker.scheduled.timer_escape import EscapingTimer
from turbopump.broker.scheduled.timer_messages import (
    TimerFacts,
    keys_of,
    message_for_consumers,
    read_waiting,
    rolled_timer,
)
from turbopump.broker.scheduled.timer_reading import TimerReading
from turbopump.broker.scheduled.wheel_reader import NATIVE_SPEED, DueUnit, WheelReader
from turbopump.broker.traffic.role import Role
from turbopump.engine.store import Store
from turbopump.engine.timer.timer_batches import TimerBatches
from turbopump.engine.timer.timer_files import TIMER_TOPIC
from turbopump.engine.timer.timer_metrics import TimerMetrics, TopicTimerCounts
from turbopump.engine.types import LogOffset, NewMessage, PutStatus, QueueOffset
from turbopump.net.wire import properties as names
from turbopump.net.wire.properties import decode_properties
from turbopump.pyx import timer as kernel
from turbopump.pyx.record import Record

logger = logging.getLogger(__name__)

DELIVERED_PER_STEP: Final = 256
"""Maximum number of timers delivered in a step, NATIVE_SPEED times as many by native code: sends
and pulls are served in between."""


class _WaitingTimer(NamedTuple):
    """The message of a timer's unit: its record, properties and facts."""

    record: Record
    facts: TimerFacts
    properties: dict[str, str]


class TimerDeliveries:
    """Delivers due timers: appends their messages to this broker's log, or makes the messages for
    other masters; counts timers that leave the wheel. Loop thread only; times are epoch ms."""

    def __init__(
        self,
        store: Store,
        role: Role,
        slots: WheelReader,
        batches: TimerBatches,
        counted: tuple[TimerMetrics, TopicTimerCounts],
        precision_ms: int,
        on_delivered: Callable[[str], None],
        reading: TimerReading,
    ) -> None:
        """`counted`: metrics of waiting timers, and totals of timers that left the wheel."""
        self._reading = reading
        self._store, self._role = store, role
        self._slots, self._batches = slots, batches
        self._metrics, self._dequeued = counted
        self._precision_ms = precision_ms
        self._on_delivered = on_delivered
        self.lost = 0
        """Number of timers whose files were removed before their time, since the start."""

    def step(self, now_ms: int, until_ms: int) -> bool:
        """Append messages that are due until `until_ms`, in the order of their times; return
        whether to call again at once. False also when the store refuses for now."""
        slots, left = self._slots, DELIVERED_PER_STEP
        while left > 0:
            until_ms = min(until_ms, self._reading.until_ms(now_ms))
            due_ms = slots.next_due_ms
            if due_ms is None or due_ms > until_ms:
                return False
            many = self._deliver_natively(left * NATIVE_SPEED, now_ms, until_ms)
            if many:
                left -= -(-many // NATIVE_SPEED)
                continue
            left -= 1
            due = slots.pop_unit()
            if not self._deliver_one(due, now_ms):
                slots.push_back_unit(due)
                return False
            slots.count_done(due)
        return True

    def _deliver_natively(self, most: int, now_ms: int, until_ms: int) -> int:
        """Deliver at most `most` plain messages natively; return how many were delivered."""
        store, slots = self._store, self._slots
        if store.deletions.in_progress or isinstance(self._role.admit_append(), PutStatus):
            return 0
        if store.put_refusal(now_ms) is not None:
            return 0
        done = self._batches.append_due(
            slots.heap, most, now_ms, until_ms, slots.slots_with_recalls
        )
        slots.note_delivered(done.ticks)
        for topic, messages, _size in done.topics:
            self._metrics.change_count(text_of(topic), -messages, now_ms)
            self._dequeued.add_timers(text_of(topic), messages)
            self._on_delivered(text_of(topic))
        return done.messages

    def _deliver_one(self, due: DueUnit, now_ms: int) -> bool:
        """Append the message of a due unit to its target queue, unless it is recalled or can never
        be delivered; return True if the unit is done, False to try again later."""
        waiting = self._waiting_at(due, now_ms)
        if waiting is None or self._is_recalled(due, waiting, now_ms):
            return True
        message = self._message_of(due, waiting, now_ms)
        if message is None:
            return True
        asked, message.queue_id = message.queue_id, self._queue_of(message)
        if isinstance(self._role.admit_append(), PutStatus):
            return False
        appended = self._store.append(message, now_ms)
        if appended.status in (PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED):
            # The store will never take it; blocking the slot would delay all messages after it.
            logger.error("timer at %d: %s, dropped", due.log_offset, appended.status.value)
        elif appended.status is not PutStatus.PUT_OK:
            return False
        elif message.topic == TIMER_TOPIC:
            end = QueueOffset(self._store.next_queue_offset(TIMER_TOPIC, 0))
            self._reading.note_rolled(end, waiting.facts.out_ms)
        elif message.queue_id == asked:
            self._batches.allow_delivery(message.topic, asked)
        self.count(waiting.facts, now_ms)
        self._on_delivered(message.topic)
        return True

    def _queue_of(self, message: NewMessage) -> int:
        """Return the message's own queue id, or that of a queue that the topic still has."""
        if message.topic == TIMER_TOPIC:
            return message.queue_id
        return self._store.queue_of(message.topic, message.queue_id)

    def _waiting_at(self, due: DueUnit, now_ms: int) -> _WaitingTimer | None:
        """Read the message of a unit; None if it can never be delivered, which is
        counted or logged."""
        record = self._store.record(due.log_offset)
        facts = read_waiting(record, self._precision_ms) if record is not None else None
        if record is None or facts is None:
            is_recall = bool(due.magic & kernel.DELETE)
            if not is_recall:
                self.count_lost(due.log_offset)
            topic = self.count_unreadable(
                self._slots.topic_hash_of(due), now_ms, is_recall=is_recall
            )
            self._dequeued.add_timers(topic, 1)
            return None
        return _WaitingTimer(record, facts, decode_properties(record.properties))

    def _is_recalled(self, due: DueUnit, waiting: _WaitingTimer, now_ms: int) -> bool:
        """Whether a recall cancels the timer, which is counted as left then."""
        if not self._slots.is_recalled(due, keys_of(waiting.properties)):
            return False
        topic = text_of(waiting.facts.topic)
        self._metrics.change_count(topic, -1, now_ms)
        self._dequeued.add_timers(topic, 1)
        return True

    def _message_of(self, due: DueUnit, waiting: _WaitingTimer, now_ms: int) -> NewMessage | None:
        """Return the message to append for a due unit; None: it names no target."""
        record, facts, properties = waiting
        if due.magic & kernel.ROLL:
            return rolled_timer(record, properties, now_ms)
        found = message_for_consumers(record, properties, due.write_ms, now_ms)
        if found is None or facts.is_recall:
            logger.warning("timer at %d has no target: dropped", due.log_offset)
            self.count(facts, now_ms)
            return None
        return found

    def count_lost(self, log_offset: LogOffset) -> None:
        """Count in `lost` a timer at this log offset whose file retention removed; log a timer that
        cannot be read for another reason."""
        if log_offset < self._store.min_log_offset:
            self.lost += 1  # waiting.py reports all losses in one line
        else:
            logger.error("timer at %d cannot be read: dropped", log_offset)

    def count_unreadable(
        self, topic_hash: int | None, now_ms: int, *, is_recall: bool
    ) -> str | None:
        """Remove a unit whose message cannot be read from the metrics of waiting timers; return its
        topic, None if the hash is None or not known. A recall was counted as minus one."""
        topic = None if topic_hash is None else self._metrics.topic_of(topic_hash)
        if topic is not None:
            self._metrics.change_count(topic, 1 if is_recall else -1, now_ms)
        return topic

    def count(self, facts: TimerFacts, now_ms: int) -> None:
        """Count a timer that left the wheel: one less waits for its topic (one more for a recall),
        and one more has left."""
        topic = text_of(facts.topic)
        self._metrics.change_count(topic, 1 if facts.is_recall else -1, now_ms)
        self._dequeued.add_timers(topic, 1)

    def timer_for_other_master(self, due: DueUnit, now_ms: int) -> EscapingTimer | None:
        """Return the message that an acting replica sends for a due unit; None: the unit is
        recalled or can never be delivered, and is counted as left. The second part of a
        long wait is left to the other master: there it is a timer, or a recall."""
        waiting = self._waiting_at(due, now_ms)
        if waiting is None or self._is_recalled(due, waiting, now_ms):
            return None
        record, facts, properties = waiting
        if not due.magic & kernel.ROLL:
            found = self._message_of(due, waiting, now_ms)
            return None if found is None else EscapingTimer(facts, found)
        message = message_for_consumers(record, properties, due.write_ms, now_ms)
        if message is None:
            return None
        key = properties.get(names.TIMER_DEL_UNIQKEY) or properties.get(names.UNIQ_KEY, "")
        return EscapingTimer(facts, message, key.rpartition("+")[2], facts.due_ms)


def text_of(topic: bytes) -> str:
    """Decode a topic for metrics and logs; malformed bytes become U+FFFD."""
    return topic.decode(errors="replace")
