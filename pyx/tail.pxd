"""The growing end of the commit log, for the native path: fields instead of calls."""

from libc.stdint cimport int64_t, uint8_t

from turbopump.pyx.region cimport Region


cdef class Tail:
    cdef public int64_t end
    cdef public int64_t last_store_timestamp_ms
    cdef public int64_t dispatched
    cdef readonly int64_t base
    cdef uint8_t *memory          # of the file that is written, NULL: none is open
    cdef int64_t size             # of that file
    cdef Region region            # keeps the memory
    cdef object held
