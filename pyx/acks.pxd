"""Acknowledgements of a read, for the connections that note them."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from turbopump.pyx.c_lane cimport lane_acks, lane_core
from turbopump.pyx.c_traffic cimport trf_request
from turbopump.pyx.dispatch cimport QueueTable


cdef class Acks:
    cdef lane_acks core
    cdef QueueTable queues
    cdef list names               # (group, topic) of each row
    cdef list texts               # the bytes that the core points to
    cdef bytes revive_topic
    cdef object low_of, acked     # what knows the queues and what counts, None: nothing is served
    cdef int32_t noted_row         # of what was not counted by Python yet
    cdef int64_t noted_second
    cdef int64_t noted_count

    cdef bint add(self, const lane_core *lane, const trf_request *request, const uint8_t *frame,
                  size_t size) except -1
    cdef int write(self, lane_core *lane, int64_t now_ms) except -1
    cdef int64_t low(self, int32_t row, int32_t queue_id) except? -1
    cdef int count(self, int32_t row, int64_t until_ms, int64_t requests) except -1
