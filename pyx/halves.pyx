# cython: auto_pickle=False
"""What became of half messages: a byte for each, and those that wait for an op message.

Owns both memories. It must never read a record or write one, nor say what a mark means but that 0
is open. Called by the lane for each end that it serves (pyx/lane.pyx), and by
broker/scheduled/half_outcomes.py, whose class has this base.

    marks     | 1 | 0 | 2 | ...     from `base` on; behind them all are open
    queued    | 17 | 21 | 18 ...    queue offsets, in the order in which they ended
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from libc.stdint cimport INT64_MAX, int64_t, uint8_t, uint64_t
from libc.string cimport memchr, memcpy, memmove, memset

cdef extern from "digits.h" nogil:
    enum:
        DIGITS_ROOM
    uint8_t *digits_put(uint8_t *out, uint64_t value)

cdef enum:
    FIRST_ROOM = 4096
    OPEN = 0
    MARK_MAX = 255

cdef int64_t MARKS_MAX = 1 << 32
"""Half messages from the first open one on: each has a byte."""


cdef class HalfMarks:
    """See the stub."""

    def __init__(
        self, int64_t base, int64_t from_log_offset, Py_ssize_t limit, due not None
    ):
        if base < 0 or limit < 0:
            raise ValueError(f"from {base} on, {limit} at most")
        self.base, self.from_log_offset, self.limit = base, from_log_offset, <size_t>limit
        self.due, self.told = due, False
        self.count = self.waits = 0

    def __dealloc__(self):
        PyMem_Free(self.marks)
        PyMem_Free(self.queued)

    def mark_of(self, int64_t at) -> int:
        """Its mark; -1 of one before `base`."""
        if at < self.base:
            return -1
        return self.marks[at - self.base] if <size_t>(at - self.base) < self.count else OPEN

    def set_mark(self, int64_t at, int mark) -> None:
        """Mark one; nothing is kept of one before `base`."""
        if not OPEN <= mark <= MARK_MAX:
            raise ValueError(f"no mark: {mark}")
        self.put(at, mark)

    def next_open(self, int64_t at) -> int:
        """The first one from there on, or from `base`, that is open; there may be none there."""
        cdef size_t number
        cdef const void *found
        at = max(at, self.base)
        number = <size_t>(at - self.base)
        if number >= self.count:
            return at
        found = memchr(self.marks + number, OPEN, self.count - number)
        return self.base + (<const uint8_t *>found - self.marks if found != NULL
                            else <Py_ssize_t>self.count)

    def open_count(self, int64_t end) -> int:
        """How many before `end`, the end of the queue, are open."""
        cdef size_t number
        cdef int64_t found = 0
        for number in range(self.count):
            found += self.marks[number] == OPEN
        return found + max(max(end, 0) - self.base - <int64_t>self.count, 0)

    def drop(self, int64_t base) -> None:
        """Forget those before it."""
        cdef size_t dropped
        cdef void *less
        if base <= self.base:
            return
        dropped = min(<size_t>(base - self.base), self.count)
        self.base, self.count = base, self.count - dropped
        memmove(self.marks, self.marks + dropped, self.count)
        if self.room > FIRST_ROOM and self.count < self.room // 4:
            less = PyMem_Realloc(self.marks, self.room // 2)
            if less != NULL:
                self.marks, self.room = <uint8_t *>less, self.room // 2

    def end(self, int64_t at, int mark) -> None:
        """One has ended, and an op message is to say so."""
        if not OPEN <= mark <= MARK_MAX:
            raise ValueError(f"no mark: {mark}")
        self.finish(at, mark)

    @property
    def waiting(self) -> int:
        """How many wait for an op message."""
        return self.waits

    @property
    def is_full(self) -> bool:
        """Whether so many wait that no more may be ended."""
        return self.waits >= self.limit

    def op_body(self, Py_ssize_t size) -> tuple[bytes, int, int]:
        """What an op message of at most that size says of those that wait longest, one of them at
        least; see the stub."""
        cdef size_t count = 0
        cdef int64_t newest = -1
        cdef uint8_t text[DIGITS_ROOM + 1]
        cdef uint8_t *end
        cdef uint8_t *out
        cdef size_t length, used = 0, room
        # An entry has two bytes at least, so one beyond the limit is written and counted off.
        room = min(self.waits * (DIGITS_ROOM + 1), <size_t>max(size, 0)) + DIGITS_ROOM + 1
        out = <uint8_t *>PyMem_Malloc(room)
        if out == NULL:
            raise MemoryError
        while count < self.waits:
            end = digits_put(text, <uint64_t>self.queued[count])
            end[0] = c","
            length = <size_t>(end - text) + 1
            if count and used + length > <size_t>max(size, 0):
                break
            memcpy(out + used, text, length)
            used += length
            newest = max(newest, self.queued[count])
            count += 1
        try:
            body = PyBytes_FromStringAndSize(<char *>out, <Py_ssize_t>used)
        finally:
            PyMem_Free(out)
        return body, count, newest

    def written(self, Py_ssize_t count) -> None:
        """So many of those that wait longest are named by an op message."""
        if not 0 <= count <= <Py_ssize_t>self.waits:
            raise ValueError(f"{count} of {self.waits}")
        self.waits -= <size_t>count
        memmove(self.queued, self.queued + count, self.waits * sizeof(int64_t))

    cdef bint may_end(self, int64_t at, int64_t log_offset):
        """Whether it is one of this reign that is open, and one more may wait."""
        if log_offset < self.from_log_offset or self.waits >= self.limit or at < self.base:
            return False
        return <size_t>(at - self.base) >= self.count or self.marks[at - self.base] == OPEN

    cdef int put(self, int64_t at, int mark) except -1:
        cdef size_t number, room
        cdef void *more
        if at < self.base:
            return 0
        if at - self.base >= MARKS_MAX:
            raise ValueError(f"no queue offset: {at}, far after the first open one")
        number = <size_t>(at - self.base)
        if number >= self.count:
            if number >= self.room:
                room = max(self.room, <size_t>FIRST_ROOM)
                while room <= number:
                    room *= 2
                more = PyMem_Realloc(self.marks, room)
                if more == NULL:
                    raise MemoryError
                self.marks, self.room = <uint8_t *>more, room
            memset(self.marks + self.count, OPEN, number + 1 - self.count)
            self.count = number + 1
        self.marks[number] = <uint8_t>mark
        return 0

    cdef int finish(self, int64_t at, int mark) except -1:
        """As `end`, of a mark that is one. `due` is called last."""
        cdef size_t room
        cdef void *more
        if at < 0 or at == INT64_MAX:
            raise ValueError(f"no queue offset: {at}")
        if self.waits == self.wait_room:
            room = max(self.wait_room * 2, <size_t>FIRST_ROOM)
            more = PyMem_Realloc(self.queued, room * sizeof(int64_t))
            if more == NULL:
                raise MemoryError
            self.queued, self.wait_room = <int64_t *>more, room
        self.put(at, mark)
        self.queued[self.waits] = at
        self.waits += 1
        if not self.told:
            self.told = True
            self.due()
        return 0
