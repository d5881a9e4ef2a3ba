"""Sends that wait: the lane adds native ones, and connections receive their answers."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from turbopump.pyx.c_traffic cimport trf_send_answer


cdef struct pending_send:
    int64_t end           # end of the record that has to be safe
    int64_t since_ms
    void *holder          # a connection, or a callback; one reference is held
    size_t size           # of the connection's answer; 0: call the holder
    int32_t need, opaque


cdef enum:
    NEEDS = 64            # numbers of copies that may be asked for: -1 to 62


cdef class Holder:
    cdef Py_ssize_t held_now      # answers of the current read
    cdef int give(self, bytes answers, Py_ssize_t count) except -1


cdef class PendingSends:
    cdef pending_send *ring
    cdef size_t ring_room, first, waiting
    cdef uint8_t *texts   # texts of the answers, in their order
    cdef size_t begin, end, room
    cdef int64_t safe[NEEDS]
    cdef int32_t copies           # number that a send needs now
    cdef bint not_enough          # too few replicas are in sync for new sends
    cdef readonly bint withheld
    cdef readonly int64_t flushed
    cdef public int64_t steady_ms, disk_wait_ms, replica_wait_ms
    cdef public Py_ssize_t limit
    cdef object ok, late_replicas, late_disk
    cdef dict statuses
    cdef bytes region
    cdef bint trace_on

    cdef bint is_full(self)
    cdef int add(self, Holder holder, const trf_send_answer *answer, int64_t end,
                 int32_t need) except -1
    cdef int64_t safe_of(self, int32_t need)
    cdef bint is_safe(self, const pending_send *one)
    cdef pending_send *enter(self, void *holder, int64_t end, int32_t need)
    cdef int grow(self, size_t size) except -1
    cdef pending_send take(self)
    cdef bytes refusal(self, pending_send one, object status, size_t at)
    cdef int tell(self, pending_send one, object status) except -1
