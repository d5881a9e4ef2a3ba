"""Plain calls of gRPC, for the sessions that have them served."""

from libc.stdint cimport uint8_t

from turbopump.pyx.c_grpc cimport GRC_ANSWER_ROOM, GRS_PROPERTIES_ROOM, grc_head
from turbopump.pyx.lane cimport Lane

cdef enum:
    GRL_ELSEWHERE
    GRL_NOTED
    GRL_FULL


cdef class GrpcLane:
    cdef object place, may_ack
    cdef readonly bytes headers, trailers
    cdef Lane lane                # the lane that this read uses, None: no lane yet
    cdef readonly long long send_count
    cdef readonly long long ack_count
    cdef size_t held              # bytes that sessions hold of incomplete calls
    cdef uint8_t properties[GRS_PROPERTIES_ROOM]
    cdef uint8_t out[GRC_ANSWER_ROOM]

    cdef bytes send(self, const uint8_t *data, size_t size, const grc_head *head, bytes address,
                    bytes host)
    cdef int note_ack(self, const uint8_t *data, size_t size, const grc_head *head) except -1
    cdef int write_acks(self) except -1
    cdef bytes acked(self, int number, const uint8_t *data, size_t size)
    cdef bint uses(self, Lane lane)
    cdef int forget_acks(self) except -1
    cdef int settle(self) except -1
