# cython: auto_pickle=False
"""The wheel and the log of timers: units, slots, chains, and a heap in the order of due times.

Owns the memory of a walk and of a heap, both bounded. It must never read a file or a clock, nor
know which messages are delivered.
"""

from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from libc.stdint cimport int32_t, int64_t, uint8_t

from turbopump.pyx.c_dispatch cimport dsp_table
from turbopump.pyx.dispatch cimport QueueTable
from turbopump.pyx.region cimport Region
from turbopump.pyx.tail cimport Tail, log_tail

cdef extern from "timer.h" nogil:
    enum:
        TMR_UNIT
        TMR_FILLER
        TMR_SLOT
        TMR_DEFAULT
        TMR_ROLL
        TMR_DELETE
    struct tmr_unit:
        int64_t prev
        int64_t write_ms
        int64_t log_offset
        int32_t magic
        int32_t delay_ms
        int32_t size
        int32_t topic_hash
    struct tmr_slot:
        int64_t first
        int64_t last
        int32_t num
        int32_t magic
    struct tmr_wheel:
        uint8_t *memory
        int64_t slots
        int64_t precision_ms
    struct tmr_entry:
        int64_t due_ms
        int64_t position
        int64_t log_offset
        int64_t write_ms
        int64_t tick
        int32_t size
        int32_t magic
    struct tmr_facts:
        int64_t out_ms
        int64_t delay_ms
        int64_t deliver_ms
        int64_t rolled_ms
        int is_rolled
        int32_t topic_hash
        int is_delete
        const uint8_t *topic
        size_t topic_size
    struct tmr_walk:
        tmr_entry *ring
        int64_t *recalls
        size_t room
        size_t count
        size_t recall_room
        size_t recall_count
        int64_t tick
        int64_t position
    int tmr_get(const uint8_t *at, int64_t position, tmr_unit *unit)
    void tmr_put_filler(uint8_t *at, int32_t left)
    tmr_slot tmr_slot_get(const tmr_wheel *wheel, int64_t tick)
    int64_t tmr_next_tick(const tmr_wheel *wheel, int64_t since, int64_t until)
    int64_t tmr_count(const tmr_wheel *wheel, int64_t since, int64_t until)
    void tmr_add(const tmr_wheel *wheel, uint8_t *buf, int64_t position, tmr_unit *unit)
    int64_t tmr_free_tick(const tmr_wheel *wheel, int64_t since, int64_t until, int64_t cursor,
                          int64_t high, int64_t floor)
    size_t tmr_replay(const tmr_wheel *wheel, uint8_t *buf, size_t at, size_t end, int64_t base,
                      int64_t from_ms, int *changed, int *crowded)
    size_t tmr_find_end(const uint8_t *buf, size_t at, size_t end, int64_t base)
    void tmr_undo(const tmr_wheel *wheel, const uint8_t *buf, size_t at, size_t end, int64_t base)
    int tmr_follow(const tmr_wheel *wheel, const uint8_t *buf, size_t size, int64_t base,
                   int64_t floor, tmr_walk *walk)
    void tmr_heap_push(tmr_entry *heap, size_t count, tmr_entry entry)
    size_t tmr_heap_keep(tmr_entry *heap, size_t count, const int64_t *keep, size_t keep_count)
    tmr_entry tmr_heap_pop(tmr_entry *heap, size_t count)
    int64_t tmr_due_ms(const tmr_facts *facts, int64_t stored_ms, int64_t precision_ms)
    void tmr_read_facts(const uint8_t *properties, size_t size, tmr_facts *facts)

cdef extern from "timer_steps.h" nogil:
    enum tmr_stop:
        TMR_ALL
        TMR_RARE
        TMR_AWAY
    struct tmr_file:
        const uint8_t *memory
        size_t end
        int64_t base
    struct tmr_run:
        uint8_t *topic
        size_t topic_size
        int64_t count
        int64_t size
    struct tmr_runs:
        size_t count
        tmr_run *runs
    struct tmr_intake:
        const tmr_wheel *wheel
        uint8_t *units
        int64_t position
        int64_t write_ms
        int64_t window_ms
        int64_t cursor
        int64_t ring_from
        int64_t scanned
        tmr_entry *heap
        size_t heap_count
        size_t heap_room
        int64_t *near_ticks
        size_t near_count
        tmr_runs runs
    size_t tmr_take_in(tmr_intake *intake, const uint8_t *queue, size_t count, tmr_file log,
                       tmr_stop *stop)
    size_t tmr_order(const tmr_walk *walk, size_t done, size_t count, const tmr_wheel *wheel,
                     tmr_file log, tmr_entry *heap, size_t *heap_count, tmr_stop *stop)
    struct tmr_outlet:
        dsp_table *queues
        log_tail *tail
        uint8_t *texts
        size_t max_body
        const int64_t *rare_ticks
        size_t rare_count
        int64_t *ticks
        tmr_runs runs
    size_t tmr_deliver(tmr_outlet *outlet, tmr_entry *heap, size_t *heap_count, size_t count,
                       int64_t precision_ms, tmr_file log, int64_t now_ms, int64_t until_ms,
                       tmr_stop *stop)

