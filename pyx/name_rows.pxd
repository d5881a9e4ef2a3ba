"""Rows found by two names: growth, for the tables of readers and acknowledgers."""

from cpython.mem cimport PyMem_Realloc
from libc.stdint cimport int32_t

from turbopump.pyx.c_lane cimport nam_key, nam_rehash, nam_table


cdef enum:
    FIRST_ROWS = 16


cdef inline void *row_room(nam_table *names, void *rows, size_t row_size) except? NULL:
    """Return the rows of a table, with room for one more; they may have moved. Raises MemoryError,
    which leaves the table unchanged."""
    cdef int32_t count = names.count
    cdef size_t capacity
    cdef void *keys
    cdef void *more
    cdef void *buckets
    if count < FIRST_ROWS and count > 0 or count & (count - 1):
        return rows
    capacity = <size_t>max(FIRST_ROWS, 2 * count)
    keys = PyMem_Realloc(names.keys, capacity * sizeof(nam_key))
    if keys == NULL:
        raise MemoryError
    names.keys = <nam_key *>keys
    buckets = PyMem_Realloc(names.buckets, capacity * 2 * sizeof(int32_t))
    if buckets == NULL:
        raise MemoryError
    nam_rehash(names, <int32_t *>buckets, capacity * 2)
    more = PyMem_Realloc(rows, capacity * row_size)
    if more == NULL:
        raise MemoryError
    return more
