"""What the modules of the load generator share: memory, and what must be true of a request."""

from libc.stdlib cimport calloc

from turbopump.pyx.c_load cimport load_template


cdef inline void *claim(size_t count, size_t size) except NULL:
    """Zeroed memory, to be freed by the caller."""
    cdef void *memory = calloc(count if count else 1, size)
    if memory == NULL:
        raise MemoryError
    return memory


cdef inline load_template load_template_of(object row, size_t size) except *:
    """A template that lies in a text of `size` bytes, its parts in it."""
    cdef load_template found
    (found.at, found.size, found.opaque_at, found.born_at, found.keys_at, found.unique_at,
     found.offset_at, found.codec) = row
    last = max(found.opaque_at + 10, found.born_at + 13, found.keys_at + 10,
               found.unique_at + 12, found.offset_at + 1)
    if <size_t>found.at + found.size > size or last > found.size:
        raise ValueError("a template reaches out of its text")
    return found


cdef inline int check_batch(size_t size, size_t count, size_t unique_at, size_t stride) except -1:
    """The UNIQ_KEYs of a batch lie in its body of `size` bytes."""
    if count == 0 or (unique_at and unique_at + stride * (count - 1) + 12 > size):
        raise ValueError("a batch reaches out of its body")
    return 0