UNIT_SIZE = TMR_UNIT
FILLER_SIZE = TMR_FILLER
SLOT_SIZE = TMR_SLOT
DEFAULT = TMR_DEFAULT
ROLL = TMR_ROLL
DELETE = TMR_DELETE
RECALLS = 16384
STEP_MAX = 4096
"""Messages in one step."""

cdef enum:
    STEPS_MAX = 4096              # STEP_MAX
    QUEUE_UNIT = 20
    TEXT_ROOM = 32767             # properties of a record
    RARE_MAX = 256                # slots with recalls
    HEAP_FIRST = 256
    RECALLS_MAX = 16384           # RECALLS
    WALK_MAX = 1 << 24            # units that one walk keeps


def read_unit(Region log, Py_ssize_t position, int64_t base) -> tuple | None:
    """Read a unit: (prev position, magic, write time, delay, log offset, size, topic hash), None if
    no unit lies at `position`. `base` is the region's position in the whole timer log."""
    cdef tmr_unit unit
    if not tmr_get(log.reading(position, TMR_UNIT), base + position, &unit):
        return None
    return (unit.prev, unit.magic, unit.write_ms, unit.delay_ms, unit.log_offset, unit.size,
            unit.topic_hash)


def put_filler(Region log, Py_ssize_t position) -> None:
    """Write the filler at the end of a file that has no room for another unit."""
    cdef Py_ssize_t left = log.size - position
    tmr_put_filler(log.writing(position, max(left, TMR_FILLER)), <int32_t>left)


def find_end(Region log, Py_ssize_t position, int64_t base) -> int:
    """Return the end of the consecutive units that begin at `position`."""
    cdef const uint8_t *at = log.reading(position, log.size - position)
    return <Py_ssize_t>tmr_find_end(at - position, <size_t>position, <size_t>log.size, base)


def read_facts(bytes properties) -> tuple:
    """Read the properties of a timer; see the stub."""
    cdef tmr_facts facts
    cdef bytes topic
    tmr_read_facts(<const uint8_t *><char *>properties, <size_t>len(properties), &facts)
    topic = (<const char *>facts.topic)[:facts.topic_size] if facts.topic_size else b""
    return (facts.out_ms, facts.delay_ms, facts.deliver_ms, topic, facts.topic_hash,
            facts.is_delete != 0)


def read_due(bytes properties, int64_t stored_ms, int64_t precision_ms) -> int:
    """Return the epoch millisecond at which a message with these properties is due."""
    cdef tmr_facts facts
    if precision_ms <= 0:
        raise ValueError(f"a precision of {precision_ms} ms")
    tmr_read_facts(<const uint8_t *><char *>properties, <size_t>len(properties), &facts)
    return tmr_due_ms(&facts, stored_ms, precision_ms)


