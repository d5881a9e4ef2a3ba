"""The fast lane of a broker, for the connections that use it."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from turbopump.pyx.acks cimport Acks
from turbopump.pyx.c_lane cimport lane_core, lane_outcome, lane_sent
from turbopump.pyx.c_pulls cimport lane_found
from turbopump.pyx.c_traffic cimport trf_properties, trf_request, trf_send, trf_text
from turbopump.pyx.dispatch cimport QueueTable
from turbopump.pyx.halves cimport HalfMarks
from turbopump.pyx.pending cimport Holder, PendingSends
from turbopump.pyx.pops cimport Pops
from turbopump.pyx.tail cimport Tail


cdef class Lane:
    cdef lane_core core
    cdef Tail tail
    cdef QueueTable queues
    cdef int32_t capacity         # topics that fit into the table
    cdef list names               # the topics' bytes, which the core points to
    cdef bytes own_properties, region, store_host
    cdef bint trace_on
    cdef object clock, dispatch, arrived, add_queue
    cdef object woken             # called when a queue with held pulls has grown, or None
    cdef bint wakes               # `woken` was called, and its work has not been done yet
    cdef public bint open
    cdef public bint has_templates
    cdef readonly int64_t matched_count
    cdef public bint watched
    cdef bint notified            # `arrived` was called, and its work has not been done yet
    cdef bint busy                # a read is handled, which owns `scratch` and `out`
    cdef int64_t now_ms           # time of the current read, 0: not taken yet
    cdef uint8_t *scratch         # texts of a header
    cdef uint8_t *out             # answers to the current read
    cdef size_t out_size, out_room
    cdef readonly PendingSends pending
    cdef readonly Acks acks       # including the noted ones of the current read
    cdef public object grown      # called at each growth of the log, or None
    cdef public bint is_sync      # answers and readers wait for the disk
    cdef bytes refused            # the remark if too few replicas are in sync
    cdef int32_t refused_code
    cdef int64_t asked            # the end of the log after the last read
    cdef bytes broker_name
    cdef HalfMarks halves         # half messages that may end here, or None
    cdef Pops pops                # pops that are served here, or None

    cdef int64_t now(self) except? -1
    cdef lane_outcome append(self, const trf_send *send, const trf_properties *known,
                             trf_text body, trf_text born_host, lane_sent *sent) except *
    cdef bint send(self, const trf_request *request, const trf_properties *known,
                   bytes born_host, Holder holder) except -1
    cdef bint end(self, const trf_request *request) except -1
    cdef bint waits(self)
    cdef bint may_hide(self)
    cdef bint ack(self, const trf_request *request, const uint8_t *frame, size_t size) except -1
    cdef int write_acks(self) except -1
    cdef int refuse(self, const trf_request *request) except -1
    cdef bint put_pulled(self, const lane_found *found, int32_t opaque, bint is_found) except -1
    cdef int make_room(self, size_t size) except -1
    cdef int settle(self) except -1
    cdef int wake(self) except -1
    cdef bint put(self, const trf_send *send, trf_text body, trf_text born_host,
                  lane_sent *sent) except -1
    cdef int end_puts(self) except -1
    cdef bint note_ack(self, const trf_request *request, const uint8_t *frame,
                       size_t size) except -1
    cdef int forget_acks(self) except -1
    cdef bint is_named(self, trf_text name)
    cdef int32_t add_row(self, bytes topic) except -1
    cdef int grow(self) except -1
