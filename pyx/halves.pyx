# cython: auto_pickle=False
"""Outcomes of half messages: a mark of one byte for each, and a list that waits for op messages.

Owns the memory of both. It must never read or write a record, nor know the meaning of a mark,
except that 0 is open. The base class of broker/scheduled/transaction_outcomes.py's.

    marks     | 1 | 0 | 2 | ...     beginning at `base`; half messages after the last mark are open
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
"""Greatest number of half messages from the first open one to the last; each has a byte."""


cdef class HalfMarks:
    """See the stub."""

    def __init__(
        self, int64_t base, int64_t from_log_offset, Py_ssize_t limit, due not None
    ):
        if base < 0 or limit < 0:
            raise ValueError(f"from {base} on, {limit} at most")
        self.base, self.from_log_offset, self.limit = base, from_log_offset, <size_t>limit
        self.due, self.notified = due, False
        self.count = self.waits = 0

    def __dealloc__(self):
        PyMem_Free(self.marks)
        PyMem_Free(self.queued)

    def mark_of(self, int64_t at) -> int:
        """Return the mark of a half message; -1 before `base`."""
        if at < self.base:
            return -1
        return self.marks[at - self.base] if <size_t>(at - self.base) < self.count else OPEN

    def set_mark(self, int64_t at, int mark) -> None:
        """Set the mark of a half message; no-op before `base`."""
        if not OPEN <= mark <= MARK_MAX:
            raise ValueError(f"no mark: {mark}")
        self.put(at, mark)

    def next_open(self, int64_t at) -> int:
        """Return the first open queue offset at or after both `at` and `base`; see the stub."""
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
        """Count the open half messages before `end`, the end of the queue."""
        cdef size_t number
        cdef int64_t found = 0
        for number in range(self.count):
            found += self.marks[number] == OPEN
        return found + max(max(end, 0) - self.base - <int64_t>self.count, 0)

    def drop(self, int64_t base) -> None:
        """Forget the marks before `base`."""
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
        """Mark a half message as ended and queue it for an op message."""
        if not OPEN <= mark <= MARK_MAX:
            raise ValueError(f"no mark: {mark}")
        self.finish(at, mark)

    @property
    def waiting(self) -> int:
        """Number of ended half messages that wait for an op message."""
        return self.waits

    @property
    def is_full(self) -> bool:
        """Whether `limit` is reached, so that no further half message may end."""
        return self.waits >= self.limit

    def op_body(self, Py_ssize_t size) -> tuple[bytes, int, int]:
        """Return the body of an op message, with at least one entry; see the stub."""
        cdef size_t count = 0
        cdef int64_t newest = -1
        cdef uint8_t text[DIGITS_ROOM + 1]
        cdef uint8_t *end
        cdef uint8_t *out
        cdef size_t length, used = 0, room
        # An entry has at least two bytes, so one entry beyond the limit is written and subtracted.
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
        """Forget the `count` entries that waited longest."""
        if not 0 <= count <= <Py_ssize_t>self.waits:
            raise ValueError(f"{count} of {self.waits}")
        self.waits -= <size_t>count
        memmove(self.queued, self.queued + count, self.waits * sizeof(int64_t))

    cdef bint may_end(self, int64_t at, int64_t log_offset):
        """Whether the lane may end this half message: it is open, of this term as master, and one
        more may wait."""
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
        """Mark a half message as ended, with a valid mark; `due` is called last."""
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
        if not self.notified:
            self.notified = True
            self.due()
        return 0
