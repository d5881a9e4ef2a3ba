"""The timers' files of a store: the wheel, the log and the checkpoint, kept consistent.

Owns when they are made, how a start repairs them, and the order of writes. It must never know a
message's properties, a role or a clock. Loop thread only; disk threads make, sync and remove files.

The wheel and the log are derived from the queue of TIMER_TOPIC: (log position, queue offset) in the
checkpoint means that the units before the position belong to the messages before the offset. A
crash leaves:

1. Units after the checkpoint's position: any part of them. They are cut, except units of messages
before the checkpoint's queue offset, which a RocketMQ broker may have left there; the queue is read
again from the last unit that stays.

2. A wheel in which any pages are old: it is not synced while the broker runs. A start without the
mark of a clean stop rebuilds it from the log (RocketMQ syncs all of it each second).

3. Units of messages that the commit log lost. They are cut, as when the log is cut
(`remove_units_from`). No unit is added until zeros and an earlier checkpoint are durable.

Tests: tests/unit/broker/scheduled/test_timers.py, tests/golden_stores/test_timers.py
"""

import logging
from collections.abc import Callable
from typing import Final

from turbopump.engine import types
from turbopump.engine.disk.files import Files, MappedFile
from turbopump.engine.disk.flush import Disk, DiskLane
from turbopump.engine.disk.segments import file_size_in
from turbopump.engine.store import Store
from turbopump.engine.timer import timer_check
from turbopump.engine.timer.timer_check import SteppedClock, TimerCheckpoint
from turbopump.engine.timer.timer_log import TimerLog
from turbopump.engine.types import LogOffset, QueueOffset, StoreError
from turbopump.pyx import timer as kernel
from turbopump.pyx.region import Region
from turbopump.pyx.timer import SlotWalk, Wheel

logger = logging.getLogger(__name__)

TIMER_TOPIC: Final = types.TIMER_TOPIC
"""The topic of timers; its only queue is 0."""
WHEEL_FILE: Final = "timerwheel"
"""Name of the wheel's file in the store's folder."""
LOG_FOLDER: Final = "timerlog"
"""Name of the timer log's folder in the store's folder."""
SLOTS_TOTAL: Final = 7 * 24 * 3600
"""Number of slots of half a wheel (RocketMQ: TIMER_WHEEL_TTL_DAY)."""
BLANK_SLOTS: Final = 60
"""Number of slots by which `roll_slots` is at least less than half a wheel."""
RETRY_MS: Final = 1_000
"""Time between attempts to make a file."""


