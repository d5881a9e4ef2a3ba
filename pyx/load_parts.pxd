"""Shared helpers of the load generator's modules: memory, and checks of requests."""

from libc.stdint cimport INT32_MAX, int64_t, uint8_t
from libc.stdlib cimport calloc

from turbopump.pyx.c_load cimport LOAD_ELEMENT_HEAD, load_corpus, load_template


cdef inline void *claim(size_t count, size_t size) except NULL:
    """Return zeroed memory, which the caller frees."""
    cdef void *memory = calloc(count if count else 1, size)
    if memory == NULL:
        raise MemoryError
    return memory


cdef inline load_template load_template_of(object row, size_t size) except *:
    """Return a template, checked to lie in a text of `size` bytes with all its parts."""
    cdef load_template found
    (found.at, found.size, found.opaque_at, found.born_at, found.keys_at, found.unique_at,
     found.offset_at, found.codec) = row
    last = max(found.opaque_at + 10, found.born_at + 13, found.keys_at + 10,
               found.unique_at + 12, found.offset_at + 1)
    if <size_t>found.at + found.size > size or last > found.size:
        raise ValueError("a template reaches out of its text")
    return found


cdef inline int check_batch(size_t size, size_t count, size_t unique_at, size_t stride) except -1:
    """Check that the UNIQ_KEYs of a batch lie in its body of `size` bytes."""
    if count == 0 or (unique_at and unique_at + stride * (count - 1) + 12 > size):
        raise ValueError("a batch reaches out of its body")
    return 0


cdef inline size_t corpus_of(load_corpus *made, const uint8_t[::1] data, const int64_t[::1] starts,
                             const int64_t[::1] ends, bytes element, size_t unique_at,
                             size_t per_send) except 0:
    """Fill in a corpus; returns the size limit of its largest request. The caller keeps the
    buffers."""
    cdef Py_ssize_t i, count = starts.shape[0]
    cdef int64_t largest = 0
    if count == 0 or ends.shape[0] != count or per_send == 0:
        raise ValueError("a corpus without bodies")
    if element and (len(element) < LOAD_ELEMENT_HEAD + 2 or unique_at + 12 > <size_t>len(element)
                    or 0 < unique_at < LOAD_ELEMENT_HEAD):
        raise ValueError("no element of a batch")
    if per_send > 1 and not element:
        raise ValueError("a batch without an element")
    for i in range(count):
        if not 0 <= starts[i] <= ends[i] <= data.shape[0]:
            raise ValueError(f"body {i} reaches out of its corpus")
        largest = max(largest, ends[i] - starts[i])
    if largest + len(element) > INT32_MAX // <int64_t>per_send:
        raise ValueError("a body is too large")
    made.bytes = &data[0] if data.shape[0] else NULL
    made.starts, made.ends = &starts[0], &ends[0]
    made.count, made.next = count, 0
    made.element, made.element_size = element, len(element)
    made.unique_at, made.per_send = unique_at, per_send
    return (largest + len(element)) * per_send + 1
