"""csrc/tail.h, and the object that owns one."""

from libc.stdint cimport int64_t, uint8_t, uint32_t

from turbopump.pyx.region cimport Region

cdef extern from "descriptors.h" nogil:
    enum:
        DES_COUNT
    struct des_record:
        int64_t log_offset
    struct des_ring:
        des_record *records
        int64_t taken_count
    void des_forget(des_ring *ring)

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
        des_ring *descriptors


cdef class Tail:
    cdef log_tail tail
    cdef object held          # the owner of tail.memory
    cdef object describer     # the owner of tail.descriptors

    # Describe appended records in this ring; `owner` owns the ring.
    cdef int describe(self, object owner, des_ring *ring) except -1
    cdef int forget(self) except -1
