# cython: auto_pickle=False
"""The growing end of the commit log: its position, and the memory of the file that is written.

Owns the numbers that the log (engine/log/commit_log.py), the dispatcher and the native path all
change, so that each number exists once. It must never decide when to roll or to dispatch.
"""

from libc.stdint cimport INT64_MAX, int64_t, uint32_t

from turbopump.pyx.region cimport Region

UNLIMITED = INT64_MAX


cdef class Tail:
    """The end of the log. Positions are log offsets, times epoch milliseconds."""

    def __cinit__(self):
        self.tail.limit = INT64_MAX

    @property
    def end(self) -> int:
        """Log offset of the next record."""
        return self.tail.end

    @end.setter
    def end(self, int64_t value):
        if value < self.tail.end:
            self.forget()  # other records may get the log offsets of the cut ones
        self.tail.end = value

    @property
    def last_store_timestamp_ms(self) -> int:
        """Store time of the last record."""
        return self.tail.last_store_timestamp_ms

    @last_store_timestamp_ms.setter
    def last_store_timestamp_ms(self, int64_t value):
        self.tail.last_store_timestamp_ms = value

    @property
    def dispatched(self) -> int:
        """Log offset up to which queues and index are complete."""
        return self.tail.dispatched

    @dispatched.setter
    def dispatched(self, int64_t value):
        self.tail.dispatched = value

    @property
    def dispatched_timestamp_ms(self) -> int:
        """Store time of the last record dispatched."""
        return self.tail.dispatched_timestamp_ms

    @dispatched_timestamp_ms.setter
    def dispatched_timestamp_ms(self, int64_t value):
        self.tail.dispatched_timestamp_ms = value

    @property
    def limit(self) -> int:
        """Log offset up to which records are dispatched; UNLIMITED without replicas."""
        return self.tail.limit

    @limit.setter
    def limit(self, int64_t value):
        self.tail.limit = value

    @property
    def base(self) -> int:
        """Log offset of the open file's first byte."""
        return self.tail.base

    @property
    def refusals(self) -> int:
        """Reasons why the native path may not append, one bit for each; 0: it may."""
        return self.tail.refusals

    def refuse(self, uint32_t reason, bint on) -> None:
        """Set or clear the bits of `reason`."""
        if on:
            self.tail.refusals |= reason
        else:
            self.tail.refusals &= ~reason

    def open(self, int64_t base, Region region) -> None:
        """Set the file that receives the next records, and the log offset of its first byte; None:
        no file."""
        self.forget()
        self.tail.base = base
        self.tail.memory = NULL
        self.tail.size = 0
        self.held = None
        if region is not None:
            self.tail.memory = region.writing(0, region.size)
            self.tail.size = <size_t>region.size
            self.held = region.buffer

    cdef int describe(self, object owner, des_ring *ring) except -1:
        self.describer, self.tail.descriptors = owner, ring
        return 0

    cdef int forget(self) except -1:
        if self.tail.descriptors != NULL:
            des_forget(self.tail.descriptors)
        return 0