class TimerFiles:
    """The timers' files of a store: wheel, timer log and checkpoint. Call `load` first; no file is
    made before the first timer. A tick is epoch ms divided by the precision (timerPrecisionMs), a
    position is a byte of the timer log, a queue offset is of TIMER_TOPIC."""

    def __init__(
        self, store: Store, files: Files, disk: Disk, slots: int = 2 * SLOTS_TOTAL
    ) -> None:
        """RocketMQ can share only a wheel of its own number of `slots`; others are for tests."""
        self.slots = slots
        """Number of slots of the wheel."""
        config = store.config
        self._store, self._files, self._config = store, files, config
        folder = f"{config.root}/{LOG_FOLDER}"
        size = file_size_in(files, folder) or config.mapped_file_size_timer_log
        self._log = TimerLog(files, folder, size)
        self._wheel: Wheel | None = None
        self._wheel_file: MappedFile | None = None
        self._spare: tuple[int, MappedFile] | None = None
        self._making, self._saving = DiskLane(disk), DiskLane(disk)
        self._retry_ms = 0
        self._is_short = False
        """Whether the last attempt to make a file failed."""
        self._rewound: TimerCheckpoint | None = None
        self._void: list[str] = []
        self._has_new_names = False
        self.on_ready: Callable[[], None] = lambda: None
        """Called on the loop thread when a file that `ensure_room` found missing was made."""
        self.checkpoint = TimerCheckpoint()
        """Content of the checkpoint file on the disk."""
        self.stepped: SteppedClock | None = None
        """Progress at the last stop if that was a clean stop with a clock set back, else None; the
        wheel has the units of that time."""
        self.queue_offset = QueueOffset(0)
        """Queue offset before which messages are in the wheel, or were delivered."""

    # Opening

    def load(self) -> None:
        """Read wheel, log and checkpoint, repair them after a crash, and wait for the disk; sets
        `checkpoint`, `stepped` and `queue_offset`. Raises StoreError."""
        try:
            self._load()
        except OSError as error:
            raise StoreError(
                f"the timers of {self._config.root} cannot be read: {error}"
            ) from error

    def _load(self) -> None:
        """Read checkpoint, log and wheel; cut units that the checkpoint does not cover, and rebuild
        the wheel unless it is whole."""
        files, log, root = self._files, self._log, self._config.root
        check, is_whole = timer_check.load(files, root, self._config.timer_precision_ms)
        self.checkpoint, self.queue_offset = check, check.queue_offset
        void = log.load(check.log_position)
        if not log.segments.count:
            if check.log_position:
                logger.warning("the timer log is missing: it is rebuilt from the queue")
                self.queue_offset = self._store.min_queue_offset(TIMER_TOPIC, 0)
            self._wheel_file = self._open_wheel()
            if self._wheel_file is not None:
                self._remove_wheel()
            return
        if self._resume_stepped(check) and not void:
            return
        is_whole = is_whole and log.end == check.log_position and not void
        end = min(log.end, log.position_before(self._record_offset(check.queue_offset)))
        if end < log.end or void or log.segments.end > log.end:
            void += log.zero_units_from(end)
        is_whole = is_whole and end == check.log_position
        # A power cut loses unsynced blocks, and RocketMQ's files have holes.
        log.reserve_blocks()
        self._wheel_file = self._open_wheel()
        mapped = self._wheel_file
        if is_whole and mapped is not None and mapped.size == self._wheel_size:
            mapped.reserve(0, mapped.size)
            self._wheel = Wheel(mapped.region, self._config.timer_precision_ms)
        else:
            self._rebuild_wheel(check)
        # Remove the mark of a clean stop before the first byte is changed.
        timer_check.save(files, root, self._sync_and_correct(check))
        self._remove_durably(void)

    def _resume_stepped(self, check: TimerCheckpoint) -> bool:
        """Take wheel and log as a clean stop left them while the clock was set back; False if the
        last stop was not such a stop."""
        files, root, log = self._files, self._config.root, self._log
        precision_ms = self._config.timer_precision_ms
        stepped = timer_check.load_stepped(files, root, check, precision_ms)
        if stepped is None or log.end != stepped.log_end:
            return False
        mapped = self._open_wheel()
        if mapped is None or mapped.size != self._wheel_size:
            if mapped is not None:
                mapped.close()
            return False
        log.reserve_blocks()
        mapped.reserve(0, mapped.size)
        self._wheel_file, self._wheel = mapped, Wheel(mapped.region, precision_ms)
        self.stepped, self.queue_offset = stepped, stepped.queue_offset
        timer_check.save(files, root, check)
        return True

    def _sync_and_correct(self, check: TimerCheckpoint) -> TimerCheckpoint:
        """Sync the changed files of the log; returns the checkpoint with the log's end and the
        queue offset as they are now, which becomes `checkpoint`."""
        check = check._replace(log_position=self._log.end, queue_offset=self.queue_offset)
        files = self._files
        files.sync_all(self._log.take_dirty_paths(), [self._log.segments.folder])
        self.checkpoint = check
        return check

    def _record_offset(self, queue_offset: QueueOffset) -> LogOffset:
        """Log offset of the record with this queue offset in TIMER_TOPIC, or the commit log's end
        if there is no such record."""
        store = self._store
        units = []
        if store.min_queue_offset(TIMER_TOPIC, 0) <= queue_offset:
            units = store.units(TIMER_TOPIC, 0, queue_offset, 1)
        return LogOffset(units[0].log_offset) if units else store.max_log_offset

    def _rebuild_wheel(self, check: TimerCheckpoint) -> None:
        """Rebuild the wheel from the waiting units, and set the queue offset after them."""
        log = self._log
        if self._wheel_file is not None:
            self._remove_wheel()
        mapped = self._wheel_file = self._make_wheel()
        wheel = self._wheel = Wheel(mapped.region, self._config.timer_precision_ms)
        is_crowded = False
        for region, position, stop, base in log.readable_parts():
            changed, crowded = wheel.replay(region, position, stop, base, check.read_ms)
            is_crowded = is_crowded or crowded
            if changed:
                log.mark_changed(base)
        if is_crowded:
            logger.warning("slots are shorter now: the timer wheel is rebuilt from the queue")
            self._remove_wheel()
            mapped = self._wheel_file = self._make_wheel()
            self._wheel = Wheel(mapped.region, self._config.timer_precision_ms)
            self._void += log.zero_units_from(log.segments.first)
            self.queue_offset = self._store.min_queue_offset(TIMER_TOPIC, 0)
            return
        last = log.last_unit
        if last is None:
            if check.log_position:
                self.queue_offset = self._store.min_queue_offset(TIMER_TOPIC, 0)
            return
        record = self._store.record(last.log_offset)
        if record is not None:
            self.queue_offset = QueueOffset(min(check.queue_offset, record.queue_offset + 1))

    def _wheel_path(self) -> str:
        return f"{self._config.root}/{WHEEL_FILE}"

    @property
    def _wheel_size(self) -> int:
        return self.slots * kernel.SLOT_SIZE

    @property
    def roll_slots(self) -> int:
        """Number of slots ahead beyond which a timer waits in two parts or more; at most the number
        that the wheel can hold (RocketMQ: TimerMessageStore)."""
        most = self.slots // 2 - BLANK_SLOTS
        wanted = self._config.timer_roll_window_slot
        return wanted if 2 <= wanted <= most else max(2, most)

    def _open_wheel(self) -> MappedFile | None:
        """Map the wheel's file; None if it is missing or empty."""
        path = self._wheel_path()
        if not self._files.exists(path) or self._files.file_size(path) == 0:
            return None
        return self._files.open(path)

    def _remove_wheel(self) -> None:
        """Close and remove the wheel's file, not yet durably."""
        assert self._wheel_file is not None
        self._wheel_file.close()
        self._wheel_file = None
        self._files.remove(self._wheel_path())

    def _make_wheel(self) -> MappedFile:
        """Make the wheel's file of zeros, in place of an old one."""
        files, path = self._files, self._wheel_path()
        if files.exists(path):
            files.remove(path)
        return self._make_file(path, self._wheel_size)

    def _make_file(self, path: str, size: int) -> MappedFile:
        """Make a file of zeros with all its blocks: a store into it cannot fail. Its name is
        durable with the next checkpoint, and its content does not count before that, so the first
        timers do not wait for a busy disk."""
        mapped = self._files.create(path, size)
        try:
            mapped.reserve(0, size)
            mapped.expect_random()
        except BaseException:
            mapped.close()
            self._files.remove(path)
            raise
        return mapped

    def _remove_durably(self, paths: list[str]) -> None:
        for path in paths:
            self._files.remove(path)
        if paths:
            self._files.sync_folder(self._log.segments.folder)

    # Adding

    @property
    def log_end(self) -> int:
        """Position after the last unit."""
        return self._log.end

    @property
    def exists(self) -> bool:
        """Whether the wheel's file exists: `ensure_room` has made it, or an earlier run."""
        return self._wheel is not None

    def ensure_room(self, steady_ms: int) -> bool:
        """Whether a unit can be added; if not, a disk thread begins to make the missing file, and
        `on_ready` is called then. A file is also made ahead. After a failure the next attempt is
        RETRY_MS later on the steady clock."""
        log = self._log
        if self._rewound is not None:
            return False
        needs = self._use_spare()
        wanted = needs
        if needs is None and self._spare is None and log.is_nearly_full:
            wanted = log.segments.end
        if (wanted is not None or self._wheel is None) and steady_ms >= self._retry_ms:
            self._begin_making(wanted, steady_ms)
            needs = self._use_spare()
        return needs is None and self._wheel is not None

    def _use_spare(self) -> int | None:
        """Add the spare file to the log if it fits; returns the position at which the file begins
        that the log still needs, None if it needs no file."""
        log, needs = self._log, self._log.missing_file_start
        if self._spare is not None:
            start, mapped = self._spare
            if start == needs:
                log.adopt_file(mapped, start)
                self._spare = needs = None
            elif start != log.segments.end:
                self._drop_spare()
        return needs

    def _begin_making(self, start: int | None, steady_ms: int) -> None:
        """Begin to make the missing files on a disk thread: the wheel, and the log's file that
        begins at position `start`, unless it is None. A failure is logged, and tried again after
        RETRY_MS."""
        if self._making.busy:
            return
        log, wants_wheel = self._log, self._wheel is None

        def make_files() -> tuple[MappedFile | None, MappedFile | None]:
            wheel = self._make_wheel() if wants_wheel else None
            if start is None or (self._spare is not None and self._spare[0] == start):
                return wheel, None
            self._files.make_folders(log.segments.folder)
            path = log.segments.path(start)
            if self._files.exists(path):
                self._files.remove(path)  # left from before the log was cut
            return wheel, self._make_file(path, log.segments.file_size)

        def on_made(result: tuple[MappedFile | None, MappedFile | None] | OSError) -> None:
            if isinstance(result, OSError):
                if not self._is_short:
                    logger.error("timers wait in their queue, a file cannot be made: %s", result)
                self._is_short = True
                self._retry_ms = steady_ms + RETRY_MS
                return
            if self._is_short:
                logger.info("timers go on: their files can be made again")
            self._is_short = False
            wheel, mapped = result
            if wheel is not None:
                self._wheel_file = wheel
                self._wheel = Wheel(wheel.region, self._config.timer_precision_ms)
            if mapped is not None and start is not None:
                self._spare = start, mapped
            self._has_new_names = True
            self.on_ready()

        self._making.submit(make_files, on_made)

    @property
    def is_rewound(self) -> bool:
        """Whether `remove_units_from` removed units and the removal is not durable yet: no unit can
        be added until a `save` has ended."""
        return self._rewound is not None

    def add(
        self,
        write_ms: int,
        slot_ms: int,
        log_offset: LogOffset,
        size: int,
        topic_hash: int,
        magic: int,
    ) -> int:
        """Add a unit to the log and to the slot of `slot_ms`; returns its position. Requires
        `ensure_room`. Both times are epoch ms, at most 2**31 - 1 ms apart. `log_offset` and `size`
        are of the record in TIMER_TOPIC, `topic_hash` is Java's hash of the real topic, `magic` has
        the bits of pyx.timer. Not durable before `save`. Raises ValueError for a slot before tick
        1."""
        assert self._wheel is not None, "no wheel yet"
        position = self._log.end
        region, at, base = self._log.allocate_unit()
        self._wheel.add(
            region, at, base, write_ms, slot_ms - write_ms, log_offset, size, topic_hash, magic
        )
        return position

    @property
    def wheel(self) -> Wheel | None:
        """The wheel; None unless `exists`."""
        return self._wheel

    def room_for_unit(self) -> tuple[Wheel, Region, int, int, int]:
        """(wheel, region, position in the region, position in the log at which the region begins,
        number of units with room) for the next units. Requires `ensure_room`. The caller writes the
        units and calls `advance_end`."""
        assert self._wheel is not None, "no wheel yet"
        return self._wheel, *self._log.room_for_unit()

    def advance_end(self, count: int) -> None:
        """Count `count` units that the caller wrote at `room_for_unit`: the end of the timer log
        moves."""
        self._log.advance_end(count)

    def remove_units_from(self, queue_offset: QueueOffset) -> None:
        """Remove the units of messages from `queue_offset` on, and the units whose records the
        commit log lost, and lower `queue_offset`. No unit can be added until a `save` has made that
        durable. Raises OSError."""
        if self.stepped is not None:
            queue_offset = min(queue_offset, self.checkpoint.queue_offset)
            self.stepped = None
        self.queue_offset = QueueOffset(min(self.queue_offset, queue_offset))
        log, wheel = self._log, self._wheel
        position = log.position_before(self._record_offset(self.queue_offset))
        if wheel is None or position >= log.end:
            return
        for region, start, stop, base in reversed(list(log.readable_parts(position))):
            wheel.undo(region, start, stop, base)
        self._void += log.zero_units_from(position)
        self._drop_spare()
        self._rewound = self.checkpoint._replace(
            log_position=position, queue_offset=self.queue_offset
        )

    def _drop_spare(self) -> None:
        """Give up the spare log file; the next save removes it."""
        if self._spare is not None:
            self._void.append(self._spare[1].path)
            self._spare[1].close()
            self._spare = None

    # Looking

    def next_tick(self, since: int, until: int) -> int:
        """The first tick of [since, until) whose slot has units, else `until`."""
        return until if self._wheel is None else self._wheel.next_tick(since, until)

    def count_waiting(self, since: int, bounds: list[int]) -> list[int]:
        """Number of waiting messages in each range of ticks: [since, bounds[0]), [bounds[0],
        bounds[1]) and so on. `since` and `bounds` are ticks, times divided by the precision."""
        if self._wheel is None:
            return [0] * len(bounds)
        starts = [since, *bounds]
        wheel = self._wheel
        return [max(0, wheel.count(*pair)) for pair in zip(starts, bounds, strict=False)]

    def count(self, tick: int) -> int:
        """Number of messages that wait in the slot of `tick`; a recall counts as -1."""
        return 0 if self._wheel is None else self._wheel.slot(tick)[2]

    def free_tick(self, tick: int, cursor: int, high: int, floor: int) -> int:
        """The first tick from `tick` on whose place in the wheel is free, or `tick` plus a round
        if none is; see Wheel.free_tick."""
        if self._wheel is None:
            return tick
        return self._wheel.free_tick(tick, tick + self.slots, cursor, high, floor)

    def walk_slot(self, tick: int, floor: int, room: int) -> SlotWalk:
        """The units in the slot of `tick` at positions from `floor` on; the walk keeps the `room`
        oldest of them. Only if `exists`."""
        assert self._wheel is not None, "no wheel yet"
        segments = self._log.segments
        _first, last, _num = self._wheel.slot(tick)
        floor = max(floor, segments.first)
        walk = SlotWalk(tick, last, room)
        while walk.next_position >= floor and segments.contains(walk.next_position):
            base = segments.start_of(walk.next_position)
            if not walk.go(self._wheel, segments.file_region(base), base, floor):
                logger.error("the chain of timers at %d is broken", walk.next_position)
                break
        return walk

    def first_readable(self) -> int:
        """Position of the first unit whose record the commit log still has, or the log's end."""
        return self._log.position_before(self._store.min_log_offset)

    def oldest_in(self, tick: int, low: int) -> int | None:
        """Position of the oldest unit in the slot of `tick` at positions from `low` on; None if
        there is no such unit. Only if `exists`."""
        assert self._wheel is not None, "no wheel yet"
        first, last, _count = self._wheel.slot(tick)
        if last < low:
            return None
        if first >= low:
            return first
        walk = self.walk_slot(tick, low, 1)
        return walk.entry(0)[0] if len(walk) else None

    def log_offset_at(self, position: int) -> LogOffset:
        """Log offset of the record of the unit at `position`; the beginning of the commit log if no
        unit is there."""
        unit = self._log.read_unit(position)
        return self._store.min_log_offset if unit is None else unit.log_offset

    def message_at(self, position: int) -> tuple[LogOffset, int] | None:
        """(log offset of a unit's message in TIMER_TOPIC, Java's hash of its real topic); None if
        no unit is at `position`."""
        unit = self._log.read_unit(position)
        return None if unit is None else (LogOffset(unit.log_offset), unit.topic_hash)

    # Saving

    def save(self, checkpoint: TimerCheckpoint) -> bool:
        """Begin to make all units and then the checkpoint durable, on a disk thread, and to remove
        files without units. Returns whether `checkpoint` is being saved: False without any effect
        if an earlier save is under way, and False if the log was rewound: then the rewound
        checkpoint is saved first. An error is logged, and the next save repeats the work."""
        if self._saving.busy:
            return False
        rewound = self._rewound
        wanted = rewound or checkpoint
        dirty, void = self._log.take_dirty_paths(), self._void
        files, root, folder = self._files, self._config.root, self._log.segments.folder
        folders = [root, folder] if self._has_new_names else []
        self._void, self._has_new_names = [], False

        def write_files() -> None:
            files.sync_all(dirty, folders)
            timer_check.save(files, root, wanted)
            for path in void:
                if files.exists(path):
                    files.remove(path)
            if void:
                files.sync_folder(folder)

        def on_written(result: OSError | None) -> None:
            if isinstance(result, OSError):
                logger.error("the progress of timers cannot be saved for now: %s", result)
                self._log.mark_dirty(dirty)
                self._void += void
                self._has_new_names = self._has_new_names or bool(folders)
                return
            self.checkpoint = wanted
            if rewound is not None and self._rewound is rewound:
                self._rewound = None

        self._saving.submit(write_files, on_written)
        return rewound is None

    def expire_first_file(self) -> None:
        """Take the first log file out of the log if retention removed all its messages; the next
        `save` removes the file."""
        path = self._log.expire_first_file(self._store.min_log_offset)
        if path is not None:
            self._void.append(path)

    def close(self, checkpoint: TimerCheckpoint, stepped: SteppedClock | None = None) -> None:
        """Make all data durable, with the mark of a clean stop, unmap the files, and wait for the
        disk. The store must be closed. `stepped` if the clock shows less than an earlier time, else
        None. Raises OSError; the files are unmapped then, too."""
        self._making.wait_until_idle()
        self._saving.wait_until_idle()
        wheel, spare = self._wheel_file, self._spare
        try:
            if wheel is not None and self._rewound is None:
                files = self._files
                folders = [self._config.root, self._log.segments.folder]
                files.sync_all([*self._log.take_dirty_paths(), self._wheel_path()], folders)
                if spare is not None:
                    self._void.append(spare[1].path)
                is_whole = checkpoint.log_position == self._log.end
                precision_ms = self._config.timer_precision_ms if is_whole else 0
                root = self._config.root
                if stepped is not None and not is_whole:
                    precision_ms = self._config.timer_precision_ms
                    timer_check.save_stepped(files, root, checkpoint, precision_ms, stepped)
                else:
                    timer_check.save(files, root, checkpoint, precision_ms)
                self._remove_durably([path for path in self._void if files.exists(path)])
        finally:
            for mapped in (wheel, spare[1] if spare is not None else None):
                if mapped is not None:
                    mapped.close()
            self._log.close()
            self._wheel = self._wheel_file = self._spare = None