cdef class Wheel:
    """The slots of the wheel file. A tick is a time divided by the precision."""

    cdef Region region
    cdef tmr_wheel wheel
    cdef readonly int64_t slots

    def __init__(self, Region region, int64_t precision_ms) -> None:
        if region.size < TMR_SLOT or region.size % TMR_SLOT or precision_ms <= 0:
            raise ValueError("not the size of a timer wheel")
        self.region = region
        self.slots = region.size // TMR_SLOT
        self.wheel.slots = self.slots
        self.wheel.precision_ms = precision_ms

    cdef const tmr_wheel *reading(self) except NULL:
        self.wheel.memory = <uint8_t *>self.region.reading(0, self.region.size)
        return &self.wheel

    cdef const tmr_wheel *writing(self) except NULL:
        self.wheel.memory = self.region.writing(0, self.region.size)
        return &self.wheel

    def slot(self, int64_t tick) -> tuple[int, int, int]:
        """Return (first position, last position, number) of a tick's units; (-1, -1, 0) for an
        empty tick."""
        cdef tmr_slot slot = tmr_slot_get(self.reading(), tick)
        return slot.first, slot.last, slot.num

    def next_tick(self, int64_t since, int64_t until) -> int:
        """Return the first tick of [since, until) that has units, else `until`."""
        return tmr_next_tick(self.reading(), since, until)

    def count(self, int64_t since, int64_t until) -> int:
        """Return the sum of the counts of the slots of [since, until); a recall counts as -1."""
        return tmr_count(self.reading(), since, min(until, since + self.slots))

    def add(self, Region log, Py_ssize_t position, int64_t base, int64_t write_ms,
            int32_t delay_ms, int64_t log_offset, int32_t size, int32_t topic_hash,
            int32_t magic) -> None:
        """Write a unit and link it into its slot; see the stub."""
        cdef tmr_unit unit
        unit.magic = magic
        unit.write_ms = write_ms
        unit.delay_ms = delay_ms
        unit.log_offset = log_offset
        unit.size = size
        unit.topic_hash = topic_hash
        if (write_ms + delay_ms) // self.wheel.precision_ms <= 0:
            raise ValueError("no slot has this time")
        tmr_add(self.writing(), log.writing(position, TMR_UNIT), base + position, &unit)

    def replay(self, Region log, Py_ssize_t position, Py_ssize_t end, int64_t base,
               int64_t since_ms) -> tuple[bool, bool]:
        """Enter the units of [position, end) into their slots; see the stub."""
        cdef uint8_t *at = log.writing(position, end - position) - position
        cdef int changed, crowded
        tmr_replay(self.writing(), at, <size_t>position, <size_t>end, base, since_ms, &changed,
                   &crowded)
        return changed != 0, crowded != 0

    def free_tick(self, int64_t since, int64_t until, int64_t cursor, int64_t high,
                  int64_t floor) -> int:
        """Return the first tick of [since, until) whose place in the wheel is free, else
        `until`."""
        return tmr_free_tick(
            self.reading(), max(since, 0), min(until, since + self.slots), cursor, high, floor
        )

    def undo(self, Region log, Py_ssize_t position, Py_ssize_t end, int64_t base) -> None:
        """Remove the units of [position, end), the last ones of the log, from their slots."""
        cdef const uint8_t *at = log.reading(position, end - position) - position
        tmr_undo(self.writing(), at, <size_t>position, <size_t>end, base)


cdef class SlotWalk:
    """A walk through the units of a slot, from the newest to the oldest; it keeps the `room` oldest
    units."""

    cdef tmr_walk walk

    def __cinit__(self, int64_t tick, int64_t last_position, Py_ssize_t room) -> None:
        if not 0 < room <= WALK_MAX:
            raise ValueError(f"a walk that keeps {room} units")
        self.walk.tick = tick
        self.walk.position = last_position
        self.walk.room = <size_t>room
        self.walk.recall_room = RECALLS_MAX
        self.walk.ring = <tmr_entry *>PyMem_Malloc(self.walk.room * sizeof(tmr_entry))
        self.walk.recalls = <int64_t *>PyMem_Malloc(RECALLS_MAX * sizeof(int64_t))
        if self.walk.ring == NULL or self.walk.recalls == NULL:
            raise MemoryError

    def __dealloc__(self) -> None:
        PyMem_Free(self.walk.ring)
        PyMem_Free(self.walk.recalls)

    @property
    def next_position(self) -> int:
        """Position of the next unit, which lies in another file; -1 at the end."""
        return self.walk.position

    @property
    def count(self) -> int:
        """Number of units that the walk has passed, without recalls."""
        return <Py_ssize_t>self.walk.count

    @property
    def recalls(self) -> list[int]:
        """Positions of recalls in the timer log, at most RECALLS."""
        cdef size_t kept = min(self.walk.recall_count, self.walk.recall_room)
        return [self.walk.recalls[i] for i in range(<Py_ssize_t>kept)]

    @property
    def recall_count(self) -> int:
        """Number of recalls in the slot."""
        return <Py_ssize_t>self.walk.recall_count

    def go(self, Wheel wheel, Region log, int64_t base, int64_t floor) -> bool:
        """Walk through one file of the log, down to `floor`; False if the chain is broken."""
        return tmr_follow(
            wheel.reading(), log.reading(0, log.size), <size_t>log.size, base, floor, &self.walk
        ) != 0

    def __len__(self) -> int:
        return <Py_ssize_t>min(self.walk.count, self.walk.room)

    def entry(self, Py_ssize_t number) -> tuple[int, int, int, int]:
        """Return (position, log offset, magic, write time) of a kept unit; number 0 is the
        oldest."""
        cdef Py_ssize_t kept = <Py_ssize_t>min(self.walk.count, self.walk.room)
        cdef tmr_entry *entry
        if number < 0 or number >= kept:
            raise IndexError("no such unit")
        entry = &self.walk.ring[(self.walk.count - 1 - <size_t>number) % self.walk.room]
        return entry.position, entry.log_offset, entry.magic, entry.write_ms


