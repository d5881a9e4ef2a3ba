"""The timer wheel and the timer log (csrc/timer.h has the layouts).

A timer is a message that waits in TIMER_TOPIC; its unit in the timer log belongs to the slot of its
due time in the wheel. A recall is a timer that deletes another timer.
"""

from typing import Self

from turbopump.pyx.dispatch import QueueTable
from turbopump.pyx.region import Region
from turbopump.pyx.tail import Tail

UNIT_SIZE: int
"""Bytes of a unit of the timer log: 52."""
FILLER_SIZE: int
"""Bytes of the filler, 16: a timer log file without room for a unit and a filler ends with it."""
SLOT_SIZE: int
"""Bytes of a slot of the wheel: 32."""
DEFAULT: int
"""Bit of a unit's magic that every unit has."""
ROLL: int
"""Bit of a unit's magic: the slot's time is not the due time, and the timer is entered again."""
DELETE: int
"""Bit of a unit's magic: the timer recalls another message."""
STEP_MAX: int
"""Maximum number of messages in one step."""
RECALLS: int
"""Maximum number of recalls that a walk of a slot keeps; messages of further recalls are
delivered."""

def read_unit(
    log: Region, position: int, base: int
) -> tuple[int, int, int, int, int, int, int] | None:
    """Read the unit at `position` of a timer log file, which begins at byte `base` of the whole
    timer log: (byte of the previous unit of the slot, -1 without; magic; write time in epoch ms;
    delay in ms; log offset of the message's record; its size in bytes; Java's hash of its topic).
    None if no unit lies there."""

def put_filler(log: Region, position: int) -> None:
    """Write the filler from `position` to the end of a timer log file that has no room for another
    unit and a filler."""

def find_end(log: Region, position: int, base: int) -> int:
    """Return the position in the file after the consecutive units that begin at `position` of a
    timer log file, which begins at byte `base` of the whole timer log."""

def read_facts(properties: bytes) -> tuple[int, int, int, bytes, int, bool]:
    """Read the properties text of a timer: (TIMER_OUT_MS in epoch ms; delay in ms of
    TIMER_DELAY_SEC or TIMER_DELAY_MS; TIMER_DELIVER_MS in epoch ms; REAL_TOPIC, b"" without; its
    Java hash; whether the timer recalls another message). -1 for a missing or malformed number."""

def read_due(properties: bytes, stored_ms: int, precision_ms: int) -> int:
    """Return the epoch millisecond at which a message with this properties text is due, if it was
    stored at `stored_ms` (epoch ms) and each slot covers `precision_ms`. Raises ValueError for a
    precision below 1."""

class Wheel:
    """The slots of the wheel file. A tick is a time in epoch ms divided by the precision, and its
    slot has number tick modulo `slots`. Positions of units are bytes of the whole timer log."""

    def __init__(self, region: Region, precision_ms: int) -> None:
        """Open the slots. Raises ValueError for a region that is no whole number of slots."""

    @property
    def slots(self) -> int:
        """Number of slots: ticks of a round."""

    def slot(self, tick: int) -> tuple[int, int, int]:
        """Return (position of the first unit, of the last unit, number of timers) of a tick;
        (-1, -1, 0) for an empty tick."""

    def next_tick(self, since: int, until: int) -> int:
        """Return the first tick of [since, until) that has units, else `until`."""

    def count(self, since: int, until: int) -> int:
        """Return the number of timers in the slots of the ticks [since, until), at most one round;
        a recall counts as -1."""

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
        """Write a unit at `position` of the timer log's file that begins at byte `base`, and link
        it as last unit into the slot of `write_ms` (epoch ms) + `delay_ms`; not durable yet. The
        message's record has `size` bytes at `log_offset`. Raises ValueError for a time before the
        first tick."""

    def replay(
        self, log: Region, position: int, end: int, base: int, since_ms: int
    ) -> tuple[bool, bool]:
        """Enter the units of [position, end) whose time is `since_ms` or later into their slots,
        and link the units of each slot. Returns (whether a unit was changed, whether a unit lies
        in another round of the wheel, which makes the wheel unusable)."""

    def free_tick(self, since: int, until: int, cursor: int, high: int, floor: int) -> int:
        """Return the first tick of [since, until) whose slot is free or delivered, else `until`.
        Slots before `cursor` were delivered; slots before `high` were delivered except units at
        or after position `floor`. The range is at most one round of the wheel."""

    def undo(self, log: Region, position: int, end: int, base: int) -> None:
        """Remove the units of [position, end), the last ones of the log, from their slots."""

