"""Timers: messages that wait in rmq_sys_wheel_timer until their time, then get delivered.

Owns what a broker does with its timers in each role, and what may be said of that. It must never
deliver before a message's time, nor have a progress be ahead of what the disk, or the replicas,
have of the deliveries (progress.py). Called by node.py at each tick and whenever something is due,
and by broker/ha/metadata/pulling.py.

    queue of TIMER_TOPIC -> _enqueue -> wheel and log (engine/timer) -> DueSlots -> _deliver -> log

A progress is a pair: of the messages before `queue_offset` those in slots before `read_ms` were
delivered. A replica has its wheel filled up to that queue offset, and no further (RocketMQ:
masterTimerQueueOffset): what it puts there as a master must not be in a slot that is over.

Each message of the queue has one unit. What comes too late for its slot, as after a restart, goes
into the first slot that is not over. Where the clock was set back, slots are read anew: then the
saved progress rests at the first message that came since, until the clock has caught up.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, NamedTuple

from turbopump.broker.config.config import BrokerConfig
from turbopump.broker.scheduled.due_slots import NATIVE_SPEED, ROOM, Due, DueSlots
from turbopump.broker.scheduled.progress import SafeProgress
from turbopump.broker.scheduled.timer_messages import (
    TimerFacts,
    delivered,
    keys_of,
    read_waiting,
    recall_key,
    rolled,
)
from turbopump.broker.tables.versions import Versions
from turbopump.broker.traffic.role import Role
from turbopump.engine.disk.config_files import ConfigFiles
from turbopump.engine.store import Store
from turbopump.engine.timer import timer_metrics
from turbopump.engine.timer.timer_batches import SlotWindow, TimerBatches
from turbopump.engine.timer.timer_check import TimerCheckpoint
from turbopump.engine.timer.timer_files import BLANK_SLOTS, TIMER_TOPIC, TimerFiles
from turbopump.engine.timer.timer_metrics import TimerMetrics, TimerTotals
from turbopump.engine.types import LONG_AGO_MS, LogOffset, PutStatus, QueueOffset, QueueUnit
from turbopump.net.wire import properties as names
from turbopump.net.wire.properties import decode_properties
from turbopump.net.wire.topics import DataVersion
from turbopump.pyx import timer as kernel

logger = logging.getLogger(__name__)

DELIVERED_PER_STEP: Final = 256
"""As delay.py: sends and pulls come in between."""
ENQUEUED_PER_STEP: Final = 512
EXPIRE_MS: Final = 30_000
BACKLOG_BOUNDS_S: Final = (5, 60, 300, 900, 3_600, 14_400, 28_800, 86_400)
"""Of RocketMQ's metric timer_message_snapshot."""
_DELAY_MAX_MS: Final = (1 << 31) - 1
_FAR_TICK: Final = 1 << 60
"""Behind all slots."""


class TimerProgress(NamedTuple):
    """See the module; `position` is where our log ended, -1 in a master's."""

    read_ms: int = 0
    queue_offset: QueueOffset = QueueOffset(0)
    position: int = -1


class TimerStatus(NamedTuple):
    """What operators are shown."""

    waiting: int
    next_due_ms: int | None
    backlog: list[int]
    """How many are due within each of BACKLOG_BOUNDS_S, from the bound before it on."""
    read_behind_ms: int
    offset_behind: int
    offset_behind_ms: int
    """How long the first message has waited that is not in the wheel yet."""
    in_wheel: int
    """Recalls among them count as one less."""
    enqueued: int
    dequeued: int


