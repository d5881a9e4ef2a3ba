"""The memory of every kernel: cimport this, ask for a pointer in each call, never keep it.

Code that must keep a pointer, or use one without the GIL, keeps a reference to `buffer` meanwhile:
the memory then outlives `release`.
"""

from libc.stdint cimport uint8_t


cdef class Region:
    cdef readonly Py_ssize_t size
    cdef readonly bint readonly
    cdef uint8_t *memory          # NULL after release
    cdef object buffer            # the memoryview that owns the export
    cdef object frozen            # the same, read-only: views are slices of it

    # Return the range's address; IndexError outside, ValueError after release, TypeError if
    # read-only.
    cdef const uint8_t *reading(self, Py_ssize_t position, Py_ssize_t length) except NULL
    cdef uint8_t *writing(self, Py_ssize_t position, Py_ssize_t length) except NULL
