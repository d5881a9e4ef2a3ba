"""What load.pyx shares with the parts."""

from turbopump.pyx.c_load cimport load_template


cdef void *claim(size_t count, size_t size) except NULL
cdef load_template load_template_of(object row, size_t size) except *
cdef int check_batch(size_t size, size_t count, size_t unique_at, size_t stride) except -1
