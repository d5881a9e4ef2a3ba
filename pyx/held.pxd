"""Answers that wait, for those who write and who give them."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from turbopump.pyx.c_traffic cimport trf_send_answer


cdef struct held_answer:
    int64_t end           # of the record: what has to be safe
    int64_t since_ms
    void *holder          # a reference is held
    size_t size
    int32_t need, opaque


cdef enum:
    HELD_NEEDS = 64       # copies that are asked for: -1 to 62


cdef class Holder:
    cdef Py_ssize_t held_now      # answers of the read that is handled
    cdef int give(self, bytes answers, Py_ssize_t count) except -1


cdef class Held:
    cdef held_answer *ring
    cdef size_t ring_room, first, waiting
    cdef uint8_t *texts   # of the answers, in their order
    cdef size_t begin, end, room
    cdef int64_t safe[HELD_NEEDS]
    cdef readonly int64_t flushed
    cdef public int64_t steady_ms, disk_wait_ms, replica_wait_ms
    cdef public Py_ssize_t limit
    cdef dict statuses
    cdef bytes region
    cdef bint trace_on

    cdef bint is_full(self)
    cdef int add(self, Holder holder, const trf_send_answer *answer, int64_t end,
                 int32_t need) except -1
    cdef int64_t safe_end(self, int32_t need)
    cdef bint is_safe(self, const held_answer *one)
    cdef int grow(self, size_t size) except -1
    cdef held_answer take(self)
    cdef bytes refusal(self, held_answer one, object status, size_t at)
    cdef int tell(self, held_answer one, object status) except -1
