"""Held pulls of the native path, for the connections that ask for them."""

from libc.stdint cimport int32_t, int64_t

from turbopump.pyx.c_held cimport held_owner, held_row, held_table
from turbopump.pyx.c_traffic cimport trf_request
from turbopump.pyx.dispatch cimport QueueTable
from turbopump.pyx.lane cimport Lane
from turbopump.pyx.pulls cimport Pulls
from turbopump.pyx.socket_writing cimport SocketWriter


cdef class HeldRows:
    cdef held_table core
    cdef Lane lane
    cdef Pulls pulls
    cdef QueueTable queues
    cdef object post, steady_ms
    cdef public object hand_over
    cdef int64_t longest_ms       # greatest time that a pull is held
    cdef int64_t fixed_ms         # time that every pull is held, -1: the request has the time
    cdef int64_t until_ms         # the last tick: pulls are answered whose time ended then
    cdef bint expires             # `expire` is called soon
    cdef bint hands               # `hand_over_some` is called soon
    cdef bint ran                 # one of these ran since the last tick
    cdef public int64_t count_max, size_max, row_size
    cdef public int64_t others_count, others_size
    cdef readonly int64_t held_count, wake_count

    cdef bint add(self, SocketWriter connection, const trf_request *request,
                  int64_t now_ms) except -1
    cdef int drop(self, SocketWriter connection) except -1
    cdef held_row release(self, int32_t number)
    cdef int attempt(self, int32_t number, bint final, int32_t *budget) except -1
    cdef int answer(self, int32_t number, bint found) except -1
    cdef int give_over(self, int32_t number, int how) except -1
    cdef int hand_over_soon(self) except -1
    cdef int way_of(self, int32_t number) except -1
    cdef int room(self, int32_t slot) except -1
