"""The queue table, for the native path: it finds slots and dispatches without Python between."""

from libc.stdint cimport int32_t, int64_t

from turbopump.pyx.c_dispatch cimport dsp_slot, dsp_table
from turbopump.pyx.index cimport IndexFile
from turbopump.pyx.tail cimport des_record, log_tail

cdef enum:
    MAX_DELAY_LEVELS = 1024       # RocketMQ has 18; messageDelayLevel may name more


cdef class QueueTable:
    cdef dsp_table table
    cdef int32_t capacity         # number of slots, and half the number of buckets
    cdef int32_t used             # number of slots that were ever used: slots from here are unused
    cdef readonly int count
    cdef public bint ready
    cdef int64_t generation       # increases when offsets of a queue change other than by growing
    cdef list names               # the topics' bytes, which the slots point to
    cdef list held                # the buffers with the slots' units
    cdef list free
    cdef IndexFile index
    cdef int64_t delays_ms[MAX_DELAY_LEVELS]
    cdef des_record *ring         # memory of the table's descriptors
    cdef bint busy                # a dispatch runs without the GIL
    # Called with a slot whose pulls wait, before it is removed; True: the slot may not be used for
    # another queue until the called object puts it into `free`.
    cdef object leaves

    cdef int alone(self) except -1
    cdef dsp_slot *at(self, Py_ssize_t slot) except NULL
    cdef int grow(self) except -1

    # Dispatch up to the tail's end or limit; False if the dispatcher in Python has to continue.
    cdef bint advance(self, log_tail *tail)