class Timers:
    """One broker's. Loop thread only."""

    def __init__(
        self,
        store: Store,
        role: Role,
        files: TimerFiles,
        config_files: ConfigFiles,
        config: BrokerConfig,
    ) -> None:
        self._store, self._role, self._files = store, role, files
        self._config_files, self._config = config_files, config
        self._enabled = config.timer_wheel_enable
        of = store.config
        self._precision_ms = of.timer_precision_ms
        self._roll_ms = min(files.roll_slots * self._precision_ms, _DELAY_MAX_MS)
        self._ring = files.slots
        self._kept = SafeProgress(store, role, TimerProgress())
        self._batches = TimerBatches(store.timer_ground(), files, self._precision_ms)
        self._slots = DueSlots(
            files, self._precision_ms, self._due_of, self._recall_of, self._batches.order
        )
        self._now_ms = 0
        self._leads = False
        self._delivered = TimerProgress()
        """Of before this reign: of it nothing is put into the wheel again."""
        self._held: tuple[QueueOffset, int] | None = None
        self._all_until_ms = 0
        self._flush_due_ms = self._expire_due_ms = LONG_AGO_MS
        self._metrics_saved = 0
        self.metrics = TimerMetrics()
        self.enqueued, self.dequeued = TimerTotals(), TimerTotals()
        self._moved = 0
        self.on_ready: Callable[[], None] = lambda: None
        """Called when a step can do more than the last one could; to be replaced."""
        files.on_ready = lambda: self.on_ready()
        self.on_delivered: Callable[[str], None] = lambda topic: None
        """Called with a topic that got messages; to be replaced."""

    def load(self) -> None:
        """Read what the files say, also RocketMQ's; raises StoreError."""
        if not self._enabled:
            return
        self._files.load()
        check = self._files.checkpoint
        version = _version_of(check)
        progress = TimerProgress(check.read_ms, check.master_queue_offset, check.log_position)
        self._kept.load(progress, version)
        saved = self._config_files.load(timer_metrics.FILE_NAME)
        if saved is not None:
            self.metrics.take(saved)
        self._metrics_saved = self.metrics.changes

    # As delay.py has them, for broker/ha/metadata/pulling.py.

    @property
    def data_version(self) -> DataVersion:
        """Of the progress."""
        return self._kept.data_version

    @property
    def versions(self) -> Versions:
        """What makes new ones."""
        return self._kept.versions

    @versions.setter
    def versions(self, versions: Versions) -> None:
        self._kept.versions = versions

    def bump_version(self, now_ms: int) -> None:
        """A new version of the same progress: from here on it is of another reign."""
        self._kept.bump_version(now_ms)

    def follow(self) -> None:
        """The master delivers from here on. What this broker put into the wheel behind its safe
        progress may not be so in the master's: it comes out."""
        if self._leads:
            self._leads, self._held = False, None
            self._slots.stop()
            self._kept.follow()
        if self._enabled and self._files.queue_offset > self._kept.current.queue_offset:
            self._files.rewind(self._kept.current.queue_offset)

    def leave(self) -> None:
        """The broker stops, see SafeProgress."""
        self._kept.leave()

    def lead(self) -> None:
        """This broker delivers from here on."""
        self._kept.lead()

    def forget_coming(self) -> None:
        """The master whose progress is waited for is not followed any more."""
        self._kept.forget_coming()

    def needs(self, checkpoint: TimerCheckpoint) -> bool:
        """Whether a master's progress says more than ours. Both are true, also of a master that
        knows less: then it is ours that stays (I13)."""
        ours, theirs = self._kept.current, checkpoint
        is_less = theirs.read_ms < ours.read_ms or theirs.master_queue_offset < ours.queue_offset
        is_same = theirs.read_ms == ours.read_ms and (
            theirs.master_queue_offset == ours.queue_offset
        )
        return not is_less and not is_same

    def adopt(self, checkpoint: TimerCheckpoint, log_end: LogOffset) -> None:
        """The master had this progress when its log did not go beyond `log_end`."""
        progress = TimerProgress(checkpoint.read_ms, checkpoint.master_queue_offset)
        version = _version_of(checkpoint)
        self._kept.adopt(progress, version, log_end)

    def truncated(self) -> None:
        """The log was cut, or begins anew: neither wheel nor progress may speak of what is gone."""
        if not self._enabled:
            return
        end = QueueOffset(self._store.next_queue_offset(TIMER_TOPIC, 0))
        self._files.rewind(end)
        self._kept.replace(_before(self._kept.current, end), _before(self._kept.safe, end))

    # Steps

    def step(self, now_ms: int, steady_ms: int) -> int | None:
        """A part of what is to be done; in how many milliseconds something is due, None if not
        before the next tick."""
        if not self._enabled:
            return None
        self._now_ms = now_ms
        self._save(now_ms, steady_ms)
        if not self._role.is_master:
            self._kept.take_coming()
            more = self._enqueue(now_ms, steady_ms, self._kept.current.queue_offset)
            return 0 if more else None
        now_tick = now_ms // self._precision_ms
        if not self._leads:
            self._begin(now_tick)
        slots = self._slots
        slots.watch_clock(now_tick)
        more = self._enqueue(now_ms, steady_ms)
        if not self._config.timer_stop_dequeue:
            more |= slots.load(now_ms)
            more |= self._deliver(now_ms)
        slots.advance(now_tick)
        if not slots.is_late:
            self._held = None
        self._kept.current = self._progress()
        due_ms = slots.next_due_ms
        if more or due_ms is None:
            return 0 if more else None
        return due_ms - now_ms if due_ms > now_ms else None

    def delivered_ms(self, now_ms: int) -> int:
        """The time up to which each timer was delivered that was stored before it; 0 while that is
        not known. Pop revives nothing beyond it: acknowledgements of that time may not be read."""
        if not self._enabled:
            return now_ms
        if not self._leads:
            return 0
        if self._files.queue_offset >= self._store.max_queue_offset(TIMER_TOPIC, 0):
            self._all_until_ms = max(self._all_until_ms, self._slots.delivered_ms(now_ms))
        return self._all_until_ms

    def _begin(self, now_tick: int) -> None:
        """The first step of a reign."""
        self._leads, self._held = True, None
        self._all_until_ms = 0
        self._delivered = self._kept.current
        read_tick = self._delivered.read_ms // self._precision_ms
        if not read_tick:  # there was no timer yet, or a checkpoint was lost
            read_tick = max(1, now_tick - self._ring // 2 + BLANK_SLOTS)
            read_tick = read_tick if self._files.exists else max(1, now_tick)
        self._slots.begin(read_tick, now_tick)

    def _progress(self) -> TimerProgress:
        slots, files = self._slots, self._files
        read_ms = max(slots.high, slots.cursor) * self._precision_ms
        if self._held is not None:
            queue_offset, position = self._held
            return TimerProgress(read_ms, queue_offset, position)
        # Until the queue has come so far, what was delivered there is known from before.
        queue_offset = files.queue_offset
        if queue_offset < self._delivered.queue_offset:
            return self._kept.current
        return TimerProgress(read_ms, queue_offset, files.log_end)

    # Into the wheel

    def _enqueue(self, now_ms: int, steady_ms: int, limit: int | None = None) -> bool:
        """Put messages of the queue into their slots; whether there are more."""
        files, store = self._files, self._store
        high = store.max_queue_offset(TIMER_TOPIC, 0)
        at = max(files.queue_offset, store.min_queue_offset(TIMER_TOPIC, 0))
        high = high if limit is None else QueueOffset(min(high, limit))
        if at >= high or self._config.timer_stop_enqueue:
            return False
        if not files.ready(steady_ms):
            return False
        count = min(ENQUEUED_PER_STEP, high - at)
        done = 0
        while done < count and self._slots.has_room and files.ready(steady_ms):
            next_one = QueueOffset(at + done)
            taken = self._put_many(next_one, count - done, now_ms)
            if not taken:
                units = store.units(TIMER_TOPIC, 0, next_one, 1)
                if not units or not self._put(units[0], next_one, now_ms):
                    break
                taken = 1
            done += taken
            files.queue_offset = QueueOffset(at + done)
        return done == count and at + done < high

    def _put_many(self, at: QueueOffset, count: int, now_ms: int) -> int:
        """As `_put`, for messages with nothing unusual about them; how many."""
        slots, leads = self._slots, self._leads
        before = self._delivered if leads else self._kept.current
        if at < before.queue_offset or (leads and not slots.takes_many):
            return 0
        window = SlotWindow(
            now_ms // self._precision_ms * self._precision_ms,
            self._roll_ms,
            slots.cursor if leads else 1,
            slots.cursor if leads else _FAR_TICK,
            slots.scanned if leads else 0,
        )
        room = ROOM - len(slots.heap)
        taken = self._batches.take_in(at, count, window, slots.heap, max(0, room))
        slots.added_many(taken.ticks)
        for topic, messages, _size in taken.topics:
            self.metrics.add(_text(topic), messages, now_ms)
            self.enqueued.add(_text(topic), messages)
        return taken.messages

    def _put(self, unit: QueueUnit, queue_offset: QueueOffset, now_ms: int) -> bool:
        """One message; False if the wheel cannot have it yet."""
        record = self._store.record_of(unit)
        waiting = read_waiting(record, self._precision_ms) if record is not None else None
        if record is None or waiting is None:
            logger.error("timer at %d cannot be read: dropped", unit.log_offset)
            return True
        before = self._delivered if self._leads else self._kept.current
        if queue_offset < before.queue_offset and waiting.out_ms < before.read_ms:
            return True  # delivered
        write_ms = now_ms // self._precision_ms * self._precision_ms
        slot_ms, magic = self._slot(waiting, write_ms)
        tick = slot_ms // self._precision_ms
        if self._leads:
            tick = max(tick, self._slots.cursor)
            if not self._fits(tick):
                return False
        tick = max(tick, 1)
        slot_ms = tick * self._precision_ms
        if not -_DELAY_MAX_MS <= slot_ms - write_ms <= _DELAY_MAX_MS:
            write_ms = slot_ms
        if self._slots.is_late and tick < self._slots.high and self._held is None:
            self._held = queue_offset, self._files.log_end
        log_offset = unit.log_offset
        position = self._files.add(
            write_ms, slot_ms, log_offset, unit.size, waiting.topic_hash, magic
        )
        self.enqueued.add(_text(waiting.topic), 1)
        self.metrics.add(_text(waiting.topic), -1 if waiting.is_recall else 1, now_ms)
        if self._leads:
            due_ms = min(waiting.due_ms, slot_ms + self._precision_ms)
            due_ms = slot_ms if magic & kernel.ROLL else due_ms
            self._slots.added(Due(due_ms, position, log_offset, write_ms, tick, magic))
        return True

    def _fits(self, tick: int) -> bool:
        """Whether no unit waits in the slot for another round: after a stop of almost two weeks, or
        a clock that was set back by as much, timers wait in their queue."""
        slots = self._slots
        if tick - slots.cursor >= self._ring:
            return False
        window = self._roll_ms // self._precision_ms
        return not slots.is_late or slots.high + window - tick < self._ring

    def _slot(self, waiting: TimerFacts, write_ms: int) -> tuple[int, int]:
        """(time of the slot, magic): what is due beyond the window waits in two parts, of which the
        second is not too short (TimerMessageStore.doEnqueue)."""
        magic = kernel.DEFAULT | (kernel.DELETE if waiting.is_recall else 0)
        window_ms = self._roll_ms
        beyond_ms = waiting.out_ms - write_ms - window_ms
        if beyond_ms < 0:
            return waiting.out_ms, magic
        slots = window_ms // self._precision_ms
        if beyond_ms < slots // 3 * self._precision_ms:
            window_ms = slots // 2 * self._precision_ms
        return write_ms + window_ms, magic | kernel.ROLL

    # Out of the wheel

    def _due_of(self, log_offset: LogOffset) -> int | None:
        record = self._store.record(log_offset)
        waiting = read_waiting(record, self._precision_ms) if record is not None else None
        return None if waiting is None else waiting.due_ms

    def _recall_of(self, log_offset: LogOffset) -> str | None:
        """What a recall is for; from now on its message counts as one less."""
        record = self._store.record(log_offset)
        waiting = read_waiting(record, self._precision_ms) if record is not None else None
        if record is None or waiting is None:
            return None
        self.metrics.add(_text(waiting.topic), 1, self._now_ms)
        return recall_key(record)

    def _deliver(self, now_ms: int) -> bool:
        """Deliver what is due; whether more is due now."""
        slots, left = self._slots, DELIVERED_PER_STEP
        while left > 0:
            due_ms = slots.next_due_ms
            if due_ms is None or due_ms > now_ms:
                return False
            many = self._deliver_many(left * NATIVE_SPEED, now_ms)
            if many:
                left -= -(-many // NATIVE_SPEED)
                continue
            left -= 1
            due = slots.pop()
            if not self._deliver_one(due, now_ms):
                slots.put_back(due)
                return False
            slots.done(due)
        return True

    def _deliver_many(self, most: int, now_ms: int) -> int:
        """Deliver messages with nothing unusual about them; how many."""
        store, slots = self._store, self._slots
        if store.deletions.going or isinstance(self._role.admit(), PutStatus):
            return 0
        if store.refusal(now_ms) is not None:
            return 0
        done = self._batches.deliver(slots.heap, most, now_ms, slots.recalled_ticks)
        slots.done_many(done.ticks)
        for topic, messages, _size in done.topics:
            self.metrics.add(_text(topic), -messages, now_ms)
            self.dequeued.add(_text(topic), messages)
            self.on_delivered(_text(topic))
        return done.messages

    def _deliver_one(self, due: Due, now_ms: int) -> bool:
        """Append the waiting message where it belongs; False to try again later."""
        record = self._store.record(due.log_offset)
        waiting = read_waiting(record, self._precision_ms) if record is not None else None
        if record is None or waiting is None:
            # Retention took it, or the disk damaged it.
            logger.error("timer at %d cannot be read: dropped", due.log_offset)
            self.dequeued.add(None, 1)
            return True
        properties = decode_properties(record.properties)
        topic = _text(waiting.topic)
        if self._slots.is_recalled(due, keys_of(properties)):
            self.metrics.add(topic, -1, now_ms)
            self.dequeued.add(topic, 1)
            return True
        if due.magic & kernel.ROLL:
            message = rolled(record, properties, due.write_ms, now_ms)
        else:
            found = delivered(record, properties, due.write_ms, now_ms)
            if found is None or names.TIMER_DEL_UNIQKEY in properties:
                logger.warning("timer at %d has no target: dropped", due.log_offset)
                self.dequeued.add(topic, 1)
                return True
            message = found
        if isinstance(self._role.admit(), PutStatus):
            return False
        appended = self._store.append(message, now_ms)
        if appended.status in (PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED):
            # The store will never take it; blocking the slot would cost every message behind it.
            logger.error("timer at %d: %s, dropped", due.log_offset, appended.status.value)
        elif appended.status is not PutStatus.PUT_OK:
            return False
        self.metrics.add(topic, 1 if waiting.is_recall else -1, now_ms)
        self.dequeued.add(topic, 1)
        self.on_delivered(message.topic)
        return True

    # Saying and saving

    def _save(self, now_ms: int, steady_ms: int) -> None:
        """Each flush interval: the progress that is safe, and files whose timers are all gone."""
        if not self._files.exists or steady_ms < self._flush_due_ms:
            return
        self._flush_due_ms = steady_ms + self._config.timer_flush_interval_ms
        kept = self._kept
        if kept.current != kept.saved:
            kept.data_version = kept.versions.next(kept.data_version, now_ms)
        kept.settle()
        kept.begin()
        moved = self.enqueued.total + self.dequeued.total
        if moved != self._moved:
            self._moved = moved
            self._store.flush_soon()  # a broker that is killed repeats what is not safe
        kept.settle()
        kept.saved = kept.safe
        if steady_ms >= self._expire_due_ms:
            self._expire_due_ms = steady_ms + EXPIRE_MS
            self._files.expire()
        wanted = self._checkpoint()
        if wanted[:4] != self._files.checkpoint[:4] or self._files.is_rewound:
            self._files.save(wanted)

    def _checkpoint(self) -> TimerCheckpoint:
        safe, version, files = self._kept.safe, self.data_version, self._files
        position, queue_offset = safe.position, safe.queue_offset
        if position < 0 or not self._leads:
            position, queue_offset = files.log_end, files.queue_offset
        return TimerCheckpoint(
            safe.read_ms,
            position,
            queue_offset,
            safe.queue_offset,
            version.state_version,
            version.timestamp,
            version.counter,
        )

    def told(self) -> TimerCheckpoint:
        """The answer to GET_TIMER_CHECK_POINT (60): what no replica lacks of the deliveries."""
        self._kept.begin()
        self._kept.settle()
        return self._checkpoint()

    def take_metrics(self) -> dict[str, Any] | None:
        """What to write to `timermetrics`, once; None if nothing has changed."""
        if not self._enabled or self.metrics.changes == self._metrics_saved:
            return None
        self._metrics_saved = self.metrics.changes
        return self.metrics_json()

    def metrics_json(self) -> dict[str, Any]:
        """The answer to GET_TIMER_METRICS (61)."""
        version = replace(self.data_version, counter=self.metrics.changes)
        return {"dataVersion": version.to_json(), **self.metrics.to_json()}

    def metrics_failed(self) -> None:
        """What `take_metrics` gave is not on disk."""
        self._metrics_saved = -1

    def close(self) -> None:
        """Write down all; the store is closed. Raises OSError."""
        if not self._enabled:
            return
        self._kept.settle_last()
        self._files.close(self._checkpoint())
        metrics = self.take_metrics()
        if metrics is not None:
            self._config_files.save(timer_metrics.FILE_NAME, metrics)

    def count_at(self, slot_ms: int) -> int:
        """How many wait in the slot of a time."""
        return self._files.count(slot_ms // self._precision_ms)

    def status(self, now_ms: int) -> TimerStatus:
        """How it stands."""
        files, precision_ms = self._files, self._precision_ms
        now_tick = now_ms // precision_ms
        cursor = self._slots.cursor if self._leads else self._kept.current.read_ms // precision_ms
        since = max(cursor, now_tick - self._ring // 2)
        bounds = [now_tick + seconds * 1_000 // precision_ms for seconds in BACKLOG_BOUNDS_S]
        next_tick = files.next_tick(since, now_tick + self._ring // 2)
        due_ms = self._slots.next_due_ms
        if due_ms is None and next_tick < now_tick + self._ring // 2:
            due_ms = (next_tick + 1) * precision_ms
        counts = files.counts(since, [*bounds, now_tick + files.roll_slots + 2])
        # What age took with the log is not waited for.
        at = max(files.queue_offset, self._store.min_queue_offset(TIMER_TOPIC, 0))
        behind = max(0, self._store.max_queue_offset(TIMER_TOPIC, 0) - at)
        stored_ms = self._store.stored_ms(TIMER_TOPIC, 0, at)[0] if behind else 0
        return TimerStatus(
            self.metrics.total,
            due_ms,
            counts[:-1],
            max(0, now_ms - cursor * precision_ms) if self._leads else 0,
            behind,
            max(0, now_ms - stored_ms) if stored_ms > 0 else 0,
            sum(counts),
            self.enqueued.total,
            self.dequeued.total,
        )


def _before(progress: TimerProgress, end: QueueOffset) -> TimerProgress:
    if progress.queue_offset <= end:
        return progress
    return TimerProgress(progress.read_ms, end)


def _version_of(checkpoint: TimerCheckpoint) -> DataVersion:
    return DataVersion(
        state_version=checkpoint.state_version,
        timestamp=checkpoint.timestamp_ms,
        counter=checkpoint.counter,
    )


def _text(topic: bytes) -> str:
    return topic.decode(errors="replace")
