"""Plain pops, for the connections that ask for them."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from turbopump.pyx.acks cimport Acks
from turbopump.pyx.c_lane cimport lane_core
from turbopump.pyx.c_pops cimport LANE_TEXTS_MAX, lane_popped, lane_popper, lane_popping
from turbopump.pyx.c_traffic cimport trf_pop, trf_pop_answer, trf_request
from turbopump.pyx.pulls cimport Pulls


cdef class PopTurns:
    cdef object draw_one
    cdef int64_t number           # number of pops so far
    cdef int32_t draw             # draw of the next pop, -1: not drawn yet

    cdef int32_t peek(self) except -1
    cdef void count(self) noexcept


cdef class Pops:
    cdef lane_popping core
    cdef readonly Pulls readers   # row n here is reader n there
    cdef Acks acks
    cdef PopTurns turns           # None: no pop is served
    cdef object places_of, left
    cdef int32_t row_count        # rows in core.rows
    cdef list texts               # the retry topics to which each row points
    cdef int64_t popped_ms        # time of the last pop
    cdef int32_t row              # row of the current pop
    cdef lane_popped got          # valid until Python is called: it points into mappings
    cdef uint8_t starts[LANE_TEXTS_MAX]
    cdef uint8_t offsets[LANE_TEXTS_MAX]
    cdef readonly int64_t pop_count
    cdef readonly int64_t place_count  # places of all rows

    cdef lane_popper *row_at(self, int32_t number) except NULL
    cdef bint has_room(self, bytes group, bytes topic, int64_t total) except -1
    cdef bint ask(self, int32_t row) except -1
    cdef bint find(self, const trf_request *request, int64_t now_ms) except -1
    cdef void fill(self, const trf_request *request, int64_t now_ms,
                   trf_pop_answer *answer) noexcept
    cdef bint hide(self, lane_core *lane, const trf_request *request, int64_t now_ms)
    cdef int note(self, int64_t until_ms, bint watched) except -1
