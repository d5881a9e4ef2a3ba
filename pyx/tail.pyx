# cython: auto_pickle=False
"""The growing end of the commit log: where it is, and the memory of the file it is in.

Owns the numbers that the log (engine/log/commit_log.py), the dispatcher and the native path all
move, so that there is one of each. It must never decide when to roll or to dispatch. Called by
engine.commit_log and engine.dispatcher; cimported by the native path.
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
        """Where the next record goes."""
        return self.tail.end

    @end.setter
    def end(self, int64_t value):
        self.tail.end = value

    @property
    def last_store_timestamp_ms(self) -> int:
        """Of the last record."""
        return self.tail.last_store_timestamp_ms

    @last_store_timestamp_ms.setter
    def last_store_timestamp_ms(self, int64_t value):
        self.tail.last_store_timestamp_ms = value

    @property
    def dispatched(self) -> int:
        """Queues and index are complete up to here."""
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
        """Records that end behind this are not dispatched; UNLIMITED without replicas."""
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
        """Why the native path may not append, a bit for each reason; 0: it may."""
        return self.tail.refusals

    def refuse(self, uint32_t reason, bint on) -> None:
        """Set or clear the bits of `reason`."""
        if on:
            self.tail.refusals |= reason
        else:
            self.tail.refusals &= ~reason

    def open(self, int64_t base, Region region) -> None:
        """The file that is written from now on, and the log offset it begins at; None: none."""
        self.tail.base = base
        self.tail.memory = NULL
        self.tail.size = 0
        self.held = None
        if region is not None:
            self.tail.memory = region.writing(0, region.size)
            self.tail.size = <size_t>region.size
            self.held = region.buffer