cdef class DueHeap:
    """Units in the order of their due times; units with the same due time from the oldest on."""

    cdef tmr_entry *entries
    cdef size_t used
    cdef size_t room

    def __dealloc__(self) -> None:
        PyMem_Free(self.entries)

    def __len__(self) -> int:
        return <Py_ssize_t>self.used

    cdef int reserve(self, size_t more) except -1:
        """Make room for `count` more units."""
        cdef size_t room = max(self.room, <size_t>HEAP_FIRST)
        cdef void *moved
        while room - self.used < more:
            room *= 2
        if room > self.room:
            moved = PyMem_Realloc(self.entries, room * sizeof(tmr_entry))
            if moved == NULL:
                raise MemoryError
            self.entries, self.room = <tmr_entry *>moved, room
        return 0

    @property
    def log_offset(self) -> int:
        """Log offset of the first unit's message; -1 for an empty heap."""
        return self.entries[0].log_offset if self.used else -1

    def push(self, int64_t due_ms, int64_t position, int64_t log_offset, int64_t write_ms,
             int64_t tick, int32_t magic) -> None:
        """Add a unit."""
        cdef tmr_entry entry
        self.reserve(1)
        entry.due_ms = due_ms
        entry.position = position
        entry.log_offset = log_offset
        entry.write_ms = write_ms
        entry.tick = tick
        entry.size = 0
        entry.magic = magic
        tmr_heap_push(self.entries, self.used, entry)
        self.used += 1

    @property
    def due_ms(self) -> int | None:
        """Due time of the first unit in epoch ms; None for an empty heap."""
        return self.entries[0].due_ms if self.used else None

    def pop(self) -> tuple[int, int, int, int, int, int]:
        """Remove the first unit: (due, position, log offset, write time, tick, magic)."""
        cdef tmr_entry entry
        if not self.used:
            raise IndexError("nothing is due")
        entry = tmr_heap_pop(self.entries, self.used)
        self.used -= 1
        return (entry.due_ms, entry.position, entry.log_offset, entry.write_ms, entry.tick,
                entry.magic)

    def retain_ticks(self, list ticks not None) -> None:
        """Keep only the units of these ticks."""
        cdef Py_ssize_t number, count = len(ticks)
        cdef int64_t *wanted = <int64_t *>PyMem_Malloc(max(count, 1) * sizeof(int64_t))
        if wanted == NULL:
            raise MemoryError
        try:
            for number in range(count):
                wanted[number] = ticks[number]
            self.used = tmr_heap_keep(self.entries, self.used, wanted, <size_t>count)
        finally:
            PyMem_Free(wanted)

    def clear(self) -> None:
        """Remove all units and free the memory."""
        PyMem_Free(self.entries)
        self.entries = NULL
        self.used = self.room = 0


cdef class LogPart:
    """The readable part of a commit log file, for one step."""

    cdef Region region
    cdef tmr_file file

    def __init__(self, Region region not None, int64_t base, Py_ssize_t end) -> None:
        region.reading(0, end)
        self.region = region
        self.file.base, self.file.end = base, <size_t>end

    cdef tmr_file reading(self) except *:
        self.file.memory = self.region.reading(0, <Py_ssize_t>self.file.end)
        return self.file


