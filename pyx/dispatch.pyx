# cython: auto_pickle=False
"""Log to queues and index, once per byte, natively. The same code on each role, and in recovery.

Owns the table of queues and their counters. It must never open, create or choose a file: it stops,
and the stop's status names the missing queue, memory or index file. Loop thread only.
"""

from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memset

from turbopump.pyx.c_dispatch cimport *
from turbopump.pyx.index cimport IndexFile
from turbopump.pyx.region cimport Region
from turbopump.pyx.tail cimport DES_COUNT, Tail, des_forget, des_record, log_tail

DONE = <int>DSP_DONE
BLANK_FOUND = <int>DSP_BLANK
BAD_RECORD = <int>DSP_BAD
SHORT = <int>DSP_SHORT
UNKNOWN_QUEUE = <int>DSP_UNKNOWN
NEEDS_ROOM = <int>DSP_NO_ROOM
NEEDS_INDEX = <int>DSP_NO_INDEX
QUEUE_GAP = <int>DSP_GAP
SPECIAL = <int>DSP_SPECIAL
BEGINS_ANEW = <int>DSP_ANEW

cdef enum:
    WITHOUT_GIL = 65536           # bytes; below this, releasing the GIL costs more than it saves
    FIRST_SLOTS = 64
    MAX_SLOTS = 1 << 24           # 2 GB of slots; a broker has thousands


cdef class Stop:
    """Where a dispatch stopped and why."""

    cdef readonly int status
    cdef readonly Py_ssize_t position, count
    cdef readonly int32_t slot
    cdef readonly int64_t size, queue_offset, store_timestamp_ms


