"""The template of a connection's sends, for pyx/fast.pyx."""

from libc.stdint cimport uint8_t

from turbopump.pyx.c_traffic cimport trf_properties, trf_request, trf_template


cdef class SendTemplate:
    cdef trf_template core
    cdef trf_properties properties    # of the send that matched last
    cdef int missed                   # sends in a row that did not match
    cdef int patience                 # this many: then the next header is learned

    cdef bint match(self, const uint8_t *frame, size_t size, uint8_t *scratch)
    cdef int learn(self, const uint8_t *frame, const trf_request *request) except -1