class SlotWalk:
    """A walk through the units of a slot, from the newest to the oldest; it keeps the `room`
    oldest units. Positions are bytes of the whole timer log."""

    def __new__(cls, tick: int, last_position: int, room: int) -> Self:
        """Begin at the last unit of the slot of `tick`. Raises ValueError for a room below 1 or
        above 16 million."""

    @property
    def next_position(self) -> int:
        """Position of the next unit, which lies in another file; -1 at the end."""

    @property
    def count(self) -> int:
        """Number of units that the walk has passed, without recalls."""

    @property
    def recalls(self) -> list[int]:
        """Positions of the recalls passed until now, newest first, at most RECALLS."""

    @property
    def recall_count(self) -> int:
        """Number of recalls passed until now, kept or not."""

    def go(self, wheel: Wheel, log: Region, base: int, floor: int) -> bool:
        """Walk on through the units in one file of the timer log, which begins at byte `base`, down
        to position `floor`; then `next_position` lies in another file or is -1. False: the chain is
        broken."""

    def __len__(self) -> int:
        """Number of units kept."""

    def entry(self, number: int) -> tuple[int, int, int, int]:
        """Return (position, log offset of the message, magic, write time in epoch ms) of a kept
        unit; number 0 is the oldest. Raises IndexError."""

class DueHeap:
    """Units in the order of their due times; units with the same due time in the order of their
    positions in the timer log."""

    def __len__(self) -> int:
        """Number of units."""

    def push(
        self,
        due_ms: int,
        position: int,
        log_offset: int,
        write_ms: int,
        tick: int,
        magic: int,
    ) -> None:
        """Add a unit with its due time in epoch ms, its position in the timer log, the log offset
        of its message, its write time in epoch ms, the tick of its slot and its magic."""

    @property
    def due_ms(self) -> int | None:
        """Due time of the first unit in epoch ms; None for an empty heap."""

    @property
    def log_offset(self) -> int:
        """Log offset of the first unit's message; -1 for an empty heap."""

    def pop(self) -> tuple[int, int, int, int, int, int]:
        """Remove and return the first unit: (due time in epoch ms, position, log offset, write time
        in epoch ms, tick, magic). Raises IndexError for an empty heap."""

    def retain_ticks(self, ticks: list[int]) -> None:
        """Remove the units whose tick is not in `ticks`, which must ascend."""

    def clear(self) -> None:
        """Remove all units and free the memory."""

class LogPart:
    """The readable part of a commit log file, for one step."""

    def __init__(self, region: Region, base: int, end: int) -> None:
        """Take the file's memory, the log offset of its first byte, and the position in it at which
        readable records end. Raises IndexError for an end outside the region."""

class TimerSteps:
    """Steps over many timers at once. Each method returns the number of timers done and leaves the
    next timer, which is unusual or lies in another file, to its caller. Loop thread only."""

    def __init__(self, tail: Tail, queues: QueueTable, max_body: int) -> None:
        """Use the end of the commit log, and the plain queues, for deliveries of bodies of at most
        `max_body` bytes."""

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
        timer units at `at` of the timer log's file that begins at byte `base`, with the write time
        `write_ms` (epoch ms). A timer of a slot before tick `cursor`, which was delivered, goes
        into the slot of `cursor`. Timers `window_ms` or more after `write_ms`, or a round or more
        after tick `ring_from`, are left to the caller. Units of slots before tick `scanned` also go
        into the heap, at most `heap_room` of them. Returns (number of timers, (topic, messages, 0)
        of each run of equal topics, (tick, units) of each run of equal ticks in the heap); a
        topic or tick may occur again."""

    def order(
        self, walk: SlotWalk, done: int, count: int, wheel: Wheel, log: LogPart, heap: DueHeap
    ) -> int:
        """Push at most `count` units of a walk, beginning with number `done`, into the heap with
        their due times in epoch ms; returns the number pushed."""

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
        """Remove up to `count` messages that are due until `until_ms` from the heap, and append
        them to the commit log, not dispatched yet. The store time is `now_ms`, or the log's latest
        one if that is later; all times are in epoch ms. A message of `rare_ticks` is left to the
        caller. Returns (number of messages, (topic, messages, bytes of their records) of each run
        of equal topics, (tick, messages) of each run of equal ticks); a topic or tick may
        occur again."""