cdef class TimerSteps:
    """Steps over many timers at once (csrc/timer_steps.h). Each method returns the number of timers
    done and leaves the next timer to its caller."""

    cdef Tail tail
    cdef QueueTable queues
    cdef tmr_intake intake
    cdef tmr_outlet outlet
    cdef int64_t ticks[STEPS_MAX]
    cdef int64_t rare[RARE_MAX]
    cdef uint8_t texts[TEXT_ROOM]
    cdef readonly bint is_away
    """Whether the next timer's message lies in another file of the commit log."""

    def __init__(self, Tail tail not None, QueueTable queues not None, Py_ssize_t max_body) -> None:
        if max_body < 0:
            raise ValueError(f"bodies of {max_body} bytes")
        self.tail, self.queues = tail, queues
        self.outlet.tail, self.outlet.queues = &tail.tail, &queues.table
        self.outlet.max_body = <size_t>max_body
        self.outlet.texts = self.texts
        self.outlet.ticks = self.intake.near_ticks = self.ticks
        self.outlet.rare_ticks = self.rare

    def take_in(
        self, Region queue not None, Py_ssize_t position, Py_ssize_t count, LogPart log not None,
        Wheel wheel not None, Region units not None, Py_ssize_t at, int64_t base, int64_t write_ms,
        int64_t window_ms, int64_t cursor, int64_t ring_from, int64_t scanned,
        DueHeap heap not None, Py_ssize_t heap_room
    ) -> tuple[int, list, list]:
        """Put messages into the wheel; see the stub."""
        cdef tmr_intake *intake = &self.intake
        cdef tmr_stop stop
        cdef size_t done
        cdef const uint8_t *queued
        if count < 0 or count > STEPS_MAX or heap_room < 0:
            raise ValueError("too many timers for one step")
        queued = queue.reading(position, count * QUEUE_UNIT)
        heap.reserve(<size_t>min(heap_room, count))
        intake.units = units.writing(at, count * TMR_UNIT)
        intake.wheel = wheel.writing()
        intake.position = base + at
        intake.write_ms, intake.window_ms = write_ms, window_ms
        intake.cursor, intake.ring_from, intake.scanned = cursor, ring_from, scanned
        intake.heap, intake.heap_count = heap.entries, heap.used
        intake.heap_room = heap.used + <size_t>min(heap_room, count)
        intake.near_count = intake.runs.count = 0
        done = tmr_take_in(intake, queued, <size_t>count, log.reading(), &stop)
        heap.used = intake.heap_count
        self.is_away = stop == TMR_AWAY
        return (<Py_ssize_t>done, runs_of(&intake.runs),
                ticks_of(self.ticks, intake.near_count))

    def order(
        self, SlotWalk walk not None, Py_ssize_t done, Py_ssize_t count, Wheel wheel not None,
        LogPart log not None, DueHeap heap not None
    ) -> int:
        """Push units of a walk into the heap; see the stub."""
        cdef tmr_stop stop
        cdef size_t ordered
        if done < 0 or count < 0 or count > len(walk) - done:
            raise ValueError("units that the walk has not kept")
        heap.reserve(<size_t>count)
        ordered = tmr_order(&walk.walk, <size_t>done, <size_t>count, wheel.reading(),
                            log.reading(), heap.entries, &heap.used, &stop)
        self.is_away = stop == TMR_AWAY
        return <Py_ssize_t>ordered

    def deliver(
        self, DueHeap heap not None, Py_ssize_t count, int64_t precision_ms, LogPart log not None,
        int64_t now_ms, int64_t until_ms, tuple rare_ticks not None
    ) -> tuple[int, list, list]:
        """Append due messages to the commit log; see the stub."""
        cdef tmr_stop stop
        cdef size_t done
        self.queues.alone()
        if precision_ms <= 0:
            raise ValueError(f"a precision of {precision_ms} ms")
        if len(rare_ticks) > RARE_MAX or not heap.used:
            return 0, [], []
        self.outlet.rare_count = <size_t>len(rare_ticks)
        for number in range(len(rare_ticks)):
            self.rare[number] = rare_ticks[number]
        self.outlet.runs.count = 0
        done = tmr_deliver(&self.outlet, heap.entries, &heap.used,
                           <size_t>min(max(count, 0), STEPS_MAX), precision_ms, log.reading(),
                           now_ms, until_ms, &stop)
        self.is_away = stop == TMR_AWAY
        return <Py_ssize_t>done, runs_of(&self.outlet.runs), ticks_of(self.ticks, done)


cdef list runs_of(const tmr_runs *runs):
    """Return (topic, messages, bytes) of each run."""
    return [
        ((<const char *>runs.runs[number].topic)[:runs.runs[number].topic_size],
         runs.runs[number].count, runs.runs[number].size)
        for number in range(<Py_ssize_t>runs.count) if runs.runs[number].count
    ]


cdef list ticks_of(const int64_t *ticks, size_t count):
    """Return (tick, count) of each group of equal consecutive ticks."""
    cdef list found = []
    cdef size_t at = 0, begin
    while at < count:
        begin = at
        while at < count and ticks[at] == ticks[begin]:
            at += 1
        found.append((ticks[begin], <Py_ssize_t>(at - begin)))
    return found
