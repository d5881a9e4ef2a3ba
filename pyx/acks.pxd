"""Acknowledgements of a read, for the connections that note them."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from turbopump.pyx.c_lane cimport lane_acks, lane_core
from turbopump.pyx.c_traffic cimport trf_request
from turbopump.pyx.dispatch cimport QueueTable


cdef enum:
    FLYING_MAX = 64               # counts that were not given to Python yet


# Number of hidden messages of a group and topic until some second. Pops and acknowledgements,
# applied in order, change a count to max(floor, count + change): acknowledgements never make it
# negative.
cdef struct flying:
    int32_t row
    int32_t first_queue_id        # of the first message popped, -1: no message was popped
    int64_t first
    int64_t second
    int64_t floor
    int64_t change
    int64_t acked


cdef class Acks:
    cdef lane_acks core
    cdef QueueTable queues
    cdef list names               # (group, topic) of each row
    cdef list texts               # the bytes that the core points to
    cdef bytes revive_topic
    cdef object low_of, counted   # callbacks; low_of None: nothing is served
    cdef flying noted[FLYING_MAX]
    cdef int32_t noted_count
    cdef int32_t noted_last       # the count that was changed last

    cdef bint add(self, const lane_core *lane, const trf_request *request, const uint8_t *frame,
                  size_t size) except -1
    cdef int write(self, lane_core *lane, int64_t now_ms) except -1
    cdef int64_t low(self, int32_t row, int32_t queue_id) except? -1
    cdef int count(self, int32_t row, int64_t until_ms, int64_t requests) except -1
    cdef int popped(self, int32_t row, int64_t until_ms, int64_t messages, int32_t queue_id,
                    int64_t first) except -1
    cdef flying *flying_of(self, int32_t row, int64_t second) except NULL
    cdef int32_t row_of(self, bytes group, bytes topic) except -2
