"""Timers: messages wait in rmq_sys_wheel_timer until their time, then get delivered.

Owns the timer work of a broker in each role, and the progress that it may publish. It must never
deliver before a message's time, nor have a progress ahead of the deliveries that the disk, or the
replicas, have (durable_progress.py).

    queue of TIMER_TOPIC -> _enqueue -> wheel, log (engine/timer) -> WheelReader -> _deliver -> log

    following --master--> leading (_leads)           both: _held while slots are read again
       ^ '--replica acts--> escaping (_escaping)     and _rolls while passed slots are searched
       '---- role lost, or no longer acting

A progress is a pair: messages before `queue_offset` in slots before `read_ms` were delivered. A
replica fills its wheel up to that queue offset, and no further (RocketMQ: masterTimerQueueOffset):
units that it adds as a master must not be in a past slot. Each message of the queue has one unit. A
message too late for its slot, as after a restart, goes into the first slot that is not past. If the
clock was set back, slots are read again: then the saved progress stays at the first message since,
until the clock has caught up.
"""

import logging
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from typing import Any, Final

from turbopump.broker.config.config import BrokerConfig
from turbopump.broker.escape.bridge import Escape
from turbopump.broker.scheduled.durable_progress import DurableProgress
from turbopump.broker.scheduled.timer_deliveries import TimerDeliveries, text_of
from turbopump.broker.scheduled.timer_escape import TimerEscape
from turbopump.broker.scheduled.timer_messages import TimerFacts, read_waiting, recall_key
from turbopump.broker.scheduled.timer_progress import (
    TimerProgress,
    oldest_timer,
    passed_rolls,
    progress_before,
    progress_of,
    version_of,
)
from turbopump.broker.scheduled.timer_reading import TimerReading
from turbopump.broker.scheduled.timer_status import (
    TimerCounts,
    TimerStatus,
    read_status,
)
from turbopump.broker.scheduled.wheel_reader import ROOM, DueUnit, WheelReader
from turbopump.broker.tables.data_versions import ACTING_STEP, is_older
from turbopump.broker.traffic.role import Role
from turbopump.engine.disk.config_files import ConfigFiles
from turbopump.engine.store import Store
from turbopump.engine.timer import timer_metrics
from turbopump.engine.timer.timer_batches import SlotWindow, TimerBatches
from turbopump.engine.timer.timer_check import SteppedClock, TimerCheckpoint
from turbopump.engine.timer.timer_files import BLANK_SLOTS, TIMER_TOPIC, TimerFiles
from turbopump.engine.timer.timer_metrics import TimerMetrics, TopicTimerCounts
from turbopump.engine.types import LONG_AGO_MS, LogOffset, QueueOffset, QueueUnit
from turbopump.net.wire.topics import DataVersion
from turbopump.pyx import timer as kernel

logger = logging.getLogger(__name__)

ENQUEUED_PER_STEP: Final = 512
"""Maximum number of messages put into the wheel in a step."""
EXPIRE_MS: Final = 30_000
"""Interval in ms between removals of files whose timers are gone."""
_DELAY_MAX_MS: Final = (1 << 31) - 1
_FAR_TICK: Final = 1 << 60
"""A tick after all slots."""