cdef class QueueTable:
    """All queues of a store: (topic, queue id) -> slot with its write pointer and counters."""

    def __cinit__(self):
        dsp_init(&self.table)
        self.names, self.held, self.free = [], [], []
        self.table.delays_ms = self.delays_ms
        self.ring = <des_record *>PyMem_Malloc(DES_COUNT * sizeof(des_record))
        if self.ring == NULL:
            raise MemoryError
        self.table.descriptors.records = self.ring

    def __dealloc__(self):
        PyMem_Free(self.ring)
        PyMem_Free(self.table.slots)
        PyMem_Free(self.table.marks)
        PyMem_Free(self.table.buckets)

    cdef int alone(self) except -1:
        if self.busy:
            raise RuntimeError("the table is used by two threads")
        return 0

    cdef dsp_slot *at(self, Py_ssize_t slot) except NULL:
        self.alone()
        if slot < 0 or slot >= self.used or self.table.slots[slot].topic == NULL:
            raise IndexError(f"no queue has slot {slot}")
        return &self.table.slots[slot]

    cdef int grow(self) except -1:
        cdef int32_t capacity = self.capacity * 2 if self.capacity else FIRST_SLOTS
        cdef void *slots
        cdef void *marks
        cdef void *buckets
        if capacity > MAX_SLOTS:
            raise MemoryError(f"more than {MAX_SLOTS} queues")
        slots = PyMem_Realloc(self.table.slots, <size_t>capacity * sizeof(dsp_slot))
        if slots == NULL:
            raise MemoryError
        self.table.slots = <dsp_slot *>slots
        # Pages without writes need no memory: queues without messages cost nothing.
        marks = PyMem_Realloc(self.table.marks, <size_t>capacity * QM_MARKS * sizeof(qm_mark))
        if marks == NULL:
            raise MemoryError
        self.table.marks = <qm_mark *>marks
        buckets = PyMem_Realloc(self.table.buckets, <size_t>capacity * 2 * sizeof(int32_t))
        if buckets == NULL:
            raise MemoryError
        self.capacity = capacity
        dsp_rehash(&self.table, <int32_t *>buckets, <size_t>capacity * 2, self.used)
        return 0

    def describe(self, bint on) -> None:
        """Accept descriptors of appended records, or parse all records; see the stub."""
        self.alone()
        des_forget(&self.table.descriptors)
        self.table.descriptors.records = self.ring if on else NULL

    @property
    def described_count(self) -> int:
        """Number of records dispatched by their descriptors."""
        return self.table.descriptors.taken_count

    def find(self, bytes topic not None, int32_t queue_id) -> int:
        """The slot of the queue, or -1."""
        return dsp_find(&self.table, <const uint8_t *><const char *>topic, <size_t>len(topic),
                        queue_id)

    def add(self, bytes topic not None, int32_t queue_id, bint plain=True) -> int:
        """Return the slot of the queue; a queue without a slot gets one."""
        cdef int32_t number = self.find(topic, queue_id)
        cdef dsp_slot *slot
        self.alone()
        if number >= 0:
            self.table.slots[number].plain = plain
            return number
        if self.free:
            number = self.free.pop()
            self.names[number] = topic
        else:
            if self.used == self.capacity:
                self.grow()
            number = self.used
            self.used += 1
            self.names.append(topic)
            self.held.append(None)
        slot = &self.table.slots[number]
        memset(slot, 0, sizeof(dsp_slot))
        slot.topic = <const uint8_t *><const char *>topic
        slot.topic_size = <size_t>len(topic)
        slot.queue_id = queue_id
        slot.hash = dsp_hash(slot.topic, slot.topic_size, queue_id)
        slot.plain = plain
        dsp_enter(&self.table, number)
        self.count += 1
        return number

    def remove(self, int32_t slot) -> None:
        """Remove the queue and detach its memory."""
        cdef bint stays = False
        if self.at(slot).watched and self.leaves is not None:
            stays = self.leaves(slot)
        self.generation += 1
        des_forget(&self.table.descriptors)  # another queue may get the slot
        dsp_remove(&self.table, slot)
        self.names[slot] = None
        self.held[slot] = None
        if not stays:
            self.free.append(slot)
        self.count -= 1

    def name(self, int32_t slot) -> tuple[bytes, int]:
        """Topic and queue id of the slot."""
        cdef dsp_slot *at = self.at(slot)
        return self.names[slot], at.queue_id

    def attach(
        self, int32_t slot, Region region, int64_t first_queue_offset, int64_t limit
    ) -> None:
        """Set the region for the next units; None detaches the region (the file was closed).

        The region's buffer stays exported until another region or None is attached.
        """
        cdef dsp_slot *at = self.at(slot)
        if region is None:
            at.units = NULL
            self.held[slot] = None
            return
        if first_queue_offset < 0:
            raise ValueError(f"queue offset {first_queue_offset}")
        at.units = region.writing(0, limit)
        at.first_queue_offset = first_queue_offset
        at.limit = limit
        self.held[slot] = region.buffer

    def is_plain(self, int32_t slot) -> bool:
        """Whether the records of the queue are dispatched natively."""
        return self.at(slot).plain

    def open_slot(self, int32_t slot) -> None:
        """Allow native appends of waiting messages to the queue: its topic has the queue."""
        self.at(slot).opened = self.table.opened

    def close_slots(self) -> None:
        """Undo all `open_slot` calls, because topics have changed."""
        self.table.opened = self.table.opened % <uint32_t>0xFFFFFFFF + 1

    def changed(self) -> None:
        """Invalidate remembered positions, because first offsets of queues have changed."""
        self.generation += 1

    def max_offset(self, int32_t slot) -> int:
        """Queue offset of the next unit."""
        return self.at(slot).max_offset

    def max_log_offset(self, int32_t slot) -> int:
        """End (offset + size) of the last unit's record; records below it are skipped."""
        return self.at(slot).max_log_offset

    def set_progress(self, int32_t slot, int64_t max_offset, int64_t max_log_offset) -> None:
        """Set `max_offset` and `max_log_offset` after a recovery or truncation."""
        cdef dsp_slot *at = self.at(slot)
        self.generation += 1
        des_forget(&self.table.descriptors)
        at.max_offset = max_offset
        at.max_log_offset = max_log_offset
        qm_cut(&at.times, self.table.marks + <size_t>slot * QM_MARKS, max_offset)

    def note_stored(self, int32_t slot, int64_t store_timestamp_ms) -> None:
        """Note the arrival and the store time of the last message of a queue that is not plain."""
        cdef dsp_slot *at = self.at(slot)
        dsp_note_arrival(&self.table, slot)
        qm_note(&at.times, self.table.marks + <size_t>slot * QM_MARKS, at.max_offset - 1,
                store_timestamp_ms)

    def stored_ms(self, int32_t slot, int64_t queue_offset) -> tuple[int, bool]:
        """Store time of a message in ms, and whether it is accurate."""
        cdef dsp_slot *at = self.at(slot)
        cdef int known = 0
        cdef int64_t found_ms = qm_find(&at.times, self.table.marks + <size_t>slot * QM_MARKS,
                                        at.max_offset, queue_offset, &known)
        return found_ms, bool(known)

    def next_offset(self, int32_t slot) -> int:
        """Queue offset of the next append (RocketMQ: topicQueueTable).

        Dispatch raises it to `max_offset` if it is lower, so that it advances on a replica.
        """
        return self.at(slot).next_offset

    def set_next_offset(self, int32_t slot, int64_t queue_offset) -> None:
        """Set `next_offset` after an append or a truncation."""
        self.at(slot).next_offset = queue_offset

    def set_delay_levels(self, list delays_ms not None) -> None:
        """Set the delays in ms of levels 1, 2 and so on: dispatch computes from them the tags codes
        of SCHEDULE_TOPIC_XXXX, delivery times (store.md 6.3)."""
        cdef tuple fixed = tuple(delays_ms)
        self.alone()
        if len(fixed) > MAX_DELAY_LEVELS:
            raise ValueError(f"more than {MAX_DELAY_LEVELS} delay levels")
        self.table.delay_count = 0
        for i in range(len(fixed)):
            self.delays_ms[i] = fixed[i]
        self.table.delay_count = <size_t>len(fixed)

    def set_index(self, IndexFile index) -> None:
        """Set the index file for keys; None: keys are not indexed."""
        self.alone()
        self.index = index
        if index is None:
            self.ready = False
            # After a truncation the next indexed record may have the log offset of the last one.
            self.table.last_log_offset = -1

    def dispatch(
        self, Region log not None, int64_t log_base, Py_ssize_t position, Py_ssize_t end,
        *, bint queues=True
    ) -> Stop:
        """Dispatch the records of log[position:end); log offset = log_base + position.

        queues=False puts only keys: of a record whose units the caller wrote (SPECIAL).
        """
        cdef const uint8_t *memory
        cdef dsp_stop stop
        cdef dsp_work work = DSP_QUEUES if queues else DSP_INDEX_ONLY
        cdef Stop result = Stop.__new__(Stop)
        cdef object held = log.buffer
        cdef object held_index = None
        self.alone()
        log.reading(position, end - position)
        memory = log.memory
        self.table.index = NULL
        if self.index is not None:
            self.table.index = self.index.writing()
            held_index = self.index.region.buffer
        if end - position < WITHOUT_GIL:
            dsp_range(&self.table, work, memory, log_base, <size_t>position, <size_t>end, &stop)
        else:
            self.busy = True
            with nogil:
                dsp_range(&self.table, work, memory, log_base, <size_t>position, <size_t>end,
                          &stop)
            self.busy = False
        result.status = stop.status
        result.position = <Py_ssize_t>stop.position
        result.count = <Py_ssize_t>stop.count
        result.slot = stop.slot
        result.size = stop.size
        result.queue_offset = stop.queue_offset
        result.store_timestamp_ms = stop.store_timestamp_ms
        return result

    def count_on(
        self, Region log not None, int64_t log_base, Py_ssize_t position, Py_ssize_t end
    ) -> Stop:
        """Raise `next_offset` above the queue offsets of the records of log[position:end)."""
        cdef const uint8_t *memory
        cdef dsp_stop stop
        cdef Stop result = Stop.__new__(Stop)
        self.alone()
        log.reading(position, end - position)
        memory = log.memory
        dsp_count_on(&self.table, memory, log_base, <size_t>position, <size_t>end, &stop)
        result.status = stop.status
        result.position = <Py_ssize_t>stop.position
        result.count = <Py_ssize_t>stop.count
        result.slot = stop.slot
        result.size = stop.size
        result.queue_offset = stop.queue_offset
        result.store_timestamp_ms = stop.store_timestamp_ms
        return result

    def take_arrivals(self) -> list[int]:
        """Slots that got units since the last call, each once."""
        cdef list arrived = []
        cdef int32_t slot
        if not dsp_has(&self.table, DSP_ARRIVED):
            return arrived
        self.alone()
        slot = dsp_take(&self.table, DSP_ARRIVED)
        while slot >= 0:
            arrived.append(slot)
            slot = dsp_take(&self.table, DSP_ARRIVED)
        return arrived

    def advance_log(self, Tail tail not None) -> bool:
        """Dispatch the last records of the open log file; see the stub."""
        if min(tail.tail.end, tail.tail.limit) - tail.tail.dispatched >= WITHOUT_GIL:
            return False
        return self.advance(&tail.tail)

    cdef bint advance(self, log_tail *tail):
        cdef dsp_stop stop
        cdef int64_t until = min(tail.end, tail.limit)
        if not self.ready or self.busy or tail.memory == NULL or tail.dispatched < tail.base:
            return False
        if until <= tail.dispatched:
            return True
        self.table.index = NULL
        if self.index is not None:
            if self.index.region.memory == NULL:  # its file was closed for another
                return False
            self.table.index = &self.index.file
        dsp_range(&self.table, DSP_QUEUES, tail.memory, tail.base,
                  <size_t>(tail.dispatched - tail.base), <size_t>(until - tail.base), &stop)
        tail.dispatched = tail.base + <int64_t>stop.position
        if stop.count > 0:
            tail.dispatched_timestamp_ms = stop.store_timestamp_ms
        return stop.status == DSP_DONE
