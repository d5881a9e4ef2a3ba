"""The fast lane of a broker, for the connections that drive through it."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from turbopump.pyx.c_lane cimport lane_core
from turbopump.pyx.c_traffic cimport trf_request, trf_send_answer
from turbopump.pyx.dispatch cimport QueueTable
from turbopump.pyx.tail cimport Tail


cdef class Lane:
    cdef lane_core core
    cdef Tail tail
    cdef QueueTable queues
    cdef int32_t capacity         # topics there is room for
    cdef list names               # the topics' bytes, which the core points to
    cdef bytes own_properties, region, store_host
    cdef bint trace_on
    cdef object clock, dispatch, arrived
    cdef public bint open
    cdef public bint watched
    cdef bint told                # `arrived` was called, and its work is still to come
    cdef int64_t now_ms           # of the read that is handled, 0: not asked for yet
    cdef uint8_t *scratch         # texts of a header
    cdef uint8_t *out             # answers to the read that is handled
    cdef size_t out_size, out_room
    cdef public object keep       # takes answers that wait for the disk, None: none does
    cdef public bint full         # so many of them wait that sends are refused
    cdef uint8_t *kept            # answers to the read that is handled, of that kind
    cdef size_t kept_size, kept_room
    cdef Py_ssize_t kept_count
    cdef int64_t kept_end         # what has to be durable before they leave
    cdef int64_t asked            # the end of the log that a commit was asked for

    cdef int64_t now(self) except? -1
    cdef bint send(self, const trf_request *request, bytes born_host) except -1
    cdef int make_room(self, size_t size) except -1
    cdef int answer_later(self, const trf_send_answer *answer, int64_t end) except -1
    cdef tuple take_kept(self)
    cdef int settle(self) except -1
    cdef int grow(self) except -1