class Timers:
    """The timers of a broker. Loop thread only. `now_ms` is epoch ms, `steady_ms` of the monotonic
    clock. Without timerWheelEnable nothing is read, delivered or saved. `enqueued` and `dequeued`
    count the timers that entered and left the wheel since the start, by topic."""

    def __init__(
        self,
        store: Store,
        role: Role,
        files: TimerFiles,
        config_files: ConfigFiles,
        config: BrokerConfig,
        escape: Escape,
        on_delivered: Callable[[str], None],
    ) -> None:
        """`on_delivered` is called with a topic that got messages."""
        self._store, self._role, self._files = store, role, files
        self._config_files, self._config = config_files, config
        self._enabled = config.timer_wheel_enable
        store_config = store.config
        self._precision_ms = store_config.timer_precision_ms
        self._roll_ms = min(files.roll_slots * self._precision_ms, _DELAY_MAX_MS)
        self._ring = files.slots
        self.durable = DurableProgress(store, role, TimerProgress())
        """Progress of the deliveries."""
        self._batches = TimerBatches(store.timer_deps(), files, self._precision_ms)
        self._slots = WheelReader(
            files, self._precision_ms, self._due_of, self._recall_of, self._batches.push_units
        )
        self._now_ms = 0
        self._leads = False
        self._escape = escape
        self._escaping: TimerEscape | None = None
        """Set while this replica acts for its master, and sends due timers to others."""
        self._newer: TimerProgress | None = None
        """Progress of another broker, see `adopt_newer`."""
        self._rolls: Iterator[DueUnit | None] | None = None
        self._late: dict[int, QueueOffset] = {}
        """While escaping: queue offsets of late timers not yet delivered, by timer log position."""
        self._delivered = TimerProgress()
        """Progress when this term began; timers before it are not put into the wheel again."""
        self._held: tuple[QueueOffset, int] | None = None
        self._reading = TimerReading()
        self._all_until_ms = 0
        self._flush_due_ms = self._expire_due_ms = LONG_AGO_MS
        self._metrics_saved = 0
        self.metrics = TimerMetrics()
        """Numbers of waiting timers by topic."""
        self.enqueued, self.dequeued = TopicTimerCounts(), TopicTimerCounts()
        self._moved = 0
        self.on_ready: Callable[[], None] = lambda: None
        """Called when a step can do more than the last one could; to be replaced."""
        files.on_ready = lambda: self.on_ready()
        """Called when a step can do more than the last one could, because of disk work that ended;
        to be replaced by the caller."""
        self._deliveries = TimerDeliveries(
            store,
            role,
            self._slots,
            self._batches,
            (self.metrics, self.dequeued),
            self._precision_ms,
            on_delivered,
            self._reading,
        )

    def load(self) -> None:
        """Read wheel, checkpoint and metrics, written by this broker or RocketMQ. Raises
        StoreError."""
        if not self._enabled:
            return
        self._files.load()
        check = self._files.checkpoint
        version = version_of(check)
        progress = TimerProgress(check.read_ms, check.master_queue_offset, check.log_position)
        self.durable.load(progress, version)
        saved = self._config_files.load(timer_metrics.FILE_NAME)
        if saved is not None:
            self.metrics.replace_counts(saved)
        self._metrics_saved = self.metrics.changes

    def begin_following(self) -> None:
        """Begin to follow a master, which delivers now. Removes units after the safe progress from
        the wheel: the master's wheel may differ there."""
        if self._leads:
            self._stop_escaping()
            self._leads, self._held = False, None
            self._slots.forget_units()
            self.durable.begin_following()
        if self._enabled and self._files.queue_offset > self.durable.current.queue_offset:
            self._files.remove_units_from(self.durable.current.queue_offset)

    def is_behind_master(self, checkpoint: TimerCheckpoint) -> bool:
        """Whether a master's progress is ahead of this one's in slots or queue and in neither
        lower; only then it is adopted. Both are true, even if the master's is lower, and then this
        broker keeps its own (I13)."""
        ours, theirs = self.durable.current, checkpoint
        is_less = theirs.read_ms < ours.read_ms or theirs.master_queue_offset < ours.queue_offset
        is_same = theirs.read_ms == ours.read_ms and (
            theirs.master_queue_offset == ours.queue_offset
        )
        return not is_less and not is_same

    def adopt_checkpoint(self, checkpoint: TimerCheckpoint, log_end: LogOffset) -> None:
        """Adopt the progress of a master whose log ended at `log_end` at most; it counts once this
        log is confirmed up to there."""
        self.durable.adopt_progress(progress_of(checkpoint), version_of(checkpoint), log_end)

    def adopt_newer(self, checkpoint: TimerCheckpoint) -> None:
        """Remember the progress of another broker of the group, whose log this one has (RIP-32:
        pre-online), until this broker begins to deliver. If it is ahead in slots but not in the
        queue, some later timers are delivered twice."""
        theirs, known = progress_of(checkpoint), self._newer or self.durable.current
        if self._enabled and theirs[:2] > known[:2]:
            self._newer = theirs
        version = version_of(checkpoint)
        if is_older(self.durable.data_version, version):
            self.durable.data_version = version

    def on_truncated(self) -> None:
        """Remove from wheel and progress the messages after the end of the timer queue, because the
        log was cut or begins again."""
        if not self._enabled:
            return
        self._stop_escaping()
        end = QueueOffset(self._store.next_queue_offset(TIMER_TOPIC, 0))
        self._files.remove_units_from(end)
        self._newer = None
        kept = self.durable
        kept.replace_progress(progress_before(kept.current, end), progress_before(kept.safe, end))

    # Steps

    def step(self, now_ms: int, steady_ms: int) -> int | None:
        """Do a part of the work. Return 0 to be called again at once, the ms until a timer is due,
        or None to be called at the next tick."""
        if not self._enabled:
            return None
        self._now_ms = now_ms
        self._save(now_ms, steady_ms)
        acts = self._role.is_acting and self._escape.is_enabled
        if self._role.is_master or not acts:
            self._stop_escaping()
        if not self._role.is_master:
            self.durable.adopt_awaited()
            if not acts:
                more = self._fill_slots(now_ms, steady_ms, self.durable.current.queue_offset)
                return 0 if more else None
        now_tick = now_ms // self._precision_ms
        if not self._leads:
            self._prepare_term(now_tick, acts=acts)
            end = QueueOffset(self._store.next_queue_offset(TIMER_TOPIC, 0))
            self._reading.begin_term(end, now_ms)
        slots = self._slots
        slots.watch_clock(now_tick)
        more = self._fill_slots(now_ms, steady_ms)
        until_ms = self._read_until_ms(now_ms)
        if not self._config.timer_stop_dequeue:
            more |= slots.load(now_ms)
            more |= self._load_rolled_units()
            loaded_ms = slots.loaded_ms(until_ms)
            more |= (self._escaping or self._deliveries).step(now_ms, loaded_ms)
        slots.advance_cursor(self._reading.until_ms(now_ms) // self._precision_ms)
        if not slots.is_reading_again and not self._late:
            self._held = None
        self._set_current(self._current_progress())
        due_ms = slots.next_due_ms
        if more or due_ms is None:
            return 0 if more else None
        return due_ms - now_ms if due_ms > now_ms else None

    def _read_until_ms(self, now_ms: int) -> int:
        """Note the queue's reading; return the time up to which due timers may be delivered."""
        store = self._store
        read = max(self._files.queue_offset, store.min_queue_offset(TIMER_TOPIC, 0))
        end = QueueOffset(store.max_queue_offset(TIMER_TOPIC, 0))
        self._reading.note_read(QueueOffset(read), end, now_ms)
        return self._reading.until_ms(now_ms)

    def delivered_ms(self, now_ms: int) -> int:
        """Return the epoch ms up to which each timer stored before it was delivered, 0 if unknown;
        `now_ms` without timerWheelEnable. Pop revives nothing after it: later acknowledgements may
        not be readable."""
        if not (self._enabled and self._leads):
            return 0 if self._enabled else now_ms
        until_ms = min(self._all_until_ms, now_ms)  # the clock may have gone back
        if self._files.queue_offset >= self._store.max_queue_offset(TIMER_TOPIC, 0):
            until_ms = max(until_ms, self._slots.delivered_ms(now_ms))
        self._all_until_ms = until_ms
        return until_ms

    def _set_current(self, progress: TimerProgress) -> None:
        """Make `progress` current, unless passed slots are still searched."""
        if self._rolls is not None or self._slots.has_passed:
            return
        if self._escaping is None:
            self.durable.current = progress
        elif progress != self.durable.current:
            self.durable.delivered_elsewhere(progress)
        if self._newer is not None and self._newer[:2] <= self.durable.current[:2]:
            self._newer = None

    def _stop_escaping(self) -> None:
        """Stop sending timers to other masters: this replica no longer acts, or is the master."""
        if self._escaping is None:
            return
        self._escaping.stop()
        self._escaping, self._leads, self._held, self._rolls = None, False, None, None
        self._late.clear()
        self._slots.forget_units()
        if self._files.queue_offset > self.durable.current.queue_offset:
            self._files.remove_units_from(self.durable.current.queue_offset)

    def _prepare_term(self, now_tick: int, *, acts: bool) -> None:
        """Prepare the first step of a term, or of a replica that acts."""
        self._leads, self._held = True, None
        if acts:
            self._escaping = TimerEscape(
                self._escape, self._slots, self._deliveries.timer_for_other_master, self._end_unit
            )
            version = self.durable.data_version
            self.durable.data_version = replace(version, counter=version.counter + ACTING_STEP)
        self._all_until_ms = 0
        ours = self.durable.current
        newer = self._newer if self._newer is not None and self._newer[:2] > ours[:2] else None
        self._delivered = newer or ours
        read_tick = self._delivered.read_ms // self._precision_ms
        if not read_tick:  # there was no timer yet, or a checkpoint was lost
            read_tick = max(1, now_tick - self._ring // 2 + BLANK_SLOTS)
            read_tick = read_tick if self._files.exists else max(1, now_tick)
        self._start_slots(read_tick, now_tick, newer)
        self._newer, self._rolls = newer, None  # until `_set_current` reaches it
        if newer is not None:
            since = max(ours.read_ms // self._precision_ms, read_tick - self._ring // 2, 1)
            self._rolls = passed_rolls(self._files, since, read_tick, self._precision_ms)

    def _start_slots(self, read_tick: int, now_tick: int, newer: TimerProgress | None) -> None:
        """Start the reader of slots; after a stop amid slots that were read again, where it was."""
        stepped, files = self._files.stepped, self._files
        ours, is_behind = self.durable.current, now_tick < read_tick
        if stepped is not None and not (newer is None and ours.position >= 0 and is_behind):
            files.remove_units_from(ours.queue_offset)
            stepped = None
        files.stepped = None
        if newer is not None and files.queue_offset > newer.queue_offset:
            files.remove_units_from(newer.queue_offset)  # now: `begin` notes the timer log's end
        if stepped is None:
            self._slots.begin_at(read_tick, now_tick)
            return
        self._slots.begin_at(read_tick, read_tick)
        self._slots.resume_at(stepped.cursor, stepped.floors)
        self._held = ours.queue_offset, ours.position

    def _load_rolled_units(self) -> bool:
        """Add first parts of long waits while the heap has room; return whether to call again."""
        while self._rolls is not None and self._slots.has_room:
            due = next(self._rolls, self)
            if due is None:
                return True
            if isinstance(due, DueUnit):
                self._slots.add_passed(due)
            else:
                self._rolls = None
        return False

    def _current_progress(self) -> TimerProgress:
        """The present progress, by the slots and the queue."""
        slots, files = self._slots, self._files
        read_ms = max(slots.high, slots.cursor) * self._precision_ms
        if self._held is not None:
            queue_offset, position = self._held
            return TimerProgress(read_ms, queue_offset, position)
        # Until the queue is read up to that offset, the earlier progress counts.
        queue_offset = files.queue_offset
        if queue_offset < self._delivered.queue_offset:
            return self.durable.current
        return TimerProgress(read_ms, queue_offset, files.log_end)

    # Into the wheel

    def _fill_slots(self, now_ms: int, steady_ms: int, limit: int | None = None) -> bool:
        """Put messages of the queue, up to offset `limit`, into their slots; return whether there
        are more."""
        files, store = self._files, self._store
        high = store.max_queue_offset(TIMER_TOPIC, 0)
        at = max(files.queue_offset, store.min_queue_offset(TIMER_TOPIC, 0))
        if self._leads and files.queue_offset < at:
            self._deliveries.lost += at - files.queue_offset
            files.queue_offset = QueueOffset(at)
        high = high if limit is None else QueueOffset(min(high, limit))
        if at >= high or self._config.timer_stop_enqueue:
            return False
        if not files.ensure_room(steady_ms):
            return False
        count = min(ENQUEUED_PER_STEP, high - at)
        done = 0
        while done < count and files.ensure_room(steady_ms):
            next_one = QueueOffset(at + done)
            taken = self._put_natively(next_one, count - done, now_ms)
            if not taken:
                units = store.units(TIMER_TOPIC, 0, next_one, 1)
                if not units or not self._put_message(units[0], next_one, now_ms):
                    break
                taken = 1
            done += taken
            files.queue_offset = QueueOffset(at + done)
        return done == count and at + done < high

    def _put_natively(self, at: QueueOffset, count: int, now_ms: int) -> int:
        """Put at most `count` plain messages natively into their slots; return how many were
        put."""
        slots, leads = self._slots, self._leads
        known = self._delivered if leads else self.durable.current
        is_plain = self._escaping is None and (slots.takes_many or not leads)
        if at < known.queue_offset or not is_plain:
            return 0
        window = SlotWindow(
            now_ms // self._precision_ms * self._precision_ms,
            self._roll_ms,
            slots.cursor if leads else 1,
            slots.cursor if leads else _FAR_TICK,
            slots.scanned_end if leads else 0,
        )
        room = ROOM - len(slots.heap)
        taken = self._batches.fill_slots(at, count, window, slots.heap, max(0, room))
        slots.note_pushed(taken.ticks)
        for topic, messages, _size in taken.topics:
            self.metrics.change_count(text_of(topic), messages, now_ms)
            self.enqueued.add_timers(text_of(topic), messages)
        return taken.messages

    def _put_message(self, unit: QueueUnit, queue_offset: QueueOffset, now_ms: int) -> bool:
        """Put one message into its slot; False if the wheel has no place for it yet, else True."""
        record = self._store.record_of(unit)
        waiting = read_waiting(record, self._precision_ms) if record is not None else None
        if record is None or waiting is None:
            self._deliveries.count_lost(unit.log_offset)
            return True
        known = self._delivered if self._leads else self.durable.current
        if queue_offset < known.queue_offset and waiting.out_ms < known.read_ms:
            return True  # delivered
        write_ms = now_ms // self._precision_ms * self._precision_ms
        slot_ms, magic = self._slot_for(waiting, write_ms)
        tick = slot_ms // self._precision_ms
        is_late = self._leads and tick < self._slots.cursor
        if self._leads:
            tick = max(tick, self._slots.cursor)
            if tick - self._slots.cursor >= self._ring:  # after a stop of almost two weeks
                tick = self._slots.cursor + self._ring // 2
                magic |= kernel.ROLL
            free = self._slots.free_tick(tick)
            if free is None:
                return False
            tick = free
        tick = max(tick, 1)
        slot_ms = tick * self._precision_ms
        if not -_DELAY_MAX_MS <= slot_ms - write_ms <= _DELAY_MAX_MS:
            write_ms = slot_ms
        is_late = is_late and self._escaping is not None
        is_read_anew = self._slots.is_reading_again and tick < self._slots.high
        if (is_read_anew or is_late) and self._held is None:
            self._held = queue_offset, self._files.log_end
        log_offset = unit.log_offset
        position = self._files.add(
            write_ms, slot_ms, log_offset, unit.size, waiting.topic_hash, magic
        )
        if is_late and magic & (kernel.DELETE | kernel.ROLL) != kernel.DELETE:
            self._late[position] = queue_offset
        self.enqueued.add_timers(text_of(waiting.topic), 1)
        self.metrics.change_count(text_of(waiting.topic), -1 if waiting.is_recall else 1, now_ms)
        if self._leads:
            due_ms = slot_ms if magic & kernel.ROLL else waiting.due_ms
            self._slots.note_added(DueUnit(due_ms, position, log_offset, write_ms, tick, magic))
        return True

    def _slot_for(self, waiting: TimerFacts, write_ms: int) -> tuple[int, int]:
        """Return (time of the slot in epoch ms, magic). A time beyond the window is split into two
        parts, the second not too short (TimerMessageStore.doEnqueue)."""
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
        """Return the exact time of a timer's message; None if it is gone."""
        record = self._store.record(log_offset)
        waiting = read_waiting(record, self._precision_ms) if record is not None else None
        return None if waiting is None else waiting.due_ms

    def _recall_of(self, position: int) -> str | None:
        """Return the key that a recall cancels, None if it is gone; stop counting the recall."""
        if (found := self._files.message_at(position)) is None:
            return None
        record = self._store.record(found[0])
        waiting = read_waiting(record, self._precision_ms) if record is not None else None
        if record is None or waiting is None:
            self._deliveries.count_unreadable(found[1], self._now_ms, is_recall=True)
            return None
        self.metrics.change_count(text_of(waiting.topic), 1, self._now_ms)
        return recall_key(record)

    def _end_unit(self, due: DueUnit, facts: TimerFacts | None) -> None:
        """Finish a unit that another master has, or that is dropped (without facts)."""
        is_first = self._slots.count_done(due)
        self._late.pop(due.position, None)
        if facts is not None and is_first:
            self._deliveries.count(facts, self._now_ms)

    # Publishing and saving

    def _save(self, now_ms: int, steady_ms: int) -> None:
        """Save the safe progress each flush interval; remove files whose timers are gone."""
        if not self._files.exists or steady_ms < self._flush_due_ms:
            return
        self._flush_due_ms = steady_ms + self._config.timer_flush_interval_ms
        kept = self.durable
        if kept.current != kept.saved:
            kept.data_version = self._next_version(now_ms)
        kept.settle_candidate()
        kept.make_candidate()
        moved = self.enqueued.total + self.dequeued.total
        if moved != self._moved:
            self._moved = moved
            self._store.flush_soon()  # a killed broker repeats deliveries that are not safe
        kept.settle_candidate()
        kept.saved = kept.safe
        if steady_ms >= self._expire_due_ms:
            self._expire_due_ms = steady_ms + EXPIRE_MS
            self._files.expire_first_file()
        wanted = self._safe_checkpoint()
        if wanted[:4] != self._files.checkpoint[:4] or self._files.is_rewound:
            self._files.save(wanted)

    def _next_version(self, now_ms: int) -> DataVersion:
        """The version after a change of the progress."""
        version = self.durable.data_version
        if self._escaping is not None:
            return version.next_version(now_ms, version.state_version)
        return self.durable.versions.next_version(version, now_ms)

    def _safe_checkpoint(self) -> TimerCheckpoint:
        """The checkpoint with the safe progress."""
        safe, version, files = self.durable.safe, self.durable.data_version, self._files
        position, queue_offset = safe.position, safe.queue_offset
        if position < 0 or not (self._leads or files.stepped):
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

    def replica_checkpoint(self) -> TimerCheckpoint:
        """Return the answer to GET_TIMER_CHECK_POINT (60): progress that no replica lacks. The
        present progress becomes the next candidate."""
        self.durable.make_candidate()
        self.durable.settle_candidate()
        return self._safe_checkpoint()

    def take_metrics(self) -> dict[str, Any] | None:
        """Return the content to write to `timermetrics` and regard it as saved; None if nothing has
        changed. After a failed write the caller calls `metrics_failed`."""
        if not self._enabled or self.metrics.changes == self._metrics_saved:
            return None
        self._metrics_saved = self.metrics.changes
        return self.metrics_json()

    def metrics_json(self) -> dict[str, Any]:
        """Return the answer to GET_TIMER_METRICS (61)."""
        version = replace(self.durable.data_version, counter=self.metrics.changes)
        return {"dataVersion": version.to_json(), **self.metrics.to_json()}

    def metrics_failed(self) -> None:
        """Make the next `take_metrics` return its content again: it was not written."""
        self._metrics_saved = -1

    def close(self) -> None:
        """Write checkpoint and metrics now, after the store was closed; blocks. Raises OSError."""
        if not self._enabled:
            return
        self.durable.settle_last()
        stepped, slots, files = None, self._slots, self._files
        is_late = self._leads and self._escaping is None and self._held is not None
        # Nothing of a stepped clock keeps rolls of passed slots: a start has to search them again.
        is_late = is_late and self._rolls is None and not slots.has_passed
        if is_late and slots.floors and self.durable.safe == self.durable.current:
            stepped = SteppedClock(slots.cursor, files.log_end, files.queue_offset, slots.floors)
        files.close(self._safe_checkpoint(), stepped)
        metrics = self.take_metrics()
        if metrics is not None:
            self._config_files.save(timer_metrics.FILE_NAME, metrics)

    @property
    def lost_count(self) -> int:
        """Number of timers that retention removed before their time, since the start."""
        return self._deliveries.lost

    def oldest_waiting(self) -> Generator[None, None, LogOffset | None]:
        """Return, in steps, the log offset of the first timer that waits, None without timers."""
        return oldest_timer(self._store, self._files, self.durable.safe, self._precision_ms)

    def count_at(self, slot_ms: int) -> int:
        """Return the number of timers in the slot that contains `slot_ms` (epoch ms)."""
        return self._files.count(slot_ms // self._precision_ms)

    def status(self, now_ms: int) -> TimerStatus:
        """Return the figures for operators at `now_ms`, computed from the wheel at each call."""
        slots, read_tick = self._slots, self.durable.current.read_ms // self._precision_ms
        return read_status(
            self._store,
            self._files,
            TimerCounts(self.metrics.total, self.enqueued.total, self.dequeued.total),
            now_ms,
            precision_ms=self._precision_ms,
            ring=self._ring,
            cursor=slots.cursor if self._leads else read_tick,
            next_due_ms=slots.next_due_ms,
            delivers=self._leads,
        )
