"""Rows that are found by two names: room for one more, for the tables of readers and acknowledgers.
"""

from cpython.mem cimport PyMem_Realloc
from libc.stdint cimport int32_t

from turbopump.pyx.c_lane cimport nam_key, nam_rehash, nam_table


cdef enum:
    FIRST_ROWS = 16


cdef inline void *row_room(nam_table *names, void *rows, size_t row_size) except? NULL:
    """The rows of a table, `rows` or where they are now, with room for one more. Raises
    MemoryError, and what the table has stays."""
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
