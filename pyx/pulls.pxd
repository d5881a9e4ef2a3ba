"""Plain pulls, for the connections that ask for them."""

from libc.stdint cimport int32_t, int64_t

from turbopump.pyx.c_pulls cimport lane_found, lane_found_outcome, lane_reader, lane_reading
from turbopump.pyx.c_traffic cimport trf_pull, trf_request
from turbopump.pyx.dispatch cimport QueueTable
from turbopump.pyx.tail cimport Tail


cdef class Pulls:
    cdef lane_reading core
    cdef Tail tail
    cdef QueueTable queues
    cdef int64_t seen             # generation to which the held mappings belong
    cdef object units_of, log_of, commit
    cdef list names               # (group, topic) of each row, as bytes
    cdef list texts               # bytes objects to which each row points
    cdef list spans               # read-only views of the log files in core.spans
    cdef dict held                # (row, queue id) -> the mapping of its cursor
    cdef int next_span
    cdef lane_found found         # valid until Python is called: it points into mappings
    cdef public int64_t found_count, missed_count, transferred_count
    cdef object keeper            # HeldRows for pulls that find nothing, or None

    cdef lane_found_outcome find(self, const trf_pull *pull, int64_t now_ms) except *
    cdef lane_found_outcome find_again(self, int32_t number, const trf_pull *pull,
                                       int64_t now_ms) except *
    cdef bint fetch(self, lane_found_outcome outcome, const trf_pull *pull) except -1
    cdef int fetch_units(self, const trf_pull *pull, int64_t queue_offset) except -1
    cdef int fetch_log(self, int64_t log_offset) except -1
    cdef int refresh(self) except -1
    cdef list slices(self, size_t skipped)
    cdef tuple reader(self)
    cdef void count(self, const trf_pull *pull) noexcept
    cdef int note(self, tuple reader, const trf_pull *pull, int64_t now_ms) except -1
