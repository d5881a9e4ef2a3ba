from typing import Self

from turbopump.pyx.dispatch import QueueTable
from turbopump.pyx.region import Region
from turbopump.pyx.tail import Tail

UNIT_SIZE: int  # 52
FILLER_SIZE: int  # 16: a file without room for a unit and this ends with a filler
SLOT_SIZE: int  # 32
DEFAULT: int  # bits of a unit's magic
ROLL: int
DELETE: int
STEP_MAX: int  # messages of one step
RECALLS: int  # of one slot: what is recalled there beyond that is delivered

def read_unit(
    log: Region, position: int, base: int
) -> tuple[int, int, int, int, int, int, int] | None:
    """(prev position, magic, write time, delay, log offset, size, topic hash), None if no unit is
    there. `base` is where in the whole log the region begins."""

def put_filler(log: Region, position: int) -> None:
    """End a file that has no room for another unit."""

def find_end(log: Region, position: int, base: int) -> int:
    """Where the units from `position` on end."""

def read_facts(properties: bytes) -> tuple[int, int, int, bytes, int, bool]:
    """(TIMER_OUT_MS, delay in ms, TIMER_DELIVER_MS, REAL_TOPIC, its hash, whether it recalls
    another message); -1 for a number that is none."""

def read_due(properties: bytes, stored_ms: int, precision_ms: int) -> int:
    """The millisecond at which a message with these properties is due, if it was stored at
    `stored_ms` and slots have `precision_ms`."""

class Wheel:
    """The slots of one file; ticks are times divided by the precision."""

    def __init__(self, region: Region, precision_ms: int) -> None:
        """Raises ValueError for a region that is no whole number of slots."""

    @property
    def slots(self) -> int: ...
    def slot(self, tick: int) -> tuple[int, int, int]:
        """(first position, last position, number) of a tick's units; -1, -1, 0 of none."""

    def next_tick(self, since: int, until: int) -> int:
        """The first tick of [since, until) that has units, else `until`."""

    def count(self, since: int, until: int) -> int:
        """How many units the slots of [since, until) say they have; recalls count as -1."""

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
        """Write a unit at `position` of a file that is the log from `base` on, in the slot of
        `write_ms` + `delay_ms`, which is after 0."""

    def replay(
        self, log: Region, position: int, end: int, base: int, since_ms: int
    ) -> tuple[bool, bool]:
        """Enter the units of [position, end) whose time is `since_ms` or later into their slots,
        and link the units of each slot. (whether that changed a unit, whether a unit lies
        in another round of the wheel, which cannot be used then)."""

    def free_tick(self, since: int, until: int, cursor: int, high: int, floor: int) -> int:
        """The first tick of [since, until) whose place in the wheel is free, else `until`. Slots
        before `cursor` were delivered; slots before `high`, too, except units at `floor` or after
        it. At most one round."""

    def undo(self, log: Region, position: int, end: int, base: int) -> None:
        """Take the units of [position, end), the last ones, out of their slots."""

class SlotWalk:
    """The units of a slot from its last one back, of which the `room` oldest are kept."""

    def __new__(cls, tick: int, last_position: int, room: int) -> Self: ...
    @property
    def next_position(self) -> int:
        """Of the unit that comes next, in another file; -1 at the end."""

    @property
    def count(self) -> int:
        """Units that the walk has passed, without recalls."""

    @property
    def recalls(self) -> list[int]:
        """Positions of the recalls in the timer log, at most RECALLS_MAX of them."""

    @property
    def recall_count(self) -> int:
        """How many there are."""

    def go(self, wheel: Wheel, log: Region, base: int, floor: int) -> bool:
        """On through one file of the log, down to `floor`; False where the chain is broken."""

    def __len__(self) -> int: ...
    def entry(self, number: int) -> tuple[int, int, int, int]:
        """(position, log offset, magic, write time) of a kept unit, the oldest one is number 0."""

class DueHeap:
    """Units in the order of the times at which they are due; of one time the oldest first."""

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
        """One more."""

    @property
    def due_ms(self) -> int | None:
        """When the first one is due; None of none."""

    @property
    def log_offset(self) -> int:
        """Of the message of the first one; -1 of none."""

    def pop(self) -> tuple[int, int, int, int, int, int]:
        """(due, position, log offset, write time, tick, magic) of the first one."""

    def keep(self, ticks: list[int]) -> None:
        """Remove the units of all ticks but these, which ascend."""

    def clear(self) -> None:
        """None any more, and no memory."""

class LogPart:
    """A file of the commit log, as far as it may be read, for one step."""

    def __init__(self, region: Region, base: int, end: int) -> None: ...

class TimerSteps:
    """What is done with many timers at once: each says how many it did, and leaves the next one,
    which is more than usual or lies elsewhere, to its caller. Loop thread only."""

    def __init__(self, tail: Tail, queues: QueueTable, max_body: int) -> None: ...
    @property
    def is_away(self) -> bool:
        """Whether the next one lies in another file of the commit log."""

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
        """Put the messages of so many queue units at `position` into the wheel, their own units at
        `at` of a file that is the timer log from `base` on. No slot before `cursor`, nor one a
        round behind `ring_from`; those before `scanned` into the heap, too, which may get
        `heap_room` more. (how many, (topic, messages, 0) of each, (tick, how many) of those in the
        heap)."""

    def order(
        self, walk: SlotWalk, done: int, count: int, wheel: Wheel, log: LogPart, heap: DueHeap
    ) -> int:
        """Push units of a walk, from number `done` on, into the heap with their milliseconds; how
        many."""

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
        """Append the messages that are due until `until_ms` at the end of the commit log, up to
        `count`, with the time `now_ms`; none of `rare_ticks`.
        (how many, (topic, messages, bytes) of each, (tick, how many) of them)."""
