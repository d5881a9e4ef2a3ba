"""csrc/tail.h, and the object that owns one."""

from libc.stdint cimport int64_t, uint8_t, uint32_t

from turbopump.pyx.region cimport Region

cdef extern from "tail.h" nogil:
    struct log_tail:
        uint8_t *memory
        size_t size
        int64_t base
        int64_t end
        int64_t last_store_timestamp_ms
        int64_t dispatched
        int64_t dispatched_timestamp_ms
        int64_t limit
        uint32_t refusals


cdef class Tail:
    cdef log_tail tail
    cdef object held          # the owner of tail.memory
