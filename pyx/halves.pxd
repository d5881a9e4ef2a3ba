"""Outcomes of half messages, for the lane that ends them."""

from libc.stdint cimport int64_t, uint8_t


cdef class HalfMarks:
    cdef readonly int64_t base        # queue offset of the first mark
    cdef uint8_t *marks               # one each, beginning at `base`; later half messages are open
    cdef size_t count, room
    cdef int64_t *queued              # ended, and not named by an op message: oldest first
    cdef size_t waits, wait_room, limit
    cdef int64_t from_log_offset
    cdef object due
    cdef public bint notified         # `due` was called, and its work has not been done yet

    cdef bint may_end(self, int64_t at, int64_t log_offset)
    cdef int put(self, int64_t at, int mark) except -1
    cdef int finish(self, int64_t at, int mark) except -1
