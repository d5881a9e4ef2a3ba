# cython: auto_pickle=False
"""The growing end of the commit log: where it is, and the memory of the file it is in.

Owns the numbers that the log (engine/commit_log.py), the dispatcher and the native path all move,
so that there is one of each. It must never decide when to roll or to dispatch. Called by
engine.commit_log and engine.dispatcher; cimported by the native path.
"""


cdef class Tail:
    """`end`: where the next record goes. `last_store_timestamp_ms`: of the last record.
    `dispatched`: the end of what queues and index know. `base`: log offset of the open file."""

    def open(self, int64_t base, Region region) -> None:
        """The file that is written from now on, and the log offset it begins at; None: none."""
        self.base = base
        self.region = region
        self.memory = NULL
        self.size = 0
        self.held = None
        if region is not None:
            self.memory = region.writing(0, region.size)
            self.size = region.size
            self.held = region.buffer
