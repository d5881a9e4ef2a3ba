from typing import Self

from turbopump.pyx.dispatch import QueueTable
from turbopump.pyx.region import Region
from turbopump.pyx.tail import Tail

UNIT_SIZE: int  # 52
FILLER_SIZE: int  # 16: a file without room for a unit and a filler ends with a filler
SLOT_SIZE: int  # 32
DEFAULT: int  # bits of a unit's magic
ROLL: int
DELETE: int
STEP_MAX: int  # messages in one step
RECALLS: int  # recalls that one slot keeps; messages of further recalls are delivered

def read_unit(
    log: Region, position: int, base: int
) -> tuple[int, int, int, int, int, int, int] | None:
    """Read a unit: (prev position, magic, write time, delay, log offset, size, topic hash), None if
    no unit lies at `position`. `base` is the region's position in the whole timer log."""

def put_filler(log: Region, position: int) -> None:
    """Write the filler at the end of a file that has no room for another unit."""

def find_end(log: Region, position: int, base: int) -> int:
    """Return the end of the consecutive units that begin at `position`."""

def read_facts(properties: bytes) -> tuple[int, int, int, bytes, int, bool]:
    """Read the properties of a timer: (TIMER_OUT_MS, delay in ms, TIMER_DELIVER_MS, REAL_TOPIC, its
    hash, whether the timer recalls another message); -1 for a missing or malformed number."""

def read_due(properties: bytes, stored_ms: int, precision_ms: int) -> int:
    """Return the epoch millisecond at which a message with these properties is due, if it was
    stored at `stored_ms` and each slot covers `precision_ms`."""

class Wheel:
    """The slots of the wheel file. A tick is a time divided by the precision."""

    def __init__(self, region: Region, precision_ms: int) -> None:
        """Open the slots. Raises ValueError for a region that is no whole number of slots."""

    @property
    def slots(self) -> int: ...
    def slot(self, tick: int) -> tuple[int, int, int]:
        """Return (first position, last position, number) of a tick's units; (-1, -1, 0) for an
        empty tick."""

    def next_tick(self, since: int, until: int) -> int:
        """Return the first tick of [since, until) that has units, else `until`."""

    def count(self, since: int, until: int) -> int:
        """Return the sum of the counts of the slots of [since, until); a recall counts as -1."""

    def add(
        self,
        log: Region,
        position: int,
        base: int,
        write_ms: int,
        delay_ms: int,
        log_offset: int,
        size: int,
        topic_hash: int,
        magic: int,
    ) -> None:
        """Write a unit at `position` of the timer log's file that begins at `base`, and link it
        into the slot of `write_ms` + `delay_ms`, which must be positive."""

    def replay(
        self, log: Region, position: int, end: int, base: int, since_ms: int
    ) -> tuple[bool, bool]:
        """Enter the units of [position, end) whose time is `since_ms` or later into their slots,
        and link the units of each slot. Returns (whether a unit was changed, whether a unit lies
        in another round of the wheel, which makes the wheel unusable)."""

    def free_tick(self, since: int, until: int, cursor: int, high: int, floor: int) -> int:
        """Return the first tick of [since, until) whose place in the wheel is free, else `until`.
        Slots before `cursor` were delivered; slots before `high` were delivered except units at
        or after position `floor`. The range is at most one round of the wheel."""

    def undo(self, log: Region, position: int, end: int, base: int) -> None:
        """Remove the units of [position, end), the last ones of the log, from their slots."""

class SlotWalk:
    """A walk through the units of a slot, from the newest to the oldest; it keeps the `room`
    oldest units."""

    def __new__(cls, tick: int, last_position: int, room: int) -> Self: ...
    @property
    def next_position(self) -> int:
        """Position of the next unit, which lies in another file; -1 at the end."""

    @property
    def count(self) -> int:
        """Number of units that the walk has passed, without recalls."""

    @property
    def recalls(self) -> list[int]:
        """Positions of recalls in the timer log, at most RECALLS."""

    @property
    def recall_count(self) -> int:
        """Number of recalls in the slot."""

    def go(self, wheel: Wheel, log: Region, base: int, floor: int) -> bool:
        """Walk through one file of the log, down to `floor`; False if the chain is broken."""

    def __len__(self) -> int: ...
    def entry(self, number: int) -> tuple[int, int, int, int]:
        """Return (position, log offset, magic, write time) of a kept unit; 0 is the oldest."""

class DueHeap:
    """Units in the order of their due times; units with the same due time from the oldest on."""

    def __len__(self) -> int: ...
    def push(
        self,
        due_ms: int,
        position: int,
        log_offset: int,
        write_ms: int,
        tick: int,
        magic: int,
    ) -> None:
        """Add a unit with its due time."""

    @property
    def due_ms(self) -> int | None:
        """Due time of the first unit in epoch ms; None for an empty heap."""

    @property
    def log_offset(self) -> int:
        """Log offset of the first unit's message; -1 for an empty heap."""

    def pop(self) -> tuple[int, int, int, int, int, int]:
        """Remove the first unit: (due, position, log offset, write time, tick, magic)."""

    def keep(self, ticks: list[int]) -> None:
        """Keep only the units of these ticks, which must ascend."""

    def clear(self) -> None:
        """Remove all units and free the memory."""

class LogPart:
    """The readable part of a commit log file, for one step."""

    def __init__(self, region: Region, base: int, end: int) -> None: ...

class TimerSteps:
    """Steps over many timers at once. Each method returns the number of timers done and leaves the
    next timer, which is unusual or lies in another file, to its caller. Loop thread only."""

    def __init__(self, tail: Tail, queues: QueueTable, max_body: int) -> None: ...
    @property
    def is_away(self) -> bool:
        """Whether the last step stopped at a timer whose message lies outside the LogPart that the
        step got; False: the step stopped at an unusual timer, or did not stop."""

    def take_in(
        self,
        queue: Region,
        position: int,
        count: int,
        log: LogPart,
        wheel: Wheel,
        units: Region,
        at: int,
        base: int,
        write_ms: int,
        window_ms: int,
        cursor: int,
        ring_from: int,
        scanned: int,
        heap: DueHeap,
        heap_room: int,
    ) -> tuple[int, list[tuple[bytes, int, int]], list[tuple[int, int]]]:
        """Put the messages of `count` queue units at `position` into the wheel, and write their
        timer units at `at` of the timer log's file that begins at `base`. Slots before `cursor`, or
        a round or more after `ring_from`, are left to the caller. Units for slots before `scanned`
        also go into the heap, at most `heap_room` of them. Returns (number of timers, (topic,
        messages, 0) of each topic, (tick, units) of each tick in the heap)."""

    def order(
        self, walk: SlotWalk, done: int, count: int, wheel: Wheel, log: LogPart, heap: DueHeap
    ) -> int:
        """Push units of a walk, beginning with number `done`, into the heap with their due times in
        ms; returns the number pushed."""

    def deliver(
        self,
        heap: DueHeap,
        count: int,
        precision_ms: int,
        log: LogPart,
        now_ms: int,
        until_ms: int,
        rare_ticks: tuple[int, ...],
    ) -> tuple[int, list[tuple[bytes, int, int]], list[tuple[int, int]]]:
        """Append up to `count` messages that are due until `until_ms` to the commit log, with the
        store time `now_ms`; a message of `rare_ticks` is left to the caller. Returns (number of
        messages, (topic, messages, bytes) of each topic, (tick, messages) of each tick)."""
