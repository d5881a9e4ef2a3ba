"""Plain sends of gRPC, for the sessions that have them served."""

from libc.stdint cimport uint8_t

from turbopump.pyx.c_grpc_send cimport (
    GRS_ANSWER_ROOM,
    GRS_PROPERTIES_ROOM,
    grs_head,
)
from turbopump.pyx.lane cimport Lane


cdef class GrpcSends:
    cdef object place
    cdef readonly bytes headers, trailers
    cdef Lane lane                # of what this read has stored, None: nothing
    cdef readonly long long send_count
    cdef size_t held              # bytes that sessions hold of calls that are not whole
    cdef uint8_t properties[GRS_PROPERTIES_ROOM]
    cdef uint8_t out[GRS_ANSWER_ROOM]

    cdef bytes serve(self, const uint8_t *data, size_t size, const grs_head *head, bytes address,
                     bytes host)
    cdef int settle(self) except -1
